# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that never stop asking, and what they saw: how long nobody was answered, and whether what was acknowledged is there.

- A gap is the longest time in which not one of the clients got a good answer; it is measured from the last good one to the next.
- A restart is measured by the same clients on the same host in the same run, so that only ratios are compared.
- Nothing here knows the product: it speaks HTTP and Redis's protocol over sockets of its own, so no library hides a retry.
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

TIMEOUT_S = 2.0
PAUSE_S = 0.002


class Asking(Protocol):
    """One client's work."""

    def ask(self) -> str:
        """Ask once and give what was answered; raises OSError or ValueError when it was no good answer."""

    def close(self) -> None:
        """Let go of the connection."""


class Seen(NamedTuple):
    """One answer, good or not."""

    at: float
    """When it was there, by the monotonic clock."""
    good: bool
    text: str


class Web:
    """GET of one path, on a connection that is kept for some requests, as browsers and proxies do."""

    def __init__(self, address: str, port: int, path: str = "/", kept: int = 20) -> None:
        self._where = (address, port)
        self._request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode("ascii")
        self._kept = kept
        self._left = 0
        self._connection: socket.socket | None = None

    def ask(self) -> str:
        """One request; the body of an answer with status 200."""
        if self._connection is None or self._left == 0:
            self.close()
            self._connection = socket.create_connection(self._where, timeout=TIMEOUT_S)
            self._left = self._kept
        self._left -= 1
        try:
            self._connection.sendall(self._request)
            return self._answer(self._connection)
        except (OSError, ValueError):
            self.close()
            raise

    def _answer(self, connection: socket.socket) -> str:
        """Read an answer whose length is said, or that ends with the connection."""
        head, data = b"", b""
        while b"\r\n\r\n" not in head:
            block = connection.recv(65536)
            if not block:
                raise ConnectionResetError(f"closed after {len(head)} bytes of the head")
            head += block
        head, _end, data = head.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = {
            key.strip().lower(): value.strip() for key, _colon, value in (line.partition(":") for line in lines[1:])
        }
        if lines[0].split()[1] != "200":
            raise ValueError(lines[0])
        if fields.get("transfer-encoding") == "chunked":
            while not data.endswith(b"0\r\n\r\n"):
                data += self._more(connection)
        else:
            while len(data) < int(fields["content-length"]):
                data += self._more(connection)
        if fields.get("connection") == "close":
            self._left = 0
        return data.decode("utf-8", errors="replace")

    def _more(self, connection: socket.socket) -> bytes:
        block = connection.recv(65536)
        if not block:
            raise ConnectionResetError("closed within the body")
        return block

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Counter:
    """A client of Redis that counts what was acknowledged: an INCR and a SET in turn, each of its own key."""

    def __init__(self, address: str, port: int, name: str) -> None:
        self._where = (address, port)
        self._name = name
        self._connection: socket.socket | None = None
        self.counted = 0
        """The highest number that an INCR answered."""
        self.set = 0
        """How many SETs were acknowledged: of the keys name:1, name:2 and so on."""
        self.lost: list[str] = []
        """What was answered that cannot be, had nothing been lost."""

    def command(self, *words: str) -> str:
        """Say a command; its answer without the sign in front of it."""
        if self._connection is None:
            self._connection = socket.create_connection(self._where, timeout=TIMEOUT_S)
            self._file = self._connection.makefile("rb")
        try:
            said = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
            self._connection.sendall(said)
            line = self._file.readline()
            if not line.endswith(b"\r\n"):
                raise ConnectionResetError("closed within an answer")
            if line[:1] == b"$" and line != b"$-1\r\n":
                return self._file.read(int(line[1:]) + 2)[:-2].decode()
            if line[:1] == b"-":
                raise ValueError(line.decode().strip())
            return line[1:-2].decode()
        except (OSError, ValueError):
            self.close()
            raise

    def ask(self) -> str:
        """One INCR and one SET; an INCR that was not answered may have been counted, so it may only be too high."""
        answered = int(self.command("INCR", self._name))
        if answered <= self.counted:
            self.lost.append(f"INCR {self._name} answered {answered} after {self.counted}")
        self.counted = answered
        if self.command("SET", f"{self._name}:{self.set + 1}", str(answered)) == "OK":
            self.set += 1
        return str(answered)

    def missing(self) -> list[str]:
        """What was acknowledged and is not there now."""
        found = list(self.lost)
        if int(self.command("GET", self._name)) < self.counted:
            found.append(f"{self._name} is {self.command('GET', self._name)}, {self.counted} was acknowledged")
        keys = [f"{self._name}:{number}" for number in range(1, self.set + 1)]
        return found + [key for key in keys if self.command("EXISTS", key) != "1"]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._file.close()
            self._connection.close()
            self._connection = None


class Load:
    """Clients that ask without end, each in a thread of its own."""

    def __init__(self, clients: list[Asking]) -> None:
        self._clients = clients
        self._seen: list[list[Seen]] = [[] for _client in clients]
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=pair, daemon=True) for pair in zip(clients, self._seen, strict=True)
        ]

    def _ask(self, client: Asking, seen: list[Seen]) -> None:
        while not self._over.is_set():
            try:
                answered, good = client.ask(), True
            except (OSError, ValueError) as error:
                answered, good = f"{type(error).__name__}: {error}", False
            seen.append(Seen(time.monotonic(), good, answered))
            self._over.wait(PAUSE_S)

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and let go of the connections."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=TIMEOUT_S * 4)
            if thread.is_alive():
                raise AssertionError("a client does not end")
        for client in self._clients:
            client.close()

    def between(self, began: float, ended: float) -> list[Seen]:
        """What was seen in that time, in order."""
        found = [one for seen in self._seen for one in list(seen) if began <= one.at <= ended]
        return sorted(found)

    def gap(self, began: float, ended: float) -> float:
        """The longest time within that without a good answer, from the last good one before it to the next good one."""
        times = sorted(one.at for seen in self._seen for one in list(seen) if one.good)
        before = max((at for at in times if at <= began), default=began)
        after = min((at for at in times if at >= ended), default=time.monotonic())
        points = [before, *(at for at in times if before < at < after), after]
        return max(later - earlier for earlier, later in zip(points, points[1:], strict=False))

    def measured(self, work: Callable[[], object], settle_s: float = 1.0) -> float:
        """The gap that `work` makes, the time shortly after it included."""
        began = time.monotonic()
        work()
        time.sleep(settle_s)
        return self.gap(began, time.monotonic())


@contextlib.contextmanager
def running(*clients: Asking) -> Iterator[Load]:
    """Clients that ask while the block lasts."""
    load = Load(list(clients))
    load.start()
    try:
        yield load
    finally:
        load.stop()


class Wrked(NamedTuple):
    """What wrk said at its end."""

    requests: int
    """How many were answered."""
    wrong: int
    """Answers that are neither 2xx nor 3xx."""
    refused: int
    """Connections that were refused or cut; it tries again at once, so their number grows with the time and the machine's speed."""
    timeout: int
    """Questions that were answered too late, or not at all."""


def parse_wrk(said: str) -> Wrked:
    """The figures of wrk's report; what it says nothing of did not happen."""
    answered = re.search(r"(\d+) requests in ", said)
    if answered is None:
        raise ValueError(f"wrk says {said!r}")
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    connect, read, write, timeout = map(int, errors.groups()) if errors else (0, 0, 0, 0)
    return Wrked(int(answered[1]), int(wrong[1]) if wrong else 0, connect + read + write, timeout)


def wrk(url: str, connections: int, work: Callable[[], object]) -> Wrked:
    """What wrk saw of `url` while `work` was done, and shortly before and after it."""
    argv = [
        "nice",
        "-n",
        "10",
        "wrk",
        "--threads=1",
        f"--connections={connections}",
        "--duration=900s",
        "--timeout=10s",
        url,
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(2)
            work()
            time.sleep(2)
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=30)[0]
    return parse_wrk(said)
