# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules `hold`, `failed_versions`, `events` and `products_info`."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

AT = {"why": "incident", "owner": "ana", "until": 1798135200, "at": 1797900000}
FAILED = [
    {"version": "1.1.0", "code": "crash-loop", "why": "x", "at": 1, "sequence": 2, "sha256": "a"},
    {"version": "1.2.0", "code": "operator", "why": "y", "at": 2, "sequence": 3, "sha256": "b"},
]


def told(say: Any, hold: Any) -> List[Any]:
    """An answer with a hold, or none."""
    return [0, say.answer("idle", hold=hold)]


def test_C9_a_hold_is_set_once(agent: Any, run_module: Any, say: Any) -> None:
    """Its reason, owner and end go to the agent; again, nothing changes and nobody is told."""
    done = [0, say.answer("idle", changed=True, hold=AT)]
    agent.says(update=[told(say, None), told(say, AT)], hold=[done])
    given = {"executable": agent.path, "product": "redis", "why": "incident", "owner": "ana"}
    result = run_module("hold", until="2026-12-24T18:00:00Z", **given)
    assert (result["changed"], result["hold"], result["diff"]["before"]) == (True, AT, "")
    assert result["diff"]["after"] == "redis held until 2026-12-24T18:00:00Z: incident\n"
    words = ["hold", "--why", "incident", "--owner", "ana", "--until", "2026-12-24T18:00:00Z"]
    assert agent.commands()[-1] == [*words, "--product", "redis", "--json"]
    result = run_module("hold", until="2026-12-24T18:00:00Z", **given)
    assert (result["changed"], result["hold"], len(agent.commands())) == (False, AT, 3)


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ({"why": "incident", "until": "2026-12-24T18:00:00Z"}, False),
        ({"why": "incident"}, True),
        ({"why": "another", "until": "2026-12-24T18:00:00Z"}, True),
        ({"why": "another", "owner": "ana", "until": "2026-12-24T18:00:00Z"}, True),
        ({"state": "absent"}, True),
    ],
)
def test_check_mode_compares_with_what_is_there(
    agent: Any, run_module: Any, say: Any, more: Dict[str, Any], changed: bool
) -> None:
    """An owner that is not given is whoever it is; an end that is not given is none."""
    agent.says(update=[told(say, AT)])
    result = run_module("hold", check=True, executable=agent.path, **more)
    assert (result["changed"], [line[0] for line in agent.commands()]) == (changed, ["update"])


@pytest.mark.parametrize("more", [{"why": "mine"}, {"state": "absent"}])
def test_F9_another_one_s_hold_is_not_changed(agent: Any, run_module: Any, say: Any, more: Dict[str, Any]) -> None:
    """Check mode foresees what the agent will say."""
    refused = [3, say.answer("refused", "held", message="it is held already by ana")]
    agent.says(update=[told(say, AT)], hold=[refused], unhold=[refused])
    for check in (True, False):
        result = run_module("hold", check=check, executable=agent.path, owner="ben", **more)
        assert (result["failed"], result["changed"], result["code"], result["hold"]) == (True, False, "held", AT)
        assert "ana" in result["msg"]
    assert agent.commands()[-1][-3:] == ["--owner", "ben", "--json"]


def test_a_hold_is_released_once(agent: Any, run_module: Any, say: Any) -> None:
    """And no agent is asked to release what is not held."""
    agent.says(update=[told(say, AT), told(say, None)], unhold=[[0, say.answer("idle", changed=True, hold=None)]])
    result = run_module("hold", executable=agent.path, state="absent")
    assert (result["changed"], result["hold"], agent.commands()[-1]) == (True, None, ["unhold", "--json"])
    assert run_module("hold", executable=agent.path, state="absent")["changed"] is False


def test_a_hold_that_cannot_be(agent: Any, run_module: Any, say: Any) -> None:
    """No time, no reason, no agent, and one that refuses: each is a failure with a code."""
    agent.says(update=[told(say, None)], hold=[[3, say.answer("refused", "not-root", message="run it as root")]])
    given = {"executable": agent.path, "why": "x"}
    assert "is not a time" in run_module("hold", until="tomorrow", **given)["msg"]
    assert "why" in run_module("hold", executable=agent.path)["msg"]
    refused = run_module("hold", **given)
    assert (refused["failed"], refused["changed"], refused["code"]) == (True, False, "not-root")
    assert run_module("hold", executable="/nonexistent/x", why="x")["code"] == "not-installed"


def test_failed_versions_are_listed_and_forgotten(agent: Any, run_module: Any, say: Any) -> None:
    """Listing changes nothing; one, several or all are forgotten, and what is not there is no change."""
    seen = [0, say.answer("idle", failed=FAILED)]
    agent.says(update=[seen])
    result = run_module("failed_versions", executable=agent.path)
    assert (result["changed"], result["failed_versions"], result["cleared"]) == (False, FAILED, [])
    result = run_module("failed_versions", check=True, executable=agent.path, state="absent")
    assert (result["changed"], result["cleared"], result["failed_versions"]) == (True, ["1.1.0", "1.2.0"], [])
    cleared = [0, say.answer("idle", changed=True, cleared=["1.1.0"])]
    agent.says(update=[seen, cleared])
    given = {"executable": agent.path, "state": "absent", "product": "redis"}
    result = run_module("failed_versions", versions=["1.1.0", "9.9.9"], **given)
    assert (result["changed"], result["cleared"], result["failed_versions"]) == (True, ["1.1.0"], FAILED[1:])
    assert agent.commands()[-1] == ["update", "--clear-failed", "1.1.0", "--product", "redis", "--json"]
    agent.says(update=[[0, say.answer("idle", failed=[])]])
    assert run_module("failed_versions", **given)["changed"] is False


def test_forgetting_stops_where_the_agent_refuses(agent: Any, run_module: Any, say: Any) -> None:
    """What was forgotten before that is told."""
    cleared = [0, say.answer("idle", changed=True)]
    busy = [4, say.answer("failed", "in-progress", message="process 7 holds the lock")]
    agent.says(update=[[0, say.answer("idle", failed=FAILED)], cleared, busy])
    result = run_module("failed_versions", executable=agent.path, state="absent")
    assert (result["failed"], result["code"], result["cleared"]) == (True, "in-progress", ["1.1.0"])
    assert (result["changed"], result["failed_versions"]) == (True, FAILED[1:])


def test_events_are_read_since_a_cursor(agent: Any, run_module: Any, say: Any) -> None:
    """Each once: the cursor that comes back is the next to ask with, also when nothing has happened."""
    one = {"n": 12, "at": 5, "event": "upgrade-rolled-back", "severity": "critical", "why": "x", "code": "probe-failed"}
    answers = [[0, say.answer("idle", events=[one], cursor=12)], [0, say.answer("idle", events=[], cursor=12)]]
    agent.says(events=answers)
    result = run_module("events", executable=agent.path, product="redis", limit=5)
    assert (result["changed"], result["events"], result["cursor"]) == (False, [one], 12)
    assert agent.commands()[-1] == ["events", "--since", "0", "--limit", "5", "--product", "redis", "--json"]
    result = run_module("events", executable=agent.path, product="redis", since=12)
    assert (result["events"], result["cursor"]) == ([], 12)
    gone = run_module("events", executable="/nonexistent/x", since=7)
    assert (gone["failed"], gone["code"], gone["cursor"]) == (True, "not-installed", 7)


def listed(say: Any, **trials: bool) -> List[Any]:
    """What `products` answers."""
    each = [
        {"name": name, "unit": name + ".service", "version": "1.0.0", "state": "idle", "code": "ok", "held": False, "trial_pending": on}
        for name, on in trials.items()
    ]  # fmt: skip
    return [0, say.answer("idle", products=each)]


def test_C6_all_products_are_a_fact(agent: Any, run_module: Any, say: Any) -> None:
    """By name; whichever is asked for is among them, and one that nobody configured is not on trial."""
    agent.says(products=[listed(say, slotward=False, redis=True)])
    result = run_module("products_info", executable=agent.path, product="nginx")
    products = result["ansible_facts"]["slotward"]["products"]
    assert {name: found["trial_pending"] for name, found in products.items()} == {
        "slotward": False,
        "redis": True,
        "nginx": False,
    }
    assert [found["configured"] for found in products.values()] == [True, True, False]
    assert (products["redis"]["unit"], products["nginx"]["code"]) == ("redis.service", "unknown-product")
    assert agent.commands() == [["products", "--json"]]


def test_a_host_without_an_agent_has_no_products(run_module: Any) -> None:
    """And nothing of it is on trial."""
    result = run_module("products_info", executable="/nonexistent/x", product="redis")
    assert (result["installed"], result["code"], result["changed"]) == (False, "ok", False)
    assert result["ansible_facts"]["slotward"]["products"]["redis"]["trial_pending"] is False


def test_C6_who_does_not_know_what_is_on_trial_says_so(agent: Any, run_module: Any, say: Any) -> None:
    """No answer is a failure and no fact; a product that nothing is said of counts as on trial."""
    agent.says(products=[[1, "Traceback"]])
    result = run_module("products_info", executable=agent.path)
    assert (result["failed"], "ansible_facts" in result, result["code"]) == (True, False, "bad-answer")
    odd = listed(say, redis=False)
    del odd[1]["products"][0]["trial_pending"]
    agent.says(products=[odd])
    result = run_module("products_info", executable=agent.path)
    assert result["ansible_facts"]["slotward"]["products"]["redis"]["trial_pending"] is True
