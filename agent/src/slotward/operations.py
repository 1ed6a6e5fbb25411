# SPDX-License-Identifier: GPL-3.0-or-later
"""What the helper has done for whoever asks: one operation at a time, each once (privilege.md, sections 3 and 4).

Rules:
- An operation is a command of root's in a transient unit; it reads its request from standard input, so that nothing of the
  caller's is ever an argument, and judges it anew.
- What was asked under an id before is answered as before (`repeating`); what is new waits for nobody, it is `in-progress`.
- Settling for the watchdog waits for no caller's operation; whoever asks to settle meanwhile gets that answer.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Optional, Tuple

from slotcore import codes, protocol, reply, strictjson
from slotward import build_info, repeating, seqpacket, systemd, transient, trial_ids

WHO = "SLOTWARD_WHO"
"""As `audit` has it, which a resident process has no other use for."""
HELPER = "helper"
LIMITS_S: Dict[str, float] = {
    protocol.PREPARE: 120,
    protocol.SWAP: 900,
    protocol.CONFIRM: 120 + protocol.MAX_WAIT_S,
    protocol.ROLLBACK: 120,
    protocol.SETTLE: 120,
}
Waiter = Callable[[reply.Reply], None]
Spawn = Callable[[List[str], bytes, float, Callable[[transient.Ended], None]], object]


def answer_of(request: protocol.Request, ended: transient.Ended) -> reply.Reply:
    """What a command's end means for who asked."""
    if ended.status is None:
        text = f"{request.op} did not end within {LIMITS_S[request.op]:g} s and is not waited for any longer"
        return reply.refusal(request.id, codes.SYSTEMD_FAILED, text)
    try:
        value = strictjson.parse(ended.output)
        if not isinstance(value, dict):
            raise strictjson.NotJson("it is no object")
        return reply.of_command(request.id, ended.status, value)
    except strictjson.NotJson as error:
        text = f"the command for {request.op} ended with status {ended.status} and gave no answer ({error}): see the journal"
        return reply.refusal(request.id, codes.BAD_ANSWER, text)
    except codes.Retryable as error:
        return reply.refusal(request.id, error.code, error.text)


class Operations:
    """Takes requests, and has them done."""

    def __init__(self, config_path: str, user: str, spawn: Spawn, after: Callable[[], None]) -> None:
        """`after` is called when an operation has ended, whatever came of it."""
        self._program = build_info.program_path()  # of now: the link may lead elsewhere later
        self._config_path = config_path
        self._user = user
        self._spawn = spawn
        self._after = after
        self._repeats = repeating.Repeats()
        self._running: Optional[protocol.Request] = None
        self._settling: Optional[List[Tuple[str, Waiter]]] = None

    def serve(self, asked: seqpacket.Asked) -> None:
        """Answer at once, or when it is done."""
        request = asked.request._replace(nonce=None)
        try:
            answer = self._repeats.begin(request, asked.answer)
        except codes.Refused as error:
            asked.answer(reply.refusal(request.id, error.code, error.text))
            return
        if answer is None:
            return
        if self._settling is not None and request.op == protocol.SETTLE:
            self._settling.append((request.id, answer))
        elif self._running is not None:
            text = f"{self._running.op} {self._running.id} is being done: ask again when it has ended"
            answer(reply.refusal(request.id, codes.IN_PROGRESS, text))
        else:
            self._begin(request, f"{HELPER}:{'root' if asked.peer.uid == 0 else self._user}", answer)

    def _begin(self, request: protocol.Request, who: str, answer: Waiter) -> None:
        self._running = request

        def done(found: reply.Reply) -> None:
            self._running = None
            answer(found)

        self._start(request, who, done)

    def settle(self) -> None:
        """Settle for the helper itself."""
        if self._settling is not None:
            return
        waiters: List[Tuple[str, Waiter]] = []
        self._settling = waiters

        def done(found: reply.Reply) -> None:
            self._settling = None
            for request_id, waiter in waiters:
                waiter(found._replace(id=request_id))

        self._start(protocol.Request(protocol.SETTLE, trial_ids.new()), HELPER, done)

    def _start(self, request: protocol.Request, who: str, done: Waiter) -> None:
        name = f"slotward-{request.op.replace('.', '-')}-{request.id}-{os.getpid()}"
        limit_s = LIMITS_S[request.op]
        properties = (f"RuntimeMaxSec={limit_s:g}", f"Environment={WHO}={who}")
        words = [self._program, "--config", self._config_path, "helper", "--do", "--json"]

        def ended(found: transient.Ended) -> None:
            done(answer_of(request, found))
            self._after()

        try:
            command = systemd.transient(words, name, properties)
            self._spawn(command, protocol.render_request(request), limit_s, ended)
        except OSError as error:
            text = f"cannot run systemd-run for {request.op}: {error.strerror}"
            done(reply.refusal(request.id, codes.SYSTEMD_FAILED, text))
            self._after()
