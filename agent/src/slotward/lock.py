# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a slots directory: one change at a time, its owner visible, a dead owner's lock free (field case S18).

- Only root can open the file: whoever may read a file may lock it too, and a lock that anybody can take stops updates.
- Who looks whether it is taken holds it shared for a moment; that is nobody's change, and is waited for.
- A file that is removed while it is held frees nothing: its holder is found by what it has open.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from typing import Iterator, Optional

from slotcore import codes, status
from slotcore import product as products
from slotward import host

MODE = 0o600
LOOKS = 50
LABEL_LOOKS = 10
"""Whoever has taken the lock writes who it is a moment later."""
LOOK_S = 0.02
REMOVED_S = 0.2
UNKNOWN = status.Lock(0, 0, "an unknown change")
MOST = 200


def _parse(data: bytes) -> Optional[status.Lock]:
    found = dict(part.partition("=")[::2] for part in data.decode("utf-8", "replace").split("\n") if "=" in part)
    try:
        age = int(host.uptime_s() - float(found["since"]))
        return status.Lock(int(found["pid"]), max(0, age), found["what"])
    except (KeyError, ValueError):
        return None


def holder(product: products.Product) -> Optional[status.Lock]:
    """Who holds the lock now; None when it is free, and for others than root, who cannot know."""
    try:
        descriptor = os.open(product.path("lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _of_removed(product)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        owner = None
        for _look in range(LABEL_LOOKS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = _parse(os.pread(descriptor, 4096, 0))
                if owner is not None and _lives(owner.pid):
                    return owner
                time.sleep(LOOK_S)
            else:
                return None
        return _by_the_kernel(descriptor, owner)
    finally:
        os.close(descriptor)


def _by_the_kernel(descriptor: int, label: Optional[status.Lock]) -> status.Lock:
    """Held, and the label names nobody who lives: another program, or one of ours that could not write who it is."""
    from slotward import lock_owner  # few locks are held by anybody but us, and every look pays for what it imports

    return lock_owner.of(descriptor) or (UNKNOWN if label is None else lock_owner.gone(label))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # what was written there may be no process's number
        return False
    except PermissionError:
        pass
    return pid > 0


def _busy(product: products.Product, owner: status.Lock) -> codes.Retryable:
    text = f"an update of {product.name} is already in progress: {owner.said}; try again when it has ended"
    return codes.Retryable(codes.IN_PROGRESS, text)


def _open(product: products.Product) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(product.path("lock"), flags, MODE)
    except FileNotFoundError:
        text = f"there is no {product.slots_dir}: run `slotward setup` first"
        raise codes.refused(codes.GUARD_NOT_INSTALLED, text) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file of its own: remove it", product.path("lock"))
    if os.geteuid() == 0 and found.st_uid != 0:
        os.fchown(descriptor, 0, -1)
    if stat.S_IMODE(found.st_mode) != MODE:
        os.fchmod(descriptor, MODE)  # whatever the umask made of it, or an earlier version
    return descriptor


def _of_removed(product: products.Product) -> Optional[status.Lock]:
    """Who holds the lock whose file is gone."""
    from slotward import removed_lock

    data = removed_lock.label(product.path("lock"))
    return None if data is None else _parse(data) or UNKNOWN


def _await_removed(product: products.Product, until: float) -> None:
    """Make no new lock while somebody holds one that was removed."""
    while os.path.isdir(product.slots_dir) and not os.path.lexists(product.path("lock")):
        owner = _of_removed(product)
        if owner is None:
            return
        if time.monotonic() >= until:
            raise _busy(product, owner)
        time.sleep(REMOVED_S)


def _is_there(product: products.Product, descriptor: int) -> bool:
    """Whether what is locked is the lock: its file may have been removed while it was waited for."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(product.path("lock")))
    except FileNotFoundError:
        return False


def _take(descriptor: int, product: products.Product, until: float) -> None:
    """Lock it; waits for those who only look, and until then for a change that is at work."""
    looks = 0
    while looks < LOOKS:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = holder(product)
            if owner is None:
                looks += 1
            elif time.monotonic() >= until:
                raise _busy(product, owner) from None
            time.sleep(LOOK_S)
        else:
            return
    raise _busy(product, UNKNOWN)


@contextlib.contextmanager
def held(product: products.Product, what: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock while changing the slots directory; raises Retryable `in-progress` when it is taken for so long, or at once."""
    descriptor = _held(product, time.monotonic() + wait_s)
    try:
        _sign(descriptor, what)
        yield
    finally:
        os.close(descriptor)


def _held(product: products.Product, until: float) -> int:
    """The lock, taken."""
    while True:
        _await_removed(product, until)
        descriptor = _open(product)
        try:
            _take(descriptor, product, until)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_there(product, descriptor):
            return descriptor
        os.close(descriptor)


def _sign(descriptor: int, what: str) -> None:
    said = "".join(char if char.isprintable() else "?" for char in what[:MOST])  # it may be the words of whoever asks
    text = f"pid={os.getpid()}\nsince={host.uptime_s():.2f}\nwhat={said}\n"
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode("utf-8"), 0)
    except OSError:
        return  # a full disk must not stop going back; the lock itself holds without its label
