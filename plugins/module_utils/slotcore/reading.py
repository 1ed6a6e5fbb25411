# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the JSON records of a slots directory: what is in them, or that they are broken.

Rules:
- A record has exactly its fields, of exactly their types, or it is broken (I3): nothing is guessed or defaulted.
- Every complaint names the record, and what in it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NoReturn, Tuple

from . import codes

SPEC = 1
MAX_BYTES = 1 << 20
MAX_INT = 2**53 - 1
MAX_TEXT = 4096

_HEX64 = re.compile(r"[0-9a-f]{64}")


def broken(name: str, why: str) -> NoReturn:
    """Raise that the record `name` cannot be believed."""
    raise codes.BrokenRecord(name, why)


def _pairs(name: str) -> Any:
    def hook(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            broken(name, "a key stands in it twice")
        return found

    return hook


def load(data: bytes, name: str, fields: Tuple[str, ...], most: int = MAX_BYTES) -> Dict[str, Any]:
    """The object in a record's bytes, with exactly `spec` and these fields."""
    if len(data) > most:
        broken(name, f"it is {len(data)} bytes; at most {most} are read")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_pairs(name))
    except (ValueError, RecursionError) as error:
        broken(name, f"it is not JSON: {error}")
    return object_of(value, name, "the record", ("spec", *fields), spec=True)


def object_of(value: Any, name: str, what: str, fields: Tuple[str, ...], spec: bool = False) -> Dict[str, Any]:
    """`value`, which must be an object with exactly these fields; `what` it is, for the complaint."""
    if not isinstance(value, dict):
        broken(name, f"{what} is not an object")
    if spec and value.get("spec") != SPEC:
        broken(name, f"its spec is {value.get('spec')!r}; this version reads {SPEC}")
    if set(value) != set(fields):
        odd = sorted(set(value) ^ set(fields))
        broken(name, f"{what} has other fields than {', '.join(fields)}: {', '.join(map(str, odd))}")
    return value


def number(value: Any, name: str, what: str) -> int:
    """`value`, which must be a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT:
        broken(name, f"{what} is {value!r}, not a number from 0 to {MAX_INT}")
    return int(value)


def text(value: Any, name: str, what: str) -> str:
    """`value`, which must be a text of bounded length."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        broken(name, f"{what} is not a text of at most {MAX_TEXT} characters")
    return str(value)


def digest(value: Any, name: str, what: str) -> str:
    """`value`, which must be a SHA-256 in hexadecimal."""
    if not isinstance(value, str) or _HEX64.fullmatch(value) is None:
        broken(name, f"{what} is not 64 hexadecimal digits")
    return value
