# SPDX-License-Identifier: GPL-3.0-or-later
"""A remote call that cannot hang for ever."""

from __future__ import annotations

import importlib
import signal
import time
from typing import Any, Dict

import pytest


@pytest.fixture(scope="module")
def bounded() -> Any:
    """The module under test."""
    return importlib.import_module("ansible_collections.slotward.fleet.plugins.plugin_utils.bounded")


def test_a_call_that_takes_too_long_is_ended(bounded: Any) -> None:
    """Not by an Exception: connection plugins retry those."""
    since = time.monotonic()
    with pytest.raises(bounded.TooLong), bounded.within(0.2):
        time.sleep(5)
    assert not issubclass(bounded.TooLong, Exception)
    assert time.monotonic() - since < 3


def test_nothing_is_left_behind(bounded: Any) -> None:
    """Neither the alarm nor its handler outlives the call, however it ends."""
    before = signal.getsignal(signal.SIGALRM)
    with bounded.within(30):
        pass
    with pytest.raises(ValueError, match="x"), bounded.within(30):
        raise ValueError("x")
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_tasks_own_timeout_is_left_alone(bounded: Any) -> None:
    """Its alarm still rings, and ours does not."""
    before = signal.signal(signal.SIGALRM, lambda *_args: None)
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        with bounded.within(0.01):
            time.sleep(0.05)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Connection:
    """A connection's options."""

    def __init__(self, transport: str, extra: str) -> None:
        self.transport = transport
        self.options: Dict[str, str] = {"ssh_extra_args": extra}

    def get_option(self, name: str) -> str:
        """As Ansible's."""
        return self.options[name]

    def set_option(self, name: str, value: str) -> None:
        """As Ansible's."""
        self.options[name] = value


@pytest.mark.parametrize(
    ("transport", "extra", "expected"),
    [
        ("ssh", "", "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"),
        ("ssh", "-v", "-v -o ServerAliveInterval=5 -o ServerAliveCountMax=3"),
        ("ssh", "-o ServerAliveInterval=60", "-o ServerAliveInterval=60"),
        ("local", "", ""),
    ],
)
def test_ssh_notices_a_dead_peer(bounded: Any, transport: str, extra: str, expected: str) -> None:
    """What the inventory says stands; other connections have no such option."""
    connection = Connection(transport, extra)
    bounded.keep_alive(connection)
    bounded.keep_alive(connection)
    assert connection.options["ssh_extra_args"] == expected
