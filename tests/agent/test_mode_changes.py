# SPDX-License-Identifier: GPL-3.0-or-later
"""A host goes from each mode to each other one, whole and cut at every point, and stays itself (privilege.md, section 8)."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any, Dict, List

import pytest

from agent import moving

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and makes an account in a copy of /etc")

PAIRS = [(one, two) for one in moving.SECTIONS for two in moving.SECTIONS if one != two]
PAIRS += [("start", "start:keeper"), ("helper:keeper", "helper"), ("helper:keeper", "start")]
TRIGGERS = ["slotward-confirm.path", "slotward-giveup.path"]
TIMER = "slotward-deadline@slotward.timer"


def told(script: pathlib.Path, *words: str) -> List[Dict[str, Any]]:
    """What that program printed, line by line."""
    argv = moving.command(str(script), *words)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_every_change_of_mode_and_every_cut_of_it(first: str, second: str) -> None:
    """What --check lists is done; all is kept; a second run does nothing; a cut at any point is completed by the next run,
    and a daemon that is started anew at that moment has its configuration.
    """
    clean, *cuts = told(pathlib.Path(moving.__file__), first, second)
    assert clean["checked"] == clean["changes"]
    assert clean["again"] == clean["third"] == []
    assert clean["log"] == 1
    assert len(cuts) > 15
    second, _colon, user = second.partition(":")
    user = user or ("root" if second == "root" else "slotward")
    triggers = TRIGGERS if second == "start" else []
    helper = ["slotward-helper.service"] if first.startswith("helper") and second == "helper" else []
    for found in (clean, *cuts):
        assert found["kept"], found["cut"]
        if "keeper" not in first + user:  # from one account to another the file is one's or the other's
            assert found["may_start"] == "", found["cut"]
        assert found["third"] == [], found["cut"]
        assert (found["mode"], found["user"]) == ([second, user], user), found["cut"]
        assert found["enabled"] == sorted(["slotward.service", TIMER, *triggers, *helper]), found["cut"]
        assert found["active"] == sorted(["slotward.service", *triggers, *helper]), found["cut"]
    for found in cuts:
        assert found["same"], (found["cut"], found.get("differs"))
        assert 1 <= found["log"] <= 2, found["cut"]
    left_over(clean["after"], second)


def left_over(after: Dict[str, List[Any]], mode: str) -> None:
    """Nothing of another mode is there, and what the mode has is its owner's."""
    names = set(after)
    assert ("/opt/slotward/slotward/helper" in names) == (mode == "helper")
    assert ("/etc/systemd/system/slotward-helper.service" in names) == (mode == "helper")
    assert ("/etc/systemd/system/slotward-apply.service" in names) == (mode == "start")
    assert ("/etc/tmpfiles.d/slotward-start.conf" in names) == (mode == "start")
    assert ("/run/slotward-start/confirm" in names) == (mode == "start")
    assert ("/etc/systemd/system/slotward.service.d/unprivileged.conf" in names) == (mode != "root")
    owners = {path: tuple(found[:2]) for path, found in after.items() if path.startswith("/var/lib/slotward")}
    assert len(owners) == 4
    assert len(set(owners.values())) == 1
    assert (set(owners.values()) == {(0, 0)}) == (mode == "root")
    config = after["/etc/slotward/config.toml"]
    assert (config[0], config[1] == 0, config[2] & 0o777) == (0, mode == "root", 0o600 if mode == "root" else 0o640)


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        (
            "data-dir",
            "directory-unsafe",
            "data_dir /var/lib/slotward holds identity.json and is open to others (mode 0755)",
        ),
        ("account", "bad-config", "[helper] user: 'toor' has uid 0"),
        ("directory", "directory-unsafe", "/usr/local/lib (mode 2775, group 0): chmod go-w /usr/local/lib"),
        ("way-to-data", "directory-unsafe", "/var/lib (mode 0777, group 0): chmod go-w /var/lib"),
        ("entrypoint", "adopt-needs-consent", "in helper mode root's part starts from the slots"),
        ("trial", "trial-pending", "trial 00112233445566aa of 1.1.0 is pending"),
    ],
)
def test_c6_what_is_refused_changes_nothing(case: str, code: str, said: str) -> None:
    """C6, section 8: a host on trial, one with an unsafe directory, an account of root's or a data_dir of others stays
    as it is, by setup and by --check; what --fix-directories mends is listed, and exactly that.
    """
    (found,) = told(pathlib.Path(moving.__file__), "refused", case)
    assert found["code"] == code
    assert said in found["text"]
    assert found["same"], found
    mended = {change["path"]: change["what"] for change in found["mended"] if change["what"].startswith("chmod")}
    expected = {"directory": ("/usr/local/bin", "/usr/local/lib"), "way-to-data": ("/var/lib",)}.get(case, ())
    assert mended == {path: f"chmod go-w {path}" for path in expected}


def test_a_socket_and_a_group_of_one_s_own() -> None:
    """A socket outside /run has its directory made, root's and open to look at; the group is the account's own."""
    (found,) = told(pathlib.Path(moving.__file__), "elsewhere")
    assert found["planned"] == found["done"]
    assert found["again"] == []
    assert {"path": "/opt/sockets/deep", "what": "create"} in found["done"]
    assert found["made"] == [0, 0, 0o755]
    assert "User=keeper\nGroup=adm\n" in found["dropin"]
    assert found["config"][0] == 0
    assert found["config"][1] != 0
    assert found["config"][2] == 0o640
