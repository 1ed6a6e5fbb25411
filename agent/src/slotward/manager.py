# SPDX-License-Identifier: GPL-3.0-or-later
"""The one orchestrator: read the state, ask `slotcore`, carry out the plan, record.

Rules:
- Only who holds the lock changes a slots directory, and every change begins by settling what is in flight.
- A swap ends with the restart; success is said only by confirm (I5).
- What was written before a failed switch is undone; a failed check of the bytes is remembered (field case L3).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Optional, Tuple

from slotcore import codes, keeping, ops, outcome, plans, records, settle, trial, trust_plans, trust_record
from slotcore import product as products
from slotward import audit, effects, host, progress_file, remains

if TYPE_CHECKING:
    from slotcore import listings

SETTLE_ROUNDS = 3
REASON_WAIT_S = 1.0
RELOAD_WAIT_S = 5.0


class Look(NamedTuple):
    """One look: the state, this boot's clock, and what is to be done about an update in flight."""

    state: settle.State
    clock: settle.Clock
    settlement: settle.Settlement


class Release(NamedTuple):
    """A verified release that is to go on trial."""

    version: str
    record: records.SlotRecord
    newest_issued: int
    command: str
    trial_id: str
    permit: Optional[trust_record.Allowed] = None
    """What lets it below the floor, when it needs that."""
    kind: str = ops.BINARY
    kept: Optional[listings.Listing] = None
    """The listing of the tree that holds its bytes already."""
    start: bool = False
    """A stopped unit is started, also where going forward is a reload."""


def look(product: products.Product) -> Look:
    """Read everything once and decide; changes nothing."""
    state, clock = host.read_state(product), host.clock()
    return Look(state, clock, settle.decide(state, clock))


def version_on_trial(seen: Look) -> str:
    """The version that an update in flight is about, from its record or its slot's; "" when nobody knows."""
    if seen.settlement.trial is not None:
        return seen.settlement.trial.to_version
    entry = seen.state.slots.get(settle.new_slot(seen.state, None) or "")
    return entry.version if entry is not None else ""


def end_of(product: products.Product, seen: Look, code: str, why: str = "") -> plans.End:
    """How this trial ends, with the sentence that is remembered."""
    said = records.fitting(why).strip() or outcome.why(product.name, version_on_trial(seen), code)
    said += keeping.left_behind(product, seen.state, seen.settlement.trial, code)
    return plans.End(code, said, int(time.time()))


def settling_plan(product: products.Product, seen: Look) -> Tuple[str, ops.Plan]:
    """What settling would carry out now, and its name; empty when there is nothing to do."""
    action, reason, pending = seen.settlement
    end = end_of(product, seen, reason)
    if action in (settle.Action.GO_BACK, settle.Action.FAILED):
        return "go-back", plans.plan_go_back(product, seen.state, pending, end)
    if action is settle.Action.ABANDONED:
        return "abandon", plans.plan_abandon(product, seen.state, pending, end)
    if action is settle.Action.FINISH_REVERT:
        return "finish-revert", plans.plan_finish_revert(product, seen.state, pending, end)
    if action is settle.Action.FINISH_CONFIRM and seen.state.broken is None:
        return "finish-confirm", plans.plan_finish_confirm(product, seen.state, pending, end)
    return "nothing", ()


def _look_with_reason(product: products.Product) -> Look:
    """As `look`; a guard that has just won the end is given a moment to write down why, before anybody tidies up.

    Longer while it waits for systemd to read unit files: what it has asked for is not asked for again.
    """
    begun = time.monotonic()
    while True:
        seen = look(product)
        unexplained = seen.settlement[:2] == (settle.Action.FINISH_REVERT, codes.DID_NOT_START)
        reads = seen.settlement.action is settle.Action.FINISH_REVERT and trial.is_unread(seen.state.log)
        if time.monotonic() - begun >= (RELOAD_WAIT_S if reads else REASON_WAIT_S if unexplained else 0):
            return seen
        time.sleep(REASON_WAIT_S / 50)


def note_settled(product: products.Product, seen: Look, again: bool = False) -> None:
    """Have the audit log say what the records say: a trial that was switched to, the end of the last one."""
    pending, last = seen.settlement.on_trial, seen.state.update.last
    if pending is None and seen.settlement.action is not settle.Action.NONE:
        return
    audit.settled(product, seen.state, pending, again)
    if pending is None and last is not None and not again:
        progress_file.ended(product, last)


def _restore(product: products.Product, seen: Look) -> bool:
    from slotward import broken

    return broken.restore(product, seen.state)


def _follow(product: products.Product, seen: Look) -> bool:
    if not product.helper_unit and seen.state.trial is None:
        return False
    from slotward import following

    return following.follow(product, seen.state)


def settle_now(product: products.Product) -> Tuple[Look, str]:
    """Restore what is broken, finish or undo what is in flight (the lock must be held); the state afterwards, what was done.

    The guard needs no lock: when it claims the end or moves the links first, what it decided is finished instead.
    """
    for rounds_left in reversed(range(SETTLE_ROUNDS)):
        seen = _look_with_reason(product)
        restored = bool(seen.state.damaged) and _restore(product, seen)
        seen = look(product) if restored else seen
        name, plan = settling_plan(product, seen)
        try:
            effects.executor_for(product, {}, respect_stop=True).apply(plan, name)
            seen = look(product) if plan else seen
            followed = _follow(product, seen)
            seen = look(product) if followed else seen
            if followed and rounds_left and settle.is_behind(product, seen.state):
                continue  # the guard went back meanwhile
            tidy = plans.plan_tidy(product, seen.state, remains.names(product))
            tidy += trust_plans.plan_catch_up(product, seen.state)
            effects.executor_for(product, {}).apply(tidy, "tidy")
            _swept(product, seen)
            note_settled(product, seen, again=not plan)
            quietly = "restore" if restored else "follow" if followed else "tidy" if tidy else name
            return seen, name if plan else quietly
        except codes.Refused as error:
            if error.code != codes.TRIAL_OVER or not rounds_left:
                raise
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not rounds_left:
                raise effects.as_retryable(error, f"finish the update in flight of {product.name}") from error
    raise AssertionError("unreachable: the last round returns or raises")


def _swept(product: products.Product, seen: Look) -> None:
    """Remove the trees that nobody needs any more."""
    if product.layout == products.VERSIONS:
        from slotward import sweeping

        sweeping.sweep(product, seen.state)


def _trial_of(product: products.Product, seen: Look, release: Release) -> trial.Trial:
    old = seen.state.current or products.SLOTS[0]
    known = seen.state.slots.get(old)
    return trial.Trial(
        trial_id=release.trial_id,
        product=product.name,
        from_version=known.version if known is not None else "unknown",
        to_version=release.version,
        from_slot=old,
        to_slot=plans.free_slot(seen.state),
        sequence=release.record.sequence,
        boot_id=seen.clock.boot_id,
        length_s=product.trial_length_s,
        deadline_s=seen.clock.uptime_s + product.trial_length_s,
        boots_left=product.max_boots,
        command=release.command,
        from_sha256=known.sha256 if known is not None else "0" * 64,
        to_sha256=release.record.sha256,
    )


def begin_trial(product: products.Product, seen: Look, release: Release, restart: bool = True) -> trial.Trial:
    """Arm the watchdog, switch, restart (the lock must be held). Undoes what was written when it cannot switch.

    That it was accepted is on disk before anything else is; that it was switched, while the old process still runs: so
    nobody waits for the disk while the daemon is down. Without `restart` a start of the unit is waiting for this.
    """
    pending = _trial_of(product, seen, release)
    audit.accepted(product, pending)
    reason = keeping.one_way(product, seen.state, release.record, pending.from_version)
    if reason is not None:
        audit.one_way(product, pending, reason.text)
    if release.permit is not None:
        audit.permitted(product, pending, release.permit.permit_id)
    try:
        permitted = trust_plans.plan_permitted(product, seen.state, release.permit, int(time.time()))
        keeps = keeping.is_kept(product, keeping.epoch(seen.state), release.record.epoch)
        reloads = product.reload and not (keeps or product.has_unit_part)  # neither comes with a reload
        forward = effects.Forward(lambda: audit.swapped(product, pending), reloads, release.start)
        switched = effects.executor_for(product, {}, forward=forward)
        switched.apply(plans.plan_swap(product, pending, permitted, restart, keeps), "swap")
    except (OSError, codes.Refused, codes.Retryable) as error:
        from slotward import undoing

        undoing.undo(product, pending, error)
        if isinstance(error, OSError):
            raise effects.as_retryable(error, f"switch {product.name} to {release.version}") from error
        raise
    if not restart:
        audit.swapped(product, pending)
    return pending


def _from(seen: Look) -> str:
    pending = seen.settlement.trial
    return pending.from_version if pending is not None else "good"


def go_back(product: products.Product, seen: Look, why: str, code: str = codes.OPERATOR) -> None:
    """End the pending trial for the good release at an operator's word, or at the release's own (the lock must be held)."""
    end = end_of(product, seen, code, why)
    plan = plans.plan_go_back(product, seen.state, seen.settlement.trial, end)
    try:
        effects.executor_for(product, {}, respect_stop=True).apply(plan, "go-back")
    except FileNotFoundError:
        settle_now(product)  # a tick of the guard moved the links between our claim and our rename
    except OSError as error:
        raise effects.as_retryable(error, f"finish going back to {product.name} {_from(seen)}") from error
    note_settled(product, look(product))


def note_source(product: products.Product, seen: Look, source: str) -> Look:
    """Write down that `source` has confirmed the pending trial (the lock must be held)."""
    pending = seen.settlement.trial
    if pending is None:
        return seen
    line = f"{pending.trial_id} {source}\n".encode("ascii")
    if line not in seen.state.sources:
        plan = ops.write_durably(product.path("trial.sources"), seen.state.sources + line)
        effects.executor_for(product, {}).apply(plan, "note-source")
    return look(product)


def confirm(product: products.Product, seen: Look) -> None:
    """Win the trial for the new release (the lock must be held); raises Refused `trial-over` when the guard was first."""
    pending = seen.settlement.on_trial
    if pending is None:
        raise codes.refused(codes.TRIAL_OVER, "the trial has ended already: somebody else decided it first")
    if seen.state.broken is not None:
        raise codes.BrokenRecord(*seen.state.broken)
    end = end_of(product, seen, codes.OK)
    try:
        effects.executor_for(product, {}).apply(plans.plan_confirm(product, seen.state, pending, end), "confirm")
    except OSError as error:
        raise effects.as_retryable(error, f"finish the confirmation of {product.name} {pending.to_version}") from error
    after = look(product)
    note_settled(product, after)
    _swept(product, after)


def apply(product: products.Product, plan: ops.Plan, name: str) -> None:
    """Carry out a plan that needs no source (the lock must be held)."""
    effects.executor_for(product, {}).apply(plan, name)
