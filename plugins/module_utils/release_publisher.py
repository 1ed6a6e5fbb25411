# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: a verified release, or the notice of its withdrawal, put into the static layout.

Rules:

* Signatures, expiry and every artifact are verified before the first byte is written.
* What has to be written is decided in slotcore (``publishing``), under the lock of the product's directory.
* Check mode reads the same and writes nothing.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils import release_store as store
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    codes,
    documents,
    manifest,
    publishing,
    release,
    signing,
    verifying,
)


class Published(NamedTuple):
    """What was given, the files that were or would be written, and what the catalogue cannot list."""

    parts: signing.Parts
    directory: str
    written: List[str]
    ignored: Tuple[str, ...]


def publish(params: Dict[str, Any], check: bool) -> Published:
    """Publish what lies at `source` below `base`. Raises Refused."""
    source, offered = _given(params["source"])
    checked = [_verified(params, path, data, source) for path, data in offered]
    first = checked[0]
    shelf_path = os.path.join(params["base"], first.body.product)
    documents_ = [data for _path, data in offered]
    if check:
        return _result(params, first, publishing.plan(store.shelf(shelf_path), documents_))
    store.make_directory(shelf_path)
    with store.locked(shelf_path):
        store.sweep(shelf_path)
        plans = publishing.plan(store.shelf(shelf_path), documents_)
        found = _result(params, first, plans)
        for planned in plans:
            store.execute(params["base"], source, planned)
    return found


def _result(params: Dict[str, Any], first: signing.Parts, plans: Tuple[publishing.Plan, ...]) -> Published:
    written = [path for planned in plans for path in store.to_write(params["base"], planned)]
    directory = os.path.join(params["base"], plans[0].directory)
    return Published(first, directory, list(dict.fromkeys(written)), plans[-1].ignored)


def _given(source: str) -> Tuple[str, List[Tuple[str, bytes]]]:
    """The directory with the artifacts, and the documents to publish with their paths, the manifest first."""
    if not os.path.isdir(source):
        return os.path.dirname(source), [(source, store.read(source))]
    paths = [os.path.join(source, name) for name in (release.MANIFEST_NAME, publishing.NOTICE_NAME)]
    return source, [(path, store.read(path)) for path in paths if path == paths[0] or os.path.lexists(path)]


def _verified(params: Dict[str, Any], path: str, data: bytes, directory: str) -> signing.Parts:
    """The document, signed and not expired, and its artifacts in the directory beside it."""
    try:
        parts = verifying.judge(data, params["pins"], params["threshold"], int(time.time())).parts
        if parts.kind not in (documents.RELEASE, documents.WITHDRAWAL):
            text = "a %s is not published but given to hosts" % parts.kind.name
            raise codes.refused(codes.BAD_DOCUMENT, text)
    except codes.Refused as error:
        raise codes.refused(error.code, "%s: %s" % (path, error.text)) from None
    if isinstance(parts.body, manifest.Manifest):
        for one in parts.body.artifacts:
            _check_artifact(os.path.join(directory, one.name), one)
    return parts


def _check_artifact(path: str, one: manifest.Artifact) -> None:
    sha256, size = release.measure(store.chunks(path))
    if size != one.size:
        raise codes.refused(codes.SIZE_MISMATCH, "%s is %d bytes; the manifest says %d" % (path, size, one.size))
    if sha256 != one.sha256:
        text = "%s has sha256 %s; the manifest says %s" % (path, sha256, one.sha256)
        raise codes.refused(codes.DIGEST_MISMATCH, text)
