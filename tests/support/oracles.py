# SPDX-License-Identifier: GPL-3.0-or-later
"""The same questions answered by other people's code or by the shortest possible one, to hold our parsers against."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Dict, List, Optional, Tuple

MAX_INT = 2**53 - 1
MAX_DEPTH = 16
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")

Precedence = Tuple[List[int], bool, List[Tuple[int, int, str]]]


def strict_json(text: str) -> object:
    """What our rules make of a JSON text, by the standard library and a walk over its value; ValueError when refused."""

    def no(word: str) -> None:
        raise ValueError(word)

    def once(pairs: List[Tuple[str, object]]) -> Dict[str, object]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    def integer(word: str) -> int:
        if len(word) > 20 or abs(int(word)) > MAX_INT:
            raise ValueError("large")
        return int(word)

    found: object = json.loads(text, parse_float=no, parse_int=integer, parse_constant=no, object_pairs_hook=once)
    _walk(found, 1)
    return found


def _walk(value: object, depth: int) -> None:
    """Raise ValueError for what the standard library takes and our rules do not."""
    if isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, (list, dict)):
        if depth > MAX_DEPTH:
            raise ValueError("deep")
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        for item in inside:
            _walk(item, depth + 1)


def canonical_json(value: object) -> bytes:
    """The canonical spelling of a value within our rules, by the standard library's writer over sorted keys."""

    def ordered(one: object) -> object:
        if isinstance(one, dict):
            return {key: ordered(one[key]) for key in sorted(one, key=lambda key: key.encode("utf-16-be"))}
        return [ordered(item) for item in one] if isinstance(one, list) else one

    return json.dumps(ordered(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def semver(text: str) -> Optional[Precedence]:
    """A semantic version as something that Python orders by precedence, taken apart by splitting; None when it is none."""
    if not text.isascii() or len(text) > 128:
        return None
    rest, plus, build = text.partition("+")
    core, dash, pre = rest.partition("-")
    numbers, words, builds = core.split("."), pre.split("."), build.split(".")
    if len(numbers) != 3 or not all(_NUMBER.fullmatch(number) for number in numbers):
        return None
    if plus and not all(_IDENTIFIER.fullmatch(word) for word in builds):
        return None
    if dash and not all(_IDENTIFIER.fullmatch(word) for word in words):
        return None
    if dash and any(word.isdigit() and not _NUMBER.fullmatch(word) for word in words):
        return None
    found = [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in words] if dash else []
    return [int(number) for number in numbers], not dash, found


def rfc3339(text: str) -> Optional[int]:
    """Seconds since 1970 of a time in our one spelling, by the standard library's calendar; None when it is none."""
    if not (text.isascii() and text[-1:] == "Z" and text[10:11] == "T"):
        return None
    whole, dot, fraction = text[:-1].partition(".")
    if dot and not (fraction.isdigit() and len(fraction) <= 9):
        return None
    if len(whole) != 19 or not re.fullmatch(r"[0-9T:-]{19}", whole):
        return None
    try:
        when = dt.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=dt.timezone.utc)
    except ValueError:
        return None
    return (when - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(seconds=1)
