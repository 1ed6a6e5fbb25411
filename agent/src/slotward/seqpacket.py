# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of the protocol: who connects is greeted, asks one thing at a time, and can neither stop nor fill it.

Rules (privilege.md, section 3):
- Nothing waits for a client: what it sends is taken a message at a time, what it does not take costs it the connection.
- A connection has a place among those of its kind, and more are closed at once; without a request it ends by itself.
- While a request is worked on, its connection is not read. Nothing that a client sends is kept beyond one message.
- A descriptor that is not asked for is never installed; one that cannot be handed on is closed here.
- What is wrong with who sent, or with the message's form, ends the connection after one answer that says so.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Set, Tuple

from slotcore import codes, protocol, reply
from slotward import caller, looping

IDLE_S = 30.0
BACKLOG = 64
PAUSE_S = 1.0
BURST = 20
SEND_BUFFER = 4 * protocol.MAX_ANSWER
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_SEND_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Asked(NamedTuple):
    """A request that has passed every check, and where its answer goes."""

    request: protocol.Request
    peer: caller.Peer
    descriptors: Tuple[int, ...]
    """Whoever is asked closes them."""
    answer: Callable[[reply.Reply], None]
    """Called once, at once or later; who has gone meanwhile gets none."""


class Service(NamedTuple):
    """What is served, and to whom."""

    hello: Callable[[str], protocol.Hello]
    """The greeting with this nonce."""
    door: caller.Door
    """Who is let in."""
    operations: Tuple[str, ...]
    serve: Callable[[Asked], None]
    note: Callable[[str], None]
    """Told of everybody who is not served."""
    descriptors: int = 0
    """How many descriptors may come with a message."""
    limits: Mapping[str, int] = caller.LIMITS
    idle_s: float = IDLE_S


class Bucket:
    """How many requests of one kind are taken: a burst, then one a second."""

    def __init__(self, burst: int = BURST) -> None:
        self._left = float(burst)
        self._burst = burst
        self._since = looping.now()

    def takes(self) -> bool:
        """Whether one more is taken now."""
        moment = looping.now()
        self._left = min(self._left + moment - self._since, float(self._burst))
        self._since = moment
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Connection:
    """One client."""

    def __init__(self, peer: socket.socket, who: caller.Peer, kind: str) -> None:
        self.socket = peer
        self.descriptor = peer.fileno()
        self.who = who
        self.kind = kind
        self.nonce = ""
        self.greeted = 0


class _Message(NamedTuple):
    content: bytes
    sent: Optional[caller.Peer]
    descriptors: Tuple[int, ...]
    whole: bool
    """Nothing was cut off: neither of the message nor of what came with it."""


class Server:
    """Serves the connections of one listening socket in the loop of its process."""

    def __init__(self, loop: looping.Loop, listener: socket.socket, service: Service) -> None:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # what connects has it before it can send
        self._loop = loop
        self._listener = listener
        self._service = service
        self._connections: Set[Connection] = set()
        self._buckets: Dict[str, Bucket] = {kind: Bucket() for kind in service.limits}
        loop.watch(listener.fileno(), self._accept)

    def close(self) -> None:
        """End every connection; the listener is its maker's."""
        self._loop.unwatch(self._listener.fileno())
        self._loop.cancel(self)
        for connection in tuple(self._connections):
            self._drop(connection)

    # --- connecting ---

    def _accept(self, _events: int) -> None:
        for _number in range(BACKLOG):
            try:
                peer, _address = self._listener.accept()
            except OSError as error:
                if error.errno in _FULL:  # it stays readable: without a pause this would spin
                    self._loop.unwatch(self._listener.fileno())
                    self._loop.at(self, looping.now() + PAUSE_S, self._accept_again)
                return
            self._admit(peer)

    def _accept_again(self) -> None:
        self._loop.watch(self._listener.fileno(), self._accept)

    def _admit(self, peer: socket.socket) -> None:
        who = caller.connected(peer)
        met = self._service.door.meet(who)
        if met is None:
            self._service.note(f"process {who.pid} (uid {who.uid}) has ended, or is hidden from this one in /proc")
        if met is None or not self._has_room(met.kind):
            peer.close()
            return
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        connection = Connection(peer, who, met.kind)
        self._connections.add(connection)
        if met.started < caller.ticks_now():
            self._greet(connection)
        else:  # as young as this clock can tell: greeted in the next tick, so that it was there before
            moment = (met.started + 1) / caller.TICKS + 0.001
            self._loop.at(connection, moment, lambda: self._greet(connection))

    def _has_room(self, kind: str) -> bool:
        """Whether one more of this kind may be there; who has gone and is not noticed yet keeps nobody out."""
        there = {one.descriptor: one for one in self._connections if one.kind == kind}
        if len(there) >= self._service.limits[kind]:
            gone = select.poll()
            for descriptor in there:
                gone.register(descriptor, 0)
            for descriptor, _events in gone.poll(0):
                self._drop(there.pop(descriptor))
        return len(there) < self._service.limits[kind]

    def _greet(self, connection: Connection) -> None:
        connection.greeted = caller.ticks_now()
        connection.nonce = os.urandom(16).hex()
        if self._send(connection, protocol.render_hello(self._service.hello(connection.nonce))):
            self._await(connection)

    def _await(self, connection: Connection, from_now_s: float = 0.0) -> None:
        """Read its next request, after a pause if there is to be one; without any the connection ends."""
        if from_now_s:
            self._loop.at(connection, looping.now() + from_now_s, lambda: self._await(connection))
            return
        self._loop.watch(connection.descriptor, lambda events: self._readable(connection, events))
        self._loop.at(connection, looping.now() + self._service.idle_s, lambda: self._drop(connection))

    def _drop(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._loop.unwatch(connection.descriptor)
            self._loop.cancel(connection)
            connection.socket.close()

    # --- asking ---

    def _readable(self, connection: Connection, events: int) -> None:
        if not events & select.POLLIN:
            self._drop(connection)
            return
        try:
            found = self._receive(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        if not found.content:
            _close(found.descriptors)
            self._drop(connection)  # it has closed its side, or sends nothing
            return
        self._judge(connection, found)

    def _receive(self, connection: Connection) -> _Message:
        rights = socket.CMSG_SPACE(4 * self._service.descriptors) if self._service.descriptors else 0
        space = socket.CMSG_SPACE(caller.SIZE) + rights
        content, control, flags, _address = connection.socket.recvmsg(protocol.MAX_REQUEST + 1, space, _FLAGS)
        descriptors = array.array("i")
        sent = None
        for level, kind, value in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(value[: len(value) - len(value) % descriptors.itemsize])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sent = caller.unpack(value)
        cut = flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        return _Message(content, sent, tuple(descriptors), not cut)

    def _judge(self, connection: Connection, found: _Message) -> None:
        """Hand the request on, or say why not."""
        try:
            request = self._request(connection, found)
        except codes.Refused as error:
            _close(found.descriptors)
            if error.code == codes.NOT_ALLOWED:
                self._service.note(error.text)
            if self._send(connection, reply.render(reply.refusal("", error.code, error.text))):
                self._drop(connection)
            return
        if not self._buckets[connection.kind].takes():
            _close(found.descriptors)
            text = f"more than {BURST} requests at once, and more than one a second: ask again later"
            if self._send(connection, reply.render(reply.refusal(request.id, codes.TOO_MANY, text))):
                self._rest(connection)
                self._await(connection, PAUSE_S)
            return
        self._rest(connection)
        self._service.serve(
            Asked(request, connection.who, found.descriptors, lambda one: self._answer(connection, one))
        )

    def _rest(self, connection: Connection) -> None:
        """Do not read it any more; only its end is noticed."""
        self._loop.cancel(connection)
        self._loop.watch(connection.descriptor, lambda _events: self._drop(connection), 0)

    def _request(self, connection: Connection, found: _Message) -> protocol.Request:
        if not found.whole:
            text = f"at most {protocol.MAX_REQUEST} bytes and {self._service.descriptors} descriptors are taken"
            raise codes.refused(codes.BAD_REQUEST, f"the message is larger: {text}")
        if found.sent is None:
            raise codes.refused(codes.NOT_ALLOWED, "nobody says who sent this message")
        refusal = self._service.door.check(connection.who, found.sent, connection.greeted)
        if refusal is not None:
            raise codes.Refused(refusal)
        request = protocol.parse_request(found.content, connection.nonce)
        if request.op not in self._service.operations:
            served = ", ".join(self._service.operations)
            raise codes.refused(codes.NOT_ALLOWED, f"{request.op} is not served here; {served} are")
        return request

    def _answer(self, connection: Connection, one: reply.Reply) -> None:
        if connection in self._connections and self._send(connection, reply.render(one)):
            self._await(connection)

    def _send(self, connection: Connection, message: bytes) -> bool:
        """Send without waiting; whoever cannot take it is dropped."""
        try:
            connection.socket.send(message, _SEND_FLAGS)
        except OSError:
            self._drop(connection)
            return False
        return True


def _close(descriptors: Tuple[int, ...]) -> None:
    for one in descriptors:
        os.close(one)
