# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots and hard stops (I1, I7, I9, I12): in the middle of a trial, and between every two operations of every plan.

A test build stops for ever at one point; then the host is cut (its processes die by SIGKILL at once) and booted again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import pathlib
import time

import pytest
from support import broken, faults, modes, releases
from support import node as nodes

pytestmark = pytest.mark.every_mode

YESTERDAY = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)


@pytest.fixture(scope="session")
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> releases.Workshop:
    """A workshop whose builds stop where they are told; each file of tests that takes this one has its own."""
    return releases.Workshop(tmp_path_factory.mktemp("stoppable"))


def build(shop: releases.Workshop, version: str, sequence: int) -> releases.Release:
    """A good release that stops where it is told; a higher version was issued later, so that staging notes its time."""
    _major, minor, patch = map(int, version.split("."))
    issued = YESTERDAY + dt.timedelta(minutes=minor * 10 + patch)
    more = ("--issued-at", issued.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return shop.release(version, sequence, extra=faults.overlay(shop.directory / "overlays" / "faults"), more=more)


@pytest.fixture
def old(node: nodes.Node, stoppable: releases.Workshop) -> releases.Release:
    """The release that is installed; the node's pins are those of its workshop."""
    node.shop = stoppable
    release = build(stoppable, "1.0.0", 1)
    node.fresh(release)
    return release


@pytest.fixture
def new(stoppable: releases.Workshop) -> releases.Release:
    """The release to go to."""
    return build(stoppable, "1.1.0", 2)


def stop_at(node: nodes.Node, point: str, *arguments: str) -> None:
    """Run a command until it stands still at `point`, then cut the host."""
    node.host.write(faults.WANTED, point)
    node.sh("systemd-run -q --collect --unit=e2e-stopped -- /usr/local/bin/slotward " + " ".join(arguments))
    node.host.wait_for(f"test -e {faults.HIT}", timeout=30)
    node.host.cut()


def whole(node: nodes.Node, in_use: bool = True) -> None:
    """I1 on the disk of the host that is down: `current` names a slot that holds exactly the bytes of its record."""
    slots = pathlib.Path(node.host.root, nodes.SLOTS[1:])
    if not in_use and not os.path.lexists(slots / "current"):
        return
    current, good = os.readlink(slots / "current"), os.readlink(slots / "good")
    records = json.loads((slots / "slots.json").read_text(encoding="ascii"))["slots"]
    for slot in sorted({current, good}):
        assert hashlib.sha256((slots / slot).read_bytes()).hexdigest() == records[slot]["sha256"]
        assert os.access(slots / slot, os.X_OK)
    json.loads((slots / "update.json").read_text(encoding="ascii"))


def boot(node: nodes.Node) -> None:
    """Boot, and wait until the daemon runs and whatever was in flight is decided."""
    node.host.boot()
    node.waits(lambda: node.unit().active == "active", 20, "the daemon runs")
    decided = {"none", "await"}
    node.waits(lambda: node.update()["pending"] in decided, 20, "nothing is left to settle")
    node.runnable()


def settled(node: nodes.Node, version: str, state: str) -> None:
    """The daemon runs `version`, and the host says the same of itself."""
    shown = node.update()
    assert (node.running(), shown["version"], shown["state"]) == (version, version, state), shown
    assert node.link("current") == node.link("good") or state == "trial"


@pytest.mark.cut_in("stage")
def test_a_cut_while_a_slot_is_filled_leaves_the_old_version(
    node: nodes.Node, old: releases.Release, new: releases.Release, stoppable: releases.Workshop, point: str
) -> None:
    """The slot that starts is never written; the same update can be made at once afterwards."""
    node.upgraded(build(stoppable, "1.0.1", 1))
    node.upgraded(build(stoppable, "1.0.2", 1))
    target, src = node.target(new), node.put(new.artifact)
    stop_at(node, point, "upgrade", "--target", target, "--src", src, "--no-wait", "--here")
    whole(node)
    boot(node)
    settled(node, "1.0.2", "confirmed")
    assert node.update()["failed"] == []
    node.upgraded(new)


@pytest.mark.cut_in("swap")
def test_a_cut_while_switching_leaves_the_old_version_or_a_trial(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """Before `current` moved the update is abandoned and may be made again; after it the good release gets its trial."""
    target, src = node.target(new), node.put(new.artifact)
    trial = nodes.trial_id()
    stop_at(node, point, "upgrade", "--target", target, "--src", src, "--no-wait", "--here", "--id", trial)
    whole(node)
    boot(node)
    state = node.update()
    assert state["failed"] == []
    if faults.number_of(point) < faults.switched(node.mode.name):
        assert (node.running(), state["trial"]) == ("1.0.0", None), state
        assert state["state"] in ("idle", "abandoned"), state
        node.at_rest()
        node.upgraded(new)
    else:
        settled(node, "1.1.0", "trial")
        assert state["trial"]["id"] == trial
        assert node.confirm(trial).json["floor"] == 2
    settled(node, "1.1.0", "confirmed")


@pytest.mark.cut_in("confirm")
def test_a_cut_while_confirming_is_finished_as_it_was_claimed(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """I12: before the claim the trial goes on and can be confirmed; from the claim on it is confirmed."""
    trial = node.on_trial(new)
    stop_at(node, point, *node.confirm_line(trial))
    whole(node)
    boot(node)
    if faults.number_of(point) == 0:
        settled(node, "1.1.0", "trial")
    answer = node.confirm(trial)
    assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
    settled(node, "1.1.0", "confirmed")
    assert node.update()["floor"] == 2


@pytest.mark.cut_in("go-back")
def test_a_cut_while_going_back_is_finished_as_it_was_claimed(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """I12: before the claim the trial goes on; from the claim on the host is on the old version, and knows why."""
    trial = node.on_trial(new)
    stop_at(node, point, "rollback", "--id", trial)
    whole(node)
    boot(node)
    if faults.number_of(point) == 0:
        settled(node, "1.1.0", "trial")
        assert node.slotward("rollback", "--id", trial).exit == 0
    state = node.goes_back(("operator", "did-not-start"), 10)
    assert [entry["version"] for entry in state["failed"]] == ["1.1.0"]
    assert state["floor"] == 1


@pytest.mark.cut_in("adopt")
def test_a_cut_while_adopting_leaves_a_program_that_starts(
    bare: nodes.Node, stoppable: releases.Workshop, point: str
) -> None:
    """The file at the entrypoint is what starts until the link to the same bytes has taken its place.

    In root mode the first update adopts it; into another mode a host comes by a setup that does.
    """
    bare.shop = stoppable
    old, new = build(stoppable, "1.0.0", 1), build(stoppable, "1.1.0", 2)
    mode = bare.mode
    bare.mode = modes.ALL[modes.ROOT]
    bare.configure()
    bare.host.put(old.artifact, nodes.ENTRYPOINT, 0o755)
    assert bare.slotward("setup").json["installed"] == "later"
    bare.enable()
    bare.mode = mode
    if mode.section:
        bare.configure()
        adopting = ["setup", *bare.setup_flags, "--adopt"]
    else:
        adopting = ["upgrade", "--target", bare.target(new), "--src", bare.put(new.artifact)]
        adopting += ["--no-wait", "--here", "--adopt"]
    stop_at(bare, point, *adopting)
    whole(bare, in_use=False)
    bare.host.boot()
    bare.waits(lambda: bare.running() == "1.0.0", 20, "the old version runs")
    if mode.section:
        assert bare.slotward(*adopting).exit == 0
        bare.sh(f"systemctl restart {nodes.UNIT}")
        bare.upgraded(new)
    else:
        bare.upgraded(new, "--adopt")
    bare.runnable()


@pytest.mark.host
def test_a_reboot_gives_a_good_release_its_whole_trial_again(node: nodes.Node, v110: releases.Release) -> None:
    """I7: a clean reboot costs one boot and nothing else; the release can be confirmed afterwards."""
    trial = node.on_trial(v110)
    node.host.reboot()
    node.waits(lambda: node.running() == "1.1.0", 20, "the new version runs")
    state = node.update()
    assert (state["trial"]["id"], state["trial"]["boots_left"], state["failed"]) == (trial, 2, [])
    assert state["trial"]["left_s"] > 10
    assert node.confirm(trial).json["state"] == "confirmed"


@pytest.mark.hosts
def test_a_host_that_was_down_for_longer_than_the_trial_still_tries_it(
    node: nodes.Node, v110: releases.Release
) -> None:
    """I10: the time that the host is off is no part of the trial; unconfirmed, it then goes back at its deadline."""
    node.configure(trial_length_s=15)
    trial = node.on_trial(v110)
    node.host.cut()
    time.sleep(17)
    boot(node)
    assert "1.1.0 is on trial" in node.said(f"-b -u {nodes.UNIT}"), "the boot starts it, in its trial"
    state = node.goes_back(("deadline-passed",), 35)
    assert state["last"]["id"] == trial
    node.configure()
    node.slotward("update", "--clear-failed")
    trial = node.on_trial(v110)
    node.host.cut()
    boot(node)
    assert node.confirm(trial).json["state"] == "confirmed"


@pytest.mark.hosts
def test_boots_are_counted(node: nodes.Node, v110: releases.Release) -> None:
    """I7: a trial survives max_boots boots; the next one goes back before the new release is started."""
    node.configure(max_boots=2)
    node.on_trial(v110)
    for left in (1, 0):
        node.host.cut()
        boot(node)
        assert node.update()["trial"]["boots_left"] == left
    node.host.cut()
    node.host.boot()
    state = node.goes_back(("no-boots-left",), 10)
    assert [entry["code"] for entry in state["failed"]] == ["no-boots-left"]
    assert "1.1.0 is on trial" not in node.said(f"-b -u {nodes.UNIT}")


@pytest.mark.hosts
@pytest.mark.parametrize("name", ["exit1", "hang", "unconfirmed"])
@pytest.mark.parametrize("how", ["cut", "reboot"])
def test_a_broken_release_goes_back_after_the_boot(
    node: nodes.Node, shop: releases.Workshop, name: str, how: str
) -> None:
    """A boot in the middle of a bad release's trial only delays its end."""
    kind = broken.named(name)
    length = 8 if kind.trial_codes == ("deadline-passed",) else 60
    node.configure(trial_length_s=length)
    node.on_trial(shop.broken(kind), "--no-smoke")
    if how == "cut":
        node.host.cut()
        whole(node)
    else:
        node.host.poweroff()
    node.host.boot()
    node.goes_back(kind.trial_codes, length + 20)
    node.runnable()
