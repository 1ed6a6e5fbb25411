# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's look at what the slots directory keeps besides records: the other slot, leftovers, evidence, the lock.

Rules:
- A slot is read to its end: its bytes are what is asked about, not its record (I1).
- What keeps neither updates nor going back from working is a warning.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import Any, Dict, List

from slotcore import product as products
from slotcore import settle
from slotward import clearable, evidence_file, host, lock_owner, own, slots, staging
from slotward import doctor_states as states

Answer = Dict[str, Any]
Found = states.Finding
LONG_S = 3600
"""Whoever changes something for so long hangs, or fetches over a very slow line."""


def findings(setup: own.Setup, state: settle.State, answer: Answer) -> List[Found]:
    """What there is to say of all this; changes nothing."""
    product = setup.product
    return [*_other(product, state), *_leftovers(product, state), *_evidence(product, answer), *_lock(product, answer)]


def _other(product: products.Product, state: settle.State) -> List[Found]:
    """The slot that does not start: in a trial it is the one to go back to, else the one that the next release takes."""
    if not state.in_use or state.broken is not None or state.current is None:
        return []
    other = products.other_slot(state.current)
    entry = state.slots.get(other)
    problem = slots.problem(product, other, entry) if entry is not None else ""
    exposed = slots.exposed(product, other) if entry is not None else None
    in_trial = state.good == other
    if exposed is not None and (not problem or problem.endswith(slots.NOT_EXECUTABLE)):
        return [Found("other slot", "fail" if in_trial else "warn", *exposed, states.OTHER_SLOT_DAMAGED)]
    if not problem:
        return []
    if in_trial:
        text = f"{problem}: the trial that is pending could not go back to it"
        run = "slotward confirm --pending --wait 60 when the new release is well"
        if product.layout == products.AB:
            run += (
                f"; else put the good one's own file back: install -m {staging.PUBLIC:04o} FILE {product.path(other)}"
            )
        return [Found("other slot", "fail", text, run, states.OTHER_SLOT_DAMAGED)]
    text = f"{problem}: nothing could go back to it by hand; the next upgrade fills it anew"
    return [Found("other slot", "warn", text, "slotward update --repair", states.OTHER_SLOT_DAMAGED)]


def _leftovers(product: products.Product, state: settle.State) -> List[Found]:
    left = settle.leftovers(state, host.names(product))
    if not left:
        return []
    text = f"an update that was cut short has left {', '.join(sorted(left)[:5])} in {product.slots_dir}"
    return [Found("leftovers", "warn", text, "slotward settle", states.LEFTOVERS)]


def _evidence(product: products.Product, answer: Answer) -> List[Found]:
    kept, odd = evidence_file.kept(product)
    found = [_odd(one) for one in odd]
    last = answer["last"]
    if not answer["evidence"] or last is None or odd:
        return found
    if any(one["id"] == last["id"] for one in kept):
        text = f"of {last['to']}, which failed last, is kept: {clearable.evidence(last['id'])}"
        return [Found("evidence", "ok", text)]
    text = f"of {last['to']}, which failed last, nothing is kept"
    return [Found("evidence", "warn", text, "slotward evidence --gather", states.EVIDENCE_MISSING)]


def _odd(text: str) -> Found:
    path = shlex.quote(text.partition(": ")[0])  # of one file where it is one: what is well beside it stays
    return Found("evidence", "warn", f"not readable: {text}", f"ls -la {path}, then rm -r {path}", states.EVIDENCE_ODD)


def _lock(product: products.Product, answer: Answer) -> List[Found]:
    path, held = product.path("lock"), answer["lock"]
    try:
        found = os.lstat(path)
    except OSError:
        return []
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        text = f"{path} is no plain file of its own: every command that changes something fails"
        return [Found("lock", "fail", text, f"rm -r {path}", states.LOCK_ODD)]
    if held is None or (held["pid"] and held["age_s"] < LONG_S and not held["what"].endswith(lock_owner.FOREIGN)):
        return []
    who = f"process {held['pid']} for {held['age_s']} s: " if held["pid"] else ""
    text = f"{path} is held by {who}{held['what']}; every other command is told `in-progress`"
    look = f"ps -fp {held['pid']}" if held["pid"] else f"lslocks -o PID,COMMAND,PATH | grep {path}"
    return [Found("lock", "warn", text, f"{look}; end that process if it hangs", states.LOCK_HELD)]
