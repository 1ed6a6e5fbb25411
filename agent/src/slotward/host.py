# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the host: the boot's clock, the links and records of a slots directory, the entrypoint.

Rules:
- Reading changes nothing and needs no lock; what a concurrent change makes of it is a valid earlier or later state.
- In use, a missing or torn `slots.json` or `update.json` is a broken record (I3); not in use, a missing one means zero.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Optional, Tuple

from slotcore import codes, records, settle
from slotcore import product as products

_MAX_SMALL = 64 * 1024


def uptime_s(proc: str = "/proc") -> float:
    """Seconds since boot on CLOCK_BOOTTIME, as the guard reads them (I10)."""
    with open(proc + "/uptime", encoding="ascii") as file:
        return float(file.read().split()[0])


def clock(proc: str = "/proc") -> settle.Clock:
    """This boot's clock in whole seconds, and its id."""
    with open(proc + "/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    return settle.Clock(int(uptime_s(proc)), boot_id)


def read_bytes(path: str, most: int = _MAX_SMALL) -> Optional[bytes]:
    """A file's bytes, at most `most` + 1 of them; None when there is no such file."""
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _part_of_trial(path: str) -> Optional[bytes]:
    """As `read_bytes`, for the trial's files; what is no plain file has nothing to say, and nobody waits for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return b""
        raise
    with open(descriptor, "rb") as file:
        return file.read(_MAX_SMALL + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _slot_of(path: str) -> Optional[str]:
    try:
        target = os.readlink(path)
    except OSError:
        return None
    return target if target in products.SLOTS else None


def entrypoint_kind(product: products.Product) -> str:
    """What is at the entrypoint: `missing`, `file`, `ours` (a link to `current`) or `elsewhere`."""
    try:
        found = os.lstat(product.entrypoint)
    except FileNotFoundError:
        return "missing"
    if not stat.S_ISLNK(found.st_mode):
        return "file" if stat.S_ISREG(found.st_mode) else "elsewhere"
    target = os.path.join(os.path.dirname(product.entrypoint), os.readlink(product.entrypoint))
    return "ours" if os.path.normpath(target) == os.path.normpath(product.path("current")) else "elsewhere"


def _records(
    product: products.Product, in_use: bool
) -> Tuple[records.Slots, records.Update, Optional[Tuple[str, str]]]:
    slots: records.Slots = {}
    update = records.Update()
    broken: Optional[Tuple[str, str]] = None
    slots_path, update_path = product.path("slots.json"), product.path("update.json")
    for path in (slots_path, update_path):
        try:
            data = read_bytes(path, records.MAX_BYTES)
            if data is None:
                if in_use:
                    raise codes.BrokenRecord(path, "it is missing although the slots are in use")
            elif path == slots_path:
                slots = records.parse_slots(data, path)
            else:
                update = records.parse_update(data, path)
        except OSError as error:
            broken = (path, f"it cannot be read: {error.strerror}")
        except codes.BrokenRecord as error:
            broken = (error.file, error.why)
    return slots, update, broken


def read_state(product: products.Product) -> settle.State:
    """Everything the decisions need of the slots directory. Raises OSError only when a claim's file cannot be read."""
    in_use = os.path.lexists(product.path("current"))
    slots, update, broken = _records(product, in_use)
    good = _slot_of(product.path("good"))
    current = _slot_of(product.path("current"))
    if in_use and good is None and broken is None:
        broken = (product.path("good"), "it names no slot, so nobody knows which release was confirmed last")
    if good not in (None, current) and not os.path.exists(product.path("good")):
        good, why = None, f"it names slot {good}, which is not there, so there is nothing to go back to"  # as the guard
        broken = broken or (product.path("good"), why)
    return settle.State(
        current=current,
        good=good,
        back=_slot_of(product.path("back")),
        in_use=in_use,
        entrypoint=entrypoint_kind(product),
        trial=_part_of_trial(product.path("trial")),
        confirm=_part_of_trial(product.path("trial.confirm")),
        revert=_part_of_trial(product.path("trial.revert")),
        log=_part_of_trial(product.path("trial.log")) or b"",
        sources=_part_of_trial(product.path("trial.sources")) or b"",
        slots=slots,
        update=update,
        broken=broken,
    )


def damage(product: products.Product, state: settle.State) -> str:
    """What is wrong with the bytes that a start runs: "" when they are those of their slot's record, or nothing is in use.

    A broken record says nothing about bytes; it is told by itself.
    """
    if not state.in_use or state.broken is not None:
        return ""
    path = product.path("current")
    entry = state.slots.get(state.current or "")
    if entry is None:
        return f"{path} names no slot with a record"
    try:
        with open(path, "rb") as file:
            mode, digest = os.fstat(file.fileno()).st_mode, sha256_of(file)
    except OSError as error:
        return f"the program that {path} names cannot be read: {error.strerror}"
    if digest != entry.sha256:
        return f"slot {state.current} holds other bytes than were verified for {entry.version}"
    return "" if mode & 0o111 else f"slot {state.current} is not executable"


def sha256_of(file: BinaryIO) -> str:
    """SHA-256 of what is left to read of an open file."""
    import hashlib

    digest = hashlib.sha256()
    for block in iter(lambda: file.read(1 << 18), b""):
        digest.update(block)
    return digest.hexdigest()


def names(product: products.Product) -> Tuple[str, ...]:
    """The names in the slots directory, for finding what a cut left there; a directory was left by nobody of ours."""
    try:
        with os.scandir(product.slots_dir) as entries:
            return tuple(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
    except OSError:
        return ()
