# SPDX-License-Identifier: GPL-3.0-or-later
"""A forger's tools: genuine releases taken apart and put together wrongly. Builders of good ones are in ``core.making``.

The host of every attack pins three keys (P-256, Ed25519, P-256) and asks for two of them; it runs 1.0.0, its floor is 4.
"""

from __future__ import annotations

import base64
import json
from types import MappingProxyType
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from core import making

from slotcore import checks, codes, keys, manifest

ANA, BEA, CID = making.three()
"""Whose keys the host pins: Ana's and Cid's are P-256, Bea's is Ed25519."""
EVE = making.key(66)
EVE_ED = making.key(67, keys.EDDSA)
"""The forger's own keys: nobody pins them."""
GENUINE = making.body()

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
P256_PRIME = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493
ED25519_PRIME = 2**255 - 19


Sends = Callable[[], bytes]
"""What arrives at the host, made when it is wanted."""


class Attack(NamedTuple):
    """One row: what the forger does, what he sends, and the code and words of the refusal that names it."""

    name: str
    code: str
    says: str
    sends: Sends
    """The published form that arrives at the host."""
    host: Mapping[str, object] = MappingProxyType({})
    """How this host differs from the usual one (fields of ``checks.Facts``)."""


def judged(attack: Attack) -> Optional[codes.Refusal]:
    """What the host answers, by the real checks in their real order; None when it takes the release."""
    found = checks.check(making.facts(attack.sends(), **attack.host))
    return found if isinstance(found, codes.Refusal) else None


def names(attacks: Sequence[Attack]) -> List[str]:
    """For pytest's output."""
    return [attack.name for attack in attacks]


# --- published forms ---


def entry(kid: str, sig: bytes) -> Dict[str, object]:
    """A signature as the published form has it."""
    return {"kid": kid, "sig": making.b64(sig)}


def by(one: keys.PrivateKey, body: bytes = GENUINE, kid: str = "") -> Dict[str, object]:
    """A genuine signature, under another key id if wanted."""
    made = making.signature_fields(body, one)
    return {**made, "kid": kid or made["kid"]}


def sends(*entries: Dict[str, object], body: bytes = GENUINE) -> Sends:
    """A published form with these signatures."""
    return lambda: making.published(body, (), entries)


def signed(body: bytes, *signers: keys.PrivateKey) -> Sends:
    """Any bytes as a body that pinned keys did sign: only its form can refuse it now."""
    return lambda: making.published(body, signers or (ANA, BEA))


def raw(manifest_text: str, signature_text: str = "") -> Sends:
    """The published form with base64 of the forger's own spelling."""
    one = {**by(ANA), "sig": signature_text or by(ANA)["sig"]}
    return lambda: json.dumps({"manifest": manifest_text, "signatures": [one, by(BEA)]}).encode()


def spelled(before: str, after: str) -> Sends:
    """The genuine body with one place spelled otherwise, signed by pinned keys."""
    body = GENUINE.decode("utf-8")
    if body.count(before) != 1:
        raise AssertionError("%r is %d times in the body" % (before, body.count(before)))
    return signed(body.replace(before, after).encode("utf-8", "surrogatepass"))


def fields(**changes: object) -> Sends:
    """A body with other values, signed by pinned keys."""
    return signed(making.body(**changes))


def with_key(alg: str, spki: bytes) -> Sends:
    """A manifest that lists a key in an encoding of the forger's own beside Bea's; signed by Ana and Bea."""
    listed = [{"kid": "a", "alg": alg, "spki": making.b64(spki)}, making.key_fields(BEA.public)]
    body = making.body(keys=listed)
    return sends(by(ANA, body, "a"), by(BEA, body), body=body)


# --- keys and signatures, taken apart ---


def point(one: keys.PrivateKey) -> bytes:
    """The raw public key behind its header."""
    header, _size = manifest.SPKI_SHAPES[one.public.alg]
    return one.public.spki[len(header) :]


def tlv(tag: int, content: bytes) -> bytes:
    """DER of one value."""
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 + len(length)]) + length + content


def ec_spki(curve: bytes, key: bytes) -> bytes:
    """An SPKI of an elliptic curve key: parameters and point of the forger's choice."""
    algorithm = tlv(0x30, bytes.fromhex("06072a8648ce3d0201") + curve)
    return tlv(0x30, algorithm + tlv(0x03, b"\0" + key))


P256_NAME = bytes.fromhex("06082a8648ce3d030107")


def explicit_p256() -> bytes:
    """The parameters of P-256 written out instead of named (the shape of CVE-2020-0601)."""
    prime = tlv(0x02, b"\0" + P256_PRIME.to_bytes(32, "big"))
    field = tlv(0x30, bytes.fromhex("06072a8648ce3d0101") + prime)
    b = bytes.fromhex("5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b")
    curve = tlv(0x30, tlv(0x04, (P256_PRIME - 3).to_bytes(32, "big")) + tlv(0x04, b))
    base = bytes.fromhex(
        "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    )
    order = tlv(0x02, b"\0" + P256_ORDER.to_bytes(32, "big"))
    return tlv(0x30, tlv(0x02, b"\1") + field + curve + tlv(0x04, base) + order + tlv(0x02, b"\1"))


def compressed(one: keys.PrivateKey, first: int = 2) -> bytes:
    """A point by its x alone."""
    return bytes([first + point(one)[63] % 2]) + point(one)[:32]


def long_length(spki: bytes) -> bytes:
    """The same SPKI in BER: the outer length in two bytes where one does."""
    return spki[:1] + b"\x81" + spki[1:]


def indefinite(spki: bytes) -> bytes:
    """The same SPKI in BER of indefinite length."""
    return spki[:1] + b"\x80" + spki[2:] + b"\0\0"


def halves(sig: bytes) -> List[int]:
    """The numbers r and s of an ECDSA signature."""
    return [int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big")]


def p1363(r: int, s: int) -> bytes:
    """The signature of these numbers."""
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def sig_of(one: keys.PrivateKey, body: bytes = GENUINE) -> bytes:
    """The raw signature over a genuine body."""
    return base64.b64decode(str(by(one, body)["sig"]))


def der(sig: bytes) -> bytes:
    """An ECDSA signature in DER."""
    numbers = b"".join(tlv(2, n.to_bytes(n.bit_length() // 8 + 1, "big")) for n in halves(sig))
    return tlv(0x30, numbers)


def other_half(sig: bytes) -> bytes:
    """The same signature with n - s for s, which verifies as well."""
    r, s = halves(sig)
    return p1363(r, P256_ORDER - s)


def ed_numbers(sig: bytes, add: int) -> bytes:
    """An Ed25519 signature with a multiple of the order added to S: the same number modulo L, spelled otherwise."""
    return sig[:32] + (int.from_bytes(sig[32:], "little") + add).to_bytes(32, "little")
