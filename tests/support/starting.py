# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in start mode, and the daemon's account on it: it stages by the agent's own command, or by hand as an enemy would."""

from __future__ import annotations

import json
import shlex
from typing import Any

from support import modes, releases
from support import node as nodes

ASKED = f"{nodes.SLOTS}/asked.json"
TRIGGERS = "/run/slotward-start"


class Starting:
    """One host in start mode."""

    def __init__(self, node: nodes.Node) -> None:
        self.node = node

    def by_account(self, script: str, check: bool = True) -> str:
        """Run a script as the daemon's account, outside its unit."""
        line = f"cd /; exec setpriv --reuid {modes.ACCOUNT} --regid {modes.ACCOUNT} --clear-groups sh -euc {shlex.quote(script)}"
        return self.node.sh(line, check=check)

    def stages(self, release: releases.Release, trial: str = "", *flags: str) -> str:
        """The account stages a release by the agent's own command; the request's id."""
        trial = trial or nodes.trial_id()
        target, src = self.node.target(release), self.node.put(release.artifact)
        argv = ["upgrade", "--target", target, "--src", src, "--id", trial, "--json", *flags]
        answer = json.loads(self.by_account(f"slotward {shlex.join(argv)}"))
        assert (answer["state"], answer["id"]) == ("staged", trial), answer
        return trial

    def plant(self, release: releases.Release, trial: str = "", name: str = "", **fields: str) -> str:
        """Write everything by hand, as any program of the account's could: target, artifact and request; the request's id."""
        trial = trial or nodes.trial_id()
        self.file(f"{trial}.target", json.dumps({**self.node.shop.target(release), **fields}).encode())
        src = self.node.put(release.artifact)
        name = name or f"slotward-{release.version}"
        self.node.sh(f"install -m 0600 -o {modes.ACCOUNT} -g {modes.ACCOUNT} {src} {nodes.STAGING}/{name}")
        self.request(trial, f"{trial}.target")
        return trial

    def request(self, trial: str, target: str, **more: Any) -> None:
        """Write a request."""
        value = {"protocol": 1, "id": trial, "op": "update.swap", "target": target, **more}
        self.file("apply", json.dumps(value).encode())

    def file(self, name: str, data: bytes) -> None:
        """A file of the account's in its staging directory."""
        self.by_account(f"mkdir -p {nodes.STAGING}; chmod 0700 {nodes.STAGING}")
        self.node.host.write(f"{nodes.STAGING}/{name}", data, 0o600)
        self.node.sh(f"chown {modes.ACCOUNT}:{modes.ACCOUNT} {nodes.STAGING}/{name}")

    def stages_refused(self, release: releases.Release, code: str) -> None:
        """The account's own command refuses to stage it."""
        target, src = self.node.target(release), self.node.put(release.artifact)
        said = self.by_account(f"slotward upgrade --target {target} --src {src} --json", check=False)
        assert json.loads(said)["code"] == code, said

    def restart(self, check: bool = True) -> None:
        """The daemon ends, and systemd starts it anew."""
        self.node.sh(f"systemctl restart {nodes.UNIT}", check=check)

    def asked(self) -> dict[str, Any]:
        """What root says of the last request."""
        found: dict[str, Any] = json.loads(self.node.host.read(ASKED))
        return found

    def touch(self, name: str) -> None:
        """Trigger, as the daemon does."""
        self.by_account(f": >{TRIGGERS}/{name}")

    def journal(self, unit: str) -> str:
        """What the unit said since the host was set up."""
        return self.node.said(f"-o cat -u {unit}")
