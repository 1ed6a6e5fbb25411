# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: reading and checking a published release on the controller.

Rules:

* A release is a directory, ``<base>/<product>/<version>``, on the controller or behind an https URL, with ``manifest.json`` in it.
* The controller's check comes before any host is touched; it never stands in for the host's own check.
* What an artifact is called, how big it is and what its digest is comes from the manifest, never from a listing.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import urllib.error
from typing import Any, Dict, NamedTuple, Optional, Sequence

from ansible.module_utils.urls import open_url
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, keys, manifest, rfc3339, signatures
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import target as targets

MANIFEST = "manifest.json"
TIMEOUT_S = 30

_HEX64 = re.compile(r"[0-9a-f]{64}")


class Release(NamedTuple):
    """A release as the controller sees it; ``signers`` are pins, none when nobody asked for a check."""

    manifest: manifest.Manifest
    text: str
    signers: Sequence[str]
    directory: Optional[str]
    url: Optional[str]


def is_url(location: str) -> bool:
    """True for what has to be fetched."""
    return location.startswith(("https://", "http://"))


def fetch(url: str, allow_http: bool, ca_file: Optional[str]) -> bytes:
    """What lies at an address, at most one byte more than a published manifest may have; raises Refused or Retryable."""
    if url.startswith("http://") and not allow_http:
        raise codes.refused(codes.BAD_URL, "%s is not https; set allow_http for a test" % url)
    try:
        with open_url(url, timeout=TIMEOUT_S, ca_path=ca_file, http_agent="slotward-fleet") as answer:
            data: bytes = answer.read(manifest.MAX_PUBLISHED + 1)
    except OSError as error:  # HTTPError and URLError are OSErrors, as are timeouts and TLS failures
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise codes.Retryable(codes.DOWNLOAD_FAILED, "%s cannot be fetched: %s" % (url, error)) from None
    return data


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(manifest.MAX_PUBLISHED + 1)
    except OSError as error:
        hint = "a release is the directory <base>/<product>/<version> that holds %s" % MANIFEST
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s; %s" % (path, error.strerror, hint)) from error


def _check(published: bytes, pins: Sequence[str], threshold: int) -> signatures.VerifiedManifest:
    """The manifest, verified when there are pins, else only well formed."""
    if pins:
        bad = [pin for pin in pins if not keys.is_pin(pin)]
        if bad:
            raise codes.refused(codes.BAD_KEY, "%s is not a pin: expected sha256/<base64 of 32 bytes>" % ascii(bad[0]))
        if not 1 <= threshold <= len(set(pins)):
            raise codes.refused(
                codes.TOO_FEW_SIGNATURES,
                "threshold is %d, and %d distinct pins are given" % (threshold, len(set(pins))),
            )
        verdict = signatures.verify_release(published, tuple(pins), threshold)
        if isinstance(verdict, codes.Refusal):
            raise codes.Refused(verdict)
        return verdict
    try:
        form = manifest.parse_published(published)
        return signatures.VerifiedManifest(manifest.parse_body(form.body)[0], form, ())
    except manifest.BadManifest as error:
        raise codes.refused(codes.BAD_MANIFEST, "the release manifest is malformed: %s" % error) from error


def read(
    location: str,
    pins: Sequence[str] = (),
    threshold: int = 1,
    product: Optional[str] = None,
    version: Optional[str] = None,
    allow_http: bool = False,
    ca_file: Optional[str] = None,
) -> Release:
    """The release at ``location``, checked as far as the arguments allow.

    Raises:
        Refused: it is not what was asked for.
        Retryable: it could not be fetched.

    """
    place = location.rstrip("/")
    published = (
        fetch("%s/%s" % (place, MANIFEST), allow_http, ca_file)
        if is_url(place)
        else _read(os.path.join(place, MANIFEST))
    )
    verified = _check(published, pins, threshold)
    body = verified.manifest
    if product and body.product != product:
        raise codes.refused(codes.WRONG_PRODUCT, "%s releases %s, not %s" % (location, body.product, product))
    if version and body.version != version:
        raise codes.refused(
            codes.WRONG_VERSION, "%s releases %s %s, not %s" % (location, body.product, body.version, version)
        )
    if pins and body.expires_at <= time.time():
        raise codes.refused(
            codes.EXPIRED, "the release manifest expired at %s: sign it again" % rfc3339.render(body.expires_at)
        )
    url = place if is_url(place) else None
    return Release(body, published.decode("utf-8"), verified.signers, None if url else os.path.abspath(place), url)


def target(release: Release, url: Optional[str] = None) -> Dict[str, Any]:
    """The word to any host: the published manifest, and for each platform which artifact and where to fetch it."""
    base = (url or release.url or "").rstrip("/")
    return {
        "product": release.manifest.product,
        "version": release.manifest.version,
        "sequence": release.manifest.sequence,
        "min_from": release.manifest.min_from,
        "manifest": release.text,
        "artifacts": {place: artifact(entry, base) for place, entry in artifacts_of(release.manifest).items()},
        "directory": release.directory,
    }


def artifacts_of(body: manifest.Manifest) -> Dict[str, manifest.Artifact]:
    """The artifacts that hosts take: by platform the one of the name that a host looks for, by ``platform/variant`` those of variants."""
    found: Dict[str, manifest.Artifact] = {}
    for entry in body.artifacts:
        named = (body.product, body.version, entry.platform)
        if entry.name == targets.artifact_name(*named):
            found[entry.platform] = entry
        if entry.variant and entry.name in (
            targets.artifact_name(*named),
            targets.artifact_name(*named, entry.variant),
        ):
            found["%s/%s" % (entry.platform, entry.variant)] = entry
    return found


def artifact(entry: manifest.Artifact, base: str) -> Dict[str, Any]:
    """One artifact with its address; an empty address when the release lies on the controller only."""
    return {
        "name": entry.name,
        "url": "%s/%s" % (base, entry.name) if base else "",
        "sha256": entry.sha256,
        "size": entry.size,
    }


def describe(release: Release, url: Optional[str] = None) -> Dict[str, Any]:
    """Everything that ``release_info`` returns of a release."""
    body = release.manifest
    return {
        "product": body.product,
        "version": body.version,
        "sequence": body.sequence,
        "channel": body.channel,
        "min_from": body.min_from,
        "epoch": body.epoch,
        "issued_at": rfc3339.render(body.issued_at),
        "expires_at": rfc3339.render(body.expires_at),
        "expired": body.expires_at <= time.time(),
        "release_keys": [{"kid": key.kid, "alg": key.alg, "pin": keys.pin_of(key.spki)} for key in body.keys],
        "signers": list(release.signers),
        "verified": bool(release.signers),
        "artifacts": [dict(entry._asdict()) for entry in body.artifacts],
        "target": target(release, url),
    }


def by_digest(
    location: Optional[str], digests: Dict[str, str], product: str, version: Optional[str], url: Optional[str]
) -> Dict[str, Any]:
    """What ``release_info`` returns of a release that is trusted by digests given for each architecture.

    A manifest in a directory is handed on for later, after its digests were compared; behind a URL nothing is asked for. Without a
    location the host knows where it is.
    """
    bad = [value for value in digests.values() if not _HEX64.fullmatch(str(value).lower())]
    if bad or not digests:
        raise codes.refused(
            codes.BAD_DIGEST, "%s is not a SHA-256 in hexadecimal" % ascii(bad[0]) if bad else "no SHA-256 is given"
        )
    wanted = {"linux-%s" % arch: str(value).lower() for arch, value in digests.items()}
    if location is None:
        return _unread(product, str(version), wanted, (url or "").rstrip("/"), None)
    place = location.rstrip("/")
    if not is_url(place) and os.path.exists(os.path.join(place, MANIFEST)):
        return _compared(place, wanted, describe(read(place, product=product, version=version), url))
    if not version:
        raise codes.refused(
            codes.NOT_A_RELEASE, "%s has no %s that could be read, so give the version" % (location, MANIFEST)
        )
    base = (url or (place if is_url(place) else "")).rstrip("/")
    return _unread(product, version, wanted, base, None if is_url(place) else os.path.abspath(place))


def _compared(place: str, wanted: Dict[str, str], info: Dict[str, Any]) -> Dict[str, Any]:
    """What is known of a release with a manifest, whose digests must be the ones given."""
    found = info["target"]["artifacts"]
    for platform, sha256 in wanted.items():
        entry = found.get(platform) or {"sha256": "none"}
        if entry["sha256"] != sha256:
            raise codes.refused(
                codes.DIGEST_MISMATCH, "%s: %s has SHA-256 %s, not %s" % (place, platform, entry["sha256"], sha256)
            )
    info["target"]["artifacts"] = {name: entry for name, entry in found.items() if name in wanted}
    return info


def _unread(product: str, version: str, wanted: Dict[str, str], base: str, directory: Optional[str]) -> Dict[str, Any]:
    """What is known of a release without a manifest: the digests that were given."""
    entries = {
        platform: _nameless(targets.artifact_name(product, version, platform), sha256, base)
        for platform, sha256 in wanted.items()
    }
    return {
        "product": product,
        "version": version,
        "signers": [],
        "verified": False,
        "artifacts": [dict(entry, platform=platform) for platform, entry in entries.items()],
        "target": {
            "product": product,
            "version": version,
            "sequence": None,
            "manifest": "",
            "artifacts": entries,
            "directory": directory,
        },
    }


def _nameless(name: str, sha256: str, base: str) -> Dict[str, Any]:
    return {"name": name, "url": "%s/%s" % (base, name) if base else "", "sha256": sha256, "size": None}


def local_artifact(directory: str, entry: Dict[str, Any]) -> str:
    """The path of an artifact on the controller, its size and digest checked just now."""
    path = os.path.join(directory, entry["name"])
    digest = hashlib.sha256()
    size = 0
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (path, error.strerror)) from error
    if entry["size"] is not None and size != entry["size"]:
        raise codes.refused(codes.SIZE_MISMATCH, "%s has %d bytes, the manifest says %d" % (path, size, entry["size"]))
    if digest.hexdigest() != entry["sha256"]:
        raise codes.refused(
            codes.DIGEST_MISMATCH,
            "%s has SHA-256 %s, the manifest says %s" % (path, digest.hexdigest(), entry["sha256"]),
        )
    return path
