# SPDX-License-Identifier: GPL-3.0-or-later
"""Key sets, permits and withdrawals: their shapes, their purposes, and that writing goes through the reader."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Dict, List, Tuple

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import canonical, codes, documents, fields, keys, manifest, signatures

OTHERS = (documents.KEY_SET, documents.PERMIT, documents.WITHDRAWAL)
KEYS = making.three()
NAMES = [kind.type for kind in documents.KINDS]


def body_of(kind: documents.Kind) -> bytes:
    """A good body of any kind, a release too."""
    return making.body() if kind is documents.RELEASE else making.document(kind)


def wrong(kind: documents.Kind, **changes: object) -> str:
    """The complaint about a body with these changes."""
    with pytest.raises(fields.BadField) as caught:
        kind.parse(making.document(kind, **changes))
    return str(caught.value)


def test_the_kinds_are_those_of_the_contract() -> None:
    """Types, purposes and codes as the table of trust.md has them; no two kinds share one."""
    assert [(kind.type, kind.purpose, kind.bad_shape) for kind in documents.KINDS] == [
        ("slotward.release", b"slotward.release-manifest\0", codes.BAD_MANIFEST),
        ("slotward.key-set", b"slotward.key-set\0", codes.BAD_DOCUMENT),
        ("slotward.downgrade-permit", b"slotward.downgrade-permit\0", codes.BAD_DOCUMENT),
        ("slotward.withdrawal", b"slotward.withdrawal\0", codes.BAD_DOCUMENT),
    ]


def test_a_purpose_is_never_the_beginning_of_another() -> None:
    """So a body cannot be shifted from one purpose into another."""
    for one in documents.KINDS:
        assert one.purpose.partition(b"\0") == (one.purpose[:-1], b"\0", b"")
        assert [other for other in documents.KINDS if other.purpose.startswith(one.purpose)] == [one]


@pytest.mark.parametrize("kind", documents.KINDS, ids=NAMES)
def test_the_kind_is_told_by_the_type(kind: documents.Kind) -> None:
    """Whatever else is wrong with the body."""
    assert documents.kind_of(body_of(kind)) is kind
    assert documents.kind_of(canonical.encode({"type": kind.type})) is kind


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"type":"slotward.licence"}',
            "type is 'slotward.licence'; the types are slotward.release, slotward.key-set, ",
        ),
        (b'{"Type":"slotward.release"}', "type is None; the types are "),
        (b'{"type":["slotward.release"]}', "type is ['slotward.release']; the types are "),
        (b'["slotward.release"]', "it is ['slotward.release']; the types are "),
        (b'{"type":"slotward.release","type":"slotward.key-set"}', "the document is not plain JSON: "),
        (b"", "the document is not plain JSON: "),
    ],
)
def test_an_unknown_kind_is_refused(body: bytes, said: str) -> None:
    """Naming what was found and what there is."""
    with pytest.raises(documents.BadDocument) as caught:
        documents.kind_of(body)
    assert str(caught.value).startswith(said)


def test_a_key_set_is_read() -> None:
    """Every field, times as seconds."""
    found, value = documents.parse_key_set(making.document(documents.KEY_SET))
    entries = tuple(manifest.Key(one.public.kid, one.public.alg, one.public.spki) for one in KEYS)
    assert found == documents.KeySet("toy", making.ISSUED, entries, 1, making.EXPIRES, making.pins(), 2)
    assert value == making.document_fields(documents.KEY_SET)


def test_a_permit_is_read() -> None:
    """Every field, times as seconds."""
    found, value = documents.parse_permit(making.document(documents.PERMIT))
    assert found[:2] == ("toy", making.ISSUED)
    assert found[3:] == ("0123456789abcdef", "1.0.0", 4, (making.MACHINE_ID,), making.EXPIRES)
    assert value == making.document_fields(documents.PERMIT)


def test_a_withdrawal_is_read() -> None:
    """Every field; it does not expire."""
    found, value = documents.parse_withdrawal(making.document(documents.WITHDRAWAL))
    assert found[:2] == ("toy", making.ISSUED)
    assert found[3:] == ("1.1.0", 5, "loses mail")
    assert value == making.document_fields(documents.WITHDRAWAL)


@pytest.mark.parametrize("kind", OTHERS, ids=NAMES[1:])
def test_fields_are_exactly_those_of_the_kind(kind: documents.Kind) -> None:
    """None may be missing, added, or spelled in another case."""
    for name in making.document_fields(kind):
        assert wrong(kind, **{name: None}) == "the whole has no %s" % name
        assert "the unknown field %r" % name.capitalize() in wrong(kind, **{name.capitalize(): 1})
    assert wrong(kind, channel="stable") == "the whole has the unknown field 'channel'"


@pytest.mark.parametrize("kind", OTHERS, ids=NAMES[1:])
def test_common_fields_follow_their_rules(kind: documents.Kind) -> None:
    """The type and spec of this kind, a product's name, a time, 1 to 16 distinct keys, a positive sequence."""
    other = documents.RELEASE.type
    assert wrong(kind, type=other) == "type must be '%s', not 'slotward.release'" % kind.type
    assert wrong(kind, spec=2) == "spec must be 1 (a newer agent may read it), not 2"
    assert wrong(kind, spec=True) == "spec must be a positive integer, not True"
    assert wrong(kind, product="Toy").startswith("product must be 1 to 64 of a-z")
    assert wrong(kind, issuedAt="2026-01-01").startswith("issuedAt: ")
    assert wrong(kind, keys=[]) == "keys must be 1 to 16, not 0"
    twice = [making.key_fields(KEYS[0].public)] * 2
    assert wrong(kind, keys=twice) == "keys[1].kid is the same as that of keys[0]"
    assert wrong(kind, sequence=0) == "sequence must be a positive integer, not 0"
    assert wrong(kind, sequence="1") == "sequence must be a positive integer, not '1'"


@pytest.mark.parametrize("kind", OTHERS, ids=NAMES[1:])
def test_a_body_may_be_no_larger_than_a_manifest(kind: documents.Kind) -> None:
    """And must be plain JSON."""
    with pytest.raises(fields.BadField, match="the %s is not plain JSON: .*1048576" % kind.name):
        kind.parse(making.document(kind) + b" " * manifest.MAX_BODY)
    with pytest.raises(fields.BadField, match="the %s is not plain JSON" % kind.name):
        kind.parse(b"<html>")


def test_pins_are_1_to_16_distinct_pins() -> None:
    """Each in its one spelling."""
    pin = making.pins(0)[0]
    many = [keys.pin_of(bytes([number])) for number in range(17)]
    found, _value = documents.parse_key_set(making.document(documents.KEY_SET, pins=many[:16], threshold=16))
    assert (len(found.pins), found.threshold) == (16, 16)
    assert wrong(documents.KEY_SET, pins=many) == "pins must be 1 to 16, not 17"
    assert wrong(documents.KEY_SET, pins=[]) == "pins must be 1 to 16, not 0"
    assert wrong(documents.KEY_SET, pins=pin) == "pins must be a list, not %s" % fields.shown(pin)
    assert wrong(documents.KEY_SET, pins=[many[0], pin, pin]) == "pins[2] is the same as pins[1]"
    for bad in (pin + "\n", pin.upper(), pin[:-1], 7):
        assert wrong(documents.KEY_SET, pins=[bad]).startswith(
            "pins[0] must be a pin, sha256/<base64 of 32 bytes>, not "
        )


def test_the_threshold_is_1_to_the_number_of_pins() -> None:
    """A set that nobody could sign for would strand a fleet."""
    assert wrong(documents.KEY_SET, threshold=4) == "threshold must be 1 to the number of pins, 3, not 4"
    assert wrong(documents.KEY_SET, threshold=0) == "threshold must be a positive integer, not 0"
    for threshold in (1, 2, 3):
        assert (
            documents.parse_key_set(making.document(documents.KEY_SET, threshold=threshold))[0].threshold == threshold
        )


@pytest.mark.parametrize("kind", [documents.KEY_SET, documents.PERMIT], ids=["key-set", "permit"])
def test_the_expiry_is_after_the_issue(kind: documents.Kind) -> None:
    """Not at the same second either."""
    at = "2026-01-01T00:00:00Z"
    assert wrong(kind, expiresAt=at) == "expiresAt %s is not after issuedAt %s" % (at, at)
    assert kind.parse(making.document(kind, expiresAt="2026-01-01T00:00:01Z"))


def test_a_permit_names_1_to_1000_distinct_hosts() -> None:
    """By machine id, as /etc/machine-id has it, without its newline."""
    many = ["%032x" % number for number in range(1001)]
    assert len(documents.parse_permit(making.document(documents.PERMIT, hosts=many[:1000]))[0].hosts) == 1000
    assert wrong(documents.PERMIT, hosts=many) == "hosts must be 1 to 1000, not 1001"
    assert wrong(documents.PERMIT, hosts=[]) == "hosts must be 1 to 1000, not 0"
    assert wrong(documents.PERMIT, hosts=[many[0], many[0]]) == "hosts[1] is the same as hosts[0]"
    for bad in (many[0] + "\n", "A" * 32, "0" * 31, "*", 0):
        assert wrong(documents.PERMIT, hosts=[bad]).startswith(
            "hosts[0] must be a machine id, 32 of 0-9 and a-f, as `slotward trust` on the host shows it, not "
        )


@pytest.mark.parametrize("bad", ["0" * 15, "0" * 65, "0123456789ABCDEF", "0123456789abcdef\n", "", 1])
def test_a_permits_id_is_hexadecimal(bad: object) -> None:
    """16 to 64 digits."""
    assert wrong(documents.PERMIT, id=bad).startswith("id must be ")
    for good in ("0" * 16, "f" * 64):
        assert documents.parse_permit(making.document(documents.PERMIT, id=good))[0].permit_id == good


@pytest.mark.parametrize("kind", [documents.PERMIT, documents.WITHDRAWAL], ids=["permit", "withdrawal"])
@pytest.mark.parametrize("bad", ["1.0", "v1.0.0", "1.0.0\n", ""])
def test_a_release_is_named_by_a_semantic_version(kind: documents.Kind, bad: str) -> None:
    """As in a manifest."""
    assert wrong(kind, version=bad).startswith("version must be a semantic version")


@pytest.mark.parametrize(
    "bad", ["", " ", "\u3000", "x" * 501, "two\nlines", "tab\t", "\x1b[31m", "\u202eevil", "\u2028", "\x85"]
)
def test_a_reason_is_one_line_of_printable_text(bad: str) -> None:
    """It is shown in status, in logs and in terminals."""
    assert wrong(documents.WITHDRAWAL, why=bad).startswith(
        "why must be 1 to 500 printable characters, not all blank, not "
    )
    for good in ("x" * 500, "läuft nicht", "fails on 火"):
        assert documents.parse_withdrawal(making.document(documents.WITHDRAWAL, why=good))[0].why == good


@given(st.characters())
def test_no_reason_holds_a_control_or_a_line_end(char: str) -> None:
    """Against Unicode's own categories; half of a surrogate pair is no JSON to begin with."""
    category = unicodedata.category(char)
    data = json.dumps({**making.document_fields(documents.WITHDRAWAL), "why": "a%sb" % char}).encode()
    if category in ("Cc", "Cs", "Zl", "Zp"):
        with pytest.raises(fields.BadField):
            documents.parse_withdrawal(data)
    elif category[0] in "LNPS":
        assert documents.parse_withdrawal(data)[0].why == "a%sb" % char or ord(char) >= 0xFFF0


@pytest.mark.parametrize("kind", OTHERS, ids=NAMES[1:])
def test_rendering_is_the_inverse_of_reading(kind: documents.Kind) -> None:
    """Canonical bytes for canonical bytes."""
    data = making.document(kind)
    body = kind.parse(data)[0]
    assert not isinstance(body, manifest.Manifest)
    assert documents.render(body) == data


@pytest.mark.parametrize("kind", OTHERS, ids=NAMES[1:])
def test_what_no_host_would_take_is_not_written(kind: documents.Kind) -> None:
    """Rendering says which field it is."""
    body = kind.parse(making.document(kind))[0]
    assert not isinstance(body, manifest.Manifest)
    with pytest.raises(ValueError, match=re.escape("product must be 1 to 64")):
        documents.render(body._replace(product="Toy"))
    with pytest.raises(ValueError, match="sequence"):
        documents.render(body._replace(sequence=1 << 60))


@pytest.mark.parametrize("kind", OTHERS, ids=NAMES[1:])
def test_a_document_is_verified_as_a_manifest_is(kind: documents.Kind) -> None:
    """Shape, signatures, canonical form, with the kind's own name and code."""
    data = making.document(kind)
    found = signatures.verify(making.published(data, KEYS[:2], kind=kind), kind, making.pins(), 2)
    assert isinstance(found, signatures.Verified)
    assert found.body == kind.parse(data)[0]
    assert found.published.body == data
    assert set(found.signers) == set(making.pins(0, 1))

    bad = making.published(making.document(kind, product="Toy"), KEYS, kind=kind)
    refusal = signatures.verify(bad, kind, making.pins(), 2)
    assert isinstance(refusal, codes.Refusal)
    assert refusal.code == codes.BAD_DOCUMENT
    assert refusal.text.startswith("the %s is malformed: product must be " % kind.name)

    spread = json.dumps(making.document_fields(kind), indent=1).encode()
    refusal = signatures.verify(making.published(spread, KEYS, kind=kind), kind, making.pins(), 2)
    assert isinstance(refusal, codes.Refusal)
    assert refusal.code == codes.NOT_CANONICAL
    assert refusal.text.startswith("the %s is not canonical JSON: " % kind.name)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (documents.KEY_SET, "the key set has 1 of the 2 signatures by pinned keys that it needs (of toy, sequence 1; "),
        (
            documents.PERMIT,
            "the downgrade permit has 1 of the 2 signatures by pinned keys that it needs (of toy 1.0.0; ",
        ),
        (documents.WITHDRAWAL, "the withdrawal has 1 of the 2 signatures by pinned keys that it needs (of toy 1.1.0; "),
    ],
    ids=NAMES[1:],
)
def test_too_few_signatures_name_the_document_and_who_signed(kind: documents.Kind, named: str) -> None:
    """And what is wrong with each of the others."""
    data = making.document(kind)
    foreign = making.signature_fields(data, making.key(9), kind)
    refusal = signatures.verify(making.published(data, KEYS[:1], [foreign], kind), kind, making.pins(), 2)
    others = "%s: the document lists no such key)" % making.key(9).public.kid
    assert refusal == codes.Refusal(codes.TOO_FEW_SIGNATURES, named + "signed by %s; " % KEYS[0].public.kid + others)


@pytest.mark.parametrize("meant", documents.KINDS, ids=NAMES)
@pytest.mark.parametrize("used", documents.KINDS, ids=NAMES)
def test_no_signature_serves_for_two_kinds(meant: documents.Kind, used: documents.Kind) -> None:
    """Each purpose over each kind's body: only its own counts."""
    published = making.published(body_of(meant), KEYS, kind=used)
    found = signatures.verify(published, meant, making.pins(), 2)
    if meant is used:
        assert isinstance(found, signatures.Verified)
    else:
        assert isinstance(found, codes.Refusal)
        assert found.code == codes.TOO_FEW_SIGNATURES


@pytest.mark.parametrize("meant", documents.KINDS, ids=NAMES)
@pytest.mark.parametrize("given_as", documents.KINDS, ids=NAMES)
def test_a_document_of_one_kind_is_never_read_as_another(meant: documents.Kind, given_as: documents.Kind) -> None:
    """Though signed well: the shape of another kind is a bad shape."""
    found = signatures.verify(making.published(body_of(meant), KEYS, kind=meant), given_as, making.pins(), 2)
    if meant is given_as:
        assert isinstance(found, signatures.Verified)
    else:
        assert isinstance(found, codes.Refusal)
        assert found.code == given_as.bad_shape


def _junk() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    )


@given(st.sampled_from(OTHERS), st.data())
def test_any_value_in_any_field_is_read_or_refused(kind: documents.Kind, data: st.DataObject) -> None:
    """Nothing but BadField comes out of a parser."""
    plain: Dict[str, object] = making.document_fields(kind)
    name = data.draw(st.sampled_from(sorted(plain)))
    plain[name] = data.draw(_junk())
    try:
        body, value = kind.parse(json.dumps(plain).encode())
    except fields.BadField:
        return
    assert value == plain
    assert not isinstance(body, manifest.Manifest)
    assert canonical.decode(documents.render(body)) == plain


def test_order_of_fields_is_that_of_the_values() -> None:
    """The readers pair what they read with the right names: no two fields swap."""
    pairs: List[Tuple[documents.Kind, str, str, object, object]] = [
        (documents.KEY_SET, "sequence", "sequence", 9, 9),
        (documents.KEY_SET, "threshold", "threshold", 3, 3),
        (documents.PERMIT, "sequence", "sequence", 9, 9),
        (documents.WITHDRAWAL, "sequence", "sequence", 9, 9),
        (documents.PERMIT, "issuedAt", "issued_at", "2026-01-01T00:00:09Z", making.ISSUED + 9),
        (documents.KEY_SET, "expiresAt", "expires_at", "2026-01-01T00:00:09Z", making.ISSUED + 9),
        (documents.PERMIT, "expiresAt", "expires_at", "2026-01-01T00:00:09Z", making.ISSUED + 9),
    ]
    for kind, written, name, value, wanted in pairs:
        body = kind.parse(making.document(kind, **{written: value}))[0]
        assert getattr(body, name) == wanted
