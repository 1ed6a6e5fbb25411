# SPDX-License-Identifier: GPL-3.0-or-later
"""One operation of the helper's, as a command of root's in a unit of its own (privilege.md, sections 3 and 4).

Rules:
- The request comes on standard input and is judged here as if nobody had; nothing in it is a path, a source or a consent.
- What it names in the account's staging directory is read as `handed` says, and the release verified by root's own
  configuration, clock and records. The same functions do it as when an operator asks.
- A swap under the id of the trial in flight, or of the last one, answers that trial and changes nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List

from slotcore import codes, protocol
from slotward import answers, clearable, cmd_settle, cmd_trial, own

SOURCE = "gateway"
"""As whom the daemon's account confirms."""


def run(setup: own.Setup) -> answers.Answer:
    """Do what standard input asks for."""
    request = protocol.parse_request(sys.stdin.buffer.read(protocol.MAX_REQUEST + 1))
    answer = _done(setup, request)
    return answer._replace(json=_whole(answer.json))


def _done(setup: own.Setup, request: protocol.Request) -> answers.Answer:
    if request.op in (protocol.PREPARE, protocol.SWAP):
        asked: List[str] = []
        act = prepare if request.op == protocol.PREPARE else swap
        return clearable.answered(setup.product.name, asked, lambda: act(setup, request, asked))
    if request.op == protocol.CONFIRM:
        if setup.problems:  # who must confirm, and after how long, would be a default's word
            raise codes.BadConfig(setup.problems)
        return cmd_trial.confirm(setup.product, str(request.trial), SOURCE, float(request.wait or 0))
    if request.op == protocol.ROLLBACK:
        return cmd_trial.rollback(setup.product, str(request.trial), request.why or "", codes.GAVE_UP)
    if request.op == protocol.SETTLE:
        return cmd_settle.settle(setup.product)
    served = ", ".join(protocol.HELPER_OPERATIONS)
    raise codes.refused(codes.NOT_ALLOWED, f"{request.op} is not the helper's; {served} are")


def _whole(value: Any) -> Any:
    """The same with whole numbers alone, as the protocol has them."""
    if isinstance(value, dict):
        found: Dict[str, Any] = {key: _whole(one) for key, one in value.items()}
        return found
    if isinstance(value, (list, tuple)):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) else value


def prepare(setup: own.Setup, request: protocol.Request, asked: List[str]) -> answers.Answer:
    """Every check; whether the file is staged already is whoever fetches it to say. `asked` is told what it is about."""
    from slotward import cmd_upgrade, handed
    from slotward import prepare as preparing

    found = handed.documents(setup, request)
    asked.extend((found.target.version, found.target.sha256))
    consent = preparing.Consent(server_s=request.server_time or 0, permit=found.permit)
    prepared = preparing.prepare(setup, found.target, consent)._replace(staged=False)
    shown = cmd_upgrade.shown(setup, prepared, would=True)
    return answers.Answer(answers.DONE, shown, cmd_upgrade.said(setup, prepared))


def swap(setup: own.Setup, request: protocol.Request, asked: List[str]) -> answers.Answer:
    """Verify again, copy, switch; the trial's id is the request's. `asked` is told what it is about."""
    from slotward import audit, cancelling, cmd_upgrade, handed, host, lock, manager, switching, telling
    from slotward import prepare as preparing

    product = setup.product
    if not os.path.isdir(product.slots_dir):
        raise codes.refused(codes.GUARD_NOT_INSTALLED, f"there is no {product.slots_dir}: run `slotward setup` first")
    known = telling.known(product, request.id, changed=False)
    if known is not None:
        return known
    with audit.refusals(product, asked), lock.held(product, f"swap {request.id}"):
        manager.settle_now(product)
        with cancelling.possible():
            found = handed.documents(setup, request)
            asked.extend((found.target.version, found.target.sha256))
            consent = preparing.Consent(server_s=request.server_time or 0, permit=found.permit)
            prepared = preparing.prepare(setup, found.target, consent, src=setup.inbox)
            if prepared.there:
                shown = cmd_upgrade.shown(setup, prepared, would=False)
                return answers.Answer(answers.DONE, shown, cmd_upgrade.said(setup, prepared))
            switching.refuse_used_id(prepared, request.id)
            audit.started(product, request.id, prepared.from_version, prepared.record)
            descriptor = handed.open_artifact(setup, prepared)
            try:
                pending = switching.swap(setup, prepared, descriptor, request.id)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
    return telling.begun(product, pending, host.read_state(product))
