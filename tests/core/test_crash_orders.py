# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the steps of each plan: two neighbours change places, and the crash matrix notices.

A step is what is made durable together: a file or a link with its rename and its sync, a record with its copy, a claim, the
names that go at once; or one thing that is done, like arming the timer. Within a step the sync of new bytes comes before their
rename. That a step is there at all is shown in test_crash_matrix.py, in the same way; that a copy comes before its record, in
test_recording.py.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, Tuple

import pytest
from core.crash import scenarios, walk
from core.crash.host import Host
from core.crash.scenarios import Scenario
from core.test_crash_matrix import check

from slotcore import ops, recording

ALONE = (ops.Arm, ops.Demand, ops.Restart, ops.RestartHelper, ops.Reload, ops.SyncDir, ops.Gather)
PLANS = (
    "adopt",
    "adopt in use, leftovers",
    "stage over another",
    "swap",
    "swap by permit",
    "swap before a start",
    "confirm",
    "confirm by permit",
    "go back",
    "go back by permit",
    "abandon",
    "abandon by permit",
    "take a key set",
)
WITH_A_HELPER = ("adopt", "swap", "confirm", "go back", "abandon")

BYTES = "a slot's bytes are believed by its record alone, which is written when they are durable, whichever came first"
FRESH = "no record named the slot, so there is none to clear before it is filled"
TWO = "each of the two records stands for itself, and nothing starts by them before both are there"
ADOPTING = "the file at the entrypoint is what starts until the last step, whatever the links and records say"
BEFORE = "until current moves, all of it is an update that never started"
RESTARTED = "a restart is no matter of the disk: safeties.toml has its place"
GATHERED = "evidence is no matter of the disk: test_plans.py has its place, after the end is recorded and before the claim goes"
DEMANDED = "without a guard beside, the trial is pending all the time: the races have its place"
BACK = "the guard alone reads back, and not for itself: safeties.toml has its place, which the races need"
FLOOR = "settling ends both after a claim: safeties.toml has that the floor comes first"
ALLOWED = "what a permit allowed is forgotten by whoever finishes the claim, before or after good has moved"
CAUGHT_UP = "a record that demands less of trust than there is catches up"
CLEARED = "settling has no part in it: safeties.toml has that the slot's record goes first"
FOLLOWS = "settling has the helper follow, wherever a cut came"
SWAPPED = {
    "4 Sync | Rename trial.log": BEFORE,
    "8 Sync | Rename trial": BEFORE,
    "0 Rename back | Rename trial.log": BEFORE,
    "1 Rename trial.log | Rename trial": BEFORE,
}

MAY_CHANGE: Dict[str, Dict[str, str]] = {
    "adopt": {
        "9 Sync | Rename a": BYTES,
        "0 Rename slots.json | Rename a": FRESH,
        "2 Rename slots.json | Rename update.json": TWO,
    },
    "adopt in use, leftovers": {
        "13 Sync | Rename b": BYTES,
        "0 Unlink back | Rename slots.json": ADOPTING,
        "1 Rename slots.json | Rename b": FRESH,
        "3 Rename slots.json | Rename update.json": TWO,
        "4 Rename update.json | Rename good": ADOPTING,
        "5 Rename good | Rename current": ADOPTING,
    },
    "stage over another": {"17 Sync | Rename b": BYTES, "0 Rename update.json | Rename slots.json": TWO},
    "swap": {
        **SWAPPED,
        "2 Rename trial | Arm": BEFORE,
        "4 Rename current | Demand trial": DEMANDED,
        "5 Demand trial | Restart": DEMANDED,
    },
    "swap by permit": {
        **SWAPPED,
        "4 Rename update.json | Arm": BEFORE,
        "6 Rename current | Demand trial": DEMANDED,
        "7 Demand trial | Restart": DEMANDED,
    },
    "swap before a start": {
        **SWAPPED,
        "2 Rename trial | Arm": BEFORE,
        "4 Rename current | Demand trial": DEMANDED,
        "5 Demand trial | Append trial.log": DEMANDED,
    },
    "confirm": {"1 Unlink back | Rename update.json": BACK, "2 Rename update.json | Rename good": FLOOR},
    "confirm by permit": {
        "1 Unlink back | Rename update.json": BACK,
        "2 Rename update.json | Rename good": FLOOR,
        "3 Rename good | Rename trust.json": ALLOWED,
        "5 Rename update.json | Unlink trial.sources": CAUGHT_UP,
    },
    "go back": {
        "2 Rename current | Restart": RESTARTED,
        "3 Restart | Rename update.json": RESTARTED,
        "4 Rename update.json | Gather": GATHERED,
        "5 Gather | Unlink back": GATHERED,
    },
    "go back by permit": {
        "2 Rename current | Restart": RESTARTED,
        "3 Restart | Rename trust.json": RESTARTED,
        "5 Rename update.json | Gather": GATHERED,
        "6 Gather | Unlink back": GATHERED,
    },
    "take a key set": {"0 Rename slots.json | Rename trust.json": CLEARED},
}
"""What may change places on a host without a helper, and why nothing comes of it."""
MAY_CHANGE_HELPED: Dict[str, Dict[str, str]] = {
    "adopt": {
        **MAY_CHANGE["adopt"],
        "5 Rename current | Rename helper": FOLLOWS,
        "6 Rename helper | Rename probe": FOLLOWS,
    },
    "swap": {
        "7 Sync | Rename trial.log": BEFORE,
        "11 Sync | Rename trial": BEFORE,
        "0 Rename back | Rename helper.back": BEFORE,
        "1 Rename helper.back | Rename trial.log": BEFORE,
        "2 Rename trial.log | Rename trial": BEFORE,
        "3 Rename trial | Arm": BEFORE,
        "6 Rename helper | Demand trial": DEMANDED,
        "7 Demand trial | Restart": DEMANDED,
    },
    "confirm": {"1 Unlink helper.back | Rename update.json": BACK, "2 Rename update.json | Rename good": FLOOR},
    "go back": {
        "2 Rename current | Rename helper": FOLLOWS,
        "3 Rename helper | Restart": RESTARTED,
        "4 Restart | Rename update.json": RESTARTED,
        "5 Rename update.json | Gather": GATHERED,
        "6 Gather | Unlink helper.back": GATHERED,
    },
}


def steps(plan: ops.Plan) -> List[ops.Plan]:
    """A plan in its steps."""
    found: List[ops.Plan] = []
    step: ops.Plan = ()
    for operation in plan:
        appended = isinstance(operation, ops.Sync) and bool(step) and isinstance(step[-1], ops.Append)
        step = (*step, operation)
        if isinstance(operation, ops.SyncDir) and named(step).endswith(recording.COPY):
            continue  # its record follows
        if appended or isinstance(operation, ALONE):
            found.append(step)
            step = ()
    return [*found, step] if step else found


def named(step: ops.Plan) -> str:
    """A step by what it changes last."""
    for operation in reversed(step):
        if not isinstance(operation, (ops.Sync, ops.SyncDir)):
            name = getattr(operation, "path", "").rpartition("/")[2]
            return f"{type(operation).__name__} {name}".strip()
    return "SyncDir"


def traded(plan: ops.Plan) -> Iterator[Tuple[str, ops.Plan]]:
    """The plan with two neighbouring steps in the other order, once for each pair."""
    found = steps(plan)
    for number in range(len(found) - 1):
        first, then = found[number : number + 2]
        order = [*found[:number], then, first, *found[number + 2 :]]
        yield f"{number} {named(first)} | {named(then)}", tuple(operation for step in order for operation in step)


def renamed_first(plan: ops.Plan) -> Iterator[Tuple[str, ops.Plan]]:
    """The plan with a rename before the sync of the bytes that it is about, once for each."""
    for number in range(len(plan) - 1):
        synced, moved = plan[number : number + 2]
        if isinstance(synced, ops.Sync) and isinstance(moved, ops.Rename) and synced.path == moved.source:
            name = moved.path.rpartition("/")[2]
            late = (moved, ops.Sync(moved.path))
            yield f"{number} Sync | Rename {name}", (*plan[:number], *late, *plan[number + 2 :])


def failure(walker: walk.Walker, scenario: Scenario) -> str:
    """What the matrix says of a plan; "" when it finds nothing wrong with it."""
    try:
        check(walker, scenario)
    except AssertionError as error:
        return str(error).partition("\n")[0]
    except (KeyError, OSError, ValueError) as error:  # a name or a record is not there when it is needed
        return f"{scenario.name}: {error!r}"
    return ""


def misordered(walker: walk.Walker, name: str, tell: Callable[[str, object], None]) -> Dict[str, str]:
    """Every order that a plan may not have, with what the matrix says of it; each is told."""
    scenario = scenarios.all_of(walker.host)[name]
    may = (MAY_CHANGE_HELPED if walker.host.helped else MAY_CHANGE).get(name, {})
    found = {}
    for label, plan in (*renamed_first(scenario.plan), *traded(scenario.plan)):
        found[label] = failure(walker, scenario._replace(plan=plan))
        of = "with a helper, " if walker.host.helped else ""
        said = {"safety": f"order: {of}{name}: {label}", "failure": found[label], "redundant": may.get(label, "")}
        tell("safety", said)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_the_matrix_notices_any_two_steps_that_change_places(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """But for those that are named, with the reason."""
    host = Host()
    try:
        found = misordered(walk.Walker(host), name, record_property)
    finally:
        host.remove()
    assert {label for label, said in found.items() if not said} == set(MAY_CHANGE.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_A_HELPER)
def test_the_matrix_notices_any_two_steps_that_change_places_with_a_helper(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """The same of the plans that move two links."""
    host = Host(helped=True)
    try:
        found = misordered(walk.Walker(host), name, record_property)
    finally:
        host.remove()
    assert {label for label, said in found.items() if not said} == set(MAY_CHANGE_HELPED.get(name, {}))


def test_a_plan_is_taken_apart_into_its_steps() -> None:
    """Each with its sync; the sync of new bytes belongs to their rename."""
    plan: ops.Plan = (
        *ops.write_durably("/s/trial", b"x"),
        ops.Arm(),
        *ops.link_durably("/s/current", "b"),
        ops.Append("/s/trial.log", b"start 1\n"),
        ops.Sync("/s/trial.log"),
        ops.Restart(),
        *ops.unlink_durably("/s", "back", "trial.log"),
    )
    names = ["Rename trial", "Arm", "Rename current", "Append trial.log", "Restart", "Unlink trial.log"]
    assert [named(step) for step in steps(plan)] == names
    assert [label for label, _plan in renamed_first(plan)] == ["1 Sync | Rename trial"]
    orders = dict(traded(plan))
    assert len(orders) == len(names) - 1
    assert all(sorted(map(str, order)) == sorted(map(str, plan)) for order in orders.values())
    assert orders["1 Arm | Rename current"][4:8] == (*ops.link_durably("/s/current", "b"), ops.Arm())
