# SPDX-License-Identifier: GPL-3.0-or-later
"""Filling the free slot: a file of its own, or a link to the release's tree (products.md, section 3).

Rules:
- The slot's record is cleared first and written last, so that no record ever says what the slot does not hold.
- A tree gets its name when all of it is durable, its listing is written last, and the slot's link is made after both.
- A tree that is there and proves itself is used again; a newer record of the same bytes goes into its listing.
- A tree that does not prove itself is discarded; that nothing starts from it was looked at before the plan was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

from . import ops, recording, records, settle
from . import product as products

if TYPE_CHECKING:
    from . import listings


class Source(NamedTuple):
    """Where the bytes come from: the executor's name for them, the artifact's kind, and the tree that is there already."""

    name: str
    kind: str = ops.BINARY
    kept: Optional[listings.Listing] = None


HEAD = 2
"""How many of its first bytes tell what an artifact is that no manifest names."""
_GZIP = b"\x1f\x8b"


def kind_by(head: bytes) -> str:
    """The kind of an artifact by its first bytes: a compressed archive, or else a program, none of which begins so."""
    return ops.ARCHIVE if head[:HEAD] == _GZIP else ops.BINARY


def plan_fill(
    product: products.Product, state: settle.State, slot: str, record: records.SlotRecord, source: Source
) -> ops.Plan:
    """Have `slot` hold the release that `record` is about."""
    others = {name: entry for name, entry in state.slots.items() if name != slot}
    cleared = recording.write(
        product, recording.SLOTS, records.render_slots(others)
    )  # its copy may name more, after a cut
    filled = {**others, slot: record}
    if product.layout == products.VERSIONS:
        held = _tree(product, record, source) + ops.link_durably(product.path(slot), products.tree_of(record.version))
    else:
        held = ops.copy_durably(product.path(slot), source.name, record.sha256, record.size)
    return cleared + held + recording.write(product, recording.SLOTS, records.render_slots(filled))


def _tree(product: products.Product, record: records.SlotRecord, source: Source) -> ops.Plan:
    path = product.tree(record.version)
    if source.kept is None:
        return ops.unpack_durably(path, source.name, record, source.kind)
    if source.kept.record == record:
        return ()
    from . import listings  # few plans write one, and every start pays for what it imports

    return ops.write_durably(path + ops.LISTING, listings.render(source.kept._replace(record=record)))
