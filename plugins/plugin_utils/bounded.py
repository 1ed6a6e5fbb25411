# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: a remote call that cannot hang for ever on a dead connection.

Rules:

* SSH notices a dead peer by keep-alives; a connection that was opened without them is ended by an alarm.
* A task's own ``timeout`` keeps its alarm; then the task is bounded already and nothing is done here.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType
from typing import Any, Iterator, Optional

KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"


class TooLong(BaseException):
    """The bound is over. Not an Exception: connection plugins retry those."""


def _ring(_number: int, _frame: Optional[FrameType]) -> None:
    raise TooLong


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong in the body when it takes longer than ``seconds``."""
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def keep_alive(connection: Any) -> None:
    """Make a new SSH connection notice within 15 s that its peer is gone; what the inventory says goes first."""
    if getattr(connection, "transport", "") != "ssh":
        return
    said = connection.get_option("ssh_extra_args") or ""
    if "ServerAliveInterval" not in said:
        connection.set_option("ssh_extra_args", ("%s %s" % (said, KEEP_ALIVE)).strip())
