# SPDX-License-Identifier: GPL-3.0-or-later
"""Broken records in the crash matrix: with a copy that proves itself, and without one, in every state of a trial.

A power cut after every operation of restoring, with unsynced effects lost in any combination, and then the real guard and
the real executor, as in test_crash_matrix.py.
"""

from __future__ import annotations

from typing import Dict

import pytest
from core.crash import disk, scenarios, walk
from core.crash.scenarios import BAD_COPIES, DAMAGES, TIMINGS, Scenario, Timing
from core.test_crash_matrix import check, crashes

from slotcore import ops, settle

STATES = ("at rest", "on trial", "never switched", "going back", "confirming")


@pytest.fixture(scope="module")
def provable(walker: walk.Walker) -> Dict[str, Scenario]:
    """Damage that sound copies mend."""
    return scenarios.restorings(walker.host)


@pytest.mark.parametrize("when", STATES)
@pytest.mark.parametrize("what", DAMAGES)
def test_P4_a_copy_that_proves_itself_mends_a_record_whenever_the_power_goes(
    what: str, when: str, walker: walk.Walker, provable: Dict[str, Scenario]
) -> None:
    """I1 to I12 hold from there on as if nothing had been damaged, and what was damaged is kept beside it."""
    scenario = provable[f"{what}, {when}"]
    assert scenario.plan
    assert check(walker, scenario) > len(scenario.plan) / 2


def follow_unproven(walker: walk.Walker, tree: disk.Tree, timing: Timing, order: str, before: walk.View) -> disk.Tree:
    """From a crash to rest on a host whose floor nobody can prove: the guard, then settling, looked at at every step."""
    for mode, unit in walk.orders(walker.host)[order]:
        tree = walker.guard(tree, mode, timing.now, unit)
        walk.check_always(walker.host, tree, before)
    return walker.settled(tree, timing.now, before)


@pytest.mark.parametrize("when", STATES)
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("copy", BAD_COPIES)
def test_I3_a_record_that_nothing_proves_stays_broken_and_the_good_version_starts(
    copy: str, what: str, when: str, walker: walk.Walker
) -> None:
    """Whenever the power goes: nothing is written for it, what was there is kept, a trial still ends, the rest is refused."""
    host = walker.host
    scenario = scenarios.restorings(host, BAD_COPIES[copy])[f"{what}, {when}"]
    assert not any(isinstance(operation, ops.Write) for operation in scenario.plan), (
        "nothing proves what would be written"
    )
    before = walk.view(host, scenario.tree)
    for said, tree, _armed in crashes(scenario):
        for timing in TIMINGS:
            for order in walk.orders(walker.host):
                left = follow_unproven(walker, tree, timing, order, before)
                check_unproven(walker, left, what, when, f"{said}; {timing.name}, {order}", timing)


def check_unproven(walker: walk.Walker, tree: disk.Tree, what: str, when: str, said: str, timing: Timing) -> None:
    """What is left of such a host when everything is settled."""
    host = walker.host
    now = walk.view(host, tree)
    host.put(tree)
    state = host.look(timing.now).state
    assert state.broken is not None, said
    assert {damage.name for damage in state.damaged} == set(DAMAGES[what]), said
    assert all(damage.copy is None and damage.copy_why for damage in state.damaged), said
    for name, data in DAMAGES[what].items():
        assert name not in now.names, f"{said}: {name} was written although nothing proves it"
        kept = f"{name}{settle.ASIDE}{scenarios.AT}"
        assert now.files.get(kept) == data, f"{said}: {kept} is {now.files.get(kept)!r}"
    if when == "confirming":
        assert (now.record, now.current) == ("trial.confirm", "b"), f"{said}: who had won must stay so"
    elif when == "on trial" and now.current != now.good:
        assert now.record == "trial", said
    else:
        assert (now.current, now.good) == ("a", "a"), said
        assert now.record in {"none", "trial.revert"}, said
