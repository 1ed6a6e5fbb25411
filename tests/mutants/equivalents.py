# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of mutants that no test can tell from the original: `equivalent.toml`.

Rules:

* An entry names module, function and the changed lines before and after, and says why nobody can see the change;
  changes of the same lines with the same reason may share one.
* An entry that names no mutant, or one that a test kills, is an error: the list never grows stale.
"""

from __future__ import annotations

import pathlib
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Sequence, Tuple

import tomllib

FIELDS = frozenset(("function", "was", "becomes", "reason"))


class Change(NamedTuple):
    """What a mutant is known by within its module."""

    function: str
    was: str
    becomes: str

    def __str__(self) -> str:
        return "%s: %s -> %s" % (self.function, self.was, self.becomes or "(nothing)")


class BadList(ValueError):
    """The list itself is wrong."""


def parse(tables: Dict[str, object], modules: Iterable[str]) -> Dict[str, FrozenSet[Change]]:
    """The changes that the list calls equivalent, for each module."""
    unknown = sorted(set(tables) - set(modules))
    if unknown:
        raise BadList("no module is called %s" % ", ".join(unknown))
    return {module: frozenset(_changes(module, entries)) for module, entries in tables.items()}


def _changes(module: str, entries: object) -> List[Change]:
    if not isinstance(entries, list):
        raise BadList("%s must be [[%s]]" % (module, module))
    found = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or set(entry) != FIELDS:
            raise BadList("entry %d of %s must have exactly %s" % (number, module, ", ".join(sorted(FIELDS))))
        becomes = entry["becomes"] if isinstance(entry["becomes"], list) else [entry["becomes"]]
        if not all(isinstance(text, str) for text in (entry["function"], entry["was"], entry["reason"], *becomes)):
            raise BadList("entry %d of %s must be text (becomes may be a list of texts)" % (number, module))
        if not entry["reason"].strip():
            raise BadList("entry %d of %s has no reason" % (number, module))
        for change in (Change(entry["function"], entry["was"], text) for text in becomes):
            if change in found:
                raise BadList("%s has this twice: %s" % (module, change))
            found.append(change)
    return found


def stale(listed: FrozenSet[Change], killed: Sequence[Change], survived: Sequence[Change]) -> Tuple[str, ...]:
    """What is wrong with the entries of one module after its mutants have been run."""
    said = []
    for change in sorted(listed):
        if change in killed:
            said.append("a test kills what is listed as equivalent: %s" % (change,))
        elif change not in survived:
            said.append("an entry names no mutant: %s" % (change,))
    return tuple(said)


def read(path: pathlib.Path, modules: Iterable[str]) -> Dict[str, FrozenSet[Change]]:
    """The list in a file."""
    return parse(tomllib.loads(path.read_text(encoding="utf-8")), modules)
