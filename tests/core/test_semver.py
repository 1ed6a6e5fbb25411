# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions: the grammar and the order of Semantic Versioning 2.0.0."""

from __future__ import annotations

import itertools
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import semver

GOOD = [
    "0.0.0",
    "1.2.3",
    "10.20.30",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-0.3.7",
    "1.0.0-x-y-z.--",
    "1.0.0--",
    "1.0.0-0A.is.legal",
    "1.0.0-rc1.RC2-3.aB",
    "1.0.0+20130313144700",
    "1.0.0-beta+exp.sha.5114f85",
    "1.0.0+21AF26D3---117B344092BD",
    "1.0.0+a.B-1",
    "1.0.0+001",
    "99999999999999999999999.999999999999999999.99999999999999999",
]
BAD = [
    "",
    "1",
    "1.2",
    "1.2.3.4",
    "1,2.3",
    "1.2,3",
    "v1.2.3",
    "01.2.3",
    "1.02.3",
    "1.2.03",
    "1.2.3-",
    "1.2.3-01",
    "1.2.3-a..b",
    "1.2.3-a.",
    "1.2.3+",
    "1.2.3+a+b",
    "1.2.3+a..b",
    "1.2.3 ",
    " 1.2.3",
    "1.2.3\n",
    "1.2.-3",
    "1.2.3-\u00e9",
    "\u0661.2.3",
    "1.2.3/..",
    "1.2.3-" + "a" * 123,
]
# the example of section 11 of the specification
RISING = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
]


def parsed(text: str) -> semver.Version:
    """A version that must be one."""
    found = semver.parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize("text", GOOD)
def test_a_version_is_taken(text: str) -> None:
    """The grammar's own examples."""
    assert parsed(text).text == text
    assert semver.is_version(text)


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_not(text: str) -> None:
    """Close misses, line ends, foreign digits, and what is too long for a file name."""
    assert semver.parse(text) is None
    assert not semver.is_version(text)


def test_the_longest_version_is_128_characters() -> None:
    """One character more is among the bad ones above."""
    assert len(parsed("1.2.3-" + "a" * 122).text) == semver.MAX_LENGTH


def test_versions_rise_in_the_specified_order() -> None:
    """Every pair of the specification's example, in both directions."""
    for (low, one), (high, other) in itertools.product(enumerate(RISING), repeat=2):
        assert semver.older(parsed(one), parsed(other)) is (low < high)


@pytest.mark.parametrize(
    ("text", "than", "is_older"),
    [
        ("1.0.0", "1.0.1", True),
        ("1.0.1", "1.0.1", False),
        ("1.0.1", "1.0.0", False),
        ("1.0", "1.0.1", False),
        ("1.0.0", "a build of mine", False),
        ("1.0.0", None, False),
    ],
)
def test_only_of_two_versions_one_is_older(text: str, than: Optional[str], is_older: bool) -> None:
    """What is no version is not older, and nothing is older than it."""
    assert semver.is_older(text, than) is is_older


@pytest.mark.parametrize(("one", "other"), [("1.0.0+a", "1.0.0+b"), ("1.0.0", "1.0.0+a"), ("1.0.0-a+x", "1.0.0-a")])
def test_build_parts_do_not_count(one: str, other: str) -> None:
    """Neither is older, and the build part is kept."""
    assert not semver.older(parsed(one), parsed(other))
    assert not semver.older(parsed(other), parsed(one))
    assert parsed(one).build == one.partition("+")[2]


@given(st.lists(st.sampled_from(RISING + GOOD), min_size=3, max_size=3))
def test_the_order_is_one(texts: list[str]) -> None:
    """Of two, at most one is older; and older goes through a third."""
    one, two, three = (parsed(text) for text in texts)
    assert not (semver.older(one, two) and semver.older(two, one))
    assert semver.older(one, three) or not (semver.older(one, two) and semver.older(two, three))


def test_the_sentence_for_what_is_no_version_shows_one() -> None:
    """What was given, and what it should look like."""
    assert semver.no_version("1.2") == '"1.2" is not a release version, such as 1.2.0'
