# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of every kind are signed, merged, described and judged by the same code as a release manifest."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from core import making

from slotcore import codes, describing, documents, signing, verifying

KEYS = making.three()
OTHERS = [documents.KEY_SET, documents.PERMIT, documents.WITHDRAWAL]


def body_of(kind: documents.Kind, **changes: object) -> bytes:
    """A good body of any kind."""
    return making.body(**changes) if kind is documents.RELEASE else making.document(kind, **changes)


def signed(kind: documents.Kind, *numbers: int, **changes: object) -> bytes:
    """A published document, signed one key after the other by the tool."""
    published = making.published(body_of(kind, **changes), kind=kind)
    for number in numbers:
        published = signing.sign(published, KEYS[number].public, KEYS[number].sign).published
    return published


def refusal(call: Any) -> codes.Refusal:
    """The refusal that a call ends in."""
    with pytest.raises(codes.Refused) as error:
        call()
    return error.value.refusal


@pytest.mark.parametrize("kind", documents.KINDS, ids=lambda kind: kind.type)
def test_every_kind_is_signed_apart_and_verifies_together(kind: documents.Kind) -> None:
    """Two copies, merged, are what two pins of three accept; one of them is not enough."""
    merged = signing.merge([signed(kind, 0), signed(kind, 2)])
    judged = verifying.judge(merged, making.pins(), 2, making.NOW)
    assert (judged.parts.kind, set(judged.signers)) == (kind, set(making.pins(0, 2)))
    assert refusal(lambda: verifying.judge(signed(kind, 0), making.pins(), 2)).code == codes.TOO_FEW_SIGNATURES


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.type)
def test_what_is_merged_is_of_one_kind(kind: documents.Kind) -> None:
    """The refusal says what the other file is."""
    found = refusal(lambda: signing.merge([signed(documents.RELEASE, 0), signed(kind, 0)]))
    assert found == (
        codes.RELEASES_DIFFER,
        "file 2 is another release manifest than file 1: it is a %s" % kind.name,
    )


def test_a_document_can_be_asked_for_by_its_kind() -> None:
    """Another one is refused with the code of the kind that was wanted."""
    found = refusal(lambda: signing.read(signed(documents.PERMIT), documents.KEY_SET))
    assert found.code == codes.BAD_DOCUMENT
    assert found.text.startswith("the key set is malformed: ")


def test_an_expired_document_is_refused_only_at_a_time() -> None:
    """A withdrawal never is; without a time the expiry is not looked at: old manifests count too."""
    for kind in (documents.RELEASE, documents.KEY_SET, documents.PERMIT):
        published = signed(kind, 0)
        found = refusal(lambda published=published: verifying.judge(published, making.pins(), 1, making.EXPIRES))
        assert found == (codes.EXPIRED, "the %s expired at 2027-01-01T00:00:00Z" % kind.name)
        assert verifying.judge(published, making.pins(), 1, making.EXPIRES - 1).parts.kind is kind
        assert verifying.judge(published, making.pins(), 1, kind=kind).parts.kind is kind
    assert verifying.judge(signed(documents.WITHDRAWAL, 0), making.pins(), 1, making.EXPIRES).signers


def test_a_threshold_that_cannot_be_met_is_refused_first() -> None:
    """And so is a list without pins; neither reads the document."""
    assert refusal(lambda: verifying.judge(b"", (), 1)).code == codes.NO_PINS
    found = refusal(lambda: verifying.judge(b"", (*making.pins(), "sha256/x"), 1))
    assert found == (codes.NO_PINS, "'sha256/x' is not a pin, sha256/<base64 of 32 bytes>")
    for threshold in (0, 2):
        found = refusal(lambda threshold=threshold: verifying.judge(b"", making.pins(0), threshold))
        text = "a threshold of %d cannot be met: it is 1 to the number of distinct pins, 1" % threshold
        assert found == (codes.TOO_FEW_SIGNATURES, text)
    assert refusal(lambda: verifying.judge(b"", making.pins(0), 1)).code == codes.BAD_DOCUMENT


DESCRIBED: Dict[str, Dict[str, object]] = {
    documents.KEY_SET.type: {"pins": list(making.pins()), "threshold": 2, "sequence": 1},
    documents.PERMIT.type: {
        "hosts": [making.MACHINE_ID],
        "id": "0123456789abcdef",
        "version": "1.0.0",
        "sequence": 4,
    },
    documents.WITHDRAWAL.type: {"version": "1.1.0", "sequence": 5, "why": "loses mail"},
}


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.type)
def test_all_that_a_document_says_is_described(kind: documents.Kind) -> None:
    """As values, with whose signatures verify and the digest of the body."""
    parts = signing.read(signed(kind, 1))
    told = describing.describe(parts)
    assert DESCRIBED[kind.type].items() <= told.items()
    assert (told["kind"], told["type"], told["product"]) == (kind.name, kind.type, "toy")
    assert (told["signatures"], told["body_sha256"]) == (1, parts.sha256)
    assert [one["signed"] for one in told["keys"]] == [False, True, False]  # type: ignore[attr-defined]
    assert ("expires_at" in told) is (kind is not documents.WITHDRAWAL)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (
            documents.KEY_SET,
            ["key set of toy, sequence 1, threshold 2", *("trusts " + pin for pin in making.pins())],
        ),
        (
            documents.PERMIT,
            [
                "downgrade permit for toy 1.0.0, sequence 4, id 0123456789abcdef",
                "host " + making.MACHINE_ID,
            ],
        ),
        (documents.WITHDRAWAL, ["withdrawal of toy 1.1.0, sequence 5", "why: loses mail"]),
    ],
    ids=lambda one: getattr(one, "type", None),
)
def test_a_document_is_described_to_people(kind: documents.Kind, lines: Any) -> None:
    """Every value that is signed is in one of the lines."""
    parts = signing.read(signed(kind, 0))
    found = describing.lines(parts)
    assert [found[0], *found[2 : len(lines) + 1]] == lines
    assert found[1].startswith("issued 2026-01-01T00:00:00Z, ")
    assert found[1].endswith("body sha256 " + parts.sha256)
    assert ("expires 2027-01-01T00:00:00Z" in found[1]) is (kind is not documents.WITHDRAWAL)
    assert [line.rpartition(", ")[2] for line in found[-3:]] == ["signed", "not signed", "not signed"]


def test_an_archive_and_a_variant_are_shown() -> None:
    """In the line of the file."""
    artifact = making.artifact_fields(kind="tar.gz", variant="full")
    lines = describing.lines(signing.read(making.published(making.body(artifacts=[artifact]))))
    assert (
        lines[2] == "file toy_1.1.0_linux_amd64, linux-amd64, tar.gz, variant full, 12 bytes, sha256 " + making.SHA256
    )
