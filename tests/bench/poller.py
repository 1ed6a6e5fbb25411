# SPDX-License-Identifier: GPL-3.0-or-later
"""Polls a status socket until SIGTERM; prints the longest time (seconds) between two answers: poller.py SOCKET."""

from __future__ import annotations

import signal
import socket
import sys
import time


def answers(path: str) -> bool:
    """Whether the daemon behind the socket answers now."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(1)
        try:
            peer.connect(path)
            return bool(peer.recv(1))
        except OSError:
            return False


def main() -> None:
    """Poll until told to stop."""
    path = sys.argv[1]
    stopped = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    last = time.monotonic()
    longest = 0.0
    while not stopped:
        if answers(path):
            now = time.monotonic()
            longest = max(longest, now - last)
            last = now
        time.sleep(0.004)
    print(f"{longest:.4f}")


main()
