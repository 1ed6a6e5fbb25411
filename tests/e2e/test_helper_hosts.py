# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper on real hosts: what it costs, whom it serves, that it ends a trial alone, and that nothing of it hangs on one process."""

from __future__ import annotations

import shlex
import threading
import time

import pytest
from support import modes, releases
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.HELPER)]

PSS_KIB = 24 * 1024
LENGTH_S = 20
AFTER_DEADLINE_S = 30
GROUP = f"/sys/fs/cgroup/system.slice/{nodes.UNIT}/cgroup.procs"
AS_ACCOUNT = f"setpriv --reuid {modes.ACCOUNT} --regid {modes.ACCOUNT} --clear-groups"
SETTLE = "/usr/local/bin/slotward settle --json"


def helper_pid(node: nodes.Node) -> int:
    """The helper's main process."""
    return node.unit(modes.HELPER_UNIT).main_pid


def switches(node: nodes.Node, pid: int) -> int:
    """Context switches of all threads of a process so far."""
    return int(node.sh(f"cat /proc/{pid}/task/*/status | awk '/ctxt_switches/ {{ sum += $2 }} END {{ print sum }}'"))


@pytest.mark.hosts
@pytest.mark.slow
def test_at_rest_it_costs_nothing(node: nodes.Node, v110: releases.Release) -> None:
    """After an update: at most 24 MiB (PSS), no library that verifies, and not one context switch in a minute."""
    node.upgraded(v110)
    node.at_rest()
    time.sleep(3)
    pid = helper_pid(node)
    before = switches(node, pid)
    time.sleep(60)
    assert switches(node, pid) == before
    pss = int(node.sh(f"awk '/^Pss:/ {{ print $2 }}' /proc/{pid}/smaps_rollup"))
    assert 0 < pss <= PSS_KIB
    assert node.sh(f"grep -c 'cryptography\\|libssl' /proc/{pid}/maps", check=False) == "0"


@pytest.mark.hosts
def test_it_ends_a_trial_with_neither_daemon_nor_guard(node: nodes.Node, v110: releases.Release) -> None:
    """The daemon is frozen, the guard and its timer are gone: 30 s after the deadline the host goes back, both units with it."""
    node.configure(trial_length_s=LENGTH_S)
    node.on_trial(v110)
    began = time.monotonic()
    instances = [f"slotward-{name}@slotward.{kind}" for name, kind in (("deadline", "timer"), ("deadline", "service"))]
    instances += ["slotward-guard@slotward.service", "slotward-rollback@slotward.service"]
    node.waits(lambda: node.running() == "1.1.0", 15, "1.1.0 runs")
    node.sh(f"systemctl mask -q --runtime --now {shlex.join(instances)}; systemctl kill -s STOP {nodes.UNIT}")
    try:
        node.waits(lambda: node.link("current") == node.link("good"), 75, "the watchdog has gone back")
        took = time.monotonic() - began
        assert took > LENGTH_S + AFTER_DEADLINE_S - 10, took
    finally:
        node.sh(
            f"systemctl unmask -q --runtime {shlex.join(instances)}; systemctl daemon-reload; systemctl reset-failed"
        )
    state = node.goes_back(("deadline-passed",), 5)
    assert state["failed"][0]["version"] == "1.1.0"
    node.waits(lambda: node.helper_slot() == node.link("good"), 15, "the helper is back too")
    node.at_rest()


@pytest.mark.hosts
def test_the_account_is_served_in_its_unit_alone(node: nodes.Node) -> None:
    """The same program as the same account: from the daemon's control group it is answered, from anywhere else it is not."""
    inside = node.sh(f"sh -c 'echo $$ >{GROUP}; exec {AS_ACCOUNT} {SETTLE}'", check=False)
    assert '"code": "ok"' in inside, inside
    for outside in (
        f"{AS_ACCOUNT} {SETTLE}",
        f"systemd-run -q --pipe --wait --collect -p User={modes.ACCOUNT} {SETTLE}",
        f"systemd-run -q --pipe --wait --collect -p User={modes.ACCOUNT} --unit=x-{nodes.UNIT} {SETTLE}",
    ):
        found = node.sh(outside, check=False)
        assert '"code": "not-allowed"' in found, found
        assert "in the control group" in found
    stranger = node.sh(f"systemd-run -q --pipe --wait --collect -p User=nobody {SETTLE}", check=False)
    assert '"code": "not-root"' in stranger, stranger
    node.at_rest()


@pytest.mark.hosts
def test_it_does_not_start_where_others_may_write(node: nodes.Node) -> None:
    """Once, with every place named; the daemon runs on, and after the mending it is started again."""
    node.sh(f"chmod g+w {nodes.SLOTS}; chgrp {modes.ACCOUNT} {nodes.SLOTS}; chmod 0757 /usr/local/bin")
    node.sh(f"systemctl restart {modes.HELPER_UNIT}", check=False)
    node.waits(lambda: node.unit(modes.HELPER_UNIT).active == "failed", 10, "the helper has failed")
    time.sleep(3)
    shown = node.sh(f"systemctl show -p ExecMainStatus,NRestarts,ActiveState {modes.HELPER_UNIT}")
    assert set(shown.split()) == {"ExecMainStatus=5", "NRestarts=0", "ActiveState=failed"}
    said = node.said(f"-u {modes.HELPER_UNIT}")
    assert f"chmod go-w {nodes.SLOTS}" in said
    assert "chmod go-w /usr/local/bin" in said
    assert node.unit().active == "active"
    node.sh(f"chmod go-w {nodes.SLOTS} /usr/local/bin; chgrp 0 {nodes.SLOTS}; systemctl restart {modes.HELPER_UNIT}")
    assert node.unit(modes.HELPER_UNIT).active == "active"
    node.at_rest()


@pytest.mark.hosts
def test_killing_it_ends_no_operation(node: nodes.Node, v110: releases.Release) -> None:
    """Killed while it has the switch made, the switch is made; the records answer, and the trial can be confirmed."""
    trial = nodes.trial_id()
    found: list[nodes.Answer] = []
    asking = threading.Thread(target=lambda: found.append(node.begin(v110, trial=trial)))
    asking.start()
    unit = f"slotward-update-swap-{trial}-*"
    active = f"systemctl list-units --no-legend --plain '{unit}' | grep -c running"
    node.waits(lambda: node.sh(active, check=False) == "1", 30, "the switch is being made")
    node.sh(f"systemctl kill -s KILL {modes.HELPER_UNIT}")
    node.waits(lambda: node.link("current") != node.link("good"), 30, "it is made all the same")
    asking.join(60)
    state = node.update()
    assert state["trial"] is not None, (state, found)
    assert state["trial"]["id"] == trial
    answer = node.confirm(trial)
    assert (answer.exit, answer.code) == (0, "ok"), answer
    node.at_rest()
