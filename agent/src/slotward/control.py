# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's part of an update: what is asked over its control socket, each as a child (privilege.md, section 5).

Rules:
- The daemon changes nothing itself and waits for nothing: as root its commands run in transient units outside its sandbox,
  as another account they are children of its own group, which the helper, or the next start, serves.
- One piece of work at a time. The child's JSON is the answer, its standard error the journal's.
- What the records say of an id is the answer for it, whoever restarted meanwhile: the same upgrade is never begun twice.
- A daemon that is stopped ends an upgrade that has not switched; what has switched goes on without it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from slotcore import codes, config_table, protocol, reply, rfc3339
from slotward import (
    answers,
    binding,
    build_info,
    caller,
    calling,
    host,
    inbox,
    looping,
    own,
    repeating,
    seqpacket,
    working,
)

Answer = Callable[[reply.Reply], None]
WHO = "control-socket"
ENDED_BY_STOP = 128 + signal.SIGTERM
STOP_S = 2.0
"""So long after its child a daemon is stopped with it."""
SOURCE = "gateway"
"""As whom the daemon confirms: it stands for the control side that it is connected to."""


def _tell(request: protocol.Request, found: working.Ended, answer: Answer) -> None:
    try:
        answer(reply.of_command(request.id, found.status, found.answer))
    except codes.Retryable as error:
        answer(reply.refusal(request.id, error.code, error.text))


class Control:
    """What the daemon does for who asks it."""

    def __init__(self, setup: own.Setup, waits: looping.Loop, leave: Callable[[], None]) -> None:
        self._setup = setup
        self._loop = waits
        self._worker = working.Worker(waits)
        self._program = build_info.program_path()  # now: after a switch the same link leads to another release
        self._leave = leave
        self._unit = ""
        """The transient unit of the upgrade that is going on, as root."""
        self._repeats = repeating.Repeats()
        self._server: Optional[seqpacket.Server] = None
        self._listener: Optional[socket.socket] = None

    @property
    def shown(self) -> Optional[Dict[str, Any]]:
        """What is going on."""
        return self._worker.shown()

    # -- at the daemon's start and end ---------------------------------------------------------------------------

    def listen(self, sha256: str, note: Callable[[str], None]) -> None:
        """Serve root and the daemon's own account; `note` is told of everybody else, and of a socket that cannot be made."""
        path = calling.daemon(self._setup.config.socket_path).path
        own_account = caller.Account(self._setup.config.user, os.geteuid(), os.getegid())
        service = seqpacket.Service(
            hello=lambda nonce: protocol.Hello(
                build_info.NAME, protocol.VERSIONS, nonce, build_info.VERSION, sha256 or "0" * 64
            ),
            door=caller.Door(own_account, None),
            operations=protocol.NODE_OPERATIONS,
            serve=self._serve,
            note=note,
            descriptors=len(inbox.KINDS),
        )
        try:
            self._listener = binding.listen(path, 0o600, os.getegid(), seqpacket.BACKLOG)
        except (OSError, codes.Refused) as error:
            note(f"no control socket at {path}: {error}; `slotward ask` cannot ask this daemon")
            return
        self._server = seqpacket.Server(self._loop, self._listener, service)

    def settle(self, done: Callable[[str], None]) -> None:
        """Have an update in flight settled; `done` is told what went wrong, "" for nothing."""
        argv = [self._program, "--config", self._setup.config_path, "settle", "--json"]
        if self._setup.config.mode == config_table.ROOT:
            argv = self._transient(argv, "settle", str(os.getpid()), ["--no-block"])

        def ended(found: working.Ended) -> None:
            said = str(found.answer.get("message", ""))
            done("" if found.status == answers.DONE else f"settling ended with status {found.status}: {said}")

        self._worker.start("settle", argv, ended)

    def tidy(self) -> None:
        """Remove what an earlier daemon left in staging; while something is at work it may still be needed."""
        if not self._worker.what:
            inbox.tidy(self._setup)

    def stop(self) -> None:
        """End what is going on, and serve nobody any more."""
        if self._server is not None and self._listener is not None:
            self._server.close()
            self._listener.close()
            with contextlib.suppress(OSError):
                os.unlink(calling.daemon(self._setup.config.socket_path).path)
        if self._unit and not self._switched():
            with contextlib.suppress(OSError):
                argv = ["systemctl", "--no-block", "stop", "--", self._unit]
                os.waitpid(os.posix_spawnp(argv[0], argv, dict(os.environ)), 0)
        self._worker.stop()

    def _switched(self) -> bool:
        """Whether it is the switch that stops this daemon."""
        try:
            state = host.read_state(self._setup.product)
        except OSError:
            return True  # nobody knows: what has begun may end by itself
        return state.current != state.good

    # -- what is asked -------------------------------------------------------------------------------------------

    def _serve(self, asked: seqpacket.Asked) -> None:
        """Do what is asked, and answer now or later, once."""
        request = asked.request
        try:
            self._repeats.demand_same(request)
            found = self._known(request)
            if found is not None:
                asked.answer(found)
                return
            answer = self._repeats.begin(request, asked.answer)
            if answer is not None:
                self._answer_new(request, asked.descriptors, answer)
        except answers.CODED as error:
            asked.answer(reply.refusal(request.id, error.code, error.text))
        except OSError as error:
            asked.answer(reply.refusal(request.id, codes.OS_ERROR, f"cannot read the slots: {error}"))
        finally:
            for descriptor in asked.descriptors:
                os.close(descriptor)

    def _answer_new(self, request: protocol.Request, files: Sequence[int], answer: Answer) -> None:
        try:
            self._begin(request, files, answer)
        except answers.CODED as error:
            answer(reply.refusal(request.id, error.code, error.text))

    def _known(self, request: protocol.Request) -> Optional[reply.Reply]:
        """What the records say of an upgrade under this id: its trial is pending, or has ended."""
        if request.op != protocol.NODE_UPGRADE:
            return None
        from slotward import telling

        found = telling.known(self._setup.product, request.id, changed=False)
        return None if found is None else reply.of_command(request.id, found.exit, found.json)

    def _begin(self, request: protocol.Request, files: Sequence[int], answer: Answer) -> None:
        self._worker.demand_idle()  # before anything is said of new work
        names: Dict[str, str] = {}
        if request.op == protocol.NODE_UPGRADE:
            from slotward import handing

            names = handing.take(request, files, self._setup.inbox)
        argv, what = self._argv(request, names)

        def ended(found: working.Ended) -> None:
            self._ended(request, names, found, answer)

        try:
            self._worker.start(what, argv, ended)
        except codes.Retryable:
            self._drop(names)
            raise

    def _argv(self, request: protocol.Request, names: Dict[str, str]) -> Tuple[List[str], str]:
        """The command that does it, and what it is called."""
        word = request.op.partition(".")[2]
        trial_id = request.trial or request.id
        argv = [self._program, "--config", self._setup.config_path, word, "--json", "--id", trial_id]
        if request.op == protocol.NODE_UPGRADE:
            argv += ["--no-wait", *(part for kind, path in names.items() for part in (f"--{kind}", path))]
            argv += ["--server-time", rfc3339.render(request.server_time)] if request.server_time is not None else []
        elif request.op == protocol.NODE_CONFIRM:
            argv += ["--source", SOURCE, "--wait", str(request.wait or 0)]
        elif request.why:
            argv += [f"--why={request.why}"]
        self._unit = ""
        if self._setup.config.mode == config_table.ROOT:
            if request.op == protocol.NODE_UPGRADE:
                argv.append("--here")
                self._unit = f"slotward-{word}-{build_info.NAME}-{request.id}.service"
            argv = self._transient(argv, word, request.id, ["--pipe", "--wait"])
        return argv, f"{word} {trial_id}"

    def _transient(self, argv: List[str], word: str, suffix: str, options: List[str]) -> List[str]:
        unit = f"--unit=slotward-{word}-{build_info.NAME}-{suffix}"
        who = f"--property=Environment=SLOTWARD_WHO={WHO}"
        return ["systemd-run", "--quiet", "--collect", *options, unit, who, "--", *argv]

    def _ended(self, request: protocol.Request, names: Dict[str, str], found: working.Ended, answer: Answer) -> None:
        stopped = not found.answer and (found.status == ENDED_BY_STOP or bool(self._unit))
        if not stopped:  # else who waited for the unit has ended, and it may go on
            self._unit = ""
        waits = self._setup.config.mode == config_table.START and found.answer.get("state") == "staged"
        if not waits:
            self._drop(names)
        if stopped:
            # a stop of the unit reaches the child too, and may reach it first: the switch's stop is no failure to tell of
            self._loop.at(request.id, looping.now() + STOP_S, lambda: _tell(request, found, answer))
            return
        _tell(request, found, answer)
        if waits:
            self._leave()  # the start that follows carries it out

    def _drop(self, names: Dict[str, str]) -> None:
        for path in names.values():
            inbox.drop(*os.path.split(path))
