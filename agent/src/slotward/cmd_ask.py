# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward ask`: have the running daemon do its part, as what it is connected to would (privilege.md, section 5).

Rules:
- The daemon does the work as its mode has it; this command hands over open files, waits and tells.
- A connection that ends with the switch is no error: the records say how it went, by the trial's id.
- Who answers may be anybody who holds the daemon's account. Its word is enough for a no; that something was done is said by
  the records alone (I5), and nothing that it answers ends this command in another way than its own, or never.
- The same id may be asked again at any time: it is the same trial.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from typing import TYPE_CHECKING, Dict, List, Optional

from slotcore import asked, checks, codes, config_table, protocol, reply
from slotward import answers, calling, opening, own, telling, trial_ids

if TYPE_CHECKING:
    import argparse

FIRST_S = 3.0
"""So long a daemon is waited for that is not there."""
STARTS_S = 15.0
"""And so long while the trial that is meant has just begun: then it is the daemon's own start that is waited for."""
RECORDED_S = 2.0
"""So long a record is waited for that must be there by what the daemon says: between claim and record it is not."""
BEGIN_S = 150.0
"""So long the records are asked after the connection has ended: in start mode the switch is made by the next start."""
TOLD_S = 10.0
ANSWER_S = 720.0
"""So long a confirmation or a way back may take, the helper's answer and its waits included; a download has no such end."""
LOSSES = 5
"""So often an upgrade's connection may be lost: by the switch, and by restarts before it."""
PASSES = (codes.NOT_PROVEN, codes.NOT_CONFIRMED, codes.IN_PROGRESS)
FLAGS = {
    "upgrade": ("target", "permit", "id", "server_time", "no_wait"),
    "confirm": ("id", "wait"),
    "rollback": ("id", "why"),
}
NEEDED = {"upgrade": "target", "confirm": "id", "rollback": "id"}


def run(args: argparse.Namespace) -> answers.Answer:
    """Ask one of the three."""
    setup = own.load(args.config)
    wrong = _wrong(args)
    if wrong:
        return answers.usage(setup.product.name, wrong)
    if args.id is not None:
        trial_ids.demand(args.id)
    if args.what == "upgrade":
        return _upgrade(setup, args)
    return _confirm(setup, args) if args.what == "confirm" else _rollback(setup, args)


def _wrong(args: argparse.Namespace) -> str:
    """What is wrong with the command line."""
    if getattr(args, NEEDED[args.what]) is None:
        return f"slotward ask {args.what} needs --{NEEDED[args.what]}"
    every = sorted({flag for flags in FLAGS.values() for flag in flags})
    given = [flag for flag in every if flag not in FLAGS[args.what] and getattr(args, flag) not in (None, False)]
    return f"--{given[0].replace('_', '-')} does not go with slotward ask {args.what}" if given else ""


def _answer(setup: own.Setup, op: str, found: reply.Reply) -> answers.Answer:
    status, state = calling.outcome(op, found)
    base = answers.base(setup.product.name, state, found.code, found.message, found.answer.get("changed") is True)
    said = {key: value for key, value in found.answer.items() if key != "retry"}  # no command is taken from the account
    word = {answers.REFUSED: "refused", answers.RETRY: "try again later", answers.BROKEN: "updates are refused"}
    lines = [f"{word.get(status, state)} ({found.code}): {found.message}" if found.code != codes.OK else state]
    return answers.Answer(status, {**said, **base}, lines)


def _proven(setup: own.Setup, trial_id: str, told: answers.Answer, ended: bool = True) -> answers.Answer:
    """What was told; where that is that a trial has begun, or has `ended`, what the records say of it."""
    if told.exit != answers.DONE:
        return _allowing(setup, trial_id, told)
    found = _known(setup, trial_id) or telling.to_begin(setup.product, trial_id, RECORDED_S, telling.nothing)
    if found is None or (ended and found.json["state"] == "trial"):
        says = "no record here knows it" if found is None else "the records have it on trial"
        raise _untrue(f"that trial {trial_id} is {told.json['state']}, and {says}")
    more = {key: value for key, value in told.json.items() if key not in found.json}
    return found._replace(json={**more, **found.json, "changed": told.json["changed"]})


def _allowing(setup: own.Setup, trial_id: str, told: answers.Answer) -> answers.Answer:
    """What was told of a trial, with the command that allows its version again where the records have it as failed."""
    known = _known(setup, trial_id)
    retry = known.json.get("retry") if known is not None else None
    if not retry:
        return told
    return told._replace(json={**told.json, "retry": retry}, lines=[*told.lines, f"to allow it again: {retry}"])


def _untrue(text: str) -> codes.Retryable:
    return codes.Retryable(codes.BAD_ANSWER, f"the daemon answers {text}: see `slotward update` for what is so")


def _demand_runs(setup: own.Setup, target: checks.Target) -> None:
    """The daemon says that there is nothing to do; raises when something else runs here."""
    from slotward import host, prepare

    running, digest = prepare.running_version(setup.product, host.read_state(setup.product))
    if (running, digest) != (target.version, target.sha256):
        raise _untrue(f"that {target.version} is what runs, and {running or 'nothing that is known'} is")


class _Told:
    """Tells on standard error how far it is, each few seconds."""

    def __init__(self, what: str, part: str) -> None:
        self._what, self._part = what, part
        self._began = self._last = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last < TOLD_S:
            return
        self._last = now
        try:
            from slotward import progress

            fetched = f", {progress.bytes_text(os.stat(self._part).st_size)} fetched"
        except OSError:
            fetched = ""  # nothing is being fetched, or this account may not look
        said = f"{self._what}: at work for {now - self._began:.0f} s{fetched}"
        print(answers.plain(said), file=sys.stderr, flush=True)


def _handed(documents: Dict[str, bytes]) -> List[int]:
    """Descriptors of these bytes, which nobody changes any more."""
    files = []
    for kind, content in documents.items():
        descriptor = os.memfd_create(kind, os.MFD_CLOEXEC)
        files.append(descriptor)
        opening.write_all(descriptor, content)
    return files


def _upgrade(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    from slotward import prepare

    documents = {"target": prepare.read_target_bytes(args.target)}
    target = checks.parse_target(documents["target"])
    if args.permit:
        documents["permit"] = prepare.read_document(args.permit)
    digests = {kind: hashlib.sha256(content).hexdigest() for kind, content in documents.items()}
    trial_id = args.id or trial_ids.new()
    request = protocol.Request(
        protocol.NODE_UPGRADE,
        trial_id,
        target=digests["target"],
        permit=digests.get("permit"),
        server_time=args.server_time,
    )
    print(answers.plain(f"asking the daemon for {target.version}, trial {trial_id}"), file=sys.stderr, flush=True)
    part = os.path.join(setup.inbox, f"{setup.product.name}-{target.version}.part")
    files = _handed(documents)
    try:
        answer = _begun(setup, request, files, _Told(target.version, part))
    finally:
        for descriptor in files:
            os.close(descriptor)
    if answer.exit == answers.DONE and answer.json["state"] == "current":
        _demand_runs(setup, target)
    elif not _waits(setup, answer):
        answer = _proven(setup, trial_id, answer, ended=False)
    if answer.json.get("to", target.version) != target.version:
        raise codes.refused(
            codes.ID_REUSED,
            f"{trial_id} is the trial of {answer.json['to']}: choose another id for {target.version}",
        )
    answer = _clearable(setup, answer, target.version)
    follows = answer.exit == answers.DONE and not args.no_wait
    return telling.to_end(setup.product, trial_id, answer) if follows else answer


def _clearable(setup: own.Setup, answer: answers.Answer, version: str) -> answers.Answer:
    """The answer, with the command that allows this version again where the records have it as failed."""
    from slotward import clearable, host

    remembered = answer.exit == answers.REFUSED and host.read_state(setup.product).update.failure_of(version)
    return clearable.told(answer, version) if remembered else answer


def _waits(setup: own.Setup, answer: answers.Answer) -> bool:
    """Whether it is the next start that makes the switch."""
    return setup.config.mode == config_table.START and answer.json["state"] == "staged"


def _begun(setup: own.Setup, request: protocol.Request, files: List[int], told: _Told) -> answers.Answer:
    """The answer to an upgrade: its trial has begun, or why not."""
    server = calling.daemon(setup.config.socket_path)
    until: Optional[float] = None
    losses = 0
    while True:
        try:
            found = calling.once(server.path, request, files, waiting=told)
        except calling.Lost as error:
            known = _known(setup, request.id)
            if known is not None:
                return known
            losses += error.connected
            wait_s = BEGIN_S if error.connected else FIRST_S
            until = max(until or 0.0, time.monotonic() + wait_s) if error.connected or until is None else until
            if time.monotonic() >= until or losses > LOSSES:
                raise calling.unreachable(server, error) from error
            told()
            time.sleep(calling.POLL_S)
            continue
        # the switch stops the daemon's child with the daemon: that the child's end is told first is chance
        known = _known(setup, request.id) if found.code == codes.BAD_ANSWER else None
        if known is not None:
            return known
        answer = _answer(setup, request.op, found)
        if _waits(setup, answer):
            answer = telling.to_begin(setup.product, request.id, BEGIN_S, lambda: _left(setup, request.id)) or answer
        return answer


def _known(setup: own.Setup, trial_id: str) -> Optional[answers.Answer]:
    try:
        return telling.known(setup.product, trial_id) or _left(setup, trial_id)
    except OSError:
        return None


def _left(setup: own.Setup, trial_id: str) -> Optional[answers.Answer]:
    """In start mode, what root made of the request that the daemon left, where that was no trial."""
    if setup.config.mode != config_table.START:
        return None
    from slotward import start_way

    last = start_way.last_answer(setup)
    if last is None or last.id != trial_id or last.state == asked.TRIAL:
        return None
    done = last.state == asked.CURRENT
    status = answers.DONE if done else answers.REFUSED if last.final else answers.RETRY
    answer = answers.base(setup.product.name, last.state, last.code, last.message)
    return answers.Answer(status, answer, [f"{last.state} ({last.code}): {last.message}"])


def _patience_s(setup: own.Setup, trial_id: str) -> float:
    known = _known(setup, trial_id)
    return STARTS_S if known is not None and known.json["state"] == "trial" else FIRST_S


def _confirm(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    server = calling.daemon(setup.config.socket_path)
    until = time.monotonic() + (args.wait or 0.0)
    while True:
        left = until - time.monotonic()
        wait = min(protocol.MAX_WAIT_S, max(0, int(left)))
        request = protocol.Request(protocol.NODE_CONFIRM, trial_ids.new(), trial=args.id, wait=wait)
        found = calling.ask(server, request, limit_s=ANSWER_S, again_s=_patience_s(setup, args.id))
        if found.code not in PASSES or left <= telling.POLL_S:
            return _proven(setup, args.id, _answer(setup, request.op, found))
        time.sleep(telling.POLL_S)


def _rollback(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    why = "".join(char if char.isprintable() else " " for char in args.why or "")[: protocol.MAX_WHY].strip()
    request = protocol.Request(protocol.NODE_ROLLBACK, trial_ids.new(), trial=args.id, why=why or None)
    server = calling.daemon(setup.config.socket_path)
    until = time.monotonic() + _patience_s(setup, args.id)
    while True:
        try:
            found = calling.once(server.path, request, limit_s=ANSWER_S)
            if found.code == codes.IN_PROGRESS and time.monotonic() < until:  # it settles at its start
                time.sleep(calling.POLL_S)
                continue
            if found.code == codes.BAD_ANSWER and _known(setup, args.id) is not None:
                raise calling.Lost(found.message)  # going back ended its child first, as a switch may
            told = _answer(setup, request.op, found)
            done = _proven(setup, args.id, told)
            if told.json["state"] == "rollback-failed":  # the records cannot know what does not run
                return done._replace(json={**done.json, "state": told.json["state"]}, lines=told.lines)
            return _went_back(done)
        except calling.Lost as error:
            first = _known(setup, args.id)
            if first is None and error.connected:  # somebody has won its end, and has not written it down yet
                first = telling.to_begin(setup.product, args.id, STARTS_S, telling.nothing)
            on_its_way = error.connected or (first is not None and first.json["state"] != "trial")
            if first is None or (not on_its_way and time.monotonic() >= until):
                raise calling.unreachable(server, error) from error
            if on_its_way:  # going back ends the daemon that was asked
                return _went_back(telling.to_end(setup.product, args.id, first))
        time.sleep(calling.POLL_S)


def _went_back(ended: answers.Answer) -> answers.Answer:
    """Going back was what was asked for."""
    return ended._replace(exit=answers.DONE) if ended.json["state"] == "rolled-back" else ended
