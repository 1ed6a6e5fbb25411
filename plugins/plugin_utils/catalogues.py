# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what is published of a product, as its catalogue claims and as its manifests prove.

Rules:

* The catalogue is a hint: it says where to look, in a directory together with what lies there, and nothing of it is believed.
* Each manifest and each notice is verified by the pins; what does not verify is told with its code and counts for nothing.
* The newest of a channel is verified, not expired and not withdrawn by a notice that verifies.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    catalogue,
    codes,
    documents,
    manifest,
    publishing,
    rfc3339,
    semver,
    verifying,
)
from ansible_collections.slotward.fleet.plugins.plugin_utils import releases

UNKNOWN: Dict[str, Any] = {
    **dict.fromkeys(("sequence", "channel", "min_from", "issued_at", "expires_at", "expired", "withdrawn_why")),
    "verified": False,
    "signers": [],
    "withdrawn": False,
    "as_listed": None,
}


class Place(NamedTuple):
    """The directory or address `<base>/<product>`, and how to read there."""

    location: str
    allow_http: bool
    ca_file: Optional[str]

    @property
    def is_url(self) -> bool:
        """True for what has to be fetched."""
        return releases.is_url(self.location)

    def read(self, *names: str) -> bytes:
        """A file; raises Refused or Retryable."""
        if self.is_url:
            return releases.fetch("/".join([self.location, *names]), self.allow_http, self.ca_file)
        path = os.path.join(self.location, *names)
        try:
            with open(path, "rb") as file:
                return file.read(manifest.MAX_PUBLISHED + 1)
        except OSError as error:
            raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (path, error.strerror)) from None


def look(place: Place, product: str, pins: Sequence[str], threshold: int, limit: int) -> Dict[str, Any]:
    """What the catalogue claims, what verified, and the newest of each channel. Raises Refused or Retryable."""
    verifying.check_threshold(pins, threshold)
    claimed, problem = _claimed(place, product)
    versions = [one.version for one in claimed]
    if not place.is_url:
        versions += [name for name in _directories(place.location) if name not in versions]
    by_version = {one.version: one for one in claimed}
    found = [_judged(place, product, one, by_version.get(one), pins, threshold) for one in versions[:limit]]
    found.sort(key=lambda one: -(one["sequence"] or 0))
    return {
        "claimed": [_told(one) for one in claimed],
        "catalogue_error": problem,
        "releases": found,
        "newest": _newest(found),
        "left_out": len(versions) - len(found),
    }


def _claimed(place: Place, product: str) -> Tuple[Tuple[catalogue.Entry, ...], Optional[str]]:
    """The entries of the catalogue, or why there are none; behind a URL nothing can be done without one."""
    try:
        found = catalogue.parse(place.read(catalogue.NAME))
        if found.product != product:
            return (), "the catalogue is of %s, not %s" % (found.product, product)
    except catalogue.BadCatalogue as error:
        return (), "the catalogue is malformed: %s" % error
    except codes.Refused as error:
        if place.is_url:
            raise
        return (), error.text
    return found.releases, None


def _directories(location: str) -> List[str]:
    """The versions that lie in a directory, the highest first."""
    try:
        names = [name for name in os.listdir(location) if os.path.isdir(os.path.join(location, name))]
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (location, error.strerror)) from None
    found = [one for one in (semver.parse(name) for name in names) if one is not None]
    return [one.text for one in sorted(found, key=lambda one: one.precedence, reverse=True)]


def _judged(
    place: Place,
    product: str,
    version: str,
    claim: Optional[catalogue.Entry],
    pins: Sequence[str],
    threshold: int,
) -> Dict[str, Any]:
    """What is known of one version."""
    told: Dict[str, Any] = {**UNKNOWN, "version": version, "listed": claim is not None}
    try:
        published = place.read(version, releases.MANIFEST)
        parts, signers = verifying.judge(published, pins, threshold, kind=documents.RELEASE)
        body = parts.body
        if (body.product, body.version) != (product, version):
            text = "the manifest there is of %s %s" % (body.product, body.version)
            raise codes.refused(codes.WRONG_VERSION, text)
    except (codes.Refused, codes.Retryable) as error:
        return {**told, "code": error.code, "msg": error.text}
    told.update(_of_manifest(body), signers=list(signers))
    why, problem = _withdrawn(place, body, claim, pins, threshold)
    if claim is not None:
        told["as_listed"] = claim == catalogue.entry(parts, body, why is not None)
    if why is not None:
        told.update(code=codes.WITHDRAWN, msg="withdrawn: %s" % why, withdrawn=True, withdrawn_why=why)
    elif problem:
        told["msg"] += "; %s" % problem
    return told


def _of_manifest(body: Any) -> Dict[str, Any]:
    """What a verified manifest says."""
    expired = body.expires_at <= time.time()
    return {
        "code": codes.EXPIRED if expired else codes.OK,
        "msg": "verified, and expired" if expired else "verified",
        "sequence": body.sequence,
        "channel": body.channel,
        "min_from": body.min_from,
        "issued_at": rfc3339.render(body.issued_at),
        "expires_at": rfc3339.render(body.expires_at),
        "expired": expired,
        "verified": True,
    }


def _withdrawn(
    place: Place, body: Any, claim: Optional[catalogue.Entry], pins: Sequence[str], threshold: int
) -> Tuple[Optional[str], Optional[str]]:
    """Why the release is withdrawn, by a notice that verifies; or what is wrong with a notice that does not."""
    if place.is_url and not (claim and claim.withdrawn):
        return None, None
    if not place.is_url and not os.path.lexists(os.path.join(place.location, body.version, publishing.NOTICE_NAME)):
        return None, None
    try:
        data = place.read(body.version, publishing.NOTICE_NAME)
        of = verifying.judge(data, pins, threshold, kind=documents.WITHDRAWAL).parts.body
    except (codes.Refused, codes.Retryable) as error:
        return None, "a notice that it is withdrawn does not count: %s" % error.text
    if (of.product, of.version, of.sequence) != (body.product, body.version, body.sequence):
        return None, "the notice that lies beside it is of another release"
    return of.why, None


def _newest(found: List[Dict[str, Any]]) -> Dict[str, str]:
    """For each channel the version with the highest sequence that hosts would take today; `found` is in that order."""
    newest: Dict[str, str] = {}
    for one in found:
        if one["code"] == codes.OK:
            newest.setdefault(one["channel"], one["version"])
    return newest


def _told(one: catalogue.Entry) -> Dict[str, Any]:
    return {
        **one._asdict(),
        "issued_at": rfc3339.render(one.issued_at),
        "expires_at": rfc3339.render(one.expires_at),
    }
