# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a command line by the table of commands. Imported only when flags have to be parsed or explained (ADR 0002)."""

from __future__ import annotations

import argparse
from typing import List

from slotward import cli_flags

EXITS = """exit status:
  0  done, or nothing to do
  1  it failed; for doctor: a check failed
  2  the command line is wrong
  3  refused: final, the code says which rule
  4  try again later: network, lock, space
  5  a record or the configuration is broken: updates are refused
  6  the trial ended, or is still, without confirmation
"""


def overview(config_path: str) -> argparse.ArgumentParser:
    """What `slotward --help` shows, and what a wrong command name is told."""
    top = argparse.ArgumentParser(
        prog="slotward",
        usage="slotward [--config FILE] [--product NAME] COMMAND ... (slotward COMMAND --help explains one)",
        description="Replaces a daemon by signed releases on trial: slots, confirmation, going back, a floor that never falls.",
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--config", metavar="FILE", help=f"configuration (default: {config_path})")
    top.add_argument("--product", metavar="NAME", help="the product, where it is not the agent itself")
    subs = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line, _more, _flags in cli_flags.COMMANDS:
        subs.add_parser(name, help=line, add_help=False)
    subs.add_parser("release", help="make, sign, merge and verify releases", add_help=False)
    return top


def parser_of(command: str, config_path: str) -> argparse.ArgumentParser:
    """The flags of one command; only its own parser is built, since every start pays for it."""
    name, line, more, flags = next(row for row in cli_flags.COMMANDS if row[0] == command)
    parser = argparse.ArgumentParser(
        prog=f"slotward {name}",
        description=f"{line[0].upper()}{line[1:]}. {more}",
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", default=config_path, metavar="FILE", help="configuration (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--product", default="slotward", metavar="NAME", help="the product (default: the agent itself)")
    flags(parser)
    return parser


def parse(argv: List[str], config_path: str) -> argparse.Namespace:
    """The command and its flags; `--config FILE` and `--product NAME` may stand before it. Ends the program on bad usage."""
    lead = 0
    while lead < len(argv) and argv[lead].partition("=")[0] in ("--config", "--product"):
        lead += 1 if "=" in argv[lead] else 2
    names = [row[0] for row in cli_flags.COMMANDS]
    if len(argv) <= lead or argv[lead] not in names:
        top = overview(config_path)
        top.parse_args(argv)
        top.error("unknown arguments")
    args = parser_of(argv[lead], config_path).parse_intermixed_args(argv[:lead] + argv[lead + 1 :])
    args.command = argv[lead]
    return args
