# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots directories for the tests of the agent, at rest, with records and their copies."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Iterator

import pytest
from agent.places import Place
from support import web


@pytest.fixture
def systemctl(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A systemctl that answers from files of this test."""
    (tmp_path / "calls").touch()
    (tmp_path / "show").write_text("ActiveState=active\n")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{pathlib.Path(__file__).parent / 'fakes'}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "nice", lambda _step: 0)


@pytest.fixture
def place(tmp_path: pathlib.Path, systemctl: None) -> Place:
    """A host at rest."""
    return Place(tmp_path, tmp_path / "slots")


@pytest.fixture
def small(tmp_path: pathlib.Path, systemctl: None) -> Iterator[Place]:
    """The same on a filesystem of its own."""
    at = tmp_path / "mounted"
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "none", str(at)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root to mount a filesystem")
    try:
        yield Place(tmp_path, at / "slots")
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.fixture
def serving() -> Iterator[web.Serve]:
    """What starts a web server with a script."""
    with web.serving() as start:
        yield start


@pytest.fixture
def part(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a download goes."""
    directory = tmp_path / "staging"
    directory.mkdir(0o700)
    return directory / "slotward-1.1.0.part"
