# SPDX-License-Identifier: GPL-3.0-or-later
"""A listening socket that nobody meets half made (privilege.md, section 4).

Rules:
- It is bound, given its group and its mode in a directory of its own (0700) beside its place, and renamed into it.
- An old socket in its place is replaced; anything else there is left alone, and is an error.
- The directory is opened once, by its own name and never through a link; all that follows is beneath it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat

from slotward import opening

PRIVATE = ".binding"
NAME = "socket"


def listen(path: str, mode: int, gid: int, backlog: int) -> socket.socket:
    """A listener at `path`; raises OSError or Refused."""
    directory, name = os.path.split(os.path.abspath(path))
    above = opening.open_directory(directory)
    try:
        _check(above, name, path)
        _clear(above)
        os.mkdir(PRIVATE, 0o700, dir_fd=above)
        inside = os.open(PRIVATE, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(inside, 0o700)
            listener.bind(f"/proc/self/fd/{inside}/{NAME}")  # a path of any length fits so
            if (
                os.stat(NAME, dir_fd=inside, follow_symlinks=False).st_gid != gid
            ):  # a sandbox may forbid even the idle call
                os.chown(NAME, -1, gid, dir_fd=inside, follow_symlinks=False)
            os.chmod(f"/proc/self/fd/{inside}/{NAME}", mode)
            listener.listen(backlog)
            os.rename(NAME, name, src_dir_fd=inside, dst_dir_fd=above)
        except BaseException:
            listener.close()
            raise
        finally:
            os.close(inside)
            _clear(above)
        return listener
    finally:
        os.close(above)


def _check(above: int, name: str, path: str) -> None:
    try:
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, f"there is {opening.kind(found.st_mode)}, no socket: remove it", path)


def _clear(above: int) -> None:
    """Take away what an earlier start left."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        inside = os.open(PRIVATE, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(NAME, dir_fd=inside)
        finally:
            os.close(inside)
        os.rmdir(PRIVATE, dir_fd=above)
