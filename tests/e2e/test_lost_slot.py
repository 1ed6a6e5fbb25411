# SPDX-License-Identifier: GPL-3.0-or-later
"""I1 on real hosts: a slot that a boot finds with other bytes than were verified is left for the one that proves itself."""

from __future__ import annotations

import shlex

import pytest
from support import node as nodes
from support import releases

S = nodes.SLOTS
PROVEN = "/run/slotward-guard/slotward.proven"
LOSE = f"""
test -s {PROVEN}
systemctl stop {nodes.UNIT}
truncate -s 0 {S}/b
truncate -s 4096 {S}/b
rm {PROVEN}
systemctl start {nodes.UNIT}
"""
"""A boot that gave the slot back full of zero bytes, as a file system does that lost what was not flushed."""


@pytest.mark.host
def test_p1_a_confirmed_slot_that_lost_its_bytes_is_left_for_the_one_before(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """P1, I1, I3: the daemon runs at once, from the other slot; status, event and doctor say so; the floor stays; the next release mends it."""
    node.upgraded(v110)
    node.sh(LOSE)
    node.waits(lambda: node.running() == "1.0.0", 15, "the version before runs")
    node.waits(lambda: node.update()["pending"] == "none", 15, "the agent has settled")
    shown = node.update()
    assert (shown["state"], shown["code"], shown["floor"]) == ("rolled-back", "slot-unproven", 2), shown
    assert (shown["slots"]["current"], shown["slots"]["good"]) == ("a", "a")
    assert [(one["version"], one["code"]) for one in shown["failed"]] == [("1.1.0", "slot-unproven")]
    told = [event for event in node.slotward("audit").json["lines"] if event["event"] == "rolled-back"]
    assert [(event["code"], event["to"]) for event in told] == [("slot-unproven", "1.1.0")]
    state, said, _run = node.doctor()["slots"]
    assert (state, "below the release floor 2" in said) == ("warn", True)
    assert "slot-unproven" in node.guard_log()
    assert set(node.names()) - nodes.AT_REST == set()
    node.runnable()
    again = node.begin(v110)
    assert (again.exit, again.code) == (3, "failed-before"), again
    assert node.command(shlex.split(again.json["retry"])).exit == 0
    assert node.upgraded(v120).json["floor"] == 3
    assert node.doctor()["slots"][0] == "ok"
    node.runnable()


@pytest.mark.hosts
def test_p1_a_trial_whose_slot_lost_its_bytes_goes_back_at_the_first_start(
    node: nodes.Node, v110: releases.Release
) -> None:
    """P1, I2: not by a crash loop or the deadline; and a start in the same boot reads no slot again."""
    node.on_trial(v110)
    node.sh(LOSE)
    node.goes_back(["slot-unproven"], 15)
    node.runnable()
    node.sh(f"systemctl restart {nodes.UNIT}; test -s {PROVEN}")
    before = node.sh(f"stat -c %Y.%i {PROVEN}")
    node.sh(f"systemctl restart {nodes.UNIT}")
    assert node.sh(f"stat -c %Y.%i {PROVEN}") == before
    node.runnable()
