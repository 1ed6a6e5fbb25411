# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper's link in the crash matrix: what only a product with a helper can be cut in, and what others may have done to it.

All other plans are cut on a host with a helper too, in test_crash_matrix.py and test_crash_records.py.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, Tuple

import pytest
from core.crash import disk, scenarios, walk
from core.crash.host import FAILED, HELPER_FAILED, RUNS, STOPPED, Host, Unit, mapped
from core.crash.scenarios import LATE, NEW_BOOT, SOON, SOURCES, TIMINGS, Scenario, Timing
from core.crash.values import IN_TIME, TRIAL
from core.test_crash_matrix import check, crashes

from slotcore import ops

REASON = b"REASON=crash-loop\n"
TREES: Dict[str, Tuple[disk.Tree, disk.Tree, Tuple[str, str]]] = {
    "behind at rest": (scenarios.staged(helper=b"->b"), {"slots/helper": b"->a"}, ("", "")),
    "missing at rest": (scenarios.staged(helper=b""), {"slots/helper": b"->a"}, ("", "")),
    "behind in a trial": (scenarios.on_trial(helper=b"->a"), {"slots/helper": b"->b"}, ("", "")),
    "missing in a trial": (scenarios.on_trial(helper=b""), {"slots/helper": b"->b"}, ("", "")),
    "half back": (
        scenarios.without(scenarios.claimed("trial.revert", REASON, current=b"->a", helper=b"->b"), "back"),
        {**scenarios.ON_OLD, "slots/helper": b"->a"},
        ("rolled-back", "crash-loop"),
    ),
    "half back, no way back": (
        scenarios.without(scenarios.claimed("trial.revert", REASON, helper_back=b"->b"), "back"),
        {**scenarios.ON_OLD, "slots/helper": b"->a"},
        ("rolled-back", "crash-loop"),
    ),
    "half back, nobody says why": (
        scenarios.without(scenarios.on_trial(current=b"->a", helper=b"->b"), "trial", "back", "trial.log"),
        {"slots/helper": b"->a"},
        ("", ""),
    ),
}


@pytest.fixture(scope="module")
def helped() -> Iterator[walk.Walker]:
    """A host whose daemon has a helper."""
    host = Host(helped=True)
    yield walk.Walker(host)
    host.remove()


def tree_of(host: Host, short: disk.Tree) -> disk.Tree:
    """The tree of a host; a name with empty contents is not there, a helper's link least of all."""
    full = mapped(host.product, short)
    return {path: data for path, data in full.items() if data or not path.endswith("/helper")}


def scenario_of(host: Host, name: str) -> Scenario:
    """What settling does with that tree."""
    short, end, last = TREES[name]
    tree = tree_of(host, short)
    host.put(tree)
    plan = host.settling_plan(IN_TIME)
    return Scenario(name, tree, plan, mapped(host.product, end), last, TRIAL, orderly=False)


@pytest.mark.parametrize("name", TREES)
def test_P7_a_helper_left_behind_follows_wherever_the_power_goes(name: str, helped: walk.Walker) -> None:
    """At rest, in a trial, in going back: after settling it starts what current names, and no link ever dangles."""
    scenario = scenario_of(helped.host, name)
    assert scenario.plan
    assert check(helped, scenario) >= 3


@pytest.mark.parametrize("name", TREES)
def test_the_next_update_goes_through_whatever_the_helper_named(name: str, helped: walk.Walker) -> None:
    """The slot that it named may be the one that is written to."""
    scenario = scenario_of(helped.host, name)
    before = walk.view(helped.host, scenario.tree)
    for crash in crashes(scenario):
        tree = helped.follow(crash.tree, scenario, LATE, "a command", before)
        helped.next_update(tree, LATE.now)


BACK: Dict[str, Tuple[str, Timing, Unit]] = {
    "the helper fails": ("failed", SOON, HELPER_FAILED),
    "the daemon fails": ("failed", SOON, FAILED),
    "the length is over": ("tick", LATE, RUNS),
    "no boot is left": ("start", NEW_BOOT, STOPPED),
}


@pytest.mark.parametrize("way", [True, False], ids=["a way back", "no way back"])
@pytest.mark.parametrize("at", ["->b", "->a", "missing"])
@pytest.mark.parametrize("why", BACK)
def test_I2_the_guard_alone_brings_both_back(why: str, at: str, way: bool, helped: walk.Walker) -> None:
    """With none of the new release's code, wherever the helper's link was; and settling has only to write it down."""
    mode, timing, unit = BACK[why]
    host = helped.host
    pending = TRIAL._replace(boots_left=0) if why == "no boot is left" else TRIAL
    more = {"helper": b"" if at == "missing" else at.encode()}
    short = scenarios.on_trial(pending, **more)
    tree = tree_of(host, short if way else {**short, "slots/helper.back": b"->b"})
    before = walk.view(host, tree)
    left = helped.guard(tree, mode, timing.now, unit)
    now = walk.check_always(host, left, before)
    assert (now.current, now.record) == ("a", "trial.revert")
    assert now.files.get("helper", b"->a") == b"->a", "it is made by settling alone, and never names what failed"
    settled = helped.settled(left, timing.now, before)
    walk.check_helper(host, walk.view(host, settled), "rolled-back")


@pytest.mark.parametrize("timing", TIMINGS, ids=lambda timing: str(timing.name))
def test_I2_a_full_disk_keeps_neither_link_from_going_back(timing: Timing, helped: walk.Walker) -> None:
    """Two renames of links that exist: nothing of the plan before the restart needs a block or an inode."""
    host = helped.host
    tree = tree_of(host, scenarios.on_trial(TRIAL._replace(boots_left=0)))
    host.put(tree)
    state = host.look(timing.now).state
    done = 0
    for operation in host.settling_plan(timing.now):
        if isinstance(operation, (ops.Write, ops.Copy, ops.Link)):
            break
        host.executor(SOURCES).apply((operation,), "full")
        done += isinstance(operation, ops.Restart)
    else:
        assert timing is SOON, "a trial that is over is taken back"
        assert state.trial is not None
        return
    links = [os.readlink(host.product.path(name)) for name in ("current", "good", "helper")]
    assert (links, done) == (["a", "a", "a"], 1)
