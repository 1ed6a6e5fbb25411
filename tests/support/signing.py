# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed documents beside the manifest, for tests of a host: made from values, signed by keys of the test."""

from __future__ import annotations

import base64
import json
import time
from typing import Optional, Sequence

from slotcore import documents, keys, manifest, signatures

DAY_S = 86400


def key(alg: str = keys.ES256) -> keys.PrivateKey:
    """A new key."""
    return keys.generate(alg)


def published(body: documents.Document, by: Sequence[keys.PrivateKey], kind: Optional[documents.Kind] = None) -> bytes:
    """The published form of a document, signed; as another kind, when a test wants that."""
    data = documents.render(body)
    of = kind or documents.kind_of(data)
    found = [
        {"kid": one.public.kid, "sig": base64.b64encode(one.sign(signatures.signed_bytes(data, of))).decode("ascii")}
        for one in by
    ]
    return json.dumps({"manifest": base64.b64encode(data).decode("ascii"), "signatures": found}).encode()


def listed(ones: Sequence[keys.PrivateKey]) -> tuple[manifest.Key, ...]:
    """Keys as a document lists them."""
    return tuple(manifest.Key(one.public.kid, one.public.alg, one.public.spki) for one in ones)


def key_set(
    sequence: int,
    to: Sequence[keys.PrivateKey],
    by: Sequence[keys.PrivateKey],
    threshold: int = 2,
    lasts_s: int = 365 * DAY_S,
    product: str = "slotward",
    issued_at: int = 0,
) -> bytes:
    """A key set that puts the keys `to` in force, signed by `by`."""
    issued = issued_at or int(time.time())
    pins = tuple(one.public.pin for one in to)
    body = documents.KeySet(product, issued, listed(by or to), sequence, issued + lasts_s, pins, threshold)
    return published(body, by)


def permit(
    version: str,
    sequence: int,
    hosts: Sequence[str],
    by: Sequence[keys.PrivateKey],
    permit_id: str = "0123456789abcdef",
    lasts_s: int = DAY_S,
    product: str = "slotward",
) -> bytes:
    """A permit for these hosts to go to this release."""
    issued = int(time.time()) - 2 * DAY_S if lasts_s <= 0 else int(time.time())
    expires = issued + (lasts_s if lasts_s > 0 else DAY_S)
    body = documents.Permit(product, issued, listed(by), permit_id, version, sequence, tuple(hosts), expires)
    return published(body, by)


def withdrawal(version: str, sequence: int, by: Sequence[keys.PrivateKey], why: str = "loses mail") -> bytes:
    """A notice that this release is not to be installed any more."""
    return published(documents.Withdrawal("slotward", int(time.time()), listed(by), version, sequence, why), by)
