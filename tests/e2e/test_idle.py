# SPDX-License-Identifier: GPL-3.0-or-later
"""What an idle node costs (item 9 of the main path): measured over a minute on each suite."""

from __future__ import annotations

import time

import pytest
from support import node as nodes
from support import releases

PSS_KIB = 32 * 1024
SWITCHES = "cat /proc/{pid}/task/*/status | awk '/ctxt_switches/ {{ sum += $2 }} END {{ print sum }}'"


def switches(node: nodes.Node, pid: int) -> int:
    """Context switches of all threads of a process so far."""
    return int(node.sh(SWITCHES.format(pid=pid)))


@pytest.mark.hosts
@pytest.mark.slow
def test_an_idle_node_costs_next_to_nothing(node: nodes.Node, v110: releases.Release) -> None:
    """At most 32 MiB (PSS) and one context switch a second; and no timer of ours runs without a trial."""
    node.upgraded(v110)
    node.at_rest()
    time.sleep(3)
    pid = node.unit().main_pid
    before, began = switches(node, pid), time.monotonic()
    time.sleep(60)
    rate = (switches(node, pid) - before) / (time.monotonic() - began)
    pss = int(node.sh(f"awk '/^Pss:/ {{ print $2 }}' /proc/{pid}/smaps_rollup"))
    assert pss <= PSS_KIB
    assert rate <= 1
    assert node.sh("systemctl list-timers --no-legend 'slotward-*'") == ""
