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
