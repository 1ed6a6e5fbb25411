# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward setup` takes a real host through the modes: what is kept, what a cut leaves, what a hostile account gains by it.

Every change cut at every one of its steps is tried in `tests/agent/test_mode_changes.py`; here are systemd, accounts and kills.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from support import broken, modes, releases
from support import node as nodes

ORDER = (modes.HELPER, modes.START, modes.ROOT, modes.START, modes.HELPER, modes.ROOT)
LIMITS = {modes.HELPER: {nodes.UNIT: 2.0, modes.HELPER_UNIT: 5.0}, modes.START: {nodes.UNIT: 2.0}}
CRASHES = broken.named("crash-at-start")


def kept(node: nodes.Node) -> list[Any]:
    """What no change of mode may lose: slots, links, records, whoever's other files."""
    state = node.update()
    told = [state[key] for key in ("version", "sequence", "floor", "failed", "last", "slots")]
    data = node.sh(f"cd {nodes.SLOTS} && sha256sum a b slots.json update.json; cat /var/lib/slotward/identity.json")
    return [*told, data]


def prepared(node: nodes.Node, shop: releases.Workshop, v110: releases.Release) -> list[Any]:
    """Two slots, a floor, a failed version, and something of the daemon's own in data_dir."""
    node.upgraded(v110)
    failing = shop.release("1.3.0", 13, CRASHES)
    node.on_trial(failing)
    node.goes_back(("crash-loop",), 30, to="1.1.0")
    node.sh("umask 077; echo 'who we are' >/var/lib/slotward/identity.json")
    found = kept(node)
    assert [entry["version"] for entry in found[3]] == ["1.3.0"]
    assert found[2] == 2
    return found


def write_mode(node: nodes.Node, mode: str) -> None:
    """The configuration of another mode, as an operator writes it: with root's own umask, whoever's it was."""
    node.mode = modes.ALL[mode]
    node.sh(f"rm -f {nodes.CONFIG}")
    node.configure()
    node.sh(f"chown root:root {nodes.CONFIG}; chmod 0600 {nodes.CONFIG}")


def setup(node: nodes.Node, *flags: str) -> dict[str, Any]:
    """Run setup, which must succeed; its answer."""
    answer = node.slotward("setup", *node.setup_flags, *flags)
    assert answer.exit == 0, answer
    return answer.json


def restarted(node: nodes.Node) -> None:
    """As an operator does after a change of mode; the daemon pulls the helper in."""
    node.sh(f"systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.running() == "1.1.0", 20, "the daemon runs")


def is_well(node: nodes.Node, mode: str) -> None:
    """In its mode, by systemd's word and doctor's, and as tight as it has to be."""
    user = "root" if mode == modes.ROOT else modes.ACCOUNT
    assert node.sh(f"stat -c %U /proc/{node.unit().main_pid}") == user
    if mode == modes.HELPER:
        node.waits(lambda: node.unit(modes.HELPER_UNIT).active == "active", 15, "the helper runs")
    assert {name: told for name, told in node.doctor().items() if told[0] == "fail"} == {}
    for unit, limit in LIMITS.get(mode, {}).items():
        text = node.sh(f"systemd-analyze security --no-pager {unit}", check=False)
        found = re.search(r"exposure level for \S+: ([0-9.]+)", text)
        assert found is not None, text
        assert float(found.group(1)) <= limit, text
    there = f"ls -d /etc/systemd/system/slotward-* /etc/tmpfiles.d/slotward* /run/slotward-* {nodes.SLOTS}/helper"
    names = node.sh(f"{there} 2>/dev/null; true")
    assert (modes.HELPER_UNIT in names, f"{nodes.SLOTS}/helper" in names) == (mode == modes.HELPER,) * 2, names
    assert (modes.APPLY_UNIT in names, "/run/slotward-start" in names) == (mode == modes.START,) * 2, names


@pytest.mark.hosts
def test_through_all_modes_nothing_is_lost(node: nodes.Node, shop: releases.Workshop, v110: releases.Release) -> None:
    """root, helper, start and back, both ways: --check tells what is done, a second run does nothing, all is kept,
    and the daemon goes on in its old process until it is restarted.
    """
    keeps = prepared(node, shop, v110)
    for mode in ORDER:
        write_mode(node, mode)
        pid = node.unit().main_pid
        told = setup(node, "--check")
        done = setup(node)
        assert done["changes"] == told["changes"] != []
        assert (done["mode"], done["user"]) == (mode, "root" if mode == modes.ROOT else modes.ACCOUNT)
        assert (done["restart_needed"], done["left"]) == (True, [])
        assert node.unit().main_pid == pid
        assert setup(node)["changes"] == []
        restarted(node)
        is_well(node, mode)
        assert setup(node)["changes"] == []
        assert kept(node) == keeps, mode
    log = node.slotward("audit", "--limit", "0").json["lines"]
    assert [line["event"] for line in log].count("mode-changed") == len(ORDER)


@pytest.mark.hosts
def test_a_setup_that_is_killed_is_completed_by_the_next(
    node: nodes.Node, shop: releases.Workshop, v110: releases.Release
) -> None:
    """SIGKILL at many moments of every change, the daemon killed too: it comes back each time, and one more run is enough."""
    keeps = prepared(node, shop, v110)
    killed = 0
    for number, mode in enumerate(ORDER * 2):
        write_mode(node, mode)
        for step in range(3):
            seconds = 0.35 + 0.23 * step + 0.02 * number
            flags = " ".join(node.setup_flags)
            status = node.sh(
                f"timeout -s KILL {seconds:.2f} slotward setup {flags} >/dev/null 2>&1; echo $?", check=False
            )
            killed += status == "137"
            node.sh(f"kill -KILL $(systemctl show --value -p MainPID {nodes.UNIT} | grep -vx 0); true", check=False)
            node.waits(lambda: node.running() == "1.1.0", 20, f"the daemon is back, cut {step} on the way to {mode}")
        setup(node)
        assert setup(node)["changes"] == []
        restarted(node)
        is_well(node, mode)
        assert kept(node) == keeps, mode
    assert killed >= 8


PLANT = """
cd /var/lib/slotward
cp /bin/true program && chmod 4755 program
ln program /var/tmp/outside/program
ln -s /var/tmp/outside/root-s soft
ln -s /var/tmp/outside staging.d
mkdir -p sub && mkfifo sub/fifo
"""


@pytest.mark.hosts
def test_i6_an_account_gains_nothing_by_a_change_of_mode(
    node: nodes.Node, shop: releases.Workshop, v110: releases.Release
) -> None:
    """I6: its set-user-ID program with a second name, its links to root's files: neither setup nor systemd touches what
    they lead to, on the way to root mode and back (ADR 19: with StateDirectory= the program was root's).
    """
    prepared(node, shop, v110)
    write_mode(node, modes.HELPER)
    setup(node)
    restarted(node)
    node.sh(
        "rm -rf /var/tmp/outside && install -d -m 0777 /var/tmp/outside && umask 077 && echo x >/var/tmp/outside/root-s"
    )
    try:
        node.sh(f"setpriv --reuid {modes.ACCOUNT} --regid {modes.ACCOUNT} --clear-groups sh -c '{PLANT}'")
        outside = "cd /var/tmp/outside && stat -c '%n %U:%G %a' *"
        before = node.sh(outside)
        assert f"program {modes.ACCOUNT}:{modes.ACCOUNT} 4755" in before
        for mode in (modes.ROOT, modes.HELPER, modes.ROOT):
            write_mode(node, mode)
            left = setup(node)["left"]
            assert any("/var/lib/slotward/program was left as it is: it has 2 links" in line for line in left), left
            restarted(node)
            assert node.sh(outside) == before, mode
            assert node.sh("stat -c %U /var/lib/slotward/identity.json") == (
                "root" if mode == modes.ROOT else modes.ACCOUNT
            )
    finally:
        node.sh("rm -rf /var/tmp/outside")


@pytest.mark.hosts
def test_a_helper_that_crash_loops_does_not_hold_the_daemon_up(
    node: nodes.Node, shop: releases.Workshop, v110: releases.Release
) -> None:
    """DESIGN 9: the daemon starts, and starts again, beside a helper that ends at once (with RestartMode=direct it waited
    for ever on systemd 257); doctor says so, and of one that refuses to start that it does.
    """
    prepared(node, shop, v110)
    write_mode(node, modes.HELPER)
    setup(node)
    restarted(node)
    node.drop_in("[Service]\nExecStart=\nExecStart=/bin/sh -c 'sleep 0.2; exit 2'\n", modes.HELPER_UNIT)
    node.sh(f"systemctl --no-block restart {modes.HELPER_UNIT}")
    for _number in range(2):
        began = time.monotonic()
        node.sh(f"timeout 25 systemctl restart {nodes.UNIT}")
        assert time.monotonic() - began < 15
        assert node.running() == "1.1.0"
    state, said, run = node.doctor()["helper"]
    assert (state, modes.HELPER_UNIT in said) == ("fail", True)
    assert f"systemctl enable --now {modes.HELPER_UNIT}" in run
    node.drop_in("[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit 5'\n", modes.HELPER_UNIT)
    node.sh(f"systemctl --no-block restart {modes.HELPER_UNIT}")
    node.waits(lambda: node.unit(modes.HELPER_UNIT).active == "failed", 10, "it is not started again")
    assert "refuses to start" in node.doctor()["helper"][1]
    node.sh(f"rm /etc/systemd/system/{modes.HELPER_UNIT}.d/90-test.conf && systemctl daemon-reload")
    node.sh(f"systemctl restart {modes.HELPER_UNIT}")
    is_well(node, modes.HELPER)


@pytest.mark.hosts
def test_d8_doctor_names_what_the_sandbox_takes_away(node: nodes.Node, v110: releases.Release) -> None:
    """D8: an operator's drop-in that closes data_dir, and a directory that others may write, are found and named."""
    assert node.doctor()["sandbox"][0] == "ok"
    node.drop_in("[Service]\nReadOnlyPaths=/var/lib/slotward\n")
    state, said, _run = node.doctor()["sandbox"]
    assert (state, "ReadOnlyPaths= has /var/lib/slotward" in said) == ("fail", True)
    node.sh(f"rm /etc/systemd/system/{nodes.UNIT}.d/90-test.conf && systemctl daemon-reload")
    node.sh("chmod 2775 /usr/local/lib")
    before = node.sh("stat -c '%a %U' /usr/local/lib /usr/local /opt")
    write_mode(node, modes.START)
    refused = node.slotward("setup")
    assert (refused.exit, refused.code) == (3, "directory-unsafe")
    assert "chmod go-w /usr/local/lib" in refused.message
    assert node.sh("stat -c '%a %U' /usr/local/lib /usr/local /opt") == before
    done = setup(node)
    assert {"path": "/usr/local/lib", "what": "chmod go-w /usr/local/lib"} in done["changes"]
    assert node.sh("stat -c %a /usr/local/lib") == "2755"
    node.sh("chmod 2775 /usr/local/lib")
    assert node.doctor()["directories"][2] == "chmod go-w /usr/local/lib"
    node.sh("chmod 0755 /usr/local/lib")
    write_mode(node, modes.ROOT)
    setup(node)
    node.sh(f"systemctl restart {nodes.UNIT}")
