# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed-but-broken releases, each caught twice: by the look before the switch and, without that look, by the trial (I2).

How each of them ended, and after how long, is kept in build/broken.json (docs/design/faults.md, section 4).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

import pytest
from support import broken, memory, misdeeds, modes, outcomes, releases
from support import node as nodes

pytestmark = pytest.mark.every_mode

BACK_WITHIN_S = 10
SLOWER_S = {"eats-memory": 30}
"""Four times until the kernel kills it takes as long as the machine takes."""
STOP_S = 10
"""TimeoutStopSec= of the agent's unit."""
STOPS_S = {"extends-its-stop": STOP_S + 10}
"""What asks systemd for ever more time to stop is killed 10 s after its unit's time, by the guard."""
MEMORY_MIB = 384
ALONE = {"acts-as-root", "fills-the-disk"}
"""What has a test of its own."""
TRIES = {"changes-its-files", "sets-the-clock", "writes-the-records", "removes-the-guard"}
"""What says for each thing that it tried how that went."""
ON_TRIAL = [kind for kind in broken.KINDS if kind.by != "nobody" and kind.name not in ALONE]
QUICK = {"exit1", "hang"}
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
ENDED = "7ad2d189f7e94e70a38c781354912448"
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
STARTED = "39f53479d3a045ac8e11786248231fbf"


def kinds(chosen: Sequence[broken.Broken], quick: set[str]) -> list[object]:
    """A parameter a kind; the quick ones are for every run, the others for the long one."""
    return [
        pytest.param(kind, id=kind.name, marks=pytest.mark.host if kind.name in quick else pytest.mark.hosts)
        for kind in chosen
    ]


def seconds_to_go_back(node: nodes.Node) -> float:
    """From the restart into the new release to the old version's daemon being ready, by the journal.

    In start mode nobody stops the daemon: it ends, and the release is switched to before the start that follows.
    """
    lines = node.said(f"-o json _SYSTEMD_UNIT=init.scope UNIT={nodes.UNIT}").splitlines()
    seen = [(int(row["__MONOTONIC_TIMESTAMP"]) / 1e6, row.get("MESSAGE_ID")) for row in map(json.loads, lines)]
    began = next(((at, what) for at, what in seen if what in (STOPPING, ENDED)))
    if began[1] == ENDED:
        began = next((at, what) for at, what in seen if what == STARTING and at > began[0])
    return max(at for at, what in seen if what == STARTED) - began[0]


@pytest.mark.parametrize("kind", kinds([k for k in broken.KINDS if k.by == "look"], {"noise"}))
def test_a_look_refuses_it_before_the_switch(
    node: nodes.Node, shop: releases.Workshop, kind: broken.Broken, v110: releases.Release
) -> None:
    """Refused with its code, remembered as failed, and the daemon never noticed.

    In start mode root looks when the daemon starts: a request costs one start, and one that is refused at once costs none.
    """
    bad = shop.broken(kind)
    before = node.unit()
    answer = node.begin(bad)
    assert (answer.exit, answer.code, answer.json["state"]) == (3, kind.code, "refused"), answer
    state = node.update()
    assert [(entry["version"], entry["code"]) for entry in state["failed"]] == [(bad.version, kind.code)]
    assert (state["trial"], node.link("current"), node.link("good")) == (None, "a", "a")
    assert answer.json["retry"] == f"slotward update --clear-failed {bad.version}"
    node.waits(lambda: (node.unit().active, node.running()) == ("active", "1.0.0"), 15, "the old version runs")
    looked = node.unit()
    if node.mode.name == modes.START:
        assert looked == before._replace(main_pid=looked.main_pid, restarts=before.restarts + 1)
    else:
        assert looked == before
    again = node.begin(bad)
    assert (again.exit, again.code) == (3, "failed-before"), again
    assert again.message == f"slotward {bad.version} did not start; running 1.0.0 ({answer.message})"
    assert node.unit() == looked
    assert node.slotward("update", "--clear-failed", bad.version).json["cleared"] == [bad.version]
    assert node.update()["failed"] == []
    node.upgraded(v110)


def nothing_of_it(node: nodes.Node, kind: broken.Broken, slot: str) -> None:
    """No process of the failed release runs on; its slot has the bytes that were signed, and it could do nothing that it tried."""
    held = f"ls -l /proc/[0-9]*/fd 2>/dev/null | grep -- '-> {nodes.SLOTS}/{slot}$'"
    node.waits(lambda: node.sh(held, check=False) == "", 15, "nobody has the failed release open")
    record = json.loads(node.host.read(f"{nodes.SLOTS}/slots.json"))["slots"][slot]
    assert node.sh(f"sha256sum <{nodes.SLOTS}/{slot}").split()[0] == record["sha256"]
    said = node.said(f"-o cat -u {nodes.UNIT}").splitlines()
    assert [line for line in said if line.startswith("could ") and not line.startswith("could not ")] == []
    assert any(line.startswith("could not ") for line in said) == (kind.name in TRIES), said


@pytest.mark.quick_modes
@pytest.mark.parametrize("kind", kinds(ON_TRIAL, QUICK))
def test_the_trial_ends_it_without_an_operator(
    node: nodes.Node, shop: releases.Workshop, kind: broken.Broken, v110: releases.Release
) -> None:
    """Back on the old version, remembered with its reason, refused until cleared; then the host takes a good one."""
    bad = shop.broken(kind)
    length = 8 if kind.trial_codes == broken.LATE else 60
    node.configure(trial_length_s=length)
    blind = ("--no-smoke",) if kind.by == "look" else ()  # an operator's flag: so the others go the daemon's way
    limit = memory.limited(node.host, MEMORY_MIB) if kind.name == "eats-memory" else contextlib.nullcontext()
    with outcomes.told(node, kind.name) as row:
        with limit:
            trial = node.on_trial(bad, *blind)
            state = node.goes_back(kind.trial_codes, length + STOP_S + 20, stops_s=STOPS_S.get(kind.name, 0))
        took = seconds_to_go_back(node)
        row.tell(state["last"]["code"], took)
        nothing_of_it(node, kind, "b")
    if "deadline-passed" not in kind.trial_codes:
        assert took <= SLOWER_S.get(kind.name, BACK_WITHIN_S), node.story()
    assert state["last"]["id"] == trial
    assert [(entry["version"], entry["code"]) for entry in state["failed"]] == [(bad.version, state["last"]["code"])]
    assert f"going back from b to a: {state['last']['code']}" in node.guard_log()
    node.runnable()

    finding = node.doctor()["failed version"]
    assert finding[2] == f"slotward update --clear-failed {bad.version}"
    again = node.begin(bad, *blind)
    assert (again.exit, again.code) == (3, "failed-before"), again
    why = state["last"]["why"]
    assert again.message == f"slotward {bad.version} failed here: {why}; running 1.0.0"
    assert again.json["retry"] == finding[2]
    assert node.slotward("update", "--clear-failed").json["cleared"] == [bad.version]
    allowed = node.slotward("prepare", "--target", node.target(bad), "--src", node.put(bad.artifact))
    assert (allowed.exit, allowed.code) == (0, "ok"), allowed
    node.configure()
    node.upgraded(v110)


@pytest.mark.hosts
def test_a_release_that_fills_the_disk(
    machines: nodes.Machines, shop: releases.Workshop, v100: releases.Release, node: nodes.Node
) -> None:
    """It goes back with nothing left on the file system that its data and the slots share; it is remembered once there is room."""
    kind = broken.named("fills-the-disk")
    small = nodes.Node(
        machines.run.up(f"full-{node.host.suite}", node.host.suite, disk_mb=64, inodes=512), shop, node.mode.name
    )
    data, bad = "/var/lib/slotward", shop.broken(kind)
    try:
        small.sh(f"mkdir -p {data} /opt/slotward/data && mount --bind /opt/slotward/data {data}")
        small.fresh(v100, trial_length_s=60)
        with outcomes.told(small, kind.name) as row:
            small.on_trial(bad)
            small.waits(lambda: small.link("current") == "a", 60, "current names good again")
            small.waits(lambda: small.running() == "1.0.0", 15, "1.0.0 runs again, on a full disk")
            if (
                node.mode.name != modes.START
            ):  # there each start settles first, which frees what was staged for this one
                assert int(small.sh("df --output=avail /opt/slotward | tail -n 1")) < 64
            small.runnable()
            row.tell("crash-loop", seconds_to_go_back(small))
        small.sh(f"rm {misdeeds.FILLER}")
        small.update()  # the next command finishes what could not be recorded
        state = small.goes_back(kind.trial_codes, 10)
        assert [(entry["version"], entry["code"]) for entry in state["failed"]] == [(bad.version, "crash-loop")]
        nothing_of_it(small, kind, "b")
    except BaseException:
        print(small.story())
        raise
    finally:
        machines.run.down(small.host.name)


@pytest.mark.hosts
def test_a_release_that_starts_slowly_is_confirmed_once_it_is_there(node: nodes.Node, shop: releases.Workshop) -> None:
    """Not while it is not ready, however often somebody asks; from then on as any other."""
    kind = broken.named("slow-start")
    slow = shop.broken(kind)
    with outcomes.told(node, kind.name) as row:
        trial = node.on_trial(slow)
        node.waits(lambda: node.unit().active == "activating", 10, "its restart has begun")
        early = node.slotward(*node.confirm_line(trial, 0))
        assert (early.exit, early.code) == (6, "not-proven"), early
        assert "the unit is activating, not active" in early.message
        node.waits(lambda: node.running() == slow.version, 20, "it is ready")
        assert node.confirm(trial).json["state"] == "confirmed"
        row.tell("confirmed", None)
    assert (node.link("good"), node.update()["failed"]) == ("b", [])


@pytest.mark.hosts
def test_a_release_that_crashes_at_every_second_start_is_no_crash_loop(
    node: nodes.Node, shop: releases.Workshop
) -> None:
    """One exit is no loop: it is confirmed once it stays up, and systemd starts it again ever after."""
    kind = broken.named("crashes-every-second-start")
    bad = shop.broken(kind)
    with outcomes.told(node, kind.name) as row:
        trial = node.on_trial(bad)
        node.waits(lambda: node.running() == bad.version, 20, "its second start stays up")
        assert "crash " in node.sh(f"cat {nodes.SLOTS}/trial.log")
        assert node.confirm(trial).json["state"] == "confirmed"
        for _again in range(3):
            node.sh(f"systemctl restart {nodes.UNIT}", check=False)
            node.waits(lambda: node.running() == bad.version, 20, "the start after it stays up")
        row.tell("confirmed", None)
    assert (node.link("current"), node.link("good"), node.update()["failed"]) == ("b", "b", [])
    assert node.doctor()["unit"][0] == "ok"


@pytest.mark.hosts
def test_i5_a_release_that_crashes_once_it_is_confirmed_is_left_by_an_operator_alone(
    node: nodes.Node, shop: releases.Workshop
) -> None:
    """Nobody goes back: status and doctor say what goes on and what leads out, and that does; the floor never falls."""
    kind = broken.named("crashes-once-confirmed")
    bad, better = shop.broken(kind), shop.release("1.90.0", 90)
    with outcomes.told(node, kind.name) as row:
        trial = node.on_trial(bad)
        node.waits(lambda: node.running() == bad.version, 20, "it runs")
        assert node.confirm(trial).json["state"] == "confirmed"
        node.waits(lambda: node.unit().restarts >= 5, 40, "it was restarted again and again")
        state = node.update()
        assert (state["state"], state["version"], state["floor"]) == ("confirmed", bad.version, bad.sequence)
        assert (node.link("current"), node.link("good"), state["failed"]) == ("b", "b", [])
        assert state["unit"]["restarts"] >= 5
        assert f"unit: {nodes.UNIT} is " in node.sh("slotward update")
        level, text, run = node.doctor()["unit"]
        assert (level, "is confirmed, so nothing goes back by itself" in text) == ("fail", True), text
        assert run.startswith("slotward upgrade --start --target FILE"), run
        closed = node.slotward("rollback", "--to", "previous", "--start", "--no-wait")
        assert (closed.exit, closed.code) == (3, "below-floor"), closed
        node.upgraded(better, "--start")
        row.tell("operator", None)
    assert (node.running(), node.update()["floor"]) == ("1.90.0", 90)
    assert node.doctor()["unit"][0] == "ok"


@pytest.mark.hosts
def test_a_release_that_acts_as_root(node: nodes.Node, shop: releases.Workshop) -> None:
    """Root's own daemon can defeat its host, and the threat model says so; as an account it is told no, and its trial ends it.

    What still holds in root mode: the host runs signed bytes, an operator's word ends it, doctor tells, and setup mends.
    """
    kind = broken.named("acts-as-root")
    bad = shop.broken(kind)
    node.configure(trial_length_s=20)
    tried = "act as root outside of its sandbox"
    with outcomes.told(node, kind.name) as row:
        trial = node.on_trial(bad)
        node.waits(lambda: tried in node.said(f"-o cat -u {nodes.UNIT}"), 20, "it has tried")
        if node.mode.name != modes.ROOT:
            state = node.goes_back(kind.trial_codes, within=60)
            assert state["last"]["id"] == trial
            row.tell("deadline-passed", seconds_to_go_back(node))
            says_of_it(node, f"could not {tried}")
            return
        says_of_it(node, f"could {tried}")
        node.waits(lambda: node.update()["trial"]["left_s"] > 1000, 10, "it has an hour")
        findings = node.slotward("doctor").json["checks"]
        assert [one["run"] for one in findings if one["name"] == "guard" and one["state"] == "fail"], findings
        assert node.slotward("rollback", "--id", trial).json["state"] == "rolled-back"
        row.tell("operator", None)
    assert (node.running(), node.update()["failed"][0]["version"]) == ("1.0.0", bad.version)
    assert node.slotward("setup").json["changed"] is True
    assert node.doctor()["guard"][0] == "ok"


def says_of_it(node: nodes.Node, said: str) -> None:
    """What it said of what it tried."""
    lines = [line for line in node.said(f"-o cat -u {nodes.UNIT}").splitlines() if line.startswith("could ")]
    assert [line for line in lines if line.startswith(said)] == lines, lines


@pytest.mark.host
@pytest.mark.parametrize("name", ["hang", "exit0"])
def test_no_code_of_the_new_release_takes_part_in_going_back(shop: releases.Workshop, name: str) -> None:
    """The releases that hang and that exit with 0 never reach a line of ours: their program is one file with no import of it."""
    kind = broken.named(name)
    assert kind.overlay is not None
    assert "slotward" not in kind.overlay
    assert "slotcore" not in kind.overlay
    path = shop.broken(kind).artifact
    assert os.path.getsize(path) > len(kind.overlay)
