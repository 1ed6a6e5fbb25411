# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release inspect`, `sign`, `merge` and `verify`: signatures on a document of any kind, made apart and put together.

Rules:
- Whoever signs is shown everything that the signature covers, and what jumps since the documents before.
- A jump is signed only by somebody who typed the word, or with `--accept-jump`; `--yes` is not enough.
- A document is replaced only by itself with more signatures, under its directory's lock.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import List, Optional, Sequence, Tuple, cast

from slotcore import codes, describing, documents, jumps, keys, manifest, release, signing, verifying
from slotward import answers, release_files, release_keys, release_pins, release_say, release_signer

JUMP_WORD = "jump"


def inspect(args: argparse.Namespace) -> answers.Answer:
    """Everything that a document says, and who signed it."""
    published = release_files.read(args.manifest, manifest.MAX_PUBLISHED)
    with release_say.about(args.manifest):
        return release_say.described(published, False, [], manifest=args.manifest)


def sign(args: argparse.Namespace) -> answers.Answer:
    """Show the document and what jumps, ask, and add one signature."""
    path = args.manifest
    with release_say.about(path):
        parts = signing.read(release_files.read(path, manifest.MAX_PUBLISHED))
    known = _known(args, parts)
    before = _before(args, parts)
    found = _jumps(parts, before)
    release_say.say("about to sign with " + (args.key_command if args.key is None else args.key))
    for line in describing.lines(parts):
        release_say.say("  " + line)
    _say_pins(args, parts, before)
    for jump in found:
        release_say.say("  JUMP: " + jump)
    if known is None or not _has_signed(parts, known.public):
        _agree(args, found)
    signer = known or _signer(args)
    signing.listed_as(parts, signer.public)
    with release_files.locked(os.path.dirname(path)):
        there = release_files.read(path, manifest.MAX_PUBLISHED)
        if signing.read(there).form.body != parts.form.body:
            raise codes.refused(codes.RELEASES_DIFFER, f"{path} changed while you read it; sign again")
        result = signing.sign(there, signer.public, signer.sign)
        if result.changed:
            release_files.replace(path, result.published)
    lines = [f"signed by {signer.public.kid}" if result.changed else f"already signed by {signer.public.kid}"]
    more = {"manifest": path, "kid": signer.public.kid, "jumps": list(found)}
    return release_say.described(result.published, result.changed, lines, **more)


def merge(args: argparse.Namespace) -> answers.Answer:
    """Put the signatures of several copies of one document together."""
    given = [_document(path) for path in args.file]
    with release_files.locked(os.path.dirname(args.output)):
        there = _document(args.output) if os.path.lexists(args.output) else None
        merged = signing.merge(given if there is None else [*given, there])
        if there is None:
            release_files.create(args.output, iter((merged,)))
        elif there != merged:
            release_files.replace(args.output, merged)
    return release_say.described(merged, there != merged, [f"document {args.output}"], manifest=args.output)


def verify(args: argparse.Namespace) -> answers.Answer:
    """Check a document as a host with these pins would, and files against a release."""
    pins = release_pins.of(args)
    published = release_files.read(args.manifest, manifest.MAX_PUBLISHED)
    with release_say.about(args.manifest):
        parts, signers = verifying.judge(published, pins, args.threshold, args.at)
    checked = [matching(path, parts) for path in args.artifact]
    lines = [f"signed by {len(signers)} of {len(pins)} pinned keys, {args.threshold} needed"]
    lines += [f"{path} is {name}" for path, name in zip(args.artifact, checked)]
    more = {"signers": list(signers), "threshold": args.threshold, "checked": checked}
    return release_say.described(published, False, lines, **more)


def matching(path: str, parts: signing.Parts) -> str:
    """The name of the artifact that the file is, by its bytes and, when the name is one of the release's, by name."""
    body = parts.body
    if not isinstance(body, manifest.Manifest):
        raise codes.refused(codes.NO_ARTIFACT, f"a {parts.kind.name} has no files: leave --artifact out")
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


def _document(path: str) -> bytes:
    """The bytes of a document of any kind, which they must be."""
    data = release_files.read(path, manifest.MAX_PUBLISHED)
    with release_say.about(path):
        signing.read(data)
    return data


def _before(args: argparse.Namespace, parts: signing.Parts) -> List[release_pins.Counted]:
    """The documents before this one, and on standard error which one it is compared with."""
    if parts.kind not in (documents.RELEASE, documents.KEY_SET):
        return []
    before = release_pins.previous(args, parts.kind, parts.body.product)
    others = [one for one in before if one.parts.body != parts.body]
    if not others:
        nothing = "nothing there verifies" if args.previous else "give --previous DIR and --pins"
        release_say.say(f"not compared with an earlier {parts.kind.name}: {nothing}")
    else:
        release_say.say(f"compared with {others[-1].path}: {documents.named(others[-1].parts.body)}")
    return others


def _jumps(parts: signing.Parts, before: Sequence[release_pins.Counted]) -> Tuple[str, ...]:
    """What jumps since the documents before, and ahead of this machine's clock."""
    if parts.kind not in (documents.RELEASE, documents.KEY_SET):
        return ()
    ahead = jumps.ahead(cast(manifest.Manifest, parts.body), int(time.time()))
    if not before:
        return ahead
    bodies = [one.parts.body for one in before]
    if isinstance(parts.body, manifest.Manifest):
        return ahead + jumps.of_release(parts.body, cast(List[manifest.Manifest], bodies))
    return ahead + jumps.of_key_set(cast(documents.KeySet, parts.body), cast(List[documents.KeySet], bodies))


def _say_pins(args: argparse.Namespace, parts: signing.Parts, before: Sequence[release_pins.Counted]) -> None:
    """What a key set does to the pins that count now: those of the set before, else those given, else nobody knows here."""
    if not isinstance(parts.body, documents.KeySet):
        return
    if before:
        pins = cast(documents.KeySet, before[-1].parts.body).pins
        whose = before[-1].path
    elif args.pins or args.pins_file:
        pins, whose = release_pins.parse(args.pins, args.pins_file), args.pins_file or "--pins"
    else:
        release_say.say(
            "  these pins were compared with nothing: compare each with your own list of pins before you sign"
        )
        return
    release_say.say(f"  its pins beside those of {whose}:")
    for line in jumps.pin_lines(parts.body, pins):
        release_say.say("    " + line)


def _known(args: argparse.Namespace, parts: signing.Parts) -> Optional[release_signer.Signer]:
    """Who signs, where nobody has to be asked for it yet; raises for a file that holds no private key.

    A locked key is opened before the question only where its public half beside it says that there will be none.
    """
    if args.key_command is not None:
        return _signer(args)
    key = release_keys.read_unasked(args.key, args.passphrase_file)
    if key is None:
        hint = release_keys.beside(args.key)
        return _signer(args) if hint is not None and _has_signed(parts, hint) else None
    return release_signer.Signer(args.key, key.public, key.sign)


def _has_signed(parts: signing.Parts, public: keys.PublicKey) -> bool:
    kids = [one.kid for one in parts.body.keys if one.spki == public.spki]
    return any(one.kid in kids for one in signing.good(parts))


def _agree(args: argparse.Namespace, found: Sequence[str]) -> None:
    """Raise Refused unless somebody agrees, to the jumps too."""
    if found and not args.accept_jump:
        if not release_say.agreed("this jumps; type the word to sign it all the same", JUMP_WORD):
            text = (
                f"nothing was signed: {'; '.join(found)}; when that is meant, type {JUMP_WORD} on a terminal, or give"
                " --accept-jump, for which --yes is not enough"
            )
            raise codes.refused(codes.NOT_AGREED, text)
    elif not args.yes and not release_say.agreed("sign this?", "yes"):
        text = (
            "nothing was signed: type yes on a terminal (what comes by a pipe is not taken), or give --yes after reading what is"
            " signed"
        )
        raise codes.refused(codes.NOT_AGREED, text)


def _signer(args: argparse.Namespace) -> release_signer.Signer:
    """Who signs: a key in a file, or a command that holds one."""
    if args.key_command is None:
        key = release_keys.read_private(args.key, args.passphrase_file)
        return release_signer.Signer(args.key, key.public, key.sign)
    if args.public_key is None:
        raise codes.refused(
            codes.BAD_KEY, "--key-command needs --public-key PUB.pem: what it answers is verified by it"
        )
    public = release_keys.read_public(args.public_key)
    return release_signer.by_command(args.key_command, public, args.key_timeout)
