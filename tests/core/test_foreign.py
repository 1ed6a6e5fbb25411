# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures that other programs made: every spelling that verifies is taken, and nothing else."""

from __future__ import annotations

from typing import List

import pytest
from core import making
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import given
from hypothesis import strategies as st

from slotcore import foreign, keys

MESSAGE = b"what is signed"


def der(r: int, s: int) -> bytes:
    """An ECDSA signature as openssl writes it."""
    return bytes(utils.encode_dss_signature(r, s))


def test_a_signature_in_der_becomes_64_bytes() -> None:
    """As a token's tool and `openssl dgst -sign` answer it."""
    key = making.key(1)
    made = key.handle.sign(MESSAGE, ec.ECDSA(hashes.SHA256()))
    raw = foreign.raw_signature(key.public, MESSAGE, made)
    assert raw is not None
    assert len(raw) == keys.SIGNATURE_BYTES
    assert keys.verify("ES256", key.public.spki, MESSAGE, raw)


@pytest.mark.parametrize("alg", keys.ALGORITHMS)
def test_raw_signatures_are_taken_as_they_are(alg: str) -> None:
    """P1363 and Ed25519; of another message, another key or with a byte more they are none."""
    key = making.key(1 if alg == keys.ES256 else 2, alg)
    made = key.sign(MESSAGE)
    assert foreign.raw_signature(key.public, MESSAGE, made) == made
    assert foreign.raw_signature(key.public, MESSAGE + b"x", made) is None
    assert foreign.raw_signature(making.key(3).public, MESSAGE, made) is None
    assert foreign.raw_signature(key.public, MESSAGE, made + b"\n") is None
    assert foreign.raw_signature(key.public, MESSAGE, b"") is None


def test_der_is_for_ecdsa_only() -> None:
    """An Ed25519 key has one spelling of its signatures."""
    key = making.key(2, keys.EDDSA)
    raw = key.sign(MESSAGE)
    wrapped = der(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    assert foreign.p1363_of(wrapped) == [raw]
    assert foreign.raw_signature(key.public, MESSAGE, wrapped) is None


@given(st.integers(0, 2**256 - 1), st.integers(0, 2**256 - 1))
def test_every_pair_of_numbers_survives(r: int, s: int) -> None:
    """Small ones keep their zeros, large ones lose the zero that DER puts in front."""
    assert foreign.p1363_of(der(r, s)) == [r.to_bytes(32, "big") + s.to_bytes(32, "big")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0",
        b"0\x00",
        b"\x30\x80",
        b"\x30\x06\x02\x01\x01\x02\x01",
        b"\x30\x03\x02\x01\x01",
        b"\x30\x06\x02\x01\x01\x03\x01\x01",
        b"\x31\x06\x02\x01\x01\x02\x01\x01",
        der(1, 1) + b"\x00",
        b"\x30\x09" + der(1, 1)[2:] + b"\x02\x01\x01",
        b"\x30\x81\x06" + der(1, 1)[2:],
        der(2**256, 1),
        der(1, 2**256),
    ],
)
def test_what_is_no_der_is_none(data: bytes) -> None:
    """Cut, of another type, with something behind, with numbers that do not fit."""
    assert foreign.p1363_of(data) == []


@given(st.one_of(st.binary(max_size=80), st.lists(st.integers(0, 3), max_size=12).map(bytes)))
def test_random_bytes_are_no_signature(data: bytes) -> None:
    """And raise nothing."""
    found: List[bytes] = foreign.p1363_of(data)
    assert all(len(one) == keys.SIGNATURE_BYTES for one in found)
    assert foreign.raw_signature(making.key(1).public, MESSAGE, data) is None
