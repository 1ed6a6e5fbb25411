# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's checks of the operator's hand: a hold, what waits for a word, windows, freezes that nobody renewed.

Rules:
- A hold is somebody's will and no fault: `warn`, so that it is not forgotten. One that cannot be read is a fault.
- Freezes that lie in the past say nothing about windows, and are told as what they are: stale (field case N13).
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

Answer = Dict[str, Any]
Found = Tuple[str, str, str, str]
"""A finding: name, state, message, and the command that mends it."""


def findings(answer: Answer, path: str) -> List[Found]:
    """What an answer of `update` says about them; `path` is the product's file."""
    found = _hold(answer)
    if answer["staged"] is not None:
        text = f"{answer['staged']['version']} is staged and waits for an operator's word"
        found.append(("staged", "warn", text, "slotward apply"))
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
    return [("hold", "fail" if hold["damage"] else "warn", f"{text}; {more}", "slotward unhold")]


def _windows(times: Dict[str, Any], path: str) -> List[Found]:
    if times["problem"]:
        return [
            ("windows", "fail", f"{times['problem']}; updates are refused", f"apt-get install tzdata, or edit {path}")
        ]
    found: List[Found] = []
    if times["frozen"]:
        one = times["frozen"]
        text = f"updates are frozen from {one['begins']} to {one['ends']} {one['zone']} ([freeze-{one['name']}]) {one['why']}"
        found.append(("windows", "warn", text.rstrip(), "wait, or pass over it: slotward upgrade --force ..."))
    elif times["windows"] and times["next_at"] is None and not times["open"]:
        text = f"no window opens within a week: {'; '.join(times['windows'])}"
        found.append(("windows", "warn", text, f"edit {path}"))
    elif times["windows"]:
        text = f"{'open now' if times['open'] else 'closed now'}: {'; '.join(times['windows'])}"
        found.append(("windows", "ok", text, ""))
    if times["stale"]:
        found.append(
            ("freezes", "warn", "every freeze has ended, none is left to come", f"edit {path}: renew or remove them")
        )
    return found
