# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard proves the slot at the first start of each boot, and goes to the one that proves itself (docs/design/guard.md, section 6)."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
from typing import Tuple

import pytest
from agent.guarding import BOOT, NOW, OTHER_BOOT, PairTree, Tree, record

from agent import guarding
from slotcore import listings, records, settle
from slotcore import trial as trials

pytestmark = pytest.mark.filterwarnings("error")
OLD = records.SlotRecord("1.0.0", 1, hashlib.sha256(b"a").hexdigest(), 1)
NEW = records.SlotRecord("1.1.0", 2, hashlib.sha256(b"b").hexdigest(), 1)
FAILED = records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, NEW.sha256, 1)
LOST = {"empty": b"", "zeros": b"\0", "stale": b"other bytes than were verified", "cut": b"b" * 7, "gone": None}


@pytest.fixture(params=guarding.SHELLS, ids=lambda shell: shell[0])
def shell(request: pytest.FixtureRequest) -> Tuple[str, ...]:
    """Each of the two shells."""
    found: Tuple[str, ...] = request.param
    return found


@pytest.fixture
def tree(shell: Tuple[str, ...], tmp_path: pathlib.Path) -> Tree:
    """A product at rest at 1.1.0 in slot b, which was confirmed after 1.0.0 in slot a."""
    return confirmed(Tree(tmp_path, shell))


def write_records(
    tree: Tree, old: records.SlotRecord = OLD, new: records.SlotRecord = NEW, *failed: records.Failed
) -> None:
    """Write both JSON records, as the agent does."""
    (tree.slots / "slots.json").write_bytes(records.render_slots({"a": old, "b": new}))
    (tree.slots / "update.json").write_bytes(records.render_update(records.Update(floor=2, failed=failed)))


def confirmed(tree: Tree) -> Tree:
    """Have slot b confirmed."""
    write_records(tree)
    for name in ("current", "good"):
        tree.link(name, "b")
    return tree


def lose(tree: Tree, slot: str, data: object = b"") -> None:
    """Have a slot hold what a power cut may leave of it."""
    path = tree.slots / slot
    path.unlink()
    if isinstance(data, bytes):
        path.write_bytes(data)


def mark(tree: Tree) -> pathlib.Path:
    """What says that the slot was proven in this boot."""
    return tree.proc / "slotward-guard/demo.proven"


def good(tree: Tree) -> str:
    """Where the link `good` points."""
    return os.readlink(tree.slots / "good")


def went(tree: Tree, to: str = "a") -> None:
    """Assert that the host went to a slot at rest, and left the reason for the agent."""
    assert (tree.current(), good(tree), tree.reason()) == (to, to, "slot-unproven")
    assert not {"back", "good.tmp", "trial", "trial.confirm"} & set(tree.names())


def stayed(tree: Tree) -> None:
    """Assert that nothing moved."""
    assert (tree.current(), good(tree)) == ("b", "b")
    assert tree.names() == ["a", "b", "current", "good", "slots.json", "update.json"]


def test_a_slot_that_proves_itself_is_read_once_a_boot(tree: Tree) -> None:
    """At rest nothing is touched; the mark is of this boot, so later starts do not read the slot, another boot's do."""
    before = tree.stamps()
    assert tree.run("start") == ""
    assert tree.stamps() == before
    assert mark(tree).read_text(encoding="ascii") == BOOT + "\n"
    lose(tree, "b")
    assert tree.run("start") == ""
    stayed(tree)
    tree.at(NOW, OTHER_BOOT)
    tree.run("start")
    went(tree)


@pytest.mark.parametrize("mode", ["tick", "failed"])
def test_only_a_start_proves(tree: Tree, mode: str) -> None:
    """What runs every two seconds, or after a failure, reads no slot."""
    lose(tree, "b")
    tree.run(mode)
    stayed(tree)
    assert not mark(tree).exists()


@pytest.mark.parametrize("lost", LOST)
def test_at_rest_it_goes_to_the_other_slot(tree: Tree, lost: str) -> None:
    """I1: whatever a cut left of a confirmed release; the one before it is whole, and starts. The records stay as they are."""
    kept = [(tree.slots / name).read_bytes() for name in ("slots.json", "update.json")]
    lose(tree, "b", LOST[lost])
    said = tree.run("start")
    assert "slot-unproven" in said
    went(tree)
    assert [(tree.slots / name).read_bytes() for name in ("slots.json", "update.json")] == kept
    assert tree.calls() == []
    tree.run("start")
    went(tree)
    assert mark(tree).exists()


def test_what_the_agent_makes_of_it(tree: Tree) -> None:
    """The next settling finds a going back that is decided, about the release whose bytes were lost (I3: its floor stays)."""
    lose(tree, "b")
    tree.run("start")
    data = (tree.slots / "trial.revert").read_bytes()
    assert not trials.is_damaged(data)
    state = settle.State(current="a", good="a", in_use=True, revert=data, slots={"a": OLD, "b": NEW})
    found = settle.decide(state, settle.Clock(NOW, BOOT))
    assert found == settle.Settlement(settle.Action.FINISH_REVERT, "slot-unproven")
    assert settle.new_slot(state, found.trial) == "b"


def test_where_neither_proves_itself_nothing_moves_and_it_is_said(tree: Tree) -> None:
    """I8: the start is not held up; the guard's unit has failed, and says what to run."""
    for slot in ("a", "b"):
        lose(tree, slot)
    for _time in range(2):
        assert "run slotward doctor" in tree.run("start", expect=1)
        stayed(tree)
        assert not mark(tree).exists()


OTHERS = {
    "it failed here": (OLD, NEW, FAILED._replace(sha256=OLD.sha256)),
    "it is newer, so it was never confirmed": (OLD._replace(sequence=3), NEW),
    "its data is of another epoch": (OLD, NEW._replace(epoch=1)),
    "nobody knows of it": (OLD._replace(sha256="0" * 64), NEW),
}


@pytest.mark.parametrize("why", OTHERS)
def test_a_release_that_was_not_confirmed_here_is_not_gone_to(tree: Tree, why: str) -> None:
    """I2, I5: at rest only a release that was good before takes the place of the one that was lost."""
    old, new, *failed = OTHERS[why]
    write_records(tree, old, new, *failed)  # type: ignore[arg-type]
    lose(tree, "b")
    tree.run("start", expect=1)
    stayed(tree)


def test_the_same_epoch_is_the_same_data(tree: Tree) -> None:
    """Two releases of one epoch read each other's data, whichever it is."""
    write_records(tree, OLD._replace(epoch=3), NEW._replace(epoch=3))
    lose(tree, "b")
    tree.run("start")
    went(tree)


TEXTS = {
    "no record": None,
    "an empty one": "",
    "a torn one": records.render_slots({"a": OLD, "b": NEW})[:-9].decode(),
    "zeros": "\0" * 300,
    "another spec": records.render_slots({"a": OLD, "b": NEW}).decode().replace('"spec":1', '"spec":2'),
    "no entry": records.render_slots({"a": OLD}).decode(),
    "no digest": records.render_slots({"a": OLD, "b": NEW._replace(sha256="x" * 64)}).decode(),
    "another form": records.render_slots({"a": OLD, "b": NEW}).decode().replace(":", ": "),
}


@pytest.mark.parametrize("why", TEXTS)
def test_a_record_that_cannot_be_read_changes_nothing(tree: Tree, why: str) -> None:
    """What nobody can tell is as it was before: the guard says nothing and moves nothing."""
    path, text = tree.slots / "slots.json", TEXTS[why]
    path.unlink()
    path.write_bytes(text.encode() if text is not None else b"")
    if text is None:
        path.unlink()
    lose(tree, "b")
    assert tree.run("start") == ""
    assert (tree.current(), good(tree)) == ("b", "b")
    assert "trial.revert" not in tree.names()


PLANTED = ("slots.json", "update.json", "a", "mark")


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("kind", ["fifo", "directory", "dangling", "link"])
def test_nothing_that_is_planted_holds_the_guard_or_moves_it(tree: Tree, name: str, kind: str) -> None:
    """I6: in the place of what it reads lies something else: nothing is waited for, nothing outside changes, nothing moves."""
    path = mark(tree) if name == "mark" else tree.slots / name
    path.parent.mkdir(exist_ok=True)
    outside = tree.root / "outside"
    outside.write_bytes(path.read_bytes() if path.exists() else BOOT.encode() + b"\n")
    before = outside.read_bytes()
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(outside if kind == "link" else tree.root / "nowhere")
    if name != "mark":
        lose(tree, "b")
    done = subprocess.run(
        tree.argv("start"), env=tree.environment(), capture_output=True, encoding="utf-8", check=False, timeout=20
    )
    assert done.returncode in (0, 1), done.stderr
    assert (tree.current(), good(tree)) == ("b", "b")
    assert outside.read_bytes() == before
    assert not (tree.root / "nowhere").exists()


def on_trial(tree: Tree, boot: str = BOOT) -> Tree:
    """Have slot b on trial, started once, in this boot or in the one before."""
    write_records(tree)
    for name in ("current", "good"):
        tree.link(name, "a")
    tree.swap(record(boot_id=boot))
    tree.started()
    return tree


@pytest.mark.parametrize("lost", LOST)
def test_in_a_trial_it_goes_back(tree: Tree, lost: str) -> None:
    """A cut that loses the bytes of the release on trial ends the trial at the first start, not by a crash loop."""
    on_trial(tree, OTHER_BOOT)
    lose(tree, "b", LOST[lost])
    tree.run("start")
    assert (tree.current(), good(tree), tree.reason()) == ("a", "a", "slot-unproven")
    assert "trial" not in tree.names()


def test_a_trial_whose_bytes_are_there_goes_on(tree: Tree) -> None:
    """I7: proving takes no boot and no start from it."""
    on_trial(tree)
    tree.run("start")
    tree.goes_on()
    assert tree.log()[-1] == f"start {NOW}"
    assert mark(tree).exists()


def test_a_trial_goes_on_when_good_does_not_prove_itself_either(tree: Tree) -> None:
    """There is no slot that proves itself: nothing is worse than before, and the deadline ends it as ever."""
    on_trial(tree)
    for slot in ("a", "b"):
        lose(tree, slot, b"other")
    tree.run("start", expect=1)
    tree.goes_on()
    tree.at(NOW + 60)
    tree.run("tick")
    assert (tree.current(), tree.reason()) == ("a", "deadline-passed")


def test_a_staged_slot_is_not_gone_to_before_its_switch(tree: Tree) -> None:
    """I2: `trial` is there and `current` has not moved: what is to be tried is not what takes good's place."""
    on_trial(tree)
    tree.link("current", "a")
    lose(tree, "a")
    tree.run("start", expect=1)
    assert (tree.current(), good(tree)) == ("a", "a")


@pytest.mark.parametrize("moved", [False, True], ids=["before good moved", "after good moved"])
def test_a_confirmation_that_was_cut_is_taken_back_when_its_bytes_are_lost(tree: Tree, moved: bool) -> None:
    """I12: one rename turns the claim around, since nobody could finish it: the agent itself may be what was lost."""
    on_trial(tree)
    (tree.slots / "trial").rename(tree.slots / "trial.confirm")
    (tree.slots / "back").unlink()
    if moved:
        tree.link("good", "b")
    lose(tree, "b")
    tree.run("start")
    went(tree)
    assert trials.parse_revert((tree.slots / "trial.revert").read_bytes())[0] == record()


def test_a_cut_between_the_two_links_is_gone_on_from(tree: Tree) -> None:
    """`good` has moved and `current` has not: the next start proves again, and leaves the reason."""
    lose(tree, "b")
    tree.link("good", "a")
    tree.run("start")
    went(tree)


def test_the_unit_file_that_comes_with_a_release_is_read_again(tree: Tree) -> None:
    """At rest too the good release must start as its own unit file says."""
    (tree.root / "guard.d/demo.env").write_text(
        f"UNIT=demo.service\nSLOTS={tree.slots}\nRELOAD=yes\n", encoding="ascii"
    )
    lose(tree, "b")
    tree.run("start")
    went(tree)
    assert tree.calls() == ["daemon-reload"]


def test_the_helper_follows(shell: Tuple[str, ...], tmp_path: pathlib.Path) -> None:
    """With a helper both links go to the slot that proves itself."""
    tree = PairTree(tmp_path, shell)
    confirmed(tree)
    tree.link("helper", "b")
    starting = {"ActiveState": "inactive", "SubState": "dead", "Job": "7"}
    tree.pair(starting, starting)
    lose(tree, "b")
    tree.run("start")
    went(tree)
    assert tree.helper() == "a"


def proving_by(tree: Tree, script: str) -> subprocess.CompletedProcess[str]:
    """One start with another `sha256sum`."""
    path = tree.root / "bin" / "sha256sum"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    path.chmod(0o755)
    environment = dict(tree.environment(), PATH=f"{path.parent}:{tree.environment()['PATH']}")
    return subprocess.run(tree.argv("start"), env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("script", ["exit 127", "exit 126", "kill -9 $$"], ids=["missing", "refused", "killed"])
def test_without_sha256sum_all_is_as_before(tmp_path: pathlib.Path, script: str) -> None:
    """The guard depends on nothing new: it says so once a boot, and moves nothing."""
    tree = confirmed(Tree(tmp_path))
    lose(tree, "b", b"other")
    done = proving_by(tree, script)
    assert (done.returncode, "could not be told" in done.stderr) == (0, True)
    stayed(tree)
    assert mark(tree).exists()


FAILS_TIMES = """
echo >>{root}/asked
[ $(wc -l <{root}/asked) -gt {times} ] || {{ echo "sha256sum: $1: Input/output error" >&2; exit 1; }}
exec /usr/bin/sha256sum "$@"
"""


def test_one_read_that_fails_moves_nothing(tmp_path: pathlib.Path) -> None:
    """A path to a disk may fail one read: the slot is read again, and proves itself then."""
    tree = confirmed(Tree(tmp_path))
    done = proving_by(tree, FAILS_TIMES.format(root=tmp_path, times=1))
    assert (done.returncode, done.stderr) == (0, "")
    stayed(tree)
    assert mark(tree).exists()


def test_a_slot_that_cannot_be_read_again_is_left(tmp_path: pathlib.Path) -> None:
    """Nor could it be started: the host goes to the slot that proves itself."""
    tree = confirmed(Tree(tmp_path))
    proving_by(tree, FAILS_TIMES.format(root=tmp_path, times=2))
    went(tree)


def test_a_slot_that_takes_too_long_is_left_unread(tmp_path: pathlib.Path) -> None:
    """A start waits so long for each slot and no longer; the unit's time limit allows for three looks and for systemd."""
    tree = confirmed(Tree(tmp_path))
    lose(tree, "b", b"other")
    text = tree.guard.read_text(encoding="utf-8")
    bound = int(text.partition("\nPROOF_S=")[2].partition("\n")[0])
    unit = (guarding.GUARD.parent / "units/slotward-guard@.service").read_text(encoding="ascii")
    assert 3 * bound + 10 < int(unit.partition("TimeoutStartSec=")[2].partition("s\n")[0])
    tree.guard.write_text(text.replace(f"\nPROOF_S={bound}\n", "\nPROOF_S=0.2\n"), encoding="utf-8")
    assert "could not be told within 0.2 s" in proving_by(tree, "exec sleep 30").stderr
    stayed(tree)
    assert mark(tree).exists()


def test_a_full_run_directory_only_costs_time(tree: Tree) -> None:
    """What cannot be marked as proven is proven again at the next start."""
    mark(tree).parent.write_text("", encoding="ascii")
    for _time in range(2):
        assert tree.run("start") == ""
    stayed(tree)


NAMES = ("bin/probe", 'odd "name"', "a},{b", "{", "},", " blank", "ü", '","sha256":"x')


def plant(tree: Tree, slot: str, version: str, names: Tuple[str, ...] = NAMES) -> records.SlotRecord:
    """Make a slot a link to a tree of layout `versions` with its listing."""
    top = tree.slots / "versions" / version
    entries = [listings.Entry("bin", listings.DIRECTORY, 0o755)]
    for name in names:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(version + name, encoding="utf-8")
        data = path.read_bytes()
        entries.append(listings.Entry(name, listings.FILE, 0o644, len(data), hashlib.sha256(data).hexdigest()))
    held = records.SlotRecord(version, int(version[2]) + 1, hashlib.sha256(version.encode()).hexdigest(), 9)
    data = listings.render(listings.Listing(held, tuple(entries)))
    (tree.slots / "versions" / f"{version}.json").write_bytes(data)
    tree.link(slot, f"versions/{version}")
    return held


@pytest.fixture
def forest(tree: Tree) -> Tree:
    """The same host in layout `versions`, with names that a listing has to quote."""
    write_records(tree, plant(tree, "a", "1.0.0"), plant(tree, "b", "1.1.0"))
    return tree


def test_a_tree_that_proves_itself_is_read_once(forest: Tree) -> None:
    """Odd names are no reason to move."""
    assert forest.run("start") == ""
    assert mark(forest).exists()
    assert forest.current() == "b"


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_with_one_lost_file_is_left(forest: Tree, name: str) -> None:
    """Each file of a tree counts, whatever it is called."""
    (forest.slots / "versions/1.1.0" / name).write_text("", encoding="ascii")
    forest.run("start")
    went(forest)


def test_a_tree_that_is_gone_is_left(forest: Tree) -> None:
    """The slot's link leads nowhere."""
    shutil.rmtree(forest.slots / "versions/1.1.0")
    forest.run("start")
    went(forest)


def test_a_tree_is_not_gone_to_unless_it_proves_itself(forest: Tree) -> None:
    """Both have lost a file: nothing moves."""
    for version in ("1.0.0", "1.1.0"):
        (forest.slots / "versions" / version / "bin/probe").unlink()
    forest.run("start", expect=1)
    assert (forest.current(), good(forest)) == ("b", "b")


CUTS = {
    "missing": None,
    "empty": b"",
    "zeros": b"\0" * 400,
    "torn": 300,
    "without its end": -3,
    "of another artifact": b"other",
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_listing_that_cannot_be_believed_says_nothing(forest: Tree, cut: str) -> None:
    """Nobody can tell what the tree should be: nothing moves, though a file of it is lost."""
    path, how = forest.slots / "versions/1.1.0.json", CUTS[cut]
    data = path.read_bytes()
    path.unlink()
    if isinstance(how, int):
        path.write_bytes(data[:how])
    elif how == b"other":
        path.write_bytes(data.replace(hashlib.sha256(b"1.1.0").hexdigest().encode(), b"0" * 64))
    elif how is not None:
        path.write_bytes(how)
    (forest.slots / "versions/1.1.0/bin/probe").write_text("", encoding="ascii")
    forest.run("start")
    assert (forest.current(), good(forest)) == ("b", "b")
