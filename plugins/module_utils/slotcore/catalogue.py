# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of a product's published releases: ``<base>/<product>/releases.json``, unsigned, a hint and nothing more.

Rules:

* ``{"product", "releases", "spec": 1}``; each release has exactly the fields of ``FIELDS``, and ``minFrom`` when it has one.
* The newest sequence comes first; no sequence and no version is there twice.
* Nobody trusts it: it says where to look, and what a manifest says is verified by its signatures.
* It is written as canonical JSON and a newline; any JSON spelling of it is read.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from . import canonical, codes, fields, manifest, rfc3339, signing

NAME = "releases.json"
SPEC = 1
FIELDS = ("channel", "expiresAt", "issuedAt", "manifestSha256", "sequence", "version", "withdrawn")
BadCatalogue = fields.BadField


class Entry(NamedTuple):
    """What the catalogue claims of one release; times are seconds since 1970."""

    version: str
    sequence: int
    channel: str
    issued_at: int
    expires_at: int
    manifest_sha256: str
    withdrawn: bool
    min_from: Optional[str] = None


class Catalogue(NamedTuple):
    """The releases of one product, the newest sequence first."""

    product: str
    releases: Tuple[Entry, ...]


def entry(parts: signing.Parts, body: manifest.Manifest, withdrawn: bool) -> Entry:
    """What the catalogue says of a published release."""
    times = (body.issued_at, body.expires_at)
    return Entry(body.version, body.sequence, body.channel, *times, parts.sha256, withdrawn, body.min_from)


def parse(data: bytes) -> Catalogue:
    """The catalogue in `data`. Raises BadCatalogue, naming the field."""
    value = fields.read(data, "the catalogue", canonical.MAX_BYTES)
    found = fields.Fields(value, "", ("product", "releases", "spec"))
    if found.integer("spec") != SPEC:
        raise found.bad("spec", "%d" % SPEC)
    releases = tuple(_entry(*item) for item in found.items("releases"))
    fields.distinct("releases", "version", [one.version for one in releases])
    for number, (one, after) in enumerate(zip(releases, releases[1:]), start=1):
        if after.sequence >= one.sequence:
            text = "releases[%d].sequence is %d after %d: the newest comes first"
            raise BadCatalogue(text % (number, after.sequence, one.sequence))
    return Catalogue(manifest.product(found), releases)


def encode(product: str, releases: Tuple[Entry, ...]) -> bytes:
    """The one spelling of a catalogue, whatever the order of what is given. Raises Refused when it grew too large."""
    ordered = sorted(releases, key=lambda one: -one.sequence)
    value = {"product": product, "releases": [_fields(one) for one in ordered], "spec": SPEC}
    try:
        return canonical.encode(value) + b"\n"
    except canonical.NotJson as error:
        raise codes.refused(codes.BAD_RELEASE, "the catalogue of %s cannot be written: %s" % (product, error)) from None


def _entry(path: str, item: object) -> Entry:
    found = fields.Fields(item, path, FIELDS, ("minFrom",))
    return Entry(
        version=found.version("version"),
        sequence=found.integer("sequence"),
        channel=found.matching("channel", manifest.CHANNEL, manifest.CHANNEL_RULE),
        issued_at=found.time("issuedAt"),
        expires_at=found.time("expiresAt"),
        manifest_sha256=found.sha256("manifestSha256"),
        withdrawn=found.flag("withdrawn"),
        min_from=found.version("minFrom") if "minFrom" in found else None,
    )


def _fields(one: Entry) -> Dict[str, object]:
    found: Dict[str, object] = {
        "channel": one.channel,
        "expiresAt": rfc3339.render(one.expires_at),
        "issuedAt": rfc3339.render(one.issued_at),
        "manifestSha256": one.manifest_sha256,
        "sequence": one.sequence,
        "version": one.version,
        "withdrawn": one.withdrawn,
    }
    if one.min_from is not None:
        found["minFrom"] = one.min_from
    return found
