# SPDX-License-Identifier: GPL-3.0-or-later
"""A hostile program in the daemon's place, inside the daemon's own sandbox (docs/design/sandbox.md), in the modes in which it is not root.

The unit as setup writes it, with another program: it tries each way out once, and writes down what worked.
"""

from __future__ import annotations

import json
import pathlib

import pytest
from support import enemy as enemies
from support import modes
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.HELPER, modes.START)]

HERE = "/usr/local/lib/e2e"
MINE = enemies.DATA


@pytest.mark.host
def test_nothing_leads_out_of_the_daemons_sandbox(node: nodes.Node) -> None:
    """Files, namespaces, devices, root's processes, systemd: all closed; the helper alone answers, and only what it answers to anybody."""
    node.sh(f"mkdir -p {HERE}")
    node.host.put(pathlib.Path(enemies.__file__).parent / "hostile.py", f"{HERE}/hostile.py", 0o644)
    others = node.unit(modes.HELPER_UNIT).main_pid or 1
    program = f"/usr/bin/python3 {HERE}/hostile.py once {nodes.SLOTS} {MINE} {modes.SOCKET}"
    node.drop_in(f"[Service]\nType=simple\nEnvironment=OTHERS={others}\nExecStart=\nExecStart={program}\n")
    canaries = enemies.Canaries(node)
    try:
        node.sh(f"systemctl restart {nodes.UNIT}")
        node.host.wait_for(f"test -s {MINE}/tried.json", timeout=60)
        found = json.loads(node.host.read(f"{MINE}/tried.json"))
        canaries.unchanged()
    finally:
        node.sh(
            f"rm -rf /etc/systemd/system/{nodes.UNIT}.d/90-test.conf {HERE} {MINE}/tried.json {MINE}/x {MINE}/device"
        )
        node.sh(f"systemctl daemon-reload; systemctl restart {nodes.UNIT}")
    account = int(node.sh(f"id -u {modes.ACCOUNT}"))
    assert found["who"]["uid"] == [account] * 3
    assert [name for name, why in found["tried"].items() if not why] == [], found
    assert len(found["tried"]) > 40
    if node.mode.name == modes.HELPER:
        assert found["asked"]["code"] == "ok", found["asked"]
        assert node.unit(modes.HELPER_UNIT).main_pid == others
