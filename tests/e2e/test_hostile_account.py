# SPDX-License-Identifier: GPL-3.0-or-later
"""A fully hostile daemon account against the helper (docs/design/threat-model.md): arbitrary code, with the real socket.

What it must not be able to do, one part of the file each: be somebody whom it is not; crash or hang the helper; have a byte run that
the pins did not sign; lower the floor; confirm what is not current and on trial; keep a trial alive past the watchdog; make root
write, delete, chmod or chown outside the slots; keep the host from recovering. While it tries, root watches the invariants.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest
from support import enemy as enemies
from support import modes, releases
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.HELPER)]

S, STAGING, SOCKET = nodes.SLOTS, nodes.STAGING, modes.SOCKET
SETTLE = {"op": "update.settle"}
UNSIGNED = "#!/bin/sh\ntouch /srv/canary/owned\n"


@pytest.fixture
def enemy(node: nodes.Node) -> Iterator[enemies.Enemy]:
    """Code of the account's inside the daemon's control group; gone after the test, with what it left in its own directory."""
    with enemies.Enemy(node) as found:
        yield found
    node.sh(f"rm -rf {STAGING}/* {STAGING}/.[!.]*", check=False)


def helper_pid(node: nodes.Node) -> int:
    """The helper's main process."""
    return node.unit(modes.HELPER_UNIT).main_pid


def served(node: nodes.Node, within: float = 15) -> None:
    """Root is answered by the helper: it lives and does not wait for anybody."""
    with enemies.Enemy(node, inside=False, user="root") as root:
        node.waits(lambda: root.ask("update.settle", timeout=10).get("code") == "ok", within, "root is answered")


# -- who asks -------------------------------------------------------------------------------------------------------------


@pytest.mark.host
def test_only_the_daemon_and_root_are_served(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """The daemon's group and root are answered; its account elsewhere, and every other account, are not."""
    assert enemy.ask("update.settle")["code"] == "ok"
    served(node)
    with enemies.Enemy(node, inside=False) as outside:
        assert modes.ACCOUNT not in outside.call("who")["cgroup"]
        answer = outside.ask("update.settle")
        assert (answer.get("code"), answer.get("refused")) == ("not-allowed", True), answer
    with enemies.Enemy(node, inside=True, user="nobody") as other:
        assert "Permission denied" in other.ask("update.settle")["ended"]
    node.sh("useradd -M -N -g slotward e2e-other 2>/dev/null || true")
    try:
        with enemies.Enemy(node, inside=True, user="e2e-other") as member:  # may open the socket, and is in the group
            answer = member.ask("update.settle")
            assert answer.get("code") == "not-allowed", answer
    finally:
        node.sh("userdel e2e-other")


@pytest.mark.host
def test_who_sends_is_who_connected(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """A connection that was handed on serves nobody, not even within the group."""
    answer = enemy.call("by_another", SOCKET, "update.settle", nodes.trial_id(), {})
    assert answer.get("code") == "not-allowed" or answer.get("ended") == "closed", answer


@pytest.mark.host
@pytest.mark.parametrize("sender", ["holder", "other"])
def test_a_pid_that_was_used_again_does_not_pass(node: nodes.Node, enemy: enemies.Enemy, sender: str) -> None:
    """Out of the group a process connects and ends; its pid comes round, in the group. Neither it nor the one outside is served."""
    before = helper_pid(node)
    with enemies.Enemy(node, inside=False) as outside:
        outside.call("will_send", "update.settle", nodes.trial_id(), {})
        pid = outside.call("leave_connection", SOCKET)
        enemies.next_pid(node, pid)
        if sender == "holder":
            assert outside.call("take_pid"), f"pid {pid} did not come round"
            node.sh(f"echo {pid} >{enemies.GROUP}/cgroup.procs")
            answer = outside.call("send_as_holder")
        else:
            assert enemy.call("hold_pid", pid), f"pid {pid} did not come round"
            assert enemies.GROUP.rpartition("/")[2] in node.sh(f"cat /proc/{pid}/cgroup")
            answer = outside.call("send_here")
    assert answer.get("code") == "not-allowed" or answer.get("ended") == "closed", answer
    assert helper_pid(node) == before


# -- crash and hang -------------------------------------------------------------------------------------------------------

GOOD = '{"protocol":1,"nonce":"NONCE","id":"00000000000000aa","op":"update.settle"}'
MALFORMED = {
    "no JSON": "hello",
    "nothing": " ",
    "a list": "[]",
    "a number": "1",
    "cut": GOOD[:-1],
    "twice": '{"protocol":1,"protocol":1,"nonce":"NONCE","id":"00000000000000aa","op":"update.settle"}',
    "a float": GOOD.replace('"protocol":1', '"protocol":1.0'),
    "a truth": GOOD.replace('"protocol":1', '"protocol":true'),
    "a great number": GOOD.replace('"protocol":1', '"protocol":' + "9" * 3000),
    "an unknown key": GOOD[:-1] + ',"more":1}',
    "another protocol": GOOD.replace('"protocol":1', '"protocol":2'),
    "no nonce": '{"protocol":1,"id":"00000000000000aa","op":"update.settle"}',
    "another nonce": GOOD.replace("NONCE", "0" * 32),
    "an id with a path": GOOD.replace("00000000000000aa", "../../../../etc/a"),
    "an id of letters": GOOD.replace("00000000000000aa", "zzzzzzzzzzzzzzzz"),
    "no operation": '{"protocol":1,"nonce":"NONCE","id":"00000000000000aa"}',
    "an unknown operation": GOOD.replace("update.settle", "update.shell"),
    "an operation of the daemon's": GOOD.replace("update.settle", "node.upgrade"),
    "a key of another operation": GOOD[:-1] + ',"target":"x.target"}',
    "deep": "[" * 4000,
    "deep in a value": GOOD[:-1] + ',"target":' + "[" * 1500 + "]" * 1500 + "}",
    "bytes": "\x00\xff\xfe\x80" * 500,
    "a NUL in a name": GOOD.replace("update.settle", "update.swap")[:-1] + ',"target":"a\\u0000b"}',
    "half of a pair": GOOD.replace("update.settle", "update.rollback")[:-1] + ',"trial":"00000000000000aa","why":"\\ud800"}',
    "a long why": GOOD.replace("update.settle", "update.rollback")[:-1] + f',"trial":"00000000000000aa","why":"{"x" * 300}"}}',
    "a negative wait": GOOD.replace("update.settle", "update.confirm")[:-1] + ',"trial":"00000000000000aa","wait":-1}',
    "a long wait": GOOD.replace("update.settle", "update.confirm")[:-1] + ',"trial":"00000000000000aa","wait":31}',
    "4,097 bytes": GOOD[:-1] + " " * (4097 - len(GOOD) + 5 - 32) + "}",
    "100 kB": GOOD[:-1] + " " * 100_000 + "}",
}  # fmt: skip
NAMES = ("../../../etc/shadow", "/etc/shadow", "a/b", "..", ".", "", "x" * 300, "a\nb", "-rf", "~root", "%2e%2e")


@pytest.mark.host
def test_no_word_crashes_the_helper(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """Each is refused or hung up on, by the same process, which then answers an honest caller."""
    pid, answered = helper_pid(node), {}
    for name, text in MALFORMED.items():
        answers = enemy.call("frames", SOCKET, [text])
        assert not [answer for answer in answers if answer.get("code") == "ok"], (name, answers)
        assert answers[0].get("ended") != "timeout", (name, answers)
        answered[name] = answers[0]
        assert "ended" in answers[0] or answers[0]["refused"] or answers[0]["retry"], (name, answers)
        if answers[0].get("code") == "too-many":
            time.sleep(1.2)
    for name in NAMES:
        answer = enemy.ask("update.swap", target=name)
        assert answer.get("refused") or answer.get("retry"), (name, answer)
        time.sleep(0.5)
    assert helper_pid(node) == pid
    served(node)
    node.at_rest()


@pytest.mark.host
def test_no_client_holds_the_helper(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """Silent, half-closed, slow, stopped, hung up in the middle, and descriptors in heaps: the next caller is answered at once."""
    pid = helper_pid(node)
    files = f"ls /proc/{pid}/fd | wc -l"
    before = int(node.sh(files))
    enemy.call("open_many", SOCKET, 10)
    enemy.call("frames", SOCKET, [], True, "write")
    enemy.call("frames", SOCKET, [GOOD], True, "both")
    enemy.call("frames", SOCKET, [GOOD], True, "write")
    served(node)
    enemy.call("descriptors", SOCKET, 6)
    enemy.call("stopped_clients", SOCKET, 8)
    served(node)
    enemy.call("hang_up")
    node.waits(lambda: int(node.sh(files)) <= before, 40, "the helper keeps nothing of them")
    assert helper_pid(node) == pid


@pytest.mark.host
def test_a_thousand_connections_are_32(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """The rest is closed at once; those who say nothing are closed after 30 s; memory stays bounded, and root is served again."""
    pid = helper_pid(node)
    found = enemy.call("open_many", SOCKET, 1000, timeout=200)
    assert found["made"] - found["closed"] <= 32, found
    assert int(node.sh(f"ls /proc/{pid}/fd | wc -l")) <= 64
    assert int(node.sh(f"awk '/^Pss:/ {{ print $2 }}' /proc/{pid}/smaps_rollup")) <= 24 * 1024
    node.waits(lambda: enemy.call("still_open") == 0, 45, "who says nothing is closed")
    served(node)
    assert helper_pid(node) == pid


@pytest.mark.hosts
def test_a_flood_of_operations_is_bounded(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """More than a burst is `too-many` or `in-progress`, the processes that root starts for it are one at a time, and it passes."""
    number = nodes.trial_id()  # the same each time: answered at once, however slow the machine is
    codes = [enemy.ask("update.settle", number).get("code") for _number in range(40)]
    assert set(codes) <= {"ok", "too-many", "in-progress"}, codes
    assert "too-many" in codes
    for _number in range(3):
        enemy.call("flood_for_ever", SOCKET, [SETTLE, {"op": "update.prepare", "target": "x.target"}])
    most = 0
    for _number in range(10):
        running = node.sh("systemctl list-units --no-legend --plain --state=active,activating 'slotward-*' | wc -l")
        most = max(most, int(running))
        time.sleep(0.3)
    assert most <= 6, node.sh("systemctl list-units --no-legend --plain 'slotward-*'")
    enemy.call("hang_up")
    node.waits(lambda: enemy.ask("update.settle").get("code") == "ok", 60, "the account's own daemon is served again")


@pytest.mark.host
def test_an_operation_is_done_once_however_often_it_is_asked(
    node: nodes.Node, enemy: enemies.Enemy, v110: releases.Release
) -> None:
    """S11: replayed, the same id answers the same trial and changes nothing; with other words it is `id-reused`."""
    number = nodes.trial_id()
    name = enemy.stage(v110, number)
    first = enemy.ask("update.swap", number, target=name)
    node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs")
    assert node.update()["trial"]["id"] == number, first
    node.waits(lambda: node.helper_slot() == "b", 20, "the new helper runs")
    before = node.sh(f"stat -c '%i %Y %Z' {S}/trial {S}/b {S}/update.json"), node.unit().main_pid
    name = enemy.stage(v110, number)
    again = enemy.ask("update.swap", number, target=name)
    assert again["answer"]["trial"]["id"] == number, again
    other = enemy.ask("update.rollback", number, trial=number)
    assert other["code"] in ("id-reused", "wrong-trial"), other
    assert (node.sh(f"stat -c '%i %Y %Z' {S}/trial {S}/b {S}/update.json"), node.unit().main_pid) == before
    confirmed = nodes.trial_id()
    answers = [enemy.ask("update.confirm", confirmed, trial=number, wait=20) for _number in range(2)]
    assert [answer["answer"]["state"] for answer in answers] == ["confirmed", "confirmed"], answers
    assert node.update()["floor"] == 2
    enemy.call("remove", f"{STAGING}/slotward-1.1.0")
    enemy.call("remove", f"{STAGING}/{name}")


# -- bytes, floor, confirmation ---------------------------------------------------------------------------------------------


@pytest.mark.host
def test_no_byte_runs_that_the_pins_did_not_sign(
    node: nodes.Node,
    enemy: enemies.Enemy,
    v100: releases.Release,
    v110: releases.Release,
    stranger: releases.Release,
) -> None:
    """Unsigned bytes, another's signature, a target that lies, a version that lies: refused, and nothing moved."""
    canaries = enemies.Canaries(node)
    signed = json.dumps(node.shop.target(v110))
    program = f"{STAGING}/slotward-1.1.0"
    with enemies.Watch(node, v100):
        tries = {
            "other bytes": (UNSIGNED, signed),
            "bytes and digest": (UNSIGNED, json.dumps({**node.shop.target(v110), "sha256": "0" * 64})),
            "a stranger's manifest": (UNSIGNED, json.dumps({**node.shop.target(stranger)})),
            "no manifest": (UNSIGNED, json.dumps({**node.shop.target(v110), "signature": ""})),
            "another version": (UNSIGNED, json.dumps({**node.shop.target(v110), "version": "9.9.9"})),
            "another product": (UNSIGNED, json.dumps({**node.shop.target(v110), "product": "other"})),
            "no target": (UNSIGNED, "{}"),
            "a huge target": (UNSIGNED, "x" * 5_000_000),
        }
        for name, (data, target) in tries.items():
            number = nodes.trial_id()
            enemy.call("write", program, data)
            enemy.call("write", f"{STAGING}/{number}.target", target)
            answer = enemy.ask("update.swap", number, target=f"{number}.target")
            assert answer.get("refused") or answer.get("retry"), (name, answer)
            assert (node.link("current"), node.link("good"), node.link("helper")) == ("a", "a", "a"), name
            node.slotward("update", "--clear-failed")
    assert node.update()["floor"] == 1
    canaries.unchanged()


@pytest.mark.hosts
def test_the_account_asks_for_things_in_any_order_and_the_floor_stays(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release, v120: releases.Release
) -> None:
    """I3: what is older, what is not on trial, what is not current: refused each time; the server's time only makes it stricter."""
    node.upgraded(v110)
    node.upgraded(v120)
    assert node.update()["floor"] == 3
    last = node.update()["last"]["id"]
    with enemies.Watch(node, v110, v120):
        for release, codes in ((v100, {"too-far-back"}), (v110, {"below-floor", "expired"})):
            for server_time in (None, 0, 1, 2**52):
                number = nodes.trial_id()
                name = enemy.stage(release, number)
                more = {} if server_time is None else {"serverTime": server_time}
                answer = enemy.ask("update.swap", number, target=name, **more)
                assert answer["code"] in codes, answer
                time.sleep(0.3)
        for trial in (last, nodes.trial_id(), "0" * 16):
            done = enemy.ask("update.confirm", trial=trial, wait=0)
            assert done["code"] != "ok" or done["answer"]["changed"] is False, done
            back = enemy.ask("update.rollback", trial=trial)
            assert back["code"] != "ok" or back["answer"]["changed"] is False, back
    state = node.update()
    assert (state["floor"], state["version"], node.link("good")) == (3, "1.2.0", node.link("current"))


@pytest.mark.host
def test_only_the_trial_that_is_current_is_confirmed(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """A wrong id, a source that this host has not, and a confirmation before the new release has proven itself: all no."""
    node.configure(trial_length_s=30, settle_s=6)
    with enemies.Watch(node, v100, v110):
        number = nodes.trial_id()
        enemy.ask("update.swap", number, target=enemy.stage(v110, number))
        node.waits(lambda: node.helper_slot() == "b" and node.running() == "1.1.0", 20, "the host has switched")
        wrong = enemy.ask("update.confirm", trial=nodes.trial_id(), wait=0)
        assert wrong["code"] in ("wrong-trial", "in-progress"), wrong
        early = enemy.ask("update.confirm", trial=number, wait=0)
        assert early["code"] in ("not-proven", "in-progress", "wrong-trial"), early
        node.configure(confirm_sources="controller", trial_length_s=30)
        refused = enemy.ask("update.confirm", trial=number, wait=0)
        assert refused["code"] in ("wrong-source", "too-many", "in-progress"), refused
        assert (node.link("good"), node.update()["floor"]) == ("a", 1)
        assert node.slotward("rollback").exit == 0
    node.goes_back(("operator",), 15)
    node.slotward("update", "--clear-failed")


# -- a bad trial ----------------------------------------------------------------------------------------------------------------


@pytest.mark.host
@pytest.mark.parametrize("timer", ["on", "off"])
def test_a_trial_is_not_kept_alive(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release, timer: str
) -> None:
    """Whatever it asks meanwhile, the host goes back: by the timer; and 30 s after the deadline where that was taken away."""
    node.configure(confirm_sources="controller", trial_length_s=8)
    with enemies.Watch(node, v100, v110):
        number = nodes.trial_id()
        enemy.ask("update.swap", number, target=enemy.stage(v110, number))
        node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs")
        if timer == "off":
            node.sh(f"systemctl mask -q --runtime --now {nodes.TIMER} slotward-deadline@slotward.service")
        try:
            requests = [
                SETTLE,
                {"op": "update.confirm", "trial": number, "wait": 30},
                {"op": "update.prepare", "target": f"{number}.target"},
                {"op": "update.swap", "target": f"{number}.target"},
                {"op": "update.confirm", "trial": "0" * 16},
            ]
            for _number in range(4):
                enemy.call("flood_for_ever", SOCKET, requests)
            enemy.call("open_many", SOCKET, 60)
            node.waits(lambda: node.link("current") == "a", 8 + enemies.GRACE_S, "the host goes back")
        finally:
            node.sh(f"systemctl unmask -q --runtime {nodes.TIMER} slotward-deadline@slotward.service")
            node.sh(f"systemctl reset-failed {nodes.TIMER}", check=False)  # without what it triggers it has failed
            enemy.end()
    state = node.goes_back(("deadline-passed",), 20)
    assert state["last"]["id"] == number
    node.waits(lambda: node.helper_slot() == "a", 20, "the good helper runs")


@pytest.mark.host
def test_the_daemon_comes_back_whatever_its_account_kills(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """It kills its own main process again and again, in a trial and outside one: the host ends on a good version that runs."""
    with enemies.Watch(node, v100, v110):
        node.on_trial(v110)
        node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs")

        def killed() -> bool:
            pid = node.unit().main_pid
            if pid:
                try:
                    enemy.call("kill_main", pid)
                except ConnectionError:
                    enemy.end()
                except (OSError, AssertionError):
                    pass
            return node.link("current") == node.link("good")

        node.waits(killed, 40, "the host goes back")
    node.goes_back(("crash-loop",), 20)
    node.slotward("update", "--clear-failed")
    enemy.end()
    node.upgraded(v110)


# -- root's hands ---------------------------------------------------------------------------------------------------------------

OUTSIDE = ("/etc/shadow", f"{enemies.CANARY}/file", f"{enemies.CANARY}/fifo", f"{enemies.CANARY}/directory")


@pytest.mark.hosts
def test_nothing_planted_makes_root_touch_what_is_outside(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """I6: links, hard links, FIFOs, sockets, directories, huge files at each name in staging that root opens."""
    canaries = enemies.Canaries(node)
    target = json.dumps(node.shop.target(v110))
    number = nodes.trial_id()
    names = [f"{number}.target", f"{number}.permit", "slotward-1.1.0"]
    with enemies.Watch(node, v100, v110):
        for name in names:
            for kind in ("link", "dangling", "loop", "hard-link", "fifo", "socket", "directory", "missing"):
                enemy.stage(v110, number)
                enemy.call("write", f"{STAGING}/{number}.permit", target)
                of = OUTSIDE[len(kind) % len(OUTSIDE)]
                enemy.call("make", f"{STAGING}/{name}", kind, of, target)
                more = {"permit": f"{number}.permit"} if name.endswith("permit") else {}
                answer = enemy.ask("update.swap", nodes.trial_id(), target=f"{number}.target", timeout=30, **more)
                assert answer.get("refused") or answer.get("retry"), (name, kind, answer)
                node.slotward("update", "--clear-failed")
                time.sleep(0.4)
        enemy.call("sparse", f"{STAGING}/slotward-1.1.0", 1 << 40)
        answer = enemy.ask("update.swap", nodes.trial_id(), target=f"{number}.target", timeout=30)
        assert answer.get("refused") or answer.get("retry"), answer
        node.slotward("update", "--clear-failed")
    assert node.link("current") == "a"
    canaries.unchanged()


@pytest.mark.hosts
@pytest.mark.slow
def test_nothing_swapped_by_rename_makes_root_touch_what_is_outside(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """The same names and the directory itself, swapped as fast as the machine can while root opens them: right bytes or a refusal."""
    node.configure(confirm_sources="controller", trial_length_s=8)
    canaries = enemies.Canaries(node)
    began = 0
    with enemies.Watch(node, v100, v110):
        for turn in range(12):
            number = nodes.trial_id()
            name = enemy.stage(v110, number)
            data = v110.artifact.read_bytes().decode("latin-1")
            if turn % 3 == 0:
                enemy.call("swap_for_ever", f"{STAGING}/slotward-1.1.0", f"{enemies.CANARY}/program", UNSIGNED)
            elif turn % 3 == 1:
                enemy.call(
                    "swap_for_ever", f"{STAGING}/slotward-1.1.0", f"{enemies.CANARY}/program", data, ["file", "link"]
                )
            else:
                enemy.call("swap_directory_for_ever", STAGING, f"{enemies.CANARY}/directory")
            answer = enemy.ask("update.swap", number, target=name, timeout=60)
            if "ended" in answer or answer.get("code") in ("ok", "not-confirmed"):
                began += 1
                node.waits(lambda: node.link("current") == node.link("good"), 60, "the trial ends")
            with_enemy_gone(enemy)
            node.waits(lambda: node.update()["trial"] is None, 20, "no trial")
            node.slotward("update", "--clear-failed")
            enemy.call("remove", STAGING)
            node.sh(f"test -d {STAGING} || install -d -o slotward -g slotward -m 0700 {STAGING}")
    canaries.unchanged()


def with_enemy_gone(enemy: enemies.Enemy) -> None:
    """End what it left running, if it still lives."""
    try:
        enemy.call("hang_up")
    except (ConnectionError, OSError):
        enemy.end()


@pytest.mark.host
def test_the_account_reaches_nothing_of_roots_by_itself(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """The slots, their records, the lock, the guard, the configuration: read at most, never written, the lock not even read."""
    writable = os.O_RDWR
    for path in (f"{S}/current", f"{S}/a", f"{S}/update.json", f"{S}/slots.json", nodes.CONFIG, nodes.ENTRYPOINT):
        assert enemy.call("can", path, writable) in ("Permission denied", "Read-only file system"), path
        assert enemy.call("can", path, os.O_RDONLY) == "", path
    for path in (f"{S}/lock", f"{S}/staging", "/etc/shadow"):
        assert enemy.call("can", path, os.O_RDONLY) in ("Permission denied", "No such file or directory"), path
    with pytest.raises(OSError, match="Permission"):
        enemy.call("write", f"{S}/trial", "SPEC=1\n")
    with pytest.raises(OSError, match="Permission"):
        enemy.call("write", "/run/slotward-helper/helper.sock", "x")
    with pytest.raises(OSError, match="Permission"):
        enemy.call("make", "/etc/slotward/config.toml.new", "file", "/", "x")
    assert enemy.call("kill_main", helper_pid(node)) is False
