# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host says of a unit's main process, and of the helper's, for the proof that the new release runs (I11)."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Mapping, Optional, Tuple

from slotcore import codes, proof, status
from slotcore import product as products
from slotward import host

_MAX_STATUS = 1 << 20


def started_s(pid: int) -> Optional[float]:
    """When process `pid` started, in seconds of /proc/uptime; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19]) / float(os.sysconf("SC_CLK_TCK"))


def _same_file(path: str, wanted: os.stat_result) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


def has_open(pid: int, wanted: os.stat_result) -> bool:
    """Whether the process has that very file open, as far as this one may see."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_same_file(f"/proc/{pid}/fd/{name}", wanted) for name in names)


def runs(pid: int, wanted: os.stat_result) -> bool:
    """Whether the process is that file's, as a native binary or as a script that it has open."""
    return _same_file(f"/proc/{pid}/exe", wanted) or has_open(pid, wanted)


def ask_status(path: str, timeout_s: float = 1.0) -> Tuple[Optional[str], Optional[int]]:
    """The digest that the daemon behind the status socket says it runs, and the process that answered."""
    if not path:
        return None, None
    until = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect(path)
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            data = b""
            while len(data) <= _MAX_STATUS:
                peer.settimeout(max(until - time.monotonic(), 0.001))  # in all, however it is drawn out
                block = peer.recv(65536)
                if not block:
                    break
                data += block
            answer = json.loads(data)
            return str(answer["running"]["sha256"]), int(struct.unpack("3i", credentials)[0])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None, None


def listen_to_helper(path: str, timeout_s: float = 1.0) -> proof.Greeting:
    """What the helper behind the socket says first, and the process that listens there; bounded in all."""
    from slotcore import protocol  # only a trial with a helper needs it

    until = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect(path)
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            peer.settimeout(max(until - time.monotonic(), 0.001))
            said = peer.recv(protocol.MAX_ANSWER + 1)
            heard = protocol.parse_hello(said) if said else None
        except OSError as error:
            return proof.Greeting(why=f"{path}: {error.strerror or error}")
        except codes.Retryable as error:
            return proof.Greeting(why=f"{path}: {error.text}")
    if heard is None:
        return proof.Greeting(why=f"{path}: it closed the connection")
    return proof.Greeting(heard.sha256, int(struct.unpack("3i", credentials)[0]))


def helper(product: products.Product, slot: str, shown: Mapping[str, str]) -> proof.Helper:
    """Everything that the proof of the helper is decided on; it is listened to once it runs the slot's bytes."""
    found = facts(product._replace(status_socket=""), slot, shown)
    listens = found.exe_is_slot or found.slot_is_open
    greeting = listen_to_helper(product.helper_socket) if listens else proof.Greeting()
    return proof.Helper(product.helper_unit, found, greeting)


def facts(product: products.Product, slot: str, shown: Mapping[str, str]) -> proof.Facts:
    """Everything that the proof for `slot` is decided on."""
    unit = status.unit_of(shown)
    wanted = os.stat(product.program_path(slot))
    running = unit.main_pid > 0
    exe_is_slot = running and _same_file(f"/proc/{unit.main_pid}/exe", wanted)
    slot_is_open = running and not exe_is_slot and has_open(unit.main_pid, wanted)
    sha256: Optional[str] = None
    pid: Optional[int] = None
    if running and not exe_is_slot and not slot_is_open:
        sha256, pid = ask_status(product.status_socket)
    return proof.Facts(
        active=unit.active,
        main_pid=unit.main_pid,
        started_s=started_s(unit.main_pid) if running else None,
        now_s=host.uptime_s(),
        exe_is_slot=exe_is_slot,
        slot_is_open=slot_is_open,
        status_sha256=sha256,
        status_pid=pid,
    )
