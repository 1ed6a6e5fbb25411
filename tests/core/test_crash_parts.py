# SPDX-License-Identifier: GPL-3.0-or-later
"""Power cuts in the plans of a product with a unit file among its parts, and whose data is kept (products.md, sections 4 and 6).

The matrix is that of test_crash_matrix.py. Besides: nothing confirmed has data left to restore, and nothing taken back has lost
what says that its data is to be restored.
"""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

import pytest
from core.crash import disk, scenarios, values, walk
from core.crash.host import Host, mapped
from core.crash.scenarios import TIMINGS, Scenario
from core.crash.values import IN_TIME, TRIAL
from core.test_crash_matrix import crashes

from slotcore import codes, ops, plans, trial
from slotcore import product as products

UNIT = products.Part("unit", "probe.service", "/etc/systemd/system/probe.service", unit=True)
HOOKS = tuple(products.Hook(name, ("/bin/true",)) for name in ("snapshot", "restore"))
FACTS = ("RELOAD=yes", "STARTS=9", "SNAPSHOT=5 root /bin/true", "RESTORE=5 root /bin/true")
HEAD = trial.LOG_HEADER + trial.SNAPSHOT_DUE + trial.UNIT_DUE
STARTED = HEAD + trial.UNIT_READ + b"start 1001\n"
KEPT = f"ID={TRIAL.trial_id}\nTO_SLOT=b\nFROM_VERSION=1.0.0\nTO_VERSION=1.1.0\n".encode()
REASON = b"REASON=crash-loop\n"
END = {code: plans.End(code, f"because of {code}", values.AT) for code in (codes.OK, codes.OPERATOR)}


@pytest.fixture(scope="module")
def parted() -> Iterator[walk.Walker]:
    """A host whose product has a unit file among its parts and hooks for its data."""
    host = Host()
    host.product = host.product._replace(parts=(UNIT,), hooks=HOOKS)
    host.facts(*FACTS)
    yield walk.Walker(host)
    host.remove()


def _trees() -> Dict[str, Tuple[disk.Tree, disk.Tree, Tuple[str, str]]]:
    """Where each plan begins, what it makes, and how the trial ends by it."""
    on_trial = scenarios.on_trial(trial_log=STARTED, snapshot=KEPT)
    begun = {"slots/back": b"->a", "slots/trial": values.RECORD, "slots/current": b"->b"}
    back = {**scenarios.ON_OLD, "slots/snapshot": KEPT}
    confirmed = {**scenarios.ON_NEW, "slots/snapshot": b""}
    moved = scenarios.claimed("trial.revert", REASON, current=b"->a", trial_log=STARTED + b"moved 9\n", snapshot=KEPT)
    never = scenarios.staged(back=b"->a", trial_log=HEAD, trial=values.RECORD)
    return {
        "swap": (scenarios.staged(), {**begun, "slots/trial.log": HEAD + trial.UNIT_READ}, ("", "")),
        "confirm": (on_trial, confirmed, ("confirmed", codes.OK)),
        "finish confirm": (scenarios.claimed_from(dict(on_trial), "trial.confirm"), confirmed, ("confirmed", codes.OK)),
        "go back": (on_trial, back, ("rolled-back", codes.OPERATOR)),
        "finish revert": (
            scenarios.claimed_from(dict(on_trial), "trial.revert", REASON),
            back,
            ("rolled-back", codes.CRASH_LOOP),
        ),
        "finish revert, not read": (
            scenarios.without(moved, "back"),
            back,
            ("rolled-back", codes.CRASH_LOOP),
        ),
        "abandon": (never, {**scenarios.ON_OLD, "slots/snapshot": b""}, ("abandoned", codes.NEVER_STARTED)),
    }


TREES = _trees()


def scenario_of(host: Host, name: str) -> Scenario:
    """The plan of that name, as made from the state in which it begins."""
    short, end, last = TREES[name]
    tree = mapped(host.product, short)
    host.put(tree)
    state = host.look(IN_TIME).state
    if name == "swap":
        plan = plans.plan_swap(host.product, TRIAL, snapshot=True)
    elif name == "confirm":
        plan = plans.plan_confirm(host.product, state, TRIAL, END[codes.OK])
    elif name == "go back":
        plan = plans.plan_go_back(host.product, state, TRIAL, END[codes.OPERATOR])
    elif name == "abandon":
        plan = plans.plan_abandon(host.product, state, TRIAL, END[codes.OK])
    else:
        plan = host.settling_plan(IN_TIME)
    return Scenario(name, tree, plan, mapped(host.product, end), last, TRIAL, orderly=True)


def check_data(host: Host, tree: disk.Tree, began_with: bool) -> None:
    """Whose data is to be restored is known until the release is confirmed, and not for a moment afterwards."""
    now = walk.view(host, tree)
    kept = "snapshot" in now.names
    if now.good == "b":
        assert not kept, "confirmed, and a start would restore the data of the version before"
    elif began_with and now.record != "trial.confirm":
        assert kept, "nobody knows any more that the data is to be restored"


@pytest.mark.parametrize("name", TREES)
def test_P7_parts_and_data_end_well_wherever_the_power_goes(name: str, parted: walk.Walker) -> None:
    """Every prefix, every loss, every moment and whoever looks first; and again from there to the trial's end."""
    scenario = scenario_of(parted.host, name)
    before = walk.view(parted.host, scenario.tree)
    began_with = "snapshot" in before.names
    tree = scenario.tree
    count = 0
    for said, tree, armed in crashes(scenario):
        count += 1
        for timing in TIMINGS:
            for order in walk.orders(parted.host):
                try:
                    walk.check_crashed(parted.host, tree, before, scenario, armed)
                    check_data(parted.host, tree, began_with)
                    check_data(parted.host, parted.follow(tree, scenario, timing, order, before), began_with)
                except AssertionError as error:
                    raise AssertionError(f"{name}, {said}; {timing.name}, {order}: {error}") from error
    walk.check_done(parted.host, tree, scenario)
    assert count > len(scenario.plan) / 2


def test_what_systemd_has_not_read_is_read_once(parted: walk.Walker) -> None:
    """Whoever settles after a cut between the link and the reload has it read, and restarts what was started meanwhile."""
    plan = scenario_of(parted.host, "finish revert, not read").plan
    kinds = [type(operation) for operation in plan]
    assert kinds.index(ops.Reload) < kinds.index(ops.Restart)
    again = scenario_of(parted.host, "finish revert").plan
    assert [type(operation) for operation in again].count(ops.Reload) == 1
