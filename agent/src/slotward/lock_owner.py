# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a lock that says nothing of its holder, or names one that is gone: the kernel knows.

Rules:
- Looked for only where the lock is held and its label names no living process: a usual look pays nothing for it.
- The number of a process in `/proc/locks` is that of who took the lock; where that one has ended, whoever still has the file
  open holds it on.
"""

from __future__ import annotations

import contextlib
import os
from typing import List, Optional

from slotcore import status
from slotward import host

FOREIGN = "none of our commands"
LOCKS = "/proc/locks"


def takers(text: str, found: os.stat_result) -> List[int]:
    """Who took a lock of this file, by the kernel's list; a filesystem of several devices is told by its inode alone."""
    rows = [line.split() for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 8 and row[1] == "FLOCK" and row[5].endswith(f":{found.st_ino}")]
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:"
    exact = [row for row in rows if row[5].startswith(device)]
    return [int(row[4]) for row in exact or rows if row[4].isdigit()]


def _openers(found: os.stat_result) -> List[int]:
    """Every process but this one that has the file open."""
    from slotward import process

    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and process.has_open(pid, found)]


def _command(pid: int) -> str:
    try:
        said = (host.read_bytes(f"/proc/{pid}/comm", 64) or b"").decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "".join(char if char.isprintable() else "?" for char in said)


def of(descriptor: int) -> Optional[status.Lock]:
    """The process that holds the lock of an open file, and for how long at most; None where this host does not know."""
    from slotward import process

    found = os.fstat(descriptor)
    taken: List[int] = []
    with contextlib.suppress(OSError), open(LOCKS, encoding="ascii", errors="replace") as file:
        taken = takers(file.read(), found)
    living = [pid for pid in taken if _command(pid)] or _openers(found)
    for pid in living:
        started = process.started_s(pid)
        if started is not None:
            age = max(0, int(host.uptime_s() - started))
            return status.Lock(pid, age, f"{_command(pid) or 'a program'}, {FOREIGN}")
    return None


def gone(label: status.Lock) -> status.Lock:
    """What there is to say where nobody knows: whose word the lock still has, and that it is no longer true."""
    return status.Lock(0, 0, f"an unknown change (process {label.pid}, {label.what}, has ended)")
