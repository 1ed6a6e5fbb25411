# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys for the release command: made, read from files, opened with a passphrase.

Rules:
- A private key is written encrypted unless `--no-passphrase` says otherwise in so many words.
- A passphrase comes from a file's first line or from the terminal, never from the command line or a pipe.
- Nothing here prints a key or a passphrase.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Callable, Optional, TypeVar

from slotcore import codes, keys
from slotward import answers, release_files, release_say

MAX_KEY_FILE = 64 << 10
Loaded = TypeVar("Loaded")


def keygen(args: argparse.Namespace) -> answers.Answer:
    """Write a new private key and its public half."""
    private_path, public_path = args.output, args.output.removesuffix(".pem") + ".pub.pem"
    for path in (private_path, public_path):
        if os.path.lexists(path):
            text = f"{path} is there and is not overwritten; choose another name or remove it by hand"
            raise codes.refused(codes.ALREADY_EXISTS, text)
    keys.require()
    secret = _new_passphrase(args)
    key = keys.generate(args.alg)
    release_files.create(private_path, iter((key.pem(secret),)), 0o600)
    release_files.create(public_path, iter((keys.public_pem(key.public),)))
    if secret is None:
        release_say.say(f"{private_path} is not encrypted: whoever reads it can sign")
    told = {"alg": key.public.alg, "kid": key.public.kid, "pin": key.public.pin}
    lines = [
        f"private key {private_path}",
        f"public key {public_path}",
        f"kid {key.public.kid}",
        f"pin {key.public.pin}",
    ]
    more = {**told, "private": private_path, "public": public_path, "encrypted": secret is not None}
    return release_say.done("", True, more, lines)


def read_private(path: str, passphrase_file: Optional[str]) -> keys.PrivateKey:
    """The private key in a file; on a terminal its passphrase is asked for when it needs one."""
    secret = _from_file(passphrase_file) if passphrase_file else None
    try:
        return _read(path, lambda data: keys.load_private(data, secret))
    except keys.Locked as error:
        if not sys.stdin.isatty():
            text = f"{path}: {error}; give --passphrase-file FILE, or run on a terminal"
            raise codes.refused(codes.BAD_KEY, text) from None
    asked = _asked(f"passphrase of {path}: ")
    return _read(path, lambda data: keys.load_private(data, asked))


def read_unasked(path: str, passphrase_file: Optional[str]) -> Optional[keys.PrivateKey]:
    """As `read_private`, or None for a key whose passphrase would have to be asked for."""
    if passphrase_file:
        return read_private(path, passphrase_file)
    try:
        return _read(path, keys.load_private)
    except keys.Locked:
        return None


def beside(path: str) -> Optional[keys.PublicKey]:
    """The public key that keygen wrote beside a private one, if it is still there; a hint, no more."""
    try:
        return read_public(path.removesuffix(".pem") + ".pub.pem")
    except (codes.Refused, release_files.Failed):
        return None


def read_public(path: str) -> keys.PublicKey:
    """The public key in a file; a private key there is refused."""
    return _read(path, keys.load_public)


def _read(path: str, load: Callable[[bytes], Loaded]) -> Loaded:
    try:
        return load(release_files.read(path, MAX_KEY_FILE))
    except keys.Locked:
        raise
    except keys.BadKey as error:
        raise codes.refused(codes.BAD_KEY, f"{path}: {error}") from None


def _new_passphrase(args: argparse.Namespace) -> Optional[bytes]:
    """What a new key is encrypted with; None only when that was asked for."""
    if args.no_passphrase:
        return None
    if args.passphrase_file:
        return _from_file(args.passphrase_file)
    if not sys.stdin.isatty():
        text = "no passphrase for the new key: run on a terminal, give --passphrase-file FILE, or say --no-passphrase"
        raise codes.refused(codes.BAD_KEY, f"{text} for a key that is not encrypted")
    first = _asked("passphrase for the new key: ")
    if _asked("the same again: ") != first:
        raise codes.refused(codes.BAD_KEY, "the two passphrases differ; nothing was written, try again")
    return first


def _from_file(path: str) -> bytes:
    found = release_files.read(path, MAX_KEY_FILE).split(b"\n")[0].rstrip(b"\r")
    if not found:
        raise codes.refused(codes.BAD_KEY, f"{path}: its first line, the passphrase, is empty")
    return found


def _asked(question: str) -> bytes:
    """A passphrase typed on the terminal, not shown."""
    import getpass

    try:
        found = getpass.getpass(question, sys.stderr)
    except EOFError:
        found = ""
    if not found:
        raise codes.refused(codes.BAD_KEY, "the passphrase is empty; nothing was written, try again")
    return found.encode("utf-8", "surrogateescape")
