# SPDX-License-Identifier: GPL-3.0-or-later
"""The vectors that other tools made (tests/vectors), under both names of slotcore; `make matrix` plays them everywhere else."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "vectors"
NAMES = ("slotcore", "ansible_collections.slotward.fleet.plugins.module_utils.slotcore")
FILES = sorted(path.stem for path in VECTORS.glob("*.json"))


def played(directory: pathlib.Path, name: str) -> subprocess.CompletedProcess[str]:
    """Play all vectors of a directory in a process of their own."""
    words = [sys.executable, "-I", "-B", str(directory / "run.py"), name]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def answered(run: subprocess.CompletedProcess[str]) -> Dict[str, Any]:
    """The one line that it prints."""
    assert run.stdout.count("\n") == 1, run.stderr
    answer: Dict[str, Any] = json.loads(run.stdout)
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_every_vector_passes_under_both_names(name: str) -> None:
    """Each file is played, and what is played is slotcore under this name alone."""
    run = played(VECTORS, name)
    answer = answered(run)
    assert (run.returncode, answer["failed"], answer["name"]) == (0, [], name)
    assert sorted(answer["passed"]) == sorted([*FILES, "published"])
    for file in FILES:
        assert answer["passed"][file] == len(
            json.loads((VECTORS / f"{file}.json").read_text(encoding="utf-8"))["cases"]
        )
    assert answer["passed"]["published"] >= 4


def test_a_wrong_vector_is_seen(tmp_path: pathlib.Path) -> None:
    """In each file one outcome turned about: each is told, by file and case."""
    (tmp_path / "plugins").symlink_to(ROOT / "plugins")
    copy = tmp_path / "tests" / "vectors"
    shutil.copytree(VECTORS, copy)
    for file in FILES:
        path = copy / f"{file}.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        case = next(one for one in found["cases"] if one.get("refused") or one.get("verifies") or one.get("is"))
        if "refused" in case:
            case["refused"] = "no-such-code"
        else:
            case.update({name: False for name in ("verifies", "is") if name in case})
        path.write_text(json.dumps(found), encoding="utf-8")
    manifest = next((copy / "published").rglob("manifest.json"))
    manifest.write_bytes(manifest.read_bytes().replace(b'"kid":"', b'"kid":"x', 1))
    run = played(copy, NAMES[0])
    answer = answered(run)
    assert run.returncode == 1
    assert sorted({one["file"] for one in answer["failed"]}) == sorted([*FILES, "published"])


def test_the_long_name_is_what_the_collection_uses() -> None:
    """And any other name is no name."""
    assert NAMES[1] == "ansible_collections.slotward.fleet.plugins.module_utils.slotcore"
    run = played(VECTORS, "module_utils.slotcore")
    assert run.returncode == 1
    assert "is neither slotcore nor" in run.stderr
