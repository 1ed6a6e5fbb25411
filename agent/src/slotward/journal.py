# SPDX-License-Identifier: GPL-3.0-or-later
"""One entry with fields for the journal, in journald's own protocol: a datagram, sent and not waited for.

Rules:
- No journal, a full one or one that hangs is no error of whoever has something to say.
- A value with a newline in it is sent with its length before it, so that it cannot begin a field of its own.
"""

from __future__ import annotations

import socket
import struct
from typing import Mapping

SOCKET = "/run/systemd/journal/socket"


def encode(fields: Mapping[str, str]) -> bytes:
    """The datagram for these fields."""
    out = []
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")
        head = name.encode("ascii")
        if b"\n" in data:
            out.append(head + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            out.append(head + b"=" + data + b"\n")
    return b"".join(out)


def send(fields: Mapping[str, str]) -> bool:
    """Send one entry; whether a journal took it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as peer:
        try:
            peer.sendto(encode(fields), SOCKET)
        except OSError:
            return False
    return True
