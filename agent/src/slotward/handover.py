# SPDX-License-Identifier: GPL-3.0-or-later
"""Hands the daemon's own directory to another account, when the mode changes (privilege.md, section 8; ADR 19).

Rules:
- Everything is reached by open descriptors from the directory itself: no link is followed, nothing on another
  filesystem is touched.
- A file with a second link is not touched: the other name may be anywhere. What is no plain file or directory neither.
- From an account, a file is handed over as a copy: a descriptor that is still open, a name made meanwhile or a bit that
  was set leads to the old one. From root it is the file itself.
- The directory is root's and closed while that goes on; the new owner gets it last. So a cut leaves it root's, and a
  second run finishes. Staging is emptied: what was asked for is asked again.
- What was not handed over is told by name, and stays.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Iterator, List, NamedTuple, Tuple

from slotcore import codes
from slotward import accounts, faults, opening

PRIVATE, PUBLIC = 0o700, 0o755
STAGING = "staging"
MAX_DEPTH = 16
MAX_ENTRIES = 4096
MAX_FILE = 16 << 20
MAX_ALL = 64 << 20
"""Bytes that are copied: an account may have made files of any size."""
PART = ".slotward-handed-over"
EMPTIED = STAGING + PART
EMPTIED_S = 60.0
"""A process that has a directory of staging open could make new ones below it for as long as root removes them."""
MAX_SAID = 20
HELD = "its old owner's processes still make files there; stop the daemon, end those processes, run setup again"


class Owned(NamedTuple):
    """Who a file or directory is of."""

    uid: int
    gid: int
    mode: int


def owned(path: str) -> Owned:
    """Of the name itself, not of what a link leads to."""
    found = os.lstat(path)
    return Owned(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def is_due(path: str, to: accounts.Account) -> bool:
    """Whether the directory, or in root's anything in it, is still of somebody else.

    Nothing is looked for in an account's own directory: what lies there may be a trap.
    """
    if owned(path) != (to.uid, to.gid, PRIVATE):
        return True
    if to.uid != 0:
        return False
    staging = f"{path}/{STAGING}"
    emptied = (os.path.lexists(staging) and owned(staging).uid != 0) or os.path.lexists(f"{path}/{EMPTIED}")
    return emptied or any(one.due for one in _Tree(path, to).entries())


def refuse_strange(path: str, known: Tuple[int, ...]) -> None:
    """Raise Refused when the directory is not the daemon's to give: somebody else's, or one that others use too."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise codes.refused(codes.DIRECTORY_UNSAFE, f"data_dir {path} is a link: name the directory itself")
    found = owned(path)
    more = [name for name in sorted(os.listdir(path)) if name != STAGING]
    if found.uid not in (0, *known):
        why = f"is owned by uid {found.uid}"
    elif found.uid == 0 and found.mode & 0o077 and more:
        why = f"holds {more[0]} and is open to others (mode {found.mode:04o})"
    else:
        return
    text = f"data_dir {path} {why}, so it may not be Slotward's alone"
    raise codes.refused(
        codes.DIRECTORY_UNSAFE, f"{text}: name another one, or `chown root {path} && chmod 0700 {path}` if it is"
    )


class _Entry(NamedTuple):
    """Something below the directory: where it lies, and why it is left, "" when it is handed over."""

    above: int
    name: str
    path: str
    found: os.stat_result
    left: str
    due: bool


class _Tree:
    """One walk below the directory; `closing`: a directory that is handed over is made root's, and nobody else's to write, before it."""

    def __init__(self, path: str, to: accounts.Account, closing: bool = False) -> None:
        self._path, self._to, self._closing = path, to, closing
        self._count = self._bytes = 0

    def entries(self) -> Iterator[_Entry]:
        """What lies below, but staging: the contents of a directory before itself."""
        descriptor = opening.open_directory(self._path)
        try:
            yield from self._below(descriptor, self._path, os.fstat(descriptor).st_dev, 0)
        finally:
            os.close(descriptor)

    def _below(self, above: int, place: str, device: int, depth: int) -> Iterator[_Entry]:
        for name in sorted(os.listdir(above)):
            if name.endswith(PART) or (not depth and name == STAGING):
                continue
            entry = self._entry(above, name, f"{place}/{name}", device, depth)
            if not entry.left and stat.S_ISDIR(entry.found.st_mode):
                below = os.open(name, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
                try:
                    if self._closing and entry.due:
                        os.fchown(below, 0, 0)
                        os.fchmod(below, stat.S_IMODE(entry.found.st_mode) & PUBLIC)
                    yield from self._below(below, entry.path, device, depth + 1)
                finally:
                    os.close(below)
            yield entry

    def _entry(self, above: int, name: str, path: str, device: int, depth: int) -> _Entry:
        try:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
        except OSError as error:  # a filesystem of the account's own
            return _Entry(above, name, path, os.fstat(above), f"it cannot be looked at ({error.strerror})", False)
        left = _why_left(found, device)
        differs = (found.st_uid, found.st_gid) != (self._to.uid, self._to.gid)
        self._count += 1
        if self._count > MAX_ENTRIES or depth > MAX_DEPTH:
            left = left or "there are too many files, or it lies too deep"
        elif stat.S_ISREG(found.st_mode) and not left:
            self._bytes += found.st_size if found.st_size <= MAX_FILE else 0  # whoever's: a second run counts the same
            if differs and found.st_uid != 0 and (found.st_size > MAX_FILE or self._bytes > MAX_ALL):
                left = f"it is more than is copied ({found.st_size} bytes)"
        return _Entry(above, name, path, found, left, differs and not left)


def _why_left(found: os.stat_result, device: int) -> str:
    if found.st_dev != device:
        return "it lies on another filesystem"
    if stat.S_ISDIR(found.st_mode):
        return ""
    if not stat.S_ISREG(found.st_mode):
        return f"it is {opening.kind(found.st_mode)}"
    return f"it has {found.st_nlink} links" if found.st_nlink != 1 else ""


def hand_over(path: str, to: accounts.Account) -> List[str]:
    """Make the directory `to`'s, with all that can be; what was left, each with the reason.

    `path` must be reached by directories of root's alone.
    """
    top = opening.open_directory(path)
    try:
        before = os.fstat(top)
        if to.uid != 0 and (before.st_uid, before.st_gid) == (to.uid, to.gid):
            os.fchmod(top, PRIVATE)  # and no look at what lies there
            return []
        os.fchown(top, 0, 0)
        os.fchmod(top, PRIVATE)
        faults.hit("hand-over.closed")
        _empty_staging(top, path, to)
        left = _contents(path, to)
        os.fsync(top)
        faults.hit("hand-over.contents")
        os.fchown(top, to.uid, to.gid)
        os.fsync(top)
    finally:
        os.close(top)
    return left


def _contents(path: str, to: accounts.Account) -> List[str]:
    left: List[str] = []
    more = 0
    for entry in _Tree(path, to, closing=True).entries():
        why = _give(entry, to) if entry.due else entry.left
        faults.hit("hand-over.entry")
        if why and len(left) < MAX_SAID:
            left.append(f"{entry.path} was left as it is: {why}")
        elif why:
            more += 1
    return [*left, f"and {more} more"] if more else left


def _empty_staging(top: int, path: str, to: accounts.Account) -> None:
    """Remove staging when it is somebody else's, under a name by which the next run finds what a cut left of it."""
    _empty(top, path)
    with contextlib.suppress(FileNotFoundError):
        if os.stat(STAGING, dir_fd=top, follow_symlinks=False).st_uid != to.uid:
            os.rename(STAGING, EMPTIED, src_dir_fd=top, dst_dir_fd=top)
            _empty(top, path)


def _empty(top: int, path: str) -> None:
    """Remove what staging was; however deep it is, no more than two directories are open."""
    try:
        found = os.stat(EMPTIED, dir_fd=top, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(EMPTIED, dir_fd=top)
        return
    descriptor = os.open(EMPTIED, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        os.fchown(descriptor, 0, 0)
        os.fchmod(descriptor, PRIVATE)
        names, until = os.listdir(descriptor), time.monotonic() + EMPTIED_S
        while names:
            for name in names:
                _remove(descriptor, name)
                if time.monotonic() >= until:
                    text = f"{path}/{EMPTIED} was not empty after {EMPTIED_S:g} s"
                    raise codes.Retryable(codes.CANNOT_WRITE, f"{text}: {HELD}")
            names = os.listdir(descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(EMPTIED, dir_fd=top)


def _remove(above: int, name: str) -> None:
    """Remove a name of staging; the directories in a directory come up beside it first, for a later round."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=above)
        return
    below = os.open(name, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        os.fchown(below, 0, 0)
        os.fchmod(below, PRIVATE)
        for child in os.listdir(below):
            if stat.S_ISDIR(os.stat(child, dir_fd=below, follow_symlinks=False).st_mode):
                os.rename(child, os.urandom(16).hex(), src_dir_fd=below, dst_dir_fd=above)
            else:
                os.unlink(child, dir_fd=below)
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=above)


def _give(entry: _Entry, to: accounts.Account) -> str:
    """Hand one over; why it had to be left, "" when it was not."""
    if stat.S_ISDIR(entry.found.st_mode):
        descriptor = os.open(entry.name, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=entry.above)
        try:
            os.fchown(descriptor, to.uid, to.gid)
            os.fchmod(descriptor, stat.S_IMODE(entry.found.st_mode) & PUBLIC)
        finally:
            os.close(descriptor)
        return ""
    try:
        source = opening.open_at(entry.above, entry.name, entry.path, opening.READ)
    except BlockingIOError:  # a lease: its owner is asked to let go, and need not
        return "a process holds it"
    try:
        now = os.fstat(source)
        if (now.st_ino, now.st_nlink, now.st_uid) != (entry.found.st_ino, 1, entry.found.st_uid):
            raise opening.unsafe(entry.path, "changed while it was handed over")
        mode = stat.S_IMODE(now.st_mode) & PUBLIC
        if now.st_uid == 0:
            os.fchown(source, to.uid, to.gid)
            os.fchmod(source, mode)
        else:
            _copy(entry, source, to, mode)
    finally:
        os.close(source)
    return ""


def _copy(entry: _Entry, source: int, to: accounts.Account, mode: int) -> None:
    """Put a new file with the same bytes in the place of the old one."""
    part = entry.name[: 255 - len(PART)] + PART
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=entry.above)
    target = os.open(part, opening.CREATE, 0o600, dir_fd=entry.above)
    try:
        done = 0
        while done < entry.found.st_size:
            block = os.pread(source, 1 << 18, done)
            if not block:
                break
            opening.write_all(target, block)
            done += len(block)
        os.fchown(target, to.uid, to.gid)
        os.fchmod(target, mode)
        found = os.fstat(source)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fsync(target)
    finally:
        os.close(target)
    os.rename(part, entry.name, src_dir_fd=entry.above, dst_dir_fd=entry.above)
