# SPDX-License-Identifier: GPL-3.0-or-later
"""Layout `versions` on a real directory (products.md, section 3): trees are made, proven by every byte, used again, swept."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Callable, Dict, Iterator

import pytest
from agent.growing import PROGRAM, Grove, archive

from slotcore import audit, codes, listings, ops, records, settle
from slotcore import product as products
from slotward import cmd_repair, host, manager, placing, prepare, process, slots, sweeping, trees

NEW = archive(b"#!/bin/sh\nexit 7\n", lib_data=b"data", tool=b"tool")
TREE = {"app": b"#!/bin/sh\nexit 7\n", "lib/data": b"data", "tool": b"tool"}


@pytest.fixture(name="grove")
def _grove(tmp_path: pathlib.Path) -> Grove:
    """A product that is not in use yet."""
    tmp_path.chmod(0o755)
    return Grove(tmp_path)


@pytest.fixture(name="staged")
def _staged(grove: Grove) -> Grove:
    """Adopted, with the next release in the free slot."""
    grove.adopt()
    grove.stage("1.1.0", NEW, 2)
    return grove


def test_C2_a_file_is_adopted_into_a_tree_of_one_file(grove: Grove) -> None:
    """C2: `versions/<v>/<program>`; the entrypoint becomes a link to the program of `current`."""
    seen = grove.adopt()
    assert grove.files("1.0.0") == {"app": PROGRAM}
    assert [grove.link(name) for name in ("a", "good", "current")] == ["versions/1.0.0", "a", "a"]
    assert os.readlink(grove.entrypoint) == f"{grove.slots}/current/app"
    assert grove.entrypoint.read_bytes() == PROGRAM
    assert (seen.state.entrypoint, host.damage(grove.product, seen.state)) == ("ours", "")
    assert seen.settlement.action is settle.Action.NONE


def test_a_host_without_the_daemon_gets_it_from_an_archive(grove: Grove) -> None:
    """What setup installs may be packed, and says so by its first bytes; it is not run before it is unpacked."""
    (grove.root / "release").write_bytes(NEW)
    with open(grove.root / "release", "rb") as file:
        here = f"/proc/self/fd/{file.fileno()}"
        assert prepare.said_of(grove.product._replace(smoke_argv=("version",)), here, here) == ("unknown", 0)
        record = grove.record("1.1.0", NEW, 2)
        placing.adopt(grove.product, manager.look(grove.product), record, file.fileno(), audit.INSTALLED)
    assert grove.files("1.1.0") == TREE
    assert (grove.entrypoint.read_bytes(), grove.state().update.floor) == (TREE["app"], 2)
    assert host.damage(grove.product, grove.state()) == ""


def test_an_adopted_file_needs_a_version_that_a_directory_can_be_called_after(grove: Grove) -> None:
    """`unknown`, and the ends that lie beside the trees, are refused before anything is written."""
    for version, text in (("unknown", "'unknown' is no version"), ("1.0.0-a.json", "ends in .partial or .json")):
        with pytest.raises(codes.Refused) as error:
            grove.adopt(version)
        assert error.value.code == codes.NOT_A_RELEASE
        assert text in error.value.text
        assert not os.listdir(grove.slots)


def test_a_release_becomes_a_tree_that_its_listing_proves(staged: Grove) -> None:
    """The archive's files, the slot's link, the record; what runs is not touched."""
    assert staged.files("1.1.0") == TREE
    assert (staged.link("b"), staged.link("current")) == ("versions/1.1.0", "a")
    listing = trees.examine(staged.product, "1.1.0")
    assert listing.record == staged.state().slots["b"] == staged.record("1.1.0", NEW, 2)
    assert [entry.path for entry in listing.entries] == ["app", "lib", "lib/data", "tool"]
    held = slots.held(staged.product, "b")
    assert held is not None
    assert held.sha256 == listing.record.sha256
    assert staged.trees() == ["1.0.0", "1.1.0"]


def test_a_trial_moves_the_one_link_forth_and_back(staged: Grove) -> None:
    """The entrypoint is the new program at once, and the old one by one rename; the guard knows links alone."""
    staged.swap(staged.stage("1.1.0", NEW, 2))
    assert staged.entrypoint.read_bytes() == TREE["app"]
    assert (staged.link("current"), staged.link("back")) == ("b", "a")
    os.rename(staged.slots / "back", staged.slots / "current")  # as `mv -T back current`
    assert staged.entrypoint.read_bytes() == PROGRAM
    manager.settle_now(staged.product)
    assert staged.state().update.last is not None
    assert staged.trees() == ["1.0.0", "1.1.0"]


def moved_away(path: pathlib.Path) -> pathlib.Path:
    """Take a name away; the directory that it was in."""
    os.rename(path, path.parents[1] / "away")
    return path.parent


def spoil(how: str, top: pathlib.Path) -> None:
    """Change a tree in one way."""
    ways: Dict[str, Callable[[], object]] = {
        "byte": lambda: (top / "lib" / "data").write_bytes(b"dota"),
        "longer": lambda: (top / "tool").write_bytes(b"tool "),
        "gone": (top / "tool").unlink,
        "more": lambda: (top / "lib" / "more").write_bytes(b""),
        "directory": (top / "lib" / "d").mkdir,
        "mode": lambda: (top / "tool").chmod(0o755),
        "set-uid": lambda: (top / "app").chmod(0o4755),
        "open": lambda: (top / "lib").chmod(0o777),
        "top": lambda: top.chmod(0o775),
        "link": lambda: (moved_away(top / "tool") / "tool").symlink_to("app"),
        "fifo": lambda: os.mkfifo(moved_away(top / "tool") / "tool"),
        "listing": lambda: pathlib.Path(f"{top}.json").unlink(),
        "torn": lambda: os.truncate(f"{top}.json", 40),
        "another": lambda: shutil.copy(f"{top}/../1.0.0.json", f"{top}.json"),
        "tree": lambda: moved_away(top),
        "file": lambda: (moved_away(top) / top.name).write_bytes(b""),
    }
    ways[how]()


SPOILED = {
    "byte": "'lib/data' is a file of 4 bytes",
    "longer": "'tool' is a file of 5 bytes",
    "gone": "'tool' is missing",
    "more": "'lib/more' is there and stands not in its listing",
    "directory": "'lib/d' is there and stands not in its listing",
    "mode": "'tool' is a file of 4 bytes with the mode 0755",
    "set-uid": "with the mode 4755",
    "open": "may be written by others (mode 0777)",
    "top": "its directory may be written by others (mode 0775)",
    "link": "'tool' is a symbolic link, not a file of 4 bytes",
    "fifo": "'tool' is a FIFO, not a file of 4 bytes",
    "listing": "it has no listing",
    "torn": "it is not JSON",
    "another": "it is the listing of 1.0.0",
    "tree": "No such file or directory",
    "file": "a regular file, not a directory",
}


@pytest.mark.parametrize("how", SPOILED)
def test_any_change_of_a_tree_is_seen_and_mended_by_staging_again(staged: Grove, how: str) -> None:
    """P5: what proves itself is what every byte and mode proves; a tree that does not is replaced, whatever is there."""
    spoil(how, staged.slots / "versions" / "1.1.0")
    with pytest.raises(codes.BrokenRecord) as error:
        trees.examine(staged.product, "1.1.0")
    assert SPOILED[how] in error.value.why
    record = staged.state().slots["b"]
    assert SPOILED[how] in slots.problem(staged.product, "b", record)
    assert slots.held(staged.product, "b") is None
    assert trees.kept(staged.product, record) is None
    staged.stage("1.1.0", NEW, 2)
    assert slots.problem(staged.product, "b", record) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_I6_what_is_not_roots_proves_nothing(staged: Grove) -> None:
    """I6: nor a directory of another account's, whatever is in it."""
    for name in ("tool", "lib", "."):
        os.chown(staged.slots / "versions" / "1.1.0" / name, 65534, -1)
        with pytest.raises(codes.BrokenRecord) as error:
            trees.examine(staged.product, "1.1.0")
        assert "owned by uid 65534" in error.value.why
        os.chown(staged.slots / "versions" / "1.1.0" / name, 0, -1)
    trees.examine(staged.product, "1.1.0")


@pytest.mark.parametrize("how", ["byte", "link", "listing"])
def test_what_starts_is_told_as_damaged(staged: Grove, how: str) -> None:
    """Doctor and setup read all of the tree that `current` leads to, not its program alone."""
    staged.swap(staged.stage("1.1.0", NEW, 2))
    manager.confirm(staged.product, manager.look(staged.product))
    assert host.damage(staged.product, staged.state()) == ""
    spoil(how, staged.slots / "versions" / "1.1.0")
    assert SPOILED[how] in host.damage(staged.product, staged.state())


def test_a_slot_is_a_link_to_the_tree_of_its_record(staged: Grove) -> None:
    """A file, a link elsewhere or to another tree is none, even when that tree proves itself."""
    record, slot = staged.state().slots["b"], staged.slots / "b"
    for make in (
        lambda: slot.symlink_to("versions/1.0.0"),
        lambda: slot.symlink_to("/etc"),
        lambda: slot.write_bytes(b"x"),
    ):
        slot.unlink()
        make()
        said = slots.problem(staged.product, "b", record)
        assert said == "slot b is no link to versions/1.1.0, the tree of its record"


def test_a_tree_without_its_program_starts_nothing(grove: Grove) -> None:
    """It may prove itself all the same."""
    grove.adopt()
    grove.stage("1.1.0", NEW, 2)
    other = grove.product._replace(program="other")
    assert slots.problem(other, "b", grove.state().slots["b"]) == "slot b has no program other"


def test_a_tree_of_the_same_bytes_is_used_again(staged: Grove) -> None:
    """S14: nothing is unpacked; a newer record goes into the listing, so that going back to the tree knows its sequence."""
    inode = (staged.slots / "versions" / "1.1.0" / "app").stat().st_ino
    staged.stage("1.1.0", NEW, 9)
    assert (staged.slots / "versions" / "1.1.0" / "app").stat().st_ino == inode
    assert trees.examine(staged.product, "1.1.0").record.sequence == 9
    assert staged.state().slots["b"].sequence == 9


def test_a_kept_tree_needs_no_bytes_at_all(staged: Grove) -> None:
    """A release that an earlier upgrade left is linked anew, without a descriptor."""
    staged.stage("1.2.0", archive(b"#!/bin/sh\nexit 8\n"), 3)
    record = staged.record("1.1.0", NEW, 2)
    kept = placing.tree_of(staged.product, staged.state(), record)
    assert kept is not None
    release = manager.Release("1.1.0", record, 0, "-", "0" * 16, kept=kept)
    placing.fill_free_slot(staged.product, manager.look(staged.product), release, None)
    assert staged.link("b") == "versions/1.1.0"
    assert slots.problem(staged.product, "b", record) == ""


def test_what_starts_is_never_replaced(staged: Grove) -> None:
    """Other bytes under the version that runs: they need another version."""
    before = staged.files("1.0.0")
    for kind in (ops.ARCHIVE, ops.BINARY):
        with pytest.raises(codes.Refused) as error:
            staged.stage("1.0.0", NEW, 4, kind)
        assert error.value.code == codes.ALREADY_EXISTS
        assert f"{staged.slots}/a leads to it" in error.value.text or f"{staged.slots}/current" in error.value.text
    assert staged.files("1.0.0") == before
    assert host.damage(staged.product, staged.state()) == ""


def test_adopting_the_very_program_that_is_in_a_tree_links_it(grove: Grove) -> None:
    """I9: a package put the same file back at the entrypoint; both slots lead to one tree then, and nothing is copied."""
    grove.adopt()
    inode = (grove.slots / "versions" / "1.0.0" / "app").stat().st_ino
    grove.adopt()
    assert (grove.link("a"), grove.link("b"), grove.link("current")) == ("versions/1.0.0", "versions/1.0.0", "b")
    assert (grove.slots / "versions" / "1.0.0" / "app").stat().st_ino == inode
    assert host.damage(grove.product, grove.state()) == ""
    grove.upgrade("1.1.0", NEW, 2)
    assert grove.entrypoint.read_bytes() == TREE["app"]


def test_a_bad_archive_leaves_what_there_was_and_is_remembered(staged: Grove) -> None:
    """L1: nobody fetches it again; no part of it is left."""
    bad = archive(b"x")[:-20]
    with pytest.raises(codes.Refused) as error:
        staged.stage("1.2.0", bad, 3)
    assert error.value.code == codes.BAD_ARCHIVE
    assert [(failed.version, failed.code) for failed in staged.state().update.failed] == [("1.2.0", "bad-archive")]
    assert staged.trees() == ["1.0.0", "1.1.0"]
    assert host.damage(staged.product, staged.state()) == ""


def test_repair_knows_a_slot_by_its_tree(staged: Grove) -> None:
    """`slots.json` is lost with its copy: what proves itself is recorded again by the audit log, as with two files."""
    staged.swap(staged.stage("1.1.0", NEW, 2))
    manager.confirm(staged.product, manager.look(staged.product))
    for name in ("slots.json", "slots.json.copy"):
        (staged.slots / name).unlink()
    assert set(cmd_repair.gather(staged.product, staged.state()).held) == {"a", "b"}
    spoil("byte", staged.slots / "versions" / "1.1.0")
    assert set(cmd_repair.gather(staged.product, staged.state()).held) == {"a"}


# --- the proof that the new release runs (I11) ---


@pytest.fixture(name="running")
def _running(grove: Grove) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose program is a copy of this host's `sleep`, in the tree of the adopted version."""
    program = pathlib.Path(shutil.which("sleep") or "/bin/sleep").read_bytes()
    grove.adopt("1.0.0", program)
    running = subprocess.Popen([grove.entrypoint, "60"], cwd="/")
    until = time.monotonic() + 10
    while not os.readlink(f"/proc/{running.pid}/exe").startswith(str(grove.slots)):
        assert time.monotonic() < until
        time.sleep(0.01)
    yield running
    running.kill()
    running.wait()


def test_I11_the_program_in_the_slots_tree_is_what_runs(grove: Grove, running: subprocess.Popen[bytes]) -> None:
    """I11: the inode of the process's program is that of the slot's; another slot's tree is not."""
    shown = {"ActiveState": "active", "MainPID": str(running.pid)}
    assert process.facts(grove.product, "a", shown).exe_is_slot
    grove.stage("1.1.0", NEW, 2)
    assert not process.facts(grove.product, "b", shown).exe_is_slot


# --- sweeping ---


def grown(grove: Grove, upto: int) -> None:
    """Upgrades, one after the other, to 1.<upto>.0."""
    for minor in range(1, upto + 1):
        grove.upgrade(f"1.{minor}.0", archive(b"#!/bin/sh\nexit %d\n" % minor), minor + 1)


def test_D3_the_newest_stay_besides_the_live_ones(grove: Grove) -> None:
    """D3: two are kept here; what the slots lead to does not count among them."""
    grove.adopt()
    grown(grove, 6)
    assert grove.trees() == ["1.3.0", "1.4.0", "1.5.0", "1.6.0"]
    assert {grove.link("a"), grove.link("b")} == {"versions/1.5.0", "versions/1.6.0"}
    assert sorted(os.listdir(grove.slots / "versions")) == sorted(
        [*grove.trees(), *(f"{name}.json" for name in grove.trees())]
    )


def test_what_a_process_runs_from_stays_until_it_ends(grove: Grove, running: subprocess.Popen[bytes]) -> None:
    """The old daemon's tree is there for as long as it runs, however many releases come; then it goes."""
    grown(grove, 5)
    assert grove.trees() == ["1.0.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0"]
    assert sweeping.running_from(grove.product, grove.trees()) == {"1.0.0": f"process {running.pid} runs from it"}
    with pytest.raises(codes.Refused) as error:
        grove.stage("1.0.0", NEW, 9)
    assert error.value.code == codes.ALREADY_EXISTS
    assert f"process {running.pid} runs from it" in error.value.text
    running.kill()
    running.wait()
    manager.settle_now(grove.product)
    assert grove.trees() == ["1.2.0", "1.3.0", "1.4.0", "1.5.0"]


MAPPED = "import mmap, sys\nfile = open(sys.argv[1], 'rb')\nkept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\nfile.close()\n"


@pytest.mark.parametrize("how", ["mapped", "deleted", "working directory", "command line"])
def test_a_process_may_run_from_a_tree_in_other_ways(grove: Grove, how: str) -> None:
    """A library that it has mapped, also under a name that is gone; where it works; a script that it was given."""
    grove.adopt()
    grove.stage("1.1.0", NEW, 2)
    tree = grove.slots / "versions" / "1.1.0"
    wait = "print('ready', flush=True)\nimport time\ntime.sleep(60)\n"
    code = {"mapped": MAPPED + wait, "deleted": MAPPED + "import os\nos.unlink(sys.argv[1])\n" + wait}.get(how, wait)
    argument = str(tree / "lib" / "data") if how != "working directory" else ""
    if how == "deleted":
        os.link(argument, tree.parent.parent.parent / "data")  # the same file under a name elsewhere
        argument = str(tree.parent.parent.parent / "data")
    where = tree / "lib" if how == "working directory" else "/"
    with subprocess.Popen([sys.executable, "-c", code, argument], cwd=where, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        found = sweeping.running_from(grove.product, ["1.0.0", "1.1.0"])
        running.kill()
    assert found == {"1.1.0": f"process {running.pid} runs from it"}


def test_what_is_left_over_goes_always_and_what_is_not_ours_stays(grove: Grove) -> None:
    """Temporary names, a tree without its listing, a listing without its tree; an operator's own names are no versions."""
    grove.adopt()
    top = grove.slots / "versions"
    for name in ("2.0.0.partial", "3.0.0", "mine"):
        (top / name / "deep").mkdir(parents=True)
    for name in ("2.0.0.json.partial", "1.0.0.json.tmp", "4.0.0.json", "notes.json", "README"):
        (top / name).write_bytes(b"x")
    manager.settle_now(grove.product)
    assert sorted(os.listdir(top)) == ["1.0.0", "1.0.0.json", "README", "mine", "notes.json"]


def test_with_a_broken_record_only_what_a_cut_left_goes(grove: Grove) -> None:
    """A repair may need any tree that is there."""
    grove.adopt()
    top = grove.slots / "versions"
    (top / "3.0.0").mkdir()
    (top / "2.0.0.partial").mkdir()
    broken = grove.state()._replace(broken=("slots.json", "torn"))
    assert sweeping.sweep(grove.product, broken) == ["2.0.0.partial"]
    assert grove.trees() == ["1.0.0", "3.0.0"]


def test_a_sweep_that_cannot_is_said_and_fails_nothing(grove: Grove, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is confirmed or undone by it: the directory of the trees was moved, and a link lies in its place."""
    grove.adopt()
    elsewhere = grove.root / "elsewhere"
    os.rename(grove.slots / "versions", elsewhere)
    (elsewhere / "2.0.0.partial").mkdir()
    (grove.slots / "versions").symlink_to(elsewhere)
    assert sweeping.sweep(grove.product, grove.state()) == []
    assert "was not swept: " in capsys.readouterr().err
    assert (elsewhere / "2.0.0.partial").exists()


def test_layout_ab_is_never_looked_at(tmp_path: pathlib.Path) -> None:
    """A product of two files has no trees, and whatever is called so is not ours."""
    assert sweeping.sweep(products.Product("app", "app.service", "/x", str(tmp_path)), settle.State()) == []


def test_the_listing_of_a_tree_is_a_record_of_roots(staged: Grove) -> None:
    """A link or a file that others may write in its place proves nothing."""
    listing = staged.slots / "versions" / "1.1.0.json"
    listing.chmod(0o666)
    with pytest.raises(codes.BrokenRecord):
        trees.examine(staged.product, "1.1.0")
    listing.chmod(0o644)
    os.rename(listing, staged.root / "listing")
    listing.symlink_to(staged.root / "listing")
    with pytest.raises(codes.BrokenRecord):
        trees.examine(staged.product, "1.1.0")
    assert isinstance(listings.parse((staged.root / "listing").read_bytes(), "x").record, records.SlotRecord)
