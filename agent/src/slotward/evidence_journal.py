# SPDX-License-Identifier: GPL-3.0-or-later
"""What the journal has of a trial: its lines, and how the main processes of its units ended (faults.md, section 7).

Rules:
- A trial's time is told by the boot and the clock since it, as its record does; the wall clock only says where to begin
  to read, and where it was set meanwhile the newest lines are looked at instead (I10).
- What is read is bounded in bytes and in time. No journal, or one that hangs, is said and that is all.
- Lines are the words of a release that failed: text, kept and shown as text, never a command or a path.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from slotward import probe_journal

TIMEOUT_S = 20.0
NEWEST = 4000
SPARE_S = 30
"""So much after the end is looked at: how the release was stopped, and whether the good one came up."""
PROCESS_EXIT = "98e322203f7a4ed290d09fe03c09fe15"
"""systemd's own id of the entry that says how a process of a unit ended."""
_FIELDS = "MESSAGE,MESSAGE_ID,EXIT_CODE,EXIT_STATUS,UNIT,SYSLOG_IDENTIFIER,_SYSTEMD_UNIT,_COMM,_PID"


class Window(NamedTuple):
    """The time that counts: within a boot from when to when (seconds since it began), and about when that was by the wall clock."""

    boot_id: str
    """Without dashes, as the journal has it; "" when it is not known, then the wall clock alone counts."""
    begun_s: float
    ended_s: float
    wall_s: int
    ended_wall_s: int
    later: bool = False
    """The trial went on into later boots."""


class Found(NamedTuple):
    """Lines, exits by the clock of the boot, and why there are none."""

    lines: Tuple[str, ...]
    exits: Tuple[Tuple[float, str], ...]
    problem: str = ""


def _entry(line: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(line)
        int(found["__MONOTONIC_TIMESTAMP"]), int(found["__REALTIME_TIMESTAMP"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return dict(found)


def _is_within(entry: Mapping[str, Any], window: Window) -> bool:
    if not window.boot_id:
        return window.wall_s <= int(entry["__REALTIME_TIMESTAMP"]) / 1e6 <= window.ended_wall_s + SPARE_S
    if entry.get("_BOOT_ID") != window.boot_id:
        return window.later
    return window.begun_s <= int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6 <= window.ended_s + SPARE_S


def _within(entries: Sequence[Dict[str, Any]], window: Window) -> List[Dict[str, Any]]:
    """The entries that count; of other boots only those after the trial's own, where that is among them."""
    own = [number for number, entry in enumerate(entries) if entry.get("_BOOT_ID") == window.boot_id]
    return [entry for entry in entries[own[0] if own else 0 :] if _is_within(entry, window)]


def _is_told(entry: Mapping[str, Any], guards: Sequence[str]) -> bool:
    """Everything of the product's units; of the guard's what the guard said, not each of its runs."""
    return str(entry.get("UNIT", "")) not in guards or entry.get("_PID") != "1"


def _line(entry: Mapping[str, Any], window: Window) -> str:
    at = int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6 - window.begun_s
    same = not window.boot_id or entry.get("_BOOT_ID") == window.boot_id
    when = f"+{at:.3f}" if window.boot_id and same else f"@{int(entry['__REALTIME_TIMESTAMP']) / 1e6:.3f}"
    who = entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM") or "?"
    text = f"{when} {who}[{entry.get('_PID', '?')}]: {probe_journal.message_of(entry)}"
    return text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair is no text


def _exit(entry: Mapping[str, Any]) -> str:
    """How a main process ended, by systemd's own words alone; "" for any other entry."""
    if entry.get("MESSAGE_ID") != PROCESS_EXIT or entry.get("_PID") != "1":
        return ""
    if "Main process" not in probe_journal.message_of(entry):
        return ""
    return f"{entry.get('EXIT_CODE', '?')} {entry.get('EXIT_STATUS', '?')}"


def _asked(units: Sequence[str], more: Sequence[str]) -> Tuple[List[Dict[str, Any]], str]:
    """Entries in their order; the newest are read first, so that they are what there is when there are too many."""
    argv = ["journalctl", "--quiet", "--no-pager", "--reverse", "--output=json", "--all", f"--output-fields={_FIELDS}"]
    argv += [f"--unit={unit}" for unit in units]
    try:
        data, status = probe_journal.bounded([*argv, *more], TIMEOUT_S)
    except OSError as error:
        return [], f"cannot run journalctl: {error.strerror}"
    found = [entry for entry in map(_entry, data[: probe_journal.MAX_READ].split(b"\n")[:-1]) if entry]
    if status != 0 and not found:
        return [], f"journalctl ended with status {status}, or not within {TIMEOUT_S:g} s"
    return found[::-1], ""


def read(units: Sequence[str], guards: Sequence[str], window: Window) -> Found:
    """What the journal has of these units, and of the guard's, within the window."""
    problem = ""
    about = (f"--since=@{max(0, window.wall_s)}", f"--until=@{max(0, window.ended_wall_s) + SPARE_S}")
    for more in (about, (f"--lines={NEWEST}",)):
        entries, problem = _asked([*units, *guards], more)
        seen = _within(entries, window)
        told = [_line(entry, window) for entry in seen if _is_told(entry, guards)]
        if told:
            same = [one for one in seen if not window.boot_id or one.get("_BOOT_ID") == window.boot_id]
            ends = [(int(one["__MONOTONIC_TIMESTAMP"]) / 1e6, _exit(one)) for one in same]
            return Found(tuple(told), tuple(end for end in ends if end[1]))
    return Found((), (), problem or f"the journal has no line of {', '.join(units)} in that time")
