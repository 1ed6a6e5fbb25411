# SPDX-License-Identifier: GPL-3.0-or-later
"""Windows and freezes by the clock on the wall: days, midnight, whole days, zones, and what is past."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, windows
from slotcore import product as products

ZONE = "Europe/Berlin"
MON, TUE, WED, THU, FRI, SAT, SUN = range(7)
WORK = (MON, TUE, WED, THU, FRI)


def window(opens: str, closes: str, days: Tuple[int, ...] = WORK, zone: str = ZONE) -> products.Window:
    """A window, by the clock."""
    return products.Window("night", days, minutes(opens), minutes(closes), zone)


def minutes(text: str) -> int:
    """A time of day in minutes."""
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


def at(weekday: int, clock: str, date: str = "2026-11-30") -> windows.Local:
    """A moment on the wall."""
    return windows.Local(date, weekday, minutes(clock))


@pytest.mark.parametrize(
    ("one", "moment", "is_open"),
    [
        (window("09:00", "17:00"), at(MON, "08:59"), False),
        (window("09:00", "17:00"), at(MON, "09:00"), True),
        (window("09:00", "17:00"), at(MON, "16:59"), True),
        (window("09:00", "17:00"), at(MON, "17:00"), False),
        (window("09:00", "17:00"), at(SAT, "12:00"), False),
        (window("22:00", "04:00"), at(MON, "21:59"), False),
        (window("22:00", "04:00"), at(MON, "22:00"), True),
        (window("22:00", "04:00"), at(TUE, "03:59"), True),
        (window("22:00", "04:00"), at(TUE, "04:00"), False),
        (window("22:00", "04:00"), at(MON, "03:00"), False),
        (window("22:00", "04:00"), at(SAT, "03:00"), True),
        (window("22:00", "04:00"), at(SAT, "23:00"), False),
        (window("22:00", "04:00", (SUN,)), at(MON, "00:00"), True),
        (window("00:00", "00:00", (SAT,)), at(SAT, "00:00"), True),
        (window("00:00", "00:00", (SAT,)), at(SAT, "23:59"), True),
        (window("00:00", "00:00", (SAT,)), at(SUN, "00:00"), False),
        (window("06:00", "06:00", (SAT,)), at(SUN, "05:59"), True),
        (window("06:00", "06:00", (SAT,)), at(SUN, "06:00"), False),
        (window("20:00", "24:00", (SAT,)), at(SAT, "23:59"), True),
        (window("20:00", "24:00", (SAT,)), at(SUN, "00:00"), False),
    ],
)
def test_when_a_window_is_open(one: products.Window, moment: windows.Local, is_open: bool) -> None:
    """It opens at its first minute and closes before its last; over midnight its days are those on which it opens."""
    assert windows.is_open(one, moment) is is_open


days = st.lists(st.integers(0, 6), min_size=1, unique=True).map(tuple)
any_window = st.builds(products.Window, st.just("w"), days, st.integers(0, 1439), st.integers(0, 1439), st.just(ZONE))


@given(any_window)
def test_a_week_has_as_many_open_minutes_as_the_window_says(one: products.Window) -> None:
    """Each of its days opens it once, for as long as it lasts; two of them may touch over midnight."""
    length = (one.closes - one.opens) % 1440 or 1440
    opened = sum(
        windows.is_open(one, windows.Local("2026-11-30", day, minute)) for day in range(7) for minute in range(1440)
    )
    assert opened == length * len(one.days)


@given(any_window, st.integers(0, 6), st.integers(0, 1439))
def test_the_next_opening_is_the_first_minute_at_which_it_opens(one: products.Window, day: int, minute: int) -> None:
    """Walked minute by minute from now on, no opening of the window comes before the one that is told."""
    here = windows.Local("2026-11-30", day, minute)
    told = next(iter(windows.openings((one,), {ZONE: here})))
    walked = minute + 1
    while not (walked % 1440 == one.opens and (day + walked // 1440) % 7 in one.days):
        walked += 1
    assert (told.days, told.minute) == divmod(walked, 1440)
    assert told.window == one


def test_each_window_tells_every_opening_of_a_week() -> None:
    """Today's that is still to come, and the same day of the next week; one without a day tells none."""
    here = {ZONE: at(MON, "12:00")}
    told = list(windows.openings((window("22:00", "04:00", (MON,)), window("09:00", "10:00", ())), here))
    assert [(one.days, one.minute) for one in told] == [(0, 22 * 60), (7, 22 * 60)]


def product(
    *named: products.Window, freezes: Tuple[products.Freeze, ...] = (), name: str = "redis"
) -> products.Product:
    """A product with these."""
    base = products.Product(name, "redis.service", "/usr/bin/redis", "/opt/redis")
    return base._replace(windows=named, freezes=freezes)


NIGHT = window("22:00", "04:00")
XMAS = products.Freeze("xmas", "2026-12-20", "2027-01-06", ZONE, "the year's end")
NO_WINDOW: Dict[str, windows.Local] = {}


def code_of(one: products.Product, moment: windows.Local) -> Optional[str]:
    """The code with which an update is put off, or nothing."""
    refusal = windows.refusal(one, dict.fromkeys(windows.zones(one), moment))
    return refusal and refusal.code


def test_without_a_window_every_time_is_one() -> None:
    """A product that names none is updated whenever somebody asks."""
    assert windows.refusal(product(), NO_WINDOW) is None
    assert windows.zones(product()) == ()
    assert windows.open_now((), NO_WINDOW)


def test_outside_of_all_windows_it_is_put_off() -> None:
    """One open window is enough; the refusal names them all."""
    both = product(NIGHT, window("12:00", "13:00", (SAT,)))
    assert code_of(both, at(SAT, "12:30")) is None
    assert code_of(both, at(MON, "23:00")) is None
    refusal = windows.refusal(both, {ZONE: at(MON, "12:30")})
    assert refusal == codes.Refusal(
        codes.OUTSIDE_WINDOW,
        "redis is updated mon,tue,wed,thu,fri 22:00-04:00 Europe/Berlin ([window-night]); "
        "sat 12:00-13:00 Europe/Berlin ([window-night]), and not now",
    )


def test_each_window_goes_by_its_own_zone() -> None:
    """The same moment is another hour elsewhere."""
    both = product(NIGHT, window("22:00", "04:00", zone="Asia/Tokyo"))
    assert windows.zones(both) == ("Asia/Tokyo", ZONE)
    moment = {ZONE: at(MON, "15:00"), "Asia/Tokyo": at(MON, "23:00")}
    assert windows.refusal(both, moment) is None
    assert windows.refusal(product(NIGHT), moment) is not None


@pytest.mark.parametrize(
    ("date", "frozen"),
    [("2026-12-19", False), ("2026-12-20", True), ("2027-01-01", True), ("2027-01-06", True), ("2027-01-07", False)],
)
def test_a_freeze_counts_on_both_its_days(date: str, frozen: bool) -> None:
    """Also where a window is open."""
    one = product(NIGHT, freezes=(XMAS,))
    assert code_of(one, at(MON, "23:00", date)) == (codes.FROZEN if frozen else None)


def test_a_freeze_is_told_before_a_closed_window() -> None:
    """With its dates, its zone and its reason; of several the one that ends last."""
    longer = XMAS._replace(name="longer", ends="2027-02-01", why="")
    refusal = windows.refusal(product(NIGHT, freezes=(XMAS,)), {ZONE: at(SAT, "12:00", "2026-12-24")})
    assert refusal == codes.Refusal(
        codes.FROZEN,
        "updates of redis are frozen from 2026-12-20 to 2027-01-06 Europe/Berlin ([freeze-xmas]): the year's end",
    )
    refusal = windows.refusal(product(freezes=(XMAS, longer)), {ZONE: at(SAT, "12:00", "2026-12-24")})
    assert refusal is not None
    assert refusal.text.endswith("to 2027-02-01 Europe/Berlin ([freeze-longer])")


def test_N13_freezes_that_are_all_past_close_no_window() -> None:
    """A list that nobody renewed is told as stale, and every window stays what it is."""
    old = product(NIGHT, freezes=(XMAS._replace(begins="2020-12-20", ends="2021-01-06"),))
    now = {ZONE: at(MON, "23:00", "2026-11-30")}
    assert windows.refusal(old, now) is None
    assert windows.as_json(old, now) == {
        "open": True,
        "windows": ["mon,tue,wed,thu,fri 22:00-04:00 Europe/Berlin ([window-night])"],
        "frozen": None,
        "stale": True,
    }
    assert not windows.as_json(product(NIGHT), now)["stale"], "none is not stale"
    assert not windows.as_json(product(NIGHT, freezes=(XMAS,)), now)["stale"]
    frozen = windows.as_json(product(NIGHT, freezes=(XMAS,)), {ZONE: at(MON, "23:00", "2026-12-28")})
    assert (frozen["open"], frozen["frozen"]) == (False, XMAS._asdict())
