# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of the operator's hand: `hold`, `unhold`, `rollback --to`, and `apply` of a product that stages first."""

from __future__ import annotations

import argparse

from slotward import flags_upgrade


def hold(parser: argparse.ArgumentParser) -> None:
    """Those of hold."""
    parser.add_argument("--why", required=True, metavar="TEXT", help="the reason, which whoever is refused is told")
    _owner(parser, "in whose name (default: the sudo or login user)")
    parser.add_argument(
        "--until",
        type=flags_upgrade.time_of,
        metavar="TIME",
        help="when it ends by itself, as 2026-01-31T23:59:59Z (default: when it is taken away)",
    )


def unhold(parser: argparse.ArgumentParser) -> None:
    """Those of unhold."""
    _owner(parser, "only a hold in this name (default: any)")


def _owner(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument("--owner", type=_name, metavar="NAME", help=help_text)


def _name(text: str) -> str:
    if not 0 < len(text) <= 64 or not text.isprintable() or text != text.strip():
        raise argparse.ArgumentTypeError(f"an owner is a name of 1 to 64 characters, not {text!r}")
    return text


def going(parser: argparse.ArgumentParser) -> None:
    """What `rollback --to` and `apply` share with upgrade."""
    parser.add_argument("--check", action="store_true", help="say what would be done, change nothing")
    parser.add_argument("--start", action="store_true", help="agree that a stopped or disabled unit is started by it")
    parser.add_argument("--no-wait", action="store_true", help="answer as soon as the trial has begun")
    flags_upgrade.accept_one_way(parser)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)


def rollback_to(parser: argparse.ArgumentParser) -> None:
    """Those of a rollback after confirmation."""
    parser.add_argument(
        "--to",
        metavar="VERSION",
        help="go back, on trial, to this release or to the `previous` one, which is kept on this host; a hold is set first",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="without --to: end the trial also where the slot to go back to does not hold what was verified",
    )
    going(parser)


def apply(parser: argparse.ArgumentParser) -> None:
    """Those of apply, for a product with `[update] manual`."""
    going(parser)
    flags_upgrade.force(parser)
    parser.add_argument("--id", metavar="ID", help="the trial's id (16 hexadecimal digits), chosen by the caller")
