# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper follows updates, on real hosts: it is switched, proven, confirmed and taken back with the daemon.

Begun and confirmed by an operator, whom a mode does not limit; what the daemon asks for is tried in other files.
"""

from __future__ import annotations

import pathlib

import pytest
from support import modes, releases
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.HELPER)]

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELPER = modes.HELPER_UNIT
BY_HAND = "--start"
"""A flag that only an operator has, and that changes nothing where both units run."""


def links(node: nodes.Node) -> tuple[str, str, str]:
    """What current, good and helper name."""
    return node.link("current"), node.link("good"), node.link("helper")


@pytest.fixture(scope="session")
def helpless(shop: releases.Workshop) -> releases.Release:
    """A release whose daemon is in order and whose helper exits at each start."""
    real = (ROOT / "agent" / "src" / "slotward" / "helper.py").read_text(encoding="utf-8")
    head, mark, tail = real.partition("    try:\n        account = ready(setup)\n")
    assert mark, "helper.run has changed: this release needs it to find its place"
    overlay = shop.directory / "helpless"
    (overlay / "slotward").mkdir(parents=True, exist_ok=True)
    (overlay / "slotward" / "helper.py").write_text(f"{head}    raise SystemExit(1)\n{mark}{tail}", encoding="utf-8")
    return shop.release("1.61.0", 61, extra=overlay)


@pytest.mark.hosts
def test_both_are_switched_proven_and_confirmed(node: nodes.Node, v110: releases.Release) -> None:
    """I11 for two units: new processes of both, which run the new slot's bytes, and one answer that names them."""
    before = node.unit().main_pid, node.unit(HELPER).main_pid
    trial = node.on_trial(v110, BY_HAND)
    node.waits(lambda: node.running() == "1.1.0" and node.helper_slot() == "b", 20, "both run the new slot")
    assert links(node) == ("b", "a", "b")
    assert (node.link("back"), node.link("helper.back")) == ("a", "a")
    answer = node.slotward(*node.confirm_line(trial))
    assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
    after = node.unit().main_pid, node.unit(HELPER).main_pid
    assert not set(before) & set(after)
    assert (answer.json["proof"]["main_pid"], answer.json["proof"]["helper"]["main_pid"]) == after
    assert links(node) == ("b", "b", "b")
    state = node.update()
    assert (state["mode"], state["helper"]["slot"], state["helper"]["active"]) == ("helper", "b", "active")
    assert state["helper"]["main_pid"] == after[1]


@pytest.mark.hosts
def test_a_helper_that_keeps_exiting_takes_both_back(node: nodes.Node, helpless: releases.Release) -> None:
    """I2: the daemon of that release runs well, and nobody confirms it; the guard ends the trial for the helper."""
    trial = node.on_trial(helpless, BY_HAND)
    answer = node.slotward(*node.confirm_line(trial, 0))
    assert answer.json["state"] in {"trial", "rolled-back"}, answer
    if answer.json["state"] == "trial":
        assert answer.code == "not-proven", answer
    node.goes_back(("crash-loop",), 30)
    assert links(node) == ("a", "a", "a")
    node.waits(lambda: node.helper_slot() == "a", 15, "the helper runs the old slot")
    assert not {"back", "helper.back"} & node.names()


@pytest.mark.host
def test_a_helper_that_hangs_is_no_proof(node: nodes.Node, v110: releases.Release) -> None:
    """It has the new bytes open and answers nobody: not proven, by its unit's name; once it goes on, all is well."""
    node.configure(trial_length_s=60)
    trial = node.on_trial(v110, BY_HAND)
    node.waits(lambda: node.running() == "1.1.0" and node.helper_slot() == "b", 20, "both run the new slot")
    node.waits(lambda: node.unit(HELPER).active == "active", 15, "the helper is ready")
    pid = node.unit(HELPER).main_pid
    node.sh(f"kill -STOP {pid}")
    try:
        answer = node.slotward(*node.confirm_line(trial, 3))
        assert (answer.exit, answer.code, answer.json["state"]) == (6, "not-proven", "trial"), answer
        assert answer.json["message"].startswith(f"{HELPER}: main process {pid} "), answer
    finally:
        node.sh(f"kill -CONT {pid}")
    answer = node.slotward(*node.confirm_line(trial))
    assert answer.json["state"] == "confirmed", answer


@pytest.mark.host
def test_P7_a_cut_between_the_two_links_costs_a_boot_and_no_trial(node: nodes.Node, v110: releases.Release) -> None:
    """The daemon's link had moved and the helper's had not when the power went: settling makes it follow."""
    node.configure(trial_length_s=60)
    trial = node.on_trial(v110, BY_HAND)
    node.waits(lambda: node.running() == "1.1.0", 20, "the new version runs")
    node.sh(f"ln -sfn a {nodes.SLOTS}/helper; sync")
    node.host.cut()
    node.host.boot()
    node.waits(lambda: node.running() == "1.1.0" and node.helper_slot() == "b", 30, "both run the new slot")
    assert links(node) == ("b", "a", "b")
    assert node.update()["trial"]["boots_left"] == 2
    answer = node.slotward(*node.confirm_line(trial))
    assert answer.json["state"] == "confirmed", answer


@pytest.mark.host
def test_a_helper_that_was_left_behind_follows_at_the_next_command(node: nodes.Node, v110: releases.Release) -> None:
    """At rest: its link is set right and its unit restarted, once; one that an operator had stopped stays down."""
    node.sh(f"ln -sfn b {nodes.SLOTS}/helper")
    before = node.unit(HELPER).main_pid
    assert node.slotward("settle").exit == 0  # what each start has settled may have been faster
    node.waits(lambda: node.unit(HELPER).main_pid not in {0, before}, 15, "the helper was restarted")
    assert links(node) == ("a", "a", "a")
    node.waits(lambda: node.helper_slot() == "a", 15, "the helper runs the good slot")
    assert node.slotward("settle").json["settled"] == "nothing"
    node.sh(f"systemctl stop {HELPER}; rm {nodes.SLOTS}/helper")
    assert node.slotward("settle").exit == 0
    assert links(node) == ("a", "a", "a")
    assert node.unit(HELPER).active == "inactive"
    refused = node.begin(v110, "--no-smoke")
    assert (refused.exit, refused.code) == (3, "unit-not-running"), refused
    assert HELPER in refused.json["message"]
    node.sh(f"systemctl start {HELPER}")
