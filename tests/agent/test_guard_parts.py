# SPDX-License-Identifier: GPL-3.0-or-later
"""A product with a unit file among its parts: systemd reads unit files again between the links and the restart; starts are counted."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Tuple

import pytest
from agent.guarding import NOW, OTHER_BOOT, RESTART, STOP_TIMER, Tree, record

from agent import guarding
from slotcore import trial as trials

pytestmark = pytest.mark.filterwarnings("error")
RELOAD = ["daemon-reload"]
START_TIMER = ["--no-block start -- slotward-deadline@demo.timer"]


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def tree(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Tree:
    """A product whose unit file is a part of its releases, its guard run by each of the two shells."""
    shell: Tuple[str, ...] = request.param
    tree = Tree(tmp_path, shell)
    facts(tree, "RELOAD=yes")
    return tree


def facts(tree: Tree, *lines: str) -> None:
    """Write the facts of the product, with these lines besides."""
    text = "\n".join((f"UNIT=demo.service\nSLOTS={tree.slots}", *lines, ""))
    (tree.root / "guard.d/demo.env").write_text(text, encoding="ascii")


def refuse(tree: Tree, status: int = 1) -> None:
    """Have systemd refuse to read unit files again, as it does with too little space in /run; 0: let it."""
    path = tree.systemd / "fail-daemon-reload"
    path.write_text(str(status), encoding="ascii")
    if not status:
        path.unlink()


@pytest.mark.parametrize("mode", ["start", "tick", "failed"])
def test_at_rest_nothing_is_read_again(tree: Tree, mode: str) -> None:
    """Without a trial the guard asks systemd for nothing."""
    before = tree.stamps()
    tree.run(mode)
    assert tree.stamps() == before
    assert tree.calls("stop") == []


@pytest.mark.parametrize("mode", ["start", "tick", "failed"])
def test_unit_files_are_read_again_after_the_links_and_before_the_restart(tree: Tree, mode: str) -> None:
    """A start that waits for the guard runs the old unit file then; a tick restarts the unit by it."""
    (tree.systemd / "hook-daemon-reload").write_text(f"readlink {tree.slots}/current >>{tree.root}/seen\n")
    tree.swap(record(deadline_s=NOW))
    tree.started()
    tree.run(mode)
    tree.went_back("deadline-passed")
    assert tree.calls() == (RELOAD if mode == "start" else RELOAD + RESTART)
    assert (tree.root / "seen").read_text(encoding="ascii") == "a\n"
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_a_crash_loop_reads_unit_files_again_within_its_time(tree: Tree) -> None:
    """At a start there are two calls of 4 s besides systemd's answer at most: not the timer's too."""
    tree.swap()
    tree.started(4)
    for count in range(3):
        tree.unit("inactive", **exited(count))
        tree.run("start")
    assert tree.calls() == START_TIMER * 3
    tree.forget_calls()
    tree.unit("inactive", **exited(3))
    tree.run("start")
    tree.went_back("crash-loop")
    assert tree.calls() == RELOAD


def exited(count: int) -> dict[str, str]:
    """A unit that waits to be started again after its process ended by itself, for the `count`th time."""
    return {
        "ActiveState": "activating",
        "SubState": "auto-restart",
        "Job": "7",
        "NRestarts": str(count),
        "ExecMainExitTimestampMonotonic": str(951000000 + count),
        "ActiveExitTimestampMonotonic": str(951000001 + count),
    }


def test_going_back_happens_though_systemd_refuses_and_it_is_said(tree: Tree) -> None:
    """With /run full the binary goes back and is restarted; every tick tries again, and restarts by the right file then."""
    tree.swap(record(deadline_s=NOW))
    tree.started()
    refuse(tree)
    said = tree.run("tick", expect=1)
    assert "systemd does not read unit files again" in said
    assert "systemctl daemon-reload" in said
    tree.went_back("deadline-passed")
    assert tree.calls() == RELOAD + RESTART
    tree.forget_calls()
    tree.run("tick", expect=1)
    assert tree.calls() == RELOAD
    refuse(tree, 0)
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == RELOAD + RESTART
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_a_start_that_was_refused_is_made_good_by_a_tick(tree: Tree) -> None:
    """The same where a start went back: what started by the wrong file is restarted by the right one."""
    tree.swap(record(deadline_s=NOW))
    refuse(tree)
    tree.run("start", expect=1)
    tree.went_back("deadline-passed")
    refuse(tree, 0)
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == RELOAD + RESTART


def test_a_late_answer_counts_as_given(tree: Tree) -> None:
    """What systemd has been asked it does, in its own time: it is not asked again."""
    tree.swap(record(deadline_s=NOW))
    refuse(tree, 124)
    tree.run("tick")
    refuse(tree, 0)
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


def test_without_time_for_the_restart_the_next_tick_pays_it(tree: Tree) -> None:
    """Reading unit files took long: one more round of calls would run into the time limit of the guard's unit."""
    tree.swap(record(deadline_s=NOW))
    (tree.systemd / "hook-daemon-reload").write_text(f"echo {NOW + 7}.00 1.00 >{tree.proc}/uptime\n")
    assert "the next tick will" in tree.run("tick", expect=1)
    tree.went_back("deadline-passed")
    assert tree.calls() == RELOAD
    tree.forget_calls()
    tree.run("tick")
    assert tree.calls() == RESTART


@pytest.mark.parametrize("mode", ["start", "tick"])
def test_a_guard_killed_between_link_and_reload_is_made_good(tree: Tree, mode: str) -> None:
    """The log says that the links moved and not that unit files were read: whoever looks next has them read."""
    tree.swap(record(deadline_s=NOW))
    (tree.systemd / "hook-daemon-reload").write_text("kill -9 0\n")
    subprocess.run(tree.argv("start"), env=tree.environment(), start_new_session=True, capture_output=True, check=False)
    assert tree.current() == "a"
    (tree.systemd / "hook-daemon-reload").unlink()
    tree.forget_calls()
    tree.run(mode)
    assert tree.calls() == (RELOAD if mode == "start" else RELOAD + RESTART)


def test_an_update_that_never_began_restarts_nothing(tree: Tree) -> None:
    """The links never moved, so nothing is to be read and nothing to be restarted."""
    tree.swap(record(deadline_s=NOW), switched=False)
    tree.run("tick")
    assert tree.reason() == "never-started"
    assert tree.calls("stop") == []


def test_a_lost_record_reads_unit_files_again_too(tree: Tree) -> None:
    """Whatever the reason, no log needed."""
    tree.swap()
    for name in ("trial", "trial.log"):
        (tree.slots / name).unlink()
    tree.run("tick")
    assert tree.current() == "a"
    assert tree.calls() == RELOAD + RESTART


def test_after_a_boot_the_new_unit_file_is_read(tree: Tree) -> None:
    """I7: a power cut between switch and reload: systemd has read the release's own file by the time its trial goes on."""
    tree.swap()
    with (tree.slots / "trial.log").open("ab") as file:
        file.write(trials.UNIT_DUE)
    assert not trials.is_unit_read((tree.slots / "trial.log").read_bytes())
    tree.at(30, OTHER_BOOT)
    tree.run("start")
    assert trials.is_unit_read((tree.slots / "trial.log").read_bytes())


def test_more_starts_than_allowed_go_back(tree: Tree) -> None:
    """`[update] max_starts`: the start after the last one that is allowed is the good version's, by whomever it is asked for."""
    facts(tree, "STARTS=2")
    tree.swap()
    for _time in range(2):
        tree.run("start")
        tree.goes_on()
    tree.at(30, OTHER_BOOT)
    tree.run("start")
    tree.went_back("too-many-starts")


@pytest.mark.parametrize("bad", ["STARTS=0", "STARTS=two", "STARTS=", "RELOAD=no"])
def test_a_bad_fact_keeps_nothing_from_going_back(tree: Tree, bad: str) -> None:
    """I2: what only adds something is told, and the trial ends all the same."""
    facts(tree, bad)
    tree.swap(record(deadline_s=NOW))
    tree.run("start", expect=0 if bad == "STARTS=" else 1)
    tree.went_back("deadline-passed")
