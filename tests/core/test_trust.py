# SPDX-License-Identifier: GPL-3.0-or-later
"""Key sets, withdrawals and permits on a host: what is taken, in which order it is judged, and what is refused."""

from __future__ import annotations

import hashlib
from typing import Dict, Optional, Sequence, Tuple

import pytest
from core import making

from slotcore import clocks, codes, documents, keys, trust
from slotcore import trust_record as trusts

OLD = making.three()
NEW = (making.key(11), making.key(12, keys.EDDSA), making.key(13))
NEWEST = (making.key(21), making.key(22))
NONE = trusts.Trust()


def pins_of(ones: Sequence[keys.PrivateKey]) -> Tuple[str, ...]:
    """Their pins."""
    return tuple(one.public.pin for one in ones)


def facts(**changes: object) -> trust.Facts:
    """A host that trusts two of the three old keys."""
    plain = trust.Facts("toy", making.pins(), 2, 4, clocks.Clocks(making.NOW), making.MACHINE_ID)
    return plain._replace(**changes)  # type: ignore[arg-type]


def document(
    kind: documents.Kind,
    by: Sequence[keys.PrivateKey],
    listed: Optional[Sequence[keys.PrivateKey]] = None,
    /,
    **changes: object,
) -> bytes:
    """A published document that lists these keys (default: those that sign) and is signed by `by`."""
    ones = by if listed is None else listed
    body = making.document(kind, keys=[making.key_fields(one.public) for one in ones], **changes)
    return making.published(body, by, kind=kind)


def key_set(
    sequence: int, to: Sequence[keys.PrivateKey], by: Sequence[keys.PrivateKey], **changes: object
) -> Tuple[str, bytes]:
    """A key set with a name: the pins of `to`, signed by `by`."""
    found = {"sequence": sequence, "pins": list(pins_of(to)), "threshold": min(2, len(to)), **changes}
    return "set-%d.json" % sequence, document(documents.KEY_SET, by, **found)


def withdrawal(by: Sequence[keys.PrivateKey], **changes: object) -> Tuple[str, bytes]:
    """A withdrawal of 1.1.0 with a name."""
    return "away.json", document(documents.WITHDRAWAL, by, **changes)


def steps(*given: Tuple[str, bytes], having: trusts.Trust = NONE, **changes: object) -> Tuple[trust.Step, ...]:
    """The steps of documents that must be taken."""
    found = trust.apply(facts(**changes), having, given)
    assert not isinstance(found, codes.Refusal), found
    assert len(found) == len(given)
    return found


def after(*given: Tuple[str, bytes], having: trusts.Trust = NONE, **changes: object) -> trusts.Trust:
    """The record after documents that must be taken."""
    return steps(*given, having=having, **changes)[-1].trust


def refused(*given: Tuple[str, bytes], having: trusts.Trust = NONE, **changes: object) -> codes.Refusal:
    """The refusal of documents of which one must be refused."""
    found = trust.apply(facts(**changes), having, given)
    assert isinstance(found, codes.Refusal), found
    return found


FIRST = key_set(1, NEW, OLD[:2])
SECOND = key_set(2, NEWEST, NEW[1:])
TAKEN = after(FIRST)
ON_SECOND = after(FIRST, SECOND)


def test_a_key_set_replaces_the_pins_whole() -> None:
    """Signed by the threshold of those before; from then on theirs count for nothing."""
    step = steps(FIRST)[0]
    body = making.document(
        documents.KEY_SET, keys=[making.key_fields(one.public) for one in OLD[:2]], sequence=1, pins=list(pins_of(NEW))
    )
    wanted = trusts.Keys(1, making.ISSUED, making.EXPIRES, pins_of(NEW), 2, hashlib.sha256(body).hexdigest())
    assert step.trust == trusts.Trust(keys=wanted)
    assert (step.event, step.sequence) == (trust.KEYS_CHANGED, 1)
    assert step.text == (
        "key set 1 is in use: 2 of 3 keys must sign, until 2027-01-01T00:00:00Z; 3 of the keys before count for nothing any more"
    )
    assert refused(key_set(2, NEWEST, OLD), having=step.trust).code == codes.TOO_FEW_SIGNATURES


def test_N17_a_host_that_was_away_takes_a_chain() -> None:
    """Each document judged by what the one before left in force."""
    assert [step.event for step in steps(FIRST, SECOND)] == [trust.KEYS_CHANGED] * 2
    keys_in_use = ON_SECOND.keys
    assert keys_in_use is not None
    assert (keys_in_use.sequence, keys_in_use.pins) == (2, pins_of(NEWEST))
    text = refused(SECOND).text
    assert text.startswith(
        "set-2.json: the key set has 0 of the 2 signatures by pinned keys that it needs (of toy, sequence 2; "
    )


def test_N17_the_same_chain_serves_hosts_at_every_step() -> None:
    """What lies behind is passed over, though its signers count for nothing here any more."""
    third = key_set(3, OLD, NEWEST)
    for having, changed in ((NONE, [1, 2, 3]), (TAKEN, [2, 3]), (ON_SECOND, [3])):
        found = steps(FIRST, SECOND, third, having=having)
        assert [step.sequence for step in found if step.event] == changed
        assert found[-1].trust == after(third, having=ON_SECOND)
    again = steps(FIRST, SECOND, having=ON_SECOND)
    assert [step.event for step in again] == ["", ""]
    assert [step.text for step in again] == ["key set 1 is passed over: 2 is in use", "key set 2 is in use already"]
    assert again[-1].trust == ON_SECOND


def test_the_same_document_again_is_no_change() -> None:
    """Also when it has expired since, and though its signers are gone."""
    late = clocks.Clocks(making.EXPIRES + 1)
    assert steps(FIRST, having=TAKEN, clocks=late) == (trust.Step(TAKEN, "", "key set 1 is in use already", 1),)


def test_a_replayed_older_key_set_is_refused() -> None:
    """Alone, or at the end of a chain."""
    assert refused(FIRST, having=ON_SECOND) == codes.Refusal(
        codes.KEYS_NOT_NEWER, "set-1.json: key set 1 is not above 2, which is in use here"
    )
    assert refused(SECOND, FIRST, having=TAKEN).code == codes.KEYS_NOT_NEWER
    assert refused(SECOND, FIRST, having=ON_SECOND).code == codes.KEYS_NOT_NEWER


def test_another_key_set_of_the_same_sequence_is_refused() -> None:
    """Two sets with one number: somebody signed twice, and this host says which it has."""
    other = key_set(1, NEWEST, NEW[:2])
    assert refused(other, having=TAKEN).code == codes.KEYS_NOT_NEWER
    assert refused(other, SECOND, having=TAKEN).code == codes.KEYS_NOT_NEWER


def test_an_older_one_is_passed_over_only_on_the_way_to_what_is_in_use() -> None:
    """Not before a chain that ends below it."""
    having = after(key_set(5, NEWEST, OLD))
    assert refused(FIRST, SECOND, having=having).code == codes.KEYS_NOT_NEWER


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (OLD[:1], "has 1 of the 2 signatures"),
        (NEW, "has 0 of the 2 signatures"),
        ((OLD[0], *NEW), "has 1 of the 2 signatures"),
        ((), "has 0 of the 2 signatures"),
    ],
)
def test_a_key_set_needs_the_threshold_of_the_set_before(by: Tuple[keys.PrivateKey, ...], said: str) -> None:
    """Its own keys do not count, however many they are."""
    found = "set-1.json", document(documents.KEY_SET, by, [*OLD, *NEW], pins=list(pins_of(NEW)))
    refusal = refused(found)
    assert refusal.code == codes.TOO_FEW_SIGNATURES
    assert said in refusal.text


def test_N16_an_expired_key_set_may_sign_the_next() -> None:
    """No fleet is stranded because its keys ran out before the new ones were shipped."""
    late = clocks.Clocks(making.EXPIRES + 86400)
    expired = trust.keys_expired(late, TAKEN)
    assert (
        expired
        == "the key set 1 of this host expired at 2027-01-01T00:00:00Z; no release is taken before the next key set"
    )
    fresh = key_set(2, NEWEST, NEW, expiresAt="2028-01-01T00:00:00Z")
    assert after(fresh, having=TAKEN, clocks=late).keys == after(fresh, having=TAKEN).keys


def test_N16_an_expired_key_set_is_taken_only_as_a_step() -> None:
    """A host that was away for longer than a key set lasts takes the chain; the expired one alone is refused."""
    late = clocks.Clocks(making.EXPIRES)
    refusal = refused(FIRST, clocks=late)
    assert refusal == codes.Refusal(codes.EXPIRED, "set-1.json: the key set expired at 2027-01-01T00:00:00Z")
    fresh = key_set(2, NEWEST, NEW, expiresAt="2028-01-01T00:00:00Z")
    found = after(FIRST, withdrawal(NEW), fresh, clocks=late)
    assert found.keys is not None
    assert found.keys.sequence == 2
    assert refused(FIRST, SECOND, clocks=late).text.startswith("set-2.json: the key set expired")
    assert refused(FIRST, withdrawal(NEW), clocks=late).code == codes.EXPIRED
    assert refused(FIRST, FIRST, clocks=late).code == codes.EXPIRED, "itself again is no later one"
    assert refused(key_set(2, NEW, OLD[:2]), FIRST, clocks=late).code == codes.EXPIRED, "nor is an earlier one"


def test_N9_N11_expiry_goes_by_the_latest_of_the_known_times() -> None:
    """A clock that fell back to 1970 brings no key set back to life: what was issued since is known."""
    behind = clocks.Clocks(0, newest_issued=making.EXPIRES)
    assert refused(FIRST, clocks=behind).code == codes.EXPIRED
    issued = after(key_set(1, NEW, OLD, issuedAt="2027-06-01T00:00:00Z", expiresAt="2027-07-01T00:00:00Z"))
    refusal = refused(key_set(2, NEWEST, NEW), having=issued, clocks=clocks.Clocks(0))
    assert refusal.code == codes.EXPIRED
    assert "was issued at 2027-06-01T00:00:00Z" in refusal.text
    assert after(FIRST, clocks=clocks.Clocks(0)) == TAKEN


def test_the_order_is_signatures_form_product_expiry() -> None:
    """Each with all that comes after it wrong as well."""
    late = clocks.Clocks(making.EXPIRES)
    body = making.document(documents.KEY_SET, product="tool")
    spread = b" " + body

    def of(data: bytes, by: Sequence[keys.PrivateKey]) -> Tuple[str, bytes]:
        return "one.json", making.published(data, by, kind=documents.KEY_SET)

    assert refused(of(spread.replace(b'"spec":1', b'"spec":2'), OLD[:1]), clocks=late).code == codes.BAD_DOCUMENT
    assert refused(of(spread, OLD[:1]), clocks=late).code == codes.TOO_FEW_SIGNATURES
    assert refused(of(spread, OLD), clocks=late).code == codes.NOT_CANONICAL
    assert refused(of(body, OLD), clocks=late) == codes.Refusal(
        codes.WRONG_PRODUCT, "one.json: the key set is for tool, not toy"
    )
    assert refused(of(making.document(documents.KEY_SET), OLD), clocks=late).code == codes.EXPIRED


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (b"{}", "x: the signed document is malformed: the whole has no manifest, no signatures"),
        (making.published(b'{"type":"other"}'), "x: the signed document is malformed: type is 'other'; the types are "),
        (making.published(making.body(), OLD), "x: a release manifest is given with the upgrade that it is for; "),
        (document(documents.PERMIT, OLD), "x: a downgrade permit is given with the upgrade that it is for; "),
        (
            making.published(making.document(documents.WITHDRAWAL, why=""), OLD, kind=documents.WITHDRAWAL),
            "x: the signed document is malformed: why must be ",
        ),
    ],
)
def test_what_is_not_applied_is_a_bad_document(published: bytes, said: str) -> None:
    """Before anything of the chain is judged."""
    refusal = refused(("x", published))
    assert refusal.code == codes.BAD_DOCUMENT
    assert refusal.text.startswith(said)
    unsigned = "y", making.published(making.document(documents.KEY_SET))
    assert refused(unsigned, ("x", published)).text.startswith(said)


def test_one_refusal_refuses_the_whole_chain() -> None:
    """And names the file."""
    assert refused(FIRST, withdrawal(OLD)).text.startswith("away.json: the withdrawal has 0 of the 2 signatures")


def test_without_any_pins_nothing_is_taken() -> None:
    """A host that trusts nobody cannot be told whom to trust."""
    refusal = refused(FIRST, pins=(), threshold=1)
    assert refusal.code == codes.NO_PINS
    assert refusal.text.startswith("set-1.json: no release keys are pinned")
    assert after(SECOND, having=TAKEN, pins=()) == ON_SECOND


def test_times_before_1970_are_kept_as_a_record_can_hold_them() -> None:
    """A key set in the chain may say anything that its signers signed."""
    odd = key_set(1, NEW, OLD, issuedAt="0001-01-01T00:00:00Z", expiresAt="1960-01-01T00:00:00Z")
    middle = steps(odd, SECOND)[0].trust
    assert trusts.parse(trusts.render(middle._replace(generation=1)), "x") == middle._replace(generation=1)


def test_a_withdrawal_is_kept() -> None:
    """By version and sequence, with its reason and when this host was told."""
    step = steps(withdrawal(OLD[:2]))[0]
    assert step.trust == trusts.Trust(withdrawn=(trusts.Withdrawn("1.1.0", 5, "loses mail", making.NOW),))
    assert step == trust.Step(step.trust, trust.WITHDRAWN, "toy 1.1.0, sequence 5 is withdrawn: loses mail", 5, "1.1.0")
    again = steps(withdrawal(NEW, why="other words"), having=step.trust)
    assert again == (trust.Step(step.trust, "", "toy 1.1.0, sequence 5 is withdrawn already", 5, "1.1.0"),)
    other = after(withdrawal(OLD, sequence=6), having=step.trust)
    assert [entry.sequence for entry in other.withdrawn] == [5, 6]


def test_a_withdrawal_is_judged_by_what_is_in_force() -> None:
    """After a rotation by the new keys; an expired key set may still withdraw."""
    assert refused(withdrawal(OLD), having=TAKEN).code == codes.TOO_FEW_SIGNATURES
    late = clocks.Clocks(making.EXPIRES + 1)
    assert after(withdrawal(NEW), having=TAKEN, clocks=late).withdrawn
    assert after(FIRST, withdrawal(NEW)).withdrawn
    assert refused(withdrawal(OLD, product="tool")).code == codes.WRONG_PRODUCT


def full(lowest: int) -> trusts.Trust:
    """As many withdrawals as are kept, from a sequence on."""
    numbers = range(lowest, lowest + trusts.MAX_WITHDRAWN)
    return trusts.Trust(withdrawn=tuple(trusts.Withdrawn("1.0.0", number, "why", 1) for number in numbers))


def test_what_the_floor_refuses_anyway_makes_room() -> None:
    """The lowest goes first, and only what is below the floor."""
    found = after(withdrawal(OLD, sequence=500), having=full(3), floor=4)
    assert [entry.sequence for entry in found.withdrawn] == [*range(4, 3 + trusts.MAX_WITHDRAWN), 500]
    refusal = refused(withdrawal(OLD, sequence=500), having=full(4), floor=4)
    assert refusal.code == codes.RECORD_FULL
    assert refusal.text.startswith("away.json: 64 releases that this host could still run are withdrawn already")


def permit(by: Sequence[keys.PrivateKey] = OLD[:2], /, **changes: object) -> bytes:
    """A permit for this host."""
    return document(documents.PERMIT, by, **changes)


def not_permitted(published: bytes, having: trusts.Trust = NONE, **changes: object) -> codes.Refusal:
    """The refusal of a permit that must be refused."""
    found = trust.permit(facts(**changes), having, published)
    assert isinstance(found, codes.Refusal), found
    return found


ALLOWED = trusts.Allowed("0123456789abcdef", "1.0.0", 4)


def test_a_permit_allows_its_release() -> None:
    """On a host that it names, by the keys in force."""
    assert trust.permit(facts(), NONE, permit()) == ALLOWED
    assert trust.permit(facts(), TAKEN, permit(NEW)) == ALLOWED
    others = ["%032x" % number for number in range(9)]
    assert trust.permit(facts(), NONE, permit(hosts=[*others, making.MACHINE_ID])) == ALLOWED
    assert not_permitted(permit(), TAKEN).code == codes.TOO_FEW_SIGNATURES


@pytest.mark.parametrize(
    ("machine_id", "hosts", "said"),
    [
        (
            making.MACHINE_ID,
            ["a" * 32],
            "is for 1 other host, not for this one, whose machine id is " + making.MACHINE_ID,
        ),
        (making.MACHINE_ID, ["a" * 32, "b" * 32], "is for 2 other hosts, not for this one, "),
        ("", [making.MACHINE_ID], "is for 1 other host, not for this one, whose machine id is not known"),
    ],
)
def test_a_permit_is_for_hosts_by_name(machine_id: str, hosts: Sequence[str], said: str) -> None:
    """A host that does not know its own is none of them."""
    refusal = not_permitted(permit(hosts=list(hosts)), machine_id=machine_id)
    assert refusal.code == codes.NOT_PERMITTED
    assert refusal.text.startswith("the downgrade permit 0123456789abcdef " + said)


def test_a_permit_serves_once() -> None:
    """Its id is kept, and so many and no more."""
    used = NONE.using(ALLOWED, making.NOW).ended(swapped=True)
    refusal = not_permitted(permit(), used)
    assert refusal == codes.Refusal(
        codes.PERMIT_USED,
        "the downgrade permit 0123456789abcdef was used on this host at 2026-01-02T00:00:00Z: ask for a new one",
    )
    many = tuple(trusts.Permitted("%016x" % number, 1) for number in range(trusts.MAX_PERMITS))
    refusal = not_permitted(permit(), NONE._replace(permits=many))
    assert refusal.code == codes.PERMIT_USED
    assert refusal.text == "256 downgrade permits were used on this host, and no more are taken"
    assert trust.permit(facts(), NONE._replace(permits=many[1:]), permit()) == ALLOWED


def test_a_permit_is_judged_in_order() -> None:
    """Key set, shape, signatures, form, product, expiry, host, use: each with all that comes after it wrong as well."""
    late = clocks.Clocks(making.EXPIRES)
    used = NONE.using(ALLOWED, making.NOW)
    other: Dict[str, object] = {"hosts": ["a" * 32]}
    assert not_permitted(b"{}", TAKEN, clocks=late).code == codes.KEYS_EXPIRED
    assert not_permitted(b"{}", used).code == codes.BAD_DOCUMENT
    assert not_permitted(permit(OLD[:1], **other), used, clocks=late).code == codes.TOO_FEW_SIGNATURES
    spread = making.published(making.document(documents.PERMIT, **other) + b" ", OLD, kind=documents.PERMIT)
    assert not_permitted(spread, used, clocks=late).code == codes.NOT_CANONICAL
    assert not_permitted(permit(product="tool", **other), used, clocks=late).code == codes.WRONG_PRODUCT
    assert not_permitted(permit(**other), used, clocks=late) == codes.Refusal(
        codes.EXPIRED, "the downgrade permit expired at 2027-01-01T00:00:00Z"
    )
    assert not_permitted(permit(**other), used).code == codes.NOT_PERMITTED
    assert not_permitted(permit(), used).code == codes.PERMIT_USED


@pytest.mark.parametrize("kind", [documents.RELEASE, documents.KEY_SET, documents.WITHDRAWAL])
def test_another_document_is_no_permit(kind: documents.Kind) -> None:
    """However well it is signed."""
    body = making.body() if kind is documents.RELEASE else making.document(kind)
    assert not_permitted(making.published(body, OLD, kind=kind)).code == codes.BAD_DOCUMENT


def test_pins_of_the_configuration_do_not_expire() -> None:
    """Only a key set does."""
    assert trust.keys_expired(clocks.Clocks(making.EXPIRES * 2), NONE) is None
    assert trust.keys_expired(clocks.Clocks(making.EXPIRES - 1), TAKEN) is None
