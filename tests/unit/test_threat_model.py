# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/design/threat-model.md: what it says is shown is shown, by a test that is there."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import List

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "design" / "threat-model.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([a-z0-9_]+/test_[a-z0-9_]+\.py)::(test_[A-Za-z0-9_]+)`")


def rows(heading: str) -> List[List[str]]:
    """The cells of the first table of a section, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", sorted({f"{file}::{test}" for file, test in NAMED.findall(PAGE)}))
def test_a_test_that_is_named_is_there(name: str) -> None:
    """The file has a function of that name, and it asserts or expects something."""
    file, _mark, wanted = name.partition("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert wanted in functions
    assert len(functions[wanted].body) > 1, "a docstring shows nothing"


def test_whatever_somebody_cannot_do_is_shown() -> None:
    """Each row of what cannot be done names at least one test, for each mode that it speaks of."""
    account, others = rows("2. The daemon's account, hostile"), rows("3. Everybody else")
    assert len(account) >= 9
    assert len(others) >= 12
    for row in account:
        assert NAMED.search(row[1]), row
        assert NAMED.search(row[2]), row
    products = rows("4. Products")
    assert len(products) >= 7
    releases = rows("5. A signed release against its host")
    assert len(releases) >= 5
    for row in others + products + releases:
        assert NAMED.search(row[2]), row


def test_everybody_who_holds_something_is_spoken_of() -> None:
    """Each holder of the first table has what it can do said further down."""
    for holder in (row[0] for row in rows("1. Who holds what")):
        words = re.sub(r"\(.*?\)", "", holder).replace("release ", "").split(",")[0].split()
        assert PAGE.lower().count(words[-1].lower()) > 1, holder
