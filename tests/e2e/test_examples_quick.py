# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's prometheus-node-exporter as it comes, quickly: adopted, upgraded by its probes, a broken release taken back, removed."""

from __future__ import annotations

import pytest
from support import examples
from support import node as nodes

QUICKLY = (
    ("interval_s = 2", "interval_s = 1"),
    ("passes = 3", "passes = 2"),
    ("settle_s = 2", "settle_s = 1"),
    ("for_s = 5", "for_s = 1"),
)


@pytest.mark.host
def test_a_daemon_of_debian_s_is_updated(installed: nodes.Node) -> None:
    """Nobody confirms but the probes of its file; the file of the package is back at the end."""
    example = examples.NodeExporter(installed)
    example.clear()
    example.install()
    old, new = example.versions
    try:
        example.example(*QUICKLY)
        assert example.slotward("setup", "--adopt").code == "package-owns-path"
        assert example.done("setup", "--adopt", "--divert")["version"] == old
        state = example.upgraded(example.good(), 30)
        assert [(probe["name"], probe["ok"]) for probe in state["probes"]["probes"]] == [
            ("metrics", True),
            ("unit", True),
        ]
        assert example.runs(new)
        bad = example.broken("9.0.0", 9, examples.EXITS)
        example.on_trial(bad)
        state = example.ends(30)
        assert (state["version"], state["last"]["state"], state["last"]["code"]) == (new, "rolled-back", "crash-loop")
        assert example.runs(new)
        pid = example.pid()
        example.done("remove", "--purge")
        assert (example.pid(), example.traces()) == (pid, "")
        assert example.node.sh(f"test ! -L {example.ENTRYPOINT} && {example.ENTRYPOINT} --version 2>&1").startswith(
            f"node_exporter, version {old}"
        )
    finally:
        example.clear()
