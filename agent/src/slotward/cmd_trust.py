# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward trust`: whom this host trusts, and taking key sets and withdrawals (trust.md, section 2).

Rules:
- All documents of one command are judged before anything is written; one refusal refuses all of them.
- What changes the keys is in the audit log before it is in force.
- No trial may be pending: what it was let in by must not change under it.
- The same again changes nothing and says so (I9); a chain that begins before what is in use is taken from there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from slotcore import audit as audits
from slotcore import codes, plans, recording, settle, standing, trust, trust_plans, trust_record
from slotcore import product as products
from slotward import answers, audit, effects, gate, host, lock, looking, manager, own, prepare

if TYPE_CHECKING:
    import argparse

EVENTS = {trust.KEYS_CHANGED: audits.KEYS_CHANGED, trust.WITHDRAWN: audits.WITHDRAWN}


def run(args: argparse.Namespace) -> answers.Answer:
    """Show, or apply."""
    setup = own.asked(args)
    if not args.words:
        return _show(setup)
    if args.words[0] != "apply" or len(args.words) < 2:
        missing = "no FILE to apply is given" if args.words[0] == "apply" else f"{args.words[0]!r} is not apply"
        text = f"{missing}; usage: slotward trust [apply FILE ...]"
        return answers.usage(setup.product.name, text)
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "whom this host trusts is in root's records: run it as root")
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    given = [(path, prepare.read_document(path)) for path in args.words[1:]]
    if args.check:
        return _check(setup, given, args.server_time or 0)
    with audit.refusals(setup.product), lock.held(setup.product, "trust apply"):
        return _apply(setup, given, args.server_time or 0)


def _steps(
    setup: own.Setup, state: settle.State, given: Sequence[Tuple[str, bytes]], server_s: int, least: int
) -> Tuple[trust.Step, ...]:
    """What the documents do to the record of this host; raises the first refusal."""
    facts = gate.documents_facts(setup, state, server_s)
    found = trust.apply(facts, state.trust or trust_record.Trust(), given)
    if isinstance(found, codes.Refusal):
        raise codes.Refused(found)
    keys = found[-1].trust.keys
    if least and (keys is None or keys.sequence < least):
        ends = f"key set {keys.sequence}" if keys is not None else "no key set"
        raise codes.refused(
            codes.KEYS_NOT_NEWER,
            f"the record of whom this host trusts is lost: give the whole chain of key sets, from the configuration's pins "
            f"to {least} at least, which was in use here; this one ends at {ends}",
        )
    return found


def _begun_anew(product: products.Product, seen: manager.Look) -> Tuple[manager.Look, int]:
    """For a lost record of trust, and nothing else broken: the look to judge a chain from its beginning by.

    With it the key set that the chain must reach; 0: the record is there, and what it says is where a chain goes on.
    """
    state = seen.state
    if {damage.name for damage in state.damaged} != {recording.TRUST} or state.good is None:
        return seen, 0
    from slotcore import proving
    from slotward import cmd_repair

    facts = cmd_repair.gather(product, state)
    anew = state._replace(trust=proving.remembered(facts), trust_known=True, broken=None, damaged=())
    return seen._replace(state=anew), max(1, proving.least_keys(facts))


def _check(setup: own.Setup, given: Sequence[Tuple[str, bytes]], server_s: int) -> answers.Answer:
    seen, least = _begun_anew(setup.product, manager.look(setup.product))
    prepare.quiet(setup.product, seen)
    steps = _steps(setup, seen.state, given, server_s, least)
    return _answer(setup, given, steps, would=True, again=_again(setup.product, seen, steps, least))


def _again(product: products.Product, seen: manager.Look, steps: Sequence[trust.Step], least: int) -> str:
    """The version in the other slot that must prove itself anew; "" when there is none."""
    free = plans.free_slot(seen.state)
    changes = any(step.event for step in steps)
    if not changes or not trust_plans.clears(product, seen.state, free, steps[-1].trust, bool(least)):
        return ""
    return seen.state.slots[free].version


def _apply(setup: own.Setup, given: Sequence[Tuple[str, bytes]], server_s: int) -> answers.Answer:
    product = setup.product
    seen, least = _begun_anew(product, manager.settle_now(product)[0])
    prepare.quiet(product, seen)
    steps = _steps(setup, seen.state, given, server_s, least)
    again = _again(product, seen, steps, least)
    changing = [step for step in steps if step.event]
    _note(product, changing, trust.KEYS_CHANGED)
    if changing:
        free = plans.free_slot(seen.state)
        plan = trust_plans.plan_apply(product, seen.state, free, steps[-1].trust, all_anew=bool(least))
        try:
            effects.executor_for(product, {}).apply(plan, "trust")
        except OSError as error:
            raise effects.as_retryable(error, f"write down whom {product.name} trusts") from error
    _note(product, changing, trust.WITHDRAWN)
    return _answer(setup, given, steps, would=False, again=again)


def take(product: products.Product, state: settle.State, step: trust.Step) -> None:
    """Keep what a notice beside a release says (the lock must be held)."""
    free = plans.free_slot(state)
    try:
        effects.executor_for(product, {}).apply(trust_plans.plan_apply(product, state, free, step.trust), "trust")
    except OSError as error:
        raise effects.as_retryable(error, f"write down what of {product.name} was withdrawn") from error
    _note(product, [step], trust.WITHDRAWN)


def _note(product: products.Product, steps: Sequence[trust.Step], event: str) -> None:
    for step in steps:
        if step.event == event:
            audit.note(product, EVENTS[event], why=step.text, to_version=step.version, sequence=step.sequence)


def _answer(
    setup: own.Setup, given: Sequence[Tuple[str, bytes]], steps: Sequence[trust.Step], would: bool, again: str
) -> answers.Answer:
    changed = any(step.event for step in steps)
    answer = answers.base(setup.product.name, "idle", changed=changed)
    answer["applied"] = [
        {"file": path, "changed": bool(step.event), "event": step.event, "sequence": step.sequence, "text": step.text}
        for (path, _data), step in zip(given, steps)
    ]
    lines = [
        f"{'would take ' if would and step.event else ''}{path}: {step.text}"
        for (path, _data), step in zip(given, steps)
    ]
    answer["verify_again"] = again
    if again:
        lines.append(f"the other slot ({again}) {'would have to' if would else 'must'} be fetched and verified again")
    shown, more = _shown(setup, told=[(step.version, step.sequence) for step in steps])
    answer.update(shown)
    return answers.Answer(answers.DONE, answer, lines + ([] if would else more))


def _show(setup: own.Setup) -> answers.Answer:
    shown, lines = _shown(setup)
    answer = answers.base(setup.product.name, "idle")
    answer.update(shown)
    if answer["broken"] is None:
        return answers.Answer(answers.DONE, answer, lines)
    answer.update(
        state="refused", code=codes.RECORD_BROKEN, message=f"{answer['broken']['file']}: {answer['broken']['why']}"
    )
    return answers.Answer(answers.BROKEN, answer, [*lines, f"broken: {answer['message']}; updates are refused"])


def _shown(setup: own.Setup, told: Sequence[Tuple[str, int]] = ()) -> Tuple[Dict[str, Any], List[str]]:
    """The record as values and as lines; without lines for the withdrawals that were told just before."""
    state = host.read_state(setup.product)
    seen = looking.look(setup, state)
    record = state.trust or trust_record.Trust()
    shown = {name: seen[name] for name in ("trust", "warnings", "floor", "broken")}
    shown["generation"] = record.generation
    shown["withdrawals"] = [entry._asdict() for entry in record.withdrawn]
    shown["permits"] = [entry._asdict() for entry in record.permits]
    shown["allowed"] = record.allowed._asdict() if record.allowed is not None else None
    return shown, [*_about_keys(standing.in_force(setup.product, state), seen), *_about_the_rest(record, seen, told)]


def _about_keys(trusted: standing.InForce, seen: Dict[str, Any]) -> List[str]:
    if trusted.source == "unknown":
        return ["nobody: the record of whom this host trusts is lost, and no pins of the configuration stand in for it"]
    if trusted.source == "configuration":
        lines = [f"trusts {len(trusted.pins)} keys of the configuration, of which {trusted.threshold} must sign"]
        if not trusted.pins:
            lines = ["trusts nobody: no release keys are pinned ([update] release_pins)"]
    else:
        from slotcore import rfc3339

        when = rfc3339.render(trusted.expires_at)
        text = (
            f"trusts the {len(trusted.pins)} keys of key set {trusted.sequence}, of which {trusted.threshold} must sign"
        )
        lines = [f"{text}, until {when}; the configuration's pins do not count"]
    return lines + [f"  {pin}" for pin in trusted.pins] + [f"{one['level']}: {one['text']}" for one in seen["warnings"]]


def _about_the_rest(record: trust_record.Trust, seen: Dict[str, Any], told: Sequence[Tuple[str, int]]) -> List[str]:
    lines = []
    for entry in record.withdrawn:
        runs = bool(seen["trust"]["withdrawn"]) and _runs(seen, entry)
        if (entry.version, entry.sequence) not in told:
            lines.append(
                f"withdrawn: {entry.version}, sequence {entry.sequence}: {entry.why}" + " (this host runs it)" * runs
            )
        elif runs:
            lines.append(f"this host runs {entry.version}")
    lines += [f"used permit: {entry.permit_id}" for entry in record.permits]
    if record.allowed is not None:
        lines.append(f"on trial by permit {record.allowed.permit_id}: {record.allowed.version}")
    return [*lines, f"this host is {seen['trust']['machine_id'] or 'without a machine id, so no permit can name it'}"]


def _runs(seen: Dict[str, Any], entry: trust_record.Withdrawn) -> bool:
    return (entry.version, entry.sequence) == (seen["version"], seen["sequence"])
