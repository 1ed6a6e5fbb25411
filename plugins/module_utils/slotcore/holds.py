# SPDX-License-Identifier: GPL-3.0-or-later
"""An operator's hold, `hold.json`: while it stands, the product goes to no other release (products.md, section 7).

Rules:
- One that cannot be read stands: nobody is let through for a record that was lost to damage.
- It expires by the later of the host's clock and the newest time that a verified manifest showed. Whoever asks for an
  update has no say in that, and a clock that was set back keeps the hold.
- A trial that is pending still ends: a hold is about going somewhere, and is asked nowhere else.
- One owner's hold is never replaced or taken away in another one's name (field case F9).
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

from . import codes, ops, records, rfc3339
from . import product as products

NAME = "hold.json"
MAX_OWNER = 64
MAX_WHY = 1000
MAX_BYTES = 16384
_FIELDS = ("at", "owner", "until", "why")


class Hold(NamedTuple):
    """Why nothing moves, who says so, until when (0: until it is taken away), and since when; seconds since 1970."""

    why: str
    owner: str
    until: int = 0
    at: int = 0
    damage: str = ""
    """What is wrong with the record; then nothing else of it is known."""

    def stands(self, now_s: int, newest_issued: int) -> bool:
        """Whether it still counts."""
        return bool(self.damage) or not self.until or max(now_s, newest_issued) < self.until

    def is_same(self, other: Hold) -> bool:
        """Whether this is the same hold but for when it was set."""
        return self._replace(at=0) == other._replace(at=0)


def parse(data: bytes, name: str) -> Hold:
    """The record; raises BrokenRecord naming `name`."""
    if len(data) > MAX_BYTES:
        records.broken(name, f"it is more than {MAX_BYTES} bytes")
    value = records.load(data, name, _FIELDS)
    until = records.number(value["until"], name, "until")
    if until > rfc3339.LAST:
        records.broken(name, f"until is {until}, after the year 9999")
    return Hold(
        why=records.text(value["why"], name, "why"),
        owner=records.text(value["owner"], name, "owner"),
        until=until,
        at=records.number(value["at"], name, "at"),
    )


def damaged(path: str, why: str) -> Hold:
    """What stands where the record cannot be read."""
    return Hold("", "", damage=f"{path}: {why}")


def made(why: str, owner: str, until: int, at: int) -> Hold:
    """A hold in these words, made to fit."""
    return Hold(_line(why, MAX_WHY), _line(owner, MAX_OWNER), until, at)


def _line(text: str, most: int) -> str:
    return records.fitting(text).strip()[:most]


def render(hold: Hold) -> bytes:
    """The bytes of the record."""
    return records.dump(
        {"spec": records.SPEC, "why": hold.why, "owner": hold.owner, "until": hold.until, "at": hold.at}
    )


def plan_hold(product: products.Product, hold: Hold, unique: str) -> ops.Plan:
    """Write it. No lock is needed: the name `unique` makes is this process's alone, and the rename is atomic."""
    path = product.path(NAME)
    ready = f"{path}.{unique}.tmp"
    return (
        ops.Write(ready, render(hold)),
        ops.Sync(ready),
        ops.Rename(ready, path),
        ops.SyncDir(product.slots_dir),
    )


def plan_unhold(product: products.Product) -> ops.Plan:
    """Take it away."""
    return ops.unlink_durably(product.slots_dir, NAME)


def until_text(hold: Hold) -> str:
    """Until when, for a sentence."""
    return f"until {rfc3339.render(hold.until)}" if hold.until else "until it is taken away"


def said(hold: Hold) -> str:
    """The hold in one line."""
    if hold.damage:
        return f"its record cannot be believed, which counts as a hold ({hold.damage})"
    return f"by {hold.owner} {until_text(hold)}: {hold.why}"


def refusal(name: str, hold: Optional[Hold], now_s: int, newest_issued: int) -> Optional[codes.Refusal]:
    """Why the product goes nowhere, or nothing."""
    if hold is None or not hold.stands(now_s, newest_issued):
        return None
    return codes.Refusal(codes.HELD, f"{name} is held {said(hold)}; `unhold` lets it go")


def others(hold: Optional[Hold], owner: str, now_s: int, newest_issued: int) -> Optional[codes.Refusal]:
    """Why `owner` may not put another hold in this one's place, or nothing: it is another one's, and stands."""
    if hold is None or hold.damage or hold.owner == owner or not hold.stands(now_s, newest_issued):
        return None
    return codes.Refusal(codes.HELD, f"it is held already {said(hold)}; `unhold` first, or say --owner {hold.owner}")


def as_json(hold: Optional[Hold], now_s: int, newest_issued: int) -> Optional[Dict[str, Any]]:
    """What `update` shows; None when nothing is held."""
    if hold is None or not hold.stands(now_s, newest_issued):
        return None
    until = hold.until or None
    return {"why": hold.why, "owner": hold.owner, "until": until, "at": hold.at, "damage": hold.damage or None}


def lines(shown: Optional[Dict[str, Any]]) -> Tuple[str, ...]:
    """The same for people."""
    if shown is None:
        return ()
    hold = Hold(shown["why"], shown["owner"], shown["until"] or 0, shown["at"], shown["damage"] or "")
    return (f"held: {said(hold)}",)
