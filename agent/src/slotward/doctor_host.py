# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor looks at besides the records: the unit, the clock, the mode with its sandboxes, the file systems."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from slotcore import settle
from slotward import doctor_clock, doctor_mode, doctor_places, doctor_unit, own

Found = Tuple[str, str, str, str]
"""A finding: name, state, message, and the command that mends it."""


def findings(setup: own.Setup, state: settle.State, answer: Dict[str, Any]) -> Tuple[Found, ...]:
    """Every finding, in order; `answer` is what `update` says."""
    return (
        *doctor_unit.look(answer),
        *doctor_clock.findings(doctor_clock.now_s(), state.update.newest_issued),
        *doctor_mode.findings(doctor_mode.gather(setup, state)),
        *doctor_places.findings(setup, state),
    )
