# SPDX-License-Identifier: GPL-3.0-or-later
"""What `update` answers: every key always there, and lines for people that say the same."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

import pytest
from core.crash import values
from core.crash.values import IN_TIME, OVER, PRODUCT, REBOOTED, TRIAL, state

from slotcore import codes, records, settle, status
from slotward import asking

IDLE = status.Host("1.0.0", 1, status.Unit("active", "running", 77, 0), None, ())
LAST = records.Last(TRIAL.trial_id, "rolled-back", "crash-loop", "it kept exiting", "1.0.0", "1.1.0", 7)
FAILURE = records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, values.digest("1.1.0"), 7)
ON_TRIAL = values.on_trial()
KEYS = {
    *("spec", "product", "changed", "state", "code", "message", "version", "sequence", "floor", "pins", "threshold"),
    *(
        "policy",
        "slots",
        "trust",
        "warnings",
        "trial",
        "pending",
        "failed",
        "last",
        "lock",
        "broken",
        "unit",
        "mode",
        "helper",
        "config_problems",
    ),
}


def answer(found: settle.State, clock: settle.Clock = IN_TIME, host: status.Host = IDLE) -> Dict[str, Any]:
    """The JSON answer, as a reader gets it."""
    value: Dict[str, Any] = json.loads(json.dumps(status.as_json(PRODUCT, found, clock, host)))
    return value


def lines(found: settle.State, host: status.Host = IDLE) -> List[str]:
    """The lines for people."""
    return status.lines(answer(found, IN_TIME, host), "/bin/probe")


@pytest.mark.parametrize(
    "found",
    [
        settle.State(),
        state(),
        ON_TRIAL,
        state(None, None),
        state()._replace(broken=("/slots/update.json", "torn")),
        state("b", "a", claim={"revert": b""}),
    ],
)
def test_H11_every_key_is_there_whatever_the_state(found: settle.State) -> None:
    """Readers never have to ask whether a key exists."""
    assert set(answer(found)) == KEYS
    assert sorted(answer(found)["slots"]) == sorted(["in_use", "current", "good", "other", "a", "b"])


def test_a_quiet_host_reads_as_idle() -> None:
    """Version, floor, slots and unit."""
    shown = answer(state())
    assert (shown["state"], shown["code"], shown["pending"], shown["trial"]) == ("idle", "ok", "none", None)
    assert (shown["spec"], shown["product"], shown["version"], shown["floor"]) == (1, "probe", "1.0.0", 1)
    assert shown["slots"]["a"] == values.record("1.0.0").as_json()
    assert (shown["slots"]["current"], shown["slots"]["other"]) == ("a", "b")
    assert shown["unit"] == {
        "name": "probe.service",
        "active": "active",
        "sub": "running",
        "main_pid": 77,
        "restarts": 0,
        "job": 0,
    }
    assert lines(state()) == [
        "version 1.0.0, release floor 1, 1 release pin (threshold 1)",
        "slots: current a (1.0.0), other b (1.1.0)",
    ]


@pytest.mark.parametrize(
    ("name", "base", "known", "said"),
    [
        ("update.json", 0, True, "version 1.0.0, release floor not known, 1 release pin (threshold 1)"),
        ("update.json", 5, False, "version 1.0.0, release floor not known, at least 5, release pins not known"),
        ("trust.json", 0, False, "version 1.0.0, release floor 1, release pins not known"),
        ("slots.json", 0, True, "version 1.0.0, release floor 1, 1 release pin (threshold 1)"),
    ],
)
def test_C31_what_a_broken_record_would_say_is_not_known(name: str, base: int, known: bool, said: str) -> None:
    """I3: no floor and no pins are read off a record that nobody can read, and nothing is shown as zero."""
    found = state()._replace(broken=(f"/slots/{name}", "it is torn"), trust_known=known)
    if name == "update.json":
        found = found._replace(update=records.Update())
    shown = status.as_json(PRODUCT._replace(base_floor=base), found, IN_TIME, IDLE)
    assert status.lines(shown, "/bin/probe")[0] == said


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (status.Unit("active", "running", 77), None),
        (status.Unit("active", "running", 77, 5), "unit: probe.service is active, restarted 5 times by itself"),
        (status.Unit("failed", "failed"), "unit: probe.service is failed, restarted 0 times by itself"),
    ],
)
def test_I5_a_unit_that_does_not_stay_up_is_told(unit: status.Unit, said: Optional[str]) -> None:
    """After a confirmation nothing goes back by itself, so that an operator must see it."""
    found = status.lines(answer(state(), host=IDLE._replace(unit=unit)), "/bin/probe")
    assert [line for line in found if line.startswith("unit: ")] == ([said] if said else [])


def test_the_mode_and_the_helper_are_shown() -> None:
    """A product without a helper says null; with one, what its unit is at, and a line for people."""
    assert (answer(state())["mode"], answer(state())["helper"]) == ("root", None)
    helper = status.Unit("active", "running", 78, 2)
    here = IDLE._replace(mode="helper", helper=helper)
    shown = status.as_json(values.HELPED, state()._replace(helper="a"), IN_TIME, here)
    assert (shown["mode"], shown["unit"]["main_pid"]) == ("helper", 77)
    assert shown["helper"] == {
        "name": "probe-helper.service",
        "active": "active",
        "main_pid": 78,
        "restarts": 2,
        "slot": "a",
    }
    assert status.lines(shown, "/bin/probe")[2] == "helper: probe-helper.service active, process 78, slot a"
    assert answer(state(), host=IDLE._replace(mode="start"))["helper"] is None


@pytest.mark.parametrize(("active", "state_shown"), [("active", "rolled-back"), ("failed", "rollback-failed")])
def test_H6_a_helper_that_does_not_run_after_going_back_is_told(active: str, state_shown: str) -> None:
    """Back is only where both units run; of a product without one nobody asks."""
    here = IDLE._replace(mode="helper", helper=status.Unit(active))
    found = state(update=records.Update(floor=1, last=LAST))._replace(helper="a")
    assert status.as_json(values.HELPED, found, IN_TIME, here)["state"] == state_shown
    assert status.as_json(PRODUCT, found, IN_TIME, here)["state"] == "rolled-back"


@pytest.mark.parametrize(
    ("current", "helper", "line"),
    [
        ("a", "b", "helper: probe-helper.service unknown, process none, slot b, not a as current"),
        ("a", None, "helper: probe-helper.service unknown, process none, slot missing, not a as current"),
        (None, "a", "helper: probe-helper.service unknown, process none, slot a, not missing as current"),
    ],
)
def test_a_helper_that_is_behind_is_told(current: Optional[str], helper: Optional[str], line: str) -> None:
    """And one that systemd says nothing of."""
    found = status.as_json(values.HELPED, state(current, "a")._replace(helper=helper), IN_TIME, IDLE)
    assert line in status.lines(found, "/bin/probe")


def test_L6_disabled_updates_are_shown_as_such_and_not_as_an_error() -> None:
    """The host's own switch is in every answer and in a line of its own; state and code stay what they are."""
    held = PRODUCT._replace(policy=PRODUCT.policy._replace(enabled=False, allowed_channels=("lts", "stable")))
    shown = json.loads(json.dumps(status.as_json(held, state(), IN_TIME, IDLE)))
    assert shown["policy"] == {
        "enabled": False,
        "allowed_channels": ["lts", "stable"],
        "min_version": None,
        "rollback_grace": 1,
        "same_major": False,
        "strict_sequence": False,
    }
    assert (shown["state"], shown["code"]) == ("idle", "ok")
    line = "updates are disabled on this host ([update] enabled = false)"
    assert line in status.lines(shown, "/bin/probe")
    assert line not in lines(state())
    pending = status.as_json(held, ON_TRIAL, IN_TIME, IDLE)
    assert (pending["state"], pending["trial"]["missing"]) == ("trial", ["controller"])


@pytest.mark.parametrize(("recorded", "configured"), [(4, 9), (9, 4), (9, 9)])
def test_the_floor_shown_is_the_highest_known(recorded: int, configured: int) -> None:
    """Configured, embedded, or recorded."""
    found = state(update=records.Update(floor=recorded))
    assert status.floor_of(PRODUCT._replace(base_floor=configured), found) == 9


def test_S4_a_trial_shows_what_is_left_of_it_and_whom_it_waits_for() -> None:
    """Until it is confirmed the state is `trial`."""
    shown = answer(ON_TRIAL)
    assert (shown["state"], shown["code"], shown["pending"]) == ("trial", "trial-pending", "await")
    assert shown["trial"] == {
        "id": TRIAL.trial_id,
        "from": "1.0.0",
        "to": "1.1.0",
        "from_slot": "a",
        "to_slot": "b",
        "sequence": 2,
        "left_s": 119,
        "length_s": 120,
        "boots_left": 3,
        "missing": ["controller"],
    }
    assert answer(ON_TRIAL, REBOOTED)["trial"]["left_s"] == 120
    waiting = "pending: 1.0.0 -> 1.1.0, trial, 119 s and 3 boots left, waiting for "
    assert waiting + "controller" in lines(ON_TRIAL)
    spoken = ON_TRIAL._replace(sources=f"{TRIAL.trial_id} controller\n".encode())
    assert waiting + "proof" in lines(spoken)


def test_S1_an_update_that_must_be_finished_says_so_instead_of_updating_for_ever() -> None:
    """What settle will do stands in `pending`; it is no trial."""
    shown = answer(ON_TRIAL, OVER)
    assert (shown["trial"], shown["pending"], shown["state"]) == (None, "go-back", "idle")
    assert status.lines(shown, "/bin/probe")[2] == "pending: go-back, finished by the next start or command"


def test_slots_that_are_not_in_use_yet_name_what_will_be_adopted() -> None:
    """As the seed says it."""
    assert lines(settle.State())[1] == "slots: not in use yet (the first update adopts /bin/probe)"
    assert answer(settle.State())["slots"]["other"] is None


def test_an_empty_slot_and_a_missing_link_are_named() -> None:
    """A slot without a record is empty; a link that names no slot is missing."""
    assert lines(state("a", "a", held=values.slots(a="1.0.0")))[1] == "slots: current a (1.0.0), other b (empty)"
    assert lines(state(None, "a"))[1] == "slots: current missing (empty), other missing (empty)"


@pytest.mark.parametrize(
    ("copy", "why", "said"),
    [
        (None, "/slots/update.json.copy: it is missing", "/slots/update.json.copy: it is missing"),
        (b"{}", "", "it proves itself and is used next"),
    ],
)
def test_P4_a_broken_record_says_what_of_its_copy(copy: Optional[bytes], why: str, said: str) -> None:
    """So that an operator knows whether the next command mends it, or a repair is needed."""
    damage = settle.Damage("update.json", "it is torn", True, copy, why)
    torn = state()._replace(broken=("/slots/update.json", "it is torn"), damaged=(damage,))
    assert answer(torn)["broken"] == {"file": "/slots/update.json", "why": "it is torn", "copy": said}
    assert f"broken: /slots/update.json: it is torn (its copy: {said}); updates are refused" in lines(torn)


def test_P4_a_record_that_was_set_aside_is_told_for_as_long_as_it_is_kept() -> None:
    """That a copy had to be used is a sign of a failing disk: it does not pass unseen because all is well again."""
    kept = IDLE._replace(aside=("update.json.broken-7",))
    (warned,) = answer(state(), IN_TIME, kept)["warnings"]
    assert (warned["level"], warned["what"], warned["days"]) == ("warning", "set-aside", 0)
    assert "set aside as update.json.broken-7" in warned["text"]
    assert lines(state(), kept)[-1] == f"warning: {warned['text']}"
    assert answer(state(), IN_TIME, IDLE)["warnings"] == []


def test_H6_a_rollback_after_which_nothing_runs_is_another_state() -> None:
    """`rolled-back` and `rollback-failed` differ by whether the good version runs."""
    found = state(update=records.Update(1, 0, (FAILURE,), LAST))
    assert (answer(found)["state"], answer(found)["code"]) == ("rolled-back", "crash-loop")
    for unit in (
        status.Unit("failed"),
        status.Unit("inactive"),
        status.Unit("unknown"),
        status.Unit("activating", "auto-restart"),
        status.Unit("activating", "auto-restart-queued"),
    ):
        assert answer(found, IN_TIME, IDLE._replace(unit=unit))["state"] == "rollback-failed"
    for unit in (
        status.Unit("inactive", "dead", job=4711),
        status.Unit("activating", "start"),
        status.Unit("deactivating", "stop-sigterm"),
        status.Unit("failed", "failed", job=4712),
    ):
        assert answer(found, IN_TIME, IDLE._replace(unit=unit))["state"] == "rolled-back", "a restart is under way"
    assert answer(found)["failed"] == [FAILURE._asdict()]
    assert answer(found)["last"]["id"] == TRIAL.trial_id
    assert lines(found)[-1] == "failed: 1.1.0 (it kept exiting)"


def test_S18_who_holds_the_lock_is_named_with_its_age() -> None:
    """A lock is never just a file."""
    busy = IDLE._replace(lock=status.Lock(4711, 12, "upgrade to 1.1.0"))
    assert answer(state(), IN_TIME, busy)["lock"] == {"pid": 4711, "age_s": 12, "what": "upgrade to 1.1.0"}
    assert lines(state(), busy)[-1] == "busy: upgrade to 1.1.0, process 4711, for 12 s"
    nobodys = IDLE._replace(lock=status.Lock(0, 0, "an unknown change"))
    assert lines(state(), nobodys)[-1] == "busy: an unknown change"


def test_I8_what_is_broken_is_named_and_the_rest_is_still_shown() -> None:
    """A broken record goes before a bad configuration, and both are told."""
    wrong = IDLE._replace(problems=("config.toml:3: unknown key colour",))
    assert answer(state(), IN_TIME, wrong)["code"] == codes.BAD_CONFIG
    assert lines(state(), wrong)[-1] == "configuration: config.toml:3: unknown key colour; updates are refused"
    torn = state()._replace(broken=("/slots/update.json", "it is not JSON"))
    shown = answer(torn, IN_TIME, wrong)
    assert (shown["code"], shown["broken"]) == (
        codes.RECORD_BROKEN,
        {"file": "/slots/update.json", "why": "it is not JSON", "copy": ""},
    )
    assert shown["version"] == "1.0.0"
    assert "broken: /slots/update.json: it is not JSON; updates are refused" in lines(torn, wrong)


@pytest.mark.parametrize(
    ("shown", "unit"),
    [
        ({}, status.Unit("unknown", "", 0, 0)),
        (
            {"ActiveState": "active", "SubState": "running", "MainPID": "77", "NRestarts": "2"},
            status.Unit("active", "running", 77, 2),
        ),
        ({"ActiveState": "failed", "MainPID": "[not set]", "NRestarts": ""}, status.Unit("failed", "", 0, 0)),
    ],
)
def test_the_unit_is_what_systemd_says_of_it(shown: Dict[str, str], unit: status.Unit) -> None:
    """And unknown where systemd did not answer; the properties asked for are those that are read."""
    assert status.unit_of(shown) == unit
    assert set(shown) <= set(asking.UNIT_PROPERTIES)


def test_pins_are_counted_in_good_english() -> None:
    """One pin, two pins."""
    two = status.as_json(PRODUCT._replace(pins=("x", "y"), threshold=2), state(), IN_TIME, IDLE)
    assert status.lines(two, "/bin/probe")[0].endswith("2 release pins (threshold 2)")


@pytest.mark.parametrize(
    ("shown", "stopped"),
    [
        ({"ActiveState": "inactive", "Job": "", "left": "50", "started": "10", "ended": "60"}, True),
        ({"ActiveState": "inactive", "Job": "0", "left": "50", "started": "10", "ended": "60"}, True),
        ({"ActiveState": "inactive", "left": "61", "started": "10", "ended": "60"}, False),
        ({"ActiveState": "inactive", "Job": "77", "left": "50", "started": "10", "ended": "60"}, False),
        ({"ActiveState": "failed", "left": "50", "started": "10", "ended": "60"}, False),
        ({"ActiveState": "active", "left": "5", "started": "10", "ended": "0"}, False),
        ({"ActiveState": "inactive", "left": "5", "started": "10", "ended": "60"}, False),
        ({}, False),
    ],
    ids=[
        "asked",
        "asked, old systemd",
        "by itself",
        "a restart under way",
        "failed",
        "runs",
        "left long ago",
        "nothing known",
    ],
)
def test_a_stop_that_was_asked_for_is_told_from_an_exit(shown: Dict[str, str], stopped: bool) -> None:
    """A unit that left `active` before its main process ended was stopped by somebody."""
    names = dict(zip(("left", "started", "ended"), status.STOP_PROPERTIES[2:]))
    assert status.was_stopped({names.get(key, key): value for key, value in shown.items()}) is stopped
