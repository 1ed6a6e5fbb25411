# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's checks of a release, in the order in which they are made.

Rules:

* ``CHECKS`` is the whole order: rows that need no manifest, then the manifest itself (its shape, signatures and
  canonical form, numbered in ``signatures.py``), then the rows that read it.
* The first row that objects decides; every refusal is terminal and has its code and sentence from that row.
* Nothing here reads a clock, a file or the network: ``Facts`` holds all that a decision needs.
* The operator's hand comes before every row. The host's policy comes first of them, with the rows that need only what is
  asked for, and last, with those that need to know what a release offers; a slot that holds the release already is
  asked both (field case C10).
* A refusal that hangs on a clock says which clocks say what (field cases N9, N11).
"""

from __future__ import annotations

import re
from typing import Callable, NamedTuple, Optional, Tuple, Union

from . import clocks, codes, policy, semver, signatures, target, trust_rows
from . import facts as known
from . import manifest as manifests
from . import trust_record as trusts

Facts = known.Facts
Offer = known.Offer
MAX_ARTIFACT = known.MAX_ARTIFACT
MAX_TARGET = target.MAX_BYTES
Target = target.Target
parse_target = target.parse
artifact_name = target.artifact_name

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOT_STARTED = (
    codes.DID_NOT_START,
    codes.SMOKE_TEST_FAILED,
    codes.NOT_EXECUTABLE,
    codes.WRONG_MACHINE,
    codes.NO_INTERPRETER,
)
"""The failures of which "did not start" is certain; any other is told as it was recorded.

A release that kept exiting, or whose unit failed, may have started and run each time: how long is nobody's record.
"""


class Verified(NamedTuple):
    """A release that this host takes, the file of it that it runs, the pins that signed, and the permit that it needs."""

    manifest: manifests.Manifest
    artifact: manifests.Artifact
    signers: Tuple[str, ...]
    permit: Optional[trusts.Allowed]


class TargetCheck(NamedTuple):
    """A row that needs no manifest."""

    code: str
    rule: Callable[[Facts], Optional[str]]


class ManifestCheck(NamedTuple):
    """A row that reads the verified manifest."""

    code: str
    rule: Callable[[Facts, manifests.Manifest], Optional[str]]


class OfferCheck(NamedTuple):
    """A row that needs of a release only what a slot's record knows as well."""

    code: str
    rule: Callable[[Facts, Offer], Optional[str]]


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
    refusal = _check_manifest(facts, found.manifest)
    if refusal:
        return refusal
    permit = facts.permit if trust_rows.needs_permit(facts, found.manifest) else None
    return Verified(found.manifest, _artifacts(facts, found.manifest)[0], found.signers, permit)


def check_before_manifest(facts: Facts) -> Optional[codes.Refusal]:
    """The first refusal of the rows that need no manifest.

    A host that holds the target's bytes in its other slot, above the floor, needs these and `check_offer` alone.
    """
    return facts.hand or _first(facts, TARGET_CHECKS)


def check_policy(facts: Facts) -> Optional[codes.Refusal]:
    """The first refusal of the rows among them that are the host's policy."""
    return facts.hand or _first(facts, POLICY_CHECKS)


def _first(facts: Facts, rows: Tuple[TargetCheck, ...]) -> Optional[codes.Refusal]:
    for row in rows:
        text = row.rule(facts)
        if text:
            return codes.Refusal(row.code, text)
    return None


def check_offer(facts: Facts, offer: Offer) -> Optional[codes.Refusal]:
    """The first refusal of the policy for a release that was verified before, from its slot's record."""
    for row in OFFER_CHECKS:
        text = row.rule(facts, offer)
        if text:
            return codes.Refusal(row.code, text)
    return None


def _check_manifest(facts: Facts, body: manifests.Manifest) -> Optional[codes.Refusal]:
    for row in MANIFEST_CHECKS:
        text = row.rule(facts, body)
        if text:
            return codes.Refusal(row.code, text)
    refusal = check_offer(facts, known.offer_of(body))
    text = None if refusal else policy.min_from(facts, body.min_from, body.version)
    return codes.Refusal(codes.BELOW_MIN_FROM, text) if text else refusal


def _release_version(facts: Facts) -> Optional[str]:
    version = facts.target.version
    return None if semver.is_version(version) else semver.no_version(version)


def _not_failed_before(facts: Facts) -> Optional[str]:
    if facts.target.version not in facts.failed:
        return None
    code, why = facts.failed[facts.target.version]
    if code in _NOT_STARTED:
        return "%s %s did not start; running %s (%s)" % (facts.product, facts.target.version, facts.running, why)
    return "%s %s failed here: %s; running %s" % (facts.product, facts.target.version, why, facts.running)


def _digest(facts: Facts) -> Optional[str]:
    return None if _DIGEST.fullmatch(facts.target.sha256) else "the release sha256 must be 32 bytes"


def _pins(facts: Facts) -> Optional[str]:
    if facts.pins or facts.by_digest:
        return None
    text = "no release keys are pinned ([update] release_pins): %s takes no binary on the control plane's word"
    return text % facts.product


def _product(facts: Facts, body: manifests.Manifest) -> Optional[str]:
    if body.product != facts.product:
        return "the manifest releases %s, not %s" % (body.product, facts.product)
    if facts.target.product != facts.product:
        return "the target is for %s, not %s" % (facts.target.product, facts.product)
    return None


def _version(facts: Facts, body: manifests.Manifest) -> Optional[str]:
    if body.version == facts.target.version:
        return None
    return "the manifest releases %s %s, not %s" % (facts.product, body.version, facts.target.version)


def _not_expired(facts: Facts, body: manifests.Manifest) -> Optional[str]:
    return clocks.expired(facts.clocks, body.expires_at, "the release manifest")


def _artifact_listed(facts: Facts, body: manifests.Manifest) -> Optional[str]:
    if _artifacts(facts, body):
        return None
    name = artifact_name(facts.product, body.version, facts.platform, facts.variant)
    return "the manifest lists no %s with the release sha256" % name


def _artifact_kind(facts: Facts, body: manifests.Manifest) -> Optional[str]:
    one = _artifacts(facts, body)[0]
    if one.kind in facts.kinds and one.variant == facts.variant:
        return None
    found, taken = _kind(one.kind, one.variant), _kind(" or ".join(facts.kinds), facts.variant)
    return "the artifact %s is of kind %s; the slots of %s take %s" % (one.name, found, facts.product, taken)


def _kind(kind: str, variant: Optional[str]) -> str:
    return "%s, variant %s" % (kind, variant) if variant else kind


def _artifact_size(facts: Facts, body: manifests.Manifest) -> Optional[str]:
    size = _artifacts(facts, body)[0].size
    return "the binary is %d bytes; at most %d are taken" % (size, facts.max_bytes) if size > facts.max_bytes else None


def _artifacts(facts: Facts, body: manifests.Manifest) -> Tuple[manifests.Artifact, ...]:
    """The files with the target's bytes that are named for this platform, the one for this host's variant first."""
    found = sorted(target.named_for(body, facts.platform), key=lambda one: one.variant != facts.variant)
    return tuple(one for one in found if one.sha256 == facts.target.sha256)


POLICY_CHECKS: Tuple[TargetCheck, ...] = (
    TargetCheck(codes.UPDATES_DISABLED, policy.enabled),
    TargetCheck(codes.CHANNEL_NOT_ALLOWED, policy.requested_channel),
    TargetCheck(codes.BELOW_MIN_VERSION, policy.min_version),
    TargetCheck(codes.OTHER_MAJOR, policy.same_major),
    TargetCheck(codes.TOO_FAR_BACK, policy.way_back),
)
TARGET_CHECKS: Tuple[TargetCheck, ...] = (
    *POLICY_CHECKS,
    TargetCheck(codes.NOT_A_RELEASE, _release_version),
    TargetCheck(codes.FAILED_BEFORE, _not_failed_before),
    TargetCheck(codes.BAD_DIGEST, _digest),
    TargetCheck(codes.NO_PINS, _pins),
    TargetCheck(codes.KEYS_EXPIRED, trust_rows.keys_expired),
)
MANIFEST_CHECKS: Tuple[ManifestCheck, ...] = (
    ManifestCheck(codes.WRONG_PRODUCT, _product),
    ManifestCheck(codes.WRONG_VERSION, _version),
    ManifestCheck(codes.NOT_PERMITTED, trust_rows.permitted),
    ManifestCheck(codes.BELOW_FLOOR, trust_rows.floor),
    ManifestCheck(codes.OLDER_THAN_RUNNING, trust_rows.not_older),
    ManifestCheck(codes.EXPIRED, _not_expired),
    ManifestCheck(codes.NO_ARTIFACT, _artifact_listed),
    ManifestCheck(codes.WRONG_KIND, _artifact_kind),
    ManifestCheck(codes.ARTIFACT_TOO_LARGE, _artifact_size),
)
OFFER_CHECKS: Tuple[OfferCheck, ...] = (
    OfferCheck(codes.WITHDRAWN, trust_rows.not_withdrawn),
    OfferCheck(codes.CHANNEL_NOT_ALLOWED, policy.channel),
    OfferCheck(codes.WRONG_CHANNEL, policy.channel_as_asked),
    OfferCheck(codes.SEQUENCE_NOT_NEWER, policy.strict_sequence),
)
# The whole order, by code; `check` follows it and a test compares it with docs/design/releases.md.
CHECKS: Tuple[str, ...] = (
    *(row.code for row in TARGET_CHECKS),
    codes.NO_MANIFEST,
    *signatures.ORDER,
    *(row.code for row in MANIFEST_CHECKS),
    *(row.code for row in OFFER_CHECKS),
    codes.BELOW_MIN_FROM,
)
