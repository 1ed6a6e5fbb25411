# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a signed document is signed well enough for a host's pins: a release manifest or any other kind.

Rules:

* A signature covers the kind's purpose and then the body's bytes, so one made for another purpose is worth nothing.
* It counts only when its key id is one that the document lists, that key's SPKI matches a pin, and it verifies.
* Each pin counts once, however often it is configured or signed with; at most 16 signatures are read.
* The order is fixed: 1. shape, 2. signatures, 3. canonical form.
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Sequence, Set, Tuple, Union, cast

from . import canonical, codes, documents, keys
from . import manifest as manifests

ORDER = (codes.BAD_MANIFEST, codes.TOO_FEW_SIGNATURES, codes.NOT_CANONICAL)

# Takes the algorithm, the SPKI, the message and the signature.
Verify = Callable[[str, bytes, bytes, bytes], bool]


class Verified(NamedTuple):
    """A document that enough pinned keys signed; `signers` are their pins."""

    body: documents.Body
    published: manifests.Published
    signers: Tuple[str, ...]


class VerifiedManifest(NamedTuple):
    """A release manifest that enough pinned keys signed; `signers` are their pins."""

    manifest: manifests.Manifest
    published: manifests.Published
    signers: Tuple[str, ...]


class Verdict(NamedTuple):
    """What one signature is worth: `pin` is empty when it does not count, and `why` says why not."""

    kid: str
    pin: str
    why: str


def signed_bytes(body: bytes, kind: documents.Kind = documents.RELEASE) -> bytes:
    """What a signature of a document's body covers."""
    return kind.purpose + body


def verify(
    published: bytes, kind: documents.Kind, pins: Sequence[str], threshold: int, verify: Verify = keys.verify
) -> Union[Verified, codes.Refusal]:
    """The document in `published` when it is one of `kind`, well formed, signed by enough pinned keys, and canonical."""
    return _verify(published, kind, pins, threshold, verify)


def verify_release(
    published: bytes, pins: Sequence[str], threshold: int, verify: Verify = keys.verify
) -> Union[VerifiedManifest, codes.Refusal]:
    """The manifest in `published` when it is well formed, signed by enough pinned keys, and canonical."""
    found = _verify(published, documents.RELEASE, pins, threshold, verify)
    if isinstance(found, codes.Refusal):
        return found
    return VerifiedManifest(cast(manifests.Manifest, found.body), found.published, found.signers)


def _verify(
    published: bytes, kind: documents.Kind, pins: Sequence[str], threshold: int, verify: Verify
) -> Union[Verified, codes.Refusal]:
    try:
        # 1. shape
        form = manifests.parse_published(published)
        body, value = kind.parse(form.body)
        # 2. signatures
        verdicts = judge(form, body, pins, kind, verify)
        signers = tuple(sorted({verdict.pin for verdict in verdicts if verdict.pin}))
        if len(signers) < max(threshold, 1):
            return codes.Refusal(codes.TOO_FEW_SIGNATURES, _too_few(kind, body, max(threshold, 1), verdicts))
        # 3. canonical form
        canonical.check_canonical(value, form.body)
    except documents.BadDocument as error:
        return codes.Refusal(kind.bad_shape, "the %s is malformed: %s" % (kind.name, error))
    except canonical.NotCanonical as error:
        return codes.Refusal(codes.NOT_CANONICAL, "the %s is not canonical JSON: %s" % (kind.name, error))
    except keys.Unavailable as error:
        return codes.Refusal(codes.NO_CRYPTOGRAPHY, str(error))
    return Verified(body, form, signers)


def judge(
    form: manifests.Published,
    body: documents.Body,
    pins: Sequence[str],
    kind: documents.Kind = documents.RELEASE,
    verify: Verify = keys.verify,
) -> Tuple[Verdict, ...]:
    """What each of the first 16 signatures is worth with these pins."""
    listed: Dict[str, manifests.Key] = {key.kid: key for key in body.keys}
    taken: Set[str] = set()
    found = []
    for signature in form.signatures[: manifests.MAX_SIGNATURES]:
        verdict = _judge_one(signature, listed, signed_bytes(form.body, kind), pins, taken, verify)
        taken.add(verdict.pin)
        found.append(verdict)
    return tuple(found)


def _judge_one(
    signature: manifests.Signature,
    listed: Dict[str, manifests.Key],
    message: bytes,
    pins: Sequence[str],
    taken: Set[str],
    verify: Verify,
) -> Verdict:
    key = listed.get(signature.kid)
    if key is None:
        return Verdict(signature.kid, "", "the document lists no such key")
    pin = keys.pin_of(key.spki)
    if pin not in pins:
        return Verdict(signature.kid, "", "its key is not pinned")
    if pin in taken:
        return Verdict(signature.kid, "", "its key has been counted")
    if not verify(key.alg, key.spki, message, signature.sig):
        return Verdict(signature.kid, "", "it does not verify")
    return Verdict(signature.kid, pin, "")


def _too_few(kind: documents.Kind, body: documents.Body, threshold: int, verdicts: Sequence[Verdict]) -> str:
    """The sentence, with the document's name, whose signatures count, and what is wrong with each of the others."""
    counted = [verdict.kid for verdict in verdicts if verdict.pin]
    wrong = ["%s: %s" % (verdict.kid, verdict.why) for verdict in verdicts if verdict.why]
    more = ["of " + documents.named(body), *(["signed by " + ", ".join(counted)] if counted else []), *wrong]
    text = "the %s has %d of the %d signatures by pinned keys that it needs (%s)"
    return text % (kind.name, len(counted), threshold, "; ".join(more))
