# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of `prepare` and `upgrade`, and the one that other commands share with them."""

from __future__ import annotations

import argparse

TARGET_HELP = (
    "JSON file of the release to go to: product, version, url, sha256, signature (the published manifest as a string); "
    "- reads standard input"
)


def prepare(parser: argparse.ArgumentParser) -> None:
    """Those that prepare and upgrade have in common."""
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--target", metavar="FILE", help=TARGET_HELP)
    either.add_argument(
        "--version",
        metavar="V",
        help="this version, from where the product's file says its releases lie ([source] url)",
    )
    parser.add_argument("--channel", metavar="C", help="with --version: the release must be on this channel")
    parser.add_argument(
        "--variant", metavar="W", help="with --version: this variant, instead of the one that the product's file names"
    )
    parser.add_argument(
        "--src", metavar="FILE", help="the artifact is this file, already on the host; nothing is downloaded"
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="agree that a plain file found at the entrypoint is taken into a slot first",
    )
    parser.add_argument(
        "--start", action="store_true", help="agree that a stopped or disabled unit is started by the switch"
    )
    accept_one_way(parser)
    force(parser)
    _permit(parser)
    server_time(parser)


def accept_one_way(parser: argparse.ArgumentParser) -> None:
    """Consent to data that changes for good."""
    parser.add_argument(
        "--accept-one-way",
        action="store_true",
        help="agree to a release that changes the data for good: the version before may not read it after going back",
    )


def force(parser: argparse.ArgumentParser) -> None:
    """An operator's word against windows, freezes and veto."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="pass over update windows, freezes and the workload's veto, never over a hold; the audit log says so",
    )


def server_time(parser: argparse.ArgumentParser) -> None:
    """The time of whoever asks, for every command that judges an expiry."""
    parser.add_argument(
        "--server-time",
        type=time_of,
        metavar="TIME",
        help="the time of whoever asks, as 2026-01-31T23:59:59Z: an expiry is judged by the later of it and the host's",
    )


def _permit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--permit",
        metavar="FILE",
        help="a signed permit that lets this host go to this one release below its floor, once",
    )


def time_of(text: str) -> int:
    """A time in UTC, in seconds since 1970."""
    from slotcore import rfc3339

    try:
        return rfc3339.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def upgrade(parser: argparse.ArgumentParser) -> None:
    """Those of upgrade."""
    prepare(parser)
    parser.add_argument("--stage-only", action="store_true", help="fetch and verify, switch nothing")
    parser.add_argument("--no-wait", action="store_true", help="answer as soon as the trial has begun")
    parser.add_argument(
        "--no-smoke", action="store_true", help="skip the look at the staged program and its smoke test"
    )
    parser.add_argument("--id", metavar="ID", help="the trial's id (16 hexadecimal digits), chosen by the caller")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
