# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make safeties` rests on: its table is about the source as it is, and leaves out none that can be counted."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
from typing import Any, Dict, Iterator, Tuple

import pytest
from mutants import removals

TABLE = removals.read()
ENTRY = {"name": "one", "file": "core:ops.py", "was": "x = 1", "becomes": "x = 2", "suites": ["tests/core"]}
AGENT = removals.ROOT / removals.PLACES["agent"]
COUNTED = {
    "*.py": re.compile(r"os\.fsync\(|sync_path\(|O_NOFOLLOW|O_EXCL|fcntl\.flock\(.*LOCK_EX"),
    "resources/guard": re.compile(r"(?:^|\s)sync(?=\s|$)"),
}
"""What keeps a host safe wherever it stands: every line with one of these is in the table."""
DEFINED = frozenset(("def sync_path(path: str) -> None:",))


@pytest.mark.parametrize("safety", TABLE, ids=[one.name for one in TABLE])
def test_what_is_taken_out_is_there(safety: removals.Safety) -> None:
    """The text stands in its file as often as is said; without it the file is another program, and still one."""
    source = (removals.ROOT / safety.file).read_text(encoding="utf-8")
    assert safety.removed(source) != source


def test_what_should_notice_is_there() -> None:
    """Every suite names files that exist."""
    words = [word for one in TABLE for suite in one.suites for word in shlex.split(suite)]
    named = {word for word in words if word.startswith("tests/")}
    assert len(named) > 20
    assert [word for word in sorted(named) if not (removals.ROOT / word).exists()] == []


def test_what_noticed_last_is_of_this_table_and_there() -> None:
    """`make safeties` keeps it up to date; what is gone from the table is gone from there after the next run."""
    last = json.loads((removals.ROOT / "tests" / "mutants" / "noticed.json").read_text(encoding="utf-8"))
    assert set(last) <= {one.name for one in TABLE}
    assert [test for test in last.values() if not (removals.ROOT / test.partition("::")[0]).is_file()] == []


def lines() -> Iterator[Tuple[str, str]]:
    """Every line of the agent and the guard that must be in the table: its file and itself."""
    for pattern, wanted in COUNTED.items():
        for path in sorted(AGENT.glob(pattern)):
            for line in path.read_text(encoding="utf-8").splitlines():
                if wanted.search(line) and not line.lstrip().startswith("#") and line not in DEFINED:
                    yield path.name, line


def test_every_sync_lock_and_careful_opening_is_in_the_table() -> None:
    """A new one gets an entry in tests/mutants/safeties.toml, with the test that misses it."""
    taken = [(pathlib.Path(one.file).name, one.was) for one in TABLE]
    found = list(lines())
    assert len(found) > 50
    left = [
        f"{file}: {line.strip()}"
        for file, line in found
        if not any(file == name and (line in was or was.strip("\n") in line) for name, was in taken)
    ]
    assert left == []


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"safeties": [ENTRY]}, r"the table must be \[\[safety\]\]"),
        ({"safety": ENTRY}, r"the table must be \[\[safety\]\]"),
        ({"safety": [{**ENTRY, "more": 1}]}, "one: an entry has becomes, file, name, suites, was"),
        ({"safety": [{**ENTRY, "was": " "}]}, "name and was say something"),
        ({"safety": [{**ENTRY, "was": 1}]}, "are texts"),
        ({"safety": [{**ENTRY, "times": 0}]}, "times is how often"),
        ({"safety": [{**ENTRY, "suites": []}]}, "suites must be a list"),
        ({"safety": [{**ENTRY, "file": "ops.py"}]}, "file must be guard, agent:<file> or core:<file>"),
        ({"safety": [ENTRY, ENTRY]}, "two safeties are called one"),
    ],
)
def test_a_table_that_says_too_little_is_refused(tables: Dict[str, Any], text: str) -> None:
    """Each with its name."""
    with pytest.raises(removals.BadTable, match=text):
        removals.parse(tables)


@pytest.mark.parametrize(
    ("source", "becomes", "text"),
    [
        ("y = 1\n", "x = 2", "has this text 0 times, the table says 1"),
        ("x = 1\nx = 1\n", "x = 2", "has this text 2 times, the table says 1"),
        ("x = 1\n", "x =", "is no program without it"),
        ("x = 1\n", "x = 1  # as before", "is the same program without it"),
    ],
)
def test_a_text_that_is_gone_is_an_error(source: str, becomes: str, text: str) -> None:
    """As is a removal that removes nothing, or leaves no program."""
    (safety,) = removals.parse({"safety": [{**ENTRY, "becomes": becomes}]})
    with pytest.raises(removals.BadTable, match=text):
        safety.removed(source)


def test_a_safety_is_taken_out() -> None:
    """Of the right file, as often as is said."""
    (safety,) = removals.parse({"safety": [{**ENTRY, "times": 2, "redundant": "why"}]})
    assert (safety.file, safety.redundant) == ("plugins/module_utils/slotcore/ops.py", "why")
    assert safety.removed("x = 1\nx = 1\n") == "x = 2\nx = 2\n"
