# SPDX-License-Identifier: GPL-3.0-or-later
"""The codes: one table in code, one in the documentation, and errors that carry them."""

from __future__ import annotations

import ast
import collections
import pathlib
import re
from typing import Dict

import pytest

from slotcore import codes

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "design" / "codes.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| ([a-z]+) \| (.+) \|$", re.MULTILINE)
SOURCE = pathlib.Path(codes.__file__).read_text()


def test_the_documentation_lists_every_code() -> None:
    """Whoever adds a code explains it to operators."""
    listed = [row[0] for row in ROW.findall(DOCUMENT.read_text())]
    assert [code for code in codes.CODES if code not in listed] == []


def test_the_documentation_lists_nothing_else() -> None:
    """And nothing twice."""
    listed = collections.Counter(row[0] for row in ROW.findall(DOCUMENT.read_text()))
    assert [code for code in listed if code not in codes.CODES] == []
    assert [code for code, count in listed.items() if count > 1] == []


def test_kinds_and_meanings_agree() -> None:
    """Word for word."""
    listed: Dict[str, codes.CodeInfo] = {
        code: codes.CodeInfo(kind, meaning) for code, kind, meaning in ROW.findall(DOCUMENT.read_text())
    }
    assert listed == codes.CODES


def constants() -> Dict[str, str]:
    """Name and code of each constant of the table, from the source text."""
    found = {}
    for node in ast.parse(SOURCE).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            first = node.value.args[0]
            assert isinstance(first, ast.Constant)
            found[node.targets[0].id] = str(first.value)
    return found


def test_each_constant_is_its_code_in_capitals() -> None:
    """So that a reader can go from one to the other, and no code is entered twice."""
    assert len(constants()) == SOURCE.count("_code(") - SOURCE.count("def _code(") == len(codes.CODES)
    for name, code in constants().items():
        assert name == code.upper().replace("-", "_")
        assert getattr(codes, name) == code


def test_the_errors_carry_codes_of_the_table() -> None:
    """They stand in a file of their own."""
    found = (codes.BrokenRecord.code, codes.BrokenAudit.code, codes.BadConfig.code)
    assert found == (codes.RECORD_BROKEN, codes.AUDIT_BROKEN, codes.BAD_CONFIG)


@pytest.mark.parametrize("code", codes.CODES)
def test_each_code_is_well_formed(code: str) -> None:
    """Kebab-case, a known kind, a meaning on one line without a final period."""
    info = codes.CODES[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert info.kind in codes.KINDS
    assert info.meaning
    assert not info.meaning.endswith(".")
    assert "|" not in info.meaning


def test_a_refused_error_carries_its_refusal() -> None:
    """Code and sentence, and the sentence as its text."""
    error = codes.Refused(codes.Refusal(codes.EXPIRED, "the release manifest expired"))
    assert (error.code, error.text, str(error)) == ("expired",) + ("the release manifest expired",) * 2


def test_a_retryable_error_carries_code_and_text() -> None:
    """As a refusal does."""
    error = codes.Retryable(codes.NO_SPACE, "3 bytes free")
    assert (error.code, error.text, str(error)) == ("no-space", "3 bytes free", "3 bytes free")


def test_a_broken_record_names_the_file() -> None:
    """And what is wrong with it."""
    error = codes.BrokenRecord("/opt/x/update.json", "empty")
    assert (error.code, error.file, error.why) == ("record-broken", "/opt/x/update.json", "empty")
    assert error.text == str(error) == "/opt/x/update.json: empty"


def test_a_bad_configuration_lists_its_problems() -> None:
    """All of them, in order."""
    error = codes.BadConfig(["config.toml:1: no key", "config.toml:3: no value"])
    assert (error.code, error.problems) == ("bad-config", ("config.toml:1: no key", "config.toml:3: no value"))
    assert error.text == str(error) == "config.toml:1: no key; config.toml:3: no value"
