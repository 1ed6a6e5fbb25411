# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release build`: from artifacts to an unsigned manifest beside copies of them.

Rules:
- What a file's name and first bytes say about it must fit the release; an archive is read to its end.
- The next sequence is counted from manifests that verify, never from a catalogue.
- The bytes that were judged are the bytes that are measured and copied.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from typing import Iterator, Optional, Tuple, cast

from slotcore import archive, artifacts, codes, documents, jumps, manifest, program, release, semver, unpacking
from slotward import answers, release_files, release_keys, release_pins, release_say

DAY_S = 86400
NEXT = "next"


def build(args: argparse.Namespace) -> answers.Answer:
    """Look at the artifacts, hash them, write the unsigned manifest beside copies of them."""
    if not semver.is_version(args.version):
        raise codes.refused(codes.NOT_A_RELEASE, semver.no_version(args.version))
    sequence, counted = _sequence(args)
    sources = [_measured(args, spec) for spec in args.artifact]
    wanted = manifest.Manifest(
        product=args.product,
        version=args.version,
        sequence=sequence,
        issued_at=args.issued_at,
        expires_at=args.issued_at + args.expires_days * DAY_S,
        keys=tuple(release.key(release_keys.read_public(path)) for path in args.key),
        artifacts=tuple(entry for _path, entry in sources),
        channel=args.channel,
        min_from=args.min_from,
        epoch=args.epoch,
    )
    release.build_manifest(wanted)  # a name that is none must not become a directory
    directory = os.path.join(args.output, release.directory(args.product, args.version))
    path = os.path.join(directory, release.MANIFEST_NAME)
    release_files.make_directory(directory)
    with release_files.locked(directory):
        result = release.build(release_files.read_if_there(path, manifest.MAX_PUBLISHED), wanted)
        changed = result.changed
        for source, entry in sources:
            copied = release_files.copy(source, os.path.join(directory, entry.name), entry.sha256, entry.size)
            changed = changed or copied
        if result.changed:
            release_files.create(path, iter((result.published,)))
    lines = [f"manifest {path}"]
    return release_say.described(result.published, changed, lines, manifest=path, counted=counted)


def _sequence(args: argparse.Namespace) -> Tuple[int, Optional[str]]:
    """The sequence given, or the next one and the manifest that it was counted from."""
    if args.sequence != NEXT:
        return _above(args, int(args.sequence)), None
    if not args.previous:
        text = (
            "--sequence next is counted from verified manifests: give --previous DIR, or --sequence N (1 for the first)"
        )
        raise codes.refused(codes.BAD_RELEASE, text)
    found = release_pins.previous(args, documents.RELEASE, args.product)
    sequence, last = jumps.next_sequence(args.version, [cast(manifest.Manifest, one.parts.body) for one in found])
    if last is None:
        places = ", ".join(args.previous)
        text = f"no release of {args.product} at {places} verifies, so there is nothing to count from: the first has --sequence 1"
        raise codes.refused(codes.BAD_RELEASE, text)
    path = next(one.path for one in found if one.parts.body == last)
    release_say.say(f"sequence {sequence}, counted from {path}: {last.product} {last.version} has {last.sequence}")
    return sequence, path


def _above(args: argparse.Namespace, sequence: int) -> int:
    """The sequence given, when it is above those of the releases before, or the very one that this version has."""
    found = release_pins.previous(args, documents.RELEASE, args.product)
    bodies = [cast(manifest.Manifest, one.parts.body) for one in found]
    if not found and args.previous:
        release_say.say(
            f"no release of {args.product} at {', '.join(args.previous)} verifies: --sequence {sequence} is taken as it is"
        )
    if not found or sequence > bodies[-1].sequence:
        return sequence
    if any((one.version, one.sequence) == (args.version, sequence) for one in bodies):
        return sequence
    last = bodies[-1]
    text = (
        f"sequence {sequence} is not above {last.sequence}, which {last.product} {last.version} has ({found[-1].path}): "
        f"give --sequence {last.sequence + 1}, or {NEXT}"
    )
    raise codes.refused(codes.BAD_RELEASE, text)


class _Meter:
    """A file's pieces as they are read, their digest and number, and the first bytes."""

    def __init__(self, path: str) -> None:
        self._digest = hashlib.sha256()
        self._pieces = release_files.chunks(path)
        self.size = 0
        self.head = b""

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._digest.update(piece)
            self.size += len(piece)
            self.head = (self.head + piece[: program.HEAD])[: program.HEAD]
            yield piece

    def finish(self) -> str:
        """Read what is left; the digest of the whole."""
        for _piece in self:
            pass
        return self._digest.hexdigest()


def _measured(args: argparse.Namespace, spec: str) -> Tuple[str, manifest.Artifact]:
    """An artifact's path and its entry, from ``FILE[:os-arch[:variant]]``, once it was looked at."""
    path, platform, kind, variant = artifacts.source(spec, args.product, args.version)
    meter = _Meter(path)
    if kind == manifest.KINDS[1]:
        _check_archive(path, meter, args)
    sha256 = meter.finish()
    if kind == manifest.KINDS[0] and not args.no_program_check:
        refusal = program.check(path, meter.head, platform)
        if refusal is not None:
            raise codes.refused(refusal.code, f"{refusal.text}; --no-program-check takes it all the same")
    said = ("" if kind == manifest.KINDS[0] else f", {kind}") + (f", variant {variant}" if variant else "")
    release_say.say(f"{path}: {meter.size} bytes, {platform}{said}")
    if platform not in artifacts.HOSTS:
        hosts = " and ".join(artifacts.HOSTS)
        release_say.say(
            f"warning: {path}: the agent is made for hosts that call themselves {hosts}; none of them takes a file for {platform}"
        )
    return path, release.artifact(args.product, args.version, platform, sha256, meter.size, kind, variant)


def _check_archive(path: str, meter: _Meter, args: argparse.Namespace) -> None:
    """Refuse an archive that hosts would refuse, by the host's own reader."""
    try:
        entries = archive.check(meter)
    except codes.Refused as error:
        raise codes.refused(error.code, f"{path}: {error.text}") from None
    laid_out = unpacking.lay_out(entries, args.program or args.product)
    if isinstance(laid_out, codes.Refusal):
        raise codes.refused(laid_out.code, f"{path}: {laid_out.text}")
    release_say.say(f"{path}: {len(entries)} members, the program is {laid_out.program}")
