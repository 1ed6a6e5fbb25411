# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the helper or the daemon over its socket (privilege.md, section 3): greeting, request, answer.

Rules:
- Nothing is believed of what comes: it has the protocol's form or the call has failed.
- A server that restarts is waited for a moment and asked the same again, once, under the same id: that is no second request.
- Every wait has an end, and every failure names the socket and what to look at.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import time
from typing import Callable, NamedTuple, Optional, Sequence, Tuple

from slotcore import codes, protocol, reply
from slotward import build_info

GREETING_S = 5.0
AGAIN_S = 10.0
POLL_S = 0.1
TICK_S = 1.0


class Server(NamedTuple):
    """Whom a call is for, and what to tell who cannot reach it."""

    path: str
    what: str
    code: str
    run: str


class Lost(Exception):
    """The connection gave no answer: there is nobody, or it ended."""

    @property
    def connected(self) -> bool:
        """Whether there was somebody."""
        return not isinstance(self.__cause__, (ConnectionRefusedError, FileNotFoundError))


class Silent(Lost):
    """The server is there and says nothing for too long; asking again would not help."""


class Closed(Lost):
    """The socket is not for this account."""


def _connect(path: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        limit = struct.pack("ll", int(GREETING_S), 0)  # settimeout would have it give up where many wait their turn
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        peer.connect(path)
    except OSError as error:
        peer.close()
        kind = Closed if error.errno in (errno.EACCES, errno.EPERM) else Lost
        raise kind(error.strerror or str(error)) from error
    return peer


def _receive(peer: socket.socket, limit_s: Optional[float], waiting: Callable[[], None] = lambda: None) -> bytes:
    began = time.monotonic()
    while True:
        left = TICK_S if limit_s is None else limit_s - (time.monotonic() - began)
        if left <= 0:
            raise Silent(f"no answer within {limit_s:g} s")
        peer.settimeout(min(left, TICK_S))
        try:
            data = peer.recv(protocol.MAX_ANSWER + 1)
        except socket.timeout:  # before Python 3.10 it is no TimeoutError
            waiting()
            continue
        except OSError as error:
            raise Lost(error.strerror or str(error)) from error
        if not data:
            raise Lost("it closed the connection")
        return data


def once(
    path: str,
    wanted: protocol.Request,
    files: Sequence[int] = (),
    limit_s: Optional[float] = None,
    waiting: Callable[[], None] = lambda: None,
) -> reply.Reply:
    """The answer to one request over a connection of its own; `waiting` is called each second meanwhile.

    Raises:
        Lost: there is no answer.
        codes.Retryable: `bad-answer`.
        codes.Refused: `protocol-mismatch`.

    """
    with _connect(path) as peer:
        hello = protocol.parse_hello(_receive(peer, GREETING_S))
        if hello.product != build_info.NAME:
            raise codes.Retryable(codes.BAD_ANSWER, f"{path} is {hello.product}'s, not {build_info.NAME}'s")
        request = wanted._replace(nonce=hello.nonce, protocol=protocol.pick(hello.protocol))
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            peer.sendmsg([protocol.render_request(request)], passed)
        except OSError as error:
            raise Lost(error.strerror or str(error)) from error
        found = reply.parse(_receive(peer, limit_s, waiting))
    if found.id not in ("", wanted.id):
        raise codes.Retryable(codes.BAD_ANSWER, f"{path} answers {found.id}, asked was {wanted.id}")
    return found


def unreachable(server: Server, why: Lost) -> codes.Retryable:
    """What to tell who gets no answer."""
    out = "run it as root or as the daemon's own account" if isinstance(why, Closed) else f"look at `{server.run}`"
    return codes.Retryable(server.code, f"{server.what} at {server.path} gives no answer: {why}; {out}")


def ask(
    server: Server, wanted: protocol.Request, limit_s: Optional[float] = None, again_s: float = AGAIN_S
) -> reply.Reply:
    """The server's answer; None for `limit_s` waits for as long as the server lives.

    Raises:
        codes.Retryable: it gives no answer (the server's own code), or one that cannot be read (`bad-answer`).
        codes.Refused: `protocol-mismatch`.

    """
    until = time.monotonic() + again_s
    left = 2
    while True:
        try:
            return once(server.path, wanted, limit_s=limit_s)
        except Lost as error:
            left -= error.connected
            if not left or isinstance(error, Silent) or time.monotonic() >= until:
                raise unreachable(server, error) from error
        time.sleep(POLL_S)


def helper(path: str) -> Server:
    """The helper behind its socket."""
    return Server(path, "the helper", codes.HELPER_UNREACHABLE, f"systemctl status {build_info.HELPER_UNIT}")


def daemon(socket_path: str) -> Server:
    """The daemon behind its control socket, which lies beside its status socket."""
    path = os.path.join(os.path.dirname(socket_path), "control.sock")
    return Server(path, "the daemon", codes.DAEMON_UNREACHABLE, f"systemctl status {build_info.UNIT}")


def outcome(op: str, found: reply.Reply) -> Tuple[int, str]:
    """Exit status and state of a command whose part the other side has done (node.md, section 6)."""
    from slotward import answers

    state = str(found.answer.get("state") or ("refused" if found.refused else "failed" if found.retry else "idle"))
    if found.refused:
        broken = found.code in codes.CODES and codes.CODES[found.code].kind == codes.BROKEN
        return (answers.BROKEN if broken else answers.REFUSED), state
    if found.retry:
        return answers.RETRY, state
    begun = op in (protocol.SWAP, protocol.NODE_UPGRADE) and state == "trial"
    taken_back = op in (protocol.ROLLBACK, protocol.NODE_ROLLBACK) and found.answer.get("changed") is True
    return (answers.DONE if found.code == codes.OK or begun or taken_back else answers.NOT_CONFIRMED), state
