# SPDX-License-Identifier: GPL-3.0-or-later
"""What the records say of a trial, told by its id: read only, so whoever may read them may follow it.

Rules:
- Only the end of the trial says `confirmed` (I5); before that the answer is `trial`.
- A connection that ends with the switch is no error: the records are asked instead, until the trial has ended.
"""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional

from slotcore import codes, records, settle, status, trial
from slotcore import product as products
from slotward import advice, answers, clearable, host

POLL_S = 0.5
AFTER_DEADLINE_S = 60
Other = Callable[[], Optional[answers.Answer]]
"""Where else the end may be told, before there is a trial."""


def hint(name: str, pending: trial.Trial) -> str:
    """What whoever began a trial must know; it is told while the command waits, before its answer."""
    text = f"{name} {pending.to_version} is on trial for {pending.length_s} s; "
    text += f"confirm it with `slotward confirm --id {pending.trial_id} --wait 60`, or it goes back"
    return advice.named(text, name)


def begun(product: products.Product, pending: trial.Trial, state: settle.State, changed: bool = True) -> answers.Answer:
    """The answer while a release is on trial; `changed` for who has begun it."""
    answer = answers.base(product.name, "trial", codes.NOT_CONFIRMED, "on trial: not confirmed yet", changed)
    in_flight = status.trial_as_json(product, state, pending, host.clock())
    answer.update(
        {
            "from": pending.from_version,
            "to": pending.to_version,
            "sequence": pending.sequence,
            "trial": in_flight,
            "missing": in_flight["missing"],
            "from_sha256": pending.from_sha256,
            "to_sha256": pending.to_sha256,
        }
    )
    return answers.Answer(answers.DONE, answer, [hint(product.name, pending)])


def ended(product: products.Product, last: records.Last, changed: bool = True, state: str = "") -> answers.Answer:
    """The answer for a trial that has ended, by its record, or by the `state` that was seen; `changed` for who has seen it end."""
    done, state = last.state == "confirmed", state or last.state
    answer = answers.base(product.name, state, codes.OK if done else last.code, last.why, changed)
    retry = None if last.state in ("confirmed", "abandoned") else clearable.command(last.to_version)
    answer.update({"from": last.from_version, "to": last.to_version, "id": last.trial_id, "retry": retry})
    answer["evidence"] = clearable.evidence_of(last)
    lines = [f"{product.name} {last.to_version} is confirmed" if done else f"{state}: {last.why}"]
    lines += [f"to allow it again: {retry}", f"what it left: {answer['evidence']}"] if retry else []
    return answers.Answer(answers.DONE if done else answers.NOT_CONFIRMED, answer, lines)


def known(product: products.Product, trial_id: str, changed: bool = True) -> Optional[answers.Answer]:
    """What the records say of this trial now; None when they know none of this id."""
    state = host.read_state(product)
    pending = settle.decide(state, host.clock()).on_trial
    if pending is not None and pending.trial_id == trial_id:
        return begun(product, pending, state, changed)
    last = state.update.last
    return ended(product, last, changed) if last is not None and last.trial_id == trial_id else None


def to_begin(product: products.Product, trial_id: str, within_s: float, other: Other) -> Optional[answers.Answer]:
    """The first that is known of this trial, or of its request elsewhere; None when nothing is in this time."""
    until = time.monotonic() + within_s
    while True:
        found = known(product, trial_id) or other()
        if found is not None or time.monotonic() >= until:
            return found
        time.sleep(POLL_S)


def nothing() -> None:
    """Nowhere else."""
    return


def to_end(product: products.Product, trial_id: str, first: answers.Answer) -> answers.Answer:
    """The end of a trial that has begun; `first` is what was known of it last."""
    if first.json["state"] != "trial":
        return first
    for line in first.lines:
        print(answers.plain(line), file=sys.stderr, flush=True)
    until = time.monotonic() + int(first.json["trial"]["left_s"]) + AFTER_DEADLINE_S
    found = first
    while time.monotonic() < until:
        time.sleep(POLL_S)
        found = known(product, trial_id) or found
        if found.json["state"] != "trial":
            return found
    return answers.Answer(answers.NOT_CONFIRMED, found.json, found.lines)
