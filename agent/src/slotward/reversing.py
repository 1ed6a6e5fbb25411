# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an update could be undone here: its data, and what the operator's hooks for it are (products.md, section 6).

Rules:
- While data is still to be restored nothing is swapped to: the next start does that, or an operator says otherwise.
- A release that changes the data for good is taken only by whoever says so. The guard goes back from it all the same.
- What root runs by itself is root's, and so is the way there: each program that a hook of root's names.
"""

from __future__ import annotations

import os

from slotcore import codes, keeping, records, settle
from slotcore import product as products
from slotward import root_run


def demand(
    product: products.Product, state: settle.State, record: records.SlotRecord, running: str, accepted: bool
) -> None:
    """Raise the first refusal that the data gives."""
    pending = keeping.pending(product, state)
    if pending is not None:
        raise codes.Retryable(pending.code, pending.text)
    for hook in product.hooks:
        problem = hook_problem(hook)
        if problem:
            raise codes.refused(codes.DIRECTORY_UNSAFE, f"[hook-{hook.name}] of {product.name}: {problem}")
    refusal = keeping.one_way(product, state, record, running)
    if refusal is not None and not accepted:
        raise codes.Refused(refusal)


def due(product: products.Product, state: settle.State) -> str:
    """What there is to say of data that is still to be restored; "" when there is none."""
    refusal = keeping.pending(product, state) if keeping.is_due(state) else None
    return refusal.text if refusal is not None else ""


def hook_problem(hook: products.Hook) -> str:
    """Why its command is not to be run as it is; "" when it may be."""
    path = hook.command[0]
    try:
        problem = root_run.problem(path)
    except OSError as error:
        return f"{path} cannot be run: {error.strerror}"
    if not os.access(path, os.X_OK):
        return f"{path} cannot be run: it is not executable"
    return f"{path} {problem}" if problem and hook.user == "root" else ""
