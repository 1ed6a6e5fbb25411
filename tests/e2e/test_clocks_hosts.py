# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks that are wrong, on real hosts (I10; DESIGN 5; field cases N9, N11, N14): 1970, years ahead, steps, a late NTP, a suspension.

What of it is real, and what is not, says `tests/support/wall.py`: a step is real for every program of ours, and not for the kernel.
"""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, server, wall

pytestmark = [pytest.mark.hosts, pytest.mark.every_mode]

HOUR = 3600
YEAR = 365 * 24 * HOUR
SINCE_1970 = 300
CA = "/etc/slotward/ca.pem"
OLD = ("--issued-at", "2025-01-01T00:00:00Z", "--expires-days", "1")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What makes a host's wall clock wrong."""
    return wall.build(tmp_path_factory.mktemp("wall"))


@pytest.fixture
def clock(node: nodes.Node, library: pathlib.Path) -> Iterator[wall.Wall]:
    """The host's clock, right so far; the daemon reads it."""
    made = wall.Wall(node.host, library)
    try:
        node.sh(f"systemctl restart {nodes.UNIT}")
        yield made
    finally:
        made.remove()


@pytest.fixture
def expired(shop: releases.Workshop) -> releases.Release:
    """A release that is over for long."""
    return shop.release("1.95.0", 95, more=OLD)


def set_once_it_is_missed(node: nodes.Node, clock: wall.Wall, within_s: float = 60) -> None:
    """NTP comes when a download waits for it, as its progress says; or too late."""
    until = time.monotonic() + within_s
    said = f"cat {nodes.SLOTS}/progress.json"
    while "clock says 1970" not in node.sh(said, check=False) and time.monotonic() < until:
        time.sleep(0.2)
    clock.off_by(0)


def at_the_deadline(node: nodes.Node, began: float, length: int) -> None:
    """The trial that began then went back at its deadline: not before its length was over, and at once after it."""
    node.waits(lambda: node.link("current") == node.link("good"), length + 30, "current names good again")
    took = time.monotonic() - began
    assert length - 2 <= took <= length + 12, f"{took:.1f} s of {length} s\n{node.story()}"
    assert node.goes_back(("deadline-passed",), 20)["last"]["code"] == "deadline-passed"


def test_N11_a_host_without_a_clock_takes_releases_and_judges_expiry_by_what_it_verified(
    node: nodes.Node, clock: wall.Wall, v110: releases.Release, expired: releases.Release
) -> None:
    """In 1970: a good release is tried and confirmed; one that expired before that was issued is refused, and the clock is named."""
    clock.says(SINCE_1970)
    assert node.sh("date -u +%Y") == "1970"
    node.sh(f"systemctl restart {nodes.UNIT}")
    unset = node.doctor()["clock"]
    assert unset[0] == "warn", unset
    node.upgraded(v110)
    level, text, run = node.doctor()["clock"]
    assert (level, "so it is behind" in text, "timedatectl" in run) == ("warn", True, True), text
    refused = node.slotward("prepare", "--target", node.target(expired), "--src", node.put(expired.artifact))
    assert (refused.exit, refused.code) == (3, "expired"), refused
    assert "expired at 2025-01-02T00:00:00Z: this host's clock says 1970-01-01T00:" in refused.message
    assert refused.message.endswith("so the clock is behind: set it")
    clock.off_by(0)
    assert node.doctor()["clock"][0] == "ok"
    assert node.update()["state"] == "confirmed"


def test_N9_a_clock_that_is_years_ahead_refuses_by_name_and_poisons_nothing(
    node: nodes.Node, clock: wall.Wall, v110: releases.Release
) -> None:
    """What it says stands in the refusal, beside what whoever asks says; once it is set the same release is taken."""
    clock.off_by(10 * YEAR)
    target, src = node.target(v110), node.put(v110.artifact)
    alone = node.slotward("prepare", "--target", target, "--src", src)
    assert (alone.exit, alone.code) == (3, "expired"), alone
    assert alone.message.endswith(", and nobody said another time: set it if it is wrong"), alone
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    asked = node.slotward("prepare", "--target", target, "--src", src, "--server-time", now)
    assert (asked.exit, asked.code) == (3, "expired"), asked
    assert asked.message.endswith(f" and whoever asks says {now}: set the one that is wrong"), asked
    node.sh(f"systemctl restart {nodes.UNIT}")
    assert (node.unit().active, node.update()["failed"]) == ("active", [])
    clock.off_by(0)
    node.upgraded(v110)


@pytest.mark.parametrize("step", [6 * HOUR, -6 * HOUR, 20 * YEAR], ids=["hours-ahead", "hours-back", "years-ahead"])
def test_N14_a_step_in_a_trial_neither_shortens_nor_lengthens_it(
    node: nodes.Node, clock: wall.Wall, v110: releases.Release, step: int
) -> None:
    """N14: the deadline is a length by the clock that counts from boot, whatever the one on the wall says (I10)."""
    length = 20
    node.configure(trial_length_s=length)
    began = time.monotonic()
    node.on_trial(v110)
    left = node.update()["trial"]["left_s"]
    clock.off_by(step)
    after = node.update()["trial"]["left_s"]
    assert left - 8 <= after <= left
    clock.off_by(-step)
    clock.off_by(step)
    at_the_deadline(node, began, length)


def test_N14_a_release_is_confirmed_whatever_the_clock_did_in_its_trial(
    node: nodes.Node, clock: wall.Wall, v110: releases.Release, v120: releases.Release
) -> None:
    """N14: steps in both directions, back to 1970 too: the trial goes on, and proof and confirmation need no wall clock."""
    trial = node.on_trial(v110)
    for step in (6 * HOUR, -6 * HOUR):
        clock.off_by(step)
        assert node.update()["trial"]["id"] == trial
    clock.says(SINCE_1970)
    done = node.confirm(trial)
    assert (done.exit, done.json["state"]) == (0, "confirmed"), done
    assert (node.running(), node.update()["floor"]) == ("1.1.0", 2)
    node.upgraded(v120)


def test_N9_a_clock_that_is_set_late(
    node: nodes.Node,
    clock: wall.Wall,
    v110: releases.Release,
    v120: releases.Release,
    tmp_path: pathlib.Path,
) -> None:
    """Power is cut in a trial and the host comes back in 1970: the trial has its length; what a server signs is no good until NTP comes."""
    trial = node.on_trial(v110)
    boots = node.update()["trial"]["boots_left"]
    node.host.cut()
    clock.says(SINCE_1970)
    node.host.boot()
    node.waits(lambda: node.running() == "1.1.0", 30, "the release on trial runs in the new boot")
    assert node.sh("date -u +%Y") == "1970"
    found = node.update()["trial"]
    assert (found["id"], found["boots_left"], 20 < found["left_s"] <= 60) == (trial, boots - 1, True), found
    clock.off_by(0)
    later = node.update()["trial"]
    assert found["left_s"] - 10 <= later["left_s"] <= found["left_s"], "that NTP came ended nothing and gave nothing"
    assert node.confirm(trial).json["state"] == "confirmed"

    authority = server.make_authority(tmp_path / "authority", [node.host.controller_address])
    node.host.put(authority.ca, CA)
    node.configure(ca_file=CA)
    clock.says(SINCE_1970)
    with server.FileServer(node.host.controller_address, authority) as files:
        target = node.target(v120, files.url(v120.artifact))
        early = node.slotward("prepare", "--target", target)
        assert (early.exit, early.code) == (4, "clock-behind"), early
        assert "not yet valid, and this host's clock says 1970-01-01T00:" in early.message, early
        ntp = threading.Thread(target=set_once_it_is_missed, args=(node, clock))
        ntp.start()
        try:
            begun = node.slotward("upgrade", "--target", target, "--no-wait", "--id", nodes.trial_id())
        finally:
            ntp.join()
    assert (begun.exit, begun.json["state"]) == (0, "trial"), begun
    assert "this host's clock says 1970-01-01T00:" in begun.errors, begun.errors
    assert node.confirm(str(begun.json["trial"]["id"])).json["state"] == "confirmed"


def test_N14_a_suspended_host_has_the_time_that_is_left(node: nodes.Node, v110: releases.Release) -> None:
    """Time asleep counts: a short sleep leaves the rest of the length, one past the deadline ends the trial at the first look."""
    node.configure(trial_length_s=300)
    try:
        node.on_trial(v110)
        left = node.update()["trial"]["left_s"]
        wall.slept(node.host, 100)
        assert left - 115 <= node.update()["trial"]["left_s"] <= left - 99
        assert node.link("current") == "b"
        wall.woken(node.host)
        wall.slept(node.host, 301)
        woke = time.monotonic()
        node.waits(lambda: node.link("current") == "a", 30, "current names good again")
        assert time.monotonic() - woke < 15, node.story()
        assert node.goes_back(("deadline-passed",), 20)["last"]["code"] == "deadline-passed"
    finally:
        wall.woken(node.host)
