# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions and their order, after Semantic Versioning 2.0.0.

Rules:

* ``major.minor.patch``, then ``-pre.release`` and ``+build`` parts; numbers have no leading zero; no ``v`` in front.
* At most 128 characters: a version becomes part of file names.
* Order is by precedence, in which build parts do not count; two versions can be equal there and differ in spelling.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

MAX_LENGTH = 128

_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRE = r"(?:%s|[0-9]*[A-Za-z-][0-9A-Za-z-]*)" % _NUMBER
_VERSION = re.compile(
    r"(%s)\.(%s)\.(%s)(?:-(%s(?:\.%s)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    % (_NUMBER, _NUMBER, _NUMBER, _PRE, _PRE)
)

# A pre-release identifier as it sorts: numbers before words.
_Identifier = Tuple[bool, int, str]
# A version as it sorts: the numbers, then "is not a pre-release", then the identifiers.
Precedence = Tuple[int, int, int, bool, Tuple[_Identifier, ...]]


class Version(NamedTuple):
    """One version; compare `precedence`, never the tuple."""

    text: str
    precedence: Precedence
    build: str


def parse(text: str) -> Optional[Version]:
    """The version that `text` is, or None."""
    match = _VERSION.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if not match:
        return None
    major, minor, patch, pre, build = match.groups()
    identifiers = tuple(_identifier(part) for part in pre.split(".")) if pre else ()
    return Version(text, (int(major), int(minor), int(patch), not pre, identifiers), build or "")


def is_version(text: str) -> bool:
    """True when `text` is a semantic version."""
    return parse(text) is not None


def no_version(text: str) -> str:
    """The sentence for a text that is none."""
    return '"%s" is not a release version, such as 1.2.0' % text


def older(first: Version, second: Version) -> bool:
    """True when `first` comes before `second`."""
    return first.precedence < second.precedence


def is_older(text: str, than: Optional[str]) -> bool:
    """True when both are versions and the first comes before the second."""
    one, other = parse(text), parse(than or "")
    return one is not None and other is not None and older(one, other)


def _identifier(part: str) -> _Identifier:
    return (False, int(part), "") if part.isdigit() else (True, 0, part)
