# SPDX-License-Identifier: GPL-3.0-or-later
"""Appending to the audit log, and reading all of it (trust.md, section 5).

Rules:
- One writer at a time, by a lock on the file itself, which nobody but root can open; waiting for it has an end.
- A line is one write and one fsync. What could not be written in full is cut off again.
- An append that a power cut tore is cut off by the next one, which says so in a line of its own.
- A file that is full is renamed, never written again; the next line goes into a new one.
- Nothing is appended to a log whose last line cannot be believed.
- What the daemon's account asks for in vain is written so often and no more: it must not push what is older out of the log.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import Iterator, List, NamedTuple, Optional, Tuple

from slotcore import audit, audit_chain, codes
from slotward import audit_tail, executor, faults

WAIT_S = 2.0
MODE = 0o640
WRITE = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_READ = 4 * audit_chain.MAX_FILE
REFUSALS, WITHIN_S = 60, 3600
"""So many refusals of what the daemon's account asked for are written in so many seconds; the journal is told of all."""
LOOK_BACK = 256 * 1024
OF_ROOT = "helper:root"


class Log(NamedTuple):
    """The open and locked log: its end, and the last line of the chain, which may be in an earlier file."""

    directory: str
    descriptor: int
    tail: audit_tail.Tail
    last: Optional[bytes]


def path_of(directory: str, name: str = audit_chain.NAME) -> str:
    """The path of one of the log's files."""
    return directory + "/" + name


def _locked(path: str) -> int:
    """The log, open and locked. A file that was closed while we waited is not the log any more."""
    until = time.monotonic() + WAIT_S
    while True:
        descriptor = audit_tail.open_plain(path, WRITE, MODE)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
                return descriptor
        os.close(descriptor)
        if time.monotonic() >= until:
            raise codes.Retryable(codes.IN_PROGRESS, f"{path} has been written by another process for {WAIT_S:g} s")
        time.sleep(WAIT_S / 100)


@contextlib.contextmanager
def held(directory: str) -> Iterator[Log]:
    """The log, made when there is none. Raises OSError, Retryable when it stays locked, BrokenAudit when it is none."""
    path = path_of(directory)
    descriptor = _locked(path)
    try:
        tail = audit_tail.tail_of(descriptor, path)
        last = audit_tail.last_closed_line(directory) if tail.last is None else tail.last
        try:
            audit.head_of(last)
        except audit.BadLine as bad:
            raise audit_tail.broken(path, f"its last line is damaged: {bad}") from None
        yield Log(directory, descriptor, tail, last)
    finally:
        os.close(descriptor)


def _healed(log: Log, product: str) -> audit.Event:
    why = f"{path_of(log.directory)} ended with {log.tail.torn} bytes of a line that was never finished; they were cut off"
    return audit.Event(audit.RESTORED, product, int(time.time()), codes.AUDIT_BROKEN, why=why)


def _write(log: Log, data: bytes) -> None:
    keep = log.tail.size - log.tail.torn
    if log.tail.torn:
        os.ftruncate(log.descriptor, keep)
    if keep == 0:
        os.fchmod(log.descriptor, MODE)
    faults.hit("audit.0.Append")
    try:
        if os.write(log.descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path_of(log.directory))
        os.fsync(log.descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(log.descriptor, keep)
        raise
    faults.hit("audit.1.Sync")
    if keep == 0:
        executor.sync_path(log.directory)


def _close(log: Log) -> None:
    """Give the full file the name of its first line, and let the oldest go."""
    path = path_of(log.directory)
    first = os.pread(log.descriptor, audit.MAX_LINE + 1, 0).partition(b"\n")[0]
    try:
        closed = path_of(log.directory, audit_chain.closed_name(audit.parse(first).number))
    except audit.BadLine as bad:
        raise audit_tail.broken(path, f"its first line is damaged: {bad}") from None
    if os.path.lexists(closed):
        raise audit_tail.broken(path, f"its first line is that of {closed} too")
    os.rename(path, closed)
    executor.sync_path(log.directory)
    for name in audit_chain.surplus(os.listdir(log.directory)):
        os.unlink(path_of(log.directory, name))


def _is_there(log: Log, event: audit.Event) -> bool:
    """Whether the chain has the event of this trial already; without an id, the event of this moment."""
    needle = f'"id":"{event.trial_id}"' if event.trial_id else f'{{"at":{event.at},'
    for name in reversed(names(log.directory)):
        data = read_file(path_of(log.directory, name))
        if needle.encode("ascii") not in data:
            continue
        for line in data.split(b"\n"):
            if needle.encode("ascii") in line and _same(line, event):
                return True
    return False


def _same(line: bytes, event: audit.Event) -> bool:
    try:
        found = audit.parse(line).event
    except audit.BadLine:
        return False
    if event.event == audit.ACCEPTED and (found.to_version, found.sha256) != (event.to_version, event.sha256):
        return False  # what was accepted under this id before was another release
    return (found.event, found.trial_id) == (event.event, event.trial_id) and bool(
        event.trial_id or found.at == event.at
    )


def _is_the_accounts(who: str) -> bool:
    """Whether it is root's part for the daemon's account that speaks (privilege.md, sections 4 and 6)."""
    return who == "slotward-apply.service" or (who.startswith("helper:") and who != OF_ROOT)


def _lately(log: Log) -> List[bytes]:
    """The last lines of the file that is written; the first of them may be cut."""
    data = os.pread(log.descriptor, LOOK_BACK, max(0, log.tail.size - LOOK_BACK))
    return data.split(b"\n")[:-1]


def _goes_on(log: Log, event: audit.Event) -> bool:
    return event.event in audit.STEPS and audit.goes_on(_lately(log), event)


def _demand_room(log: Log, event: audit.Event) -> None:
    """Raise Retryable when the daemon's account has had as many refusals written lately as it may."""
    if event.event != audit.REFUSED or not _is_the_accounts(event.who):
        return
    found = 0
    for line in _lately(log):
        with contextlib.suppress(audit.BadLine):
            one = audit.parse(line).event
            lately = event.at - WITHIN_S < one.at <= event.at
            found += lately and (one.event, one.who) == (event.event, event.who)
    if found >= REFUSALS:
        text = f"{found} refusals of {event.who} were written in the last {WITHIN_S} s: the journal has this one"
        raise codes.Retryable(codes.TOO_MANY, text)


def append(directory: str, event: audit.Event, once: bool = False) -> Tuple[bytes, ...]:
    """Append `event` durably; the lines that were written, none when it is there already (`once`) or repeats the last.

    Raises OSError when it cannot be written, Retryable when another holds the log or it is one refusal too many,
    BrokenAudit when it is damaged.
    """
    while True:
        with held(directory) as log:
            if audit.repeats(log.last, event) or _goes_on(log, event) or (once and _is_there(log, event)):
                return ()
            _demand_room(log, event)
            lines: List[bytes] = []
            for one in (_healed(log, event.product), event) if log.tail.torn else (event,):
                lines.append(audit.append(lines[-1] if lines else log.last, one))
            data = b"".join(line + b"\n" for line in lines)
            if not log.tail.torn and audit_chain.is_full(log.tail.size, len(data)):
                _close(log)
                continue
            _write(log, data)
            return tuple(lines)


def check(directory: str) -> None:
    """Raise BrokenAudit when nothing could be appended; a log that is missing, or torn at its end, can be."""
    path = path_of(directory)
    last: Optional[bytes] = None
    with contextlib.suppress(FileNotFoundError):
        descriptor = audit_tail.open_plain(path)
        try:
            last = audit_tail.tail_of(descriptor, path).last
        finally:
            os.close(descriptor)
    try:
        audit.head_of(last if last is not None else audit_tail.last_closed_line(directory))
    except FileNotFoundError:
        return
    except audit.BadLine as bad:
        raise audit_tail.broken(path, f"its last line is damaged: {bad}") from None


def names(directory: str) -> List[str]:
    """The log's files, oldest first."""
    found = os.listdir(directory)
    return [name for _first, name in audit_chain.closed(found)] + [audit_chain.NAME] * (audit_chain.NAME in found)


def read_file(path: str) -> bytes:
    """All of one file; one that is larger than is ever written is read up to that size."""
    descriptor = audit_tail.open_plain(path)
    with open(descriptor, "rb") as file:
        return file.read(MAX_READ + 1)
