# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans that write the record of trust, and the floor after a trial that a permit allowed (trust.md, sections 2 and 3).

Rules:
- `trust.json` goes first, one generation on, then `update.json`, which from then on demands that generation at least.
- Before a key counts for nothing, or more of them must sign, what was let in before must prove itself anew: the free
  slot's record goes first.
- A permit is used up between the trial record and the switch, and what it allows is forgotten before that record goes:
  so whoever finds it allowed finds the trial that it is for.
"""

from __future__ import annotations

from typing import Optional

from . import ops, recording, records, standing
from . import product as products
from . import settle as settles
from . import trial as trials
from . import trust_record as trusts


def _write(product: products.Product, trust: trusts.Trust, update: records.Update) -> ops.Plan:
    generation = max(trust.generation, update.trust) + 1
    data = trusts.render(trust._replace(generation=generation))
    noted = records.render_update(update._replace(trust=generation))
    return recording.write(product, trusts.NAME, data) + recording.write(product, recording.UPDATE, noted)


def clears(
    product: products.Product, state: settles.State, free_slot: str, trust: trusts.Trust, all_anew: bool = False
) -> bool:
    """Whether the free slot holds what must prove itself anew once this record is in force."""
    return free_slot in state.slots and (all_anew or _stricter(product, state, trust))


def _stricter(product: products.Product, state: settles.State, trust: trusts.Trust) -> bool:
    before, keys = standing.in_force(product, state), trust.keys
    return keys is not None and (bool(set(before.pins) - set(keys.pins)) or keys.threshold > before.threshold)


def plan_apply(
    product: products.Product, state: settles.State, free_slot: str, trust: trusts.Trust, all_anew: bool = False
) -> ops.Plan:
    """Put a record that documents have changed in force; no trial may be pending.

    `all_anew`: nobody knows whose signatures counted before, so what is staged must prove itself again in any case.
    The record of the slots is written also where it does not name the free slot: its copy may, after a cut.
    """
    cleared: ops.Plan = ()
    if all_anew or _stricter(product, state, trust):
        kept = {name: entry for name, entry in state.slots.items() if name != free_slot}
        cleared = recording.write(product, recording.SLOTS, records.render_slots(kept))
    return cleared + _write(product, trust, state.update)


def plan_catch_up(product: products.Product, state: settles.State) -> ops.Plan:
    """Note the record's generation where a cut came between the two records; nothing while one is broken."""
    if state.broken is not None or state.trust is None or state.trust.generation <= state.update.trust:
        return ()
    noted = state.update._replace(trust=state.trust.generation)
    return recording.write(product, recording.UPDATE, records.render_update(noted))


def plan_permitted(
    product: products.Product, state: settles.State, allowed: Optional[trusts.Allowed], at: int
) -> ops.Plan:
    """Use a permit up, for the swap that it allows; nothing when there is none."""
    if allowed is None:
        return ()
    trust = state.trust if state.trust is not None else trusts.Trust()
    return _write(product, trust.using(allowed, at), state.update)


def plan_ended(
    product: products.Product, state: settles.State, update: records.Update, swapped: bool = True
) -> ops.Plan:
    """Write `update.json`; of a trial that a permit allowed, what it allowed is forgotten first."""
    if state.trust is not None and state.trust.allowed is not None:
        return _write(product, state.trust.ended(swapped), update)
    return recording.write(product, recording.UPDATE, records.render_update(update))


def floor_after(
    product: products.Product, state: settles.State, trial: Optional[trials.Trial], about: records.SlotRecord
) -> int:
    """The floor once this trial is confirmed; only a permit for this very release takes it down, once (I3)."""
    last = state.update.last
    if trial is not None and last is not None and (last.trial_id, last.state) == (trial.trial_id, "confirmed"):
        return state.update.floor  # decided by whoever was cut short after it
    allowed = state.trust.allowed if state.trust is not None else None
    if allowed is not None and (allowed.version, allowed.sequence) == (about.version, about.sequence):
        return max(product.least_floor, about.sequence)
    slot = trial.from_slot if trial is not None else products.other_slot(state.current or "")
    return risen(product, state, about, state.slots.get(slot))


def risen(
    product: products.Product,
    state: settles.State,
    about: records.SlotRecord,
    before: Optional[records.SlotRecord],
) -> int:
    """The floor with `about` confirmed after `before`: it rises to one of them, as the product has it, and never falls (I3).

    Never above what is confirmed now, so that a release that an operator went back to stays at or above it.
    """
    reached = about.sequence
    if product.floor == products.PREVIOUS:
        reached = min(reached, before.sequence if before is not None else 0)
    return max(state.update.floor, product.base_floor, reached)
