# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward prepare` and `slotward upgrade`: from a target to a trial (DESIGN 6).

Rules:
- What changes the host runs in a transient unit of its own, so a lost connection or a restarted daemon does not end it.
- One at a time: the lock is held from the first look to the restart, not while waiting for a confirmation.
- The answer after the switch is `trial`; only the end of the trial says `confirmed` (I5).
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from slotcore import checks, codes, rfc3339, settle, trial
from slotcore import product as products
from slotward import (
    answers,
    audit,
    cancelling,
    clearable,
    cmd_settle,
    cmd_trial,
    hand,
    host,
    lock,
    manager,
    own,
    own_unit,
    prepare,
    progress_file,
    switching,
    telling,
    trial_ids,
)

if TYPE_CHECKING:
    import argparse

FLAGS = ("json", "adopt", "start", "force", "no_wait", "no_smoke", "accept_one_way")


def run(args: argparse.Namespace) -> answers.Answer:
    """Dispatch to prepare or upgrade."""
    if os.geteuid() != 0:
        from slotward import unprivileged

        return unprivileged.run(args, f"{args.command} reads root's configuration and records: run it as root")
    if args.command == "upgrade":
        if args.id is not None:
            trial_ids.demand(args.id)
        if not args.here and not args.stage_only:
            return own_unit.run(args, _words(args))
    setup = own.asked(args)
    asked: List[str] = []
    return hand.answered(
        setup.product, lambda: clearable.answered(setup.product.name, asked, lambda: _answered(setup, args, asked))
    )


def _answered(setup: own.Setup, args: argparse.Namespace, asked: List[str]) -> answers.Answer:
    from slotward import sourced

    if args.command == "upgrade":
        with audit.refusals(setup.product, asked):
            target = sourced.target_of(setup, args)
            asked.extend((target.version, target.sha256))
            return upgrade(setup, target, args)
    target = sourced.target_of(setup, args)
    asked.append(target.version)
    return prepared_answer(setup, prepare.prepare(setup, target, consent_of(args), args.src), args.src)


def consent_of(args: argparse.Namespace) -> prepare.Consent:
    """What the flags of an upgrade, or of prepare, agree to and bring."""
    permit = prepare.read_document(args.permit) if args.permit else None
    asked_s = args.server_time or 0
    noting = args.command == "upgrade"
    consent = prepare.Consent(args.adopt, args.start, server_s=asked_s, permit=permit, force=args.force, noting=noting)
    return consent._replace(one_way=args.accept_one_way)


def prepared_answer(setup: own.Setup, prepared: prepare.Prepared, src: Optional[str]) -> answers.Answer:
    """Prepare's answer; where a file is to be fetched, each place of it is asked for one byte first (field case N1)."""
    answer, lines = shown(setup, prepared, would=True), said(setup, prepared)
    if answer["artifact"] is not None and answer["artifact"]["url"] and not src:
        from slotward import fetch, reach

        answer["sources"] = reach.ask(
            setup, fetch.sources_of(setup, prepared.target, prepared.name), prepared.record.size
        )
        lines += reach.lines(answer["sources"])
    return answers.Answer(answers.DONE, answer, lines)


def _words(args: argparse.Namespace) -> List[str]:
    """The command line again; what names a file names it from the root, since the unit works in another directory."""
    words = []
    if args.version is None:
        words += ["--target", args.target if args.target == "-" else os.path.abspath(args.target)]
    words += [f"--{name}={getattr(args, name)}" for name in ("version", "channel", "variant") if getattr(args, name)]
    words += ["--src", os.path.abspath(args.src)] if args.src else []
    words += ["--permit", os.path.abspath(args.permit)] if args.permit else []
    words += ["--server-time", rfc3339.render(args.server_time)] if args.server_time is not None else []
    return own_unit.again(args, *words, flags=FLAGS)


def _file_of(setup: own.Setup, prepared: prepare.Prepared) -> Tuple[str, str]:
    from slotward import sourced  # what is fetched needs what fetches

    return sourced.file_of(setup, prepared)


def shown(setup: own.Setup, prepared: prepare.Prepared, would: bool) -> Dict[str, Any]:
    """What prepare answers; `changed` says whether an upgrade would change the host."""
    state = "current" if prepared.there else "idle"
    answer = answers.base(setup.product.name, state, changed=would and not prepared.there)
    fetch = not (prepared.there or prepared.here or prepared.staged)
    name, url = _file_of(setup, prepared) if fetch else ("", "")
    answer.update(
        {
            "from": prepared.from_version,
            "to": prepared.target.version,
            "sequence": prepared.record.sequence,
            "reuse": prepared.here,
            "adopt": prepared.adopt,
            "permit": prepared.permit.permit_id if prepared.permit is not None else None,
            "artifact": {
                "name": name,
                "url": url,
                "sha256": prepared.record.sha256,
                "size": prepared.record.size,
            }
            if fetch
            else None,
        }
    )
    return answer


def said(setup: own.Setup, prepared: prepare.Prepared) -> List[str]:
    """Prepare's lines for people."""
    name, target = setup.product.name, prepared.target
    if prepared.there:
        return [f"{name} {target.version} is what runs: nothing to do"]
    lines = [f"{name} {prepared.from_version} -> {target.version}, sequence {prepared.record.sequence}"]
    if prepared.permit is not None:
        lines.append(f"permit: {prepared.permit.permit_id} lets this host below its release floor, once")
    if prepared.adopt:
        lines.append(f"adopt: {setup.product.entrypoint} is taken into a slot first")
    if prepared.reuse:
        lines.append("fetch: nothing, the other slot holds these bytes")
    elif prepared.kept is not None:
        lines.append(f"fetch: nothing, {setup.product.tree(target.version)} holds these bytes")
    elif prepared.staged:
        lines.append("fetch: nothing, these bytes are staged already")
    else:
        lines.append(f"fetch: {prepared.record.size} bytes from {_file_of(setup, prepared)[1] or 'the file given'}")
    return lines


def upgrade(setup: own.Setup, target: checks.Target, args: argparse.Namespace) -> answers.Answer:
    """Prepare, stage, and begin the trial; with the default flags also wait for its end."""
    product = setup.product
    args.id = args.id or trial_ids.new()
    if args.no_smoke:
        product = product._replace(smoke_argv=())
        setup = setup._replace(product=product)
    if not os.path.isdir(product.slots_dir):
        raise codes.refused(codes.GUARD_NOT_INSTALLED, f"there is no {product.slots_dir}: run `slotward setup` first")
    with lock.held(product, f"upgrade to {target.version}"):
        manager.settle_now(product)
        with cancelling.possible(), progress_file.of(product, target.version):
            prepared = prepare.prepare(setup, target, consent_of(args), args.src)
            if prepared.there:
                progress_file.nothing_to_do()
                return answers.Answer(answers.DONE, shown(setup, prepared, would=False), said(setup, prepared))
            switching.refuse_used_id(prepared, args.id)
            if not getattr(args, "applying", False):  # what waits for a word was started before
                audit.started(product, args.id, prepared.from_version, prepared.record)
            descriptor = _staged(setup, prepared, args)
            try:
                if args.stage_only or _waits(product, args):
                    return _staged_answer(setup, prepared, args)
                agreed = switching.Agreed(args.start, args.force)
                pending = switching.swap(setup, prepared, descriptor, args.id, agreed=agreed)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
            if product.manual:
                from slotward import manual

                manual.drop(product)
    return followed(setup, prepared, pending, args.no_wait)


def followed(setup: own.Setup, prepared: prepare.Prepared, pending: trial.Trial, no_wait: bool) -> answers.Answer:
    """The answer to a trial that has begun: at once, or when it has ended."""
    return _begun(setup, prepared, pending) if no_wait else _wait(setup, prepared, pending)


def _waits(product: products.Product, args: argparse.Namespace) -> bool:
    """Whether the release is staged and then waits for an operator's word; `args` of `apply` are that word."""
    return product.manual and not getattr(args, "applying", False)


def _staged(setup: own.Setup, prepared: prepare.Prepared, args: argparse.Namespace) -> Optional[int]:
    """A descriptor of the verified bytes; None when the other slot holds them."""
    from slotward import fetch

    if prepared.here:
        return None
    staged_first = args.stage_only or _waits(setup.product, args)
    if args.src and not staged_first and not prepared.staged:
        return fetch.pushed(args.src)
    if not (args.src or prepared.staged or fetch.sources_of(setup, prepared.target, prepared.name)):
        raise codes.refused(codes.BAD_URL, fetch.NOWHERE)
    return fetch.stage(setup, prepared, args.src)


def _staged_answer(setup: own.Setup, prepared: prepare.Prepared, args: argparse.Namespace) -> answers.Answer:
    answer = dict(shown(setup, prepared, would=True), state="staged")
    if setup.product.manual:
        from slotward import manual

        permit = prepare.read_document(args.permit) if args.permit else None
        return manual.answer(setup, answer, manual.note(setup, prepared, permit))
    return answers.Answer(
        answers.DONE, answer, [f"{setup.product.name} {prepared.target.version} is staged and verified"]
    )


def _begun(setup: own.Setup, prepared: prepare.Prepared, pending: trial.Trial) -> answers.Answer:
    begun = telling.begun(setup.product, pending, host.read_state(setup.product))
    begun.json.update({"from": prepared.from_version, "adopted": prepared.adopt})
    return begun


def _wait(setup: own.Setup, prepared: prepare.Prepared, pending: trial.Trial) -> answers.Answer:
    product = setup.product
    print(telling.hint(product.name, pending), file=sys.stderr, flush=True)
    until = time.monotonic() + pending.length_s + telling.AFTER_DEADLINE_S
    while time.monotonic() < until:
        time.sleep(telling.POLL_S)
        seen = manager.look(product)
        last = seen.state.update.last
        if last is not None and last.trial_id == pending.trial_id:
            return cmd_trial.ended(product, last, changed=True)
        if seen.settlement.action not in (settle.Action.AWAIT, settle.Action.NONE):
            cmd_settle.if_free(product)
    answer = _begun(setup, prepared, pending)
    return answers.Answer(answers.NOT_CONFIRMED, answer.json, answer.lines)
