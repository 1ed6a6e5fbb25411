# SPDX-License-Identifier: GPL-3.0-or-later
"""An operator's hold: read as it was written or it stands, and it ends by no wrong clock and by nobody else's word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import checks, codes, facts, holds, ops, records, rfc3339
from slotcore import product as products

from . import making

NOW = 1_800_000_000
PLAIN = holds.Hold("the audit is on", "ana", 0, NOW - 60)
PRODUCT = products.Product("toy", "toy.service", "/usr/bin/toy", "/opt/toy")

texts = st.text(max_size=40).map(records.fitting)
found = st.builds(holds.Hold, texts, texts, st.integers(0, rfc3339.LAST), st.integers(0, records.MAX_INT), st.just(""))


@given(found)
def test_it_is_read_as_it_was_written(hold: holds.Hold) -> None:
    """Any reason, any owner, with an end or without."""
    assert holds.parse(holds.render(hold), "f") == hold


def test_it_has_the_shape_of_the_page() -> None:
    """products.md, section 7: exactly these keys, one line."""
    text = holds.render(PLAIN._replace(until=NOW))
    wanted = {"spec": 1, "why": "the audit is on", "owner": "ana", "until": NOW, "at": NOW - 60}
    assert json.loads(text) == wanted
    assert text.count(b"\n") == 1


GOOD = {"spec": 1, "why": "w", "owner": "o", "until": 0, "at": 0}


@pytest.mark.parametrize(
    "value",
    [
        {**GOOD, "until": -1},
        {**GOOD, "until": rfc3339.LAST + 1},
        {**GOOD, "until": "2026-01-31T23:59:59Z"},
        {**GOOD, "until": True},
        {**GOOD, "at": None},
        {**GOOD, "why": 5},
        {**GOOD, "owner": "o" * 5000},
        {**GOOD, "more": 1},
        {**GOOD, "spec": 2},
        {"spec": 1, "why": "w", "owner": "o", "at": 0},
        [],
    ],
)
def test_anything_else_is_broken(value: Any) -> None:
    """Nothing is guessed: whoever reads it then counts it as a hold."""
    with pytest.raises(codes.BrokenRecord):
        holds.parse(json.dumps(value).encode(), "f")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_hold_or_broken(data: bytes) -> None:
    """Never anything in between, and never another error."""
    try:
        holds.parse(data, "f")
    except codes.BrokenRecord:
        return


def test_one_that_is_too_long_is_not_read() -> None:
    """The bound comes before the parser."""
    with pytest.raises(codes.BrokenRecord, match="more than"):
        holds.parse(b" " * (holds.MAX_BYTES + 1), "f")


@given(st.text(max_size=3000), st.text(max_size=300))
def test_whatever_was_typed_is_made_to_fit(why: str, owner: str) -> None:
    """One line of bounded length, which a record may hold and is read again."""
    hold = holds.made(why, owner, 0, NOW)
    assert len(hold.why) <= holds.MAX_WHY
    assert len(hold.owner) <= holds.MAX_OWNER
    assert holds.parse(holds.render(hold), "f") == hold


@given(until=st.integers(1, 4_000_000_000), now=st.integers(0, 4_000_000_000), newest=st.integers(0, 4_000_000_000))
def test_it_ends_by_the_later_clock_alone(until: int, now: int, newest: int) -> None:
    """A clock that was set back keeps it; a manifest that was verified later than the end ends it."""
    hold = PLAIN._replace(until=until)
    assert hold.stands(now, newest) == (max(now, newest) < until)
    assert hold.stands(0, 0), "without a clock it stands"
    assert PLAIN.stands(now, newest), "one without an end never ends by itself"


def test_one_that_cannot_be_read_stands_and_says_so() -> None:
    """Fail closed: damage lets nobody through, whatever the clock says."""
    hold = holds.damaged("/opt/toy/hold.json", "it is not JSON")
    refusal = holds.refusal("toy", hold, 2**50, 2**50)
    assert refusal is not None
    assert refusal.code == codes.HELD
    assert "/opt/toy/hold.json: it is not JSON" in refusal.text
    shown = holds.as_json(hold, NOW, 0)
    assert shown is not None
    assert shown["damage"] == "/opt/toy/hold.json: it is not JSON"
    (line,) = holds.lines(shown)
    assert "counts as a hold" in line


def test_C9_the_refusal_says_who_until_when_and_why() -> None:
    """What an operator pinned is told as that, with the way out."""
    refusal = holds.refusal("toy", PLAIN._replace(until=NOW + 60), NOW, 0)
    assert refusal is not None
    assert refusal.code == codes.HELD
    assert codes.CODES[codes.HELD].kind == codes.REFUSAL
    assert refusal.text == f"toy is held by ana until {rfc3339.render(NOW + 60)}: the audit is on; `unhold` lets it go"
    assert "until it is taken away" in str(holds.refusal("toy", PLAIN, NOW, 0))


def test_none_and_an_ended_one_refuse_nothing() -> None:
    """An end that has come needs nobody to take the hold away."""
    ended = PLAIN._replace(until=NOW)
    assert holds.refusal("toy", None, NOW, 0) is None
    assert holds.refusal("toy", ended, NOW, 0) is None
    assert holds.as_json(ended, NOW, 0) is None
    assert holds.as_json(None, NOW, 0) is None
    assert holds.lines(None) == ()


def test_F9_another_ones_hold_is_not_replaced() -> None:
    """Its owner's own may be changed, an ended or damaged one by anybody."""
    refusal = holds.others(PLAIN, "ben", NOW, 0)
    assert refusal is not None
    assert "--owner ana" in refusal.text
    assert holds.others(PLAIN, "ana", NOW, 0) is None
    assert holds.others(PLAIN._replace(until=NOW), "ben", NOW, 0) is None
    assert holds.others(holds.damaged("p", "torn"), "ben", NOW, 0) is None
    assert holds.others(None, "ben", NOW, 0) is None


def test_the_same_words_are_the_same_hold() -> None:
    """When it was set is not what it says."""
    assert PLAIN.is_same(PLAIN._replace(at=0))
    assert not PLAIN.is_same(PLAIN._replace(why="another"))


def test_it_is_durable_before_it_is_said() -> None:
    """The bytes, then the name, under a name of this process's alone."""
    plan = holds.plan_hold(PRODUCT, PLAIN, "7-0")
    assert plan == (
        ops.Write("/opt/toy/hold.json.7-0.tmp", holds.render(PLAIN)),
        ops.Sync("/opt/toy/hold.json.7-0.tmp"),
        ops.Rename("/opt/toy/hold.json.7-0.tmp", "/opt/toy/hold.json"),
        ops.SyncDir("/opt/toy"),
    )
    assert holds.plan_unhold(PRODUCT) == (ops.Unlink("/opt/toy/hold.json"), ops.SyncDir("/opt/toy"))


def test_C10_the_hand_comes_before_every_row() -> None:
    """Whatever else is wrong with a target, a hold is what is said; and what passes by itself is no refusal for good."""
    held = codes.Refusal(codes.HELD, "held")
    asked = making.facts(b"", target=making.target(b"", version="no version"), hand=held)
    asked = asked._replace(policy=products.Policy(enabled=False))
    for check in (checks.check, checks.check_before_manifest, checks.check_policy):
        assert check(asked) == held
    assert facts.Facts._field_defaults["hand"] is None
    assert isinstance(codes.error_of(held), codes.Refused)
    for code in (codes.FROZEN, codes.OUTSIDE_WINDOW, codes.VETOED):
        later = codes.error_of(codes.Refusal(code, "later"))
        assert isinstance(later, codes.Retryable)
        assert later.code == code
