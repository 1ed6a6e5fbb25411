# SPDX-License-Identifier: GPL-3.0-or-later
"""Staged files: opened safely, and copied only if they are what they should be (I6).

Rules (seed 000 "Swap", step 4):
- The staging directory is opened by its own name, never through a link; a file beneath it by one plain name.
- Opening never follows a link and never waits for a FIFO. Only a regular file with one link is taken, and only its
  owner's where an owner is named. What was checked is the open descriptor, so swapping the name changes nothing.
- A copy is checked by size and SHA-256 of the bytes as they are written. What is not right leaves no file behind.
- A new file never goes through a name that is there. Modes are set explicitly, whatever the umask (field case D13).
- Staging keeps what is asked for and nothing else of the product (field case D3).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from typing import Collection, List, Optional

from slotcore import codes, semver
from slotward import opening

CHUNK = 1 << 18
MAX_ENTRIES = 4096
NEW = ".new"
PRIVATE = 0o700
PUBLIC = 0o755


def make_directory(path: str) -> None:
    """Make the staging directory, for its owner alone; missing ones above it are 0755 whatever the umask."""
    parent, name = os.path.split(os.path.abspath(path))
    make_parents(parent)
    above = os.open(parent, opening.DIRECTORY)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, PRIVATE, dir_fd=above)
    finally:
        os.close(above)
    descriptor = opening.open_directory(path)
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != PRIVATE:
            os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)


def make_parents(path: str) -> None:
    """Make the directories on the way to and with `path`, 0755 whatever the umask."""
    if os.path.isdir(path):
        return
    make_parents(os.path.dirname(path))
    make_one(path, PUBLIC)


def make_one(path: str, mode: int) -> None:
    """Make a directory that was not there, with this mode whatever the umask; its parent is.

    The mode comes with the name: nobody looks at that of a directory which a cut run has made.
    """
    with contextlib.suppress(FileExistsError):  # by somebody else, since the look
        before = os.umask(0)
        try:
            os.mkdir(path, mode)
        finally:
            os.umask(before)
        descriptor = opening.open_directory(path)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def take_over(path: str, mode: int) -> None:
    """Make a directory root's (or whose process this is), with this mode; its own name is no link."""
    descriptor = opening.open_directory(path)
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def open_staged(directory: str, name: str, owner_uid: Optional[int] = None) -> int:
    """A descriptor of the staged file `name`.

    Raises:
        FileNotFoundError: it is not there.
        Refused: `staged-unsafe`, it is something else than a plain file of its own.

    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise opening.unsafe(os.path.join(directory, name.replace("\0", "?")), "no plain name")
    path = os.path.join(directory, name)
    above = opening.open_directory(directory)
    try:
        descriptor = opening.open_at(above, name, path, opening.READ)
    finally:
        os.close(above)
    problem = _staged_problem(os.fstat(descriptor), owner_uid)
    if problem:
        os.close(descriptor)
        raise opening.unsafe(path, problem)
    return descriptor


def _staged_problem(found: os.stat_result, owner_uid: Optional[int]) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "%s, not a plain file" % opening.kind(found.st_mode)
    if found.st_nlink != 1:
        return "a file with %d links, not one" % found.st_nlink
    if owner_uid is not None and found.st_uid != owner_uid:
        return "owned by uid %d, not %d" % (found.st_uid, owner_uid)
    return ""


def open_part(path: str) -> int:
    """A descriptor for reading and writing of a download's part: ours from an earlier run, or a new empty one."""
    directory, name = os.path.split(os.path.abspath(path))
    above = opening.open_directory(directory)
    try:
        try:
            descriptor = os.open(name, opening.RESUME, dir_fd=above)
        except OSError as error:
            if error.errno not in (*opening.NOT_PLAIN, errno.ENOENT, errno.EACCES, errno.EPERM):
                raise
            return _create(above, name, 0o600)
        if _staged_problem(os.fstat(descriptor), os.geteuid()):
            os.close(descriptor)
            return _create(above, name, 0o600)
        os.fchmod(descriptor, 0o600)
        return descriptor
    finally:
        os.close(above)


def _create(above: int, name: str, mode: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)
    descriptor = os.open(name, opening.CREATE, 0o600, dir_fd=above)
    os.fchmod(descriptor, mode)
    return descriptor


def write(directory: str, name: str, content: bytes) -> None:
    """Put a file of these bytes into the directory, its owner's alone: whole and durable when its name is there."""
    above = opening.open_directory(directory)
    try:
        put(above, name, content)
    finally:
        os.close(above)


def put(above: int, name: str, content: bytes, half: str = NEW) -> None:
    """As `write`, below an open directory; until it is whole, it has the name with `half` behind it."""
    descriptor = _create(above, name + half, 0o600)
    try:
        opening.write_all(descriptor, content)
        os.fsync(descriptor)
    except OSError:
        os.unlink(name + half, dir_fd=above)
        raise
    finally:
        os.close(descriptor)
    os.rename(name + half, name, src_dir_fd=above, dst_dir_fd=above)
    os.fsync(above)


def copy_verified(source: int, path: str, size: int, sha256: str, mode: int = 0o755) -> None:
    """Copy the open file `source` into the new file `path`, durably, if it is exactly these bytes.

    Raises:
        Refused: `size-mismatch` or `digest-mismatch`; `path` is not there then.

    """
    directory, name = os.path.split(os.path.abspath(path))
    above = opening.open_directory(directory)
    try:
        target = _create(above, name, 0o600)
        try:
            try:
                _copy(source, target, path, size, sha256)
                os.fchmod(target, mode)
                os.fsync(target)
            finally:
                os.close(target)
        except BaseException:
            os.unlink(name, dir_fd=above)
            raise
    finally:
        os.close(above)


def _copy(source: int, target: int, path: str, size: int, sha256: str) -> None:
    digest = hashlib.sha256()
    block = memoryview(bytearray(CHUNK))
    done = 0
    while done <= size:
        count = os.preadv(source, [block[: min(CHUNK, size + 1 - done)]], done)
        if not count:
            break
        digest.update(block[:count])
        written = 0
        while written < count:
            written += os.write(target, block[written:count])
        done += count
    if done != size:
        found = os.fstat(source).st_size
        raise codes.refused(
            codes.SIZE_MISMATCH, "the file for %s is %d bytes, the release says %d" % (path, found, size)
        )
    if digest.hexdigest() != sha256:
        raise codes.refused(
            codes.DIGEST_MISMATCH,
            "the file for %s has the SHA-256 %s, the release says %s" % (path, digest.hexdigest(), sha256),
        )


def rename(directory: str, name: str, to: str) -> None:
    """Give a file of the directory another name, durably."""
    above = opening.open_directory(directory)
    try:
        os.rename(name, to, src_dir_fd=above, dst_dir_fd=above)
        os.fsync(above)
    finally:
        os.close(above)


def remove(path: str) -> None:
    """Remove a file if it is there and can be; its directory is not reached through a link."""
    directory, name = os.path.split(os.path.abspath(path))
    with contextlib.suppress(OSError, codes.Refused):
        above = opening.open_directory(directory)
        try:
            os.unlink(name, dir_fd=above)
        finally:
            os.close(above)


def tidy(directory: str, keep: Collection[str], product: Optional[str] = None) -> List[str]:
    """Remove what earlier downloads (of one product, or of all) left, and answer their names; directories stay."""
    removed = []
    above = opening.open_directory(directory)
    try:
        with os.scandir(above) as entries:
            names = [
                entry.name
                for _number, entry in zip(range(MAX_ENTRIES), entries)
                if not entry.is_dir(follow_symlinks=False)
            ]
        for name in names:
            if name not in keep and (product is None or _is_of(name, product)):
                try:
                    os.unlink(name, dir_fd=above)
                except FileNotFoundError:
                    continue
                removed.append(name)
    finally:
        os.close(above)
    return sorted(removed)


def _is_of(name: str, product: str) -> bool:
    """Whether a staged name is this product's: what follows it must be a version, so `a` does not own `a-b-1.0.0`."""
    start = product + "-"
    return name.startswith(start) and semver.is_version(name[len(start) :].removesuffix(".part"))
