# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard of a product with a helper: a second unit, which starts from the link `helper` (docs/design/guard.md)."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Dict, List, Tuple

import pytest
from agent.guarding import ANEW, NOW, RESTART, RESTART_BOTH, RESTART_HELPER, STOP_TIMER, PairTree, Tree, record
from agent.test_guard_unit_state import CRASHES, STOPPED, STOPS, crash, state

from agent import guarding
from slotcore import trial as trials

MODES = ("start", "tick", "failed")
SIDES = ("unit", "helper")
RESTART_OTHER = {
    "unit": ["--no-block restart -- demo-helper.service"],
    "helper": ["--no-block restart -- demo.service"],
}
START_TIMER = "--no-block start -- slotward-deadline@demo.timer"


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def tree(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> PairTree:
    """A product with a helper and nothing pending, its guard run by each of the two shells."""
    shell: Tuple[str, ...] = request.param
    return PairTree(tmp_path, shell)


def shows(tree: PairTree, side: str, shown: Dict[str, str]) -> None:
    """Have systemd show this of one of the two, and that the other runs."""
    tree.pair(**{side: shown})  # type: ignore[arg-type]


# The facts


@pytest.mark.parametrize("helper", ["", "-x", "a b", "demo.service", "x;reboot", "$(x)", "h*lper.service", "a/b"])
def test_a_helper_that_is_no_other_unit_s_name_is_refused(tree: PairTree, helper: str) -> None:
    """As for UNIT: the error names the file, the key and the value, and the unit of the guard fails."""
    tree.swap(record(deadline_s=NOW))
    tree.facts(f"UNIT=demo.service\nSLOTS={tree.slots}\nHELPER={helper}\n")
    said = tree.run("tick", expect=1)
    assert "HELPER in " in said
    assert f"demo.env is '{helper}'" in said
    assert tree.current() == "b"


@pytest.mark.parametrize("mode", MODES)
def test_without_the_fact_a_helper_s_links_are_nobody_s(tmp_path: pathlib.Path, mode: str) -> None:
    """A product without a helper may have files of these names: they are neither read nor touched, nor is systemd asked."""
    for shell in guarding.SHELLS:
        tree = Tree(tmp_path / shell[0] / mode, shell)
        for name in ("helper", "helper.back"):
            tree.link(name, "b")
        before = tree.stamps()
        tree.run(mode)
        assert tree.stamps() == before
        tree.swap(record(deadline_s=NOW))
        tree.run(mode)
        tree.went_back("deadline-passed")
        after = tree.stamps()
        assert {after[name] for name in ("helper", "helper.back")} == {
            before[name] for name in ("helper", "helper.back")
        }
        assert "helper" not in (tree.systemd / "calls").read_text(encoding="ascii")
        assert "helper" not in (tree.slots / "trial.log").read_text(encoding="ascii")


# Without a trial


@pytest.mark.parametrize("mode", MODES)
def test_at_rest_nothing_is_touched(tree: PairTree, mode: str) -> None:
    """No record, both links are good: no name, inode or time changes."""
    before = tree.stamps()
    assert tree.run(mode) == ""
    assert tree.stamps() == before
    assert tree.calls() == (STOP_TIMER if mode == "tick" else [])


@pytest.mark.parametrize("mode", MODES)
def test_slots_that_are_not_in_use_are_left_alone(tree: PairTree, mode: str) -> None:
    """Before the first install there is nothing to guard, whatever `helper` is."""
    for name in ("a", "b", "good", "current"):
        (tree.slots / name).unlink()
    assert tree.run(mode) == ""
    assert tree.names() == ["helper"]


@pytest.mark.parametrize("mode", MODES)
def test_a_helper_s_link_that_names_another_slot_at_rest_is_set_right(tree: PairTree, mode: str) -> None:
    """A record lost, and a cut after `current` went back: the helper must not start what was never confirmed."""
    tree.link("helper", "b")
    assert "helper names a again" in tree.run(mode)
    assert (tree.current(), tree.helper()) == ("a", "a")
    assert tree.names() == ["a", "b", "current", "good", "helper"]
    assert tree.calls() == (RESTART_HELPER if mode != "start" else RESTART_OTHER["unit"])
    tree.forget_calls()
    before = tree.stamps()
    tree.run(mode)
    assert tree.stamps() == before


def test_a_swap_seen_halfway_is_no_helper_gone_astray(tmp_path: pathlib.Path) -> None:
    """The links read were of before and after a swap: looked at again, there is a trial, and it goes on."""
    tree = PairTree(tmp_path)
    # the swap happens between the guard's look and its first readlink, which still finds the old `current`
    (tmp_path / "new").write_bytes(trials.render_trial(record()))
    tree.behind(
        "readlink",
        f"[ -e {tmp_path}/done ] || {{ : >{tmp_path}/done; cd {tree.slots}; ln -sfn a back; ln -sfn a helper.back;"
        f"cp {tmp_path}/new trial; ln -sfn b current; ln -sfn b helper; printf 'a\\na\\nb\\n'; exit 0; }}",
    )
    tree.run("tick")
    assert (tmp_path / "done").exists()
    tree.goes_on()
    assert tree.calls() == []


# Going back, for each reason that is no unit's


@pytest.mark.parametrize("mode", MODES)
def test_at_the_deadline_both_go_back(tree: PairTree, mode: str) -> None:
    """Both links go back; a tick restarts both, a start the one that runs beside it."""
    tree.swap(record(deadline_s=NOW))
    if mode == "start":
        shows(tree, "unit", STOPS["stopped"])
    tree.run(mode)
    tree.went_back("deadline-passed")
    assert tree.calls() == (RESTART_BOTH if mode != "start" else RESTART_OTHER["unit"])
    tree.forget_calls()
    tree.run("tick")  # while the one that starts is still on its way, the timer goes on
    assert tree.calls() == (STOP_TIMER if mode != "start" else [])
    tree.pair()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER * (1 if mode == "start" else 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_trial_with_time_left_goes_on(tree: PairTree, mode: str) -> None:
    """One second before the deadline nothing happens but the line in the log."""
    tree.swap(record(deadline_s=NOW + 1))
    tree.run(mode)
    tree.goes_on()
    assert tree.calls() == []
    assert tree.log() == ([f"start {NOW}"] if mode == "start" else [])


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_record_takes_both_back(tree: PairTree, mode: str) -> None:
    """I2: no record at all while the links differ."""
    tree.swap()
    (tree.slots / "trial").unlink()
    assert "lost-record" in tree.run(mode)
    tree.went_back("lost-record")


@pytest.mark.parametrize("data", [b"", b"SPEC=1\n", b"\0" * 400, b"x" * 5000], ids=["empty", "torn", "zeros", "long"])
@pytest.mark.parametrize("mode", MODES)
def test_a_damaged_record_takes_both_back(tree: PairTree, mode: str, data: bytes) -> None:
    """I2: the helper goes back for it too."""
    tree.swap()
    (tree.slots / "trial").write_bytes(data)
    tree.run(mode)
    assert (tree.current(), tree.helper()) == ("a", "a")
    assert tree.reason() == "bad-record"


@pytest.mark.parametrize("mode", MODES)
def test_the_last_boot_is_the_last(tree: PairTree, mode: str) -> None:
    """I7: with no boot left both go back; in a new boot nothing runs yet that would need a restart."""
    tree.swap(record(boots_left=0))
    tree.at(30, guarding.OTHER_BOOT)
    new = state("inactive", start=0, left_rest=0, Job="5")
    tree.pair(new, new)
    tree.run(mode)
    tree.went_back("no-boots-left")
    if mode == "start":
        assert tree.calls() == []


def test_h5_a_new_boot_gives_the_length_again(tree: PairTree) -> None:
    """H5, I7: one record for both, renewed once."""
    tree.swap()
    tree.at(30, guarding.OTHER_BOOT)
    for _unit in SIDES:
        tree.run("start")
    tree.goes_on()
    found = trials.parse_trial((tree.slots / "trial").read_bytes())
    assert found == record(boot_id=guarding.OTHER_BOOT, deadline_s=150, boots_left=2)


@pytest.mark.parametrize("mode", MODES)
def test_a_switch_that_never_happened_restarts_nothing(tree: PairTree, mode: str) -> None:
    """Neither link had moved: only the tick past the deadline ends it."""
    tree.swap(record(deadline_s=NOW), switched=False)
    before = tree.stamps()
    tree.run(mode)
    assert (tree.current(), tree.helper()) == ("a", "a")
    if mode == "tick":
        assert tree.reason() == "never-started"
        assert tree.calls() == STOP_TIMER
    else:
        assert tree.stamps() == before


@pytest.mark.parametrize("mode", MODES)
def test_a_confirmation_that_won_is_left_to_the_agent(tree: PairTree, mode: str) -> None:
    """I12: with trial.confirm nothing is decided any more, wherever the links point."""
    tree.swap()
    (tree.slots / "trial").rename(tree.slots / "trial.confirm")
    for helper in ("b", "a"):
        tree.link("helper", helper)
        before = tree.stamps()
        tree.run(mode)
        assert tree.stamps() == before


# Where a cut left it


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("back", [True, False], ids=["with-back", "without-back"])
def test_p7_a_cut_between_the_two_renames_is_finished(tree: PairTree, mode: str, back: bool) -> None:
    """P7, I12: current is good, helper still names what failed: it moves, and whatever was not restarted yet is."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    (tree.slots / "back").rename(tree.slots / "current")
    if not back:
        (tree.slots / "helper.back").unlink()
    if mode == "start":
        shows(tree, "helper", crash(1))
    tree.run(mode)
    assert (tree.current(), tree.helper()) == ("a", "a")
    assert tree.calls() == (RESTART_BOTH if mode != "start" else RESTART_OTHER["helper"])
    tree.forget_calls()
    tree.pair(ANEW, ANEW)
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_p7_the_other_half_alone_is_finished_too(tree: PairTree) -> None:
    """A power cut may keep the second rename and lose the first."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    (tree.slots / "helper.back").rename(tree.slots / "helper")
    tree.run("tick")
    assert (tree.current(), tree.helper()) == ("a", "a")
    assert tree.calls() == RESTART_BOTH


def test_a_helper_s_link_that_cannot_be_moved_is_tried_again(tmp_path: pathlib.Path) -> None:
    """The unit has its restart at once, and no second one; the helper has its own when its link has moved."""
    tree = PairTree(tmp_path)
    tree.behind("mv", f'[ "$3" != helper ] || [ -e {tmp_path}/well ] || exit 1')
    tree.swap(record(deadline_s=NOW))
    for calls in (RESTART, []):
        assert "helper still names 'b'" in tree.run("tick", expect=1)
        assert (tree.current(), tree.helper()) == ("a", "b")
        assert tree.calls() == calls
        tree.forget_calls()
    (tmp_path / "well").touch()
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART_HELPER


def test_a_unit_that_was_restarted_before_the_cut_is_not_restarted_again(tree: PairTree) -> None:
    """What is owed to each, and what was paid, is in the log."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    (tree.slots / "back").rename(tree.slots / "current")
    with (tree.slots / "trial.log").open("ab") as file:
        file.write(b"owed 999\nhelper owed 999\nrestart 999\n")
    tree.run("tick")
    assert (tree.current(), tree.helper()) == ("a", "a")
    assert tree.calls() == RESTART_HELPER


@pytest.mark.parametrize("name", ["helper.back", "back"])
@pytest.mark.parametrize("target", ["b", "a/", "nowhere", ""], ids=["other", "odd", "dangling", "missing"])
def test_a_link_back_is_made_again_when_it_does_not_name_good(tree: PairTree, name: str, target: str) -> None:
    """Going back is to good and nothing else, for the helper as for the unit."""
    tree.swap(record(deadline_s=NOW))
    if target:
        tree.link(name, target)
    else:
        (tree.slots / name).unlink()
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART_BOTH


def test_a_helper_s_link_that_is_missing_is_not_made(tree: PairTree) -> None:
    """The guard makes no link that was not there, and goes back all the same."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "helper").unlink()
    tree.run("tick")
    assert (tree.current(), tree.helper()) == ("a", None)
    assert tree.reason() == "deadline-passed"
    assert tree.calls() == RESTART_BOTH


def test_a_good_slot_that_is_gone_is_not_gone_back_to(tree: PairTree) -> None:
    """I1: neither link ever leads to nothing."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "a").unlink()
    assert "not there" in tree.run("tick", expect=1)
    assert (tree.current(), tree.helper()) == ("b", "b")
    assert tree.calls() == []


# Restarts that are owed


@pytest.mark.parametrize("cut", ["show", "reset-failed", "restart"])
def test_an_interrupted_guard_pays_what_is_owed_to_each(tree: PairTree, cut: str) -> None:
    """W7: killed after the links moved, at any of its calls: the next tick restarts both, and the one after stops."""
    tree.swap(record(deadline_s=NOW))
    (tree.systemd / f"hook-{cut}").write_text(
        f'rm "$FAKE_SYSTEMD/hook-{cut}"; at=$PPID\n'
        f"until tr '\\0' ' ' </proc/$at/cmdline | grep -q {tree.guard}; do read -r _ _ _ at _ </proc/$at/stat; done\n"
        'kill -9 "$at"; exit 1\n',
        encoding="ascii",
    )
    done = subprocess.run(tree.argv("tick"), env=tree.environment(), capture_output=True, check=False, timeout=60)
    assert done.returncode == -9, done.stderr
    assert (tree.current(), tree.helper()) == ("a", "a")
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == RESTART_BOTH
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_a_guard_that_was_killed_between_the_two_restarts_owes_one(tree: PairTree) -> None:
    """Each restart is written down as soon as systemd has taken it."""
    tree.swap(record(deadline_s=NOW))
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    (tree.slots / "back").rename(tree.slots / "current")
    (tree.slots / "helper.back").rename(tree.slots / "helper")
    with (tree.slots / "trial.log").open("ab") as file:
        file.write(b"owed 999\nhelper owed 999\nrestart 999\n")
    tree.run("tick")
    assert tree.calls() == RESTART_HELPER


@pytest.mark.parametrize("side", SIDES)
def test_one_that_cannot_be_restarted_keeps_not_the_other(tree: PairTree, side: str) -> None:
    """What is owed to the one is paid; to the other it stays owed until it is."""
    bad, well = ("demo.service", "demo-helper.service")[:: 1 if side == "unit" else -1]
    tree.swap(record(deadline_s=NOW))
    (tree.systemd / f"fail-restart-{bad}").write_text("5", encoding="ascii")
    said = tree.run("tick", expect=1)
    assert f"cannot restart {bad}" in said
    assert f"cannot restart {well}" not in said
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART_BOTH
    tree.forget_calls()
    tree.run("tick", expect=1)
    (tree.systemd / f"fail-restart-{bad}").unlink()
    tree.run("tick")
    assert tree.calls() == [f"reset-failed -- {bad}", f"--no-block restart -- {bad}"] * 2
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


@pytest.mark.parametrize("mode", ["tick", "start"])
def test_with_no_time_left_the_next_tick_restarts_the_other(tree: PairTree, mode: str) -> None:
    """The guard's own time limit: a systemd that takes seconds for each answer gets no more requests in this run."""
    tree.swap(record(deadline_s=NOW))
    (tree.systemd / "fail-show").write_text("1", encoding="ascii")
    late = {"tick": 14, "start": 6}[mode]
    (tree.systemd / "hook-restart").write_text(f"echo '{NOW + late}.0 1.0' >{tree.proc}/uptime\n", encoding="ascii")
    assert "no time is left to restart demo-helper.service" in tree.run(mode, expect=1)
    assert tree.calls("reset") == RESTART[1:]
    (tree.systemd / "fail-show").unlink()
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == RESTART_HELPER


@pytest.mark.parametrize("side", SIDES)
def test_a_restart_that_left_one_down_is_tried_three_times(tree: PairTree, side: str) -> None:
    """W7: each is looked at by itself afterwards; the one that came up is left alone."""
    name = "demo.service" if side == "unit" else "demo-helper.service"
    tree.swap(record(deadline_s=NOW))
    tree.run("tick")
    assert tree.calls() == RESTART_BOTH
    tree.forget_calls()
    crashed = state(
        "failed", "exit-code", start=1_000_000_000, end=1_001_000_000, left_active=1_001_000_100, Restart="no"
    )
    tree.pair(*((crashed, ANEW) if side == "unit" else (ANEW, crashed)))
    for _time in range(3):
        tree.run("tick")
    assert tree.calls() == [f"reset-failed -- {name}", f"--no-block restart -- {name}"] * 2 + STOP_TIMER


def test_one_on_its_way_down_is_waited_for_and_the_other_restarted(tree: PairTree) -> None:
    """An operator's stop is under way for one of them."""
    tree.swap(record(deadline_s=NOW))
    tree.pair(None, {"ActiveState": "deactivating", "SubState": "stop-sigterm", "Job": "7"})
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert tree.calls() == RESTART
    tree.forget_calls()
    tree.pair(ANEW, STOPPED["stopped"])
    assert "demo-helper.service had been stopped and stays so" in tree.run("tick")
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


@pytest.mark.parametrize("mode", MODES)
def test_the_links_go_back_though_systemd_does_not_answer(tree: PairTree, mode: str) -> None:
    """I2: neither link waits for systemd; what is not known to be stopped is restarted."""
    (tree.systemd / "fail-show").write_text("1", encoding="ascii")
    tree.swap(record(deadline_s=NOW))
    assert "does not answer" in tree.run(mode)
    tree.went_back("deadline-passed")
    assert tree.calls() == (RESTART_BOTH if mode != "start" else RESTART_BOTH[1:])


# What the units do


@pytest.fixture
def trial(tree: PairTree) -> PairTree:
    """A trial under way whose release was started once."""
    tree.swap()
    tree.started()
    return tree


@pytest.mark.parametrize("side", SIDES)
def test_w11_the_fourth_crash_of_either_takes_both_back(trial: PairTree, side: str) -> None:
    """W11, W15: three crashes are survived; the start after the fourth is one of the good version, and the other restarts."""
    for number in (1, 2, 3):
        shows(trial, side, crash(number))
        trial.run("start")
        trial.goes_on()
    shows(trial, side, crash(4))
    name = "demo.service" if side == "unit" else "demo-helper.service"
    assert f"{name} ends again and again by itself" in trial.run("start")
    trial.went_back("crash-loop")
    assert trial.calls() == RESTART_OTHER[side]
    tag = "" if side == "unit" else "helper "
    assert [line.rpartition(" 1000")[0] or line.split(" 1000")[0] for line in trial.log()] == (
        ["start 900"] + [f"{tag}crash", "start"] * 3 + [f"{tag}crash", "owed", "helper owed", *RESTARTED[side]]
    )


RESTARTED = {"unit": ["restart", "helper restart"], "helper": ["helper restart", "restart"]}


def test_crashes_of_the_two_are_not_added_up(trial: PairTree) -> None:
    """Three of the one and three of the other, one after the other and at once, are no crash loop."""
    for number in (1, 2, 3):
        trial.pair(crash(number), None)
        trial.run("start")
        trial.pair(None, crash(number))
        trial.run("start")
    trial.goes_on()
    for _start in range(3):
        trial.pair(crash(3), crash(3))
        trial.run("start")
    trial.goes_on()
    trial.pair(crash(3), crash(4))
    trial.run("start")
    trial.went_back("crash-loop")
    assert trial.calls() == []  # both are about to start


@pytest.mark.parametrize("shown", CRASHES.values(), ids=CRASHES.keys())
@pytest.mark.parametrize("side", SIDES)
def test_an_exit_of_its_own_is_counted_once_whichever_start_sees_it(
    trial: PairTree, side: str, shown: Dict[str, str]
) -> None:
    """Each way in which systemd shows it, with a job or still waiting; without a main process only with a job."""
    tag = "" if side == "unit" else "helper "
    for _time in range(2):
        shows(trial, side, {**shown, "Job": ""})
        trial.run("start")
    seen = sum("crash" in line for line in trial.log())
    assert seen == (0 if shown["ExecMainExitTimestampMonotonic"] == "0" else 1)
    for _time in range(2):
        shows(trial, side, {**shown, "Job": "404"})
        trial.run("start")
    trial.goes_on()
    assert sum(line.startswith(f"{tag}crash ") for line in trial.log()) == 1
    assert sum("crash" in line for line in trial.log()) == 1


@pytest.mark.parametrize("side", SIDES)
def test_an_exit_that_two_starts_see_is_counted_once(trial: PairTree, side: str) -> None:
    """Measured: the other unit's restart wants this one while it waits; then its own restart comes, and NRestarts has grown."""
    for restarts in ("0", "1"):
        shows(trial, side, {**crash(1), "NRestarts": restarts})
        trial.run("start")
    assert sum("crash" in line for line in trial.log()) == 1


@pytest.mark.parametrize("side", SIDES)
def test_starts_without_a_main_process_are_told_apart_by_systemd_s_count(trial: PairTree, side: str) -> None:
    """ExecStartPre= fails in a unit that restarts directly: there is no time that changes, only NRestarts does."""
    for restarts in range(1, 5):
        trial.goes_on()
        shows(trial, side, {**CRASHES["start-pre"], "NRestarts": str(restarts), "Job": "9"})
        trial.run("start")
    trial.went_back("crash-loop")


@pytest.mark.parametrize("shown", STOPS.values(), ids=STOPS.keys())
@pytest.mark.parametrize("side", SIDES)
def test_w3_a_stop_that_systemd_was_asked_for_is_not_counted(trial: PairTree, side: str, shown: Dict[str, str]) -> None:
    """W3: an operator's restarts of either count for nothing."""
    shows(trial, side, {**shown, "Job": "9"})
    for _time in range(12):
        trial.run("start")
    trial.goes_on()
    assert [line.split()[0] for line in trial.log()] == ["start"] * 13


@pytest.mark.parametrize("side", SIDES)
def test_a_crash_of_the_replaced_process_is_not_the_new_release_s(tree: PairTree, side: str) -> None:
    """Two units are two starts: what was seen at the first one is not counted at the second either."""
    tree.swap(record(length_s=120, deadline_s=NOW + 60))
    old = crash(7)
    old["ExecMainStartTimestampMonotonic"] = str((NOW - 100) * 1_000_000)
    shows(tree, side, old)
    for _unit in SIDES:
        tree.run("start")
    assert not any("crash" in line for line in tree.log())
    assert sum(line.startswith("start ") for line in tree.log()) == 2
    assert trials.count_crashes((tree.slots / "trial.log").read_bytes()) == 0


@pytest.mark.parametrize("side", SIDES)
def test_without_a_log_systemd_s_own_count_ends_a_crash_loop(tree: PairTree, side: str) -> None:
    """The log cannot be written: each one's NRestarts decides."""
    tree.swap()
    (tree.slots / "trial.log").unlink()
    for number in (1, 2, 3):
        shows(tree, side, crash(number))
        assert "cannot write" in tree.run("start")
        tree.goes_on()
    shows(tree, side, crash(4))
    tree.run("start")
    tree.went_back("crash-loop")
    assert tree.calls() == RESTART_OTHER[side]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mode", ["tick", "failed"])
def test_either_that_failed_by_itself_takes_both_back(trial: PairTree, mode: str, side: str) -> None:
    """W2: OnFailure= of either, or the next tick."""
    shows(trial, side, state("failed", "exit-code", end=951_000_000, left_active=951_000_100, Restart="no"))
    name = "demo.service" if side == "unit" else "demo-helper.service"
    assert f"{name} has ended by itself" in trial.run(mode)
    trial.went_back("unit-failed")
    assert trial.calls() == RESTART_BOTH


@pytest.mark.parametrize("side", SIDES)
def test_w7_either_that_ended_cleanly_takes_both_back(trial: PairTree, side: str) -> None:
    """W7: exit 0 where nothing restarts it; only the tick can see it."""
    shows(trial, side, state("inactive", end=951_000_000, left_active=951_000_100, Restart="on-failure"))
    trial.run("failed")
    trial.goes_on()
    trial.run("tick")
    trial.went_back("unit-stopped")
    assert trial.calls() == RESTART_BOTH


@pytest.mark.parametrize("shown", STOPPED.values(), ids=STOPPED.keys())
@pytest.mark.parametrize("side", SIDES)
def test_what_an_operator_stopped_stays_stopped_and_the_other_is_restarted(
    trial: PairTree, side: str, shown: Dict[str, str]
) -> None:
    """Before the deadline nothing happens; at it the links go back, and only what ran is restarted."""
    other = "demo-helper.service" if side == "unit" else "demo.service"
    shows(trial, side, shown)
    for mode in ("tick", "failed", "tick"):
        trial.run(mode)
    trial.goes_on()
    trial.at(NOW + 60)
    assert "stays so" in trial.run("tick")
    trial.went_back("deadline-passed")
    alone = "--no-block --job-mode=ignore-requirements restart --"  # the daemon's unit wants the helper's
    assert trial.calls() == [f"reset-failed -- {other}", f"{alone} {other}"]
    trial.forget_calls()
    trial.run("tick")
    assert trial.calls() == STOP_TIMER


@pytest.mark.parametrize("side", SIDES)
def test_a_crash_loop_leaves_the_other_stopped_if_an_operator_stopped_it(trial: PairTree, side: str) -> None:
    """At a start, too, an operator's stop is respected."""
    other = {"unit": "helper", "helper": "unit"}[side]
    said = ""
    for number in (1, 2, 3, 4):
        trial.pair(**{side: crash(number), other: STOPPED["stopped"]})  # type: ignore[arg-type]
        said = trial.run("start")
    assert "had been stopped and stays so" in said
    trial.went_back("crash-loop")
    assert trial.calls() == []
    shows(trial, other, STOPPED["stopped"])
    trial.run("tick")
    assert trial.calls() == STOP_TIMER


@pytest.mark.parametrize("side", SIDES)
def test_a_crash_loop_takes_the_other_up_again_if_it_was_down_by_itself(trial: PairTree, side: str) -> None:
    """Both are bad: the one loops, the other has given up."""
    other = {"unit": "helper", "helper": "unit"}[side]
    down = state("failed", "start-limit-hit", end=951_000_000, left_active=951_000_100, left_rest=951_000_500)
    for number in (1, 2, 3, 4):
        trial.pair(**{side: crash(number), other: down})  # type: ignore[arg-type]
        trial.run("start")
    trial.went_back("crash-loop")
    assert trial.calls() == RESTART_OTHER[side]
    trial.forget_calls()
    trial.run("tick")  # the start limit let that restart fail: the tick resets it first
    name = RESTART_OTHER[side][0].rpartition(" ")[2]
    assert trial.calls() == [f"reset-failed -- {name}", f"--no-block restart -- {name}"]


@pytest.mark.parametrize("side", SIDES)
def test_w1_one_that_systemd_is_about_to_restart_has_not_failed(trial: PairTree, side: str) -> None:
    """W1: 257 starts OnFailure= on each automatic restart, 247 and 252 show the unit inactive for a moment."""
    for shown in (crash(1), CRASHES["257-waiting"], STOPS["starting"], STOPS["stopping"]):
        shows(trial, side, shown)
        trial.run("failed")
        trial.run("tick")
        trial.goes_on()


def test_a_start_sees_to_it_that_the_timer_ticks(tree: PairTree) -> None:
    """I4: a trial whose timer is not active gets it started; systemd is asked about everything in one question."""
    tree.swap()
    tree.pair(timer="inactive")
    tree.run("start")
    assert tree.calls() == [START_TIMER]
    asked = [line for line in (tree.systemd / "calls").read_text(encoding="ascii").splitlines() if "show" in line]
    assert [line.partition(" -- ")[2] for line in asked] == [
        "demo.service demo-helper.service slotward-deadline@demo.timer"
    ]


def test_calls_in_the_worst_case(trial: PairTree) -> None:
    """The figures of guard.md, section 4: two calls of systemctl at a start, five in a tick."""

    def count(mode: str, expect: int = 0) -> int:
        trial.forget_calls()
        trial.run(mode, expect)
        return len((trial.systemd / "calls").read_text(encoding="ascii").splitlines())

    counts: List[int] = []
    trial.pair(timer="inactive")
    counts.append(count("start"))
    for number in (1, 2, 3, 4):
        trial.pair(None, crash(number), timer="inactive")
        counts.append(count("start"))
    trial.went_back("crash-loop")
    assert max(counts) == 2
    trial.link("helper", "a")
    (trial.slots / "trial.revert").unlink()
    trial.swap()
    trial.pair(None, state("failed", "exit-code", end=951_000_000, left_active=951_000_100, Restart="no"))
    assert count("tick") == 5
    assert count("tick") <= 4


def test_an_older_reader_makes_of_the_log_what_it_made_before(trial: PairTree) -> None:
    """The helper's lines are nobody's crashes, starts or restarts but the helper's."""
    log = trial.slots / "trial.log"
    with log.open("ab") as file:
        file.write(b"".join(b"helper crash 1 %d.2.3\nhelper old 1 9.9.%d\n" % (n, n) for n in range(9)))
        file.write(b"helper owed 1\nhelper restart 1\n")
    assert trials.count_crashes(log.read_bytes()) == 0
    assert trials.was_started(log.read_bytes())
    alone = Tree(trial.root / "alone", trial.shell)
    alone.swap()
    (alone.slots / "trial.log").write_bytes(log.read_bytes())
    alone.unit(**crash(1))
    alone.run("start")
    alone.goes_on()
    assert os.readlink(trial.slots / "helper") == "b"
