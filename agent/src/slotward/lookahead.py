# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare's look at the host itself, before the first byte is fetched: systemd, the guard, the unit, the file systems."""

from __future__ import annotations

import os
from typing import Mapping, Optional

from slotcore import codes, status
from slotcore import product as products
from slotward import effects, installed, own, preflight, systemd


def check(
    setup: own.Setup,
    size: int,
    adopt_size: int,
    needs_url: Optional[str],
    may_start: bool,
    starting: bool = False,
) -> None:
    """Raise the first refusal that this host gives to a release of `size` bytes (0: nothing is fetched)."""
    user = _systemd(setup, may_start, starting)
    if setup.product.parts:
        from slotward import parts

        parts.demand_room(setup.product)
    refusal = preflight.check(setup.product.slots_dir, os.path.dirname(setup.staging), size, user, adopt_size)
    if refusal is not None:
        if refusal.code == codes.NO_SPACE:
            raise codes.Retryable(refusal.code, refusal.text)
        raise codes.Refused(refusal)
    if needs_url is not None:
        _url(setup, needs_url)


def is_being_started(shown: Mapping[str, str]) -> bool:
    """Whether systemd has a start of the unit before it: one that waits for what is ordered before, or an automatic one."""
    unit = status.unit_of(shown)
    return unit.active == "activating" or (unit.active in ("inactive", "failed") and unit.job != 0)


def _systemd(setup: own.Setup, may_start: bool, starting: bool) -> str:
    """The user that the unit runs as, once systemd, the guard and the unit are found as they must be."""
    why = systemd.booted()
    if why is not None:
        raise codes.refused(codes.NO_SYSTEMD, f"this host is not run by systemd ({why}): nothing could end a trial")
    missing = installed.not_in_force(setup.product)
    if missing:
        raise codes.refused(codes.GUARD_NOT_INSTALLED, f"{'; '.join(missing)}: run `slotward setup`")
    ours = effects.units_of(setup.product)
    shown = systemd.show_each(ours, ("ActiveState", "Job", "UnitFileState", "User"))
    user = shown[0].get("User", "")
    if may_start:
        return user
    active, enabled = shown[0].get("ActiveState"), shown[0].get("UnitFileState")
    runs = active in ("active", "reloading") or (starting and is_being_started(shown[0]))
    if not runs or enabled not in ("enabled", "enabled-runtime", "static", "alias"):
        raise _not_running(ours[0], f"is {active} and {enabled or 'not installed'}: start and enable")
    for helper, found in zip(ours[1:], shown[1:]):  # the daemon's unit pulls it in, so nobody need enable it
        if found.get("ActiveState") not in ("active", "reloading"):
            raise _not_running(helper, f"is {found.get('ActiveState')}: start")
    return user


def demand_not_stopped(product: products.Product) -> None:
    """Raise Refused `unit-not-running` when somebody has stopped a unit since it was looked at: a switch would start it."""
    units = effects.units_of(product)
    for unit, shown in zip(units, systemd.show_each(units, status.STOP_PROPERTIES)):
        if status.was_stopped(shown):
            raise _not_running(unit, "was stopped while this update got ready: start")


def _not_running(unit: str, what: str) -> codes.Refused:
    return codes.refused(
        codes.UNIT_NOT_RUNNING, f"{unit} {what} it first, or agree with --start that this update starts it"
    )


def _url(setup: own.Setup, url: str) -> None:
    from slotward import download_rules, fetch

    refusal = download_rules.check_place(url, fetch.transport_of(setup))
    if refusal is not None:
        raise codes.Refused(refusal)
