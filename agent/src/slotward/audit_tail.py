# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of the audit log: opening it safely, its last whole line, and the head that every `update` tells.

Rules:
- Only a plain file with one link, root's (or whoever runs this) and writable by nobody else, is an audit log.
- What follows the last newline was never finished: a power cut in the middle of an append. So was a last line with a
  NUL in it, which no line of ours has: its blocks never got to the disk.
- Light: this is read by every `update`, so nothing is imported that only a writer needs.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, List, NamedTuple, Optional

from slotcore import codes

NAME = "audit.log"
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
TAIL = 32 * 1024
ZEROS = "0" * 64
WAY_OUT = ": see `slotward audit --verify`, then `slotward audit --restart-chain`"


class Tail(NamedTuple):
    """The last whole line of a file (None: it has none), and how many bytes after it were never finished."""

    size: int
    last: Optional[bytes]
    torn: int


def broken(path: str, why: str) -> codes.BrokenAudit:
    """The error for a log that cannot be gone on with, with the way out."""
    return codes.BrokenAudit(path, why + WAY_OUT)


def open_plain(path: str, flags: int = READ, mode: int = 0o640) -> int:
    """A descriptor of the log; raises BrokenAudit for what is no plain file of root's, OSError for the rest."""
    try:
        descriptor = os.open(path, flags, mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        from slotward import opening

        if error.errno not in opening.NOT_PLAIN:
            raise
        raise broken(path, _odd(os.lstat(path).st_mode)) from None
    problem = _problem(os.fstat(descriptor))
    if problem:
        os.close(descriptor)
        raise broken(path, problem)
    return descriptor


def _odd(mode: int) -> str:
    from slotward import opening

    return f"it is {opening.kind(mode)}, not a plain file"


def _problem(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return _odd(found.st_mode)
    if found.st_uid not in (0, os.geteuid()):
        return f"it is owned by uid {found.st_uid}, not by root"
    if found.st_mode & 0o022:
        return f"it may be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return f"it has {found.st_nlink} links, not one" if found.st_nlink > 1 else ""


def tail_of(descriptor: int, path: str) -> Tail:
    """The end of an open log; raises BrokenAudit when no line can be found there."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, TAIL, max(0, size - TAIL))
    whole, end = size <= TAIL, len(data)
    while True:
        end = data.rfind(b"\n", 0, end) + 1
        if end == 0:
            if whole:
                return Tail(size, None, size)
            raise broken(path, f"its last {TAIL} bytes are no line")
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if begin == 0 and not whole:
            raise broken(path, f"its last {TAIL} bytes are no line")
        if b"\0" not in data[begin:end]:
            return Tail(size, data[begin : end - 1], len(data) - end)
        end = begin


def newest_closed(directory: str) -> Optional[str]:
    """The path of the file that was closed last, None when there is none."""
    found: List[int] = []
    for name in os.listdir(directory):
        number = name[len(NAME) + 1 :]
        if name.startswith(NAME + ".") and number.isascii() and number.isdigit() and number[0] != "0":
            found.append(int(number))
    return f"{directory}/{NAME}.{max(found)}" if found else None


def last_closed_line(directory: str) -> Optional[bytes]:
    """The last line of the file that was closed last; a closed file ends with a whole line."""
    path = newest_closed(directory)
    if path is None:
        return None
    descriptor = open_plain(path)
    try:
        tail = tail_of(descriptor, path)
    finally:
        os.close(descriptor)
    if tail.torn or tail.last is None:
        raise broken(path, f"it ends with {tail.torn} bytes of a line that was never finished, and was closed")
    return tail.last


def _last_line(directory: str) -> Optional[bytes]:
    path = f"{directory}/{NAME}"
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return last_closed_line(directory)
    try:
        tail = tail_of(descriptor, path)
    finally:
        os.close(descriptor)
    return last_closed_line(directory) if tail.last is None else tail.last


def _sha256(data: bytes) -> str:
    """As hashlib's, from the interpreter's own module: hashlib costs a fifth of a bare start."""
    for name in ("_sha2", "_sha256"):
        try:
            module: Any = __import__(name)
        except ImportError:
            continue
        return str(module.sha256(data).hexdigest())
    import hashlib

    return hashlib.sha256(data).hexdigest()


def head(directory: str) -> Optional[Dict[str, Any]]:
    """`{"n", "hash"}` of the last line; None where it cannot be read or is damaged, which doctor tells."""
    import json

    try:
        line = _last_line(directory)
        if line is None:
            return {"n": 0, "hash": ZEROS}
        number = json.loads(line)["n"]
    except FileNotFoundError:
        return {"n": 0, "hash": ZEROS}
    except (OSError, codes.BrokenAudit, ValueError, KeyError, TypeError, RecursionError):
        return None
    return {"n": number, "hash": _sha256(line)} if isinstance(number, int) else None
