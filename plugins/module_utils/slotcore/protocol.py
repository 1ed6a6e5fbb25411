# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unprivileged side and root's say to each other, one JSON object a message (privilege.md, section 3).

Rules:

* Strict JSON, exactly the keys that an operation has; a value is never turned into another type.
* A file is named by a plain name: no separator, no leading dot, a narrow alphabet. So no name leaves its directory.
* A request's protocol is judged before its other keys, which another version may have otherwise; a greeting has the
  same keys in every version.
* A request without a nonce is what start mode leaves in a file; on a connection each carries the connection's own.
"""

from __future__ import annotations

import json
import re
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import codes, fields, strictjson

VERSION = 1
VERSIONS: Tuple[int, ...] = (VERSION,)
MAX_REQUEST = 4096
MAX_ANSWER = 65536
MAX_WAIT_S = 30
MAX_WHY = 200

PREPARE, SWAP, CONFIRM = "update.prepare", "update.swap", "update.confirm"
ROLLBACK, SETTLE = "update.rollback", "update.settle"
NODE_UPGRADE, NODE_CONFIRM, NODE_ROLLBACK = "node.upgrade", "node.confirm", "node.rollback"

_RELEASE = (("target",), ("permit", "serverTime"))
_CONFIRM = (("trial",), ("wait",))
_ROLLBACK = (("trial",), ("why",))
OPERATIONS: Dict[str, Tuple[Tuple[str, ...], Tuple[str, ...]]] = {
    PREPARE: _RELEASE,
    SWAP: _RELEASE,
    CONFIRM: _CONFIRM,
    ROLLBACK: _ROLLBACK,
    SETTLE: ((), ()),
    NODE_UPGRADE: _RELEASE,
    NODE_CONFIRM: _CONFIRM,
    NODE_ROLLBACK: _ROLLBACK,
}
"""Each operation, the keys that it needs and those that it may have, beyond `protocol`, `nonce`, `id` and `op`."""

HELPER_OPERATIONS = (PREPARE, SWAP, CONFIRM, ROLLBACK, SETTLE)
NODE_OPERATIONS = (NODE_UPGRADE, NODE_CONFIRM, NODE_ROLLBACK)

NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,127}")
_NAME_RULE = "a plain file name of at most 128 letters, digits and . _ + - with no leading dot"
ID = re.compile(r"[0-9a-f]{16}")
ID_RULE = "16 lower-case hexadecimal digits"
NONCE = re.compile(r"[0-9a-f]{32}")
_NONCE_RULE = "32 lower-case hexadecimal digits"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHA256_RULE = "64 lower-case hexadecimal digits"
_PRODUCT = re.compile(r"[a-z][a-z0-9-]{0,63}")

_HELLO_KEYS = ("product", "protocol", "nonce", "version", "sha256")


class Hello(NamedTuple):
    """What the server says first: who it is, what it speaks, and the nonce of this connection."""

    product: str
    protocol: Tuple[int, ...]
    nonce: str
    version: str
    sha256: str
    """Of the server's own program."""


class Request(NamedTuple):
    """One operation that is asked for; what its operation does not have, or was left out, is None."""

    op: str
    id: str
    nonce: Optional[str] = None
    target: Optional[str] = None
    """A plain name in staging; for `node.upgrade` the SHA-256 of the descriptor that travels with the request."""
    permit: Optional[str] = None
    """As `target`."""
    server_time: Optional[int] = None
    """The control side's clock, in seconds since 1970."""
    trial: Optional[str] = None
    wait: Optional[int] = None
    why: Optional[str] = None
    protocol: int = VERSION


_KEYS = {"server_time": "serverTime"}
"""How the fields of a request are spelled where not by their own name."""


def encode(value: Mapping[str, object]) -> bytes:
    """A message's bytes, ASCII alone."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def pick(theirs: Sequence[int], ours: Sequence[int] = VERSIONS) -> int:
    """The highest version of the protocol that both sides know.

    Raises:
        codes.Refused: `protocol-mismatch`, naming both sides' versions.

    """
    both = set(theirs) & set(ours)
    if not both:
        raise _mismatch(theirs, ours)
    return max(both)


def _mismatch(theirs: Sequence[int], ours: Sequence[int]) -> codes.Refused:
    said = [", ".join(map(str, one)) or "none" for one in (theirs, ours)]
    return codes.refused(
        codes.PROTOCOL_MISMATCH,
        "the other side speaks version %s of the protocol, this one %s: bring both to the same release" % tuple(said),
    )


# --- the greeting ---


def render_hello(hello: Hello) -> bytes:
    """The greeting's bytes."""
    return encode(dict(hello._asdict()))


def parse_hello(data: bytes) -> Hello:
    """The greeting in `data`.

    Raises:
        codes.Retryable: `bad-answer`, naming the key.

    """
    try:
        found = fields.Fields(fields.read(data, "the greeting", MAX_ANSWER), "", _HELLO_KEYS)
        versions = tuple(
            fields.number(found, "protocol", one, 1, strictjson.MAX_INT) for _path, one in found.items("protocol")
        )
        return Hello(
            product=found.matching("product", _PRODUCT, "a product's name"),
            protocol=versions,
            nonce=found.matching("nonce", NONCE, _NONCE_RULE),
            version=found.version("version"),
            sha256=found.sha256("sha256"),
        )
    except fields.BadField as error:
        raise codes.Retryable(codes.BAD_ANSWER, "the greeting is malformed: %s" % error) from None


# --- requests ---


def render_request(request: Request) -> bytes:
    """The request's bytes; as a file it ends with them too."""
    given = request._asdict().items()
    return encode({_KEYS.get(name, name): value for name, value in given if value is not None})


def parse_request(data: bytes, nonce: Optional[str] = None) -> Request:
    """The request in `data`: of the connection with this nonce, or of a file, which has none.

    Raises:
        codes.Refused: `bad-request` naming the key, or `protocol-mismatch` naming both sides' versions.

    """
    try:
        value = fields.read(data, "the request", MAX_REQUEST)
        _check_protocol(value)
        return _request(value, nonce)
    except fields.BadField as error:
        raise codes.refused(codes.BAD_REQUEST, "the request is malformed: %s" % error) from None


def _check_protocol(value: object) -> None:
    said = value.get("protocol") if isinstance(value, dict) else None
    if isinstance(said, int) and not isinstance(said, bool) and said not in VERSIONS:
        raise _mismatch((said,), VERSIONS)


def _request(value: object, nonce: Optional[str]) -> Request:
    needed, optional = _form_of(value)
    nonces = ("nonce",) if nonce is not None else ()
    found = fields.Fields(value, "", ("protocol", *nonces, "id", "op", *needed), optional)
    if nonce is not None and found.text("nonce") != nonce:
        raise found.bad("nonce", "this connection's, %s" % nonce)
    op = found.text("op")
    pattern, rule = (_SHA256, _SHA256_RULE) if op == NODE_UPGRADE else (NAME, _NAME_RULE)
    return Request(
        op=op,
        id=found.matching("id", ID, ID_RULE),
        nonce=nonce,
        target=found.optional("target", pattern, rule),
        permit=found.optional("permit", pattern, rule),
        server_time=found.number("serverTime", 0, strictjson.MAX_INT) if "serverTime" in found else None,
        trial=found.optional("trial", ID, ID_RULE),
        wait=found.number("wait", 0, MAX_WAIT_S) if "wait" in found else None,
        why=_why(found),
        protocol=found.integer("protocol"),
    )


def _form_of(value: object) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The keys of the operation that is asked for; when there is no such operation, an error that says which there are."""
    if not isinstance(value, dict) or "op" not in value:
        return (), ()  # what is missing is said where all keys are compared
    op = value["op"]
    if not isinstance(op, str) or op not in OPERATIONS:
        raise fields.BadField("op must be one of %s, not %s" % (", ".join(OPERATIONS), fields.shown(op)))
    return OPERATIONS[op]


def _why(found: fields.Fields) -> Optional[str]:
    if "why" not in found:
        return None
    text = found.text("why")
    if len(text) > MAX_WHY or not text.isprintable():
        raise found.bad("why", "at most %d printable characters" % MAX_WHY)
    return text
