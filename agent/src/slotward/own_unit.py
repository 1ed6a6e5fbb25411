# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that changes the host, run once more in a transient unit of its own (DESIGN 4).

Rules:
- A lost connection, or a daemon that is restarted, does not end it; its answer is passed through.
- `--here` marks the second run. What it is given is the first one's command line, by the same names.
"""

from __future__ import annotations

import os
import sys
import time
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
    began_s = time.monotonic()
    try:
        done = systemd.run_attached([build_info.program_path(), *words, "--here"], unit=name, properties=by)
    except KeyboardInterrupt:
        run = advice.named("slotward cancel", args.product)
        print(f"interrupted; the upgrade goes on in {name}: `{run}` ends it before the switch", file=sys.stderr)
        raise SystemExit(answers.FAILED) from None
    unsure = done.code < 0 or done.code in systemd.UNSURE
    if unsure and not done.output:
        raise _unanswered(args, name, began_s, done.code)
    try:
        print(done.output, end="", flush=True)
    except OSError:  # whoever asked is gone: what was done stands, and the record says so
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(done.code if done.code >= 0 else answers.FAILED)


def _unanswered(args: argparse.Namespace, name: str, began_s: float, status: int) -> codes.Retryable:
    """What became of a unit of which systemd-run says no more: another's, one that goes on alone, or none."""
    from slotward import bus, systemd

    shown = systemd.show(name, ("ActiveState", "ActiveEnterTimestampMonotonic"))
    why = bus.problem()
    if shown.get("ActiveState") not in ("active", "activating"):
        said = f"the {args.command} gave no answer: systemd-run ended with status {status}, and standard error has what was said"
        if not why:
            return codes.Retryable(codes.BAD_ANSWER, f"{said}; `journalctl -b -n 50` may have more")
        return codes.Retryable(codes.SYSTEMD_FAILED, f"{said}; {why}")
    if int(shown.get("ActiveEnterTimestampMonotonic") or 0) / 1e6 < began_s:
        return codes.Retryable(codes.IN_PROGRESS, f"an upgrade with the id {args.id} is already in progress")
    text = f"the {args.command} goes on in {name}, which is followed no longer: `slotward update` says how it ends"
    return codes.Retryable(codes.SYSTEMD_FAILED, "; ".join(part for part in (text, why) if part))
