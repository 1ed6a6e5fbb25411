# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock whose file somebody has removed while it was held: whoever holds it still does, and a new file would not say so.

Rules:
- Only processes of this account are looked at: nobody else can hold it, and nobody else is believed.
- It counts only while the kernel says that it is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import Iterator, Optional


def label(path: str) -> Optional[bytes]:
    """What its holder wrote into the lock that was at `path`; None when nobody holds one."""
    gone = f"{os.path.realpath(path)} (deleted)"
    for place in _open_files():
        with contextlib.suppress(OSError):  # a process that ends meanwhile holds nothing
            if os.readlink(place) == gone and _is_plain(os.stat(place)):
                said = _held(place)
                if said is not None:
                    return said
    return None


def _open_files() -> Iterator[str]:
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{process}").st_uid == os.geteuid():
                for name in os.listdir(f"/proc/{process}/fd"):
                    yield f"/proc/{process}/fd/{name}"


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_uid == os.geteuid()


def _held(place: str) -> Optional[bytes]:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 4096, 0)
    finally:
        os.close(descriptor)
    return None
