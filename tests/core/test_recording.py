# SPDX-License-Identifier: GPL-3.0-or-later
"""Records and their copies: what proves itself, and that no byte of it can change unseen."""

from __future__ import annotations

import hashlib

from core.crash.values import PRODUCT
from hypothesis import given
from hypothesis import strategies as st

from slotcore import ops, recording

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
