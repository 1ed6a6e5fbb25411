# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's own playbooks and modules over SSH against real hosts, as an operator runs them."""

from __future__ import annotations

import json
import pathlib
import re
import threading
from typing import Any

import pytest
from support import broken, plays, releases, signing
from support import node as nodes

from slotcore import keys

INSTALL = "slotward.fleet.install"
UPGRADE = "slotward.fleet.upgrade"
STATUS = "slotward.fleet.status"
TRUST = "slotward.fleet.trust"
S = nodes.SLOTS
SHORT = {"agent_trial_length_s": 20, "agent_settle_s": 1}


@pytest.fixture
def controller(bare: nodes.Node, machines: Any, tmp_path: pathlib.Path) -> plays.Controller:
    """An operator's machine whose inventory has the test's host alone."""
    if not plays.ansible_is_here():
        pytest.fail("run by make host or make e2e, which set Ansible up")
    found = plays.Controller(tmp_path / "controller", machines.run.inventory())
    found.limit = bare.host.name
    return found


def play(controller: plays.Controller, playbook: str, more: tuple[str, ...] = (), **variables: Any) -> plays.Played:
    """Run a playbook on the test's host alone."""
    return controller.play(playbook, {"target": "all", **variables}, ("--limit", controller.limit, *more))


def agent(shop: releases.Workshop, release: releases.Release, **more: Any) -> dict[str, Any]:
    """The role's variables for a release."""
    pins = [key.pin for key in shop.keys]
    return {
        "agent_release": str(release.directory),
        "agent_release_pins": pins,
        "agent_release_threshold": 2,
        **SHORT,
        **more,
    }


def wanted(shop: releases.Workshop, release: releases.Release, **more: Any) -> dict[str, Any]:
    """upgrade.yml's variables for a release, pushed from the controller."""
    pins = [key.pin for key in shop.keys]
    return {
        "upgrade_release": str(release.directory),
        "upgrade_pins": pins,
        "upgrade_threshold": 2,
        "upgrade_push": True,
        **more,
    }


def installed(controller: plays.Controller, shop: releases.Workshop, release: releases.Release, **more: Any) -> None:
    """Install, which must succeed."""
    played = play(controller, INSTALL, **agent(shop, release, **more))
    assert played.status == 0, played.output


@pytest.mark.host
def test_a_first_install_and_a_second_that_changes_nothing(
    bare: nodes.Node, controller: plays.Controller, shop: releases.Workshop, v100: releases.Release
) -> None:
    """Check mode predicts the install and changes nothing; the install runs; run again it says changed=0."""
    before = bare.sh("ls -A /opt/slotward /usr/local/bin /etc/systemd/system; ls -A /etc/slotward")
    predicted = play(controller, INSTALL, ("--check", "--diff"), **agent(shop, v100))
    assert predicted.status == 0, predicted.output
    assert predicted.recap()[bare.host.name]["changed"] > 0
    assert bare.sh("ls -A /opt/slotward /usr/local/bin /etc/systemd/system; ls -A /etc/slotward") == before
    first = play(controller, INSTALL, **agent(shop, v100))
    assert first.status == 0, first.output
    assert first.recap()[bare.host.name]["changed"] > 0
    assert bare.running() == "1.0.0"
    state = bare.update()
    assert (state["floor"], state["pins"], state["threshold"]) == (1, 3, 2)
    bare.runnable()
    pid = bare.unit().main_pid
    second = play(controller, INSTALL, **agent(shop, v100))
    assert second.status == 0, second.output
    assert second.recap()[bare.host.name]["changed"] == 0, second.output
    assert bare.unit().main_pid == pid
    assert bare.doctor()["guard"][0] == "ok"


@pytest.mark.hosts
def test_a_newer_release_upgrades_in_place_and_foreign_sections_stay(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
) -> None:
    """The role with a newer release goes by a trial; a section that it does not own stays as it was, byte for byte."""
    installed(controller, shop, v100)
    foreign = '\n[journal]\n# by hand\nkeep = "7 days"\n'
    config = bare.host.read(nodes.CONFIG)
    bare.host.write(nodes.CONFIG, config + foreign, 0o600)
    played = play(controller, INSTALL, **agent(shop, v110))
    # the section is unknown to this version: updates are refused and the run says so, the daemon runs on (I8)
    assert foreign in bare.host.read(nodes.CONFIG)
    assert bare.unit().active == "active"
    assert played.status != 0
    assert "bad-config" in played.output or "unknown section" in played.output
    bare.host.write(nodes.CONFIG, config, 0o600)
    played = play(controller, INSTALL, **agent(shop, v110))
    assert played.status == 0, played.output
    state = bare.update()
    assert (state["version"], state["floor"], state["last"]["state"]) == ("1.1.0", 2, "confirmed")


@pytest.mark.hosts
def test_a_release_is_required_and_the_error_names_two_ways_to_get_one(
    bare: nodes.Node, controller: plays.Controller, shop: releases.Workshop
) -> None:
    """Without agent_release: the project's signed release with its pins, or build and sign from a clone."""
    del shop
    bare.damaged = True  # nothing is installed, so there is nothing to be at rest
    played = play(controller, INSTALL)
    assert played.status != 0
    said = " ".join(played.output.split())
    assert "agent_release" in said
    assert "pins" in said
    assert "agent/build.py" in said or "make agent" in said
    assert bare.sh(f"ls {nodes.ENTRYPOINT} 2>&1", check=False).endswith("No such file or directory")


@pytest.mark.host
def test_two_upgrades_confirm_and_one_that_crashes_stops_the_run(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
    v120: releases.Release,
) -> None:
    """Two upgrades end confirmed; a crashing release is rolled back, and the result has the command for a retry."""
    installed(controller, shop, v100)
    for release in (v110, v120):
        played = play(controller, UPGRADE, **wanted(shop, release))
        assert played.status == 0, played.output
        result = played.last(bare.host.name, UPGRADE)
        assert result is not None
        assert (result["state"], result["code"], result["to"]) == ("confirmed", "ok", release.version)
    assert bare.update()["floor"] == 3
    again = play(controller, UPGRADE, **wanted(shop, v120))
    assert again.status == 0
    assert again.recap()[bare.host.name]["changed"] == 0
    kind = broken.named("crash-at-start")
    bad = shop.release("7.3.0", 30, kind)
    played = play(controller, UPGRADE, **wanted(shop, bad))
    assert played.status != 0
    result = played.last(bare.host.name, UPGRADE)
    assert result is not None
    assert (result["state"], result["code"]) == ("rolled-back", "crash-loop"), result
    assert result["retry"] == "slotward update --clear-failed 7.3.0"
    assert (result["from"], result["to"]) == ("1.2.0", "7.3.0")
    assert bare.running() == "1.2.0"


@pytest.mark.hosts
@pytest.mark.parametrize(("name", "sequence", "code"), [("exit1", 31, "crash-loop"), ("hang", 32, "deadline-passed")])
def test_a_release_of_the_agent_that_gives_no_answer_ends_as_rolled_back(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    name: str,
    sequence: int,
    code: str,
) -> None:
    """It is what the controller has to ask: it is asked until the host has gone back and the good one tells the end."""
    installed(controller, shop, v100)
    bad = shop.release(f"7.3.{sequence}", sequence, broken.named(name))
    played = play(controller, UPGRADE, **wanted(shop, bad, upgrade_smoke=False))
    result = played.last(bare.host.name, UPGRADE)
    assert result is not None
    assert (result["state"], result["code"], result["to"]) == ("rolled-back", code, bad.version), result
    assert result["retry"] == f"slotward update --clear-failed {bad.version}"
    assert bare.running() == "1.0.0"


@pytest.mark.hosts
def test_a_unit_that_does_not_run_is_started_by_whoever_agrees(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
    v120: releases.Release,
) -> None:
    """By the playbook, and as upgrade.md says it by hand; without the word the host refuses."""
    installed(controller, shop, v100)
    bare.sh(f"systemctl stop {nodes.UNIT}")
    refused = play(controller, UPGRADE, **wanted(shop, v110))
    result = refused.last(bare.host.name, UPGRADE)
    assert result is not None
    assert (result["code"], "agree with --start" in result["msg"]) == ("unit-not-running", True)
    played = play(controller, UPGRADE, **wanted(shop, v110, upgrade_start=True))
    assert played.status == 0, played.output
    assert (bare.running(), bare.unit().active) == ("1.1.0", "active")

    page = (plays.ROOT / "docs" / "operator" / "upgrade.md").read_text(encoding="utf-8")
    said = page.partition("## When the release that runs has failed")[2].split("```")[3].strip()
    said = said.replace("--product edge ", "").replace('"edge"', '"slotward"').replace("2.4.1", v120.version)
    said = said.replace(f"edge_{v120.version}_linux_amd64", v120.artifact.name)
    upgrade, mark, confirm = said.rpartition("\nslotward confirm")
    assert mark
    bare.host.put(v120.artifact, f"/root/{v120.artifact.name}", 0o644)
    bare.host.put(v120.directory / "manifest.json", "/root/manifest.json", 0o644)
    bare.sh(f"systemctl stop {nodes.UNIT}")
    (trial,) = set(re.findall(r"\b[0-9a-f]{16}\b", bare.sh(f"cd /root && {upgrade}")))
    bare.sh(f"slotward confirm{confirm.replace('--id ID', f'--id {trial}')}")
    assert (bare.running(), bare.unit().active) == ("1.2.0", "active")


@pytest.mark.hosts
def test_status_says_which_hosts_refuse_updates(
    bare: nodes.Node, controller: plays.Controller, shop: releases.Workshop, v100: releases.Release
) -> None:
    """The daemon runs on, so health alone would say ok."""
    installed(controller, shop, v100)
    bare.damaged = True
    shown = ""
    for breaks, code, mends in (
        (f"rm {S}/good", "record-broken", "slotward update --repair"),
        (f"echo garbage >>{S}/audit.log", "audit-broken", "slotward audit --restart-chain"),
        (f"for f in update.json update.json.copy; do echo x >{S}/$f; done", "record-broken", "true"),
    ):
        bare.sh(breaks)
        shown = " ".join(play(controller, STATUS).output.split())
        assert f"updates are refused ({code})" in shown, shown
        bare.sh(mends)
    assert "slotward update --repair" in shown


@pytest.mark.hosts
def test_check_mode_answers_what_prepare_does(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
) -> None:
    """--check tells from and to, or the refusal, and changes nothing."""
    installed(controller, shop, v110)
    refused = play(controller, UPGRADE, ("--check",), **wanted(shop, v100))
    assert refused.status != 0
    result = refused.last(bare.host.name, UPGRADE)
    assert result is not None
    prepared = bare.slotward("prepare", "--target", bare.target(v100), "--src", bare.put(v100.artifact))
    assert (result["state"], result["code"]) == (prepared.json["state"], prepared.code) == ("refused", "below-floor")
    assert prepared.message in result["msg"]
    newer = shop.release("7.4.0", 40)
    before = bare.names()
    would = play(controller, UPGRADE, ("--check", "--diff"), **wanted(shop, newer))
    assert would.status == 0, would.output
    result = would.last(bare.host.name, UPGRADE)
    assert result is not None
    assert (result["changed"], result["from"], result["to"]) == (True, "1.1.0", "7.4.0")
    assert bare.names() == before
    assert bare.running() == "1.1.0"


@pytest.mark.hosts
def test_a_hand_made_install_is_adopted_with_consent(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
) -> None:
    """A plain file at the entrypoint: refused without consent, adopted with it, and the update is confirmed."""
    bare.configure()
    bare.host.put(v100.artifact, nodes.ENTRYPOINT, 0o755)
    bare.sh(f"{nodes.ENTRYPOINT} setup")
    bare.enable()
    refused = play(controller, UPGRADE, **wanted(shop, v110))
    result = refused.last(bare.host.name, UPGRADE)
    assert refused.status != 0
    assert result is not None
    assert result["code"] == "adopt-needs-consent", result
    played = play(controller, UPGRADE, **wanted(shop, v110, upgrade_adopt=True))
    assert played.status == 0, played.output
    assert bare.link("good") == bare.link("current")
    state = bare.update()
    assert (state["version"], state["floor"]) == ("1.1.0", 2)
    assert state["slots"]["a"]["version"] == "1.0.0"
    bare.runnable()


@pytest.mark.host
def test_a_connection_cut_after_the_swap_is_not_confirmed_and_the_host_goes_back(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
) -> None:
    """The run reports not-confirmed within a bound; the host goes back at its deadline; the next run tells why."""
    installed(controller, shop, v100)

    def cut() -> None:
        bare.waits(lambda: "trial" in bare.names(), 60, "the trial has begun")
        bare.host.network_cut()

    watcher = threading.Thread(target=cut, daemon=True)
    watcher.start()
    try:
        played = play(controller, UPGRADE, upgrade_reconnect_s=30, **wanted(shop, v110))
    finally:
        watcher.join(60)
        bare.host.network_restore()
    assert played.status != 0
    result = played.last(bare.host.name, UPGRADE)
    assert result is not None
    assert result["code"] == "not-confirmed", result
    assert result["state"] != "confirmed"
    bare.goes_back(("deadline-passed",), 40)
    again = play(controller, UPGRADE, **wanted(shop, v110))
    assert again.status != 0
    result = again.last(bare.host.name, UPGRADE)
    assert result is not None
    assert result["code"] == "failed-before", result
    assert "was not confirmed before its deadline" in result["msg"], result


@pytest.mark.hosts
def test_a_controller_that_never_comes_back_and_confirmation_by_hand(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
    tmp_path: pathlib.Path,
) -> None:
    """The modules upgrade (confirm: false), confirm and rollback do by hand what the action does in one."""
    installed(controller, shop, v100, agent_trial_length_s=60)
    task = tmp_path / "by-hand.yml"

    def steps(*tasks: dict[str, Any]) -> plays.Played:
        task.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": list(tasks)}]), encoding="utf-8")
        return play(controller, str(task))

    begin = {
        "slotward.fleet.upgrade": {
            "release": str(v110.directory),
            "pins": [key.pin for key in shop.keys],
            "threshold": 2,
            "push": True,
            "confirm": False,
        },
        "register": "begun",
    }
    back = {"slotward.fleet.rollback": {"id": "{{ begun.trial_id }}"}}
    played = steps(begin, back)
    assert played.status == 0, played.output
    begun = played.last(bare.host.name, UPGRADE)
    assert begun is not None
    assert begun["state"] == "trial"
    assert begun["missing"] == ["controller"]
    assert bare.update()["last"]["code"] == "operator"
    bare.sh("slotward update --clear-failed 1.1.0")
    yes = {"slotward.fleet.confirm": {"id": "{{ begun.trial_id }}", "wait_s": 20}}
    played = steps(begin, yes, yes)
    assert played.status == 0, played.output
    assert played.recap()[bare.host.name]["changed"] == 2, played.output
    assert bare.update()["floor"] == 2


@pytest.mark.hosts
def test_status_shows_every_host(
    bare: nodes.Node,
    controller: plays.Controller,
    shop: releases.Workshop,
    v100: releases.Release,
    tmp_path: pathlib.Path,
) -> None:
    """status.yml works on a host with nothing installed and on one that runs, and writes the same as JSON."""
    out = tmp_path / "status.json"
    played = play(controller, STATUS, status_json=str(out))
    assert played.status == 0, played.output
    assert json.loads(out.read_text(encoding="utf-8"))[bare.host.name]["installed"] is False
    installed(controller, shop, v100)
    played = play(controller, STATUS, status_json=str(out))
    assert played.status == 0, played.output
    found = json.loads(out.read_text(encoding="utf-8"))[bare.host.name]
    assert (found["installed"], found["version"], found["health"]["ok"]) == (True, "1.0.0", True)


@pytest.mark.hosts
def test_N17_a_host_goes_over_the_stepping_stone(
    bare: nodes.Node, controller: plays.Controller, tmp_path: pathlib.Path
) -> None:
    """Check mode shows the way; the run goes it, each release confirmed before the next; a second run changes nothing."""
    shop = releases.Workshop(tmp_path / "stones")
    first = shop.release("1.0.0", 1)
    shop.release("1.1.0", 2, more=("--min-from", "1.0.0"))
    last = shop.release("1.2.0", 3, more=("--min-from", "1.1.0"))
    installed(controller, shop, first)
    planned = play(controller, UPGRADE, ("--check", "--diff"), **wanted(shop, last))
    assert planned.status == 0, planned.output
    assert bare.running() == "1.0.0"
    assert "-slotward 1.0.0\n+slotward 1.1.0\n+slotward 1.2.0\n" in planned.output
    played = play(controller, UPGRADE, **wanted(shop, last))
    assert played.status == 0, played.output
    result = played.last(bare.host.name, UPGRADE)
    assert result is not None
    assert [(step["version"], step["state"]) for step in result["steps"]] == [
        ("1.1.0", "confirmed"),
        ("1.2.0", "confirmed"),
    ]
    assert bare.running() == "1.2.0"
    assert bare.update()["floor"] == 3
    again = play(controller, UPGRADE, **wanted(shop, last))
    assert again.status == 0, again.output
    assert again.recap()[bare.host.name]["changed"] == 0


@pytest.mark.hosts
def test_N17_keys_are_rotated_and_a_downgrade_permitted_by_the_playbooks(
    bare: nodes.Node, controller: plays.Controller, tmp_path: pathlib.Path
) -> None:
    """Check mode first; the run names who trusts only the old keys; a second one changes nothing; a permit goes with the upgrade."""
    old, new = releases.Workshop(tmp_path / "old"), releases.Workshop(tmp_path / "new")
    held = [[keys.load_private(key.path.read_bytes()) for key in shop.keys] for shop in (old, new)]
    installed(controller, old, old.release("1.0.0", 1))
    document = tmp_path / "keys-1.json"
    document.write_bytes(signing.key_set(1, held[1], held[0][:2]))
    variables: dict[str, Any] = {"trust_documents": [str(document)], "trust_key_set": str(document)}
    planned = play(controller, TRUST, ("--check",), **variables)
    assert planned.status == 0, planned.output
    assert "1 of 1 trust only the old keys before this" in planned.output
    assert bare.update()["trust"]["source"] == "configuration"
    played = play(controller, TRUST, **variables)
    assert played.status == 0, played.output
    assert "0 of 1 trust only the old keys: none" in played.output
    assert bare.update()["trust"]["sequence"] == 1
    again = play(controller, TRUST, **variables)
    assert (again.status, again.recap()[bare.host.name]["changed"]) == (0, 0), again.output

    newer, older = new.release("1.1.0", 3), new.release("1.0.1", 2)
    assert play(controller, UPGRADE, **wanted(new, newer)).status == 0
    permit = tmp_path / "permit.json"
    permit.write_bytes(signing.permit("1.0.1", 2, [bare.host.read("/etc/machine-id").strip()], held[1][:2]))
    assert play(controller, UPGRADE, **wanted(new, older)).status != 0
    allowed = play(controller, UPGRADE, upgrade_permit=str(permit), **wanted(new, older))
    assert allowed.status == 0, allowed.output
    assert (bare.running(), bare.update()["floor"]) == ("1.0.1", 2)
