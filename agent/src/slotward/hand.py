# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's hand: what stands against any release now, and what `update` shows of it (products.md, section 7).

Rules:
- Read anew by whoever asks, as root or as the daemon's account: nobody needs the lock to hold a product.
- A hold that cannot be read counts as one. Only a hold that is not there is none.
- Windows and freezes go by the host's clock in their own zone; a zone that the host does not know refuses and names the
  package that has it.
- What nobody has set costs a look for one name.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from slotcore import codes, records
from slotcore import product as products
from slotward import answers, host

if TYPE_CHECKING:
    import datetime as dt

    from slotcore import holds, windows

DAY_S = 86400
MINUTE_S = 60
HOLD = "hold.json"


def read_hold(product: products.Product) -> Optional[holds.Hold]:
    """The hold of a product, which may have expired; None when there is none."""
    path = product.path(HOLD)
    try:
        os.lstat(path)
        from slotcore import holds  # few hosts have one, and every start pays for what it imports

        data = host.read_record(path, holds.MAX_BYTES)
        return holds.parse(data, path) if data is not None else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except codes.BrokenRecord as error:
        return _damaged(error.file, error.why)
    except OSError as error:
        return _damaged(path, error.strerror or str(error))


def _damaged(path: str, why: str) -> holds.Hold:
    from slotcore import holds

    return holds.damaged(path, why)


def _zone(name: str) -> dt.tzinfo:
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        text = f"this host does not know the time zone {name}, which a window or a freeze is in"
        raise codes.refused(codes.NO_ZONE, f"{text}: install the package tzdata, or correct the name") from None


def _local(now_s: float, zone: str) -> windows.Local:
    import datetime as dt

    from slotcore import windows

    here = dt.datetime.fromtimestamp(now_s, _zone(zone))
    return windows.Local(here.date().isoformat(), here.weekday(), here.hour * 60 + here.minute)


def locals_at(product: products.Product, now_s: float) -> Dict[str, windows.Local]:
    """The moment, as the clocks of the product's zones show it; raises Refused `no-zone`."""
    from slotcore import windows

    return {zone: _local(now_s, zone) for zone in windows.zones(product)}


def next_opening(product: products.Product, now_s: float) -> Optional[int]:
    """When updates may begin next by the windows, in seconds since 1970; None where none opens within a week."""
    from slotcore import windows

    found = [
        moment
        for opening in windows.openings(product.windows, locals_at(product, now_s))
        for moment in [_moment(opening, now_s)]
        if moment is not None
    ]
    return min(found) if found else None


def _moment(opening: windows.Opening, now_s: float) -> Optional[int]:
    """The moment of an opening. Where the clock is put forward over it, the first minute after that which is inside."""
    import datetime as dt

    from slotcore import windows

    zone = _zone(opening.window.zone)
    day = dt.datetime.fromtimestamp(now_s, zone).date() + dt.timedelta(days=opening.days)
    hour, minute = divmod(opening.minute, 60)
    wall = dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    first, last = sorted(int(wall.replace(fold=fold).timestamp()) for fold in (0, 1))
    for moment in range(first, last + MINUTE_S, MINUTE_S):
        here = _local(moment, opening.window.zone)
        if moment > now_s and here.date == day.isoformat() and windows.is_open(opening.window, here):
            return moment
    return None


def when(moment: int, zone: str) -> str:
    """A moment as the clock in `zone` shows it, for a sentence."""
    import datetime as dt

    here = dt.datetime.fromtimestamp(moment, _zone(zone))
    return f"{here:%a %Y-%m-%d %H:%M} {zone}"


def _times(product: products.Product, now_s: float) -> Optional[codes.Refusal]:
    """What windows and freezes say."""
    if not (product.windows or product.freezes):
        return None
    from slotcore import windows

    at = locals_at(product, now_s)
    refusal = windows.refusal(product, at)
    if refusal is None or refusal.code != codes.OUTSIDE_WINDOW:
        return refusal
    moment = next_opening(product, now_s)
    zone = product.windows[0].zone
    said = f"; it opens next on {when(moment, zone)}" if moment is not None else "; none opens within a week"
    return codes.Refusal(refusal.code, refusal.text + said)


def held(product: products.Product, update: records.Update) -> Optional[codes.Refusal]:
    """The refusal of a hold that stands."""
    hold = read_hold(product)
    if hold is None:
        return None
    from slotcore import holds

    return holds.refusal(product.name, hold, int(time.time()), update.newest_issued)


def passed_over(product: products.Product) -> str:
    """What `forced` passes over at this moment, for the audit log; "" when nothing stands in the way."""
    refusal = _times(product, time.time())
    found = [refusal.text] if refusal is not None else []
    if product.hook("veto") is not None:
        found.append("the workload's veto is not asked")
    return "; ".join(found)


def objection(product: products.Product, update: records.Update, forced: bool = False) -> Optional[codes.Refusal]:
    """What stands against any release now: hold, freeze, window, in this order. `forced` passes over all but a hold."""
    refusal = held(product, update)
    if refusal is not None or forced:
        return refusal
    return _times(product, time.time())


def shown(product: products.Product, update: records.Update) -> Dict[str, Any]:
    """What `update` answers of a hold, of what is staged for an operator's word, and of windows and freezes."""
    answer: Dict[str, Any] = {"hold": hold_as_json(product, update), "staged": None, "windows": None}
    if product.manual:
        from slotward import manual

        answer["staged"] = manual.shown(product)
    if product.windows or product.freezes:
        answer["windows"] = _windows_as_json(product)
    return answer


def hold_as_json(product: products.Product, update: records.Update) -> Optional[Dict[str, Any]]:
    """The hold that stands, or None."""
    hold = read_hold(product)
    if hold is None:
        return None
    from slotcore import holds

    return holds.as_json(hold, int(time.time()), update.newest_issued)


def _windows_as_json(product: products.Product) -> Dict[str, Any]:
    from slotcore import windows

    now_s = time.time()
    try:
        found = windows.as_json(product, locals_at(product, now_s))
        return dict(found, next_at=next_opening(product, now_s), problem=None)
    except codes.Refused as error:
        nothing = {"open": False, "windows": [], "frozen": None, "stale": False, "next_at": None}
        return dict(nothing, problem=error.text)


def lines(answer: Dict[str, Any]) -> List[str]:
    """The lines of `update` for people about all that."""
    said: List[str] = []
    if answer["hold"] is not None:
        from slotcore import holds

        said += holds.lines(answer["hold"])
    staged, times = answer["staged"], answer["windows"]
    if staged is not None:
        said.append(
            f"staged: {staged['version']}, waiting for an operator's word (slotward --product {answer['product']} apply)"
        )
    if times is not None:
        said += _times_lines(times)
    return said


def _times_lines(times: Dict[str, Any]) -> List[str]:
    if times["problem"]:
        return [f"windows: {times['problem']}; updates are refused"]
    if times["frozen"]:
        one = times["frozen"]
        return [
            f"frozen: {one['begins']} to {one['ends']} {one['zone']} ([freeze-{one['name']}]) {one['why']}".rstrip()
        ]
    if times["windows"]:
        return [f"windows: {'; '.join(times['windows'])}; {'open now' if times['open'] else 'closed now'}"]
    return []


def answered(product: products.Product, act: Callable[[], answers.Answer]) -> answers.Answer:
    """What `act` answers; a refusal for a hold has the hold too, one for the time when to try again (seconds since 1970)."""
    try:
        return act()
    except (codes.Refused, codes.Retryable) as error:
        if error.code == codes.HELD:
            more: Dict[str, Any] = {"hold": hold_as_json(product, host.read_state(product).update)}
        elif error.code in (codes.OUTSIDE_WINDOW, codes.FROZEN):
            more = {"next_at": _try_again_at(product)}
        else:
            raise
        refused = answers.of_error(product.name, error)
        refused.json.update(more)
        return refused


def _try_again_at(product: products.Product) -> Optional[int]:
    """The next moment at which neither a freeze nor a window stands in the way; None where none is known."""
    from slotcore import windows

    moment: Optional[int] = int(time.time())
    for _step in range(2 * len(product.freezes) + 2):
        if moment is None:
            break
        at = locals_at(product, moment)
        freeze = windows.frozen_by(product.freezes, at)
        if freeze is None and windows.open_now(product.windows, at):
            return moment
        moment = _after(freeze) if freeze is not None else next_opening(product, moment)
    return None


def _after(freeze: products.Freeze) -> Optional[int]:
    """The first moment of the day after a freeze, in its zone; None where no calendar has that day."""
    import datetime as dt

    try:
        day = dt.date.fromisoformat(freeze.ends) + dt.timedelta(days=1)
    except (ValueError, OverflowError):  # 2026-02-30, or the end of the last year that there is
        return None
    return int(dt.datetime(day.year, day.month, day.day, tzinfo=_zone(freeze.zone)).timestamp())


def unknown_zones(product: products.Product) -> Tuple[str, ...]:
    """What is wrong with the zones that the product's file names, on this host."""
    try:
        locals_at(product, time.time())
    except codes.Refused as error:
        return (error.text,)
    return ()
