# SPDX-License-Identifier: GPL-3.0-or-later
"""The trial record: KEY=value lines that sh and Python read alike (node.md, section 3; DESIGN 4).

Rules:
- Each key exactly once, each line ended by a newline, values of a narrow alphabet, at most 4,096 bytes.
- Numbers are plain decimals of at most 15 digits without a leading zero.
- Anything else is a bad record, and a bad record counts as past its deadline: parsing answers None, never raises.
- `trial.revert` may carry one more line, `REASON=<code>`, and that line may be torn.
- A deadline is whole seconds of /proc/uptime in one boot (I10).
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Tuple

from . import product as products

MAX_BYTES = 4096
LOG_HEADER = b"log 1".ljust(63, b"#") + b"\n"
SNAPSHOT_DUE = b"snapshot due\n"
"""In the log of a trial before whose first start the data is to be kept."""
UNIT_DUE = b"unit due\n"
"""In the log of a trial whose release brings a unit file, which systemd has not read yet; then it has."""
UNIT_READ = b"unit read\n"
MOVED, RELOADED = b"moved 0\n", b"reloaded 0\n"
"""Going back with a unit file: the links have moved, systemd has read it again. The guard writes the time, which nobody reads."""
CRASHES_TO_GO_BACK = 4

_LINE = re.compile(rb"([A-Z][A-Z0-9_]*)=([A-Za-z0-9._:/+=-]+)\n")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{16}")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REASON = re.compile(rb"REASON=([a-z0-9-]{1,64})\n")
_ONLY_REASON = re.compile(rb"(?:REASON=[a-z0-9-]{0,64}\n?)?")


class Trial(NamedTuple):
    """A release on trial: from which slot to which, and how long (lengths and deadline in seconds)."""

    trial_id: str
    product: str
    from_version: str
    to_version: str
    from_slot: str
    to_slot: str
    sequence: int
    boot_id: str
    length_s: int
    deadline_s: int
    boots_left: int
    command: str
    from_sha256: str
    to_sha256: str


_KEYS = (
    "SPEC",
    "ID",
    "PRODUCT",
    "FROM_VERSION",
    "TO_VERSION",
    "FROM_SLOT",
    "TO_SLOT",
    "SEQUENCE",
    "BOOT_ID",
    "LENGTH_S",
    "DEADLINE_S",
    "BOOTS_LEFT",
    "STARTS",
    "COMMAND",
    "FROM_SHA256",
    "TO_SHA256",
)


def render_trial(trial: Trial) -> bytes:
    """The record's bytes, keys in the order of node.md."""
    values = (
        "1",
        trial.trial_id,
        trial.product,
        trial.from_version,
        trial.to_version,
        trial.from_slot,
        trial.to_slot,
        str(trial.sequence),
        trial.boot_id,
        str(trial.length_s),
        str(trial.deadline_s),
        str(trial.boots_left),
        "0",
        trial.command,
        trial.from_sha256,
        trial.to_sha256,
    )
    return "".join(f"{key}={value}\n" for key, value in zip(_KEYS, values)).encode("ascii")


def _lines(data: bytes) -> Optional[Dict[str, str]]:
    if not data or len(data) > MAX_BYTES or not data.endswith(b"\n"):
        return None
    found: Dict[str, str] = {}
    for line in data[:-1].split(b"\n"):
        match = _LINE.fullmatch(line + b"\n")
        if match is None:
            return None
        key = match.group(1).decode("ascii")
        if key in found:
            return None
        found[key] = match.group(2).decode("ascii")
    return found if set(found) == set(_KEYS) else None


def _numbers(found: Dict[str, str]) -> Optional[Dict[str, int]]:
    names = ("SPEC", "SEQUENCE", "LENGTH_S", "DEADLINE_S", "BOOTS_LEFT", "STARTS")
    if any(_NUMBER.fullmatch(found[name]) is None for name in names):
        return None
    return {name: int(found[name]) for name in names}


def _is_sound(found: Dict[str, str], numbers: Dict[str, int]) -> bool:
    return (
        numbers["SPEC"] == 1
        and products.MIN_TRIAL_LENGTH_S <= numbers["LENGTH_S"] <= products.MAX_TRIAL_LENGTH_S
        and numbers["BOOTS_LEFT"] <= 9
        and _ID.fullmatch(found["ID"]) is not None
        and _BOOT_ID.fullmatch(found["BOOT_ID"]) is not None
        and found["FROM_SLOT"] in products.SLOTS
        and found["TO_SLOT"] == products.other_slot(found["FROM_SLOT"])
        and _HEX64.fullmatch(found["FROM_SHA256"]) is not None
        and _HEX64.fullmatch(found["TO_SHA256"]) is not None
    )


def parse_trial(data: bytes) -> Optional[Trial]:
    """The trial, or None when the record is bad in any way."""
    found = _lines(data)
    if found is None:
        return None
    numbers = _numbers(found)
    if numbers is None or not _is_sound(found, numbers):
        return None
    return Trial(
        trial_id=found["ID"],
        product=found["PRODUCT"],
        from_version=found["FROM_VERSION"],
        to_version=found["TO_VERSION"],
        from_slot=found["FROM_SLOT"],
        to_slot=found["TO_SLOT"],
        sequence=numbers["SEQUENCE"],
        boot_id=found["BOOT_ID"],
        length_s=numbers["LENGTH_S"],
        deadline_s=numbers["DEADLINE_S"],
        boots_left=numbers["BOOTS_LEFT"],
        command=found["COMMAND"],
        from_sha256=found["FROM_SHA256"],
        to_sha256=found["TO_SHA256"],
    )


def parse_revert(data: bytes) -> Tuple[Optional[Trial], Optional[str]]:
    """The trial that was reverted, if its record is readable, and the reason, if all of it was written."""
    lines = data.split(b"\n")
    record = b"".join(line + b"\n" for line in lines[: len(_KEYS)])
    _before, mark, tail = data.rpartition(b"REASON=")
    match = _REASON.fullmatch(mark + tail)
    return parse_trial(record), match.group(1).decode("ascii") if match else None


def is_damaged(data: Optional[bytes]) -> bool:
    """Whether a trial's file, under whichever name, is worth keeping for whoever looks into what damaged it.

    A sound record is not, nor is the bare reason that the guard leaves where a record was lost.
    """
    if data is None or _ONLY_REASON.fullmatch(data) is not None:
        return False
    return parse_revert(data)[0] is None


def count_crashes(log: bytes) -> int:
    """How many starts in this trial followed an exit of the process itself, as the guard logged them."""
    return sum(1 for line in log.split(b"\n")[:-1] if line.startswith(b"crash "))


def was_started(log: bytes) -> bool:
    """Whether the guard saw a start with `current` at the new slot."""
    return any(line.startswith(b"start ") for line in log.split(b"\n")[:-1])


def is_unit_read(log: bytes) -> bool:
    """Whether systemd has read the unit file that came with the release on trial, or none came."""
    lines = log.splitlines(keepends=True)
    return UNIT_DUE not in lines or UNIT_READ in lines


def is_unread(log: bytes) -> bool:
    """Whether somebody went back and was ended before systemd had read the good release's unit file again."""
    words = [line.split(b" ")[0] for line in log.split(b"\n")[:-1]]
    turns = [word for word in words if word in (b"moved", b"reloaded")]
    return turns[-1:] == [b"moved"]


def owes(log: bytes, whose: bytes = b"") -> bool:
    """Whether the guard owed the unit (`whose`: `helper `) a restart and was ended before it had asked for one."""
    lines = log.split(b"\n")[:-1]
    owed, paid = (any(line.startswith(whose + word) for line in lines) for word in (b"owed ", b"restart "))
    return owed and not paid
