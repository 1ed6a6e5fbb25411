# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade may be ended until it switches: by `slotward cancel`, by systemd stopping its unit, by SIGINT.

Rules:
- Before the switch, SIGTERM and SIGINT end the work as an error does: files are closed, the lock is free, the part stays.
- An error that is raised while Python clears away an object is lost, so it is raised again each second until the work ends.
- What must not be left half done runs to its end first. From the first step of the switch on it is too late, and stays so:
  who asks between the switch and the end of the work is not told that nothing was switched.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from types import FrameType
from typing import Any, Iterator, List, Optional, Tuple

from slotcore import codes

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
AGAIN_S = 1.0
Handler = Any
"""What a signal means: a function, or what the system does with it."""
SAID = "cancelled before the switch: what runs here is what ran before; what was downloaded stays, and the next try goes on from it"


def _cancel(_number: int, _frame: Optional[FrameType]) -> None:
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    raise codes.Retryable(codes.CANCELLED, SAID)


@contextlib.contextmanager
def possible() -> Iterator[None]:
    """Inside, a signal raises Retryable `cancelled`."""
    old = [(number, signal.signal(number, _cancel)) for number in SIGNALS]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old:
            signal.signal(number, handler)


def _note_only(asked: List[int]) -> List[Tuple[int, Handler]]:
    """From now on a signal is remembered in `asked` and nothing else; what it meant before."""

    def note(number: int, _frame: Optional[FrameType]) -> None:
        asked.append(number)

    return [(number, signal.signal(number, note)) for number in SIGNALS]


@contextlib.contextmanager
def later() -> Iterator[None]:
    """What is inside is finished first; who asked meanwhile gets it at the end."""
    asked: List[int] = []
    old = _note_only(asked)
    try:
        yield
    finally:
        for number, handler in old:
            signal.signal(number, handler)
    if asked:
        raise codes.Retryable(codes.CANCELLED, SAID)


@contextlib.contextmanager
def too_late() -> Iterator[None]:
    """From here to the end of `possible` nothing is cancelled any more."""
    asked: List[int] = []
    _note_only(asked)
    yield
    if asked:
        print("too late to cancel: the switch had begun; `slotward rollback` ends the trial", file=sys.stderr)
