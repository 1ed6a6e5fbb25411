# SPDX-License-Identifier: GPL-3.0-or-later
"""The running daemon is asked, as a gateway's stand-in would, and does its part as each mode has it (privilege.md, section 5)."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
from support import modes, releases, server
from support import node as nodes

pytestmark = [pytest.mark.hosts, pytest.mark.quick_modes]

SETTINGS = {"confirm_sources": "gateway", "allow_http": True}
FETCHING = (
    "for pid in $(pgrep -f 'upgrade --json'); do "
    "readlink /proc/$pid/fd/* 2>/dev/null | grep -q '[.]part' && stat -c %U /proc/$pid; done; true"
)
"""The users of the processes that have the part of a download open."""


@pytest.fixture(autouse=True)
def _gateway(node: nodes.Node) -> None:
    """In every mode the gateway confirms, and the artifact comes over http."""
    if node.mode.name == modes.ROOT:
        node.configure(**SETTINGS)
        node.sh("systemctl restart slotward.service")


def waiting(node: nodes.Node, *words: str) -> subprocess.Popen[str]:
    """`slotward ask …` that goes on meanwhile."""
    argv = node.host.enter_argv(["slotward", "ask", *words, "--json"])
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_whole_update_is_asked_of_the_daemon(node: nodes.Node, v110: releases.Release) -> None:
    """One command waits from the request over the daemon's own restart to the confirmation, which another one gives."""
    trial = nodes.trial_id()
    target = node.target(v110, node.served(v110))
    upgrade = waiting(node, "upgrade", "--target", target, "--id", trial)
    node.waits(lambda: (node.update()["trial"] or {}).get("id") == trial, 60, "the trial has begun")
    assert upgrade.poll() is None, "on trial is not the end (I5)"
    confirmed = node.slotward("ask", "confirm", "--id", trial, "--wait", "15")
    assert (confirmed.exit, confirmed.json["state"], confirmed.code) == (0, "confirmed", "ok"), confirmed
    out, errors = upgrade.communicate(timeout=60)
    answer = json.loads(out)
    assert (upgrade.returncode, answer["state"], answer["to"]) == (0, "confirmed", "1.1.0"), errors
    assert f"asking the daemon for 1.1.0, trial {trial}" in errors
    assert node.running() == "1.1.0"
    again = node.slotward("ask", "upgrade", "--target", target, "--id", trial)
    assert (again.exit, again.json["state"], again.json["id"]) == (0, "confirmed", trial), (
        "asked again, nothing changes (I9)"
    )
    node.runnable()
    node.waits(lambda: node.sh(f"ls -A {nodes.STAGING}") == "", 10, "staging is empty")


def test_what_is_asked_for_is_judged_by_root(node: nodes.Node, v100: releases.Release, v110: releases.Release) -> None:
    """A target of other bytes is refused with root's own code, and the daemon runs on."""
    pid = node.unit().main_pid
    sha256 = node.shop.target(v100)["sha256"]
    bad = node.slotward("ask", "upgrade", "--target", node.target(v110, node.served(v110), sha256=sha256))
    assert (bad.exit, bad.json["state"], bad.code) == (3, "refused", "no-artifact"), bad
    assert node.unit().main_pid == pid
    assert node.link("current") == "a"


def test_the_daemon_gives_its_own_trial_up(node: nodes.Node, v110: releases.Release) -> None:
    """Who asks is told how it ended, although the daemon that was asked goes with it."""
    trial = nodes.trial_id()
    begun = node.slotward(
        "ask", "upgrade", "--target", node.target(v110, node.served(v110)), "--no-wait", "--id", trial
    )
    assert (begun.exit, begun.json["state"]) == (0, "trial"), begun
    done = node.slotward("ask", "rollback", "--id", trial, "--why", "no link to the gateway")
    assert (done.exit, done.json["state"]) == (0, "rolled-back"), done
    node.waits(lambda: node.running() == "1.0.0", 15, "1.0.0 runs again")
    last = node.update()["last"]
    assert (last["id"], last["state"]) == (trial, "rolled-back")


def test_a_download_is_the_accounts_and_ends_with_the_daemon(
    node: nodes.Node, v110: releases.Release, tmp_path: pathlib.Path
) -> None:
    """Who fetches is who the daemon is; one piece of work at a time; a daemon that is stopped before the switch ends it."""
    user = "root" if node.mode.name == modes.ROOT else modes.ACCOUNT
    part = f"{nodes.STAGING}/slotward-1.1.0.part"
    with server.FileServer(node.host.controller_address) as files:
        target = node.target(v110, files.url(v110.artifact))
        files.stalling.update(files.files)
        asked = waiting(node, "upgrade", "--target", target, "--id", nodes.trial_id())
        node.waits(lambda: node.sh(f"stat -c %s {part}", check=False) not in ("", "0"), 20, "half of it has come")
        assert node.sh(f"stat -c '%U %a' {part}") == f"{user} 600"
        assert set(node.sh(FETCHING).split()) == {user}, "the process whose connection it is"
        busy = node.slotward("ask", "confirm", "--id", nodes.trial_id())
        assert (busy.exit, busy.code) == (4, "in-progress"), busy
        assert "the daemon is at work for" in busy.message
        node.sh("systemctl stop slotward.service")
        node.waits(lambda: node.sh(FETCHING, check=False) == "", 15, "it has ended with the daemon")
        asked.kill()
        asked.communicate()
        gone = node.slotward("ask", "confirm", "--id", nodes.trial_id())
        assert (gone.exit, gone.code) == (4, "daemon-unreachable"), gone
        assert "systemctl status slotward.service" in gone.message
        assert node.link("current") == "a"
        node.sh("systemctl start slotward.service")
        files.stalling.clear()
        trial = nodes.trial_id()
        begun = node.slotward("ask", "upgrade", "--target", target, "--no-wait", "--id", trial)
        assert (begun.exit, begun.json["state"]) == (0, "trial"), begun
    confirmed = node.slotward("ask", "confirm", "--id", trial, "--wait", "15")
    assert (confirmed.exit, confirmed.json["state"]) == (0, "confirmed"), confirmed
