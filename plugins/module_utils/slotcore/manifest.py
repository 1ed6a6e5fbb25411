# SPDX-License-Identifier: GPL-3.0-or-later
"""The release manifest: which files make one version of a product, and which keys may sign for it.

Rules:

* Published form: ``{"manifest": <base64 of the body>, "signatures": [{"kid": ..., "sig": <base64>}]}``.
* The body has exactly the fields of ``BODY_FIELDS``, spelled exactly, plus those of ``OPTIONAL_FIELDS``; of spec 2 also
  ``epoch``, the format of the product's data, which is 0 where it is absent.
* Lists hold distinct things: key ids, keys (by their SPKI) and artifact names.
* A key's SPKI is the one DER encoding of a P-256 or an Ed25519 key, so that equal keys are equal bytes.
* The shape is judged here; whether the body is canonical is judged after the signatures (``signatures.py``).
* Every error names the field by its path, such as ``artifacts[1].sha256``.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

from . import canonical, fields, rfc3339

TYPE = "slotward.release"
SPEC = 1
EPOCH_SPEC = 2
MAX_BODY = 1 << 20
MAX_PUBLISHED = 2 << 20
MAX_KEYS = 16
MAX_SIGNATURES = 16
MAX_SEQUENCE = 999_999_999_999_999  # 15 digits: what the trial record, which sh reads too, can hold
DEFAULT_CHANNEL = "stable"

BODY_FIELDS = ("artifacts", "expiresAt", "issuedAt", "keys", "product", "sequence", "spec", "type", "version")
OPTIONAL_FIELDS = ("channel", "minFrom")
ARTIFACT_FIELDS = ("name", "platform", "sha256", "size")
OPTIONAL_ARTIFACT_FIELDS = ("kind", "variant")
KINDS = ("binary", "tar.gz")

# An uncompressed point on P-256 and a raw Ed25519 key, each behind the only DER header it can have.
SPKI_SHAPES = {
    "ES256": (bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004"), 64),
    "EdDSA": (bytes.fromhex("302a300506032b6570032100"), 32),
}
_P = 2**255 - 19
# the y of every point whose order divides 8
_SMALL_ORDER = (
    0,
    1,
    _P - 1,
    int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"),
    int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"),
)

_PRODUCT = re.compile(r"[a-z][a-z0-9-]{0,63}")
_KID = re.compile(r"[A-Za-z0-9._:+/=-]{1,128}")
_KID_RULE = "1 to 128 letters, digits and . _ : + / = -"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,254}")
_PLATFORM = re.compile(r"[a-z][a-z0-9]{0,31}-[a-z0-9][a-z0-9_]{0,31}")
VARIANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
VARIANT_RULE = "1 to 32 of a-z, 0-9, _ and -"
CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/-]{0,31}")
CHANNEL_RULE = "1 to 32 letters, digits, _, / and -"


BadManifest = fields.BadField


class Signature(NamedTuple):
    """One signature of the published form."""

    kid: str
    sig: bytes


class Published(NamedTuple):
    """The published form: the body's bytes as signed, and the signatures."""

    body: bytes
    signatures: Tuple[Signature, ...]


class Key(NamedTuple):
    """A key that may sign this release; `spki` is DER."""

    kid: str
    alg: str
    spki: bytes


class Artifact(NamedTuple):
    """One file of the release."""

    name: str
    platform: str
    sha256: str
    size: int
    kind: str = "binary"
    variant: Optional[str] = None


class Manifest(NamedTuple):
    """The body; times are seconds since 1970."""

    product: str
    version: str
    sequence: int
    issued_at: int
    expires_at: int
    keys: Tuple[Key, ...]
    artifacts: Tuple[Artifact, ...]
    channel: str = DEFAULT_CHANNEL
    min_from: Optional[str] = None
    epoch: int = 0

    @property
    def spec(self) -> int:
        """The lowest spec that can say all of it: what an older reader can read it can."""
        return EPOCH_SPEC if self.epoch else SPEC


def parse_published(data: bytes) -> Published:
    """The published form in `data`, in any JSON spelling of it."""
    value = fields.read(data, "the document", MAX_PUBLISHED)
    if isinstance(value, dict) and "releases" in value and "manifest" not in value:
        raise BadManifest("it is a catalogue (releases.json), which nobody signs: give the manifest.json of a release")
    found = fields.Fields(value, "", ("manifest", "signatures"))
    return Published(found.binary("manifest"), tuple(_signature(*item) for item in found.items("signatures")))


def parse_body(data: bytes) -> Tuple[Manifest, object]:
    """The manifest in `data`, and the JSON value it was read from."""
    value = fields.read(data, "the manifest", MAX_BODY)
    with_epoch = isinstance(value, dict) and value.get("spec") == EPOCH_SPEC
    found = fields.Fields(value, "", BODY_FIELDS, (*OPTIONAL_FIELDS, "epoch") if with_epoch else OPTIONAL_FIELDS)
    if found.text("type") != TYPE:
        raise found.bad("type", ascii(TYPE))
    if found.integer("spec") not in (SPEC, EPOCH_SPEC):
        raise found.bad("spec", "%d or %d (a newer agent may read it)" % (SPEC, EPOCH_SPEC))
    body = Manifest(
        product=product(found),
        version=found.version("version"),
        sequence=found.integer("sequence", MAX_SEQUENCE),
        issued_at=found.time("issuedAt"),
        expires_at=found.time("expiresAt"),
        keys=listed_keys(found),
        artifacts=tuple(_artifact(*item) for item in found.items("artifacts")),
        channel=found.optional("channel", CHANNEL, CHANNEL_RULE) or DEFAULT_CHANNEL,
        min_from=found.version("minFrom") if "minFrom" in found else None,
        epoch=found.number("epoch", 0, canonical.MAX_INT) if "epoch" in found else 0,
    )
    _check_whole(body)
    return body, value


def product(found: fields.Fields) -> str:
    """The field `product` of any signed document."""
    return found.matching("product", _PRODUCT, "1 to 64 of a-z, 0-9 and -, a letter first")


def listed_keys(found: fields.Fields) -> Tuple[Key, ...]:
    """The field `keys` of any signed document: 1 to 16 distinct keys that may sign it."""
    keys = tuple(_key(*item) for item in found.items("keys"))
    if not 1 <= len(keys) <= MAX_KEYS:
        raise BadManifest("keys must be 1 to %d, not %d" % (MAX_KEYS, len(keys)))
    fields.distinct("keys", "kid", [key.kid for key in keys])
    fields.distinct("keys", "spki", [key.spki for key in keys])
    return keys


def alg_of(spki: bytes) -> Optional[str]:
    """The algorithm that a public key in DER is for, or None when it is for none that a manifest takes."""
    for alg, (header, rest) in SPKI_SHAPES.items():
        if spki.startswith(header) and len(spki) == len(header) + rest:
            return None if alg == "EdDSA" and _is_weak(spki[len(header) :]) else alg
    return None


def _is_weak(point: bytes) -> bool:
    """Whether an Ed25519 key is spelled in a second way, or a point of small order, for which one signature fits any message."""
    y = int.from_bytes(point, "little") & ((1 << 255) - 1)
    return y >= _P or y in _SMALL_ORDER


def is_platform(text: str) -> bool:
    """True when `text` is a platform such as ``linux-amd64``."""
    return _PLATFORM.fullmatch(text) is not None


def is_variant(text: str) -> bool:
    """True when `text` may name a variant of a build."""
    return VARIANT.fullmatch(text) is not None


def _check_whole(body: Manifest) -> None:
    """Rules that need more than one field."""
    if body.expires_at <= body.issued_at:
        times = (rfc3339.render(body.expires_at), rfc3339.render(body.issued_at))
        raise BadManifest("expiresAt %s is not after issuedAt %s" % times)
    if not body.artifacts:
        raise BadManifest("artifacts must be at least one, not 0")
    fields.distinct("artifacts", "name", [artifact.name for artifact in body.artifacts])


def _signature(path: str, item: object) -> Signature:
    found = fields.Fields(item, path, ("kid", "sig"))
    return Signature(found.matching("kid", _KID, _KID_RULE), found.binary("sig"))


def _key(path: str, item: object) -> Key:
    found = fields.Fields(item, path, ("alg", "kid", "spki"))
    key = Key(found.matching("kid", _KID, _KID_RULE), found.text("alg"), found.binary("spki"))
    if key.alg not in SPKI_SHAPES:
        raise found.bad("alg", "ES256 or EdDSA")
    if alg_of(key.spki) != key.alg:
        raise BadManifest("%s is not a plain %s public key in DER" % (found.path("spki"), key.alg))
    return key


def _artifact(path: str, item: object) -> Artifact:
    found = fields.Fields(item, path, ARTIFACT_FIELDS, OPTIONAL_ARTIFACT_FIELDS)
    kind = found.text("kind") if "kind" in found else KINDS[0]
    if kind not in KINDS:
        raise found.bad("kind", " or ".join(KINDS))
    return Artifact(
        name=found.matching("name", _NAME, "a plain file name of letters, digits, . _ + and -"),
        platform=found.matching("platform", _PLATFORM, "os-arch, such as linux-amd64"),
        sha256=found.sha256("sha256"),
        size=found.integer("size"),
        kind=kind,
        variant=found.optional("variant", VARIANT, VARIANT_RULE),
    )
