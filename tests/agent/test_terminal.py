# SPDX-License-Identifier: GPL-3.0-or-later
"""What others wrote plays no tricks on the terminal of whoever reads it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from slotward import answers, audit, release_say

PROGRAM = "import sys; from slotward import cli; sys.exit(cli.main(sys.argv[1:]))"
TRICKS = "9\x1b]0;mine\x07\x1b[2J\nconfirmed (ok)\u202egnp\x9b1m\u061c"
PLAIN = "9\\x1b]0;mine\\x07\\x1b[2J\\nconfirmed (ok)\\u202egnp\\x9b1m\\u061c"


def ran(top: pathlib.Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """One command as an operator types it."""
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path), "PYTHONUTF8": "1"}
    argv = [sys.executable, "-W", "error", "-c", PROGRAM, *words]
    return subprocess.run(argv, cwd=top, env=environment, capture_output=True, timeout=60, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="a target is judged by root")
def test_a_targets_version_is_spelled_out(tmp_path: pathlib.Path) -> None:
    """The control side's words are quoted before anything of them is verified."""
    (tmp_path / "config.toml").write_text(
        f'[update]\nslots_dir = "{tmp_path}/slots"\nentrypoint = "{tmp_path}/probe"\n'
    )
    fields = {"product": "slotward", "version": TRICKS, "url": "", "sha256": "", "signature": ""}
    (tmp_path / "target.json").write_text(json.dumps(fields))
    done = ran(tmp_path, "prepare", "--config", "config.toml", "--target", "target.json")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == f'refused (not-a-release): "{PLAIN}" is not a release version, such as 1.2.0\n'


def test_a_files_name_is_spelled_out(tmp_path: pathlib.Path) -> None:
    """Of a release that somebody hands over; a name that is no UTF-8 is no crash."""
    for name, shown in ((TRICKS.encode(), PLAIN), (b"\xff", "\\udcff")):
        done = ran(tmp_path, "release", "inspect", "--document", os.fsdecode(name))
        text = f"failed (cannot-read): {shown}: No such file or directory\n"
        assert (done.returncode, done.stdout.decode(), done.stderr) == (1, text, b"")


def test_what_is_said_meanwhile_is_plain_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings, and what a signer is shown."""
    audit.warn(TRICKS)
    release_say.say(TRICKS)
    assert capsys.readouterr().err == f"warning: {PLAIN}\n{PLAIN}\n"


def test_letters_of_all_languages_stay() -> None:
    """Only what does something other than being seen is spelled out."""
    assert answers.plain("Fähre 渡船 \u00e9") == "Fähre 渡船 \u00e9"
    assert answers.plain("a\tb") == "a\\tb"
