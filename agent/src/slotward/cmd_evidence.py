# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward evidence`: what is kept of releases that failed here (faults.md, section 7; H10).

Rules:
- Reading changes nothing. It is root's alone: the journal of a daemon may hold secrets.
- `--gather` is what a trial's end has run in a unit of its own; an operator who runs it again changes nothing (I9).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List

from slotcore import codes, evidence
from slotcore import product as products
from slotward import answers, clearable, cmd_audit, evidence_file, host, own, trial_ids

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """List, show one, or gather."""
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "evidence is root's, since a journal may hold secrets: run it as root")
    if args.gather is not None:
        return _gather(args)
    product = own.asked(args).product
    if args.id:
        return _one(product, trial_ids.demand(args.id))
    found, odd = evidence_file.kept(product)
    answer = answers.base(product.name, "idle", message="; ".join(odd))
    answer.update(kept=found, evidence=None)
    lines = [_head(one) for one in found] or [f"no evidence of a failed release of {product.name} is kept"]
    lines += [f"not readable: {one}" for one in odd]
    return answers.Answer(answers.DONE, answer, lines)


def _head(one: Dict[str, Any]) -> str:
    when = cmd_audit.time_text(one["at"])
    return f"{one['id']}  {when}  {one['from']} -> {one['to']}  {one['code']}"


def _one(product: products.Product, trial_id: str) -> answers.Answer:
    found = evidence_file.read(product, trial_id)
    if found is None:
        ids = ", ".join(one["id"] for one in evidence_file.kept(product)[0]) or "none"
        last = host.read_state(product).update.last
        more = "; `slotward evidence --gather` looks what the journal still has of it"
        is_last = clearable.evidence_of(last) == clearable.evidence(trial_id)
        text = f"no evidence of trial {trial_id} of {product.name} is kept; kept: {ids}{more if is_last else ''}"
        raise codes.refused(codes.NO_EVIDENCE, text)
    answer = answers.base(product.name, "idle")
    answer.update(kept=[evidence.head_of(found)], evidence=found)
    return answers.Answer(answers.DONE, answer, evidence.lines_of(found, cmd_audit.time_text(found["at"])))


def _gather(args: argparse.Namespace) -> answers.Answer:
    from slotward import evidence_gather

    if args.gather:
        try:
            known = evidence_gather.unpacked(args.product, args.gather)
        except ValueError as error:
            return answers.usage(args.product, f"--gather is given nothing by hand: {error}")
    else:
        product = own.asked(args).product
        last = host.read_state(product).update.last
        if last is None or clearable.evidence_of(last) is None:
            raise codes.refused(codes.NO_EVIDENCE, f"the last trial of {product.name} did not fail: nothing to gather")
        known = evidence_gather.Known(product, last)
    before = evidence_file.is_kept(known.product, known.last.trial_id)
    why = evidence_gather.gather(known)
    return _gathered(known.product, known.last.trial_id, why, before)


def _gathered(product: products.Product, trial_id: str, why: str, before: bool) -> answers.Answer:
    if why:
        raise codes.Retryable(codes.OS_ERROR, f"no evidence of trial {trial_id} is kept: {why}")
    lines: List[str] = [
        f"evidence of trial {trial_id} {'was kept before' if before else 'is kept'}: `{clearable.evidence(trial_id)}`"
    ]
    answer = answers.base(product.name, "idle", message=lines[0], changed=not before)
    answer.update(kept=[one for one in evidence_file.kept(product)[0] if one["id"] == trial_id], evidence=None)
    return answers.Answer(answers.DONE, answer, lines)
