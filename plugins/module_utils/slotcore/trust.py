# SPDX-License-Identifier: GPL-3.0-or-later
"""What a signed document does to the record of trust: key sets, withdrawals and permits (trust.md, sections 1 and 2).

Rules:

* Until a host has taken a key set it trusts the configuration's pins; from then on the highest key set that it took.
* Documents are judged one after the other, each by what the one before left in force; one refusal refuses all of them.
* Each in this order: shape, signatures, canonical form, product, expiry, its own rule. What the record holds already is
  no change and is not judged again: the keys that signed it may be gone.
* An expired key set is taken only as a step to a newer one in the same chain (field case N16).
* A permit is judged by what is in force, is for hosts by name, and serves once on each of them.
"""

from __future__ import annotations

import hashlib
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union, cast

from . import clocks, codes, documents, keys, manifest, rfc3339, signatures
from . import trust_record as trusts

KEYS_CHANGED = "keys-changed"
WITHDRAWN = "withdrawn"


class Facts(NamedTuple):
    """What a decision about documents needs of the host."""

    product: str
    pins: Tuple[str, ...]
    """The configuration's, as is the threshold: in force until there is a key set."""
    threshold: int
    floor: int
    clocks: clocks.Clocks
    machine_id: str = ""
    verify: signatures.Verify = keys.verify


class Step(NamedTuple):
    """What one document does: the record after it, the event that it is ("" when it changes nothing), a sentence."""

    trust: trusts.Trust
    event: str
    text: str
    sequence: int
    version: str = ""


class _Read(NamedTuple):
    """A document by its parts, not verified yet."""

    name: str
    published: bytes
    kind: documents.Kind
    body: documents.Body
    sha256: str


def apply(
    facts: Facts, trust: trusts.Trust, given: Sequence[Tuple[str, bytes]]
) -> Union[Tuple[Step, ...], codes.Refusal]:
    """The steps that the documents take in the order given, each with its name for a refusal; or the first refusal."""
    chain: List[_Read] = []
    for name, published in given:
        read = _read(name, published)
        if isinstance(read, codes.Refusal):
            return read
        chain.append(read)
    steps: List[Step] = []
    for number, read in enumerate(chain):
        later = [cast(documents.KeySet, one.body).sequence for one in chain[number + 1 :] if _is_keys(one)]
        step = _key_set(facts, trust, read, later) if _is_keys(read) else _withdrawal(facts, trust, read)
        if isinstance(step, codes.Refusal):
            return codes.Refusal(step.code, "%s: %s" % (read.name, step.text))
        steps.append(step)
        trust = step.trust
    return tuple(steps)


def _is_keys(read: _Read) -> bool:
    return read.kind is documents.KEY_SET


def _read(name: str, published: bytes) -> Union[_Read, codes.Refusal]:
    """The shape of one document, which must be of a kind that is applied."""
    try:
        form = manifest.parse_published(published)
        kind = documents.kind_of(form.body)
        if kind not in (documents.KEY_SET, documents.WITHDRAWAL):
            text = "%s: a %s is given with the upgrade that it is for; key sets and withdrawals are applied"
            return codes.Refusal(codes.BAD_DOCUMENT, text % (name, kind.name))
        return _Read(name, published, kind, kind.parse(form.body)[0], hashlib.sha256(form.body).hexdigest())
    except documents.BadDocument as error:
        return codes.Refusal(codes.BAD_DOCUMENT, "%s: the signed document is malformed: %s" % (name, error))


def _key_set(facts: Facts, trust: trusts.Trust, read: _Read, later: Sequence[int]) -> Union[Step, codes.Refusal]:
    """What a key set does; `later` are the sequences of the key sets that follow it in the chain."""
    body = cast(documents.KeySet, read.body)
    used = trust.keys
    if used is not None and used.sha256 == read.sha256:
        return Step(trust, "", "key set %d is in use already" % body.sequence, body.sequence)
    if used is not None and body.sequence <= used.sequence:
        if body.sequence < used.sequence and any(sequence >= used.sequence for sequence in later):
            text = "key set %d is passed over: %d is in use" % (body.sequence, used.sequence)
            return Step(trust, "", text, body.sequence)
        text = "key set %d is not above %d, which is in use here"
        return codes.Refusal(codes.KEYS_NOT_NEWER, text % (body.sequence, used.sequence))
    refusal = _judged(facts, trust, read.published, read.kind)
    if refusal is None and not any(sequence > body.sequence for sequence in later):
        refusal = _expired(facts, trust, read.kind, body.expires_at)
    if refusal is not None:
        return refusal
    taken = trusts.Keys(
        body.sequence, max(0, body.issued_at), max(0, body.expires_at), body.pins, body.threshold, read.sha256
    )
    gone = len(set(in_force(facts, trust)[0]) - set(body.pins))
    text = "key set %d is in use: %d of %d keys must sign, until %s; %d of the keys before count for nothing any more"
    said = (body.sequence, body.threshold, len(body.pins), rfc3339.render(body.expires_at), gone)
    return Step(trust._replace(keys=taken), KEYS_CHANGED, text % said, body.sequence)


def _withdrawal(facts: Facts, trust: trusts.Trust, read: _Read) -> Union[Step, codes.Refusal]:
    body = cast(documents.Withdrawal, read.body)
    named = "%s %s, sequence %d" % (body.product, body.version, body.sequence)
    if trust.withdrawal_of(body.version, body.sequence) is not None:
        return Step(trust, "", "%s is withdrawn already" % named, body.sequence, body.version)
    refusal = _judged(facts, trust, read.published, read.kind)
    if refusal is not None:
        return refusal
    held = _with_room(facts.floor, trust.withdrawn)
    if held is None:
        text = "%d releases that this host could still run are withdrawn already, and no more are kept: bring the host to a newer release first"
        return codes.Refusal(codes.RECORD_FULL, text % trusts.MAX_WITHDRAWN)
    entry = trusts.Withdrawn(body.version, body.sequence, body.why, max(0, facts.clocks.host_s))
    text = "%s is withdrawn: %s" % (named, body.why)
    return Step(trust._replace(withdrawn=(*held, entry)), WITHDRAWN, text, body.sequence, body.version)


def _with_room(floor: int, held: Tuple[trusts.Withdrawn, ...]) -> Optional[Tuple[trusts.Withdrawn, ...]]:
    """The withdrawals with room for one more: what the floor refuses anyway goes when it must. None: there is none."""
    if len(held) < trusts.MAX_WITHDRAWN:
        return held
    lowest = min(held, key=lambda entry: entry.sequence)
    return tuple(entry for entry in held if entry is not lowest) if lowest.sequence < floor else None


def in_force(facts: Facts, trust: trusts.Trust) -> Tuple[Tuple[str, ...], int]:
    """The pins and the threshold that count now."""
    return (facts.pins, facts.threshold) if trust.keys is None else (trust.keys.pins, trust.keys.threshold)


def _judged(facts: Facts, trust: trusts.Trust, published: bytes, kind: documents.Kind) -> Optional[codes.Refusal]:
    """The refusal of a document's signatures, canonical form or product."""
    pins, threshold = in_force(facts, trust)
    if not pins:
        text = "no release keys are pinned ([update] release_pins): nobody can sign a %s for this host"
        return codes.Refusal(codes.NO_PINS, text % kind.name)
    found = signatures.verify(published, kind, pins, threshold, facts.verify)
    if isinstance(found, codes.Refusal):
        return found
    if found.body.product != facts.product:
        text = "the %s is for %s, not %s"
        return codes.Refusal(codes.WRONG_PRODUCT, text % (kind.name, found.body.product, facts.product))
    return None


def _expired(facts: Facts, trust: trusts.Trust, kind: documents.Kind, expires_at: int) -> Optional[codes.Refusal]:
    text = clocks.expired(judged_by(facts.clocks, trust), expires_at, "the %s" % kind.name)
    return codes.Refusal(codes.EXPIRED, text) if text else None


def judged_by(known: clocks.Clocks, trust: trusts.Trust) -> clocks.Clocks:
    """The times by which expiry goes on this host: when its key set was issued is one of them."""
    issued = trust.keys.issued_at if trust.keys is not None else 0
    return known._replace(newest_issued=max(known.newest_issued, issued))


def permit(facts: Facts, trust: trusts.Trust, published: bytes) -> Union[trusts.Allowed, codes.Refusal]:
    """The release that a permit lets through on this host, or why it lets none."""
    kind = documents.PERMIT
    text = keys_expired(judged_by(facts.clocks, trust), trust)
    if text:
        return codes.Refusal(codes.KEYS_EXPIRED, text)
    refusal = _judged(facts, trust, published, kind)
    if refusal is not None:
        return refusal
    body = documents.parse_permit(manifest.parse_published(published).body)[0]
    refusal = _expired(facts, trust, kind, body.expires_at)
    if refusal is not None:
        return refusal
    if facts.machine_id not in body.hosts:
        text = "the downgrade permit %s is for %d other host%s, not for this one, whose machine id is %s"
        said = (body.permit_id, len(body.hosts), "" if len(body.hosts) == 1 else "s", facts.machine_id or "not known")
        return codes.Refusal(codes.NOT_PERMITTED, text % said)
    used = trust.used(body.permit_id)
    if used is not None:
        text = "the downgrade permit %s was used on this host at %s: ask for a new one"
        return codes.Refusal(codes.PERMIT_USED, text % (body.permit_id, rfc3339.render(used.at)))
    if len(trust.permits) >= trusts.MAX_PERMITS:
        text = "%d downgrade permits were used on this host, and no more are taken"
        return codes.Refusal(codes.PERMIT_USED, text % trusts.MAX_PERMITS)
    return trusts.Allowed(body.permit_id, body.version, body.sequence)


def keys_expired(known: clocks.Clocks, trust: trusts.Trust) -> Optional[str]:
    """Why nothing but the next key set is taken, when the one in use has expired."""
    if trust.keys is None:
        return None
    text = clocks.expired(known, trust.keys.expires_at, "the key set %d of this host" % trust.keys.sequence)
    return text and text + "; no release is taken before the next key set"
