# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is held up for longer than its trial: the guard has ended that meanwhile, so nothing of it is started (I2, I12)."""

from __future__ import annotations

import os
from typing import Callable, List

import pytest
from agent.places import NEW, TRIAL, TRIAL_ID, Place

from slotcore import audit, codes, plans
from slotcore import product as products
from slotward import faults, manager

RELEASE = manager.Release("1.1.0", NEW, 0, "-", TRIAL_ID)
POINTS = [f"swap.{number}.{name}" for number, name in ((11, "Arm"), (13, "Rename"), (14, "SyncDir"), (15, "Demand"))]
Meanwhile = Callable[[Place], None]


def ended(place: Place, reason: bytes = b"never-started") -> None:
    """What a tick does to a trial whose length is over, as far as the record."""
    os.rename(place.slots / "trial", place.slots / "trial.revert")
    with open(place.slots / "trial.revert", "ab") as file:
        file.write(b"REASON=%s\n" % reason)


def begin(
    place: Place, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile, at: str = POINTS[1], reload: bool = False
) -> codes.Retryable:
    """Begin the trial, held up at that point; what stops it."""
    product = place.product._replace(reload=reload)
    monkeypatch.setattr(faults, "hit", lambda point: meanwhile(place) if point == at else None)
    with pytest.raises(codes.Retryable) as caught:
        manager.begin_trial(product, manager.look(product), RELEASE)
    monkeypatch.setattr(faults, "hit", lambda point: None)
    return caught.value


def asked(place: Place) -> List[str]:
    """The restarts and reloads that systemd was asked for."""
    calls = (place.root / "calls").read_text().splitlines()
    return [call for call in calls if "restart" in call or "reload" in call]


def check_at_rest(place: Place, state: str, code: str) -> None:
    """The good release is what starts, nothing is in flight, and the end is the last one."""
    seen = manager.look(place.product)
    assert (seen.state.current, seen.state.good, seen.settlement.reason) == ("a", "a", codes.OK)
    last = seen.state.update.last
    assert last is not None
    assert (last.trial_id, last.state, last.code) == (TRIAL_ID, state, code)
    names = set(os.listdir(place.slots))
    assert not names & {"trial", "trial.revert", "trial.log", "back"}
    assert manager.settle_now(place.product)[1] == "nothing"


def test_the_points_are_those_of_the_plan() -> None:
    """Before the timer, before and after `current` moves, and the last look."""
    plan = plans.plan_swap(products.Product("probe", "probe.service", "/bin/probe", "/slots"), TRIAL)
    assert [f"swap.{number}.{type(plan[number]).__name__}" for number in (11, 13, 14, 15)] == POINTS


@pytest.mark.parametrize("reload", [False, True], ids=["restart", "reload"])
@pytest.mark.parametrize("point", POINTS)
def test_a_trial_that_is_over_before_the_switch_starts_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, point: str, reload: bool
) -> None:
    """It is an abandoned update, free to be tried again; the answer says so, and the daemon is left alone."""
    error = begin(place, monkeypatch, ended, point, reload)
    assert (error.code, TRIAL_ID in error.text, str(place.slots / "trial") in error.text) == (
        codes.CANCELLED,
        True,
        True,
    )
    assert "try again" in error.text
    check_at_rest(place, "abandoned", codes.NEVER_STARTED)
    assert asked(place) == []
    events = [audit.parse(line).event.event for line in (place.slots / "audit.log").read_bytes().splitlines()]
    assert events == ["accepted", "abandoned"]
    again = RELEASE._replace(trial_id="00112233445566bb")
    manager.begin_trial(place.product, manager.look(place.product), again)
    assert manager.look(place.product).state.current == "b"


def test_what_was_started_meanwhile_is_restarted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit came up by itself once `current` had moved: that release has failed, and may be what runs."""

    def started(here: Place) -> None:
        with open(here.slots / "trial.log", "ab") as file:
            file.write(b"start 9\n")
        ended(here, b"deadline-passed")

    begin(place, monkeypatch, started, POINTS[3])
    check_at_rest(place, "rolled-back", codes.DEADLINE_PASSED)
    assert any("restart" in call for call in asked(place))


def test_a_guard_that_has_gone_home_already_is_no_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves the links right after our look at them."""

    def home(here: Place) -> None:
        os.rename(here.slots / "back", here.slots / "current")

    def hit(point: str) -> None:
        if point == POINTS[3]:
            ended(place, b"deadline-passed")
        elif point == "home.0.Rename":
            home(place)

    monkeypatch.setattr(faults, "hit", hit)
    with pytest.raises(codes.Retryable):
        manager.begin_trial(place.product, manager.look(place.product), RELEASE)
    monkeypatch.setattr(faults, "hit", lambda point: None)
    check_at_rest(place, "rolled-back", codes.DEADLINE_PASSED)


def test_a_record_that_was_taken_away_is_a_trial_that_is_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, and without a claim: nobody would end it any more."""
    begin(place, monkeypatch, lambda here: os.unlink(here.slots / "trial"))
    seen = manager.look(place.product)
    assert (seen.state.current, seen.state.update.last, seen.settlement.reason) == ("a", None, codes.OK)
    assert asked(place) == []


@pytest.mark.parametrize("what", ["another trial", "no record"])
def test_a_record_that_is_not_this_trials_is_none(place: Place, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Nobody would look after this one by it."""

    def other(here: Place) -> None:
        data = (here.slots / "trial").read_bytes()
        other = data.replace(TRIAL_ID.encode(), b"ffffffffffffffff") if what == "another trial" else b"SPEC=1\n"
        here.write("trial", other)

    begin(place, monkeypatch, other)
    seen = manager.look(place.product)
    assert (seen.state.current, seen.state.trial, seen.settlement.reason) == ("a", None, codes.OK)
    assert asked(place) == []
