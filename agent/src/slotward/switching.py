# SPDX-License-Identifier: GPL-3.0-or-later
"""From verified bytes to a trial, whoever asked: an operator's upgrade, the helper, or the start that has a request.

Rules:
- The lock is held, and every check of `prepare` has passed on this very host in this very process.
- The trial's id is the caller's, so that whoever asked knows its trial again; the last trial's id is never used twice.
- From the first step of the switch on nothing is cancelled any more.
- What is staged for root is on trial then, or was passed over for what is: it goes (field case D3), but where an operator goes back.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple, Optional

from slotcore import audit as audits
from slotcore import codes, config_table, phases, probing, trial
from slotcore import product as products
from slotward import (
    audit,
    cancelling,
    effects,
    gate,
    hand,
    hooks,
    host,
    manager,
    own,
    placing,
    prepare,
    progress_file,
    trial_ids,
)


class Agreed(NamedTuple):
    """What an operator answers for: a start of a stopped unit, no waiting for windows and veto, or going back by hand."""

    start: bool = False
    force: bool = False
    back: bool = False


NOTHING_AGREED = Agreed()


def refuse_used_id(prepared: prepare.Prepared, trial_id: Optional[str]) -> None:
    """A trial is told by its id: with the last one's, that one's end would be taken for this one's (I5)."""
    last = prepared.seen.state.update.last
    if trial_id is not None and last is not None and last.trial_id == trial_id:
        raise codes.refused(
            codes.WRONG_TRIAL,
            f"{trial_id} was the trial of {last.to_version} ({last.state}): choose another id for {prepared.target.version}",
        )


def swap(
    setup: own.Setup,
    prepared: prepare.Prepared,
    descriptor: Optional[int],
    trial_id: Optional[str],
    restart: bool = True,
    agreed: Agreed = NOTHING_AGREED,
) -> trial.Trial:
    """Fill the free slot from the descriptor (None: it holds the bytes), look at it there, and begin the trial."""
    with progress_file.of(setup.product, prepared.target.version):
        return _swap(setup, prepared, descriptor, trial_id, restart, agreed)


def _kind(product: products.Product, prepared: prepare.Prepared, descriptor: Optional[int]) -> str:
    if descriptor is None or prepared.name or product.layout != products.VERSIONS:
        return prepared.kind
    from slotward import by_version

    return by_version.kind_of(descriptor)


def _swap(
    setup: own.Setup,
    prepared: prepare.Prepared,
    descriptor: Optional[int],
    trial_id: Optional[str],
    restart: bool,
    agreed: Agreed,
) -> trial.Trial:
    product, seen = setup.product, prepared.seen
    release = manager.Release(
        version=prepared.target.version,
        record=prepared.record,
        newest_issued=prepared.newest_issued,
        command="-",
        trial_id=trial_id or trial_ids.new(),
        permit=prepared.permit,
        kind=_kind(product, prepared, descriptor),
        kept=prepared.kept,
        start=agreed.start,
    )
    try:
        if prepared.adopt:
            seen = _adopt(setup, seen)
        progress_file.phase(phases.STAGE)
        seen = placing.fill_free_slot(product, seen, release, descriptor)
        if restart:  # else a start of the unit waits for this: nothing runs that probes could look at
            seen = _baseline(product, seen, release)
    except OSError as error:
        raise effects.as_retryable(error, f"write {product.name} {release.version} into its slot") from error
    seen = _last_word(product, seen, prepared.from_version, release, agreed, restart)
    with cancelling.too_late():
        progress_file.phase(phases.SWAP)
        pending = manager.begin_trial(product, seen, release, restart)
    progress_file.phase(phases.TRIAL)
    _begin_to_look(setup, restart)
    if not agreed.back:
        _drop_staged(setup)
    return pending


def _begin_to_look(setup: own.Setup, restart: bool) -> None:
    """Have whoever else has a word about the trial begin: the probes, the triggers of start mode."""
    product = setup.product
    if restart and probing.SOURCE in product.confirm_sources:
        from slotward import probe_store

        probe_store.start_watching(product)
    if setup.config.mode == config_table.START:
        from slotward import triggers

        triggers.let_speak()


def _drop_staged(setup: own.Setup) -> None:
    """A trial that has begun is not called a failure for what cannot be removed."""
    from slotward import staging

    with contextlib.suppress(OSError, codes.Refused):
        staging.tidy(setup.staging, keep=(), product=setup.product.name)


def _baseline(product: products.Product, seen: manager.Look, release: manager.Release) -> manager.Look:
    """What the probes say of the release that runs, just before the switch; the trial's length begins after that."""
    if probing.SOURCE not in product.confirm_sources:
        return seen
    from slotward import probe_store

    probe_store.take_baseline(product, release.trial_id)
    return seen._replace(clock=host.clock())


def _last_word(
    product: products.Product, seen: manager.Look, old: str, release: manager.Release, agreed: Agreed, restart: bool
) -> manager.Look:
    """What the operator and the workload say right before the switch; then the workload is let go, and the time begins."""
    if restart and not agreed.start:
        from slotward import lookahead

        lookahead.demand_not_stopped(product)
    if not agreed.back:
        gate.still_open(product, seen.state, agreed.force)
        hooks.veto(product, old, release.version, agreed.force)
    if agreed.force:
        _note_forced(product, old, release)
    hooks.drain(product, old, release.version, release.trial_id)
    if not agreed.back:
        gate.still_open(product, seen.state, forced=True)  # draining took its time: a hold may have come
    return seen._replace(clock=host.clock())


def _note_forced(product: products.Product, old: str, release: manager.Release) -> None:
    over = hand.passed_over(product)
    if over:
        audit.note(
            product,
            audits.FORCED,
            why=over,
            from_version=old,
            to_version=release.version,
            trial_id=release.trial_id,
            sequence=release.record.sequence,
            sha256=release.record.sha256,
        )


def _adopt(setup: own.Setup, seen: manager.Look) -> manager.Look:
    descriptor, record = prepare.open_program(setup.product, setup.product.entrypoint)
    try:
        with cancelling.later():
            return placing.adopt(setup.product, seen, record, descriptor)
    finally:
        os.close(descriptor)
