# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of upgrade, by ansible-playbook against hosts whose connection can be cut."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any, Dict, List

import pytest

WHY = "slotward 1.1.0 kept exiting by itself during its trial"


def begun(say: Any, left_s: int = 30, **more: Any) -> Dict[str, Any]:
    """The answer of a switch."""
    known = {
        "from_": "1.0.0",
        "to": "1.1.0",
        "sequence": 2,
        "changed": True,
        "from_sha256": "aa",
        "to_sha256": "bb",
        "missing": ["controller"],
    }
    found: Dict[str, Any] = say.answer("trial", "not-confirmed", trial=say.trial(left_s), **{**known, **more})
    return found


def confirmed(say: Any) -> Dict[str, Any]:
    """The answer of a confirmation."""
    found: Dict[str, Any] = say.answer("confirmed", changed=True, from_="1.0.0", to="1.1.0", floor=2, missing=[])
    return found


def rolled_back(say: Any) -> Dict[str, Any]:
    """The answer to a confirmation that comes too late."""
    retry = "slotward update --clear-failed 1.1.0"
    found: Dict[str, Any] = say.answer("rolled-back", "crash-loop", message=WHY, from_="1.0.0", to="1.1.0", retry=retry)
    return found


def unconfirmed(say: Any, **more: Any) -> Dict[str, Any]:
    """The answer of a confirmation while another source is missing."""
    pending = say.trial(20, missing=["gateway"], **more)
    found: Dict[str, Any] = say.answer(
        "trial", "not-confirmed", message="controller has confirmed", trial=pending, from_="1.0.0", to="1.1.0"
    )
    return found


def node(say: Any, **more: Any) -> List[List[Any]]:
    """The answers of `update`."""
    known: Dict[str, Any] = {
        "version": "1.0.0",
        "slots": {},
        "unit": {},
        "trial": None,
        "last": None,
        "lock": None,
        "failed": [],
        "floor": 1,
    }
    return [[0, say.answer("idle", **{**known, **more})]]


def play(stage: Any, say: Any, *options: str, **args: Any) -> Any:
    """One task on all hosts."""
    given = {"target": say.target(), "executable": "{{ agent_path }}", "reconnect_s": 6, **args}
    tasks = [{"name": "Upgrade", "slotward.fleet.upgrade": given}]
    return stage.play([{"hosts": "all", "gather_facts": False, "tasks": tasks}], *options, "-f", "10")


def test_a_trial_is_confirmed_by_its_id_over_a_new_connection(stage: Any, say: Any) -> None:
    """Switch, reset, confirm: two calls, one id that the controller chose, one new connection between them."""
    agent = stage.host("h1", upgrade=[[0, begun(say)]], confirm=[[0, confirmed(say)]])
    result = play(stage, say).of("h1", "Upgrade")
    assert (result["kind"], result["state"], result["code"], result["changed"]) == ("ok", "confirmed", "ok", True)
    assert (result["from"], result["to"], result["floor"], result["missing"]) == ("1.0.0", "1.1.0", 2, [])
    assert result["digests"] == {"from": "aa", "to": "bb"}
    assert (result["reason"], result["deadline_s"]) == (None, None)
    switch, confirm = agent.commands()
    trial_id = switch[switch.index("--id") + 1]
    assert len(trial_id) == 16
    assert re.fullmatch(r"20[0-9-]{8}T[0-9:]{8}Z", switch[switch.index("--server-time") + 1])
    assert [call["who"] for call in agent.calls()] == ["ansible", "ansible"]
    assert confirm[:3] == ["confirm", "--id", trial_id]
    assert result["trial_id"] == trial_id
    assert (agent.directory / "resets").read_text() == "reset\n"


def test_every_end_but_confirmation_fails_and_says_why(stage: Any, say: Any) -> None:
    """One run, many hosts: each ends in its own state, with its code, its reason and the way out."""
    stage.host("rolled", upgrade=[[0, begun(say)]], confirm=[[6, rolled_back(say)]])
    stage.host(
        "refused", upgrade=[[3, say.answer("refused", "below-floor", message="release sequence 1 is older than 2")]]
    )
    stage.host("missing", upgrade=[[0, begun(say)]], confirm=[[6, unconfirmed(say)]])
    stage.host("current", upgrade=[[0, say.answer("current", from_="1.1.0", to="1.1.0")]])
    stage.host("busy", upgrade=[[4, say.answer("failed", "in-progress", message="process 7 is at it, for 3 s")]])
    stage.host("down").says(upgrade=[[0, begun(say)]])
    (stage.directory / "down" / "cut").write_text("99999999999")
    played = play(stage, say)

    rolled = played.of("rolled", "Upgrade")
    assert (rolled["kind"], rolled["state"], rolled["code"], rolled["reason"]) == (
        "failed",
        "rolled-back",
        "crash-loop",
        WHY,
    )
    assert rolled["retry"] in rolled["msg"]
    assert rolled["changed"] is True
    refused = played.of("refused", "Upgrade")
    assert (refused["kind"], refused["state"], refused["code"], refused["changed"]) == (
        "failed",
        "refused",
        "below-floor",
        False,
    )
    missing = played.of("missing", "Upgrade")
    assert (missing["kind"], missing["state"], missing["code"], missing["missing"]) == (
        "failed",
        "trial",
        "not-confirmed",
        ["gateway"],
    )
    assert (missing["deadline_s"], missing["boots_left"]) == (20, 3)
    current = played.of("current", "Upgrade")
    assert (current["kind"], current["state"], current["changed"]) == ("ok", "current", False)
    busy = played.of("busy", "Upgrade")
    assert (busy["kind"], busy["code"]) == ("failed", "in-progress")
    down = played.of("down", "Upgrade")
    assert (down["kind"], down["code"], down["state"]) == ("failed", "unreachable", "unknown")
    assert set(down) >= {"from", "to", "retry", "trial_id", "deadline_s", "missing"}
    assert played.rc == 2
    assert len(stage.agents["missing"].commands()) >= 3, "a missing source is asked for again"


def test_a_program_that_gives_no_answer_is_asked_until_the_good_one_does(stage: Any, say: Any) -> None:
    """The agent is what is asked: a release of it that crashes at once says nothing until the host has gone back by itself."""
    crash = "Traceback (most recent call last):\nSystemExit: 1"
    deaf = [[1, crash], [1, crash], [6, rolled_back(say)]]
    stage.host("crashes", upgrade=[[0, begun(say)]], confirm=deaf)
    stage.host("cannot-start", upgrade=[[0, begun(say)]], confirm=[[127, ""], [126, ""], [6, rolled_back(say)]])
    probed = {"id": "1" * 16, "state": "rolled-back", "code": "crash-loop", "why": WHY, "from": "1.0.0", "to": "1.1.0"}
    looks: Any = [[1, crash], [1, crash], [0, say.answer("idle", last=probed, trial=None)]]
    watched = begun(say, missing=["probe"])
    watched["trial"]["missing"] = ["probe"]
    stage.host("watched", upgrade=[[0, watched]], update=looks, settle=[[1, crash]])
    stage.host("never", upgrade=[[0, begun(say, left_s=1)]], confirm=[[1, crash]])
    played = play(stage, say, id="1" * 16)
    for name in ("crashes", "cannot-start", "watched"):
        ended = played.of(name, "Upgrade")
        assert (ended["kind"], ended["state"], ended["code"]) == ("failed", "rolled-back", "crash-loop"), (name, ended)
        assert ended["retry"].endswith("update --clear-failed 1.1.0"), name
        assert ended["reason"] == WHY
    never = played.of("never", "Upgrade")
    assert (never["kind"], never["state"], never["code"]) == ("failed", "trial", "not-confirmed")
    assert "gave no answer" in never["msg"]
    assert "ended with status 1 and without a JSON answer: Traceback" in never["msg"]
    assert "goes back by itself" in never["msg"]


def test_C11_S8_what_a_lost_connection_leaves(stage: Any, say: Any) -> None:
    """After the switch the host decides; the controller confirms when it gets through in time, else says what is not known."""
    stage.host("short", upgrade=[[0, begun(say), "cut:2"]], confirm=[[0, confirmed(say)]])
    stage.host("long", upgrade=[[0, begun(say), "cut:60"]])
    stage.host("late", upgrade=[[0, begun(say)]], confirm=[[6, unconfirmed(say), "cut:60"]])
    ended = {
        "id": "0" * 16,
        "from": "1.0.0",
        "to": "1.1.0",
        "state": "rolled-back",
        "code": "deadline-passed",
        "why": "x",
        "at": 1,
    }
    never = say.answer("refused", "no-trial", message="no trial of slotward is pending")
    stage.host("never", upgrade=[[0, begun(say), "cut:1"]], confirm=[[3, never]], update=node(say, last=ended))
    played = play(stage, say)

    short = played.of("short", "Upgrade")
    assert (short["kind"], short["state"], short["to"], short["changed"]) == ("ok", "confirmed", "1.1.0", True)
    long = played.of("long", "Upgrade")
    assert (long["kind"], long["state"], long["code"]) == ("failed", "unknown", "not-confirmed")
    assert "goes back by itself" in long["msg"]
    assert long["trial_id"] in long["msg"]
    late = played.of("late", "Upgrade")
    assert (late["kind"], late["state"], late["code"]) == ("failed", "trial", "not-confirmed")
    assert late["deadline_s"] < 30
    assert (late["from"], late["to"]) == ("1.0.0", "1.1.0")
    never_ = played.of("never", "Upgrade")
    assert (never_["kind"], never_["code"]) == ("failed", "no-trial")
    assert played.seconds < 45, "the bound holds"


def test_a_busy_host_is_waited_for_when_the_answer_was_lost(stage: Any, say: Any) -> None:
    """No trial is known yet, but the lock says that somebody is at it; then the trial is there and is confirmed."""
    none = say.answer("refused", "no-trial", message="no trial of slotward is pending")
    lock = {"pid": 7, "age_s": 1, "what": "upgrade to 1.1.0"}
    answers = [[3, none], [3, none], [3, none], [3, none], [0, confirmed(say)]]
    agent = stage.host("h1", upgrade=[[0, begun(say), "cut:1"]], confirm=answers, update=node(say, lock=lock))
    result = play(stage, say, reconnect_s=20).of("h1", "Upgrade")
    assert (result["kind"], result["state"]) == ("ok", "confirmed")
    assert len(agent.commands()) >= 6


def test_an_interrupted_run_is_taken_up_again(stage: Any, say: Any) -> None:
    """A trial of the same release is seen through; one of another release is left alone."""
    pending = say.answer("failed", "trial-pending", message="an update is already in progress")
    ours = say.trial(25, id="1" * 16)
    theirs = say.trial(25, id="2" * 16, to="1.0.5")
    mine = stage.host("mine", upgrade=[[4, pending]], update=node(say, trial=ours), confirm=[[0, confirmed(say)]])
    stage.host("other", upgrade=[[4, pending]], update=node(say, trial=theirs))
    played = play(stage, say)
    result = played.of("mine", "Upgrade")
    assert (result["kind"], result["state"], result["trial_id"]) == ("ok", "confirmed", "1" * 16)
    assert mine.commands()[-1][:3] == ["confirm", "--id", "1" * 16]
    other = played.of("other", "Upgrade")
    assert (other["kind"], other["code"], other["changed"]) == ("failed", "trial-pending", False)


def test_by_hand_the_trial_is_left_open(stage: Any, say: Any) -> None:
    """With confirm=false the state is `trial`: neither success nor failure, with the id to confirm it by."""
    agent = stage.host("h1", upgrade=[[0, begun(say)]])
    result = play(stage, say, confirm=False).of("h1", "Upgrade")
    assert (result["kind"], result["state"], result["code"]) == ("ok", "trial", "not-confirmed")
    assert (result["deadline_s"], result["boots_left"], result["missing"]) == (30, 3, ["controller"])
    assert len(agent.commands()) == 1


def test_check_mode_asks_prepare_and_nothing_else(stage: Any, say: Any) -> None:
    """What prepare answers, refusals included."""
    fine = stage.host("fine", prepare=[[0, say.answer("idle", from_="1.0.0", to="1.1.0", reuse=True)]])
    stage.host(
        "expired", prepare=[[3, say.answer("refused", "expired", message="the release manifest expired at noon")]]
    )
    played = play(stage, say, "--check", "--diff")
    result = played.of("fine", "Upgrade")
    assert (result["changed"], result["reuse"]) == (True, True)
    assert "-slotward 1.0.0\n+slotward 1.1.0\n" in played.out
    ((*asked, clock, as_json),) = fine.commands()
    assert (asked, as_json) == (["prepare", "--target", "-", "--server-time"], "--json")
    now = dt.datetime.now(dt.timezone.utc)
    assert abs(now - dt.datetime.fromisoformat(clock)) < dt.timedelta(minutes=5)
    refused = played.of("expired", "Upgrade")
    assert (refused["kind"], refused["code"], refused["msg"]) == (
        "failed",
        "expired",
        "the release manifest expired at noon",
    )


def test_a_release_is_read_and_checked_on_the_controller(stage: Any, say: Any, release: Any, keys: Any) -> None:
    """With pins the controller refuses before any host is touched; the host is sent the published bytes."""
    made = release()
    agent = stage.host("h1", upgrade=[[0, say.answer("current")]])
    args = {
        "target": None,
        "release": str(made.directory),
        "pins": list(keys.pins),
        "url": "https://mirror.example/1.1.0/",
    }
    args = {key: value for key, value in args.items() if value is not None}

    def go(**more: Any) -> Any:
        task = {"name": "Upgrade", "slotward.fleet.upgrade": {"executable": "{{ agent_path }}", **args, **more}}
        return stage.play([{"hosts": "all", "gather_facts": False, "tasks": [task]}])

    result = go(threshold=3).of("h1", "Upgrade")
    assert (result["code"], result["state"], result["kind"]) == ("too-few-signatures", "refused", "failed")
    assert go(threshold=2, version="2.0.0").of("h1", "Upgrade")["code"] == "wrong-version"
    assert agent.calls() == []
    assert go(threshold=2, version="1.1.0").of("h1", "Upgrade")["kind"] == "ok"
    sent = agent.calls()[0]["stdin"]
    assert "https://mirror.example/1.1.0/slotward_1.1.0_linux_amd64" in sent
    assert json.loads(sent)["signature"] == (made.directory / "manifest.json").read_text()


def test_pushing_copies_only_what_the_host_needs(stage: Any, say: Any, release: Any) -> None:
    """The host is asked first; the file goes there once, checked before, and its path is handed to the agent."""
    made = release(data=b"#!/program to push")
    artifact = {"name": "n", "url": "", "sha256": "s", "size": 17}
    needs = stage.host(
        "needs", prepare=[[0, say.answer("idle", artifact=artifact)]], upgrade=[[0, say.answer("staged", changed=True)]]
    )
    has = stage.host(
        "has", prepare=[[0, say.answer("idle", artifact=None, reuse=True)]], upgrade=[[0, say.answer("staged")]]
    )
    no = stage.host("no", prepare=[[3, say.answer("refused", "no-pins", message="no release keys are pinned")]])
    args = {"release": str(made.directory), "push": True, "stage_only": True, "executable": "{{ agent_path }}"}
    args["url"] = "https://releases.invalid/1.1.0"
    task = {"name": "Upgrade", "slotward.fleet.upgrade": args}
    played = stage.play([{"hosts": "all", "gather_facts": False, "tasks": [task]}])
    words = needs.commands()[-1]
    assert words[words.index("--src") + 1].endswith("/slotward_1.1.0_linux_amd64")
    assert [json.loads(call["stdin"])["url"] for call in needs.calls()] == ["", ""]  # nothing is looked for there
    assert "--src" not in has.commands()[-1]
    assert played.of("no", "Upgrade")["code"] == "no-pins"
    assert len(no.commands()) == 1
    (made.directory / "slotward_1.1.0_linux_amd64").write_bytes(b"#!/program t0 push")
    needs.says(prepare=[[0, say.answer("idle", artifact=artifact)]])
    again = stage.play([{"hosts": "needs", "gather_facts": False, "tasks": [task]}])
    assert again.of("needs", "Upgrade")["code"] == "digest-mismatch"


@pytest.mark.parametrize("args", [{}, {"release": "/x", "target": {}}])
def test_a_release_or_a_target_is_needed(stage: Any, args: Any) -> None:
    """Neither and both are errors of the task."""
    stage.host("h1")
    task = {"name": "Upgrade", "slotward.fleet.upgrade": args}
    assert stage.play([{"hosts": "all", "gather_facts": False, "tasks": [task]}]).rc == 2


STONE = {"version": "1.0.5", "sequence": 1, "min_from": "1.0.0", "manifest": "{}"}
BELOW = "slotward 1.1.0 takes over from 1.0.5 or later, not from 1.0.0"


def below(stage: Any, say: Any, name: str, *switches: Any, **more: Any) -> Any:
    """A host that is below the target's minFrom; then what its switches answer."""
    refused = say.answer("refused", "below-min-from", message=BELOW, from_="1.0.0", to="1.1.0")
    answers = {"upgrade": [[3, refused], *switches], "prepare": [[3, refused]], "update": node(say), **more}
    return stage.host(name, **answers)


def stones(say: Any, **more: Any) -> Dict[str, Any]:
    """The task's arguments for a target with a stepping stone."""
    return {"target": say.target(min_from="1.0.5"), "stones": [say.target(**{**STONE, **more})]}


def test_N17_a_host_below_min_from_goes_over_the_stone(stage: Any, say: Any) -> None:
    """Each step is confirmed before the next, by an id of its own; the result is one way from what ran to what was asked for."""
    first = say.answer("confirmed", changed=True, from_="1.0.0", to="1.0.5", floor=1)
    agent = below(stage, say, "h1", [0, begun(say, to="1.0.5")], [0, begun(say, from_="1.0.5")], confirm=[[0, first], [0, confirmed(say)]])  # fmt: skip
    result = play(stage, say, **stones(say)).of("h1", "Upgrade")
    assert (result["kind"], result["state"], result["changed"]) == ("ok", "confirmed", True)
    assert (result["from"], result["to"]) == ("1.0.0", "1.1.0")
    assert [(step["version"], step["state"]) for step in result["steps"]] == [("1.0.5", "confirmed"), ("1.1.0", "confirmed")]  # fmt: skip
    calls = agent.calls()
    assert [call["argv"][0] for call in calls] == ["upgrade", "update", "upgrade", "confirm", "upgrade", "confirm"]
    assert [json.loads(calls[number]["stdin"])["version"] for number in (2, 4)] == ["1.0.5", "1.1.0"]
    assert [calls[number]["argv"][2] for number in (3, 5)] == [step["trial_id"] for step in result["steps"]]
    assert calls[3]["argv"][2] != calls[5]["argv"][2]


def test_a_stone_that_goes_back_ends_the_way(stage: Any, say: Any) -> None:
    """The target is not tried; the result is the stone's, and says what was not done."""
    agent = below(stage, say, "h1", [0, begun(say, to="1.0.5")], confirm=[[6, rolled_back(say)]])
    result = play(stage, say, **stones(say)).of("h1", "Upgrade")
    assert (result["kind"], result["state"], result["code"]) == ("failed", "rolled-back", "crash-loop")
    assert [step["state"] for step in result["steps"]] == ["rolled-back", "planned"]
    assert [words[0] for words in agent.commands()] == ["upgrade", "update", "upgrade", "confirm"]


def test_no_way_is_the_refusal_with_what_is_missing(stage: Any, say: Any) -> None:
    """Without stones the host's own word; with stones that lead nowhere, what each of them asks for."""
    below(stage, say, "h1")
    plain = play(stage, say).of("h1", "Upgrade")
    assert (plain["kind"], plain["code"], plain["msg"], plain["steps"]) == ("failed", "below-min-from", BELOW, [])
    nowhere = play(stage, say, **stones(say, min_from="1.0.3")).of("h1", "Upgrade")
    assert (nowhere["kind"], nowhere["code"], nowhere["changed"]) == ("failed", "below-min-from", False)
    assert "1.0.5 (from 1.0.3 on)" in nowhere["msg"]


def test_check_mode_shows_the_way(stage: Any, say: Any) -> None:
    """Nothing is done on the host; the direct way's refusal is no failure when there is another way."""
    agent = below(stage, say, "h1")
    played = play(stage, say, "--check", "--diff", **stones(say))
    result = played.of("h1", "Upgrade")
    assert "-slotward 1.0.0\n+slotward 1.0.5\n+slotward 1.1.0\n" in played.out
    assert (result["kind"], result["changed"], result["code"]) == ("ok", True, "ok")
    assert [(step["version"], step["state"]) for step in result["steps"]] == [("1.0.5", "planned"), ("1.1.0", "planned")]  # fmt: skip
    assert [words[0] for words in agent.commands()] == ["prepare", "update"]


def test_staging_stages_the_first_stone(stage: Any, say: Any) -> None:
    """The rest is fetched on the way."""
    staged = say.answer("staged", changed=True, from_="1.0.0", to="1.0.5")
    agent = below(stage, say, "h1", [0, staged])
    result = play(stage, say, stage_only=True, **stones(say)).of("h1", "Upgrade")
    assert (result["kind"], result["state"], result["to"]) == ("ok", "staged", "1.0.5")
    assert [step["state"] for step in result["steps"]] == ["staged", "planned"]
    assert [words[0] for words in agent.commands()] == ["upgrade", "update", "upgrade"]


def test_a_stone_that_no_host_can_fetch_is_sent(stage: Any, say: Any, release: Any) -> None:
    """The batch was staged by a task before; the stones after the first come from the controller all the same."""
    first = release("1.0.5", 1).directory
    last = release("1.1.0", 2, min_from="1.0.5").directory
    fetch = {"name": "slotward_linux_amd64", "url": "", "sha256": "ab" * 32, "size": 9}
    planned = say.answer("idle", from_="1.0.0", to="1.1.0", artifact=fetch)
    refused = say.answer("refused", "below-min-from", message=BELOW, from_="1.0.0", to="1.1.0")
    there = say.answer("confirmed", changed=True, from_="1.0.0", to="1.0.5", floor=1)
    agent = stage.host(
        "h1",
        upgrade=[[3, refused], [0, begun(say, to="1.0.5")], [0, begun(say, from_="1.0.5")]],
        confirm=[[0, there], [0, confirmed(say)]],
        prepare=[[0, dict(planned, artifact=None)], [0, planned]],
        update=node(say),
    )
    task = {"name": "Upgrade", "slotward.fleet.upgrade": {"executable": "{{ agent_path }}", "release": str(last)}}
    result = stage.play([{"hosts": "all", "gather_facts": False, "tasks": [task]}]).of("h1", "Upgrade")
    assert (result["kind"], [step["state"] for step in result["steps"]]) == ("ok", ["confirmed", "confirmed"]), first
    words = [words for words in agent.commands() if words[0] == "upgrade"]
    assert ["--src" in line for line in words] == [False, False, True]
