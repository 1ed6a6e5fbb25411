# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a product is still in flight when its file is set up anew (products.md, section 2).

Rules:
- A trial ends, and data is restored, by the guard and what its facts say: setup changes neither under them.
- The facts on the host name the slots of before, which the product's file may not name any more.
"""

from __future__ import annotations

from slotcore import codes, keeping, settle
from slotcore import product as products
from slotward import cmd_setup, installed, manager, units


def refuse(product: products.Product, seen: manager.Look) -> None:
    """Raise what setup would take the guard's hand from: a trial, or data that is to be restored; in earlier slots too."""
    cmd_setup.refuse_trial(seen)
    pending = keeping.pending(product, seen.state)
    if pending is not None and not units.keeps_data(product):
        raise codes.Retryable(pending.code, pending.text)
    found = installed.read_file(f"{units.GUARD_DIR}/guard.d/{product.name}.env")
    lines = found[1].decode("utf-8", "replace").split("\n") if found is not None else []
    for line in lines:
        key, _equals, earlier = line.partition("=")
        if key == "SLOTS" and earlier.startswith("/") and earlier != product.slots_dir:
            _refuse_earlier(product._replace(slots_dir=earlier))


def _refuse_earlier(before: products.Product) -> None:
    """Raise what is still in flight in the slots that the product had before its file named others."""
    seen = manager.look(before)
    cmd_setup.refuse_trial(seen)
    pending = keeping.pending(before, seen.state)
    if pending is not None:
        raise codes.Retryable(pending.code, pending.text)
    if seen.settlement.action is not settle.Action.NONE:
        text = (
            f"a trial in {before.slots_dir} has ended and is not settled yet: name these slots again, and let it settle"
        )
        raise codes.Retryable(codes.TRIAL_PENDING, text)
