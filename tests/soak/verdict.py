# SPDX-License-Identifier: GPL-3.0-or-later
"""What many looks at one host say: whether anything is left behind by updates, and whether memory and disk stay what they were.

- A thing has *leaked* when the last quarter of a series never saw as few of it as the most that the first quarter saw: what is there once
  and away again is none, what came once and stays is one.
- Looked at is the whole series without what a first update and a first failure leave for good, and each boot for itself: a reboot
  takes away what had leaked into memory and /run.
- Memory and disk are compared by the medians of those quarters. What is bounded by number or size is held against its bound.
"""

from __future__ import annotations

import re
import statistics
from typing import Iterator, List, Mapping, NamedTuple, Sequence, Tuple

WARM_UP = 4
"""Both slots are filled, and one release has failed in each way, after so many updates."""
LEAST, LEAST_IN_BOOT = 6, 12
"""A series of fewer looks says nothing."""
RECORD = 64 << 10
RECORDS = 8
"""update.json, slots.json and trust.json with their copies, and what is written beside one before its rename."""
AUDIT_FILES, AUDIT_FILE = 17, 1 << 20
EVIDENCE_FILES, EVIDENCE_FILE = 4, 256 << 10
BOUNDED: Tuple[Tuple[str, int], ...] = (
    (r"/audit\.log\.#$", AUDIT_FILES - 1),
    (r"/evidence/", EVIDENCE_FILES),
    (r"\.broken-#$", 4),
)
"""Names that come with time, and how many of each there may be."""
ALIKE = 56
"""Quarters of so many looks have each way to end in them: a daemon that has just been started has loaded less than one that has worked."""
MEMORY_RATIO, MEMORY_KIB = 1.05, 512
"""So much more may the last quarter's median be than the first's: an interpreter's arenas differ from start to start."""
MAPPED = {"memory of systemd-journald.service"}
"""Mostly the journal's files, which it maps as they grow up to the bound of its configuration. Its own memory is judged."""
DISK_SLACK = 256 << 10


class Look(NamedTuple):
    """One look at the host at rest."""

    boot: int
    counts: Mapping[str, Mapping[str, int]]
    numbers: Mapping[str, int]


Quarters = Tuple[str, Sequence[Look], Sequence[Look]]


def quarters(looks: Sequence[Look]) -> Iterator[Quarters]:
    """What is compared: the first and the last quarter of the whole, and of each boot that was looked at often enough."""
    series = [("in all", LEAST, list(looks[WARM_UP:]))]
    for boot in sorted({look.boot for look in looks}):
        part = [look for look in looks[WARM_UP:] if look.boot == boot]
        series.append((f"in boot {boot}", LEAST_IN_BOOT, part))
    for name, least, part in series:
        if len(part) >= least:
            size = len(part) // 4
            yield name, part[:size], part[-size:]


def _bound(name: str) -> int:
    """How many there may be of a thing that comes with time; 0 when it has no bound of its own."""
    return next((bound for pattern, bound in BOUNDED if re.search(pattern, name)), 0)


def _bounded(looks: Sequence[Look]) -> Iterator[Tuple[str, int, int]]:
    """What comes with time: the name, the most that was seen, and its bound."""
    for name in sorted(set().union(*(look.counts.get("files", {}) for look in looks))):
        if _bound(name):
            yield name, max(look.counts.get("files", {}).get(name, 0) for look in looks), _bound(name)


def leaks(looks: Sequence[Look]) -> List[str]:
    """What there is more of at the end than there ever was at the beginning, and what is beyond its bound."""
    found = [
        f"{name}: {most} of them, and there may be {bound}" for name, most, bound in _bounded(looks) if most > bound
    ]
    for where, first, last in quarters(looks):
        for kind in sorted(set().union(*(look.counts for look in last))):
            for name in sorted(set().union(*(look.counts.get(kind, {}) for look in last))):
                most = max(look.counts.get(kind, {}).get(name, 0) for look in first)
                least = min(look.counts.get(kind, {}).get(name, 0) for look in last)
                if least > most and not _bound(name):
                    found.append(f"{where}, {kind}: {name}: at most {most} at first, at least {least} at the end")
    return found


def memory(looks: Sequence[Look]) -> List[str]:
    """Whose memory has grown."""
    found = []
    for where, first, last in quarters(looks):
        for name in sorted(key for key in last[-1].numbers if "memory of" in key and key not in MAPPED):
            if len(first) < ALIKE // 4 and "memory of slotward" in name:
                continue
            before, after = (
                statistics.median(look.numbers[name] for look in part if name in look.numbers) for part in (first, last)
            )
            if after > before * MEMORY_RATIO + MEMORY_KIB:
                found.append(f"{where}, {name}: {before:.0f} KiB at first, {after:.0f} KiB at the end")
    return found


def disk(looks: Sequence[Look], artifact: int) -> List[str]:
    """What takes more disk than it may; `artifact` is the size of the biggest release."""
    found = []
    slots = 3 * artifact + RECORDS * RECORD + DISK_SLACK
    bounds = {
        "disk /opt/slotward": slots,
        "disk /var/lib/slotward": 2 * artifact + DISK_SLACK,
        "audit files": AUDIT_FILES,
        "audit largest": AUDIT_FILE,
        "evidence files": EVIDENCE_FILES,
        "evidence largest": EVIDENCE_FILE,
    }
    for name, bound in bounds.items():
        most = max(look.numbers[name] for look in looks)
        if most > bound:
            found.append(f"{name}: {most}, and may be {bound}")
    for where, first, last in quarters(looks):
        for name in ("disk /var/lib/slotward", "disk /run"):
            before, after = (statistics.median(look.numbers[name] for look in part) for part in (first, last))
            if after > before + DISK_SLACK:
                found.append(f"{where}, {name}: {before:.0f} bytes at first, {after:.0f} at the end")
    return found


def judge(looks: Sequence[Look], artifact: int) -> List[str]:
    """Everything that is not as it must be; too short a series is no proof."""
    if len(looks) < WARM_UP + LEAST:
        return [f"{len(looks)} looks are too few to judge: it takes {WARM_UP + LEAST}"]
    return leaks(looks) + memory(looks) + disk(looks, artifact)
