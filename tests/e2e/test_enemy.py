# SPDX-License-Identifier: GPL-3.0-or-later
"""What a careless or hostile operator does to a real host: each test is an attack that once worked."""

from __future__ import annotations

import json

import pytest
from support import node as nodes
from support import releases

S = nodes.SLOTS
PROGRAM = f"{nodes.BOX}/slotward_1.0.0_linux_{releases.ARCH}"
MANIFEST = f"{nodes.BOX}/1.0.0.manifest.json"

pytestmark = pytest.mark.hosts


def test_files_are_named_from_where_the_operator_stands(installed: nodes.Node, v110: releases.Release) -> None:
    """The upgrade works in a unit of its own, in another directory; a relative name means the same file all the same."""
    installed.target(v110)
    installed.put(v110.artifact)
    done = installed.host.run(
        f"cd {nodes.BOX} && slotward upgrade --target target-1.1.0.json --src {v110.artifact.name} --no-wait --json"
    )
    assert json.loads(done.stdout)["state"] == "trial"


def test_an_id_is_never_used_twice_in_a_row(installed: nodes.Node, v110: releases.Release) -> None:
    """I5: with the last trial's id, its confirmation was answered for the new release, which was only on trial."""
    trial = installed.on_trial(v110)
    assert installed.confirm(trial).json["state"] == "confirmed"
    v120 = installed.shop.release("1.2.0", 3)
    again = installed.begin(v120, trial=trial)
    assert (again.exit, again.code) == (3, "wrong-trial"), again
    assert f"{trial} was the trial of 1.1.0 (confirmed)" in again.message
    assert installed.update()["version"] == "1.1.0"
    installed.at_rest()


def test_one_id_at_once_is_told_as_in_progress(installed: nodes.Node, v110: releases.Release) -> None:
    """Two upgrades with one id: both answer one JSON object, one begins the trial."""
    command = (
        f"slotward upgrade --target {installed.target(v110)} --src {installed.put(v110.artifact)} --no-wait --json"
    )
    one, two = f"{nodes.BOX}/one", f"{nodes.BOX}/two"
    installed.sh(
        f"{command} --id 00000000000000e1 >{one} & {command} --id 00000000000000e1 >{two}; wait",
        check=False,
        timeout=90,
    )
    codes = sorted(json.loads(installed.host.read(path))["code"] for path in (one, two))
    assert codes[0] in ("in-progress", "not-confirmed")
    assert codes[1] in ("not-confirmed", "trial-pending")
    assert "not-confirmed" in codes


@pytest.mark.parametrize("why", ["x" * 5000, "a\udcffb", "two\nlines\x1b[2J"])
def test_no_reason_breaks_the_record(installed: nodes.Node, v110: releases.Release, why: str) -> None:
    """I3: a reason too long, or of no characters, made update.json unreadable or ended the rollback half way."""
    installed.on_trial(v110)
    command = ["slotward", "rollback", "--json", "--why", why]
    answer = json.loads(installed.host.run(command).stdout)
    assert (answer["state"], answer["code"]) == ("rolled-back", "operator")
    state = installed.update()
    assert state["broken"] is None
    assert state["last"]["why"].isprintable()
    assert len(state["last"]["why"]) <= 4096


@pytest.mark.parametrize("name", ["lock", "trial", "trial.log"])
def test_nothing_waits_for_a_fifo(installed: nodes.Node, name: str) -> None:
    """I8: a FIFO in the slots directory held the daemon's start, `update` and doctor for ever."""
    installed.sh(f"rm -f {S}/{name}; mkfifo {S}/{name}")
    installed.sh("timeout 15 systemctl restart slotward.service")
    assert installed.unit().active == "active"
    assert json.loads(installed.sh("timeout 15 slotward update --json"))["spec"] == 1
    assert installed.running() == "1.0.0"


def test_a_directory_of_somebody_else_is_no_leftover(installed: nodes.Node, v110: releases.Release) -> None:
    """What nobody of ours left there is not tidied, and stops no update."""
    installed.sh(f"mkdir {S}/notes.tmp")
    installed.upgraded(v110)
    installed.sh(f"test -d {S}/notes.tmp")


@pytest.mark.parametrize("damage", [f"rm {S}/current", f"rm {S}/a", f"echo x >>{S}/a", f"chmod 0644 {S}/a"])
def test_doctor_sees_what_cannot_start_and_setup_mends_it(installed: nodes.Node, damage: str) -> None:
    """I1: doctor said that all is well while the entrypoint led nowhere, or to bytes that nobody verified."""
    installed.sh(damage)
    found = installed.command([PROGRAM, "doctor"])
    run = {check["run"] for check in found.json["checks"] if check["state"] == "fail"}
    assert found.exit == 1
    assert len(run) == 1
    way_out = f"chmod 0755 {S}/a" if "chmod" in damage else "setup --from FILE --manifest MANIFEST"
    assert way_out in run.pop()
    mended = installed.command([PROGRAM, "setup", "--from", PROGRAM, "--manifest", MANIFEST])
    assert (mended.exit, mended.json["installed"]) == (0, "install"), mended
    assert installed.slotward("doctor").exit == 0
    installed.runnable()
    assert not installed.command([PROGRAM, "setup", "--from", PROGRAM, "--manifest", MANIFEST]).json["changed"]


def test_doctor_says_how_to_mend_good(installed: nodes.Node, v110: releases.Release) -> None:
    """I3: without `good` updates are refused; the audit log proves which it was, and what doctor says makes it again."""
    installed.sh(f"rm {S}/good")
    assert installed.begin(v110).exit == 5
    state, _message, run = installed.doctor()["slots"]
    assert (state, run) == ("fail", "slotward update --repair")
    installed.sh(run)
    assert installed.link("good") == "a"
    installed.upgraded(v110)


def test_directories_are_root_s_alone(installed: nodes.Node) -> None:
    """I6: who may write the slots directory moves its links; doctor tells, setup closes it."""
    installed.sh(f"chmod 0777 {S} && chown 1000 /usr/local/lib/slotward/guard.d")
    assert installed.doctor()["guard"][0] == "fail"
    assert installed.slotward("setup").json["changed"]
    assert installed.sh(f"stat -c %a:%u {S} /usr/local/lib/slotward/guard.d").split() == ["755:0", "755:0"]
    assert installed.slotward("doctor").exit == 0


def test_doctor_says_how_to_unmask_the_timer(installed: nodes.Node) -> None:
    """I4: what doctor says to run arms the watchdog again."""
    installed.sh(f"systemctl disable -q {nodes.TIMER}; systemctl mask -q {nodes.TIMER}")
    state, _message, run = installed.doctor()["guard"]
    assert state == "fail"
    assert run == f"systemctl unmask {nodes.TIMER} && slotward setup"
    installed.sh(run)
    assert installed.slotward("doctor").exit == 0


def test_nobody_goes_back_to_what_is_not_there(installed: nodes.Node, v110: releases.Release) -> None:
    """I1: with `good` naming an empty slot the guard stayed, but settling moved `current` there and nothing started."""
    installed.sh(f"ln -sfn b {S}/good")
    assert installed.update()["broken"]["why"].startswith("it names slot b, which is not there")
    assert installed.slotward("settle").json["settled"] == "nothing"
    installed.sh("systemctl restart slotward.service; sleep 1")
    assert installed.running() == "1.0.0"
    installed.runnable()
    installed.sh(installed.doctor()["slots"][2])
    installed.upgraded(v110)


def test_a_full_disk_at_the_end_of_a_trial_is_told_as_such(
    machines: nodes.Machines, shop: releases.Workshop, v100: releases.Release, v110: releases.Release
) -> None:
    """An end that is won but cannot be recorded is `no-space`, status 4, and is finished once there is room."""
    node = nodes.Node(machines.run.up("small", "bookworm", disk_mb=64, inodes=256), shop)
    node.fresh(v100)
    try:
        for end, done in (("rollback", "rolled-back"), ("confirm", "confirmed")):
            trial = node.on_trial(v110)
            fill = (
                "mkdir -p full; cd full; seq 300 | xargs touch; dd if=/dev/zero of=1 bs=1k; dd if=/dev/zero of=2 bs=1k"
            )
            node.sh(f"cd /opt/slotward; exec 2>/dev/null; {fill}", check=False)
            answer = node.slotward(end, "--id", trial, *(("--wait", "15") if end == "confirm" else ()))
            assert (answer.exit, answer.code) == (4, "no-space"), answer
            assert "cannot finish" in answer.message
            node.waits(lambda: node.unit().active == "active", 15, "the daemon runs")
            node.sh("rm -r /opt/slotward/full")
            last = node.update()["last"]
            assert (last["id"], last["state"]) == (trial, done)
            node.slotward("update", "--clear-failed")
        assert node.update()["version"] == "1.1.0"
        node.at_rest()
    finally:
        machines.run.down("small")


def test_an_answer_that_cannot_be_written_is_no_crash(installed: nodes.Node) -> None:
    """What was done stands; a full disk behind standard output showed a trace."""
    done = installed.host.run("slotward update >/dev/full", check=False)
    assert (done.returncode, done.stderr) == (0, "")
