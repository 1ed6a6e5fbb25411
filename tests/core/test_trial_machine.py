# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates, crashes, deadlines, reboots, power cuts and operators in any order, against a model of five lines."""

from __future__ import annotations

import uuid
from typing import Any, Optional, Set, Type

import pytest
from core.crash import disk, scenarios, values, walk
from core.crash.host import RUNS, STOPPED, Host, Unit, crashed, mapped
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slotcore import codes, ops, plans, recording, records, settle, trial

CUTS = st.integers(0, 10**6)


class Model:
    """What an operator would say of the host: which release is good, which is on trial, and which have failed."""

    def __init__(self) -> None:
        self.good = "1.0.0"
        self.on_trial: Optional[str] = None
        self.failed: Set[str] = set()
        self.boots_left = self.crashes = self.deadline_s = 0
        self.last = ""

    def end(self, state: str) -> None:
        """The trial has ended."""
        assert self.on_trial is not None
        if state == "confirmed":
            self.good = self.on_trial
        elif state == "rolled-back":
            self.failed.add(self.on_trial)
        self.on_trial, self.last = None, state


class Machine(RuleBasedStateMachine):
    """The host and the model side by side."""

    helped = False

    def __init__(self) -> None:
        super().__init__()
        self.host = Host(helped=self.helped)
        self.model = Model()
        self.clock = values.IN_TIME
        self.ids = 0

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.host.remove()

    @initialize(pick=CUTS)
    def install(self, pick: int) -> None:
        """1.0.0 is installed, and its first update begins."""
        self.host.put(mapped(self.host.product, scenarios.installed()))
        self.before = walk.view(self.host, self.host.tree())
        self.update(pick)

    def guard(self, mode: str, unit: Unit) -> None:
        """Run the guard."""
        ran = self.host.guard(mode, self.clock, unit)
        assert ran.status == 0, ran

    def look(self) -> settle.State:
        """The agent's look."""
        return self.host.look(self.clock).state

    def apply(self, plan: ops.Plan) -> None:
        """Carry out a plan, with everything true at every step."""
        self.host.apply(plan, "machine", self.everything_holds, scenarios.SOURCES_OF_ALL)

    def end_of(self, code: str) -> plans.End:
        """An end of the trial, at somebody's word."""
        return plans.End(code, f"because of {code}", scenarios.AT)

    def update_plan(self, version: str) -> ops.Plan:
        """Stage and swap, as the agent does it after settling."""
        self.settle()
        state = self.look()
        assert state.current is not None
        self.ids += 1
        self.pending = values.TRIAL._replace(
            trial_id=f"{self.ids:016x}",
            from_version=self.model.good,
            to_version=version,
            from_slot=state.current,
            to_slot=plans.free_slot(state),
            sequence=values.SEQUENCE[version],
            boot_id=self.clock.boot_id,
            deadline_s=self.clock.uptime_s + values.LENGTH_S,
            from_sha256=values.digest(self.model.good),
            to_sha256=values.digest(version),
        )
        product = self.host.product
        staged = plans.plan_stage(product, state, values.record(version), 5)
        renamed = tuple(op._replace(source=version) if isinstance(op, ops.Copy) else op for op in staged)
        return renamed + plans.plan_swap(product, self.pending)

    def candidates(self) -> list[str]:
        """The versions that may be tried now."""
        floor = values.SEQUENCE[self.model.good]
        return [v for v in values.VERSIONS if values.SEQUENCE[v] > floor and v not in self.model.failed]

    def begins(self, version: str) -> None:
        """The model's side of a swap."""
        self.model.on_trial, self.model.boots_left, self.model.crashes = version, 3, 0
        self.model.deadline_s = self.clock.uptime_s + values.LENGTH_S

    def boot(self) -> None:
        """A new boot; the unit's first start is preceded by the guard."""
        self.clock = settle.Clock(20, str(uuid.UUID(int=self.ids * 1000 + self.model.boots_left)))
        if self.model.on_trial is not None:
            if self.model.boots_left == 0:
                self.model.end("rolled-back")
            else:
                self.model.boots_left -= 1
                self.model.deadline_s = self.clock.uptime_s + values.LENGTH_S
        self.ids += 1

    @precondition(lambda self: self.model.on_trial is None and self.candidates())
    @rule(pick=CUTS)
    def update(self, pick: int) -> None:
        """Stage a newer release, switch to it and restart."""
        version = self.candidates()[pick % len(self.candidates())]
        self.apply(self.update_plan(version))
        self.begins(version)
        self.guard("start", STOPPED)

    def cut(self, plan: ops.Plan, pick: int) -> None:
        """Lose power in a plan, and boot."""
        after = pick % (len(plan) + 1)
        left = disk.cut(self.host.tree(), scenarios.SOURCES_OF_ALL, plan, after)
        choices = list(left.choices())
        self.host.put(left.after(choices[pick // 101 % len(choices)]))

    @precondition(lambda self: self.model.on_trial is None and self.candidates())
    @rule(pick=CUTS)
    def update_and_lose_power(self, pick: int) -> None:
        """A cut anywhere in stage and swap: on trial with a boot less, or as if there had been no update."""
        version = self.candidates()[pick % len(self.candidates())]
        last = self.model.last
        self.cut(self.update_plan(version), pick)
        switched = self.look().current != self.look().good
        abandoned = self.look().trial is not None and not switched
        if switched:
            self.begins(version)
        self.boot()
        self.guard("start", STOPPED)
        if not switched:
            self.model.last = "abandoned" if abandoned else last
        self.settle()

    @precondition(lambda self: self.model.on_trial is not None)
    @rule(times=st.integers(1, 4))
    def crash(self, times: int) -> None:
        """The release exits by itself, once or more; the fourth time the good one is started instead."""
        for _time in range(times):
            self.clock = self.clock._replace(uptime_s=self.clock.uptime_s + 1)
            self.model.crashes += 1
            # no two boots' crashes are of one microsecond: the guard counts those once (`ids` differs from boot to boot)
            self.guard("start", crashed(self.clock.uptime_s, self.ids))
            if self.model.crashes >= trial.CRASHES_TO_GO_BACK or self.clock.uptime_s >= self.model.deadline_s:
                self.model.end("rolled-back")
                return

    @precondition(lambda self: self.model.on_trial is not None)
    @rule(seconds=st.sampled_from((1, 40, 80, 119, 120)))
    def wait(self, seconds: int) -> None:
        """Time passes, and the deadline timer ticks."""
        self.clock = self.clock._replace(uptime_s=self.clock.uptime_s + seconds)
        self.guard("tick", RUNS)
        if self.clock.uptime_s >= self.model.deadline_s:
            self.model.end("rolled-back")

    @rule()
    def restart_by_hand(self) -> None:
        """An operator restarts the unit: nothing is counted."""
        self.guard("start", STOPPED)

    @rule(times=st.integers(1, 4))
    def reboot(self, times: int) -> None:
        """A new boot gives a trial its whole length again, at most three times."""
        for _time in range(times):
            self.boot()
            self.guard("start", STOPPED)

    @precondition(lambda self: self.model.on_trial is not None)
    @rule()
    def confirm(self) -> None:
        """Somebody confirms."""
        self.settle()
        self.apply(plans.plan_confirm(self.host.product, self.look(), self.now_pending(), self.end_of(codes.OK)))
        self.model.end("confirmed")

    @precondition(lambda self: self.model.on_trial is not None)
    @rule(pick=CUTS)
    def confirm_and_lose_power(self, pick: int) -> None:
        """A cut anywhere in a confirmation: confirmed once it was claimed, else as after a reboot."""
        self.cut(plans.plan_confirm(self.host.product, self.look(), self.now_pending(), self.end_of(codes.OK)), pick)
        if self.look().trial is None:
            self.model.end("confirmed")
        self.boot()
        self.guard("start", STOPPED)
        self.settle()

    @precondition(lambda self: self.model.on_trial is not None)
    @rule(pick=CUTS)
    def roll_back_and_lose_power(self, pick: int) -> None:
        """A cut anywhere in going back: back once it was claimed, else as after a reboot."""
        self.cut(
            plans.plan_go_back(self.host.product, self.look(), self.now_pending(), self.end_of(codes.OPERATOR)), pick
        )
        if self.look().trial is None:
            self.model.end("rolled-back")
        self.boot()
        self.guard("start", STOPPED)
        self.settle()

    @precondition(lambda self: self.model.on_trial is not None)
    @rule()
    def roll_back(self) -> None:
        """An operator goes back."""
        self.apply(plans.plan_go_back(self.host.product, self.look(), self.now_pending(), self.end_of(codes.OPERATOR)))
        self.model.end("rolled-back")

    def now_pending(self) -> trial.Trial:
        """The trial as its record says it."""
        found = self.host.look(self.clock).settlement
        assert found.action is settle.Action.AWAIT
        assert found.trial is not None
        return found.trial

    @rule()
    def clear_failed(self) -> None:
        """L5: an operator allows the failed versions again."""
        self.settle()
        update = self.look().update._replace(failed=())
        self.apply(recording.write(self.host.product, recording.UPDATE, records.render_update(update)))
        self.model.failed.clear()

    @rule()
    def settle(self) -> None:
        """What is in flight is finished, and then host and model say the same of everything."""
        self.host.settle(self.clock, self.everything_holds)
        now = walk.view(self.host, self.host.tree())
        assert now.record == ("none" if self.model.on_trial is None else "trial")
        assert set(now.failed) == self.model.failed
        assert (now.last or {"state": ""})["state"] == self.model.last
        assert now.floor == values.SEQUENCE[self.model.good]
        walk.check_helper(self.host, now, "none" if self.model.on_trial is None else "await")

    @invariant()
    def everything_holds(self) -> None:
        """I1 to I3 at every moment."""
        walk.check_always(self.host, self.host.tree(), self.before)

    @invariant()
    def the_links_say_what_the_model_says(self) -> None:
        """Good is good, and current is what is on trial, else good: the guard needs nobody to settle for that."""
        state = self.look()
        held = {slot: entry.version for slot, entry in state.slots.items()}
        assert held[str(state.good)] == self.model.good
        assert held[str(state.current)] == (self.model.on_trial or self.model.good)


class MachineWithHelper(Machine):
    """The same lives of a host whose daemon has a helper."""

    helped = True


MACHINES = pytest.mark.parametrize("machine", [Machine, MachineWithHelper], ids=["alone", "helped"])


def run(machine: Type[Machine], examples: int, steps: int) -> None:
    """Run the machine."""
    case: Any = machine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=steps)
    case().runTest()


@MACHINES
def test_crashes_in_the_same_second_of_two_boots_are_counted(machine: Type[Machine]) -> None:
    """The fourth one goes back, whenever after its boot each came."""
    life = machine()
    try:
        life.install(pick=0)
        life.confirm_and_lose_power(pick=0)
        life.crash(times=1)
        life.confirm_and_lose_power(pick=0)
        life.crash(times=3)
        life.the_links_say_what_the_model_says()
        assert life.model.on_trial is None
    finally:
        life.teardown()


@MACHINES
def test_any_order_of_events_agrees_with_the_model(machine: Type[Machine]) -> None:
    """A few dozen lives of a host."""
    run(machine, 60, 15)


def test_a_copy_that_a_cut_left_ahead_never_lies_about_the_next_bytes() -> None:
    """Cut between the copy that names a slot and the record, then another release goes into that slot (found by the machine)."""
    machine = Machine()
    try:
        machine.install(pick=0)
        machine.roll_back_and_lose_power(pick=2)
        machine.clear_failed()
        machine.update_and_lose_power(pick=126)
        machine.update(pick=0)
        machine.everything_holds()
    finally:
        machine.teardown()


@pytest.mark.slow
@MACHINES
def test_any_order_of_events_agrees_with_the_model_at_length(machine: Type[Machine]) -> None:
    """Many longer lives."""
    run(machine, 300, 40)
