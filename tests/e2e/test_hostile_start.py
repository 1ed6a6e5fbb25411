# SPDX-License-Identifier: GPL-3.0-or-later
"""A fully hostile daemon account in start mode (docs/design/threat-model.md): all that it has are its own directory and two names.

Whatever it leaves in staging, at the request's name or at the two that trigger, the daemon starts, root changes nothing outside
the slots, nothing unsigned runs, the floor stays, and a trial ends at its deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator

import pytest
from support import enemy as enemies
from support import modes, releases
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.START)]

STAGING, RUN = nodes.STAGING, "/run/slotward-start"
APPLY, TRIGGERS = f"{STAGING}/apply", (f"{RUN}/confirm", f"{RUN}/give-up")
UNSIGNED = "#!/bin/sh\ntouch /srv/canary/owned\n"
PLANTED = ("link", "dangling", "loop", "hard-link", "fifo", "socket", "directory")


@pytest.fixture
def enemy(node: nodes.Node) -> Iterator[enemies.Enemy]:
    """Code of the account's; it lives outside the daemon's group here, since each restart ends what is in it."""
    with enemies.Enemy(node, inside=False) as found:
        yield found
    node.sh(f"rm -rf {STAGING}/* {STAGING}/.[!.]*", check=False)


def request(number: str, **more: object) -> str:
    """What the daemon would leave for the next start."""
    return json.dumps({"protocol": 1, "id": number, "op": "update.swap", "target": f"{number}.target", **more})


def starts(node: nodes.Node, version: str = "1.0.0") -> None:
    """The daemon is started anew, by `version`, and nothing of root's is left waiting."""
    node.sh(f"timeout 60 systemctl restart {nodes.UNIT}", timeout=90)
    node.waits(lambda: node.running() == version, 20, f"{version} runs")
    assert node.unit(modes.APPLY_UNIT).active in ("inactive", "failed"), node.story()


def unmoved(node: nodes.Node) -> None:
    """Nothing was switched."""
    assert (node.link("current"), node.link("good")) == ("a", "a"), node.story()
    assert node.update()["floor"] == 1


@pytest.mark.hosts
def test_a_request_that_says_anything_changes_nothing(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release
) -> None:
    """Malformed, huge, another operation, a name with a path: the daemon starts, as before."""
    canaries = enemies.Canaries(node)
    number = nodes.trial_id()
    words = (
        "", "x", "[]", "\x00" * 4096, "[" * 4096, request(number)[:-1], request(number) * 2, request(number, nonce="0" * 32),
        request(number, target="../../../etc/shadow"), request(number, target="/etc/shadow"), request(number, op="update.confirm"),
        request(number, op="update.settle"), request(number, permit="../permit"), request("../../../../x"),
        request(number, serverTime=-1), request(number, more=1), " " * 5_000_000, request(number, target=f"{number}.not-there"),
    )  # fmt: skip
    with enemies.Watch(node, v100):
        for word in words:
            enemy.call("write", APPLY, word)
            starts(node)
            unmoved(node)
    canaries.unchanged()


@pytest.mark.hosts
def test_nothing_planted_makes_root_touch_what_is_outside(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """I6: at the request, the target and the bytes, each kind of thing that is no plain file of the account's with one link."""
    canaries = enemies.Canaries(node)
    outside = ("/etc/shadow", f"{enemies.CANARY}/file", f"{enemies.CANARY}/fifo", f"{enemies.CANARY}/directory")
    with enemies.Watch(node, v100, v110):
        for turn, name in enumerate(("apply", "target", "bytes")):
            for kind in PLANTED:
                number = nodes.trial_id()
                target = enemy.stage(v110, number)
                enemy.call("write", APPLY, request(number))
                path = {"apply": APPLY, "target": f"{STAGING}/{target}", "bytes": f"{STAGING}/slotward-1.1.0"}[name]
                enemy.call("make", path, kind, outside[(turn + len(kind)) % len(outside)], request(number))
                starts(node)
                unmoved(node)
                enemy.call("remove", path)
                node.slotward("update", "--clear-failed")
        number = nodes.trial_id()
        enemy.stage(v110, number)
        enemy.call("write", APPLY, request(number))
        enemy.call("sparse", f"{STAGING}/slotward-1.1.0", 1 << 40)
        starts(node)
        unmoved(node)
    canaries.unchanged()


@pytest.mark.host
def test_no_byte_runs_that_the_pins_did_not_sign(
    node: nodes.Node,
    enemy: enemies.Enemy,
    v100: releases.Release,
    v110: releases.Release,
    stranger: releases.Release,
) -> None:
    """Unsigned bytes and lying targets are refused by root at the start, which then goes on with what was there."""
    genuine = node.shop.target(v110)
    targets = (genuine, node.shop.target(stranger), {**genuine, "signature": ""}, {**genuine, "version": "9.9.9"})
    with enemies.Watch(node, v100):
        for target in targets:
            number = nodes.trial_id()
            enemy.call("write", f"{STAGING}/slotward-1.1.0", UNSIGNED)
            enemy.call("write", f"{STAGING}/{number}.target", json.dumps(target))
            enemy.call("write", APPLY, request(number))
            starts(node)
            unmoved(node)
            node.slotward("update", "--clear-failed")


@pytest.mark.host
def test_a_request_is_carried_out_once_and_the_floor_stays(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """The account keeps its request and its bytes for ever: one trial, and no second one; older releases are below the floor."""
    number = nodes.trial_id()
    with enemies.Watch(node, v100, v110):
        enemy.stage(v110, number)
        enemy.call("write", APPLY, request(number))
        node.sh(f"systemctl restart {nodes.UNIT}")
        node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs")
        assert node.update()["trial"]["id"] == number
        node.confirm(number)
        state = node.update()
        assert (state["state"], state["floor"]) == ("confirmed", 2), state
        enemy.stage(v110, number)
        for again in (request(number), request(number, serverTime=1)):
            enemy.call("write", APPLY, again)
            starts(node, "1.1.0")
            assert node.update()["trial"] is None
        older = nodes.trial_id()
        enemy.stage(v100, older)
        enemy.call("write", APPLY, request(older))
        starts(node, "1.1.0")
    assert (node.update()["floor"], node.link("good")) == (2, "b")


@pytest.mark.host
@pytest.mark.parametrize("timer", ["on", "off"])
def test_hammering_the_two_names_confirms_nothing_and_keeps_nothing_alive(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release, timer: str
) -> None:
    """With another source of confirmation the names are worth nothing: the trial ends; without the timer, by the next start."""
    node.configure(confirm_sources="controller", trial_length_s=8)
    with enemies.Watch(node, v100, v110):
        number = nodes.trial_id()
        enemy.stage(v110, number)
        enemy.call("write", APPLY, request(number))
        node.sh(f"systemctl restart {nodes.UNIT}")
        node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs")
        if timer == "off":
            node.sh(f"systemctl mask -q --runtime --now {nodes.TIMER} slotward-deadline@slotward.service")
        try:
            enemy.call("touch_for_ever", TRIGGERS[:1])
            enemies.held_for(9, lambda: node.link("good") == "a")
            if timer == "off":
                node.sh(f"systemctl restart {nodes.UNIT}")
            node.waits(lambda: node.link("current") == "a", enemies.GRACE_S, "the host goes back")
        finally:
            node.sh(f"systemctl unmask -q --runtime {nodes.TIMER} slotward-deadline@slotward.service")
            node.sh(f"systemctl reset-failed {nodes.TIMER}", check=False)  # without what it triggers it has failed
            enemy.call("hang_up")
    node.goes_back(("deadline-passed",), 20)
    node.slotward("update", "--clear-failed")
    node.configure(trial_length_s=30)
    node.upgraded(v110)  # the triggers work again after all the hammering


@pytest.mark.hosts
def test_the_two_names_stay_plain_files_whose_words_nobody_reads(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """The account may write the two files and nothing else there; what it writes, and how much, is worth one trigger."""
    canaries = enemies.Canaries(node)
    with enemies.Watch(node, v100, v110):
        for path in TRIGGERS:
            for kind in (*PLANTED, "missing"):
                with contextlib.suppress(OSError):
                    enemy.call("make", path, kind, f"{enemies.CANARY}/file", "x")
                assert node.sh(f"stat -c '%F %h %U' {path}") in (
                    f"regular {size}file 1 slotward" for size in ("", "empty ")
                )
            enemy.call("write_file", path, "00000000000000ff\n" * 100_000)
        held = "systemctl list-units --no-legend --plain --state=activating 'slotward-*'"
        node.waits(lambda: node.sh(held) == "", 60, "nothing of root's waits")
        unmoved(node)
        for path in TRIGGERS:
            enemy.call("write_file", path, "")
    canaries.unchanged()
    node.sh("systemctl reset-failed 'slotward-*'")


@pytest.mark.host
def test_a_daemon_that_ends_confirms_nothing(node: nodes.Node, enemy: enemies.Enemy, v110: releases.Release) -> None:
    """The account ends and kills its own daemon in a trial that it could confirm: neither end is a word of the gateway's."""
    number = node.on_trial(v110)
    node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs")
    for signal in (15, 9):
        assert enemy.call("kill_main", node.unit().main_pid, signal)
        node.waits(lambda: node.running() == "1.1.0", 20, "1.1.0 runs again")
        time.sleep(1)
        assert node.update()["trial"]["id"] == number
    assert node.confirm(number).json["state"] == "confirmed"


@pytest.mark.hosts
@pytest.mark.slow
def test_nothing_swapped_by_rename_makes_root_touch_what_is_outside(
    node: nodes.Node, enemy: enemies.Enemy, v100: releases.Release, v110: releases.Release
) -> None:
    """The request, the target, the bytes and the directory, swapped as fast as the machine can while the daemon starts."""
    node.configure(confirm_sources="controller", trial_length_s=8)
    canaries = enemies.Canaries(node)
    data = v110.artifact.read_bytes().decode("latin-1")
    with enemies.Watch(node, v100, v110):
        for turn in range(12):
            number = nodes.trial_id()
            name = enemy.stage(v110, number)
            enemy.call("write", APPLY, request(number))
            ways = (
                ("swap_for_ever", f"{STAGING}/slotward-1.1.0", f"{enemies.CANARY}/program", UNSIGNED),
                ("swap_for_ever", f"{STAGING}/slotward-1.1.0", f"{enemies.CANARY}/program", data, ["file", "link"]),
                ("swap_for_ever", APPLY, f"{enemies.CANARY}/fifo", request(number)),
                ("swap_for_ever", f"{STAGING}/{name}", f"{enemies.CANARY}/file", json.dumps(node.shop.target(v110))),
                ("swap_directory_for_ever", STAGING, f"{enemies.CANARY}/directory"),
            )
            enemy.call(*ways[turn % len(ways)])
            node.sh(f"timeout 60 systemctl restart {nodes.UNIT}", timeout=90)
            node.waits(lambda: node.running() in ("1.0.0", "1.1.0"), 20, "something signed runs")
            enemy.call("hang_up")
            node.waits(lambda: node.update()["trial"] is None and node.link("current") == "a", 60, "no trial is left")
            node.slotward("update", "--clear-failed")
            node.sh(f"rm -rf {STAGING} {STAGING}.*; install -d -o slotward -g slotward -m 0700 {STAGING}")
    canaries.unchanged()


@pytest.mark.host
def test_the_account_reaches_nothing_of_roots_by_itself(node: nodes.Node, enemy: enemies.Enemy) -> None:
    """The slots, their records, the guard, the configuration: never written; the lock and root's staging not even read."""
    for path in (f"{nodes.SLOTS}/a", f"{nodes.SLOTS}/update.json", nodes.CONFIG, "/usr/local/lib/slotward/guard"):
        assert enemy.call("can", path, os.O_RDWR) in ("Permission denied", "Read-only file system", "Text file busy"), (
            path
        )
    for path in (f"{nodes.SLOTS}/lock", f"{nodes.SLOTS}/staging", "/etc/shadow"):
        assert enemy.call("can", path, os.O_RDONLY) in ("Permission denied", "No such file or directory"), path
    for path in (f"{nodes.SLOTS}/asked.json", f"{nodes.SLOTS}/trial.revert", "/etc/slotward/config.toml.new"):
        with pytest.raises(OSError, match="Permission"):
            enemy.call("write", path, "{}")
