# SPDX-License-Identifier: GPL-3.0-or-later
"""Confirm and rollback by hand."""

from __future__ import annotations

from typing import Any

import pytest

ID = "9f8a6c1e22d04b57"
LAST = {"id": ID, "from": "1.0.0", "to": "1.1.0", "state": "confirmed", "code": "ok", "why": "", "at": 1}


def pending(say: Any) -> Any:
    """An `update` answer with a trial."""
    return say.answer("trial", "trial-pending", trial=say.trial(id=ID), last=None, floor=1)


def test_confirm_names_the_trial_and_waits_on_the_host(agent: Any, run_module: Any, say: Any) -> None:
    """The id, the source and the wait go to the agent; its proof and floor come back."""
    done = say.answer("confirmed", changed=True, from_="1.0.0", to="1.1.0", floor=2, missing=[], proof={"how": "exe"})
    agent.says(confirm=[[0, done]])
    result = run_module("confirm", executable=agent.path, id=ID, wait_s=20)
    assert agent.commands() == [["confirm", "--id", ID, "--source", "controller", "--wait", "20", "--json"]]
    assert (result["state"], result["changed"], result["floor"]) == ("confirmed", True, 2)
    assert (result["proof"], result["trial_id"]) == ({"how": "exe"}, ID)
    assert [call["who"] for call in agent.calls()] == ["ansible"]


def test_confirm_reports_what_is_missing_and_fails(agent: Any, run_module: Any, say: Any) -> None:
    """S4, I5: a trial is not success."""
    agent.says(confirm=[[6, say.answer("trial", "not-confirmed", trial=say.trial(id=ID, missing=["gateway"]))]])
    result = run_module("confirm", executable=agent.path, id=ID)
    assert (result["failed"], result["state"], result["missing"]) == (True, "trial", ["gateway"])
    assert (result["deadline_s"], result["boots_left"]) == (30, 3)


def test_an_agent_on_trial_that_crashes_is_asked_again_for_as_long_as_may_be_waited(
    agent: Any, run_module: Any, say: Any
) -> None:
    """The good version tells the end when the host has gone back; without a wait the silence is told at once."""
    crash: Any = [1, "Traceback (most recent call last):"]
    ended = [
        6,
        say.answer(
            "rolled-back", "crash-loop", message="it kept exiting", retry="slotward update --clear-failed 1.1.0"
        ),
    ]
    agent.says(confirm=[crash, crash, ended])
    result = run_module("confirm", executable=agent.path, id=ID)
    assert (result["failed"], result["code"]) == (True, "bad-answer")
    result = run_module("confirm", executable=agent.path, id=ID, wait_s=20)
    assert (result["failed"], result["state"], result["retry"]) == (True, "rolled-back", ended[1]["retry"])
    agent.says(confirm=[crash])
    result = run_module("confirm", executable=agent.path, id=ID, wait_s=1)
    assert (result["failed"], result["code"]) == (True, "bad-answer")


def test_S11_confirming_again_changes_nothing(agent: Any, run_module: Any, say: Any) -> None:
    """A trial that was confirmed is confirmed."""
    agent.says(confirm=[[0, say.answer("confirmed", from_="1.0.0", to="1.1.0")]])
    result = run_module("confirm", executable=agent.path, id=ID)
    assert (bool(result.get("failed")), result["changed"], result["diff"]["after"]) == (False, False, "")


@pytest.mark.parametrize(
    ("last", "trial_id", "state", "code", "failed", "changed"),
    [
        (None, ID, "trial", "ok", False, True),
        (LAST, ID, "confirmed", "ok", False, False),
        (dict(LAST, state="rolled-back", code="crash-loop"), ID, "rolled-back", "crash-loop", True, False),
        (LAST, "0" * 16, "refused", "no-trial", True, False),
    ],
)
def test_confirm_in_check_mode_only_looks(
    agent: Any, run_module: Any, say: Any, last: Any, trial_id: str, state: str, code: str, failed: bool, changed: bool
) -> None:
    """It says what a confirmation would meet, and asks for none."""
    seen = pending(say) if last is None else say.answer("idle", trial=None, last=last)
    agent.says(update=[[0, seen]])
    result = run_module("confirm", check=True, executable=agent.path, id=trial_id)
    assert agent.commands() == [["update", "--json"]]
    assert (result["state"], result["code"]) == (state, code)
    assert (bool(result.get("failed")), result["changed"]) == (failed, changed)


def test_another_trial_is_not_confirmed_in_check_mode_either(agent: Any, run_module: Any, say: Any) -> None:
    """A late confirmation never counts for another trial."""
    agent.says(update=[[0, pending(say)]])
    result = run_module("confirm", check=True, executable=agent.path, id="0" * 16)
    assert (result["code"], result["failed"]) == ("wrong-trial", True)


def test_rollback_hands_on_the_reason_and_returns_the_way_to_retry(agent: Any, run_module: Any, say: Any) -> None:
    """The operator's word goes with it; the exact command comes back."""
    done = say.answer(
        "rolled-back", "operator", changed=True, from_="1.1.0", to="1.0.0", retry="slotward update --clear-failed 1.1.0"
    )
    agent.says(rollback=[[0, done]])
    result = run_module("rollback", executable=agent.path, id=ID, why="errors doubled")
    assert agent.commands() == [["rollback", "--id", ID, "--why", "errors doubled", "--json"]]
    assert (result["state"], result["changed"], result["retry"]) == (
        "rolled-back",
        True,
        "slotward update --clear-failed 1.1.0",
    )
    assert result["diff"]["before"] == "slotward 1.1.0\n"
    assert result["diff"]["after"] == "slotward 1.0.0\n"


def test_rollback_shows_that_there_is_nothing_sound_to_go_back_to(agent: Any, run_module: Any, say: Any) -> None:
    """The refusal and its sentence; nothing has changed."""
    said = "going back would lead to nothing sound: slot a is not executable"
    refused = say.answer("refused", "digest-mismatch", message=said)
    agent.says(rollback=[[3, refused]])
    result = run_module("rollback", executable=agent.path)
    assert (result["failed"], result["changed"], result["code"]) == (True, False, "digest-mismatch")
    assert said in result["reason"]


def test_rollback_in_check_mode_only_looks(agent: Any, run_module: Any, say: Any) -> None:
    """With a trial it would change; without one, or with another, it would not."""
    agent.says(update=[[0, pending(say)], [0, pending(say)], [0, say.answer("idle", trial=None, last=None)]])
    result = run_module("rollback", check=True, executable=agent.path)
    assert (result["changed"], result["from"], result["to"]) == (True, "1.1.0", "1.0.0")
    result = run_module("rollback", check=True, executable=agent.path, id="0" * 16)
    assert (result["changed"], result["code"]) == (False, "wrong-trial")
    assert run_module("rollback", check=True, executable=agent.path)["changed"] is False
