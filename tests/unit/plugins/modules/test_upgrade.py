# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's half of upgrade: the word that it hands the agent, and what it makes of the answer."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

KEYS = {
    "product",
    "state",
    "code",
    "reason",
    "from",
    "to",
    "sequence",
    "floor",
    "digests",
    "trial_id",
    "deadline_s",
    "boots_left",
    "missing",
    "retry",
    "evidence",
    "artifact",
    "reuse",
    "adopt",
    "command",
    "changed",
    "msg",
    "diff",
}
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def test_the_agent_gets_the_published_manifest_and_this_platforms_artifact(
    agent: Any, run_module: Any, say: Any
) -> None:
    """The target on standard input has five fields, chosen for the host's own platform."""
    agent.says(upgrade=[[0, say.answer("trial", "not-confirmed", trial=say.trial(), changed=True, to="1.1.0")]])
    run_module("upgrade", executable=agent.path, target=say.target(), id="00112233445566ff")
    call = agent.calls()[0]
    artifact = say.target()["artifacts"]["linux-" + ARCH]
    assert json.loads(call["stdin"]) == {
        "product": "slotward",
        "version": "1.1.0",
        "url": artifact["url"],
        "sha256": artifact["sha256"],
        "signature": '{"signed": true}',
    }
    assert call["argv"] == ["upgrade", "--target", "-", "--no-wait", "--id", "00112233445566ff", "--json"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"stage_only": True}, ["upgrade", "--target", "-", "--stage-only"]),
        ({"adopt": True, "smoke": False}, ["upgrade", "--target", "-", "--adopt", "--no-wait", "--no-smoke"]),
        ({"src": "/srv/file"}, ["upgrade", "--target", "-", "--src", "/srv/file", "--no-wait"]),
        ({"plan_only": True, "adopt": True}, ["prepare", "--target", "-", "--adopt"]),
        ({"check": True, "src": "/srv/file"}, ["prepare", "--target", "-", "--src", "/srv/file"]),
    ],
)
def test_each_option_becomes_one_word_of_the_command(
    agent: Any, run_module: Any, say: Any, args: Any, words: Any
) -> None:
    """No option is lost and none is made up."""
    agent.says(upgrade=[[0, say.answer("staged")]], prepare=[[0, say.answer("idle")]])
    run_module("upgrade", executable=agent.path, target=say.target(), **args)
    assert agent.commands() == [[*words, "--json"]]


def test_another_product_and_configuration_are_named(agent: Any, run_module: Any, say: Any) -> None:
    """What is not the default is on the command line, the product as the target names it."""
    agent.says(upgrade=[[0, say.answer("current")]])
    run_module("upgrade", executable=agent.path, config="/etc/other.toml", target=say.target(product="exporter"))
    assert agent.commands()[0][:3] == ["--config", "/etc/other.toml", "upgrade"]
    assert agent.commands()[0][-3:] == ["--product", "exporter", "--json"]


OUTCOMES = [
    (0, "current", "ok", False, False),
    (0, "trial", "not-confirmed", False, True),
    (3, "refused", "below-floor", True, False),
    (4, "failed", "in-progress", True, False),
    (5, "refused", "broken-record", True, False),
    (6, "rolled-back", "crash-loop", True, True),
    (1, "failed", "not-root", True, False),
]


@pytest.mark.parametrize(("rc", "state", "code", "failed", "changed"), OUTCOMES)
def test_every_outcome_has_the_same_keys(
    agent: Any, run_module: Any, say: Any, rc: int, state: str, code: str, failed: bool, changed: bool
) -> None:
    """The exit status decides failure; code, state and text are the agent's; no key comes or goes."""
    more = {"message": "because", "from_": "1.0.0", "to": "1.1.0", "changed": changed}
    agent.says(upgrade=[[rc, say.answer(state, code, **more)]])
    result = run_module("upgrade", executable=agent.path, target=say.target())
    assert set(result) - {"failed", "invocation"} == KEYS
    assert (bool(result.get("failed")), result["changed"], result["state"], result["code"]) == (
        failed,
        changed,
        state,
        code,
    )
    assert result["msg"].startswith("because")
    assert (result["from"], result["to"]) == ("1.0.0", "1.1.0")


def test_check_mode_answers_what_prepare_does_refusals_included(agent: Any, run_module: Any, say: Any) -> None:
    """A refusal fails in check mode too; what would be done counts as a change, and the difference names both versions."""
    artifact = {"name": "n", "url": "u", "sha256": "s", "size": 5}
    fine = say.answer("idle", from_="1.0.0", to="1.1.0", artifact=artifact, reuse=False, sequence=2)
    agent.says(prepare=[[0, fine], [3, say.answer("refused", "expired", message="the release manifest expired")]])
    result = run_module("upgrade", check=True, executable=agent.path, target=say.target())
    assert (result["changed"], result["artifact"]) == (True, artifact)
    assert (result["diff"]["before"], result["diff"]["after"]) == ("slotward 1.0.0\n", "slotward 1.1.0\n")
    result = run_module("upgrade", check=True, executable=agent.path, target=say.target())
    assert (result["failed"], result["code"], result["changed"]) == (True, "expired", False)


@pytest.mark.parametrize("state", ["current", "ahead"])
def test_S14_S15_there_already_is_no_change(agent: Any, run_module: Any, say: Any, state: str) -> None:
    """A host on the release, or ahead of it, is fine and unchanged, in check mode too."""
    agent.says(prepare=[[0, say.answer(state)]], upgrade=[[0, say.answer(state)]])
    for check in (True, False):
        result = run_module("upgrade", check=check, executable=agent.path, target=say.target())
        assert (bool(result.get("failed")), result["changed"]) == (False, False)


def test_N7_no_artifact_for_this_platform_is_refused_with_those_there_are(
    agent: Any, run_module: Any, say: Any
) -> None:
    """The refusal comes before the agent is asked."""
    artifacts = {"linux-riscv64": say.target()["artifacts"]["linux-arm64"]}
    result = run_module("upgrade", executable=agent.path, target=say.target(artifacts=artifacts))
    assert (result["code"], result["state"]) == ("no-artifact", "refused")
    assert "linux-" + ARCH in result["msg"]
    assert "linux-riscv64" in result["msg"]
    assert agent.calls() == []


def test_after_a_failure_the_result_has_the_command_that_allows_a_retry(agent: Any, run_module: Any, say: Any) -> None:
    """L5: the command is exact, and in the message."""
    agent.says(upgrade=[[3, say.answer("refused", "failed-before", message="slotward 1.1.0 did not start")]])
    result = run_module("upgrade", executable=agent.path, target=say.target())
    assert result["retry"] == agent.path + " update --clear-failed 1.1.0"
    assert result["msg"].endswith(result["retry"])


def test_nothing_installed_says_how_to_install(tmp_path: Any, run_module: Any, say: Any) -> None:
    """No traceback, and the way out."""
    result = run_module("upgrade", executable=str(tmp_path / "none"), target=say.target())
    assert result["code"] == "not-installed"
    assert "slotward.fleet.install" in result["msg"]
    assert set(result) - {"failed", "invocation"} == KEYS


def test_an_answer_that_is_none_is_shown(agent: Any, run_module: Any, say: Any) -> None:
    """Whatever came instead of JSON is in the message."""
    agent.says(upgrade=[[1, "Segmentation fault"]])
    result = run_module("upgrade", executable=agent.path, target=say.target())
    assert result["code"] == "bad-answer"
    assert "Segmentation fault" in result["msg"]
