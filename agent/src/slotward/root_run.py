# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether root may run a program by its path: what it leads to, and everything on the way there, is root's alone.

Rules:
- Every link on the way counts, and the directory that holds it: whoever can replace one of them chooses what runs.
"""

from __future__ import annotations

import errno
import os
import stat

from slotward import host

MOST_LINKS = 40
"""As the kernel has it."""


def problem(path: str) -> str:
    """Why somebody else than root could choose what runs by an absolute path; "" when nobody could. Raises OSError."""
    place, left, links = "/", path.split("/")[::-1], 0
    while left:
        name = left.pop()
        if name in ("", ".", ".."):
            place = os.path.dirname(place) if name == ".." else place
            continue
        here = os.path.join(place, name)
        found = os.lstat(here)
        if not stat.S_ISLNK(found.st_mode):
            place = here
            continue
        why = host.way_problem(place)
        if found.st_uid not in (0, os.geteuid()):
            why = f"is owned by uid {found.st_uid}, not by root"
        if why:
            return f"is reached by the link {here}, which {why}"
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        leads = os.readlink(here)
        place = "/" if leads.startswith("/") else place
        left += leads.split("/")[::-1]
    return host.owner_problem(os.stat(place)) or host.way_problem(os.path.dirname(place))
