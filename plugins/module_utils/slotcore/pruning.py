# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trees are swept after a confirmation, and by settling (products.md, section 3).

Rules:
- What a slot's record is about, or a link leads to, stays; so does what a process runs from, however old it is.
- Besides those the newest stay, by sequence and then by version: no clock has a say in it.
- What does not prove itself even by a listing is of no use to anybody, and goes; so does a listing without a tree.
"""

from __future__ import annotations

from typing import AbstractSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import ops, records, semver

LEFT = (ops.PARTIAL, ".tmp")
"""Ends of the names that a cut leaves beside the trees."""


class Found(NamedTuple):
    """What lies in the directory of the trees: leftovers, versions that have a tree, and listings that have none."""

    left: Tuple[str, ...]
    trees: Tuple[str, ...]
    alone: Tuple[str, ...]


def sort_out(names: Sequence[str]) -> Found:
    """Tell the names in the directory of the trees apart; what is none of ours is in none of them."""
    there = set(names)
    left = [name for name in names if name.endswith(LEFT)]
    trees = [name for name in names if name not in left and not name.endswith(ops.LISTING) and semver.is_version(name)]
    listings = [name[: -len(ops.LISTING)] for name in names if name.endswith(ops.LISTING)]
    alone = [name for name in listings if semver.is_version(name) and name not in there]
    return Found(tuple(sorted(left)), tuple(sorted(trees)), tuple(sorted(alone)))


def superfluous(
    listed: Mapping[str, Optional[records.SlotRecord]], live: AbstractSet[str], running: AbstractSet[str], keep: int
) -> Tuple[str, ...]:
    """Of the trees by version, those that go; `listed` has what the listing of each says, None where there is none."""
    others = {version: record for version, record in listed.items() if version not in live and version not in running}
    proven: List[records.SlotRecord] = [record for record in others.values() if record is not None]
    newest = sorted(proven, key=lambda record: (record.sequence, _rank(record.version, proven)), reverse=True)
    kept = {record.version for record in newest[:keep]}
    return tuple(sorted(version for version in others if version not in kept))


def _rank(version: str, among: Sequence[records.SlotRecord]) -> Tuple[int, str]:
    """How many of these are older by precedence; equal ones differ by their text."""
    return sum(semver.is_older(other.version, version) for other in among), version
