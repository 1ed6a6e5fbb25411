# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON with one spelling for every value, and nothing that two readers could take differently.

Rules:

* Bytes are UTF-8 without byte order mark, at most 1 MiB; containers nest at most 16 deep, 65,536 values in all.
* Numbers are plain integers within plus or minus 2**53 - 1: no fraction, exponent, NaN or Infinity.
* No object names a key twice; no string holds half of a surrogate pair.
* Canonical: keys sorted by UTF-16 code units, no white space, escapes as ``JSON.stringify`` writes them.
* ``parse`` takes any spelling within these rules, ``decode`` only the canonical one, ``encode`` writes that one.
* Errors name the place: byte offsets (the first byte is 0) when reading, a path such as ``$.keys[0]`` when writing.
* Base64 has one spelling too: standard alphabet, full padding, no unused bits, no line ends.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Dict, List, Tuple, Union

from . import strictjson

MAX_BYTES = strictjson.MAX_BYTES
MAX_DEPTH = strictjson.MAX_DEPTH
MAX_VALUES = strictjson.MAX_VALUES
MAX_INT = strictjson.MAX_INT
NotJson = strictjson.NotJson
parse = strictjson.parse

_MUST_ESCAPE = re.compile(r'["\\\x00-\x1f]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class NotCanonical(ValueError):
    """The bytes are allowed JSON but not its canonical spelling."""


def decode(data: bytes) -> object:
    """The value of `data`, which must be byte for byte canonical.

    Raises:
        NotJson: as `parse`.
        NotCanonical: naming the first byte that the canonical form has otherwise.

    """
    value = parse(data)
    check_canonical(value, data)
    return value


def check_canonical(value: object, data: bytes) -> None:
    """Raise NotCanonical unless `data` is the canonical spelling of the `value` parsed from it."""
    wanted = encode(value)
    if data == wanted:
        return
    at = next((n for n, (a, b) in enumerate(zip(data, wanted)) if a != b), min(len(data), len(wanted)))
    raise NotCanonical("byte %d: found %s, the canonical form has %s" % (at, _byte(data, at), _byte(wanted, at)))


def encode(value: object, limit: int = MAX_BYTES) -> bytes:
    """The canonical spelling of a value made of None, bool, int, str, list, tuple and dict.

    Raises:
        NotJson: naming the path of what cannot be written.

    """
    out: List[str] = []
    _write(value, "$", 1, out)
    data = "".join(out).encode("utf-8")
    if len(data) > limit:
        raise NotJson("$: %d bytes; at most %d are written" % (len(data), limit))
    count = _count(value)
    if count > MAX_VALUES:
        raise NotJson("$: %d values; at most %d are written" % (count, MAX_VALUES))
    return data


def utf16_key(text: str) -> bytes:
    """What keys are sorted by: their UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def decode_base64(text: str) -> bytes:
    """The bytes of `text` in its one spelling.

    Raises:
        ValueError: saying what is wrong.

    """
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError("not base64 (standard alphabet, padded, on one line)") from None
    if base64.b64encode(data).decode("ascii") != text:
        raise ValueError("not the one base64 spelling of its bytes (padding or unused bits)")
    return data


def _count(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return 1 + sum(_count(item) for item in inside)


def _byte(data: bytes, at: int) -> str:
    return ascii(chr(data[at])) if at < len(data) else "the end"


def _write(value: object, path: str, depth: int, out: List[str]) -> None:
    if value is None or isinstance(value, bool):
        out.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            raise NotJson("%s: %d is beyond 2**53 - 1" % (path, value))
        out.append("%d" % value)
    elif isinstance(value, str):
        out.append(_quote(value, path))
    elif isinstance(value, (list, tuple, dict)):
        if depth > MAX_DEPTH:
            raise NotJson("%s: nested deeper than %d" % (path, MAX_DEPTH))
        if isinstance(value, dict):
            _write_object(value, path, depth, out)
        else:
            _write_array(value, path, depth, out)
    else:
        raise NotJson("%s: %s cannot be written" % (path, type(value).__name__))


def _write_array(value: Union[List[object], Tuple[object, ...]], path: str, depth: int, out: List[str]) -> None:
    for number, item in enumerate(value):
        out.append("," if number else "[")
        _write(item, "%s[%d]" % (path, number), depth + 1, out)
    out.append("]" if value else "[]")


def _write_object(value: Dict[object, object], path: str, depth: int, out: List[str]) -> None:
    keys: List[str] = []
    for key in value:
        if not isinstance(key, str):
            raise NotJson("%s: the key %r is not a string" % (path, key))
        keys.append(key)
    for number, name in enumerate(sorted(keys, key=utf16_key)):
        out.append("%s%s:" % ("," if number else "{", _quote(name, path)))
        _write(value[name], "%s.%s" % (path, name), depth + 1, out)
    out.append("}" if keys else "{}")


def _quote(text: str, path: str) -> str:
    if _SURROGATE.search(text):
        raise NotJson("%s: half of a surrogate pair" % path)
    return '"%s"' % _MUST_ESCAPE.sub(lambda m: _SHORT.get(m.group(), "\\u%04x" % ord(m.group())), text)
