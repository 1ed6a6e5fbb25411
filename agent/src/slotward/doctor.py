# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward doctor`: what is wrong with updates on this host, and what to run (seed 000; I3).

Rules:
- A check is a pure function of one look; each that is not `ok` names the command that mends it, and its entry of the runbook.
- `fail`: something is damaged, missing or not safe, and somebody must act. `warn`: an operator should know; where updates wait for it
  (a unit that was stopped, keys that nobody pinned, updates that somebody switched off or froze, no space), the message says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from slotcore import codes
from slotcore import product as products
from slotward import (
    answers,
    clearable,
    doctor_hand,
    doctor_mode,
    doctor_starts,
    doctor_trust,
    host,
    looking,
    own,
    reversing,
    slots,
)
from slotward import doctor_states as states

if TYPE_CHECKING:
    import argparse

Finding = states.Finding


class Audit(NamedTuple):
    """The audit log: its lines in words, or why it cannot be believed, and whether updates are refused for it."""

    lines: str = "no lines yet"
    why: str = ""
    refuses: bool = False
    floor: int = 0
    """The release floor that it knows of, and the newest key set; a record that is behind is an older one."""
    keys: int = 0


class Seen(NamedTuple):
    """What the checks look at."""

    answer: Dict[str, Any]
    entrypoint: str
    entrypoint_kind: str
    current: str
    config_path: str
    damage: str
    """What is wrong with the bytes that a start runs."""
    system: Tuple[str, ...]
    """What is missing or other than it should be of the guard and the units."""
    audit: Audit = Audit()
    mode: Tuple[Finding, ...] = ()
    """What there is to say of the unit, the clock, the mode and its sandboxes, what is kept, and the host."""
    program: str = ""
    """What the entrypoint has to lead to."""
    data: str = ""
    """What there is to say of data that is still to be restored."""
    exposed: Optional[slots.Exposed] = None
    """What is wrong with the owner or the mode of what a start runs."""


def _configuration(seen: Seen) -> List[Finding]:
    problems = seen.answer["config_problems"]
    if not problems:
        return [Finding("configuration", "ok", f"{seen.config_path} is understood in full")]
    return not_understood(problems, seen.config_path)


def not_understood(problems: Sequence[str], path: str) -> List[Finding]:
    """What is wrong with a configuration; one that others could have written is to be looked through before it is root's again."""
    mends = own.mends(path)
    run = f"look through {path}, then {mends}" if mends else f"edit {path}, then `slotward config check`"
    return [
        Finding("configuration", "fail", f"{problem}; updates are refused", run, states.BAD_CONFIG)
        for problem in problems
    ]


def _trust(seen: Seen) -> List[Finding]:
    return doctor_trust.findings(seen.answer, seen.config_path)


def _policy(seen: Seen) -> List[Finding]:
    policy = seen.answer["policy"]
    if policy["enabled"]:
        return [Finding("policy", "ok", f"updates are taken from {', '.join(policy['allowed_channels'])}")]
    return [
        Finding(
            "policy",
            "warn",
            "updates are disabled on this host ([update] enabled = false): each is refused, a pending trial goes on",
            f"set [update] enabled = true in {seen.config_path} to take updates again "
            + states.variable(seen.answer["product"], "updates_enabled"),
            states.UPDATES_DISABLED,
        )
    ]


def _hand(seen: Seen) -> List[Finding]:
    return doctor_hand.findings(seen.answer, seen.config_path)


def _records(seen: Seen) -> List[Finding]:
    broken = seen.answer["broken"]
    if broken is None or os.path.basename(broken["file"]) in ("current", "good"):  # links: the slots' check tells
        older = doctor_trust.older(seen.answer, seen.audit.floor, seen.audit.keys, seen.config_path)
        return older or [Finding("records", "ok", f"release floor {seen.answer['floor']}")]
    text, run = f"{broken['file']}: {broken['why']}", broken["run"]
    if run == looking.SETTLE:
        text += "; its copy proves itself, and the next command of root's writes it anew"
        return [Finding("records", "warn", text, run, states.RECORD_BROKEN)]
    copy = f" (its copy: {broken['copy']})" if broken["copy"] else ""
    text += f"{copy}; it cannot be believed and updates are refused, the daemon runs on"
    return [Finding("records", "fail", text, run, states.RECORD_BROKEN)]


def check_audit(seen: Seen) -> List[Finding]:
    """The chain of the audit log."""
    if not seen.audit.why:
        return [Finding("audit log", "ok", seen.audit.lines)]
    state, more = ("fail", "; updates are refused") if seen.audit.refuses else ("warn", "")
    text = f"{seen.audit.why}: the log was changed or damaged{more}"
    copy = f"cp -a {os.path.dirname(seen.current)}/audit.log* /root/ && slotward audit --restart-chain"
    return [Finding("audit log", state, text, copy, states.AUDIT_BROKEN)]


def _failed(seen: Seen) -> List[Finding]:
    found = [
        Finding(
            "failed version",
            "warn",
            f"{entry['version']} is not tried again here: {entry['why']}",
            clearable.command(entry["version"]),
            states.FAILED_VERSION,
        )
        for entry in seen.answer["failed"]
    ]
    return found or [Finding("failed version", "ok", "none")]


def _system(seen: Seen) -> List[Finding]:
    if not seen.system:
        return [Finding("guard", "ok", "guard, units and timer are as this version writes them")]
    in_trial = seen.answer["trial"] is not None
    return [Finding("guard", "fail", problem, *_mends(problem, in_trial)) for problem in seen.system]


def _mends(problem: str, in_trial: bool) -> Tuple[str, str]:
    """setup writes what is missing, but not in a trial; what an operator masked stays so until they say otherwise."""
    unit = problem[: -len(" is masked")] if problem.endswith(" is masked") else ""
    if unit and in_trial:
        start = f" && systemctl start {unit}" if unit.endswith(".timer") else ""
        return f"systemctl unmask {unit}{start}", states.GUARD_MASKED
    if unit:
        return f"systemctl unmask {unit} && slotward setup", states.GUARD_MASKED
    if problem.endswith("(systemctl daemon-reload)"):
        return "systemctl daemon-reload", states.GUARD_MISSING
    if in_trial:
        return "slotward confirm --pending --wait 60, or slotward rollback; then slotward setup", states.GUARD_MISSING
    return "slotward setup", states.GUARD_MISSING


def _mode(seen: Seen) -> List[Finding]:
    return list(seen.mode)


def _data(seen: Seen) -> List[Finding]:
    run = f"systemctl restart {seen.answer['unit']['name']}"
    return [Finding("data", "fail", seen.data, run, states.RESTORE_PENDING)] if seen.data else []


CHECKS: Tuple[Callable[[Seen], List[Finding]], ...] = (
    _configuration,
    _trust,
    _policy,
    _hand,
    _records,
    check_audit,
    doctor_starts.entrypoint,
    doctor_starts.links,
    doctor_starts.pending,
    _failed,
    _system,
    _mode,
    _data,
)


def findings(seen: Seen) -> List[Finding]:
    """Every check's findings, in order."""
    return [finding for check in CHECKS for finding in check(seen)]


def _gather(setup: own.Setup) -> Seen:
    from slotward import doctor_clock, doctor_host, doctor_kept, doctor_unit, installed

    product = setup.product
    state = host.read_state(product)
    answer = looking.look(setup, state)
    return Seen(
        answer=answer,
        entrypoint=product.entrypoint,
        entrypoint_kind=host.entrypoint_kind(product),
        current=product.path("current"),
        program=product.program_path("current"),
        config_path=setup.config_path,
        damage=host.damage(product, state),
        system=tuple(installed.differences(setup)),
        audit=gather_audit(product),
        mode=(
            *doctor_unit.findings(answer, doctor_unit.up_s(answer)),
            *doctor_clock.findings(doctor_clock.now_s(), state.update.newest_issued),
            *doctor_mode.told(setup, state),
            *doctor_kept.findings(setup, state, answer),
            *doctor_host.findings(setup, state, answer),
        ),
        data=reversing.due(product, state),
        exposed=slots.exposed(product, state.current) if state.current else None,
    )


def gather_audit(product: products.Product) -> Audit:
    """What there is to say of the log, after reading all of it."""
    from slotcore import audit_chain
    from slotward import audit, audit_read, audit_tail, cmd_audit

    try:
        audit.check(product)
    except (codes.BrokenAudit, OSError) as error:
        return Audit(why=str(error).removesuffix(audit_tail.WAY_OUT), refuses=True)
    report = audit_read.read(product.slots_dir)
    told = audit_chain.facts(report.lines[: report.holds])
    floor = told.before if product.floor == products.PREVIOUS else told.floor
    return Audit(cmd_audit.count(*report.chain), cmd_audit.damage(report), False, floor, told.keys)


def _found(args: argparse.Namespace) -> List[Finding]:
    """Every finding; of a product whose file cannot be used at all, what is wrong with that: nothing else is known then."""
    try:
        setup = own.asked(args)
    except codes.BadConfig as error:
        if os.geteuid() != 0:
            raise
        from slotward import product_files

        return not_understood(error.problems, product_files.path_of(args.config, args.product))
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "doctor reads root's configuration and records: run it as root")
    return findings(_gather(setup))


def run(args: argparse.Namespace) -> answers.Answer:
    """Look, and tell."""
    found = _found(args)
    bad = any(finding.state == "fail" for finding in found)
    answer = answers.base(args.product, "failed" if bad else "idle", codes.OK)
    answer["checks"] = [finding._asdict() for finding in found]
    lines = []
    for finding in found:
        lines.append(f"{finding.state:4}  {finding.name}: {finding.message}")
        if finding.run:
            lines.append(f"      run: {finding.run}  (runbook: {finding.entry})")
    return answers.Answer(answers.FAILED if bad else answers.DONE, answer, lines)
