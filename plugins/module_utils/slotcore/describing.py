# SPDX-License-Identifier: GPL-3.0-or-later
"""What a signed document says, as plain values and as lines for people.

Rules:

* Everything that a signature covers is shown: who signs sees all of it, and the digest of the body.
* `signed` tells whose signatures verify, by the keys that the document itself lists; it says nothing about pins.
* Text that comes from a document is plain: names and reasons have no control characters by their formats.
"""

from __future__ import annotations

from typing import Dict, List

from . import documents, keys, manifest, rfc3339, signing

Parts = signing.Parts


def describe(parts: Parts) -> Dict[str, object]:
    """Everything that a document says, and who signed it."""
    body = parts.body
    signed = {one.kid for one in signing.good(parts)}
    found: Dict[str, object] = {
        "body_sha256": parts.sha256,
        "issued_at": rfc3339.render(body.issued_at),
        "keys": [
            {"alg": one.alg, "kid": one.kid, "pin": keys.pin_of(one.spki), "signed": one.kid in signed}
            for one in body.keys
        ],
        "kind": parts.kind.name,
        "product": body.product,
        "sequence": body.sequence,
        "signatures": len(signed),
        "type": parts.kind.type,
    }
    if not isinstance(body, documents.Withdrawal):
        found["expires_at"] = rfc3339.render(body.expires_at)
    return {**found, **_own(parts)}


def _own(parts: Parts) -> Dict[str, object]:
    """What only documents of this kind say."""
    body = parts.body
    if isinstance(body, manifest.Manifest):
        return {
            "artifacts": [dict(one._asdict()) for one in body.artifacts],
            "channel": body.channel,
            "epoch": body.epoch,
            "manifest_sha256": parts.sha256,
            "min_from": body.min_from,
            "version": body.version,
        }
    if isinstance(body, documents.KeySet):
        return {"pins": list(body.pins), "threshold": body.threshold}
    if isinstance(body, documents.Permit):
        return {"hosts": list(body.hosts), "id": body.permit_id, "version": body.version}
    return {"version": body.version, "why": body.why}


def lines(parts: Parts) -> List[str]:
    """The same for people."""
    body = parts.body
    times = "issued %s, " % rfc3339.render(body.issued_at)
    if not isinstance(body, documents.Withdrawal):
        times += "expires %s, " % rfc3339.render(body.expires_at)
    signed = {one.kid for one in signing.good(parts)}
    return [
        *_own_lines(parts, times + "body sha256 %s" % parts.sha256),
        *(
            "key %s, %s, %s, %s"
            % (one.kid, one.alg, keys.pin_of(one.spki), "signed" if one.kid in signed else "not signed")
            for one in body.keys
        ),
    ]


def _own_lines(parts: Parts, times: str) -> List[str]:
    body = parts.body
    if isinstance(body, manifest.Manifest):
        since = ", from %s on" % body.min_from if body.min_from else ""
        epoch = ", data of epoch %d" % body.epoch if body.epoch else ""
        head = "%s %s, sequence %d, channel %s%s%s"
        head %= (body.product, body.version, body.sequence, body.channel, since, epoch)
        return [head, times, *(_file_line(one) for one in body.artifacts)]
    if isinstance(body, documents.KeySet):
        head = "key set of %s, sequence %d, threshold %d" % (body.product, body.sequence, body.threshold)
        return [head, times, *("trusts %s" % pin for pin in body.pins)]
    what = "%s %s, sequence %d" % (body.product, body.version, body.sequence)
    if isinstance(body, documents.Permit):
        return [
            "downgrade permit for %s, id %s" % (what, body.permit_id),
            times,
            *("host %s" % one for one in body.hosts),
        ]
    return ["withdrawal of %s" % what, times, "why: %s" % body.why]


def _file_line(one: manifest.Artifact) -> str:
    kind = "" if one.kind == manifest.KINDS[0] else ", %s" % one.kind
    variant = ", variant %s" % one.variant if one.variant else ""
    return "file %s, %s%s%s, %d bytes, sha256 %s" % (one.name, one.platform, kind, variant, one.size, one.sha256)
