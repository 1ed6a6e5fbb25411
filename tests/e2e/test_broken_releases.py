# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed-but-broken releases, each caught twice: by the look before the switch and, without that look, by the trial (I2)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pytest
from support import broken, modes, releases
from support import node as nodes

pytestmark = pytest.mark.every_mode

BACK_WITHIN_S = 10
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


def release_of(shop: releases.Workshop, kind: broken.Broken) -> releases.Release:
    """The broken release of that kind."""
    number = 10 + broken.KINDS.index(kind)
    return shop.release(f"1.{number}.0", number, kind)


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
    bad = release_of(shop, kind)
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


@pytest.mark.quick_modes
@pytest.mark.parametrize("kind", kinds(broken.KINDS, QUICK))
def test_the_trial_ends_it_without_an_operator(
    node: nodes.Node, shop: releases.Workshop, kind: broken.Broken, v110: releases.Release
) -> None:
    """Back on the old version, remembered with its reason, refused until cleared; then the host takes a good one."""
    bad = release_of(shop, kind)
    deadline = "deadline-passed" in kind.trial_codes
    length = 8 if kind.trial_codes == ("deadline-passed",) else 60
    node.configure(trial_length_s=length)
    blind = ("--no-smoke",) if kind.by == "look" else ()  # an operator's flag: so the others go the daemon's way
    trial = node.on_trial(bad, *blind)
    state = node.goes_back(kind.trial_codes, within=length + 20)
    took = seconds_to_go_back(node)
    if not deadline:
        assert took <= BACK_WITHIN_S, node.story()
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


@pytest.mark.host
@pytest.mark.parametrize("name", ["hang", "exit0"])
def test_no_code_of_the_new_release_takes_part_in_going_back(shop: releases.Workshop, name: str) -> None:
    """The releases that hang and that exit with 0 never reach a line of ours: their program is one file with no import of it."""
    kind = next(kind for kind in broken.KINDS if kind.name == name)
    assert kind.overlay is not None
    assert "slotward" not in kind.overlay
    assert "slotcore" not in kind.overlay
    path = release_of(shop, kind).artifact
    assert os.path.getsize(path) > len(kind.overlay)
