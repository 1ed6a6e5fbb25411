# SPDX-License-Identifier: GPL-3.0-or-later
"""Broken releases of a daemon that is no agent, where that ends otherwise: its unit is the operator's own, and has no sandbox."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from support import broken, misdeeds, outcomes, releases, toys
from support import node as nodes

pytestmark = pytest.mark.hosts
PRODUCT = "product"
LENGTH_S = 8
STOP_S = 3
LIMITS = f"[Unit]\nStartLimitIntervalSec=300\n[Service]\nTimeoutStopSec={STOP_S}s\n"
IN_TRIAL = [kind for kind in broken.KINDS if kind.body_codes]


@pytest.fixture
def toy(node: nodes.Node, v100: releases.Release) -> Iterator[toys.Toy]:
    """A daemon as root, adopted; its unit waits three seconds for a stop."""
    with toys.running(node, v100, adopted=False) as made:
        made.describe(trial_length_s=LENGTH_S, floor="previous")
        node.drop_in(LIMITS, made.unit, "20-limits.conf")
        adopted = made.slotward("setup", "--adopt")
        assert adopted.exit == 0, adopted
        yield made


def body_of(kind: broken.Broken) -> str:
    """What a shell daemon of that kind does."""
    assert kind.body is not None
    return kind.body


def works(toy: toys.Toy) -> bool:
    """Whether its entrypoint leads to a program that runs, and its unit is up."""
    toy.node.sh(f"{toy.entrypoint} version")
    return toy.node.unit(toy.unit).active == "active"


def first_version_runs(toy: toys.Toy) -> None:
    """Slot a is current and good, and its process is the only one there is."""
    node = toy.node
    assert node.sh(f"readlink {toy.slots}/current {toy.slots}/good") == "a\na"
    held = f"ls -l /proc/[0-9]*/fd 2>/dev/null | grep -- '-> {toy.slots}/b$'"
    node.waits(lambda: node.sh(held, check=False) == "", 15, "nobody has the failed release open")
    node.waits(lambda: node.unit(toy.unit).active == "active", 15, "its unit runs")
    assert node.sh(f"{toy.entrypoint} version") == "toy 1.0.0"


@pytest.mark.parametrize("kind", IN_TRIAL, ids=[kind.name for kind in IN_TRIAL])
def test_a_trial_ends_it_without_an_operator(toy: toys.Toy, kind: broken.Broken) -> None:
    """By the guard alone, with what its own unit says of restarts and stops; then a good release is taken."""
    node = toy.node
    length = 25 if kind.name == "changes-its-files" else LENGTH_S  # somebody tries to confirm it meanwhile
    toy.describe(trial_length_s=length, floor="previous")
    with outcomes.told(node, kind.name, PRODUCT, lambda: works(toy)) as row:
        began = time.monotonic()
        trial = toy.on_trial(toy.release("1.1.0", 2, body_of(kind)))
        if kind.name == "changes-its-files":
            node.waits(lambda: "# changed" in node.sh(f"tail -n 1 {toy.slots}/b"), 5, "it has changed its file")
            refused = toy.slotward("confirm", "--id", trial, "--wait", "2")
            assert (refused.exit, refused.code) == (6, "not-proven"), refused
            assert refused.message == "slot b holds other bytes than were verified for 1.1.0"
        home = f"readlink {toy.slots}/current"
        node.waits(lambda: node.sh(home) == "a", length + 20, "the guard goes back, with no command of ours")
        last = toy.goes_back(kind.body_codes, STOP_S + 20)
        assert (last["id"], last["state"]) == (trial, "rolled-back")
        row.tell(last["code"], time.monotonic() - began)
        first_version_runs(toy)
    assert [(one["version"], one["code"]) for one in toy.update()["failed"]] == [("1.1.0", last["code"])]
    assert toy.slotward("update", "--clear-failed", "1.1.0").json["cleared"] == ["1.1.0"]
    toy.describe(floor="previous")
    toy.upgraded(toy.release("1.2.0", 3))


def test_a_release_that_removes_the_guard_as_root(toy: toys.Toy) -> None:
    """Nothing of systemd's ends its trial then, as the threat model says; doctor tells, and the next command ends it."""
    node, kind = toy.node, broken.named("removes-the-guard")
    with outcomes.told(node, kind.name, PRODUCT, lambda: works(toy)) as row:
        began = time.monotonic()
        trial = toy.on_trial(toy.release("1.1.0", 2, body_of(kind)))
        node.waits(lambda: time.monotonic() - began > LENGTH_S + 6, LENGTH_S + 10, "its time is over")
        assert node.sh(f"test -e {misdeeds.GUARD_DIR}/guard || readlink {toy.slots}/current") == "b"
        last = toy.goes_back(["deadline-passed"], 20)  # asks `slotward update`, which is such a command
        assert last["id"] == trial
        row.tell(last["code"], time.monotonic() - began)
        first_version_runs(toy)
    guard = [one for one in toy.slotward("doctor").json["checks"] if one["name"] == "guard" and one["state"] == "fail"]
    assert guard, "doctor tells of it"
    refused = toy.begin(toy.release("1.2.0", 3))
    assert (refused.exit, refused.code) == (3, "guard-not-installed"), refused
    assert node.slotward("setup").json["changed"] is True
    toy.describe(floor="previous")
    toy.upgraded(toy.release("1.2.0", 3))


def test_i5_what_crashes_once_it_is_confirmed_is_left_by_going_back_to_the_release_before(toy: toys.Toy) -> None:
    """Its unit runs into its own limit and stays down; doctor names the command that goes back, and that command does."""
    node, kind = toy.node, broken.named("crashes-once-confirmed")
    toy.describe(trial_length_s=60, floor="previous")
    with outcomes.told(node, kind.name, PRODUCT, lambda: works(toy)) as row:
        trial = toy.on_trial(toy.release("1.1.0", 2, body_of(kind)))
        confirmed = toy.slotward("confirm", "--id", trial, "--wait", "15")
        assert confirmed.json["state"] == "confirmed", confirmed
        node.waits(lambda: node.unit(toy.unit).active == "failed", 40, "it has failed for good")
        state = toy.update()
        assert (state["state"], state["version"], state["slots"]["good"]) == ("confirmed", "1.1.0", "b")
        assert f"unit: {toy.unit} is failed" in node.sh(f"slotward update --product {toy.name}")
        checks = toy.slotward("doctor").json["checks"]
        (level, run) = next((one["state"], one["run"]) for one in checks if one["name"] == "unit")
        assert level == "fail", checks
        assert run.endswith(f"slotward rollback --product {toy.name} --to previous --start"), run
        began = time.monotonic()
        back = toy.slotward("rollback", "--to", "previous", "--start", "--no-wait", "--id", nodes.trial_id())
        assert (back.exit, back.json["state"]) == (0, "trial"), back
        done = toy.slotward("confirm", "--id", str(back.json["trial"]["id"]), "--wait", "15")
        assert done.json["state"] == "confirmed", done
        row.tell("operator", time.monotonic() - began)
        first = toy.update()
        assert (first["version"], first["unit"]["active"], first["hold"] is not None) == ("1.0.0", "active", True)
    assert json.loads(node.host.read(f"{toy.slots}/update.json"))["floor"] == state["floor"]
