# SPDX-License-Identifier: GPL-3.0-or-later
"""What `S/snapshot` says, when data is due to be restored, and which release cannot be undone (products.md, section 6)."""

from __future__ import annotations

from typing import Optional

import pytest
from core.crash import values

from slotcore import codes, keeping, outcome, records, settle
from slotcore import product as products

SAID = b"ID=9f8a6c1e22d04b57\nTO_SLOT=b\nFROM_VERSION=1.0.0\nTO_VERSION=1.1.0\n"
HOOKS = tuple(products.Hook(name, ("/bin/" + name,)) for name in ("snapshot", "restore"))
KEEPS = values.PRODUCT._replace(hooks=HOOKS)
ALWAYS = values.PRODUCT._replace(hooks=(HOOKS[0]._replace(always=True), HOOKS[1]))


def test_what_the_guard_writes_is_read() -> None:
    """Each line, and how often restoring has failed."""
    kept = keeping.Kept("9f8a6c1e22d04b57", "b", "1.0.0", "1.1.0")
    assert keeping.parse(SAID) == kept
    assert keeping.parse(SAID + b"FAILED=7\nFAILED=9\nFAI") == kept._replace(failures=2)
    assert keeping.parse(SAID + b"\x00\nLATER=x\n") == kept


@pytest.mark.parametrize("bad", [b"", b"TO_SLOT=b\n", b"ID=x\nTO_SLOT=b\n", SAID.replace(b"=b", b"=c"), SAID[:18]])
def test_what_names_no_trial_or_slot_says_nothing(bad: bytes) -> None:
    """Then nobody knows whose copy it is."""
    assert keeping.parse(bad) is None


@pytest.mark.parametrize(
    ("said", "current", "claim", "due", "failed"),
    [
        (None, "a", "", False, False),
        (SAID, "a", "", True, False),
        (SAID, "b", "", False, False),
        (SAID, "a", "revert", True, False),
        (SAID, "a", "confirm", False, False),
        (SAID + b"FAILED=7\n", "a", "", True, True),
        (SAID + b"FAILED=7\n", "b", "", False, False),
        (b"torn", "a", "", True, True),
        (b"torn", "b", "", True, True),
    ],
)
def test_data_is_due_as_the_guard_sees_it(
    said: Optional[bytes], current: str, claim: str, due: bool, failed: bool
) -> None:
    """While the new release is what starts, or has been confirmed, its data is its own."""
    claims = {claim: values.RECORD} if claim else {}
    state = values.state(current=current, claim=claims)._replace(snapshot=said)
    assert (keeping.is_due(state), keeping.has_failed(state)) == (due, failed)


def test_nothing_is_swapped_to_while_data_is_to_be_restored() -> None:
    """The refusal says what does it, and the way out."""
    assert keeping.pending(KEEPS, values.state()) is None
    refusal = keeping.pending(KEEPS, values.state()._replace(snapshot=SAID))
    assert refusal is not None
    assert refusal.code == codes.RESTORE_PENDING
    assert "systemctl restart probe.service" in refusal.text
    assert "remove /slots/snapshot" in refusal.text


def test_a_restore_that_failed_is_a_rollback_that_failed() -> None:
    """H6: the good version does not start; what a trial in flight is goes before."""
    nothing = settle.Settlement(settle.Action.NONE, codes.OK)
    assert outcome.state_now(nothing, records.Update(), True, True) == ("rollback-failed", "restore-failed")
    awaits = settle.Settlement(settle.Action.AWAIT, codes.TRIAL_PENDING, values.TRIAL)
    assert outcome.state_now(awaits, records.Update(), True, True) == ("trial", "trial-pending")


@pytest.mark.parametrize(
    ("product", "old", "new", "kept", "refused"),
    [
        (values.PRODUCT, 0, 0, False, False),
        (values.PRODUCT, 0, 1, False, True),
        (values.PRODUCT, 2, 1, False, True),
        (KEEPS, 0, 0, False, False),
        (KEEPS, 0, 1, True, False),
        (ALWAYS, 3, 3, True, False),
        (values.PRODUCT._replace(hooks=HOOKS[:1]), 0, 1, False, True),
    ],
)
def test_X5_a_release_of_another_epoch_needs_a_way_back_for_its_data(
    product: products.Product, old: int, new: int, kept: bool, refused: bool
) -> None:
    """Hooks keep the data and restore it; without both the change could not be undone."""
    assert keeping.is_kept(product, old, new) == kept
    state = values.state(held={"a": values.record("1.0.0")._replace(epoch=old)})
    refusal = keeping.one_way(product, state, values.record("1.1.0")._replace(epoch=new), "1.0.0")
    assert (refusal is not None) == refused
    if refusal is not None:
        assert refusal.code == codes.CANNOT_BE_UNDONE
        assert f"data of epoch {new}, and 1.0.0 that runs has epoch {old}" in refusal.text
        assert "--accept-one-way" in refusal.text


def test_going_back_without_the_data_says_so() -> None:
    """The guard goes back all the same; whoever reads why is told what the old version meets."""
    held = {"a": values.record("1.0.0"), "b": values.record("1.1.0")._replace(epoch=2)}
    state = values.state(held=held)
    said = keeping.left_behind(values.PRODUCT, state, values.TRIAL, codes.CRASH_LOOP)
    assert said == "; data of epoch 2 stays, which 1.0.0 with epoch 0 may not read"
    assert keeping.left_behind(KEEPS, state, values.TRIAL, codes.CRASH_LOOP) == ""
    assert keeping.left_behind(values.PRODUCT, state, values.TRIAL, codes.OK) == ""
    assert keeping.left_behind(values.PRODUCT, state, values.TRIAL, codes.NEVER_STARTED) == ""
    assert keeping.left_behind(values.PRODUCT, state, None, codes.LOST_RECORD) == ""
    assert keeping.left_behind(values.PRODUCT, values.state(held={}), values.TRIAL, codes.CRASH_LOOP) == ""
    assert keeping.left_behind(values.PRODUCT, values.state(), values.TRIAL, codes.CRASH_LOOP) == ""


def test_the_epoch_of_what_runs_is_its_records() -> None:
    """An unknown one is 0, as in a manifest without it."""
    held = {"a": values.record("1.0.0")._replace(epoch=4)}
    assert keeping.epoch(values.state(held=held)) == 4
    assert keeping.epoch(values.state(held={})) == 0


def test_an_epoch_stands_in_a_record_only_where_there_is_one() -> None:
    """An agent from before epochs reads a record without one as it always did, and takes one with it for broken."""
    plain, later = values.record("1.0.0"), values.record("1.1.0")._replace(epoch=7)
    data = records.render_slots({"a": plain, "b": later})
    assert data.count(b"epoch") == 1
    assert records.parse_slots(data, "f") == {"a": plain, "b": later}
    with pytest.raises(codes.BrokenRecord, match="epoch is -1"):
        records.parse_slots(data.replace(b'"epoch":7', b'"epoch":-1'), "f")
