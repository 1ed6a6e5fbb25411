# SPDX-License-Identifier: GPL-3.0-or-later
"""Records and their copies: what proves itself, and that no byte of it can change unseen."""

from __future__ import annotations

import hashlib

import pytest
from core.crash.values import PRODUCT, state
from hypothesis import given
from hypothesis import strategies as st

from slotcore import ops, recording, settle

DATA = b'{"spec":1}\n'


def test_P4_a_record_is_written_after_its_copy_and_both_durably() -> None:
    """Copy, sync, rename, sync of the directory; then the same for the record (field cases P1, P4)."""
    assert recording.write(PRODUCT, recording.UPDATE, DATA) == (
        ops.Write("/slots/update.json.copy.tmp", recording.sealed(DATA)),
        ops.Sync("/slots/update.json.copy.tmp"),
        ops.Rename("/slots/update.json.copy.tmp", "/slots/update.json.copy"),
        ops.SyncDir("/slots"),
        ops.Write("/slots/update.json.tmp", DATA),
        ops.Sync("/slots/update.json.tmp"),
        ops.Rename("/slots/update.json.tmp", "/slots/update.json"),
        ops.SyncDir("/slots"),
    )


def test_a_copy_has_the_form_of_the_page() -> None:
    """trust.md, section 3: other programs can check it with sha256sum."""
    assert recording.sealed(DATA) == b"sha256 " + hashlib.sha256(DATA).hexdigest().encode() + b"\n" + DATA
    assert len(recording.sealed(DATA)) == len(DATA) + recording.SEAL_BYTES


@given(st.binary(max_size=200))
def test_a_copy_gives_back_what_was_sealed(data: bytes) -> None:
    """For any bytes, none included."""
    assert recording.unsealed(recording.sealed(data)) == data


def test_P4_a_copy_torn_at_any_byte_proves_nothing() -> None:
    """Cut short, with a tail, or with any one bit turned over."""
    whole = recording.sealed(DATA)
    for length in range(len(whole)):
        assert recording.unsealed(whole[:length]) is None
    assert recording.unsealed(whole + b"\n") is None
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            assert recording.unsealed(bytes(changed)) is None


@given(st.binary(max_size=200))
def test_bytes_that_nobody_sealed_prove_nothing(data: bytes) -> None:
    """No bytes make it raise, and none pass by chance."""
    assert recording.unsealed(data) is None


NAMES = (
    "update.json",
    "update.json.copy",
    "update.json.broken-7",
    "update.json.broken-12",
    "update.json.broken-3/",
    "a",
)


def test_what_was_set_aside_is_told_from_everything_else() -> None:
    """By record, oldest first, by number and not by letter; a directory among them keeps its slash."""
    assert recording.aside_of("update.json", NAMES) == (
        "update.json.broken-3/",
        "update.json.broken-7",
        "update.json.broken-12",
    )
    assert recording.aside_of("slots.json", NAMES) == ()
    for odd in (
        "update.json.broken-",
        "update.json.broken-x",
        "update.json.broken-07",
        "x.json.broken-7",
        "trial.broken",
    ):
        assert not recording.is_aside(odd)
    for plain in ("slots.json.broken-1", "trust.json.broken-1", "trial.broken-1700000000", "update.json.broken-0"):
        assert recording.is_aside(plain)


@pytest.mark.parametrize(
    ("at", "number"),
    [
        pytest.param(100, 100, id="a clock that goes on"),
        pytest.param(12, 13, id="the same second"),
        pytest.param(0, 13, id="a clock set back to 1970"),
    ],
)
def test_nothing_is_ever_set_aside_over_what_was_set_aside_before(at: int, number: int) -> None:
    """The numbers go up whatever the clock does."""
    plan = recording.set_aside(PRODUCT, "update.json", "update.json", at, NAMES)
    assert plan == (ops.Rename("/slots/update.json", f"/slots/update.json.broken-{number}"),)


def test_of_each_record_the_newest_four_are_kept() -> None:
    """The oldest go; a directory cannot be unlinked and stays."""
    names = [f"slots.json.broken-{number}" for number in (5, 1, 4, 2, 3)] + ["slots.json.broken-0/", *NAMES]
    plan = recording.set_aside(PRODUCT, "slots.json", "slots.json", 9, names)
    assert plan == (
        ops.Rename("/slots/slots.json", "/slots/slots.json.broken-9"),
        ops.Unlink("/slots/slots.json.broken-1"),
        ops.Unlink("/slots/slots.json.broken-2"),
    )


def damaged(*found: settle.Damage) -> settle.State:
    """A state with damaged records."""
    return state()._replace(damaged=found, broken=("/slots/update.json", "torn"))


TORN = settle.Damage("update.json", "torn", True, DATA)


def test_P4_a_record_is_restored_ready_first_so_that_a_full_disk_changes_nothing() -> None:
    """What needs space comes before the first rename; the name is without a record only between two renames."""
    assert recording.plan_restore(PRODUCT, damaged(TORN), 9) == (
        ops.Write("/slots/update.json.tmp", DATA),
        ops.Sync("/slots/update.json.tmp"),
        ops.Rename("/slots/update.json", "/slots/update.json.broken-9"),
        ops.Rename("/slots/update.json.tmp", "/slots/update.json"),
        ops.SyncDir("/slots"),
    )
    lost = recording.plan_restore(PRODUCT, damaged(TORN._replace(there=False)), 9)
    assert [type(operation) for operation in lost] == [ops.Write, ops.Sync, ops.Rename, ops.SyncDir]


def test_I3_a_record_without_proof_is_set_aside_and_nothing_is_written() -> None:
    """A second time there is nothing left to do (I9)."""
    unproven = TORN._replace(copy=None)
    assert recording.plan_restore(PRODUCT, damaged(unproven), 9) == (
        ops.Rename("/slots/update.json", "/slots/update.json.broken-9"),
        ops.SyncDir("/slots"),
    )
    assert recording.plan_restore(PRODUCT, damaged(unproven._replace(there=False)), 9) == ()
    assert recording.plan_restore(PRODUCT, state(), 9) == ()


def test_the_copies_and_what_was_set_aside_are_no_leftovers() -> None:
    """Tidying takes temporaries of them and nothing else."""
    names = (*NAMES[:-2], "trial.broken-5", "slots.json.copy", "slots.json.copy.tmp", "update.json.tmp")
    assert settle.leftovers(state(), names) == ("slots.json.copy.tmp", "update.json.tmp")


def test_only_what_settling_can_do_something_about_calls_for_it() -> None:
    """A start and a look have it settled then, also in a trial; a lost record without proof waits for an operator."""
    assert not settle.is_mendable(state())
    lost = TORN._replace(there=False, copy=None)
    assert not settle.is_mendable(damaged(lost))
    for more in (TORN, TORN._replace(copy=None), TORN._replace(there=False)):
        assert settle.is_mendable(damaged(lost, more))
