# SPDX-License-Identifier: GPL-3.0-or-later
"""`floor = "previous"`: it rises to the release confirmed before, never falls, and is never above what is confirmed (I3)."""

from __future__ import annotations

from typing import List, Optional, Tuple

from core.crash import values
from hypothesis import given
from hypothesis import strategies as st

from slotcore import audit, audit_chain, plans, proving, recording, records, repair, settle, trial, trust_plans
from slotcore import product as products

CURRENT = values.PRODUCT._replace(base_floor=0)
PREVIOUS = CURRENT._replace(floor=products.PREVIOUS)
END = plans.End("ok", "all is well", 1)


def record(sequence: int) -> records.SlotRecord:
    """A release by its sequence."""
    return records.SlotRecord(f"1.{sequence}.0", sequence, f"{sequence:064x}", 1, 0, "stable")


def trial_of(old: int, new: int) -> trial.Trial:
    """The trial from one to the other."""
    return values.TRIAL._replace(
        from_version=f"1.{old}.0", to_version=f"1.{new}.0", sequence=new, to_sha256=f"{new:064x}"
    )


def on_trial(old: Optional[int], new: int, floor: int = 0) -> settle.State:
    """The host in that trial."""
    one = trial_of(old or 0, new)
    slots = {one.to_slot: record(new)}
    if old is not None:
        slots[one.from_slot] = record(old)
    update = records.Update(floor=floor)
    return settle.State(
        current=one.to_slot, good=one.from_slot, in_use=True, entrypoint="ours", slots=slots, update=update
    )


def floor_in(plan: Tuple[object, ...]) -> int:
    """The floor that a plan writes last."""
    (*_others, last) = [
        one for one in plan if getattr(one, "path", "").endswith(recording.UPDATE + ".tmp") and hasattr(one, "data")
    ]
    return records.parse_update(last.data, "f").floor


def confirmed(product: products.Product, old: Optional[int], new: int, floor: int = 0) -> int:
    """The floor after that confirmation."""
    return floor_in(plans.plan_finish_confirm(product, on_trial(old, new, floor), trial_of(old or 0, new), END))


def test_it_rises_to_the_one_before() -> None:
    """And by default to the one that is confirmed."""
    assert confirmed(PREVIOUS, 2, 3) == 2
    assert confirmed(CURRENT, 2, 3) == 3


def test_going_back_leaves_it_where_it_is() -> None:
    """From 3 back to 2 the one before is 3, and what runs must not be below its floor."""
    assert confirmed(PREVIOUS, 3, 2, floor=2) == 2


def test_nothing_known_before_raises_nothing() -> None:
    """A lost record, or an adopted file without a sequence."""
    assert confirmed(PREVIOUS, None, 3, floor=1) == 1
    assert confirmed(PREVIOUS, 0, 3) == 0


def test_a_configured_sequence_counts_as_ever() -> None:
    """It is root's word, whichever way the floor rises."""
    assert confirmed(PREVIOUS._replace(base_floor=5), 2, 6) == 5


def test_a_confirmation_whose_record_was_damaged_goes_by_the_links() -> None:
    """The other slot is the one before, until `good` has moved and after."""
    state = on_trial(2, 3)
    assert floor_in(plans.plan_finish_confirm(PREVIOUS, state, None, END)) == 2
    assert floor_in(plans.plan_finish_confirm(PREVIOUS, state._replace(good=state.current), None, END)) == 2


def test_the_first_install_is_before_nothing() -> None:
    """Adopted or installed on a host that runs nothing of ours: the floor is the configured one; mended later, as confirmed."""
    nothing = settle.State(entrypoint="file")
    assert floor_in(plans.plan_adopt(PREVIOUS, nothing, record(4))) == 0
    assert floor_in(plans.plan_adopt(CURRENT, nothing, record(4))) == 4
    runs = settle.State(current="a", good="a", in_use=True, entrypoint="ours", slots={"a": record(4)})
    assert floor_in(plans.plan_adopt(PREVIOUS, runs, record(6))) == 4


def test_the_plans_differ_in_the_floor_alone() -> None:
    """The crash matrix walks the plans of the default; those of this differ by one number in one record."""
    state, one = on_trial(2, 3), trial_of(2, 3)
    plan, other = (plans.plan_confirm(product, state, one, END) for product in (CURRENT, PREVIOUS))
    kinds = [(type(step), getattr(step, "path", "")) for step in plan]
    assert kinds == [(type(step), getattr(step, "path", "")) for step in other]
    differ = [step for step, twin in zip(plan, other) if step != twin]
    assert {getattr(step, "path", "").rpartition("/")[2] for step in differ} == {
        "update.json.copy.tmp",
        "update.json.tmp",
    }


steps = st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12)


@given(steps, st.booleans())
def test_I3_whatever_is_tried_it_never_falls_and_what_runs_stays_at_or_above_it(
    tried: List[Tuple[int, bool]], cut: bool
) -> None:
    """Confirmations and failures of releases at or above the floor, each confirmation cut and finished again or not.

    The audit log and the slots say no more of the floor than was true, and the log says all of it.
    """
    good, floor, lines = record(1), 0, [audit.append(None, _event(audit.ADOPTED, 1))]
    other: Optional[records.SlotRecord] = None
    for sequence, well in tried:
        if sequence < floor:
            continue
        other = record(sequence)
        if not well:
            continue
        one = trial_of(good.sequence, sequence)
        state = settle.State(
            current=one.to_slot,
            good=one.from_slot,
            in_use=True,
            entrypoint="ours",
            slots={one.from_slot: good, one.to_slot: other},
            update=records.Update(floor=floor),
        )
        after = floor_in(plans.plan_finish_confirm(PREVIOUS, state, one, END))
        if cut:
            last = records.Last(one.trial_id, "confirmed", "ok", "", "", one.to_version, 1)
            finished = state._replace(update=records.Update(floor=after, last=last), good=one.to_slot)
            assert floor_in(plans.plan_finish_confirm(PREVIOUS, finished, one, END)) == after, "finished again (I9)"
        assert floor <= after <= sequence
        assert after <= max(floor, good.sequence)
        good, other, floor = other, good, after
        lines.append(audit.append(lines[-1], _event(audit.CONFIRMED, sequence)))
    told = audit_chain.facts(lines)
    assert told.before == floor
    slots = {"a": good, **({"b": other} if other is not None else {})}
    rest = settle.State(current="a", good="a", in_use=True, slots=slots)
    known = proving.known_floors(PREVIOUS, proving.Facts(rest, {}, audit=told), slots)
    assert floor <= known.lowest <= good.sequence, "a repair never goes below it, nor above what runs"


def _event(name: str, sequence: int) -> audit.Event:
    return audit.Event(name, "probe", to_version=f"1.{sequence}.0", sequence=sequence, sha256=f"{sequence:064x}")


def test_a_repair_takes_the_log_s_word_for_the_one_before() -> None:
    """The record of the floor is lost; slots and log together say that it was 2, while 3 runs, and links need not be said."""
    lines = [audit.append(None, _event(audit.ADOPTED, 1))]
    for sequence in (2, 3):
        lines.append(audit.append(lines[-1], _event(audit.CONFIRMED, sequence)))
    slots = {"a": record(3), "b": record(2)}
    damage = (settle.Damage(recording.UPDATE, "it is torn", there=True),)
    state = settle.State(current="a", in_use=True, slots=slots, damaged=damage)
    held = {slot: proving.Held(one.sha256, one.size) for slot, one in slots.items()}
    facts = proving.Facts(state._replace(good="a"), held, audit=audit_chain.facts(lines))
    found = repair.decide(PREVIOUS, facts)
    assert isinstance(found, repair.Repair)
    assert found.update is not None
    assert found.update.floor == 2
    default = repair.decide(CURRENT, facts)
    assert isinstance(default, repair.Repair)
    assert default.update is not None
    assert default.update.floor == 3
    lost = proving.Facts(state._replace(damaged=(), update=records.Update(floor=2)), held, audit=facts.audit)
    mended = repair.decide(PREVIOUS, lost)
    assert isinstance(mended, repair.Repair)
    assert mended.good == "a", "running above the floor is no sign that it was never confirmed"
    assert repair.decide(CURRENT, lost) != mended


def test_a_repair_or_a_permit_sets_it_all_the_same() -> None:
    """What an operator said to a repair counts, and what a permit took it down to."""
    lines = [audit.append(None, _event(audit.ADOPTED, 1))]
    lines.append(audit.append(lines[-1], _event(audit.REPAIRED, 7)))
    assert audit_chain.facts(lines).before == 7
    one = _event(audit.PERMITTED, 2)._replace(trial_id="00112233445566aa", why="downgrade permit x")
    lines.append(audit.append(lines[-1], one))
    lines.append(audit.append(lines[-1], _event(audit.CONFIRMED, 2)._replace(trial_id="00112233445566aa")))
    assert audit_chain.facts(lines).before == 2
    assert trust_plans.risen(PREVIOUS, settle.State(), record(3), None) == PREVIOUS.base_floor
