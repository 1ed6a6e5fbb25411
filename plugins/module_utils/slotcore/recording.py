# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing the JSON records of a slots directory, and the copies that prove themselves (trust.md, sections 3 and 4).

Rules:
- Every record is written by `write`: the copy first and durably, then the record. So at any instant at least one of the
  two is whole, and a copy is never older than its record.
- A copy is a line `sha256 <hex of the rest>` and the bytes of the record. One whose line does not fit proves nothing.
"""

from __future__ import annotations

import hashlib
import re
from typing import Optional

from . import ops
from . import product as products

SLOTS = "slots.json"
UPDATE = "update.json"
COPY = ".copy"

_SEAL = re.compile(rb"sha256 ([0-9a-f]{64})\n")
SEAL_BYTES = len("sha256 \n") + 64
"""How much longer a copy is than its record."""


def sealed(data: bytes) -> bytes:
    """The copy of a record's bytes."""
    return b"sha256 " + hashlib.sha256(data).hexdigest().encode("ascii") + b"\n" + data


def unsealed(data: bytes) -> Optional[bytes]:
    """The record's bytes, or None when the copy does not prove itself."""
    seal = _SEAL.match(data)
    if seal is None:
        return None
    rest = data[seal.end() :]
    return rest if hashlib.sha256(rest).hexdigest().encode("ascii") == seal.group(1) else None


def write(product: products.Product, name: str, data: bytes) -> ops.Plan:
    """Replace the record `name` in the slots directory: the copy, durable, then the record, durable."""
    path = product.path(name)
    return ops.write_durably(path + COPY, sealed(data)) + ops.write_durably(path, data)
