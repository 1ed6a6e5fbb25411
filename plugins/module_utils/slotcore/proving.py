# SPDX-License-Identifier: GPL-3.0-or-later
"""What a repair knows, and what that proves of slots and floor (trust.md, section 4).

Rules:
- Bytes in a slot are what somebody readable says of their digest, or they are nothing; a record that fits them stays.
- What says how high the floor was is never passed over; only a copy, or an audit log that misses nothing, proves it.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple

from . import audit_chain, recording, records, trust_record
from . import product as products
from . import settle as settles
from . import trial as trials

NO_AUDIT = audit_chain.Facts(0, {}, False)


class Held(NamedTuple):
    """The bytes in a slot: SHA-256 and size of a plain file of root's."""

    sha256: str
    size: int
    kept: bool = True
    """Whether the file is root's own, with the mode that a slot has: what it holds may be right, and start all the same not."""


class Source(NamedTuple):
    """Something readable that says what a record held: the record, its copy, or one that was set aside."""

    name: str
    slots: Optional[Mapping[str, records.SlotRecord]] = None
    update: Optional[records.Update] = None
    proves: bool = True
    """Whether it is as new as the record; what was set aside may be older, and proves only that it was said once."""


class Facts(NamedTuple):
    """All that a repair knows; the best sources come first."""

    state: settles.State
    held: Mapping[str, Held]
    sources: Tuple[Source, ...] = ()
    trials: Tuple[trials.Trial, ...] = ()
    audit: audit_chain.Facts = NO_AUDIT
    trusts: Tuple[trust_record.Trust, ...] = ()
    """What a copy of `trust.json`, or one that was set aside, says."""
    trust_there: bool = False
    """Whether a `trust.json`, a copy of it or one that was set aside is there, whoever can read it."""

    @property
    def trust(self) -> int:
        """The highest generation of `trust.json` that is known of; 1 where there was one that nobody can read.

        Key sets, withdrawals and permits are all kept there: a log that knows of any knows that there was one.
        """
        known = [held.generation for held in (self.state.trust, *self.trusts) if held is not None]
        told = bool(self.audit.keys or self.audit.withdrawn or self.audit.permits)
        return max([int(self.trust_there or told), self.state.update.trust, *known])


class Known(NamedTuple):
    """The sequences below which the floor is never set, by who says so."""

    configured: int
    slots: int
    audit: int
    records: int

    @property
    def lowest(self) -> int:
        """The lowest floor that all of them allow."""
        return max(self)


def is_damaged(state: settles.State, name: str) -> bool:
    """Whether the record `name` cannot be believed."""
    return any(damage.name == name for damage in state.damaged)


def _named_by_sources(facts: Facts, slot: str, sha256: str) -> Optional[records.SlotRecord]:
    """What the first source that knows these bytes says; of this slot, else of the other one."""
    for source in facts.sources:
        for name in (slot, products.other_slot(slot)):
            entry = (source.slots or {}).get(name)
            if entry is not None and entry.sha256 == sha256:
                return entry
    return None


def _named_otherwise(facts: Facts, held: Held) -> Optional[records.SlotRecord]:
    """What the audit log or a trial record says of bytes that were verified here."""
    for trial in facts.trials:
        if trial.to_sha256 == held.sha256:
            return records.SlotRecord(trial.to_version, trial.sequence, held.sha256, held.size)
    named = facts.audit.named.get(held.sha256)
    if named is not None:
        return records.SlotRecord(named.version, named.sequence, held.sha256, held.size)
    for trial in facts.trials:
        if trial.from_sha256 == held.sha256:
            return records.SlotRecord(trial.from_version, 0, held.sha256, held.size)
    return None


def _slot(facts: Facts, slot: str) -> Optional[records.SlotRecord]:
    """The record that a slot's bytes deserve.

    The slot that neither starts nor is gone back to keeps a record or loses it, once a key set was in use: its record may
    have been cleared for a key that was revoked, and what others say of its bytes must not bring them back.
    """
    held = facts.held.get(slot)
    if held is None:
        return None
    state = facts.state
    kept = None if is_damaged(state, recording.SLOTS) else state.slots.get(slot)
    if kept is not None and kept.sha256 == held.sha256:
        return kept
    in_use = slot in (state.current, state.good)
    if not in_use and (facts.trust or not is_damaged(state, recording.SLOTS)):
        return None
    found = _named_by_sources(facts, slot, held.sha256) or _named_otherwise(facts, held)
    return found._replace(size=held.size) if found is not None else None


def slots_of(facts: Facts) -> records.Slots:
    """The records that the bytes in the slots deserve."""
    found = {slot: _slot(facts, slot) for slot in products.SLOTS}
    return {slot: entry for slot, entry in found.items() if entry is not None}


def _slots_floor(product: products.Product, state: settles.State, slots: Mapping[str, records.SlotRecord]) -> int:
    """The highest sequence that the slots say was confirmed.

    While `good` names a proven slot, what is higher in the other one was never confirmed: it would be good now. Where the
    floor is that of the release before, what is lower there was let in at or above the floor, and the floor never passed it.
    """
    good = slots.get(state.good or "")
    if good is not None and good.sequence:
        other = slots.get(products.other_slot(str(state.good)))
        one_back = product.floor == products.PREVIOUS and other is not None
        return min(good.sequence, other.sequence) if one_back and other is not None else good.sequence
    return max((entry.sequence for entry in slots.values()), default=0)


def known_floors(product: products.Product, facts: Facts, slots: Mapping[str, records.SlotRecord]) -> Known:
    """What says how low the floor may be at most."""
    return Known(
        configured=product.base_floor,
        slots=_slots_floor(product, facts.state, slots),
        audit=facts.audit.before if product.floor == products.PREVIOUS else facts.audit.confirmed,
        records=max((source.update.floor for source in facts.sources if source.update is not None), default=0),
    )


def audit_proves(facts: Facts, known: Known) -> bool:
    """Whether the log tells of every confirmation: it begins with this host, and misses nothing that a slot knows of."""
    return facts.audit.whole and facts.audit.confirmed >= known.slots


def remembered(facts: Facts) -> trust_record.Trust:
    """What is still known of a lost record of trust, but for the keys: what was withdrawn, and the permits that were used."""
    withdrawn = {(entry.version, entry.sequence): entry for held in facts.trusts for entry in held.withdrawn}
    for event in facts.audit.withdrawn:
        entry = trust_record.Withdrawn(event.to_version, event.sequence, event.why or "it was withdrawn", event.at)
        withdrawn.setdefault((entry.version, entry.sequence), entry)
    permits = {entry.permit_id: entry for held in facts.trusts for entry in held.permits}
    for permit_id, at in facts.audit.permits:
        if trust_record.is_permit_id(permit_id):
            permits.setdefault(permit_id, trust_record.Permitted(permit_id, at))
    newest = sorted(withdrawn.values(), key=lambda entry: entry.sequence)[-trust_record.MAX_WITHDRAWN :]
    last = sorted(permits.values(), key=lambda entry: entry.at)[-trust_record.MAX_PERMITS :]
    return trust_record.Trust(facts.trust, withdrawn=tuple(newest), permits=tuple(last))


def least_keys(facts: Facts) -> int:
    """The sequence of the newest key set that is known to have been in use; 0: none is known."""
    return max([facts.audit.keys, *(held.keys.sequence for held in facts.trusts if held.keys is not None)])


def never_had_keys(facts: Facts, known: Known) -> bool:
    """Whether it is proven that this host never took a key set, so that the configuration's pins are those to trust."""
    if least_keys(facts):
        return False
    sound = not is_damaged(facts.state, recording.UPDATE)
    newest = any(held.generation >= facts.state.update.trust for held in facts.trusts)
    return (sound and newest) or audit_proves(facts, known)
