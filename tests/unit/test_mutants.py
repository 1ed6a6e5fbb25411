# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make mutants` rests on: the changes of a pattern, and the list of changes that nothing can show."""

from __future__ import annotations

import pathlib
import re
import types
from typing import Any, Dict

import pytest
from mutants import equivalents, modules, patterns, swap

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


SOURCE = """
import functools
LIMIT = 3
def plain(value, limit=LIMIT):
    return value < limit
class Thing:
    size = 1
    def method(self):
        return [one for one in (1, 2)]
    @staticmethod
    def static():
        return 1
@functools.lru_cache()
def kept():
    return 1
TABLE = (plain, lambda: 1)
"""


def loaded() -> types.ModuleType:
    """A module made of that source."""
    module = types.ModuleType("sample")
    module.__file__ = "sample.py"
    exec(compile(SOURCE, "sample.py", "exec", dont_inherit=True), vars(module))  # noqa: S102
    return module


@pytest.mark.parametrize(
    ("was", "becomes"), [("value < limit", "value <= limit"), ("(1, 2)", "(1, 3)"), ("(1, 2)", "(1,\n 3)")]
)
def test_a_change_inside_of_a_function_is_swapped_in(was: str, becomes: str) -> None:
    """Nested code is inside too; whoever holds the function has the new one."""
    module = loaded()
    found = swap.find(module, SOURCE, SOURCE.replace(was, becomes))
    assert found is not None
    found.put()
    if was.startswith("value"):
        assert module.plain(3)
        assert module.TABLE[0](3)
    else:
        assert module.Thing().method() == [1, 3]


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("limit=LIMIT", "limit=4"),
        ("size = 1", "size = 2"),
        ("static():\n        return 1", "static():\n        return 2"),
        ("kept():\n    return 1", "kept():\n    return 2"),
        ("lambda: 1", "lambda: 2"),
        ("TABLE = (plain, ", "TABLE = ("),
        ("def plain", "def other"),
        ("value < limit\nclass", "value < limit\n\nclass"),
        ("return value < limit", "return TABLE and value < limit\nLIMIT = 4"),
        ("nothing", "nothing"),
    ],
)
def test_any_other_change_is_not(was: str, becomes: str) -> None:
    """Constants, defaults, tables, what a decorator holds: the module has to be imported anew."""
    assert swap.find(loaded(), SOURCE, SOURCE.replace(was, becomes)) is None


def test_our_own_list_is_whole() -> None:
    """Read here too, so that a slip shows before the long run."""
    assert set(equivalents.read(TESTS / "mutants" / "equivalent.toml", modules.MODULES)) <= set(modules.MODULES)


def test_every_module_has_its_tests() -> None:
    """All files that are named are there."""
    for name in (name for names in modules.MODULES.values() for name in names):
        assert (TESTS / "core" / name).is_file()
