# SPDX-License-Identifier: GPL-3.0-or-later
"""`guard data`: the copy of a product's data before a new release's first start, and the way back to it (products.md, section 6)."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
from typing import Tuple

import pytest
from agent.guarding import ID, NOW, OTHER_BOOT, STOP_TIMER
from agent.keeping import Keeping

from agent import guarding
from slotcore import trial as trials

pytestmark = pytest.mark.filterwarnings("error")
OLD_ID = "0123456789abcdef"
TIMER = "slotward-deadline@demo.timer"
DOWN = {"ActiveState": "inactive", "SubState": "dead"}


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def tree(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Keeping:
    """A product with a snapshot and a restore hook, its guard run by each of the two shells."""
    shell: Tuple[str, ...] = request.param
    return Keeping(tmp_path, shell)


def started(tree: Keeping) -> None:
    """A trial whose release was started: its data was kept, and is changed by now."""
    tree.swap()
    tree.run("start")
    tree.run("data")
    tree.changed()
    tree.forget_calls()


def test_without_a_trial_nothing_is_touched(tree: Keeping) -> None:
    """A start at rest runs no hook and changes nothing."""
    before = tree.stamps()
    assert tree.run("data") == ""
    assert tree.stamps() == before
    assert tree.ran() == []


def test_the_data_is_kept_before_the_first_start(tree: Keeping) -> None:
    """The hook has run and its copy is told of before the new release starts, once, with what it is told and no more."""
    tree.swap()
    tree.run("start")
    tree.run("data")
    assert tree.ran() == ["snapshot of demo"]
    assert tree.kept() == f"ID={ID}\nTO_SLOT=b\nFROM_VERSION=1.0.0\nTO_VERSION=1.1.0\n"
    assert tree.snapshots() == {ID: ["data"]}
    assert tree.environment_of_hook() == {
        "PATH": f"{guarding.FAKES}:/usr/bin:/bin",
        "SLOTWARD_PRODUCT": "demo",
        "SLOTWARD_FROM": "1.0.0",
        "SLOTWARD_TO": "1.1.0",
        "SLOTWARD_TRIAL": ID,
        "SLOTWARD_SNAPSHOT": f"{tree.slots}/snapshots/{ID}",
    }
    tree.goes_on()
    tree.changed()
    for _time in range(2):
        tree.run("start")
        tree.run("data")
    assert tree.ran() == ["snapshot of demo"]
    assert tree.was() == "as 1.1.0 wrote it"


def test_copies_of_data_are_for_nobody_else(tree: Keeping) -> None:
    """A copy of the data is as secret as the data."""
    tree.swap()
    tree.run("data")
    assert (tree.slots / "snapshots").stat().st_mode & 0o777 == 0o711
    assert (tree.slots / "snapshots" / ID).stat().st_mode & 0o777 == 0o700


def test_a_release_of_the_same_epoch_needs_no_copy(tree: Keeping) -> None:
    """The swap says in the log whether one is due."""
    tree.swap()
    (tree.slots / "trial.log").write_bytes(trials.LOG_HEADER)
    tree.run("data")
    assert tree.ran() == []
    assert tree.kept() is None


def test_only_the_newest_copy_is_kept(tree: Keeping) -> None:
    """An older trial's copy goes once the new one is complete; what is none of ours stays."""
    for name in (OLD_ID, "of-the-operator"):
        (tree.slots / "snapshots" / name).mkdir(parents=True)
    tree.swap()
    tree.run("data")
    assert sorted(tree.snapshots()) == [ID, "of-the-operator"]


def test_half_a_copy_is_made_anew(tree: Keeping) -> None:
    """P6: a cut in the middle of the hook leaves no `snapshot`; the next start begins the copy again, from nothing."""
    tree.swap()
    half = tree.slots / "snapshots" / ID
    half.mkdir(parents=True)
    (half / "half").touch()
    (tree.slots / "snapshot.tmp").write_text("ID=", encoding="ascii")
    tree.run("data")
    assert tree.snapshots() == {ID: ["data"]}
    assert tree.kept() is not None


@pytest.mark.parametrize("how", ["fails", "hangs", "is missing", "no seconds", "cannot say so"])
def test_data_that_cannot_be_kept_ends_the_trial(tree: Keeping, how: str) -> None:
    """The old version starts, the reason is recorded, an older copy stays."""
    (tree.slots / "snapshots" / OLD_ID).mkdir(parents=True)
    restore = f"RESTORE=5 root {tree.root}/restore"
    if how == "fails":
        tree.hook("snapshot", "echo no room >&2; exit 3")
    elif how == "hangs":
        tree.hook("snapshot", "exec sleep 60")
        tree.facts(f"SNAPSHOT=1 root {tree.root}/snapshot", restore)
    elif how == "is missing":
        tree.facts(restore)
    elif how == "no seconds":
        tree.facts(f"SNAPSHOT=root {tree.root}/snapshot", restore)
    else:
        (tree.slots / "snapshot.tmp").mkdir()
    tree.swap()
    tree.run("start")
    said = tree.run("data")
    assert "cannot be kept" in said
    tree.went_back("snapshot-failed")
    assert tree.kept() is None
    assert list(tree.snapshots()) == [OLD_ID]
    assert tree.calls("--no-block start") == []


def test_a_restart_that_waits_for_the_copy_is_not_judged_over(tree: Keeping) -> None:
    """The deadline passes while the hook runs: the tick goes back, and what was kept is no reason to restore."""
    tree.hook("snapshot", f"cp -r {tree.root}/uptime {tree.proc}/uptime; sh {tree.root}/tick")
    (tree.root / "uptime").write_text(f"{NOW + 61}.00 1.00\n", encoding="ascii")
    environment = " ".join(f"{key}={value}" for key, value in tree.environment().items())
    tick = " ".join(tree.argv("tick"))
    (tree.root / "tick").write_text(f"{environment} {tick}\n", encoding="ascii")
    tree.swap()
    tree.run("start")
    tree.run("data")
    tree.went_back("deadline-passed")
    assert tree.kept() is None
    tree.run("data")
    assert tree.ran() == ["snapshot of demo"]


def test_a_claim_whose_links_have_not_moved_yet_is_finished_before_the_start(tree: Keeping) -> None:
    """I12: somebody claims the end while the hook runs: the new release is not started any more."""
    tree.hook("snapshot", f"mv {tree.slots}/trial {tree.slots}/trial.revert")
    tree.swap()
    tree.run("data")
    assert tree.current() == "a"
    assert tree.kept() is None


def test_the_data_is_restored_before_the_old_version_starts(tree: Keeping) -> None:
    """After going back the first start of the old version finds its data as it left it; the second runs nothing."""
    started(tree)
    tree.at(NOW + 60)
    tree.run("tick")
    tree.went_back("deadline-passed")
    tree.run("start")
    tree.run("data")
    assert tree.was() == "as 1.0.0 wrote it"
    assert tree.kept() is None
    assert tree.environment_of_hook()["SLOTWARD_TO"] == "1.1.0"
    tree.data.write_text("as 1.0.0 wrote it later", encoding="ascii")
    tree.run("data")
    assert tree.was() == "as 1.0.0 wrote it later"
    assert tree.ran() == ["snapshot of demo", "restore of demo"]


def test_the_data_is_restored_though_the_trial_is_settled(tree: Keeping) -> None:
    """Whoever tidied up the trial's record has left what says whose data it is."""
    started(tree)
    tree.link("current", "a")
    for name in ("trial", "trial.log", "back"):
        (tree.slots / name).unlink()
    tree.run("data")
    assert tree.was() == "as 1.0.0 wrote it"


@pytest.mark.parametrize("claim", ["trial", "trial.confirm"])
def test_a_release_that_is_confirmed_keeps_its_data(tree: Keeping, claim: str) -> None:
    """I12: nothing is restored while the new release is what starts, nor once its confirmation has won."""
    started(tree)
    (tree.slots / "trial").rename(tree.slots / claim)
    if claim == "trial.confirm":
        tree.link("current", "a")  # not even then: whoever confirms finishes it
    tree.run("data")
    assert tree.was() == "as 1.1.0 wrote it"
    assert tree.ran() == ["snapshot of demo"]


def test_another_boot_keeps_the_copy(tree: Keeping) -> None:
    """I7: a reboot in the trial starts the new release again, on its data, and the copy is that of before."""
    started(tree)
    tree.at(30, OTHER_BOOT)
    tree.run("start")
    tree.run("data")
    assert tree.ran() == ["snapshot of demo"]
    assert tree.was() == "as 1.1.0 wrote it"
    assert tree.kept() is not None


def test_a_restore_that_fails_keeps_the_unit_down(tree: Keeping) -> None:
    """An old version must not write into newer data: `data` fails, says what to do, and has the timer try again."""
    started(tree)
    tree.hook("restore", "exit 9")
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    said = tree.run("data", expect=1)
    assert "cannot restore the data of 1.0.0" in said
    assert f"remove {tree.slots}/snapshot" in said
    assert str(tree.kept()).endswith(f"FAILED={NOW}\n")
    assert tree.calls() == [f"--no-block start -- {TIMER}"]
    assert tree.was() == "as 1.1.0 wrote it"
    tree.hook("restore", f'cp "$SLOTWARD_SNAPSHOT/data" {tree.data}')
    tree.run("data")
    assert tree.was() == "as 1.0.0 wrote it"
    assert tree.kept() is None


@pytest.mark.parametrize("state", [DOWN, {"ActiveState": "activating", "SubState": "auto-restart-queued"}])
@pytest.mark.parametrize("settled", [False, True])
def test_a_tick_tries_a_restore_again_three_times_in_all(tree: Keeping, state: dict[str, str], settled: bool) -> None:
    """Until the third failure a tick starts the unit, and so the restore, again; then it leaves it to the operator."""
    started(tree)
    tree.hook("restore", "exit 9")
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    if settled:
        for name in ("trial.revert", "trial.log", "back"):
            (tree.slots / name).unlink()
    for failures in (1, 2, 3):
        tree.run("data", expect=1)
        assert str(tree.kept()).count("FAILED=") == failures
        tree.unit(**state)
        tree.forget_calls()
        tree.run("tick")
        assert tree.calls() == (["--no-block restart -- demo.service"] if failures < 3 else STOP_TIMER)


def test_a_tick_waits_for_a_restore_that_runs(tree: Keeping) -> None:
    """While a start of the unit waits for its data, nothing is asked for and the timer goes on."""
    started(tree)
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    tree.unit(**DOWN, Job="7")
    tree.run("tick")
    assert tree.calls() == []


def test_what_an_operator_has_stopped_is_not_started_for_its_data(tree: Keeping) -> None:
    """Down without a failed restore, the unit stays down: its data is restored at its next start."""
    started(tree)
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    tree.unit(**DOWN)
    tree.run("tick")
    assert tree.calls() == STOP_TIMER


@pytest.mark.parametrize("bad", ["", "ID=x\nTO_SLOT=b\n", f"ID={ID}\n", f"ID={ID}\nTO_SLOT=c\n"])
def test_a_damaged_word_about_the_data_keeps_the_old_version_from_it(tree: Keeping, bad: str) -> None:
    """Nobody knows whose data it is: the unit stays down, and the way out is said."""
    (tree.slots / "snapshot").write_text(bad, encoding="ascii")
    assert "so demo.service does not start" in tree.run("data", expect=1)
    assert tree.ran() == []


def test_a_torn_line_about_a_failure_hides_nothing(tree: Keeping) -> None:
    """P6: a cut while a failure was written down."""
    started(tree)
    with (tree.slots / "snapshot").open("a", encoding="ascii") as file:
        file.write("FAI")
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    tree.run("data")
    assert tree.was() == "as 1.0.0 wrote it"


def test_a_restore_that_was_cut_begins_again(tree: Keeping) -> None:
    """P6: hook and guard are killed half way; the next start restores all of it."""
    started(tree)
    tree.hook("restore", f"echo half >{tree.data}; kill -9 0")
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    cut = subprocess.run(
        tree.argv("data"), env=tree.environment(), start_new_session=True, capture_output=True, check=False
    )
    assert cut.returncode != 0
    assert tree.was() == "half\n"
    assert tree.kept() is not None
    tree.hook("restore", f'cp "$SLOTWARD_SNAPSHOT/data" {tree.data}')
    tree.run("data")
    assert tree.was() == "as 1.0.0 wrote it"


DATA_UNIT = "slotward-data@demo.service"
STOPPED = {**DOWN, "Restart": "always", "ActiveExitTimestampMonotonic": "90", "ExecMainStartTimestampMonotonic": "10"}
STOPPED["ExecMainExitTimestampMonotonic"] = "95"
"""How a unit looks whose old process was stopped for a restart, and whose start was then given up."""


def cut(tree: Keeping, hook: str) -> None:
    """Run `data`, and have it killed in the middle of the hook, as by its time limit."""
    marker = tree.root / "hook-pid"
    tree.hook(hook, f"echo $$ >{marker}.new; mv {marker}.new {marker}; exec sleep 60")
    with subprocess.Popen(tree.argv("data"), env=tree.environment(), stderr=subprocess.DEVNULL) as guard:
        until = time.monotonic() + 20
        while not marker.exists():
            assert guard.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        guard.kill()
    os.kill(int(marker.read_text(encoding="ascii")), signal.SIGKILL)
    marker.unlink()


def data_unit(tree: Keeping, state: str) -> None:
    """What systemd says of the unit that keeps and restores data."""
    (tree.systemd / f"show-{DATA_UNIT}").write_text(f"ActiveState={state}\n", encoding="ascii")


@pytest.mark.parametrize("late", [False, True])
def test_a_copy_that_was_cut_leaves_no_daemon_down(tree: Keeping, late: bool) -> None:
    """I2: the start that waited for it is given up; that is nobody's stop, so the tick goes back and starts the old version."""
    tree.swap()
    tree.run("start")
    cut(tree, "snapshot")
    tree.unit(**STOPPED)
    data_unit(tree, "failed")
    tree.at(NOW + (61 if late else 2))
    tree.run("tick")
    tree.went_back("deadline-passed" if late else "snapshot-failed")
    assert "--no-block restart -- demo.service" in tree.calls()


def test_a_stop_by_hand_while_the_data_is_kept_stays_one(tree: Keeping) -> None:
    """The copy goes on then, and when it is done nothing was cut."""
    tree.swap()
    tree.run("start")
    cut(tree, "snapshot")
    tree.unit(**STOPPED)
    data_unit(tree, "activating")
    tree.forget_calls()
    tree.run("tick")
    assert tree.current() == "b"
    tree.at(NOW + 61)
    tree.run("tick")
    tree.went_back("deadline-passed")
    assert "--no-block restart -- demo.service" not in tree.calls()


def test_a_restore_that_was_cut_is_tried_again_three_times_in_all(tree: Keeping) -> None:
    """It had no time to say that it failed, and counts all the same; one that an operator waits for is left alone."""
    started(tree)
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    tree.unit(**STOPPED)
    for times in (1, 2, 3):
        cut(tree, "restore")
        data_unit(tree, "failed")
        tree.forget_calls()
        tree.run("tick")
        assert ("--no-block restart -- demo.service" in tree.calls()) is (times < 3)
    assert tree.calls() == STOP_TIMER


def test_a_restore_that_runs_is_not_asked_for_again(tree: Keeping) -> None:
    """The start was called off by an operator, and what restores the data goes on."""
    started(tree)
    tree.link("current", "a")
    (tree.slots / "trial").rename(tree.slots / "trial.revert")
    cut(tree, "restore")
    tree.unit(**STOPPED)
    data_unit(tree, "activating")
    tree.forget_calls()
    tree.run("tick")
    assert "--no-block restart -- demo.service" not in tree.calls()


def test_a_copy_of_another_trial_is_not_this_ones(tree: Keeping) -> None:
    """What says of another trial that its data is kept does not stand for this trial's."""
    (tree.slots / "snapshot").write_text(f"ID={OLD_ID}\nTO_SLOT=b\n", encoding="ascii")
    tree.swap()
    tree.run("data")
    assert str(tree.kept()).startswith(f"ID={ID}\n")


def test_a_damaged_record_starts_no_release_that_changes_data(tree: Keeping) -> None:
    """Without a sound record there is no copy, so the trial ends here if the guard could not end it before."""
    tree.swap()
    (tree.slots / "trial").write_bytes(b"SPEC=1\n")
    tree.run("data")
    assert tree.current() == "a"
    assert tree.reason() == "bad-record"
    assert tree.ran() == []


def test_facts_that_cannot_be_read_stop_no_daemon(tree: Keeping) -> None:
    """I8: only `data` is there to hold a start up, and it has nothing to go by."""
    (tree.root / "guard.d/demo.env").unlink()
    assert "cannot read" in tree.run("data")


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another account needs root")
def test_a_hook_runs_as_its_user(tmp_path: pathlib.Path) -> None:
    """The copy is that account's, and the hook has no more rights than it."""
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:3]:
        parent.chmod(0o755)
    tree = Keeping(tmp_path, user="nobody")
    tree.hook("snapshot", 'id -un >"$SLOTWARD_SNAPSHOT/who"; grep CapEff /proc/self/status >>"$SLOTWARD_SNAPSHOT/who"')
    tree.told.touch()
    tree.told.chmod(0o666)
    tree.swap()
    tree.run("data")
    who = tree.slots / "snapshots" / ID / "who"
    assert who.read_text(encoding="ascii").split() == ["nobody", "CapEff:", "0" * 16]
    assert who.parent.stat().st_uid == who.stat().st_uid != 0


def test_an_account_that_is_not_there_is_no_root(tmp_path: pathlib.Path) -> None:
    """A hook whose user is gone is not run at all."""
    tree = Keeping(tmp_path, user="no-such-account")
    tree.swap()
    tree.run("data")
    assert tree.ran() == []
    tree.went_back("snapshot-failed")


def test_words_are_words(tree: Keeping) -> None:
    """I6: nothing in the facts is taken by a shell: no pattern, no quote, no substitution."""
    (tree.root / "glob-me").touch()
    tree.facts(f"SNAPSHOT=5 root {tree.root}/snapshot * $(touch {tree.root}/broken) 'a b'", "RESTORE=5 root /bin/true")
    tree.swap()
    tree.run("data")
    assert tree.ran() == [f"snapshot * $(touch {tree.root}/broken) 'a b'"]
    assert not (tree.root / "broken").exists()


def test_a_confirmation_takes_the_word_about_the_data_away_under_the_guards_eyes(tree: Keeping) -> None:
    """A tick while a trial is confirmed has nothing to restore, though `snapshot` is still there."""
    started(tree)
    (tree.slots / "trial").rename(tree.slots / "trial.confirm")
    tree.run("tick")
    assert tree.calls() == STOP_TIMER
    assert tree.was() == "as 1.1.0 wrote it"
