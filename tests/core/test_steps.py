# SPDX-License-Identifier: GPL-3.0-or-later
"""The way over stepping stones (field case N17)."""

from __future__ import annotations

from typing import Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, semver, steps

Step = steps.Step
OLD, MIDDLE, NEW = Step("1.0.0", 1), Step("1.5.0", 5, "1.0.0"), Step("2.0.0", 9, "1.5.0")


def test_without_min_from_the_way_is_one_step() -> None:
    """Whatever runs, even a version that nobody knows."""
    assert steps.plan("unknown", 0, Step("2.0.0", 9), ()) == (Step("2.0.0", 9),)


@pytest.mark.parametrize("running", ["1.5.0", "1.5.1", "3.0.0"])
def test_what_runs_at_or_above_min_from_goes_there_directly(running: str) -> None:
    """The stones are not needed then."""
    assert steps.plan(running, 0, NEW, (OLD, MIDDLE)) == (NEW,)


def test_N17_an_older_one_goes_by_way_of_the_stone() -> None:
    """One in between."""
    assert steps.plan("1.0.0", 1, NEW, (OLD, MIDDLE)) == (MIDDLE, NEW)


def test_several_stones_in_their_order() -> None:
    """Each takes over from the one before it."""
    first, second = Step("1.2.0", 2, "1.0.0"), Step("1.4.0", 4, "1.2.0")
    third = Step("1.5.0", 5, "1.4.0")
    assert steps.plan("1.0.0", 0, NEW, (third, first, second)) == (first, second, third, NEW)


def test_as_few_steps_as_there_can_be() -> None:
    """A detour is not taken."""
    detour = Step("1.2.0", 2, "1.0.0")
    assert steps.plan("1.0.0", 0, NEW, (detour, MIDDLE)) == (MIDDLE, NEW)


def test_of_two_ways_of_one_length_the_newer() -> None:
    """A later patch release of the stone is the better stone."""
    patched = Step("1.5.3", 7, "1.0.0")
    assert steps.plan("1.0.0", 0, NEW, (MIDDLE, patched)) == (patched, NEW)


def test_a_stone_below_the_floor_is_none() -> None:
    """The host would refuse it."""
    found = steps.plan("1.0.0", 6, NEW, (MIDDLE,))
    assert isinstance(found, codes.Refusal)
    assert found.code == "below-min-from"
    assert "no release in between is known" in found.text


def test_a_stone_after_the_wanted_one_is_none() -> None:
    """From there the floor would be in the way."""
    assert isinstance(steps.plan("1.0.0", 0, NEW, (Step("1.6.0", 10, "1.0.0"),)), codes.Refusal)


def test_sequences_grow_on_the_way() -> None:
    """A stone with a higher version and a lower sequence cannot follow."""
    first, back = Step("1.2.0", 4, "1.0.0"), Step("1.5.0", 3, "1.2.0")
    assert isinstance(steps.plan("1.0.0", 0, NEW, (first, back)), codes.Refusal)


def test_no_way_names_what_there_is() -> None:
    """The version that runs, what is wanted, and what each stone asks for."""
    found = steps.plan("0.9.0", 0, NEW, (MIDDLE,))
    assert isinstance(found, codes.Refusal)
    for word in ("2.0.0", "1.5.0", "0.9.0", "1.5.0 (from 1.0.0 on)", "publish a release in between"):
        assert word in found.text


def test_an_unknown_version_satisfies_no_min_from() -> None:
    """It needs a stone that takes over from anything."""
    assert isinstance(steps.plan("unknown", 0, NEW, (MIDDLE,)), codes.Refusal)
    gate = Step("1.5.0", 5)
    assert steps.plan("unknown", 0, NEW, (gate,)) == (gate, NEW)
    assert isinstance(steps.plan("1.0.0", 0, NEW, (Step("nonsense", 5),)), codes.Refusal)


def test_what_runs_is_no_stone() -> None:
    """Even when its own manifest lies there."""
    found = steps.plan("1.4.0", 4, NEW, (Step("1.4.0", 4),))
    assert isinstance(found, codes.Refusal)


VERSIONS = st.sampled_from(["1.%d.0" % minor for minor in range(8)])
STEPS = st.builds(Step, VERSIONS, st.integers(1, 12), st.none() | VERSIONS)


@given(VERSIONS, st.integers(0, 6), STEPS, st.lists(STEPS, max_size=6))
def test_every_way_can_be_walked(running: str, floor: int, wanted: Step, known: Tuple[Step, ...]) -> None:
    """Each release takes over from the one before; sequences grow; the last is the wanted one."""
    found = steps.plan(running, floor, wanted, known)
    if isinstance(found, codes.Refusal):
        return
    at, sequence = running, -1
    for step in found:
        assert _may_follow(at, step.min_from)
        assert step.sequence > sequence
        at, sequence = step.version, step.sequence
    assert found[-1] == wanted
    assert all(step.sequence >= floor for step in found[:-1])


@given(VERSIONS, STEPS, st.lists(STEPS, max_size=5))
def test_no_way_means_none(running: str, wanted: Step, known: Tuple[Step, ...]) -> None:
    """A search that tries everything agrees, on whether there is a way and on how short it is."""
    found = steps.plan(running, 0, wanted, known)
    shortest = _search(running, 0, wanted, [one for one in known if one.version != running])
    assert (None if isinstance(found, codes.Refusal) else len(found)) == shortest


def _may_follow(running: str, least: Optional[str]) -> bool:
    if least is None:
        return True
    one, other = semver.parse(running), semver.parse(least)
    assert one is not None
    assert other is not None
    return one.precedence >= other.precedence


def _search(running: str, sequence: int, wanted: Step, known: list[Step]) -> Optional[int]:
    if _may_follow(running, wanted.min_from):
        return 1
    ways = [
        _search(one.version, one.sequence + 1, wanted, known)
        for one in known
        if sequence <= one.sequence < wanted.sequence and _may_follow(running, one.min_from)
    ]
    lengths = [way for way in ways if way is not None]
    return 1 + min(lengths) if lengths else None
