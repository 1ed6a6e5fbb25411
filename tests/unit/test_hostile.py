# SPDX-License-Identifier: GPL-3.0-or-later
"""The enemy's code does what it says: against a server that is as careless as it can be, each of its ways gets through."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support import hostile

NUMBER = "00000000000000aa"


class Careless:
    """Answers every packet with what was in it, and keeps whoever connects."""

    def __init__(self, path: str) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _address = self._listener.accept()
            except OSError:
                return
            peer.send(json.dumps({"nonce": "n" * 32}).encode())
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(ConnectionError):
            while data := peer.recv(1 << 17):
                self.heard.append(data)
                peer.send(json.dumps({"code": "ok", "len": len(data)}).encode())

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[tuple[str, Careless]]:
    """A careless server, and where it listens."""
    path = str(tmp_path / "socket")
    found = Careless(path)
    yield path, found
    hostile.hang_up()
    found.close()


def test_it_speaks_the_protocol(server: tuple[str, Careless]) -> None:
    """What an honest caller says is one object with the nonce."""
    path, careless = server
    assert hostile.ask(path, "update.settle", NUMBER, {"wait": 1})["code"] == "ok"
    said = json.loads(careless.heard[0])
    assert said == {"protocol": 1, "nonce": "n" * 32, "id": NUMBER, "op": "update.settle", "wait": 1}


def test_it_says_anything(server: tuple[str, Careless]) -> None:
    """Packets of any bytes, of any size, half-closed, and after each other."""
    path, careless = server
    answers = hostile.frames(path, ["\xff\x00", "NONCE", "x" * 100_000], timeout=0.3)
    assert [answer.get("len") for answer in answers[:3]] == [2, 32, 100_000]
    assert answers[3] == {"ended": "timeout"}
    assert hostile.frames(path, ["y"], end="write")[-1] == {"ended": "closed"}
    assert hostile.frames(path, ["z"], end="both") == []
    assert careless.heard[:2] == [b"\xff\x00", b"n" * 32]


def test_it_crowds(server: tuple[str, Careless]) -> None:
    """Connections that are kept, clients that stop, descriptors in heaps, a flood."""
    path = server[0]
    assert hostile.open_many(path, 40) == {"made": 40, "closed": 0}
    assert hostile.still_open() == 40
    assert [answer.get("code") for answer in hostile.descriptors(path, 2, 100)] == ["ok", "ok"]
    assert hostile.by_another(path, "update.settle", NUMBER, {})["code"] == "ok"
    hostile.hang_up()
    assert hostile.still_open() == 0


def _told(process: subprocess.Popen[str], *words: object) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_it_is_led_by_lines(tmp_path: pathlib.Path, server: tuple[str, Careless]) -> None:
    """As a process: answers what it was asked, tells errors, and takes what it began with it."""
    argv = [sys.executable, hostile.__file__, "-", "root" if os.geteuid() == 0 else "nobody"]
    if os.geteuid() != 0:
        pytest.skip("becomes another account")
    kept = tmp_path / "kept"
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert _told(process, "who")["ok"]["pid"] == process.pid
        for kind in hostile.KINDS:
            assert _told(process, "make", str(kept), kind, "/etc/hostname", "data") == {"ok": None}, kind
            assert os.path.lexists(kept) == (kind != "missing"), kind
        assert "FileNotFoundError" in _told(process, "write", str(tmp_path / "none" / "x"), "")["error"]
        child = _told(process, "swap_for_ever", str(kept), "/etc/hostname", "data")["ok"]
        assert _told(process, "stopped_clients", server[0], 2) == {"ok": 2}
        assert _told(process, "hang_up") == {"ok": 3}
        assert not os.path.exists(f"/proc/{child}")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_pid_comes_round(server: tuple[str, Careless]) -> None:
    """A child that connected and ended: its pid is taken by another, and both ways of sending get through here."""
    if not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK) or os.geteuid() != 0:
        pytest.skip("needs root to set the next pid")
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, hostile.__file__, "-", "root"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        _told(process, "will_send", "update.settle", NUMBER, {})
        pid = _told(process, "leave_connection", server[0])["ok"]
        assert _told(process, "write_file", "/proc/sys/kernel/ns_last_pid", str(pid - 1)) == {"ok": None}
        assert _told(process, "take_pid") == {"ok": True}
        assert _told(process, "send_as_holder")["ok"]["code"] == "ok"
        assert _told(process, "send_here")["ok"]["code"] == "ok"
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)
