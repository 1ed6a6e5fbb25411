# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that a resident process has run in a transient unit, without ever waiting for it.

Rules:
- What it is to read goes in before it starts; what it writes is read as it comes, and no more than a bound.
- It has a time; whoever waits is told when that is over, and systemd ends the unit by the same limit.
- When the resident process ends, the unit goes on: nothing of it hangs on us but its streams.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Dict, List, NamedTuple, Optional

from slotward import looping

MAX_OUTPUT = 256 * 1024
SPARE_S = 15.0
"""What systemd may need to end a unit whose time is over, and to say so."""
_CHUNK = 65536


class Ended(NamedTuple):
    """How it ended: its exit status, None when it was given up; and what it wrote to standard output."""

    status: Optional[int]
    output: bytes


class Child:
    """One running command; `done` is called once, in the loop."""

    def __init__(
        self,
        loop: looping.Loop,
        argv: List[str],
        content: bytes,
        limit_s: float,
        done: Callable[[Ended], None],
    ) -> None:
        """Start it; raises OSError. `content` must fit into a pipe."""
        self._loop = loop
        self._done = done
        self._output = b""
        self._read, write = os.pipe2(os.O_CLOEXEC)
        given, give = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(give, False)
        try:
            os.write(give, content)
            os.set_blocking(self._read, False)
            actions = [(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, write, 1)]
            self._pid = os.posix_spawnp(argv[0], argv, _environment(), file_actions=actions)
        except OSError:
            os.close(self._read)
            raise
        finally:
            for descriptor in (write, given, give):
                os.close(descriptor)
        self._pidfd = os.pidfd_open(self._pid)
        loop.watch(self._pidfd, lambda _events: self._ended())
        loop.watch(self._read, lambda _events: self._take())
        loop.at(self, looping.now() + limit_s + SPARE_S, self._give_up)

    def _take(self) -> None:
        """Read what is there, and keep what is within the bound: it never has to wait for us."""
        while True:
            try:
                block = os.read(self._read, _CHUNK)
            except BlockingIOError:
                return
            self._output = (self._output + block)[: MAX_OUTPUT + 1]
            if not block:
                self._loop.unwatch(self._read)
                return

    def _ended(self) -> None:
        _pid, status = os.waitpid(self._pid, 0)
        self._take()
        self._close()
        self._done(Ended(os.waitstatus_to_exitcode(status), self._output))

    def _give_up(self) -> None:
        """Let go of a command that does not end; its unit has its own limit."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._close()
        self._done(Ended(None, self._output))

    def _close(self) -> None:
        self._loop.cancel(self)
        for descriptor in (self._pidfd, self._read):
            self._loop.unwatch(descriptor)
            os.close(descriptor)


def _environment() -> Dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
