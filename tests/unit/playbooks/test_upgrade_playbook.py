# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml: batches, and a gate that nothing gets through (field cases F1, F11)."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

PLAYBOOK = "slotward.fleet.upgrade"
NAMES = ("h1", "h2", "h3", "h4")


class Fleet:
    """Four hosts that would all be upgraded, unless told otherwise, and the playbook."""

    def __init__(self, stage: Any, say: Any, directory: str) -> None:
        self.stage = stage
        self.say = say
        self.variables = {"target": "all", "upgrade_release": directory, "upgrade_serial": [1, 2, 1]}
        self.variables["upgrade_url"] = "https://releases.invalid/slotward/1.1.0"
        staged = say.answer("staged", changed=True, from_="1.0.0", to="1.1.0")
        trial = say.answer("trial", "not-confirmed", trial=say.trial(5), changed=True, from_="1.0.0", to="1.1.0")
        done = say.answer("confirmed", changed=True, from_="1.0.0", to="1.1.0", floor=2)
        self.good: Dict[str, List[List[Any]]] = {
            "upgrade": [[0, staged], [0, trial]],
            "confirm": [[0, done]],
            "prepare": [[0, say.answer("idle", from_="1.0.0", to="1.1.0", artifact={"name": "x"})]],
        }
        for name in NAMES:
            stage.host(name, **self.good)

    def tell(self, name: str, **answers: Any) -> None:
        """Let one host answer otherwise."""
        self.stage.agents[name].says(**{**self.good, **answers})

    def cut(self, name: str) -> None:
        """Take one host off the network."""
        (self.stage.directory / name / "cut").write_text("99999999999")

    def play(self, *options: str, **more: Any) -> Any:
        """Run it."""
        return self.stage.play(PLAYBOOK, *options, **{**self.variables, **more})

    def calls(self) -> Dict[str, List[str]]:
        """Which commands each host got, in their order."""
        return {name: [words[0] for words in agent.commands()] for name, agent in self.stage.agents.items()}


@pytest.fixture
def fleet(stage: Any, say: Any, release: Any) -> Fleet:
    """Four hosts and a signed release."""
    return Fleet(stage, say, str(release().directory))


WHOLE = ["upgrade", "upgrade", "confirm"]


def test_a_start_is_agreed_to_for_both_steps(fleet: Fleet) -> None:
    """What is staged is judged as what is switched to is."""
    fleet.play(upgrade_start=True)
    fleet.play("--limit", "h1")
    said = [words for words in fleet.stage.agents["h1"].commands() if words[0] == "upgrade"]
    assert ["--start" in words for words in said] == [True, True, False, False]


def test_every_host_is_upgraded_in_its_batch_with_three_commands(fleet: Fleet) -> None:
    """Stage, switch, confirm; the release is read once for a batch."""
    played = fleet.play()
    assert played.rc == 0, played.out
    assert fleet.calls() == dict.fromkeys(NAMES, WHOLE)
    order = [line["host"] for line in played.results if line["task"] == "Switch, connect anew, confirm"]
    assert (order[0], set(order[1:3]), order[3]) == ("h1", {"h2", "h3"}, "h4")
    assert len([line for line in played.results if line["task"] == "Read and verify the release"]) == 3


def test_F1_an_unreachable_host_ends_the_run(fleet: Fleet) -> None:
    """In the second batch: the first is done, the third is not touched, and no host of the second switches."""
    fleet.cut("h3")
    played = fleet.play()
    assert played.rc != 0
    assert fleet.calls() == {"h1": WHOLE, "h2": ["upgrade"], "h3": [], "h4": []}
    assert played.of("h3", "Download")["code"] == "unreachable"


def test_a_canary_that_goes_back_ends_the_run(fleet: Fleet) -> None:
    """Nobody else is touched, and the result says why and how to go on."""
    why = "slotward 1.1.0 kept exiting by itself during its trial"
    retry = "slotward update --clear-failed 1.1.0"
    back = fleet.say.answer("rolled-back", "crash-loop", message=why, from_="1.0.0", to="1.1.0", retry=retry)
    fleet.tell("h1", confirm=[[6, back]])
    played = fleet.play()
    assert played.rc != 0
    assert fleet.calls() == {"h1": WHOLE, "h2": [], "h3": [], "h4": []}
    result = played.of("h1", "Switch")
    assert (result["state"], result["code"], result["retry"]) == ("rolled-back", "crash-loop", retry)


def test_a_host_that_falls_silent_ends_the_run(fleet: Fleet) -> None:
    """Its neighbour in the batch is confirmed, for its trial must end well; the next batch does not begin."""
    trial = fleet.good["upgrade"][1][1]
    fleet.tell("h2", upgrade=[fleet.good["upgrade"][0], [0, trial, "cut:999999"]])
    played = fleet.play(upgrade_reconnect_s=3)
    assert played.rc != 0
    assert fleet.calls() == {"h1": WHOLE, "h2": WHOLE[:2], "h3": WHOLE, "h4": []}
    assert played.of("h2", "Switch")["code"] == "not-confirmed"
    assert played.of("h3", "Switch")["state"] == "confirmed"


def test_a_refusal_stops_its_batch_before_anybody_switches(fleet: Fleet) -> None:
    """What one host cannot stage, its neighbours do not run."""
    fleet.tell("h2", upgrade=[[3, fleet.say.answer("refused", "expired", message="the release manifest expired")]])
    assert fleet.play().rc != 0
    assert fleet.calls() == {"h1": WHOLE, "h2": ["upgrade"], "h3": ["upgrade"], "h4": []}


def test_a_run_again_leaves_alone_who_is_there(fleet: Fleet) -> None:
    """A host on the release is asked once and not switched; it counts as confirmed for the gate."""
    for name in ("h1", "h3"):
        fleet.tell(name, upgrade=[[0, fleet.say.answer("current", from_="1.1.0", to="1.1.0")]])
    played = fleet.play()
    assert played.rc == 0, played.out
    assert fleet.calls() == {"h1": ["upgrade"], "h2": WHOLE, "h3": ["upgrade"], "h4": WHOLE}


def test_check_mode_asks_every_host_and_changes_none(fleet: Fleet) -> None:
    """What prepare answers, once for each host."""
    played = fleet.play("--check")
    assert played.rc == 0, played.out
    assert fleet.calls() == {key: ["prepare"] for key in NAMES}


def test_a_limit_does_not_open_the_gate(fleet: Fleet) -> None:
    """With --limit the batches are made of the hosts that are left."""
    fleet.tell("h2", upgrade=[[3, fleet.say.answer("refused", "no-pins", message="no release keys are pinned")]])
    assert fleet.play("--limit", "h2,h3,h4").rc != 0
    assert fleet.calls() == {"h1": [], "h2": ["upgrade"], "h3": [], "h4": []}


def test_the_controller_refuses_before_any_host_is_asked(fleet: Fleet, keys: Any) -> None:
    """Too few signatures, or another version than was expected."""
    assert fleet.play(upgrade_pins=list(keys.pins), upgrade_threshold=3).rc != 0
    assert fleet.play(upgrade_version="9.9.9").rc != 0
    assert fleet.calls() == {key: [] for key in NAMES}


def test_one_batch_by_default_is_one_host_first(fleet: Fleet) -> None:
    """Without upgrade_serial the first host goes alone, and ends the run when it fails."""
    del fleet.variables["upgrade_serial"]
    fleet.tell("h1", upgrade=[[3, fleet.say.answer("refused", "no-pins", message="no release keys are pinned")]])
    assert fleet.play().rc != 0
    assert fleet.calls() == {"h1": ["upgrade"], "h2": [], "h3": [], "h4": []}


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_directory_that_no_host_can_fetch_from_is_refused_before_any_host(fleet: Fleet, options: Any) -> None:
    """Neither pushed nor with an address: the run ends at once, with both ways out, in check mode too."""
    del fleet.variables["upgrade_url"]
    played = fleet.play(*options)
    assert played.rc != 0
    assert "upgrade_push=true" in played.out
    assert "upgrade_url" in played.out
    assert fleet.calls() == {name: [] for name in NAMES}


def test_a_release_that_is_not_named_is_asked_for(fleet: Fleet) -> None:
    """The error names the variable and what goes into it."""
    del fleet.variables["upgrade_release"]
    played = fleet.play()
    assert played.rc != 0
    assert "upgrade_release is not set" in played.out


def test_status_shows_hosts_that_cannot_be_asked(fleet: Fleet) -> None:
    """One table of all hosts, and the run does not fail for one that is away."""
    answer = fleet.say.answer(
        "confirmed", version="1.1.0", floor=2, sequence=2, slots={}, unit={"name": "u", "active": "inactive"}, trial=None, failed=[],
        last=None, lock=None, broken=None, config_problems=[],
    )  # fmt: skip
    for name in NAMES:
        fleet.tell(name, update=[[0, answer]])
    fleet.cut("h2")
    out = fleet.stage.directory / "status.json"
    played = fleet.stage.play("slotward.fleet.status", target="all", status_json=str(out))
    table = played.of("h1", "Show one table")["msg"]
    assert [line.split()[:4] for line in table[1:]] == [
        ["h1", "1.1.0", "root", "confirmed"],
        ["h2", "-", "-", "unreachable"],
        ["h3", "1.1.0", "root", "confirmed"],
        ["h4", "1.1.0", "root", "confirmed"],
    ]
    assert out.exists()
