# SPDX-License-Identifier: GPL-3.0-or-later
"""What each command demands before it changes a host: the lock, that nothing is in flight, the bytes, and whose word it is."""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
from typing import Callable, Dict

import pytest
from agent.places import Place

from agent import guarding, places
from slotcore import checks, codes, proof, protocol, records, settle, trial
from slotcore import config as configs
from slotward import cmd_trial, cmd_upgrade, effects, helper_work, host, lock, manager, own, prepare, slots, switching

AWAY = argparse.Namespace(
    id=None, no_smoke=False, src=None, permit=None, server_time=None, adopt=False, start=False, force=False,
    command="upgrade", accept_one_way=False, stage_only=False, no_wait=True,
)  # fmt: skip
TARGET = checks.Target("probe", "1.1.0", "", places.DIGEST["b"], "")


@pytest.fixture(name="place")
def _place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A host at rest, whose unit runs, as systemd says, without a main process."""
    monkeypatch.setenv("PATH", f"{guarding.FAKES}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    monkeypatch.setattr(os, "nice", lambda _step: 0)
    (tmp_path / "show").write_text("ActiveState=active\n")
    return Place(tmp_path, tmp_path / "slots")


def setup_of(place: Place) -> own.Setup:
    """The product as configured, in a configuration that has a problem: no update goes further than that."""
    return own.Setup(place.product, configs.load(b"", "/nowhere")[0], ("the test's problem",), "/nowhere")


def on_trial(place: Place) -> None:
    """A trial with time left, of this boot."""
    clock = host.clock()
    pending = places.TRIAL._replace(boot_id=clock.boot_id, length_s=60, deadline_s=clock.uptime_s + 59)
    place.on_trial(trial.render_trial(pending))


def upgrade(place: Place) -> object:
    """`slotward upgrade`."""
    return cmd_upgrade.upgrade(setup_of(place), TARGET, argparse.Namespace(**vars(AWAY)))


def swap(place: Place) -> object:
    """The helper's, at the daemon's word."""
    request = protocol.Request(protocol.SWAP, "0123456789abcdef", target="0123456789abcdef.target")
    return helper_work.swap(setup_of(place), request, [])


def confirm(place: Place) -> object:
    """`slotward confirm`, once the proof is there."""
    return cmd_trial.confirm(place.product, places.TRIAL_ID, "controller", 0)


def rollback(place: Place) -> object:
    """`slotward rollback`."""
    return cmd_trial.rollback(place.product, None, "by the test")


COMMANDS: Dict[str, Callable[[Place], object]] = {
    "upgrade": upgrade,
    "the helper's swap": swap,
    "confirm": confirm,
    "rollback": rollback,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_S18_whoever_changes_a_host_holds_the_lock(command: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """S18: while somebody else does, it is told who, and nothing is changed."""
    on_trial(place)
    monkeypatch.setattr(cmd_trial, "_prove", lambda *_what: proof.Proof("exe", 1))
    before = place.names()
    with lock.held(place.product, "somebody's work"), pytest.raises(codes.Retryable) as error:
        COMMANDS[command](place)
    assert error.value.code == codes.IN_PROGRESS
    assert "somebody's work" in error.value.text
    assert (place.names() - {"lock"}, os.readlink(place.slots / "current")) == (before, "b")


@pytest.mark.parametrize("command", ["upgrade", "the helper's swap"])
def test_S9_an_update_begins_with_settling_what_is_in_flight(command: str, place: Place) -> None:
    """S9: a trial that is over is taken back first, also where the update itself is refused."""
    place.on_trial()
    with pytest.raises((codes.Refused, codes.BadConfig)):
        COMMANDS[command](place)
    assert os.readlink(place.slots / "current") == "a"
    assert "trial" not in place.names()


def test_I11_nothing_is_confirmed_without_a_proof(place: Place) -> None:
    """I11: the unit has no main process, so there is none, and the trial goes on."""
    on_trial(place)
    answer = cmd_trial.confirm(place.product, places.TRIAL_ID, "controller", 0)
    assert (answer.json["state"], answer.json["code"]) == ("trial", codes.NOT_PROVEN)
    assert "trial" in place.names()


def refusal(act: Callable[[], object]) -> str:
    """The code of what it is refused with."""
    with pytest.raises(codes.Refused) as error:
        act()
    return error.value.code


def test_only_who_is_to_confirm_this_trial_confirms_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another source, or the id of another trial, is refused; with two sources one alone is not enough."""
    monkeypatch.setattr(cmd_trial, "_prove", lambda *_what: proof.Proof("exe", 1))
    on_trial(place)
    other = "f" * 16
    assert refusal(lambda: cmd_trial.confirm(place.product, places.TRIAL_ID, "gateway", 0)) == codes.WRONG_SOURCE
    assert refusal(lambda: cmd_trial.confirm(place.product, other, "controller", 0)) == codes.WRONG_TRIAL
    assert refusal(lambda: cmd_trial.rollback(place.product, other, "x")) == codes.WRONG_TRIAL
    both = place.product._replace(confirm_sources=("controller", "gateway"))
    answer = cmd_trial.confirm(both, places.TRIAL_ID, "controller", 0)
    assert (answer.json["code"], answer.json["missing"]) == (codes.NOT_CONFIRMED, ["gateway"])
    assert "trial" in place.names()
    assert cmd_trial.confirm(both, places.TRIAL_ID, "gateway", 0).json["state"] == "confirmed"


def test_bytes_count_by_their_digest(place: Place, tmp_path: pathlib.Path) -> None:
    """What was staged, what a slot is gone to again for, and what starts are read, whatever is written about them."""
    setup = setup_of(place)
    data = b"staged"
    record = records.SlotRecord("1.2.0", 3, hashlib.sha256(data).hexdigest(), len(data))
    staged = pathlib.Path(prepare.staged_path(setup, "1.2.0"))
    staged.parent.mkdir()
    staged.write_bytes(data)
    assert prepare.is_staged(setup, record)
    staged.write_bytes(b"stages")
    assert not prepare.is_staged(setup, record)
    (tmp_path / "probe").symlink_to(place.slots / "current")
    assert prepare.held_by(place.product, place.state(), TARGET, 1) == places.NEW
    (place.slots / "b").write_bytes(b"defh")
    assert prepare.held_by(place.product, place.state(), TARGET, 1) is None
    (place.slots / "a").chmod(0o755)
    assert slots.problem(place.product, "a", places.OLD) == ""
    (place.slots / "a").write_bytes(b"abd")
    assert "other bytes" in slots.problem(place.product, "a", places.OLD)


def test_I3_a_slot_below_the_floor_is_not_gone_to_again(place: Place, tmp_path: pathlib.Path) -> None:
    """I3: its record is above the floor, or a manifest and a permit must speak for it."""
    (tmp_path / "probe").symlink_to(place.slots / "current")
    floors = [prepare.held_by(place.product, place.state(), TARGET, floor) is not None for floor in (1, 2, 3)]
    assert floors == [True, True, False]


def test_a_confirmation_waits_for_records_that_can_be_believed(place: Place) -> None:
    """I3: one that was won, on a host whose floor nobody knows, is finished after the repair and not before."""
    on_trial(place)
    os.rename(place.slots / "trial", place.slots / "trial.confirm")
    for name in ("update.json", "update.json.copy"):
        (place.slots / name).write_bytes(b"{")
    seen = manager.look(place.product)
    assert seen.settlement.action is settle.Action.FINISH_CONFIRM
    assert manager.settling_plan(place.product, seen) == ("nothing", ())


def test_I5_the_last_trials_id_is_used_by_no_other(place: Place) -> None:
    """I5: its end would be taken for this one's; any other id will do."""
    last = records.Last(places.TRIAL_ID, "rolled-back", codes.CRASH_LOOP, "it kept exiting", "1.0.0", "1.1.0", 1)
    place.write("update.json", records.render_update(records.Update(floor=1, last=last)))
    prepared = prepare.Prepared(TARGET, manager.look(place.product), "1.0.0", places.NEW, 0)
    assert refusal(lambda: switching.refuse_used_id(prepared, places.TRIAL_ID)) == codes.WRONG_TRIAL
    switching.refuse_used_id(prepared, "f" * 16)
    switching.refuse_used_id(prepared, None)


def test_W3_going_back_starts_nothing_that_an_operator_had_stopped(place: Place, tmp_path: pathlib.Path) -> None:
    """W3: systemd was asked for that stop; going forward is an operator's word, and starts it."""
    stopped = "ActiveState=inactive\nJob=\nActiveExitTimestampMonotonic=7\n"
    (tmp_path / "show").write_text(stopped + "ExecMainStartTimestampMonotonic=5\nExecMainExitTimestampMonotonic=8\n")
    effects.restart((place.product.unit,), respect_stop=True)
    assert "restart" not in place.calls()
    effects.restart((place.product.unit,), respect_stop=False)
    assert "restart -- probe.service" in place.calls()
