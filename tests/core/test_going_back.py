# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kept release an operator goes back to: the one before, never a newer one, never below the floor."""

from __future__ import annotations

from typing import Dict, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, going_back, records, settle
from slotcore import product as products
from slotcore import trust_record as trusts

PRODUCT = products.Product("toy", "toy.service", "/usr/bin/toy", "/opt/toy")
WAY = "a permit is the way"


def release(version: str, sequence: int) -> records.SlotRecord:
    """What a slot holds."""
    return records.SlotRecord(version, sequence, "ab" * 32, 1, 0, "stable")


OLD, NEW = release("1.1.0", 2), release("1.2.0", 3)


def confirmed(old: str, new: str) -> records.Last:
    """The last trial was confirmed."""
    return records.Last("00112233445566aa", "confirmed", "ok", "all is well", old, new, 1)


def state_of(
    running: records.SlotRecord = NEW,
    other: Optional[records.SlotRecord] = OLD,
    last: Optional[records.Last] = None,
    **update: object,
) -> settle.State:
    """Slot a runs `running`, slot b holds `other`."""
    slots: Dict[str, records.SlotRecord] = {"a": running}
    if other is not None:
        slots["b"] = other
    found = records.Update(last=last)._replace(**update)  # type: ignore[arg-type]
    return settle.State(current="a", good="a", in_use=True, slots=slots, update=found)


def choose(state: settle.State, wanted: str = "previous", floor: int = 0) -> going_back.Choice:
    """The choice by what the slots hold."""
    return going_back.choose(PRODUCT, state, going_back.kept_in_slots(state), wanted, floor, WAY)


def code_of(choice: going_back.Choice) -> str:
    """The refusal's code; "" when it is none."""
    return choice.code if isinstance(choice, codes.Refusal) else ""


@pytest.mark.parametrize("wanted", ["previous", "1.1.0"])
def test_the_one_before_is_gone_back_to(wanted: str) -> None:
    """By its name or as the previous one, with the slot that holds it."""
    state = state_of(last=confirmed("1.1.0", "1.2.0"))
    assert choose(state, wanted, floor=2) == going_back.Kept(OLD, "b")


def test_below_the_floor_the_way_out_is_told() -> None:
    """The floor is the only limit of how far."""
    choice = choose(state_of(), floor=3)
    assert choice == codes.Refusal(
        codes.BELOW_FLOOR, "release sequence 2 of toy 1.1.0 is below the release floor 3: a permit is the way"
    )


def test_I9_asked_twice_nobody_goes_forward_again() -> None:
    """After going back the newer one lies in the other slot, and is no previous one."""
    back = state_of(OLD, NEW, confirmed("1.2.0", "1.1.0"))
    for wanted in ("previous", "1.1.0"):
        choice = choose(back, wanted)
        assert isinstance(choice, going_back.Already), choice
    assert code_of(choose(back, "1.2.0")) == codes.NOT_KEPT, "forward is an upgrade"


@pytest.mark.parametrize(
    "state",
    [
        state_of(other=None),
        state_of(OLD, NEW),
        state_of(OLD, NEW, confirmed("1.0.0", "1.1.0")),
        state_of(OLD, NEW, confirmed("1.2.0", "1.0.0")),
        state_of(failed=(records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, "ab" * 32, 1),)),
    ],
)
def test_where_none_is_kept_none_is_guessed(state: settle.State) -> None:
    """An empty slot, one that holds what was never confirmed, one that failed."""
    assert code_of(choose(state)) == codes.NOT_KEPT


def test_without_knowing_what_runs_nothing_is_before_it() -> None:
    """The record of the current slot is lost."""
    state = state_of()._replace(slots={"b": OLD})
    assert code_of(choose(state)) == codes.NOT_KEPT


def test_what_failed_or_was_withdrawn_is_refused_by_name() -> None:
    """As from anywhere else."""
    failed = state_of(failed=(records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, "ab" * 32, 1),))
    assert code_of(choose(failed, "1.1.0")) == codes.FAILED_BEFORE
    trust = trusts.Trust(1, withdrawn=(trusts.Withdrawn("1.1.0", 2, "loses mail", 1),))
    choice = choose(state_of()._replace(trust=trust))
    assert code_of(choice) == codes.WITHDRAWN
    assert "loses mail" in str(choice)
    assert isinstance(choose(state_of()._replace(trust=trusts.Trust(1))), going_back.Kept)


def test_of_several_the_one_confirmed_before_comes_first_then_the_newest() -> None:
    """Trees keep more than one."""
    kept = [going_back.Kept(release(f"1.{n}.0", n)) for n in range(5)] + [going_back.Kept(release("1.9.0", 9))]
    running = release("1.5.0", 5)
    before = state_of(running, None, confirmed("1.2.0", "1.5.0"))
    choice = going_back.choose(PRODUCT, before, kept, "previous", 0, WAY)
    assert choice == going_back.Kept(release("1.2.0", 2))
    choice = going_back.choose(PRODUCT, state_of(running, None), kept, "previous", 0, WAY)
    assert choice == going_back.Kept(release("1.4.0", 4))


def test_without_sequences_the_version_says_which_is_older() -> None:
    """A product whose trust is the operator's digest has none; what has no version is no older one."""
    state = state_of(release("1.10.0", 0), release("1.9.0", 0))
    assert choose(state) == going_back.Kept(release("1.9.0", 0), "b")
    assert code_of(choose(state_of(release("1.10.0", 0), release("unknown", 0)))) == codes.NOT_KEPT
    kept = [going_back.Kept(release(text, 1)) for text in ("odd", "1.2.0", "1.3.0", "odder")]
    choice = going_back.choose(PRODUCT, state_of(release("2.0.0", 2), None), kept, "previous", 0, WAY)
    assert choice == going_back.Kept(release("1.3.0", 1))


def test_what_is_kept_is_named_where_it_is_not_what_was_asked_for() -> None:
    """So that the operator sees what there is."""
    assert "what is kept beside what runs: 1.1.0" in str(choose(state_of(), "9.9.9"))
    assert "what is kept beside what runs: nothing" in str(choose(state_of(other=None), "9.9.9"))


numbers = st.integers(0, 6)


@given(numbers, numbers, numbers, st.booleans())
def test_the_choice_is_always_older_and_at_or_above_the_floor(one: int, other: int, floor: int, last: bool) -> None:
    """Whatever lies where: `previous` never goes forward and never below the floor (I3)."""
    running, kept = release(f"1.{one}.0", one), release(f"1.{other}.0", other)
    state = state_of(running, kept, confirmed(kept.version, running.version) if last else None)
    choice = choose(state, floor=floor)
    if isinstance(choice, going_back.Kept):
        assert choice.record == kept
        assert floor <= other
        assert (other, kept.version) < (one, running.version)
