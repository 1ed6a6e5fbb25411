# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward hold` and `slotward unhold`: keep a product at what it runs (products.md, section 7; field cases C9, L6).

Rules:
- No lock is taken: who holds a product waits for nobody. An update that is on its way asks again right before its switch.
- Set again in the same words it changes nothing and says so (I9); in other words it is its owner's to change.
- Nobody takes away what another one holds in their own name; without a name any hold goes (field case F9).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable, Optional

from slotcore import audit as audits
from slotcore import codes, holds
from slotcore import product as products
from slotward import answers, audit, effects, hand, host, own

if TYPE_CHECKING:
    import argparse

    from slotcore import ops

TRIES = 3


def run(args: argparse.Namespace) -> answers.Answer:
    """Dispatch to hold or unhold."""
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, f"{args.command} changes root's records: run it as root")
    product = own.asked(args).product
    if not os.path.isdir(product.slots_dir):
        raise codes.refused(codes.GUARD_NOT_INSTALLED, f"there is no {product.slots_dir}: run `slotward setup` first")
    if args.command == "unhold":
        return unhold(product, args.owner)
    return _asked(product, args)


def _asked(product: products.Product, args: argparse.Namespace) -> answers.Answer:
    now_s = int(time.time())
    hold = holds.made(args.why, args.owner or audit.who(), args.until or 0, now_s)
    wrong = "--why needs a word of why" if not hold.why else ""
    if hold.until and not hold.stands(now_s, _newest(product)):
        wrong = "--until is past already: such a hold would hold nothing"
    if wrong:
        return answers.usage(product.name, wrong)
    changed = put(product, hold)
    shown = hand.hold_as_json(product, host.read_state(product).update)
    return _answer(product, changed, f"{product.name} is held {holds.said(hold)}", shown)


def _newest(product: products.Product) -> int:
    return host.read_state(product).update.newest_issued


def put(product: products.Product, hold: holds.Hold) -> bool:
    """Set a hold, durable when this returns; whether that changed anything. Raises Refused `held`: another one's stands."""
    before = hand.read_hold(product)
    if before is not None and before.is_same(hold):
        return False
    refusal = holds.others(before, hold.owner, int(time.time()), _newest(product))
    if refusal is not None:
        raise codes.Refused(refusal)
    _apply(product, lambda: holds.plan_hold(product, hold, os.urandom(8).hex()), "hold")
    audit.note(product, audits.HELD, code=codes.HELD, why=holds.said(hold), from_version=_running(product))
    return True


def unhold(product: products.Product, owner: Optional[str]) -> answers.Answer:
    """Take the hold away; with an `owner` only theirs."""
    hold = hand.read_hold(product)
    if hold is None:
        return _answer(product, False, f"{product.name} is not held", None)
    stands = hand.hold_as_json(product, host.read_state(product).update)
    if owner is not None and (hold.damage or hold.owner != owner) and stands is not None:
        text = (
            f"{product.name} is held {holds.said(hold)}: that is not {owner}'s to take away (unhold without --owner is)"
        )
        raise codes.refused(codes.HELD, text)
    _apply(product, lambda: holds.plan_unhold(product), "unhold")
    audit.note(product, audits.UNHELD, why=f"was held {holds.said(hold)}", from_version=_running(product))
    return _answer(product, True, f"{product.name} is not held any more", None)


def _running(product: products.Product) -> str:
    state = host.read_state(product)
    entry = state.slots.get(state.current or "")
    return entry.version if entry is not None else ""


def _apply(product: products.Product, plan: Callable[[], ops.Plan], what: str) -> None:
    """Carry a plan out. Whoever settles at this moment may tidy our temporary away: then it is made once more."""
    for number in range(TRIES):
        try:
            effects.executor_for(product, {}).apply(plan(), what)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or number == TRIES - 1:
                raise effects.as_retryable(error, f"{what} {product.name}") from error
        else:
            return


def _answer(product: products.Product, changed: bool, said: str, shown: Optional[object]) -> answers.Answer:
    answer = answers.base(product.name, "idle", message=said, changed=changed)
    return answers.Answer(answers.DONE, dict(answer, hold=shown), [said])
