# SPDX-License-Identifier: GPL-3.0-or-later
"""I3 on real hosts: a torn record is mended from its copy; without one the host waits for a repair, and says so."""

from __future__ import annotations

import shlex

import pytest
from support import node as nodes
from support import releases

S = nodes.SLOTS
TEAR = f"for f in %s; do head -c 20 {S}/$f >{S}/torn && cat {S}/torn >{S}/$f; done; rm {S}/torn"


def tear(node: nodes.Node, *names: str) -> None:
    """Cut these files short in place, as a disk does and no program of ours."""
    node.damaged = True
    node.sh(TEAR % " ".join(names))


def runs(node: nodes.Node, version: str) -> None:
    """The daemon runs, and what starts is what the records say."""
    node.waits(lambda: node.running() == version, 15, f"{version} runs")


@pytest.mark.host
def test_p4_a_torn_record_is_mended_at_the_next_start(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """I3: the daemon's own start restores it, the torn file is kept, log and journal say so, and updates go on."""
    node.upgraded(v110)
    before = node.sh(f"cat {S}/update.json")
    tear(node, "update.json")
    node.sh(f"systemctl restart {nodes.UNIT}")
    runs(node, "1.1.0")
    node.waits(lambda: node.sh(f"cat {S}/update.json") == before, 15, "the record is back")
    (aside,) = [name for name in node.names() if name.startswith("update.json.broken-")]
    assert node.sh(f"head -c 20 {S}/{aside}") == before[:20]
    noted = [event for event in node.slotward("audit").json["lines"] if event["event"] == "restored"]
    assert [event["code"] for event in noted] == ["record-broken"]
    node.sh("journalctl --sync")
    assert f"restored: {S}/update.json" in node.said("-o cat")  # a selection would skip its first entry on systemd 252
    assert node.update()["broken"] is None
    assert node.doctor()["records"][0] == "ok"
    assert node.upgraded(v120).json["floor"] == 3
    node.runnable()


@pytest.mark.host
def test_p4_with_the_copy_torn_too_the_host_waits_for_a_repair_that_says_the_floor(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """I3, I8: refused, the daemon up, the command named by doctor and by the refusal; what they say lets updates go on."""
    node.upgraded(v110)
    node.sh(f"rm {S}/audit.log")
    tear(node, "update.json", "update.json.copy")
    node.sh(f"systemctl restart {nodes.UNIT}")
    runs(node, "1.1.0")
    refused = node.begin(v120)
    assert (refused.exit, refused.code) == (5, "record-broken"), refused
    shown = node.update()
    assert (shown["code"], shown["broken"]["file"]) == ("record-broken", f"{S}/update.json")
    assert shown["broken"]["copy"].startswith(f"{S}/update.json.copy: its first line does not fit")
    state, _said, command = node.doctor()["records"]
    assert (state, command) == ("fail", "slotward update --repair")
    asked = node.command(shlex.split(command))
    assert (asked.exit, asked.code, asked.json["changed"]) == (3, "floor-unproven", False), asked
    assert asked.json["known"]["lowest"] == 2
    assert node.slotward("update", "--repair", "--floor", "1").code == "floor-unproven"
    mended = node.command(shlex.split(asked.json["retry"]))
    assert (mended.exit, mended.code, mended.json["floor"]) == (0, "ok", 2), mended
    assert node.slotward("update", "--repair").json["changed"] is False
    assert node.doctor()["records"][0] == "ok"
    assert node.upgraded(v120).json["floor"] == 3
    node.runnable()


@pytest.mark.host
def test_s1_a_trial_whose_records_are_lost_goes_back_and_its_end_is_told_after_the_repair(
    node: nodes.Node, v110: releases.Release
) -> None:
    """I2, I3: nobody can confirm it; the guard ends it in time; the whole audit log proves the floor, so nobody is asked."""
    node.configure(trial_length_s=15)
    trial = node.on_trial(v110)
    runs(node, "1.1.0")
    tear(node, "update.json", "update.json.copy", "slots.json", "slots.json.copy")
    pending = node.slotward("update", "--repair")
    assert (pending.exit, pending.code) == (4, "trial-pending"), pending
    assert node.confirm(trial).code == "record-broken"
    node.waits(lambda: node.link("current") == node.link("good"), 25, "current names good again")
    runs(node, "1.0.0")
    assert "trial.revert" in node.names()
    mended = node.slotward("update", "--repair")
    assert (mended.exit, mended.json["floor"]) == (0, 1), mended
    assert "trial.revert" not in node.names()
    shown = node.update()
    assert (shown["state"], shown["last"]["code"]) == ("rolled-back", "deadline-passed")
    assert [entry["version"] for entry in shown["failed"]] == ["1.1.0"]
    assert node.slotward("update", "--clear-failed").exit == 0
    node.upgraded(v110)
    node.runnable()
