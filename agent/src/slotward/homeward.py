# SPDX-License-Identifier: GPL-3.0-or-later
"""Before and after an operator ends a trial: does the slot to go back to prove itself, and was the end written down?

Rules:
- Nobody is sent back to bytes that are not those that were verified: the new release runs, the old one would not.
- Whoever insists is let through. The guard, a deadline and the release itself ask nobody: they end a trial as ever (I2).
- What has gone back has, also where a broken record keeps the failure from being written.
"""

from __future__ import annotations

from slotcore import codes, records, settle, trial
from slotcore import product as products
from slotward import answers, looking, slots

UNKNOWN = "0" * 64
FORCE = "slotward rollback --force"


def problem(product: products.Product, state: settle.State, pending: trial.Trial) -> str:
    """What is wrong with the slot that going back leads to; "" when it proves itself, or nobody knows what it held."""
    entry = state.slots.get(pending.from_slot)
    if entry is None and pending.from_sha256 != UNKNOWN:
        entry = records.SlotRecord(pending.from_version, 0, pending.from_sha256, 0)
    return slots.problem(product, pending.from_slot, entry) if entry is not None else ""


def instead(pending: trial.Trial, what: str) -> str:
    """What there is to do about a trial that cannot go back to anything sound."""
    return (
        f"going back would lead to nothing sound: {what}; when {pending.to_version} is well, confirm it "
        f"(`slotward confirm --id {pending.trial_id} --wait 60`); `{FORCE}` goes back all the same, as the trial's deadline does"
    )


def demand(product: products.Product, state: settle.State, pending: trial.Trial) -> None:
    """Raise Refused `digest-mismatch` where the slot to go back to does not prove itself."""
    what = problem(product, state, pending)
    if what:
        raise codes.refused(codes.DIGEST_MISMATCH, instead(pending, what))


def unwritten(product: products.Product, state: settle.State, pending: trial.Trial, runs: bool) -> answers.Answer:
    """The answer after going back with a record that is broken: it has gone back, and the end is still to be written."""
    file, why = state.broken or (product.path("update.json"), "the failure that was just written is not in it")
    now = "rolled-back" if runs else "rollback-failed"
    said = (
        f"{product.name} went back from {pending.to_version} to {pending.from_version}; that it failed is not written yet, "
        f"{file}: {why}: `{looking.REPAIR}` does it"
    )
    answer = answers.base(product.name, now, codes.RECORD_BROKEN, said, changed=True)
    answer.update({"from": pending.from_version, "to": pending.to_version})
    return answers.Answer(answers.BROKEN, answer, [f"{now} ({codes.RECORD_BROKEN}): {said}"])
