# SPDX-License-Identifier: GPL-3.0-or-later
"""Which signatures count, how many are enough, and the order shape, signatures, canonical form."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Dict, List, Sequence, Set, Tuple, Union

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, keys, manifest, signatures

BODY = making.body()
KEYS = making.three()


def verify(
    published: bytes, pins: Sequence[str] = making.pins(), threshold: int = 2
) -> Union[signatures.VerifiedManifest, codes.Refusal]:
    """The function under test, with the usual pins."""
    return signatures.verify_release(published, pins, threshold)


def refused(published: bytes, pins: Sequence[str] = making.pins(), threshold: int = 2) -> codes.Refusal:
    """Its refusal, which must be one."""
    found = verify(published, pins, threshold)
    assert isinstance(found, codes.Refusal), found
    return found


def accepted(published: bytes, pins: Sequence[str] = making.pins(), threshold: int = 2) -> Set[str]:
    """The pins that signed a release which must be accepted."""
    found = verify(published, pins, threshold)
    assert isinstance(found, signatures.VerifiedManifest), found
    assert found.manifest == manifest.parse_body(found.published.body)[0]
    return set(found.signers)


@pytest.mark.parametrize("signers", list(itertools.combinations(range(3), 2)) + [(0, 1, 2)])
def test_any_two_of_three_keys_are_enough(signers: Tuple[int, ...]) -> None:
    """P-256 and Ed25519 alike."""
    found = accepted(making.published(BODY, [KEYS[number] for number in signers]))
    assert found == {KEYS[number].public.pin for number in signers}


def test_too_few_signatures_are_counted_and_explained() -> None:
    """The sentence gives both numbers and what is wrong with each that does not count."""
    assert refused(making.published(BODY)) == codes.Refusal(
        "too-few-signatures",
        "the release manifest has 0 of the 2 signatures by pinned keys that it needs (of toy 1.1.0)",
    )
    forged = {**making.signature_fields(BODY, KEYS[1]), "kid": KEYS[2].public.kid}
    foreign = making.signature_fields(BODY, making.key(9))
    text = refused(making.published(BODY, KEYS[:1], [forged, foreign])).text
    assert text == (
        "the release manifest has 1 of the 2 signatures by pinned keys that it needs "
        "(of toy 1.1.0; signed by %s; %s: it does not verify; %s: the document lists no such key)"
        % (KEYS[0].public.kid, KEYS[2].public.kid, making.key(9).public.kid)
    )


def test_all_whose_signatures_count_are_named() -> None:
    """So that an operator sees whose is missing."""
    text = refused(making.published(BODY, KEYS[:2]), threshold=3).text
    assert text.endswith("(of toy 1.1.0; signed by %s, %s)" % (KEYS[0].public.kid, KEYS[1].public.kid))


def test_each_signature_is_worth_a_pin_or_a_reason() -> None:
    """In the order in which they are read."""
    forged = {**making.signature_fields(BODY, KEYS[0]), "kid": KEYS[1].public.kid}
    foreign = making.signature_fields(BODY, making.key(9))
    form = manifest.parse_published(making.published(BODY, (KEYS[0], KEYS[0], KEYS[2]), [forged, foreign]))
    one, two, three = (each.public for each in KEYS)
    assert signatures.judge(form, manifest.parse_body(BODY)[0], making.pins(0, 1)) == (
        (two.kid, "", "it does not verify"),
        (making.key(9).public.kid, "", "the document lists no such key"),
        (one.kid, one.pin, ""),
        (one.kid, "", "its key has been counted"),
        (three.kid, "", "its key is not pinned"),
    )


def test_a_key_that_signs_twice_counts_once() -> None:
    """Also with two different signatures, as ECDSA makes them."""
    refusal = refused(making.published(BODY, [KEYS[0], KEYS[0], KEYS[0]]))
    assert refusal.code == codes.TOO_FEW_SIGNATURES
    assert "has 1 of the 2" in refusal.text
    assert "its key has been counted" in refusal.text


def test_a_pin_configured_twice_counts_once() -> None:
    """The list of pins is a set."""
    pin = KEYS[0].public.pin
    assert refused(making.published(BODY, [KEYS[0]]), (pin, pin)).code == codes.TOO_FEW_SIGNATURES
    assert accepted(making.published(BODY, [KEYS[0]]), (pin, pin), 1) == {pin}


def test_a_bad_signature_does_not_spoil_a_good_one_of_the_same_key() -> None:
    """Junk in front of a good signature costs nothing but its place."""
    junk = {"kid": KEYS[0].public.kid, "sig": making.b64(bytes(64))}
    assert len(accepted(making.published(BODY, KEYS[:2], [junk]))) == 2


def test_a_key_that_is_not_pinned_does_not_count() -> None:
    """However well it signs and whatever the manifest lists."""
    refusal = refused(making.published(BODY, KEYS), making.pins(0, 1)[:1])
    assert refusal.code == codes.TOO_FEW_SIGNATURES
    assert "%s: its key is not pinned" % KEYS[2].public.kid in refusal.text


def test_a_pinned_key_that_the_manifest_does_not_list_does_not_count() -> None:
    """The key comes from the manifest, the trust from the pin; both are needed."""
    body = making.body(keys=[making.key_fields(KEYS[0].public)])
    refusal = refused(making.published(body, KEYS[:2]))
    assert "%s: the document lists no such key" % KEYS[1].public.kid in refusal.text


def test_the_key_id_is_only_a_name() -> None:
    """A manifest may name its keys as it likes; the pin decides."""
    fields = [{**making.key_fields(one.public), "kid": "k%d" % number} for number, one in enumerate(KEYS)]
    body = making.body(keys=fields)
    signed = [{**making.signature_fields(body, one), "kid": "k%d" % number} for number, one in enumerate(KEYS)]
    assert accepted(making.published(body, (), signed), threshold=3) == set(making.pins())


def test_a_stranger_cannot_take_a_pinned_keys_name() -> None:
    """The attacker's key under the operator's key id."""
    mine = making.key(9)
    fields = [{**making.key_fields(mine.public), "kid": KEYS[0].public.kid}]
    body = making.body(keys=fields)
    signed = [{**making.signature_fields(body, mine), "kid": KEYS[0].public.kid}]
    assert "its key is not pinned" in refused(making.published(body, (), signed), threshold=1).text


@pytest.mark.parametrize("prefix", [b"", b"slotward.release-manifest", b"slotward.release-manifest\n", b"other\0"])
def test_a_signature_for_another_purpose_is_worth_nothing(prefix: bytes) -> None:
    """The same key over the same body, without our prefix or behind another one."""
    signed = [{"kid": one.public.kid, "sig": making.b64(one.sign(prefix + BODY))} for one in KEYS]
    assert refused(making.published(BODY, (), signed)).code == codes.TOO_FEW_SIGNATURES


def test_a_signature_of_another_body_is_worth_nothing() -> None:
    """Signatures do not move from one release to the next."""
    other = [making.signature_fields(making.body(sequence=6), one) for one in KEYS]
    assert refused(making.published(BODY, (), other)).code == codes.TOO_FEW_SIGNATURES


def test_sixteen_signatures_are_read() -> None:
    """What comes after them is not even looked at."""
    junk = [{"kid": "x", "sig": ""}]
    assert accepted(making.published(BODY, KEYS[:2], junk * 14)) == set(making.pins(0, 1))
    assert refused(making.published(BODY, KEYS[:2], junk * 15)).code == codes.TOO_FEW_SIGNATURES


@pytest.mark.parametrize("threshold", [0, -1])
def test_no_threshold_takes_an_unsigned_manifest(threshold: int) -> None:
    """Whatever a caller asks for, one signature is the least."""
    refusal = refused(making.published(BODY), threshold=threshold)
    assert refusal.code == codes.TOO_FEW_SIGNATURES
    assert "has 0 of the 1 signatures" in refusal.text
    assert len(accepted(making.published(BODY, KEYS[:1]), threshold=threshold)) == 1


def test_a_bad_shape_is_told_before_the_signatures() -> None:
    """1. shape: an unsigned manifest with a bad field is malformed."""
    refusal = refused(making.published(making.body(product="Toy")))
    assert refusal.code == codes.BAD_MANIFEST
    assert refusal.text.startswith("the release manifest is malformed: product must be ")
    assert refused(b"<html>").code == codes.BAD_MANIFEST
    assert refused(b"").code == codes.BAD_MANIFEST


def test_the_signatures_are_judged_before_the_canonical_form() -> None:
    """2. signatures: a spread-out body without signatures has too few of them."""
    spread = json.dumps(making.body_fields(), indent=1).encode()
    assert refused(making.published(spread)).code == codes.TOO_FEW_SIGNATURES
    refusal = refused(making.published(spread, KEYS))
    assert refusal.code == codes.NOT_CANONICAL
    assert refusal.text == (
        "the release manifest is not canonical JSON: byte 1: found '\\n', the canonical form has '\"'"
    )


def test_the_order_is_written_down() -> None:
    """As the table of checks has it."""
    assert signatures.ORDER == (codes.BAD_MANIFEST, codes.TOO_FEW_SIGNATURES, codes.NOT_CANONICAL)


def test_without_the_library_nothing_is_taken() -> None:
    """The refusal says what to install; a good shape is needed to come that far."""

    def missing(_alg: str, _spki: bytes, _message: bytes, _signature: bytes) -> bool:
        raise keys.Unavailable("install python3-cryptography")

    found = signatures.verify_release(making.published(BODY, KEYS), making.pins(), 2, verify=missing)
    assert found == codes.Refusal(codes.NO_CRYPTOGRAPHY, "install python3-cryptography")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=18),
    st.sets(st.integers(0, 2), min_size=1),
    st.integers(1, 3),
)
def test_the_count_is_that_of_distinct_pinned_signers(
    signed: List[Tuple[int, bool]], pinned: Set[int], threshold: int
) -> None:
    """Any order, repetition, forgery and foreign key, against a count made by hand."""
    cache: Dict[int, Dict[str, object]] = {}
    everyone = (*KEYS, making.key(9))
    entries: List[object] = []
    for number, good in signed:
        entry = cache.setdefault(number, making.signature_fields(BODY, everyone[number]))
        entries.append(entry if good else {**entry, "sig": making.b64(bytes(64))})
    count = {number for number, good in signed[:16] if good and number in pinned}
    pins = tuple(KEYS[number].public.pin for number in sorted(pinned))
    found = verify(making.published(BODY, (), entries), pins, threshold)
    if len(count) >= threshold:
        assert isinstance(found, signatures.VerifiedManifest)
        assert set(found.signers) == {KEYS[number].public.pin for number in count}
    else:
        assert isinstance(found, codes.Refusal)
        assert "has %d of the %d signatures" % (len(count), threshold) in found.text


@given(st.data())
def test_one_changed_byte_is_refused(data: st.DataObject) -> None:
    """Anywhere in the body, whatever it becomes."""
    at = data.draw(st.integers(0, len(BODY) - 1))
    changed = BODY[:at] + bytes([BODY[at] ^ data.draw(st.integers(1, 255))]) + BODY[at + 1 :]
    signed = [making.signature_fields(BODY, one) for one in KEYS[:1]]
    fields = {"manifest": base64.b64encode(changed).decode(), "signatures": signed}
    assert isinstance(verify(json.dumps(fields).encode(), threshold=1), codes.Refusal)
