# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward version`: what this program is. Also the smoke test of a slot, so it needs nothing but itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from slotward import answers, build_info

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """The version, the release sequence, the interpreter and the digest of the running file."""
    answer = answers.base(args.product, "idle")
    answer.update(
        version=build_info.VERSION,
        sequence=build_info.SEQUENCE,
        python=sys.version.split()[0],
        sha256=build_info.running_digest() if args.json else "",
    )
    return answers.Answer(answers.DONE, answer, [f"slotward {build_info.VERSION}"])
