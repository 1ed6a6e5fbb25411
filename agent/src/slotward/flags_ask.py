# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of `ask`."""

from __future__ import annotations

import argparse

from slotward import flags_upgrade

USAGE = """slotward ask upgrade  --target FILE [--permit FILE] [--id ID] [--server-time TIME] [--no-wait]
       slotward ask confirm  --id ID [--wait S]
       slotward ask rollback --id ID [--why TEXT]"""
WORDS = ("upgrade", "confirm", "rollback")


def ask(parser: argparse.ArgumentParser) -> None:
    """Those of all three; which goes with which is judged by the command."""
    parser.usage = USAGE
    parser.add_argument("what", choices=WORDS, help="have the daemon update itself, confirm its trial, or give it up")
    parser.add_argument("--target", metavar="FILE", help=f"upgrade: {flags_upgrade.TARGET_HELP}")
    parser.add_argument("--permit", metavar="FILE", help="upgrade: a signed permit to go below the floor, once")
    parser.add_argument(
        "--id",
        metavar="ID",
        help="upgrade: the trial's id (16 hexadecimal digits), chosen by the caller, so that the same may be asked again; "
        "confirm, rollback: the trial that is meant",
    )
    flags_upgrade.server_time(parser)
    parser.add_argument("--no-wait", action="store_true", help="upgrade: answer as soon as the trial has begun")
    parser.add_argument(
        "--wait",
        type=float,
        metavar="S",
        help="confirm: wait so many seconds for the proof that the new release runs (default: 0)",
    )
    parser.add_argument("--why", metavar="TEXT", help="rollback: a reason, remembered with the failed version")
