# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trees go after a confirmation, and which stay (products.md, section 3)."""

from __future__ import annotations

from typing import Dict, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import pruning, records


def listed(*versions: str, **sequences: int) -> Dict[str, Optional[records.SlotRecord]]:
    """Trees whose listings say these sequences: `v1_0_0=3`, or 0 for those that are named alone."""
    told = {name[1:].replace("_", "."): number for name, number in sequences.items()}
    found = {**dict.fromkeys(versions, 0), **told}
    return {version: records.SlotRecord(version, number, "ab" * 32, 1) for version, number in found.items()}


def test_names_among_the_trees_are_told_apart() -> None:
    """Leftovers, versions with a tree, listings without one; what an operator put there is none of them."""
    found = pruning.sort_out(
        [
            "1.0.0",
            "1.0.0.json",
            "1.1.0",
            "2.0.0.json",
            "3.0.0.partial",
            "3.0.0.json.partial",
            "1.0.0.json.tmp",
            "mine",
            "a.json",
        ]
    )
    assert found.trees == ("1.0.0", "1.1.0")
    assert found.alone == ("2.0.0",)
    assert found.left == ("1.0.0.json.tmp", "3.0.0.json.partial", "3.0.0.partial")


@pytest.mark.parametrize(
    ("keep", "gone"),
    [(0, ("1.0.0", "1.1.0", "1.2.0")), (1, ("1.0.0", "1.2.0")), (2, ("1.0.0",)), (3, ()), (50, ())],
)
def test_D3_the_newest_by_sequence_stay(keep: int, gone: tuple[str, ...]) -> None:
    """D3: a higher sequence may carry a lower version, and is the newer release all the same."""
    trees = listed(v1_0_0=1, v1_1_0=9, v1_2_0=2, v2_0_0=10, v0_9_0=0)
    assert pruning.superfluous(trees, {"2.0.0"}, {"0.9.0"}, keep) == gone


def test_equal_sequences_go_by_version_and_then_by_name() -> None:
    """Without sequences (trust by digest) precedence decides; builds of one version differ by their text alone."""
    trees = listed("1.10.0", "1.9.0", "1.10.0-rc.1")
    assert pruning.superfluous(trees, set(), set(), 2) == ("1.9.0",)
    assert pruning.superfluous(trees, set(), set(), 1) == ("1.10.0-rc.1", "1.9.0")
    assert pruning.superfluous(listed("1.0.0+a", "1.0.0+b"), set(), set(), 1) == ("1.0.0+a",)


def test_what_has_no_listing_goes_unless_it_is_live_or_runs() -> None:
    """It proves nothing, so nobody can go back to it; but nothing is taken from under what runs."""
    trees: Dict[str, Optional[records.SlotRecord]] = {"1.0.0": None, "1.1.0": None, "1.2.0": None}
    assert pruning.superfluous(trees, {"1.0.0"}, {"1.1.0"}, 50) == ("1.2.0",)


VERSIONS = st.sampled_from([f"{major}.{minor}.0" for major in range(3) for minor in range(4)])


@given(
    st.dictionaries(VERSIONS, st.none() | st.integers(0, 5)),
    st.frozensets(VERSIONS),
    st.frozensets(VERSIONS),
    st.integers(0, 5),
)
def test_nothing_live_or_running_ever_goes_and_no_more_than_keep_stay(
    trees: Dict[str, Optional[int]], live: frozenset[str], running: frozenset[str], keep: int
) -> None:
    """Whatever is there; and what stays is not older than what goes."""
    told = {
        version: None if number is None else records.SlotRecord(version, number, "ab" * 32, 1)
        for version, number in trees.items()
    }
    gone = set(pruning.superfluous(told, live, running, keep))
    assert not gone & (live | running)
    stay = {version for version in set(trees) - gone - live - running if trees[version] is not None}
    assert stay == set(trees) - gone - live - running
    assert len(stay) <= keep
    proven = [trees[version] or 0 for version in gone if trees[version] is not None]
    assert not proven or len(stay) == keep
    assert min((trees[version] or 0 for version in stay), default=9) >= max(proven, default=0)
