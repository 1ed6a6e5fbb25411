# SPDX-License-Identifier: GPL-3.0-or-later
"""Unsigned documents beside the manifest, made from values: withdrawals, key sets and downgrade permits.

Rules:

* What is drafted went through the same parser as on the hosts.
* The same document again, times and a permit's id apart, answers the bytes that are there.
* A key set follows the set that hosts trust now: its sequence is higher, it is issued before the old set expires
  (field case N16), and the keys that may sign it can meet the old set's threshold.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from . import codes, documents, keys, rfc3339, signing


class Trusted(NamedTuple):
    """Whom hosts trust before the new key set: pins of the configuration, whose sequence is 0, or a key set."""

    pins: Tuple[str, ...]
    threshold: int
    sequence: int = 0
    expires_at: Optional[int] = None


def draft(existing: Optional[bytes], body: documents.Document) -> signing.Result:
    """The unsigned published form of `body`, or what is there already when it is the same. Raises Refused."""
    try:
        rendered = documents.render(body)
    except ValueError as error:
        raise codes.refused(codes.BAD_DOCUMENT, "these values make no document: %s" % error) from None
    if existing is None:
        return signing.Result(signing.unsigned(rendered, body.keys), True)
    kind = documents.kind_of(rendered)
    there = signing.read(existing)
    if there.kind is not kind:
        text = "a %s is there; choose another name or remove it by hand" % there.kind.name
        raise codes.refused(codes.ALREADY_EXISTS, text)
    different = signing.differences(there.body, body, (*signing.TIMES, "permit_id"))
    if different:
        text = "a %s with other contents is there (%s); choose another name or remove it by hand"
        raise codes.refused(codes.ALREADY_EXISTS, text % (kind.name, "; ".join(different)))
    return signing.Result(existing, False)


def trusted(published: bytes) -> Trusted:
    """Whom hosts trust that took this key set. Raises Refused when it is none, or nobody has signed it."""
    parts = signing.read(published, documents.KEY_SET)
    if not isinstance(parts.body, documents.KeySet) or not signing.good(parts):
        text = "nobody has signed the key set of %s, so no host trusts it: give the one that hosts took"
        raise codes.refused(codes.TOO_FEW_SIGNATURES, text % documents.named(parts.body))
    return Trusted(parts.body.pins, parts.body.threshold, parts.body.sequence, parts.body.expires_at)


def check_succession(new: documents.KeySet, old: Trusted, accept_gap: bool = False) -> None:
    """Raise Refused when hosts that trust `old` could not go on to `new`, or would have refused releases meanwhile."""
    if new.sequence <= old.sequence:
        text = "sequence %d is not above %d, that of the key set before: hosts would refuse it"
        raise codes.refused(codes.KEYS_NOT_NEWER, text % (new.sequence, old.sequence))
    able = [one for one in new.keys if keys.pin_of(one.spki) in old.pins]
    if len(able) < old.threshold:
        text = "%d of the keys given are in the old set, which needs %d signatures: give the public keys of more of its signers"
        raise codes.refused(codes.TOO_FEW_SIGNATURES, text % (len(able), old.threshold))
    if old.expires_at is not None and new.issued_at >= old.expires_at and not accept_gap:
        text = "the key set before expired at %s, so hosts let no release in until they take this one; --accept-gap makes it all the same"
        raise codes.refused(codes.KEYS_EXPIRED, text % rfc3339.render(old.expires_at))
