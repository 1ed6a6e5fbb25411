# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's account in start mode: it fetches, leaves a request for the next start, and triggers (privilege.md, sections 5, 6).

Rules:
- What can be judged without root is judged before anything is fetched; root judges all of it again.
- The request is renamed into its place last, when everything that it names lies there, durable.
- Confirming and giving up are a trigger that carries nothing. The records say how it went, and are followed.
- A request that is done with is removed here, and only here: root removes nothing in this directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from typing import TYPE_CHECKING, Dict, Optional, Tuple

from slotcore import asked as askeds
from slotcore import checks, codes, proof, protocol, status
from slotcore import settle as settles
from slotward import answers, clearable, host, inbox, manager, own, staging, telling, trial_ids

if TYPE_CHECKING:
    import argparse

    from slotward import prepare as prepares

SOURCE = "gateway"
"""As whom the daemon's account confirms."""
AGAIN_S = 10.0
"""So long after a trigger the next one: root's unit may have been at work, and then it did not see this one."""
GIVEN_UP_S = 30.0
POLL_S = 0.2
NOTICE = "<5>"


def _judged(
    setup: own.Setup, target: checks.Target, args: argparse.Namespace, permit: Optional[bytes]
) -> prepares.Prepared:
    """Every check that needs no root; raises the first refusal."""
    from slotward import prepare

    if setup.problems:
        raise codes.BadConfig(setup.problems)
    seen = manager.look(setup.product)
    if seen.state.broken is not None:
        raise codes.BrokenRecord(*seen.state.broken)
    prepare.in_flight(setup.product, seen)
    consent = prepare.Consent(server_s=args.server_time or 0, permit=permit)
    return prepare.judged(setup, seen, target, consent)


def _permit(args: argparse.Namespace) -> Optional[bytes]:
    from slotward import prepare

    return prepare.read_whole_document(args.permit) if args.permit else None


def prepare(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """What an upgrade would do, as far as this account can judge; the start that carries it out judges again."""
    from slotward import cmd_upgrade
    from slotward import prepare as prepares

    target = prepares.read_target(args.target)

    def judged() -> answers.Answer:
        prepared = _judged(setup, target, args, _permit(args))
        return cmd_upgrade.prepared_answer(setup, prepared, args.src)

    return clearable.answered(setup.product.name, (target.version,), judged)


def upgrade(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Judge, fetch, and leave the request; the next start of the daemon carries it out."""
    from slotward import prepare as prepares

    trial_id = trial_ids.demand(args.id or trial_ids.new())
    data = prepares.read_target_bytes(args.target)
    version = checks.parse_target(data).version
    return clearable.answered(setup.product.name, (version,), lambda: _upgrade(setup, args, trial_id, data))


def _upgrade(setup: own.Setup, args: argparse.Namespace, trial_id: str, data: bytes) -> answers.Answer:
    from slotward import cancelling, cmd_upgrade, switching

    target, permit = checks.parse_target(data), _permit(args)
    with inbox.alone(setup.inbox):
        prepared = _judged(setup, target, args, permit)
        if prepared.there:
            shown = cmd_upgrade.shown(setup, prepared, would=False)
            return answers.Answer(answers.DONE, shown, cmd_upgrade.said(setup, prepared))
        switching.refuse_used_id(prepared, trial_id)
        with cancelling.possible():
            _fetch(setup, prepared, args.src)
        if not args.stage_only:
            _leave(setup, trial_id, {"target": data, "permit": permit}, args.server_time)
    answer = dict(cmd_upgrade.shown(setup, prepared, would=True), state="staged", id=trial_id)
    waits = "" if args.stage_only else f"; the next start of {setup.product.unit} carries it out, as trial {trial_id}"
    return answers.Answer(
        answers.DONE, answer, [f"{setup.product.name} {target.version} is staged and verified{waits}"]
    )


def _fetch(setup: own.Setup, prepared: prepares.Prepared, src: Optional[str]) -> None:
    from slotward import fetch

    if prepared.reuse:
        return
    if not (src or prepared.staged or fetch.sources_of(setup, prepared.target)):
        raise codes.refused(codes.BAD_URL, fetch.NOWHERE)
    os.close(fetch.stage(setup, prepared, src))


def _leave(setup: own.Setup, trial_id: str, documents: Dict[str, Optional[bytes]], server_s: Optional[int]) -> None:
    """Put what is asked for into its place, the request last."""
    names = {kind: f"{trial_id}.{kind}" for kind, content in documents.items() if content is not None}
    for kind, name in names.items():
        inbox.put(setup.inbox, name, documents[kind] or b"")
    request = protocol.Request(
        protocol.SWAP, trial_id, target=names["target"], permit=names.get("permit"), server_time=server_s
    )
    inbox.put(setup.inbox, inbox.WAITING, protocol.render_request(request))


def confirm(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Say that the gateway has confirmed, and follow what comes of it until the wait is over."""
    from slotward import triggers

    product = setup.product
    if args.source != SOURCE or SOURCE not in product.confirm_sources:
        wanted = ", ".join(product.confirm_sources)
        text = f"this account confirms as {SOURCE}, not as {args.source}; confirm_sources is {wanted}"
        raise codes.refused(codes.WRONG_SOURCE, text)
    until, again = time.monotonic() + args.wait, 0.0
    found = _pending(setup, args.id)
    trial_id = args.id or str(found.json.get("id") or found.json["trial"]["id"])
    while found.json["state"] == "trial" and SOURCE in _missing(setup, trial_id):
        if time.monotonic() >= again:
            triggers.pull(triggers.CONFIRM)
            again = time.monotonic() + AGAIN_S
        if time.monotonic() >= until:
            text = f"{SOURCE} has said so; root has no proof yet that {found.json['to']} runs as it should"
            answer = dict(found.json, code=codes.NOT_PROVEN, message=text, changed=False)
            return answers.Answer(answers.NOT_CONFIRMED, answer, [f"not confirmed ({codes.NOT_PROVEN}): {text}"])
        time.sleep(POLL_S)
        found = _pending(setup, trial_id, waited=True)
    if found.json["state"] == "confirmed":
        floor = status.floor_of(product, host.read_state(product))
        return found._replace(json=dict(found.json, floor=floor, missing=[]))
    if found.json["state"] != "trial":
        return found
    missing = ", ".join(found.json["missing"])
    said = f"{SOURCE} has confirmed; still missing: {missing}"
    return answers.Answer(answers.NOT_CONFIRMED, dict(found.json, message=said), [said])


def _pending(setup: own.Setup, trial_id: Optional[str], waited: bool = False) -> answers.Answer:
    """What the records say of this trial, or of whichever is pending; raises what an operator's command would.

    Only who has `waited` for its end has changed anything.
    """
    seen = manager.look(setup.product)
    pending = seen.settlement.on_trial
    if pending is not None and trial_id in (None, pending.trial_id):
        return telling.begun(setup.product, pending, seen.state)
    if pending is not None:
        raise codes.refused(codes.WRONG_TRIAL, f"trial {pending.trial_id} is pending, not {trial_id}")
    if seen.state.broken is not None:
        raise codes.BrokenRecord(*seen.state.broken)
    last = seen.state.update.last
    if last is not None and last.trial_id == trial_id:
        return telling.ended(setup.product, last, changed=waited)
    if seen.settlement.action is not settles.Action.NONE and seen.settlement.trial is not None:
        return telling.begun(setup.product, seen.settlement.trial, seen.state)  # its end is being written down
    named = f": {trial_id} is not known here" if trial_id else ""
    raise codes.refused(codes.NO_TRIAL, f"no trial of {setup.product.name} is pending{named}")


def _missing(setup: own.Setup, trial_id: str) -> Tuple[str, ...]:
    sources = host.read_state(setup.product).sources
    return proof.missing_sources(setup.product.confirm_sources, sources, trial_id)


def rollback(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Give the release on trial up, and follow it home."""
    from slotward import triggers

    found = _pending(setup, args.id)
    trial_id = args.id or found.json["trial"]["id"]
    until = time.monotonic() + GIVEN_UP_S
    if found.json["state"] == "trial":
        triggers.pull(triggers.GIVE_UP)
    while found.json["state"] == "trial" and time.monotonic() < until:
        time.sleep(POLL_S)
        found = _pending(setup, trial_id, waited=True)
    if found.json["state"] == "trial":
        text = f"root did not take trial {trial_id} back within {GIVEN_UP_S:g} s: look at slotward-giveup.service"
        raise codes.Retryable(codes.SYSTEMD_FAILED, text)
    back = found.json["state"] != "confirmed"
    return found._replace(exit=answers.DONE if back else answers.NOT_CONFIRMED)


def settle(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Nothing is left to do: it was done before this start, or is before the next."""
    del args
    said = f"settling is slotward-apply.service's, before each start of {setup.product.unit}"
    return answers.Answer(answers.DONE, answers.base(setup.product.name, "idle", message=said), [said])


# -- at the daemon's start -------------------------------------------------------------------------------------------------


def forget(setup: own.Setup) -> None:
    """Remove the request that is done with, and what it names; what may still come of it stays. Never raises for what it finds."""
    with contextlib.suppress(OSError, *answers.CODED), inbox.alone(setup.inbox):
        data = _own_request(setup)
        if data is None:
            return
        said = _end_of(setup, data)
        if not said:
            return
        print(answers.plain(f"{NOTICE}{said}"), file=sys.stderr, flush=True)
        for name in os.listdir(setup.inbox):
            if not name.endswith(".part"):  # a download that may be gone on with
                inbox.drop(setup.inbox, name)


def _own_request(setup: own.Setup) -> Optional[bytes]:
    try:
        descriptor = staging.open_staged(setup.inbox, inbox.WAITING)
        with open(descriptor, "rb") as file:
            return file.read(protocol.MAX_REQUEST + 1)
    except FileNotFoundError:
        return None
    except codes.Refused:
        return b""


def _end_of(setup: own.Setup, data: bytes) -> str:
    """What became of this request, as a sentence; "" while something may still."""
    try:
        trial_id = protocol.parse_request(data).id
    except codes.Refused:
        trial_id = ""
    known = answer_to(setup, trial_id, hashlib.sha256(data).hexdigest())
    if known is not None:
        return f"what was asked for: {known.state} ({known.code}): {known.message}" if known.final else ""
    seen = manager.look(setup.product)
    in_flight = seen.settlement.trial
    last = askeds.trial_of(seen.state, in_flight.trial_id if in_flight is not None else "")
    return f"what was asked for became trial {trial_id}" if trial_id and trial_id == last else ""


def answer_to(setup: own.Setup, trial_id: str, sha256: str) -> Optional[askeds.Asked]:
    """Root's answer to this very request; None while there is none."""
    known = last_answer(setup)
    return known if askeds.is_about(known, trial_id, sha256) else None


def last_answer(setup: own.Setup) -> Optional[askeds.Asked]:
    """Root's answer to the last request that it looked at; nothing when that was lost, or cannot be believed."""
    path = setup.product.path(askeds.NAME)
    try:
        data = host.read_record(path, askeds.MAX_BYTES)
        return askeds.parse(data, path) if data is not None else None
    except (codes.BrokenRecord, OSError):
        return None
