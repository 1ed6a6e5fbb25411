# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward update --repair`: write lost records anew from what can be proven (trust.md, section 4).

Rules:
- Everything is read anew: the bytes of the slots, the records, their copies, what was set aside, the audit log.
- What is decided is in the audit log before anything is written. Then what waited for the records is finished.
- A trial ends first: nothing is confirmed on records that nobody could read.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from slotcore import audit as audits
from slotcore import codes, proving, recording, records, relinking, repair, settle, status, trial, trust_record
from slotcore import product as products
from slotward import answers, audit, broken, build_info, effects, homeward, host, lock, looking, manager, slots

ROUNDS = 3
"""Links that are made again let more of the records be looked at, so a repair is decided anew until nothing is left."""


def _held(product: products.Product) -> Dict[str, proving.Held]:
    """What each slot holds that proves itself."""
    found = {slot: slots.held(product, slot) for slot in products.SLOTS}
    return {slot: held for slot, held in found.items() if held is not None}


def _source(name: str, record: str, data: Optional[bytes], path: str, proves: bool) -> Iterator[proving.Source]:
    if data is None:
        return
    with contextlib.suppress(codes.BrokenRecord):
        if record == recording.SLOTS:
            yield proving.Source(name, slots=records.parse_slots(data, path), proves=proves)
        else:
            yield proving.Source(name, update=records.parse_update(data, path), proves=proves)


def _sources(product: products.Product, state: settle.State) -> Iterator[proving.Source]:
    """Whatever can be read of the records: themselves, their copies, what was set aside with the newest first."""
    damaged = {damage.name for damage in state.damaged}
    for record in (recording.SLOTS, recording.UPDATE):
        if record not in damaged:
            held = {"slots": state.slots} if record == recording.SLOTS else {"update": state.update}
            yield proving.Source(record, **held)
        else:
            with contextlib.suppress(OSError, codes.BrokenRecord):
                copy = broken.read_copy(product, record)
                yield from _source(record + recording.COPY, record, copy, product.path(record), proves=True)
        for name in reversed(recording.aside_of(record, broken.aside(product))):
            with contextlib.suppress(OSError, codes.BrokenRecord):
                path = product.path(name)
                yield from _source(name, record, host.read_record(path), path, proves=False)


def readable_trusts(product: products.Product, state: settle.State) -> Iterator[trust_record.Trust]:
    """What can still be read of a lost `trust.json`."""
    if not proving.is_damaged(state, recording.TRUST):
        return
    for name in (recording.TRUST + recording.COPY, *recording.aside_of(recording.TRUST, broken.aside(product))):
        path = product.path(name)
        with contextlib.suppress(OSError, codes.BrokenRecord):
            data = host.read_record(path, records.MAX_BYTES + recording.SEAL_BYTES) or b""
            held = recording.unsealed(data) if name.endswith(recording.COPY) else data
            yield trust_record.parse(held or b"", path)


def _trials(state: settle.State) -> Iterator[trial.Trial]:
    for data in (state.confirm, state.revert, state.trial):
        found = trial.parse_revert(data)[0] if data is not None else None
        if found is not None:
            yield found


def gather(product: products.Product, state: settle.State) -> proving.Facts:
    """All that a repair decides from."""
    return proving.Facts(
        state=state,
        held=_held(product),
        sources=tuple(_sources(product, state)),
        trials=tuple(_trials(state)),
        audit=audit.facts(product),
        trusts=tuple(readable_trusts(product, state)),
        trust_there=any(name.startswith(recording.TRUST) for name in (*host.names(product), *broken.aside(product))),
    )


def _refuse_trial(product: products.Product, seen: manager.Look) -> None:
    pending = seen.settlement.on_trial
    if pending is not None:
        damage = homeward.problem(product, seen.state, pending)
        run = f"end it first (`slotward rollback --id {pending.trial_id}`)"
        left = settle.left_s(pending, seen.clock)
        raise codes.Retryable(
            codes.TRIAL_PENDING,
            f"trial {pending.trial_id} of {pending.to_version} is pending, {left} s left: "
            f"{homeward.instead(pending, damage) if damage else run}",
        )


def _apply(product: products.Product, state: settle.State, found: repair.Repair) -> None:
    floor = found.update.floor if found.update is not None else state.update.floor
    audit.note(product, audits.REPAIRED, why="; ".join(found.done), sequence=floor)
    standing = [damage.name for damage in state.damaged if os.path.lexists(product.path(damage.name))]
    plan = repair.plan_repair(product, state, found, int(time.time()), standing)
    try:
        for slot in found.kept:
            slots.keep(product, slot)
        effects.executor_for(product, {}).apply(plan, "repair")
    except OSError as error:
        raise effects.as_retryable(error, f"repair the records of {product.name}") from error


def _locked(
    product: products.Product, floor: Optional[int], moves: bool
) -> Tuple[List[str], Union[repair.Repair, repair.Unproven]]:
    """Settle and repair until nothing changes any more; what was mended, and what the last decision was."""
    done: List[str] = []
    found: Union[repair.Repair, repair.Unproven] = repair.Repair()
    for _round in range(ROUNDS):
        seen, settled = manager.settle_now(product)
        if settled not in ("nothing", "tidy"):
            done.append(f"settled: {settled}")
        _refuse_trial(product, seen)
        found = repair.decide(product, gather(product, seen.state), floor, moves)
        if isinstance(found, repair.Unproven) or not found.changes:
            break
        _apply(product, seen.state, found)
        if moves and found.current is not None:
            effects.restart(effects.units_of(product), respect_stop=True)  # what runs still has the damaged slot open
        done += found.done
        floor = floor if found.update is None else None  # it was used; what is finished now may raise it further
    return done, found


def _unproven(product: products.Product, found: repair.Unproven, done: List[str]) -> answers.Answer:
    command = looking.REPAIR if found.least is None else f"{looking.REPAIR} --floor {found.least}"
    text = found.text if found.least is None else f"{found.text}: `{command}`"
    refused = answers.of_error(product.name, codes.refused(codes.FLOOR_UNPROVEN, text))
    known = dict(found.known._asdict(), lowest=found.known.lowest)
    refused.json.update(changed=bool(done), repaired=done, left=[], known=known, retry=command)
    return refused._replace(lines=[*(f"repaired: {each}" for each in done), *refused.lines])


def run(product: products.Product, floor: Optional[int], moves: bool = False) -> answers.Answer:
    """Repair, or say what it would take; `moves`: also leave a damaged slot for the other one."""
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "a repair changes root's records: run it as root")
    with lock.held(product, "update --repair"):
        done, found = _locked(product, floor, moves)
        if isinstance(found, repair.Unproven):
            audit.note(product, audits.REFUSED, code=codes.FLOOR_UNPROVEN, why=found.text)
            return _unproven(product, found, done)
        state = host.read_state(product)
    return _answer(product, state, done, list(found.left))


def _for_product(product: products.Product, text: str) -> str:
    """The sentence with commands that can be typed; only the agent's own file sets itself up."""
    text = text.replace("update --repair --slots", f"`{looking.REPAIR} --slots`")
    if product.name == build_info.NAME:
        return text
    return text.replace(relinking.REINSTALL, f"slotward --product {product.name} setup --from FILE --manifest MANIFEST")


def _answer(product: products.Product, state: settle.State, done: List[str], found: Sequence[str]) -> answers.Answer:
    """What was mended and what is left: while updates are refused for it, that is no success."""
    left = [_for_product(product, each) for each in found]
    answer: Dict[str, Any] = answers.base(product.name, "idle", changed=bool(done))
    answer.update(repaired=done, left=left, floor=status.floor_of(product, state))
    lines = [f"repaired: {each}" for each in done] + [f"left: {each}" for each in left]
    if state.broken is None and not (left and None in (state.current, state.good)):
        return answers.Answer(answers.DONE, answer, lines or ["nothing to repair: records, slots and links are sound"])
    if state.broken is None:
        answer.update(code=codes.RECORD_BROKEN, message=left[0])
        return answers.Answer(answers.BROKEN, answer, lines)
    answer.update(state="refused", code=codes.RECORD_BROKEN, message=f"{state.broken[0]}: {state.broken[1]}")
    lines.append(f"still broken: {answer['message']}; updates are refused")
    return answers.Answer(answers.BROKEN, answer, lines)
