# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing the JSON records of a slots directory, and the copies that prove themselves (trust.md, sections 3 and 4).

Rules:
- Every record is written by `write`: the copy first and durably, then the record. So at any instant at least one of the
  two is whole, and a copy is never older than its record.
- What cannot be believed is set aside, never deleted and never written over; of each record the newest four are kept.
- A copy is a line `sha256 <hex of the rest>` and the bytes of the record. One whose line does not fit proves nothing.
"""

from __future__ import annotations

import hashlib
import re
from typing import List, Optional, Sequence, Tuple

from . import ops, settle
from . import product as products

SLOTS = "slots.json"
UPDATE = "update.json"
TRUST = "trust.json"
TRIAL = "trial"
COPY = ".copy"
KEPT_ASIDE = 4

_SEAL = re.compile(rb"sha256 ([0-9a-f]{64})\n")
_SECONDS = re.compile(r"0|[1-9][0-9]{0,14}")
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


def aside_of(name: str, names: Sequence[str]) -> Tuple[str, ...]:
    """Of `names`, what was set aside of the record `name`, oldest first; a directory's name ends with a slash."""
    found: List[Tuple[int, str]] = []
    for each in names:
        stem, mark, number = each.rstrip("/").rpartition(settle.ASIDE)
        if mark and stem == name and _SECONDS.fullmatch(number):
            found.append((int(number), each))
    return tuple(each for _number, each in sorted(found))


def is_aside(name: str) -> bool:
    """Whether this is the name of something that was set aside."""
    return any(aside_of(record, (name,)) for record in (SLOTS, UPDATE, TRUST, TRIAL))


def set_aside(product: products.Product, source: str, name: str, at: int, aside: Sequence[str]) -> ops.Plan:
    """Rename `source` to what was set aside of `name` at that second, or later; only the newest are kept.

    Whoever asks makes it durable. The numbers go up whatever the clock does, so that the oldest are the lowest.
    """
    earlier = aside_of(name, aside)
    newest = int(earlier[-1].rstrip("/").rpartition(settle.ASIDE)[2]) if earlier else 0
    moved = ops.Rename(product.path(source), product.path(f"{name}{settle.ASIDE}{max(at, newest + 1)}"))
    dropped = earlier[: max(0, len(earlier) + 1 - KEPT_ASIDE)]
    return (moved, *(ops.Unlink(product.path(each)) for each in dropped if not each.endswith("/")))


def plan_restore(product: products.Product, state: settle.State, at: int) -> ops.Plan:
    """Set broken records aside, and write anew those whose copy proves itself (trust.md, section 4).

    What is written is made ready first, so that a full disk leaves everything as it was.
    """
    plan: ops.Plan = ()
    for damage in state.damaged:
        path = product.path(damage.name)
        moved = set_aside(product, damage.name, damage.name, at, state.aside) if damage.there else ()
        if damage.copy is not None:
            ready = path + ".tmp"
            plan += (ops.Write(ready, damage.copy), ops.Sync(ready), *moved, ops.Rename(ready, path))
        elif moved:
            plan += moved
        else:
            continue
        plan += (ops.SyncDir(product.slots_dir),)
    return plan
