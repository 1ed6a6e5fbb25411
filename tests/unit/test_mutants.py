# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make mutants` rests on: the changes of a pattern, and the list of changes that nothing can show."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict

import pytest
from mutants import equivalents, modules, patterns

TESTS = pathlib.Path(__file__).resolve().parents[1]

CHANGE = equivalents.Change("parse", "a < b", "a <= b")
ENTRY = {"function": "parse", "was": "a < b", "becomes": "a <= b", "reason": "they are never equal"}


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("abc", set()),
        (r"a\.b", {"a.b"}),
        (r"\d\x20", set()),
        ("a*b+c?", {"a+b+c?", "a*b*c?", "a*bc?", "a*b+c"}),
        ("[a-z_]", {r"[\s\S]", "[a-z]", "[_]"}),
        ("[^]\\\\x]", {r"[\s\S]", "[^]\\\\]", "[^]x]", "[^\\\\x]"}),
        ("a{0,63}", {"a{1,63}", "a{0,62}", "a{0,64}"}),
        ("a{64}", {"a{63}", "a{65}"}),
        ("a|b|c", {"b|c", "a|c", "a|b"}),
        ("x(?:0|[1-9])y", {"x(?:[1-9])y", "x(?:0)y", r"x(?:0|[\s\S])y"}),
    ],
)
def test_a_pattern_is_changed_in_each_small_way(pattern: str, wanted: set[str]) -> None:
    """And in no other; what comes out is a pattern."""
    found = list(patterns.changed(pattern))
    assert set(found) == wanted
    assert len(found) == len(wanted)
    for one in found:
        re.compile(one)


def test_the_list_is_read() -> None:
    """Changes of the same lines may share a reason."""
    more = {**ENTRY, "becomes": ["a > b", ""]}
    others = {equivalents.Change("parse", "a < b", "a > b"), equivalents.Change("parse", "a < b", "")}
    assert equivalents.parse({"semver": [ENTRY, more]}, ["semver"]) == {"semver": {CHANGE, *others}}


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"other": [ENTRY]}, "no module is called other"),
        ({"semver": ENTRY}, r"semver must be \[\[semver\]\]"),
        ({"semver": [{**ENTRY, "more": ""}]}, "entry 1 of semver must have exactly becomes, function, reason, was"),
        ({"semver": [{**ENTRY, "was": 1}]}, "entry 1 of semver must be text"),
        ({"semver": [{**ENTRY, "becomes": [1]}]}, "entry 1 of semver must be text"),
        ({"semver": [ENTRY, {**ENTRY, "reason": " "}]}, "entry 2 of semver has no reason"),
        ({"semver": [ENTRY, ENTRY]}, "semver has this twice: parse: a < b -> a <= b"),
    ],
)
def test_a_wrong_list_is_no_list(tables: Dict[str, Any], text: str) -> None:
    """Each entry is whole, of a module that is tried, and there once."""
    with pytest.raises(equivalents.BadList, match=text):
        equivalents.parse(tables, ["semver"])


def test_an_entry_must_fit_a_survivor() -> None:
    """Neither a change that a test notices nor one that is not made any more."""
    listed = frozenset([CHANGE])
    assert equivalents.stale(listed, [], [CHANGE]) == ()
    assert equivalents.stale(listed, [], []) == ("an entry names no mutant: parse: a < b -> a <= b",)
    assert equivalents.stale(listed, [CHANGE], []) == (
        "a test kills what is listed as equivalent: parse: a < b -> a <= b",
    )


def test_our_own_list_is_whole() -> None:
    """Read here too, so that a slip shows before the long run."""
    assert set(equivalents.read(TESTS / "mutants" / "equivalent.toml", modules.MODULES)) <= set(modules.MODULES)


def test_every_module_has_its_tests() -> None:
    """All files that are named are there."""
    for name in (name for names in modules.MODULES.values() for name in names):
        assert (TESTS / "core" / name).is_file()
