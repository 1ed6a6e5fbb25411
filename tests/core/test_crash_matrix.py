# SPDX-License-Identifier: GPL-3.0-or-later
"""The crash matrix: a power cut after every operation of every plan, with unsynced effects lost in any combination.

On each tree that is left, the real guard is run by sh and the real executor settles; the rules of `core.crash.walk`
hold after every step. Nothing is mocked.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Tuple

import pytest
from core.crash import disk, scenarios, walk
from core.crash.host import FAILED, RUNS, STOPPED, Host, Unit, mapped
from core.crash.scenarios import LATE, NEW_BOOT, SOON, SOURCES, TIMINGS, Scenario, Timing
from core.crash.values import RECORD, TRIAL
from hypothesis import given, settings
from hypothesis import strategies as st

from slotcore import codes, ops, plans, settle, trial

NAMES = scenarios.names()


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
            for order in walk.orders(walker.host):
                try:
                    walker.follow(tree, scenario, timing, order, before)
                except AssertionError as error:
                    raise AssertionError(f"{scenario.name}, {said}; {timing.name}, {order}: {error}") from error
    walk.check_done(walker.host, tree, scenario)
    return count


def update_after_each_cut(walker: walk.Walker, scenario: Scenario) -> None:
    """Settle late what each cut has left, and update from each end that is another one."""
    before = walk.view(walker.host, scenario.tree)
    ends = set()
    for crash in crashes(scenario):
        tree = walker.follow(crash.tree, scenario, LATE, "a command", before)
        key = frozenset((path, data) for path, data in tree.items() if not path.endswith("update.json"))
        if key not in ends:
            ends.add(key)
            walker.next_update(tree, LATE.now)


def compare_with_model(walker: walk.Walker, scenario: Scenario) -> None:
    """Carry the plan out in a real directory and in the model, and compare them after each operation."""
    walker.host.put(scenario.tree)
    model = disk.Disk(scenario.tree, SOURCES)
    executor = walker.host.executor(SOURCES)
    for operation in scenario.plan:
        executor.apply((operation,), scenario.name)
        model.do(operation)
        assert walker.host.tree() == model.after(model.kept())


@pytest.mark.parametrize("name", NAMES)
def test_P7_any_power_cut_leaves_a_host_that_ends_well(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """I1 to I4, I9, I12 and the settle table, for every prefix, every loss, every moment and whoever looks first."""
    scenario = all_scenarios[name]
    assert check(walker, scenario) > len(scenario.plan) / 2


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_power_cut_left_the_next_update_goes_through(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """Leftovers of temporary names, links and logs stand in nobody's way."""
    update_after_each_cut(walker, all_scenarios[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_executor_does_what_the_model_says(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """After every operation of every plan the real directory is the model's, so what the matrix shows is about it."""
    compare_with_model(walker, all_scenarios[name])


NEEDS_SPACE = (ops.Write, ops.Copy, ops.Link)


def settle_without_space(walker: walk.Walker, clock: settle.Clock, before: walk.View) -> None:
    """Settle on a full disk: what needs a block or an inode fails, and what comes after it in its plan is not tried."""
    executor = walker.host.executor({})
    for plan in walker.host.settling_plans(clock):
        for operation in plan:
            if isinstance(operation, NEEDS_SPACE):
                break
            executor.apply((operation,), "full")
            walk.check_always(walker.host, walker.host.tree(), before)


def fill_the_disk(walker: walk.Walker, scenario: Scenario, kinds: Tuple[type, ...]) -> None:
    """Cut the plan at each operation of these kinds, for want of space, and settle without any."""
    before = walk.view(walker.host, scenario.tree)
    for after, operation in enumerate(scenario.plan):
        if not isinstance(operation, kinds):
            continue
        failed = disk.cut(scenario.tree, SOURCES, scenario.plan, after)
        tree = failed.after(failed.kept())
        for timing in TIMINGS:
            walker.host.put(tree)
            must = walk.expected(walk.view(walker.host, tree), timing, RUNS, tree[walker.host.product.entrypoint])
            settle_without_space(walker, timing.now, before)
            left = walker.host.tree()
            now = walk.view(walker.host, left)
            assert now.current == now.good or must.how not in {"rolled-back", "abandoned"}
            walker.follow(left, scenario, timing, "a command", before)


@pytest.mark.parametrize("name", NAMES)
def test_I2_with_no_space_left_the_links_go_back_all_the_same(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """The disk is full at any operation of any plan and stays so: good is what starts; the rest follows with space."""
    fill_the_disk(walker, all_scenarios[name], NEEDS_SPACE)


GUARD_CUTS: Dict[str, Tuple[disk.Tree, Timing, str, Unit]] = {
    "the length is over": (scenarios.on_trial(), LATE, "tick", RUNS),
    "the length is over, at a start": (scenarios.on_trial(), LATE, "start", STOPPED),
    "the unit has failed": (scenarios.on_trial(), SOON, "failed", FAILED),
    "the record is bad": (scenarios.on_trial(trial=b"SPEC=1"), SOON, "tick", RUNS),
    "the record is lost": (scenarios.without(scenarios.on_trial(), "trial"), SOON, "tick", RUNS),
    "back is lost": (scenarios.without(scenarios.on_trial(), "back"), LATE, "tick", RUNS),
    "a new boot": (scenarios.on_trial(), NEW_BOOT, "start", STOPPED),
    "a new boot, none left": (scenarios.on_trial(TRIAL._replace(boots_left=0)), NEW_BOOT, "start", STOPPED),
    "somebody else's claim": (scenarios.claimed("trial.revert", b"REASON=operator\n"), SOON, "tick", RUNS),
    "never switched": (scenarios.on_trial(current=b"->a", trial_log=trial.LOG_HEADER), LATE, "tick", RUNS),
    "a claim lost, its reason kept": (scenarios.on_trial(trial=RECORD + b"REASON=operator\n"), SOON, "start", STOPPED),
}


@pytest.mark.parametrize("name", GUARD_CUTS)
def test_a_guard_killed_at_any_step_leaves_a_host_that_ends_well(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """Power goes while the guard itself is at work: what it left is finished by the next look, whoever's it is."""
    short, timing, mode, unit = GUARD_CUTS[name]
    tree = mapped(walker.host.product, short)
    pending = trial.parse_trial(short.get("slots/trial", b"")) or TRIAL
    scenario = all_scenarios["swap"]._replace(tree=tree, trial=pending)
    before = walk.view(walker.host, tree)
    for cut_at in range(40):
        walker.host.put(tree)
        ran = walker.host.guard(mode, timing.now, unit, cut_at=cut_at)
        left = walker.host.tree()
        walk.check_always(walker.host, left, before)
        for later in TIMINGS[TIMINGS.index(timing) :]:
            for order in walk.orders(walker.host):
                walker.follow(left, scenario, later, order, before)
        if ran.status == 0:
            break
        assert ran.status == -9, ran
    assert 1 < cut_at < 39


@given(st.data())
@settings(max_examples=60)
def test_any_number_of_power_cuts_in_a_row_ends_well(
    walker: walk.Walker, all_scenarios: Dict[str, Scenario], data: st.DataObject
) -> None:
    """A cut, a look, a cut while settling that, and so on; the first claim that survives decides (I12)."""
    cut_again_and_again(walker, all_scenarios, data)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=3000)
def test_any_number_of_power_cuts_in_a_row_ends_well_at_length(
    walker: walk.Walker, all_scenarios: Dict[str, Scenario], data: st.DataObject
) -> None:
    """As above, deeper."""
    cut_again_and_again(walker, all_scenarios, data)


def cut_again_and_again(walker: walk.Walker, all_scenarios: Dict[str, Scenario], data: st.DataObject) -> None:
    """Cut the power one to four times, each time at work on what is then to be done, and follow it to its end."""
    host = walker.host
    scenario = all_scenarios[data.draw(st.sampled_from(NAMES), "scenario")]
    tree, plan = scenario.tree, scenario.plan
    before = walk.view(host, tree)
    claim = ""
    times = sorted(data.draw(st.lists(st.sampled_from(range(len(TIMINGS))), min_size=1, max_size=4), "moments"))
    for timing in (TIMINGS[index] for index in times):
        cut = disk.cut(tree, SOURCES, plan, data.draw(st.integers(0, len(plan)), "operations"))
        choices = list(cut.choices())
        tree = cut.after(data.draw(st.sampled_from(choices), "kept"))
        now = walk.check_always(host, tree, before)
        claim = claim or (now.record if now.record in {"trial.confirm", "trial.revert"} else "")
        order = data.draw(st.sampled_from(sorted(walk.orders(host))), "who looks")
        for mode, unit in walk.orders(host)[order]:
            tree = walker.guard(tree, mode, timing.now, unit)
            claim = claim or ("trial.revert" if walk.view(host, tree).record == "trial.revert" else "")
        plan = next_plan(host, tree, timing.now, data)
    tree = walker.follow(
        tree, scenario, timing, data.draw(st.sampled_from(sorted(walk.orders(host))), "at last"), before
    )
    last = walk.view(host, tree).last
    if claim:
        assert last is not None
        assert (last["state"] == "confirmed") == (claim == "trial.confirm"), f"I12: {claim} was won, {last} is recorded"


def next_plan(host: Host, tree: disk.Tree, clock: settle.Clock, data: st.DataObject) -> ops.Plan:
    """What is done next: settling; of a trial in flight either end, or nothing."""
    host.put(tree)
    look = host.look(clock)
    pending = look.settlement.trial
    if look.settlement.action is not settle.Action.AWAIT or pending is None:
        return host.settling_plan(clock)
    end = plans.End(codes.OPERATOR, "somebody said so", scenarios.AT)
    return data.draw(
        st.sampled_from(
            (
                (),
                plans.plan_confirm(host.product, look.state, pending, end._replace(code=codes.OK)),
                plans.plan_go_back(host.product, look.state, pending, end),
            )
        ),
        "next",
    )


# Operations that the matrix can do without. Each sync of a directory here is followed by another one of the same
# directory before anything relies on it; `trial.sources` is not there; the restart is no matter of the disk; that a trial
# is still pending is always so where no guard is beside, which test_races.py has; where nothing was recorded before, nothing
# need be cleared.
NOT_NEEDED = {
    "swap": {"2 SyncDir slots", "6 SyncDir slots", "15 Demand trial", "16 Restart "},
    "confirm": {"3 SyncDir slots", "11 SyncDir slots", "17 Unlink trial.sources"},
    "go back": {
        "1 SyncDir slots",
        "5 SyncDir slots",
        "6 Restart ",
        "10 SyncDir slots",
        "15 Gather ",
        "18 Unlink trial.sources",
        "19 Unlink back",
    },
    "adopt": {
        "2 Rename slots.json.copy",
        "3 SyncDir slots",
        "6 Rename slots.json",
        "7 SyncDir slots",
        "15 SyncDir slots",
        "19 SyncDir slots",
        "23 SyncDir slots",
    },
    "stage over another": {"3 SyncDir slots", "7 SyncDir slots", "11 SyncDir slots"},
    "abandon": {"3 SyncDir slots", "10 Unlink trial.sources"},
    "finish confirm": {"1 SyncDir slots", "9 SyncDir slots", "15 Unlink trial.sources"},
    "settle a cut adopt": set(),
    "restore": set(),
    "restore in a trial": set(),
    "restore after a claim": set(),
}
# The same with a helper, where the numbers are others: its link back is gone when going back has used it, and between the
# two links that a release starts by no sync is needed that settling could not do without.
NOT_NEEDED_HELPED = {
    **NOT_NEEDED,
    "swap": {"2 SyncDir slots", "5 SyncDir slots", "9 SyncDir slots", "21 Demand trial", "22 Restart "},
    "confirm": {"4 SyncDir slots", "12 SyncDir slots", "18 Unlink trial.sources"},
    "go back": {
        "1 SyncDir slots",
        "5 SyncDir slots",
        "7 SyncDir slots",
        "8 Restart ",
        "12 SyncDir slots",
        "17 Gather ",
        "20 Unlink trial.sources",
        "21 Unlink back",
        "22 Unlink helper.back",
    },
    "adopt": {*NOT_NEEDED["adopt"], "33 SyncDir slots"},
    "finish confirm": {"2 SyncDir slots", "10 SyncDir slots", "16 Unlink trial.sources"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_NEEDED)
def test_the_matrix_notices_any_operation_that_a_plan_forgets(
    name: str, walker: walk.Walker, all_scenarios: Dict[str, Scenario]
) -> None:
    """Without it a host ends badly, but for the few that are named; so the matrix can fail, and says what is dear."""
    scenario = all_scenarios[name]
    unnoticed = set()
    for number, operation in enumerate(scenario.plan):
        forgetful = scenario._replace(plan=scenario.plan[:number] + scenario.plan[number + 1 :])
        if isinstance(operation, (ops.Write, ops.Copy, ops.Link, ops.Claim)):
            continue  # the next operation has nothing to work on
        try:
            check(walker, forgetful)
        except AssertionError:
            continue
        unnoticed.add(f"{number} {type(operation).__name__} {getattr(operation, 'path', '').rpartition('/')[2]}")
    assert unnoticed == (NOT_NEEDED_HELPED if walker.host.helped else NOT_NEEDED)[name]


@pytest.mark.slow
@pytest.mark.parametrize("helped", [False, True], ids=["alone", "helped"])
@pytest.mark.parametrize("name", NAMES)
def test_the_matrix_holds_under_busybox_too(name: str, helped: bool) -> None:
    """The guard is one program for any POSIX sh."""
    host = Host("busybox", helped=helped)
    try:
        check(walk.Walker(host), scenarios.all_of(host)[name])
    finally:
        host.remove()
