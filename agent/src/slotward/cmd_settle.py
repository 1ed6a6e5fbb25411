# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward settle`: finish or undo an update in flight; run by `node` outside its sandbox."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slotcore import codes
from slotcore import product as products
from slotward import answers, lock, manager, own

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """Settle once; the same again changes nothing (I9)."""
    if os.geteuid() != 0:
        from slotward import unprivileged

        return unprivileged.run(args, "settling changes root's records: run it as root")
    return settle(own.asked(args).product)


def if_free(product: products.Product, what: str = "settle") -> None:
    """Settle, unless somebody else holds the lock: then they see to it."""
    try:
        with lock.held(product, what):
            manager.settle_now(product)
    except codes.Retryable:
        return


def settle(product: products.Product) -> answers.Answer:
    """Settle this product's update in flight."""
    if not os.path.isdir(product.slots_dir):
        return answers.Answer(answers.DONE, answers.base(product.name, "idle"), ["nothing to settle: no slots yet"])
    with lock.held(product, "settle"):
        _seen, done = manager.settle_now(product)
    said = "nothing to settle" if done == "nothing" else f"settled: {done}"
    answer = answers.base(product.name, "idle", changed=done != "nothing", message=said)
    answer["settled"] = done
    return answers.Answer(answers.DONE, answer, [said])
