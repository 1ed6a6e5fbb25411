# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening what somebody else may have put there: no link is followed, no FIFO is waited for (I6).

Rules:
- A directory is opened by its own name, never through a link; a file beneath it by one plain name.
- What was checked is the open descriptor, so swapping a name afterwards changes nothing.
- A name that is not there is told from one that cannot be read now: an error of the disk says nothing about it.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

from slotcore import codes

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
RESUME = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_PLAIN = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.EOPNOTSUPP)

_NO_LINK = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL)


def link_at(path: str) -> Optional[str]:
    """Where a link leads; None when none is there. Raises OSError when that cannot be read."""
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return None


def is_there(path: str) -> bool:
    """Whether the name is there, whatever it is. Raises OSError when that cannot be seen."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in however many calls the kernel takes it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def unsafe(path: str, what: str) -> codes.Refused:
    """The refusal of a staged file or directory."""
    return codes.refused(codes.STAGED_UNSAFE, "%s is %s: remove it and try again" % (path, what))


def kind(mode: int) -> str:
    """What a file mode says the thing is, in words."""
    for test, what in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISREG, "a regular file"),
    ):
        if test(mode):
            return what
    return "a device"


def open_directory(path: str) -> int:
    """A descriptor of a directory that is not reached through a link of its own name."""
    parent, name = os.path.split(os.path.abspath(path))
    if not name:
        return os.open("/", DIRECTORY)
    above = os.open(parent, DIRECTORY)
    try:
        return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except OSError as error:
        if error.errno not in NOT_PLAIN:
            raise
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        raise unsafe(path, "%s, not a directory" % kind(found.st_mode)) from error
    finally:
        os.close(above)


def open_at(above: int, name: str, path: str, flags: int) -> int:
    """A descriptor of `name` in the open directory `above`; what is not a plain file is refused, whatever it is."""
    try:
        return os.open(name, flags, dir_fd=above)
    except OSError as error:
        if error.errno not in NOT_PLAIN:
            raise
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        raise unsafe(path, "%s, not a plain file" % kind(found.st_mode)) from error
