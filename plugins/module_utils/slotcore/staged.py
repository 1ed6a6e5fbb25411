# SPDX-License-Identifier: GPL-3.0-or-later
"""What is staged and waits for an operator's word, `staged.json` (products.md, section 7).

Rules:
- It says what waits, and since when. The target that was asked for, and the permit that came with it, lie beside it,
  told by the target's digest, so that everything is verified again when the word comes.
- Written last and removed first: what it does not name does not wait.
- One that cannot be read waits for nothing: it is only a wish, and asking again makes it anew.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

from . import ops, records
from . import product as products

NAME = "staged.json"
TARGET = "staged.target"
PERMIT = "staged.permit"
MAX_BYTES = 16384
_FIELDS = ("at", "sequence", "sha256", "target", "version")


class Staged(NamedTuple):
    """A staged release: what it is, since when (seconds since 1970), and the digest of the target that asked for it."""

    version: str
    sequence: int
    sha256: str
    at: int
    target: str


def parse(data: bytes, name: str) -> Staged:
    """The record; raises BrokenRecord naming `name`."""
    if len(data) > MAX_BYTES:
        records.broken(name, f"it is more than {MAX_BYTES} bytes")
    value = records.load(data, name, _FIELDS)
    return Staged(
        version=records.text(value["version"], name, "its version"),
        sequence=records.number(value["sequence"], name, "its sequence"),
        sha256=records.digest(value["sha256"], name, "its sha256"),
        at=records.number(value["at"], name, "its time"),
        target=records.digest(value["target"], name, "its target's digest"),
    )


def render(staged: Staged) -> bytes:
    """The bytes of the record."""
    return records.dump(dict(staged._asdict(), spec=records.SPEC))


def plan_note(product: products.Product, staged: Staged, target: bytes, permit: Optional[bytes]) -> ops.Plan:
    """Have this release wait in the place of any other."""
    beside = ops.write_durably(product.path(TARGET), target)
    if permit is not None:
        beside += ops.write_durably(product.path(PERMIT), permit)
    else:
        beside += ops.unlink_durably(product.slots_dir, PERMIT)
    return ops.unlink_durably(product.slots_dir, NAME) + beside + ops.write_durably(product.path(NAME), render(staged))


def plan_drop(product: products.Product) -> ops.Plan:
    """Nothing waits any more."""
    return ops.unlink_durably(product.slots_dir, NAME, TARGET, PERMIT)


def as_json(staged: Optional[Staged]) -> Optional[Dict[str, Any]]:
    """What `update` shows; None when nothing waits."""
    if staged is None:
        return None
    return {"version": staged.version, "sequence": staged.sequence, "sha256": staged.sha256, "at": staged.at}
