# SPDX-License-Identifier: GPL-3.0-or-later
"""The links that say what starts: `current`, and `helper` of a product that has one, forth and back (privilege.md, section 4).

Rules:
- `current` moves first, both ways; `helper` follows right after it, and one restart is for both units.
- Going back renames a link that exists (I2). A `helper.back` that is not there or names something else is no reason to
  hold the product up: its helper's link is then made after the restart, and that unit is restarted once more.
- Whatever else moved `current`, settling makes `helper` name the same slot: at rest, and in a trial that a cut left
  between the two.
- A guard that was ended after it had moved the links owes restarts, as its log says: settling pays them (guard.md, section 4).
- Where a unit file is a part of the releases, systemd reads it again after `current` has moved and before the restart.
  Forth that must succeed; back nothing depends on it, and the log says whether it is still to be done.
- A product without a helper, and without such a part, has none of this in its plans.
"""

from __future__ import annotations

from typing import Tuple

from . import ops
from . import product as products
from . import settle as settles
from . import trial as trials

HELPER = "helper"
HELPER_BACK = "helper.back"


def ways_back(product: products.Product) -> Tuple[str, ...]:
    """The names of the links that a trial may have to go back by."""
    return settles.WAYS_BACK if product.helper_unit else settles.WAYS_BACK[:1]


def plan_ways_back(product: products.Product, home: str) -> ops.Plan:
    """Make the links by which to go back to slot `home`."""
    plan: ops.Plan = ()
    for name in ways_back(product):
        plan += ops.link_durably(product.path(name), home)
    return plan


def plan_starts(product: products.Product, slot: str) -> ops.Plan:
    """Have both units start `slot` from now on; what runs goes on."""
    plan = ops.link_durably(product.path("current"), slot)
    if product.helper_unit:
        plan += ops.link_durably(product.path(HELPER), slot)
    return plan


def plan_return(product: products.Product, state: settles.State) -> ops.Plan:
    """Go back to good, and restart: nothing when both links are there already."""
    home = state.good or state.back  # `back` is only ever made to name good's slot
    if home is None:
        return ()
    moved: ops.Plan = ()
    if state.current != home:
        ready = () if state.back == home else ops.link_durably(product.path("back"), home)
        moved = (*ready, *_moving(product, state))
    restart = (ops.Restart(), *_reloaded(product, state))
    if not product.helper_unit or state.helper == home:
        return (*moved, *restart) if moved else ()
    if state.helper_back == home:
        return (*moved, *_over(product, HELPER_BACK, HELPER), *restart)
    anew = (*ops.link_durably(product.path(HELPER), home), ops.RestartHelper())
    return (*moved, *restart, *anew) if moved else anew


def plan_undo(product: products.Product, state: settles.State) -> ops.Plan:
    """Take a switch back of which nothing was started: the links alone go home, by those that are there, and nothing restarts."""
    plan: ops.Plan = ()
    if state.current != state.good and state.back == state.good:
        plan += _over(product, "back", "current")
    if product.helper_unit and state.helper != state.good and state.helper_back == state.good:
        plan += _over(product, HELPER_BACK, HELPER)
    return plan + ((ops.Reload(must=False),) if plan and product.has_unit_part else ())


def plan_owed(product: products.Product, state: settles.State, moved: ops.Plan) -> ops.Plan:
    """The restarts that a guard was ended before, who had moved the links; `moved` is what moves, and restarts, now."""
    kinds = {type(operation) for operation in moved}  # operations without fields are all equal
    if ops.Restart in kinds:
        return ()
    if product.has_unit_part and trials.is_unread(state.log):
        return (ops.Reload(must=True), ops.Restart(), *_reloaded(product, state))
    if trials.owes(state.log):
        return (ops.Restart(),)
    if product.helper_unit and trials.owes(state.log, b"helper ") and ops.RestartHelper not in kinds:
        return (ops.RestartHelper(),)
    return ()


def plan_unit(product: products.Product) -> ops.Plan:
    """Have systemd start the new release as its own unit file says; the log says when it does."""
    if not product.has_unit_part:
        return ()
    log = product.path("trial.log")
    return (ops.Reload(must=True), ops.Append(log, trials.UNIT_READ), ops.Sync(log))


def _moving(product: products.Product, state: settles.State) -> ops.Plan:
    """Move `current` home, and have systemd start the good release as its own unit file says, should one come with it.

    A refusal to read that is told, and nothing waits for it; after the restart it ends the plan, so that the claim stays
    and the guard's ticks go on asking.
    """
    over = _over(product, "back", "current")
    if not product.has_unit_part:
        return over
    said = (ops.Append(product.path("trial.log"), trials.MOVED),) if state.log else ()
    return (*said, *over, ops.Reload(must=False))


def _reloaded(product: products.Product, state: settles.State) -> ops.Plan:
    """Say in the log that systemd has read the unit file."""
    if not (product.has_unit_part and state.log):
        return ()
    return (ops.Append(product.path("trial.log"), trials.RELOADED),)


def _over(product: products.Product, source: str, name: str) -> ops.Plan:
    return ops.Rename(product.path(source), product.path(name)), ops.SyncDir(product.slots_dir)


def plan_follow(product: products.Product, state: settles.State) -> ops.Plan:
    """Have the helper start what `current` names, where it does not; nothing else is in flight, or a trial goes on."""
    if not settles.is_behind(product, state):
        return ()
    return (*ops.link_durably(product.path(HELPER), str(state.current)), ops.RestartHelper())
