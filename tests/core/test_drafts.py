# SPDX-License-Identifier: GPL-3.0-or-later
"""Withdrawals, permits and key sets are drafted as hosts take them, and a key set only when hosts can go on to it."""

from __future__ import annotations

from typing import Any

import pytest
from core import making

from slotcore import codes, documents, drafts, release, signing

KEYS = making.three()
LISTED = tuple(release.key(one.public) for one in KEYS)
WITHDRAWAL = documents.Withdrawal("toy", making.ISSUED, LISTED, "1.1.0", 5, "loses mail")
PERMIT = documents.Permit("toy", making.ISSUED, LISTED, "ab" * 16, "1.0.0", 4, ("cd" * 16,), making.EXPIRES)
KEY_SET = documents.KeySet("toy", making.ISSUED, LISTED, 2, making.EXPIRES, making.pins(), 2)
OLD = drafts.Trusted(making.pins(), 2, 1, making.ISSUED + 1)


def refusal(call: Any) -> codes.Refusal:
    """The refusal that a call ends in."""
    with pytest.raises(codes.Refused) as error:
        call()
    return error.value.refusal


@pytest.mark.parametrize("body", [WITHDRAWAL, PERMIT, KEY_SET], ids=lambda body: type(body).__name__)
def test_a_draft_is_the_unsigned_document(body: documents.Document) -> None:
    """Read again it is what was asked for; drafted again at another time nothing changes, signatures stay."""
    result = drafts.draft(None, body)
    parts = signing.read(result.published)
    assert (result.changed, parts.body, parts.form.signatures) == (True, body, ())
    signed = signing.sign(result.published, KEYS[0].public, KEYS[0].sign).published
    later = body._replace(issued_at=making.ISSUED + 60)
    assert drafts.draft(signed, later) == signing.Result(signed, False)


def test_a_permit_keeps_the_id_that_is_there() -> None:
    """A new one would make a second permit of it."""
    there = drafts.draft(None, PERMIT).published
    assert drafts.draft(there, PERMIT._replace(permit_id="ef" * 16)) == signing.Result(there, False)


def test_other_contents_and_other_kinds_are_not_overwritten() -> None:
    """The refusal names what differs."""
    there = drafts.draft(None, WITHDRAWAL).published
    found = refusal(lambda: drafts.draft(there, WITHDRAWAL._replace(sequence=6)))
    assert found.code == codes.ALREADY_EXISTS
    assert found.text.startswith("a withdrawal with other contents is there (sequence 5, not 6)")
    found = refusal(lambda: drafts.draft(there, PERMIT))
    assert found == (codes.ALREADY_EXISTS, "a withdrawal is there; choose another name or remove it by hand")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (WITHDRAWAL._replace(why=""), "why must be 1 to 500 printable characters"),
        (PERMIT._replace(hosts=("web1",)), "hosts[0] must be a machine id"),
        (KEY_SET._replace(threshold=4), "threshold must be 1 to the number of pins, 3"),
        (KEY_SET._replace(expires_at=2**50), "are not in the years 0001 to 9999"),
    ],
)
def test_what_no_host_would_take_is_not_drafted(body: documents.Document, text: str) -> None:
    """By the hosts' own reader."""
    found = refusal(lambda: drafts.draft(None, body))
    assert found.code == codes.BAD_DOCUMENT
    assert text in found.text


def test_N16_a_key_set_must_be_issued_before_the_old_one_expires() -> None:
    """The moment of expiry is too late; only who says that it is known makes one all the same."""
    drafts.check_succession(KEY_SET, OLD)
    late = OLD._replace(expires_at=making.ISSUED)
    found = refusal(lambda: drafts.check_succession(KEY_SET, late))
    assert found.code == codes.KEYS_EXPIRED
    assert "2026-01-01T00:00:00Z" in found.text
    assert "--accept-gap" in found.text
    drafts.check_succession(KEY_SET, late, accept_gap=True)
    drafts.check_succession(KEY_SET, drafts.Trusted(making.pins(), 2))


def test_N16_the_signers_must_be_able_to_meet_the_old_threshold() -> None:
    """A set that only new keys may sign is taken by no host."""
    stranger = (release.key(making.key(7).public),)
    found = refusal(lambda: drafts.check_succession(KEY_SET._replace(keys=LISTED[:1] + stranger), OLD))
    assert found.code == codes.TOO_FEW_SIGNATURES
    assert found.text.startswith("1 of the keys given are in the old set, which needs 2 signatures")
    drafts.check_succession(KEY_SET._replace(keys=LISTED[:2]), OLD)


@pytest.mark.parametrize("sequence", [1, 2])
def test_the_sequence_of_a_key_set_grows(sequence: int) -> None:
    """Hosts keep the highest."""
    found = refusal(lambda: drafts.check_succession(KEY_SET._replace(sequence=sequence), OLD._replace(sequence=2)))
    text = "sequence %d is not above 2, that of the key set before: hosts would refuse it"
    assert found == (codes.KEYS_NOT_NEWER, text % sequence)


def test_the_old_set_is_read_from_its_document() -> None:
    """Signed by somebody: no host trusts a draft; and nothing else is a key set."""
    unsigned = drafts.draft(None, KEY_SET).published
    assert refusal(lambda: drafts.trusted(unsigned)).code == codes.TOO_FEW_SIGNATURES
    signed = signing.sign(unsigned, KEYS[0].public, KEYS[0].sign).published
    assert drafts.trusted(signed) == drafts.Trusted(making.pins(), 2, 2, making.EXPIRES)
    assert refusal(lambda: drafts.trusted(drafts.draft(None, PERMIT).published)).code == codes.BAD_DOCUMENT
