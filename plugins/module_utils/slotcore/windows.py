# SPDX-License-Identifier: GPL-3.0-or-later
"""When updates may begin: weekly windows, and freezes between two dates (products.md, section 7).

Rules:
- Whoever asks brings the local date, weekday and minute of each zone; this knows no clock and no zone.
- Without a window every time is one. A window that does not open before it closes lasts over midnight, and its days are
  those on which it opens. One that opens and closes at the same minute is a whole day.
- What the clock on the wall shows is what counts: a minute that is passed over in spring opens nothing, one that comes
  twice in autumn counts twice.
- A freeze counts on both its days, in its own zone. One that is past is past: it says nothing about windows (N13).
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import codes
from . import product as products

DAY_MINUTES = 24 * 60
WEEK = 7
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Local(NamedTuple):
    """A moment as a clock on the wall of one zone shows it: ISO date, weekday (0 is Monday), minute of the day."""

    date: str
    weekday: int
    minute: int


class Opening(NamedTuple):
    """When a window opens next, by the wall: so many days after today, at this minute."""

    window: products.Window
    days: int
    minute: int


Locals = Mapping[str, Local]
"""The moment, by zone."""


def is_over_midnight(window: products.Window) -> bool:
    """Whether it closes on the day after the one on which it opens."""
    return window.opens >= window.closes


def is_open(window: products.Window, at: Local) -> bool:
    """Whether the window is open at that moment."""
    today, yesterday = at.weekday in window.days, (at.weekday - 1) % WEEK in window.days
    if not is_over_midnight(window):
        return today and window.opens <= at.minute < window.closes
    return (today and at.minute >= window.opens) or (yesterday and at.minute < window.closes)


def open_now(windows: Sequence[products.Window], at: Locals) -> bool:
    """Whether one of them is open, or there is none."""
    return not windows or any(is_open(window, at[window.zone]) for window in windows)


def openings(windows: Sequence[products.Window], at: Locals) -> Iterator[Opening]:
    """When each of them opens next, by its own wall: today later, or on one of the days up to a week from now."""
    for days in range(WEEK + 1):
        for window in windows:
            here = at[window.zone]
            later = days > 0 or window.opens > here.minute
            if later and (here.weekday + days) % WEEK in window.days:
                yield Opening(window, days, window.opens)


def frozen_by(freezes: Sequence[products.Freeze], at: Locals) -> Optional[products.Freeze]:
    """The freeze that counts at that moment; of several the one that ends last."""
    found = [one for one in freezes if one.begins <= at[one.zone].date <= one.ends]
    return max(found, key=lambda one: one.ends) if found else None


def are_all_past(freezes: Sequence[products.Freeze], at: Locals) -> bool:
    """Whether there are freezes and each has ended: nobody has renewed them (field case N13)."""
    return bool(freezes) and all(one.ends < at[one.zone].date for one in freezes)


def zones(product: products.Product) -> Tuple[str, ...]:
    """The zones whose local time a decision about this product needs."""
    return tuple(sorted({one.zone for one in product.windows} | {one.zone for one in product.freezes}))


def clock_text(minute: int) -> str:
    """A minute of the day as a clock shows it."""
    return "%02d:%02d" % divmod(minute, 60)


def described(window: products.Window) -> str:
    """A window for people: its days, from when to when, and the zone."""
    days = ",".join(DAYS[day] for day in sorted(window.days))
    span = f"{clock_text(window.opens)}-{clock_text(window.closes % DAY_MINUTES)}"
    return f"{days} {span} {window.zone} ([window-{window.name}])"


def refusal(product: products.Product, at: Locals) -> Optional[codes.Refusal]:
    """Why no update begins now, or nothing."""
    freeze = frozen_by(product.freezes, at)
    if freeze is not None:
        why = f": {freeze.why}" if freeze.why else ""
        text = f"updates of {product.name} are frozen from {freeze.begins} to {freeze.ends} {freeze.zone} ([freeze-{freeze.name}]){why}"
        return codes.Refusal(codes.FROZEN, text)
    if open_now(product.windows, at):
        return None
    shown = "; ".join(map(described, product.windows))
    return codes.Refusal(codes.OUTSIDE_WINDOW, f"{product.name} is updated {shown}, and not now")


def as_json(product: products.Product, at: Locals) -> Dict[str, object]:
    """What `update` shows of windows and freezes."""
    freeze = frozen_by(product.freezes, at)
    shown: List[str] = [described(window) for window in product.windows]
    return {
        "open": freeze is None and open_now(product.windows, at),
        "windows": shown,
        "frozen": None if freeze is None else freeze._asdict(),
        "stale": are_all_past(product.freezes, at),
    }
