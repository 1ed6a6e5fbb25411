# SPDX-License-Identifier: GPL-3.0-or-later
"""Put signatures on documents, one by one or made apart: releases, key sets, permits and withdrawals alike.

Rules:

* Everything here takes bytes and values and answers bytes and values; who calls it reads and writes the files.
* A signature is added only by a key that the document lists, and only when it verifies.
* Merging takes documents with the very same body, and no signature that does not verify.
* Published bytes have one form: canonical JSON and a newline, signatures in the order of the document's keys.
* What is wrong is raised as `codes.Refused`, with the value, the rule and the way out.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import canonical, codes, documents, keys, manifest, signatures

TIMES = ("issued_at", "expires_at")


class Result(NamedTuple):
    """Published bytes, and whether they differ from what was there."""

    published: bytes
    changed: bool


class Parts(NamedTuple):
    """A published document taken apart."""

    form: manifest.Published
    kind: documents.Kind
    body: documents.Body

    @property
    def sha256(self) -> str:
        """The digest of the body, which two signers may read to each other."""
        return hashlib.sha256(self.form.body).hexdigest()


def read(published: bytes, kind: Optional[documents.Kind] = None) -> Parts:
    """A published document, of this kind or of any, whose body must be canonical already."""
    name, code = (kind.name, kind.bad_shape) if kind else ("document", codes.BAD_DOCUMENT)
    try:
        form = manifest.parse_published(published)
        if kind is None:
            kind = documents.kind_of(form.body)
            name, code = kind.name, kind.bad_shape
        body, value = kind.parse(form.body)
        canonical.check_canonical(value, form.body)
    except documents.BadDocument as error:
        raise codes.refused(code, "the %s is malformed: %s" % (name, error)) from None
    except canonical.NotCanonical as error:
        raise codes.refused(codes.NOT_CANONICAL, "the %s is not canonical JSON: %s" % (name, error)) from None
    return Parts(form, kind, body)


def message(parts: Parts) -> bytes:
    """What a signature covers: the purpose of the document's kind and its body."""
    return signatures.signed_bytes(parts.form.body, parts.kind)


def unsigned(body: bytes, listed: Sequence[manifest.Key]) -> bytes:
    """The published form of a body that nobody has signed."""
    return _publish(body, listed, ())


def sign(published: bytes, public: keys.PublicKey, make: Callable[[bytes], bytes]) -> Result:
    """`published` with one more signature, by the key `public`; `make` signs a message."""
    parts = read(published)
    kid = listed_as(parts, public)
    there = good(parts)
    if any(one.kid == kid for one in there):
        return Result(published, False)
    made = manifest.Signature(kid, make(message(parts)))
    if not _verifies(parts, made):
        raise codes.refused(codes.BAD_KEY, "the signature just made by %s does not verify: not that key" % public.kid)
    return Result(_publish(parts.form.body, parts.body.keys, [*there, made]), True)


def listed_as(parts: Parts, public: keys.PublicKey) -> str:
    """The id under which the document lists this key; refused when it does not."""
    kid = next((one.kid for one in parts.body.keys if one.spki == public.spki), None)
    if kid is None:
        text = "the %s does not list the key %s; it lists %s"
        listed = ", ".join(one.kid for one in parts.body.keys)
        raise codes.refused(codes.BAD_KEY, text % (parts.kind.name, public.kid, listed))
    return kid


def merge(many: Sequence[bytes]) -> bytes:
    """One published document with the signatures of all, which must have the same body."""
    if not many:
        raise codes.refused(codes.BAD_RELEASE, "no documents to merge")
    all_parts = [read(published) for published in many]
    first = all_parts[0]
    found: Dict[str, manifest.Signature] = {}
    for number, parts in enumerate(all_parts, start=1):
        if parts.form.body != first.form.body:
            text = "file %d is another %s than file 1: %s"
            raise codes.refused(codes.RELEASES_DIFFER, text % (number, first.kind.name, _unlike(first, parts)))
        for one in parts.form.signatures:
            if not _verifies(parts, one):
                text = "the signature by %s in file %d does not verify; sign again and leave that one out"
                raise codes.refused(codes.BAD_RELEASE, text % (one.kid, number))
            found.setdefault(one.kid, one)
    return _publish(first.form.body, first.body.keys, found.values())


def differences(there: documents.Body, wanted: documents.Body, but: Sequence[str] = TIMES) -> Tuple[str, ...]:
    """What two documents of one kind do not have in common, times apart."""
    found = []
    for name in there._fields:
        one, other = getattr(there, name), getattr(wanted, name)
        if name not in but and one != other:
            short = isinstance(one, (str, int)) or one is None
            found.append("%s %s, not %s" % (name, one, other) if short else "other " + name)
    return tuple(found)


def good(parts: Parts) -> List[manifest.Signature]:
    """The signatures that verify."""
    return [one for one in parts.form.signatures if _verifies(parts, one)]


def _unlike(one: Parts, other: Parts) -> str:
    if one.kind is not other.kind:
        return "it is a %s" % other.kind.name
    return "; ".join(differences(one.body, other.body) or ("other times",))


def _verifies(parts: Parts, one: manifest.Signature) -> bool:
    entry = next((entry for entry in parts.body.keys if entry.kid == one.kid), None)
    if entry is None:
        return False
    try:
        return keys.verify(entry.alg, entry.spki, message(parts), one.sig)
    except keys.Unavailable as error:
        raise codes.refused(codes.NO_CRYPTOGRAPHY, str(error)) from None


def _publish(body: bytes, listed: Sequence[manifest.Key], signed: Iterable[manifest.Signature]) -> bytes:
    order = [one.kid for one in listed]
    signatures_ = [
        {"kid": one.kid, "sig": base64.b64encode(one.sig).decode("ascii")}
        for one in sorted(signed, key=lambda one: order.index(one.kid))
    ]
    form = {"manifest": base64.b64encode(body).decode("ascii"), "signatures": signatures_}
    return canonical.encode(form, manifest.MAX_PUBLISHED) + b"\n"
