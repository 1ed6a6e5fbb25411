# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a release that failed (H10, H11): there after going back, in every mode, and fetched by the module."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from support import node as nodes
from support import plays, releases

PLACE = f"{nodes.SLOTS}/evidence"
FETCH = """
- name: Fetch it
  hosts: all
  gather_facts: false
  tasks:
    - name: Fetch what is kept
      slotward.fleet.evidence:
    - name: Read the events
      slotward.fleet.events:
"""


def failed(node: nodes.Node, release: releases.Release, trial: str) -> dict[str, Any]:
    """The host goes back from it; what it keeps of that, once it does."""
    state = node.goes_back(("crash-loop",), 60)
    assert (state["last"]["id"], state["evidence"]) == (trial, f"slotward evidence {trial}")
    node.waits(lambda: node.slotward("evidence").json["kept"] != [], 30, "evidence is kept")
    answer = node.slotward("evidence", trial)
    assert answer.exit == 0, answer
    found: dict[str, Any] = answer.json["evidence"]
    assert (found["to"], found["from"], found["code"]) == (release.version, "1.0.0", "crash-loop")
    return found


@pytest.mark.host
@pytest.mark.every_mode
def test_H10_what_a_broken_release_left_is_kept(node: nodes.Node, crashing: releases.Release) -> None:
    """Its starts with their exits, its lines and the guard's, root's alone; and who asks how it ended is told the command."""
    trial = node.on_trial(crashing)
    found = failed(node, crashing, trial)
    ends = [start["exit"] for start in found["starts"]]
    assert ends[:3] == ["exited 1"] * 3, found
    said = "\n".join(found["journal"])
    assert "going back from b to a: crash-loop" in said
    assert f"{nodes.UNIT}: Main process exited" in said
    assert (found["missing"], found["truncated"]) == ([], False)
    assert found["environment"][f"{nodes.UNIT} ActiveState"] == "active"
    assert node.sh(f"stat -c '%a %U' {PLACE} {PLACE}/*") == "700 root\n600 root"
    again = node.slotward("rollback", "--id", trial) if not node.mode.section else node.slotward("events")
    told = again.json.get("evidence") or again.json["events"][-1]["evidence"]
    assert told == f"slotward evidence {trial}"
    assert f"(slotward evidence {trial})" in node.said("-o cat")


@pytest.mark.hosts
@pytest.mark.quick_modes
def test_H10_the_module_fetches_it(
    node: nodes.Node, machines: Any, crashing: releases.Release, tmp_path: pathlib.Path
) -> None:
    """For a fleet, over SSH; the newest four of six failed trials are kept, and what cannot be kept stops nothing."""
    if not plays.ansible_is_here():
        pytest.fail("run by make host or make e2e, which set Ansible up")
    trials = []
    for number in range(6):
        if number == 5:  # a link in the directory's place: nothing is written where it leads
            node.sh(f"mv {PLACE} {PLACE}.kept && mkdir /root/elsewhere && ln -s /root/elsewhere {PLACE}")
        trials.append(node.on_trial(crashing))
        node.goes_back(("crash-loop",), 60)
        if number == 5:
            node.waits(lambda: "no evidence of " in node.said("-o cat"), 30, "it is said")
            assert node.sh("ls -A /root/elsewhere; rm -r /root/elsewhere") == ""
            node.sh(f"rm {PLACE} && mv {PLACE}.kept {PLACE}")
            assert node.slotward("evidence", trials[-1]).code == "no-evidence"
            assert node.slotward("evidence", "--gather").json["changed"] is True
        node.waits(lambda: trials[-1] in node.sh(f"ls {PLACE}", check=False), 30, "evidence is kept")
        assert node.slotward("update", "--clear-failed").exit == 0
    controller = plays.Controller(tmp_path / "controller", machines.run.inventory())
    book = tmp_path / "fetch.yml"
    book.write_text(FETCH)
    played = controller.play(str(book), {}, ("--limit", node.host.name))
    assert played.status == 0, played.output
    fetched = played.last(node.host.name, "slotward.fleet.evidence")
    assert fetched is not None
    assert [one["id"] for one in fetched["kept"]] == trials[:1:-1]
    assert fetched["evidence"]["trial_id"] == trials[-1]
    happened = played.last(node.host.name, "slotward.fleet.events")
    assert happened is not None
    assert happened["events"][-1]["evidence"] == f"slotward evidence {trials[-1]}"
