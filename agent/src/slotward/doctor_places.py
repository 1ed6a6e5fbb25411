# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's look at the file systems that releases lie on: what prepare would refuse the next release for (field cases D1, D10).

Rules:
- Nothing is written: what only a try can tell (D7), prepare tells.
- Room is asked for a release as big as the biggest that lies in the slots, as prepare asks for the one that is wanted.
"""

from __future__ import annotations

import os
from typing import List, Tuple

from slotcore import codes, settle
from slotward import own, preflight

Found = Tuple[str, str, str, str]
LEAST = 1 << 20

_REMOUNT = 'mount -o remount,%s "$(findmnt -nro TARGET -T %s)"'


def findings(setup: own.Setup, state: settle.State) -> List[Found]:
    """What keeps the next release out, or one line that nothing does."""
    slots, staging = setup.product.slots_dir, os.path.dirname(setup.staging)
    size = max([LEAST, *(record.size for record in state.slots.values())])
    try:
        facts = preflight.look(slots, staging, probing=False)
    except OSError as error:
        return [
            ("places", "fail", f"cannot look at the file systems of {slots} and {staging}: {error}", f"ls -ld {slots}")
        ]
    return judged(facts, size)


def judged(facts: preflight.Facts, size: int) -> List[Found]:
    """The finding about these file systems, for a release of `size` bytes."""
    refusal = preflight.judge(facts, size)
    if refusal is None:
        text = "%s and %s take another release of %d bytes" % (facts.slots.path, facts.staging.path, size)
        return [("places", "ok", text, "")]
    return [("places", "fail", refusal.text, _mends(facts, refusal))]


def _mends(facts: preflight.Facts, refusal: codes.Refusal) -> str:
    """What an operator runs; slots on what a reboot empties have to be made elsewhere."""
    slots, staging = facts.slots, facts.staging
    if refusal.code == codes.READ_ONLY:
        return _REMOUNT % ("rw", slots.path if slots.read_only else staging.path)
    if refusal.code == codes.NOEXEC:
        return _REMOUNT % ("exec", slots.path)
    if refusal.code == codes.NO_SPACE:
        return "df -h %s %s; df -i %s %s" % ((slots.path, staging.path) * 2)
    return "set [update] slots_dir, then slotward setup"
