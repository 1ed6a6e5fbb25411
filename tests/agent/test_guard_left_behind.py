# SPDX-License-Identifier: GPL-3.0-or-later
"""What ran on trial is gone, and what is good has begun, before the guard rests: by systemd's word for it, not by its promise."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Tuple

import pytest
from agent.guarding import ANEW, NOW, RESTART, STOP_TIMER, PairTree, Tree
from agent.test_guard_unit_state import state

from agent import guarding

STOPS = {"ActiveState": "deactivating", "SubState": "stop-sigterm", "Job": "7"}
LOST = state("inactive", end=1_001_000_000, left_active=1_000_900_000)
"""Stopped for the restart, and not started."""
KILL = ["kill --signal=KILL -- demo.service"]


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def tree(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Tree:
    """A product whose release on trial a tick has seen run; what is restarted keeps its process, unless a test says otherwise."""
    made = Tree.on_trial(tmp_path, request.param)
    (made.systemd / "stuck").touch()
    made.run("tick")
    return made


def goes_back(tree: Tree) -> None:
    """The deadline has come: the links are home, and the restart is asked for."""
    tree.at(NOW + 60)
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART
    tree.forget_calls()


def settled(tree: Tree) -> None:
    """As a command or the daemon leaves it that settles: no record, no log, no word of a restart."""
    for name in ("trial", "trial.revert", "trial.log", "back"):
        (tree.slots / name).unlink(missing_ok=True)
    tree.link("current", "a")


def allows(tree: Tree, text: str) -> None:
    """What systemd says of the time that the unit has to stop."""
    hook = f'case $* in *TimeoutStopUSec*) echo "{text}"; exit 0 ;; esac\n'
    (tree.systemd / "hook-show").write_text(hook, encoding="ascii")


@pytest.mark.parametrize("by", ["guard", "agent"])
def test_a_restart_that_did_not_happen_is_asked_for_again(tree: Tree, by: str) -> None:
    """A frozen unit: systemd took the job and dropped it. Every ten seconds, until another process runs, whoever went back."""
    if by == "guard":
        goes_back(tree)
    else:
        settled(tree)
    for after, calls in ((62, RESTART), (64, []), (72, RESTART), (500, RESTART)):
        tree.at(NOW + after)
        said = tree.run("tick")
        assert tree.calls() == calls, after
        assert ("demo.service was not restarted" in said) == bool(calls)
        tree.forget_calls()
    tree.unit(**ANEW)
    tree.run("tick")
    assert tree.calls() == STOP_TIMER
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


@pytest.mark.parametrize("by", ["guard", "agent"])
@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 20), ("1min 30s", 100), ("500ms", 11), ("2.500s", 12), ("1h 1min", 3670)]
)
def test_a_stop_that_takes_longer_than_it_may_is_ended(tree: Tree, by: str, text: str, seconds: int) -> None:
    """I2: what ran on trial may ask systemd for ever more time; its unit's own time and ten seconds are what it gets."""
    if by == "guard":
        goes_back(tree)
    else:
        settled(tree)
    allows(tree, text)
    tree.unit(**STOPS)
    tree.at(NOW + 62)
    tree.run("tick")
    tree.at(NOW + 62 + seconds - 1)
    tree.run("tick")
    assert tree.calls() == []
    tree.at(NOW + 62 + seconds)
    assert "demo.service is not stopped in its time: killed" in tree.run("tick")
    assert tree.calls() == KILL


def test_a_stop_that_may_take_for_ever_is_waited_for(tree: Tree) -> None:
    """TimeoutStopSec=infinity is the operator's word."""
    goes_back(tree)
    allows(tree, "infinity")
    tree.unit(**STOPS)
    for after in (62, 5000):
        tree.at(NOW + after)
        tree.run("tick")
    assert tree.calls() == []


def test_a_stop_that_began_before_the_deadline_is_ended_too(tree: Tree) -> None:
    """STOPPING=1, and more time: no restart was asked for, since how that ends is waited for."""
    allows(tree, "10s")
    tree.unit(**{**STOPS, "Job": ""})
    tree.at(NOW + 60)
    tree.run("tick")
    tree.went_back("deadline-passed")
    tree.at(NOW + 85)
    tree.run("tick")
    assert tree.calls() == KILL


def test_what_was_stopped_for_a_restart_and_not_started_is_started(tree: Tree) -> None:
    """A start job that failed by a dependency: tried again every ten seconds for five minutes, and then it is said."""
    goes_back(tree)
    tree.unit(**LOST)
    for after, calls in ((62, RESTART), (70, []), (72, RESTART), (362, RESTART)):
        tree.at(NOW + after)
        tree.run("tick")
        assert tree.calls() == calls, after
        tree.forget_calls()
    tree.at(NOW + 363)
    assert "demo.service was stopped, and does not start again" in tree.run("tick", expect=1)
    assert tree.calls() == STOP_TIMER


def test_what_an_operator_had_stopped_stays_so(tree: Tree) -> None:
    """It was down when the trial ended: no process of it is to be gone."""
    tree.unit(**LOST)
    tree.run("tick")
    tree.at(NOW + 60)
    assert "demo.service had been stopped and stays so" in tree.run("tick")
    tree.run("tick")
    settled(tree)
    tree.run("tick")
    assert tree.calls() == STOP_TIMER * 2


BEFORE = state("inactive", start=870_000_000, end=950_500_000, left_active=950_000_000, left_rest=870_000_000)
"""The old release, stopped for the swap's restart, when nothing came up: the swap was at 940 s."""


def test_what_the_swap_s_own_restart_left_down_is_started(tree: Tree) -> None:
    """Nobody had stopped it: the release on trial never began, by a dependency that failed."""
    tree.unit(**BEFORE)
    tree.run("tick")
    tree.at(NOW + 60)
    tree.run("tick")
    assert tree.current() == "a"
    assert tree.calls() == RESTART
    tree.at(NOW + 72)
    tree.run("tick")
    assert tree.calls() == RESTART * 2
    tree.unit(**ANEW)
    tree.run("tick")
    assert tree.calls() == RESTART * 2 + STOP_TIMER


def test_what_began_in_the_second_of_the_swap_was_on_trial(tree: Tree) -> None:
    """The record has whole seconds: who stopped it was an operator."""
    tree.unit(**{**BEFORE, "ExecMainStartTimestampMonotonic": "940700000"})
    tree.run("tick")
    tree.at(NOW + 60)
    assert "demo.service had been stopped and stays so" in tree.run("tick")
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_a_confirmed_release_is_left_alone(tree: Tree) -> None:
    """The process that was seen on trial is the good one now: by `good`, and by the claim while that has not moved."""
    (tree.slots / "trial").rename(tree.slots / "trial.confirm")
    tree.run("tick")
    settled(tree)
    tree.link("good", "b")
    tree.link("current", "b")
    tree.run("tick")
    assert tree.calls() == STOP_TIMER * 2


def test_what_was_started_meanwhile_is_not_restarted_again(tree: Tree) -> None:
    """The old process took its time to stop; systemd's own job has started what the links name by then."""
    tree.unit(**STOPS)
    tree.at(NOW + 60)
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == []
    tree.unit(**ANEW)
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


@pytest.mark.parametrize("text", ["", "GOOD=a\n", "GOOD=a\nUNIT=x\n", "GOOD=b\nUNIT=950000000\n", "UNIT=950000000\n"])
def test_a_mark_that_says_nothing_changes_nothing(tree: Tree, text: str) -> None:
    """Torn, odd, or of another `good`."""
    settled(tree)
    (tree.proc / "slotward-guard/demo.seen").write_text(text, encoding="ascii")
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_without_a_place_for_its_mark_the_guard_goes_back_all_the_same(tree: Tree) -> None:
    """/run is full, or read-only: as before there was a mark."""
    marks = tree.proc / "slotward-guard"
    (marks / "demo.seen").unlink()
    marks.rmdir()
    marks.write_text("", encoding="ascii")
    goes_back(tree)
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_systemd_that_does_not_answer_is_asked_again(tree: Tree) -> None:
    """Nothing is known of what runs: the timer goes on."""
    goes_back(tree)
    (tree.systemd / "fail-show").write_text("1", encoding="ascii")
    tree.run("tick")
    assert tree.calls() == []


@pytest.mark.parametrize("shell", guarding.SHELLS, ids=lambda shell: shell[0])
def test_a_helper_is_sent_off_as_the_unit_is(tmp_path: pathlib.Path, shell: Tuple[str, ...]) -> None:
    """Each by itself: the one is gone, the other asks for more time."""
    tree = PairTree(tmp_path, shell)
    tree.swap()
    tree.run("tick")
    tree.at(NOW + 60)
    tree.run("tick")
    tree.forget_calls()
    allows(tree, "10s")
    helper: Dict[str, str] = dict(STOPS)
    tree.pair(ANEW, helper)
    found: List[str] = []
    for after in (62, 82):
        tree.at(NOW + after)
        tree.run("tick")
        found += tree.calls()
    assert found == ["kill --signal=KILL -- demo-helper.service"]
