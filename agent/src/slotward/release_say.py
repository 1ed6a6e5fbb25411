# SPDX-License-Identifier: GPL-3.0-or-later
"""What the release command says: progress and questions on standard error, the answer's parts, consent."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Dict, Iterator, List

from slotcore import codes, describing, signing
from slotward import answers


def say(line: str) -> None:
    """A line for whoever watches."""
    print(answers.plain(line), file=sys.stderr, flush=True)


def agreed(question: str, word: str) -> bool:
    """Whether somebody at the terminal typed the word; what comes by a pipe is nobody's consent."""
    if not sys.stdin.isatty():
        return False
    print(f"{question} ({word}) ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == word


def done(product: str, changed: bool, more: Dict[str, Any], lines: List[str]) -> answers.Answer:
    """The answer of a command that did what was asked."""
    return answers.Answer(answers.DONE, {**answers.base(product, "idle", changed=changed), **more}, lines)


@contextlib.contextmanager
def about(path: str) -> Iterator[None]:
    """Name the file in a refusal of its shape."""
    try:
        yield
    except codes.Refused as error:
        if error.code not in (codes.BAD_DOCUMENT, codes.BAD_MANIFEST, codes.NOT_CANONICAL):
            raise
        raise codes.refused(error.code, f"{path}: {error.text}") from None


def described(published: bytes, changed: bool, lines: List[str], **more: object) -> answers.Answer:
    """The answer of a command that made or read a document: all that it says, and more."""
    parts = signing.read(published)
    told = {**describing.describe(parts), **more}
    return done(parts.body.product, changed, told, [*lines, *describing.lines(parts)])
