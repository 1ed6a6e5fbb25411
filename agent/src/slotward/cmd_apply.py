# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward apply`: root's part of start mode, before each start of the daemon (privilege.md, section 6).

Rules:
- It settles first; then, with nothing in flight, it carries out the request that the daemon's account has left.
- It ends in bounded time, and whatever comes of it, the daemon starts (I8).
- Most starts have nothing to settle and no request, and pay for no more than that look.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from slotcore import codes, config_table
from slotward import answers, build_info, lock, manager, own

if TYPE_CHECKING:
    import argparse

WAITING = "apply"
"""The request's name in the account's staging directory."""
LOCK_S = 3.0
"""Whoever settles at this moment is given a little time, since the daemon waits for us."""


def run(args: argparse.Namespace) -> answers.Answer:
    """Settle, then carry out what was asked for, once."""
    if os.geteuid() != 0:
        raise codes.refused(
            codes.NOT_ROOT, "apply changes root's slots: slotward-apply.service runs it before each start"
        )
    if args.product != build_info.NAME:
        return _staged(args)
    if args.check or args.start or args.no_wait or args.force or args.accept_one_way or args.id:
        text = "the flags of apply go with --product: the agent's own is start mode's, and has none"
        return answers.usage(args.product, text)
    setup = own.load(args.config)
    name = setup.product.name
    if not os.path.isdir(setup.product.slots_dir):
        return answers.Answer(answers.DONE, answers.base(name, "idle"), ["nothing to apply: no slots yet"])
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.held(setup.product, "apply", LOCK_S))
        except codes.Retryable as error:
            _put_off(setup, error)
            raise
        seen, done = manager.settle_now(setup.product)
        if setup.config.mode != config_table.START:
            if setup.problems:
                raise codes.BadConfig(setup.problems)
            text = f"this host's configuration has no [start]: in {setup.config.mode} mode no start applies anything"
            raise codes.refused(codes.NOT_ALLOWED, text)
        if _is_asked(setup):
            from slotward import applying

            return applying.carry_out(setup, seen)
    said = "nothing was asked for" if done == "nothing" else f"settled: {done}"
    return answers.Answer(answers.DONE, answers.base(name, "idle", message=said, changed=done != "nothing"), [said])


def _staged(args: argparse.Namespace) -> answers.Answer:
    """An operator's word for what a product has staged."""
    from slotward import cmd_staged

    return cmd_staged.run(args)


def _is_asked(setup: own.Setup) -> bool:
    return os.path.lexists(os.path.join(setup.inbox, WAITING))


def _put_off(setup: own.Setup, error: codes.Retryable) -> None:
    """Let whoever asked know who holds the lock: the request waits for a later start."""
    if setup.config.mode == config_table.START and _is_asked(setup):
        from slotward import applying

        applying.put_off(setup, error)
