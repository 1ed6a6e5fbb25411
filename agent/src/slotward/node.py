# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward node`: the daemon. Without a gateway it is standalone and needs no network.

Rules:
- No update problem stops it: a bad configuration or record is a warning, and updates are refused (I8).
- It changes nothing itself: what must be written is done by `slotward settle` in a unit of its own, outside its sandbox.
- It sleeps until asked, signalled, or at a trial's deadline; at that deadline it starts the guard, as the timer does.
- Its status socket answers one JSON line with the digest of the bytes that run (I11).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from slotcore import settle
from slotward import answers, build_info, host, looking, own

if TYPE_CHECKING:
    import argparse

FRESH_S = 0.5
# sd-daemon(3) priorities, read by journald from the start of a line
WARNING, NOTICE, INFO = "<4>", "<5>", "<6>"


def log(level: str, text: str) -> None:
    """One line to the journal."""
    print(level + text, file=sys.stderr, flush=True)


def notify(*fields: str) -> None:
    """Tell systemd (sd_notify(3)); nothing happens outside a unit of Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as peer:
        try:
            peer.connect("\0" + address[1:] if address.startswith("@") else address)
            peer.send("\n".join(fields).encode("utf-8"))
        except OSError as error:
            log(WARNING, f"cannot tell systemd {fields[0]}: {error.strerror}")


class Node:
    """The running daemon: its socket, its signals, and the one deadline it may be waiting for."""

    def __init__(self, setup: own.Setup) -> None:
        self._setup = setup
        self._digest = build_info.running_digest()
        self._listener: Optional[socket.socket] = None
        self._answer_text = b""
        self._fresh_until = 0.0
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> int:
        """Serve until told to stop."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        for problem in self._setup.problems:
            log(WARNING, f"{problem}; updates are refused until it is mended, see `slotward doctor`")
        self._listen()
        deadline = self._settle()
        notify("READY=1", f"STATUS=version {build_info.VERSION}, standalone")
        log(INFO, f"slotward {build_info.VERSION} runs, standalone")
        self._loop(deadline)
        notify("STOPPING=1")
        self._close()
        return answers.DONE

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
        except OSError as error:
            listener.close()
            log(WARNING, f"no status socket at {path}: {error.strerror}; confirmations cannot ask it")

    def _settle(self) -> Optional[float]:
        """Decide about an update in flight; the uptime of the deadline to keep, if a trial is pending."""
        product = self._setup.product
        try:
            state, clock = host.read_state(product), host.clock()
        except OSError as error:
            log(WARNING, f"cannot read the slots: {error}; updates are refused")
            return None
        if state.broken is not None:
            log(WARNING, f"{state.broken[0]}: {state.broken[1]}; updates are refused, see `slotward doctor`")
        found = settle.decide(state, clock)
        deadline, due = None, settle.is_mendable(state)
        if found.on_trial is not None:
            left = settle.left_s(found.on_trial, clock)
            log(NOTICE, f"{found.on_trial.to_version} is on trial: {left} s left to be confirmed")
            deadline = host.uptime_s() + left
        elif found.action is not settle.Action.NONE:
            log(NOTICE, f"an update is in flight: {found.action.value} ({found.reason})")
            due = True
        elif settle.leftovers(state, host.names(product)):
            log(NOTICE, f"an update that was cut short has left files in {product.slots_dir}: removing them")
            due = True
        if settle.is_behind(product, state):
            log(NOTICE, f"{product.helper_unit} does not start slot {state.current}, which is current: it is to follow")
            due = True
        if due:
            self._outside("settle", [build_info.program_path(), "--config", self._setup.config_path, "settle"])
        return deadline

    def _outside(self, what: str, argv: List[str]) -> None:
        """Run a command as root in a unit of its own, without waiting for it."""
        unit = f"slotward-{what}-{self._setup.product.name}-{os.getpid()}"
        self._spawn(["systemd-run", "--quiet", "--collect", "--no-block", f"--unit={unit}", "--", *argv])

    def _spawn(self, argv: List[str]) -> None:
        try:
            pid = os.posix_spawnp(argv[0], argv, dict(os.environ))
            _pid, status = os.waitpid(pid, 0)
        except OSError as error:
            log(WARNING, f"cannot run {argv[0]}: {error.strerror}")
            return
        if status != 0:
            log(WARNING, f"{' '.join(argv)} failed with wait status {status}")

    def _at_deadline(self) -> None:
        log(NOTICE, "the deadline has come and nobody confirmed: asking the guard")
        self._spawn(["systemctl", "--no-block", "start", f"slotward-deadline@{self._setup.product.name}.service"])

    def _loop(self, deadline: Optional[float]) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if self._listener is not None:
            poller.register(self._listener, select.POLLIN)
        while True:
            timeout = None if deadline is None else max(0.0, deadline - host.uptime_s()) * 1000 + 50
            ready = poller.poll(timeout)
            if any(number == self._wake_read for number, _event in ready):
                if self._stop_asked():
                    return
            elif ready:
                self._answer()
            elif deadline is not None:
                self._at_deadline()
                deadline = None

    def _stop_asked(self) -> bool:
        received = os.read(self._wake_read, 64)
        return any(number in (signal.SIGTERM, signal.SIGINT) for number in received)

    def _answer(self) -> None:
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
        try:
            setup = own.load(self._setup.config_path)
            return dict(looking.look(setup, host.read_state(setup.product)), running=running)
        except OSError as error:
            return dict(answers.base(self._setup.product.name, "failed", message=str(error)), running=running)

    def _close(self) -> None:
        if self._listener is None:
            return
        self._listener.close()
        try:
            os.unlink(self._setup.config.socket_path)
        except OSError:
            return


def run(args: argparse.Namespace) -> answers.Answer:
    """Run the daemon until it is told to stop."""
    setup = own.load(args.config)
    status = Node(setup).run()
    return answers.Answer(status, answers.base(setup.product.name, "idle"), [])
