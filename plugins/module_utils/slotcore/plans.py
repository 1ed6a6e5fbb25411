# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans: the operations of adopt, stage, swap, confirm, going back and abandoning (DESIGN 4 and 6; node.md, section 5).

Rules:
- Bytes go into the slot that neither `good` nor `current` names; its record is cleared first and written last.
- `current` moves only after `back`, the log, the trial record and the armed timer (I4); it moves before the restart. In
  between the trial must be pending still: the guard may have ended it while this host was held up.
- The end of a trial begins with the claim (I12). Confirming raises the floor before `good` moves; the floor never falls (I3).
- Going back is one rename of a link that exists, before anything that needs space (I2), and only ever to `good`.
- Which links those are, and what restarts after them, is told in `links`.
- Once confirmed, no data is restored: what says that it was kept goes before `good` moves (products.md, section 6).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from . import codes, filling, keeping, links, ops, recording, records, trust_plans
from . import product as products
from . import settle as settles
from . import trial as trials

STAGED = "staged"
ENTRYPOINT = "entrypoint"
ADOPTED = filling.Source(ENTRYPOINT)


class End(NamedTuple):
    """How a trial ends: its code, a sentence, and when (seconds since 1970)."""

    code: str
    why: str
    at: int


def free_slot(state: settles.State) -> str:
    """The slot that may be written: neither current nor good. During a trial there is none, and asking is a bug."""
    for slot in products.SLOTS:
        if slot not in (state.current, state.good):
            return slot
    raise AssertionError(f"no slot is free: current is {state.current}, good is {state.good}")


def plan_relink(product: products.Product) -> ops.Plan:
    """Make the entrypoint a link to the program of `current`; what stood there is replaced in one rename."""
    return ops.link_durably(product.entrypoint, product.program_path("current"))


def plan_adopt(
    product: products.Product,
    state: settles.State,
    record: records.SlotRecord,
    source: filling.Source = ADOPTED,
) -> ops.Plan:
    """Take the file that starts today (or is being installed) into a slot, make it good and current, then relink.

    Not in use yet: `good` and the records come before `current`, whose existence means "in use".
    In use: the file at the entrypoint is what starts until the last step, so both links may move before it. Leftovers of
    an earlier trial go first, so that a cut between the two links is never taken for a trial whose record was lost.
    """
    slot = free_slot(state)
    floor = trust_plans.risen(product, state, record, state.slots.get(state.current or ""))
    update = state.update._replace(floor=floor)
    left = state.back or state.helper_back or state.log
    leftovers = ops.unlink_durably(product.slots_dir, *settles.TRIAL_NAMES, *links.ways_back(product)) if left else ()
    return (
        leftovers
        + filling.plan_fill(product, state, slot, record, source)
        + recording.write(product, recording.UPDATE, records.render_update(update))
        + ops.link_durably(product.path("good"), slot)
        + links.plan_starts(product, slot)
        + plan_relink(product)
    )


def plan_stage(
    product: products.Product,
    state: settles.State,
    record: records.SlotRecord,
    newest_issued: int,
    source: Optional[filling.Source] = None,
) -> ops.Plan:
    """Put verified bytes into the free slot; nothing that starts is touched."""
    slot = free_slot(state)
    update = state.update._replace(newest_issued=max(state.update.newest_issued, newest_issued))
    noted = () if update == state.update else recording.write(product, recording.UPDATE, records.render_update(update))
    return noted + filling.plan_fill(product, state, slot, record, source or filling.Source(STAGED))


def plan_swap(
    product: products.Product,
    trial: trials.Trial,
    permitted: ops.Plan = (),
    restart: bool = True,
    snapshot: bool = False,
) -> ops.Plan:
    """Start the trial of the bytes in `trial.to_slot` (the order of DESIGN 4).

    `permitted` uses the permit up that it needs: after the record that says for what, before what it allows.
    Without `restart` it is a start of the unit that waits for this plan, and that the guard has seen already: it is
    written down here, so that the guard counts from it. So is a reload, which the guard does not see. With `snapshot` the
    data is kept before the first start.
    """
    swapped_s = trial.deadline_s - trial.length_s
    log = product.path("trial.log")
    started: ops.Plan = (ops.Append(log, b"start %d\n" % swapped_s), ops.Sync(log))
    restarted: ops.Plan = (ops.Restart(),)
    return (
        links.plan_ways_back(product, trial.from_slot)
        + ops.write_durably(log, _log(product, snapshot))
        + ops.write_durably(product.path("trial"), trials.render_trial(trial))
        + permitted
        + (ops.Arm(),)
        + links.plan_starts(product, trial.to_slot)
        + (ops.Demand(product.path("trial"), trial.trial_id),)
        + links.plan_unit(product)
        + (started if product.reload or not restart else ())
        + (restarted if restart else ())
    )


def _log(product: products.Product, snapshot: bool) -> bytes:
    """What a trial's log begins with."""
    unit = trials.UNIT_DUE if product.has_unit_part else b""
    return trials.LOG_HEADER + (trials.SNAPSHOT_DUE if snapshot else b"") + unit


def _about(state: settles.State, trial: Optional[trials.Trial], slot: Optional[str]) -> records.SlotRecord:
    """What is on trial: as its record says, else as the record of `slot`, else unknown."""
    if trial is not None:
        return records.SlotRecord(trial.to_version, trial.sequence, trial.to_sha256, 0)
    return state.slots.get(slot or "", records.SlotRecord("", 0, "", 0))


def _last(trial: Optional[trials.Trial], state: str, end: End, version: str) -> records.Last:
    return records.Last(
        trial_id=trial.trial_id if trial is not None else "",
        state=state,
        code=end.code,
        why=end.why,
        from_version=trial.from_version if trial is not None else "",
        to_version=version,
        at=end.at,
    )


def _tidied(
    product: products.Product, state: settles.State, name: str, data: Optional[bytes], end: End, *others: str
) -> ops.Plan:
    """Remove the trial's record `name` and what belongs to it; a damaged record is set aside instead."""
    if not trials.is_damaged(data):
        return ops.unlink_durably(product.slots_dir, name, *others)
    kept = recording.set_aside(product, name, recording.TRIAL, end.at, state.aside)
    return kept + ops.unlink_durably(product.slots_dir, *others)


def plan_finish_confirm(
    product: products.Product, state: settles.State, trial: Optional[trials.Trial], end: End
) -> ops.Plan:
    """What follows a won confirmation: floor, `good`, then the record goes. May be carried out any number of times.

    `back` goes first: a guard that was held up in going back from an earlier trial finds nothing to move any more.
    """
    slot = trial.to_slot if trial is not None else (state.current or free_slot(state))
    about = _about(state, trial, slot)
    floor = trust_plans.floor_after(product, state, trial, about)
    update = state.update._replace(floor=floor, last=_last(trial, "confirmed", end, about.version))
    permitted = state.trust is not None and state.trust.allowed is not None
    kept = () if state.snapshot is None else (keeping.NAME,)
    return (
        ops.unlink_durably(product.slots_dir, *links.ways_back(product), *kept)
        + recording.write(product, recording.UPDATE, records.render_update(update))
        + ops.link_durably(product.path("good"), slot)
        + (trust_plans.plan_ended(product, state, update) if permitted else ())
        + _tidied(product, state, "trial.confirm", state.confirm or state.trial, end, *settles.TRIAL_NAMES)
    )


def plan_confirm(product: products.Product, state: settles.State, trial: trials.Trial, end: End) -> ops.Plan:
    """Win the end of the trial for the new release, and finish."""
    claim = (ops.Claim(product.path("trial"), product.path("trial.confirm")), ops.SyncDir(product.slots_dir))
    return claim + plan_finish_confirm(product, state, trial, end)


def _record_end(product: products.Product, state: settles.State, trial: Optional[trials.Trial], end: End) -> ops.Plan:
    about = _about(state, trial, settles.new_slot(state, trial))
    swapped = end.code != codes.NEVER_STARTED
    gathered: ops.Plan = ()
    if not swapped:
        known = state.update.last
        if trial is not None and known is not None and known.trial_id == trial.trial_id:
            return ()  # a leftover of a trial whose end is recorded already
        update = state.update._replace(last=_last(trial, "abandoned", end, about.version))
    else:
        last = _last(trial, "rolled-back", end, about.version)
        update = state.update._replace(last=last)
        gathered = (ops.Gather(last, trial, state.log),)
        if about.version:
            failure = records.Failed(about.version, end.code, end.why, about.sequence, about.sha256, end.at)
            update = records.with_failure(update, failure)
    return trust_plans.plan_ended(product, state, update, swapped) + gathered


def plan_finish_revert(
    product: products.Product, state: settles.State, trial: Optional[trials.Trial], end: End
) -> ops.Plan:
    """What follows a won going back: links, the restart that is still due, the failure's record, then the claim goes.

    With a broken record nothing is written over it (I3): the claim stays, and a repair finishes this.
    """
    moved = links.plan_return(product, state)
    if state.broken is not None:
        return moved
    moved += links.plan_owed(product, state, moved)
    record = state.revert if state.revert is not None else state.trial
    tidied = _tidied(product, state, "trial.revert", record, end, *settles.TRIAL_NAMES, *links.ways_back(product))
    return moved + _record_end(product, state, trial, end) + tidied


def plan_go_back(product: products.Product, state: settles.State, trial: Optional[trials.Trial], end: End) -> ops.Plan:
    """Win the end of the trial for the good release, and finish. With no record to claim, only finish."""
    if state.trial is None:
        return plan_finish_revert(product, state, trial, end)
    reverted = product.path("trial.revert")
    claim: ops.Plan = (ops.Claim(product.path("trial"), reverted), ops.SyncDir(product.slots_dir))
    if state.trial != settles.ODD:
        claim += (ops.Append(reverted, f"REASON={end.code}\n".encode("ascii")), ops.Sync(reverted))
    restarted = any(isinstance(operation, ops.Restart) for operation in links.plan_return(product, state))
    stays = state.current == state.good and not restarted
    by_hand = (ops.Restart(),) if stays else ()  # what was started may still be what runs
    return claim + by_hand + plan_finish_revert(product, state, trial, end)


def plan_abandon(product: products.Product, state: settles.State, trial: Optional[trials.Trial], end: End) -> ops.Plan:
    """Clear an update that never started; it may be tried again. A cut while adopting was no update: the link is set."""
    if state.trial is None:
        return ops.link_durably(product.path("current"), str(state.good))
    noted: ops.Plan = ()
    if state.broken is None:
        noted = _record_end(product, state, trial, end._replace(code=codes.NEVER_STARTED))
    return noted + _tidied(product, state, "trial", state.trial, end, *settles.TRIAL_NAMES, *links.ways_back(product))


def plan_tidy(product: products.Product, state: settles.State, names: Sequence[str]) -> ops.Plan:
    """Remove, of the `names` in the slots directory, what a cut left there."""
    found = settles.leftovers(state, names)
    return ops.unlink_durably(product.slots_dir, *found) if found else ()
