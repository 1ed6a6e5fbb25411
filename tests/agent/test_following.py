# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper's link on a real directory: settling makes it name what `current` names, wherever a cut left it."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, List

import pytest

from agent import guarding, resting
from slotcore import codes, settle, trial
from slotward import effects, host, manager

HELPER = "probe-helper.service"
RUNS = "ActiveState=active\n"
STOPPED = """ActiveState=inactive
Job=0
ActiveExitTimestampMonotonic=5
ExecMainStartTimestampMonotonic=4
ExecMainExitTimestampMonotonic=6
"""
PROCESS_QUESTION = f"show --property=ActiveState,MainPID,Job -- {HELPER}"
STOP_QUESTION = (
    "show --property=ActiveState,Job,ActiveExitTimestampMonotonic,ExecMainStartTimestampMonotonic,"
    "ExecMainExitTimestampMonotonic --"
)


class Here:
    """A product with a helper at rest, and a systemctl of ours."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.product = resting.product(root)._replace(helper_unit=HELPER)
        self.link("helper", "a")
        self.says(RUNS, RUNS)

    def says(self, unit: str, helper: str) -> None:
        """What systemd says of the two units, and of either alone."""
        (self.root / "show").write_text(unit + "\n" + helper)
        (self.root / f"show-{self.product.unit}").write_text(unit)
        (self.root / f"show-{HELPER}").write_text(helper)

    def link(self, name: str, target: str) -> None:
        """Point a link."""
        path = pathlib.Path(self.product.path(name))
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def links(self) -> List[str]:
        """What current, good and helper name."""
        return [os.readlink(self.product.path(name)) for name in ("current", "good", "helper")]

    def on_trial(self) -> trial.Trial:
        """A trial of this boot with time left, by its own clock."""
        clock = host.clock()
        pending = resting.TRIAL._replace(boot_id=clock.boot_id, deadline_s=clock.uptime_s + 20)
        pathlib.Path(self.product.path("trial")).write_bytes(trial.render_trial(pending))
        pathlib.Path(self.product.path("trial.log")).write_bytes(trial.LOG_HEADER + b"start 10\n")
        for name, target in (("back", "a"), ("helper.back", "a"), ("current", "b"), ("helper", "b")):
            self.link(name, target)
        return pending

    def asked(self) -> List[str]:
        """What systemd was asked."""
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """The product in a directory of its own."""
    monkeypatch.setenv("PATH", f"{guarding.FAKES}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    return Here(tmp_path)


def test_a_helper_that_was_left_behind_follows_and_is_restarted(here: Here) -> None:
    """Only its unit; and once it names what current names, settling has nothing to do (I9)."""
    here.link("helper", "b")
    seen, done = manager.settle_now(here.product)
    assert (done, here.links()) == ("follow", ["a", "a", "a"])
    assert (seen.state.helper, seen.state.helper_back) == ("a", None)
    assert here.asked() == [
        f"{STOP_QUESTION} {HELPER}",
        f"reset-failed -- {HELPER}",
        f"--no-block restart -- {HELPER}",
    ]
    assert manager.settle_now(here.product)[1] == "nothing"
    assert here.asked()[3:] == [PROCESS_QUESTION]


@pytest.mark.parametrize("found", ["missing", "odd"])
def test_a_link_that_names_no_slot_is_made_again(here: Here, found: str) -> None:
    """Setup makes it first; whoever takes it away does not keep the helper from following."""
    here.link("helper", "../elsewhere")
    if found == "missing":
        os.unlink(here.product.path("helper"))
    assert manager.settle_now(here.product)[1] == "follow"
    assert here.links() == ["a", "a", "a"]


def test_without_a_helper_the_name_is_never_looked_at(here: Here) -> None:
    """In the other modes a link that an earlier mode left says nothing."""
    here.link("helper", "b")
    product = here.product._replace(helper_unit="")
    state = host.read_state(product)
    assert (state.helper, state.helper_back) == (None, None)
    assert manager.settle_now(product)[1] == "nothing"
    assert here.links() == ["a", "a", "b"]
    assert here.asked() == []


def test_in_a_trial_a_cut_between_the_two_links_is_made_good(here: Here) -> None:
    """So that a release is not taken back for a power cut."""
    pending = here.on_trial()
    here.link("helper", "a")
    seen, done = manager.settle_now(here.product)
    assert (done, here.links()) == ("follow", ["b", "a", "b"])
    assert seen.settlement == settle.Settlement(settle.Action.AWAIT, codes.TRIAL_PENDING, pending)
    assert here.asked()[1:] == [f"reset-failed -- {HELPER}", f"--no-block restart -- {HELPER}"]


def test_a_helper_that_an_operator_has_stopped_is_not_started(here: Here) -> None:
    """Its link follows all the same."""
    here.says(RUNS, STOPPED)
    here.link("helper", "b")
    assert manager.settle_now(here.product)[1] == "follow"
    assert here.links() == ["a", "a", "a"]
    assert here.asked() == [f"{STOP_QUESTION} {HELPER}"]


@pytest.mark.parametrize(
    ("unit", "helper", "restarted"),
    [
        (RUNS, RUNS, f"probe.service {HELPER}"),
        (RUNS, STOPPED, "probe.service"),
        (STOPPED, RUNS, HELPER),
        (STOPPED, STOPPED, ""),
    ],
)
def test_going_back_respects_a_stop_of_each_unit_by_itself(here: Here, unit: str, helper: str, restarted: str) -> None:
    """One question, one call for what is not stopped."""
    here.on_trial()
    here.says(unit, helper)
    manager.go_back(here.product, manager.look(here.product), "an operator said so")
    assert here.links() == ["a", "a", "a"]
    assert not {"back", "helper.back", "trial", "trial.revert"} & set(host.names(here.product))
    alone = "" if unit == helper else "--job-mode=ignore-requirements "  # the daemon's unit wants the helper's
    calls = [f"reset-failed -- {restarted}", f"--no-block {alone}restart -- {restarted}"] if restarted else []
    assert here.asked() == [f"{STOP_QUESTION} probe.service {HELPER}", *calls]


def test_a_switch_restarts_both_in_one_call(here: Here) -> None:
    """A stopped unit too: that is what a switch is for."""
    here.says(STOPPED, STOPPED)
    effects.restart(effects.units_of(here.product), respect_stop=False)
    assert here.asked() == [
        f"reset-failed -- probe.service {HELPER}",
        f"--no-block restart -- probe.service {HELPER}",
    ]
    assert effects.units_of(here.product._replace(helper_unit="")) == ("probe.service",)


def test_what_cannot_follow_stands_in_the_way_of_the_next_release_only(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    """At rest it is an error that names the path. In a trial it is told, and going back works all the same."""
    helper = pathlib.Path(here.product.path("helper"))
    helper.unlink()
    helper.mkdir()
    with pytest.raises(codes.Retryable, match="finish the update in flight of probe"):
        manager.settle_now(here.product)
    helper.rmdir()
    here.on_trial()
    helper.unlink()
    helper.mkdir()
    seen, done = manager.settle_now(here.product)
    assert done == "nothing"
    assert f"{helper} does not name slot b yet, which is on trial" in capsys.readouterr().err
    helper.rmdir()
    manager.go_back(here.product, seen, "enough")
    assert here.links() == ["a", "a", "a"]


@pytest.mark.parametrize("on_trial", [True, False])
def test_a_helper_whose_restart_nobody_asked_for_is_restarted(here: Here, on_trial: bool) -> None:
    """Whoever switched, or went back, was killed between the two restarts: it runs what the other slot holds."""
    if on_trial:
        here.on_trial()
    left = here.product.path("a" if on_trial else "b")
    with open(left, "rb"):
        here.says(RUNS, f"{RUNS}MainPID={os.getpid()}\n")
        assert manager.settle_now(here.product)[1] == "follow"
    both = PROCESS_QUESTION.replace(HELPER, f"probe.service {HELPER}")
    assert here.asked() == [
        both if on_trial else PROCESS_QUESTION,
        f"{STOP_QUESTION} {HELPER}",
        f"reset-failed -- {HELPER}",
        f"--no-block restart -- {HELPER}",
    ]


@pytest.mark.parametrize(("changed", "restarted"), [({}, True), ({"reload": True}, False)])
def test_a_daemon_whose_restart_nobody_asked_for_is_restarted_in_its_trial(
    here: Here, changed: Dict[str, Any], restarted: bool
) -> None:
    """Whoever switched was killed before: the trial would end without the release having been tried."""
    product = here.product._replace(helper_unit="", **changed)
    here.on_trial()
    with open(product.path("a"), "rb"):
        here.says(f"{RUNS}MainPID={os.getpid()}\n", RUNS)
        assert manager.settle_now(product)[1] == ("follow" if restarted else "nothing")
    calls = ["reset-failed -- probe.service", "--no-block restart -- probe.service"]
    assert here.asked()[-2:] == (calls if restarted else [])


def test_at_rest_no_daemon_is_restarted(here: Here) -> None:
    """What runs there is its operator's."""
    product = here.product._replace(helper_unit="")
    with open(product.path("b"), "rb"):
        here.says(f"{RUNS}MainPID={os.getpid()}\n", RUNS)
        assert manager.settle_now(product)[1] == "nothing"
    assert here.asked() == []


@pytest.mark.parametrize("shown", ["ActiveState=active\nJob=7\n", "ActiveState=inactive\n", "ActiveState=activating\n"])
def test_a_helper_that_systemd_is_at_is_left_alone(here: Here, shown: str) -> None:
    """A restart that is queued, a stop, a start that goes on."""
    with open(here.product.path("b"), "rb"):
        here.says(RUNS, f"{shown}MainPID={os.getpid()}\n")
        assert manager.settle_now(here.product)[1] == "nothing"
    assert here.asked() == [PROCESS_QUESTION]


def test_a_helper_that_runs_what_current_names_is_left_alone(here: Here) -> None:
    """And so is one that runs neither slot, and one that systemd does not answer for."""
    for path in (here.product.path("a"), str(here.root / "show")):
        with open(path, "rb"):
            here.says(RUNS, f"{RUNS}MainPID={os.getpid()}\n")
            assert manager.settle_now(here.product)[1] == "nothing"
    (here.root / "fail-show").write_text("1")
    assert manager.settle_now(here.product)[1] == "nothing"
    assert set(here.asked()) == {PROCESS_QUESTION}
