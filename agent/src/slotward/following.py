# SPDX-License-Identifier: GPL-3.0-or-later
"""Has the helper's unit start what `current` names, where it does not (privilege.md, section 4).

Rules:
- In a trial it is tried, no more: going back must work with no space. At rest nothing new may be begun before it is done,
  since the slot that the link still names is the one that the next release is written to.
- A unit that an operator had stopped, or that was never started, is not started.
- A unit whose link is right and whose process still runs the other slot's bytes was forgotten: whoever switched was killed
  before it asked for the restart. It is asked for here, the daemon's in a trial, unless systemd is at it.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Tuple

from slotcore import codes, links, ops, settle, status
from slotcore import product as products
from slotward import answers, effects

_ASKED = ("ActiveState", "MainPID", "Job")


def forgotten(product: products.Product, state: settle.State) -> ops.Plan:
    """The restart that nobody asked for: of what runs the other slot's bytes, although its link is right. () for none.

    The daemon's own is made good in a trial alone, and not where a restart is more than that: a reload, a new unit file.
    """
    if state.current is None or settle.is_behind(product, state):
        return ()
    restarts: Dict[str, ops.Operation] = {}
    if state.trial is not None and not (product.reload or product.has_unit_part):
        restarts[product.unit] = ops.Restart()
    if product.helper_unit:
        restarts[product.helper_unit] = ops.RestartHelper()
    behind = _run_other(product, state.current, tuple(restarts))
    return tuple(restarts[unit] for unit in behind[:1])  # the daemon's restart is the helper's too


def _run_other(product: products.Product, current: str, units: Tuple[str, ...]) -> List[str]:
    """Which of the units run what is in the slot that `current` does not name, and no job of systemd's is about them."""
    from slotward import process, systemd

    try:
        other = os.stat(product.program_path(products.other_slot(current)))
        shown = systemd.show_each(units, _ASKED) if units else []
    except (OSError, codes.Refused, codes.Retryable):  # no systemd, or none that answers: nothing is known of it
        return []
    behind = []
    for unit, one in zip(units, shown):
        found = status.unit_of(one)
        idle = one.get("Job", "0") in ("", "0") and found.active == "active" and found.main_pid > 0
        if idle and process.runs(found.main_pid, other):
            behind.append(unit)
    return behind


def follow(product: products.Product, state: settle.State) -> bool:
    """Move the helper's link and restart its unit (the lock must be held); whether anything was changed."""
    plan = links.plan_follow(product, state) or forgotten(product, state)
    try:
        effects.executor_for(product, {}, respect_stop=True).apply(plan, "follow")
    except OSError as error:
        if state.trial is None:
            raise
        where = product.path(links.HELPER)
        text = f"{where} does not name slot {state.current} yet, which is on trial: {error.strerror}"
        print(answers.plain(text), file=sys.stderr)
        return False
    return bool(plan)
