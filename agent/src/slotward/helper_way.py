# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's account beside a helper: it fetches and asks; what is root's the helper has done (privilege.md, sections 4, 5).

Rules:
- What was asked for lies in staging, durable, before the helper is asked: the helper reads it there and nowhere else.
- The helper says what is to be fetched; this account fetches it, by the configuration's one transport (field case N1).
- Whoever ends this work before the switch is asked for leaves what was downloaded for the next try, and nothing else.
- Once the switch is asked for it is the helper's: a signal then only ends the wait, and the records say how it went.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from slotcore import checks, codes, protocol, records, reply
from slotward import answers, calling, inbox, manager, own, trial_ids

if TYPE_CHECKING:
    import argparse

    from slotward import prepare as prepares

POLL_S = 0.5
ANSWER_S = 600.0
"""A switch copies, runs the new program and waits for disks; a helper that takes longer is taken for silent."""
SOURCE = "gateway"
"""As whom the daemon's account confirms."""
PASSES = (codes.NOT_PROVEN, codes.NOT_CONFIRMED, codes.IN_PROGRESS)
"""What a confirmation may still wait for."""


class Asked(NamedTuple):
    """What an upgrade or a look ahead is about, as it lies in staging."""

    trial_id: str
    target: checks.Target
    names: Dict[str, str]
    """The keys of the request that name files in staging."""
    server_time: Optional[int]


def _ask(setup: own.Setup, op: str, request_id: str = "", **more: Any) -> reply.Reply:
    request = protocol.Request(op, request_id or trial_ids.new(), **more)
    return calling.ask(calling.helper(setup.config.helper_socket), request, limit_s=ANSWER_S)


def _answer(setup: own.Setup, op: str, found: reply.Reply, lines: Optional[List[str]] = None) -> answers.Answer:
    """The helper's answer as this command's own."""
    status, state = calling.outcome(op, found)
    base = answers.base(setup.product.name, state, found.code, found.message)
    said = [f"{state} ({found.code}): {found.message}"] if found.code != codes.OK or not lines else lines
    retry = found.answer.get("retry")
    said += [f"to allow it again: {retry}"] if retry else []
    return answers.Answer(status, {**base, **found.answer}, said)


def _demand_config(setup: own.Setup) -> None:
    if setup.problems:
        raise codes.BadConfig(setup.problems)


@contextlib.contextmanager
def _asked(setup: own.Setup, args: argparse.Namespace, trial_id: str) -> Iterator[Asked]:
    """What is asked for, put into staging; it is gone from there afterwards."""
    from slotward import prepare

    data = prepare.read_target_bytes(args.target)
    target = checks.parse_target(data)
    documents = {"target": data}
    if args.permit:
        documents["permit"] = prepare.read_whole_document(args.permit)
    names = {}
    try:
        for kind, content in documents.items():
            names[kind] = inbox.put(setup.inbox, f"{trial_id}.{kind}", content)
        yield Asked(trial_id, target, names, args.server_time)
    finally:
        for name in names.values():
            inbox.drop(setup.inbox, name)


def _prepared(setup: own.Setup, asked: Asked) -> reply.Reply:
    return _ask(setup, protocol.PREPARE, **asked.names, server_time=asked.server_time)


def prepare(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """What an upgrade would do, by root's own checks; each place of the file is asked by this account."""
    _demand_config(setup)
    with inbox.alone(setup.inbox), _asked(setup, args, trial_ids.new()) as asked:
        found = _prepared(setup, asked)
    answer = _answer(setup, protocol.PREPARE, found, [found.message or _would(found.answer)])
    if answer.exit != answers.DONE or not answer.json.get("artifact"):
        return answer
    wanted = _wanted(setup, asked.target, found.answer)
    if wanted.staged:
        answer.json["artifact"] = None
    elif asked.target.url and not args.src:
        from slotward import fetch, reach

        answer.json["sources"] = reach.ask(setup, fetch.sources_of(setup, asked.target), wanted.record.size)
        answer.lines.extend(reach.lines(answer.json["sources"]))
    return answer


def _would(found: Mapping[str, object]) -> str:
    if found.get("state") == "current":
        return f"{found.get('to')} is what runs: nothing to do"
    return f"{found.get('from')} -> {found.get('to')}, sequence {found.get('sequence')}"


def _wanted(setup: own.Setup, target: checks.Target, found: Mapping[str, object]) -> prepares.Prepared:
    """The file that root's checks ask for, and whether it lies in staging already."""
    from slotward import prepare

    artifact = found.get("artifact")
    size = artifact.get("size") if isinstance(artifact, dict) else None
    sha256 = artifact.get("sha256") if isinstance(artifact, dict) else None
    if not isinstance(size, int) or size < 0 or sha256 != target.sha256:
        raise codes.Retryable(codes.BAD_ANSWER, f"the helper asks for {artifact!r}, the target names {target.sha256}")
    record = records.SlotRecord(target.version, 0, target.sha256, size)
    seen = manager.look(setup.product)
    staged = prepare.is_staged(setup, record)
    return prepare.Prepared(target, seen, "", record, 0, there=False, reuse=False, staged=staged, adopt=False)


def _stage(setup: own.Setup, asked: Asked, found: reply.Reply, src: Optional[str]) -> None:
    """Bring what root's checks ask for into staging; nothing when it is there, or the other slot holds it."""
    from slotward import fetch

    if not found.answer.get("artifact"):
        return
    wanted = _wanted(setup, asked.target, found.answer)
    if not (src or wanted.staged or fetch.sources_of(setup, asked.target)):
        raise codes.refused(codes.BAD_URL, fetch.NOWHERE)
    os.close(fetch.stage(setup, wanted, src))


def upgrade(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Have root's checks made, fetch, have it switched; with the default flags also wait for the trial's end."""
    from slotward import cancelling

    _demand_config(setup)
    trial_id = trial_ids.demand(args.id) if args.id else trial_ids.new()
    with inbox.alone(setup.inbox), _asked(setup, args, trial_id) as asked:
        with cancelling.possible():
            found = _prepared(setup, asked)
            answer = _answer(setup, protocol.PREPARE, found, [found.message or _would(found.answer)])
            if answer.exit != answers.DONE or answer.json["state"] == "current":
                return answer
            _stage(setup, asked, found, args.src)
            if args.stage_only:
                staged = dict(answer.json, state="staged", changed=True)
                return answers.Answer(answers.DONE, staged, [f"{asked.target.version} is staged and verified"])
        found = _ask(setup, protocol.SWAP, trial_id, **asked.names, server_time=asked.server_time)
        answer = _answer(setup, protocol.SWAP, found, [found.message])
        if answer.exit == answers.DONE:
            inbox.drop(setup.inbox, _staged_name(setup, asked))
    if answer.exit != answers.DONE or args.no_wait:
        return answer
    from slotward import telling

    first = telling.known(setup.product, trial_id) or answer
    return telling.to_end(setup.product, trial_id, first)


def _staged_name(setup: own.Setup, asked: Asked) -> str:
    from slotward import prepare

    return os.path.basename(prepare.staged_path(setup, asked.target.version))


def confirm(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Confirm as the gateway, whose word the daemon carries; asked again until the wait is over."""
    if args.source != SOURCE:
        raise codes.refused(
            codes.WRONG_SOURCE, f"this account confirms as {SOURCE}, not as {args.source}: say --source {SOURCE}"
        )
    trial_id = trial_ids.demand(args.id)
    until = time.monotonic() + args.wait
    while True:
        left = until - time.monotonic()
        wait = min(protocol.MAX_WAIT_S, max(0, int(left)))
        found = _ask(setup, protocol.CONFIRM, trial=trial_id, wait=wait)
        if found.code not in PASSES or left <= POLL_S:
            return _answer(setup, protocol.CONFIRM, found, [f"{found.answer.get('to')} is confirmed"])
        time.sleep(POLL_S)


def rollback(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Give the release on trial up."""
    trial_id = args.id
    if not trial_id:
        pending = manager.look(setup.product).settlement.on_trial
        if pending is None:
            raise codes.refused(codes.NO_TRIAL, f"no trial of {setup.product.name} is pending")
        trial_id = pending.trial_id
    why = "".join(char if char.isprintable() else " " for char in args.why)[: protocol.MAX_WHY].strip()
    found = _ask(setup, protocol.ROLLBACK, trial=trial_ids.demand(trial_id), why=why or None)
    return _answer(setup, protocol.ROLLBACK, found)


def settle(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    """Have an update in flight finished or undone."""
    del args
    found = _ask(setup, protocol.SETTLE)
    return _answer(setup, protocol.SETTLE, found, [found.message])
