# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a product is still in flight when its file is set up anew (products.md, section 2).

Rules:
- A trial ends, and data is restored, by the guard and what its facts say: setup changes neither under them.
- The facts on the host name the slots of before, which the product's file may not name any more.
"""

from __future__ import annotations

from typing import Optional

from slotcore import codes, keeping, settle
from slotcore import product as products
from slotward import cmd_setup, installed, manager, units


def refuse(product: products.Product, seen: manager.Look) -> None:
    """Raise what setup would take the guard's hand from: a trial, or data that is to be restored; in earlier slots too."""
    cmd_setup.refuse_trial(seen)
    pending = keeping.pending(product, seen.state)
    if pending is not None and not units.keeps_data(product):
        raise codes.Retryable(pending.code, pending.text)
    before = earlier(product)
    if before is not None:
        _refuse_earlier(before)


def earlier(product: products.Product) -> Optional[products.Product]:
    """The product with the slots that the guard knows, where the configuration names others; None where it does not."""
    found = installed.read_file(units.facts_of(product.name))
    lines = found[1].decode("utf-8", "replace").split("\n") if found is not None else []
    for line in lines:
        key, _equals, slots = line.partition("=")
        if key == "SLOTS" and slots.startswith("/") and slots != product.slots_dir:
            return product._replace(slots_dir=slots)
    return None


def demand_none_elsewhere(product: products.Product) -> None:
    """Raise Retryable `trial-pending` where the guard has a trial in hand in other slots than the configuration names."""
    before = earlier(product)
    settlement = manager.look(before).settlement if before is not None else None
    if before is None or settlement is None or settlement.action is settle.Action.NONE:
        return
    which = f"trial {settlement.trial.trial_id}" if settlement.trial is not None else "a trial"
    raise codes.Retryable(
        codes.TRIAL_PENDING,
        f"the configuration of {product.name} names the slots {product.slots_dir}, where no trial is; {units.facts_of(product.name)} names "
        f"{before.slots_dir}, where {which} is not ended or not settled: set slots_dir to {before.slots_dir} again and repeat this",
    )


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
