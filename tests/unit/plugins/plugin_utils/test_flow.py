# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller does next, decided on answers and times alone."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Tuple

import pytest

TARGET = {"product": "slotward", "version": "1.1.0", "sequence": 2, "manifest": "m", "artifacts": {}}


@pytest.fixture(scope="module")
def flow() -> Any:
    """The module under test, by its long name."""
    return importlib.import_module("ansible_collections.slotward.fleet.plugins.plugin_utils.flow")


def result(state: str, code: str = "ok", **more: Any) -> Dict[str, Any]:
    """A module's result."""
    known: Dict[str, Any] = {
        "product": "slotward",
        "state": state,
        "code": code,
        "reason": None,
        "from": "1.0.0",
        "to": "1.1.0",
        "trial_id": "1" * 16,
        "deadline_s": None,
        "boots_left": None,
        "missing": [],
        "retry": None,
        "digests": {"from": None, "to": None},
        "floor": None,
        "sequence": 2,
        "evidence": None,
        "changed": False,
        "msg": "",
    }
    return {**known, **more}


def ends_after(flow: Any, begun: Dict[str, Any], limit: Any, answer: Dict[str, Any]) -> Tuple[float, int]:
    """How long the same answer is asked for, and how often, on a clock of our own."""
    now, count = 1000.0, 0
    watch = flow.Watch(begun, limit, now)
    while True:
        count += 1
        step = watch.judge(answer, now)
        if step.done:
            return now - 1000.0, count
        assert step.pause_s > 0
        now += step.pause_s


def test_a_trial_is_asked_for_until_it_has_ended_and_a_little_longer(flow: Any) -> None:
    """Never longer than the trial lasts and the host needs to go back."""
    begun = result("trial", deadline_s=30)
    seconds, count = ends_after(flow, begun, None, result("trial", "not-confirmed"))
    assert 30 + flow.GRACE_S - 2 <= seconds <= 30 + flow.GRACE_S
    assert count <= 50


@pytest.mark.parametrize(("limit", "expected"), [(10, 10), (500, 45), (0, 0)])
def test_the_operators_limit_counts_when_it_is_shorter(flow: Any, limit: int, expected: int) -> None:
    """Without a limit the trial's own time counts."""
    seconds, _count = ends_after(flow, result("trial", deadline_s=30), limit, result("trial"))
    assert expected - 2 <= seconds <= expected


def test_silence_is_bounded_when_nothing_is_known(flow: Any) -> None:
    """The answer to the switch was lost too."""
    lost = flow.lost(TARGET, "1" * 16, "gone")
    seconds, _count = ends_after(flow, lost, None, lost)
    assert flow.DEFAULT_S - 4 <= seconds <= flow.DEFAULT_S


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("confirmed", "ok"),
        ("rolled-back", "crash-loop"),
        ("rollback-failed", "deadline-passed"),
        ("abandoned", "never-started"),
        ("refused", "wrong-trial"),
        ("refused", "record-broken"),
    ],
)
def test_an_end_is_an_end(flow: Any, state: str, code: str) -> None:
    """Nothing is asked twice that has been decided."""
    assert ends_after(flow, result("trial", deadline_s=30), None, result(state, code))[1] == 1


def test_that_no_trial_is_known_is_believed_at_once_only_when_the_switch_was_heard_of(flow: Any) -> None:
    """After a lost answer, what began on the host may not have got to its lock yet."""
    none = result("refused", "no-trial")
    assert ends_after(flow, result("trial", deadline_s=30), None, none)[1] == 1
    assert ends_after(flow, flow.lost(TARGET, "1" * 16, "gone"), None, none)[1] == flow.BELIEVE_NO_TRIAL


def test_the_host_waits_no_longer_than_the_trial_lasts(flow: Any) -> None:
    """What is asked of the host shrinks with the time that is left."""
    watch = flow.Watch(result("trial", deadline_s=30), None, 1000.0)
    waits: List[int] = [watch.wait_s(1000.0 + passed) for passed in (0, 10, 29, 40)]
    assert waits == [30, 20, 1, 0]


def test_an_answer_that_hangs_until_the_deadline_leaves_time_to_ask_the_host_that_is_back(flow: Any) -> None:
    """The agent's own release may hang in every command; the end of its trial is told all the same."""
    watch = flow.Watch(result("trial", deadline_s=30), None, 1000.0)
    late = 1000.0 + watch.bound_s(1000.0)
    step = watch.judge(flow.lost(TARGET, "1" * 16, "no answer within 38 s"), late)
    assert late > 1030.0, "whoever waits for proof until the deadline is heard out"
    assert step.done is False
    assert watch.wait_s(late + step.pause_s) == 0
    assert watch.bound_s(late + step.pause_s) == flow.LAST_MARGIN_S


def test_what_the_host_said_last_counts_and_digests_are_kept(flow: Any) -> None:
    """The switch knows the digests, the end knows the state."""
    begun = result(
        "trial", "not-confirmed", deadline_s=30, digests={"from": "aa", "to": "bb"}, changed=True, reason="on trial"
    )
    merged = flow.merged(begun, result("confirmed", floor=2), 3.0)
    assert (merged["state"], merged["code"], merged["failed"], merged["changed"]) == ("confirmed", "ok", False, True)
    assert (merged["digests"], merged["floor"], merged["reason"]) == ({"from": "aa", "to": "bb"}, 2, None)
    assert merged["diff"]["after"] == "slotward 1.1.0\n"


def test_never_success_before_confirmation(flow: Any) -> None:
    """I5: whatever else is said, a trial at the end of the time is a failure with a code."""
    merged = flow.merged(result("trial", "ok", deadline_s=30), result("trial", "ok"), 30.0)
    assert (merged["failed"], merged["code"]) == (True, "not-confirmed")
    assert merged["diff"]["after"] == "slotward 1.0.0\n"


def test_silence_after_a_switch_says_how_long_the_host_still_has(flow: Any) -> None:
    """The operator reads what the host will do by itself."""
    begun = result("trial", "not-confirmed", deadline_s=30)
    merged = flow.merged(begun, flow.lost(TARGET, "1" * 16, "timed out"), 12.0)
    assert (merged["state"], merged["code"], merged["failed"], merged["deadline_s"]) == (
        "trial",
        "not-confirmed",
        True,
        18,
    )
    assert "goes back by itself" in merged["msg"]
    assert "timed out" in merged["msg"]


def test_a_mirror_keeps_the_names(flow: Any) -> None:
    """Only the address changes, never the digest."""
    target = dict(TARGET, artifacts={"linux-amd64": {"name": "x", "url": "https://a/x", "sha256": "s"}})
    moved = flow.from_url(target, "https://b/1.1.0/")
    assert moved["artifacts"]["linux-amd64"] == {"name": "x", "url": "https://b/1.1.0/x", "sha256": "s"}
