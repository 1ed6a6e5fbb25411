# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that changes the host, run once more in a transient unit of its own (DESIGN 4).

Rules:
- A lost connection, or a daemon that is restarted, does not end it; its answer is passed through.
- `--here` marks the second run. What it is given is the first one's command line, by the same names.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, List, Sequence

from slotcore import codes
from slotward import advice, answers, audit, build_info, trial_ids

if TYPE_CHECKING:
    import argparse


def again(args: argparse.Namespace, *words: str, flags: Sequence[str]) -> List[str]:
    """The command line of `args` again: what every command has, its own `words`, and those of its `flags` that are given."""
    line = [args.command, "--config", os.path.abspath(args.config), "--product", args.product, *words]
    line += ["--id", args.id] if args.id else []
    return line + ["--" + flag.replace("_", "-") for flag in flags if getattr(args, flag)]


def run(args: argparse.Namespace, words: List[str]) -> answers.Answer:
    """Run the same command in a transient unit and pass its answer through; never comes back on success."""
    from slotward import systemd

    name = f"slotward-upgrade-{args.product}-{args.id or trial_ids.new()}"
    by = (f"Environment={audit.WHO}={audit.who()}",)
    try:
        code = systemd.run_attached([build_info.program_path(), *words, "--here"], unit=name, properties=by)
    except KeyboardInterrupt:
        run = advice.named("slotward cancel", args.product)
        print(f"interrupted; the upgrade goes on in {name}: `{run}` ends it before the switch", file=sys.stderr)
        raise SystemExit(answers.FAILED) from None
    if code == answers.FAILED and systemd.is_active(name):  # another one's: systemd-run could not make ours
        raise codes.Retryable(codes.IN_PROGRESS, f"an upgrade with the id {args.id} is already in progress")
    raise SystemExit(code)
