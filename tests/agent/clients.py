# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of the protocol for tests, good ones and others; as another account, or in another control group, in a fork."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Iterator, List, Optional, Sequence

import pytest

from slotcore import codes, protocol, reply

ROOT = pathlib.Path(__file__).resolve().parents[2]
HIERARCHIES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup")
ID = "0123456789abcdef"
TRIAL = "fedcba9876543210"


def connect(path: str, timeout_s: float = 5.0) -> socket.socket:
    """A connection."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        peer.connect(path)  # waits for its turn; with a time limit it would not
    except OSError:
        peer.close()
        raise
    peer.settimeout(timeout_s)
    return peer


def greeted(peer: socket.socket) -> protocol.Hello:
    """Its greeting."""
    return protocol.parse_hello(peer.recv(protocol.MAX_ANSWER + 1))


def request(nonce: str, why: Optional[str] = None, number: str = ID) -> bytes:
    """A good request."""
    return protocol.render_request(protocol.Request(protocol.ROLLBACK, number, nonce, trial=TRIAL, why=why))


def answered(peer: socket.socket) -> reply.Reply:
    """The answer; who has sent more than was read is told of that first, and once (unix(7))."""
    try:
        data = peer.recv(protocol.MAX_ANSWER + 1)
    except ConnectionResetError:
        data = peer.recv(protocol.MAX_ANSWER + 1)
    return reply.parse(data)


def ask(path: str, why: Optional[str] = None) -> reply.Reply:
    """What a good client does."""
    with connect(path) as peer:
        peer.send(request(greeted(peer).nonce, why))
        return answered(peer)


def is_closed(peer: socket.socket) -> bool:
    """Whether the server has ended the connection, after whatever it has still sent."""
    with contextlib.suppress(ConnectionError):
        while True:
            if not peer.recv(protocol.MAX_ANSWER + 1):
                return True
    return True


def forked(act: Callable[[], Any], uid: int = 0, gid: int = 0, group: Optional[Group] = None) -> Any:
    """Do it in a process of its own, as that account and in that group; its answer."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if group is not None:
                group.join()
            if os.geteuid() == 0:
                os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.write(write, json.dumps(act()).encode())
        except (OSError, AssertionError, ValueError, codes.Retryable):
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    assert data, "the client failed, see its trace"
    return json.loads(data)


class Group:
    """A control group of a test's own, in systemd's hierarchy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = "/" + name
        self._directory = ""
        for top in HIERARCHIES:
            with contextlib.suppress(OSError):
                pathlib.Path(top, name).mkdir(parents=True)
                self._directory = f"{top}/{name}"
                return
        pytest.skip("needs root to make a control group")

    def join(self) -> None:
        """Take this process into it."""
        pathlib.Path(self._directory, "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        """It is empty by then, or soon."""
        until = time.monotonic() + 5
        while True:
            try:
                pathlib.Path(self._directory).rmdir()
                if "/" in self.name:
                    pathlib.Path(self._directory).parent.rmdir()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)


class Server:
    """A server as a process, and what it holds open."""

    def __init__(self, path: object, argv: Sequence[object], first: str, **more: Any) -> None:
        """Start it; it is ready with its line `first`."""
        self.path = str(path)
        self.process = subprocess.Popen([str(word) for word in argv], text=True, **more)
        stream = self.process.stdout or self.process.stderr
        assert stream is not None
        line = stream.readline()
        if first not in line:
            self.process.kill()
            raise AssertionError(line + str(self.process.communicate()))
        self.rest = self.descriptors

    @property
    def descriptors(self) -> List[str]:
        """What it has open."""
        names = []
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(f"/proc/{self.process.pid}/fd/{name}"))
        return sorted(names)

    def comes_to_rest(self) -> bool:
        """Whether it has soon open what it had before its first client, and no child."""
        until = time.monotonic() + 5
        while self.descriptors != self.rest or self.children():
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def children(self) -> str:
        """Its children's process ids."""
        return pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()

    def switches(self) -> int:
        """How often it has run."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


class Serving(Server):
    """The server of serving.py."""

    def __init__(self, path: pathlib.Path, *arguments: object) -> None:
        top = [str(ROOT / "plugins" / "module_utils"), str(ROOT / "agent" / "src")]
        argv = [sys.executable, "-B", pathlib.Path(__file__).parent / "serving.py", path, *arguments]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(top)}
        super().__init__(path, argv, "ready", env=environment, stdout=subprocess.PIPE)


@contextlib.contextmanager
def serving(path: pathlib.Path, *arguments: object) -> Iterator[Serving]:
    """A server for as long as this lasts; it is alive at the end."""
    found = Serving(path, *arguments)
    try:
        yield found
        assert found.process.poll() is None
    finally:
        found.end()
