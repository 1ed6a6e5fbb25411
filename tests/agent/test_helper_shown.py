# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward update` on hosts with a helper and without: what systemd is asked, in one call, and what is settled first."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, List

import pytest

from agent import guarding, resting
from slotward import asking, build_info, cli

UNIT = "ActiveState=active\nSubState=running\nMainPID=77\nNRestarts=0\nJob=\n"
HELPER = "ActiveState=activating\nSubState=auto-restart\nMainPID=0\nNRestarts=3\nJob=\n"
QUESTION = "show --property=ActiveState,SubState,MainPID,NRestarts,Job --"


class Here:
    """A host's slots, configuration and systemd."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.slots = pathlib.Path(resting.product(root).slots_dir)
        self.config = root / "config.toml"
        self.configure("")
        (root / "show").write_text(f"{UNIT}\n{HELPER}")

    def configure(self, more: str) -> None:
        """Write the configuration."""
        self.config.write_text(f'[update]\nslots_dir = "{self.slots}"\nentrypoint = "{self.root}/probe"\n{more}')
        self.config.chmod(0o600)

    def link(self, name: str, target: str) -> None:
        """Point a link."""
        (self.slots / name).unlink(missing_ok=True)
        (self.slots / name).symlink_to(target)

    def asked(self) -> List[str]:
        """What systemd was asked."""
        return (self.root / "calls").read_text().splitlines()

    def update(self, capsys: pytest.CaptureFixture[str]) -> Dict[str, Any]:
        """The answer of `update --json`."""
        assert cli.main(["--config", str(self.config), "update", "--json"]) == 0
        found: Dict[str, Any] = json.loads(capsys.readouterr().out)
        return found


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A host at rest, whose unit files are in a directory of its own."""
    fake = tmp_path / "bin" / "systemctl"  # it is asked with nothing but a PATH in its environment
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nFAKE_SYSTEMD={tmp_path} exec {guarding.FAKES}/systemctl "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(build_info, "UNIT_DIR", str(tmp_path))
    return Here(tmp_path)


def test_without_a_helper_one_unit_is_asked_about(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    """One call, as ever; the answer says so."""
    (here.root / "show").write_text(UNIT)
    found = here.update(capsys)
    assert (found["mode"], found["helper"], found["unit"]["main_pid"]) == ("root", None, 77)
    assert here.asked() == [f"{QUESTION} slotward.service"]


def test_with_a_helper_both_are_asked_about_in_one_call(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    """Each gets its own part of the answer."""
    here.configure("[helper]\n")
    (here.root / build_info.HELPER_UNIT).touch()
    here.link("helper", "a")
    found = here.update(capsys)
    assert found["mode"] == "helper"
    assert found["helper"] == {
        "name": "slotward-helper.service",
        "active": "activating",
        "main_pid": 0,
        "restarts": 3,
        "slot": "a",
    }
    assert (found["unit"]["active"], found["unit"]["main_pid"]) == ("active", 77)
    assert here.asked() == [f"{QUESTION} slotward.service slotward-helper.service"]


def test_a_helper_that_is_not_installed_is_unknown(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration asks for one and setup has not run."""
    here.configure("[helper]\n")
    here.link("helper", "a")
    found = here.update(capsys)
    assert (found["helper"]["active"], found["helper"]["slot"]) == ("unknown", "a")
    assert here.asked() == [f"{QUESTION} slotward.service"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root settles")
def test_a_helper_that_is_behind_is_settled_before_it_is_shown(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    """As any start and command does."""
    here.configure("[helper]\n")
    here.link("helper", "b")
    (here.root / "show-slotward-helper.service").write_text("ActiveState=active\n")
    assert here.update(capsys)["helper"]["slot"] == "a"
    assert "--no-block restart -- slotward-helper.service" in here.asked()
    assert os.readlink(here.slots / "helper") == "a"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("A=1\nB=x=y\n\nA=2\n", {"one": {"A": "1", "B": "x=y"}, "two": {"A": "2"}}),
        ("A=1\n", {"one": {"A": "1"}}),
        ("", {"one": {}}),
        ("A=1\n\nA=2\n\nA=3\n", {"one": {"A": "1"}, "two": {"A": "2"}}),
    ],
)
def test_answers_come_by_unit(here: Here, said: str, found: Dict[str, Dict[str, str]]) -> None:
    """Those of which systemd says nothing are missing or empty."""
    (here.root / "show").write_text(said)
    assert asking.Question("one", "two").answers() == found


def test_without_systemd_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no error: what is shown is unknown."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert asking.Question("one", "two").answers() == {"one": {}}
