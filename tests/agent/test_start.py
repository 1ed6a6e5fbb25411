# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start of the real agent loads: every command pays for it (docs/adr/0002, 0008)."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Set

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HEAVY = {
    "requests",
    "cryptography",
    "dataclasses",
    "inspect",
    "asyncio",
    "logging",
    "urllib.request",
    "http.client",
    "ssl",
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The agent, built from this tree."""
    output = tmp_path_factory.mktemp("agent")
    command = [sys.executable, str(REPOSITORY / "agent" / "build.py"), "--version", "1.1.0", "--sequence", "2"]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def loaded(agent: pathlib.Path, config: pathlib.Path, command: str) -> Set[str]:
    """The modules that a command loads."""
    argv = [sys.executable, "-I", "-X", "importtime", str(agent), "--config", str(config), command, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    assert '"spec": 1' in done.stdout, done.stderr[-500:]
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("command", ["version", "update"])
def test_a_quick_command_loads_nothing_heavy(agent: pathlib.Path, tmp_path: pathlib.Path, command: str) -> None:
    """Neither downloads nor keys nor their libraries are loaded to say what this host runs."""
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "%s"\n[update]\nslots_dir = "%s"\nentrypoint = "%s"\n' % ((tmp_path,) * 3))
    modules = loaded(agent, config, command)
    assert "slotward.cli" in modules
    assert modules & HEAVY == set()
