# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases made for tests: keys, manifests as plain fields, signatures, targets."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any, Dict, List, Sequence, Tuple

from slotcore import canonical, checks, documents, keys, signatures

ISSUED = 1767225600
NOW = ISSUED + 86400
EXPIRES_TEXT = "2027-01-01T00:00:00Z"
EXPIRES = 1798761600
SHA256 = "ab" * 32
PLATFORM = "linux-amd64"
MACHINE_ID = "0123456789abcdef0123456789abcdef"


@functools.cache
def key(number: int, alg: str = keys.ES256) -> keys.PrivateKey:
    """A key that stays the same for the whole run."""
    return keys.generate(alg)


def three() -> Tuple[keys.PrivateKey, ...]:
    """The keys of most tests, one of them Ed25519."""
    return key(1), key(2, keys.EDDSA), key(3)


def b64(data: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(data).decode("ascii")


def key_fields(one: keys.PublicKey) -> Dict[str, object]:
    """A key as a manifest lists it."""
    return {"kid": one.kid, "alg": one.alg, "spki": b64(one.spki)}


def artifact_fields(**changes: object) -> Dict[str, object]:
    """An artifact as a manifest lists it."""
    plain = {"name": "toy_1.1.0_linux_amd64", "platform": PLATFORM, "sha256": SHA256, "size": 12}
    return {**plain, **changes}


def body_fields(**changes: object) -> Dict[str, object]:
    """A good body, changed; a value of None takes the field away."""
    plain: Dict[str, object] = {
        "type": "slotward.release",
        "spec": 1,
        "product": "toy",
        "version": "1.1.0",
        "sequence": 5,
        "issuedAt": "2026-01-01T00:00:00Z",
        "expiresAt": EXPIRES_TEXT,
        "keys": [key_fields(one.public) for one in three()],
        "artifacts": [artifact_fields()],
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def body(**changes: object) -> bytes:
    """The same as canonical bytes."""
    return canonical.encode(body_fields(**changes))


def document_fields(kind: documents.Kind, **changes: object) -> Dict[str, object]:
    """A good body of a document other than a release, changed; a value of None takes the field away."""
    own: Dict[str, Dict[str, object]] = {
        documents.KEY_SET.type: {"sequence": 1, "expiresAt": EXPIRES_TEXT, "pins": list(pins()), "threshold": 2},
        documents.PERMIT.type: {
            "id": "0123456789abcdef",
            "version": "1.0.0",
            "sequence": 4,
            "hosts": [MACHINE_ID],
            "expiresAt": EXPIRES_TEXT,
        },
        documents.WITHDRAWAL.type: {"version": "1.1.0", "sequence": 5, "why": "loses mail"},
    }
    common: Dict[str, object] = {
        "type": kind.type,
        "spec": 1,
        "product": "toy",
        "issuedAt": "2026-01-01T00:00:00Z",
        "keys": [key_fields(one.public) for one in three()],
    }
    found = {**common, **own[kind.type], **changes}
    return {name: value for name, value in found.items() if value is not None}


def document(kind: documents.Kind, **changes: object) -> bytes:
    """The same as canonical bytes."""
    return canonical.encode(document_fields(kind, **changes))


def signature_fields(signed: bytes, by: keys.PrivateKey, kind: documents.Kind = documents.RELEASE) -> Dict[str, object]:
    """One signature of a body as the published form has it."""
    return {"kid": by.public.kid, "sig": b64(by.sign(signatures.signed_bytes(signed, kind)))}


def published(
    signed: bytes,
    by: Sequence[keys.PrivateKey] = (),
    extra: Sequence[object] = (),
    kind: documents.Kind = documents.RELEASE,
) -> bytes:
    """The published form of a body, signed, with more signatures if wanted."""
    found: List[object] = [*extra, *(signature_fields(signed, one, kind) for one in by)]
    return json.dumps({"manifest": b64(signed), "signatures": found}).encode()


def pins(*numbers: int) -> Tuple[str, ...]:
    """The pins of the three keys, or of some of them."""
    return tuple(three()[number].public.pin for number in numbers or (0, 1, 2))


def target(signature: bytes, **changes: str) -> checks.Target:
    """A target for the release of `body`."""
    plain = checks.Target("toy", "1.1.0", "https://releases.example.com/toy", SHA256, signature.decode())
    return plain._replace(**changes)


def facts(signature: bytes, **changes: Any) -> checks.Facts:
    """The facts of a host that takes the release of `body` with two of three keys."""
    plain = checks.Facts(
        target=target(signature),
        product="toy",
        platform=PLATFORM,
        running_version="1.0.0",
        floor=4,
        failed={},
        pins=pins(),
        threshold=2,
        now_s=NOW,
    )
    return plain._replace(**changes)
