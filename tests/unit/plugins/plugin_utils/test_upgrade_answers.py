# SPDX-License-Identifier: GPL-3.0-or-later
"""The word that upgrade hands the agent, and what it makes of each answer."""

from __future__ import annotations

import importlib
from typing import Any, Dict

import pytest

PARAMS = {
    "product": "slotward",
    "executable": "/usr/local/bin/slotward",
    "config": "/etc/slotward/config.toml",
    "src": None,
    "adopt": False,
    "start": False,
    "force": False,
    "accept_one_way": False,
    "smoke": True,
}
KEYS = {
    "product", "state", "code", "reason", "from", "to", "sequence", "floor", "digests", "trial_id", "deadline_s", "boots_left",
    "missing", "retry", "evidence", "artifact", "reuse", "adopt", "steps", "command", "changed", "failed", "msg", "diff",
    "hold", "next_at",
}  # fmt: skip


@pytest.fixture(scope="module")
def flow() -> Any:
    """The module under test, by its long name."""
    return importlib.import_module("ansible_collections.slotward.fleet.plugins.plugin_utils.flow")


@pytest.fixture(scope="module")
def glue() -> Any:
    """What plugins on both sides share."""
    return importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue")


@pytest.mark.parametrize(("platform", "arch"), [("linux-amd64", "amd64"), ("linux-arm64", "arm64")])
def test_the_agent_gets_the_published_manifest_and_its_platforms_artifact(
    glue: Any, say: Any, platform: str, arch: str
) -> None:
    """The target has five fields, chosen for the host's own platform."""
    artifact = say.target()["artifacts"][platform]
    assert glue.word_for(say.target(), platform) == {
        "product": "slotward",
        "version": "1.1.0",
        "url": "https://r.example/" + arch,
        "sha256": artifact["sha256"],
        "signature": '{"signed": true}',
    }


def test_N7_no_artifact_for_a_platform_is_refused_with_those_there_are(glue: Any, say: Any) -> None:
    """The refusal comes before the agent is asked."""
    with pytest.raises(glue.codes.Refused) as raised:
        glue.word_for(say.target(), "linux-riscv64")
    assert raised.value.code == "no-artifact"
    assert "linux-riscv64" in raised.value.text
    assert "linux-amd64, linux-arm64" in raised.value.text


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({}, ["upgrade", "--target", "-"]),
        ({"adopt": True, "smoke": False}, ["upgrade", "--target", "-", "--adopt", "--no-smoke"]),
        ({"start": True}, ["upgrade", "--target", "-", "--start"]),
        ({"force": True, "accept_one_way": True}, ["upgrade", "--target", "-", "--force", "--accept-one-way"]),
        ({"src": "/srv/file"}, ["upgrade", "--target", "-", "--src", "/srv/file"]),
    ],
)
def test_each_option_becomes_one_word_of_the_command(flow: Any, params: Any, line: Any) -> None:
    """No option is lost and none is made up."""
    assert flow.words({**PARAMS, **params}) == line


def test_what_is_not_the_default_is_named(glue: Any) -> None:
    """Another program, configuration and product are on the command line."""
    assert glue.command(PARAMS, ["update"]) == ["/usr/local/bin/slotward", "update", "--json"]
    other = {"executable": "/opt/s", "config": "/etc/o.toml", "product": "exporter"}
    assert glue.command(other, ["update"]) == [
        "/opt/s",
        "--config",
        "/etc/o.toml",
        "update",
        "--product",
        "exporter",
        "--json",
    ]


OUTCOMES = [
    (0, "current", "ok", False),
    (0, "trial", "not-confirmed", True),
    (3, "refused", "below-floor", False),
    (4, "failed", "in-progress", False),
    (5, "refused", "record-broken", False),
    (6, "rolled-back", "crash-loop", True),
    (1, "failed", "not-root", False),
]


@pytest.mark.parametrize(("rc", "state", "code", "changed"), OUTCOMES)
@pytest.mark.parametrize("made", ["planned", "staged", "begun"])
def test_every_outcome_has_the_same_keys(
    flow: Any, glue: Any, say: Any, made: str, rc: int, state: str, code: str, changed: bool
) -> None:
    """The exit status decides failure; code, state and text are the agent's; no key comes or goes."""
    data = say.answer(state, code, message="because", from_="1.0.0", to="1.1.0", changed=changed)
    result = getattr(flow, made)(PARAMS, say.target(), glue.Answer(rc, data))
    assert set(result) == KEYS
    assert (result["failed"], result["state"], result["code"]) == (rc != 0, state, code)
    assert result["msg"].startswith("because")
    assert (result["from"], result["to"], result["sequence"]) == ("1.0.0", "1.1.0", 2)
    if made != "planned":
        assert result["changed"] is changed


def test_a_result_made_on_the_controller_has_the_same_keys(flow: Any, say: Any) -> None:
    """A host that cannot be reached, and a release that is refused before."""
    assert set(flow.failure("slotward", "unknown", "unreachable", "no route")) == KEYS - {"diff"}
    assert set(flow.ended(flow.lost(say.target(), "1" * 16, "gone"), changed=False)) == KEYS


@pytest.mark.parametrize(
    ("rc", "state", "changed", "after"),
    [(0, "idle", True, "slotward 1.1.0\n"), (0, "current", False, "slotward 1.0.0\n"), (0, "ahead", False, "slotward 1.0.0\n"),
     (3, "refused", False, "slotward 1.0.0\n")],
)  # fmt: skip
def test_check_mode_tells_the_change(
    flow: Any, glue: Any, say: Any, rc: int, state: str, changed: bool, after: str
) -> None:
    """S14, S15: there already, or ahead, is no change; a refusal is none either."""
    result = flow.planned(PARAMS, say.target(), glue.Answer(rc, say.answer(state, from_="1.0.0", changed=False)))
    assert (result["changed"], result["diff"]["before"], result["diff"]["after"]) == (
        changed,
        "slotward 1.0.0\n",
        after,
    )


def test_after_a_failure_the_result_has_the_command_that_allows_a_retry(flow: Any, glue: Any, say: Any) -> None:
    """L5: the command is exact, and in the message."""
    answer = glue.Answer(3, say.answer("refused", "failed-before", message="slotward 1.1.0 did not start"))
    result = flow.begun(PARAMS, say.target(), answer)
    assert result["retry"] == "slotward update --clear-failed 1.1.0"
    assert result["msg"].endswith(result["retry"])


ANSWERS = [
    ('{"state": "idle"}', {"state": "idle"}),
    ('progress\n{"state": "idle"}\r\n', {"state": "idle"}),
    ('{"state": "idle"}\nwarning: late words\n', {"state": "idle"}),
    ('{"state": "old"}\n{not json}\n', {"state": "old"}),
]


@pytest.mark.parametrize(("out", "data"), ANSWERS)
def test_the_answer_is_found_among_other_words(glue: Any, out: str, data: Dict[str, Any]) -> None:
    """Whatever a login shell or a terminal adds."""
    assert glue.parse(0, out, "", ["slotward"]).data == data


@pytest.mark.parametrize("out", ["", "Segmentation fault", "[1]", "{"])
def test_an_answer_that_is_none_is_shown(glue: Any, out: str) -> None:
    """What came instead of JSON is in the message, and it is a failure whatever the exit status."""
    answer = glue.parse(0, out, "on standard error", ["slotward", "update"])
    assert (answer.failed, answer.code) == (True, "bad-answer")
    assert "on standard error" in answer.data["message"]


STONE = {"version": "1.0.5", "sequence": 1, "min_from": "1.0.0"}
NEXT = {"min_from": "1.0.5"}


def test_N17_the_way_of_a_host_is_found_from_what_runs_there(flow: Any, say: Any) -> None:
    """By the version and the floor that the host says; the targets themselves come back, in their order."""
    target, stone = say.target(**NEXT), say.target(**STONE)
    assert flow.way({"version": "1.0.0", "floor": 1}, target, [stone]) == [stone, target]
    assert flow.way({"version": "1.0.5", "floor": 1}, target, [stone]) == [target]
    for node in ({"version": "1.0.0", "floor": 2}, {"version": None, "floor": None}, {"version": "0.9.0", "floor": 0}):
        assert flow.way(node, target, [stone]).code == "below-min-from"


def test_a_way_tells_what_was_done_and_what_was_not(flow: Any, say: Any) -> None:
    """It changed the host when any step did; the host ran what it ran before the first, and ends where the last one left it."""
    refused = flow.failure("slotward", "refused", "below-min-from", "no", **{"from": "1.0.0"})
    back = {**flow.failure("slotward", "rolled-back", "crash-loop", "why"), "from": "1.0.5", "to": "1.1.0"}
    steps = [flow.step_of(STONE, "confirmed", "1" * 16), flow.step_of(say.target(), "rolled-back", "2" * 16)]
    walked = flow.walked(refused, back, steps)
    assert (walked["from"], walked["to"], walked["changed"], walked["failed"]) == ("1.0.0", "1.1.0", True, True)
    assert walked["diff"]["after"] == "slotward 1.0.5\n"
    stayed = flow.walked(refused, dict(back, changed=False), [flow.step_of(STONE, "rolled-back")])
    assert (stayed["from"], stayed["changed"]) == ("1.0.5", False)
