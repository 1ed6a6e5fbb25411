# SPDX-License-Identifier: GPL-3.0-or-later
"""Two updates at once, callers that die, connections that are cut (items 7 and 8 of the main path)."""

from __future__ import annotations

import re
import subprocess

import pytest
from support import node as nodes
from support import releases, server

pytestmark = pytest.mark.every_mode


@pytest.mark.host
def test_the_second_of_two_upgrades_is_told_who_holds_the_lock(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """One proceeds, the other hears owner and age; a killed owner's lock is free at once."""
    node.configure(allow_http=True)
    with server.FileServer(node.host.controller_address) as files:
        slow = files.url(v110.artifact)
        files.stalling.add(f"/{v110.artifact.name}")
        first = nodes.trial_id()
        target = node.target(v110, slow)
        node.sh(
            f"systemd-run -q --collect --unit=e2e-first -- slotward upgrade --target {target} --no-wait --id {first}"
        )
        node.waits(lambda: len(files.requests) == 1, 15, "the first upgrade downloads")
        busy = node.update()["lock"]
        assert busy["what"] == "upgrade to 1.1.0"

        second = node.begin(v120)
        assert (second.exit, second.code) == (4, "in-progress"), second
        told = re.fullmatch(
            r"an update of slotward is already in progress: upgrade to 1\.1\.0, process (\d+), for (\d+) s; "
            r"try again when it has ended",
            second.message,
        )
        assert told is not None, second.message
        assert (int(told[1]), int(told[2]) < 60) == (busy["pid"], True)
        asked = node.slotward("prepare", "--target", node.target(v120), "--src", node.put(v120.artifact))
        assert asked.exit == 0, asked  # asking changes nothing, needs no lock

        node.sh(f"kill -KILL {busy['pid']}")
        node.waits(lambda: node.update()["lock"] is None, 5, "the lock is free")
        node.upgraded(v120)
    node.waits(lambda: node.unit("e2e-first.service").active == "inactive", 10, "the first caller has ended")
    node.sh(f"rm -f {node.staging}/*.part*")  # what a killed download leaves is there to be resumed


@pytest.mark.host
@pytest.mark.parametrize("way", ["cancel", "stop"])
def test_an_upgrade_is_cancelled_before_its_switch(node: nodes.Node, v110: releases.Release, way: str) -> None:
    """By the command or by systemd: exit 4 and `cancelled`, nothing switched, and the next run goes on from the part."""
    node.configure(allow_http=True)
    with server.FileServer(node.host.controller_address) as files:
        files.stalling.add(f"/{v110.artifact.name}")
        target, trial = node.target(v110, files.url(v110.artifact)), nodes.trial_id()
        command = f"slotward upgrade --target {target} --no-wait --json --id {trial}"
        told = f"{command} >{nodes.BOX}/out.cancel 2>/dev/null; echo $? >{nodes.BOX}/code.cancel"
        node.sh(f"systemd-run -q --collect --unit=e2e-cancel -- sh -c '{told}'")
        node.waits(lambda: len(files.requests) == 1, 15, "the upgrade downloads")
        before = node.names()
        if way == "cancel":
            done = node.slotward("cancel")
            assert (done.exit, done.json["changed"]) == (0, True), done
        else:
            node.sh(f"systemctl stop slotward-upgrade-slotward-{trial}.service")
        node.waits(lambda: node.sh(f"cat {nodes.BOX}/code.cancel", check=False) != "", 10, "the caller has its answer")
        assert node.sh(f"cat {nodes.BOX}/code.cancel") == "4"
        assert '"code": "cancelled"' in node.sh(f"cat {nodes.BOX}/out.cancel")
        assert (node.update()["lock"], node.link("current"), node.names() - before) == (None, "a", set())
        assert node.slotward("cancel").json["changed"] is False
        files.stalling.clear()
        again = node.slotward("upgrade", "--target", target, "--no-wait")
        assert again.json["state"] == "trial", again
    late = node.slotward("cancel")
    assert (late.exit, late.code) == (4, "trial-pending"), late
    assert node.confirm(str(again.json["trial"]["id"])).exit == 0


@pytest.mark.hosts
def test_X8_a_pending_reboot_and_a_package_manager_at_work_change_nothing(
    node: nodes.Node, v110: releases.Release
) -> None:
    """X8: an upgrade installs no package and its trial survives a reboot, so neither is a reason to refuse; the host proves it."""
    node.sh("touch /run/reboot-required")
    node.sh("systemd-run -q --collect --unit=e2e-dpkg -- flock /var/lib/dpkg/lock-frontend sleep 60")
    trial = node.on_trial(v110)
    node.host.reboot()
    node.waits(lambda: node.running() == "1.1.0", 30, "1.1.0 runs after the reboot")
    assert node.confirm(trial, wait=30).json["state"] == "confirmed"
    node.runnable()


@pytest.mark.hosts
def test_N2_a_pushed_release_needs_no_network(node: nodes.Node, v110: releases.Release) -> None:
    """N2: without any way out, with an address that cannot be reached and a mirror that cannot either: all is on the host."""
    node.configure(mirrors="https://mirror.invalid/x")
    target, src, trial = node.target(v110), node.put(v110.artifact), nodes.trial_id()
    node.sh("ip link set host0 down")
    try:
        told = node.slotward("prepare", "--target", target, "--src", src)
        assert (told.exit, told.json.get("sources")) == (0, None), told
        begun = node.slotward("upgrade", "--target", target, "--src", src, "--no-wait", "--id", trial)
        assert begun.json["state"] == "trial", begun
        assert node.confirm(trial).json["state"] == "confirmed"
    finally:
        node.sh("ip link set host0 up")
    alone = node.slotward("prepare", "--target", node.target(node.shop.release("1.2.0", 3)))
    assert (alone.exit, alone.code) == (4, "download-failed"), alone
    assert "from any of 2 places: https://mirror.invalid/x/slotward/1.2.0/" in alone.message


@pytest.mark.host
def test_two_upgrades_begun_at_the_same_moment_leave_one_trial(node: nodes.Node, v110: releases.Release) -> None:
    """Whoever is second is told so, whichever it is; the trial is the winner's."""
    target, src = node.target(v110), node.put(v110.artifact)
    command = f"slotward upgrade --target {target} --src {src} --no-wait --json"
    node.sh(
        f"cd {nodes.BOX}; for i in 1 2 3; do ({command} --id 000000000000000$i >out.$i 2>/dev/null; echo $? >code.$i) & done; wait"
    )
    codes = [node.sh(f"cat {nodes.BOX}/code.{number}") for number in (1, 2, 3)]
    assert sorted(codes) == ["0", "4", "4"], node.sh(f"cat {nodes.BOX}/out.*")
    winner = codes.index("0") + 1
    assert node.update()["trial"]["id"] == f"000000000000000{winner}"
    assert node.confirm(f"000000000000000{winner}").json["state"] == "confirmed"


@pytest.mark.host
def test_a_caller_that_is_cut_off_after_the_switch_confirms_nothing(node: nodes.Node, v110: releases.Release) -> None:
    """The SSH session dies after the swap: the host goes back at its deadline, and the next run is told why."""
    node.configure(trial_length_s=8)
    target, src = node.target(v110), node.put(v110.artifact)
    trial = nodes.trial_id()
    argv = [*node.host.ssh_args, f"slotward upgrade --target {target} --src {src} --id {trial} --json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as session:
        node.waits(lambda: node.link("current") == "b", 20, "the host has switched")
        node.host.network_cut()
        session.kill()
        assert session.communicate()[0] == ""
    state = node.update()
    assert (state["state"], state["trial"]["id"]) == ("trial", trial)
    state = node.goes_back(("deadline-passed",), 25)
    node.host.network_restore()
    assert (state["last"]["id"], state["last"]["to"]) == (trial, "1.1.0")
    assert state["last"]["why"] == "slotward 1.1.0 was not confirmed before its deadline"
    node.waits(
        lambda: f"slotward-upgrade-slotward-{trial}" not in node.sh("systemctl list-units 'slotward-up*'"), 15, "ended"
    )
    late = node.confirm(trial, wait=0)
    assert (late.exit, late.json["state"], late.code) == (6, "rolled-back", "deadline-passed"), late
    assert late.json["retry"] == "slotward update --clear-failed 1.1.0"
    again = node.begin(v110)
    assert (again.exit, again.code) == (3, "failed-before")
    assert "was not confirmed before its deadline" in again.message


@pytest.mark.hosts
def test_killing_everything_that_called_does_not_stop_the_trial(node: nodes.Node, v110: releases.Release) -> None:
    """The command that waits and its transient unit die by SIGKILL; the trial goes on, and anyone may confirm it."""
    target, src = node.target(v110), node.put(v110.artifact)
    trial = nodes.trial_id()
    node.sh(
        f"systemd-run -q --collect --unit=e2e-caller -- slotward upgrade --target {target} --src {src} --id {trial}"
    )
    node.waits(lambda: node.link("current") == "b", 20, "the host has switched")
    node.sh(f"systemctl kill -s KILL e2e-caller 'slotward-upgrade-slotward-{trial}'", check=False)
    assert node.confirm(trial).json["state"] == "confirmed"


@pytest.mark.hosts
def test_an_upgrade_that_waits_answers_with_the_end_of_the_trial(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """I5: without --no-wait the answer is the trial's end: confirmed with 0, gone back with 6."""
    target, src = node.target(v110), node.put(v110.artifact)
    trial = nodes.trial_id()
    node.sh(
        f"systemd-run -q --collect --unit=e2e-waits -- sh -c 'slotward upgrade --target {target} --src {src} --id {trial} "
        f"--json >{nodes.BOX}/out 2>/dev/null; echo $? >{nodes.BOX}/code'"
    )
    node.waits(lambda: node.link("current") == "b", 20, "the host has switched")
    assert node.confirm(trial).exit == 0
    node.host.wait_for(f"test -s {nodes.BOX}/code", timeout=15)
    assert node.sh(f"cat {nodes.BOX}/code") == "0"
    assert '"state": "confirmed"' in node.host.read(f"{nodes.BOX}/out")
    node.configure(trial_length_s=5)
    ended = node.slotward("upgrade", "--target", node.target(v120), "--src", node.put(v120.artifact), timeout=60)
    assert (ended.exit, ended.json["state"], ended.code) == (6, "rolled-back", "deadline-passed"), ended
    assert ended.json["retry"] == "slotward update --clear-failed 1.2.0"
