# SPDX-License-Identifier: GPL-3.0-or-later
"""Times of release manifests, against the standard library's calendar."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import rfc3339

UTC = dt.timezone.utc
TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda when: when.replace(microsecond=0))


@given(TIMES)
def test_every_second_of_the_calendar_agrees(when: dt.datetime) -> None:
    """Both directions, years 1 to 9999."""
    seconds = (when - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(seconds=1)
    text = when.replace(tzinfo=None).isoformat() + "Z"
    assert rfc3339.parse(text) == seconds
    assert rfc3339.render(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T12:30:15Z", 951827415),
        ("2026-01-31T23:59:59.999999999Z", 1769903999),
        ("2026-01-31T23:59:59.0Z", 1769903999),
        ("0001-01-01T00:00:00Z", rfc3339.FIRST),
        ("9999-12-31T23:59:59Z", rfc3339.LAST),
    ],
)
def test_known_times(text: str, seconds: int) -> None:
    """Ends of the range, a leap day, and fractions, which are dropped."""
    assert rfc3339.parse(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-31",
        "2026-01-31 00:00:00Z",
        "2026-01-31t00:00:00Z",
        "2026-01-31T00:00:00z",
        "2026-01-31T00:00:00",
        "2026-01-31T00:00:00+00:00",
        "2026-01-31T00:00:00-00:00",
        "2026-01-31T00:00Z",
        "2026-1-31T00:00:00Z",
        "2026-01-31T00:00:00.Z",
        "2026-01-31T00:00:00.1234567890Z",
        "2026-01-31T00:00:00Z\n",
        "+2026-01-31T00:00:00Z",
        "\u0662026-01-31T00:00:00Z",
    ],
)
def test_another_spelling_is_refused(text: str) -> None:
    """One spelling, in UTC."""
    with pytest.raises(ValueError, match="is not a time like 2026-01-31T23:59:59Z"):
        rfc3339.parse(text)


@pytest.mark.parametrize(
    "day", ["0000-01-01", "2026-00-01", "2026-13-01", "2026-01-00", "2026-04-31", "2025-02-29", "1900-02-29"]
)
def test_a_day_that_is_not_in_the_calendar_is_refused(day: str) -> None:
    """Also the leap days that are none."""
    with pytest.raises(ValueError, match="names a day that does not exist"):
        rfc3339.parse(day + "T00:00:00Z")


@pytest.mark.parametrize("time", ["24:00:00", "00:60:00", "23:59:60"])
def test_a_time_of_day_that_is_none_is_refused(time: str) -> None:
    """A leap second too."""
    with pytest.raises(ValueError, match="names a time of day that does not exist"):
        rfc3339.parse("2026-01-31T%sZ" % time)


@pytest.mark.parametrize("seconds", [rfc3339.FIRST - 1, rfc3339.LAST + 1])
def test_what_has_no_spelling_is_refused(seconds: int) -> None:
    """Years below 1 and above 9999."""
    with pytest.raises(ValueError, match="not in the years 0001 to 9999"):
        rfc3339.render(seconds)
