# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for threads that a step of the wall clock neither shortens nor lengthens (I10).

Before Python 3.10 whatever waits for a lock with a time limit (`Thread.join`, `Event.wait`, `threading.Timer`) counts by the
wall clock: a clock that is set back by hours makes it wait for hours. Sleeping counts by the monotonic clock everywhere.
"""

from __future__ import annotations

import threading
import time
from typing import Callable

FIRST_S, LONGEST_S = 0.001, 0.05
"""A look at first, and how long it is between two at last, in seconds."""


def join(thread: threading.Thread, seconds: float) -> None:
    """Wait for a thread to end, and no longer than so many seconds."""
    _until(lambda: not thread.is_alive(), seconds)


def _until(over: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    step = FIRST_S
    while not over():
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(step, left))
        step = min(2 * step, LONGEST_S)


class Timer:
    """Does something once so many seconds are over, in a thread of its own, unless it is cancelled before."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._cancelled = threading.Event()
        self._seconds, self._act = seconds, act
        threading.Thread(target=self._run, daemon=True).start()

    def cancel(self) -> None:
        """Do nothing any more."""
        self._cancelled.set()

    def _run(self) -> None:
        _until(self._cancelled.is_set, self._seconds)
        if not self._cancelled.is_set():
            self._act()
