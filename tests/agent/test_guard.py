# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard, row by row of docs/design/node.md section 4, under dash and under busybox's sh."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Tuple

import pytest
from agent.guarding import RESTART, STOP_TIMER, Tree, record

from agent import guarding
from slotcore import trial as trials

pytestmark = pytest.mark.filterwarnings("error")
MODES = ("start", "tick", "failed")


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def tree(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Tree:
    """A product with nothing pending, its guard run by each of the two shells."""
    shell: Tuple[str, ...] = request.param
    return Tree(tmp_path, shell)


@pytest.mark.parametrize("mode", MODES)
def test_without_a_trial_nothing_is_touched(tree: Tree, mode: str) -> None:
    """No record, current is good: no name, inode or time changes, whichever way the guard is called."""
    before = tree.stamps()
    assert tree.run(mode) == ""
    assert tree.stamps() == before
    assert tree.calls() == (STOP_TIMER if mode == "tick" else [])


def test_a_swap_that_begins_while_the_last_tick_stops_the_timer_gets_its_timer_back(tree: Tree) -> None:
    """I4: the timer that a swap found active is active afterwards, though an old tick was about to stop it."""
    hook = f"cp {tree.root}/new {tree.slots}/trial\n"
    (tree.systemd / "hook-stop").write_text(hook, encoding="ascii")
    (tree.root / "new").write_bytes(trials.render_trial(record()))
    tree.run("tick")
    assert tree.calls() == [*STOP_TIMER, "--no-block start -- slotward-deadline@demo.timer"]


@pytest.mark.parametrize("mode", MODES)
def test_slots_that_are_not_in_use_are_left_alone(tree: Tree, mode: str) -> None:
    """Before the first install there is nothing to guard."""
    for name in ("a", "b", "good", "current"):
        (tree.slots / name).unlink()
    assert tree.run(mode) == ""
    assert tree.names() == []
    tree.slots.rmdir()
    assert tree.run(mode) == ""


@pytest.mark.parametrize("mode", MODES)
def test_a_confirmation_that_won_is_left_to_the_agent(tree: Tree, mode: str) -> None:
    """I12: with trial.confirm there is nothing to decide any more, wherever the links point."""
    tree.swap()
    (tree.slots / "trial").rename(tree.slots / "trial.confirm")
    before = tree.stamps()
    tree.run(mode)
    assert tree.stamps() == before


@pytest.mark.parametrize("mode", MODES)
def test_p7_going_back_that_was_cut_is_finished(tree: Tree, mode: str) -> None:
    """P7, I12: trial.revert while current is not good: the link moves; whoever was not about to start it restarts it."""
    tree.swap()
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    tree.run(mode)
    assert tree.current() == "a"
    assert tree.calls() == ([] if mode == "start" else RESTART)


def test_a_claim_counts_before_a_record_of_the_same_name(tree: Tree) -> None:
    """With a claim beside a record, the claim has decided."""
    tree.swap()
    (tree.slots / "trial.revert").write_bytes(trials.render_trial(record()))
    tree.run("start")
    assert tree.current() == "a"
    tree.link("current", "b")
    (tree.slots / "trial.revert").rename(tree.slots / "trial.confirm")
    tree.run("tick")
    assert tree.current() == "b"


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_record_goes_back(tree: Tree, mode: str) -> None:
    """I2: no record at all while the links differ; the reason is left for the agent to find."""
    tree.swap()
    (tree.slots / "trial").unlink()
    assert "lost-record" in tree.run(mode)
    tree.went_back("lost-record")
    assert tree.calls() == ([] if mode == "start" else RESTART)


def test_links_that_differ_without_a_trace_of_a_trial_leave_no_failure(tree: Tree) -> None:
    """A cut while adopting leaves the links apart: they are set right, and no version is called failed for it."""
    tree.link("current", "b")
    tree.run("start")
    assert tree.current() == "a"
    assert "trial.revert" not in tree.names()


def test_a_lost_current_is_made_again(tree: Tree) -> None:
    """I1: good is there, current is not."""
    (tree.slots / "current").unlink()
    tree.run("start")
    assert tree.current() == "a"


@pytest.mark.parametrize("mode", MODES)
def test_without_good_nothing_is_done_and_it_is_said(tree: Tree, mode: str) -> None:
    """Never go back to anything but good: without it the links stay as they are, and the guard's unit fails."""
    tree.swap()
    (tree.slots / "trial").unlink()
    (tree.slots / "good").unlink()
    assert "no good to go back to" in tree.run(mode, expect=1)
    assert tree.current() == "b"


def test_a_good_slot_that_is_gone_is_not_gone_back_to(tree: Tree) -> None:
    """I1: current never becomes a link to nothing."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "a").unlink()
    assert "not there" in tree.run("tick", expect=1)
    assert tree.current() == "b"


NOW = guarding.NOW


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("deadline", [NOW, NOW - 1, 0], ids=["now", "past", "zero"])
def test_s9_a_deadline_that_is_past_acts_at_once(tree: Tree, mode: str, deadline: int) -> None:
    """S9, I10: a deadline reached, long past or zero goes back at the first look."""
    tree.swap(record(deadline_s=deadline))
    tree.run(mode)
    tree.went_back("deadline-passed")
    assert tree.calls() == ([] if mode == "start" else RESTART)
    if mode != "start":
        tree.forget_calls()
        tree.run("tick")
        assert tree.calls() == STOP_TIMER


@pytest.mark.parametrize("mode", MODES)
def test_a_trial_with_time_left_goes_on(tree: Tree, mode: str) -> None:
    """One second before the deadline nothing happens but the line in the log."""
    tree.swap(record(deadline_s=NOW + 1))
    tree.run(mode)
    tree.goes_on()
    assert tree.calls() == []
    assert tree.log() == ([f"start {NOW}"] if mode == "start" else [])


@pytest.mark.parametrize("mode", MODES)
def test_n14_the_wall_clock_has_no_say(tree: Tree, mode: str) -> None:
    """N14, I10: records and slots dated in 1970 and 2100 change nothing; only uptime counts."""
    tree.swap()
    for stamp in (0, 4_102_444_800):
        os.utime(tree.slots / "trial", (stamp, stamp))
        tree.run(mode)
        tree.goes_on()


def test_h5_a_new_boot_gives_the_length_again(tree: Tree) -> None:
    """H5, I7: the record is written anew for this boot: whole length, one boot less, all else as it was."""
    tree.swap()
    tree.at(30, guarding.OTHER_BOOT)
    tree.run("start")
    tree.goes_on()
    found = trials.parse_trial((tree.slots / "trial").read_bytes())
    assert found == record(boot_id=guarding.OTHER_BOOT, deadline_s=150, boots_left=2)
    assert tree.log() == ["start 30"]
    assert [name for name in tree.names() if name.startswith(".")] == []
    tree.run("tick")
    assert trials.parse_trial((tree.slots / "trial").read_bytes()) == found


@pytest.mark.parametrize("mode", MODES)
def test_the_last_boot_is_the_last(tree: Tree, mode: str) -> None:
    """I7: with no boot left the next one goes back."""
    tree.swap(record(boots_left=0))
    tree.at(30, guarding.OTHER_BOOT)
    tree.run(mode)
    tree.went_back("no-boots-left")


def test_three_boots_are_survived_and_the_fourth_is_not(tree: Tree) -> None:
    """max_boots counts boots that the trial survives."""
    tree.swap()
    for number in range(4):
        tree.at(30, f"{number}{guarding.BOOT[1:]}".replace("4b", "cc"))
        tree.run("start")
        assert tree.current() == ("b" if number < 3 else "a")
    tree.went_back("no-boots-left")


@pytest.mark.parametrize("mode", MODES)
def test_a_switch_that_never_happened_is_left_until_its_deadline(tree: Tree, mode: str) -> None:
    """The swap may still be under way: only a tick past the deadline ends it, as never started, with no restart."""
    tree.swap(switched=False)
    before = tree.stamps()
    tree.run(mode)
    assert tree.stamps() == before
    tree.at(NOW + 60)
    tree.run(mode)
    if mode != "tick":
        assert tree.stamps() == before
    else:
        tree.went_back("never-started")
        assert tree.calls() == STOP_TIMER


def test_a_switch_cut_by_a_reboot_is_abandoned_at_once(tree: Tree) -> None:
    """In another boot nobody is about to switch any more."""
    tree.swap(switched=False)
    tree.at(5, guarding.OTHER_BOOT)
    tree.run("tick")
    tree.went_back("never-started")


def test_a_switch_taken_back_by_hand_after_starts_is_no_abandoned_one(tree: Tree) -> None:
    """The log says that it was started, so it has failed."""
    tree.swap(switched=False)
    tree.started()
    tree.at(NOW + 60)
    tree.run("tick")
    tree.went_back("deadline-passed")


@pytest.mark.parametrize("mode", MODES)
def test_a_link_that_the_record_does_not_name_is_a_bad_record(tree: Tree, mode: str) -> None:
    """Current is neither good nor the slot on trial."""
    (tree.slots / "versions").mkdir()
    tree.swap()
    tree.link("current", "versions/9")
    assert "versions/9" in tree.run(mode)
    tree.went_back("bad-record")


def test_a_deadline_further_off_than_the_length_is_a_bad_record(tree: Tree) -> None:
    """I2: a damaged number must not make a trial endless."""
    tree.swap(record(deadline_s=NOW + 120 + 5))
    tree.run("tick")
    tree.goes_on()
    tree.swap(record(deadline_s=NOW + 120 + 6))
    tree.run("tick")
    tree.went_back("bad-record")


@pytest.mark.parametrize("back", ["b", "a/", "nowhere", ""], ids=["other", "odd", "dangling", "missing"])
def test_back_is_made_again_when_it_does_not_name_good(tree: Tree, back: str) -> None:
    """Going back is to good and nothing else, whatever the link says."""
    tree.swap(record(deadline_s=NOW))
    if back:
        tree.link("back", back)
    else:
        (tree.slots / "back").unlink()
    tree.run("start")
    tree.went_back("deadline-passed")
    assert [name for name in tree.names() if name.startswith(".")] == []


def test_a_restart_that_was_cut_off_is_asked_for_again(tree: Tree) -> None:
    """W7: the guard was killed between the links and the restart; the next tick pays what is owed, once."""
    tree.swap(record(deadline_s=NOW))
    (tree.systemd / "fail-restart").write_text("1", encoding="ascii")
    assert "cannot restart demo.service" in tree.run("tick", expect=1)
    tree.went_back("deadline-passed")
    (tree.systemd / "fail-restart").unlink()
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == RESTART
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_a_restart_that_left_the_unit_down_is_tried_three_times(tree: Tree) -> None:
    """W7: afterwards the unit is looked at; a good version that does not come up is not restarted for ever."""
    tree.swap(record(deadline_s=NOW))
    failed = {
        "ActiveState": "failed",
        "Result": "exit-code",
        "InactiveExitTimestampMonotonic": "951000000",
        "ExecMainExitTimestampMonotonic": "950900000",
    }
    tree.unit(**failed)
    for _time in range(3):
        tree.run("tick")
    assert tree.calls() == RESTART * 3
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_a_unit_on_its_way_down_is_waited_for(tree: Tree) -> None:
    """While an operator's stop is under way nothing is started; the next tick sees how it ended."""
    tree.swap(record(deadline_s=NOW))
    tree.unit(ActiveState="deactivating", SubState="stop-sigterm", Job="7")
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == []
    tree.unit(
        ActiveState="inactive",
        ActiveExitTimestampMonotonic="960000000",
        ExecMainExitTimestampMonotonic="960000500",
    )
    tree.run("tick")
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_the_links_go_back_though_systemd_does_not_answer(tree: Tree) -> None:
    """I2: the links do not wait for systemd."""
    (tree.systemd / "fail-show").write_text("1", encoding="ascii")
    tree.swap(record(deadline_s=NOW))
    assert "does not answer" in tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART


def test_a_start_though_systemd_does_not_answer_goes_on(tree: Tree) -> None:
    """A start that cannot be judged is no crash; the deadline still stands."""
    (tree.systemd / "fail-show").write_text("1", encoding="ascii")
    tree.swap()
    for _time in range(6):
        tree.run("start")
    tree.goes_on()
    assert len(tree.log()) == 6


def test_a_start_sees_to_it_that_the_timer_ticks(tree: Tree) -> None:
    """I4: a trial whose timer is not active gets it started."""
    tree.swap()
    tree.unit(timer="inactive")
    tree.run("start")
    assert tree.calls() == ["--no-block start -- slotward-deadline@demo.timer"]


def test_a_second_run_changes_nothing(tree: Tree) -> None:
    """I9: going back again is no change."""
    tree.swap(record(deadline_s=NOW))
    tree.run("start")
    before = tree.stamps()
    tree.run("start")
    tree.run("failed")
    assert tree.stamps() == before


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "dangling"])
def test_a_record_that_is_no_file_is_a_bad_record(tree: Tree, kind: str) -> None:
    """Whatever stands at the name, the guard neither hangs nor believes it."""
    tree.swap()
    path = tree.slots / "trial"
    path.rename(tree.slots / "kept")
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("kept" if kind == "link" else "nowhere")
    tree.run("start")
    assert tree.current() == "a"
    assert "trial" not in tree.names()


@pytest.mark.parametrize(
    ("arguments", "expect"),
    [([], 2), (["start"], 2), (["begin", "demo"], 2), (["start", "../demo"], 2), (["start", "Demo"], 2)]
    + [(["start", "-x"], 2), (["start", "0demo"], 2), (["start", "other"], 1)],
)
def test_a_wrong_call_is_refused(tree: Tree, arguments: list[str], expect: int) -> None:
    """Names are checked before they become paths; a product without facts is an error that says what to do."""
    argv = [*tree.shell, str(tree.guard), *arguments]
    done = subprocess.run(argv, env=tree.environment(), capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert done.returncode == expect
    assert done.stderr != ""


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "device"])
def test_facts_that_are_no_file_are_refused(tree: Tree, kind: str) -> None:
    """The guard waits for nobody and reads no other file than the one that setup wrote."""
    path = tree.root / "guard.d/demo.env"
    path.rename(tree.root / "guard.d/kept")
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("kept")
    else:
        path.symlink_to("/dev/zero")
    assert "cannot read " in tree.run("start", expect=1)


@pytest.mark.parametrize("facts", ["", "UNIT=demo.service\n", "UNIT=-x\nSLOTS=/x\n", "UNIT=a b\nSLOTS=/x\n"])
def test_facts_that_do_not_hold_together_are_refused(tree: Tree, facts: str) -> None:
    """A facts file that was cut or edited is named in the error."""
    (tree.root / "guard.d/demo.env").write_text(facts, encoding="ascii")
    assert "demo.env" in tree.run("start", expect=1)


def test_facts_are_read_and_never_run(tree: Tree) -> None:
    """I6: a facts file is lines, not a script."""
    (tree.root / "guard.d/demo.env").write_text(
        f"touch {tree.root}/run\nUNIT=demo.service\nX=$(touch {tree.root}/run)\nSLOTS={tree.slots}", encoding="ascii"
    )
    tree.swap(record(deadline_s=NOW))
    tree.run("start")
    tree.went_back("deadline-passed")
    assert not (tree.root / "run").exists()


def test_under_journald_each_line_carries_its_level(tree: Tree) -> None:
    """The journal gets priorities; a terminal does not."""
    tree.swap(record(deadline_s=NOW))
    done = subprocess.run(
        tree.argv("start"),
        env={**tree.environment(), "JOURNAL_STREAM": "8:1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.stderr.startswith("<5>slotward-guard: demo: going back from b to a: deadline-passed")


def test_how_long_a_start_takes(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the time of a start without a trial and with one; the machine is shared, so nothing is asserted on it."""
    figures = []
    for swapped in (False, True):
        if swapped:
            tree.swap()
        began = time.perf_counter()
        for _time in range(20):
            tree.run("start")
        figures.append((time.perf_counter() - began) * 50)
    with capsys.disabled():
        print(f"\nguard start, {tree.shell[0]}: {figures[0]:.1f} ms without a trial, {figures[1]:.1f} ms in one")
    assert len(figures) == 2
