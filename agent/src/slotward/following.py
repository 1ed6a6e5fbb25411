# SPDX-License-Identifier: GPL-3.0-or-later
"""Has the helper's unit start what `current` names, where it does not (privilege.md, section 4).

Rules:
- In a trial it is tried, no more: going back must work with no space. At rest nothing new may be begun before it is done,
  since the slot that the link still names is the one that the next release is written to.
- A unit that an operator had stopped, or that was never started, is not started.
"""

from __future__ import annotations

import sys

from slotcore import links, settle
from slotcore import product as products
from slotward import answers, effects


def follow(product: products.Product, state: settle.State) -> bool:
    """Move the helper's link and restart its unit (the lock must be held); whether anything was changed."""
    plan = links.plan_follow(product, state)
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
