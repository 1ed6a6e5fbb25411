# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward rollback --to previous|VERSION`: leave a confirmed release for one that is kept here (products.md, section 7).

Rules:
- It is an ordinary trial: the same look at host and bytes, the same smoke test, the same confirmation, the same way back.
- A hold is set before the switch, so that nothing moves the product forward again; one that stands already stays as it is.
  When nothing was switched, the hold that was set for it goes again: nobody else's does (field case F9).
- Neither a hold nor windows, freezes or the veto keep an operator from going back; the release floor does.
- Asked again when it is done, it changes nothing and says so (I9).
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from slotcore import checks, codes, going_back, holds, semver, settle, status
from slotcore import product as products
from slotward import (
    answers,
    audit,
    cancelling,
    clearable,
    cmd_hold,
    cmd_upgrade,
    hand,
    host,
    lock,
    lookahead,
    manager,
    own,
    own_unit,
    prepare,
    reversing,
    switching,
    trial_ids,
)

if TYPE_CHECKING:
    import argparse

    from slotcore import listings

FLAGS = ("json", "start", "no_wait", "accept_one_way")


def run(args: argparse.Namespace) -> answers.Answer:
    """Go back, or with --check say what that would be."""
    if args.id is not None:
        trial_ids.demand(args.id)
    if not (args.check or args.here):
        why = ("--why", args.why) if args.why else ()
        return own_unit.run(args, own_unit.again(args, "--to", args.to, *why, flags=FLAGS))
    setup = own.asked(args)
    asked: List[str] = [args.to, ""]
    return clearable.answered(setup.product.name, asked, lambda: _noted(setup, args, asked))


def _noted(setup: own.Setup, args: argparse.Namespace, asked: List[str]) -> answers.Answer:
    with audit.refusals(setup.product, asked):
        return _go(setup, args, asked)


def way_out(setup: own.Setup) -> str:
    """What opens the way to a release below the floor, for the product that it is."""
    permit = "a signed permit opens it once (upgrade --permit)"
    if setup.is_agent:
        return f"the floor of the agent itself is what was confirmed last, and {permit}"
    return f'[update] floor = "previous" keeps one step back open from the next confirmation on, and {permit}'


def _go(setup: own.Setup, args: argparse.Namespace, asked: List[str]) -> answers.Answer:
    if args.check:
        return _prepared(setup, manager.look(setup.product), args, asked)[1]
    with lock.held(setup.product, f"rollback to {args.to}"):
        seen = manager.settle_now(setup.product)[0]
        with cancelling.possible():
            prepared, answer = _prepared(setup, seen, args, asked)
            if prepared is None:
                return answer
            switching.refuse_used_id(prepared, args.id)
            was_set = _hold(setup, prepared, args.why)
            try:
                agreed = switching.Agreed(start=args.start, back=True)
                pending = switching.swap(setup, prepared, None, args.id, agreed=agreed)
            except answers.CODED:
                if was_set and manager.look(setup.product).settlement.on_trial is None:
                    cmd_hold.unhold(setup.product, None)
                raise
    ended = cmd_upgrade.followed(setup, prepared, pending, args.no_wait)
    ended.json["hold"] = hand.hold_as_json(setup.product, host.read_state(setup.product).update)
    return ended


def _prepared(
    setup: own.Setup, seen: manager.Look, args: argparse.Namespace, asked: List[str]
) -> Tuple[Optional[prepare.Prepared], answers.Answer]:
    """What going back would do, by every check; no release where there is nothing to do."""
    product, state = setup.product, seen.state
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    prepare.quiet(product, seen)
    floor = status.floor_of(product, state)
    choice = going_back.choose(product, state, _kept(product, state), args.to, floor, way_out(setup))
    if isinstance(choice, codes.Refusal):
        raise codes.Refused(choice)
    if isinstance(choice, going_back.Already):
        answer = answers.base(product.name, "current", message=choice.text)
        return None, answers.Answer(answers.DONE, _with_hold(setup, answer), [choice.text])
    record = choice.record
    asked[:] = [record.version, record.sha256]
    listing = _proven(product, choice)
    running = state.slots[str(state.current)].version
    target = checks.Target(product.name, record.version, "", record.sha256, "")
    prepared = prepare.Prepared(target, seen, running, record, 0, reuse=listing is None, kept=listing)
    reversing.demand(product, state, record, running, args.accept_one_way)
    lookahead.check(setup, 0, 0, None, args.start)
    lines = [f"{product.name} {running} -> {record.version}, back, on trial; a hold is set first"]
    shown = cmd_upgrade.shown(setup, prepared, would=True)
    return prepared, answers.Answer(answers.DONE, _with_hold(setup, shown), lines)


def _with_hold(setup: own.Setup, answer: Dict[str, Any]) -> Dict[str, Any]:
    return dict(answer, hold=hand.hold_as_json(setup.product, host.read_state(setup.product).update))


def _kept(product: products.Product, state: settle.State) -> List[going_back.Kept]:
    """The releases that are kept beside the one that runs: in the other slot, and as trees."""
    found = list(going_back.kept_in_slots(state))
    if product.layout != products.VERSIONS:
        return found
    from slotward import trees

    known = {one.record.version for one in found}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(product.path(products.TREES))):
            with contextlib.suppress(OSError, codes.BrokenRecord):
                listing = trees.read_listing(product, name) if semver.is_version(name) else None
                if listing is not None and name not in known:
                    found.append(going_back.Kept(listing.record))
    return found


def _proven(product: products.Product, choice: going_back.Kept) -> Optional[listings.Listing]:
    """The listing of its tree, where it is one; raises where the kept bytes are not those that were verified."""
    if host.entrypoint_kind(product) != "ours":
        text = f"{product.entrypoint} is no link to {product.program_path('current')}: run `slotward setup` first"
        raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text)
    record = choice.record
    if product.layout == products.VERSIONS:
        from slotward import trees

        listing = trees.kept(product, record)
        if listing is None:
            text = (
                f"{product.tree(record.version)} is not what was verified for {record.version}: it was changed or cut"
            )
            raise codes.refused(codes.NOT_KEPT, text)
        return listing
    from slotward import slots

    held = slots.held(product, choice.slot)
    if held is None or held.sha256 != record.sha256:
        text = f"{product.path(choice.slot)} does not hold the bytes that were verified for {record.version}"
        raise codes.refused(codes.DIGEST_MISMATCH, text)
    return None


def _hold(setup: own.Setup, prepared: prepare.Prepared, why: str) -> bool:
    """Hold the product there, unless it is held already; whether that was done."""
    product, now_s = setup.product, int(time.time())
    before = hand.read_hold(product)
    if before is not None and before.stands(now_s, prepared.seen.state.update.newest_issued):
        return False
    said = f"rolled back from {prepared.from_version} to {prepared.target.version}"
    return cmd_hold.put(product, holds.made(f"{said}: {why}" if why else said, audit.who(), 0, now_s))
