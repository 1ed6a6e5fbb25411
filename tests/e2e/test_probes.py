# SPDX-License-Identifier: GPL-3.0-or-later
"""Confirmation by probes on real hosts (products.md, section 5; field cases H1, H2, H5, H6, H11, S17; issue 5, "must be seen" 3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import releases, webd
from support.node import Node

RED = """
[probe-red]
kind = "tcp"
address = "127.0.0.1:9"
"""
WANTED = """
[probe-nice]
kind = "tcp"
address = "127.0.0.1:9"
need = "wanted"
"""


@pytest.fixture
def daemon(node: Node, request: pytest.FixtureRequest) -> Iterator[webd.Webd]:
    """The web daemon on a host of each suite; nothing of it is left for the next test."""
    found = webd.Webd(node)
    try:
        yield found
    finally:
        print(found.story())
        found.remove()


@pytest.mark.host
def test_H1_one_429_and_a_probe_that_was_red_before_end_no_trial(daemon: webd.Webd, shop: releases.Workshop) -> None:
    """A whole trial, confirmed by its probes alone; what was red before the swap and what is wanted are told."""
    daemon.install(webd.CONNECT + RED + WANTED)
    v110 = webd.release(shop, "1.1.0", 2, says="200 200 429 200 200 200 200 200 200 200 200 200")
    answer = daemon.upgrade(v110)
    assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
    state = daemon.waits(["confirmed"])
    assert state["last"]["state"] == "confirmed"
    probes = {one["name"]: one for one in state["probes"]["probes"]}
    assert probes["web"] == {
        "name": "web", "kind": "http", "need": "required", "decides": True, "baseline": True, "ok": True,
        "why": f"http://127.0.0.1:{webd.PORT}/ answered 200",
    }  # fmt: skip
    assert [(probes[name]["need"], probes[name]["decides"], probes[name]["ok"]) for name in ("red", "nice")] == [
        ("required", False, False),
        ("wanted", False, False),
    ]
    assert probes["red"]["baseline"] is False
    assert state["probes"]["changes"] == 1
    assert daemon.runs() == "1.1.0"
    daemon.node.waits(lambda: daemon.node.sh(f"ls {webd.SLOTS}").find("baseline") < 0, 10, "the baseline is gone")
    daemon.node.waits(lambda: daemon.watcher() == ("inactive", "success"), 10, "the watcher has ended")
    daemon.node.sh("sleep 3")  # longer than the wait before an automatic restart
    assert daemon.watcher() == ("inactive", "success")


@pytest.mark.host
def test_H11_a_release_that_fails_its_probe_goes_back_and_says_which(
    daemon: webd.Webd, shop: releases.Workshop
) -> None:
    """The probe's name and what it saw are in the end of the trial; the old version is then found healthy (H6)."""
    daemon.install()
    answer = daemon.upgrade(webd.release(shop, "1.2.0", 3, says="500"))
    why = "3 rounds of probes in a row failed: web: http://127.0.0.1:8480/ answered 500, expected 200"
    assert (answer.exit, answer.code, answer.message) == (6, "probe-failed", f"webd 1.2.0: {why}"), answer
    state = daemon.waits(["healthy"])
    assert (state["state"], state["last"]["state"], state["last"]["code"]) == ("rolled-back",) * 2 + ("probe-failed",)
    assert state["probes"]["phase"] == "after"
    assert daemon.runs() == "1.0.0"


@pytest.mark.hosts
def test_flapping_goes_back_and_the_reason_is_in_status(daemon: webd.Webd, shop: releases.Workshop) -> None:
    """Never three failures in a row, and never three passes."""
    daemon.install()
    answer = daemon.upgrade(webd.release(shop, "1.3.0", 4, says="200 500"))
    assert (answer.exit, answer.code) == (6, "probe-flapping"), answer
    assert "from passing to failing 3 times; the last time web: " in answer.message
    state = daemon.waits(["healthy"])
    assert state["failed"][-1]["why"] == answer.message


@pytest.mark.hosts
def test_H5_a_reboot_before_the_probes_have_decided_is_no_failure(daemon: webd.Webd, shop: releases.Workshop) -> None:
    """The boot after it has the whole length again, and counts from nothing."""
    node = daemon.node
    daemon.install(confirm="passes = 90\n", trial_length_s=120)
    answer = daemon.upgrade(webd.release(shop, "1.6.0", 7), "--no-wait")
    assert (answer.exit, answer.json["state"]) == (0, "trial"), answer
    node.waits(lambda: (daemon.update()["probes"] or {}).get("passes", 0) >= 2, 30, "two rounds have passed")
    node.host.reboot()
    state = daemon.update()
    assert (state["state"], state["trial"]["boots_left"]) == ("trial", 2)
    counted = f"journalctl -q --no-pager -b -o cat -u {webd.WATCHER} | grep -m 1 'of 90 rounds'"
    node.waits(lambda: node.sh(counted, check=False) != "", 30, "a round has counted")
    assert node.sh(counted) == "wait: 1 of 90 rounds in a row passed"
    daemon.describe(confirm="passes = 2\n", trial_length_s=120)
    node.sh(f"systemctl restart {webd.WATCHER}")
    state = daemon.waits(["confirmed"])
    assert (state["state"], state["last"]["state"]) == ("confirmed", "confirmed")
    assert daemon.runs() == "1.6.0"


KINDS = """
[probe-runs]
kind = "unit"
for_s = 2

[probe-quiet]
kind = "journal"
pattern = "panic"

[probe-answers]
kind = "command"
command = "/usr/local/bin/webd-check --now"
user = "games"

[probe-open]
kind = "tcp"
address = "127.0.0.1:8480"

[probe-fresh]
kind = "file"
path = "/run/webd-beat"
fresh_s = 300
"""
CHECK = """#!/usr/bin/python3 -I
import os, pwd, sys, urllib.request
assert sys.argv[1:] == ["--now"], sys.argv
assert pwd.getpwuid(os.geteuid()).pw_name == "games", os.geteuid()
print("webd", urllib.request.urlopen("http://127.0.0.1:8480/", timeout=3).read().decode())
"""


@pytest.mark.hosts
def test_H3_units_journals_and_commands_as_others(daemon: webd.Webd, shop: releases.Workshop) -> None:
    """Each kind on a real systemd: what the old version says while it is stopped is not held against the new one."""
    daemon.node.host.write("/usr/local/bin/webd-check", CHECK, 0o755)
    daemon.node.sh("touch /run/webd-beat")
    daemon.install(KINDS)
    now = daemon.slotward("probe")
    said = {one["name"]: (one["ok"], one["why"]) for one in now.json["probes"]}
    assert said["answers"] == (True, "webd 1.0.0"), now
    assert (
        said["quiet"][0] is False
    )  # the version that was there was stopped a moment ago, to be started through the link
    daemon.node.sh("sleep 3")
    answer = daemon.upgrade(webd.release(shop, "1.1.0", 2, says="200 200 429 200 200 200 200 200 200 200 200 200"))
    assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
    now = daemon.slotward("probe")
    said = {one["name"]: (one["ok"], one["why"]) for one in now.json["probes"]}
    assert said["answers"][1] == "webd 1.1.0"
    assert said["runs"][1].startswith("main process ")


@pytest.mark.hosts
def test_a_line_of_the_journal_takes_a_release_back(daemon: webd.Webd, shop: releases.Workshop) -> None:
    """What the new release says, and not what the old one said."""
    daemon.install(KINDS.partition("[probe-answers]")[0], trial_length_s=20)
    daemon.node.sh("sleep 21")  # the baseline looks back as far as a trial is long
    answer = daemon.upgrade(webd.release(shop, "1.4.0", 5, starts="panic: no such table"))
    assert (answer.exit, answer.code) == (6, "probe-failed"), answer
    assert "quiet: webd.service said 'panic: no such table'" in answer.message
    assert daemon.waits(["healthy"])["version"] == "1.0.0"


@pytest.mark.hosts
def test_H6_the_guard_s_way_back_is_judged_too(daemon: webd.Webd, shop: releases.Workshop) -> None:
    """The release kept exiting; and what came back is not healthy any more: both are said."""
    daemon.install(webd.CONNECT + RED.replace(":9", ":8481"))
    node = daemon.node
    node.sh("systemd-run -q --unit=slotward-test-other python3 -m http.server 8481")
    node.waits(lambda: daemon.slotward("probe").exit == 0, 10, "both probes are green")
    answer = daemon.upgrade(webd.release(shop, "1.5.0", 6, says="200", starts="exit"), "--no-wait")
    assert answer.exit == 0, answer
    node.sh("systemctl stop slotward-test-other")
    for _time in range(4):
        node.sh(f"pid=$(systemctl show -p MainPID --value {webd.UNIT}); [ $pid = 0 ] || kill -9 $pid; sleep 1.5")
    state = daemon.waits(["unhealthy", "healthy"])
    assert state["state"] == "rollback-failed", state
    assert state["last"]["code"] in ("crash-loop", "probe-failed")
    assert "1.0.0 is not healthy after going back to it" in state["last"]["why"]
    assert "red: 127.0.0.1:8481: Connection refused" in state["last"]["why"]
    assert (daemon.runs(), state["slots"]["current"]) == ("1.0.0", state["slots"]["good"])


@pytest.mark.hosts
def test_the_agent_confirms_itself_by_its_unit(node: Node, v110: releases.Release) -> None:
    """The release before looks, from the slot that is good; nobody else says anything."""
    node.configure(confirm_sources="probe")
    node.sh("slotward setup --json")
    node.on_trial(v110)
    node.waits(lambda: node.update()["state"] == "confirmed", 30, "the agent has confirmed itself")
    assert node.running() == "1.1.0"
    probes = node.update()["probes"]
    assert (probes["verdict"], probes["probes"][0]["kind"]) == ("confirmed", "unit")
    node.configure()
    node.sh(
        "slotward setup --json; rm -f /etc/systemd/system/slotward-probe@slotward.service /opt/slotward/slotward/probes.json"
    )
