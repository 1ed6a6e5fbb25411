# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guard makes of a unit's state. The figures are of the shape measured on systemd 247, 252 and 257 (ADR 7)."""

from __future__ import annotations

import pathlib
from typing import Dict, Tuple

import pytest
from agent.guarding import NOW, RESTART, STOP_TIMER, Tree, record

from agent import guarding


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def tree(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Tree:
    """A product with a trial under way that has been started once."""
    return Tree.on_trial(tmp_path, request.param)


def state(
    active: str,
    result: str = "success",
    *,
    start: int = 950_000_000,
    end: int = 0,
    left_active: int = 0,
    left_rest: int = 950_000_100,
    **more: str,
) -> Dict[str, str]:
    """Properties of a unit: when its main process started and ended, when it left `active` and its rest, in microseconds."""
    return {
        "ActiveState": active,
        "Result": result,
        "ExecMainStartTimestampMonotonic": str(start),
        "ExecMainExitTimestampMonotonic": str(end),
        "ActiveExitTimestampMonotonic": str(left_active),
        "InactiveExitTimestampMonotonic": str(left_rest),
        **more,
    }


def crash(number: int, result: str = "exit-code", **more: str) -> Dict[str, str]:
    """The unit at the guard's start, after the process's own exit and systemd's own restart (247 and 252)."""
    end = 951_000_000 + number * 1_000_000
    shown = {"NRestarts": str(number), "Job": "404", **more}
    return state("inactive", result, start=end - 500, end=end, left_active=end + 120, left_rest=end + 500, **shown)


CRASHES: Dict[str, Dict[str, str]] = {
    "exit-1": crash(1),
    "exit-0": crash(1, "success"),
    "signal": crash(1, "signal"),
    "after-reload": crash(1, NRestarts="0"),
    "257": {**crash(1), "ActiveState": "activating", "SubState": "auto-restart-queued"},
    "257-waiting": {**crash(1), "ActiveState": "activating", "SubState": "auto-restart"},
    "257-direct": state(
        "activating",
        "exit-code",
        end=950_500_000,
        left_active=950_500_100,
        SubState="auto-restart-queued",
        NRestarts="1",
    ),
    "not-ready-in-time": state("inactive", "timeout", end=951_000_000, left_rest=951_000_600, NRestarts="1"),
    "killed-unready": state("inactive", "signal", end=951_000_000, left_rest=951_000_600, NRestarts="1"),
    "watchdog": state("inactive", "watchdog", end=951_000_000, left_active=950_900_000, left_rest=951_000_600),
    "start-pre": state("inactive", "exit-code", start=0, end=0, left_active=940_000_000, left_rest=951_000_000),
    "resources": state("inactive", "resources", start=0, end=0, left_active=940_000_000, left_rest=951_000_000),
    "no-restart": state("failed", "exit-code", end=951_000_000, left_active=951_000_100, Restart="no"),
}

STOPS: Dict[str, Dict[str, str]] = {
    "stopped": state("inactive", end=951_000_500, left_active=951_000_000, Job="9"),
    "stopped-with-status-5": state("failed", "exit-code", end=951_000_500, left_active=951_000_000, Job="9"),
    "stopped-by-kill": state("failed", "timeout", end=951_000_500, left_active=950_990_000, Job="9"),
    "stopped-unready": state("inactive", end=951_000_000),
    "stopped-unready-status-5": state("failed", "exit-code", end=951_000_000),
    "stale-count": state("inactive", end=951_000_500, left_active=951_000_000, NRestarts="9"),
    "start-limit": state("failed", "start-limit-hit", end=951_000_500, left_active=951_000_000),
    "running": state("active"),
    "starting": state("activating", SubState="start"),
    "stopping": state("deactivating", left_active=951_000_000, SubState="stop-sigterm"),
    "first-start-of-the-boot": state("inactive", start=0, left_rest=0),
    "no-main-process-known": state("inactive", start=0, left_active=951_000_000),
}


def test_w11_the_fourth_crash_goes_back(tree: Tree) -> None:
    """W11, W15: three crashes are survived; the start after the fourth is one of the good version."""
    for number in (1, 2, 3):
        tree.unit(**crash(number))
        tree.run("start")
        tree.goes_on()
    tree.unit(**crash(4))
    tree.run("start")
    tree.went_back("crash-loop")
    assert [line.split()[0] for line in tree.log()] == ["start"] + ["crash", "start"] * 3 + ["crash"]
    assert tree.calls() == []


@pytest.mark.parametrize("shown", CRASHES.values(), ids=CRASHES.keys())
def test_an_exit_of_its_own_is_counted(tree: Tree, shown: Dict[str, str]) -> None:
    """Each way in which systemd shows a start that followed the process's own exit."""
    tree.unit(**shown)
    tree.run("start")
    tree.goes_on()
    assert [line.split()[0] for line in tree.log()] == ["start", "crash", "start"]


@pytest.mark.parametrize("shown", STOPS.values(), ids=STOPS.keys())
def test_w3_a_stop_that_systemd_was_asked_for_is_not_counted(tree: Tree, shown: Dict[str, str]) -> None:
    """W3: an operator's restarts count for nothing, twelve of them or more, however the daemon answers a stop."""
    tree.unit(**shown)
    for _time in range(12):
        tree.run("start")
    tree.goes_on()
    assert [line.split()[0] for line in tree.log()] == ["start"] * 13


def test_one_crash_is_counted_once(tree: Tree) -> None:
    """Starts of the guard alone do not add up."""
    tree.unit(**crash(1))
    for _time in range(6):
        tree.run("start")
    tree.goes_on()
    assert sum(line.startswith("crash") for line in tree.log()) == 1


def test_a_crash_of_the_replaced_process_is_not_the_new_release_s(tree: Tree) -> None:
    """The first start of a trial follows whatever the old version did."""
    tree.swap(record(length_s=120, deadline_s=NOW + 60))
    old = crash(7)
    old["ExecMainStartTimestampMonotonic"] = str((NOW - 100) * 1_000_000)
    tree.unit(**old)
    tree.run("start")
    assert tree.log() == [f"start {NOW}"]


@pytest.mark.parametrize("before", [True, False], ids=["guard-first", "swap-first"])
@pytest.mark.parametrize("ended", ["exit-0", "exit-1", "257", "257-direct", "signal"])
def test_a_swap_between_the_old_process_s_exit_and_this_start_counts_no_crash(
    tmp_path: pathlib.Path, before: bool, ended: str
) -> None:
    """Start mode: the daemon ends by itself so that root's part of its next start can switch. Then four crashes are four."""
    tree = Tree(tmp_path)
    began = (NOW - 5) * 1_000_000
    old = dict(CRASHES[ended], ExecMainStartTimestampMonotonic=str(began))
    old["ExecMainExitTimestampMonotonic"] = str(NOW * 1_000_000 - 900_000)
    old["ActiveExitTimestampMonotonic"] = str(NOW * 1_000_000 - 899_900)
    if ended != "257-direct":
        old["InactiveExitTimestampMonotonic"] = str(NOW * 1_000_000 - 899_500)
    tree.unit(**old)
    if before:
        tree.run("start")
        assert tree.names() == ["a", "b", "current", "good"]
    tree.swap(record(length_s=120, deadline_s=NOW + 120))
    if before:
        with (tree.slots / "trial.log").open("ab") as file:  # as root's part of the start does
            file.write(b"start %d\n" % NOW)
    else:
        tree.run("start")
    assert tree.log() == [f"start {NOW}"]
    for number in range(4):
        tree.goes_on()
        end = (NOW + number) * 1_000_000 + 500_000  # the first within the second of the swap
        tree.at(NOW + number + 1)
        tree.unit(
            **state("inactive", "exit-code", start=end - 400_000, end=end, left_active=end + 1, left_rest=end + 2)
        )
        tree.run("start")
    tree.went_back("crash-loop")
    assert sum(line.startswith("crash ") for line in tree.log()) == 4


@pytest.mark.parametrize("log", ["missing", "directory"])
def test_without_a_log_systemd_s_own_count_ends_a_crash_loop(tree: Tree, log: str) -> None:
    """The log cannot be written: NRestarts after an exit of its own decides, never after a stop."""
    path = tree.slots / "trial.log"
    path.unlink()
    if log == "directory":
        path.mkdir()
    for number in (1, 2, 3):
        tree.unit(**crash(number))
        assert "cannot write" in tree.run("start")
        tree.goes_on()
    tree.unit(**STOPS["stale-count"])
    tree.run("start")
    tree.goes_on()
    tree.unit(**crash(4))
    tree.run("start")
    tree.went_back("crash-loop")


def test_a_torn_log_is_read_as_far_as_it_makes_sense(tree: Tree) -> None:
    """Zeros and half lines after a power cut are no crashes."""
    with (tree.slots / "trial.log").open("ab") as file:
        file.write(b"crash 1 1.1.1\ncra\x00\x00sh\nstart\ncrash 2 2.2.2\ncrash 3 3")
    tree.unit(**crash(5))
    tree.run("start")
    tree.goes_on()


@pytest.mark.parametrize("mode", ["tick", "failed"])
@pytest.mark.parametrize(
    "shown",
    [
        state("failed", "exit-code", end=951_000_000, left_active=951_000_100, Restart="no"),
        state("failed", "signal", end=951_000_000, left_active=951_000_100, Restart="no"),
        state("failed", "timeout", end=951_000_000, Restart="no"),
        state("failed", "protocol", end=951_000_000, Restart="no"),
        state("failed", "watchdog", end=951_000_000, left_active=950_900_000, Restart="no"),
        state("failed", "oom-kill", end=951_000_000, left_active=950_900_000, Restart="no"),
        state("failed", "resources", start=0, left_active=940_000_000, left_rest=951_000_000, Restart="no"),
        state("failed", "exit-code", start=0, left_active=940_000_000, left_rest=951_000_000, Restart="no"),
        state("failed", "exit-code", end=951_000_000, left_active=951_000_100, left_rest=951_000_500),
        state("failed", "start-limit-hit", end=951_000_000, left_active=951_000_100, left_rest=951_000_500),
    ],
    ids=[
        "status",
        "signal",
        "unready",
        "protocol",
        "watchdog",
        "oom",
        "resources",
        "start-pre",
        "limit",
        "limit-exit-0",
    ],
)
def test_a_unit_that_failed_by_itself_goes_back(tree: Tree, mode: str, shown: Dict[str, str]) -> None:
    """W2: OnFailure=, or the next tick where that did not come, ends the trial, resets the failure and restarts."""
    tree.unit(**shown)
    tree.run(mode)
    tree.went_back("unit-failed")
    assert tree.calls() == RESTART


@pytest.mark.parametrize("shell", guarding.SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("mode", ["failed", "tick"])
@pytest.mark.parametrize("active", ["failed", "inactive"])
def test_W2_what_failed_before_the_swap_is_no_failure_of_the_release_on_trial(
    tmp_path: pathlib.Path, shell: Tuple[str, ...], mode: str, active: str
) -> None:
    """W2: between the switch and its restart the unit is as the old release left it, and a tick may come then."""
    tree = Tree(tmp_path, shell)
    tree.swap()
    limit = state(
        active, "exit-code", start=930_000_000, end=931_000_000, left_active=931_000_100, left_rest=931_000_600
    )
    never = state(active, "exit-code", start=0, left_rest=0)
    for shown in (limit, never):
        tree.unit(**shown)
        tree.run(mode)
        tree.goes_on()
    late = state(
        "failed", "exit-code", start=930_000_000, end=931_000_000, left_active=931_000_100, left_rest=941_000_000
    )
    after = state(
        "failed", "exit-code", start=930_000_000, end=942_000_000, left_active=942_000_100, left_rest=930_000_000
    )
    tree.unit(
        **(late if active == "failed" else after)
    )  # a start that failed and was not logged; the old one, after the swap
    tree.run(mode)
    tree.went_back("unit-failed")


def test_w7_a_unit_that_ended_cleanly_is_started_again(tree: Tree) -> None:
    """W7: exit 0 in a unit that does not restart: nothing failed, nothing runs; only the tick can see it."""
    shown = state("inactive", end=951_000_000, left_active=951_000_100, Restart="on-failure")
    tree.unit(**shown)
    tree.run("failed")
    tree.goes_on()
    tree.run("tick")
    tree.went_back("unit-stopped")
    assert tree.calls() == RESTART


STOPPED: Dict[str, Dict[str, str]] = {
    "stopped": state("inactive", end=951_000_500, left_active=951_000_000),
    "stopped-with-status-5": state("failed", "exit-code", end=951_000_500, left_active=951_000_000),
    "stopped-by-kill": state("failed", "timeout", end=951_000_500, left_active=950_990_000),
    "stopped-unready": state("inactive", end=951_000_000, Restart="no"),
    "stopped-while-waiting-to-restart": state(
        "inactive", "exit-code", end=951_000_000, left_active=951_000_100, left_rest=951_000_500
    ),
    "stopped-while-waiting-directly": state("inactive", "exit-code", end=951_000_000, left_active=951_000_100),
    "forgotten": state("inactive", start=0, left_rest=0),
}


@pytest.mark.parametrize("shown", STOPPED.values(), ids=STOPPED.keys())
def test_what_an_operator_stopped_is_neither_a_failure_nor_started(tree: Tree, shown: Dict[str, str]) -> None:
    """DESIGN 6: before the deadline nothing happens; at it the links go back, and the unit stays stopped."""
    tree.unit(**shown)
    for mode in ("tick", "failed", "tick"):
        tree.run(mode)
    tree.goes_on()
    tree.at(NOW + 60)
    assert "stays so" in tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == []
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_w2_a_unit_left_down_by_its_start_limit_is_started_at_the_deadline(tree: Tree) -> None:
    """Restarts by hand used the limit up: no failure of the release, but somebody wants it to run."""
    tree.unit(**STOPS["start-limit"])
    tree.run("failed")
    tree.run("tick")
    tree.goes_on()
    tree.at(NOW + 60)
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART


@pytest.mark.parametrize("shown", [crash(1), CRASHES["257-waiting"], STOPS["starting"], STOPS["stopping"]])
def test_w1_a_unit_that_systemd_is_about_to_restart_has_not_failed(tree: Tree, shown: Dict[str, str]) -> None:
    """W1: 257 starts OnFailure= on each automatic restart, 247 and 252 show the unit inactive for a moment."""
    tree.unit(**shown)
    tree.run("failed")
    tree.run("tick")
    tree.goes_on()
