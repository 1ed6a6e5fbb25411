# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward apply --product NAME`: an operator's word for what a product has staged (products.md, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from slotward import answers, audit, clearable, cmd_upgrade, hand, host, manual, own, prepare

if TYPE_CHECKING:
    import argparse

    from slotcore import checks


def run(args: argparse.Namespace) -> answers.Answer:
    """Say what would be swapped, or verify it again and swap it."""
    cmd_upgrade.demand_id(args.id)
    if not (args.check or args.here):
        return cmd_upgrade.in_own_unit(args, manual.words(args))
    setup = own.asked(args)
    asked: List[str] = []
    return hand.answered(
        setup.product, lambda: clearable.answered(setup.product.name, asked, lambda: _answered(setup, args, asked))
    )


def _answered(setup: own.Setup, args: argparse.Namespace, asked: List[str]) -> answers.Answer:
    with audit.refusals(setup.product, asked):
        target = manual.waiting(setup.product)
        if target is None:
            return manual.nothing(setup.product)
        asked.extend((target.version, target.sha256))
        return _apply(setup, target, args)


def _apply(setup: own.Setup, target: checks.Target, args: argparse.Namespace) -> answers.Answer:
    flags = manual.as_upgrade(setup.product, args)
    if args.check:
        consent = prepare.Consent(start=args.start, permit=_permit(flags), force=args.force)
        consent = consent._replace(one_way=args.accept_one_way)
        prepared = prepare.prepare(setup, target, consent)
        return cmd_upgrade.prepared_answer(setup, prepared, None)
    answer = cmd_upgrade.upgrade(setup, target, flags)
    if answer.json["state"] == "current":
        _done_with(setup)
    return answer


def _permit(flags: argparse.Namespace) -> Optional[bytes]:
    return prepare.read_document(flags.permit) if flags.permit else None


def _done_with(setup: own.Setup) -> None:
    """What waited is what runs: it waits no more."""
    from slotward import lock

    with lock.held(setup.product, "apply"):
        state = host.read_state(setup.product)
        entry, waits = state.slots.get(state.current or ""), manual.read(setup.product)
        if entry is not None and waits is not None and entry.sha256 == waits.sha256:
            manual.drop(setup.product)
