# SPDX-License-Identifier: GPL-3.0-or-later
"""The role product and handlers of other playbooks on a real host, with a toy as the daemon."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from support import node as nodes
from support import operators, plays, releases, toys

PRODUCT = "slotward.fleet.product"
LISTING = (
    "find /etc /usr/local /opt /lib/systemd/system /run/systemd/system -name .cache -prune -o "
    "! -path '*/lock' ! -path '*audit*' ! -path /etc/mtab -printf '%p %l %m %s\\n' | sort; "
    "systemctl list-unit-files --no-legend 'slotward*' 'toy*'; systemctl list-units --all --no-legend --plain 'slotward*@toy*'"
)


class Stage:
    """A toy that nobody described yet, and somebody with the collection."""

    def __init__(self, toy: toys.Toy, operator: operators.Operator) -> None:
        self.toy = toy
        self.operator = operator
        shop = toy.node.shop
        self.known: dict[str, Any] = {
            "product_name": toy.name,
            "product_unit": toy.unit,
            "product_entrypoint": toy.entrypoint,
            "product_adopt": True,
            "product_release_pins": [key.pin for key in shop.keys],
            "product_release_threshold": shop.threshold,
            "product_trial_length_s": 300,  # no test here waits for its end, and a play takes long on a busy machine
            "product_settle_s": 1,
        }

    def role(self, *options: str, **more: Any) -> plays.Played:
        """product.yml."""
        return self.operator.run(PRODUCT, *options, **{**self.known, **more})

    def ask(self, module: str, **args: Any) -> dict[str, Any]:
        """One module for this product; its result."""
        played = self.operator.tasks({f"slotward.fleet.{module}": {"product": self.toy.name, **args}})
        return self.operator.last(played, f"slotward.fleet.{module}")

    def pid(self) -> int:
        """The daemon's main process."""
        return self.toy.node.unit(self.toy.unit).main_pid


@pytest.fixture
def stage(
    node: nodes.Node, machines: nodes.Machines, shop: releases.Workshop, v100: releases.Release, tmp_path: pathlib.Path
) -> Iterator[Stage]:
    """A host with the agent and a toy beside it."""
    if not plays.ansible_is_here():
        pytest.fail("run by make host or make e2e, which set Ansible up")
    node.fresh(v100)
    toy = toys.Toy(node)
    toy.clear()
    node.sh("rmdir /etc/slotward/products.d 2>/dev/null; true")
    toy.install("1.0.0")
    yield Stage(toy, operators.Operator(tmp_path, node, machines, shop))
    toy.clear()


@pytest.mark.host
def test_the_role_adopts_changes_nothing_the_second_time_and_leaves_no_trace(stage: Stage) -> None:
    """Check mode predicts; the daemon runs on throughout; after removal the host is what it was, file by file, unit by unit."""
    operator, node = stage.operator, stage.toy.node
    before, pid = node.sh(LISTING), stage.pid()
    assert operator.changed(stage.role("--check", "--diff")) == 1
    assert node.sh(LISTING) == before
    assert operator.changed(stage.role()) == 1
    found = stage.toy.update()
    assert (found["version"], found["slots"]["current"]) == ("1.0.0", found["slots"]["good"])
    assert operator.changed(stage.role()) == 0
    assert operator.changed(stage.role(product_state="absent", product_purge=True)) == 1
    assert stage.pid() == pid
    assert node.sh(LISTING) == before


def foreign(toy: toys.Toy) -> list[dict[str, Any]]:
    """Somebody else's playbook, which writes the daemon's configuration and whose handlers ask before they restart it."""
    ask = {"name": "Ask", "slotward.fleet.products_info": {"product": toy.name}, "listen": "restart the toy"}
    restart = {
        "name": "Restart the toy",
        "ansible.builtin.systemd_service": {"name": toy.unit, "state": "restarted"},
        "when": f"not ansible_facts['slotward'].products['{toy.name}'].trial_pending",
        "listen": "restart the toy",
    }
    write = {"name": "Write", "ansible.builtin.command": "true", "changed_when": True, "notify": "restart the toy"}
    return [{"hosts": "all", "gather_facts": False, "tasks": [write], "handlers": [ask, restart]}]


@pytest.mark.hosts
def test_C6_neither_the_role_nor_a_handler_that_asks_touches_a_trial(stage: Stage, tmp_path: pathlib.Path) -> None:
    """On trial nothing restarts and nothing is written, and the release is still confirmed; afterwards the handler restarts."""
    toy, operator = stage.toy, stage.operator
    assert operator.changed(stage.role()) == 1
    path = tmp_path / "foreign.yml"
    path.write_text(json.dumps(foreign(toy)), encoding="utf-8")
    trial = toy.on_trial(toy.release("1.1.0", 2))
    pid, described = stage.pid(), toy.node.host.read(toy.file)
    played = operator.run(str(path))
    assert played.status == 0, played.output
    changed = stage.role(product_max_boots=5, product_release=str(toy.release("1.2.0", 3)))
    assert operator.changed(changed) == 0
    assert "toy is on trial" in " ".join(changed.output.split())
    assert operator.changed(stage.role(product_state="absent")) == 0
    assert (stage.pid(), toy.node.host.read(toy.file)) == (pid, described)
    assert toy.update()["trial"]["id"] == trial
    assert stage.ask("confirm", id=trial, wait_s=20)["state"] == "confirmed"
    assert stage.pid() == pid
    assert operator.run(str(path)).status == 0
    assert stage.pid() != pid
    assert toy.update()["version"] == "1.1.0"


@pytest.mark.hosts
def test_the_operator_s_way_with_a_product(stage: Stage) -> None:
    """Upgraded by the role and back again, held by that; a release that crashes, allowed once more; a hold; and the events of it."""
    toy, operator = stage.toy, stage.operator

    def wants(version: str, sequence: int, body: str = toys.STAYS) -> plays.Played:
        return stage.role(product_floor="previous", product_release=str(toy.release(version, sequence, body)))

    assert operator.changed(wants("1.1.0", 2)) == 2
    assert operator.changed(wants("1.1.0", 2)) == 0
    node = stage.ask("node_info")
    assert (node["version"], node["pending"], node["health"]["ok"], node["hold"]) == ("1.1.0", False, True, None)

    back = stage.ask("rollback", to="previous", why="it leaks")
    assert (back["state"], back["to"], toy.update()["version"]) == ("confirmed", "1.0.0", "1.0.0"), back
    held = wants("1.1.0", 2)
    assert operator.changed(held) == 0
    assert "it leaks" in held.output
    assert stage.ask("hold", state="absent")["changed"] is True

    bad = wants("1.2.0", 3, "exit 1")
    assert bad.status != 0
    assert "crash-loop" in bad.output
    assert [one["version"] for one in stage.ask("failed_versions")["failed_versions"]] == ["1.2.0"]
    assert stage.ask("failed_versions", state="absent")["cleared"] == ["1.2.0"]
    assert stage.ask("failed_versions", state="absent")["changed"] is False

    assert stage.ask("hold", why="incident", until="2099-01-01T00:00:00Z")["changed"] is True
    assert stage.ask("hold", why="incident", until="2099-01-01T00:00:00Z")["changed"] is False
    assert stage.ask("node_info")["hold"]["why"] == "incident"

    events = stage.ask("events")
    assert [one["event"] for one in events["events"] if one["severity"] == "critical"] == ["upgrade-rolled-back"]
    assert stage.ask("events", since=events["cursor"])["events"] == []


@pytest.mark.hosts
def test_a_release_waits_for_an_operator_s_word(stage: Stage) -> None:
    """manual: the role stages and says so; with the word it is switched to and confirmed."""
    toy, operator = stage.toy, stage.operator
    args = {"product_manual": True, "product_release": str(toy.release("1.1.0", 2))}
    staged = stage.role(**args)
    assert staged.status == 0, staged.output
    assert toy.update()["version"] == "1.0.0"
    assert stage.ask("node_info")["staged"]["version"] == "1.1.0"
    assert operator.changed(stage.role(product_apply=True, **args)) == 1
    assert toy.update()["version"] == "1.1.0"
