# SPDX-License-Identifier: GPL-3.0-or-later
"""The role and the playbooks in the three modes, and a host that the role moves from one to another (privilege.md, section 8)."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from support import modes, operators, plays, releases
from support import node as nodes

pytestmark = pytest.mark.hosts

UNPRIVILEGED = "/etc/systemd/system/slotward.service.d/unprivileged.conf"
KEPT = ("version", "sequence", "floor", "pins", "threshold", "failed", "last")
FIX = {"agent_fix_directories": True}


@pytest.fixture
def operator(
    bare: nodes.Node, machines: nodes.Machines, shop: releases.Workshop, tmp_path: pathlib.Path
) -> operators.Operator:
    """One, with a host on which there is nothing of ours, the account neither."""
    if not plays.ansible_is_here():
        pytest.fail("run by make host or make e2e, which set Ansible up")
    bare.sh(f"! getent passwd {modes.ACCOUNT} >/dev/null || userdel {modes.ACCOUNT}")
    return operators.Operator(tmp_path, bare, machines, shop)


def owners(node: nodes.Node, path: str) -> str:
    """Owner, group and permissions."""
    return node.sh(f"stat -c '%U:%G %a' {path}")


def in_mode(node: nodes.Node, operator: operators.Operator, mode: str) -> None:
    """The host is what the mode says, seen from outside, and well."""
    user = "root" if mode == modes.ROOT else modes.ACCOUNT
    found = operator.info()
    assert (found["mode"], found["user"], found["health"]["ok"]) == (mode, user, True), found
    assert (found["helper"] is not None) == (mode == modes.HELPER)
    pid = node.unit().main_pid
    assert node.sh(f"stat -c %U /proc/{pid}") == user
    file, directory = (
        ("root:root 600", "root:root 755") if mode == modes.ROOT else (f"root:{user} 640", f"root:{user} 750")
    )
    assert (owners(node, nodes.CONFIG), owners(node, "/etc/slotward")) == (file, directory)
    assert owners(node, "/var/lib/slotward").split(":")[0] == user
    assert owners(node, nodes.SLOTS) == "root:root 755"
    assert (node.sh(f"ls {UNPRIVILEGED}", check=False) != "") == (mode != modes.ROOT)
    there = node.sh("ls /etc/systemd/system /etc/systemd/system/slotward.service.d; ls -A " + nodes.SLOTS).split()
    assert (modes.HELPER_UNIT in there, "helper" in there) == (mode == modes.HELPER, mode == modes.HELPER)
    assert (modes.APPLY_UNIT in there) == (mode == modes.START)
    assert node.unit(modes.HELPER_UNIT).active == ("active" if mode == modes.HELPER else "inactive")
    assert node.sh("systemctl list-units --failed --no-legend --plain 'slotward*'") == ""
    unwell = {name: told for name, told in node.doctor().items() if told[0] == "fail"}
    assert unwell == {}


@pytest.mark.quick_modes
def test_a_host_is_installed_and_upgraded_in_each_mode(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """Check mode tells and does nothing; the second run changes nothing; a run that names no mode keeps the host's."""
    mode = bare.mode.name
    more: dict[str, Any] = {"agent_mode": mode, **FIX}
    told = operator.install(v100, "--check", "--diff", **more)
    assert operator.changed(told) > 0
    assert bare.sh(f"ls -d {nodes.ENTRYPOINT} {nodes.CONFIG} /etc/systemd/system/slotward.service", check=False) == ""
    planned = operator.last(told, "slotward.fleet.agent_setup")
    assert planned["mode"] == mode
    assert any(change["what"] == "create account" for change in planned["changes"]) == (mode != modes.ROOT), planned

    assert operator.changed(operator.install(v100, **more)) > 0
    in_mode(bare, operator, mode)
    assert operator.changed(operator.install(v100, **more)) == 0
    assert operator.changed(operator.install(v100, "--check", "--diff", **more)) == 0
    assert operator.changed(operator.install(v100)) == 0, "the mode follows the configuration"

    upgraded = operator.upgrade(v110)
    assert operator.changed(upgraded) > 0
    assert operator.last(upgraded, "slotward.fleet.upgrade")["state"] == "confirmed"
    assert bare.running() == "1.1.0"
    in_mode(bare, operator, mode)
    status = operator.run("slotward.fleet.status")
    assert f"  {mode} " in status.output, status.output
    assert operator.changed(operator.upgrade(v110)) == 0
    assert operator.changed(operator.install(v110)) == 0


@pytest.mark.quick_modes
@pytest.mark.only_modes(modes.HELPER, modes.START)
def test_a_damaged_agent_is_brought_back_in_its_mode(
    bare: nodes.Node, operator: operators.Operator, v110: releases.Release
) -> None:
    """The account and root's part stay as they were; what runs the damaged bytes is restarted."""
    more: dict[str, Any] = {"agent_mode": bare.mode.name, **FIX}
    assert operator.changed(operator.install(v110, **more)) > 0
    for damage in (
        f"rm {nodes.SLOTS}/current {nodes.SLOTS}/good",
        f'echo >>"$(readlink -f {nodes.ENTRYPOINT})"; systemctl restart {nodes.UNIT}',
        f': >"$(readlink -f {nodes.ENTRYPOINT})"; systemctl restart {nodes.UNIT}',
    ):
        bare.sh(damage, check=False)
        assert operator.changed(operator.install(v110)) > 0, damage
        assert (bare.running(), bare.unit().active) == ("1.1.0", "active"), damage
        bare.sh(f"rm -f {nodes.SLOTS}/*.broken-*")
        failing = {name: told for name, told in bare.doctor().items() if told[0] == "fail"}
        assert set(failing) <= {"unit"}, (
            failing
        )  # which for a minute still tells how often the damaged one was restarted
    assert operator.changed(operator.install(v110)) == 0
    bare.damaged = True


def test_a_host_is_moved_from_mode_to_mode_and_loses_nothing(
    bare: nodes.Node,
    operator: operators.Operator,
    v100: releases.Release,
    v110: releases.Release,
    v120: releases.Release,
) -> None:
    """root, helper, start, root: two slots, a floor and a failed version are kept, and each step is made once."""
    operator.changed(operator.install(v100))
    operator.changed(operator.upgrade(v110))
    failed = operator.begin(v120)
    assert operator.changed(operator.tasks({"slotward.fleet.rollback": {"id": failed["trial_id"]}})) == 1
    bare.waits(lambda: bare.running() == "1.1.0", 15, "1.1.0 runs again")
    before = bare.update()
    assert (before["floor"], [one["version"] for one in before["failed"]]) == (2, ["1.2.0"])
    lines = bare.slotward("audit", "--limit", "0").json["lines"]

    for mode in (modes.HELPER, modes.START, modes.ROOT):
        more: dict[str, Any] = {"agent_mode": mode, **FIX}
        config = bare.host.read(nodes.CONFIG)
        told = operator.install(v110, "--check", "--diff", **more)
        assert operator.changed(told) > 0
        assert bare.host.read(nodes.CONFIG) == config
        planned = operator.last(told, "slotward.fleet.agent_setup")
        assert (planned["mode"], planned["changed"]) == (mode, True)

        moved = operator.install(v110, **more)
        assert operator.changed(moved) > 0
        done = operator.last(moved, "slotward.fleet.agent_setup")
        assert [one["path"] for one in planned["changes"]] == [one["path"] for one in done["changes"]], mode
        in_mode(bare, operator, mode)
        assert operator.changed(operator.install(v110, **more)) == 0
        assert operator.changed(operator.install(v110)) == 0

        after = bare.update()
        assert {key: after[key] for key in KEPT} == {key: before[key] for key in KEPT}
        for key in ("current", "good", "other", "a", "b"):
            assert after["slots"][key] == before["slots"][key]
        assert bare.begin(v100, "--no-smoke").code == "below-floor"
        refused = operator.upgrade(v120)
        assert "1.2.0" in refused.output
        assert operator.last(refused, "slotward.fleet.upgrade")["code"] == "failed-before"

    verified = bare.slotward("audit", "--verify")
    assert (verified.exit, verified.json["broken"]) == (0, None), verified
    now = bare.slotward("audit", "--limit", "0").json["lines"]
    assert now[: len(lines)] == lines
    moves = [line["why"] for line in now if line["event"] == "mode-changed"]
    assert [why.partition("-> ")[2].split()[0] for why in moves] == ["helper", "start", "root"], moves


def test_C6_a_host_on_trial_is_not_moved(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """The next run, after the trial, does it."""
    operator.changed(operator.install(v100))
    begun = operator.begin(v110)
    assert operator.changed(operator.install(v110, agent_mode=modes.START, **FIX)) == 0
    assert operator.info()["mode"] == modes.ROOT
    assert operator.changed(operator.tasks({"slotward.fleet.confirm": {"id": begun["trial_id"], "wait_s": 30}})) == 1
    assert operator.changed(operator.install(v110, agent_mode=modes.START, **FIX)) > 0
    in_mode(bare, operator, modes.START)
    assert operator.changed(operator.install(v110, agent_mode=modes.ROOT)) > 0
    in_mode(bare, operator, modes.ROOT)


def test_a_host_with_a_directory_that_others_may_write_keeps_its_mode_and_says_what_to_run(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release
) -> None:
    """As /usr/local/lib of older Debian: told before anything is changed, and changed only with consent."""
    operator.changed(operator.install(v100))
    before = (bare.host.read(nodes.CONFIG), bare.unit().main_pid, owners(bare, nodes.CONFIG))
    usual = owners(bare, "/usr/local/lib")
    bare.sh("chgrp staff /usr/local/lib && chmod 2775 /usr/local/lib")
    try:
        refused = operator.install(v100, agent_mode=modes.START)
        assert refused.status != 0
        failed = operator.last(refused, "slotward.fleet.agent_setup")
        assert failed["code"] == "directory-unsafe"
        assert "chmod" in failed["msg"], failed
        assert "/usr/local/lib" in failed["msg"], failed
        assert (bare.host.read(nodes.CONFIG), bare.unit().main_pid, owners(bare, nodes.CONFIG)) == before
        assert operator.info()["mode"] == modes.ROOT
        assert bare.sh(f"getent passwd {modes.ACCOUNT}", check=False) == ""
        assert owners(bare, "/usr/local/lib") == "root:staff 2775"
        assert operator.changed(operator.install(v100, agent_mode=modes.START, **FIX)) > 0
        in_mode(bare, operator, modes.START)
        assert operator.changed(operator.install(v100, agent_mode=modes.ROOT)) > 0
    finally:
        group, bits = usual.partition(":")[2].split()
        bare.sh(f"chgrp {group} /usr/local/lib && chmod {bits} /usr/local/lib")


@pytest.mark.quick_modes
@pytest.mark.only_modes(modes.HELPER)
def test_H11_a_helper_that_does_not_run_fails_the_run_with_the_reason(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release
) -> None:
    """The daemon alone is not enough; and once the reason is gone the next run mends it."""
    more: dict[str, Any] = {"agent_mode": modes.HELPER, "agent_start_timeout_s": 5, **FIX}
    assert operator.changed(operator.install(v100, **more)) > 0
    breaks = f"/etc/systemd/system/{modes.HELPER_UNIT}.d/90-local.conf"
    bare.host.write(breaks, "[Service]\nExecStart=\nExecStart=/bin/false\n")
    bare.sh("systemctl daemon-reload")
    refused = operator.install(v100, **more)
    assert refused.status != 0
    said = " ".join(refused.output.split())
    assert "The helper does not run what it should: slotward-helper.service is" in said, said
    assert bare.running() == "1.0.0"
    bare.sh(f"rm {breaks} && systemctl daemon-reload && systemctl stop {modes.HELPER_UNIT}")
    assert operator.changed(operator.install(v100, **more)) > 0
    in_mode(bare, operator, modes.HELPER)
    assert operator.changed(operator.install(v100, **more)) == 0
