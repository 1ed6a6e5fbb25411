# SPDX-License-Identifier: GPL-3.0-or-later
"""The role on hosts that are not fresh: on trial, made by hand, ahead, and left half way."""

from __future__ import annotations

import pathlib

import pytest
from support import node as nodes
from support import operators, plays, releases

pytestmark = pytest.mark.hosts


@pytest.fixture
def operator(
    bare: nodes.Node, machines: nodes.Machines, shop: releases.Workshop, tmp_path: pathlib.Path
) -> operators.Operator:
    """One, with a host on which there is nothing of ours."""
    if not plays.ansible_is_here():
        pytest.fail("run by make host or make e2e, which set Ansible up")
    return operators.Operator(tmp_path, bare, machines, shop)


def test_C6_a_host_on_trial_is_left_alone(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """Whatever is asked for: no configuration is written, nothing restarts, and the run does not fail."""
    assert operator.changed(operator.install(v100)) > 0
    begun = operator.begin(v110)
    before, pid = bare.host.read(nodes.CONFIG), bare.unit().main_pid
    assert operator.changed(operator.install(v110, agent_log_level="debug")) == 0
    assert (bare.host.read(nodes.CONFIG), bare.unit().main_pid) == (before, pid)
    confirm = {"slotward.fleet.confirm": {"id": begun["trial_id"], "wait_s": 30}}
    assert operator.changed(operator.tasks(confirm)) == 1
    assert operator.changed(operator.install(v110, agent_log_level="debug")) == 2
    assert 'log_level = "debug"' in bare.host.read(nodes.CONFIG)
    assert bare.unit().main_pid != pid
    assert operator.changed(operator.install(v110, agent_log_level="debug")) == 0


def test_C9_L6_a_host_on_hold_is_installed_and_its_version_left_alone(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """A hold is no failure; the host refuses by itself too, and goes on when the hold is over."""
    assert operator.changed(operator.install(v100, agent_updates_enabled=False)) > 0
    held = operator.install(v110, agent_updates_enabled=False)
    assert operator.changed(held) == 0
    assert "the host stays on 1.0.0 and does not go to 1.1.0" in " ".join(held.output.split())
    assert bare.begin(v110).code == "updates-disabled"
    assert bare.update()["policy"]["enabled"] is False
    assert operator.changed(operator.install(v110)) > 0
    assert bare.running() == "1.1.0"


def test_C2_a_file_made_by_hand_is_adopted_by_the_role_with_consent(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """The old file goes into a slot, the new release goes on trial and is confirmed, and a second run changes nothing."""
    bare.host.put(v100.artifact, nodes.ENTRYPOINT, 0o755)
    assert operator.changed(operator.install(v100)) > 0
    assert operator.changed(operator.install(v100)) == 0
    refused = operator.install(v110)
    assert refused.status != 0
    assert "plain file" in " ".join(refused.output.split())
    assert bare.running() == "1.0.0"
    assert operator.changed(operator.install(v110, agent_adopt=True)) > 0
    state = bare.update()
    assert (state["version"], state["floor"], state["slots"]["a"]["version"]) == ("1.1.0", 2, "1.0.0")
    assert operator.changed(operator.install(v110, agent_adopt=True)) == 0


def test_S15_a_host_that_is_ahead_is_left_alone(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """An older release in the inventory is no failure and no way back."""
    assert operator.changed(operator.install(v110)) > 0
    assert operator.changed(operator.install(v100)) == 0
    assert bare.running() == "1.1.0"


def test_a_restart_that_a_run_still_owed_is_made_by_the_next(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release
) -> None:
    """The configuration was written and the run ended before the restart: the process is older than its file."""
    assert operator.changed(operator.install(v100)) > 0
    pid = bare.unit().main_pid
    text = bare.host.read(nodes.CONFIG).replace('log_level = "info"', 'log_level = "debug"')
    bare.host.write(nodes.CONFIG, text, 0o600)
    assert operator.changed(operator.install(v100, agent_log_level="debug")) == 1
    assert bare.unit().main_pid != pid
    assert operator.changed(operator.install(v100, agent_log_level="debug")) == 0


S = nodes.SLOTS
DAMAGES = {
    "no current": f"rm {S}/current",
    "neither link": f"rm {S}/current {S}/good",
    "one byte more": f'echo >>"$(readlink -f {nodes.ENTRYPOINT})"',
    "one byte more, and it runs": f'echo >>"$(readlink -f {nodes.ENTRYPOINT})"; systemctl restart {nodes.UNIT}',
    "the slot emptied": f': >"$(readlink -f {nodes.ENTRYPOINT})"; systemctl restart {nodes.UNIT}',
    "the slot gone": f'rm "$(readlink -f {nodes.ENTRYPOINT})"',
    "not executable": f'chmod 644 "$(readlink -f {nodes.ENTRYPOINT})"',
}


def test_a_damaged_agent_is_brought_back(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release, v110: releases.Release
) -> None:
    """By the playbook that status and the modules name, with the release that is confirmed here; an older one is refused."""
    assert operator.changed(operator.install(v110)) > 0
    for name, damage in DAMAGES.items():
        bare.sh(damage, check=False)
        assert operator.changed(operator.install(v110)) > 0, name
        assert (bare.running(), bare.unit().active) == ("1.1.0", "active"), name
        assert bare.update()["floor"] == 2, name
        assert bare.doctor()["slots"][0] == "ok", name
        bare.runnable()
    assert operator.changed(operator.install(v110)) == 0
    bare.sh(f"rm {S}/current")
    refused = operator.install(v100)
    assert refused.status != 0
    assert "release sequence 1 is older than 2" in " ".join(refused.output.split())
    assert operator.changed(operator.install(v110)) > 0


def test_a_link_that_nobody_may_guess_is_mended_by_the_command_that_the_playbook_names(
    bare: nodes.Node, operator: operators.Operator, v100: releases.Release
) -> None:
    """`good` is a record of its own: which release was confirmed last is proven by a repair, not by an installation."""
    assert operator.changed(operator.install(v100)) > 0
    bare.sh(f"rm {S}/good")
    refused = operator.install(v100)
    assert refused.status != 0
    assert "run on the host: slotward update --repair" in " ".join(refused.output.split())
    bare.sh("slotward update --repair")
    assert operator.changed(operator.install(v100)) == 0


def test_a_digest_is_enough_to_install_and_not_to_upgrade(
    bare: nodes.Node,
    operator: operators.Operator,
    shop: releases.Workshop,
    v100: releases.Release,
    v110: releases.Release,
) -> None:
    """Other bytes are refused before they run; an upgrade needs keys."""

    def by_digest(release: releases.Release, sha256: str) -> plays.Played:
        return operator.install(
            release, agent_release_pins=[], agent_release_threshold=1, agent_release_sha256={"amd64": sha256}
        )

    digests = {release.version: shop.target(release)["sha256"] for release in (v100, v110)}
    assert by_digest(v100, "0" * 63 + "f").status != 0
    assert operator.changed(by_digest(v100, digests["1.0.0"])) > 0
    assert operator.changed(by_digest(v100, digests["1.0.0"])) == 0
    refused = by_digest(v110, digests["1.1.0"])
    assert refused.status != 0
    assert "no release keys are pinned" in " ".join(refused.output.split())
    assert bare.running() == "1.0.0"
