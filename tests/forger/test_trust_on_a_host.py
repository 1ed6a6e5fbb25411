# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks on whom a host trusts: key sets, withdrawals and permits given to a host whose keys were changed once already.

The configuration pins Ana's, Bea's and Cid's keys; key set 5, which they signed, replaced them by Dan's and Eli's (both must sign).
So Ana's, Bea's and Cid's are stolen keys now, and Eve has nobody's.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Union

import pytest
from core import making
from forger import forging
from forger.forging import ANA, BEA, CID, EVE

from slotcore import clocks, codes, documents, keys, trust
from slotcore import trust_record as trusts

DAN, ELI = making.key(71), making.key(72, keys.EDDSA)
SET, PERMIT, NOTICE = documents.KEY_SET, documents.PERMIT, documents.WITHDRAWAL
FACTS = trust.Facts("toy", making.pins(), 2, 4, clocks.Clocks(making.NOW), making.MACHINE_ID)
OURS = {"pins": [DAN.public.pin, ELI.public.pin], "threshold": 2}
EVES = {"pins": [EVE.public.pin], "threshold": 1}
YEAR = 365 * 86400


def made(kind: documents.Kind, *signers: keys.PrivateKey, **changes: object) -> bytes:
    """A document that lists whoever signs it."""
    listed = [making.key_fields(one.public) for one in signers]
    return making.published(making.document(kind, **{"keys": listed, **changes}), signers, kind=kind)


def host() -> trusts.Trust:
    """The host's record after key set 5."""
    found = trust.apply(FACTS, trusts.Trust(), [("5", made(SET, ANA, BEA, sequence=5, **OURS))])
    assert not isinstance(found, codes.Refusal), found
    return found[0].trust


class Row(NamedTuple):
    """What is given to the host, the code and words of its refusal, and what else is so there."""

    name: str
    code: str
    says: str
    given: Callable[[], bytes]
    now_s: int = making.NOW
    used: str = ""
    """The id of a permit that was used here."""


FEW = codes.TOO_FEW_SIGNATURES
# fmt: off
APPLIED = (
    Row("stolen keys sign a key set of the forger's", FEW, "its key is not pinned", lambda: made(SET, ANA, BEA, CID, sequence=6, **EVES)),
    Row("one of the two new keys signs a key set", FEW, "1 of the 2", lambda: made(SET, DAN, sequence=6, **EVES)),
    Row("a stolen and a new key sign a key set", FEW, "1 of the 2", lambda: made(SET, DAN, ANA, sequence=6, **EVES)),
    Row("the forger signs a key set", FEW, "its key is not pinned", lambda: made(SET, EVE, sequence=6, **EVES)),
    Row("a replayed key set", codes.KEYS_NOT_NEWER, "4 is not above 5", lambda: made(SET, DAN, ELI, sequence=4, **OURS)),
    Row("another key set of the same number", codes.KEYS_NOT_NEWER, "5 is not above 5", lambda: made(SET, DAN, ELI, sequence=5, **EVES)),
    Row("a key set for another product", codes.WRONG_PRODUCT, "for tool, not toy", lambda: made(SET, DAN, ELI, sequence=6, product="tool", **OURS)),
    Row("a key set that has expired", codes.EXPIRED, "expired", lambda: made(SET, DAN, ELI, sequence=6, **OURS), making.EXPIRES + YEAR),
    Row("a key set, of which the pins were changed after it was signed", FEW, "it does not verify", lambda: making.published(
        making.document(SET, sequence=6, keys=[making.key_fields(one.public) for one in (DAN, ELI)], **EVES), (),
        [making.signature_fields(making.document(SET, sequence=6, **OURS), one, SET) for one in (DAN, ELI)])),
    Row("stolen keys withdraw a release", FEW, "its key is not pinned", lambda: made(NOTICE, ANA, BEA)),
    Row("a withdrawal for another product", codes.WRONG_PRODUCT, "for tool, not toy", lambda: made(NOTICE, DAN, ELI, product="tool")),
    Row("a permit where key sets belong", codes.BAD_DOCUMENT, "is given with the upgrade", lambda: made(PERMIT, DAN, ELI)),
    Row("a release where key sets belong", codes.BAD_DOCUMENT, "is given with the upgrade", forging.signed(forging.GENUINE)),
    Row("a document of no kind", codes.BAD_DOCUMENT, "the types are", lambda: made(SET, DAN, ELI, type="slotward.trust-everybody")),
    Row("no document", codes.BAD_DOCUMENT, "malformed", lambda: b"<html>"),
)
PERMITS = (
    Row("stolen keys permit a downgrade", FEW, "its key is not pinned", lambda: made(PERMIT, ANA, BEA)),
    Row("a permit for another host", codes.NOT_PERMITTED, "not for this one", lambda: made(PERMIT, DAN, ELI, hosts=["f" * 32])),
    Row("a permit for another product", codes.WRONG_PRODUCT, "for tool, not toy", lambda: made(PERMIT, DAN, ELI, product="tool")),
    Row("a permit that has expired", codes.EXPIRED, "expired", lambda: made(PERMIT, DAN, ELI, expiresAt="2026-01-01T12:00:00Z")),
    Row("a permit that was used", codes.PERMIT_USED, "was used on this host", lambda: made(PERMIT, DAN, ELI), used="0123456789abcdef"),
    Row("a permit once the keys have expired", codes.KEYS_EXPIRED, "key set 5", lambda: made(PERMIT, DAN, ELI), making.EXPIRES + YEAR),
    Row("a withdrawal for a permit", codes.BAD_DOCUMENT, "has no expiresAt", lambda: made(NOTICE, DAN, ELI)),
)
# fmt: on


def facts(row: Row) -> trust.Facts:
    """The host's facts."""
    return FACTS._replace(clocks=clocks.Clocks(row.now_s))


def said(row: Row, found: Union[object, codes.Refusal]) -> None:
    """The code names the attack, and the words say where."""
    assert isinstance(found, codes.Refusal), found
    assert (found.code, row.says in found.text) == (row.code, True), found


@pytest.mark.parametrize("row", APPLIED, ids=[row.name for row in APPLIED])
def test_what_is_applied_is_refused_by_name(row: Row) -> None:
    """`slotward trust apply` with it, alone and behind a genuine document: nothing of the chain is taken then."""
    said(row, trust.apply(facts(row), host(), [("x", row.given())]))
    if row.now_s == making.NOW:
        genuine = made(NOTICE, DAN, ELI, version="1.0.7", sequence=4)
        said(row, trust.apply(facts(row), host(), [("first", genuine), ("x", row.given())]))


@pytest.mark.parametrize("row", PERMITS, ids=[row.name for row in PERMITS])
def test_a_permit_is_refused_by_name(row: Row) -> None:
    """`slotward upgrade --permit` with it."""
    record = host()
    if row.used:
        record = record._replace(permits=(trusts.Permitted(row.used, 1),))
    said(row, trust.permit(facts(row), record, row.given()))


def test_the_genuine_documents_are_taken() -> None:
    """Else every row above would prove nothing."""
    given = [("6", made(SET, DAN, ELI, sequence=6, **OURS)), ("away", made(NOTICE, DAN, ELI))]
    found = trust.apply(FACTS, host(), given)
    assert not isinstance(found, codes.Refusal), found
    assert [step.event for step in found] == [trust.KEYS_CHANGED, trust.WITHDRAWN]
    assert isinstance(trust.permit(FACTS, host(), made(PERMIT, DAN, ELI)), trusts.Allowed)


def test_the_configurations_old_pins_let_no_release_in_any_more() -> None:
    """What counts on this host is the key set's pins and threshold, and none of Ana's, Bea's or Cid's."""
    assert trust.in_force(FACTS, host()) == ((DAN.public.pin, ELI.public.pin), 2)
