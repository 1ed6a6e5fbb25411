# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's states and docs/runbook.md say the same things: each state has an entry, each entry is a state that doctor tells."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Dict, List, Set

from slotward import doctor_states

ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENT = ROOT / "agent" / "src" / "slotward"
RUNBOOK = ROOT / "docs" / "runbook.md"
PARTS = ("**You see**", "**Why**", "**Run**", "**It worked when**")
NO_STATES = ("OK", "WARN", "FAIL")


def states() -> Dict[str, str]:
    """Every state by its constant."""
    return {
        key: value
        for key, value in vars(doctor_states).items()
        if key.isupper() and isinstance(value, str) and key not in NO_STATES
    }


def told() -> Set[str]:
    """The constants that doctor's modules name."""
    found: Set[str] = set()
    for path in AGENT.glob("doctor*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "states":
                found.add(node.attr)
    return found & set(states())


def entries() -> List[str]:
    """The runbook's entries, in their order."""
    return re.findall(r"^### `([a-z-]+)`$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)


def test_each_state_has_an_entry_and_each_entry_is_a_state() -> None:
    """In both directions, each once."""
    assert len(set(states().values())) == len(states())
    assert sorted(entries()) == sorted(states().values())


def test_each_state_is_told_by_a_check() -> None:
    """A state that nobody tells is one that no operator meets."""
    assert sorted(set(states()) - told()) == []


def test_each_entry_says_all_four_things() -> None:
    """What you see, why, what to run, how to see that it worked."""
    text = RUNBOOK.read_text(encoding="utf-8")
    parts = re.split(r"^### `([a-z-]+)`$", text, flags=re.MULTILINE)[1:]
    for name, body in zip(parts[::2], parts[1::2]):
        assert [body.count(part) for part in PARTS] == [1, 1, 1, 1], name


def test_every_finding_that_is_not_well_names_its_entry() -> None:
    """By the source: a finding with a command that mends it has five parts."""
    short = []
    for path in sorted(AGENT.glob("doctor*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id not in ("Found", "Finding") or len(node.args) == 1:
                continue
            is_ok = isinstance(node.args[1], ast.Constant) and node.args[1].value == "ok"
            starred = any(isinstance(one, ast.Starred) for one in node.args)
            if not starred and len(node.args) != (3 if is_ok else 5):
                short.append(f"{path.name}:{node.lineno}")
    assert short == []
