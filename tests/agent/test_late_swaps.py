# SPDX-License-Identifier: GPL-3.0-or-later
"""A name that is swapped after it was looked at, in the very moment in which it is opened (I6).

`test_hostile_files.py` has what lies there from the start, and races; what a race shows by chance is shown here each time.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import pathlib
from typing import Callable, Iterator, List, Mapping, NamedTuple, Optional

import pytest
from agent.growing import PROGRAM, Grove, archive
from agent.test_handover import OTHER, USER, give, snapshot
from agent.test_hostile_files import REFUSED, product_at, run_ops

from agent import test_unpack
from slotcore import ops, phases
from slotward import binding, executor, handover, lock, progress_file, release_files, trees, unpack

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


class Swap(NamedTuple):
    """What is opened: by its name, counted; what lies in its place then; and who opens it."""

    name: str
    number: int
    put: Callable[[pathlib.Path, pathlib.Path], None]
    begin: Callable[[pathlib.Path], Callable[[], object]]
    """Prepares a directory; what it answers does the work."""
    told: bool = True
    """Whether the work says that it could not be done."""


def link(path: pathlib.Path, outside: pathlib.Path) -> None:
    """A link to root's directory; what was there lies beside it."""
    with contextlib.suppress(FileNotFoundError):
        path.rename(path.parent / "was")
    path.symlink_to(outside)


def moved(path: pathlib.Path, outside: pathlib.Path) -> None:
    """A link to the very directory that was there."""
    path.rename(outside.parent / "moved")
    path.symlink_to(outside.parent / "moved")


def second_link(path: pathlib.Path, outside: pathlib.Path) -> None:
    """A second name of root's file."""
    path.unlink(missing_ok=True)
    os.link(outside / "file", path)


@contextlib.contextmanager
def swapped(swap: Swap, outside: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[List[str]]:
    """Swap right before the opening; the names that were opened."""
    plainly, seen = os.open, []

    def late(path: str, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
        if fnmatch.fnmatch(os.path.basename(path), swap.name):
            seen.append(path)
            if len(seen) == swap.number:
                swap.put(pathlib.Path(path if dir_fd is None else f"/proc/self/fd/{dir_fd}/{path}"), outside)
        return plainly(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", late)
        yield seen


def listen(place: pathlib.Path) -> Callable[[], object]:
    """A socket, made in a directory of its own, which an earlier start has left."""
    (place / binding.PRIVATE).mkdir()
    return lambda: binding.listen(str(place / "s"), 0o660, 0, 4).close()


def tree(place: pathlib.Path) -> Callable[[], object]:
    """A tree with a directory in it, to be proven."""
    place.parent.chmod(0o755)
    place.chmod(0o755)
    grove = Grove(place)
    grove.adopt()
    grove.stage("1.1.0", archive(PROGRAM, lib_data=b"data"), 2)
    trees.examine(grove.product, "1.1.0")
    return lambda: trees.examine(grove.product, "1.1.0")


def remove(place: pathlib.Path) -> Callable[[], object]:
    """A tree that is removed."""
    (place / "old" / "lib").mkdir(parents=True)
    above = os.open(place, os.O_RDONLY | os.O_DIRECTORY)

    def act() -> None:
        try:
            unpack.remove_tree(above, "old")
        finally:
            os.close(above)

    return act


def unpacked(place: pathlib.Path) -> Callable[[], object]:
    """An archive that becomes a tree."""
    return lambda: test_unpack.put(place / "app" / "versions", test_unpack.GOOD)


def handed_over(*directories: str) -> Callable[[pathlib.Path], Callable[[], object]]:
    """A directory with these in it, that goes from one account to another."""

    def begin(place: pathlib.Path) -> Callable[[], object]:
        data = place / "data"
        data.mkdir()
        for name in directories:
            (data / name).mkdir(parents=True)
        (data / "identity").write_bytes(b"who we are")
        give(data, OTHER)
        return lambda: handover.hand_over(str(data), USER)

    return begin


def progress(place: pathlib.Path) -> Callable[[], object]:
    """What an update says of itself."""

    def act() -> None:
        with progress_file.of(product_at(place), "1.1.0"):
            pass

    return act


SWAPS: Mapping[str, Swap] = {
    "a plan's new file": Swap(
        "record", 1, second_link, lambda place: lambda: run_ops(ops.Write(str(place / "record"), b"ours", 0o644))
    ),
    "an earlier start's directory of a socket": Swap(binding.PRIVATE, 1, link, listen),
    "the directory of a socket": Swap(binding.PRIVATE, 2, link, listen),
    "an update's progress": Swap(phases.NAME + ".tmp", 1, second_link, progress, told=False),
    "a directory of a tree": Swap("lib", 1, moved, tree),
    "a tree that is removed": Swap("old", 1, link, remove),
    "a directory of a tree that is removed": Swap("lib", 1, link, remove),
    "the top of a new tree": Swap("*" + unpack.PARTIAL, 1, link, unpacked),
    "a directory of a new tree": Swap("lib", 1, link, unpacked),
    "a file of a new tree": Swap("tool", 1, second_link, unpacked),
    "a copy that is given": Swap("identity" + handover.PART, 1, second_link, handed_over()),
    "a directory that is closed": Swap("sub", 1, link, handed_over("sub")),
    "a directory that is given": Swap("sub", 2, link, handed_over("sub")),
    "a file that is given": Swap("identity", 1, second_link, handed_over()),
    "what staging was": Swap(handover.EMPTIED, 1, link, handed_over(handover.EMPTIED)),
    "what is in what staging was": Swap("below", 1, link, handed_over(handover.EMPTIED + "/below")),
    "a file that releasing writes": Swap(
        ".made.*.tmp", 1, second_link, lambda place: lambda: release_files.replace(str(place / "made"), b"ours")
    ),
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS.keys())
def test_I6_what_is_swapped_before_it_is_opened(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, swap: Swap
) -> None:
    """Where it leads nothing changes, and nothing that lies there is taken."""
    outside, place = tmp_path / "outside", tmp_path / "place"
    outside.mkdir()
    place.mkdir(0o755)
    for name in ("file", binding.NAME, "child"):
        (outside / name).write_bytes(b"root's")
    (outside / "sub").mkdir()
    outside.chmod(0o751)
    act = swap.begin(place)
    before = snapshot(outside)
    with swapped(swap, outside, monkeypatch) as seen:
        try:
            act()
            told = False
        except (*REFUSED, release_files.Failed):
            told = True
    assert len(seen) >= swap.number
    assert told is swap.told
    assert snapshot(outside) == before


def test_I6_a_sync_follows_no_link(tmp_path: pathlib.Path) -> None:
    """Nothing is durable by the sync of another file."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    executor.sync_path(str(tmp_path / "file"))
    with pytest.raises(OSError, match="symbolic link"):
        executor.sync_path(str(tmp_path / "link"))


def test_I6_the_lock_is_no_link_for_who_only_looks(tmp_path: pathlib.Path) -> None:
    """Another product's lock, which is held, says nothing of this one's."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with lock.held(product_at(other), "upgrade"):
        assert lock.holder(product_at(other)) is not None
        (one / "lock").symlink_to(other / "lock")
        assert lock.holder(product_at(one)) is None
