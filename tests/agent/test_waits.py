# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits that no step of the wall clock shortens or lengthens (I10), on every Python that the agent runs on."""

from __future__ import annotations

import pathlib
import re
import threading
import time
from typing import List

import pytest

from slotward import waits

SOURCES = pathlib.Path(waits.__file__).parent


def test_a_thread_is_waited_for_until_it_ends() -> None:
    """It ends long before its time, and its end is seen at once."""
    thread = threading.Thread(target=time.sleep, args=(0.2,))
    thread.start()
    began = time.monotonic()
    waits.join(thread, 60)
    assert not thread.is_alive()
    assert 0.1 < time.monotonic() - began < 30


@pytest.mark.parametrize("seconds", [0.3, 0.0, -1.0])
def test_a_thread_that_does_not_end_is_left(seconds: float) -> None:
    """After the time, not before, and without it at once."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    began = time.monotonic()
    waits.join(thread, seconds)
    took = time.monotonic() - began
    over.set()
    assert max(0.0, seconds) <= took < 30


def test_a_timer_acts_once_its_time_is_over() -> None:
    """And not before."""
    acted = threading.Event()
    began = time.monotonic()
    waits.Timer(0.3, acted.set)
    assert acted.wait(60)
    assert time.monotonic() - began >= 0.3


def test_a_timer_that_is_cancelled_does_nothing() -> None:
    """However little of its time is left."""
    acted: List[int] = []
    timer = waits.Timer(0.3, lambda: acted.append(1))
    timer.cancel()
    time.sleep(0.6)
    assert acted == []


def test_nothing_in_the_agent_waits_by_the_wall_clock() -> None:
    """Before Python 3.10 every wait for a lock with a time limit does: such waits are made in `waits` alone."""
    by_wall = re.compile(
        r"threading\.(Timer|Condition|Barrier)\b|\bqueue\.|thread\w*\.join\(|\.wait\(timeout|acquire\([^)\n]*timeout"
    )
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "waits.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if by_wall.search(line.replace("waits.join(", ""))
    ]
    assert found == []
