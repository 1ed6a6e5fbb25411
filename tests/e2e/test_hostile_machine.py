# SPDX-License-Identifier: GPL-3.0-or-later
"""Random sequences of what a hostile account asks and does, with kills and races, against a real helper on a real host.

The machine knows no state of its own: after each step, and all the while, the invariants are looked at by root (tests/support/watching.py);
at the end everything is let go, and the host must come to rest on a signed version, not below its floor, and take an update.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from support import enemy as enemies
from support import modes, releases
from support import node as nodes

pytestmark = [
    pytest.mark.quick_modes,
    pytest.mark.only_modes(modes.HELPER),
    pytest.mark.hosts,
    pytest.mark.slow,
]

LENGTH_S = 6
VERSIONS = ("1.0.0", "1.1.0", "1.2.0")
OPERATIONS = ("update.prepare", "update.swap", "update.confirm", "update.rollback", "update.settle")


class Account(RuleBasedStateMachine):
    """What the account, the kernel, time and an operator do, in any order."""

    ground: ClassVar[nodes.Node]
    shop: ClassVar[dict[str, releases.Release]]

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    @initialize(source=st.sampled_from(["gateway", "controller"]))
    def begin(self, source: str) -> None:
        """A fresh host, the enemy on it, and root's eye."""
        self.ground.fresh(self.shop["1.0.0"], trial_length_s=LENGTH_S, settle_s=1, confirm_sources=source)
        self.canaries = enemies.Canaries(self.ground)
        self.enemy = enemies.Enemy(self.ground).__enter__()
        self.watch = enemies.Watch(self.ground, *self.shop.values()).__enter__()

    def does(self, name: str, *arguments: object) -> Any:
        """Have the enemy do something; that it is killed meanwhile, with the daemon's group, is part of the game."""
        try:
            return self.enemy.call(name, *arguments)
        except (ConnectionError, OSError):
            return None

    def known(self, data: st.DataObject, label: str) -> str:
        """An id that was used before, or a new one."""
        found = data.draw(st.sampled_from([*self.ids[-4:], ""]), label)
        if not found:
            found = nodes.trial_id()
            self.ids.append(found)
        return found

    @rule(data=st.data(), operation=st.sampled_from(OPERATIONS), version=st.sampled_from(VERSIONS))
    def asks(self, data: st.DataObject, operation: str, version: str) -> None:
        """Any operation, with an id and a trial that may be of something else."""
        number, more = self.known(data, "id"), {}
        if operation in ("update.prepare", "update.swap"):
            try:
                more["target"] = self.enemy.stage(self.shop[version], number)
            except (ConnectionError, OSError):
                return
        elif operation != "update.settle":
            more["trial"] = self.known(data, "trial")
        self.does("ask", modes.SOCKET, operation, number, more, 20)

    @rule(operation=st.sampled_from(OPERATIONS[2:]), data=st.data())
    def asks_without_waiting(self, operation: str, data: st.DataObject) -> None:
        """The same by a process that keeps asking while the next steps run."""
        more = {} if operation == "update.settle" else {"trial": self.known(data, "trial")}
        self.does("flood_for_ever", modes.SOCKET, [{"op": operation, **more}])

    @rule(kind=st.sampled_from(["link", "hard-link", "fifo", "directory", "file", "missing"]))
    def plants(self, kind: str) -> None:
        """Something else in the place of the bytes."""
        self.does("make", f"{nodes.STAGING}/slotward-1.1.0", kind, f"{enemies.CANARY}/file", "#!/bin/sh\n")

    @rule()
    def swaps_names(self) -> None:
        """The bytes change for something else while root looks."""
        self.does("swap_for_ever", f"{nodes.STAGING}/slotward-1.1.0", f"{enemies.CANARY}/program", "#!/bin/sh\n")

    @rule()
    def kills_the_daemon(self) -> None:
        """As its own account may."""
        pid = self.ground.unit().main_pid
        if pid:
            self.does("kill_main", pid)

    @rule()
    def the_helper_is_killed(self) -> None:
        """At any moment, as by the kernel for want of memory."""
        self.ground.sh(f"systemctl kill -s KILL {modes.HELPER_UNIT}", check=False)

    @rule()
    def an_operator_restarts(self) -> None:
        """By hand, in the middle."""
        self.ground.sh(f"systemctl restart {nodes.UNIT}", check=False)

    @rule()
    def lets_go(self) -> None:
        """What runs for ever ends."""
        self.does("hang_up")

    @rule(seconds=st.sampled_from([0.2, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        """A part of a trial."""
        enemies.held_for(seconds, self.watch.quiet)

    def teardown(self) -> None:
        """All is let go: the host comes to rest by itself."""
        if not hasattr(self, "watch"):
            return
        self.enemy.end()
        self.ground.waits(
            lambda: self.ground.link("current") == self.ground.link("good"),
            LENGTH_S + enemies.GRACE_S,
            "current names good again",
        )
        self.ground.waits(lambda: self.ground.update()["pending"] == "none", 20, "nothing is in flight")
        self.ground.waits(lambda: self.ground.running() in VERSIONS, 30, "a signed version runs")
        self.ground.waits(
            lambda: self.ground.helper_slot() == self.ground.link("current"), 30, "the helper runs the same"
        )
        self.watch.__exit__(None, None, None)
        self.canaries.unchanged()
        state = self.ground.update()
        assert state["sequence"] >= state["floor"], state
        self.ground.sh(f"rm -rf {nodes.STAGING}/* {nodes.STAGING}/.[!.]*", check=False)
        self.ground.at_rest()


def test_any_order_of_operations_keeps_the_invariants(
    node: nodes.Node, v100: releases.Release, v110: releases.Release, v120: releases.Release
) -> None:
    """I1, I2, I3, I6, I12 in any order of what the account can do; then the host takes an update as ever."""

    class Here(Account):
        ground = node
        shop: ClassVar = {release.version: release for release in (v100, v110, v120)}

    wanted = settings(max_examples=6, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Here, settings=wanted)
    node.fresh(v100)
    assert node.update()["state"] in ("idle", "current")
    node.upgraded(v120)
