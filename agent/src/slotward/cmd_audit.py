# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward audit`: show the log of decisions, check its chain, go on after damage (trust.md, section 5).

Rules:
- Showing changes nothing, and shows what can be read of a damaged log, saying that it is damaged.
- `--verify` and `--head` end with `audit-broken` when the chain does not hold, or lacks a head that was seen earlier.
- `--restart-chain` deletes nothing: what is damaged is set aside whole, and the new log begins with a line about it.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from slotcore import audit as audits
from slotcore import audit_chain, codes, ops
from slotcore import product as products
from slotward import answers, audit, audit_file, audit_read, lock, manager, own

if TYPE_CHECKING:
    import argparse

ASIDE = "audit.broken-"
KEPT_ASIDE = 4
LIMIT = 50


def run(args: argparse.Namespace) -> answers.Answer:
    """Show, verify, or set a damaged log aside."""
    product = own.asked(args).product
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "the audit log is root's: run it as root")
    if args.restart_chain:
        return restart(product)
    report = audit_read.read(product.slots_dir)
    answer = _answer(product, report)
    if args.verify or args.head is not None:
        return _verified(product, report, answer, args.head)
    return _shown(report, answer, args)


def _answer(product: products.Product, report: audit_read.Report) -> Dict[str, Any]:
    answer = answers.base(product.name, "idle")
    head = report.chain.head
    answer.update(
        first=report.chain.first,
        head={"n": head.number, "hash": head.hash},
        files=report.files,
        torn=report.torn,
        broken=report.fault._asdict() if report.fault is not None else None,
    )
    return answer


def damage(report: audit_read.Report) -> str:
    """Where the chain breaks and why, "" when it holds."""
    if report.fault is None:
        return ""
    place = f" line {report.fault.line}" if report.fault.line else ""
    return f"{report.fault.file}{place}: {report.fault.why}"


def _broken(answer: Dict[str, Any], text: str, way_out: str) -> answers.Answer:
    found = dict(answer, state="refused", code=codes.AUDIT_BROKEN, message=f"{text}; {way_out}")
    return answers.Answer(answers.BROKEN, found, [f"{codes.AUDIT_BROKEN}: {text}", way_out])


def _verified(
    product: products.Product, report: audit_read.Report, answer: Dict[str, Any], head: Optional[str]
) -> answers.Answer:
    first, last = report.chain
    if report.fault is not None:
        keep = f"what holds ends with line {last.number}, {last.hash}; keep a copy of {product.path(audit_chain.NAME)}*"
        return _broken(answer, damage(report), f"{keep}, then run `slotward audit --restart-chain`")
    if head is not None and not audit_read.holds_head(report, head):
        kept = f" (lines before {first} are no longer kept)" if first > 1 else ""
        text = f"{product.path(audit_chain.NAME)}: no line has the hash {head}{kept}; its last is {last.number}, {last.hash}"
        return _broken(answer, text, "the log was cut or written anew since that head was seen: ask who was root here")
    lines = [
        f"the chain holds: {count(first, last)} in {len(report.files)} file(s)",
        f"head: {last.number} {last.hash}",
    ]
    if report.torn:
        lines.append(f"the last {report.torn} bytes were never finished (a power cut); the next line replaces them")
    return answers.Answer(answers.DONE, answer, lines)


def count(first: int, head: audits.Head) -> str:
    """Which lines there are, in words."""
    last = head.number
    if last == 0:
        return "no lines yet"
    gone = f" (lines 1 to {first - 1} are no longer kept)" if first > 1 else ""
    return f"lines {first} to {last}{gone}"


def _parsed(data: bytes) -> Optional[audits.Line]:
    try:
        return audits.parse(data)
    except audits.BadLine:
        return None


def _shown(report: audit_read.Report, answer: Dict[str, Any], args: argparse.Namespace) -> answers.Answer:
    limit = args.limit if args.limit is not None else LIMIT
    found = [line for line in map(_parsed, report.lines) if line is not None]
    if args.since is not None:
        found = [line for line in found if line.number >= args.since]
    shown = found if limit == 0 else found[:limit] if args.since is not None else found[-limit:]
    answer["lines"] = [audits.as_json(line) for line in shown]
    answer["left_out"] = len(found) - len(shown)
    lines = [_line(line) for line in shown] or ["no such lines" if report.lines else "no lines yet"]
    if answer["left_out"]:
        lines.append(f"{answer['left_out']} more lines: --limit 0 shows all, --since N those from line N on")
    if report.fault is not None:
        lines.append(f"the chain is broken: {damage(report)}; see `slotward audit --verify`")
    return answers.Answer(answers.DONE, answer, lines)


def time_text(seconds: int) -> str:
    """A time for people, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _line(line: audits.Line) -> str:
    event = line.event
    versions = " -> ".join(version for version in (event.from_version, event.to_version) if version)
    parts = (f"{line.number:>5}", time_text(event.at), f"{event.event:<15}", versions, event.code, f"({event.who})")
    text = "  ".join(part for part in parts if part)
    return f"{text}  {event.why}" if event.why else text


def restart(product: products.Product) -> answers.Answer:
    """Set a damaged log aside and begin a new one whose first line says so."""
    with lock.held(product, "audit --restart-chain"):
        report = audit_read.read(product.slots_dir)
        if report.fault is None:
            return _nothing_to_restart(product, report)
        aside = _aside(product)
        line = _begin(product, report, aside)
    audit.tell(product, line)
    answer = dict(_answer(product, audit_read.read(product.slots_dir)), changed=True, aside=aside)
    return answers.Answer(answers.DONE, answer, [f"the damaged log is in {aside}; a new one begins"])


def _nothing_to_restart(product: products.Product, report: audit_read.Report) -> answers.Answer:
    return answers.Answer(answers.DONE, _answer(product, report), ["the chain holds: nothing was changed"])


def _aside(product: products.Product) -> str:
    """A new directory for what is set aside, named after the time, and after those that are there already."""
    path = product.path(f"{ASIDE}{max(int(time.time()), *(at + 1 for at in _set_aside(product)), 0)}")
    os.mkdir(path, 0o700)
    return path


def _set_aside(product: products.Product) -> List[int]:
    """The times of what was set aside, oldest first."""
    times = [name[len(ASIDE) :] for name in os.listdir(product.slots_dir) if name.startswith(ASIDE)]
    return sorted(int(time) for time in times if time.isdecimal())


def _begin(product: products.Product, report: audit_read.Report, aside: str) -> bytes:
    """Write the new log beside the old, move the old away, put the new in its place; its first line."""
    last = report.chain.head
    why = f"{damage(report)}; set aside in {aside}; what held ended with line {last.number}, {last.hash}"
    event = audits.Event(audits.REPAIRED, product.name, int(time.time()), codes.AUDIT_BROKEN, who=audit.who(), why=why)
    line = audits.append(None, event)
    path = product.path(audit_chain.NAME)
    new = path + ".tmp"
    try:
        manager.apply(product, (ops.Write(new, line + b"\n", audit_file.MODE), ops.Sync(new)), "audit-restart")
        moves: List[ops.Operation] = [
            ops.Rename(audit_file.path_of(product.slots_dir, name), audit_file.path_of(aside, name))
            for name in audit_file.names(product.slots_dir)
        ]
        moves += [ops.Rename(new, path), ops.SyncDir(aside), ops.SyncDir(product.slots_dir)]
        manager.apply(product, tuple(moves), "audit-restart-moves")
    except OSError as error:
        from slotward import effects

        raise effects.as_retryable(error, "begin a new audit log") from error
    for at in _set_aside(product)[:-KEPT_ASIDE]:
        shutil.rmtree(product.path(f"{ASIDE}{at}"), ignore_errors=True)
    return line
