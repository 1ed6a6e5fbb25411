# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a published manifest is signed well enough for a host's pins.

Rules:

* A signature covers ``PURPOSE`` and then the body's bytes, so one made for another purpose is worth nothing here.
* It counts only when its key id is one that the manifest lists, that key's SPKI matches a pin, and it verifies.
* Each pin counts once, however often it is configured or signed with; at most 16 signatures are read.
* The order is fixed: 1. shape, 2. signatures, 3. canonical form.
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Sequence, Set, Tuple, Union

from . import canonical, codes, keys, manifest

PURPOSE = b"slotward.release-manifest\0"
Published = manifest.Published
ORDER = (codes.BAD_MANIFEST, codes.TOO_FEW_SIGNATURES, codes.NOT_CANONICAL)

# Takes the algorithm, the SPKI, the message and the signature.
Verify = Callable[[str, bytes, bytes, bytes], bool]


class VerifiedManifest(NamedTuple):
    """A manifest that enough pinned keys signed; `signers` are their pins."""

    manifest: manifest.Manifest
    published: Published
    signers: Tuple[str, ...]


class Verdict(NamedTuple):
    """What one signature is worth: `pin` is empty when it does not count, and `why` says why not."""

    kid: str
    pin: str
    why: str


def signed_bytes(body: bytes) -> bytes:
    """What a signature of a manifest's body covers."""
    return PURPOSE + body


def verify_release(
    published: bytes, pins: Sequence[str], threshold: int, verify: Verify = keys.verify
) -> Union[VerifiedManifest, codes.Refusal]:
    """The manifest in `published` when it is well formed, signed by enough pinned keys, and canonical."""
    try:
        # 1. shape
        form = manifest.parse_published(published)
        body, value = manifest.parse_body(form.body)
        # 2. signatures
        verdicts = judge(form, body, pins, verify)
        signers = tuple(sorted({verdict.pin for verdict in verdicts if verdict.pin}))
        if len(signers) < max(threshold, 1):
            return codes.Refusal(codes.TOO_FEW_SIGNATURES, _too_few(len(signers), max(threshold, 1), verdicts))
        # 3. canonical form
        canonical.check_canonical(value, form.body)
    except manifest.BadManifest as error:
        return codes.Refusal(codes.BAD_MANIFEST, "the release manifest is malformed: %s" % error)
    except canonical.NotCanonical as error:
        return codes.Refusal(codes.NOT_CANONICAL, "the release manifest is not canonical JSON: %s" % error)
    except keys.Unavailable as error:
        return codes.Refusal(codes.NO_CRYPTOGRAPHY, str(error))
    return VerifiedManifest(body, form, signers)


def judge(
    form: manifest.Published, body: manifest.Manifest, pins: Sequence[str], verify: Verify = keys.verify
) -> Tuple[Verdict, ...]:
    """What each of the first 16 signatures is worth with these pins."""
    listed: Dict[str, manifest.Key] = {key.kid: key for key in body.keys}
    taken: Set[str] = set()
    found = []
    for signature in form.signatures[: manifest.MAX_SIGNATURES]:
        verdict = _judge_one(signature, listed, form.body, pins, taken, verify)
        taken.add(verdict.pin)
        found.append(verdict)
    return tuple(found)


def _judge_one(
    signature: manifest.Signature,
    listed: Dict[str, manifest.Key],
    body: bytes,
    pins: Sequence[str],
    taken: Set[str],
    verify: Verify,
) -> Verdict:
    key = listed.get(signature.kid)
    if key is None:
        return Verdict(signature.kid, "", "the manifest lists no such key")
    pin = keys.pin_of(key.spki)
    if pin not in pins:
        return Verdict(signature.kid, "", "its key is not pinned")
    if pin in taken:
        return Verdict(signature.kid, "", "its key has been counted")
    if not verify(key.alg, key.spki, signed_bytes(body), signature.sig):
        return Verdict(signature.kid, "", "it does not verify")
    return Verdict(signature.kid, pin, "")


def _too_few(count: int, threshold: int, verdicts: Sequence[Verdict]) -> str:
    """The sentence, with what is wrong with each signature that does not count."""
    wrong = "; ".join("%s: %s" % (verdict.kid, verdict.why) for verdict in verdicts if verdict.why)
    said = "the release manifest has %d of the %d signatures by pinned keys that it needs" % (count, threshold)
    return "%s (%s)" % (said, wrong) if wrong else said
