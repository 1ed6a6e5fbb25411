# SPDX-License-Identifier: GPL-3.0-or-later
"""The signed documents: which kinds there are, and the shapes of those beside the release manifest (trust.md, section 1).

Rules:

* All have the published form of a manifest and a canonical JSON body; the body's ``type`` names the kind.
* A signature covers the kind's purpose and the body, so none serves for two kinds.
* A body has exactly the fields of its kind, spelled exactly; every error names the field by its path.
* Rendering goes through the same parser as reading: what a host would not take is not written.
* The shape is judged here; signatures and canonical form in ``signatures.py``, what a host does with it in ``trust.py``.
"""

from __future__ import annotations

import base64
import re
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

from . import canonical, codes, fields, keys, manifest, rfc3339

SPEC = 1
MAX_PINS = 16
MAX_HOSTS = 1000
MAX_WHY = 500
COMMON_FIELDS = ("issuedAt", "keys", "product", "spec", "type")
BadDocument = fields.BadField

_ID = re.compile(r"[0-9a-f]{16,64}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_MACHINE_ID_RULE = "a machine id, 32 of 0-9 and a-f, as `slotward trust` on the host shows it"
# What no reason may hold, the same on every Python: controls, line ends, marks that hide or turn text, half surrogates.
_HIDDEN = "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff0-\uffff\ud800-\udfff"
_WHY = re.compile("[^%s]{1,%d}" % (_HIDDEN, MAX_WHY))
_WHY_RULE = "1 to %d printable characters, not all blank" % MAX_WHY


class KeySet(NamedTuple):
    """The pins that replace all that were trusted before; times are seconds since 1970."""

    product: str
    issued_at: int
    keys: Tuple[manifest.Key, ...]
    sequence: int
    expires_at: int
    pins: Tuple[str, ...]
    threshold: int


class Permit(NamedTuple):
    """Leave for some hosts to run one release below their floor, once."""

    product: str
    issued_at: int
    keys: Tuple[manifest.Key, ...]
    permit_id: str
    version: str
    sequence: int
    hosts: Tuple[str, ...]
    expires_at: int


class Withdrawal(NamedTuple):
    """Notice that a release is not to be installed any more."""

    product: str
    issued_at: int
    keys: Tuple[manifest.Key, ...]
    version: str
    sequence: int
    why: str


Document = Union[KeySet, Permit, Withdrawal]
Body = Union[manifest.Manifest, Document]
Parse = Callable[[bytes], Tuple[Body, object]]


class Kind(NamedTuple):
    """One kind of document: what people call it, its `type`, what its signatures cover first, the code of a bad shape."""

    name: str
    type: str
    purpose: bytes
    bad_shape: str
    parse: Parse


def kind_of(body: bytes) -> Kind:
    """The kind of document that a body says it is; nothing else of it is judged.

    Raises:
        BadDocument: it is no JSON object, or its `type` is none of ours.

    """
    value = fields.read(body, "the document", manifest.MAX_BODY)
    named = value.get("type") if isinstance(value, dict) else None
    for kind in KINDS:
        if kind.type == named:
            return kind
    found = "type is %s" % fields.shown(named) if isinstance(value, dict) else "it is %s" % fields.shown(value)
    raise BadDocument("%s; the types are %s" % (found, ", ".join(kind.type for kind in KINDS)))


def named(body: Body) -> str:
    """What a document is about, in a few words: the release, or the number of the key set."""
    if isinstance(body, KeySet):
        return "%s, sequence %d" % (body.product, body.sequence)
    return "%s %s" % (body.product, body.version)


def render(body: Document) -> bytes:
    """The canonical body of a document.

    Raises:
        ValueError: naming the field that no host would take.

    """
    kind, own = _own_fields(body)
    found: Dict[str, object] = {
        "issuedAt": rfc3339.render(body.issued_at),
        "keys": [
            {"alg": one.alg, "kid": one.kid, "spki": base64.b64encode(one.spki).decode("ascii")} for one in body.keys
        ],
        "product": body.product,
        "spec": SPEC,
        "type": kind.type,
        **own,
    }
    data = canonical.encode(found)
    kind.parse(data)
    return data


def parse_key_set(data: bytes) -> Tuple[KeySet, object]:
    """The key set in `data`, and the JSON value it was read from."""
    found, value = _open(data, KEY_SET, ("expiresAt", "pins", "sequence", "threshold"))
    body = KeySet(
        *_common(found),
        sequence=found.integer("sequence"),
        expires_at=found.time("expiresAt"),
        pins=_texts(found, "pins", MAX_PINS, keys.is_pin, "a pin, sha256/<base64 of 32 bytes>"),
        threshold=found.integer("threshold"),
    )
    if body.threshold > len(body.pins):
        raise found.bad("threshold", "1 to the number of pins, %d" % len(body.pins))
    _in_order(body.issued_at, body.expires_at)
    return body, value


def parse_permit(data: bytes) -> Tuple[Permit, object]:
    """The permit in `data`, and the JSON value it was read from."""
    found, value = _open(data, PERMIT, ("expiresAt", "hosts", "id", "sequence", "version"))
    body = Permit(
        *_common(found),
        permit_id=found.matching("id", _ID, "16 to 64 of 0-9 and a-f"),
        version=found.version("version"),
        sequence=found.integer("sequence"),
        hosts=_texts(found, "hosts", MAX_HOSTS, is_machine_id, _MACHINE_ID_RULE),
        expires_at=found.time("expiresAt"),
    )
    _in_order(body.issued_at, body.expires_at)
    return body, value


def parse_withdrawal(data: bytes) -> Tuple[Withdrawal, object]:
    """The withdrawal in `data`, and the JSON value it was read from."""
    found, value = _open(data, WITHDRAWAL, ("sequence", "version", "why"))
    body = Withdrawal(
        *_common(found),
        version=found.version("version"),
        sequence=found.integer("sequence"),
        why=found.matching("why", _WHY, _WHY_RULE),
    )
    if not body.why.strip():
        raise found.bad("why", _WHY_RULE)
    return body, value


def is_machine_id(text: str) -> bool:
    """True when `text` is what /etc/machine-id of a host may hold."""
    return _MACHINE_ID.fullmatch(text) is not None


def _open(data: bytes, kind: Kind, own: Sequence[str]) -> Tuple[fields.Fields, object]:
    """The fields of a body of this kind, whose `type` and `spec` are right."""
    value = fields.read(data, "the %s" % kind.name, manifest.MAX_BODY)
    found = fields.Fields(value, "", (*COMMON_FIELDS, *own))
    if found.text("type") != kind.type:
        raise found.bad("type", ascii(kind.type))
    if found.integer("spec") != SPEC:
        raise found.bad("spec", "%d (a newer agent may read it)" % SPEC)
    return found, value


def _common(found: fields.Fields) -> Tuple[str, int, Tuple[manifest.Key, ...]]:
    """What all kinds begin with: product, issuedAt, keys."""
    return manifest.product(found), found.time("issuedAt"), manifest.listed_keys(found)


def _texts(found: fields.Fields, name: str, most: int, rule: Callable[[str], bool], said: str) -> Tuple[str, ...]:
    """A list of 1 to `most` distinct strings that follow a rule."""
    items = found.items(name)
    if not 1 <= len(items) <= most:
        raise BadDocument("%s must be 1 to %d, not %d" % (found.path(name), most, len(items)))
    texts: List[str] = []
    for path, item in items:
        if not isinstance(item, str) or not rule(item):
            raise BadDocument("%s must be %s, not %s" % (path, said, fields.shown(item)))
        if item in texts:
            raise BadDocument("%s is the same as %s[%d]" % (path, found.path(name), texts.index(item)))
        texts.append(item)
    return tuple(texts)


def _in_order(issued_at: int, expires_at: int) -> None:
    if expires_at <= issued_at:
        times = (rfc3339.render(expires_at), rfc3339.render(issued_at))
        raise BadDocument("expiresAt %s is not after issuedAt %s" % times)


def _own_fields(body: Document) -> Tuple[Kind, Dict[str, object]]:
    """The kind of a document, and the fields that only it has."""
    if isinstance(body, Withdrawal):
        return WITHDRAWAL, {"sequence": body.sequence, "version": body.version, "why": body.why}
    own: Dict[str, object] = {"expiresAt": rfc3339.render(body.expires_at), "sequence": body.sequence}
    if isinstance(body, KeySet):
        return KEY_SET, {**own, "pins": list(body.pins), "threshold": body.threshold}
    return PERMIT, {**own, "hosts": list(body.hosts), "id": body.permit_id, "version": body.version}


RELEASE = Kind(
    "release manifest", manifest.TYPE, b"slotward.release-manifest\0", codes.BAD_MANIFEST, manifest.parse_body
)
KEY_SET = Kind("key set", "slotward.key-set", b"slotward.key-set\0", codes.BAD_DOCUMENT, parse_key_set)
PERMIT = Kind(
    "downgrade permit",
    "slotward.downgrade-permit",
    b"slotward.downgrade-permit\0",
    codes.BAD_DOCUMENT,
    parse_permit,
)
WITHDRAWAL = Kind("withdrawal", "slotward.withdrawal", b"slotward.withdrawal\0", codes.BAD_DOCUMENT, parse_withdrawal)
KINDS: Tuple[Kind, ...] = (RELEASE, KEY_SET, PERMIT, WITHDRAWAL)
