# SPDX-License-Identifier: GPL-3.0-or-later
"""Make releases: build a manifest, sign it key by key, merge signatures made apart, and describe the result.

Rules:

* Everything here takes bytes and values and answers bytes and values; who calls it reads and writes the files.
* A body is built once. Building the same release again, times apart, answers the bytes that are there; building
  another one in their place is refused.
* A signature is added only by a key that the manifest lists, and only when it verifies.
* Merging takes manifests with the very same body, and no signature that does not verify.
* Published bytes have one form: canonical JSON and a newline, signatures in the order of the manifest's keys.
* What is wrong is raised as `codes.Refused`, with the value, the rule and the way out.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import canonical, codes, keys, manifest, rfc3339, semver, signatures, target

MANIFEST_NAME = "manifest.json"


class Result(NamedTuple):
    """Published bytes, and whether they differ from what was there."""

    published: bytes
    changed: bool


class Parts(NamedTuple):
    """A published manifest taken apart."""

    form: manifest.Published
    body: manifest.Manifest


def measure(chunks: Iterable[bytes]) -> Tuple[str, int]:
    """The SHA-256 and the size of a file, read in chunks."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def directory(product: str, version: str) -> str:
    """Where a release lies below the base of all releases."""
    return "%s/%s" % (product, version)


def artifact(product: str, version: str, platform: str, sha256: str, size: int) -> manifest.Artifact:
    """The entry of the program that a host of `platform` runs."""
    return manifest.Artifact(target.artifact_name(product, version, platform), platform, sha256, size)


def key(public: keys.PublicKey) -> manifest.Key:
    """The entry of a key that may sign."""
    return manifest.Key(public.kid, public.alg, public.spki)


def build_manifest(wanted: manifest.Manifest) -> bytes:
    """The canonical body of `wanted`, checked by the same parser as on the hosts."""
    least, version = semver.parse(wanted.min_from or ""), semver.parse(wanted.version)
    if least and version and semver.older(version, least):
        raise codes.refused(codes.BAD_RELEASE, "minFrom %s is newer than the release %s" % (least.text, version.text))
    try:
        body = canonical.encode(_fields(wanted))
        manifest.parse_body(body)
    except ValueError as error:
        raise codes.refused(codes.BAD_RELEASE, "this is no release: %s" % error) from None
    return body


def build(existing: Optional[bytes], wanted: manifest.Manifest) -> Result:
    """The published form of `wanted`, unsigned, or what is there already when it is the same release."""
    body = build_manifest(wanted)
    if existing is None:
        return Result(_publish(body, wanted, ()), True)
    there = read(existing)
    different = differences(there.body, wanted)
    if different:
        text = "%s %s is there with other contents (%s); give a new version and sequence, or remove it by hand"
        said = (there.body.product, there.body.version, "; ".join(different))
        raise codes.refused(codes.ALREADY_EXISTS, text % said)
    return Result(existing, False)


def differences(there: manifest.Manifest, wanted: manifest.Manifest) -> Tuple[str, ...]:
    """What two manifests do not have in common, times apart."""
    found = []
    for name in manifest.Manifest._fields:
        one, other = getattr(there, name), getattr(wanted, name)
        if name not in ("issued_at", "expires_at") and one != other:
            short = isinstance(one, (str, int)) or one is None
            found.append("%s %s, not %s" % (name, one, other) if short else "other " + name)
    return tuple(found)


def read(published: bytes) -> Parts:
    """A published manifest, whose body must be canonical already."""
    try:
        form = manifest.parse_published(published)
        body, value = manifest.parse_body(form.body)
        canonical.check_canonical(value, form.body)
    except manifest.BadManifest as error:
        raise codes.refused(codes.BAD_MANIFEST, "the release manifest is malformed: %s" % error) from None
    except canonical.NotCanonical as error:
        raise codes.refused(codes.NOT_CANONICAL, "the release manifest is not canonical JSON: %s" % error) from None
    return Parts(form, body)


def sign(published: bytes, public: keys.PublicKey, make: Callable[[bytes], bytes]) -> Result:
    """`published` with one more signature, by the key `public`; `make` signs a message."""
    parts = read(published)
    kid = next((one.kid for one in parts.body.keys if one.spki == public.spki), None)
    if kid is None:
        text = "the manifest does not list the key %s; it lists %s"
        listed = ", ".join(one.kid for one in parts.body.keys)
        raise codes.refused(codes.BAD_KEY, text % (public.kid, listed))
    others = [one for one in _good(parts) if one.kid != kid]
    if len(others) < len(_good(parts)):
        return Result(published, False)
    made = manifest.Signature(kid, make(signatures.signed_bytes(parts.form.body)))
    if not _verifies(parts, made):
        raise codes.refused(codes.BAD_KEY, "the signature just made by %s does not verify: not that key" % public.kid)
    return Result(_publish(parts.form.body, parts.body, [*others, made]), True)


def merge(many: Sequence[bytes]) -> bytes:
    """One published manifest with the signatures of all, which must have the same body."""
    if not many:
        raise codes.refused(codes.BAD_RELEASE, "no manifests to merge")
    all_parts = [read(published) for published in many]
    first = all_parts[0]
    found: Dict[str, manifest.Signature] = {}
    for number, parts in enumerate(all_parts, start=1):
        if parts.form.body != first.form.body:
            different = differences(first.body, parts.body) or ("other times",)
            text = "manifest %d is of another release than manifest 1: %s"
            raise codes.refused(codes.RELEASES_DIFFER, text % (number, "; ".join(different)))
        for one in parts.form.signatures:
            if not _verifies(parts, one):
                text = "the signature by %s in manifest %d does not verify; sign again and leave that one out"
                raise codes.refused(codes.BAD_RELEASE, text % (one.kid, number))
            found.setdefault(one.kid, one)
    return _publish(first.form.body, first.body, found.values())


def describe(published: bytes) -> Dict[str, object]:
    """What a published manifest says, as plain values; `signed` tells whose signatures verify."""
    form, body = parts = read(published)
    signed = {one.kid for one in _good(parts)}
    return {
        "artifacts": [dict(one._asdict()) for one in body.artifacts],
        "channel": body.channel,
        "expires_at": rfc3339.render(body.expires_at),
        "issued_at": rfc3339.render(body.issued_at),
        "keys": [
            {"alg": one.alg, "kid": one.kid, "pin": keys.pin_of(one.spki), "signed": one.kid in signed}
            for one in body.keys
        ],
        "manifest_sha256": hashlib.sha256(form.body).hexdigest(),
        "min_from": body.min_from,
        "product": body.product,
        "sequence": body.sequence,
        "signatures": len(signed),
        "version": body.version,
    }


def describe_lines(published: bytes) -> List[str]:
    """The same for people."""
    form, body = parts = read(published)
    since = ", from %s on" % body.min_from if body.min_from else ""
    times = (rfc3339.render(body.issued_at), rfc3339.render(body.expires_at), hashlib.sha256(form.body).hexdigest())
    lines = [
        "%s %s, sequence %d, channel %s%s" % (body.product, body.version, body.sequence, body.channel, since),
        "issued %s, expires %s, body sha256 %s" % times,
    ]
    lines += ["file %s, %d bytes, sha256 %s" % (one.name, one.size, one.sha256) for one in body.artifacts]
    signed = {one.kid for one in _good(parts)}
    for one in body.keys:
        state = "signed" if one.kid in signed else "not signed"
        lines.append("key %s, %s, %s, %s" % (one.kid, one.alg, keys.pin_of(one.spki), state))
    return lines


def _verifies(parts: Parts, one: manifest.Signature) -> bool:
    listed = {entry.kid: entry for entry in parts.body.keys}
    entry = listed.get(one.kid)
    if entry is None:
        return False
    try:
        return keys.verify(entry.alg, entry.spki, signatures.signed_bytes(parts.form.body), one.sig)
    except keys.Unavailable as error:
        raise codes.refused(codes.NO_CRYPTOGRAPHY, str(error)) from None


def _good(parts: Parts) -> List[manifest.Signature]:
    return [one for one in parts.form.signatures if _verifies(parts, one)]


def _publish(body: bytes, parsed: manifest.Manifest, signed: Iterable[manifest.Signature]) -> bytes:
    order = [one.kid for one in parsed.keys]
    listed = [
        {"kid": one.kid, "sig": base64.b64encode(one.sig).decode("ascii")}
        for one in sorted(signed, key=lambda one: order.index(one.kid))
    ]
    form = {"manifest": base64.b64encode(body).decode("ascii"), "signatures": listed}
    return canonical.encode(form, manifest.MAX_PUBLISHED) + b"\n"


def _fields(wanted: manifest.Manifest) -> Dict[str, object]:
    found: Dict[str, object] = {
        "artifacts": [_artifact_fields(one) for one in wanted.artifacts],
        "expiresAt": rfc3339.render(wanted.expires_at),
        "issuedAt": rfc3339.render(wanted.issued_at),
        "keys": [
            {"alg": one.alg, "kid": one.kid, "spki": base64.b64encode(one.spki).decode("ascii")} for one in wanted.keys
        ],
        "product": wanted.product,
        "sequence": wanted.sequence,
        "spec": manifest.SPEC,
        "type": manifest.TYPE,
        "version": wanted.version,
    }
    if wanted.channel != manifest.DEFAULT_CHANNEL:
        found["channel"] = wanted.channel
    if wanted.min_from is not None:
        found["minFrom"] = wanted.min_from
    return found


def _artifact_fields(one: manifest.Artifact) -> Dict[str, object]:
    found: Dict[str, object] = {"name": one.name, "platform": one.platform, "sha256": one.sha256, "size": one.size}
    if one.kind != manifest.KINDS[0]:
        found["kind"] = one.kind
    if one.variant is not None:
        found["variant"] = one.variant
    return found
