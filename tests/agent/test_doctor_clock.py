# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says of a clock that cannot be right (field cases N9, N11)."""

from __future__ import annotations

import time

import pytest

from slotward import doctor_clock

Y2026 = 1_767_225_600


@pytest.mark.parametrize(
    ("now", "newest", "state", "said"),
    [
        (Y2026, 0, "ok", "says 2026-01-01T00:00:00Z"),
        (Y2026, Y2026, "ok", "says 2026-01-01T00:00:00Z"),
        (Y2026, Y2026 + 1, "warn", "issued at 2026-01-01T00:00:01Z was verified here, so it is behind"),
        (5, 0, "warn", "says 1970-01-01T00:00:05Z: it was never set"),
        (-5, Y2026, "warn", "says 1969-12-31T23:59:55Z, but a release"),
        (doctor_clock.NEVER_SET_S, 0, "ok", "says 2025-01-01T00:00:00Z"),
    ],
)
def test_N11_a_clock_that_is_behind_is_told(now: int, newest: int, state: str, said: str) -> None:
    """By what was verified here, or by a time at which nobody had made this."""
    ((name, found, text, run, _entry),) = doctor_clock.findings(now, newest)
    assert (name, found, said in text, bool(run)) == ("clock", state, True, state != "ok"), text


def test_the_clock_is_the_wall_s() -> None:
    """In whole seconds."""
    assert abs(doctor_clock.now_s() - time.time()) < 5
