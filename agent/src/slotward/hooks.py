# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's commands around a switch: the workload's veto, and draining it (products.md, section 7).

Rules:
- Each runs as the account that its section names, in a transient unit, bounded in time and output, and gets the variables
  of products.md, section 6, and nothing else of ours.
- What root runs must be root's alone, and so must the way to it; otherwise it is not run, and refuses (`directory-unsafe`).
- A veto holds an update back and nothing else: nobody asks it about going back. Whatever it does but agree means later.
- A drain may fail and holds nothing up; it is told. It comes before the trial begins, so that it takes none of its time.
"""

from __future__ import annotations

import sys
import time
from typing import List, Tuple

from slotcore import codes
from slotcore import product as products
from slotward import answers

LATER = 75
"""EX_TEMPFAIL: the status by which a workload says "later"."""
SHOWN = 300
ROOT = "root"


def environment(product: products.Product, old: str, new: str, trial_id: str = "") -> Tuple[str, ...]:
    """systemd's settings of the variables that a hook gets."""
    said = {"PRODUCT": product.name, "FROM": old, "TO": new, "TRIAL": trial_id, "SNAPSHOT": ""}
    return tuple(f"Environment=SLOTWARD_{name}={_plain(value)}" for name, value in said.items())


def _plain(value: str) -> str:
    """A version as a variable may hold it: what is none of ours is no word of systemd's either."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "._+-") else "_" for char in value)


def run(product: products.Product, hook: products.Hook, variables: Tuple[str, ...]) -> Tuple[int, str]:
    """Run a hook; its status and the end of what it wrote. Raises Retryable where systemd cannot run it or it takes too long."""
    from slotward import reversing, systemd

    problem = reversing.hook_problem(hook)
    if problem:
        raise codes.refused(codes.DIRECTORY_UNSAFE, f"[hook-{hook.name}] of {product.name} is not run: {problem}")
    account: List[str] = [] if hook.user == ROOT else [f"User={hook.user}"]
    properties = (*account, *variables, "StandardInput=null", "NoNewPrivileges=yes")
    answer = systemd.run_transient(
        list(hook.command), properties, timeout_s=hook.timeout_s, what=f"{hook.name}-{product.name}"
    )
    return answer.code, " ".join(answer.output.split())[-SHOWN:]


def veto(product: products.Product, old: str, new: str, forced: bool = False) -> None:
    """Ask the workload whether it is a good time; raises Retryable `vetoed` when it says later, or anything but yes."""
    hook = product.hook("veto")
    if hook is None or forced:
        return
    try:
        status, said = run(product, hook, environment(product, old, new))
    except codes.Retryable as error:
        text = f"the workload's veto could not be asked, which counts as later: {error.text}"
        raise codes.Retryable(codes.VETOED, text) from error
    if status == 0:
        return
    words = said or "it gave no reason"
    if status == LATER:
        raise codes.Retryable(codes.VETOED, f"the workload of {product.name} says later: {words}")
    text = f"the workload's veto `{' '.join(hook.command)}` failed with status {status}, which counts as later: {words}"
    raise codes.Retryable(codes.VETOED, text)


def drain(product: products.Product, old: str, new: str, trial_id: str) -> None:
    """Let the workload go before the switch, and give it its time; nothing that goes wrong here stops anything."""
    hook = product.hook("drain")
    if hook is not None:
        problem = _drained(product, hook, environment(product, old, new, trial_id))
        if problem:
            text = f"warning: draining {product.name} failed, and the switch goes on: {problem}"
            print(answers.plain(text), file=sys.stderr, flush=True)
    if product.drain_s:
        time.sleep(product.drain_s)


def _drained(product: products.Product, hook: products.Hook, variables: Tuple[str, ...]) -> str:
    try:
        status, said = run(product, hook, variables)
    except (codes.Refused, codes.Retryable) as error:
        return error.text
    return "" if status == 0 else f"`{' '.join(hook.command)}` ended with status {status}: {said or 'no output'}"
