# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release publish`: a release, or the notice of its withdrawal, into the static layout with its catalogue.

Rules:
- Signatures, expiry and every artifact are verified before the first byte is written.
- A new version appears whole, by the rename of a directory; the catalogue names it only after that.
- Bytes that are published are never overwritten by others; publishing again changes nothing.
- One publisher at a time per product, by a lock on its directory; what a killed one left is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
from typing import Dict, Iterator, List, Tuple

from slotcore import catalogue, codes, documents, manifest, publishing, release, rfc3339, semver, signing, verifying
from slotward import answers, release_files, release_pins, release_say, release_sign

HALF_DONE = ".publishing-"


def publish(args: argparse.Namespace) -> answers.Answer:
    """Verify what is given, then write what is not there yet."""
    source, given = _given(args.source)
    checked = [_checked(args, path, published, source) for path, published in given]
    shelf_path = os.path.join(args.to, checked[0].body.product)
    _refuse_shelf(args.to, checked[0].body.product)
    release_files.make_directory(shelf_path)
    written: List[str] = []
    with release_files.locked(shelf_path):
        _sweep(shelf_path)
        plans = publishing.plan(_shelf(shelf_path), [published for _path, published in given])
        for text in plans[-1].ignored:
            release_say.say(f"not in the catalogue: {shelf_path}/{text}")
        for planned in plans:
            written += _execute(args.to, source, planned)
    lines = [f"wrote {path}" for path in written] or [f"nothing to do: {shelf_path} has it all"]
    return release_say.described(given[0][1], bool(written), lines, directory=shelf_path, written=written)


def _refuse_shelf(base: str, product: str) -> None:
    """Refuse the product's own directory as the base: the product would lie in itself."""
    above = os.path.dirname(os.path.abspath(base))
    catalogues = [os.path.join(one, catalogue.NAME) for one in (base, above)]
    there = next((path for path in catalogues if os.path.lexists(path)), None)
    if there is None or os.path.basename(os.path.abspath(base)) != product:
        return
    meant = base.rstrip("/") if os.path.basename(base.rstrip("/")) == product else os.path.abspath(base)
    while os.path.basename(meant) == product:
        meant = os.path.dirname(meant) or "."
    text = f"{base} is not the base but the directory of {product} in it, since {there} is there: give --to {meant}"
    raise codes.refused(codes.BAD_RELEASE, text)


def _given(source: str) -> Tuple[str, List[Tuple[str, bytes]]]:
    """The directory with the artifacts, and the documents to publish with their paths, the manifest first."""
    if not os.path.isdir(source):
        return os.path.dirname(source), [(source, release_files.read(source, manifest.MAX_PUBLISHED))]
    paths = [os.path.join(source, name) for name in (release.MANIFEST_NAME, publishing.NOTICE_NAME)]
    if not os.path.lexists(paths[0]):
        text = "there is none; the directory of a release, as build makes it, holds its signed manifest.json and its artifacts"
        raise release_files.Failed(codes.CANNOT_READ, paths[0], OSError(errno.ENOENT, text))
    there = [path for path in paths if os.path.lexists(path)]
    return source, [(path, release_files.read(path, manifest.MAX_PUBLISHED)) for path in there]


def _checked(args: argparse.Namespace, path: str, published: bytes, directory: str) -> signing.Parts:
    """The document, verified as far as pins are given, and its artifacts in the directory beside it."""
    try:
        if args.pins or args.pins_file:
            parts = verifying.judge(published, release_pins.of(args), args.threshold, args.at).parts
        else:
            release_say.say(f"{path}: no pins given, so only the document's own keys are looked at")
            parts = signing.read(published)
            _check_expiry(parts, args.at)
    except codes.Refused as error:
        raise codes.refused(error.code, f"{path}: {error.text}") from None
    if parts.kind not in (documents.RELEASE, documents.WITHDRAWAL):
        text = f"{path} is a {parts.kind.name}, which is not published but given to hosts (slotward trust apply, upgrade --permit)"
        raise codes.refused(codes.BAD_DOCUMENT, text)
    if isinstance(parts.body, manifest.Manifest):
        for one in parts.body.artifacts:
            release_sign.matching(os.path.join(directory, one.name), parts)
    return parts


def _check_expiry(parts: signing.Parts, at: int) -> None:
    expires_at = getattr(parts.body, "expires_at", None)
    if expires_at is not None and at >= expires_at:
        raise codes.refused(codes.EXPIRED, f"the {parts.kind.name} expired at {rfc3339.render(expires_at)}")


def _shelf(path: str) -> publishing.Shelf:
    """What is published of a product."""
    versions = [name for name in sorted(os.listdir(path)) if semver.is_version(name)]
    found: Dict[str, Dict[str, bytes]] = {release.MANIFEST_NAME: {}, publishing.NOTICE_NAME: {}}
    for version in versions:
        for name, by_version in found.items():
            data = release_files.read_if_there(os.path.join(path, version, name), manifest.MAX_PUBLISHED)
            if data is not None:
                by_version[version] = data
    listed = release_files.read_if_there(os.path.join(path, catalogue.NAME), manifest.MAX_PUBLISHED)
    return publishing.Shelf(found[release.MANIFEST_NAME], found[publishing.NOTICE_NAME], listed)


def _execute(base: str, source: str, planned: publishing.Plan) -> List[str]:
    """Write the artifacts, then the documents; a version that is not there yet appears as a whole directory."""
    final = os.path.join(base, planned.directory)
    written: List[str] = []
    with _place(final, bool(planned.writes)) as (directory, is_new):
        for one in planned.artifacts:
            copied = release_files.copy(
                os.path.join(source, one.name), os.path.join(directory, one.name), one.sha256, one.size
            )
            written += [os.path.join(final, one.name)] if copied else []
        for write in planned.writes:
            path = os.path.join(base, write.path)
            if is_new and os.path.dirname(path) == final:
                release_files.create(os.path.join(directory, os.path.basename(path)), iter((write.data,)))
                written.append(path)
    for write in planned.writes:
        path = os.path.join(base, write.path)
        if path not in written:
            release_files.replace(path, write.data)
            written.append(path)
    return written


@contextlib.contextmanager
def _place(final: str, wanted: bool) -> Iterator[Tuple[str, bool]]:
    """The version's directory, or a new one that becomes it by one rename when all went well."""
    if os.path.lexists(final) or not wanted:
        yield final, False
        return
    shelf, version = os.path.split(final)
    fresh = os.path.join(shelf, f"{HALF_DONE}{version}")
    release_files.make_directory(fresh)
    try:
        yield fresh, True
        release_files.rename_directory(fresh, final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _sweep(shelf: str) -> None:
    """Remove what a publisher that was killed left behind; the lock is held, so nobody is writing it."""
    for name in os.listdir(shelf):
        if name.startswith(HALF_DONE):
            shutil.rmtree(os.path.join(shelf, name), ignore_errors=True)
