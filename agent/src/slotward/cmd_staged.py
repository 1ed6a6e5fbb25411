# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward apply --product NAME`: an operator's word for what a product has staged (products.md, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from slotward import answers, audit, clearable, cmd_upgrade, hand, host, manual, own, own_unit, prepare, trial_ids

if TYPE_CHECKING:
    import argparse

    from slotcore import checks

FLAGS = ("json", "start", "force", "no_wait", "accept_one_way")


def run(args: argparse.Namespace) -> answers.Answer:
    """Say what would be swapped, or verify it again and swap it."""
    if args.id is not None:
        trial_ids.demand(args.id)
    if not (args.check or args.here):
        return own_unit.run(args, own_unit.again(args, flags=FLAGS))
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
        prepared = prepare.prepare(setup, target, cmd_upgrade.consent_of(flags))
        return cmd_upgrade.prepared_answer(setup, prepared, None)
    answer = cmd_upgrade.upgrade(setup, target, flags)
    if answer.json["state"] == "current":
        _done_with(setup)
    return answer


def _done_with(setup: own.Setup) -> None:
    """What waited is what runs: it waits no more."""
    from slotward import lock

    with lock.held(setup.product, "apply"):
        state = host.read_state(setup.product)
        entry, waits = state.slots.get(state.current or ""), manual.read(setup.product)
        if entry is not None and waits is not None and entry.sha256 == waits.sha256:
            manual.drop(setup.product)
