# SPDX-License-Identifier: GPL-3.0-or-later
"""release.yml: from an operator's own directory to a signed release."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

PLAYBOOK = "slotward.fleet.release"


@pytest.fixture
def wanted(stage: Any, keys: Any) -> Any:
    """The playbook's variables, every path relative to the directory that it is run in."""
    (stage.directory / "slotward_1.0.0_linux_amd64").write_text("#!/bin/sh\nexit 0\n")
    for path in (*keys.public, *keys.private):
        (stage.directory / path.name).write_bytes(path.read_bytes())
    return {
        "release_output": "releases",
        "release_version": "1.0.0",
        "release_sequence": 1,
        "release_artifacts": ["slotward_1.0.0_linux_amd64"],
        "release_keys": ",".join(path.name for path in keys.public),
        "release_sign_with": [path.name for path in keys.private[:2]],
    }


def test_relative_paths_are_taken_from_where_the_playbook_is_run(stage: Any, wanted: Any) -> None:
    """As upgrade and trust take theirs; a second run changes nothing."""
    played = stage.play(PLAYBOOK, **wanted)
    assert played.rc == 0, played.out
    manifest = stage.directory / "releases" / "slotward" / "1.0.0" / "manifest.json"
    assert len(json.loads(manifest.read_text())["signatures"]) == 2
    again = stage.play(PLAYBOOK, **dict(wanted, release_artifacts="slotward_1.0.0_linux_amd64"))
    assert again.of("localhost", "Build the manifest")["changed"] is False


def test_absolute_paths_stay_as_they_are(stage: Any, wanted: Any, tmp_path: pathlib.Path) -> None:
    """For whoever runs it from anywhere."""
    output = tmp_path / "elsewhere"
    played = stage.play(PLAYBOOK, **dict(wanted, release_output=str(output)))
    assert played.rc == 0, played.out
    assert (output / "slotward" / "1.0.0" / "manifest.json").exists()


@pytest.mark.parametrize("name", ["release_output", "release_version", "release_sequence", "release_artifacts"])
def test_what_is_missing_is_named(stage: Any, wanted: Any, name: str) -> None:
    """The variable, and how to give it."""
    del wanted[name]
    played = stage.play(PLAYBOOK, **wanted)
    assert played.rc != 0
    assert "%s is not set: give it with -e %s=" % (name, name) in played.out
