# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward events`: what upgrades did on this host, since a cursor, from the audit log (products.md, section 8).

Rules:
- Reading changes nothing; what stands after damage in the log is no event, and the damage is told.
- Nothing new is an empty list and the cursor that was given.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict

from slotcore import codes, events
from slotward import answers, audit_read, clearable, cmd_audit, own

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """Tell the events after the cursor."""
    product = own.asked(args).product
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "the audit log is root's: run it as root")
    report = audit_read.read(product.slots_dir)
    found = events.read(report.lines[: report.holds], args.since, args.limit)
    damage = cmd_audit.damage(report)
    for event in found.events:
        if event["event"] == events.ROLLED_BACK:
            event["evidence"] = clearable.evidence(event["id"]) if event["id"] else None
    answer = answers.base(product.name, "idle", message=f"the audit log is damaged: {damage}" if damage else "")
    answer.update(
        events=found.events,
        cursor=found.cursor,
        left_out=found.left_out,
        restarted=found.restarted,
        broken=report.fault._asdict() if report.fault is not None else None,
    )
    lines = [_line(event) for event in found.events]
    if found.restarted:
        lines.insert(0, f"the log was begun anew after line {args.since} of it was seen: these are all of its events")
    if found.left_out:
        lines.append(f"{found.left_out} more: `slotward events --since {found.cursor}`")
    elif not found.events:
        lines.append(f"no events since {args.since}")
    if damage:
        lines.append(f"the chain is broken: {damage}; see `slotward audit --verify`")
    return answers.Answer(answers.DONE, answer, lines)


def _line(event: Dict[str, Any]) -> str:
    line = events.line_of(event, cmd_audit.time_text(event["at"]))
    return f"{line}  ({event['evidence']})" if event.get("evidence") else line
