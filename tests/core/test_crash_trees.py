# SPDX-License-Identifier: GPL-3.0-or-later
"""The crash matrix with layout `versions`: a slot is a link to a tree, and what starts is a program of a proven tree.

The scenarios, the guard and the executor are those of `test_crash_matrix`; the trees are made, proven and swept by the
agent's own code. What is left when all is settled is whole trees with their listings, and nothing beside them.
"""

from __future__ import annotations

from typing import Dict, Iterator, List

import pytest
from core.crash import scenarios, values, walk
from core.crash.host import Host, mapped
from core.crash.scenarios import Scenario
from core.test_crash_matrix import (
    NEEDS_SPACE,
    check,
    compare_with_model,
    crashes,
    fill_the_disk,
    update_after_each_cut,
)

from slotcore import ops, plans
from slotcore import product as products

OTHER = b"=>#!/bin/sh\necho something else\n"
TREE, LISTING = "slots/versions/1.1.0", "slots/versions/1.1.0.json"
ABOUT_TREES = ("adopt", "stage", "swap", "confirm", "go back", "finish", "abandon", "settle")


def _of_trees(host: Host) -> Iterator[Scenario]:
    """What can lie in the way of a tree, or make one unnecessary."""
    installed = scenarios.installed()
    done = {"slots/b": values.BYTES["1.1.0"], "slots/slots.json": scenarios.staged()["slots/slots.json"]}
    for name, more in (
        ("stage over a tree without a listing", {TREE: b"=>" + values.BYTES["1.1.0"]}),
        ("stage over another tree", {TREE: OTHER, LISTING: values.listing("1.1.0")}),
        ("stage over a torn listing", {TREE: b"=>" + values.BYTES["1.1.0"], LISTING: values.listing("1.1.0")[:99]}),
        ("stage a tree that is there", {TREE: b"=>" + values.BYTES["1.1.0"], LISTING: values.listing("1.1.0")}),
        (
            "stage over leftovers",
            {TREE + ops.PARTIAL: OTHER, LISTING + ops.PARTIAL: b"half", "slots/b": b"->versions/1.2.0"},
        ),
    ):
        tree = mapped(host.product, {**installed, **more})
        host.put(tree)
        plan = host.staging(host.look(values.IN_TIME).state, values.record("1.1.0"), 5)
        unpacks = any(isinstance(operation, ops.Unpack) for operation in plan)
        assert unpacks == (name != "stage a tree that is there")
        yield Scenario(name, tree, plan, mapped(host.product, done), ("", ""), values.TRIAL, True)


def all_of(host: Host) -> Dict[str, Scenario]:
    """The scenarios that change slots or links, and those of the trees themselves."""
    found = {name: one for name, one in scenarios.all_of(host).items() if name.startswith(ABOUT_TREES)}
    return {**found, **{one.name: one for one in _of_trees(host)}}


def _names() -> List[str]:
    host = Host(layout=products.VERSIONS)
    try:
        return list(all_of(host))
    finally:
        host.remove()


NAMES = _names()


@pytest.fixture(name="trees", scope="module")
def _trees() -> Iterator[walk.Walker]:
    """A host whose slots are links to trees."""
    host = Host(layout=products.VERSIONS)
    yield walk.Walker(host)
    host.remove()


@pytest.fixture(name="every", scope="module")
def _every(trees: walk.Walker) -> Dict[str, Scenario]:
    return all_of(trees.host)


def test_the_scenarios_are_of_trees(trees: walk.Walker, every: Dict[str, Scenario]) -> None:
    """A plan that fills a slot unpacks or links; none copies a file into a slot. Each kind of plan is among them."""
    kinds = {type(operation) for one in every.values() for operation in one.plan}
    assert {ops.Unpack, ops.Discard, ops.Link, ops.Claim} <= kinds
    assert ops.Copy not in kinds
    assert trees.host.product.program_path("current").endswith("/current/probe")


@pytest.mark.parametrize("name", NAMES)
def test_P7_any_power_cut_leaves_a_proven_tree_that_starts(
    name: str, trees: walk.Walker, every: Dict[str, Scenario]
) -> None:
    """I1 to I4, I9 and I12, for every prefix, every loss, every moment and whoever looks first."""
    assert check(trees, every[name]) > 1


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_power_cut_left_the_next_update_goes_through(
    name: str, trees: walk.Walker, every: Dict[str, Scenario]
) -> None:
    """Trees without listings, temporary names and links that lead nowhere stand in nobody's way."""
    update_after_each_cut(trees, every[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_executor_does_what_the_model_says(name: str, trees: walk.Walker, every: Dict[str, Scenario]) -> None:
    """After every operation the real directory is the model's, so what the matrix shows is about it."""
    compare_with_model(trees, every[name])


@pytest.mark.parametrize("name", NAMES)
def test_I2_with_no_space_left_the_links_go_back_all_the_same(
    name: str, trees: walk.Walker, every: Dict[str, Scenario]
) -> None:
    """The disk is full at any operation and stays so: good is what starts; the rest follows with space."""
    fill_the_disk(trees, every[name], (*NEEDS_SPACE, ops.Unpack))


def test_a_second_run_completes_what_was_cut(trees: walk.Walker, every: Dict[str, Scenario]) -> None:
    """After any cut while staging, staging again makes what it would have made, from what there is then."""
    for name in (name for name in NAMES if name.startswith("stage")):
        scenario = every[name]
        for crash in crashes(scenario):
            trees.host.put(crash.tree)
            state = trees.host.look(values.IN_TIME).state
            plan = trees.host.staging(state, values.record("1.1.0"), 9)
            trees.host.apply(plan, "again", lambda: None, {plans.STAGED: values.BYTES["1.1.0"]})
            assert walk.slot_holds(walk.view(trees.host, trees.host.tree()).files, "b") == values.BYTES["1.1.0"], (
                crash.said
            )


# Operations that the matrix can do without: each sync here is followed by another one of the same directory before
# anything relies on it; where nothing was recorded before, nothing need be cleared, and where nothing lies in the way,
# nothing discarded.
NOT_NEEDED = {
    "stage over another tree": {
        "2 Rename slots.json.copy",
        "3 SyncDir slots",
        "6 Rename slots.json",
        "7 SyncDir slots",
    },
    "stage over another": {"3 SyncDir slots", "7 SyncDir slots", "11 SyncDir slots", "16 Discard 1.1.0"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_NEEDED)
def test_the_matrix_notices_any_operation_that_a_plan_forgets(
    name: str, trees: walk.Walker, every: Dict[str, Scenario]
) -> None:
    """Without it a host ends badly, but for the few that are named; so this matrix can fail too."""
    scenario = every[name]
    unnoticed = set()
    for number, operation in enumerate(scenario.plan):
        if isinstance(operation, (ops.Write, ops.Unpack, ops.Link)):
            continue  # the next operation has nothing to work on
        try:
            check(trees, scenario._replace(plan=scenario.plan[:number] + scenario.plan[number + 1 :]))
        except (AssertionError, OSError):
            continue
        unnoticed.add(f"{number} {type(operation).__name__} {getattr(operation, 'path', '').rpartition('/')[2]}")
    assert unnoticed == NOT_NEEDED[name]
