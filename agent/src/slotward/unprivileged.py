# SPDX-License-Identifier: GPL-3.0-or-later
"""What `upgrade`, `prepare`, `confirm`, `rollback` and `settle` do as the daemon's own account (privilege.md, section 5).

Rules:
- Only the account that the configuration names takes its mode's way; everybody else who is not root is refused as ever.
- A way is a module with a function for each of these commands, `(setup, args) -> Answer`: `helper_way` asks the helper,
  `start_way` leaves a request for the next start.
- It is about the agent itself: another product is worked on by root alone.
- Consent is root's: who is not root can neither adopt a file, start a stopped unit, nor skip the smoke test.
"""

from __future__ import annotations

import importlib
import os
import pwd
from typing import TYPE_CHECKING, Any, Optional

from slotcore import codes, config_table
from slotward import answers, build_info, own

if TYPE_CHECKING:
    import argparse

WAYS = {config_table.HELPER: "helper_way", config_table.START: "start_way"}
CONSENT = ("adopt", "start", "no_smoke", "force", "to")
"""Flags by which an operator answers for what follows."""


def account_id(setup: own.Setup) -> Optional[int]:
    """The uid of the account that the daemon runs as; None when this host has no such account."""
    try:
        return pwd.getpwnam(setup.config.user).pw_uid
    except KeyError:
        return None


def is_account(setup: own.Setup) -> bool:
    """Whether this process is the daemon's account in a mode in which that is not root."""
    return setup.config.mode in WAYS and os.geteuid() != 0 and os.geteuid() == account_id(setup)


def run(args: argparse.Namespace, otherwise: str) -> answers.Answer:
    """Take the mode's way; whoever has none is refused `not-root`, in the words of `otherwise`."""
    setup = own.load(args.config)
    if not is_account(setup):
        raise codes.refused(codes.NOT_ROOT, otherwise)
    if args.product != build_info.NAME:
        text = f"{args.product} is root's to update, in every mode: run {args.command} as root"
        raise codes.refused(codes.NOT_ROOT, text)
    if getattr(args, "version", None) is not None:
        text = f"{build_info.NAME} has no [source], so a version alone does not say where it is: give --target FILE"
        raise codes.refused(codes.BAD_TARGET, text)
    for flag in CONSENT:
        if getattr(args, flag, False):
            word = "--" + flag.replace("_", "-")
            raise codes.refused(codes.NOT_ROOT, f"{word} is an operator's consent: run {args.command} as root for it")
    way: Any = importlib.import_module("slotward." + WAYS[setup.config.mode])
    answer: answers.Answer = getattr(way, args.command)(setup, args)
    return answer
