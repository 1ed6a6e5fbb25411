# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's check of this host's clock: one that is behind what was verified here, or that nobody ever set (field cases N9, N11).

Rules:
- The clock is never set by us, and no trial ends by it (I10); what it decides is told where it is wrong.
- One that is ahead cannot be told from a host that was long switched off: a refusal that rests on it says what it says.
"""

from __future__ import annotations

import time
from typing import List

from slotcore import clocks
from slotward import doctor_states as states

Found = states.Finding

NEVER_SET_S = 1_735_689_600
"""2025: a clock of before that was never set."""
RUN = "timedatectl set-ntp true, or timedatectl set-time 'YYYY-MM-DD hh:mm:ss'"


def now_s() -> int:
    """What the clock says."""
    return int(time.time())


def findings(now: int, newest_issued: int) -> List[Found]:
    """What is to be said of a clock that says `now`, where the newest verified manifest was issued then."""
    says = f"this host's clock says {clocks.shown(now)}"
    if now < newest_issued:
        text = f"a release that was issued at {clocks.shown(newest_issued)} was verified here, so it is behind"
        text = f"{says}, but {text}; expiry is judged by the later of the two"
        return [Found("clock", "warn", text, RUN, states.CLOCK_BEHIND)]
    if now < NEVER_SET_S:
        text = f"{says}: it was never set, and servers cannot prove themselves to this host"
        return [Found("clock", "warn", text, RUN, states.CLOCK_UNSET)]
    return [Found("clock", "ok", says)]
