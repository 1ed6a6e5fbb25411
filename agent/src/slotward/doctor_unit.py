# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's check of the product's unit: whether it runs, and whether what was confirmed keeps exiting (I5).

Rules:
- After a confirmation nothing goes back by itself: a release that begins to crash then is told here, with the way out of it.
- A trial, and an end of it that is not finished, is left to the guard, which counts its crashes itself; the restarts of one that went
  back are not the good release's, whose process had started by when that end was written down.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

from slotward import doctor_states as states

Answer = Dict[str, Any]
Found = states.Finding

LOOP_RESTARTS = 4
"""So many restarts that nobody asked for are more than an accident."""
YOUNG_S = 60.0
"""Who has been up for so long does not loop, whatever it did before."""


def up_s(answer: Answer) -> Optional[float]:
    """For how long the unit's main process has been up; None where there is none."""
    from slotward import host, process

    started_s = process.started_s(answer["unit"]["main_pid"]) if answer["unit"]["main_pid"] else None
    return None if started_s is None else host.uptime_s() - started_s


def findings(answer: Answer, up: Optional[float]) -> List[Found]:
    """What an answer of `update` says about the unit, whose main process has been up for so long."""
    unit = answer["unit"]
    name, active = unit["name"], unit["active"]
    if answer["pending"] == "none" and _loops(unit, up) and not _of_the_trial(answer, up):
        text = f"{name} keeps exiting: restarted {unit['restarts']} times by itself, now {active}"
        text += f"; {answer['version']} is confirmed, so nothing goes back by itself"
        return [Found("unit", "fail", text, _out(answer), states.UNIT_LOOPS)]
    if active in ("active", "activating", "reloading"):
        return [Found("unit", "ok", f"{name} is {active}")]
    text = f"{name} is {active or 'unknown'}: updates are refused until it runs"
    if active == "failed" and answer["trial"] is None:
        run = f"systemctl reset-failed {name}; systemctl enable --now {name}; if it fails again, {_out(answer)}"
        return [Found("unit", "fail", text, run, states.UNIT_DOWN)]
    return [Found("unit", "warn", text, f"systemctl enable --now {name}", states.UNIT_DOWN)]


def _loops(unit: Dict[str, Any], up: Optional[float]) -> bool:
    if unit["active"] not in ("active", "activating", "deactivating") or unit["restarts"] < LOOP_RESTARTS:
        return False
    return up is None or up < YOUNG_S


def _of_the_trial(answer: Answer, up: Optional[float]) -> bool:
    """Whether what runs is still the process that going back started: systemd counts on over the crashes before it."""
    last = answer.get("last")
    return (
        last is not None and last["state"] == "rolled-back" and up is not None and time.time() - up <= last["at"] + 1
    )  # which is in whole seconds


def _out(answer: Answer) -> str:
    """What leaves a confirmed release that does not run: a kept one, where the floor leaves that open; else a better one."""
    slots = answer["slots"]
    here, other = slots.get(slots["current"] or ""), slots.get(slots["other"] or "")
    if here and other and answer["floor"] <= other["sequence"] < here["sequence"]:
        return "slotward rollback --to previous --start"
    return "slotward upgrade --start --target FILE (a better release; an older one needs --permit)"
