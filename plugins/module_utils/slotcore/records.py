# SPDX-License-Identifier: GPL-3.0-or-later
"""The two JSON records of a slots directory: `slots.json` and `update.json` (node.md, section 2).

Rules:
- A record has exactly its fields, of exactly their types, or it is broken (I3): nothing is guessed or defaulted.
- A slot without an entry is unknown; so a crash between clearing and writing leaves no record, never one of other bytes.
- The floor in `update.json` is never lowered by any function here.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from . import product as products
from . import reading

SPEC, MAX_BYTES, MAX_INT, MAX_TEXT = reading.SPEC, reading.MAX_BYTES, reading.MAX_INT, reading.MAX_TEXT


class SlotRecord(NamedTuple):
    """What was written into one slot, and of its manifest (0 and "" when not known: an adopted file) what outlives it."""

    version: str
    sequence: int
    sha256: str
    size: int
    expires_at: int = 0
    channel: str = ""
    epoch: int = 0
    """Of its data; it stands in a record only when it is not 0, since older readers know no such field."""

    def as_json(self) -> Dict[str, Any]:
        """The fields as a record has them."""
        found = self._asdict()
        if not self.epoch:
            del found["epoch"]
        return found


class Failed(NamedTuple):
    """A version that is not tried again here until an operator clears it; `at` in seconds since 1970."""

    version: str
    code: str
    why: str
    sequence: int
    sha256: str
    at: int


class Last(NamedTuple):
    """How the last trial ended."""

    trial_id: str
    state: str
    code: str
    why: str
    from_version: str
    to_version: str
    at: int


class Update(NamedTuple):
    """The floor, the failed versions, and the newest `issuedAt` verified here (seconds since 1970)."""

    floor: int = 0
    newest_issued: int = 0
    failed: Tuple[Failed, ...] = ()
    last: Optional[Last] = None
    trust: int = 0
    """The generation of `trust.json` that must be there at least; 0 when none was ever written."""

    def failure_of(self, version: str) -> Optional[Failed]:
        """The failure recorded for `version`, if any."""
        return next((entry for entry in self.failed if entry.version == version), None)


Slots = Dict[str, SlotRecord]


broken, load, object_of = reading.broken, reading.load, reading.object_of
number, text, digest = reading.number, reading.text, reading.digest


def parse_slots(data: bytes, name: str) -> Slots:
    """The slot records; raises BrokenRecord naming `name`."""
    slots = load(data, name, ("slots",))["slots"]
    if not isinstance(slots, dict) or not set(slots) <= set(products.SLOTS):
        broken(name, f"slots is not an object of {' and '.join(products.SLOTS)}")
    found: Slots = {}
    for slot, value in slots.items():
        found[slot] = slot_record(value, name, f"slot {slot}")
    return found


def slot_record(value: Any, name: str, what: str) -> SlotRecord:
    """`value`, which must be the record of one release's bytes."""
    with_epoch = isinstance(value, dict) and "epoch" in value
    entry = object_of(value, name, what, SlotRecord._fields if with_epoch else SlotRecord._fields[:-1])
    return SlotRecord(
        version=text(entry["version"], name, f"{what}'s version"),
        sequence=number(entry["sequence"], name, f"{what}'s sequence"),
        sha256=digest(entry["sha256"], name, f"{what}'s sha256"),
        size=number(entry["size"], name, f"{what}'s size"),
        expires_at=number(entry["expires_at"], name, f"{what}'s expires_at"),
        channel=text(entry["channel"], name, f"{what}'s channel"),
        epoch=number(entry.get("epoch", 0), name, f"{what}'s epoch"),
    )


def _parse_failed(value: Any, name: str) -> Failed:
    entry = object_of(value, name, "a failed version", ("at", "code", "sequence", "sha256", "version", "why"))
    return Failed(
        version=text(entry["version"], name, "a failed version"),
        code=text(entry["code"], name, "a failed version's code"),
        why=text(entry["why"], name, "a failed version's reason"),
        sequence=number(entry["sequence"], name, "a failed version's sequence"),
        sha256=text(entry["sha256"], name, "a failed version's sha256"),
        at=number(entry["at"], name, "a failed version's time"),
    )


def _parse_last(value: Any, name: str) -> Optional[Last]:
    if value is None:
        return None
    entry = object_of(value, name, "last", ("at", "code", "from", "id", "state", "to", "why"))
    return Last(
        trial_id=text(entry["id"], name, "last's id"),
        state=text(entry["state"], name, "last's state"),
        code=text(entry["code"], name, "last's code"),
        why=text(entry["why"], name, "last's reason"),
        from_version=text(entry["from"], name, "last's from"),
        to_version=text(entry["to"], name, "last's to"),
        at=number(entry["at"], name, "last's time"),
    )


def parse_update(data: bytes, name: str) -> Update:
    """The floor and the failures; raises BrokenRecord naming `name`."""
    value = load(data, name, ("failed", "floor", "last", "newest_issued", "trust"))
    if not isinstance(value["failed"], list):
        broken(name, "failed is not a list")
    return Update(
        floor=number(value["floor"], name, "the floor"),
        newest_issued=number(value["newest_issued"], name, "newest_issued"),
        failed=tuple(_parse_failed(entry, name) for entry in value["failed"]),
        last=_parse_last(value["last"], name),
        trust=number(value["trust"], name, "trust"),
    )


def fitting(text: str) -> str:
    """`text` as a record may hold it: one line, of characters that have a form on disk, and not too long."""
    return "".join(char if char.isprintable() else " " for char in text[:MAX_TEXT])


def dump(value: Mapping[str, Any]) -> bytes:
    """The bytes of a record."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8") + b"\n"


def render_slots(slots: Mapping[str, SlotRecord]) -> bytes:
    """The bytes of `slots.json`."""
    return dump({"spec": SPEC, "slots": {slot: record.as_json() for slot, record in slots.items()}})


def last_as_json(last: Optional[Last]) -> Optional[Dict[str, Any]]:
    """`last` with the field names of the record and of every `--json` answer."""
    if last is None:
        return None
    return {
        "at": last.at,
        "code": last.code,
        "from": last.from_version,
        "id": last.trial_id,
        "state": last.state,
        "to": last.to_version,
        "why": last.why,
    }


def render_update(update: Update) -> bytes:
    """The bytes of `update.json`."""
    value = {
        "spec": SPEC,
        "floor": update.floor,
        "newest_issued": update.newest_issued,
        "failed": [entry._asdict() for entry in update.failed],
        "last": last_as_json(update.last),
        "trust": update.trust,
    }
    return dump(value)


def with_failure(update: Update, failure: Failed) -> Update:
    """The record with `failure` in it; a version stands in it once, with its newest reason.

    The oldest make room when the record would become too large to be read again: it also holds the floor.
    """
    kept = tuple(entry for entry in update.failed if entry.version != failure.version)
    found = update._replace(failed=kept + (failure,))
    while len(render_update(found)) > MAX_BYTES:
        found = found._replace(failed=found.failed[1:])
    return found
