# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of whom a host trusts beyond its configuration: `trust.json` (trust.md, section 3).

Rules:
- It has exactly its fields, of exactly their types, or it is broken (I3): nothing is guessed or defaulted.
- Its generation goes up by one with each writing, and `update.json` knows the last; so a lost or an older one shows.
- Small: read at every start of a host that has one, so nothing here needs more than the other records do.
"""

from __future__ import annotations

import re
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, TypeVar

from . import records

NAME = "trust.json"
MAX_PINS = 16
MAX_WITHDRAWN = 64
MAX_PERMITS = 256

_PIN = re.compile(r"sha256/[A-Za-z0-9+/]{43}=")
_ID = re.compile(r"[0-9a-f]{16,64}")
_Entry = TypeVar("_Entry")


class Keys(NamedTuple):
    """The key set in use; `sha256` is that of its body, times are seconds since 1970."""

    sequence: int
    issued_at: int
    expires_at: int
    pins: Tuple[str, ...]
    threshold: int
    sha256: str


class Withdrawn(NamedTuple):
    """A release that is not to be installed; `at` is when this host was told."""

    version: str
    sequence: int
    why: str
    at: int


class Permitted(NamedTuple):
    """A permit that was used here, and when."""

    permit_id: str
    at: int


class Allowed(NamedTuple):
    """The release below the floor that is on trial by a permit."""

    permit_id: str
    version: str
    sequence: int


class Trust(NamedTuple):
    """The whole record; generation 0 was never written."""

    generation: int = 0
    keys: Optional[Keys] = None
    withdrawn: Tuple[Withdrawn, ...] = ()
    permits: Tuple[Permitted, ...] = ()
    allowed: Optional[Allowed] = None

    def withdrawal_of(self, version: str, sequence: int) -> Optional[Withdrawn]:
        """The withdrawal of this release, if there is one."""
        named = (version, sequence)
        return next((entry for entry in self.withdrawn if (entry.version, entry.sequence) == named), None)

    def using(self, allowed: Allowed, at: int) -> Trust:
        """The record when the swap that a permit allows begins: used up, and its release may run."""
        return self._replace(permits=(*self.permits, Permitted(allowed.permit_id, at)), allowed=allowed)

    def ended(self, swapped: bool) -> Trust:
        """The record when the trial has ended; a swap that never was gives its permit back."""
        if self.allowed is None:
            return self
        given_back = None if swapped else self.allowed.permit_id
        kept = tuple(entry for entry in self.permits if entry.permit_id != given_back)
        return self._replace(permits=kept, allowed=None)

    def used(self, permit_id: str) -> Optional[Permitted]:
        """When this permit was used here, if it was."""
        return next((entry for entry in self.permits if entry.permit_id == permit_id), None)


def is_permit_id(text: str) -> bool:
    """Whether this may be a permit's id."""
    return _ID.fullmatch(text) is not None


def parse(data: bytes, name: str) -> Trust:
    """The record; raises BrokenRecord naming `name`."""
    value = records.load(data, name, ("allowed", "generation", "keys", "permits", "withdrawn"))
    generation = records.number(value["generation"], name, "the generation")
    if generation == 0:
        records.broken(name, "the generation is 0, which is never written")
    return Trust(
        generation=generation,
        keys=None if value["keys"] is None else _keys(value["keys"], name),
        withdrawn=_list(value["withdrawn"], name, "withdrawn", MAX_WITHDRAWN, _withdrawn),
        permits=_list(value["permits"], name, "permits", MAX_PERMITS, _permitted),
        allowed=None if value["allowed"] is None else _allowed(value["allowed"], name),
    )


def render(trust: Trust) -> bytes:
    """The bytes of the record."""
    keys, allowed = trust.keys, trust.allowed
    return records.dump(
        {
            "spec": records.SPEC,
            "generation": trust.generation,
            "keys": None if keys is None else {**keys._asdict(), "pins": list(keys.pins)},
            "withdrawn": [entry._asdict() for entry in trust.withdrawn],
            "permits": [{"at": entry.at, "id": entry.permit_id} for entry in trust.permits],
            "allowed": None
            if allowed is None
            else {"id": allowed.permit_id, "sequence": allowed.sequence, "version": allowed.version},
        }
    )


def _keys(value: Any, name: str) -> Keys:
    entry = records.object_of(value, name, "keys", Keys._fields)
    pins = _list(entry["pins"], name, "the pins", MAX_PINS, _pin)
    threshold = records.number(entry["threshold"], name, "the threshold")
    if len(set(pins)) != len(pins) or not 1 <= threshold <= len(pins):
        records.broken(name, "the threshold is %d of %d distinct pins" % (threshold, len(set(pins))))
    return Keys(
        sequence=records.number(entry["sequence"], name, "the key set's sequence"),
        issued_at=records.number(entry["issued_at"], name, "the key set's issued_at"),
        expires_at=records.number(entry["expires_at"], name, "the key set's expires_at"),
        pins=pins,
        threshold=threshold,
        sha256=records.digest(entry["sha256"], name, "the key set's sha256"),
    )


def _list(value: Any, name: str, what: str, most: int, read: Callable[[Any, str], _Entry]) -> Tuple[_Entry, ...]:
    if not isinstance(value, list) or len(value) > most:
        records.broken(name, "%s is not a list of at most %d" % (what, most))
    found: List[_Entry] = [read(entry, name) for entry in value]
    return tuple(found)


def _pin(value: Any, name: str) -> str:
    pin = records.text(value, name, "a pin")
    if _PIN.fullmatch(pin) is None:
        records.broken(name, "a pin is %s, not sha256/<base64 of 32 bytes>" % ascii(pin)[:80])
    return pin


def _withdrawn(value: Any, name: str) -> Withdrawn:
    entry = records.object_of(value, name, "a withdrawal", Withdrawn._fields)
    return Withdrawn(
        version=records.text(entry["version"], name, "a withdrawn version"),
        sequence=records.number(entry["sequence"], name, "a withdrawn sequence"),
        why=records.text(entry["why"], name, "a withdrawal's reason"),
        at=records.number(entry["at"], name, "a withdrawal's time"),
    )


def _permitted(value: Any, name: str) -> Permitted:
    entry = records.object_of(value, name, "a permit", ("at", "id"))
    return Permitted(_permit_id(entry["id"], name), records.number(entry["at"], name, "a permit's time"))


def _allowed(value: Any, name: str) -> Allowed:
    entry = records.object_of(value, name, "allowed", ("id", "sequence", "version"))
    return Allowed(
        permit_id=_permit_id(entry["id"], name),
        version=records.text(entry["version"], name, "the allowed version"),
        sequence=records.number(entry["sequence"], name, "the allowed sequence"),
    )


def _permit_id(value: Any, name: str) -> str:
    found = records.text(value, name, "a permit's id")
    if not is_permit_id(found):
        records.broken(name, "a permit's id is %s, not 16 to 64 of 0-9 and a-f" % ascii(found)[:80])
    return found
