# SPDX-License-Identifier: GPL-3.0-or-later
"""The enemy's code: runs in a host as the daemon's account, in its control group or out of it, and does what it is told.

`hostile.py CGROUP USER` moves itself into the control group (`-`: stays where it is), becomes the user, drops everything else,
and then reads one JSON list a line, `[function, argument…]`, and answers `{"ok": …}` or `{"error": …}` on its standard output.
It speaks the helper's protocol by a few lines of its own: nothing of the agent's code takes part. Python 3.9, standard library only.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import socket
import stat
import sys
import time
from typing import Any, Callable, Dict, List, Sequence

ANSWER = 1 << 17
KEPT: List[socket.socket] = []
CHILDREN: List[int] = []
KINDS = ("file", "link", "dangling", "loop", "hard-link", "fifo", "socket", "directory", "missing")


def connected(path: str, timeout: float = 10.0) -> socket.socket:
    """A connection to a socket of packets."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found.settimeout(timeout)
    found.connect(path)
    return found


def hello(peer: socket.socket) -> Dict[str, Any]:
    """What the server says first."""
    data = peer.recv(ANSWER)
    if not data:
        raise ConnectionError("closed before a word")
    answer: Dict[str, Any] = json.loads(data)
    return answer


def said(peer: socket.socket) -> Dict[str, Any]:
    """One answer, or how the connection ended."""
    try:
        data = peer.recv(ANSWER)
    except socket.timeout:
        return {"ended": "timeout"}
    except OSError as error:
        return {"ended": str(error.strerror)}
    if not data:
        return {"ended": "closed"}
    answer: Dict[str, Any] = json.loads(data)
    return answer


def ask(path: str, operation: str, number: str, more: Dict[str, Any], timeout: float = 60.0) -> Dict[str, Any]:
    """A whole exchange as an honest caller makes it."""
    with connected(path, timeout) as peer:
        nonce = hello(peer)["nonce"]
        peer.send(json.dumps({"protocol": 1, "nonce": nonce, "id": number, "op": operation, **more}).encode())
        return said(peer)


def frames(path: str, texts: Sequence[str], nonced: bool = True, end: str = "", timeout: float = 5.0) -> List[Any]:
    """Send packets as they are, `NONCE` replaced, and give every answer; `end` half-closes (`write`) or hangs up (`both`)."""
    with connected(path, timeout) as peer:
        nonce = hello(peer)["nonce"] if nonced else ""
        try:
            for text in texts:
                peer.send(text.encode("latin-1").replace(b"NONCE", nonce.encode()))
        except OSError as error:
            return [{"ended": f"send: {error.strerror}"}]
        if end == "both":
            return []
        if end == "write":
            peer.shutdown(socket.SHUT_WR)
        answers: List[Any] = []
        while len(answers) < len(texts) + 1:
            answers.append(said(peer))
            if "ended" in answers[-1]:
                break
        return answers


def _closed(peer: socket.socket) -> bool:
    """Whether the other side hung up; what it said before is read away."""
    peer.settimeout(0.0)
    while True:
        try:
            if not peer.recv(ANSWER):
                return True
        except BlockingIOError:
            return False
        except OSError:
            return True


def open_many(path: str, count: int) -> Dict[str, int]:
    """Open so many connections and keep them; how many could be made, and how many of those the server closed within a second."""
    mine = []
    for _number in range(count):
        try:
            mine.append(connected(path, 2.0))
        except OSError:
            continue
    time.sleep(1.0)
    shut = [_closed(peer) for peer in mine]
    KEPT.extend(peer for peer, gone in zip(mine, shut) if not gone)
    return {"made": len(mine), "closed": sum(shut)}


def still_open() -> int:
    """How many of the connections that are kept the server has not closed."""
    KEPT[:] = [peer for peer in KEPT if not _closed(peer)]
    return len(KEPT)


def hang_up() -> int:
    """Close what was kept, and end what was left running."""
    for peer in KEPT:
        peer.close()
    KEPT.clear()
    for pid in CHILDREN:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)
    count = len(CHILDREN)
    CHILDREN.clear()
    return count


def _child(act: Callable[[], object]) -> int:
    """Run something in a process of its own, which is ended by `hang_up`."""
    pid = os.fork()
    if pid == 0:
        _end_with_parent()
        try:
            act()
        finally:
            os._exit(0)
    CHILDREN.append(pid)
    return pid


def stopped_clients(path: str, count: int, operation: str = "update.settle") -> int:
    """Clients that ask and then never read: each stops itself (SIGSTOP) with its answer on the way."""

    def client() -> None:
        with connected(path) as peer:
            request = {"protocol": 1, "nonce": hello(peer)["nonce"], "id": os.urandom(8).hex(), "op": operation}
            peer.send(json.dumps(request).encode())
            os.kill(os.getpid(), signal.SIGSTOP)

    for _number in range(count):
        _child(client)
    time.sleep(1.0)
    return count


def descriptors(path: str, packets: int, each: int = 250) -> List[Any]:
    """Send packets full of descriptors (SCM_RIGHTS), which a careless receiver keeps."""
    answers = []
    files = [os.open("/dev/null", os.O_RDONLY) for _number in range(each)]
    try:
        for _packet in range(packets):
            try:
                with connected(path, 3.0) as peer:
                    nonce = hello(peer)["nonce"]
                    text = json.dumps({"protocol": 1, "nonce": nonce, "id": os.urandom(8).hex(), "op": "update.settle"})
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
                    peer.sendmsg([text.encode()], rights)
                    answers.append(said(peer))
            except OSError as error:
                answers.append({"ended": str(error.strerror or error)})
    finally:
        for file in files:
            os.close(file)
    return answers


def by_another(path: str, operation: str, number: str, more: Dict[str, Any]) -> Dict[str, Any]:
    """One process connects and hears the nonce, its child sends: who sends is not who connected."""
    with connected(path, 30.0) as peer:
        nonce = hello(peer)["nonce"]
        pid = os.fork()
        if pid == 0:
            request = {"protocol": 1, "nonce": nonce, "id": number, "op": operation, **more}
            with contextlib.suppress(OSError):
                peer.send(json.dumps(request).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        return said(peer)


REUSED: Dict[str, Any] = {}


def leave_connection(path: str) -> int:
    """A child connects and ends; its connection stays open here. The child's pid."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(10.0)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            peer.connect(path)
            os.write(write, hello(peer)["nonce"].encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    REUSED.update(peer=peer, pid=pid, nonce=os.read(read, 64).decode())
    os.close(read)
    return pid


def take_pid(ends_at: float = 100.0, tries: int = 200_000) -> bool:
    """Fork until a child has the pid that the connection was made with; that child is kept, waiting to be told to send."""
    until = time.monotonic() + ends_at
    for _number in range(tries):
        read, write = os.pipe()
        back_read, back_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            if os.getpid() != REUSED["pid"]:
                os._exit(0)
            os.read(read, 1)
            os.write(back_write, json.dumps(_send_kept(*REUSED["request"])).encode())
            os._exit(0)
        os.close(read)
        os.close(back_write)
        if pid == REUSED["pid"]:
            REUSED.update(go=write, heard=back_read, child=pid)
            CHILDREN.append(pid)
            return True
        os.close(write)
        os.close(back_read)
        os.waitpid(pid, 0)
        if time.monotonic() > until:
            return False
    return False


def will_send(operation: str, number: str, more: Dict[str, Any]) -> None:
    """What is sent over the connection that was left."""
    REUSED["request"] = (operation, number, more)


def _send_kept(operation: str, number: str, more: Dict[str, Any]) -> Dict[str, Any]:
    peer: socket.socket = REUSED["peer"]
    request = {"protocol": 1, "nonce": REUSED["nonce"], "id": number, "op": operation, **more}
    try:
        peer.send(json.dumps(request).encode())
    except OSError as error:
        return {"ended": str(error.strerror)}
    return said(peer)


def send_as_holder() -> Dict[str, Any]:
    """The process that has the pid now sends over the connection."""
    os.write(REUSED["go"], b"x")
    answer: Dict[str, Any] = json.loads(os.read(REUSED["heard"], ANSWER))
    return answer


def send_here() -> Dict[str, Any]:
    """This process sends over the connection, whoever has the pid now."""
    return _send_kept(*REUSED["request"])


# -- files -------------------------------------------------------------------------------------------------------------


def remove(path: str) -> None:
    """Take away what is there, whatever it is."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def make(path: str, kind: str, of: str, data: str = "") -> None:
    """Put one of KINDS at a path; links lead to `of`."""
    remove(path)
    if kind == "file":
        with open(path, "wb") as file:
            file.write(data.encode("latin-1"))
    elif kind == "link":
        os.symlink(of, path)
    elif kind == "dangling":
        os.symlink(of + ".not-there", path)
    elif kind == "loop":
        os.symlink(os.path.basename(path), path)
    elif kind == "hard-link":
        try:
            os.link(of, path, follow_symlinks=False)
        except OSError:  # the kernel protects others' files; one of ours with a second link is what is left
            with open(path + ".other", "wb") as file:
                file.write(data.encode("latin-1"))
            os.link(path + ".other", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as peer:
            peer.bind(path)
    elif kind == "directory":
        os.mkdir(path)


def write(path: str, data: str) -> None:
    """Write a file beside and rename it into place."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(data.encode("latin-1"))
    os.rename(beside, path)


def fetch(source: str, path: str) -> None:
    """Copy a file, as a download would put it there."""
    remove(path)
    shutil.copyfile(source, path)


def sparse(path: str, size: int) -> None:
    """A file of nothing, as large as it says."""
    remove(path)
    with open(path, "wb") as file:
        file.truncate(size)


def swap_for_ever(path: str, of: str, data: str, kinds: Sequence[str] = KINDS) -> int:
    """A process that puts one kind after another at a path, as fast as it can."""

    def loop() -> None:
        number = 0
        while True:
            number += 1
            beside = f"{path}.swap{number % 7}"
            with contextlib.suppress(OSError):
                make(beside, kinds[number % len(kinds)], of, data)
                if os.path.isdir(path) and not os.path.islink(path):
                    os.rename(path, f"{path}.gone")
                    remove(f"{path}.gone")
                os.rename(beside, path)

    return _child(loop)


def swap_directory_for_ever(path: str, of: str) -> int:
    """A process that turns a directory into a link to `of` and back, as fast as it can."""

    def loop() -> None:
        link, kept = f"{path}.link", f"{path}.kept"
        while True:
            with contextlib.suppress(OSError):
                os.symlink(of, link)
                os.rename(path, kept)
                os.rename(link, path)
                os.unlink(path)
                os.rename(kept, path)
            with contextlib.suppress(OSError):
                os.unlink(link)

    return _child(loop)


def touch_for_ever(paths: Sequence[str]) -> int:
    """A process that makes and writes files again and again."""

    def loop() -> None:
        while True:
            for path in paths:
                with contextlib.suppress(OSError), open(path, "ab") as file:
                    file.write(b"x")
                with contextlib.suppress(OSError):
                    os.unlink(path)

    return _child(loop)


def flood_for_ever(path: str, requests: Sequence[Dict[str, Any]]) -> int:
    """A process that asks one thing after another and waits for little."""

    def loop() -> None:
        number = 0
        while True:
            number += 1
            with contextlib.suppress(OSError, ValueError, KeyError):
                request = dict(requests[number % len(requests)])
                ask(path, request.pop("op"), request.pop("id", os.urandom(8).hex()), request, 0.5)

    return _child(loop)


def kill_main(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send the daemon a signal, as its own account may."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def can(path: str, flags: int) -> str:
    """Open a path; "" when it could, else why not."""
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
    except OSError as error:
        return str(error.strerror)
    return ""


def who() -> Dict[str, Any]:
    """What this process is."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        group = file.read().strip()
    return {"pid": os.getpid(), "uid": os.getresuid(), "groups": os.getgroups(), "cgroup": group}


def _become(group: str, user: str) -> None:
    if group != "-":
        with open(group + "/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    if user != "root":
        found = pwd.getpwnam(user)
        os.setgroups([])
        os.setresgid(found.pw_gid, found.pw_gid, found.pw_gid)
        os.setresuid(found.pw_uid, found.pw_uid, found.pw_uid)
    _end_with_parent()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def main(argv: Sequence[str]) -> None:
    """Do what is asked until the input ends."""
    _become(argv[1], argv[2])
    os.umask(0o022)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    known = globals()
    while True:
        select.select([sys.stdin], [], [])
        line = sys.stdin.readline()
        if not line:
            hang_up()
            return
        name, *arguments = json.loads(line)
        try:
            answer: Dict[str, Any] = {"ok": known[name](*arguments)}
        except (OSError, ValueError, KeyError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv)
