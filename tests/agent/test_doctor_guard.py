# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says to run about the guard can be run as the host stands: setup refuses while a release is on trial (C6)."""

from __future__ import annotations

import pytest

from slotward import doctor, doctor_states

TIMER = "slotward-deadline@slotward.timer"
GUARD = "slotward-guard@slotward.service"
ENDS = "slotward confirm --pending --wait 60, or slotward rollback; then slotward setup"


@pytest.mark.parametrize(
    ("problem", "in_trial", "run", "entry"),
    [
        (f"{TIMER} is masked", False, f"systemctl unmask {TIMER} && slotward setup", doctor_states.GUARD_MASKED),
        (f"{GUARD} is masked", False, f"systemctl unmask {GUARD} && slotward setup", doctor_states.GUARD_MASKED),
        ("/usr/local/lib/slotward/guard is missing", False, "slotward setup", doctor_states.GUARD_MISSING),
        (
            f"{TIMER} is masked",
            True,
            f"systemctl unmask {TIMER} && systemctl start {TIMER}",
            doctor_states.GUARD_MASKED,
        ),
        (f"{GUARD} is masked", True, f"systemctl unmask {GUARD}", doctor_states.GUARD_MASKED),
        ("/usr/local/lib/slotward/guard is missing", True, ENDS, doctor_states.GUARD_MISSING),
    ],
)
def test_what_mends_the_guard(problem: str, in_trial: bool, run: str, entry: str) -> None:
    """A timer that was masked in a trial was unmasked and stayed stopped: the rest of the command was refused."""
    trial = {"id": "00112233445566aa"} if in_trial else None
    seen = doctor.Seen(
        answer={"trial": trial},
        entrypoint="",
        entrypoint_kind="ours",
        current="",
        config_path="",
        damage="",
        system=(problem,),
    )
    (found,) = doctor._system(seen)
    assert (found.state, found.message, found.run, found.entry) == ("fail", problem, run, entry)
