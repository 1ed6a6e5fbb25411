# SPDX-License-Identifier: GPL-3.0-or-later
"""By which time an expiry is judged, and what is said when clocks do not agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import clocks

END = 1798761600
BEFORE, AFTER = END - 86400, END + 86400
AT = "it expired at 2027-01-01T00:00:00Z"
BOTH = "%s: this host's clock says %s and whoever asks says %s: set the one that is wrong"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (clocks.Clocks(BEFORE), None),
        (clocks.Clocks(END - 1, END - 1, END - 1), None),
        (clocks.Clocks(0, 0, 0), None),
        (clocks.Clocks(END), AT),
        (clocks.Clocks(AFTER, AFTER, 0), AT),
        (clocks.Clocks(AFTER, 0, AFTER), AT),
        (clocks.Clocks(END + clocks.FAR_S - 1), AT),
        (
            clocks.Clocks(END + clocks.FAR_S),
            "%s: this host's clock says 2027-06-30T00:00:00Z, and nobody said another time: set it if it is wrong" % AT,
        ),
        (clocks.Clocks(END + clocks.FAR_S, END, 0), AT),
        (clocks.Clocks(END + clocks.FAR_S, 0, END + clocks.FAR_S), AT),
        (clocks.Clocks(BEFORE, 0, END), BOTH % (AT, "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z")),
        (clocks.Clocks(AFTER, 0, BEFORE), BOTH % (AT, "2027-01-02T00:00:00Z", "2026-12-31T00:00:00Z")),
        (clocks.Clocks(END, AFTER, BEFORE), BOTH % (AT, "2027-01-01T00:00:00Z", "2026-12-31T00:00:00Z")),
        (
            clocks.Clocks(5, END, 0),
            "%s: this host's clock says 1970-01-01T00:00:05Z, but a release that was issued at 2027-01-01T00:00:00Z was "
            "verified here, so the clock is behind: set it" % AT,
        ),
        (
            clocks.Clocks(BEFORE, AFTER, BEFORE),
            "%s: this host's clock says 2026-12-31T00:00:00Z, but a release that was issued at 2027-01-02T00:00:00Z was "
            "verified here, so the clock is behind: set it" % AT,
        ),
        (clocks.Clocks(-(2**60), 0, AFTER), BOTH % (AT, "0001-01-01T00:00:00Z", "2027-01-02T00:00:00Z")),
        (clocks.Clocks(2**60, 0, 1), BOTH % (AT, "9999-12-31T23:59:59Z", "1970-01-01T00:00:01Z")),
    ],
)
def test_N9_N11_the_latest_time_counts_and_a_wrong_clock_is_named(known: clocks.Clocks, said: str) -> None:
    """A clock set back brings nothing back to life, and the operator sees which one to set."""
    assert clocks.expired(known, END, "it") == said


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40))
def test_whoever_gives_a_time_can_only_make_it_stricter(host: int, newest: int, server: int, end: int) -> None:
    """What has expired without the server's time has expired with it."""
    if clocks.expired(clocks.Clocks(host, newest), end, "it") is not None:
        assert clocks.expired(clocks.Clocks(host, newest, server), end, "it") is not None
    assert (clocks.expired(clocks.Clocks(host, newest, server), end, "it") is None) == (max(host, newest, server) < end)
