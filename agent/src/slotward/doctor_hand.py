# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's checks of the operator's hand: a hold, what waits for a word, windows, freezes that nobody renewed.

Rules:
- A hold is somebody's will and no fault: `warn`, so that it is not forgotten. One that cannot be read is a fault.
- Freezes that lie in the past say nothing about windows, and are told as what they are: stale (field case N13).
"""

from __future__ import annotations

from typing import Any, Dict, List

from slotward import doctor_states as states

Answer = Dict[str, Any]
Found = states.Finding


def findings(answer: Answer, path: str) -> List[Found]:
    """What an answer of `update` says about them; `path` is the product's file."""
    found = _hold(answer)
    if answer["staged"] is not None:
        text = f"{answer['staged']['version']} is staged and waits for an operator's word"
        found.append(Found("staged", "warn", text, "slotward apply", states.STAGED))
    if answer["windows"] is not None:
        found += _windows(answer["windows"], path)
    return found


def _hold(answer: Answer) -> List[Found]:
    hold = answer["hold"]
    if hold is None:
        return []
    from slotcore import holds

    (text,) = holds.lines(hold)
    more = "no other release is taken, a pending trial still ends"
    state = "fail" if hold["damage"] else "warn"
    return [Found("hold", state, f"{text}; {more}", "slotward unhold", states.HELD)]


def _windows(times: Dict[str, Any], path: str) -> List[Found]:
    if times["problem"]:
        text, run = f"{times['problem']}; updates are refused", f"apt-get install tzdata, or edit {path}"
        return [Found("windows", "fail", text, run, states.NO_ZONE)]
    found: List[Found] = []
    if times["frozen"]:
        one = times["frozen"]
        text = f"updates are frozen from {one['begins']} to {one['ends']} {one['zone']} ([freeze-{one['name']}]) {one['why']}"
        run = "wait, or pass over it: slotward upgrade --force ..."
        found.append(Found("windows", "warn", text.rstrip(), run, states.FROZEN))
    elif times["windows"] and times["next_at"] is None and not times["open"]:
        text = f"no window opens within a week: {'; '.join(times['windows'])}"
        found.append(Found("windows", "warn", text, f"edit {path}", states.NO_WINDOW))
    elif times["windows"]:
        text = f"{'open now' if times['open'] else 'closed now'}: {'; '.join(times['windows'])}"
        found.append(Found("windows", "ok", text))
    if times["stale"]:
        text, run = "every freeze has ended, none is left to come", f"edit {path}: renew or remove them"
        found.append(Found("freezes", "warn", text, run, states.FREEZES_STALE))
    return found
