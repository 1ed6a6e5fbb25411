# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward setup --planned`: what a configuration that is not written yet would change (privilege.md, section 8)."""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import Any, List

import pytest

from slotcore import codes
from slotward import cli_parse, cmd_setup, systemd

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="setup is root's")


def parsed(*words: str) -> argparse.Namespace:
    """A command line as the agent reads it."""
    return cli_parse.parse(["setup", *words], "/etc/slotward/config.toml")


@pytest.fixture(name="seen")
def _seen(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """What setup is about to look at, on a host that systemd runs; nothing after that happens."""
    found: List[Any] = []

    def once(setup: Any, args: argparse.Namespace, *_more: Any) -> None:
        found.append((setup.config_path, setup.config.data_dir, setup.problems, args.check))

    monkeypatch.setattr(systemd, "booted", lambda: None)
    monkeypatch.setattr(cmd_setup, "_once", once)
    return found


def test_the_planned_file_counts_and_the_units_name_the_host_s_own(tmp_path: pathlib.Path, seen: List[Any]) -> None:
    """It is judged in the configuration's stead, and only ever looked at."""
    config, planned = tmp_path / "config.toml", tmp_path / "planned.toml"
    config.write_text(f'data_dir = "{tmp_path}/old"\n')
    planned.write_text(f'data_dir = "{tmp_path}/new"\n')
    cmd_setup.run(parsed("--config", str(config), "--planned", str(planned)))
    cmd_setup.run(parsed("--config", str(config), "--check"))
    assert seen == [(str(config), f"{tmp_path}/new", (), True), (str(config), f"{tmp_path}/old", (), True)]
    assert sorted(os.listdir(tmp_path)) == ["config.toml", "planned.toml"]


def test_a_problem_of_the_planned_file_is_told_by_its_name(tmp_path: pathlib.Path, seen: List[Any]) -> None:
    """Before it is anybody's configuration."""
    planned = tmp_path / "planned.toml"
    planned.write_text("[helper]\n[start]\n")
    with pytest.raises(codes.BadConfig, match=r"planned\.toml: \[helper\] and \[start\]"):
        cmd_setup.run(parsed("--config", str(tmp_path / "config.toml"), "--planned", str(planned)))
    assert seen == []
