# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's one piece of work: a command that runs as a child, while the daemon goes on answering.

Rules:
- One at a time; who asks meanwhile is told what is going on and since when (`in-progress`).
- The child's standard output is its answer, taken as it comes and bounded; its standard error is the journal's.
- A daemon that is stopped ends its child first: gently, and after a while for good.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from slotcore import codes
from slotward import looping

STOP_S = 5.0
MAX_OUTPUT = 1 << 20
LEFT_OUT = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID")
"""What systemd tells the daemon alone."""


class Ended(NamedTuple):
    """How a child ended: its exit status (128 and the signal for one that was killed) and its answer, {} for none."""

    status: int
    answer: Dict[str, Any]


class Job(NamedTuple):
    """A child at work."""

    what: str
    began_s: float
    pid: int
    pidfd: int
    output: int
    said: bytearray
    done: Callable[[Ended], None]


def _answer_in(said: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Worker:
    """At most one child."""

    def __init__(self, waits: looping.Loop) -> None:
        self._loop = waits
        self._job: Optional[Job] = None

    @property
    def what(self) -> str:
        """What is going on; "" for nothing."""
        return self._job.what if self._job is not None else ""

    def shown(self) -> Optional[Dict[str, Any]]:
        """What is going on and for how long, as the status socket tells it."""
        if self._job is None:
            return None
        return {"what": self._job.what, "pid": self._job.pid, "age_s": int(time.monotonic() - self._job.began_s)}

    def demand_idle(self) -> None:
        """Raise Retryable `in-progress` while a child is at work."""
        if self._job is not None:
            age_s = int(time.monotonic() - self._job.began_s)
            text = f"the daemon is at work for {age_s} s: {self._job.what}, process {self._job.pid}; try again when it has ended"
            raise codes.Retryable(codes.IN_PROGRESS, text)

    def start(self, what: str, argv: List[str], done: Callable[[Ended], None]) -> None:
        """Run a command; `done` is called when it has ended. Raises Retryable: `in-progress`, or it cannot be run."""
        self.demand_idle()
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(write, True)
            environment = {key: value for key, value in os.environ.items() if key not in LEFT_OUT}
            streams = ((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, write, 1))
            pid = os.posix_spawnp(argv[0], argv, environment, file_actions=streams, setsigdef=[signal.SIGPIPE])
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.close(read)
            raise codes.Retryable(codes.OS_ERROR, f"cannot run {argv[0]}: {error.strerror}") from error
        finally:
            os.close(write)
        self._job = Job(what, time.monotonic(), pid, pidfd, read, bytearray(), done)
        self._loop.watch(read, self._take)
        self._loop.watch(pidfd, self._end)

    def _take(self, _events: int = 0) -> None:
        """Take what the child has written so far."""
        job = self._job
        while job is not None:
            try:
                block = os.read(job.output, 65536)
            except BlockingIOError:
                return
            if not block:
                self._loop.unwatch(job.output)
                return
            job.said.extend(block[: MAX_OUTPUT - len(job.said)])

    def _end(self, _events: int = 0) -> None:
        """The child has ended: take the rest, and say so."""
        job = self._job
        if job is None:
            return
        self._take()
        _pid, status = os.waitpid(job.pid, 0)
        self._loop.unwatch(job.output)
        self._loop.unwatch(job.pidfd)
        os.close(job.output)
        os.close(job.pidfd)
        self._job = None
        code = os.WTERMSIG(status) + 128 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        job.done(Ended(code, _answer_in(bytes(job.said))))

    def stop(self, limit_s: float = STOP_S) -> None:
        """End the child, if there is one; when this returns there is none."""
        job = self._job
        if job is None:
            return
        for number, wait_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(job.pidfd, number)
            poller = select.poll()
            poller.register(job.pidfd, select.POLLIN)
            if poller.poll(None if wait_s is None else wait_s * 1000):
                break
        self._end()
