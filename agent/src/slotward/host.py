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
from typing import TYPE_CHECKING, BinaryIO, Callable, List, Optional, Tuple, TypeVar

from slotcore import codes, records, settle
from slotcore import product as products
from slotward import opening

if TYPE_CHECKING:
    from slotcore import trust_record

_MAX_SMALL = 64 * 1024

T = TypeVar("T")


def uptime_s(proc: str = "/proc") -> float:
    """Seconds since boot on CLOCK_BOOTTIME, as the guard reads them (I10)."""
    with open(proc + "/uptime", encoding="ascii") as file:
        return float(file.read().split()[0])


def clock(proc: str = "/proc") -> settle.Clock:
    """This boot's clock in whole seconds, and its id."""
    with open(proc + "/sys/kernel/random/boot_id", encoding="ascii") as file:
        return settle.Clock(int(uptime_s(proc)), file.read().strip())


def open_named(path: str) -> int:
    """A descriptor of a file that an operator or the configuration names: a link is followed, nobody waits for a FIFO.

    Raises OSError, for what is no plain file too.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENODEV):
            raise
        raise OSError(errno.EINVAL, "it is no plain file", path) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file", path)
    return descriptor


def read_bytes(path: str, most: int = _MAX_SMALL) -> Optional[bytes]:
    """The bytes of a named file, at most `most` + 1 of them; None when there is no such file."""
    try:
        with open(open_named(path), "rb") as file:
            return file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None


def owner_problem(found: os.stat_result) -> str:
    """Why what was found could be somebody else's word than root's (or whoever runs this); "" when it could not."""
    if found.st_uid not in (0, os.geteuid()):
        return f"is owned by uid {found.st_uid}, not by root: chown root it if you trust it"
    if found.st_mode & 0o022:
        return f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w it if you trust it"
    return ""


def way_problem(directory: str) -> str:
    """What is wrong with a directory on the way to a file; in a sticky one nobody replaces another's file."""
    while True:
        found = os.stat(directory)
        if found.st_uid not in (0, os.geteuid()):
            return f"lies in {directory}, which is owned by uid {found.st_uid}, not by root"
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            return f"lies in {directory}, which others may write (mode {stat.S_IMODE(found.st_mode):04o})"
        if directory == "/":
            return ""
        directory = os.path.dirname(directory)


def _part_of_trial(path: str) -> Optional[bytes]:
    """As `read_bytes`, for the trial's files; what is no plain file has nothing to say, and nobody waits for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return settle.ODD
        raise
    try:
        return os.read(descriptor, _MAX_SMALL + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else settle.ODD
    finally:
        os.close(descriptor)


def _lines_of_trial(path: str) -> bytes:
    """The log or the sources of a trial; nothing when there are none."""
    data = _part_of_trial(path)
    return b"" if data is None or data == settle.ODD else data


def read_record(path: str, most: int = records.MAX_BYTES) -> Optional[bytes]:
    """A record's bytes, at most `most` + 1 of them; None when there is none.

    Raises:
        BrokenRecord: it is no plain file, or somebody else than root could have written it; nobody waits for it.

    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise codes.BrokenRecord(path, "it is no plain file") from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise codes.BrokenRecord(path, "it is no plain file")
        if found.st_uid not in (0, os.geteuid()):
            raise codes.BrokenRecord(path, f"it is owned by uid {found.st_uid}, not by root")
        if found.st_mode & 0o022:
            raise codes.BrokenRecord(path, f"others may write it (mode {stat.S_IMODE(found.st_mode):04o})")
        return os.read(descriptor, most + 1)  # one read is all of a plain file
    finally:
        os.close(descriptor)


def _slot_of(path: str) -> Optional[str]:
    target = opening.link_at(path)
    return target if target in products.SLOTS else None


def kind_at(path: str, target: str) -> str:
    """What is at a path: `missing`, `file`, `ours` (a link to `target`) or `elsewhere`."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "missing"
    if not stat.S_ISLNK(found.st_mode):
        return "file" if stat.S_ISREG(found.st_mode) else "elsewhere"
    leads = os.path.join(os.path.dirname(path), os.readlink(path))
    return "ours" if os.path.normpath(leads) == os.path.normpath(target) else "elsewhere"


def entrypoint_kind(product: products.Product) -> str:
    """What is at the entrypoint; `ours` is a link to the program of `current`."""
    return kind_at(product.entrypoint, product.program_path("current"))


def _record(
    product: products.Product, name: str, parse: Callable[[bytes, str], T], nothing: T, damaged: List[settle.Damage]
) -> T:
    """What the record `name` says; what cannot be believed says `nothing`, and joins the damaged (I3)."""
    path, there = product.path(name), True
    try:
        data = read_record(path)
        if data is not None:
            return parse(data, path)
        if not opening.is_there(product.path("current")):
            return nothing
        there, why = False, "it is missing although the slots are in use"
    except OSError as error:
        there, why = False, f"it cannot be read: {error.strerror}"
    except codes.BrokenRecord as error:
        why = error.why
    damaged.append(settle.Damage(name, why, there))
    return nothing


def read_state(product: products.Product) -> settle.State:
    """Everything the decisions need of the slots directory. Raises OSError only when a link or a claim's file cannot be read."""
    damaged: List[settle.Damage] = []
    nothing: records.Slots = {}
    slots = _record(product, "slots.json", records.parse_slots, nothing, damaged)
    update = _record(product, "update.json", records.parse_update, records.Update(), damaged)
    trust, trust_known = _trust(product, update, damaged)
    state = settle.State(
        current=_slot_of(product.path("current")),
        good=_slot_of(product.path("good")),
        back=_slot_of(product.path("back")),
        in_use=opening.is_there(product.path("current")),
        entrypoint=entrypoint_kind(product),
        trial=_part_of_trial(product.path("trial")),
        confirm=_part_of_trial(product.path("trial.confirm")),
        revert=_part_of_trial(product.path("trial.revert")),
        log=_lines_of_trial(product.path("trial.log")),
        sources=_lines_of_trial(product.path("trial.sources")),
        slots=slots,
        update=update,
        broken=(product.path(damaged[-1].name), damaged[-1].why) if damaged else None,
        trust=trust,
        trust_known=trust_known,
        helper=_slot_of(product.path("helper")) if product.helper_unit else None,
        helper_back=_slot_of(product.path("helper.back")) if product.helper_unit else None,
        snapshot=_part_of_trial(product.path("snapshot")),
    )
    state = _with_good(product, state)
    if damaged or _has_damaged_trial(state):
        from slotward import broken

        return broken.examined(product, state, damaged)
    return state


def _has_damaged_trial(state: settle.State) -> bool:
    there = [data for data in (state.trial, state.confirm, state.revert) if data is not None]
    if not there:
        return False
    from slotcore import trial  # few starts meet a trial, and every start pays for what it imports

    return any(trial.is_damaged(data) for data in there)


def _trust(
    product: products.Product, update: records.Update, damaged: List[settle.Damage]
) -> Tuple[Optional[trust_record.Trust], bool]:
    """The record of trust, and whether its absence is to be believed: `update.json` says which generation must be there."""
    path = product.path("trust.json")
    if not os.path.lexists(path):
        if update.trust:
            why = f"it is missing, and its generation {update.trust} was written"
            damaged.append(settle.Damage("trust.json", why, there=False))
        return None, not any(damage.name in ("update.json", "trust.json") for damage in damaged)
    from slotcore import trust_record  # few hosts have one, and every start pays for what it imports

    found = _record(product, "trust.json", trust_record.parse, None, damaged)
    if found is not None and found.generation < update.trust:
        why = f"its generation is {found.generation}, and {update.trust} was written: it is an older one"
        damaged.append(settle.Damage("trust.json", why, there=True))
        return None, False
    return found, found is not None


def _with_good(product: products.Product, state: settle.State) -> settle.State:
    """The state without a `good` that leads nowhere; in use, not to know what starts (a trial goes back) or is good is broken."""
    good, why = state.good, ""
    if state.in_use and state.current is None and (state.trial, state.confirm, state.revert) == (None, None, None):
        said = (product.path("current"), "it names no slot, so nothing starts from it")
        state = state._replace(broken=state.broken or said)
    if state.in_use and good is None:
        why = "it names no slot, so nobody knows which release was confirmed last"
    elif good not in (None, state.current) and not os.path.exists(product.path("good")):
        good, why = None, f"it names slot {good}, which is not there, so there is nothing to go back to"  # as the guard
    if not why:
        return state
    return state._replace(good=good, broken=state.broken or (product.path("good"), why))


def damage(product: products.Product, state: settle.State) -> str:
    """What is wrong with the bytes that a start runs: "" when they are those of their slot's record, or nothing is in use.

    A broken record says nothing about bytes; it is told by itself.
    """
    if not state.in_use or state.broken is not None:
        return ""
    entry = state.slots.get(state.current or "")
    if entry is None or state.current is None:
        return f"{product.path('current')} names no slot with a record"
    from slotward import slots  # only setup and doctor read the bytes, and every start pays for what it imports

    return slots.problem(product, state.current, entry, named="current")


def machine_id() -> str:
    """By which name a permit knows this host; "" when it has none, as before its first boot is complete."""
    try:
        data = read_bytes("/etc/machine-id", 64)
    except OSError:
        return ""
    text = (data or b"").decode("ascii", "replace").strip()
    return text if len(text) == 32 and set(text) <= set("0123456789abcdef") else ""


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
