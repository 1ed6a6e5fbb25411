# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories on the way to what root relies on: which of them others may change, and what mends each (privilege.md).

Rules:
- Every directory from `/` down is looked at, and every one that a link on the way leads through.
- Beside a process that means harm a directory must be root's and closed to the writing of group and others, a sticky
  one too: whoever may make names in it can be there before root is. A list of access shows in the group's bits.
- What is missing is no risk: root makes it. Nothing is changed but by `mend`, and only what was named.
"""

from __future__ import annotations

import os
import stat
from typing import List, NamedTuple, Sequence, Tuple

from slotcore import codes
from slotward import opening

MAX_LINKS = 40
PUBLIC = stat.S_ISVTX | stat.S_IWOTH
"""As /tmp is: closing it would break the host."""


class Risk(NamedTuple):
    """A directory that others may change, why so, and the commands that mend it; nothing does where it is everybody's."""

    path: str
    why: str
    run: str
    public: bool = False


def directories(path: str) -> List[str]:
    """The directories that the kernel walks through to `path` and, where it is one, itself; as far as they exist."""
    current, found, links = "/", ["/"], 0
    todo = [name for name in os.path.abspath(path).split("/") if name]
    while todo:
        name = todo.pop(0)
        if name == "..":
            current = os.path.dirname(current)
            continue
        place = os.path.join(current, name)
        try:
            mode = os.lstat(place).st_mode
            target = os.readlink(place) if stat.S_ISLNK(mode) else ""
        except OSError:
            break
        if target:
            links += 1
            if links > MAX_LINKS:
                break
            current = "/" if target.startswith("/") else current
            todo = [part for part in target.split("/") if part not in ("", ".")] + todo
        elif stat.S_ISDIR(mode):
            current = place
            found.append(place)
        else:
            break
    return list(dict.fromkeys(found))


def _risk(path: str) -> List[Risk]:
    try:
        found = os.lstat(path)
    except OSError:
        return []
    public = found.st_mode & PUBLIC == PUBLIC
    why, run = [], []
    if found.st_uid != 0:
        why.append(f"owned by uid {found.st_uid}")
        run.append(f"chown root {path}")
    if found.st_mode & 0o022:
        why.append(f"mode {stat.S_IMODE(found.st_mode):04o}, group {found.st_gid}")
        run.append(f"chmod go-w {path}")
    if public:
        run = [f"{path} is everybody's and stays so: configure a place elsewhere"]
    return [Risk(path, ", ".join(why), " && ".join(run), public)] if why else []


def at_risk(paths: Sequence[str]) -> Tuple[Risk, ...]:
    """Every directory on the ways to `paths` that others may change, from `/` downwards, each once."""
    walked = {directory for path in paths for directory in directories(path)}
    return tuple(risk for directory in sorted(walked) for risk in _risk(directory))


def refusal(risks: Sequence[Risk]) -> codes.Refused:
    """Every one of them, with what mends it."""
    said = "; ".join(f"{risk.path} ({risk.why}): {risk.run}" for risk in risks)
    return codes.refused(codes.DIRECTORY_UNSAFE, f"others than root may change what root relies on: {said}")


def mend(path: str) -> None:
    """Make this one directory root's and close it to others' writing; its own name is no link."""
    descriptor = opening.open_directory(path)
    try:
        os.fchown(descriptor, 0, -1)
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~0o022)
    finally:
        os.close(descriptor)


def give(path: str, uid: int, gid: int, mode: int) -> None:
    """Give a file or directory of root's this owner and mode; every way to it is root's, and its own name is no link."""
    descriptor = os.open(path, opening.READ)
    try:
        os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
