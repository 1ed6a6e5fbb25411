# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures that another program made: a token's tool, a remote signer, OpenSSL.

Rules:

* EdDSA: the 64 bytes of RFC 8032. ES256: the 64 bytes r||s, or an ECDSA signature in DER, which becomes r||s.
* What an answer looks like never decides: the spelling that verifies counts, and none that does not.
* DER is read strictly: one sequence of two positive integers of at most 32 bytes, nothing before, between or after.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from . import keys

HALF = keys.SIGNATURE_BYTES // 2
MAX_ANSWER = 4096
_SEQUENCE, _INTEGER = 0x30, 0x02


def raw_signature(key: keys.PublicKey, message: bytes, answer: bytes) -> Optional[bytes]:
    """The 64 bytes of the signature in `answer`, or None when it is none of `message` by this key."""
    tried = [answer]
    if key.alg == keys.ES256:
        tried += p1363_of(answer)
    return next((one for one in tried if keys.verify(key.alg, key.spki, message, one)), None)


def p1363_of(der: bytes) -> List[bytes]:
    """r||s of an ECDSA signature in DER, or nothing when the bytes are none."""
    outer = _value(der, _SEQUENCE)
    first = _value(outer[0], _INTEGER) if outer else None
    second = _value(first[1], _INTEGER) if first else None
    if not outer or not first or not second or outer[1] or second[1]:
        return []
    numbers = [int.from_bytes(value, "big") for value in (first[0], second[0])]
    if any(number >> (8 * HALF) for number in numbers):
        return []
    return [b"".join(number.to_bytes(HALF, "big") for number in numbers)]


def _value(data: bytes, tag: int) -> Optional[Tuple[bytes, bytes]]:
    """The inside of the value that `data` begins with, and what follows it; lengths here are below 128."""
    if len(data) < 2 or data[0] != tag or data[1] > 127 or len(data) < 2 + data[1]:
        return None
    end = 2 + data[1]
    return data[2:end], data[end:]
