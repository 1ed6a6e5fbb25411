# SPDX-License-Identifier: GPL-3.0-or-later
"""One poll loop: descriptors to watch, moments to wake at. With no moment it sleeps until something comes.

Rules:
- Moments are seconds of CLOCK_BOOTTIME (I10). poll(2) counts without the time that a host was suspended, so while there
  is one it looks at the clock every few seconds; without one it never wakes.
- What is called may watch, unwatch and close anything: an event of an earlier descriptor of the same number is dropped.
- Nothing here blocks but the poll itself; what is called must not either.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Callable, Dict, Hashable, List, Optional, Sequence, Tuple

LOOK_AGAIN_S = 10.0

Called = Callable[[int], None]


def now() -> float:
    """Seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Loop:
    """The loop of one process."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._watched: Dict[int, Tuple[Called, int]] = {}
        self._moments: Dict[Hashable, Tuple[float, Callable[[], None]]] = {}
        self._round = 0
        self._stopped = False

    def watch(self, descriptor: int, called: Called, events: int = select.POLLIN) -> None:
        """Call `called(events)` when there are such events; errors and hang-ups always count. Replaces an earlier watch."""
        self._poller.register(descriptor, events)
        self._watched[descriptor] = (called, self._round)

    def unwatch(self, descriptor: int) -> None:
        """Forget a descriptor; must come before it is closed."""
        if self._watched.pop(descriptor, None) is not None:
            self._poller.unregister(descriptor)

    def at(self, key: Hashable, when: float, called: Callable[[], None]) -> None:
        """Call once at that moment; a key has one moment, the last one set."""
        self._moments[key] = (when, called)

    def cancel(self, key: Hashable) -> None:
        """No call for this key."""
        self._moments.pop(key, None)

    def stop(self) -> None:
        """Let `run` return after this round."""
        self._stopped = True

    def on_signals(self, numbers: Sequence[int], called: Callable[[List[int]], None]) -> None:
        """Call with the numbers of signals that came."""
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda _number, _frame: None)
        self.watch(read, lambda _events: called(list(os.read(read, 64))))

    def run(self) -> None:
        """Wait and call until stopped."""
        while not self._stopped:
            ready = self._poller.poll(self._timeout_ms())
            self._round += 1
            for descriptor, events in ready:
                called, since = self._watched.get(descriptor, (None, 0))
                if called is not None and since < self._round:
                    called(events)
            self._due()

    def _timeout_ms(self) -> Optional[float]:
        if not self._moments:
            return None
        left = min(when for when, _called in self._moments.values()) - now()
        return min(max(left, 0.0), LOOK_AGAIN_S) * 1000 + 1  # poll counts whole milliseconds, downwards

    def _due(self) -> None:
        moment = now()
        for key in [key for key, (when, _called) in self._moments.items() if when <= moment]:
            found = self._moments.pop(key, None)
            if found is not None:
                found[1]()
