# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing the agent's configuration."""

from __future__ import annotations

import importlib
import os
import pathlib
import stat
from typing import Any

import pytest

PIN = "sha256/" + "A" * 43 + "="
OTHER = "sha256/" + "B" * 42 + "A="
FOREIGN = '\n[foreign]\n# mine  \nuser = "x"   # kept\n'


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where the configuration goes, in a directory that is not there yet."""
    return tmp_path / "etc" / "config.toml"


def mode_of(path: pathlib.Path) -> int:
    """A file's permissions."""
    return stat.S_IMODE(path.stat().st_mode)


def test_every_key_of_the_agent_is_an_option_and_no_other() -> None:
    """The module and the agent have one list of keys."""
    module = importlib.import_module("ansible_collections.slotward.fleet.plugins.modules.agent_config")
    config = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.config")
    assert {key.name for key in config.KEYS if key.section == ""} == set(module.TOP_OPTIONS)
    assert {key.name for key in config.KEYS if key.section == "update"} == set(module.UPDATE_OPTIONS)


def test_a_new_file_is_written_once(run_module: Any, path: pathlib.Path) -> None:
    """Root's alone, with what was asked for and nothing else; the second run changes nothing."""
    update = {"release_pins": [PIN, OTHER], "release_threshold": 2, "smoke_test": False, "proxy": "", "ca_file": ""}
    for umask in (0o022, 0o077, 0o000):
        before = os.umask(umask)
        result = run_module("agent_config", path=str(path), top={"log_level": "debug"}, update=update)
        os.umask(before)
        assert result["changed"] is True
        assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o755)
        text = path.read_text()
        assert 'release_pins = "%s,%s"\n' % (PIN, OTHER) in text
        assert "smoke_test = false\n" in text
        assert "proxy" not in text
        assert run_module("agent_config", path=str(path), top={"log_level": "debug"}, update=update)["changed"] is False
        assert os.listdir(path.parent) == ["config.toml"]
        path.unlink()
        path.parent.rmdir()


def test_foreign_sections_stay_byte_for_byte(run_module: Any, path: pathlib.Path) -> None:
    """Only the keys before the first section and [update] are ours."""
    path.parent.mkdir()
    path.write_text("[update]\nrelease_threshold = 1\n" + FOREIGN)
    result = run_module("agent_config", path=str(path), update={"release_pins": [PIN], "release_threshold": 1})
    assert result["code"] == "bad-config", "the agent knows no [foreign], so the file as a whole has a problem"
    assert path.read_text().endswith(FOREIGN)


def test_the_difference_is_shown_and_check_mode_writes_nothing(run_module: Any, path: pathlib.Path) -> None:
    """On a host with nothing, and on one with a file of another mode."""
    result = run_module("agent_config", check=True, path=str(path), update={"max_boots": 1})
    assert result["changed"] is True
    assert "max_boots = 1\n" in result["diff"][0]["after"]
    assert not path.parent.exists()
    run_module("agent_config", path=str(path), update={"max_boots": 1})
    path.chmod(0o644)
    result = run_module("agent_config", check=True, path=str(path), update={"max_boots": 1})
    assert result["changed"] is True
    assert (result["diff"][1]["before"], result["diff"][1]["after"]) == ("mode 0644\n", "mode 0600\n")
    assert mode_of(path) == 0o644
    run_module("agent_config", path=str(path), update={"max_boots": 1})
    assert mode_of(path) == 0o600


@pytest.mark.parametrize(
    ("update", "word"),
    [
        ({"release_pins": ["sha256/none"]}, "release_pins"),
        ({"release_pins": [PIN], "release_threshold": 2}, "release_threshold"),
        ({"trial_length_s": 4}, "trial_length_s"),
        ({"settle_s": 60, "trial_length_s": 30}, "settle_s"),
        ({"confirm_sources": ["somebody"]}, "confirm_sources"),
        ({"slots_dir": "relative"}, "slots_dir"),
    ],
)
def test_a_problem_keeps_the_file_as_it_is(run_module: Any, path: pathlib.Path, update: Any, word: str) -> None:
    """The key is named; the running agent's file is not touched."""
    run_module("agent_config", path=str(path), update={"max_boots": 1})
    before = path.read_bytes()
    result = run_module("agent_config", path=str(path), update=update)
    assert (result["failed"], result["code"], result["changed"]) == (True, "bad-config", False)
    assert any(word in problem for problem in result["problems"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["[update\n", "a = 1.5\n", "x = 1\nx = 2\n", "\x00"])
def test_an_old_file_that_cannot_be_read_is_not_replaced(run_module: Any, path: pathlib.Path, text: str) -> None:
    """Somebody must look at it; nothing of it is lost."""
    path.parent.mkdir()
    path.write_text(text)
    result = run_module("agent_config", path=str(path), update={"max_boots": 1})
    assert (result["failed"], result["code"]) == (True, "bad-config")
    assert str(path) in result["msg"]
    assert path.read_text() == text


def test_a_link_is_not_followed(run_module: Any, path: pathlib.Path) -> None:
    """I6: root writes the file that it means."""
    path.parent.mkdir()
    path.symlink_to(path.parent / "elsewhere")
    result = run_module("agent_config", path=str(path), update={"max_boots": 1})
    assert (result["failed"], result["code"]) == (True, "bad-config")
    assert not (path.parent / "elsewhere").exists()


def test_a_password_in_the_proxy_is_not_shown(run_module: Any, path: pathlib.Path) -> None:
    """Neither in the difference nor in the arguments."""
    result = run_module("agent_config", path=str(path), update={"proxy": "http://user:secret@proxy:3128"})
    assert "secret" not in str(result)
    assert "secret" in path.read_text()
