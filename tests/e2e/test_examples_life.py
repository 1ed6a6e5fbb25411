# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemons of examples/ through their whole life under load: adopted, upgraded, held, taken back, removed; broken releases between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from support import examples, load, releases
from support import node as nodes

pytestmark = pytest.mark.hosts

RESTARTS = 3
MOST = 3.0
"""How many times as long as the longest plain restart of the unit a switch may keep clients waiting; machines are shared."""
FIGURES = releases.ROOT / "build" / "examples.jsonl"


@pytest.fixture(params=examples.ALL, ids=examples.NAMES)
def example(request: pytest.FixtureRequest, node: nodes.Node) -> Iterator[examples.Example]:
    """A daemon as it comes, installed and running, beside the agent."""
    make: Callable[[nodes.Node], examples.Example] = request.param
    made = make(node)
    made.clear()
    made.install()
    yield made
    made.clear()


def note(example: examples.Example, **figures: object) -> None:
    """Keep what was measured."""
    FIGURES.parent.mkdir(exist_ok=True)
    with FIGURES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"example": example.name, "suite": example.suite, **figures}) + "\n")


def adopted(example: examples.Example) -> None:
    """Adopt what runs: the same process goes on."""
    pid = example.pid()
    flags = () if example.name == "tally" else ("--divert",)
    answer = example.done("setup", "--adopt", *flags)
    assert (answer["version"], example.pid()) == (example.versions[0], pid), answer
    assert example.done("setup", "--adopt", *flags)["changed"] is False


def test_the_life_of_an_example(example: examples.Example) -> None:
    """Clients see a switch as they see a restart; what is held stays; one step back is open; nothing of ours is left at the end."""
    old, new = example.versions
    with load.running(*example.clients()) as seen:
        time.sleep(1)
        plain = [seen.measured(example.restart) for _number in range(RESTARTS)]
        example.example()
        adopted(example)
        guarded = [seen.measured(lambda: _restarted_while_the_agent_works(example)) for _number in range(RESTARTS)]
        longest = max(plain + guarded)

        # upgrade: the probes confirm it
        gap = seen.measured(lambda: example.upgraded(example.good()))
        assert example.runs(new)

        # hold
        example.done("hold", "--why", "the example says so")
        refused = example.begin(example.broken("9.0.0", 9, examples.EXITS))
        assert (refused.exit, refused.code) == (3, "held"), refused
        example.done("unhold")

        # back, by the operator: a trial like any other, and a hold that keeps it there
        pid = example.pid()
        back = seen.measured(lambda: _taken_back(example, old))
        assert example.pid() != pid
        assert example.runs(old)
        assert example.begin(example.good()).code == "held"
        example.done("unhold")
        note(example, plain=plain, guarded=guarded, upgrade=gap, back=back, ratio=[gap / longest, back / longest])
        assert gap <= MOST * longest, (gap, plain, guarded)
        if example.name != "redis-server":  # which is told all its data first, before an older version starts
            assert back <= MOST * longest, (back, plain, guarded)

        # removed: the process goes on, and its unit starts the program at the entrypoint
        pid = example.pid()
        example.done("remove", "--purge")
        assert example.pid() == pid
        assert example.traces() == ""
        example.restart()
        assert example.runs(old)


WEB = {"prometheus-node-exporter": 9100, "nginx": 80, "tally": 8090}
CONNECTIONS = 4


@pytest.mark.parametrize("example", [one for one in examples.ALL if one is not examples.Redis], indirect=True)
def test_wrk_sees_nothing_but_a_restart(example: examples.Example) -> None:
    """No wrong answer, and none that never comes, over a switch and over one back; how long is for the other clients to say."""
    url = f"http://{example.node.host.address}:{WEB[example.name]}/"
    example.example()
    adopted(example)
    plain = load.wrk(url, CONNECTIONS, example.restart)
    forth = load.wrk(url, CONNECTIONS, lambda: example.upgraded(example.good()))
    back = load.wrk(url, CONNECTIONS, lambda: _taken_back(example, example.versions[0]))
    note(example, wrk={"plain": plain, "upgrade": forth, "back": back})
    for seen in (plain, forth, back):
        assert seen.requests > 100, (plain, forth, back)
        assert (seen.wrong, seen.timeout) == (0, 0), (plain, forth, back)


def _restarted_while_the_agent_works(example: examples.Example) -> None:
    """A plain restart of the guarded unit at a moment that is as busy as a switch: the agent's command and a look at the state run too."""
    example.node.sh(
        f"systemctl reset-failed {example.unit}; slotward --product {example.name} update >/dev/null & slotward products >/dev/null &"
        f" sleep 0.1; systemctl restart {example.unit}; wait"
    )


def _taken_back(example: examples.Example, version: str) -> None:
    answer = example.slotward("rollback", "--to", "previous", "--why", "the example says so", timeout=180)
    assert answer.exit == 0, (answer, example.story())
    state = example.ends(60)
    assert (state["version"], state["last"]["state"]) == (version, "confirmed"), (state, example.story())


@pytest.mark.parametrize("body", [examples.EXITS, examples.HANGS], ids=["exits", "hangs"])
def test_a_broken_release_goes_back(example: examples.Example, body: str) -> None:
    """It exits at once, or does nothing for ever: the version that was there serves again, and the failed one is refused."""
    old = example.versions[0]
    example.example(*((f"trial_length_s = {length}", "trial_length_s = 25") for length in (_length(example),)))
    adopted(example)
    with load.running(*example.clients()) as seen:
        time.sleep(1)
        began = time.monotonic()
        bad = example.broken("9.1.0" if body == examples.EXITS else "9.2.0", 9, body)
        example.on_trial(bad)
        state = example.ends(60)
        assert state["last"]["state"] == "rolled-back", (state, example.story())
        assert example.runs(old)
        time.sleep(1)
        gap = seen.gap(began, time.monotonic())
        note(example, broken=body.split(";", maxsplit=1)[0], code=state["last"]["code"], gap=gap)
        assert seen.between(time.monotonic() - 0.5, time.monotonic())[-1].good
    assert example.begin(bad).code == "failed-before"


def _length(example: examples.Example) -> int:
    return 300 if example.name == "redis-server" else 120
