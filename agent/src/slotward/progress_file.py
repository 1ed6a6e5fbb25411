# SPDX-License-Identifier: GPL-3.0-or-later
"""`S/progress.json`: how far an update is, for whoever looks on (products.md, section 8).

Rules:
- Never a record, never durable: written under a name of its own and renamed, without waiting for the disk, and what
  cannot be written is not (a full disk, another account than root). The work never fails for it.
- At most about twice a second, but for a few in a row where little moves; a new phase, a wait and a failure are written at once.
- One process works on one update, so what it is at is this module's own state.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from slotcore import codes, phases, records
from slotcore import product as products

EVERY_S = 0.5
IN_A_ROW = 3
NEW = ".tmp"  # what settling sweeps, should a cut leave it
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SLACK_S = 5.0


class _File:
    """The file of one update."""

    def __init__(self, product: products.Product, to: str) -> None:
        self.path = product.path(phases.NAME)
        self.found = phases.Progress(phases.PREPARE, to, 0, os.getpid())
        self.done = 0
        self._free_at = 0.0

    def write(self, found: phases.Progress, at_once: bool = True) -> None:
        """Say this from now on."""
        self.found, now = found, time.monotonic()
        if at_once or now >= self._free_at - EVERY_S * IN_A_ROW:
            self._free_at = max(self._free_at, now) + EVERY_S
            _write(self.path, found._replace(at=int(time.time())))


_working: List[_File] = []
"""The file of the update that this process works on; none, or one."""


def _write(path: str, found: phases.Progress) -> None:
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + NEW)
        descriptor = os.open(path + NEW, FLAGS, 0o644)
        try:
            os.fchmod(descriptor, 0o644)
            os.write(descriptor, phases.render(found))
        finally:
            os.close(descriptor)
        os.rename(path + NEW, path)


def _remove(path: str) -> None:
    for name in (path + NEW, path):
        with contextlib.suppress(OSError):
            os.unlink(name)


@contextlib.contextmanager
def of(product: products.Product, to: str) -> Iterator[None]:
    """Inside, this process is at work on an update to that version (the lock is held); once more inside changes nothing."""
    if _working:
        yield
        return
    now = _File(product, to)
    _working.append(now)
    try:
        now.write(now.found)
        yield
    except BaseException as error:
        failed(getattr(error, "code", codes.OS_ERROR))
        raise
    finally:
        _working.clear()


def phase(name: str) -> None:
    """A phase begins."""
    for now in _working:
        if now.found.phase != name or now.found.retry is not None:
            now.write(phases.Progress(name, now.found.to, 0, os.getpid()))


def moved(done: int, total: int, rate: float) -> None:
    """So much of the phase is done."""
    for now in _working:
        further = done > now.done
        retry = None if further else now.found.retry  # a try that brings nothing new is still the same wait
        at_once = retry is not now.found.retry or (further and done >= total)
        percent, now.done = phases.percent_of(done, total), done
        now.write(now.found._replace(percent=percent, rate=max(0, int(rate)), retry=retry), at_once)


def waits(why: str, wait_s: float, left_s: float) -> None:
    """Something failed that is tried again after `wait_s`; in `left_s` no more tries begin."""
    for now in _working:
        at, said = time.time(), records.fitting(why)[: phases.MAX_TEXT]
        retry = phases.Retry(said, int(at + wait_s), int(at + max(wait_s, left_s)))
        now.write(now.found._replace(retry=retry, rate=None))


def failed(code: str) -> None:
    """The phase that this process is in has failed."""
    for now in _working:
        found = now.found
        now.write(found._replace(failed_in=found.phase, code=code, pid=0, retry=None, rate=None))


def nothing_to_do() -> None:
    """What was asked for runs already."""
    for now in _working:
        _remove(now.path)


def ended(product: products.Product, last: records.Last) -> None:
    """The trial has ended, whoever ended it."""
    path = product.path(phases.NAME)
    if last.state == "confirmed":
        _remove(path)
        return
    failed_in = phases.SWAP if last.state == "abandoned" else phases.TRIAL
    _write(path, phases.Progress(phases.GO_BACK, last.to_version, last.at, 0, failed_in=failed_in, code=last.code))


def shown(product: products.Product, settling: str, to: str) -> Optional[Dict[str, Any]]:
    """What is told of an update at work, or of the one that failed last; None when there is nothing to tell.

    `settling` is what settling would do with the trial in flight, and `to` its version, as the records have them.
    """
    found = _read(product.path(phases.NAME))
    at_work = found is not None and _is_at_work(found)
    told = phases.shown(found, at_work, phases.OF_ACTIONS.get(settling, ""), to)
    return phases.as_json(told) if told is not None else None


def _read(path: str) -> Optional[phases.Progress]:
    from slotward import host

    try:
        data = host.read_record(path, phases.MAX_BYTES)
    except (OSError, codes.BrokenRecord):
        return None
    return phases.parse(data) if data is not None else None


def _is_at_work(found: phases.Progress) -> bool:
    """Whether the process that wrote it is still there, and not another one under its number."""
    from slotward import host, process

    began = process.started_s(found.pid) if found.pid else None
    return began is not None and host.uptime_s() - began + SLACK_S >= time.time() - found.at
