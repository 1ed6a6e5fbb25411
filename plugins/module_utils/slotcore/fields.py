# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the fields of a strict JSON object and say by its path which one is wrong.

Rules:

* An object has exactly the fields it may have, spelled exactly.
* A value is never turned into another type: ``true`` is no number, ``"1"`` no integer.
* Errors name the path, the rule and the value, cut short.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from . import canonical, rfc3339, semver

_SHA256 = re.compile(r"[0-9a-f]{64}")


class BadField(ValueError):
    """A value has another shape than its format allows."""


class Fields:
    """The fields of one object; every reader raises BadField."""

    def __init__(self, value: object, path: str, needed: Sequence[str], optional: Sequence[str] = ()) -> None:
        if not isinstance(value, dict):
            raise BadField("%s must be an object, not %s" % (path or "the whole", shown(value)))
        missing = [name for name in needed if name not in value]
        unknown = sorted(name for name in value if name not in needed and name not in optional)
        if missing or unknown:
            said = ["no " + name for name in missing] + ["the unknown field " + ascii(name) for name in unknown[:3]]
            raise BadField("%s has %s" % (path or "the whole", ", ".join(said)))
        self._values: Dict[str, object] = value
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def path(self, name: str) -> str:
        """Where `name` is, for an error."""
        return "%s.%s" % (self._path, name) if self._path else name

    def bad(self, name: str, rule: str) -> BadField:
        """The error that the field `name` breaks `rule`."""
        return BadField("%s must be %s, not %s" % (self.path(name), rule, shown(self._values[name])))

    def text(self, name: str) -> str:
        """A string."""
        value = self._values[name]
        if not isinstance(value, str):
            raise self.bad(name, "a string")
        return value

    def integer(self, name: str, most: int = canonical.MAX_INT) -> int:
        """A positive integer, at most `most`."""
        value = self._values[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.bad(name, "a positive integer")
        if value > most:
            raise self.bad(name, "at most %d" % most)
        return value

    def number(self, name: str, least: int, most: int) -> int:
        """An integer within these bounds."""
        return number(self, name, self._values[name], least, most)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._values[name]
        if not isinstance(value, bool):
            raise self.bad(name, "true or false")
        return value

    def sha256(self, name: str) -> str:
        """A SHA-256 in hexadecimal."""
        return self.matching(name, _SHA256, "64 lower-case hexadecimal digits")

    def items(self, name: str) -> List[Tuple[str, object]]:
        """A list, each item with its path."""
        value = self._values[name]
        if not isinstance(value, list):
            raise self.bad(name, "a list")
        return [("%s[%d]" % (self.path(name), number), item) for number, item in enumerate(value)]

    def mapping(self, name: str) -> Dict[str, object]:
        """An object, whatever its fields."""
        value = self._values[name]
        if not isinstance(value, dict):
            raise self.bad(name, "an object")
        return value

    def matching(self, name: str, pattern: re.Pattern[str], rule: str) -> str:
        """A string that matches `pattern` as a whole."""
        if not pattern.fullmatch(self.text(name)):
            raise self.bad(name, rule)
        return self.text(name)

    def optional(self, name: str, pattern: re.Pattern[str], rule: str) -> Optional[str]:
        """As `matching`, or None when the field is not there."""
        return self.matching(name, pattern, rule) if name in self else None

    def version(self, name: str) -> str:
        """A semantic version."""
        if not semver.is_version(self.text(name)):
            raise self.bad(name, "a semantic version such as 1.4.0")
        return self.text(name)

    def time(self, name: str) -> int:
        """A time, as seconds since 1970."""
        text = self.text(name)
        try:
            return rfc3339.parse(text)
        except ValueError as error:
            raise BadField("%s: %s" % (self.path(name), error)) from None

    def binary(self, name: str) -> bytes:
        """Bytes in base64."""
        text = self.text(name)
        try:
            return canonical.decode_base64(text)
        except ValueError as error:
            raise BadField("%s: %s" % (self.path(name), error)) from None


def read(data: bytes, what: str, limit: int) -> object:
    """The strict JSON value in `data`."""
    try:
        return canonical.parse(data, limit)
    except canonical.NotJson as error:
        raise BadField("%s is not plain JSON: %s" % (what, error)) from None


def number(found: Fields, name: str, value: object, least: int, most: int) -> int:
    """`value`, which is the field `name` or in it, as an integer within these bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise found.bad(name, "an integer from %d to %d" % (least, most))
    return value


def distinct(path: str, name: str, values: Sequence[object]) -> None:
    """Raise BadField when two items of a list have the same field."""
    seen: Dict[object, int] = {}
    for number, value in enumerate(values):
        first = seen.setdefault(value, number)
        if first != number:
            raise BadField("%s[%d].%s is the same as that of %s[%d]" % (path, number, name, path, first))


def shown(value: object) -> str:
    """A value for an error, cut short."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
