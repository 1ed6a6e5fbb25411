# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's checks of a release, in the order in which they are made.

Rules:

* ``CHECKS`` is the whole order: rows that need no manifest, then the manifest itself (its shape, signatures and
  canonical form, numbered in ``signatures.py``), then the rows that read it.
* The first row that objects decides; every refusal is terminal and has its code and sentence from that row.
* Nothing here reads a clock, a file or the network: ``Facts`` holds all that a decision needs.
* Expiry is judged by ``Facts.now_s``, which the caller makes the latest of the host's clock, the server's time and the
  newest ``issuedAt`` of any manifest verified on this host.
"""

from __future__ import annotations

import re
from typing import Callable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import codes, manifest, rfc3339, semver, signatures, target

MAX_ARTIFACT = 512 << 20
MAX_TARGET = target.MAX_BYTES
Target = target.Target
Artifact = manifest.Artifact
parse_target = target.parse
artifact_name = target.artifact_name

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Facts(NamedTuple):
    """All that a decision about one target needs.

    `running_version` is None when nobody knows it; `failed` gives code and reason of each version that failed here.
    """

    target: target.Target
    product: str
    platform: str
    running_version: Optional[str]
    floor: int
    failed: Mapping[str, Tuple[str, str]]
    pins: Sequence[str]
    threshold: int
    now_s: int
    max_bytes: int = MAX_ARTIFACT
    channels: Sequence[str] = (manifest.DEFAULT_CHANNEL,)


class Verified(NamedTuple):
    """A release that this host takes, the file of it that it runs, and the pins that signed."""

    manifest: manifest.Manifest
    artifact: Artifact
    signers: Tuple[str, ...]


class TargetCheck(NamedTuple):
    """A row that needs no manifest."""

    code: str
    rule: Callable[[Facts], Optional[str]]


class ManifestCheck(NamedTuple):
    """A row that reads the verified manifest."""

    code: str
    rule: Callable[[Facts, manifest.Manifest], Optional[str]]


def check(facts: Facts) -> Union[Verified, codes.Refusal]:
    """The release that `facts.target` asks for, or the first refusal."""
    refusal = check_before_manifest(facts)
    if refusal:
        return refusal
    if not facts.target.signature:
        return codes.Refusal(codes.NO_MANIFEST, "no signed release manifest")
    published = facts.target.signature.encode("utf-8", "surrogatepass")
    found = signatures.verify_release(published, facts.pins, facts.threshold)
    if isinstance(found, codes.Refusal):
        return found
    for row in MANIFEST_CHECKS:
        text = row.rule(facts, found.manifest)
        if text:
            return codes.Refusal(row.code, text)
    return Verified(found.manifest, _artifacts(facts, found.manifest)[0], found.signers)


def check_before_manifest(facts: Facts) -> Optional[codes.Refusal]:
    """The first refusal of the rows that need no manifest.

    A host that holds the target's bytes in its other slot, above the floor, needs these alone to go back to them.
    """
    for row in TARGET_CHECKS:
        text = row.rule(facts)
        if text:
            return codes.Refusal(row.code, text)
    return None


def _release_version(facts: Facts) -> Optional[str]:
    version = facts.target.version
    return None if semver.is_version(version) else '"%s" is not a release version' % version


def _not_failed_before(facts: Facts) -> Optional[str]:
    if facts.target.version not in facts.failed:
        return None
    said = (facts.product, facts.target.version, _running(facts), facts.failed[facts.target.version][1])
    return "%s %s did not start; running %s (%s)" % said


def _digest(facts: Facts) -> Optional[str]:
    return None if _DIGEST.fullmatch(facts.target.sha256) else "the release sha256 must be 32 bytes"


def _pins(facts: Facts) -> Optional[str]:
    if facts.pins:
        return None
    text = "no release keys are pinned ([update] release_pins): %s takes no binary on the control plane's word"
    return text % facts.product


def _product(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    if body.product != facts.product:
        return "the manifest releases %s, not %s" % (body.product, facts.product)
    if facts.target.product != facts.product:
        return "the target is for %s, not %s" % (facts.target.product, facts.product)
    return None


def _version(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    if body.version == facts.target.version:
        return None
    return "the manifest releases %s %s, not %s" % (facts.product, body.version, facts.target.version)


def _floor(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    if body.sequence >= facts.floor:
        return None
    text = "release sequence %d is older than %d, which this node ran or was installed at (rollback)"
    return text % (body.sequence, facts.floor)


def _not_older(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    """Only where no floor protects: a development build, whose sequence is 0."""
    if facts.floor or not _older(body.version, facts.running_version):
        return None
    return "%s %s is older than the running %s (rollback)" % (facts.product, body.version, facts.running_version)


def _not_expired(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    if facts.now_s < body.expires_at:
        return None
    return "the release manifest expired at %s" % rfc3339.render(body.expires_at)


def _artifact_listed(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    if _artifacts(facts, body):
        return None
    name = artifact_name(facts.product, body.version, facts.platform)
    return "the manifest lists no %s with the release sha256" % name


def _artifact_size(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    size = _artifacts(facts, body)[0].size
    return "the binary is %d bytes; at most %d are taken" % (size, facts.max_bytes) if size > facts.max_bytes else None


def _channel(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    if body.channel in facts.channels:
        return None
    return "the manifest is on channel %s; this host takes %s" % (body.channel, ", ".join(facts.channels))


def _min_from(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    least, running = body.min_from, semver.parse(facts.running_version or "")
    if least is None or (running is not None and not _older(running.text, least)):
        return None
    text = "%s %s takes over from %s or later, not from %s: go to a release in between first"
    return text % (facts.product, body.version, least, _running(facts))


def _artifacts(facts: Facts, body: manifest.Manifest) -> Tuple[manifest.Artifact, ...]:
    """The file for this host; names are distinct, so there is at most one."""
    wanted = (artifact_name(facts.product, body.version, facts.platform), facts.platform, facts.target.sha256)
    return tuple(one for one in body.artifacts if (one.name, one.platform, one.sha256) == wanted)


def _older(text: str, than: Optional[str]) -> bool:
    """True when both are versions and the first comes before the second."""
    one, other = semver.parse(text), semver.parse(than or "")
    return one is not None and other is not None and semver.older(one, other)


def _running(facts: Facts) -> str:
    return facts.running_version or "an unknown version"


TARGET_CHECKS: Tuple[TargetCheck, ...] = (
    TargetCheck(codes.NOT_A_RELEASE, _release_version),
    TargetCheck(codes.FAILED_BEFORE, _not_failed_before),
    TargetCheck(codes.BAD_DIGEST, _digest),
    TargetCheck(codes.NO_PINS, _pins),
)
MANIFEST_CHECKS: Tuple[ManifestCheck, ...] = (
    ManifestCheck(codes.WRONG_PRODUCT, _product),
    ManifestCheck(codes.WRONG_VERSION, _version),
    ManifestCheck(codes.BELOW_FLOOR, _floor),
    ManifestCheck(codes.OLDER_THAN_RUNNING, _not_older),
    ManifestCheck(codes.EXPIRED, _not_expired),
    ManifestCheck(codes.NO_ARTIFACT, _artifact_listed),
    ManifestCheck(codes.ARTIFACT_TOO_LARGE, _artifact_size),
    ManifestCheck(codes.CHANNEL_NOT_ALLOWED, _channel),
    ManifestCheck(codes.BELOW_MIN_FROM, _min_from),
)
# The whole order, by code; `check` follows it and a test compares it with docs/design/releases.md.
CHECKS: Tuple[str, ...] = (
    *(row.code for row in TARGET_CHECKS),
    codes.NO_MANIFEST,
    *signatures.ORDER,
    *(row.code for row in MANIFEST_CHECKS),
)
