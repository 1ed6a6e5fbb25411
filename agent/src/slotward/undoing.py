# SPDX-License-Identifier: GPL-3.0-or-later
"""Back from a switch that stopped half way: `current` has moved, and systemd does not read the unit file that came with it.

Rules:
- What runs is still the old release, and nobody has restarted it: the link goes home by the rename that going back is.
- Should systemd have started the new release meanwhile, by the old unit file, its trial has failed and ends as one.
"""

from __future__ import annotations

import contextlib

from slotcore import ops
from slotcore import product as products
from slotward import effects, manager


def home(product: products.Product, seen: manager.Look) -> manager.Look:
    """Make `current` good again in the trial that has just begun (the lock must be held); the state afterwards."""
    state = seen.state
    if state.trial is None or state.current == state.good or state.back != state.good:
        return seen
    plan = (
        ops.Rename(product.path("back"), product.path("current")),
        ops.SyncDir(product.slots_dir),
        ops.Reload(must=False),
    )
    with contextlib.suppress(FileNotFoundError):  # the guard was there first
        effects.executor_for(product, {}).apply(plan, "home")
    settled, _what = manager.settle_now(product)
    return settled
