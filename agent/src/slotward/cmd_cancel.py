# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward cancel`: end an upgrade that has not switched yet; a trial is ended by `slotward rollback`.

Rules:
- Only an upgrade that holds the lock is asked to end, by a signal to the very process that holds it.
- What it answers is what came of it: the lock is free again, or the switch was quicker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Optional

from slotcore import codes, config_table, status
from slotcore import product as products
from slotward import answers, lock, manager, own

if TYPE_CHECKING:
    import argparse

ENDS = ("upgrade to ", "rollback to ")
"""What may be ended before it switches, by what its lock says."""
WAIT_S = 40.0
POLL_S = 0.05


def run(args: argparse.Namespace) -> answers.Answer:
    """Cancel, and wait until it is."""
    setup = own.asked(args)
    product = setup.product
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "cancel ends a process of root's: run it as root")
    _refuse_trial(product)
    owner = lock.holder(product)
    if owner is None:
        text = f"no upgrade of {product.name} is under way: nothing to cancel"
        if (
            setup.config.mode != config_table.ROOT
        ):  # what the daemon's account does before the switch holds no lock of root's
            text += f"; what the daemon itself is fetching ends with `systemctl restart {product.unit}`"
        return answers.Answer(answers.DONE, answers.base(product.name, "idle", message=text), [text])
    if not owner.what.startswith(ENDS):
        raise codes.Retryable(
            codes.IN_PROGRESS,
            f"{owner.what} (process {owner.pid}) holds the lock of {product.name}: it is not an upgrade",
        )
    _end(product, owner)
    _refuse_trial(product)
    text = f"cancelled: {owner.what} of {product.name}; what was downloaded stays, and the next try goes on from it"
    return answers.Answer(answers.DONE, answers.base(product.name, "idle", message=text, changed=True), [text])


def _refuse_trial(product: products.Product) -> None:
    """Once it has switched there is a trial, and another command for it."""
    pending = manager.look(product).settlement.on_trial
    if pending is not None:
        raise codes.Retryable(
            codes.TRIAL_PENDING,
            f"{product.name} has switched to {pending.to_version} already, on trial {pending.trial_id}: "
            f"`slotward rollback --id {pending.trial_id}` takes it back",
        )


def _end(product: products.Product, owner: status.Lock) -> None:
    """Ask the process that holds the lock to end, and wait until the lock is free or another's."""
    until = time.monotonic() + WAIT_S
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(owner.pid)
        try:
            if _same(lock.holder(product), owner):  # the number is still that of the process that was meant
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)
    while _same(lock.holder(product), owner):
        if time.monotonic() >= until:
            raise codes.Retryable(
                codes.IN_PROGRESS, f"process {owner.pid} ({owner.what}) has not ended within {WAIT_S:g} s; look at it"
            )
        time.sleep(POLL_S)


def _same(found: Optional[status.Lock], owner: status.Lock) -> bool:
    return found is not None and (found.pid, found.what) == (owner.pid, owner.what)
