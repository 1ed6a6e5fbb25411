# SPDX-License-Identifier: GPL-3.0-or-later
"""Two parties at one trial (I12): whoever renames first wins, and nobody ever sees a mix of both."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Callable, List, Tuple

import pytest
from agent.guarding import NOW, SHELLS, PairTree, Tree, record

from agent import guarding
from slotcore import trial as trials

Act = Callable[[pathlib.Path], bool]
ROUNDS = 1000
IN_MEMORY = "/dev/shm"


@pytest.fixture
def room() -> Iterator[pathlib.Path]:
    """A directory in memory where there is one: a thousand syncs should cost nothing."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.path.isdir(IN_MEMORY) else None) as path:
        yield pathlib.Path(path)


def reset(tree: Tree, trial: trials.Trial) -> None:
    """The trial as it was, whatever has become of it."""
    for name in ("trial", "trial.confirm", "trial.revert", "floor"):
        (tree.slots / name).unlink(missing_ok=True)
    tree.link("good", "a")
    tree.swap(trial)


def confirm(slots: pathlib.Path) -> bool:
    """What the agent does to confirm: claim, floor, good, then the record goes. Whether it won."""
    try:
        os.rename(slots / "trial", slots / "trial.confirm")
    except FileNotFoundError:
        return False
    (slots / "floor").write_text("2", encoding="ascii")
    os.symlink("b", slots / "good.tmp")
    os.rename(slots / "good.tmp", slots / "good")
    for name in ("trial.confirm", "trial.log", "back"):
        (slots / name).unlink(missing_ok=True)
    return True


def rollback(slots: pathlib.Path) -> bool:
    """What the agent does to go back. Whether it won."""
    try:
        os.rename(slots / "trial", slots / "trial.revert")
    except FileNotFoundError:
        return False
    with (slots / "trial.revert").open("ab") as file:
        file.write(b"REASON=operator\n")
    try:
        os.rename(slots / "back", slots / "current")
    except FileNotFoundError:  # the guard has finished it
        return True
    return True


def confirm_both(slots: pathlib.Path) -> bool:
    """What the agent does to confirm with a helper: the links to go back by are gone before `good` moves."""
    try:
        os.rename(slots / "trial", slots / "trial.confirm")
    except FileNotFoundError:
        return False
    for name in ("back", "helper.back"):
        (slots / name).unlink(missing_ok=True)
    (slots / "floor").write_text("2", encoding="ascii")
    os.symlink("b", slots / "good.tmp")
    os.rename(slots / "good.tmp", slots / "good")
    for name in ("trial.confirm", "trial.log"):
        (slots / name).unlink(missing_ok=True)
    return True


def rollback_both(slots: pathlib.Path) -> bool:
    """What the agent does to go back with a helper: each link by a rename, which the guard may have done meanwhile."""
    if not rollback(slots):
        return False
    try:
        os.rename(slots / "helper.back", slots / "helper")
    except FileNotFoundError:
        return True
    return True


def one_round(tree: Tree, mode: str, pause: float, act: Act) -> bool:
    """Run the guard and the other party at once."""
    guard = subprocess.Popen(
        tree.argv(mode), env=tree.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(pause)
    won = act(tree.slots)
    assert guard.wait(timeout=60) == 0
    return won


def spread(seed: int, rounds: int, longest: float) -> List[float]:
    """Pauses that cover the guard's whole run."""
    source = random.Random(seed)  # noqa: S311 - a spread of pauses, no secret
    return [source.uniform(0, longest) for _time in range(rounds)]


class Pauses:
    """Pauses about the moment at which the guard claims; each round's winner says whether that is later or earlier.

    On a busy machine the guard takes several times as long as on a quiet one, so no fixed pause meets it on both.
    """

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)  # noqa: S311 - a spread of pauses, no secret
        self._about = 0.006

    def next(self) -> float:
        """From nothing to twice the moment."""
        return self._source.uniform(0, 2 * self._about)

    def tell(self, guard_lost: bool) -> None:
        """Who won this round."""
        self._about = min(1.0, max(0.0005, self._about * (1.1 if guard_lost else 1 / 1.1)))


@pytest.mark.slow
def test_confirming_against_the_guard_a_thousand_times(room: pathlib.Path) -> None:
    """I12: never the old release below a raised floor; always one winner, and both kinds of winner are seen."""
    seen: List[bool] = []

    def many(number: int) -> None:
        tree = Tree(room / str(number), SHELLS[number])
        pauses = Pauses(number)
        for _round in range(ROUNDS // 2):
            reset(tree, record(deadline_s=NOW))
            won = one_round(tree, "start", pauses.next(), confirm)
            links = (os.readlink(tree.slots / "current"), os.readlink(tree.slots / "good"))
            floor = (tree.slots / "floor").exists()
            if (links, floor, tree.reason()) != (("b", "b"), True, None) and (links, floor, tree.reason()) != (
                ("a", "a"),
                False,
                "deadline-passed",
            ):
                raise AssertionError((won, links, floor, tree.names()))
            if won != floor or (tree.slots / "trial").exists():
                raise AssertionError((won, floor, tree.names()))
            seen.append(won)
            pauses.tell(won)

    run_all(many)
    assert len(seen) == ROUNDS
    assert 20 < sum(seen) < ROUNDS - 20, f"the pauses missed the race: {sum(seen)} of {ROUNDS} confirmed"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["start", "tick"])
def test_confirming_both_against_the_guard_a_thousand_times(room: pathlib.Path, mode: str) -> None:
    """I12: never one link here and the other there, whoever wins; both kinds of winner are seen."""
    seen: List[bool] = []

    def many(number: int) -> None:
        tree = PairTree(room / str(number), SHELLS[number])
        pauses = Pauses(number)
        for _round in range(ROUNDS // 4):
            reset(tree, record(deadline_s=NOW))
            won = one_round(tree, mode, pauses.next(), confirm_both)
            links = [os.readlink(tree.slots / name) for name in ("current", "good", "helper")]
            floor = (tree.slots / "floor").exists()
            if (links, floor, tree.reason()) not in (
                (["b"] * 3, True, None),
                (["a"] * 3, False, "deadline-passed"),
            ):
                raise AssertionError((won, links, floor, tree.names()))
            if won != floor or {"trial", "helper.back", "back"} & set(tree.names()):
                raise AssertionError((won, floor, tree.names()))
            seen.append(won)
            pauses.tell(won)

    run_all(many)
    assert len(seen) == ROUNDS // 2
    assert 10 < sum(seen) < ROUNDS // 2 - 10, f"the pauses missed the race: {sum(seen)} of {len(seen)} confirmed"


@pytest.mark.parametrize("mode", ["start", "tick"])
def test_going_back_twice_at_once_brings_both_links_home(room: pathlib.Path, mode: str) -> None:
    """The agent and the guard move the same two links by the same two names; whoever comes late finishes."""

    def many(number: int) -> None:
        tree = PairTree(room / str(number), SHELLS[number])
        for pause in spread(number, 60, 0.02):
            reset(tree, record(deadline_s=NOW))
            one_round(tree, mode, pause, rollback_both)
            tree.run("tick")
            links = [os.readlink(tree.slots / name) for name in ("current", "good", "helper")]
            if links != ["a"] * 3 or (tree.slots / "trial").exists():
                raise AssertionError((links, tree.names()))

    run_all(many)


def run_all(many: Callable[[int], None]) -> None:
    """Run one worker for each shell and pass on what went wrong."""
    failures: List[BaseException] = []

    def guarded(number: int) -> None:
        try:
            many(number)
        except BaseException as error:  # noqa: BLE001 - shown by the test that waits for this thread
            failures.append(error)

    workers = [threading.Thread(target=guarded, args=(number,)) for number in range(len(SHELLS))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("act", [confirm, rollback])
def test_a_renewed_record_does_not_bring_an_ended_trial_back(room: pathlib.Path, act: Act) -> None:
    """I12: the guard writes the record anew for a boot while somebody ends the trial: no record is left behind."""

    def many(number: int) -> None:
        tree = Tree(room / str(number), SHELLS[number])
        tree.at(30, guarding.OTHER_BOOT)
        for pause in spread(number, 40, 0.02):
            reset(tree, record())
            won = one_round(tree, "tick", pause, act)
            if not won or (tree.slots / "trial").exists():
                raise AssertionError((won, tree.names()))
            slot = "b" if act is confirm else "a"
            if tree.current() != slot or os.readlink(tree.slots / "good") != slot:
                raise AssertionError((tree.current(), tree.names()))
            if [name for name in tree.names() if name.startswith(".")]:
                raise AssertionError(tree.names())

    run_all(many)


def test_two_guards_at_once_are_one(room: pathlib.Path) -> None:
    """A start and a tick at the same deadline: one goes back, both see it done, the start never runs the old link."""

    def many(number: int) -> None:
        tree = Tree(room / str(number), SHELLS[number])
        for pause in spread(number, 30, 0.004):
            reset(tree, record(deadline_s=NOW))

            def start(slots: pathlib.Path, tree: Tree = tree) -> bool:
                tree.run("start")
                return os.readlink(slots / "current") == "a"

            if not one_round(tree, "tick", pause, start):
                raise AssertionError(tree.names())
            tree.went_back("deadline-passed")

    run_all(many)


def begins(tree: Tree, new: trials.Trial, program: str) -> None:
    """Run a tick, and have the record of another trial lie there when it first runs that program."""
    come, done = tree.root / "new", tree.root / "done"
    come.write_bytes(trials.render_trial(new))
    tree.behind(program, f"[ -e {done} ] || {{ : >{done}; cp {come} {tree.slots}/trial; }}")
    tree.run("tick")
    assert done.exists()


def test_a_renewed_record_takes_no_other_trial_s_place(tmp_path: pathlib.Path) -> None:
    """The next trial begins while the guard writes the record of the last anew for a boot: the next one's stays."""
    tree = Tree(tmp_path)
    tree.at(30, guarding.OTHER_BOOT)
    tree.swap()
    new = record(trial_id="0123456789abcdef", boot_id=guarding.OTHER_BOOT, deadline_s=150)
    begins(tree, new, "sync")  # of what was written, before it takes the record's place
    tree.goes_on()
    assert (tree.slots / "trial").read_bytes() == trials.render_trial(new)
    assert not [name for name in tree.names() if name.startswith(".")]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("claim", ["trial.confirm", "trial.revert"])
@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_record_that_is_claimed_under_a_look_is_not_lost(
    tmp_path: pathlib.Path, shell: Tuple[str, ...], claim: str, looks: int
) -> None:
    """I12: one rename moves it from one name to the next, so whoever looks at the first name first misses neither."""
    script = (
        f"{guarding.function('look')}looks=0\nexists() {{ [ -e $1 ]; found=$?; looks=$((looks + 1));"
        f' [ $looks -ne {looks} ] || mv trial {claim}; return $found; }}\nlook; echo "$record"'
    )
    (tmp_path / "trial").touch()
    done = subprocess.run([*shell, "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert done.stderr == ""
    assert done.stdout.strip() in ("trial", claim[6:])
    assert (tmp_path / claim).exists()


@pytest.mark.parametrize("other", [True, False], ids=["another-trial", "the-same"])
def test_a_claim_of_another_trial_is_given_back(tmp_path: pathlib.Path, other: bool) -> None:
    """The record read was of one trial, the one renamed of the next: the guard undoes it and looks again."""
    tree = Tree(tmp_path)
    new = record(trial_id="0123456789abcdef") if other else record(deadline_s=NOW)
    tree.swap(record(deadline_s=NOW))
    # the next trial begins between the guard's look and its claim, which is its first mv
    begins(tree, new, "mv")
    if other:
        tree.goes_on()
        assert (tree.slots / "trial").read_bytes() == (tmp_path / "new").read_bytes()
    else:
        tree.went_back("deadline-passed")


MOUNTS: Tuple[Tuple[str, str], ...] = (
    ("tmpfs", "mount -t tmpfs -o size=256k,nr_inodes=64 none {at}"),
    (
        "ext4",
        "truncate -s 2M {image} && mkfs.ext4 -q -F -N 64 -m 0 -O ^has_journal {image} && mount -o loop {image} {at}",
    ),
)


@pytest.fixture(params=MOUNTS, ids=lambda mount: mount[0])
def full(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Tree]:
    """A trial on a filesystem of its own; `fill` leaves it without a byte and without an inode."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a filesystem")
    at = tmp_path / "mounted"
    at.mkdir()
    command = request.param[1].format(at=at, image=tmp_path / "image")
    done = subprocess.run(["sh", "-c", command], capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount {request.param[0]} here: {done.stderr.strip()}")
    try:
        (at / "slots").mkdir()
        yield Tree(tmp_path, slots=at / "slots")
    finally:
        # busybox's timeout leaves a process behind for a second
        subprocess.run(
            ["sh", "-c", 'for i in 1 2 3 4 5 6; do umount "$0" && exit; sleep 0.5; done', str(at)], check=True
        )


@pytest.fixture
def full_pair(full: Tree) -> PairTree:
    """The same with a helper."""
    return PairTree(full.root, slots=full.slots)


def fill(tree: Tree) -> None:
    """Use up every byte and every inode."""
    top = tree.slots.parent
    try:
        with (top / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)
    except OSError:
        pass
    try:
        for number in range(1000):
            (top / f"inode{number}").touch()
    except OSError:
        pass
    with pytest.raises(OSError, match="No space"):
        (tree.slots / "one-more").touch()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("gone", ["before it is opened", "while it is open"])
def test_an_append_never_makes_a_file_that_somebody_took_away(
    tmp_path: pathlib.Path, shell: Tuple[str, ...], gone: str
) -> None:
    """A reason that comes late must not leave a claim of nothing behind, to be taken for a going back that was won."""
    function = guarding.function("append")
    if gone == "before it is opened":
        script = f'{function}is_file() {{ [ -f "$1" ] && rm "$1"; }}\nappend trial.revert REASON=operator'
    else:
        script = (
            f'{function}is_file() {{ [ -f "$1" ]; }}\nprintf() {{ rm trial.revert; echo "$2"; }}\nappend trial.revert x'
        )
    (tmp_path / "trial.revert").write_bytes(b"")
    done = subprocess.run([*shell, "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert (done.stdout, done.stderr) == ("", "")
    assert (done.returncode == 0) == (gone == "while it is open")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("back", [True, False], ids=["with-back", "without-back"])
def test_going_back_needs_no_space_and_no_inode(full: Tree, shell: Tuple[str, ...], back: bool) -> None:
    """I2: with the disk full the links go back and the reason is kept, also when `back` must be made again."""
    full.shell = shell
    full.swap(record(deadline_s=NOW))
    if not back:
        full.link("back", "b")
    fill(full)
    full.run("tick")
    full.went_back("deadline-passed")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("missing", [(), ("helper.back",), ("back", "helper.back")], ids=["none", "helper", "both"])
@pytest.mark.parametrize("mode", ["start", "tick"])
def test_going_back_with_a_helper_needs_no_space_and_no_inode(
    full_pair: PairTree, shell: Tuple[str, ...], missing: Tuple[str, ...], mode: str
) -> None:
    """I2: both links, also when what they go back by must be made again; and what is owed is known."""
    full_pair.shell = shell
    full_pair.swap(record(deadline_s=NOW))
    for name in missing:
        full_pair.link(name, "b")
    fill(full_pair)
    full_pair.run(mode)
    full_pair.went_back("deadline-passed")
    assert [line.split(" 1000")[0] for line in full_pair.log()] == ["owed", "helper owed", "restart", "helper restart"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("side", ["unit", "helper"])
def test_crashes_of_either_are_counted_on_a_full_disk(full_pair: PairTree, shell: Tuple[str, ...], side: str) -> None:
    """The log's first block has room for both."""
    full_pair.shell = shell
    full_pair.swap()
    full_pair.started()
    fill(full_pair)
    for number in range(1, 5):
        end = 951_000_000 + number * 1_000_000
        shown = {
            "ActiveState": "inactive",
            "Result": "exit-code",
            "Job": "4",
            "ExecMainExitTimestampMonotonic": str(end),
            "ActiveExitTimestampMonotonic": str(end + 1),
            "InactiveExitTimestampMonotonic": str(end + 2),
        }
        full_pair.goes_on()
        full_pair.pair(**{side: shown})  # type: ignore[arg-type]
        full_pair.run("start")
    full_pair.went_back("crash-loop")


@pytest.mark.parametrize("mode", ["start", "tick"])
def test_a_read_only_disk_moves_neither_link(full_pair: PairTree, mode: str) -> None:
    """It is said, the guard's unit fails, and the next one takes both back."""
    full_pair.swap(record(deadline_s=NOW))
    at = str(full_pair.slots.parent)
    subprocess.run(["mount", "-o", "remount,ro", at], check=True)
    assert "read-only" in full_pair.run(mode, expect=1)
    assert (full_pair.current(), full_pair.helper()) == ("b", "b")
    assert full_pair.calls() == []
    subprocess.run(["mount", "-o", "remount,rw", at], check=True)
    full_pair.run(mode)
    full_pair.went_back("deadline-passed")


def test_a_disk_that_turns_read_only_between_the_two_links_is_finished_later(full_pair: PairTree) -> None:
    """current is home, helper cannot move: both are told apart, and the tick goes on until it can."""
    full_pair.swap(record(deadline_s=NOW))
    (full_pair.slots / "trial").rename(full_pair.slots / "trial.revert")
    (full_pair.slots / "back").rename(full_pair.slots / "current")
    at = str(full_pair.slots.parent)
    subprocess.run(["mount", "-o", "remount,ro", at], check=True)
    assert "helper still names 'b'" in full_pair.run("tick", expect=1)
    assert "stop -- slotward-deadline@demo.timer" not in full_pair.calls()
    full_pair.forget_calls()
    subprocess.run(["mount", "-o", "remount,rw", at], check=True)
    full_pair.run("tick")
    assert (full_pair.current(), full_pair.helper()) == ("a", "a")
    assert "--no-block restart -- demo-helper.service" in full_pair.calls()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_crashes_are_counted_on_a_full_disk(full: Tree, shell: Tuple[str, ...]) -> None:
    """The log's first block exists from the swap on."""
    full.shell = shell
    full.swap()
    full.started()
    fill(full)
    for number in range(1, 5):
        end = 951_000_000 + number * 1_000_000
        full.unit(
            ActiveState="inactive",
            Result="exit-code",
            ExecMainExitTimestampMonotonic=str(end),
            ActiveExitTimestampMonotonic=str(end + 1),
            InactiveExitTimestampMonotonic=str(end + 2),
            NRestarts="0",
        )
        assert full.current() == "b"
        full.run("start")
    full.went_back("crash-loop")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_a_boot_that_cannot_be_recorded_goes_back(full: Tree, shell: Tuple[str, ...]) -> None:
    """I7 must not become an endless trial: no room for the new record ends it."""
    full.shell = shell
    full.swap()
    fill(full)
    full.at(30, guarding.OTHER_BOOT)
    full.run("start")
    full.went_back("cannot-record")
    assert [name for name in full.names() if name.startswith(".")] == []


def test_a_read_only_disk_is_said_and_tried_again(full: Tree) -> None:
    """Nothing can be done on it, but the guard says so, its unit fails, and the next tick goes back."""
    full.swap(record(deadline_s=NOW))
    at = str(full.slots.parent)
    subprocess.run(["mount", "-o", "remount,ro", at], check=True)
    assert "read-only" in full.run("tick", expect=1)
    assert full.current() == "b"
    subprocess.run(["mount", "-o", "remount,rw", at], check=True)
    full.run("tick")
    full.went_back("deadline-passed")


def test_the_tools_that_the_guard_needs_are_here() -> None:
    """Both shells exist; the matrix is not silently half."""
    assert [shutil.which(shell[0]) for shell in SHELLS] == [shutil.which("dash"), shutil.which("busybox")]
    assert shutil.which("busybox") is not None
