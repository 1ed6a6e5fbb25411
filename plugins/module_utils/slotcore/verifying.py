# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a document of any kind as a host with these pins would, without a host: offline, for people and playbooks.

Rules:

* The kind is what the document says it is, or the one that was asked for.
* Shape, signatures and canonical form as in ``signatures.py``; then the expiry, where the kind has one.
* A threshold that the pins cannot meet is refused before anything is read.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

from . import codes, documents, keys, manifest, rfc3339, signatures, signing


class Judged(NamedTuple):
    """A document that enough pinned keys signed; `signers` are their pins."""

    parts: signing.Parts
    signers: Tuple[str, ...]


def judge(
    published: bytes,
    pins: Sequence[str],
    threshold: int,
    at: Optional[int] = None,
    kind: Optional[documents.Kind] = None,
) -> Judged:
    """The document, signed well enough, and not expired at `at` (None does not look at that). Raises Refused."""
    check_threshold(pins, threshold)
    if kind is None:
        kind = _kind(published)
    found = signatures.verify(published, kind, pins, threshold)
    if isinstance(found, codes.Refusal):
        raise codes.Refused(found)
    expires_at = getattr(found.body, "expires_at", None)
    if at is not None and expires_at is not None and at >= expires_at:
        raise codes.refused(codes.EXPIRED, "the %s expired at %s" % (kind.name, rfc3339.render(expires_at)))
    return Judged(signing.Parts(found.published, kind, found.body), found.signers)


def check_threshold(pins: Sequence[str], threshold: int) -> None:
    """Raise Refused when no signatures could ever be enough."""
    if not pins:
        raise codes.refused(codes.NO_PINS, "no pins: say whose signatures count")
    bad = [pin for pin in pins if not keys.is_pin(pin)]
    if bad:
        raise codes.refused(codes.NO_PINS, "%s is not a pin, sha256/<base64 of 32 bytes>" % ascii(bad[0])[:80])
    if not 1 <= threshold <= len(set(pins)):
        text = "a threshold of %d cannot be met: it is 1 to the number of distinct pins, %d"
        raise codes.refused(codes.TOO_FEW_SIGNATURES, text % (threshold, len(set(pins))))


def _kind(published: bytes) -> documents.Kind:
    try:
        return documents.kind_of(manifest.parse_published(published).body)
    except documents.BadDocument as error:
        raise codes.refused(codes.BAD_DOCUMENT, "the document is malformed: %s" % error) from None
