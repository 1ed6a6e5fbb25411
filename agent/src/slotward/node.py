# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward node`: the daemon. Without a gateway it is standalone and needs no network.

Rules:
- No update problem stops it: a bad configuration or record is a warning, and updates are refused (I8).
- It changes nothing itself: what must be written is done by commands outside its sandbox (`control`).
- It sleeps until asked, signalled, or at a trial's deadline; at that deadline it starts the guard, as the timer does, when
  it is root. As another account it asks nobody: the timer, and the helper's watchdog, need no help (privilege.md).
- Its status socket answers one JSON line with the digest of the bytes that run (I11).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from slotcore import codes, config_table, settle
from slotward import answers, build_info, control, host, looking, looping, notifying, own, remains

if TYPE_CHECKING:
    import argparse

FRESH_S = 0.5
AFTER_S = 0.05
"""So much after the deadline it is over for whoever looks."""


class Node:
    """The running daemon: its sockets, its signals, and the one deadline it may be waiting for."""

    def __init__(self, setup: own.Setup) -> None:
        self._setup = setup
        self._digest = build_info.running_digest()
        self._listener: Optional[socket.socket] = None
        self._answer_text = b""
        self._fresh_until = 0.0
        self._loop = looping.Loop()
        self._control = control.Control(setup, self._loop, self._loop.stop)

    def run(self) -> int:
        """Serve until told to stop."""
        self._loop.on_signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._signalled)
        for problem in self._setup.problems:
            notifying.log(
                notifying.WARNING, f"{problem}; updates are refused until it is mended, see `slotward doctor`"
            )
        self._listen()
        self._control.listen(self._digest, lambda text: notifying.log(notifying.WARNING, text))
        self._settle()
        notifying.notify("READY=1", f"STATUS=version {build_info.VERSION}, standalone")
        notifying.log(notifying.INFO, f"slotward {build_info.VERSION} runs, standalone")
        self._loop.run()
        notifying.notify("STOPPING=1")
        self._close()
        self._control.stop()
        return answers.DONE

    def _signalled(self, numbers: List[int]) -> None:
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._loop.stop()

    def _listen(self) -> None:
        path = self._setup.config.socket_path
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
            os.fchmod(listener.fileno(), 0o600)  # what bind makes has this mode from the first moment (unix(7))
            listener.bind(path)
            listener.listen(16)
            self._listener = listener
            self._loop.watch(listener.fileno(), self._answer)
        except OSError as error:
            listener.close()
            notifying.log(
                notifying.WARNING, f"no status socket at {path}: {error.strerror}; confirmations cannot ask it"
            )

    def _settle(self) -> None:
        """Decide about an update in flight: have it settled, and keep a pending trial's deadline."""
        product = self._setup.product
        try:
            state, clock = host.read_state(product), host.clock()
        except OSError as error:
            notifying.log(notifying.WARNING, f"cannot read the slots: {error}; updates are refused")
            return
        if state.broken is not None:
            notifying.log(
                notifying.WARNING, f"{state.broken[0]}: {state.broken[1]}; updates are refused, see `slotward doctor`"
            )
        found = settle.decide(state, clock)
        due = settle.is_mendable(state)
        if found.on_trial is not None:
            left = settle.left_s(found.on_trial, clock)
            notifying.log(notifying.NOTICE, f"{found.on_trial.to_version} is on trial: {left} s left to be confirmed")
            self._loop.at("deadline", host.uptime_s() + left + AFTER_S, self._at_deadline)
        elif found.action is not settle.Action.NONE:
            notifying.log(notifying.NOTICE, f"an update is in flight: {found.action.value} ({found.reason})")
            due = True
        elif settle.leftovers(state, remains.names(product)):
            who = "the next start removes" if self._setup.config.mode == config_table.START else "removing"
            text = f"an update that was cut short has left files in {product.slots_dir}: {who} them"
            notifying.log(notifying.NOTICE, text)
            due = True
        if settle.is_behind(product, state):
            notifying.log(
                notifying.NOTICE,
                f"{product.helper_unit} does not start slot {state.current}, which is current: it is to follow",
            )
            due = True
        self._begin(due and self._setup.config.mode != config_table.START)  # there it was done before this start

    def _begin(self, due: bool) -> None:
        """Have it settled first, if that is due; then nothing that was asked for before is needed any more."""
        if not due:
            self._loop.at("tidy", looping.now(), self._control.tidy)  # once the daemon is ready
            return
        try:
            self._control.settle(self._settled)
        except codes.Retryable as error:
            self._settled(error.text)

    def _settled(self, problem: str) -> None:
        if problem:
            notifying.log(notifying.WARNING, problem)
        else:
            self._control.tidy()

    def _at_deadline(self) -> None:
        if self._setup.config.mode != config_table.ROOT:
            notifying.log(notifying.NOTICE, "the deadline has come and nobody confirmed: the guard takes it from here")
            return
        notifying.log(notifying.NOTICE, "the deadline has come and nobody confirmed: asking the guard")
        argv = ["systemctl", "--no-block", "start", f"slotward-deadline@{self._setup.product.name}.service"]
        try:
            _pid, status = os.waitpid(os.posix_spawnp(argv[0], argv, dict(os.environ)), 0)
        except OSError as error:
            notifying.log(notifying.WARNING, f"cannot run {argv[0]}: {error.strerror}")
            return
        if status != 0:
            notifying.log(notifying.WARNING, f"{' '.join(argv)} failed with wait status {status}")

    def _answer(self, _events: int) -> None:
        if self._listener is None:
            return
        try:
            peer, _address = self._listener.accept()
        except OSError:
            return
        with peer:
            peer.setblocking(False)
            try:
                peer.send(self._status())
            except OSError:
                return

    def _status(self) -> bytes:
        """The answer, made anew at most every half second: many who ask at once cost no more than one."""
        if time.monotonic() >= self._fresh_until:
            self._answer_text = json.dumps(self._look(), sort_keys=True).encode("utf-8") + b"\n"
            self._fresh_until = time.monotonic() + FRESH_S
        return self._answer_text

    def _look(self) -> Dict[str, Any]:
        running = {
            "pid": os.getpid(),
            "version": build_info.VERSION,
            "sequence": build_info.SEQUENCE,
            "sha256": self._digest,
        }
        work = self._control.shown
        try:
            setup = own.load(self._setup.config_path)
            return dict(looking.look(setup, host.read_state(setup.product)), running=running, work=work)
        except OSError as error:
            return dict(
                answers.base(self._setup.product.name, "failed", message=str(error)), running=running, work=work
            )

    def _close(self) -> None:
        if self._listener is None:
            return
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        try:
            os.unlink(self._setup.config.socket_path)
        except OSError:
            return


def _alone(path: str) -> None:
    """Raise Retryable where a daemon answers already: one typed on a shell would take its sockets away.

    Under systemd it is not asked: there is one of it then, and whoever holds the socket must not keep it from starting (I8).
    """
    if os.environ.get("NOTIFY_SOCKET") or not os.path.exists(path):
        return
    from slotward import process

    pid = process.ask_status(path)[1]
    if pid is not None:
        text = f"process {pid} answers at {path} already: slotward.service runs the daemon, see `systemctl status slotward`"
        raise codes.Retryable(codes.IN_PROGRESS, text)


def run(args: argparse.Namespace) -> answers.Answer:
    """Run the daemon until it is told to stop."""
    setup = own.load(args.config)
    _alone(setup.config.socket_path)
    status = Node(setup).run()
    return answers.Answer(status, answers.base(setup.product.name, "idle"), [])
