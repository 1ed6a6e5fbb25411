# SPDX-License-Identifier: GPL-3.0-or-later
"""Make releases: build a manifest from values and artifacts.

Rules:

* Everything here takes bytes and values and answers bytes and values; who calls it reads and writes the files.
* A body is built once. Building the same release again, times apart, answers the bytes that are there; building
  another one in their place is refused.
* What is built went through the same parser as on the hosts.
* What is wrong is raised as `codes.Refused`, with the value, the rule and the way out.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Dict, Iterable, Optional, Tuple, cast

from . import canonical, codes, documents, keys, manifest, rfc3339, semver, signing, target

MANIFEST_NAME = "manifest.json"


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


def artifact(
    product: str,
    version: str,
    platform: str,
    sha256: str,
    size: int,
    kind: str = manifest.KINDS[0],
    variant: Optional[str] = None,
) -> manifest.Artifact:
    """The entry of what a host of `platform` runs; its name is the same for every kind, as hosts look for it."""
    name = target.artifact_name(product, version, platform, variant)
    return manifest.Artifact(name, platform, sha256, size, kind, variant)


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


def build(existing: Optional[bytes], wanted: manifest.Manifest) -> signing.Result:
    """The published form of `wanted`, unsigned, or what is there already when it is the same release."""
    body = build_manifest(wanted)
    if existing is None:
        return signing.Result(signing.unsigned(body, wanted.keys), True)
    there = read(existing)
    different = signing.differences(there, wanted)
    if different:
        text = "%s %s is there with other contents (%s); give a new version and sequence, or remove it by hand"
        said = (there.product, there.version, "; ".join(different))
        raise codes.refused(codes.ALREADY_EXISTS, text % said)
    return signing.Result(existing, False)


def read(published: bytes) -> manifest.Manifest:
    """The manifest in `published`, which must be a release's and canonical already."""
    return cast(manifest.Manifest, signing.read(published, documents.RELEASE).body)


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
        "spec": wanted.spec,
        "type": manifest.TYPE,
        "version": wanted.version,
    }
    if wanted.channel != manifest.DEFAULT_CHANNEL:
        found["channel"] = wanted.channel
    if wanted.min_from is not None:
        found["minFrom"] = wanted.min_from
    if wanted.epoch:
        found["epoch"] = wanted.epoch
    return found


def _artifact_fields(one: manifest.Artifact) -> Dict[str, object]:
    found: Dict[str, object] = {"name": one.name, "platform": one.platform, "sha256": one.sha256, "size": one.size}
    if one.kind != manifest.KINDS[0]:
        found["kind"] = one.kind
    if one.variant is not None:
        found["variant"] = one.variant
    return found
