# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody who runs the collection's playbooks on one real host, as an operator does."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from support import node as nodes
from support import plays, releases

INSTALL = "slotward.fleet.install"
UPGRADE = "slotward.fleet.upgrade"


class Operator:
    """Somebody who runs the role on one host."""

    def __init__(
        self, directory: pathlib.Path, bare: nodes.Node, machines: nodes.Machines, shop: releases.Workshop
    ) -> None:
        self._directory = directory
        self._controller = plays.Controller(directory / "controller", machines.run.inventory())
        self._name = bare.host.name
        self._pins = [key.pin for key in shop.keys]

    def run(self, playbook: str, *more: str, **variables: Any) -> plays.Played:
        """Run a playbook on this host alone."""
        return self._controller.play(playbook, {"target": "all", **variables}, ("--limit", self._name, *more))

    def install(self, release: releases.Release, *options: str, **more: Any) -> plays.Played:
        """The role, with a release."""
        known = {
            "agent_release": str(release.directory),
            "agent_release_pins": self._pins,
            "agent_release_threshold": 2,
            "agent_trial_length_s": 60,
            "agent_settle_s": 1,
        }
        return self.run(INSTALL, *options, **{**known, **more})

    def upgrade(self, release: releases.Release, *options: str, **more: Any) -> plays.Played:
        """upgrade.yml, the release pushed from here."""
        known = {
            "upgrade_release": str(release.directory),
            "upgrade_pins": self._pins,
            "upgrade_threshold": 2,
            "upgrade_push": True,
        }
        return self.run(UPGRADE, *options, **{**known, **more})

    def info(self) -> dict[str, Any]:
        """What node_info says of the host."""
        result = self.tasks({"slotward.fleet.node_info": {}}).last(self._name, "slotward.fleet.node_info")
        assert result is not None
        return result

    def last(self, played: plays.Played, action: str) -> dict[str, Any]:
        """What an action said last on this host."""
        result = played.last(self._name, action)
        assert result is not None, played.output
        return result

    def tasks(self, *tasks: dict[str, Any]) -> plays.Played:
        """Some tasks."""
        path = self._directory / "tasks.yml"
        path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": list(tasks)}]), encoding="utf-8")
        return self.run(str(path))

    def begin(self, release: releases.Release) -> dict[str, Any]:
        """Switch to a release and leave its trial open."""
        task = {"slotward.fleet.upgrade": {"release": str(release.directory), "push": True, "confirm": False}}
        result = self.tasks(task).last(self._name, "slotward.fleet.upgrade")
        assert result is not None
        return result

    def changed(self, played: plays.Played) -> int:
        """How many tasks of a run that went well changed something."""
        assert played.status == 0, played.output
        return played.recap()[self._name]["changed"]
