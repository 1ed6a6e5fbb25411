# SPDX-License-Identifier: GPL-3.0-or-later
"""Read JSON so that no two readers can take it differently.

Rules:

* Bytes are UTF-8 without byte order mark, at most 1 MiB; containers nest at most 16 deep.
* At most 65,536 values in all, so that no text makes a reader work for long.
* Numbers are plain integers within plus or minus 2**53 - 1: no fraction, exponent, NaN or Infinity.
* No object names a key twice; no string holds half of a surrogate pair.
* Errors name the byte offset (the first byte is 0).
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_VALUES = 1 << 16
MAX_INT = (1 << 53) - 1

_BLANK = re.compile(r"[ \t\n\r]*")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER_TAIL = re.compile(r"[.eE0-9+-]+")
_SHORT = re.compile(r'\\(["\\/bfnrt])')
_RUN = re.compile(r'(?:[^"\\\x00-\x1f]*%s){0,256}[^"\\\x00-\x1f]*' % _SHORT.pattern)  # bounded for the memory of re
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_WORDS = (("true", True), ("false", False), ("null", None))
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class NotJson(ValueError):
    """The bytes, or the value, are not what the rules allow."""


def parse(data: bytes, limit: int = MAX_BYTES) -> object:
    """The value of `data` in any spelling that the rules allow.

    Raises:
        NotJson: naming what is wrong and at which byte.

    """
    if len(data) > limit:
        raise NotJson("%d bytes; at most %d are taken" % (len(data), limit))
    if data.startswith(b"\xef\xbb\xbf"):
        raise NotJson("byte 0: a byte order mark")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson("byte %d: not UTF-8" % error.start) from None
    reader = _Reader(text)
    value = reader.value(1)
    if reader.at != len(text):
        raise reader.fault("expected the end, found %s" % reader.seen())
    return value


class _Reader:
    """Reads one text from left to right; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.values = 0

    def fault(self, what: str) -> NotJson:
        return NotJson("byte %d: %s" % (len(self.text[: self.at].encode("utf-8")), what))

    def seen(self) -> str:
        return ascii(self.text[self.at]) if self.at < len(self.text) else "the end"

    def blank(self) -> None:
        self.at = self._after(_BLANK)

    def _after(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        return match.end() if match else self.at

    def take(self, token: str) -> bool:
        """Step over `token` when it is next."""
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def value(self, depth: int) -> object:
        """One value and the white space around it."""
        self.blank()
        found = self._value(depth)
        self.blank()
        return found

    def _value(self, depth: int) -> object:
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.fault("more than %d values" % MAX_VALUES)
        start = self.text[self.at : self.at + 1]
        if start == '"':
            return self.string()
        if start in ("{", "["):
            if depth > MAX_DEPTH:
                raise self.fault("nested deeper than %d" % MAX_DEPTH)
            self.at += 1
            return self.object(depth) if start == "{" else self.array(depth)
        for word, value in _WORDS:
            if self.take(word):
                return value
        return self.integer()

    def items(self, close: str, item: Callable[[], None]) -> None:
        """Comma-separated items up to `close`."""
        self.blank()
        if self.take(close):
            return
        item()
        while not self.take(close):
            if not self.take(","):
                raise self.fault("expected ',' or '%s', found %s" % (close, self.seen()))
            item()

    def array(self, depth: int) -> List[object]:
        found: List[object] = []
        self.items("]", lambda: found.append(self.value(depth + 1)))
        return found

    def object(self, depth: int) -> Dict[str, object]:
        found: Dict[str, object] = {}

        def member() -> None:
            self.blank()
            start = self.at
            key = self.string()
            if key in found:
                self.at = start
                raise self.fault("the key %s is there twice" % ascii(key))
            self.blank()
            if not self.take(":"):
                raise self.fault("expected ':', found %s" % self.seen())
            found[key] = self.value(depth + 1)

        self.items("}", member)
        return found

    def integer(self) -> int:
        start, end = self.at, self._after(_INTEGER)
        if start == end:
            raise self.fault("expected a value, found %s" % self.seen())
        self.at = end
        if self._after(_NUMBER_TAIL) != end:
            self.at = start
            raise self.fault("not a plain integer")
        digits = self.text[start:end]
        if len(digits) > len("-%d" % MAX_INT) or abs(int(digits)) > MAX_INT:
            self.at = start
            raise self.fault("an integer beyond 2**53 - 1")
        return int(digits)

    def string(self) -> str:
        if not self.take('"'):
            raise self.fault("expected a string, found %s" % self.seen())
        parts: List[str] = []
        while not self.take('"'):
            start, self.at = self.at, self._after(_RUN)
            if self.at != start:
                parts.append(_SHORT.sub(lambda short: _ESCAPES[short.group(1)], self.text[start : self.at]))
            elif self.take("\\"):
                parts.append(self.escape())
            else:
                raise self.fault("expected the rest of a string, found %s" % self.seen())
        return "".join(parts)

    def escape(self) -> str:
        unit = self.unit()
        if 0xD800 <= unit < 0xDC00 and self.take("\\"):
            low = self.unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
        if 0xD800 <= unit < 0xE000:
            raise self.fault("half of a surrogate pair")
        return chr(unit)

    def unit(self) -> int:
        if self.take("u"):
            end = self._after(_HEX4)
            if end != self.at:
                digits, self.at = self.text[self.at : end], end
                return int(digits, 16)
        raise self.fault("an escape that JSON does not have")
