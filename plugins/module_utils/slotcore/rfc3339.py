# SPDX-License-Identifier: GPL-3.0-or-later
"""Points in time as release manifests write them.

Rules:

* RFC 3339 in UTC, spelled ``2026-01-31T23:59:59Z``: capital T and Z, no offset, years 0001 to 9999.
* A fraction of one to nine digits may follow the seconds and is dropped: times count in whole seconds since 1970.
* A leap second (``:60``) is refused: nothing here needs one and clocks disagree about it.
"""

from __future__ import annotations

import re

_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]{1,9})?Z")
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_TO_1970 = 719162
_DAY_S = 86400
FIRST = -_DAYS_TO_1970 * _DAY_S
LAST = 253402300799


def parse(text: str) -> int:
    """Seconds since 1970 of `text`.

    Raises:
        ValueError: saying which part is wrong.

    """
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError("%s is not a time like 2026-01-31T23:59:59Z" % ascii(text))
    year, month, day, hour, minute, second = (int(part) for part in match.groups())
    if not (year and 1 <= month <= 12 and 1 <= day <= _length(year, month)):
        raise ValueError("%s names a day that does not exist" % ascii(text))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("%s names a time of day that does not exist" % ascii(text))
    days = _days_before(year) + sum(_length(year, m) for m in range(1, month)) + day - 1
    return (days - _DAYS_TO_1970) * _DAY_S + hour * 3600 + minute * 60 + second


def render(seconds: int) -> str:
    """The spelling of a time in the years 0001 to 9999."""
    if not FIRST <= seconds <= LAST:
        raise ValueError("%d seconds since 1970 are not in the years 0001 to 9999" % seconds)
    days, rest = divmod(seconds, _DAY_S)
    days += _DAYS_TO_1970
    year = days // 366 + 1
    while _days_before(year + 1) <= days:
        year += 1
    days -= _days_before(year)
    month = 1
    while days >= _length(year, month):
        days -= _length(year, month)
        month += 1
    return "%04d-%02d-%02dT%02d:%02d:%02dZ" % (year, month, days + 1, rest // 3600, rest // 60 % 60, rest % 60)


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and _leap(year) else _DAYS[month - 1]


def _days_before(year: int) -> int:
    """Days from the first of January of the year 1 to that of `year`."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400
