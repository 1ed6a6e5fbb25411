# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: key sets, permits and withdrawals, drafted from a task's options and signed with keys at hand.

Rules:

* What a document is and who may sign it is decided in slotcore; here files are read and written.
* A document that is there is replaced only by itself with more signatures.
* Check mode drafts and signs in memory and writes nothing.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils import release_store as store
from ansible_collections.slotward.fleet.plugins.module_utils import release_writer
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, documents, drafts, keys, signing

DAYS = {"key_set": 365, "permit": 7}
DAY_S = 86400


class Drafted(NamedTuple):
    """The document that was there, if any, and the one that should be."""

    before: Optional[bytes]
    published: bytes

    @property
    def changed(self) -> bool:
        """True when something has to be written."""
        return self.before != self.published


def make(params: Dict[str, Any], check: bool) -> Drafted:
    """The document, written unless it is only asked for. Raises Refused."""
    path = params["output"]
    if check and not os.path.isdir(os.path.dirname(path) or "."):
        return _plan(params, None)
    with store.locked(os.path.dirname(path)):
        planned = _plan(params, store.read_if_there(path))
        if planned.changed and not check:
            if planned.before is None:
                store.create(path, (planned.published,))
            else:
                store.replace(path, planned.published)
    return planned


def _plan(params: Dict[str, Any], before: Optional[bytes]) -> Drafted:
    signers = [release_writer.private_key(path, params["passphrase"]) for path in params["sign_with"]]
    body = _body(params, release_writer.listed_keys(params, signers))
    try:
        published = drafts.draft(before, body).published
    except codes.Refused as error:
        raise codes.refused(error.code, "%s: %s" % (params["output"], error.text)) from None
    if isinstance(body, documents.KeySet) and before is None:
        drafts.check_succession(body, _old(params), params["accept_gap"])
    for signer in signers:
        published = signing.sign(published, signer.public, signer.sign).published
    return Drafted(before, published)


def _body(params: Dict[str, Any], listed: Tuple[Any, ...]) -> documents.Document:
    """What the options say."""
    now, kind = int(time.time()), params["kind"]
    common = (params["product"], now, listed)
    if kind == "withdrawal":
        return documents.Withdrawal(*common, params["version"], params["sequence"], params["why"])
    expires_at = now + (params["expires_days"] or DAYS[kind]) * DAY_S
    if kind == "permit":
        hosts = tuple(params["hosts"])
        permit_id = hashlib.sha256(os.urandom(32)).hexdigest()[:32]
        return documents.Permit(*common, permit_id, params["version"], params["sequence"], hosts, expires_at)
    return documents.KeySet(*common, params["sequence"], expires_at, tuple(params["pins"]), params["threshold"])


def _old(params: Dict[str, Any]) -> drafts.Trusted:
    """Whom hosts trust before the new key set."""
    if not params["previous"]:
        bad = [pin for pin in params["old_pins"] if not keys.is_pin(pin)]
        if bad:
            text = "old_pins: %s is not a pin, sha256/<base64 of 32 bytes>" % ascii(bad[0])
            raise codes.refused(codes.NO_PINS, text)
        return drafts.Trusted(tuple(params["old_pins"]), params["old_threshold"])
    try:
        return drafts.trusted(store.read(params["previous"]))
    except codes.Refused as error:
        raise codes.refused(error.code, "%s: %s" % (params["previous"], error.text)) from None
