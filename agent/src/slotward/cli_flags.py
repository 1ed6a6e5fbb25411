# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command, its one line and its flags; `cli_parse` reads them. Imported only when flags have to be parsed (ADR 0002)."""

from __future__ import annotations

import argparse
from typing import Callable, Tuple

from slotward import flags_ask, flags_audit, flags_hand, flags_upgrade

Adder = Callable[[argparse.ArgumentParser], None]


def _which(parser: argparse.ArgumentParser, required: bool) -> None:
    """Which trial is meant: the one with this id, or whichever there is."""
    either = parser.add_mutually_exclusive_group(required=required)
    either.add_argument("--id", metavar="ID", help="only this trial, by the id that upgrade and update show")
    either.add_argument(
        "--pending",
        action="store_true",
        help="whatever is on trial, and nothing to do when nothing is: for a unit that the daemon triggers",
    )


def _confirm_flags(parser: argparse.ArgumentParser) -> None:
    _which(parser, required=True)
    parser.add_argument("--source", default="controller", help="who confirms (default: controller)")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="S",
        help="wait so many seconds for the proof that the new release runs (default: 0)",
    )


def _rollback_flags(parser: argparse.ArgumentParser) -> None:
    _which(parser, required=False)
    parser.add_argument("--why", default="", metavar="TEXT", help="a reason, remembered with the failed version")
    flags_hand.rollback_to(parser)


def _update_flags(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--clear-failed",
        nargs="?",
        const="",
        metavar="VERSION",
        help="forget the failed versions, or this one, so that they may be tried again",
    )
    either.add_argument(
        "--repair",
        action="store_true",
        help="write lost or damaged records anew from what can be proven, and finish what waited for them",
    )
    parser.add_argument(
        "--slots", action="store_true", help="with --repair: also leave a damaged slot for the other one"
    )
    parser.add_argument(
        "--floor",
        type=_floor,
        metavar="N",
        help="with --repair, where nothing proves it: the highest sequence that this host ran or was installed at",
    )


def _floor(text: str) -> int:
    from slotcore import records

    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > records.MAX_INT:
        raise argparse.ArgumentTypeError(f"a sequence is a number from 0 to {records.MAX_INT}, not {text!r}")
    return int(text)


def _trust_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "slotward trust [-h] [--config FILE] [--json] [--product NAME] [apply [--check] [--server-time TIME] FILE ...]"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="apply FILE ...",
        help="take these signed key sets and withdrawals, in this order; without it, show whom this host trusts",
    )
    parser.add_argument("--check", action="store_true", help="say what apply would change, change nothing")
    flags_upgrade.server_time(parser)


def _setup_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="the program to install when none is installed (default: the one that runs)",
    )
    parser.add_argument(
        "--manifest", metavar="FILE", help="its signed manifest, checked against the configuration's pins"
    )
    parser.add_argument("--adopt", action="store_true", help="take a plain file found at the entrypoint into a slot")
    parser.add_argument("--check", action="store_true", help="say what would change, change nothing")
    parser.add_argument("--planned", metavar="FILE", help="as --check, were FILE the configuration")
    parser.add_argument(
        "--divert",
        action="store_true",
        help="of another product: when a package owns the entrypoint, send what it brings later to <path>.distrib",
    )
    parser.add_argument(
        "--version",
        dest="as_version",
        metavar="V",
        help="of another product: the version of the program that is adopted",
    )
    parser.add_argument(
        "--fix-directories",
        action="store_true",
        help="make directories on the way to root's files root's, where others may write in them",
    )


def _config_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("check",), help="judge the whole file: every problem, or none")
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the file to check (default: that of --config); - reads standard input"
    )
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="KEY",
        help="each key, or one: its meaning, default and bounds, the value that counts here and where it was set",
    )


def _helper_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--do", action="store_true", help=argparse.SUPPRESS)


def _remove_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--purge", action="store_true", help="remove the slots and their records too")
    parser.add_argument("--check", action="store_true", help="say what would change, change nothing")


def _probe_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="round by round until the trial has ended: for a unit")


def _nothing(_parser: argparse.ArgumentParser) -> None:
    return


# name, one line, more, flags
COMMANDS: Tuple[Tuple[str, str, str, Adder], ...] = (
    (
        "version",
        "say what this program is",
        "Works anywhere, with nothing installed and without root.",
        _nothing,
    ),
    (
        "node",
        "run the node agent (the service)",
        "Started by slotward.service. Without a gateway it is standalone and needs no network.",
        _nothing,
    ),
    (
        "helper",
        "run root's part of updates for a daemon that is not root (the service)",
        "Started by slotward-helper.service, mode helper: each operation is a unit of its own. Exit 5 names what others may change.",
        _helper_flags,
    ),
    (
        "update",
        "show slots, floor, a pending trial and failed versions",
        "With --clear-failed a version that failed may be tried again: a local decision, never the control side's.",
        _update_flags,
    ),
    (
        "prepare",
        "say what an upgrade would do, or why it is refused",
        "Runs every check and changes nothing. It answers the artifact to fetch.",
        flags_upgrade.prepare,
    ),
    (
        "upgrade",
        "verify, stage and switch to a release, on trial",
        "The new release runs on trial until it is confirmed. Without confirmation the host goes back by itself.",
        flags_upgrade.upgrade,
    ),
    (
        "cancel",
        "end an upgrade that has not switched yet",
        "What was downloaded stays for the next try. After the switch there is a trial: rollback ends that.",
        _nothing,
    ),
    (
        "ask",
        "have the running daemon update itself, confirm or give up",
        "What stands in for a gateway asks so. The daemon does the work as its mode has it. Asked again with the same `--id`, it begins nothing twice.",
        flags_ask.ask,
    ),
    (
        "confirm",
        "confirm the release on trial",
        "Needs proof that the unit's main process runs the new release. Confirmation is one way: the floor rises.",
        _confirm_flags,
    ),
    (
        "rollback",
        "take the release on trial back now",
        "Without --to it ends the trial. With it a confirmed release is left for one that is kept here and meets the floor, by a trial of its own.",
        _rollback_flags,
    ),
    (
        "config",
        "check or explain the configuration",
        "`config check [FILE]` exits 5 with every problem; `config --explain [KEY]` shows what counts, and changes nothing.",
        _config_flags,
    ),
    (
        "doctor",
        "check this host and say what to run",
        "Each check that is not ok says what is wrong and which command mends it.",
        _nothing,
    ),
    (
        "products",
        "list the products of this host",
        "The agent itself and each file of products.d: version, state, whether a trial is pending.",
        _nothing,
    ),
    (
        "remove",
        "give a product back to whoever installs it otherwise",
        "With --product NAME. The program becomes a plain file at the entrypoint; guard and drop-ins go, the daemon goes on running.",
        _remove_flags,
    ),
    (
        "setup",
        "write the guard, the units and the first slot",
        "Safe to run again: a second run changes nothing. An update never writes a unit; this does.",
        _setup_flags,
    ),
    (
        "settle",
        "finish or undo an update that a crash left in flight",
        "Run by the service at its start, in a unit of its own. By hand it does no harm.",
        _nothing,
    ),
    (
        "apply",
        "carry out, before a start of the daemon, the request that it left",
        "Start mode's part of root, run by slotward-apply.service; by hand it settles. With --product: an operator's word for what that product has staged.",
        flags_hand.apply,
    ),
    (
        "hold",
        "keep a product at what it runs",
        "Every way to another release is refused (`held`) until it is taken away or ends. A trial that is pending still ends.",
        flags_hand.hold,
    ),
    (
        "unhold",
        "let a product go to other releases again",
        "With --owner only a hold in that name is taken away.",
        flags_hand.unhold,
    ),
    (
        "probe",
        "look at the product's probes once, now",
        "Exits 0 when every probe that decides passes, else 1. Changes nothing, and confirms nothing.",
        _probe_flags,
    ),
    (
        "trust",
        "show whom this host trusts, and take new keys or withdrawals",
        "Documents are judged by the keys in force before them, so a host that was away takes a chain. One refusal refuses all.",
        _trust_flags,
    ),
    (
        "audit",
        "show what was decided on this host, and check that the log was not changed",
        "Each decision is one line that carries the hash of the line before it. Remember the head elsewhere: only then a cut shows.",
        flags_audit.audit,
    ),
    (
        "events",
        "tell what upgrades did on this host, since a cursor",
        "Read from the audit log. The answer's cursor is what to ask with next time.",
        flags_audit.events,
    ),
    (
        "evidence",
        "show what is kept of releases that failed here",
        "Journal, starts and exits, checks, the host: the newest four trials that went back. `--gather` does it by hand.",
        flags_audit.evidence,
    ),
)
