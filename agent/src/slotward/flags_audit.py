# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of `audit` and `events`, which read the same log, and of `evidence`."""

from __future__ import annotations

import argparse


def audit(parser: argparse.ArgumentParser) -> None:
    """Those of audit."""
    parser.add_argument("--verify", action="store_true", help="walk the whole chain and answer its head")
    parser.add_argument(
        "--head",
        type=_hash,
        metavar="HASH",
        help="as --verify, and this head, seen earlier, must still be in the chain",
    )
    parser.add_argument("--since", type=_count, metavar="N", help="show the lines from number N on")
    parser.add_argument("--limit", type=_count, metavar="N", help="show at most N lines (default: 50; 0: all)")
    parser.add_argument(
        "--restart-chain",
        action="store_true",
        help="set a damaged log aside and begin a new one whose first line says so; changes nothing while the chain holds",
    )


def events(parser: argparse.ArgumentParser) -> None:
    """Those of events."""
    parser.add_argument(
        "--since", type=_count, default=0, metavar="CURSOR", help="only what came after it (default: 0, all)"
    )
    parser.add_argument("--limit", type=_count, default=0, metavar="N", help="at most N events (default: 0, all)")


def evidence(parser: argparse.ArgumentParser) -> None:
    """Those of evidence."""
    parser.usage = "slotward evidence [-h] [--config FILE] [--json] [--product NAME] [--gather | ID]"
    parser.add_argument("id", nargs="?", metavar="ID", help="all of one trial (default: list what is kept)")
    parser.add_argument(
        "--gather",
        nargs="?",
        const="",
        metavar="FACTS",
        help="gather it now of the last trial, where it failed and nothing is kept of it; FACTS are the agent's own",
    )


def _hash(text: str) -> str:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError("a head is 64 hexadecimal digits, as --verify and `update --json` show it")
    return text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)
