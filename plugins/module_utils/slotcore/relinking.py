# SPDX-License-Identifier: GPL-3.0-or-later
"""Which slot a repair makes `good` and `current` name (trust.md, section 4).

Rules:
- A lost `good` is what a claim names, or what the records and the audit log prove; with both links lost, all of them agree.
- What is below the floor is never made good then, nor named for an operator to do it.
"""

from __future__ import annotations

from typing import Mapping, Optional

from . import product as products
from . import proving, records
from . import settle as settles
from . import trial as trials

REINSTALL = "FILE setup --from FILE --manifest MANIFEST"


def good(
    product: products.Product, facts: proving.Facts, slots: Mapping[str, records.SlotRecord], update: records.Update
) -> Optional[str]:
    """Which slot is proven to have been confirmed last, where the link does not say it."""
    state = facts.state
    for data, went_on in ((state.confirm, True), (state.revert, False), (state.trial, False)):
        trial = trials.parse_revert(data)[0] if data is not None else None
        if trial is not None:
            slot, sha256 = (trial.to_slot, trial.to_sha256) if went_on else (trial.from_slot, trial.from_sha256)
            return slot if slot in facts.held and facts.held[slot].sha256 == sha256 else None
    if state.back is not None or state.log:
        return None
    if state.current is None:
        return _confirmed_last(product, facts, slots, update)
    entry = slots.get(state.current)
    if entry is None:
        return None
    if product.floor == products.CURRENT and entry.sequence > update.floor:
        return None
    if entry.sha256 == facts.audit.good:
        return state.current
    return state.current if _confirmed(update) == entry.version else None


def _confirmed(update: records.Update) -> Optional[str]:
    """The version that was good after the last trial, by its end's record."""
    last = update.last
    return None if last is None else last.to_version if last.state == "confirmed" else last.from_version


def _floor(product: products.Product, update: records.Update) -> int:
    return max(product.base_floor, update.floor)


def _confirmed_last(
    product: products.Product, facts: proving.Facts, slots: Mapping[str, records.SlotRecord], update: records.Update
) -> Optional[str]:
    """The slot of what was confirmed last, with both links gone: the log's digest, its record, the floor and the last trial agree."""
    for slot, entry in slots.items():
        if entry.sha256 == facts.audit.good and _confirmed(update) in (None, entry.version):
            is_floor = product.floor != products.CURRENT or entry.sequence == update.floor
            return slot if is_floor and entry.sequence >= _floor(product, update) else None
    return None


def say_good(
    product: products.Product, state: settles.State, slots: Mapping[str, records.SlotRecord], update: records.Update
) -> str:
    """What an operator may say of a lost `good`: by which command for each slot that is not below the floor."""
    where, floor = product.path("good"), _floor(product, update)
    said = [
        f"if that was slot {slot} ({entry.version}, sequence {entry.sequence}): ln -sfn {slot} {where}"
        for slot, entry in sorted(slots.items(), key=lambda one: one[0] != state.current)
        if entry.sequence >= floor
    ]
    text = f"{where} names no slot and nothing proves which release was confirmed last"
    if said:
        return "; ".join((text, *said))
    return f"{text}, and no slot holds a proven release that is not below the floor, {floor}: {REINSTALL}"


def way_out(
    state: settles.State, slots: Mapping[str, records.SlotRecord], update: records.Update, starts: str
) -> Optional[str]:
    """The other slot, where what starts is damaged and that one holds the very release that the floor stands at.

    The floor only ever rises to what was confirmed, so nothing that was not becomes good (I5), and nothing goes below it (I3).
    """
    other = products.other_slot(starts)
    entry, before = slots.get(other), state.slots.get(starts)
    if entry is None or entry.sequence != update.floor or update.failure_of(entry.version) is not None:
        return None
    return None if before is not None and before.epoch != entry.epoch else other
