# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that runs once more in a unit of its own: its answer is passed through, and there is one when it could not run."""

from __future__ import annotations

import json
import os
import pathlib
import time

import pytest

from slotward import build_info, bus, cli

TRIAL = "0123456789abcdef"


@pytest.fixture(name="top")
def _top(tmp_path: pathlib.Path, systemctl: None, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Our own systemctl and systemd-run, no bus, and a program that stands for the agent."""
    monkeypatch.setattr(bus, "SOCKET", str(tmp_path / "bus"))
    monkeypatch.setattr(build_info, "program_path", lambda: str(tmp_path / "slotward"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def program(top: pathlib.Path, script: str) -> None:
    """What runs in the unit."""
    (top / "slotward").write_text(f"#!/bin/sh\n{script}\n")
    (top / "slotward").chmod(0o755)


COMMANDS = {
    "upgrade": ("upgrade", "--target", "/t", "--no-wait"),
    "rollback": ("rollback", "--to", "previous"),
    "apply": ("apply", "--product", "demo"),
}


def run(command: str, *more: str) -> int:
    """The exit status of a command."""
    try:
        return cli.main([*COMMANDS[command], *more])
    except SystemExit as ended:
        return int(str(ended.code))


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_bus_there_is_an_answer(top: pathlib.Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """To be tried again, as one JSON object, with what brings the bus back."""
    (top / "fail-systemd-run").write_text("1")
    (top / "show").write_text("ActiveState=inactive\n")
    assert run(command, "--json") == 4
    answer = json.loads(capfd.readouterr().out)
    assert (answer["code"], answer["state"], answer["changed"]) == ("systemd-failed", "failed", False)
    assert f"D-Bus does not listen at {bus.SOCKET}" in answer["message"]
    assert "systemctl start dbus.socket" in answer["message"]
    assert run(command) == 4
    assert "try again later (systemd-failed): the " in capfd.readouterr().err


@pytest.mark.parametrize("status", [0, 3, 4, 6])
def test_the_answer_and_the_status_of_the_unit_are_passed_through(
    top: pathlib.Path, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    """Progress on the way, the answer at the end."""
    program(top, f"echo on the way >&2; echo answer; exit {status}")
    assert run("upgrade", "--json") == status
    assert capfd.readouterr() == ("answer\n", "on the way\n")


def test_an_answer_is_passed_through_where_its_end_was_lost(
    top: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One object, not two."""
    program(top, "echo answer; exit 1")
    assert run("upgrade", "--json") == 1
    assert capfd.readouterr().out == "answer\n"


@pytest.mark.parametrize(("entered_us", "code"), [(1, "in-progress"), (2**62, "systemd-failed")])
@pytest.mark.parametrize("status", [0, 1])
def test_a_unit_that_runs_is_another_s_or_goes_on_alone(
    top: pathlib.Path, capfd: pytest.CaptureFixture[str], entered_us: int, code: str, status: int
) -> None:
    """By when it began: a bus that went away meanwhile, of which systemd-run says 0, is no other upgrade and no success."""
    (top / "fail-systemd-run").write_text(str(status))
    (top / "show").write_text(f"ActiveState=active\nActiveEnterTimestampMonotonic={entered_us}\n")
    assert run("upgrade", "--id", TRIAL, "--json") == 4
    answer = json.loads(capfd.readouterr().out)
    assert answer["code"] == code
    assert ("goes on in slotward-upgrade-slotward-" + TRIAL in answer["message"]) == (code == "systemd-failed")


def test_a_unit_without_an_answer_is_not_waited_for(top: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What holds its standard output may run on."""
    program(top, "sleep 20 & kill -9 $$")
    (top / "show").write_text("ActiveState=inactive\n")
    began = time.monotonic()
    assert run("upgrade", "--json") == 4
    assert time.monotonic() - began < 10
    assert json.loads(capfd.readouterr().out)["code"] == "systemd-failed"
