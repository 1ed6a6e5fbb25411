# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose signatures count, and the documents before a new one: `--pins`, `--pins-file`, `--threshold`, `--previous`.

Rules:
- Only what verifies by the pins is counted; a catalogue is never looked at.
- A file that is named and does not verify is refused; one found in a directory is left out, and that is said.
- Documents of another product, or of another kind, that lie in a directory are not looked at further.
"""

from __future__ import annotations

import argparse
import os
from typing import Iterator, List, NamedTuple, Optional, Tuple

from slotcore import codes, documents, keys, manifest, release, signing, verifying
from slotward import release_files, release_say

MAX_PINS_FILE = 64 << 10
LAYOUT_DEPTH = 2
"""`<base>/<product>/<version>`: a manifest lies at most so far below what is given."""


class Counted(NamedTuple):
    """A document that verified, and where it lies."""

    path: str
    parts: signing.Parts


def parse(text: Optional[str], path: Optional[str], what: str = "--pins") -> Tuple[str, ...]:
    """The pins given on the command line or in a file, where commas, blanks and lines part them."""
    if path:
        data = release_files.read(path, MAX_PINS_FILE).decode("utf-8", "replace")
        text = ",".join(data.replace(",", " ").split())
    try:
        pins = keys.parse_pins(text or "")
    except ValueError as error:
        raise codes.refused(codes.NO_PINS, f"{path or what}: {error}") from None
    if not pins:
        raise codes.refused(codes.NO_PINS, f"no pins: give {what} or {what}-file")
    return pins


def of(args: argparse.Namespace) -> Tuple[str, ...]:
    """The pins of `--pins` and `--pins-file`, which can meet the threshold."""
    pins = parse(args.pins, args.pins_file)
    verifying.check_threshold(pins, args.threshold)
    return pins


def previous(args: argparse.Namespace, kind: documents.Kind, product: str) -> List[Counted]:
    """The documents of this kind and product at the places of `--previous` that verify, the newest last."""
    if not args.previous:
        return []
    if not (args.pins or args.pins_file):
        text = "--previous needs --pins or --pins-file: only what verifies is counted"
        raise codes.refused(codes.NO_PINS, text)
    pins = of(args)
    found = []
    for place in args.previous:
        if os.path.isdir(place):
            found += list(_in_directory(place, kind, product, pins, args.threshold))
        else:
            found.append(_named(place, kind, product, pins, args.threshold))
    return sorted(found, key=lambda one: one.parts.body.sequence)


def _named(path: str, kind: documents.Kind, product: str, pins: Tuple[str, ...], threshold: int) -> Counted:
    published = release_files.read(path, manifest.MAX_PUBLISHED)
    try:
        judged = verifying.judge(published, pins, threshold, kind=kind)
    except codes.Refused as error:
        raise codes.refused(error.code, f"{path}: {error.text}") from None
    if judged.parts.body.product != product:
        text = f"{path} is of {judged.parts.body.product}, not {product}: leave it out"
        raise codes.refused(codes.WRONG_PRODUCT, text)
    return Counted(path, judged.parts)


def _in_directory(
    top: str, kind: documents.Kind, product: str, pins: Tuple[str, ...], threshold: int
) -> Iterator[Counted]:
    for path in _candidates(top, kind):
        try:
            published = release_files.read(path, manifest.MAX_PUBLISHED)
            parts = signing.read(published)
            if parts.kind is kind and parts.body.product == product:
                verifying.judge(published, pins, threshold, kind=kind)
                yield Counted(path, parts)
        except (codes.Refused, release_files.Failed) as error:
            release_say.say(f"not counted: {path}: {error.text}")


def _candidates(top: str, kind: documents.Kind) -> Iterator[str]:
    """Files that may be documents: manifests in the layout of releases, else every .json file of the directory."""
    if kind is not documents.RELEASE:
        yield from (os.path.join(top, name) for name in _names(top) if name.endswith(".json"))
        return
    for depth in range(LAYOUT_DEPTH + 1):
        for directory in _below(top, depth):
            path = os.path.join(directory, release.MANIFEST_NAME)
            if os.path.lexists(path):
                yield path


def _below(top: str, depth: int) -> Iterator[str]:
    """The directories exactly so far below `top`."""
    if depth == 0:
        yield top
        return
    for name in _names(top):
        path = os.path.join(top, name)
        if os.path.isdir(path):
            yield from _below(path, depth - 1)


def _names(directory: str) -> List[str]:
    try:
        return sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except OSError as error:
        raise release_files.Failed(codes.CANNOT_READ, directory, error) from None
