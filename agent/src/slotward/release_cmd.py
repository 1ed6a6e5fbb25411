# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release`: make keys, build, sign, merge and verify releases (docs/design/releases.md).

Rules:
- The command reads and writes files; what a release is and who may sign it is decided in `slotcore`.
- Nothing is overwritten but a manifest by the same manifest with more signatures.
- Standard output carries the answer; what is about to be signed, questions and progress go to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Callable, Dict, List, Sequence, Tuple

from slotcore import codes, keys, manifest, release, rfc3339, semver, signatures, target
from slotward import answers, release_files, release_help, release_keys, release_say

DAY_S = 86400


def main(argv: Sequence[str]) -> int:
    """Run one release command; answers the exit status of node.md, section 6."""
    args = release_help.parser().parse_args(argv)
    try:
        answer = RUN[args.action](args)
    except answers.CODED as error:
        answer = answers.of_error(getattr(args, "product", ""), error)
    except release_files.Failed as error:
        told = answers.base(getattr(args, "product", ""), "failed", error.code, error.text)
        answer = answers.Answer(answers.FAILED, told, [f"failed ({error.code}): {error.text}"])
    except keys.Unavailable as error:
        answer = answers.of_error("", codes.refused(codes.NO_CRYPTOGRAPHY, str(error)))
    except KeyboardInterrupt:
        release_say.say("interrupted; nothing is half written")
        return answers.FAILED
    return _print(answer, args.json)


def build(args: argparse.Namespace) -> answers.Answer:
    """Hash the artifacts, write the unsigned manifest beside copies of them."""
    if not semver.is_version(args.version):
        raise codes.refused(codes.NOT_A_RELEASE, f'"{args.version}" is not a release version')
    sources = [_measured(args, spec) for spec in args.artifact]
    listed = [release.key(release_keys.read_public(path)) for path in args.key]
    wanted = manifest.Manifest(
        product=args.product,
        version=args.version,
        sequence=args.sequence,
        issued_at=args.issued_at,
        expires_at=args.issued_at + args.expires_days * DAY_S,
        keys=tuple(listed),
        artifacts=tuple(entry for _path, entry in sources),
        channel=args.channel,
        min_from=args.min_from,
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
    return _described(result.published, changed, [f"manifest {path}"], manifest=path)


def sign(args: argparse.Namespace) -> answers.Answer:
    """Show the release, ask, and add one signature."""
    path = args.manifest
    shown = release_files.read(path, manifest.MAX_PUBLISHED)
    parts = release.read(shown)
    release_say.say("about to sign with " + args.key)
    for line in release.describe_lines(shown):
        release_say.say("  " + line)
    if not args.yes and not release_say.agreed("sign this?", "yes"):
        raise codes.refused(
            codes.NOT_AGREED, "nothing was signed: answer yes, or give --yes after reading what is signed"
        )
    key = release_keys.read_private(args.key, args.passphrase_file)
    with release_files.locked(os.path.dirname(path)):
        there = release_files.read(path, manifest.MAX_PUBLISHED)
        if release.read(there).form.body != parts.form.body:
            raise codes.refused(codes.RELEASES_DIFFER, f"{path} changed while you read it; sign again")
        result = release.sign(there, key.public, key.sign)
        if result.changed:
            release_files.replace(path, result.published)
    lines = [f"signed by {key.public.kid}" if result.changed else f"already signed by {key.public.kid}"]
    return _described(result.published, result.changed, lines, manifest=path, kid=key.public.kid)


def merge(args: argparse.Namespace) -> answers.Answer:
    """Put the signatures of several copies of one manifest together."""
    given = [release_files.read(path, manifest.MAX_PUBLISHED) for path in args.file]
    with release_files.locked(os.path.dirname(args.output)):
        there = release_files.read_if_there(args.output, manifest.MAX_PUBLISHED)
        merged = release.merge(given if there is None else [*given, there])
        if there is None:
            release_files.create(args.output, iter((merged,)))
        elif there != merged:
            release_files.replace(args.output, merged)
    return _described(merged, there != merged, [f"manifest {args.output}"], manifest=args.output)


def verify(args: argparse.Namespace) -> answers.Answer:
    """Check a published manifest as a host with these pins would, and files against it."""
    pins = _pins(args)
    published = release_files.read(args.manifest, manifest.MAX_PUBLISHED)
    found = signatures.verify_release(published, pins, args.threshold)
    if isinstance(found, codes.Refusal):
        raise codes.Refused(found)
    if args.at >= found.manifest.expires_at:
        text = f"the release manifest expired at {rfc3339.render(found.manifest.expires_at)}"
        raise codes.refused(codes.EXPIRED, text)
    checked = [_matching(path, found.manifest) for path in args.artifact]
    lines = [f"signed by {len(found.signers)} of {len(pins)} pinned keys, {args.threshold} needed"]
    lines += [f"{path} is {name}" for path, name in zip(args.artifact, checked)]
    return _described(published, False, lines, signers=list(found.signers), threshold=args.threshold, checked=checked)


RUN: Dict[str, Callable[[argparse.Namespace], answers.Answer]] = {
    "keygen": release_keys.keygen,
    "build": build,
    "sign": sign,
    "merge": merge,
    "verify": verify,
}


def _measured(args: argparse.Namespace, spec: str) -> Tuple[str, manifest.Artifact]:
    """An artifact's path and its entry, from ``FILE`` or ``FILE:os-arch``."""
    path, _colon, platform = spec.rpartition(":")
    if not path or not manifest.is_platform(platform):
        path, platform = spec, target.platform_of(os.path.basename(spec)) or ""
    if not platform:
        text = f"cannot tell the platform of {path}: its name does not end in _os_arch; write {path}:linux-amd64"
        raise codes.refused(codes.BAD_RELEASE, text)
    sha256, size = release.measure(release_files.chunks(path))
    release_say.say(f"{path}: {size} bytes, {platform}")
    return path, release.artifact(args.product, args.version, platform, sha256, size)


def _matching(path: str, body: manifest.Manifest) -> str:
    """The name of the artifact that the file is, by its bytes and, when the name is one of the release's, by name."""
    sha256, size = release.measure(release_files.chunks(path))
    named = [one for one in body.artifacts if one.name == os.path.basename(path)]
    for one in named or [one for one in body.artifacts if one.sha256 == sha256]:
        if one.size != size:
            raise codes.refused(codes.SIZE_MISMATCH, f"{path} is {size} bytes; the manifest says {one.size}")
        if one.sha256 != sha256:
            raise codes.refused(codes.DIGEST_MISMATCH, f"{path} has sha256 {sha256}; the manifest says {one.sha256}")
        return one.name
    listed = ", ".join(one.name for one in body.artifacts)
    raise codes.refused(codes.NO_ARTIFACT, f"{path} is none of the release's files ({listed}), by name or by sha256")


def _pins(args: argparse.Namespace) -> Tuple[str, ...]:
    text = args.pins or ""
    if args.pins_file:
        text = ",".join(
            release_files.read(args.pins_file, release_keys.MAX_KEY_FILE)
            .decode("utf-8", "replace")
            .replace(",", " ")
            .split()
        )
    try:
        pins = keys.parse_pins(text)
    except ValueError as error:
        raise codes.refused(codes.NO_PINS, f"{args.pins_file or '--pins'}: {error}") from None
    if not 1 <= args.threshold <= max(len(pins), 1):
        text = f"a threshold of {args.threshold} cannot be met: it is 1 to the number of distinct pins, {len(pins)}"
        raise codes.refused(codes.TOO_FEW_SIGNATURES, text)
    if not pins:
        raise codes.refused(codes.NO_PINS, "no pins: give --pins or --pins-file")
    return pins


def _described(published: bytes, changed: bool, lines: List[str], **more: object) -> answers.Answer:
    told = release.describe(published)
    return release_say.done(
        str(told["product"]), changed, {**told, **more}, [*lines, *release.describe_lines(published)]
    )


def _print(answer: answers.Answer, as_json: bool) -> int:
    stream = sys.stderr if answer.exit == answers.REFUSED and not as_json else sys.stdout
    text = "\n".join(answer.lines)
    if as_json:
        import json

        text = json.dumps(answer.json, sort_keys=True)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:  # whoever reads has seen enough: what was done stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return answer.exit
