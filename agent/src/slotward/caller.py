# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is at the other end of a Unix socket, and whether that one is served (privilege.md, section 3, "Who").

Rules:
- The kernel's word alone: SO_PEERCRED for who connected, SCM_CREDENTIALS for who sent, /proc for that process's group.
- A process id may be used again at any time. So three things must hold together: who sent is who connected, that process
  was started before the nonce that the message repeats was sent, and it was alive after its group was read. Whoever got
  the id later was started after the nonce, and whoever had it before cannot have known the nonce.
- Times are compared in clock ticks, as /proc has them: the same tick is not before.
- `exe` is compared for native programs alone. Ours is a Python program, whose `/proc/<pid>/exe` is the interpreter and
  says nothing, so the unit's control group is what tells the daemon from whatever else runs as its account.
"""

from __future__ import annotations

import os
import pwd
import select
import socket
import struct
import time
from typing import Callable, NamedTuple, Optional

from slotcore import codes

TICKS = os.sysconf("SC_CLK_TCK")
AGAIN_S = 2.0
MAX_PROC = 1 << 16
ROOT, ACCOUNT, STRANGER = "root", "account", "stranger"
LIMITS = {ROOT: 4, ACCOUNT: 24, STRANGER: 4}
"""How many connections of each kind there may be."""
_CREDENTIALS = struct.Struct("3i")
SIZE = _CREDENTIALS.size


class Peer(NamedTuple):
    """A process as the kernel names it to us."""

    pid: int
    uid: int
    gid: int


class Account(NamedTuple):
    """The account that the daemon runs as."""

    name: str
    uid: int
    gid: int


class Seen(NamedTuple):
    """What /proc said of a process, all of it while it lived; None when it had ended by then."""

    started: int
    """In clock ticks since boot."""
    cgroup: str


# --- deciding ---


def parse_started(stat: bytes) -> Optional[int]:
    """When a process was started, by its /proc/<pid>/stat; its name, which it may choose, is stepped over."""
    fields = stat.rpartition(b")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


def parse_cgroup(text: str) -> str:
    """The group that systemd keeps a process in, by its /proc/<pid>/cgroup; "" when there is none.

    The unified hierarchy's, where a process has a place in it: systemd goes by that one on a hybrid host too, and in a
    container with a systemd of its own the older names are those of the machine outside. Else the older one of systemd's.
    """
    unified, older = "", ""
    for line in text.split("\n"):
        number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        if controllers == "name=systemd":
            older = path
        if (number, controllers) == ("0", ""):
            unified = path
    return older if older and unified in ("", "/") else unified


def is_within(cgroup: str, group: str) -> bool:
    """Whether a process's group is the unit's or one below it."""
    return len(group) > 1 and group.startswith("/") and (cgroup == group or cgroup.startswith(group + "/"))


def check_account(peer: Peer, account: Account) -> Optional[codes.Refusal]:
    """Whether this is root or the daemon's account."""
    if peer.uid == 0 or (peer.uid, peer.gid) == (account.uid, account.gid):
        return None
    text = (
        f"process {peer.pid} is of uid {peer.uid} and gid {peer.gid}; served are root and {account.name} "
        f"({account.uid}, {account.gid})"
    )
    return codes.Refusal(codes.NOT_ALLOWED, text)


def check_sender(connected: Peer, sent: Peer, greeted: int, seen: Optional[Seen]) -> Optional[codes.Refusal]:
    """Whether who sent a message is who connected, has the id since before the greeting, and lives.

    `seen` was read after the message came; `greeted` is the tick in which the nonce was sent, or an earlier one.
    """
    if sent != connected:
        return codes.Refusal(
            codes.NOT_ALLOWED,
            f"process {sent.pid} (uid {sent.uid}, gid {sent.gid}) sent what process {connected.pid} "
            f"(uid {connected.uid}, gid {connected.gid}) connected for",
        )
    if seen is None:
        return codes.Refusal(codes.NOT_ALLOWED, f"process {sent.pid} ended before it was looked at")
    if seen.started >= greeted:
        return codes.Refusal(
            codes.NOT_ALLOWED,
            f"process {sent.pid} was started at tick {seen.started}, and greeted at tick {greeted}: it is another one",
        )
    return None


# --- looking ---


def account_of(user: str) -> Account:
    """The account of this name; raises Refused `no-account`."""
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise codes.refused(
            codes.NO_ACCOUNT, f"there is no account {user} on this host: run `slotward setup`"
        ) from None
    return Account(user, found.pw_uid, found.pw_gid)


def ticks_now() -> int:
    """The clock tick since boot that it is."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * TICKS // 1_000_000_000


def connected(peer: socket.socket) -> Peer:
    """Who connected."""
    return unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, SIZE))


def unpack(credentials: bytes) -> Peer:
    """What the kernel says in SO_PEERCRED and SCM_CREDENTIALS."""
    return Peer._make(_CREDENTIALS.unpack(credentials))


def look(pid: int) -> Optional[Seen]:
    """What /proc says of the process that has this id now; None when there is none, or it ended meanwhile."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # ProcessLookupError, or pid 0: somebody whom this process cannot see
        return None
    try:
        stat, cgroup = _read(pid, "stat"), _read(pid, "cgroup")
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        if ended.poll(0):  # all that was read is this process's: until now nobody else can have had its id
            return None
    finally:
        os.close(descriptor)
    started = parse_started(stat)
    return None if started is None else Seen(started, parse_cgroup(cgroup.decode("utf-8", "surrogateescape")))


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(MAX_PROC)
    except OSError:
        return b""


class Group:
    """The control group of a unit, as systemd last said.

    What was right stays right: a unit's group changes only with its slice, and the old path is never another unit's. It is
    asked again for a process whose group bears the unit's name elsewhere, and then not often.
    """

    def __init__(self, unit: str, ask: Callable[[], str], now: Callable[[], float] = time.monotonic) -> None:
        self.unit = unit
        self._ask = ask
        self._now = now
        self._asked: Optional[float] = None
        self.path = ""

    def holds(self, cgroup: str) -> bool:
        """Whether a process in `cgroup` is the unit's."""
        if is_within(cgroup, self.path):
            return True
        soon = self._asked is not None and self._now() - self._asked < AGAIN_S
        if soon or self.unit not in cgroup.split("/"):
            return False
        self._asked = self._now()
        self.path = self._ask() or self.path
        return is_within(cgroup, self.path)


class Met(NamedTuple):
    """Among whom a connection counts, and since when its process is there."""

    kind: str
    started: int


class Door:
    """Who is let in: root, and the daemon's account; where a group is given, the account from within that group alone.

    Without a group an account's process is as good as another of its processes, so nothing is looked up in /proc, which a
    sandbox may hide (`ProtectProc=`): the kernel's word on the account of who sent is all.
    """

    def __init__(self, account: Account, group: Optional[Group] = None) -> None:
        self._account = account
        self._group = group

    def meet(self, connected: Peer) -> Optional[Met]:
        """Among whom a connection counts, so that those who are not served cannot take the places of those who are.

        None when the process has ended.
        """
        seen = Seen(0, "") if self._group is None else look(connected.pid)
        if seen is None:
            return None
        if connected.uid == 0:
            return Met(ROOT, seen.started)
        inside = self._group is None or self._group.holds(seen.cgroup)
        served = inside and check_account(connected, self._account) is None
        return Met(ACCOUNT if served else STRANGER, seen.started)

    def check(self, connected: Peer, sent: Peer, greeted: int) -> Optional[codes.Refusal]:
        """Why who sent this message is not served; None when it is."""
        seen = Seen(0, "") if self._group is None else look(sent.pid)
        refusal = check_account(connected, self._account) or check_sender(connected, sent, greeted, seen)
        if refusal is not None or seen is None:
            return refusal
        if sent.uid == 0 or self._group is None or self._group.holds(seen.cgroup):
            return None
        return codes.Refusal(
            codes.NOT_ALLOWED,
            f"process {sent.pid} is in the control group {seen.cgroup or '(none)'}, not in that of {self._group.unit}"
            + (f", {self._group.path}" if self._group.path else ""),
        )


def group_of(unit: str) -> Group:
    """The control group of this unit; none while it does not run, or systemd gives no answer."""
    from slotward import asking

    def ask() -> str:
        shown = asking.Question(unit, properties=("ControlGroup",)).answers(AGAIN_S)
        return shown.get(unit, {}).get("ControlGroup", "")

    return Group(unit, ask)
