# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says before its keys, or the manifest of the release that it runs, expire (trust.md, section 6; N16).

Rules:
- 90, 30 and 7 days before; days are whole ones that are left, and below 0 from the second on at which it has happened.
- Nothing here stops anything: an expired key set refuses updates by its own row, and the daemon runs on (N12, I8).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from . import rfc3339

DAY_S = 86400
NOTICE, WARNING, CRITICAL = "notice", "warning", "critical"
LEVELS: Tuple[Tuple[int, str], ...] = ((7, CRITICAL), (30, WARNING), (90, NOTICE))


class Warned(NamedTuple):
    """One thing that an operator should know: how urgent, about what (`keys`, `manifest`), a sentence, days left."""

    level: str
    what: str
    text: str
    days: int


def of_keys(sequence: int, expires_at: int, now_s: int) -> Optional[Warned]:
    """The warning about the key set in use, if it is time for one."""
    then = "no release is taken before the next key set"
    return _warned("keys", "key set %d" % sequence, expires_at, now_s, then)


def of_manifest(version: str, expires_at: int, now_s: int) -> Optional[Warned]:
    """The warning about the manifest of the release that runs, if it is time for one."""
    then = "it cannot be installed anew with that manifest, and runs on where it does"
    return _warned("manifest", "the manifest of %s" % version, expires_at, now_s, then)


def _warned(what: str, name: str, expires_at: int, now_s: int, then: str) -> Optional[Warned]:
    left_s = expires_at - now_s
    level = next((level for days, level in LEVELS if left_s <= days * DAY_S), None)
    if level is None:
        return None
    days = (left_s - 1) // DAY_S if left_s <= 0 else left_s // DAY_S
    when = rfc3339.render(expires_at)
    if left_s <= 0:
        return Warned(level, what, "%s expired at %s: %s" % (name, when, then), days)
    counted = "%d day%s" % (days, "" if days == 1 else "s") if days else "less than a day"
    return Warned(level, what, "%s expires in %s, at %s: then %s" % (name, counted, when, then), days)
