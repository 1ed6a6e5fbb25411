# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring bytes into the free slot: of the program that starts today, or of a release that was staged (the lock is held).

Rules:
- The bytes come from an open descriptor, and are compared with their record while they are copied or unpacked.
- A tree that holds the very bytes and proves it is used again; one that does not is never replaced under what runs.
- What is refused once it lies there is remembered, so that nobody fetches it again (field cases L1, L3).
"""

from __future__ import annotations

import time
from typing import Optional

from slotcore import audit as audits
from slotcore import codes, filling, listings, ops, plans, recording, records, settle
from slotcore import product as products
from slotward import audit, clearable, effects, host, manager


def tree_of(product: products.Product, state: settle.State, record: records.SlotRecord) -> Optional[listings.Listing]:
    """The tree that holds a program's bytes already; raises a refusal where there cannot be one."""
    if product.layout != products.VERSIONS:
        return None
    from slotward import trees

    trees.demand_name(record.version)
    kept = trees.kept(product, record)
    if kept is None:
        trees.demand_free(product, state, record.version)
    return kept


def is_archive(path: str) -> bool:
    """Whether a file begins as a compressed archive does."""
    with open(host.open_named(path), "rb") as file:
        return filling.kind_by(file.read(filling.HEAD)) == ops.ARCHIVE


def adopt(
    product: products.Product,
    seen: manager.Look,
    record: records.SlotRecord,
    descriptor: int,
    event: str = audits.ADOPTED,
) -> manager.Look:
    """Take the file that starts today, or is being installed, into a slot (the lock must be held)."""
    kept = tree_of(product, seen.state, record)
    kind = (
        "" if event == audits.INSTALLED else ops.BINARY
    )  # what starts today is a program; what is brought may be packed
    plan = plans.plan_adopt(product, seen.state, record, filling.Source(plans.ENTRYPOINT, kind, kept))
    effects.executor_for(product, {plans.ENTRYPOINT: descriptor}).apply(plan, "adopt")
    before = seen.state.slots.get(seen.state.current or "")
    audit.note(
        product,
        event,
        from_version=before.version if before is not None else "",
        to_version=record.version,
        sequence=record.sequence,
        sha256=record.sha256,
    )
    return manager.look(product)


def remember_failure(product: products.Product, release: manager.Release, refusal: codes.Refusal) -> None:
    """Remember bytes that were refused after staging, so that nobody fetches them again (field cases L1, L3)."""
    state = host.read_state(product)
    if state.broken is not None:
        return
    entry = release.record
    failure = records.Failed(
        release.version, refusal.code, records.fitting(refusal.text), entry.sequence, entry.sha256, int(time.time())
    )
    update = records.with_failure(state.update, failure)
    plan = recording.write(product, recording.UPDATE, records.render_update(update))
    effects.executor_for(product, {}).apply(plan, "remember")


def fill_free_slot(
    product: products.Product, seen: manager.Look, release: manager.Release, descriptor: Optional[int]
) -> manager.Look:
    """Put the staged bytes into the free slot (none: the slot holds them, or a tree does) and look at them there."""
    try:
        if descriptor is not None or release.kept is not None:
            kept = release.kept if descriptor is None else tree_of(product, seen.state, release.record)
            source = filling.Source(plans.STAGED, release.kind, kept)
            plan = plans.plan_stage(product, seen.state, release.record, release.newest_issued, source)
            sources = {} if descriptor is None else {plans.STAGED: descriptor}
            effects.executor_for(product, sources).apply(plan, "stage")
        slot = product.program_path(plans.free_slot(seen.state))
        effects.executor_for(product, {}).apply((ops.Check(slot, release.version),), "check")
    except codes.Refused as error:
        if error.code in clearable.REMEMBERED:
            remember_failure(product, release, error.refusal)
        raise
    return manager.look(product)
