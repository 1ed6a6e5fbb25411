# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is served: every decision on values, and one look at real processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes
from slotward import caller, process

ACCOUNT = caller.Account("slotward", 990, 980)
DAEMON = caller.Peer(100, 990, 980)
UNIT = "slotward.service"
GROUP = "/system.slice/slotward.service"


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("0::/system.slice/slotward.service\n", GROUP),
        ("12:pids:/x\n1:name=systemd:/system.slice/slotward.service\n0::/\n", GROUP),
        ("0::/\n1:name=systemd:/system.slice/slotward.service\n", GROUP),
        ("3:cpu,cpuacct:/system.slice/slotward.service\n2:name=other:/system.slice/slotward.service\n", ""),
        ("0::/a:b\n", "/a:b"),
        ("9:name=systemd:/\n8:pids:/\n0::/system.slice/slotward.service\n", GROUP),
        ("1:name=systemd:/system.slice/slotward.service\n0::/system.slice/slotward.service\n", GROUP),
        ("", ""),
        ("0\n", ""),
    ],
)
def test_the_group_is_systemds_own(text: str, group: str) -> None:
    """On the unified, the hybrid and the old hierarchy."""
    assert caller.parse_cgroup(text) == group


@pytest.mark.parametrize(
    ("cgroup", "group", "within"),
    [
        (GROUP, GROUP, True),
        (GROUP + "/child", GROUP, True),
        (GROUP + "x", GROUP, False),
        (GROUP + " (deleted)", GROUP, False),
        ("/user.slice" + GROUP, GROUP, False),
        ("/system.slice", GROUP, False),
        ("", GROUP, False),
        ("", "", False),
        ("/x", "", False),
        ("/x", "/", False),
    ],
)
def test_a_process_is_in_the_units_group_or_below(cgroup: str, group: str, within: bool) -> None:
    """A group that only begins alike is another one; no group holds nobody."""
    assert caller.is_within(cgroup, group) is within


def test_a_process_cannot_choose_when_it_was_started() -> None:
    """Its name may hold anything, brackets and digits too."""
    tail = b" S " + b" ".join(b"%d" % number for number in range(4, 53))
    for name in (b"x", b"a) S 1 2 3", b"((((", b") ) )", b"1) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 7"):
        assert caller.parse_started(b"100 (" + name + b")" + tail) == 22
    for odd in (b"", b"100 (x", b"100 (x) S 1 2", b"100 (x) S" + b" x" * 30):
        assert caller.parse_started(odd) is None


@given(st.binary(max_size=200), st.text(max_size=200))
def test_nothing_that_proc_says_is_an_exception(stat: bytes, cgroup: str) -> None:
    """A process that writes its own lines gets no further than a wrong one."""
    caller.parse_started(stat)
    caller.parse_cgroup(cgroup)


@pytest.mark.parametrize(
    ("peer", "served"),
    [
        (DAEMON, True),
        (caller.Peer(1, 0, 0), True),
        (caller.Peer(1, 0, 4), True),
        (caller.Peer(1, 990, 0), False),
        (caller.Peer(1, 991, 980), False),
        (caller.Peer(0, 65534, 65534), False),
    ],
)
def test_root_and_the_account_are_served(peer: caller.Peer, served: bool) -> None:
    """The account with its own group alone."""
    refusal = caller.check_account(peer, ACCOUNT)
    assert (refusal is None) is served
    assert refusal is None or (refusal.code == codes.NOT_ALLOWED and str(peer.uid) in refusal.text)


SEEN = caller.Seen(500, GROUP)


@pytest.mark.parametrize(
    ("sent", "seen", "said"),
    [
        (DAEMON, SEEN, ""),
        (DAEMON._replace(pid=101), SEEN, "process 101 .* sent what process 100"),
        (DAEMON._replace(uid=0), SEEN, "uid 0"),
        (DAEMON._replace(gid=0), SEEN, "gid 0"),
        (DAEMON, None, "process 100 ended before"),
        (DAEMON, SEEN._replace(started=600), "started at tick 600, and greeted at tick 600"),
        (DAEMON, SEEN._replace(started=601), "it is another one"),
        (DAEMON, SEEN._replace(started=599), ""),
    ],
)
def test_who_sent_is_who_connected_and_was_there_before(sent: caller.Peer, seen: caller.Seen, said: str) -> None:
    """A process that has the id since the greeting's own tick is another one, as far as this clock can tell."""
    refusal = caller.check_sender(DAEMON, sent, 600, seen)
    if not said:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal.code == codes.NOT_ALLOWED
    with pytest.raises(codes.Refused, match=said):
        raise codes.Refused(refusal)


Event = str


@given(st.lists(st.sampled_from(("connect", "greet", "send", "end", "reuse", "tick")), max_size=12))
def test_a_pid_that_was_used_again_passes_in_no_order_of_events(events: List[Event]) -> None:
    """Whatever happens when: a message is taken only from the process that connected and is still there.

    One id, whose holder ends and is followed by another; each greets, is greeted or sends whenever it likes, even within one
    tick of the clock. Looking happens after sending.
    """
    tick, holder, born = 10, 0, 5
    connected = greeted = sender = knows = None
    for event in events:
        if event == "tick":
            tick += 1
        elif event == "end":
            holder = -1
        elif event == "reuse" and holder == -1:
            holder, born = holder + 100 + len(events), tick
        elif event == "connect" and holder != -1 and connected is None:
            connected = holder
        elif event == "greet" and connected is not None and greeted is None and born < tick:
            greeted, knows = tick, True  # whoever has the socket by now reads it
        elif event == "send" and knows and holder != -1 and sender is None:
            sender = holder
    if sender is None or greeted is None:
        return
    seen = None if holder == -1 else caller.Seen(born, GROUP)
    taken = caller.check_sender(DAEMON, DAEMON, greeted, seen) is None
    assert not taken or (sender == holder and born < greeted)


def test_a_group_is_asked_for_when_it_must_be_and_not_often() -> None:
    """Whoever is elsewhere makes nobody ask, unless its group bears the unit's name; what was right stays right."""
    said, asked, clock = ["", GROUP, "", "/other.slice/slotward.service"], [], [0.0]

    def ask() -> str:
        asked.append(clock[0])
        return said[len(asked) - 1]

    group = caller.Group(UNIT, ask, lambda: clock[0])
    assert not group.holds("/system.slice/cron.service")
    assert asked == []
    assert not group.holds(GROUP)
    clock[0] += caller.AGAIN_S / 2
    assert not group.holds(GROUP)
    clock[0] += caller.AGAIN_S
    assert group.holds(GROUP)
    assert group.holds(GROUP + "/below")
    assert len(asked) == 2
    clock[0] += caller.AGAIN_S
    assert not group.holds("/user.slice/slotward.service")
    assert group.holds(GROUP), "systemd did not answer"
    clock[0] += caller.AGAIN_S
    assert group.holds("/other.slice/slotward.service")
    assert len(asked) == 4


def test_a_living_process_is_seen_as_it_is() -> None:
    """This one: its start by another reader of /proc, its group by its own file."""
    seen = caller.look(os.getpid())
    assert seen is not None
    assert seen.started / caller.TICKS == process.started_s(os.getpid())
    assert seen.cgroup == caller.parse_cgroup(pathlib.Path("/proc/self/cgroup").read_text())
    assert seen.started < caller.ticks_now()


def test_what_has_ended_is_not_seen() -> None:
    """Neither while nobody has waited for it, nor afterwards, nor what never was."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert caller.look(child.pid) is None
    assert caller.look(child.pid) is None
    assert caller.look(0) is None


def test_an_account_that_is_not_there_is_named() -> None:
    """With what makes it."""
    assert caller.account_of("root") == caller.Account("root", 0, 0)
    with pytest.raises(codes.Refused, match="no account no-such-one on this host: run `slotward setup`") as caught:
        caller.account_of("no-such-one")
    assert caught.value.code == codes.NO_ACCOUNT


@pytest.mark.parametrize(
    ("cgroup", "served"), [(GROUP, True), (GROUP + "/below", True), ("/cron.service", False), ("", False)]
)
def test_with_a_group_the_account_is_served_from_within_it_alone(
    monkeypatch: pytest.MonkeyPatch, cgroup: str, served: bool
) -> None:
    """A process of the account's outside the unit is a stranger, and is told both groups; root needs none."""
    monkeypatch.setattr(caller, "look", lambda _pid: caller.Seen(500, cgroup))
    door, root = caller.Door(ACCOUNT, caller.Group(UNIT, lambda: GROUP)), DAEMON._replace(uid=0, gid=0)
    assert door.meet(DAEMON) == caller.Met(caller.ACCOUNT if served else caller.STRANGER, 500)
    refusal = door.check(DAEMON, DAEMON, 600)
    assert (refusal is None) is served
    if refusal is not None:
        assert refusal.code == codes.NOT_ALLOWED
        assert f"is in the control group {cgroup or '(none)'}, not in that of {UNIT}" in refusal.text
    assert door.meet(root) == caller.Met(caller.ROOT, 500)
    assert door.check(root, root, 600) is None


def test_without_a_group_the_account_is_all_that_counts() -> None:
    """A daemon's sandbox hides other processes: nothing is looked up, and who sent must still be who connected."""
    gone = 2**22 + 1
    door = caller.Door(ACCOUNT)
    for who, kind, served in (
        (caller.Peer(gone, 0, 0), caller.ROOT, True),
        (caller.Peer(gone, 990, 980), caller.ACCOUNT, True),
        (caller.Peer(gone, 990, 0), caller.STRANGER, False),
        (caller.Peer(gone, 991, 980), caller.STRANGER, False),
    ):
        assert door.meet(who) == caller.Met(kind, 0)
        assert (door.check(who, who, 600) is None) is served
        other = door.check(who, who._replace(pid=7), 600)
        assert other is not None
        assert other.code == codes.NOT_ALLOWED
    with_group = caller.Door(ACCOUNT, caller.Group(UNIT, lambda: GROUP))
    assert with_group.meet(caller.Peer(gone, 0, 0)) is None
    assert with_group.check(caller.Peer(gone, 0, 0), caller.Peer(gone, 0, 0), 600) is not None
