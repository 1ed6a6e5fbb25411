# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade and rollback for products: by version, by digest, held, waiting for a word, decided by probes, and back after confirmation."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest

HOLD = {"why": "incident 4711", "owner": "ana", "until": None, "at": 1}
STAGED = "edge 2.4.0 is staged: slotward apply --product edge switches to it"


def begun(say: Any, *missing: str, **more: Any) -> List[Any]:
    """The answer of a switch, which waits for these sources."""
    known = {"from_": "2.3.0", "to": "2.4.0", "sequence": 4, "changed": True, "missing": list(missing)}
    pending = say.trial(20, missing=list(missing), **{"from": "2.3.0", "to": "2.4.0"})
    return [0, say.answer("trial", "not-confirmed", product="edge", trial=pending, **{**known, **more})]


def confirmed(say: Any) -> List[Any]:
    """The answer of a confirmation."""
    return [0, say.answer("confirmed", product="edge", changed=True, from_="2.3.0", to="2.4.0", floor=4, missing=[])]


def ended(state: str, code: str, why: str = "") -> Dict[str, Any]:
    """How the host remembers the last trial."""
    return {"id": "@ID@", "from": "2.3.0", "to": "2.4.0", "state": state, "code": code, "why": why, "at": 1}


def seen(say: Any, **more: Any) -> List[Any]:
    """An answer of `update`."""
    known: Dict[str, Any] = {"product": "edge", "version": "2.3.0", "trial": None, "last": None, "lock": None}
    return [0, say.answer("idle", **{**known, **more})]


def play(stage: Any, module: str, *options: str, **args: Any) -> Any:
    """One task on all hosts."""
    given = {"product": "edge", "executable": "{{ agent_path }}", "reconnect_s": 8, **args}
    given = {key: value for key, value in given.items() if value is not None}
    task = {"name": "Do", "slotward.fleet." + module: given}
    return stage.play([{"hosts": "all", "gather_facts": False, "tasks": [task]}], *options, "-f", "10")


def plain(agent: Any) -> List[List[str]]:
    """The words of each call, without what all have and what differs from run to run."""
    lines = []
    for line in agent.commands():
        assert line[-3:] == ["--product", "edge", "--json"], line
        words = line[:-3]
        for flag in ("--server-time", "--id", "--wait"):
            if flag in words:
                at = words.index(flag)
                words = words[:at] + words[at + 2 :]
        lines.append(words)
    return lines


def test_a_version_and_a_channel_are_enough_where_the_product_has_a_source(stage: Any, say: Any) -> None:
    """No address and no manifest is sent; staging, check mode and the switch name the same."""
    which = ["--version", "2.4.0", "--channel", "beta", "--variant", "musl"]
    agent = stage.host(
        "h1",
        upgrade=[begun(say, "controller"), [0, say.answer("staged", changed=True)]],
        confirm=[confirmed(say)],
        prepare=[[0, say.answer("idle", from_="2.3.0", to="2.4.0")]],
    )
    args = {"version": "2.4.0", "channel": "beta", "variant": "musl"}
    result = play(stage, "upgrade", **args).of("h1", "Do")
    assert (result["kind"], result["state"], result["to"], result["sequence"]) == ("ok", "confirmed", "2.4.0", 4)
    assert play(stage, "upgrade", "--check", **args).of("h1", "Do")["changed"] is True
    assert play(stage, "upgrade", stage_only=True, **args).of("h1", "Do")["state"] == "staged"
    assert plain(agent) == [
        ["upgrade", *which, "--no-wait"],
        ["confirm"],
        ["prepare", *which],
        ["upgrade", *which, "--stage-only"],
    ]
    assert {call["stdin"] for call in agent.calls()} == {""}


@pytest.mark.parametrize(
    "args",
    [
        {"apply": False},
        {"push": True, "version": "1.0.0"},
        {"sha256": {"amd64": "0" * 64}},
        {"sha256": {"amd64": "0" * 64}, "release": "/x", "pins": ["p"]},
    ],
)
def test_what_does_not_go_together_is_an_error_of_the_task(stage: Any, args: Any) -> None:
    """No host is asked."""
    agent = stage.host("h1")
    assert play(stage, "upgrade", **args).rc == 2
    assert agent.calls() == []


def test_C9_a_hold_is_no_failure_and_closed_times_say_when(stage: Any, say: Any) -> None:
    """Held: who, why, until when. Outside the window, frozen, vetoed: to be tried again, and when."""
    stage.host("held", upgrade=[[3, say.answer("refused", "held", message="held by ana: incident 4711", hold=HOLD)]])
    for code in ("outside-window", "frozen", "vetoed"):
        stage.host(code, upgrade=[[4, say.answer("failed", code, message="later", next_at=1798135200)]])
    played = play(stage, "upgrade", version="2.4.0")
    held = played.of("held", "Do")
    assert (held["kind"], held["state"], held["code"], held["changed"]) == ("ok", "held", "held", False)
    assert (held["hold"], held["reason"]) == (HOLD, "held by ana: incident 4711")
    for code in ("outside-window", "frozen", "vetoed"):
        result = played.of(code, "Do")
        assert (result["kind"], result["code"], result["next_at"]) == ("failed", code, 1798135200)
    stage.agents["held"].says(prepare=[[3, say.answer("refused", "held", message="held", hold=HOLD)]])
    result = play(stage, "upgrade", "--check", "--limit", "held", version="2.4.0").of("held", "Do")
    assert (result["kind"], result["state"], result["changed"]) == ("ok", "held", False)


def test_a_release_waits_for_a_word_and_is_applied_with_it(stage: Any, say: Any) -> None:
    """manual: staged is no failure; `apply` stages when needed and switches; alone it switches to what is staged."""
    waits = [0, say.answer("staged", "staged-manual", message=STAGED, changed=True, from_="2.3.0", to="2.4.0")]
    agent = stage.host(
        "h1",
        upgrade=[waits],
        apply=[begun(say, "controller"), begun(say, "controller"), [0, say.answer("idle", from_="2.3.0", to="2.4.0")]],
        confirm=[confirmed(say)],
    )
    result = play(stage, "upgrade", version="2.4.0").of("h1", "Do")
    assert (result["kind"], result["state"], result["code"], result["msg"]) == ("ok", "staged", "staged-manual", STAGED)
    result = play(stage, "upgrade", version="2.4.0", apply=True, force=True).of("h1", "Do")
    assert (result["kind"], result["state"], result["to"]) == ("ok", "confirmed", "2.4.0")
    result = play(stage, "upgrade", apply=True).of("h1", "Do")
    assert (result["kind"], result["state"], result["to"]) == ("ok", "confirmed", "2.4.0")
    result = play(stage, "upgrade", "--check", apply=True).of("h1", "Do")
    assert (result["kind"], result["changed"], result["to"]) == ("ok", True, "2.4.0")
    nothing = [0, say.answer("idle", message="nothing of edge is staged: nothing to do")]
    agent.says(apply=[nothing])
    for options in ((), ("--check",)):
        result = play(stage, "upgrade", *options, apply=True, accept_one_way=True).of("h1", "Do")
        assert (result["kind"], result["changed"], result["msg"]) == ("ok", False, nothing[1]["message"])
    which = ["--version", "2.4.0"]
    assert plain(agent) == [
        ["upgrade", *which, "--no-wait"],
        ["upgrade", *which, "--force", "--no-wait"],
        ["apply", "--force", "--no-wait"],
        ["confirm"],
        ["apply", "--no-wait"],
        ["confirm"],
        ["apply", "--check"],
        ["apply", "--accept-one-way", "--no-wait"],
        ["apply", "--accept-one-way", "--check"],
    ]


def test_where_probes_alone_decide_the_controller_watches(stage: Any, say: Any) -> None:
    """It confirms nothing: it sees the host confirm, go back, or be settled by its own word; a late refusal makes it watch too."""
    pending = seen(say, trial=say.trial(20, missing=["probe"], to="2.4.0"))
    good, bad = ended("confirmed", "ok"), ended("rolled-back", "probe-failed", "probe page: 500")
    well = stage.host("well", upgrade=[begun(say, "probe")], update=[pending, pending, seen(say, last=good)])
    stage.host("back", upgrade=[begun(say, "probe")], update=[pending, seen(say, last=bad)])
    settled = stage.host(
        "settled",
        upgrade=[begun(say, "probe")],
        update=[seen(say), seen(say, last=good)],
        settle=[[0, say.answer("idle")]],
    )
    wrong = [3, say.answer("refused", "wrong-source", message="controller does not confirm edge on this host")]
    late = stage.host("late", upgrade=[begun(say)], confirm=[wrong], update=[seen(say, last=good)])
    for name in stage.agents:
        path = stage.agents[name].directory / "answers.json"
        path.write_text(path.read_text().replace("@ID@", "9f8a6c1e22d04b57"))
    played = play(stage, "upgrade", version="2.4.0", id="9f8a6c1e22d04b57")
    for name in ("well", "settled", "late"):
        result = played.of(name, "Do")
        assert (result["kind"], result["state"], result["code"]) == ("ok", "confirmed", "ok"), name
    assert [line[0] for line in well.commands()] == ["upgrade", "update", "update", "update"]
    assert [line[0] for line in settled.commands()] == ["upgrade", "update", "settle", "update"]
    assert [line[0] for line in late.commands()] == ["upgrade", "confirm", "update"]
    back = played.of("back", "Do")
    assert (back["kind"], back["state"], back["code"], back["reason"]) == (
        "failed",
        "rolled-back",
        "probe-failed",
        "probe page: 500",
    )
    assert back["retry"] == "%s update --product edge --clear-failed 2.4.0" % stage.agents["back"].path


def test_a_digest_from_root_needs_no_manifest(stage: Any, say: Any) -> None:
    """trust = digest: the word has the digest of this host's platform and no signature."""
    agent = stage.host("h1", upgrade=[[0, say.answer("current", from_="2.4.0", to="2.4.0")]])
    digests = {"amd64": "ab" * 32, "arm64": "cd" * 32}
    args = {"release": "https://r.example/edge/2.4.0", "version": "2.4.0", "sha256": digests, "channel": "beta"}
    assert play(stage, "upgrade", **args).of("h1", "Do")["kind"] == "ok"
    word = json.loads(agent.calls()[0]["stdin"])
    assert (word["product"], word["version"], word["signature"], word["channel"]) == ("edge", "2.4.0", "", "beta")
    assert word["sha256"] in digests.values()
    assert word["url"].startswith("https://r.example/edge/2.4.0/edge_2.4.0_linux_")
    del args["release"]
    assert play(stage, "upgrade", **args).of("h1", "Do")["kind"] == "ok"
    assert json.loads(agent.calls()[1]["stdin"]) == {**word, "url": ""}, "the product's source knows where it is"


def test_a_variant_is_chosen_from_the_release(stage: Any, say: Any) -> None:
    """By the key that release_info gives it; a release without it is refused before the host is asked."""
    agent = stage.host("h1", upgrade=[[0, say.answer("current", from_="1.1.0", to="1.1.0")]])
    target = say.target(product="edge")
    for name, entry in list(target["artifacts"].items()):
        target["artifacts"][name + "/musl"] = dict(entry, sha256="ef" * 32)
    assert play(stage, "upgrade", product=None, target=target, variant="musl").of("h1", "Do")["kind"] == "ok"
    word = json.loads(agent.calls()[0]["stdin"])
    assert (word["sha256"], word["variant"]) == ("ef" * 32, "musl")
    refused = play(stage, "upgrade", product=None, target=target, variant="full").of("h1", "Do")
    assert (refused["kind"], refused["code"], "linux-amd64/musl" in refused["msg"]) == ("failed", "no-artifact", True)


def test_back_after_confirmation_is_a_trial_that_is_seen_through(stage: Any, say: Any) -> None:
    """To the release before or to a version; check mode asks; a refusal below the floor is handed on."""
    back = begun(say, "controller", from_="2.4.0", to="2.3.0", hold=HOLD)
    done = [0, say.answer("confirmed", product="edge", changed=True, from_="2.4.0", to="2.3.0", missing=[])]
    floor = [
        3,
        say.answer("refused", "below-floor", message="2.2.0 is below the floor; floor = previous keeps it open"),
    ]
    plan = [0, say.answer("idle", product="edge", from_="2.4.0", to="2.3.0")]
    agent = stage.host("h1", rollback=[back, plan, floor], confirm=[done])
    result = play(stage, "rollback", to="previous", why="memory grows").of("h1", "Do")
    assert (result["kind"], result["state"], result["from"], result["to"]) == ("ok", "confirmed", "2.4.0", "2.3.0")
    assert not {"artifact", "steps", "reuse"} & set(result)
    result = play(stage, "rollback", "--check", "--diff", to="2.3.0")
    assert result.of("h1", "Do")["changed"] is True
    assert "-edge 2.4.0\n+edge 2.3.0\n" in result.out
    refused = play(stage, "rollback", to="2.2.0").of("h1", "Do")
    assert (refused["kind"], refused["code"], refused["changed"]) == ("failed", "below-floor", False)
    assert plain(agent) == [
        ["rollback", "--to", "previous", "--why", "memory grows", "--no-wait"],
        ["confirm"],
        ["rollback", "--to", "2.3.0", "--check"],
        ["rollback", "--to", "2.2.0", "--no-wait"],
    ]


def test_a_release_whose_unit_has_failed_is_replaced_by_whoever_agrees_to_a_start(stage: Any, say: Any) -> None:
    """Forward, back and by a word, looked at and done; nobody agrees by saying nothing."""
    refused = [3, say.answer("refused", "unit-not-running", message="edge.service is failed: agree with --start")]
    plan = [0, say.answer("idle", product="edge", from_="2.4.0", to="2.4.1")]
    agent = stage.host(
        "h1",
        upgrade=[refused, begun(say, "controller")],
        rollback=[begun(say, "controller")],
        apply=[begun(say, "controller")],
        prepare=[plan],
        confirm=[confirmed(say)],
    )
    result = play(stage, "upgrade", version="2.4.1").of("h1", "Do")
    assert (result["kind"], result["code"]) == ("failed", "unit-not-running")
    for name, args in (
        ("upgrade", {"version": "2.4.1"}),
        ("rollback", {"to": "previous"}),
        ("upgrade", {"apply": True}),
    ):
        result = play(stage, name, start=True, **args).of("h1", "Do")
        assert (result["kind"], result["state"]) == ("ok", "confirmed"), args
    assert play(stage, "upgrade", "--check", version="2.4.1", start=True).of("h1", "Do")["changed"] is True
    assert plain(agent) == [
        ["upgrade", "--version", "2.4.1", "--no-wait"],
        ["upgrade", "--version", "2.4.1", "--start", "--no-wait"],
        ["confirm"],
        ["rollback", "--to", "previous", "--start", "--no-wait"],
        ["confirm"],
        ["apply", "--start", "--no-wait"],
        ["confirm"],
        ["prepare", "--version", "2.4.1", "--start"],
    ]


def test_a_trial_is_still_taken_back_on_the_host(stage: Any, say: Any) -> None:
    """Without `to` the module does it there in one call; a host that is away is a failed one."""
    done = say.answer("rolled-back", "operator", product="edge", changed=True, from_="2.4.0", to="2.3.0")
    agent = stage.host("h1", rollback=[[0, done]])
    stage.host("gone")
    (stage.directory / "gone" / "cut").write_text("99999999999")
    played = play(stage, "rollback", why="x", reconnect_s=None)
    result = played.of("h1", "Do")
    assert (result["kind"], result["state"], result["changed"]) == ("ok", "rolled-back", True)
    assert plain(agent) == [["rollback", "--why", "x"]]
    assert (played.of("gone", "Do")["kind"], played.of("gone", "Do")["code"]) == ("failed", "unreachable")
