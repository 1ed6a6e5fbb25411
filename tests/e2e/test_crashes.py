# SPDX-License-Identifier: GPL-3.0-or-later
"""What ends a trial and what must not (item 4 of the main path): crashes, restarts by hand, a full /run, no inode left."""

from __future__ import annotations

import pytest
from support import node as nodes
from support import releases

pytestmark = pytest.mark.every_mode


@pytest.mark.host
@pytest.mark.quick_modes
def test_one_crash_does_not_end_a_trial(node: nodes.Node, v110: releases.Release) -> None:
    """W15: a daemon that is killed once starts again, in the same trial, and can be confirmed."""
    trial = node.on_trial(v110)
    node.waits(lambda: node.running() == "1.1.0", 15, "the new version runs")
    killed = node.unit().main_pid
    node.sh(f"kill -KILL {killed}")
    node.waits(lambda: node.running() == "1.1.0" and node.unit().main_pid != killed, 15, "the new version runs again")
    assert "crash " in node.sh(f"cat {nodes.SLOTS}/trial.log")
    state = node.update()
    assert (state["trial"]["id"], node.link("current")) == (trial, "b")
    assert node.confirm(trial).json["state"] == "confirmed"


@pytest.mark.hosts
def test_a_crash_loop_goes_back_while_systemd_is_reloaded_in_a_loop(
    node: nodes.Node, crashing: releases.Release
) -> None:
    """W4: systemd forgets its count of restarts at each reload; the guard's own count does not."""
    node.on_trial(crashing)
    node.sh("systemd-run -q --collect --unit=e2e-reload sh -c 'while :; do systemctl daemon-reload; sleep 0.3; done'")
    try:
        node.goes_back(("crash-loop",), 50)
    finally:
        node.sh("systemctl stop e2e-reload", check=False)
    assert node.unit().active == "active"


# the last blocks one by one: what cat could not write whole is given back when it is flushed
FILL = """
mkdir /opt/slotward/x
cat /dev/zero >/opt/slotward/x/0 2>/dev/null
sync
i=0
while [ "$(df --output=avail /opt/slotward | tail -n 1)" -gt 0 ] && [ $i -lt 150 ]; do
    i=$((i + 1))
    dd if=/dev/zero of=/opt/slotward/x/$i bs=1k count=8 conv=fsync 2>/dev/null
done
"""


def kill_until_it_goes_back(node: nodes.Node) -> None:
    """Kill the daemon's main process again and again: a crash loop that begins when the test wants it to."""

    def back() -> bool:
        node.sh(f"kill -KILL $(systemctl show --value -p MainPID {nodes.UNIT} | grep -vx 0) 2>/dev/null", check=False)
        return node.link("current") == node.link("good")

    assert node.link("current") != node.link("good")
    node.waits(back, 30, "current names good again")
    node.waits(lambda: node.running() == "1.0.0", 20, "the old version runs")
    assert node.unit().active == "active"


@pytest.mark.hosts
def test_a_crash_loop_goes_back_with_run_full(node: nodes.Node, v110: releases.Release) -> None:
    """I2: with not a byte left in /run the host comes back all the same."""
    node.configure(trial_length_s=60)
    node.on_trial(v110)
    node.waits(lambda: node.running() == "1.1.0", 15, "the new version runs")
    node.sh("fallocate -l 1T /run/filler 2>/dev/null || dd if=/dev/zero of=/run/filler bs=64k 2>/dev/null; true")
    try:
        assert node.sh("df --output=avail /run | tail -n 1").strip() == "0"
        kill_until_it_goes_back(node)
    finally:
        node.sh("rm -f /run/filler")
    node.update()  # the next command finishes what could not be started
    node.goes_back(("crash-loop",), 10)


@pytest.mark.hosts
@pytest.mark.parametrize("suite", nodes.SUITES)
@pytest.mark.parametrize("what", ["inodes", "space"])
def test_a_crash_loop_goes_back_with_nothing_left_on_the_slots_filesystem(
    machines: nodes.Machines,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
    suite: str,
    what: str,
) -> None:
    """I2: going back needs neither a byte nor an inode; the failure is recorded once there is room again."""
    host = machines.run.up(f"small-{suite}", suite, disk_mb=96, inodes=512)
    node = nodes.Node(host, shop)
    try:
        node.fresh(v100, trial_length_s=90)
        node.on_trial(v110)
        if what == "inodes":
            node.sh(
                "i=0; mkdir /opt/slotward/x; while : >/opt/slotward/x/$i; do i=$((i+1)); done 2>/dev/null", check=False
            )
            assert node.sh("df --output=iavail /opt/slotward | tail -n 1").strip() == "0"
        else:
            node.sh(FILL, check=False)
            assert node.sh("df --output=avail /opt/slotward | tail -n 1").strip() == "0"
        kill_until_it_goes_back(node)
        node.sh("rm -rf /opt/slotward/x")
        node.update()  # the next command finishes what could not be recorded
        state = node.goes_back(("crash-loop",), 10)
        assert [entry["code"] for entry in state["failed"]] == ["crash-loop"]
        node.at_rest()
    except BaseException:
        print(node.story())
        raise
    finally:
        machines.run.down(host.name)


TWELVE = f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do systemctl restart {nodes.UNIT} || exit; done"


@pytest.mark.host
def test_twelve_restarts_by_hand_count_for_nothing(node: nodes.Node, v110: releases.Release) -> None:
    """W3: outside a trial and inside one they change no link and leave the daemon running."""
    node.configure(trial_length_s=90)
    links = node.link("current"), node.link("good")
    node.sh(TWELVE, timeout=120)
    assert (node.link("current"), node.link("good")) == links
    assert (node.running(), node.unit().active) == ("1.0.0", "active")
    trial = node.on_trial(v110)
    node.sh(TWELVE, timeout=120)
    assert (node.link("current"), node.link("good")) == ("b", "a")
    assert (node.running(), node.unit().active) == ("1.1.0", "active")
    assert "crash" not in node.sh(f"cat {nodes.SLOTS}/trial.log")
    assert node.confirm(trial).json["state"] == "confirmed"
    node.sh(TWELVE, timeout=120)
    assert (node.running(), node.unit().active) == ("1.1.0", "active")


@pytest.mark.hosts
def test_w7_a_daemon_that_an_operator_stopped_is_not_started_by_going_back(
    node: nodes.Node, v110: releases.Release
) -> None:
    """W7: the links go back at the deadline, the daemon stays stopped, and doctor and update say where things stand."""
    node.configure(trial_length_s=6)
    node.on_trial(v110)
    node.sh(f"systemctl stop {nodes.UNIT}")
    node.waits(lambda: node.link("current") == node.link("good"), 20, "current names good again")
    state = node.update()
    assert (state["last"]["state"], state["last"]["code"]) == ("rolled-back", "deadline-passed")
    assert node.unit().active == "inactive"
    assert state["state"] == "rollback-failed"  # the good version is not seen to run
    node.sh(f"systemctl start {nodes.UNIT}")
    assert node.running() == "1.0.0"
    assert node.update()["state"] == "rolled-back"
