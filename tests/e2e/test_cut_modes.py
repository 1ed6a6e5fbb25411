# SPDX-License-Identifier: GPL-3.0-or-later
"""Cuts and kills while root's part of an update is done for a daemon that is not root: by the helper, and by `apply` before a start.

As test_cut.py, where an operator's own command is cut; here the update goes the daemon's way, and what a cut leaves may be taken up again
by the daemon itself. Whatever that is: the host boots on a version that was verified, and the update can be made.
"""

from __future__ import annotations

import time

import pytest
from e2e import test_cut as cuts
from support import faults, modes, releases
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.HELPER, modes.START)]

stoppable, old, new = cuts.stoppable, cuts.old, cuts.new


def stands_still(node: nodes.Node, point: str, *arguments: str) -> None:
    """Ask the daemon for something, and wait until root's part of it stands still at `point`."""
    node.host.write(faults.WANTED, point)
    node.sh("systemd-run -q --collect --unit=e2e-asked -- slotward ask " + " ".join(arguments))
    node.host.wait_for(f"test -e {faults.HIT}", timeout=40)


def ends_confirmed(node: nodes.Node, release: releases.Release, trial: str) -> None:
    """Whichever way the cut went: the release is on trial, or may be asked for again; then it is confirmed."""
    state = node.update()
    assert state["failed"] == [], state
    if state["trial"] is None and state["version"] != release.version:
        assert (node.running(), state["state"] in ("idle", "abandoned")) == ("1.0.0", True), state
        node.at_rest()
        trial = node.on_trial(release)
    node.waits(lambda: node.running() == release.version, 20, f"{release.version} runs")
    answer = node.confirm(trial)
    assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
    cuts.settled(node, release.version, "confirmed")


@pytest.mark.cut_in("asked", modes.HELPER, modes.START)
def test_a_cut_in_roots_part_of_a_switch(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """The helper's child, or `apply`, is cut between two operations: the old version, or the trial."""
    trial = nodes.trial_id()
    stands_still(node, point, "upgrade", "--target", node.target(new, node.served(new)), "--no-wait", "--id", trial)
    node.host.cut()
    cuts.whole(node)
    cuts.boot(node)
    if faults.number_of(point) >= faults.switched(node.mode.name):
        assert node.update()["trial"]["id"] == trial
    ends_confirmed(node, new, trial)


@pytest.mark.cut_in("confirm", modes.HELPER, modes.START)
def test_a_cut_in_roots_part_of_a_confirmation(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """I12: as an operator's: from the claim on it is confirmed."""
    trial = node.on_trial(new)
    stands_still(node, point, "confirm", "--id", trial, "--wait", "15")
    node.host.cut()
    cuts.whole(node)
    cuts.boot(node)
    ends_confirmed(node, new, trial)
    assert node.update()["floor"] == 2


@pytest.mark.cut_in("go-back", modes.HELPER, modes.START)
def test_a_cut_in_roots_part_of_giving_up(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """I12: from the claim on the host is on the old version; before it the trial goes on."""
    trial = node.on_trial(new)
    node.waits(lambda: node.running() == "1.1.0", 20, "the new version runs")
    stands_still(node, point, "rollback", "--id", trial)
    node.host.cut()
    cuts.whole(node)
    cuts.boot(node)
    if faults.number_of(point) == 0:
        cuts.settled(node, "1.1.0", "trial")
        node.slotward("ask", "rollback", "--id", trial)
    state = node.goes_back(("gave-up", "did-not-start"), 20)
    assert [entry["version"] for entry in state["failed"]] == ["1.1.0"]
    assert state["floor"] == 1


@pytest.mark.host
@pytest.mark.only_modes(modes.HELPER)
@pytest.mark.parametrize("point", [faults.swap_points(modes.HELPER)[number] for number in (0, 14, 17, 20)])
def test_a_helper_that_is_killed_in_the_middle_loses_nothing(
    node: nodes.Node, old: releases.Release, new: releases.Release, point: str
) -> None:
    """The operation is a unit of its own: the helper dies and comes back, the operation stands; then that one is killed too."""
    trial = nodes.trial_id()
    stands_still(node, point, "upgrade", "--target", node.target(new, node.served(new)), "--no-wait", "--id", trial)
    held = node.update()["lock"]["pid"]
    node.sh(f"systemctl kill -s KILL {modes.HELPER_UNIT}")
    node.waits(lambda: node.unit(modes.HELPER_UNIT).active == "active", 20, "the helper runs again")
    assert node.update()["lock"]["pid"] == held
    node.sh(f"kill -KILL {held}")
    node.waits(lambda: node.update()["lock"] is None, 10, "the lock is free")
    node.sh(f"systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.update()["pending"] in ("none", "await"), 20, "nothing is left to settle")
    node.runnable()
    ends_confirmed(node, new, trial)


@pytest.mark.hosts
@pytest.mark.only_modes(modes.HELPER)
@pytest.mark.parametrize("after_ms", [0, 150, 300, 500, 800, 1200, 1800, 2500, 3500, 5000])
def test_a_helper_that_is_killed_at_any_moment_loses_nothing(
    node: nodes.Node, v110: releases.Release, after_ms: int
) -> None:
    """One kill is no crash loop: the update ends confirmed, or was abandoned and ends confirmed the second time."""
    trial = nodes.trial_id()
    target = node.target(v110, node.served(v110))
    node.sh(
        f"systemd-run -q --collect --unit=e2e-asked -- slotward ask upgrade --target {target} --no-wait --id {trial}"
    )
    time.sleep(after_ms / 1000)
    node.sh(f"systemctl kill -s KILL {modes.HELPER_UNIT}")
    node.waits(lambda: node.unit(modes.HELPER_UNIT).active == "active", 20, "the helper runs again")
    node.waits(lambda: node.unit("e2e-asked.service").active == "inactive", 60, "the caller has its answer")
    ends_confirmed(node, v110, trial)


@pytest.mark.host
@pytest.mark.only_modes(modes.HELPER)
def test_a_helper_that_crashes_in_a_loop_ends_the_trial_and_not_the_daemon(
    node: nodes.Node, v110: releases.Release
) -> None:
    """Its crashes count by themselves: at the fourth both go back; at rest they end nothing, and the daemon runs on all the while."""
    node.on_trial(v110)
    node.waits(lambda: node.helper_slot() == "b", 20, "the new helper runs")

    def back() -> bool:
        node.sh(f"systemctl kill -s KILL {modes.HELPER_UNIT}", check=False)
        return node.link("current") == node.link("good")

    node.waits(back, 40, "current names good again")
    state = node.goes_back(("crash-loop",), 20)
    assert state["floor"] == 1
    pid = node.unit().main_pid
    for _turn in range(6):
        node.sh(f"systemctl kill -s KILL {modes.HELPER_UNIT}", check=False)
        time.sleep(0.7)
    node.waits(lambda: node.helper_slot() == "a", 30, "the helper runs again")
    assert (node.unit().main_pid, node.link("current"), node.update()["trial"]) == (pid, "a", None)
    node.slotward("update", "--clear-failed")
