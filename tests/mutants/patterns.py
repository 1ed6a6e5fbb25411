# SPDX-License-Identifier: GPL-3.0-or-later
"""Small changes of a regular expression: a grammar that is a little wider or a little narrower than it should be.

One change at a time: a member of a character class left out; a class that takes any character; a repetition with one
more or one less at an end; an alternative left out; an escaped character that loses its backslash.
"""

from __future__ import annotations

import re
from typing import Iterator, List, Tuple

_TOKEN = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[0-9,]+\}|\(\?:|%s|.", re.DOTALL)
_MEMBER = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\.|[^\\])(?:-(?:\\x[0-9a-fA-F]{2}|\\.|[^\\]))?", re.DOTALL)
_REPEATED = {"*": ["+"], "+": ["*", ""], "?": [""]}


def changed(pattern: str) -> Iterator[str]:
    """Every pattern that is one small change away."""
    tokens = _TOKEN.findall(pattern)
    for at, token in enumerate(tokens):
        for new in _changed_token(token):
            yield "".join([*tokens[:at], new, *tokens[at + 1 :]])
    for start, end in _alternatives(tokens):
        yield "".join([*tokens[:start], *tokens[end:]])


def _changed_token(token: str) -> Iterator[str]:
    if token in _REPEATED:
        yield from _REPEATED[token]
    elif token.startswith("[") and len(token) > 1:
        yield from _changed_class(token)
    elif token.startswith("{"):
        yield from _changed_counts(token)
    elif len(token) == 2 and token[0] == "\\" and not token[1].isalnum():
        yield token[1]


def _changed_class(token: str) -> Iterator[str]:
    head = "[^" if token.startswith("[^") else "["
    members = _MEMBER.findall(token[len(head) : -1])
    yield r"[\s\S]"
    if len(members) > 1:
        for at in range(len(members)):
            yield head + "".join([*members[:at], *members[at + 1 :]]) + "]"


def _changed_counts(token: str) -> Iterator[str]:
    counts = token[1:-1].split(",")
    for at, count in enumerate(counts):
        for new in (int(count) - 1, int(count) + 1) if count else ():
            if new >= 0:
                yield "{%s}" % ",".join([*counts[:at], str(new), *counts[at + 1 :]])


def _alternatives(tokens: List[str]) -> Iterator[Tuple[int, int]]:
    """Where each alternative lies, with one bar beside it."""
    open_at = [0]
    bars: List[List[int]] = [[]]
    for at, token in enumerate([*tokens, ")"]):
        if token in ("(", "(?:"):
            open_at.append(at + 1)
            bars.append([])
        elif token == "|":
            bars[-1].append(at)
        elif token == ")":
            start, found = open_at.pop(), bars.pop()
            if found:
                yield start, found[0] + 1
                yield from zip(found, [*found[1:], at])
            if not open_at:
                return
