# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what a host says of whom it trusts, and how it stands to one key set.

Rules:

* A key set is known by its sequence and the digest of its body, never by its file's name.
* `old` is a host that trusts only what was in force before the key set: its configuration's pins, or a key set before it.
* Whether a host takes a document is the host's decision alone; nothing is judged here but the shape.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, NamedTuple

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, trust_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, documents, manifest

IN_FORCE, OLD, NEWER, UNKNOWN = "in-force", "old", "newer", "unknown"


class KeySet(NamedTuple):
    """A key set as it is compared with what a host has."""

    product: str
    sequence: int
    sha256: str


def read(path: str) -> bytes:
    """A published document on the controller; raises Refused `cannot-read` or `bad-document`."""
    try:
        with open(path, "rb") as file:
            data = file.read(manifest.MAX_PUBLISHED + 1)
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (path, error.strerror)) from error
    try:
        documents.kind_of(manifest.parse_published(data).body)
    except documents.BadDocument as error:
        raise codes.refused(codes.BAD_DOCUMENT, "%s is no signed document: %s" % (path, error)) from error
    return data


def read_key_set(path: str) -> KeySet:
    """A published key set on the controller; raises Refused."""
    body = manifest.parse_published(read(path)).body
    try:
        found = documents.parse_key_set(body)[0]
    except documents.BadDocument as error:
        raise codes.refused(codes.BAD_DOCUMENT, "%s is no key set: %s" % (path, error)) from error
    return KeySet(found.product, found.sequence, hashlib.sha256(body).hexdigest())


def standing(trust: Dict[str, Any], wanted: KeySet) -> str:
    """How a host stands to a key set, by what it says it trusts."""
    if not trust or trust.get("source") == "unknown":
        return UNKNOWN
    if trust["source"] == "configuration":
        return OLD
    if trust["sequence"] == wanted.sequence:
        return IN_FORCE if trust.get("sha256") in (None, wanted.sha256) else UNKNOWN
    return OLD if trust["sequence"] < wanted.sequence else NEWER


def shaped(params: Dict[str, Any], answer: ansible_glue.Answer) -> Dict[str, Any]:
    """A result with every key, from the agent's answer."""
    data = answer.data
    result: Dict[str, Any] = {key: data.get(key) for key in trust_options.RESULT_KEYS}
    result["notices"] = data.get("warnings") or []  # Ansible takes `warnings` for itself
    result["product"] = data.get("product") or params["product"]
    result["state"] = data.get("state") or "failed"
    result["code"] = answer.code
    result["reason"] = None if answer.code == codes.OK else data.get("message") or None
    result["failed"] = answer.failed
    result["changed"] = bool(data.get("changed"))
    result["msg"] = data.get("message") or "%s: %s" % (result["product"], result["state"])
    return result


def failure(params: Dict[str, Any], state: str, code: str, text: str) -> Dict[str, Any]:
    """A failed result with every key, made on the controller."""
    return shaped(params, ansible_glue.broken(code, text, state))
