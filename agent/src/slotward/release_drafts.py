# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release withdraw`, `key-set` and `permit`: unsigned documents, to be signed and merged as a manifest is.

Rules:
- Nothing is overwritten; the same document again changes nothing.
- A key set must be one that hosts with the old set can take (`slotcore.drafts`).
"""

from __future__ import annotations

import argparse
import os
from typing import Tuple

from slotcore import codes, documents, drafts, manifest, release, semver
from slotward import answers, release_files, release_keys, release_pins, release_say

DAY_S = 86400


def withdraw(args: argparse.Namespace) -> answers.Answer:
    """The notice that a release is not to be installed any more."""
    _check_version(args.version)
    body = documents.Withdrawal(args.product, args.issued_at, _keys(args), args.version, args.sequence, args.why)
    return _write(args, body)


def permit(args: argparse.Namespace) -> answers.Answer:
    """Leave for some hosts to run one release below their floor, once."""
    _check_version(args.version)
    body = documents.Permit(
        product=args.product,
        issued_at=args.issued_at,
        keys=_keys(args),
        permit_id=args.id or os.urandom(16).hex(),
        version=args.version,
        sequence=args.sequence,
        hosts=tuple(args.host),
        expires_at=args.issued_at + args.expires_days * DAY_S,
    )
    return _write(args, body)


def key_set(args: argparse.Namespace) -> answers.Answer:
    """The pins that replace all that hosts trust now."""
    body = documents.KeySet(
        product=args.product,
        issued_at=args.issued_at,
        keys=_keys(args),
        sequence=args.sequence,
        expires_at=args.issued_at + args.expires_days * DAY_S,
        pins=release_pins.parse(",".join(args.pin), args.pins_file, "--pin"),
        threshold=args.threshold,
    )
    drafts.check_succession(body, _old(args), args.accept_gap)
    return _write(args, body)


def _old(args: argparse.Namespace) -> drafts.Trusted:
    """Whom hosts trust now: the key set before, or the pins of their configuration."""
    if args.previous is None:
        pins = release_pins.parse(args.old_pins, args.old_pins_file, "--old-pins")
        return drafts.Trusted(pins, args.old_threshold)
    try:
        parts = drafts.trusted(release_files.read(args.previous, manifest.MAX_PUBLISHED))
    except codes.Refused as error:
        raise codes.refused(error.code, f"{args.previous}: {error.text}") from None
    return parts


def _keys(args: argparse.Namespace) -> Tuple[manifest.Key, ...]:
    return tuple(release.key(release_keys.read_public(path)) for path in args.key)


def _check_version(version: str) -> None:
    if not semver.is_version(version):
        raise codes.refused(codes.NOT_A_RELEASE, semver.no_version(version))


def _write(args: argparse.Namespace, body: documents.Document) -> answers.Answer:
    """Write the unsigned document, unless it is there already."""
    path = args.output
    with release_files.locked(os.path.dirname(path)):
        there = release_files.read_if_there(path, manifest.MAX_PUBLISHED)
        try:
            result = drafts.draft(there, body)
        except codes.Refused as error:
            where = path if error.code == codes.ALREADY_EXISTS else "nothing was written"
            raise codes.refused(error.code, f"{where}: {error.text}") from None
        if result.changed:
            release_files.create(path, iter((result.published,)))
    return release_say.described(result.published, result.changed, [f"unsigned document {path}"], manifest=path)
