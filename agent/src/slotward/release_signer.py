# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that another program holds: a token's tool, an agent, a remote signer (docs/operator/signing.md).

Rules:
- The command gets exactly the bytes to sign on standard input, a regular file at its beginning, and no shell sees it.
- It answers the signature on standard output: DER or r||s for ES256, 64 bytes for EdDSA, nothing before or after.
- Its time and its answer are bounded; its standard error and the terminal are the operator's, for a PIN.
- Nothing of it is believed: a signature is added only when it verifies by the public key that was given.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import tempfile
import time
from typing import Callable, List, NamedTuple

from slotcore import codes, foreign, keys
from slotward import release_say

LIMIT_S = 120


class Signer(NamedTuple):
    """A key by its public half, and what signs with it."""

    name: str
    public: keys.PublicKey
    sign: Callable[[bytes], bytes]


def by_command(command: str, public: keys.PublicKey, limit_s: int) -> Signer:
    """The key that a command holds."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise codes.refused(codes.BAD_KEY, f"--key-command {command!r} cannot be split into words: {error}") from None
    if not words:
        raise codes.refused(codes.BAD_KEY, "--key-command is empty: give the program that signs, and its arguments")

    def sign(message: bytes) -> bytes:
        answer = _run(words, message, limit_s)
        found = foreign.raw_signature(public, message, answer)
        if found is None:
            text = (
                f"{words[0]} answered {len(answer)} bytes that are no {public.alg} signature of what it was given by"
                f" {public.kid}: it must sign standard input as it is (ES256: with SHA-256, DER or r||s; EdDSA: 64 bytes)"
            )
            raise codes.refused(codes.BAD_KEY, text)
        return found

    return Signer(words[0], public, sign)


def _run(words: List[str], message: bytes, limit_s: int) -> bytes:
    """What the command answers to the message; raises Refused when it fails, says too much or takes too long."""
    release_say.say(f"asking {words[0]} for a signature, for at most {limit_s} s")
    with tempfile.TemporaryFile() as given:
        given.write(message)
        given.seek(0)
        try:
            child = subprocess.Popen(words, stdin=given, stdout=subprocess.PIPE)
        except OSError as error:
            raise codes.refused(codes.BAD_KEY, f"cannot run {words[0]}: {error.strerror}") from None
    try:
        answer = _read(child, words[0], time.monotonic() + limit_s, limit_s)
    finally:
        if child.poll() is None:
            child.kill()
        if child.stdout:
            child.stdout.close()
        child.wait()
    if child.returncode != 0:
        text = f"{words[0]} ended with status {child.returncode}; what it says is above"
        raise codes.refused(codes.BAD_KEY, text)
    return answer


def _read(child: subprocess.Popen[bytes], name: str, end: float, limit_s: int) -> bytes:
    if child.stdout is None:  # it has a pipe; this is for the type checker
        return b""
    answer, output = b"", child.stdout.fileno()
    while True:
        ready, _writable, _broken = select.select([output], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            text = f"{name} gave no signature in {limit_s} s; nothing was signed (--key-timeout gives it longer)"
            raise codes.refused(codes.BAD_KEY, text)
        piece = os.read(output, foreign.MAX_ANSWER + 1)
        answer += piece
        if len(answer) > foreign.MAX_ANSWER:
            raise codes.refused(codes.BAD_KEY, f"{name} answered more than {foreign.MAX_ANSWER} bytes: no signature")
        if not piece:
            break
    try:
        child.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise codes.refused(codes.BAD_KEY, f"{name} did not end in {limit_s} s; nothing was signed") from None
    return answer
