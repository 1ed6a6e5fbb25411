# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward update`: the state of this host, and clearing failed versions (seed 000 "bcd update")."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Tuple

from slotcore import codes, records, settle, status
from slotcore import product as products
from slotward import answers, hand, host, lock, looking, own

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """Show the state, or clear failed versions."""
    setup = own.asked(args)
    if args.clear_failed is not None:
        return _clear(setup.product, args.clear_failed)
    if args.repair:
        from slotward import cmd_repair

        return cmd_repair.run(setup.product, args.floor, args.slots)
    if args.slots:
        return answers.usage(setup.product.name, "--slots goes with --repair")
    if args.floor is not None:
        return answers.usage(setup.product.name, "--floor goes with --repair")
    if setup.problems and os.geteuid() != 0:
        own.demand_readable(args.config)
    state = host.read_state(setup.product)
    if os.geteuid() == 0 and _settle_if_due(setup.product, state):
        state = host.read_state(setup.product)
    answer = looking.look(setup, state, args.asked)
    lines = status.lines(answer, setup.product.entrypoint) + hand.lines(answer)
    if answer["probes"] is not None:
        from slotcore import probe_files

        lines += probe_files.lines(answer["probes"])
    if answer["progress"] is not None:
        from slotcore import phases

        lines.append(phases.line(answer["progress"]))
    if answer["unread"]:
        lines.append(f"not for this account to read: {', '.join(answer['unread'])}")
    if answer["broken"] is not None:
        lines.append(f"to mend it: {answer['broken']['run']}")
    return answers.Answer(answers.DONE, answer, lines)


def _settle_if_due(product: products.Product, state: settle.State) -> bool:
    """Restore what is broken, finish what a crash left, when nobody else is at it; whether the state may be another now."""
    quiet = settle.decide(state, host.clock()).action in (settle.Action.NONE, settle.Action.AWAIT)
    if quiet and not settle.is_mendable(state) and not settle.is_behind(product, state):
        return False
    from slotward import manager

    try:
        with lock.held(product, "update"):
            manager.settle_now(product)
    except (codes.Retryable, OSError):
        pass  # busy, no space, a read-only file system: shown as pending
    return True


def _clear(product: products.Product, version: str) -> answers.Answer:
    from slotcore import recording
    from slotward import manager

    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "clearing failed versions changes root's records: run it as root")
    with lock.held(product, "update --clear-failed"):
        seen, _done = manager.settle_now(product)
        if seen.state.broken is not None:
            raise codes.BrokenRecord(*seen.state.broken)
        kept, cleared = _split(seen.state.update, version)
        if cleared:
            plan = recording.write(product, recording.UPDATE, records.render_update(kept))
            manager.apply(product, plan, "clear-failed")
            _note_cleared(product, seen.state.update, cleared)
    answer = answers.base(product.name, "idle", changed=bool(cleared))
    answer["cleared"] = cleared
    return answers.Answer(answers.DONE, answer, [_said(version, cleared)])


def _note_cleared(product: products.Product, before: records.Update, cleared: List[str]) -> None:
    from slotcore import audit as audits
    from slotward import audit

    for entry in before.failed:
        if entry.version in cleared:
            audit.note(
                product,
                audits.CLEARED,
                code=entry.code,
                why=entry.why,
                to_version=entry.version,
                sequence=entry.sequence,
                sha256=entry.sha256,
            )


def _said(version: str, cleared: List[str]) -> str:
    if cleared:
        return f"failed versions cleared: {', '.join(cleared)}"
    return f"{version} is not among the failed versions" if version else "no failed versions"


def _split(update: records.Update, version: str) -> Tuple[records.Update, List[str]]:
    kept = tuple(entry for entry in update.failed if version not in ("", entry.version))
    cleared = [entry.version for entry in update.failed if version in ("", entry.version)]
    return update._replace(failed=kept), cleared
