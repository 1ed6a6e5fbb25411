# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward confirm` and `slotward rollback`: the two ends of a trial at somebody's word."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from slotcore import codes, proof, records, settle, status, trial
from slotcore import product as products
from slotward import (
    answers,
    asking,
    audit,
    cmd_settle,
    effects,
    following,
    host,
    lock,
    manager,
    own,
    process,
    telling,
)

if TYPE_CHECKING:
    import argparse

POLL_S = 0.1
BUSY_S = 10.0
UNDER_WAY_S = 45.0
FORGOTTEN_S = 1.0


def run(args: argparse.Namespace) -> answers.Answer:
    """Dispatch to confirm or rollback."""
    if os.geteuid() != 0:
        from slotward import unprivileged

        return unprivileged.run(args, f"{args.command} changes root's records: run it as root")
    if args.command == "rollback" and args.to and args.force:
        return answers.usage(args.product, "--force goes without --to")
    if args.command == "rollback" and args.to:
        from slotward import cmd_back

        return cmd_back.run(args)
    if args.command == "rollback" and (args.check or args.start or args.no_wait or args.accept_one_way):
        text = "--check, --start, --no-wait and --accept-one-way go with --to"
        return answers.usage(args.product, text)
    setup = own.asked(args)
    product = setup.product
    if not os.path.isdir(product.slots_dir):
        _demand_none_elsewhere(product)
    if args.command == "confirm":
        if setup.problems:  # who must confirm, and after how long, would be a default's word
            raise codes.BadConfig(setup.problems)
        if args.pending:
            return _about_any(product, lambda found: confirm(product, found, args.source, args.wait))
        return confirm(product, args.id, args.source, args.wait)
    if args.pending:
        return _about_any(product, lambda found: rollback(product, found, args.why, codes.GAVE_UP))
    return rollback(product, args.id, args.why, force=args.force)


def _about_any(product: products.Product, act: Callable[[str], answers.Answer]) -> answers.Answer:
    """Do it to whatever is on trial. The id is read first, so that it is never done to the next trial."""
    pending = _settled(product, "look for a trial").settlement.on_trial
    if pending is not None:
        return act(pending.trial_id)
    _demand_none_elsewhere(product)
    said = f"no trial of {product.name} is pending: nothing to do"
    return answers.Answer(answers.DONE, answers.base(product.name, "idle", message=said), [said])


def _demand_none_elsewhere(product: products.Product) -> None:
    """Before it is said that there is no trial: there may be one in slots that the configuration names no more."""
    from slotward import unfinished

    unfinished.demand_none_elsewhere(product)


def ended(product: products.Product, last: records.Last, changed: bool) -> answers.Answer:
    """The answer for a trial that has ended already: confirmed, or back on the old version and why."""
    state = _state_after(product, last)
    if changed and state == "rollback-failed":
        audit.rollback_failed(product, last)
    return telling.ended(product, last, changed, state)


def _state_after(product: products.Product, last: records.Last) -> str:
    if last.state != "rolled-back":
        return last.state
    return "rolled-back" if unit_runs(product, 5.0) else "rollback-failed"


def unit_runs(product: products.Product, wait_s: float) -> bool:
    """Whether the product's units are active (field case H6), waiting a little; longer for a stop or a start that is under way.

    A daemon that takes its time to stop or to be ready is no failure: only one that ended, or that nobody starts.
    """
    from slotward import systemd

    began = time.monotonic()
    while True:
        shown = systemd.show_each(effects.units_of(product), ("ActiveState", "SubState", "Job"))
        down = [unit for unit in map(status.unit_of, shown) if unit.active != "active"]
        # between its stop and its start a restart is inactive, with a job
        stopped = any(unit.active == "inactive" and unit.job == 0 for unit in down)
        longest = max(wait_s, UNDER_WAY_S) if all(unit.runs for unit in down) else wait_s
        if not down or stopped or time.monotonic() - began >= longest:
            return not down
        time.sleep(POLL_S)


def _settled(product: products.Product, what: str) -> manager.Look:
    """A look with nothing left to settle; whoever is settling already is given a moment."""
    until = time.monotonic() + BUSY_S
    while True:
        seen = manager.look(product)
        if seen.settlement.action in (settle.Action.NONE, settle.Action.AWAIT):
            return seen
        try:
            with lock.held(product, what):
                return manager.settle_now(product)[0]
        except codes.Retryable as error:
            if error.code != codes.IN_PROGRESS or time.monotonic() >= until:
                raise
        time.sleep(POLL_S)


AFTER = "; what is confirmed is left for a kept release by `slotward rollback --to previous`"


def _own_trial(
    product: products.Product, seen: manager.Look, trial_id: Optional[str], after: str = ""
) -> Optional[answers.Answer]:
    """None when the trial asked for is pending; the answer when it has ended; a refusal otherwise, with what to do after it."""
    pending = seen.settlement.on_trial
    if pending is not None:
        if trial_id is not None and pending.trial_id != trial_id:
            raise codes.refused(codes.WRONG_TRIAL, f"trial {pending.trial_id} is pending, not {trial_id}")
        return None
    if seen.state.broken is not None:
        raise codes.BrokenRecord(*seen.state.broken)
    last = seen.state.update.last
    if last is not None and trial_id is not None and last.trial_id == trial_id:
        return ended(product, last, changed=False)
    _demand_none_elsewhere(product)
    named = f": {trial_id} is not known here" if trial_id else ""
    raise codes.refused(codes.NO_TRIAL, f"no trial of {product.name} is pending{named}{after}")


def prove(product: products.Product, slot: str, sha256: str, swapped_s: int) -> Union[proof.Proof, proof.Missing]:
    """Whether what is in that slot is what runs, since then, in the product's unit and in its helper's."""
    from slotward import systemd

    if product.parts:
        from slotward import parts

        why = parts.unproven(product, host.read_state(product), slot)
        if why:
            return proof.Missing(why)
    units = effects.units_of(product)
    shown = systemd.show_each(units, asking.UNIT_PROPERTIES)
    facts = process.facts(product, slot, shown[0])
    if not product.helper_unit:
        return proof.check(facts, swapped_s, product.settle_s, sha256)
    helper = process.helper(product, slot, shown[-1])
    return proof.check_both(product.unit, facts, helper, swapped_s, product.settle_s, sha256)


def _prove(product: products.Product, pending: trial.Trial) -> Union[proof.Proof, proof.Missing]:
    """As `prove`, of the release on trial."""
    return prove(product, pending.to_slot, pending.to_sha256, pending.deadline_s - pending.length_s)


def _wait_for_proof(
    product: products.Product, trial_id: str, wait_s: float
) -> Union[proof.Proof, proof.Missing, answers.Answer]:
    until = time.monotonic() + wait_s
    look_again = time.monotonic() + FORGOTTEN_S
    while True:
        seen = _settled(product, "confirm")
        done = _own_trial(product, seen, trial_id)
        if done is not None:
            return done
        pending = seen.settlement.trial
        if pending is None:
            raise codes.refused(codes.NO_TRIAL, f"no trial of {product.name} is pending")
        found = _prove(product, pending)
        if isinstance(found, proof.Proof) or time.monotonic() >= until:
            return found
        if time.monotonic() >= look_again:  # it should be there by now: was it ever asked for?
            look_again += FORGOTTEN_S
            if following.forgotten(product, seen.state):
                cmd_settle.if_free(product, "confirm")
        time.sleep(POLL_S)


def _on_trial(product: products.Product, seen: manager.Look, code: str, message: str) -> Dict[str, Any]:
    answer = answers.base(product.name, "trial", code, message)
    pending = seen.settlement.trial
    if pending is not None:
        answer["trial"] = status.trial_as_json(product, seen.state, pending, seen.clock)
        answer.update({"from": pending.from_version, "to": pending.to_version, "missing": answer["trial"]["missing"]})
    return answer


def confirm(product: products.Product, trial_id: str, source: str, wait_s: float) -> answers.Answer:
    """Confirm trial `trial_id` for one source; the release is confirmed when every configured source has spoken."""
    if source not in product.confirm_sources:
        wanted = ", ".join(product.confirm_sources)
        raise codes.refused(
            codes.WRONG_SOURCE, f"{source} does not confirm {product.name} on this host; confirm_sources is {wanted}"
        )
    found = _wait_for_proof(product, trial_id, wait_s)
    if isinstance(found, answers.Answer):
        return found
    if isinstance(found, proof.Missing):
        return _not_proven(product, manager.look(product), found.why)
    with lock.held(product, "confirm", BUSY_S):
        seen = manager.settle_now(product)[0]
        done = _own_trial(product, seen, trial_id)
        if done is not None:
            return done
        if seen.state.broken is not None:  # nothing can be compared, and nothing would be written
            raise codes.BrokenRecord(*seen.state.broken)
        why = _changed(product, seen)
        if why:
            return _not_proven(product, seen, why)
        return _confirm_locked(product, seen, source, found)


def _changed(product: products.Product, seen: manager.Look) -> str:
    """What is wrong with the bytes on trial; "" when they are those that were verified: nothing else is ever called good (I1)."""
    from slotward import slots

    slot = seen.settlement.trial.to_slot if seen.settlement.trial is not None else str(seen.state.current)
    entry = seen.state.slots.get(slot)
    return slots.problem(product, slot, entry) if entry is not None else f"slot {slot} has no record"


def _not_proven(product: products.Product, seen: manager.Look, why: str) -> answers.Answer:
    answer = _on_trial(product, seen, codes.NOT_PROVEN, why)
    return answers.Answer(answers.NOT_CONFIRMED, answer, [f"not confirmed ({codes.NOT_PROVEN}): {why}"])


def _confirm_locked(product: products.Product, seen: manager.Look, source: str, found: proof.Proof) -> answers.Answer:
    pending = seen.settlement.trial
    if len(product.confirm_sources) > 1:
        seen = manager.note_source(product, seen, source)
        if pending is not None and proof.missing_sources(product.confirm_sources, seen.state.sources, pending.trial_id):
            answer = dict(_on_trial(product, seen, codes.NOT_CONFIRMED, f"{source} has confirmed"), changed=True)
            missing = ", ".join(answer["missing"])
            return answers.Answer(answers.NOT_CONFIRMED, answer, [f"{source} has confirmed; still missing: {missing}"])
    manager.confirm(product, seen)
    after = manager.look(product)
    last = after.state.update.last
    if last is None:
        raise codes.BrokenRecord(product.path("update.json"), "the confirmation that was just written is not in it")
    done = ended(product, last, changed=True)
    done.json.update({"floor": status.floor_of(product, after.state), "missing": [], "proof": proof.as_json(found)})
    return done


def rollback(
    product: products.Product, trial_id: Optional[str], why: str, code: str = codes.OPERATOR, force: bool = False
) -> answers.Answer:
    """Take the release on trial back now, at an operator's word (to a sound slot, or by `force`) or, as `code` says, at its own."""
    from slotward import homeward

    with lock.held(product, "rollback", BUSY_S):
        seen = manager.settle_now(product)[0]
        done = _own_trial(product, seen, trial_id, "" if trial_id else AFTER)
        if done is not None:
            return done
        pending = seen.settlement.on_trial
        if pending is not None and code == codes.OPERATOR and not force:
            homeward.demand(product, seen.state, pending)
        manager.go_back(product, seen, why, code)
        after = manager.look(product).state
        last = after.update.last
    if pending is not None and (last is None or after.broken is not None):
        return homeward.unwritten(product, after, pending, unit_runs(product, 5.0))
    if last is None:
        raise codes.BrokenRecord(product.path("update.json"), "the failure that was just written is not in it")
    return ended(product, last, changed=True)._replace(exit=answers.DONE)
