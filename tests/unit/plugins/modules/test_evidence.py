# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `evidence`: what a host keeps of releases that failed there (H10)."""

from __future__ import annotations

import importlib
from typing import Any, List

NEW = {"id": "ab" * 8, "from": "1.0.0", "to": "1.2.0", "code": "crash-loop", "at": 9, "truncated": False}
OLD = {"id": "cd" * 8, "from": "1.0.0", "to": "1.1.0", "code": "deadline-passed", "at": 5, "truncated": True}
WHOLE = {"trial_id": "ab" * 8, "to": "1.2.0", "journal": ["+0.1 x[1]: boom"], "starts": [{"at": 0, "exit": "exited 1"}]}


def listed(say: Any, *kept: Any, message: str = "") -> List[Any]:
    """What `evidence` answers without an id."""
    return [0, say.answer("idle", kept=list(kept), evidence=None, message=message)]


def whole(say: Any) -> List[Any]:
    """What it answers with one."""
    return [0, say.answer("idle", kept=[NEW], evidence=WHOLE)]


def test_H10_the_newest_is_fetched(agent: Any, run_module: Any, say: Any) -> None:
    """With the list of all; check mode is the same, since reading changes nothing."""
    for check in (True, False):
        agent.says(evidence=[listed(say, NEW, OLD), whole(say)])
        result = run_module("evidence", check=check, executable=agent.path, product="redis")
        assert (result["changed"], result["evidence"], result["kept"]) == (False, WHOLE, [NEW, OLD])
        assert result["code"] == "ok"
        assert agent.commands()[-1] == ["evidence", "ab" * 8, "--product", "redis", "--json"]


def test_one_trial_or_the_list_alone(agent: Any, run_module: Any, say: Any) -> None:
    """Asked for by its id; a list fetches nothing."""
    agent.says(evidence=[listed(say, NEW, OLD), whole(say)])
    result = run_module("evidence", executable=agent.path, id="cd" * 8)
    assert agent.commands()[-1] == ["evidence", "cd" * 8, "--json"]
    assert result["evidence"] == WHOLE
    agent.says(evidence=[listed(say, NEW, OLD)])
    result = run_module("evidence", executable=agent.path, list_only=True)
    assert (result["kept"], result["evidence"]) == ([NEW, OLD], None)
    assert "mutually exclusive" in run_module("evidence", executable=agent.path, list_only=True, id="x")["msg"]


def test_nothing_kept_is_no_failure_unless_it_was_asked_for(agent: Any, run_module: Any, say: Any) -> None:
    """Most hosts never saw a release fail."""
    agent.says(evidence=[listed(say)])
    result = run_module("evidence", executable=agent.path)
    assert (result.get("failed", False), result["evidence"], result["kept"]) == (False, None, [])
    refused = [3, say.answer("refused", "no-evidence", message="no evidence of trial x is kept; kept: none")]
    agent.says(evidence=[listed(say), refused])
    result = run_module("evidence", executable=agent.path, id="ef" * 8)
    assert (result["failed"], result["code"], result["evidence"]) == (True, "no-evidence", None)
    assert "is kept" in result["reason"]


def test_what_went_while_it_was_looked_at_is_no_failure(agent: Any, run_module: Any, say: Any) -> None:
    """Another failed trial may have taken its place between the two questions."""
    refused = [3, say.answer("refused", "no-evidence", message="no evidence of trial x is kept")]
    agent.says(evidence=[listed(say, OLD), refused, listed(say, NEW)])
    result = run_module("evidence", executable=agent.path)
    assert (result.get("failed", False), result["kept"], result["evidence"]) == (False, [NEW], None)


def test_what_cannot_be_read_is_told(agent: Any, run_module: Any, say: Any) -> None:
    """A damaged file takes nothing from the others; no agent is a failure with a code."""
    agent.says(evidence=[listed(say, message="/opt/x.json: byte 0: expected a value")])
    assert "x.json" in run_module("evidence", executable=agent.path, list_only=True)["reason"]
    gone = run_module("evidence", executable="/nonexistent/x")
    assert (gone["failed"], gone["code"], gone["kept"]) == (True, "not-installed", [])


def test_H11_a_failed_trial_s_result_names_the_command(say: Any) -> None:
    """What the host says of the last trial comes with the command that shows what it left; a confirmed one has none."""
    glue = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue")
    last = {"id": "ab" * 8, "state": "rolled-back", "code": "crash-loop", "why": "x", "from": "1.0.0", "to": "1.2.0"}
    seen = glue.Answer(0, say.answer("rolled-back", last=last, trial=None, evidence="slotward evidence " + "ab" * 8))
    result = glue.shape({}, glue.trial_by_id(seen, "ab" * 8))
    assert (result["state"], result["evidence"]) == ("rolled-back", "slotward evidence " + "ab" * 8)
    seen = glue.Answer(
        0, say.answer("confirmed", last=dict(last, state="confirmed", code="ok"), trial=None, evidence=None)
    )
    assert glue.shape({}, glue.trial_by_id(seen, "ab" * 8))["evidence"] is None
