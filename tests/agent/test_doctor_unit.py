# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says of a unit that does not run, or does not stay up, and the way out of it (I5)."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional

import pytest

from slotward import doctor_unit

BETTER = "slotward upgrade --start --target FILE (a better release; an older one needs --permit)"
BACK = "slotward rollback --to previous --start"


def answer(active: str = "active", restarts: int = 0, sub: str = "running", **more: Any) -> Dict[str, Any]:
    """What `update` answers of a host whose slot b was confirmed."""
    unit = {"name": "demo.service", "active": active, "sub": sub, "main_pid": 0, "restarts": restarts, "job": 0}
    slots: Dict[str, Any] = {"current": "b", "other": "a", "a": {"sequence": 1}, "b": {"sequence": 2}}
    return {"unit": unit, "slots": slots, "floor": 2, "trial": None, "pending": "none", "version": "1.1.0", **more}


@pytest.mark.parametrize(
    ("found", "up", "state"),
    [
        (answer(), 5.0, "ok"),
        (answer(restarts=3), 5.0, "ok"),
        (answer(restarts=4), 5.0, "fail"),
        (answer(restarts=4), 61.0, "ok"),
        (answer("activating", 4, "auto-restart"), None, "fail"),
        (answer("activating", 0, "start"), None, "ok"),
        (answer("deactivating", 4, "stop-sigterm"), None, "fail"),
        (answer("deactivating"), None, "warn"),
        (answer("reloading", 9), 5.0, "ok"),
        (answer(restarts=4, trial={"id": "1"}, pending="await"), 5.0, "ok"),
        (answer(restarts=4, pending="finish-revert"), 5.0, "ok"),
        (answer("failed", 5, pending="finish-revert"), None, "fail"),
        (answer("failed", 5), None, "fail"),
        (answer("failed", 5, trial={"id": "1"}, pending="await"), None, "warn"),
        (answer("inactive"), None, "warn"),
        (answer(""), None, "warn"),
    ],
)
def test_i5_what_was_confirmed_and_keeps_exiting_is_a_failure(
    found: Dict[str, Any], up: Optional[float], state: str
) -> None:
    """Only where nobody else ends it: in a trial the guard counts. Whatever is not well names what to run."""
    ((name, shown, text, run, _entry),) = doctor_unit.findings(found, up)
    assert (name, shown, bool(run)) == ("unit", state, state != "ok")
    assert "demo.service" in text


def test_i5_the_way_out_is_one_that_the_floor_leaves_open() -> None:
    """The kept release where the floor is not above it; else a better one, for the floor never falls (I3)."""
    looping = answer(restarts=12)
    ((_name, _state, text, run, _entry),) = doctor_unit.findings(looping, 1.0)
    assert run == BETTER
    assert text == (
        "demo.service keeps exiting: restarted 12 times by itself, now active; 1.1.0 is confirmed, so nothing goes back by itself"
    )
    assert doctor_unit.findings(dict(looping, floor=1), 1.0)[0][3] == BACK
    newer = dict(looping["slots"], a={"sequence": 3})
    assert doctor_unit.findings(dict(looping, floor=1, slots=newer), 1.0)[0][3] == BETTER
    for slots in (dict(looping["slots"], a=None), dict(looping["slots"], current=None, other=None)):
        assert doctor_unit.findings(dict(looping, floor=1, slots=slots), 1.0)[0][3] == BETTER
    failed = doctor_unit.findings(answer("failed", 5, floor=1), None)[0][3]
    assert (
        failed == f"systemctl reset-failed demo.service; systemctl enable --now demo.service; if it fails again, {BACK}"
    )


def test_restarts_of_a_release_that_went_back_are_not_the_good_one_s() -> None:
    """systemd's count goes on over going back: for a minute after each crash loop the good release was said to keep exiting."""
    last = {"state": "rolled-back", "at": int(time.time()) - 10}
    found = answer(restarts=4, last=last)
    assert doctor_unit.findings(found, 12.0)[0][1] == "ok", "it started before the end was written down"
    assert doctor_unit.findings(found, 8.0)[0][1] == "fail", "it has ended since"
    assert doctor_unit.findings(found, None)[0][1] == "fail"
    assert doctor_unit.findings(answer(restarts=4, last=dict(last, state="confirmed")), 12.0)[0][1] == "fail"


def test_how_long_the_main_process_is_up() -> None:
    """By when it started; nothing where there is none, or where it has ended meanwhile."""
    found = answer()
    assert doctor_unit.up_s(found) is None
    found["unit"]["main_pid"] = os.getpid()
    first = doctor_unit.up_s(found)
    assert first is not None
    time.sleep(0.05)
    second = doctor_unit.up_s(found)
    assert second is not None
    assert 0 < second - first < 5
    found["unit"]["main_pid"] = 2**22 + 1
    assert doctor_unit.up_s(found) is None
