# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of what keeps a host safe, `safeties.toml`: each with the text that it is, and what is there without it.

Rules:

* A safety is an exact text of one file. It is removed by putting `becomes` in its place; where the text is not there as often
  as the table says, that is an error: the table never speaks of code that is gone.
* `suites` are what should notice, the likeliest first, each as the words that pytest gets.
* Where another safety does the same, and nothing can notice one alone, `redundant` says which, and why both are kept.
"""

from __future__ import annotations

import ast
import pathlib
from typing import Dict, List, NamedTuple, Tuple

import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("safeties.toml")
NEEDED = frozenset(("name", "file", "was", "becomes", "suites"))
FIELDS = NEEDED | {"times", "redundant"}
PLACES = {"agent": "agent/src/slotward/", "core": "plugins/module_utils/slotcore/"}
GUARD = PLACES["agent"] + "resources/guard"


class BadTable(ValueError):
    """The table is wrong, or no longer about the source."""


class Safety(NamedTuple):
    """One thing that keeps a host safe, and how it is taken away."""

    name: str
    file: str
    """Its path from the top of the repository."""
    was: str
    becomes: str
    suites: Tuple[str, ...]
    times: int = 1
    redundant: str = ""

    def removed(self, source: str) -> str:
        """The file without it; raises BadTable when the text is not there, or what is left is no program."""
        found = source.count(self.was)
        if found != self.times:
            text = "%s: %s has this text %d times, the table says %d: %r"
            raise BadTable(text % (self.name, self.file, found, self.times, self.was))
        left = source.replace(self.was, self.becomes)
        if self.file.endswith(".py"):
            try:
                same = ast.dump(ast.parse(left)) == ast.dump(ast.parse(source))
            except SyntaxError as error:
                raise BadTable("%s: %s is no program without it: %s" % (self.name, self.file, error)) from None
            if same:
                raise BadTable("%s: %s is the same program without it" % (self.name, self.file))
        return left


def _texts(name: str, entry: Dict[str, object]) -> Tuple[str, ...]:
    suites = entry["suites"]
    if not isinstance(suites, list) or not suites or not all(isinstance(one, str) and one for one in suites):
        raise BadTable("%s: suites must be a list of what pytest gets" % name)
    return tuple(suites)


def _place(name: str, file: str) -> str:
    """`agent:lock.py`, `core:plans.py` or `guard`, as a path."""
    if file == "guard":
        return GUARD
    kind, _colon, rest = file.partition(":")
    if kind not in PLACES or not rest:
        raise BadTable("%s: file must be guard, agent:<file> or core:<file>, not %r" % (name, file))
    return PLACES[kind] + rest


def parse(tables: Dict[str, object]) -> Tuple[Safety, ...]:
    """The table's safeties, in its order; `becomes` may be left empty where the whole text goes."""
    entries = tables.get("safety")
    if set(tables) != {"safety"} or not isinstance(entries, list):
        raise BadTable("the table must be [[safety]] and nothing else")
    found: List[Safety] = []
    for entry in entries:
        name = str(entry.get("name", ""))
        if not NEEDED <= set(entry) <= FIELDS:
            raise BadTable("%s: an entry has %s, and may have times and redundant" % (name, ", ".join(sorted(NEEDED))))
        texts = [entry[field] for field in ("name", "file", "was", "becomes")] + [entry.get("redundant", "")]
        if not all(isinstance(text, str) for text in texts) or not name.strip() or not entry["was"].strip():
            raise BadTable(
                "%s: name, file, was, becomes and redundant are texts, and name and was say something" % name
            )
        times = entry.get("times", 1)
        if not isinstance(times, int) or times < 1:
            raise BadTable("%s: times is how often the text is there" % name)
        if any(name == one.name for one in found):
            raise BadTable("two safeties are called %s" % name)
        file, suites = _place(name, entry["file"]), _texts(name, entry)
        found.append(Safety(name, file, entry["was"], entry["becomes"], suites, times, entry.get("redundant", "")))
    return tuple(found)


def read(path: pathlib.Path = TABLE) -> Tuple[Safety, ...]:
    """The table in a file."""
    return parse(tomllib.loads(path.read_text(encoding="utf-8")))
