# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real host writes down: each decision once, in the log and in the journal, and the chain holds by hand too."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
from typing import Any

import pytest
from support import node as nodes
from support import releases

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operator" / "audit.md"


def lines(node: nodes.Node) -> list[dict[str, Any]]:
    """The log, whose chain must hold and whose head is the one that update tells."""
    answer = node.slotward("audit", "--verify")
    assert answer.exit == 0, answer
    assert node.update()["audit"] == answer.json["head"]
    found: list[dict[str, Any]] = node.slotward("audit", "--limit", "0").json["lines"]
    return found


def events(node: nodes.Node) -> list[str]:
    """The events of the log in their order."""
    return [line["event"] for line in lines(node)]


def counted(journal: str) -> dict[str, int]:
    """How often each event is in the journal, by jq."""
    count = "map(select(.SLOTWARD_EVENT)) | group_by(.SLOTWARD_EVENT) | map({(.[0].SLOTWARD_EVENT): length}) | add"
    done = subprocess.run(["jq", "-s", count], input=journal, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.host
def test_an_upgrade_a_rollback_and_a_refusal_are_in_log_and_journal(
    node: nodes.Node, v110: releases.Release, v120: releases.Release, tmp_path: pathlib.Path
) -> None:
    """Each once, with the same hash in both; `journalctl -u` shows them; jq and sha256sum verify a copy of the log."""
    node.upgraded(v110)
    trial = node.on_trial(v120)
    assert node.slotward("rollback", "--why", "too slow").exit == 0
    for _again in range(2):
        assert node.begin(v120).code == "failed-before"
    assert node.slotward("update", "--clear-failed").json["cleared"] == ["1.2.0"]
    wanted = [
        "installed",
        "started",
        "accepted",
        "swapped",
        "confirmed",
        "started",
        "accepted",
        "swapped",
        "rolled-back",
        "refused",
        "cleared",
    ]
    log = lines(node)
    assert [line["event"] for line in log] == wanted
    back = log[8]
    assert (back["from"], back["to"], back["id"], back["code"]) == ("1.1.0", "1.2.0", trial, "operator")
    assert (back["why"], back["sequence"]) == ("too slow", 3)
    assert {line["sha256"] for line in log[5:10]} == {hashlib.sha256(v120.artifact.read_bytes()).hexdigest()}

    node.sh("journalctl --sync")
    journal = node.said("-o json")  # a selection would skip its first entry: systemd 252 counts the cursor's own
    assert counted(journal) == {
        "installed": 1, "started": 2, "accepted": 2, "swapped": 2, "confirmed": 1, "rolled-back": 1, "refused": 1, "cleared": 1,
    }  # fmt: skip
    entries = [entry for entry in map(json.loads, journal.splitlines()) if "SLOTWARD_EVENT" in entry]
    assert [entry["SLOTWARD_HASH"] for entry in entries] == [
        *(line["prev"] for line in log[1:]),
        node.update()["audit"]["hash"],
    ]
    assert "confirmed 1.0.0 -> 1.1.0" in node.said("-o cat -t slotward -u slotward.service")
    refusal = entries[9]
    assert (refusal["SLOTWARD_CODE"], refusal["SLOTWARD_TO"], refusal["PRIORITY"]) == ("failed-before", "1.2.0", "4")
    assert refusal["MESSAGE_ID"] == "347a697e813b644ccd8bdac591a50b03"
    assert "too slow" in node.sh("journalctl -q -o cat MESSAGE_ID=b5358e5a7392041d8cd35a32b0a400e9")

    node.host.get(f"{nodes.SLOTS}/audit.log", tmp_path / "audit.log")
    block = re.search(r"```sh by-hand\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    done = subprocess.run(["sh", "-c", block[1]], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    head = node.update()["audit"]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{head['n']} {head['hash']}")


@pytest.mark.host
def test_what_the_guard_did_is_written_once_by_whoever_settles(node: nodes.Node, crashing: releases.Release) -> None:
    """The guard writes no log; the old version's start does, through settling, and later commands add nothing."""
    node.on_trial(crashing)
    node.goes_back(("crash-loop", "unit-failed"), 25)
    for _again in range(2):
        node.slotward("settle")
        assert events(node) == ["installed", "started", "accepted", "swapped", "rolled-back"]
    assert lines(node)[-1]["who"] == "guard"
    node.sh("journalctl --sync")
    assert counted(node.said("-o json"))["rolled-back"] == 1


@pytest.mark.host
def test_who_had_it_done_goes_with_the_work(node: nodes.Node, v110: releases.Release) -> None:
    """An upgrade works in a unit of its own, where neither sudo nor login are known any more."""
    target, source = node.target(v110), node.put(v110.artifact)
    done = node.sh(
        f"SLOTWARD_WHO=ansible SUDO_USER=ana slotward upgrade --target {target} --src {source} --no-wait --json"
    )
    trial = json.loads(done)["trial"]["id"]
    assert node.confirm(trial).exit == 0
    log = lines(node)
    assert [(line["event"], line["who"]) for line in log[1:4]] == [
        ("started", "ansible:ana"),
        ("accepted", "ansible:ana"),
        ("swapped", "ansible:ana"),
    ]


@pytest.mark.host
def test_a_log_that_cannot_be_written_stops_updates_and_nothing_else(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """A trial is confirmed, or goes back, whatever became of the log; nothing new is accepted until an operator says so."""
    node.damaged = True
    trial = node.on_trial(v110)
    node.sh(f"cd {nodes.SLOTS} && rm audit.log && mkfifo audit.log")
    assert node.confirm(trial).json["state"] == "confirmed"
    answer = node.begin(v120)
    assert (answer.exit, answer.code) == (5, "audit-broken")
    assert node.doctor()["audit log"][0] == "fail"
    assert node.running() == "1.1.0"
    assert node.slotward("audit", "--restart-chain").json["changed"] is True
    assert events(node)[0] == "repaired"
    trial = node.on_trial(v120)
    node.sh(f"cd {nodes.SLOTS} && chattr +i audit.log 2>/dev/null || chown 12345 audit.log")
    assert node.slotward("rollback").exit == 0
    assert (node.link("current"), node.running()) == (node.link("good"), "1.1.0")
    node.sh(f"cd {nodes.SLOTS} && chattr -i audit.log 2>/dev/null; chown 0 audit.log; slotward settle")
    assert events(node) == ["repaired", "swapped", "confirmed", "started", "accepted", "swapped", "rolled-back"]
    assert node.sh(f"ls -d {nodes.SLOTS}/audit.broken-*/audit.log")
