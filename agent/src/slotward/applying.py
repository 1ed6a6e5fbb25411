# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out, before a start of the daemon, the request that its account has left (privilege.md, section 6).

Rules:
- Nothing of the account's is believed: the request, the target and the artifact are judged as in `upgrade`, by root's
  configuration. The start that waits for this is the restart.
- A request is carried out once, by its id and by its bytes. What may pass is tried again at the next start; what took
  longer than a start may wait is not.
- What became of it is in `asked.json`, for the daemon to read; root changes nothing in the account's directory.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import List, NamedTuple, Optional, Tuple

from slotcore import asked as askeds
from slotcore import codes, ops, protocol, trial
from slotward import (
    answers,
    audit,
    cancelling,
    clearable,
    effects,
    handed,
    host,
    inbox,
    lookahead,
    manager,
    own,
    prepare,
    switching,
)

PATIENCE_S = 60.0
"""Less than what the unit that runs this may take: who is stopped after that was too slow, not in somebody's way."""
UNIT_PROPERTIES = ("ActiveState", "Job")


class Left(NamedTuple):
    """A request as it was found: the digest of its bytes, and the request, or why it is none."""

    sha256: str
    request: Optional[protocol.Request]
    problem: Optional[codes.Refused] = None

    @property
    def id(self) -> str:
        """The request's id; "" when it is no request."""
        return self.request.id if self.request is not None else ""


def carry_out(setup: own.Setup, seen: manager.Look) -> answers.Answer:
    """Carry out what lies there, once (the lock must be held, and what was in flight settled)."""
    left = _left(setup)
    said = "nothing was asked for" if left is None else _waits(setup)
    if left is None or said:
        return _nothing(setup, said)
    known = _known(setup)
    left, done = _once(seen, left, known)
    if done:
        how = f": {known.state} ({known.code})" if askeds.is_about(known, left.id, left.sha256) and known else ""
        return _nothing(setup, f"what was asked for was carried out before{how}")
    began, asked = time.monotonic(), ["", ""]
    try:
        answer = _carried_out(setup, left, asked)
    except answers.CODED as error:
        answer = clearable.told(answers.of_error(setup.product.name, error), asked[0])
        if error.code == codes.CANCELLED and time.monotonic() - began > PATIENCE_S:
            answer.json["state"] = askeds.REFUSED
    _write(setup, left, answer)
    return answer


def put_off(setup: own.Setup, error: codes.Retryable) -> None:
    """Write down why a request waits for a later start; what was said of one that is done with stays."""
    left, known = _left(setup), _known(setup)
    answered = left is not None and known is not None and known.final and known.id == left.id
    if left is None or left.request is None or answered:
        return
    _write(setup, left, answers.of_error(setup.product.name, error))


def _nothing(setup: own.Setup, said: str) -> answers.Answer:
    return answers.Answer(answers.DONE, answers.base(setup.product.name, "idle", message=said), [said])


def _left(setup: own.Setup) -> Optional[Left]:
    """What lies there as a request; None when nothing does."""
    sha256 = hashlib.sha256()
    try:
        data = handed.read(setup, inbox.WAITING, protocol.MAX_REQUEST)
        sha256.update(data)
        request = protocol.parse_request(data)
        if request.op != protocol.SWAP:
            text = f"a start carries out {protocol.SWAP} and nothing else, not {request.op}"
            raise codes.refused(codes.BAD_REQUEST, text)
        return Left(sha256.hexdigest(), request)
    except FileNotFoundError:
        return None
    except codes.Refused as error:
        return Left(sha256.hexdigest(), None, error)
    except OSError as error:
        raise effects.as_retryable(error, f"read the request in {setup.inbox}") from error


def _waits(setup: own.Setup) -> str:
    """Why the request waits for a later start: somebody runs this by hand while the daemon runs; "" when it need not."""
    from slotward import systemd

    unit = setup.product.unit
    if lookahead.is_being_started(systemd.show(unit, UNIT_PROPERTIES)):
        return ""
    return f"{unit} is not being started: what was asked for waits for its next start"


def _known(setup: own.Setup) -> Optional[askeds.Asked]:
    """What the last request came to; nothing when that was lost, or cannot be believed."""
    path = setup.product.path(askeds.NAME)
    try:
        data = host.read_record(path, askeds.MAX_BYTES)
        return askeds.parse(data, path) if data is not None else None
    except (codes.BrokenRecord, OSError) as error:
        audit.warn(f"what became of the last request is not known: {error}")
        return None


def _once(seen: manager.Look, left: Left, known: Optional[askeds.Asked]) -> Tuple[Left, bool]:
    """The request, refused when another one had its id; and whether it was carried out before."""
    in_flight = seen.settlement.trial
    last = askeds.trial_of(seen.state, in_flight.trial_id if in_flight is not None else "")
    once = askeds.once(known, last, left.id, left.sha256)
    if once is askeds.Once.REUSED:
        text = f"another request had the id {left.id}: ask again under a new one"
        return left._replace(problem=codes.refused(codes.ID_REUSED, text)), False
    return left, once is askeds.Once.DONE


def _carried_out(setup: own.Setup, left: Left, asked: List[str]) -> answers.Answer:
    with audit.refusals(setup.product, asked), cancelling.possible():
        if left.problem is not None or left.request is None:
            raise left.problem or AssertionError("what is no request has its problem")
        found = handed.documents(setup, left.request)
        asked[:] = [found.target.version, found.target.sha256]
        consent = prepare.Consent(server_s=left.request.server_time or 0, permit=found.permit, starting=True)
        prepared = prepare.prepare(setup, found.target, consent, src=setup.inbox)
        if prepared.there:
            said = f"{setup.product.name} {found.target.version} is what runs: nothing to do"
            return answers.Answer(answers.DONE, answers.base(setup.product.name, askeds.CURRENT, message=said), [said])
        audit.started(setup.product, left.id, prepared.from_version, prepared.record)
        descriptor = handed.open_artifact(setup, prepared)
        try:
            pending = switching.swap(setup, prepared, descriptor, left.id, restart=False)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return _begun(setup, pending)


def _begun(setup: own.Setup, pending: trial.Trial) -> answers.Answer:
    name = setup.product.name
    said = f"{name} {pending.to_version} is on trial for {pending.length_s} s, from this start on"
    answer = answers.base(name, askeds.TRIAL, codes.NOT_CONFIRMED, said, changed=True)
    answer.update({"id": pending.trial_id, "from": pending.from_version, "to": pending.to_version})
    return answers.Answer(answers.DONE, answer, [said])


def _write(setup: own.Setup, left: Left, answer: answers.Answer) -> None:
    """Write down what became of the request; where that fails it is judged again at the next start, with the same end."""
    path, said = setup.product.path(askeds.NAME), answer.json
    asked = askeds.Asked(left.id, left.sha256, said["state"], said["code"], said["message"], int(time.time()))
    try:
        manager.apply(setup.product, ops.write_durably(path, askeds.render(asked)), "asked")
    except OSError as error:
        audit.warn(f"cannot write {path}: {error.strerror}")
