# SPDX-License-Identifier: GPL-3.0-or-later
"""What commands answer where the host gives them nothing to work with: no memory, no current directory."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest

from slotward import answers, build_info, cli


def exhausted(_args: Any) -> answers.Answer:
    """A command that finds no memory."""
    raise MemoryError


@pytest.mark.parametrize("words", [("settle",), ("upgrade", "--target", "x"), ("doctor",)], ids=" ".join)
def test_without_memory_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: Any
) -> None:
    """One sentence or one object, and a status that says to try again."""
    monkeypatch.setattr(cli, "_run", exhausted)
    assert cli.main([*words, "--json"]) == answers.RETRY
    answer = json.loads(capsys.readouterr().out)
    assert answer == answers.base(build_info.NAME, "failed", "os-error", cli.OUT_OF_MEMORY)
    assert cli.main(list(words)) == answers.RETRY
    assert capsys.readouterr() == ("", f"failed (os-error): {cli.OUT_OF_MEMORY}\n")


def test_a_current_directory_that_is_gone_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative path cannot be carried to the unit that does the work: that is what is missing, not the command."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cli.main(["upgrade", "--target", "x", "--json"]) == answers.RETRY
    answer = json.loads(capsys.readouterr().out)
    assert answer["code"] == "os-error"
    assert answer["message"].startswith("the directory that this was run from has been removed: ")
    assert cli.main(["--config", "x", "settle"]) == answers.RETRY
    assert "has been removed" in capsys.readouterr().err


def test_a_file_that_is_missing_is_named_as_before(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What has a name is told by it."""

    def missing(_args: Any) -> answers.Answer:
        raise FileNotFoundError(2, "No such file or directory", "/nowhere/file")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_run", missing)
    assert cli.main(["settle"]) == answers.RETRY
    assert "failed (os-error): /nowhere/file: No such file or directory" in capsys.readouterr().err
