# SPDX-License-Identifier: GPL-3.0-or-later
"""The crash matrix: a power cut after every operation of every plan, with unsynced effects lost in any combination.

On each tree that is left, the real guard is run by sh and the real executor settles; the rules of `core.crash.walk`
hold after every step. Nothing is mocked.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple

import pytest
from core.crash import disk, scenarios, walk
from core.crash.host import Host
from core.crash.scenarios import SOURCES, TIMINGS, Scenario

from slotcore import ops

NAMES = scenarios.names()


@pytest.fixture(scope="module")
def walker() -> Iterator[walk.Walker]:
    """One host for all of them; every state is put in place anew."""
    host = Host()
    yield walk.Walker(host)
    host.remove()


@pytest.fixture(scope="module")
def all_scenarios(walker: walk.Walker) -> Dict[str, Scenario]:
    """The scenarios with plans for this host's paths."""
    return scenarios.all_of(walker.host)


class Crash(NamedTuple):
    """A tree that a power cut left, and how."""

    said: str
    tree: disk.Tree
    armed: bool


def crashes(scenario: Scenario) -> Iterator[Crash]:
    """Every tree that a power cut during the plan can leave, each once."""
    seen = set()
    before_the_switch = scenario.name.startswith("swap")
    cut = disk.Disk(scenario.tree, SOURCES)
    for after in range(len(scenario.plan) + 1):
        cut = disk.cut(scenario.tree, SOURCES, scenario.plan, after)
        armed = not before_the_switch or ops.Arm() in scenario.plan[:after]
        for choice in cut.choices():
            tree = cut.after(choice)
            key = (frozenset(tree.items()), armed)
            if key not in seen:
                seen.add(key)
                yield Crash(f"cut after {after} of {len(scenario.plan)}, kept {choice}", tree, armed)
    assert cut.is_durable(), "the plan is carried out, and a power cut would lose some of it"


def check(walker: walk.Walker, scenario: Scenario) -> int:
    """The whole matrix of one scenario; the number of trees. Raises AssertionError with the way there."""
    before = walk.view(walker.host, scenario.tree)
    tree = scenario.tree
    count = 0
    for said, tree, armed in crashes(scenario):
        count += 1
        try:
            walk.check_crashed(walker.host, tree, before, scenario, armed)
        except AssertionError as error:
            raise AssertionError(f"{scenario.name}, {said}: {error}") from error
        for timing in TIMINGS:
            for order in walk.ORDERS:
                try:
                    walker.follow(tree, scenario, timing, order, before)
                except AssertionError as error:
                    raise AssertionError(f"{scenario.name}, {said}; {timing.name}, {order}: {error}") from error
    walk.check_done(walker.host, tree, scenario)
    return count


@pytest.mark.parametrize("name", NAMES)
def test_P7_any_power_cut_leaves_a_host_that_ends_well(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """I1 to I4, I9, I12 and the settle table, for every prefix, every loss, every moment and whoever looks first."""
    scenario = all_scenarios[name]
    assert check(walker, scenario) > len(scenario.plan) / 2
