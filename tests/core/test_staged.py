# SPDX-License-Identifier: GPL-3.0-or-later
"""What is staged and waits for a word: read as it was written or not at all, and durable in the right order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, ops, records, staged
from slotcore import product as products

PRODUCT = products.Product("toy", "toy.service", "/usr/bin/toy", "/opt/toy")
ONE = staged.Staged("1.1.0", 2, "ab" * 32, 1_800_000_000, "cd" * 32)
numbers = st.integers(0, records.MAX_INT)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.builds(staged.Staged, st.text(max_size=40).map(records.fitting), numbers, digests, numbers, digests))
def test_it_is_read_as_it_was_written(one: staged.Staged) -> None:
    """Any version, any sequence."""
    assert staged.parse(staged.render(one), "f") == one


GOOD = json.loads(staged.render(ONE))


@pytest.mark.parametrize(
    "value",
    [
        {**GOOD, "sha256": "ab"},
        {**GOOD, "target": None},
        {**GOOD, "version": 1},
        {**GOOD, "sequence": -1},
        {**GOOD, "at": 1.5},
        {**GOOD, "more": 1},
        {key: value for key, value in GOOD.items() if key != "at"},
    ],
)
def test_anything_else_is_broken(value: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(codes.BrokenRecord):
        staged.parse(json.dumps(value).encode(), "f")
    with pytest.raises(codes.BrokenRecord, match="more than"):
        staged.parse(b" " * (staged.MAX_BYTES + 1), "f")


@pytest.mark.parametrize("permit", [None, b"permit"])
def test_what_it_does_not_name_does_not_wait(permit: Any) -> None:
    """The record goes first and comes last, so no cut leaves it naming another release's target or permit."""
    plan = staged.plan_note(PRODUCT, ONE, b"target", permit)
    touched = [one.path for one in plan if isinstance(one, (ops.Unlink, ops.Rename))]
    record = "/opt/toy/staged.json"
    assert touched[0] == touched[-1] == record
    assert touched[1:-1] == ["/opt/toy/staged.target", "/opt/toy/staged.permit"]
    assert isinstance(plan[1], ops.SyncDir)
    written = {one.path: one.data for one in plan if isinstance(one, ops.Write)}
    assert written.get("/opt/toy/staged.permit.tmp") == permit
    dropped = [one.path for one in staged.plan_drop(PRODUCT) if isinstance(one, ops.Unlink)]
    assert dropped == [record, "/opt/toy/staged.target", "/opt/toy/staged.permit"]


def test_what_update_shows() -> None:
    """Nothing where nothing waits."""
    assert staged.as_json(None) is None
    assert staged.as_json(ONE) == {"version": "1.1.0", "sequence": 2, "sha256": "ab" * 32, "at": 1_800_000_000}
