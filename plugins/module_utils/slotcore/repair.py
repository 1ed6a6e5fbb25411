# SPDX-License-Identifier: GPL-3.0-or-later
"""What `update --repair` writes anew, from what can be proven (trust.md, section 4).

Rules:
- The floor is never set below what anything readable says that it was. Where nothing proves it, an operator must say
  it, and not less than that.
- A link is made only where it is proven whose it is; nothing else is guessed, and what is left is said.
- A slot whose bytes are proven gets the mode and the owner back that it was made with.
- A sound record stays as it is: a second repair has nothing to do (I9).
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import ops, proving, recording, records, relinking, trust_record
from . import product as products
from . import settle as settles


class Unproven(NamedTuple):
    """Nothing proves the floor: what is known of it, and why an answer of the operator was not taken, if there was one."""

    known: proving.Known
    text: str
    least: Optional[int]
    """The lowest floor that may be said; None when saying one is not the way."""


class Repair(NamedTuple):
    """What is written anew; None: it stays. `done` and `left` are sentences about what is mended and what is not."""

    slots: Optional[records.Slots] = None
    trust: Optional[trust_record.Trust] = None
    update: Optional[records.Update] = None
    good: Optional[str] = None
    current: Optional[str] = None
    kept: Tuple[str, ...] = ()
    """Slots whose file is made root's and 0755 again."""
    done: Tuple[str, ...] = ()
    left: Tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything is written at all."""
        written = (self.slots, self.trust, self.update, self.good, self.current)
        return bool(self.kept) or any(each is not None for each in written)


def _unproven(known: proving.Known, floor: Optional[int], sound: Optional[int]) -> Unproven:
    if sound is not None:
        text = f"the floor is {sound} by a sound record, and --floor {floor} does not change that"
        return Unproven(known, f"{text}: raise it with [update] release_sequence, lower it with a permit", None)
    said = (
        f"configured or embedded {known.configured}, slots {known.slots}, audit log {known.audit}, "
        f"records that were set aside {known.records}"
    )
    if floor is not None:
        text = f"--floor {floor} is lower than {known.lowest}, which this host is known to have reached ({said})"
    else:
        text = f"nothing proves the release floor of this host: it was at least {known.lowest} ({said})"
    return Unproven(known, f"{text}; say it, with a higher number where it was higher", known.lowest)


def _update(
    product: products.Product, facts: proving.Facts, slots: Mapping[str, records.SlotRecord], floor: Optional[int]
) -> Union[records.Update, Unproven, None]:
    """The record of the floor, None when it is sound."""
    known = proving.known_floors(product, facts, slots)
    if not proving.is_damaged(facts.state, recording.UPDATE):
        sound = facts.state.update.floor
        return None if floor in (None, sound) else _unproven(known, floor, sound)
    found = [source for source in facts.sources if source.update is not None]
    proven = any(source.proves for source in found) or proving.audit_proves(facts, known)
    if (floor is None and not proven) or (floor is not None and floor < known.lowest):
        return _unproven(known, floor, None)
    best = next((source.update for source in found if source.update is not None), records.Update())
    told = [source.update for source in found if source.update is not None]
    return best._replace(
        floor=known.lowest if floor is None else floor,
        newest_issued=max((each.newest_issued for each in told), default=0),
        trust=max([facts.trust, *(each.trust for each in told)]),
    )


def _links(
    product: products.Product,
    facts: proving.Facts,
    slots: Mapping[str, records.SlotRecord],
    update: records.Update,
    moves: bool,
) -> Repair:
    """The links that can be proven, and what cannot; `moves`: an operator asked to leave a slot that is damaged."""
    state, left = facts.state, []
    good = None if state.good is not None else relinking.good(product, facts, slots, update)
    home = state.good or good
    if home is None and (state.in_use or slots):
        left.append(relinking.say_good(product, state, slots, update))
    current = home if state.current is None and home in slots else None
    starts = state.current or current
    if starts is not None and starts not in slots:
        other = relinking.way_out(state, slots, update, starts)
        if other is not None and moves:
            text = f"slot {starts} is damaged: current and good name {other}, which holds {slots[other].version} and proves itself"
            return Repair(good=other, current=other, done=(text,))
        if other is not None:
            left.append(
                f"slot {other} holds {slots[other].version}, which proves itself: update --repair --slots goes to it"
            )
        left.append(
            f"slot {starts} is what starts, and nothing says that its bytes were ever verified: {relinking.REINSTALL}"
        )
    if state.current is None and home is not None and current is None:
        left.append(f"slot {home} holds bytes that nothing proves, so {product.path('current')} is not made to name it")
    done = [f"{product.path(name)} names {slot}" for name, slot in (("good", good), ("current", current)) if slot]
    return Repair(good=good, current=current, done=tuple(done), left=tuple(left))


def _trust(facts: proving.Facts, known: proving.Known) -> Tuple[Optional[trust_record.Trust], str]:
    """The record of trust, None where it is sound or cannot be had without its keys; and what is left to do about it."""
    if not proving.is_damaged(facts.state, recording.TRUST):
        return None, ""
    if proving.never_had_keys(facts, known):
        found = proving.remembered(facts)
        return found._replace(generation=found.generation + 1), ""
    least = proving.least_keys(facts)
    upto = f", up to key set {least} at least" if least else ""
    return (
        None,
        f"nothing proves whose signatures count here: give the chain of key sets again (trust apply FILE...){upto}",
    )


def _about_slots(state: settles.State, slots: Mapping[str, records.SlotRecord]) -> List[str]:
    said = []
    for slot in products.SLOTS:
        entry, before = slots.get(slot), state.slots.get(slot)
        if entry is not None and entry != before:
            said.append(f"slot {slot} holds {entry.version}, sequence {entry.sequence}, by its digest")
        elif entry is None and (before is not None or proving.is_damaged(state, recording.SLOTS)):
            said.append(f"slot {slot} has no record: nothing says that its bytes were ever verified")
    return said


def _unkept(facts: proving.Facts, slots: Mapping[str, records.SlotRecord]) -> Dict[str, str]:
    """The slots whose bytes are proven and whose file is not as it was made, and what is said of each."""
    return {
        slot: f"slot {slot} is root's and executable again: it holds {entry.version}, by its digest"
        for slot, entry in slots.items()
        if not facts.held[slot].kept
    }


def decide(
    product: products.Product, facts: proving.Facts, floor: Optional[int] = None, moves: bool = False
) -> Union[Repair, Unproven]:
    """What to write anew; Unproven when the operator must say the floor first. Asked only when no trial is pending."""
    state, slots = facts.state, proving.slots_of(facts)
    update = _update(product, facts, slots, floor)
    if isinstance(update, Unproven):
        return update
    found = _links(product, facts, slots, update or state.update, moves)
    trust, lost = _trust(facts, proving.known_floors(product, facts, slots))
    unkept = _unkept(facts, slots)
    done: List[str] = list(unkept.values())
    changed = proving.is_damaged(state, recording.SLOTS) or slots != dict(state.slots)
    if changed:
        done += _about_slots(state, slots)
    if trust is not None:
        done.append("no key set was ever taken here: the configuration's pins are in force")
    if update is not None:
        done.append(f"the release floor is {update.floor}")
    return found._replace(
        slots=slots if changed else None,
        trust=trust,
        update=update,
        kept=tuple(unkept),
        done=(*done, *found.done),
        left=(*found.left, *([lost] if lost else [])),
    )


def plan_repair(
    product: products.Product, state: settles.State, found: Repair, at: int, there: Sequence[str]
) -> ops.Plan:
    """Write it, after the modes were made right: slots, trust, floor, then the links. Until the last step something is broken, and updates are refused.

    `there` are the names of damaged records that still stand in their place: they are set aside.
    """
    texts: Dict[str, Optional[bytes]] = {
        recording.SLOTS: None if found.slots is None else records.render_slots(found.slots),
        recording.TRUST: None if found.trust is None else trust_record.render(found.trust),
        recording.UPDATE: None if found.update is None else records.render_update(found.update),
    }
    plan: ops.Plan = tuple(ops.Sync(product.path(slot)) for slot in found.kept)
    for name, data in texts.items():
        if data is not None:
            moved = recording.set_aside(product, name, name, at, state.aside) if name in there else ()
            plan += moved + recording.write(product, name, data)
    for name, slot in (("good", found.good), ("current", found.current)):
        plan += () if slot is None else ops.link_durably(product.path(name), slot)
    return plan
