# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of the protocol against clients of every kind: after each a good one is answered at once, and nothing has leaked."""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import os
import pathlib
import resource
import select
import socket
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List

import pytest
from agent.clients import ID, Group, Serving, connect, greeted, request

from agent import clients
from slotcore import codes, protocol
from slotward import caller, seqpacket

UID, GID = 4242, 4343
"""An account of no name."""
numbers = itertools.count(1)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes other accounts' places")


@pytest.fixture(name="group")
def _group() -> Iterator[Group]:
    """The control group that the daemon would be in."""
    group = Group(f"probe-{os.getpid()}-{next(numbers)}.service")
    yield group
    group.remove()


@pytest.fixture(name="place")
def _place() -> Iterator[pathlib.Path]:
    """Where a socket can be reached by everybody; pytest's own directories are root's alone."""
    with tempfile.TemporaryDirectory(prefix="slotward-test-", dir="/run") as top:
        pathlib.Path(top).chmod(0o755)
        yield pathlib.Path(top) / "s.sock"


@pytest.fixture(name="server")
def _server(place: pathlib.Path, group: Group) -> Iterator[Serving]:
    """A server for the account, from its group."""
    with clients.serving(place, UID, GID, group.path) as found:
        yield found


def good(server: Serving) -> None:
    """A good client of root's is answered within a second."""
    began = time.monotonic()
    found = clients.ask(server.path)
    assert (found.id, found.code, found.refused) == (ID, codes.OK, False)
    assert time.monotonic() - began < 1


def refusal(server: Serving, group: Group | None, uid: int = UID, gid: int = GID) -> Dict[str, Any]:
    """How the server answers a client that is that account, in that group."""
    return dict(clients.forked(lambda: clients.ask(server.path)._asdict(), uid, gid, group))


# --- who ---


def test_the_account_is_answered_in_its_group(server: Serving, group: Group) -> None:
    """And told apart by the kernel, not by what it says."""
    found = refusal(server, group)
    assert (found["code"], found["refused"]) == (codes.OK, False)
    assert found["answer"]["pid"] > 0
    good(server)


@pytest.mark.parametrize(
    ("uid", "gid", "inside", "said"),
    [
        (UID, GID, False, "is in the control group /"),
        (UID + 1, GID, True, "is of uid 4243 and gid 4343; served are root and games (4242, 4343)"),
        (UID, GID + 1, True, "is of uid 4242 and gid 4344"),
        (65534, 65534, False, "is of uid 65534"),
    ],
)
def test_nobody_else_is(server: Serving, group: Group, uid: int, gid: int, inside: bool, said: str) -> None:
    """The right account elsewhere, and another one in the right group."""
    found = refusal(server, group if inside else None, uid, gid)
    assert (found["code"], found["refused"], found["id"]) == (codes.NOT_ALLOWED, True, "")
    assert said in found["message"]
    assert server.comes_to_rest()
    good(server)


@pytest.mark.parametrize(
    ("connects", "sends"), [((0, 0), (0, 0)), ((0, 0), (UID, GID)), ((UID, GID), (UID, GID))], ids=str
)
def test_who_sends_for_another_is_refused(server: Serving, group: Group, connects: Any, sends: Any) -> None:
    """Even a child of who connected, in the same group and with the same account."""

    def handed_on() -> Any:
        peer = connect(server.path)
        nonce = greeted(peer).nonce

        def send() -> Any:
            peer.send(request(nonce))
            return clients.answered(peer)._asdict()

        return clients.forked(send, sends[0], sends[1])

    found = clients.forked(handed_on, connects[0], connects[1], group)
    assert found["code"] == codes.NOT_ALLOWED
    assert "sent what process" in found["message"]
    good(server)


def test_a_pid_that_is_used_again_is_another_process(server: Serving) -> None:
    """Root's own client connects, is greeted and ends; the next process of its id has the socket and the nonce, and is refused."""
    last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
    if not last.exists():
        pytest.skip("this kernel cannot choose a process id")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(5)
        found = answer_to_the_next(server, peer, last)
    assert found["code"] == codes.NOT_ALLOWED
    assert "it is another one" in found["message"]
    good(server)


def answer_to_the_next(server: Serving, peer: socket.socket, last: pathlib.Path) -> Dict[str, Any]:
    """One process connects and ends; the next one with its id asks."""

    def first() -> int:
        peer.connect(server.path)
        select.select([peer], [], [], 5)  # it is greeted, and leaves that to whoever comes
        return os.getpid()

    pid = clients.forked(first)
    hello = greeted(peer)

    def second() -> Any:
        if os.getpid() != pid:
            return None
        peer.send(request(hello.nonce))
        return clients.answered(peer)._asdict()

    for _try in range(2000):
        last.write_text(str(pid - 1))
        found = clients.forked(second)
        if found is not None:
            return dict(found)
    pytest.fail(f"the id {pid} never came again")


def test_a_client_as_young_as_its_connection_is_served(server: Serving) -> None:
    """Connected within the clock tick of its start: the greeting waits for the next one, and nobody is refused for it."""
    found = [clients.forked(lambda: clients.ask(server.path).code) for _number in range(15)]
    assert found == [codes.OK] * 15


# --- what ---


def malformed(server: Serving) -> None:
    """Nothing that is a message of the protocol."""
    for data in (b"\0", b"{}", b"\xff" * 100, b"[" * 4000, b'{"protocol":1}', b"x" * 4096):
        with connect(server.path) as peer:
            greeted(peer)
            peer.send(data)
            found = clients.answered(peer)
            assert (found.code, found.id) == (codes.BAD_REQUEST, "")
            assert clients.is_closed(peer)


def huge(server: Serving) -> None:
    """Larger than a message may be, by one byte and by much."""
    for size in (4097, 100_000):
        with connect(server.path) as peer:
            nonce = greeted(peer).nonce
            peer.send(request(nonce).ljust(size))
            found = clients.answered(peer)
            assert found.code == codes.BAD_REQUEST
            assert "at most 4096" in found.message
            assert clients.is_closed(peer)


def empty(server: Serving) -> None:
    """A message of no bytes."""
    with connect(server.path) as peer:
        greeted(peer)
        peer.send(b"")
        assert clients.is_closed(peer)


def half_closed(server: Serving) -> None:
    """One that ends its own side, before and after asking; the answer to what it asked still comes."""
    with connect(server.path) as peer:
        greeted(peer)
        peer.shutdown(socket.SHUT_WR)
        assert clients.is_closed(peer)
    with connect(server.path) as peer:
        peer.send(request(greeted(peer).nonce))
        peer.shutdown(socket.SHUT_WR)
        assert clients.answered(peer).code == codes.OK
        assert clients.is_closed(peer)


def silent(server: Serving) -> None:
    """More than may connect, and none asks."""
    there = [connect(server.path) for _number in range(40)]
    time.sleep(0.2)
    for peer in there:
        peer.close()


def many(server: Serving) -> None:
    """A thousand connections one after another, held as long as the server holds them."""
    there: List[socket.socket] = []
    for _number in range(1000):
        with contextlib.suppress(OSError):
            there.append(connect(server.path))
    for peer in there:
        peer.close()


def gone_at_once(server: Serving) -> None:
    """Connections that are closed before they are greeted, or while they are asked for."""
    for _number in range(200):
        connect(server.path).close()
    for why in ("slow", "never"):
        with connect(server.path) as peer:
            peer.send(request(greeted(peer).nonce, why))


def out_of_order(server: Serving) -> None:
    """Asking before the greeting, and twice before the first answer: the second waits its turn."""
    with connect(server.path) as peer:
        peer.send(request("ab" * 16))
        nonce = greeted(peer).nonce
        assert clients.answered(peer).code in (codes.BAD_REQUEST, codes.NOT_ALLOWED)
        assert clients.is_closed(peer)
    with connect(server.path) as peer:
        nonce = greeted(peer).nonce
        peer.send(request(nonce, "slow", "0" * 16))
        peer.send(request(nonce, None, "1" * 16))
        assert [clients.answered(peer).id for _number in range(2)] == ["0" * 16, "1" * 16]


def replayed(server: Serving) -> None:
    """A message of another connection, and an answer of the server's own."""
    with connect(server.path) as one, connect(server.path) as other:
        message = request(greeted(one).nonce)
        hello = other.recv(4096)
        other.send(message)
        found = clients.answered(other)
        assert (found.code, "nonce must be this connection's" in found.message) == (codes.BAD_REQUEST, True)
        assert clients.is_closed(other)
        one.send(hello)
        assert clients.answered(one).code == codes.BAD_REQUEST


def wrong_nonce(server: Serving) -> None:
    """None, and one that was never given."""
    for nonce in (None, "cd" * 16):
        with connect(server.path) as peer:
            greeted(peer)
            peer.send(protocol.render_request(protocol.Request(protocol.SETTLE, ID, nonce)))
            assert clients.answered(peer).code == codes.BAD_REQUEST


def not_served(server: Serving) -> None:
    """An operation of the protocol that this server has not."""
    with connect(server.path) as peer:
        ask = protocol.Request(protocol.SWAP, ID, greeted(peer).nonce, target="x")
        peer.send(protocol.render_request(ask))
        found = clients.answered(peer)
        assert (found.code, found.refused) == (codes.NOT_ALLOWED, True)
        assert "update.rollback, update.settle are" in found.message


def another_protocol(server: Serving) -> None:
    """A version that this server does not speak is told apart from what is malformed."""
    with connect(server.path) as peer:
        value = json.loads(request(greeted(peer).nonce))
        peer.send(json.dumps({**value, "protocol": 2, "trace": True}).encode())
        found = clients.answered(peer)
        assert (found.code, found.refused) == (codes.PROTOCOL_MISMATCH, True)


def descriptors(server: Serving) -> None:
    """Descriptors, as many as a message may carry and as a queue of messages may."""
    files = [os.open("/dev/null", os.O_RDONLY) for _number in range(250)]
    try:
        for count in (1, 2, 3, 250):
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files[:count]))]
            with connect(server.path) as peer:
                nonce = greeted(peer).nonce
                peer.sendmsg([request(nonce)], rights)
                with contextlib.suppress(OSError):
                    for _number in range(5):
                        peer.sendmsg([request(nonce)], rights)
                found = clients.answered(peer)
                assert (found.code, "descriptors are taken" in found.message) == (codes.BAD_REQUEST, True)
                assert clients.is_closed(peer)
    finally:
        for one in files:
            os.close(one)


def never_reads(server: Serving) -> None:
    """One that asks for long answers and takes none."""
    with connect(server.path, 0.5) as peer:
        nonce = greeted(peer).nonce
        with contextlib.suppress(OSError):
            for number in range(18):
                peer.send(request(nonce, "long", f"{number:016x}"))
        time.sleep(0.3)


def too_often(server: Serving) -> None:
    """More than a burst: what is too many is told so, final for nobody, and the connection stays."""
    with connect(server.path) as peer:
        nonce = greeted(peer).nonce
        taken = 0
        while True:
            peer.send(request(nonce, None, f"{taken:016x}"))
            found = clients.answered(peer)
            if found.code != codes.OK:
                break
            taken += 1
        assert (found.code, found.retry, found.id) == (codes.TOO_MANY, True, f"{taken:016x}")
        assert seqpacket.BURST - 2 <= taken <= seqpacket.BURST + 1
        began = time.monotonic()
        peer.send(request(nonce))
        assert clients.answered(peer).code == codes.OK
        assert time.monotonic() - began > 0.8, "it is not read for a second"
    time.sleep(1.1)  # the next has a turn again


def odd_kinds(server: Serving) -> None:
    """A stream and datagrams where neither is spoken."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as peer, pytest.raises(OSError, match="rotocol"):
            peer.connect(server.path)


ACTS: List[Callable[[Serving], None]] = [
    malformed, huge, empty, half_closed, silent, many, gone_at_once, out_of_order, replayed, wrong_nonce, not_served,
    another_protocol, descriptors, never_reads, too_often, odd_kinds,
]  # fmt: skip


@pytest.mark.parametrize("act", ACTS, ids=[act.__name__ for act in ACTS])
def test_whatever_a_client_does_the_next_is_answered(server: Serving, act: Callable[[Serving], None]) -> None:
    """Within a second, and the server has open what it had before."""
    good(server)
    act(server)
    good(server)
    assert server.comes_to_rest(), (server.rest, server.descriptors)


def test_those_who_are_not_served_take_no_place_of_those_who_are(server: Serving, group: Group) -> None:
    """The account, elsewhere, holds all that it gets; root's and the daemon's clients are answered all the while."""
    held = clients.forked(lambda: hold(server, 60), UID, GID)
    assert held <= caller.LIMITS[caller.STRANGER]

    def while_held() -> Any:
        there = [connect(server.path) for _number in range(caller.LIMITS[caller.ACCOUNT] - 1)]
        for peer in there:
            greeted(peer)
        return clients.ask(server.path).code

    assert clients.forked(while_held, UID, GID, group) == codes.OK
    good(server)


def hold(server: Serving, count: int) -> int:
    """Connect so often; how many of them are greeted."""
    there = [connect(server.path) for _number in range(count)]
    found = 0
    for peer in there:
        with contextlib.suppress(ConnectionError, codes.Retryable):
            greeted(peer)
            found += 1
    return found


def test_what_is_taken_travels_and_what_is_more_does_not(place: pathlib.Path) -> None:
    """A server that takes two descriptors gets them and no third; none is left open."""
    with clients.serving(place, UID, GID, "-", 2) as server:
        good(server)
        files = [os.open(name, os.O_RDONLY) for name in ("/dev/null", "/dev/zero", "/dev/full")]
        for count in (0, 1, 2, 3):
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files[:count]))] if count else []
            with connect(server.path) as peer:
                peer.sendmsg([request(greeted(peer).nonce)], rights)
                found = clients.answered(peer)
                if count == 3:
                    assert (found.code, "2 descriptors" in found.message) == (codes.BAD_REQUEST, True)
                else:
                    assert found.answer["names"] == ["/dev/null", "/dev/zero"][:count]
        for one in files:
            os.close(one)
        assert server.comes_to_rest()


def test_a_server_without_a_descriptor_left_waits_for_one(server: Serving) -> None:
    """Nothing spins, and the next client is answered when there is one again."""
    good(server)
    assert server.comes_to_rest()
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    there = set(map(int, os.listdir(f"/proc/{server.process.pid}/fd")))
    free = next(number for number in itertools.count() if number not in there)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (free, hard))
    peer = connect(server.path)
    time.sleep(0.3)
    before = server.switches()
    used = cpu(server)
    time.sleep(2)
    assert server.switches() - before < 40
    assert cpu(server) - used < 0.5
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    peer.send(request(greeted(peer).nonce))
    assert clients.answered(peer).code == codes.OK
    peer.close()
    good(server)


def cpu(server: Serving) -> float:
    """Seconds of processor that it has used."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / caller.TICKS


def test_a_server_that_nobody_asks_never_wakes(server: Serving) -> None:
    """After its last connection has ended it has no timer."""
    good(server)
    assert server.comes_to_rest()
    time.sleep(0.3)
    before = server.switches()
    time.sleep(5)
    assert server.switches() == before


def test_a_connection_without_a_request_ends(place: pathlib.Path) -> None:
    """After its time, which begins anew with each answer; a request that is worked on is none of it."""
    assert seqpacket.IDLE_S == 30
    with clients.serving(place, UID, GID, "-", 0, 0.6) as server, connect(server.path) as peer:
        nonce = greeted(peer).nonce
        peer.send(request(nonce, "slow"))
        assert clients.answered(peer).code == codes.OK
        began = time.monotonic()
        assert clients.is_closed(peer)
        assert 0.5 < time.monotonic() - began < 3
        good(server)
