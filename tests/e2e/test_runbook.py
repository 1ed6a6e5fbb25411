# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/runbook.md on real hosts: each state is brought about, doctor names it, and what it says to run mends it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from support import node as nodes
from support import releases, toys

pytestmark = pytest.mark.hosts

S = nodes.SLOTS
GUARD = "/usr/local/lib/slotward"


class Case(NamedTuple):
    """What brings a state about, and what mends it: what doctor says, where that can be run as it stands."""

    entry: str
    breaks: str
    mends: str = ""


CASES = (
    Case("guard-missing", f"rm {GUARD}/guard"),
    Case(
        "guard-missing", "rm /etc/systemd/system/slotward.service.d/50-slotward-rollback.conf; systemctl daemon-reload"
    ),
    Case("guard-missing", f"systemctl disable -q {nodes.TIMER}"),
    Case("guard-masked", "systemctl mask -q slotward-deadline@slotward.service"),
    Case("guard-masked", "systemctl mask -q slotward-rollback@slotward.service"),
    Case("guard-masked", "systemctl mask -q slotward-guard@slotward.service"),
    Case("unit-down", f"systemctl stop {nodes.UNIT}"),
    Case("unit-disabled", f"systemctl disable -q {nodes.UNIT}"),
    Case("guard-missing", f"chown nobody {GUARD}/guard"),
    Case("entrypoint-missing", f"rm {nodes.ENTRYPOINT}"),
    Case("nothing-starts", f"rm {S}/current", f"{S}/good update --repair"),
    Case("slot-damaged", f"chmod 777 {S}/a"),
    Case("slot-damaged", f"chmod 644 {S}/a", f"chmod 0755 {S}/a"),
    Case("slot-damaged", f"chown nobody {S}/a"),
    Case("link-current", f"ln -sfn nothing {S}/current", f"{S}/a update --repair"),
    Case("link-good", f"rm {S}/good"),
    Case(
        "record-broken", f"echo x >{S}/update.json; echo x >{S}/update.json.copy", "slotward update --repair --floor 1"
    ),
    Case("leftovers", f"touch {S}/b.tmp"),
    Case("lock-odd", f"rm -f {S}/lock; mkdir {S}/lock"),
    Case("evidence-odd", f"ln -s /etc {S}/evidence", f"rm {S}/evidence"),
    Case("bad-config", f"echo 'nonsense = 1' >>{nodes.CONFIG}", f"sed -i /nonsense/d {nodes.CONFIG}"),
    Case("updates-disabled", f"echo 'enabled = false' >>{nodes.CONFIG}", f"sed -i '/^enabled/d' {nodes.CONFIG}"),
    Case("held", "slotward hold --why incident"),
    Case("directory-unsafe", "chmod g+w /usr/local/lib", "chmod go-w /usr/local/lib"),
    Case("reboot-pending", "touch /run/reboot-required", "rm /run/reboot-required"),
    Case(
        "audit-broken",
        f"slotward hold --why incident; slotward unhold; sed -i '1s/installed/installex/' {S}/audit.log",
    ),
    Case(
        "packages-busy",
        "mkdir -p /var/lib/dpkg; systemd-run -q --collect --unit=e2e-dpkg python3 -c '"
        'import fcntl, time; f = open("/var/lib/dpkg/lock-frontend", "w"); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(600)'
        "'; sleep 1",
        "systemctl stop e2e-dpkg",
    ),
)


def entries(node: nodes.Node) -> dict[str, str]:
    """The states that doctor names, with what to run; asked of the slot's own bytes: entrypoint and mode may be gone."""
    answer = node.command(["/usr/bin/python3", "-I", f"{S}/a", "doctor"])
    return {check["entry"]: check["run"] for check in answer.json["checks"] if check["state"] != "ok"}


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.entry}" for number, case in enumerate(CASES)])
def test_a_state_is_named_and_mended(node: nodes.Node, case: Case, v110: releases.Release) -> None:
    """What the host had before is no part of it; afterwards the state is gone and an upgrade is taken."""
    before = set(entries(node))
    try:
        node.sh(case.breaks)
        found = entries(node)
        assert case.entry in found, found
        node.sh(case.mends or found[case.entry])
        after = set(entries(node))
        assert case.entry not in after or case.entry in before - {case.entry}, after
        assert after <= before | {"record-set-aside"}
    finally:
        node.sh(
            "systemctl unmask -q 'slotward-*@slotward.service' 2>/dev/null; rm -f /run/reboot-required", check=False
        )
    node.upgraded(v110)
    # what was set aside is an operator's to keep or to remove
    if case.entry in ("record-broken", "audit-broken"):
        node.sh(f"rm -r {S}/*.broken-*")


def test_a_failed_release_is_named_with_its_evidence(node: nodes.Node, v110: releases.Release) -> None:
    """H10: what is kept is told with the command that shows it; what was lost with the one that gathers it."""
    trial = node.on_trial(v110)
    node.slotward("rollback", "--id", trial)
    node.waits(lambda: node.slotward("evidence").json["kept"] != [], 30, "evidence is kept")
    found = node.doctor()
    assert found["failed version"][0] == "warn"
    assert f"slotward evidence {trial}" in found["evidence"][1]
    node.sh(f"rm -r {S}/evidence")
    assert entries(node)["evidence-missing"] == "slotward evidence --gather"
    node.sh(entries(node)["evidence-missing"])
    assert "evidence-missing" not in entries(node)
    node.sh(entries(node)["failed-version"])
    assert "failed-version" not in entries(node)


def of_product(toy: toys.Toy) -> dict[str, tuple[str, str]]:
    """The states that doctor names of a product, each with its state and what to run."""
    checks = toy.slotward("doctor").json["checks"]
    return {check["entry"]: (check["state"], check["run"]) for check in checks if check["state"] != "ok"}


def test_another_product_is_looked_at_by_its_own_unit_and_file(node: nodes.Node, shop: releases.Workshop) -> None:
    """After an upgrade it is well; what is wrong is said of it and not of the agent, with commands that name it and mend it."""
    with toys.running(node, shop.release("1.0.0", 1)) as toy:
        begun = toy.begin(toy.release("1.1.0", 2))
        assert toy.slotward("confirm", "--id", begun.json["trial"]["id"], "--wait", "15").json["state"] == "confirmed"
        node.sh(f"mkdir -p -m 0700 {toy.slots}/staging")
        assert toy.slotward("doctor").exit == 0, toy.slotward("doctor")
        drop_in = f"/etc/systemd/system/{toy.unit}.d/99-hard.conf"
        node.host.write(drop_in, "[Service]\nInaccessiblePaths=/opt\n")
        node.sh("systemctl daemon-reload")
        assert of_product(toy)["sandbox"][0] == "fail"
        node.sh(f"rm {drop_in}; systemctl daemon-reload")
        node.sh(f"rm {toy.slots}/current")
        assert of_product(toy)["nothing-starts"][1].startswith(
            "slotward update --product toy --repair; or slotward setup"
        )
        node.sh("slotward update --product toy --repair")
        node.sh(f"chown nobody {toy.slots}/a; chmod 666 {toy.slots}/b")
        found = of_product(toy)
        assert (found["slot-damaged"][0], found["other-slot-damaged"][0]) == ("fail", "warn")
        node.sh(f"{found['slot-damaged'][1]}; {found['other-slot-damaged'][1]}")
        node.sh(f"chmod 666 {toy.file}")
        ((entry, (state, run)),) = of_product(toy).items()
        assert (entry, state) == ("bad-config", "fail")
        node.sh(run.rpartition(", then ")[2])
        twin = toy.file.replace("toy.toml", "twin.toml")
        node.sh(f"cp -p {toy.file} {twin}")
        assert of_product(toy)["product-conflict"][0] == "fail"
        node.sh(f"rm {twin}")
        assert toy.slotward("doctor").exit == 0, toy.slotward("doctor")


def test_a_lock_of_another_program_is_named_with_its_process(node: nodes.Node) -> None:
    """Whatever one of ours wrote there before it ended; by the kernel, without `fuser`."""
    node.slotward("settle")
    node.sh(f"systemd-run -q --collect --unit=e2e-lock flock {S}/lock sleep 600; sleep 1")
    try:
        (check,) = [one for one in node.command([f"{S}/a", "doctor"]).json["checks"] if one["entry"] == "lock-held"]
        assert "none of our commands" in check["message"]
        pid = check["run"].split(";")[0].removeprefix("ps -fp ")
        assert node.sh(f"cat /proc/{pid}/comm") in ("flock", "sleep")
    finally:
        node.sh("systemctl stop e2e-lock", check=False)
    assert "lock-held" not in entries(node)
