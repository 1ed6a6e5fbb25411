# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent and the guard at one trial at the same time: one of them ends it, and what it decided is what happens (I12).

Three ways: at random, a thousand times; the whole guard between any two operations of the agent; and the whole of the
agent's work between any two steps of the guard. The agent is the real manager with the real lock.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import time
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple

import pytest
from core.crash import disk, scenarios, values, walk
from core.crash.host import FAILED, RUNS, STOPPED, Host, Unit, mapped

from slotcore import codes, plans, settle, trial
from slotward import faults, lock, manager
from slotward import host as agent_host

ROUNDS = 1000
MODES: Mapping[str, Unit] = {"tick": RUNS, "start": STOPPED, "failed": FAILED}


@pytest.fixture(params=["alone", "helped"])
def host(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host whose systemctl the agent finds too, of a daemon alone and of one with a helper."""
    made = Host(helped=request.param == "helped")
    monkeypatch.setenv("PATH", f"{made.root}/bin:{os.environ['PATH']}")
    yield made
    made.remove()


class Room(NamedTuple):
    """A host with a trial on it that is over, by the machine's own clock."""

    host: Host
    trial: trial.Trial
    before: walk.View
    tree: disk.Tree
    seen: manager.Look
    """What the agent saw a moment before the deadline."""

    @property
    def clock(self) -> settle.Clock:
        """Now."""
        return agent_host.clock()


def room(host: Host, **more: bytes) -> Room:
    """Make it; `more` as in `scenarios.on_trial`."""
    now = agent_host.clock()
    pending = values.TRIAL._replace(boot_id=now.boot_id, deadline_s=now.uptime_s)
    tree = mapped(host.product, scenarios.on_trial(pending, **more))
    host.put(tree)
    in_time = settle.Settlement(settle.Action.AWAIT, codes.TRIAL_PENDING, pending)
    seen = manager.Look(agent_host.read_state(host.product), now, in_time)
    return Room(host, pending, walk.view(host, tree), tree, seen)


Act = Callable[[Room], bool]


def confirm(here: Room) -> bool:
    """The agent confirms; whether it won."""
    with lock.held(here.host.product, "confirm"):
        try:
            manager.confirm(here.host.product, here.seen)
        except codes.Refused as error:
            if error.code != codes.TRIAL_OVER:
                raise
            return False
    return True


def roll_back(here: Room) -> bool:
    """An operator goes back; whether it was the operator who did."""
    with lock.held(here.host.product, "rollback"):
        try:
            manager.go_back(here.host.product, here.seen, "an operator said so")
        except codes.Refused as error:
            if error.code != codes.TRIAL_OVER:
                raise
            return False
    last = agent_host.read_state(here.host.product).update.last
    return last is not None and last.code == codes.OPERATOR


def settle_it(here: Room) -> bool:
    """A command settles what is in flight."""
    with lock.held(here.host.product, "settle"):
        seen, _done = manager.settle_now(here.host.product)
    assert seen.settlement.action is settle.Action.NONE
    return False


def check_end(here: Room, confirmed: bool, codes_of_going_back: List[str]) -> None:
    """One end, recorded once, and the links, the floor and the failed versions say the same."""
    walk.check_always(here.host, here.host.tree(), here.before)
    settle_it(here)
    tree = here.host.tree()
    now = walk.check_always(here.host, tree, here.before)
    walk.check_helper(here.host, now, "ended")
    assert now.record == "none"
    assert now.last is not None
    if confirmed:
        assert (now.current, now.good, now.floor, set(now.failed)) == ("b", "b", 2, set())
        assert (now.last["state"], now.last["id"]) == ("confirmed", here.trial.trial_id)
    else:
        assert (now.current, now.good, now.floor) == ("a", "a", 1)
        readable = here.before.files["trial"] == trial.render_trial(here.trial)
        assert (now.last["state"], now.last["id"]) == ("rolled-back", here.trial.trial_id if readable else "")
        assert now.last["code"] in codes_of_going_back
        assert now.failed["1.1.0"]["code"] == now.last["code"]
    assert here.host.settling_plan(here.clock) == (), "I9: settling again would do something"


def run_race(host: Host, act: Act, mode: str, rounds: int, reasons: List[str]) -> List[bool]:
    """Let both begin at about the same time, aiming at the moment where either may win."""
    pause_s, won = 0.004, []
    for _round in range(rounds):
        here = room(host)
        guard = host.begin_guard(mode, here.clock, MODES[mode])
        time.sleep(pause_s * random.uniform(0.3, 1.7))  # noqa: S311 # no secret
        won.append(act(here))
        ran = host.end_guard(guard)
        assert ran.status == 0, ran
        check_end(here, won[-1] and act is confirm, reasons)
        pause_s = min(0.1, max(0.0002, pause_s * (1.2 if won[-1] else 0.8)))
    return won


def test_confirming_against_the_guard_a_thousand_times(host: Host) -> None:
    """Never the old release below a raised floor; one winner each time, and either wins often enough to mean something."""
    rounds = ROUNDS // 4 if host.helped else ROUNDS
    won = run_race(host, confirm, "tick", rounds, [codes.DEADLINE_PASSED])
    assert len(won) == rounds
    assert rounds / 20 < sum(won) < rounds * 19 / 20


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_going_back_against_the_guard(host: Host, mode: str) -> None:
    """Both want the same, and one reason is recorded: that of whoever claimed."""
    won = run_race(host, roll_back, mode, 30, [codes.OPERATOR, codes.DEADLINE_PASSED])
    assert True in won
    assert False in won


def test_settling_against_the_guard(host: Host) -> None:
    """A command that finds the trial over and a tick that does."""
    run_race(host, settle_it, "tick", 30, [codes.DEADLINE_PASSED])


def test_three_guards_at_once_are_one(host: Host) -> None:
    """A start, a tick and a failure at the same moment: one claims, all end well, the links moved once."""
    for _round in range(20):
        here = room(host)
        guards = [host.begin_guard(mode, here.clock, FAILED) for mode in MODES]
        for ran in map(host.end_guard, guards):
            assert ran.status == 0, ran
        check_end(here, False, [codes.DEADLINE_PASSED])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("act", [confirm, roll_back, settle_it])
def test_the_guard_between_any_two_operations_of_the_agent(
    host: Host, monkeypatch: pytest.MonkeyPatch, act: Act, mode: str
) -> None:
    """Wherever it comes, the agent finishes or gives way, and nothing is half."""
    winners: List[bool] = []
    ran: List[str] = []
    for number in range(40):
        here = room(host)
        ran.clear()

        def hit(point: str, here: Room = here, number: int = number) -> None:
            if not ran and f".{number}." in point:
                ran.append(point)
                assert here.host.guard(mode, here.clock, MODES[mode]).status == 0

        monkeypatch.setattr(faults, "hit", hit)
        won = act(here)
        monkeypatch.setattr(faults, "hit", lambda point: None)
        check_end(here, won and act is confirm, [codes.OPERATOR, codes.DEADLINE_PASSED])
        if not ran:
            break
        winners.append(won)
    assert len(winners) > 10
    if act is not settle_it:
        assert winners == [False] + [True] * (len(winners) - 1), "whoever claims first wins"


FORMS = ("restart", "start", "reload")
"""What the operations of a swap end with: a restart, the start that waits for them, or a reload."""
SWITCH = manager.Release("1.1.0", values.record("1.1.0"), 9, "-", values.TRIAL.trial_id)


def begin(host: Host, form: str) -> str:
    """The agent begins a trial that is over by now; the code of what stopped it, "" where nothing did."""
    product = host.product._replace(reload=form == "reload")
    seen, now = manager.look(product), agent_host.clock()
    late = now._replace(uptime_s=now.uptime_s - product.trial_length_s)
    with lock.held(product, "upgrade"):
        try:
            manager.begin_trial(product, seen._replace(clock=late), SWITCH, restart=form != "start")
        except codes.Retryable as error:
            return error.code
    return ""


def check_switch(host: Host, before: walk.View, form: str) -> None:
    """What is not good is on trial still, to be ended by what comes next; then all is as it was, and the end is known."""
    now = walk.view(host, host.tree())
    assert now.current == now.good or now.record == "trial", "unconfirmed, and nobody looks again"
    if now.record == "trial":
        mode, unit = ("start", STOPPED) if form == "restart" else ("tick", RUNS)
        assert host.guard(mode, agent_host.clock(), unit).status == 0
    with lock.held(host.product, "settle"):
        assert manager.settle_now(host.product)[0].settlement.action is settle.Action.NONE
    now = walk.check_always(host, host.tree(), before)
    walk.check_helper(host, now, "ended")
    assert (now.current, now.good, now.floor, now.record) == ("a", "a", 1, "none")
    assert now.last is not None
    assert now.last["code"] in {codes.NEVER_STARTED, codes.DEADLINE_PASSED}
    assert ("1.1.0" in now.failed) == (now.last["code"] == codes.DEADLINE_PASSED)


@pytest.mark.parametrize(
    ("form", "mode"), [("restart", mode) for mode in MODES] + [(form, "tick") for form in FORMS[1:]]
)
def test_the_guard_between_any_two_operations_of_a_swap(
    host: Host, monkeypatch: pytest.MonkeyPatch, form: str, mode: str
) -> None:
    """A deadline that passes while the swap is still being written ends it, and the release on trial never runs on.

    Where the trial is over before the last look at it, the links go home and nobody restarts or reloads anything.
    """
    tree = mapped(host.product, scenarios.staged())
    before = walk.view(host, tree)
    stopped: Dict[str, str] = {}

    def guard_at(wanted: str, ran: List[str], point: str) -> None:
        walk.check_always(host, host.tree(), before)
        if point.startswith(wanted):
            ran.append(point)
            assert host.guard(mode, agent_host.clock(), MODES[mode]).status == 0
            host.set_unit(RUNS)
            assert host.asked() or mode != "tick"

    for number in range(40):
        host.put(tree)
        host.set_unit(RUNS)
        ran: List[str] = []
        monkeypatch.setattr(faults, "hit", functools.partial(guard_at, f"swap.{number}.", ran))
        code = begin(host, form)
        monkeypatch.setattr(faults, "hit", lambda point: None)
        if not ran:
            break
        stopped[ran[0]] = code
        if code:
            asked = host.asked()
            assert not any(word in call for call in asked for word in ("restart", "reload")), asked
        check_switch(host, before, form)
    names = list(stopped)
    looked = next(at for at, point in enumerate(names) if point.endswith(".Demand"))
    assert len(names) > looked + 1
    over = [at for at, point in enumerate(names) if stopped[point]]
    first = 10 + 3 * host.helped if mode == "tick" else looked - 1 - 3 * host.helped
    assert over == list(range(first, looked + 1)), stopped
    assert set(stopped.values()) == {"", codes.CANCELLED}


@pytest.mark.parametrize("form", FORMS)
def test_the_rest_of_a_swap_between_any_two_steps_of_a_tick(
    host: Host, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A tick that found nothing switched, and whose claim comes after the swap's last look, goes by the links of then."""
    tree = mapped(host.product, scenarios.staged())
    before = walk.view(host, tree)
    codes_seen: List[str] = []

    def tick_at(at: int, guards: List[subprocess.Popen[str]], point: str) -> None:
        if point.endswith(".Arm"):
            guards.append(host.begin_guard("tick", agent_host.clock(), RUNS, at, "pause"))
            host.is_paused(guards[0])

    for at in range(20):
        host.put(tree)
        host.set_unit(RUNS)
        guards: List[subprocess.Popen[str]] = []
        monkeypatch.setattr(faults, "hit", functools.partial(tick_at, at, guards))
        codes_seen.append(begin(host, form))
        monkeypatch.setattr(faults, "hit", lambda point: None)
        paused = guards[0].poll() is None
        if paused:
            host.go_on()
        ran = host.end_guard(guards[0])
        assert ran.status == 0, (at, ran)
        check_switch(host, before, form)
        if not paused:
            break
    assert codes_seen[0] == "", "the claim came after the look"
    assert set(codes_seen[1:]) == {codes.CANCELLED}


def confirm_the_next(here: Room) -> bool:
    """All at once: settle, stage, swap and confirm another release, while a guard is still at the trial before."""
    settle_it(here)
    product, clock = here.host.product, here.clock
    state = agent_host.read_state(product)
    again = here.trial._replace(trial_id="0123456789abcdef", deadline_s=clock.uptime_s + here.trial.length_s)
    assert state.current == again.from_slot
    plan = plans.plan_stage(product, state, values.record("1.1.0"), 9) + plans.plan_swap(product, again)
    here.host.apply(plan, "swap", lambda: None, scenarios.SOURCES)
    look = here.host.look(clock)
    assert look.settlement.trial == again
    manager.confirm(product, look)
    return True


def check_the_next(here: Room) -> None:
    """What was confirmed last is what runs."""
    settle_it(here)
    now = walk.check_always(here.host, here.host.tree(), here.before)
    assert now.last is not None
    assert (now.current, now.good, now.floor, now.record) == ("b", "b", 2, "none")
    assert (now.last["id"], now.last["state"]) == ("0123456789abcdef", "confirmed")
    walk.check_helper(here.host, now, "confirmed")


TREES: Dict[str, Callable[[Host], Room]] = {
    "over": room,
    "bad record": lambda host: room(host, trial=b"SPEC=1\n"),
    "back is lost": lambda host: room(host, back=b"->b"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("act", [confirm, roll_back, settle_it, confirm_the_next])
def test_all_of_the_agents_work_between_any_two_steps_of_the_guard(host: Host, act: Act, name: str, mode: str) -> None:
    """However long the guard is held up, and whatever is done meanwhile, it does no harm when it goes on."""
    if name == "bad record" and act in {confirm, roll_back}:
        pytest.skip("nobody confirms a damaged record")
    outcomes = []
    for at in range(20):
        here = TREES[name](host)
        guard = host.begin_guard(mode, here.clock, MODES[mode], at, "pause")
        paused = host.is_paused(guard)
        if not paused:
            assert host.end_guard(guard).status == 0
            break
        outcomes.append(act(here))
        host.go_on()
        ran = host.end_guard(guard)
        assert ran.status == 0, (at, ran)
        if act is confirm_the_next:
            check_the_next(here)
        else:
            reasons = [codes.OPERATOR, codes.DEADLINE_PASSED, codes.BAD_RECORD]
            check_end(here, outcomes[-1] and act is confirm, reasons)
    assert outcomes
    assert act is not confirm or outcomes == [True] + [False] * (len(outcomes) - 1)
