# SPDX-License-Identifier: GPL-3.0-or-later
"""The two JSON records of a slots directory: `slots.json` and `update.json` (node.md, section 2).

Rules:
- A record has exactly its fields, of exactly their types, or it is broken (I3): nothing is guessed or defaulted.
- A slot without an entry is unknown; so a crash between clearing and writing leaves no record, never one of other bytes.
- The floor in `update.json` is never lowered by any function here.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Tuple

from . import codes
from . import product as products

SPEC = 1
MAX_BYTES = 1 << 20
MAX_INT = 2**53 - 1
MAX_TEXT = 4096

_HEX64 = re.compile(r"[0-9a-f]{64}")


class SlotRecord(NamedTuple):
    """What was written into one slot; sequence 0 when it is not known (an adopted file)."""

    version: str
    sequence: int
    sha256: str
    size: int
    expires_at: int = 0
    """When the manifest that let it in expires (seconds since 1970); 0 when that is not known."""


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


def _broken(name: str, why: str) -> NoReturn:
    raise codes.BrokenRecord(name, why)


def _pairs(name: str) -> Any:
    def hook(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            _broken(name, "a key stands in it twice")
        return found

    return hook


def _load(data: bytes, name: str, fields: Tuple[str, ...]) -> Dict[str, Any]:
    if len(data) > MAX_BYTES:
        _broken(name, f"it is {len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_pairs(name))
    except (ValueError, RecursionError) as error:
        _broken(name, f"it is not JSON: {error}")
    return _object(value, name, "the record", ("spec", *fields), spec=True)


def _object(value: Any, name: str, what: str, fields: Tuple[str, ...], spec: bool = False) -> Dict[str, Any]:
    if not isinstance(value, dict):
        _broken(name, f"{what} is not an object")
    if spec and value.get("spec") != SPEC:
        _broken(name, f"its spec is {value.get('spec')!r}; this version reads {SPEC}")
    if set(value) != set(fields):
        odd = sorted(set(value) ^ set(fields))
        _broken(name, f"{what} has other fields than {', '.join(fields)}: {', '.join(map(str, odd))}")
    return value


def _number(value: Any, name: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT:
        _broken(name, f"{what} is {value!r}, not a number from 0 to {MAX_INT}")
    return int(value)


def _text(value: Any, name: str, what: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        _broken(name, f"{what} is not a text of at most {MAX_TEXT} characters")
    return str(value)


def _digest(value: Any, name: str, what: str) -> str:
    if not isinstance(value, str) or _HEX64.fullmatch(value) is None:
        _broken(name, f"{what} is not 64 hexadecimal digits")
    return value


def parse_slots(data: bytes, name: str) -> Slots:
    """The slot records; raises BrokenRecord naming `name`."""
    slots = _load(data, name, ("slots",))["slots"]
    if not isinstance(slots, dict) or not set(slots) <= set(products.SLOTS):
        _broken(name, f"slots is not an object of {' and '.join(products.SLOTS)}")
    found: Slots = {}
    for slot, value in slots.items():
        entry = _object(value, name, f"slot {slot}", ("expires_at", "sequence", "sha256", "size", "version"))
        found[slot] = SlotRecord(
            version=_text(entry["version"], name, f"slot {slot}'s version"),
            sequence=_number(entry["sequence"], name, f"slot {slot}'s sequence"),
            sha256=_digest(entry["sha256"], name, f"slot {slot}'s sha256"),
            size=_number(entry["size"], name, f"slot {slot}'s size"),
            expires_at=_number(entry["expires_at"], name, f"slot {slot}'s expires_at"),
        )
    return found


def _parse_failed(value: Any, name: str) -> Failed:
    entry = _object(value, name, "a failed version", ("at", "code", "sequence", "sha256", "version", "why"))
    return Failed(
        version=_text(entry["version"], name, "a failed version"),
        code=_text(entry["code"], name, "a failed version's code"),
        why=_text(entry["why"], name, "a failed version's reason"),
        sequence=_number(entry["sequence"], name, "a failed version's sequence"),
        sha256=_text(entry["sha256"], name, "a failed version's sha256"),
        at=_number(entry["at"], name, "a failed version's time"),
    )


def _parse_last(value: Any, name: str) -> Optional[Last]:
    if value is None:
        return None
    entry = _object(value, name, "last", ("at", "code", "from", "id", "state", "to", "why"))
    return Last(
        trial_id=_text(entry["id"], name, "last's id"),
        state=_text(entry["state"], name, "last's state"),
        code=_text(entry["code"], name, "last's code"),
        why=_text(entry["why"], name, "last's reason"),
        from_version=_text(entry["from"], name, "last's from"),
        to_version=_text(entry["to"], name, "last's to"),
        at=_number(entry["at"], name, "last's time"),
    )


def parse_update(data: bytes, name: str) -> Update:
    """The floor and the failures; raises BrokenRecord naming `name`."""
    value = _load(data, name, ("failed", "floor", "last", "newest_issued", "trust"))
    if not isinstance(value["failed"], list):
        _broken(name, "failed is not a list")
    return Update(
        floor=_number(value["floor"], name, "the floor"),
        newest_issued=_number(value["newest_issued"], name, "newest_issued"),
        failed=tuple(_parse_failed(entry, name) for entry in value["failed"]),
        last=_parse_last(value["last"], name),
        trust=_number(value["trust"], name, "trust"),
    )


def fitting(text: str) -> str:
    """`text` as a record may hold it: one line, of characters that have a form on disk, and not too long."""
    return "".join(char if char.isprintable() else " " for char in text[:MAX_TEXT])


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8") + b"\n"


def render_slots(slots: Mapping[str, SlotRecord]) -> bytes:
    """The bytes of `slots.json`."""
    return _dump({"spec": SPEC, "slots": {slot: record._asdict() for slot, record in slots.items()}})


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
    return _dump(
        {
            "spec": SPEC,
            "floor": update.floor,
            "newest_issued": update.newest_issued,
            "failed": [entry._asdict() for entry in update.failed],
            "last": last_as_json(update.last),
            "trust": update.trust,
        }
    )


def with_failure(update: Update, failure: Failed) -> Update:
    """The record with `failure` in it; a version stands in it once, with its newest reason.

    The oldest make room when the record would become too large to be read again: it also holds the floor.
    """
    kept = tuple(entry for entry in update.failed if entry.version != failure.version)
    found = update._replace(failed=kept + (failure,))
    while len(render_update(found)) > MAX_BYTES:
        found = found._replace(failed=found.failed[1:])
    return found
