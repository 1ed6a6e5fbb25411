# SPDX-License-Identifier: GPL-3.0-or-later
"""Back from a switch that stopped half way (node.md, section 5).

Rules:
- Two kinds have moved `current` with nothing started: systemd does not read the unit file that came with it, and the guard
  had ended the trial while the switch was held up. What runs is still the old release, and nobody restarts it: the links go
  home by the renames that going back is.
- Should systemd have started the new release meanwhile, its trial has failed and ends as one.
- Where `current` has not moved, what was written is an update that never started. After any other error it stays a trial.
"""

from __future__ import annotations

import contextlib
from typing import Union

from slotcore import codes, links, plans, trial
from slotcore import product as products
from slotward import effects, manager

Stopped = Union[OSError, codes.Refused, codes.Retryable]


def undo(product: products.Product, pending: trial.Trial, error: Stopped) -> None:
    """Undo what `error` has stopped, as far as nothing of it was started (the lock must be held)."""
    seen = manager.look(product)
    over = isinstance(error, codes.Retryable) and error.code == codes.CANCELLED
    if over or not trial.is_unit_read(seen.state.log):
        seen = home(product, seen)
    if seen.state.current == seen.state.good and seen.state.trial is not None:
        end = manager.end_of(product, seen, codes.NEVER_STARTED)
        manager.apply(product, plans.plan_abandon(product, seen.state, pending, end), "abandon")
        manager.note_settled(product, manager.look(product))


def home(product: products.Product, seen: manager.Look) -> manager.Look:
    """Make `current` good again in the trial that has just begun (the lock must be held); the state afterwards."""
    state = seen.state
    plan = links.plan_undo(product, state)
    claimed = state.revert is not None
    if not plan and not claimed:
        return seen
    if not (claimed and trial.was_started(state.log)):  # else settling restarts what was started
        with contextlib.suppress(FileNotFoundError):  # the guard was there first
            effects.executor_for(product, {}).apply(plan, "home")
    settled, _what = manager.settle_now(product)
    return settled
