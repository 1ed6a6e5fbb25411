# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade's life as few events, read from the audit log (products.md, section 8).

Rules:

* Nothing is kept for this: each event is a line of the log, and its number is the cursor.
* What runs on is ``info``; what went back is ``critical``. Lines that are about something else are no events.
* An event has the fields of its kind and no others; what an earlier line of the log would say and is gone is null.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import audit

INFO, CRITICAL = "info", "critical"
STARTED, DOWNLOADED, STAGED, COMPLETED, ROLLED_BACK = (
    "upgrade-started",
    "upgrade-downloaded",
    "upgrade-staged",
    "upgrade-completed",
    "upgrade-rolled-back",
)
OF_LINES: Dict[str, Tuple[str, str]] = {
    audit.STARTED: (STARTED, INFO),
    audit.DOWNLOADED: (DOWNLOADED, INFO),
    audit.STAGED: (STAGED, INFO),
    audit.SWAPPED: (STAGED, INFO),
    audit.CONFIRMED: (COMPLETED, INFO),
    audit.ROLLED_BACK: (ROLLED_BACK, CRITICAL),
    audit.ROLLBACK_FAILED: (ROLLED_BACK, CRITICAL),
}
_SIZE = re.compile(r"([0-9]{1,15}) bytes\b.*")


class Read(NamedTuple):
    """Events in their order, what to ask with next, how many were left out, and whether the log is another one."""

    events: List[Dict[str, Any]]
    cursor: int
    left_out: int
    restarted: bool


def size_text(size: int) -> str:
    """The reason of a ``downloaded`` line."""
    return "%d bytes" % size


def read(lines: Iterable[bytes], since: int, limit: int = 0) -> Read:
    """The events after the line `since`, at most `limit` (0: all) of them; `lines` are those of a chain that holds.

    A cursor beyond the last line is of a log that was begun anew: then all of this one are told.
    """
    parsed = [audit.parse(line) for line in lines]
    head = parsed[-1].number if parsed else 0
    restarted = since > head
    after = 0 if restarted else since
    swapped: Dict[str, int] = {}
    found: List[Dict[str, Any]] = []
    for line in parsed:
        if line.event.event == audit.SWAPPED and line.event.trial_id:
            swapped[line.event.trial_id] = line.event.at
        if line.number > after and line.event.event in OF_LINES:
            found.append(_event(line, swapped))
    kept = found[:limit] if limit else found
    cursor = kept[-1]["n"] if len(kept) < len(found) else head
    return Read(kept, cursor, len(found) - len(kept), restarted)


def _event(line: audit.Line, swapped: Dict[str, int]) -> Dict[str, Any]:
    event = line.event
    name, severity = OF_LINES[event.event]
    found: Dict[str, Any] = {
        "n": line.number,
        "at": event.at,
        "event": name,
        "severity": severity,
        "product": event.product,
        "from": event.from_version,
        "to": event.to_version,
        "id": event.trial_id,
        "sequence": event.sequence,
        "sha256": event.sha256,
        "who": event.who,
    }
    if name == DOWNLOADED:
        found["size"] = _size_of(event.why)
    elif name == STAGED:
        found["swapped"] = event.event == audit.SWAPPED
    elif name == COMPLETED:
        began = swapped.get(event.trial_id)
        found["healthy_s"] = max(0, event.at - began) if began is not None else None
    elif name == ROLLED_BACK:
        found.update(why=event.why, code=event.code, failed=event.event == audit.ROLLBACK_FAILED)
    return found


def _size_of(why: str) -> Optional[int]:
    match = _SIZE.fullmatch(why)
    return int(match.group(1)) if match else None


def line_of(event: Dict[str, Any], time_text: str) -> str:
    """An event for people."""
    versions = " -> ".join(version for version in (event["from"], event["to"]) if version)
    more = {
        DOWNLOADED: "%s bytes" % event.get("size"),
        STAGED: "on trial" if event.get("swapped") else "waits for an operator's word",
        COMPLETED: "after %s s" % event.get("healthy_s"),
        ROLLED_BACK: "%s: %s" % (event.get("code"), event.get("why")),
    }.get(event["event"], "")
    parts = ("%5d" % event["n"], time_text, "%-8s" % event["severity"], "%-19s" % event["event"], versions, more)
    return "  ".join(part for part in parts if part)
