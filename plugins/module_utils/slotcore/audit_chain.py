# SPDX-License-Identifier: GPL-3.0-or-later
"""The chain that the lines of an audit log make, across its files, and what it proves to a repair (trust.md, section 5).

Rules:

* ``audit.log`` is written; a closed file is ``audit.log.<n>``, n being the number of its first line, so that the names
  alone say in which order they are read. 16 closed files are kept.
* A chain holds when each line follows the one before it. A first line with another number than 1 says that the files
  before it are gone; that is no fault. Lines missing at the end are no fault of what is left: only a head that somebody
  saw earlier shows them.
* What a log says of a floor is believed for its whole only when it begins where this host began.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import audit

NAME = "audit.log"
MAX_FILE = 1 << 20
KEPT = 16
"""How many closed files are kept beside the one that is written."""

BEGINS_A_HOST = (audit.INSTALLED, audit.ADOPTED)
MAKES_GOOD = (audit.CONFIRMED, audit.INSTALLED, audit.ADOPTED)
RAISES_THE_FLOOR = (audit.CONFIRMED, audit.INSTALLED, audit.ADOPTED, audit.REPAIRED)
NAMES_VERIFIED_BYTES = (
    audit.ACCEPTED,
    audit.SWAPPED,
    audit.CONFIRMED,
    audit.ROLLED_BACK,
    audit.ROLLBACK_FAILED,
    audit.ABANDONED,
    audit.INSTALLED,
    audit.ADOPTED,
)
"""Not `refused`: what was refused was claimed by whoever asked, never verified."""

NO_DECISIONS = (audit.REFUSED, *audit.STEPS)
"""What may stand before the first decision on a host."""

_CLOSED = re.compile(re.escape(NAME) + r"\.([1-9][0-9]{0,15})")


class Chain(NamedTuple):
    """A chain that holds: the number of the first line that is still there (0: none), and the head."""

    first: int
    head: audit.Head


class Fault(NamedTuple):
    """The line, counted from 1, at which a chain does not hold, and why."""

    line: int
    why: str


class Named(NamedTuple):
    """What a log says of some bytes."""

    version: str
    sequence: int


class Facts(NamedTuple):
    """What a log that holds proves to a repair."""

    confirmed: int
    """The highest sequence that was confirmed, installed, adopted or set by a repair."""
    named: Dict[str, Named]
    """What each SHA-256 of verified bytes was, by the newest line about it."""
    whole: bool
    """It begins where this host began: line 1 is there, and before any decision came the first install."""
    good: str = ""
    """The SHA-256 in the newest line that says of a release that it is the one to go back to."""
    keys: int = 0
    """The highest sequence of a key set that was taken; 0: none."""
    withdrawn: Tuple[audit.Event, ...] = ()
    permits: Tuple[Tuple[str, int], ...] = ()
    """The ids of permits that were used, and when."""
    floor: int = 0
    """The floor at least, by what is left of the log: as `confirmed`, but for what a permit took it down to."""
    before: int = 0
    """The same where the floor rises to the release confirmed before."""


def closed_name(first: int) -> str:
    """The name of a closed file whose first line has that number."""
    return "%s.%d" % (NAME, first)


def closed(names: Iterable[str]) -> List[Tuple[int, str]]:
    """Of the names in a directory, the closed files in their order, each with the number in its name."""
    found = [(int(match.group(1)), match.group()) for match in map(_CLOSED.fullmatch, names) if match]
    return sorted(found)


def surplus(names: Iterable[str]) -> List[str]:
    """The oldest closed files, which are no longer kept."""
    found = closed(names)
    return [name for _first, name in found[: max(0, len(found) - KEPT)]]


def is_full(size: int, more: int) -> bool:
    """Whether a file of that size is closed before `more` bytes are appended."""
    return size > 0 and size + more > MAX_FILE


def follow(before: Optional[audit.Head], data: bytes) -> audit.Head:
    """The head after one line more; raises BadLine when it does not follow `before` (None: what was before is gone)."""
    line = audit.parse(data)
    if before is None:
        before = audit.EMPTY if line.number == 1 else audit.Head(line.number - 1, line.prev)
    if line.number != before.number + 1:
        raise audit.BadLine(
            "its number is %d, the one after line %d is %d" % (line.number, before.number, before.number + 1)
        )
    if line.prev != before.hash:
        raise audit.BadLine("its prev is %s, the line before it has the hash %s" % (line.prev, before.hash))
    return audit.Head(line.number, audit.hash_of(data))


def verify(lines: Iterable[bytes], before: Optional[Chain] = None) -> Union[Chain, Fault]:
    """The chain of these lines (without newlines) after `before`, or the first line that breaks it."""
    first = before.first if before is not None else 0
    head = before.head if before is not None and first else None
    for count, data in enumerate(lines, 1):
        try:
            head = follow(head, data)
        except audit.BadLine as bad:
            return Fault(count, str(bad))
        first = first or head.number
    return Chain(first, head or audit.EMPTY)


def facts(lines: Iterable[bytes]) -> Facts:
    """What these lines prove; they are those of a chain that holds, from its first line on."""
    confirmed, begun, whole, good, keys = 0, False, False, "", 0
    named: Dict[str, Named] = {}
    withdrawn: List[audit.Event] = []
    permits: List[Tuple[str, int]] = []
    floor, permitted, before, last = 0, "", 0, 0
    for count, line in enumerate(map(audit.parse, lines), 1):
        event = line.event
        if event.event not in NO_DECISIONS and not begun:
            begun, whole = True, line.number == count and event.event in BEGINS_A_HOST
        if event.event in RAISES_THE_FLOOR:
            confirmed = max(confirmed, event.sequence)
            down = event.event == audit.CONFIRMED and event.trial_id == permitted != ""
            floor = event.sequence if down else max(floor, event.sequence)
            reached = event.sequence if event.event == audit.REPAIRED else min(last, event.sequence)
            before = event.sequence if down else max(before, reached)
        if event.event in MAKES_GOOD:
            good, last = event.sha256, event.sequence
        elif event.event == audit.KEYS_CHANGED:
            keys = max(keys, event.sequence)
        elif event.event == audit.WITHDRAWN:
            withdrawn.append(event)
        elif event.event == audit.PERMITTED:
            permits.append((event.why.rpartition(" ")[2], event.at))
            permitted = event.trial_id
        if event.sha256 and event.event in NAMES_VERIFIED_BYTES:
            named[event.sha256] = Named(event.to_version, event.sequence)
    return Facts(confirmed, named, whole, good, keys, tuple(withdrawn), tuple(permits), floor, before)
