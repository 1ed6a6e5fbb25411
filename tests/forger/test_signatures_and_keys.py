# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks on signatures and keys: what somebody can send who holds fewer pinned keys than the host asks for.

Read ``forging`` first: three keys are pinned, Ana's, Bea's and Cid's; two must have signed; Eve is the forger.
"""

from __future__ import annotations

import hashlib

import pytest
from core import making
from forger import forging
from forger.forging import ANA, BEA, CID, EVE, EVE_ED, GENUINE, Attack, Sends, by, entry, sends, with_key

from slotcore import checks, codes, keys, manifest

FEW, BAD = codes.TOO_FEW_SIGNATURES, codes.BAD_MANIFEST
ES, ED = keys.ES256, keys.EDDSA
KID = ANA.public.kid
SIG, ED_SIG = forging.sig_of(ANA), forging.sig_of(BEA)
R, S = forging.halves(SIG)
N, P, L, ED_P = forging.P256_ORDER, forging.P256_PRIME, forging.ED25519_ORDER, forging.ED25519_PRIME
HEADER = manifest.SPKI_SHAPES[ED][0]
POINT = forging.point(ANA)
NONE = "it does not verify"
NOT_ES, NOT_ED = "spki is not a plain ES256 public key in DER", "spki is not a plain EdDSA public key in DER"


def for_ana(sig: bytes) -> Sends:
    """Bea has signed; this stands for Ana's signature."""
    return sends(entry(KID, sig), by(BEA))


def for_bea(sig: bytes) -> Sends:
    """Ana has signed; this stands for Bea's signature."""
    return sends(by(ANA), entry(BEA.public.kid, sig))


def over(message: bytes) -> Sends:
    """Ana and Bea did sign this message, which is not what a release signs."""
    return sends(entry(KID, ANA.sign(message)), entry(BEA.public.kid, BEA.sign(message)))


def listing(*listed: keys.PrivateKey, signers: tuple[keys.PrivateKey, ...]) -> Sends:
    """A manifest of these keys, signed by those."""
    body = making.body(keys=[making.key_fields(one.public) for one in listed])
    return sends(*(by(one, body) for one in signers), body=body)


def renamed(kids: tuple[str, str], signers: tuple[keys.PrivateKey, keys.PrivateKey]) -> Sends:
    """Ana's and Bea's keys listed under these ids, signed by those with their own ids."""
    listed = [{**making.key_fields(one.public), "kid": kid} for one, kid in zip((ANA, BEA), kids)]
    body = making.body(keys=listed)
    return sends(*(by(one, body) for one in signers), body=body)


def twice(**changes: object) -> Sends:
    """Ana's key listed twice, the second time changed."""
    one = making.key_fields(ANA.public)
    body = making.body(keys=[one, {**one, **changes}])
    return sends(by(ANA, body), by(ANA, body, "other"), body=body)


WHO_SIGNED = (
    Attack("nobody signed", FEW, "has 0 of the 2 signatures", sends()),
    Attack("only one signed", FEW, "has 1 of the 2 signatures", sends(by(ANA))),
    Attack("one signed three times", FEW, "its key has been counted", sends(by(ANA), by(ANA), by(ANA))),
    Attack(
        "one signed, and once more as (r, n - s)",
        FEW,
        "its key has been counted",
        sends(by(ANA), entry(KID, forging.other_half(SIG))),
    ),
    Attack("the forger signed", FEW, "the document lists no such key", sends(by(ANA), by(EVE))),
    Attack("the forger signed twice", FEW, "the document lists no such key", sends(by(EVE), by(EVE_ED))),
    Attack(
        "mixed keys: the forger lists his beside Ana's",
        FEW,
        "its key is not pinned",
        listing(ANA, EVE, signers=(ANA, EVE)),
    ),
    Attack(
        "a manifest of the forger's keys alone",
        FEW,
        "its key is not pinned",
        listing(EVE, EVE_ED, signers=(EVE, EVE_ED)),
    ),
    Attack("a pinned key that the manifest does not list", FEW, "lists no such key", listing(ANA, signers=(ANA, BEA))),
    Attack(
        "kid swapped: each signature under the other's id",
        FEW,
        NONE,
        sends(by(ANA, kid=BEA.public.kid), by(BEA, kid=KID)),
    ),
    Attack("kid swapped in the manifest", FEW, NONE, renamed((BEA.public.kid, KID), (ANA, BEA))),
    Attack("the forger's signature under Ana's id", FEW, NONE, sends(by(EVE, kid=KID), by(BEA))),
    Attack(
        "the forger's key under Ana's id",
        FEW,
        "its key is not pinned",
        lambda: making.published(
            making.body(keys=[{**making.key_fields(EVE.public), "kid": KID}, making.key_fields(BEA.public)]),
            (BEA,),
            [
                by(
                    EVE,
                    making.body(keys=[{**making.key_fields(EVE.public), "kid": KID}, making.key_fields(BEA.public)]),
                    KID,
                )
            ],
        ),
    ),
    Attack("the same key under two ids", BAD, "keys[1].spki is the same as that of keys[0]", twice(kid="other")),
    Attack(
        "two keys under one id",
        BAD,
        "keys[1].kid is the same as that of keys[0]",
        twice(spki=making.b64(EVE.public.spki)),
    ),
    Attack(
        "the same pin configured twice",
        FEW,
        "has 1 of the 2 signatures",
        sends(by(ANA)),
        {"pins": (ANA.public.pin, ANA.public.pin)},
    ),
    Attack(
        "genuine signatures behind sixteen of junk",
        FEW,
        "has 0 of the 2",
        sends(*[entry("x", b"")] * 16, by(ANA), by(BEA)),
    ),
    Attack("the genuine signatures of another body", FEW, NONE, sends(by(ANA), by(BEA), body=making.body(sequence=99))),
    Attack(
        "a key that is no longer pinned",
        FEW,
        "its key is not pinned",
        sends(by(ANA), by(CID)),
        {"pins": making.pins(0, 1)},
    ),
    Attack(
        "seventeen keys",
        BAD,
        "keys must be 1 to 16, not 17",
        lambda: making.published(
            making.body(keys=[making.key_fields(making.key(200 + n, ED).public) for n in range(17)]), (ANA, BEA)
        ),
    ),
    Attack("no key at all", BAD, "keys must be 1 to 16, not 0", forging.fields(keys=[])),
)

WHAT_WAS_SIGNED = (
    Attack("the body without a purpose", FEW, NONE, over(GENUINE)),
    Attack("other purpose: a key set", FEW, NONE, over(b"slotward.key-set\0" + GENUINE)),
    Attack("other purpose: a downgrade permit", FEW, NONE, over(b"slotward.downgrade-permit\0" + GENUINE)),
    Attack("other purpose: a withdrawal", FEW, NONE, over(b"slotward.withdrawal\0" + GENUINE)),
    Attack("other purpose: another project's", FEW, NONE, over(b"bettercompute.release-manifest\0" + GENUINE)),
    Attack("the purpose without its end", FEW, NONE, over(b"slotward.release-manifest" + GENUINE)),
    Attack("the purpose ended by a line end", FEW, NONE, over(b"slotward.release-manifest\n" + GENUINE)),
    Attack("the purpose twice", FEW, NONE, over(b"slotward.release-manifest\0" * 2 + GENUINE)),
    Attack("the purpose in capitals", FEW, NONE, over(b"SLOTWARD.RELEASE-MANIFEST\0" + GENUINE)),
    Attack("the hash of the body", FEW, NONE, over(b"slotward.release-manifest\0" + hashlib.sha256(GENUINE).digest())),
    Attack("the base64 of the body", FEW, NONE, over(b"slotward.release-manifest\0" + making.b64(GENUINE).encode())),
    Attack("the body and a line end", FEW, NONE, over(b"slotward.release-manifest\0" + GENUINE + b"\n")),
)

ES256_SIGNATURES = (
    Attack("no bytes", FEW, NONE, for_ana(b"")),
    Attack("64 zero bytes", FEW, NONE, for_ana(bytes(64))),
    Attack("64 bytes 0xff", FEW, NONE, for_ana(b"\xff" * 64)),
    Attack("r = 0", FEW, NONE, for_ana(forging.p1363(0, S))),
    Attack("s = 0", FEW, NONE, for_ana(forging.p1363(R, 0))),
    Attack("r = n", FEW, NONE, for_ana(forging.p1363(N, S))),
    Attack("s = n", FEW, NONE, for_ana(forging.p1363(R, N))),
    Attack("r = n and s = n", FEW, NONE, for_ana(forging.p1363(N, N))),
    Attack("r and s are 1", FEW, NONE, for_ana(forging.p1363(1, 1))),
    Attack("r = the prime of the field", FEW, NONE, for_ana(forging.p1363(P, S))),
    Attack("r above n, the same modulo n", FEW, NONE, for_ana(forging.p1363((R % (2**256 - N)) + N, S))),
    Attack("-r as 32 bytes", FEW, NONE, for_ana(forging.p1363(2**256 - R, S))),
    Attack("-s as 32 bytes", FEW, NONE, for_ana(forging.p1363(R, 2**256 - S))),
    Attack("n - r for r", FEW, NONE, for_ana(forging.p1363(N - R, S))),
    Attack("r and s changed about", FEW, NONE, for_ana(SIG[32:] + SIG[:32])),
    Attack("little-endian numbers", FEW, NONE, for_ana(SIG[31::-1] + SIG[:31:-1])),
    Attack("one byte short", FEW, NONE, for_ana(SIG[:63])),
    Attack("one byte long", FEW, NONE, for_ana(SIG + b"\0")),
    Attack("33 bytes for each number", FEW, NONE, for_ana(b"\0" + SIG[:32] + b"\0" + SIG[32:])),
    Attack("two signatures end to end", FEW, NONE, for_ana(SIG + SIG)),
    Attack("DER instead of P1363", FEW, NONE, for_ana(forging.der(SIG))),
    Attack("DER cut to 64 bytes", FEW, NONE, for_ana(forging.der(SIG)[:64])),
    Attack("an Ed25519 signature for a P-256 key", FEW, NONE, for_ana(ED_SIG)),
)

EDDSA_SIGNATURES = (
    Attack("S + L for S", FEW, NONE, for_bea(forging.ed_numbers(ED_SIG, L))),
    Attack("S + 8 L for S", FEW, NONE, for_bea(forging.ed_numbers(ED_SIG, 8 * L))),
    Attack("S = 0", FEW, NONE, for_bea(ED_SIG[:32] + bytes(32))),
    Attack("S = L", FEW, NONE, for_bea(ED_SIG[:32] + L.to_bytes(32, "little"))),
    Attack("the highest bit of S", FEW, NONE, for_bea(ED_SIG[:63] + bytes([ED_SIG[63] | 0x80]))),
    Attack("R with its sign changed", FEW, NONE, for_bea(ED_SIG[:31] + bytes([ED_SIG[31] ^ 0x80]) + ED_SIG[32:])),
    Attack("R = the neutral point, S = 0", FEW, NONE, for_bea(b"\1" + bytes(63))),
    Attack("R = the neutral point, spelled p + 1", FEW, NONE, for_bea((ED_P + 1).to_bytes(32, "little") + bytes(32))),
    Attack("R is no point", FEW, NONE, for_bea(b"\2" + bytes(31) + ED_SIG[32:])),
    Attack("64 zero bytes for Ed25519", FEW, NONE, for_bea(bytes(64))),
    Attack("one byte short for Ed25519", FEW, NONE, for_bea(ED_SIG[:63])),
    Attack("one byte long for Ed25519", FEW, NONE, for_bea(ED_SIG + b"\0")),
    Attack("a P-256 signature for an Ed25519 key", FEW, NONE, for_bea(SIG)),
)

KEYS = (
    Attack("SPKI with a trailing byte", BAD, NOT_ES, with_key(ES, ANA.public.spki + b"\0")),
    Attack("SPKI one byte short", BAD, NOT_ES, with_key(ES, ANA.public.spki[:-1])),
    Attack("SPKI twice", BAD, NOT_ES, with_key(ES, ANA.public.spki * 2)),
    Attack(
        "SPKI with explicit parameters",
        BAD,
        NOT_ES,
        with_key(ES, forging.ec_spki(forging.explicit_p256(), b"\4" + POINT)),
    ),
    Attack("SPKI without parameters", BAD, NOT_ES, with_key(ES, forging.ec_spki(b"", b"\4" + POINT))),
    Attack("SPKI with NULL for parameters", BAD, NOT_ES, with_key(ES, forging.ec_spki(b"\5\0", b"\4" + POINT))),
    Attack(
        "a compressed point", BAD, NOT_ES, with_key(ES, forging.ec_spki(forging.P256_NAME, forging.compressed(ANA)))
    ),
    Attack(
        "a hybrid point",
        BAD,
        NOT_ES,
        with_key(ES, forging.ec_spki(forging.P256_NAME, bytes([6 + POINT[63] % 2]) + POINT)),
    ),
    Attack("the point at infinity", BAD, NOT_ES, with_key(ES, forging.ec_spki(forging.P256_NAME, b"\0"))),
    Attack("BER: a long length", BAD, NOT_ES, with_key(ES, forging.long_length(ANA.public.spki))),
    Attack("BER: an indefinite length", BAD, NOT_ES, with_key(ES, forging.indefinite(ANA.public.spki))),
    Attack("BER: a long length of an Ed25519 key", BAD, NOT_ED, with_key(ED, forging.long_length(BEA.public.spki))),
    Attack(
        "unused bits in the key's bit string",
        BAD,
        NOT_ES,
        with_key(ES, ANA.public.spki.replace(b"\x03\x42\0\4", b"\x03\x42\1\4")),
    ),
    Attack(
        "another curve: secp256k1",
        BAD,
        NOT_ES,
        with_key(ES, forging.ec_spki(bytes.fromhex("06052b8104000a"), b"\4" + POINT)),
    ),
    Attack(
        "another curve: P-384",
        BAD,
        NOT_ES,
        with_key(ES, forging.ec_spki(bytes.fromhex("06052b81040022"), b"\4" + bytes(96))),
    ),
    Attack(
        "another kind: X25519",
        BAD,
        NOT_ED,
        with_key(ED, HEADER.replace(b"\x2b\x65\x70", b"\x2b\x65\x6e") + forging.point(BEA)),
    ),
    Attack(
        "Ed25519 with NULL for parameters",
        BAD,
        NOT_ED,
        with_key(ED, bytes.fromhex("302c300706032b65700500032100") + forging.point(BEA)),
    ),
    Attack("the raw point alone", BAD, NOT_ED, with_key(ED, forging.point(BEA))),
    Attack("a key of the other algorithm", BAD, NOT_ES, with_key(ES, BEA.public.spki)),
    Attack("algorithm none", BAD, "alg must be ES256 or EdDSA", with_key("none", ANA.public.spki)),
    Attack(
        "algorithm HS256, the public key as the secret",
        BAD,
        "alg must be ES256 or EdDSA",
        with_key("HS256", ANA.public.spki),
    ),
    Attack("algorithm es256", BAD, "alg must be ES256 or EdDSA", with_key("es256", ANA.public.spki)),
    Attack("algorithm ES384", BAD, "alg must be ES256 or EdDSA", with_key("ES384", ANA.public.spki)),
    Attack("an Ed25519 key of small order", BAD, NOT_ED, with_key(ED, HEADER + b"\1" + bytes(31))),
    Attack(
        "an Ed25519 key of order 8",
        BAD,
        NOT_ED,
        with_key(ED, HEADER + bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")),
    ),
    Attack(
        "a non-canonical Ed25519 key: y = p + 1", BAD, NOT_ED, with_key(ED, HEADER + (ED_P + 1).to_bytes(32, "little"))
    ),
    Attack(
        "a non-canonical Ed25519 key: y = p + 3", BAD, NOT_ED, with_key(ED, HEADER + (ED_P + 3).to_bytes(32, "little"))
    ),
    Attack("a non-canonical Ed25519 key: all bits", BAD, NOT_ED, with_key(ED, HEADER + b"\xff" * 32)),
)
ATTACKS = WHO_SIGNED + WHAT_WAS_SIGNED + ES256_SIGNATURES + EDDSA_SIGNATURES + KEYS


@pytest.mark.parametrize("attack", ATTACKS, ids=forging.names(ATTACKS))
def test_it_is_refused_by_name(attack: Attack) -> None:
    """The code names the attack, and the words say where."""
    refusal = forging.judged(attack)
    assert refusal is not None
    assert (refusal.code, attack.says in refusal.text) == (attack.code, True), refusal


@pytest.mark.parametrize("signers", [(ANA, BEA), (BEA, CID), (CID, ANA), (ANA, BEA, CID)])
def test_the_genuine_release_is_taken(signers: tuple[keys.PrivateKey, ...]) -> None:
    """Else every row above would prove nothing."""
    assert forging.judged(Attack("genuine", "", "", sends(*(by(one) for one in signers)))) is None


def test_the_other_half_of_a_signature_verifies_and_gains_nothing() -> None:
    """(r, n - s) is taken in place of (r, s), for the same body and the same key, and never beside it (releases.md)."""
    other = forging.other_half(SIG)
    assert other != SIG
    taken = checks.check(making.facts(sends(entry(KID, other), by(BEA))()))
    assert isinstance(taken, checks.Verified)
    assert set(taken.signers) == {ANA.public.pin, BEA.public.pin}
    both = sends(by(ANA), entry(KID, other))()
    found = checks.check(making.facts(both, threshold=1))
    assert isinstance(found, checks.Verified)
    assert found.signers == (ANA.public.pin,)


def test_a_point_beside_the_curve_is_no_key() -> None:
    """Its shape passes, nothing that it signs verifies, and the library does not fail over it."""
    for point in (b"\1" + bytes(63), POINT[:32] + bytes(32), b"\xff" * 64, P.to_bytes(32, "big") + POINT[32:]):
        spki = manifest.SPKI_SHAPES[ES][0] + point
        body = making.body(keys=[{"kid": "a", "alg": ES, "spki": making.b64(spki)}, making.key_fields(BEA.public)])
        attack = Attack(
            "",
            "",
            "",
            sends(by(ANA, body, "a"), by(BEA, body), body=body),
            {"pins": (keys.pin_of(spki), BEA.public.pin)},
        )
        refusal = forging.judged(attack)
        assert refusal is not None
        assert (refusal.code, NONE in refusal.text) == (FEW, True), refusal
