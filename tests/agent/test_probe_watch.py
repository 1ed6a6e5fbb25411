# SPDX-License-Identifier: GPL-3.0-or-later
"""What watches a trial by its probes, on real records with a systemctl of ours (products.md, section 5; H2, H5, H6, H11, S17)."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import threading
import time
from typing import Any, Iterator, List

import pytest
from agent.places import DIGEST, Place

from slotcore import codes, probe_files, probing, trial
from slotcore import config as configs
from slotcore import product as products
from slotward import answers, cmd_probe, cmd_trial, host, lock, looking, manager, own, probe_store, probe_watch

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="records are root's")

TRIAL_ID = "00112233445566aa"
FAST = products.Confirming(interval_s=1, passes=1, failures=1)


class Scene:
    """A trial whose new slot runs, judged by a file that is there or not; a restart has the old slot run."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.beat = place.root / "beat"
        self.beat.touch()
        self.running: List[subprocess.Popen[bytes]] = []
        self.pids = {slot: self._run(slot) for slot in ("a", "b")}
        self.problems: tuple[str, ...] = ()
        file = products.Probe("beat", "file", path=str(self.beat), fresh_s=3600)
        self.product = place.product._replace(
            confirm_sources=("probe",), settle_s=0, probes=(file,), confirming=FAST, trial_length_s=60
        )
        self.active("a")
        (place.root / "hook-restart").write_text(f"cp {place.root}/show-after {place.root}/show\n")
        (place.root / "show-after").write_text(self._shown("a"))

    def _run(self, slot: str) -> int:
        """A process that has the slot's file open, as a script's has."""
        with (self.place.slots / slot).open("rb") as file:
            child = subprocess.Popen(["sleep", "600"], stdin=file)
        self.running.append(child)
        return child.pid

    def _shown(self, slot: str, state: str = "active") -> str:
        return f"ActiveState={state}\nSubState=running\nMainPID={self.pids.get(slot, 0)}\nInvocationID=\n"

    def active(self, slot: str, state: str = "active") -> None:
        """What systemd says of the unit from now on."""
        (self.place.root / "show").write_text(self._shown(slot, state))

    def begin(self, baseline: bool = True, length_s: int = 60) -> trial.Trial:
        """Switch to slot b; its process has just started."""
        clock = host.clock()
        swapped_s = clock.uptime_s - 1  # the processes of this test are some instants old
        pending = trial.Trial(
            TRIAL_ID, "probe", "1.0.0", "1.1.0", "a", "b", 2, clock.boot_id, length_s, swapped_s + length_s, 3, "-",
            DIGEST["a"], DIGEST["b"],
        )  # fmt: skip
        if baseline:
            probe_store.take_baseline(self.product, TRIAL_ID)
        self.place.on_trial(trial.render_trial(pending))
        self.active("b")
        return pending

    def setup(self) -> own.Setup:
        """What its file says now."""
        return own.Setup(self.product, configs.load(b"", "/nowhere")[0], self.problems, "/nowhere")

    def watch(self, seconds: float = 20) -> None:
        """Watch until there is nothing left to look at."""
        watcher = threading.Thread(target=probe_watch.watch, args=(self.setup,), daemon=True)
        watcher.start()
        watcher.join(seconds)
        assert not watcher.is_alive()

    def report(self) -> dict[str, Any]:
        """What status shows."""
        found = looking.look(self.setup(), self.place.state())["probes"]
        assert found is not None
        return dict(found)

    def last(self) -> Any:
        """How the trial ended, by the records."""
        return self.place.state().update.last


@pytest.fixture
def scene(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A host with the trial to come."""
    monkeypatch.setattr(probe_watch, "IDLE_S", 0.1)
    found = Scene(place)
    try:
        yield found
    finally:
        for child in found.running:
            child.kill()
            child.wait()


def test_a_trial_is_confirmed_by_its_probes(scene: Scene) -> None:
    """With the proof, and nothing of it is left but what is shown."""
    scene.begin()
    scene.watch()
    assert scene.last().state == "confirmed"
    assert scene.place.state().good == "b"
    shown = scene.report()
    assert (shown["trial"], shown["phase"], shown["verdict"], shown["code"]) == (TRIAL_ID, "trial", "confirmed", "ok")
    assert shown["probes"][0]["baseline"] is True
    assert "baseline.json" not in scene.place.names()
    assert [event.event for event in scene.place.noted()][-1] == "confirmed"
    scene.watch(2)  # again there is nothing to do


def test_H11_the_end_names_the_probe(scene: Scene) -> None:
    """Gone back, with the probe and its reason; then the old version is looked at, by what it was green in before."""
    nice = products.Probe("red", "file", path="/nowhere", fresh_s=1)
    scene.product = scene.product._replace(probes=(*scene.product.probes, nice))
    scene.product = scene.product._replace(confirming=FAST._replace(failures=2))
    scene.begin()
    scene.beat.unlink()
    with (scene.place.root / "hook-restart").open("a") as file:
        file.write(f"touch {scene.beat}\n")
    why = f"2 rounds of probes in a row failed: beat: {scene.beat}: No such file or directory"
    scene.watch()
    last = scene.last()
    assert (last.state, last.code, last.why) == ("rolled-back", "probe-failed", f"probe 1.1.0: {why}")
    assert scene.place.state().current == "a"
    shown = scene.report()
    assert (shown["phase"], shown["verdict"]) == ("after", "healthy")
    assert shown["why"] == "1.0.0 is healthy again: a round of probes passed"
    assert "baseline.json" not in scene.place.names()


def test_H6_an_old_version_that_is_not_healthy_is_recorded_and_nothing_is_switched_again(scene: Scene) -> None:
    """`rollback-failed`, with both reasons, once."""
    scene.begin()
    scene.beat.unlink()
    scene.watch()
    last = scene.last()
    assert (last.state, last.code) == ("rollback-failed", "probe-failed")
    gone = f"a round of probes failed: beat: {scene.beat}: No such file or directory"
    assert last.why == f"probe 1.1.0: {gone}; 1.0.0 is not healthy after going back to it: {gone}"
    assert scene.report()["verdict"] == "unhealthy"
    assert (scene.place.state().current, scene.place.state().good) == ("a", "a")
    assert scene.place.calls().count(" restart ") == 1
    assert [event.event for event in scene.place.noted()].count("rollback-failed") == 1
    answer = looking.look(scene.setup(), scene.place.state())
    assert (answer["state"], answer["code"]) == ("rollback-failed", "probe-failed")


def test_H6_whoever_goes_back_the_old_version_is_looked_at(scene: Scene) -> None:
    """The guard's end, found finished or not, is judged as the probes' own."""
    scene.begin()
    (scene.place.slots / "trial").rename(scene.place.slots / "trial.revert")
    with (scene.place.slots / "trial.revert").open("a") as file:
        file.write("REASON=crash-loop\n")
    os.replace(scene.place.slots / "back", scene.place.slots / "current")
    scene.active("a")
    scene.beat.unlink()
    scene.watch()
    assert (scene.last().state, scene.last().code) == ("rollback-failed", "crash-loop")
    assert "it kept exiting" not in scene.last().why
    assert scene.last().why.startswith("probe 1.1.0 kept exiting by itself during its trial; 1.0.0 is not healthy")


def test_an_old_version_that_never_comes_up_is_not_waited_for_without_an_end(scene: Scene) -> None:
    """For as long as a trial lasts, and no longer."""
    scene.product = scene.product._replace(trial_length_s=2)
    scene.begin()
    (scene.place.root / "show-after").write_text(scene._shown("", "activating"))
    scene.beat.unlink()
    scene.watch()
    assert scene.last().state == "rollback-failed"
    assert scene.last().why.endswith("not healthy within 2 s: the unit is activating, not active")


def test_what_an_operator_stopped_is_not_said_to_have_failed(scene: Scene) -> None:
    """Nobody knows how a version is that nobody runs."""
    scene.begin()
    stopped = "ActiveState=inactive\nMainPID=0\nActiveExitTimestampMonotonic=5\nExecMainStartTimestampMonotonic=1\n"
    (scene.place.root / "show-after").write_text(stopped + "ExecMainExitTimestampMonotonic=6\nJob=0\n")
    scene.beat.unlink()
    scene.watch()
    assert scene.last().state == "rolled-back"
    assert scene.report()["verdict"] == "unknown"


def test_S17_a_report_that_cannot_be_written_decides_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The trial is confirmed all the same; the journal says that nothing could be shown."""
    (scene.place.slots / "probes.json.tmp").mkdir()
    scene.begin()
    scene.watch()
    assert scene.last().state == "confirmed"
    assert looking.look(scene.setup(), scene.place.state())["probes"] is None
    assert "(cannot be shown: " in capsys.readouterr().err


@pytest.mark.parametrize("what", ["missing", "torn", "another trial's", "a link"])
def test_a_baseline_that_is_not_to_be_believed_counts_as_none(scene: Scene, what: str) -> None:
    """Then every required probe decides: what was red before fails the trial, which is the safe way."""
    scene.beat.unlink()
    scene.begin()
    path = scene.place.slots / "baseline.json"
    whole = path.read_bytes()
    path.unlink()
    if what == "torn":
        scene.place.write("baseline.json", whole[:-9])
    elif what == "another trial's":
        scene.place.write("baseline.json", whole.replace(TRIAL_ID.encode(), b"f" * 16))
    elif what == "a link":
        (scene.place.root / "elsewhere").write_bytes(whole)
        path.symlink_to(scene.place.root / "elsewhere")
    scene.watch()
    assert (scene.last().state, scene.last().code) == ("rollback-failed", "probe-failed")
    assert "baseline.json" not in scene.place.names()


def test_what_was_red_before_the_swap_cannot_fail_it(scene: Scene) -> None:
    """H2, and acceptance 3: it is told, and the proof alone confirms."""
    scene.beat.unlink()
    scene.begin()
    scene.watch()
    assert scene.last().state == "confirmed"
    shown = scene.report()
    assert shown["why"] == "a round of probes passed, none of which decides"
    assert [(one["decides"], one["baseline"], one["ok"]) for one in shown["probes"]] == [(False, False, False)]


def test_H5_without_the_proof_nothing_counts(scene: Scene) -> None:
    """A reload that kept the old process (I11): red probes take nothing back, and the trial ends at its deadline."""
    scene.begin(length_s=5)
    scene.active("a")
    scene.beat.unlink()
    scene.watch()
    assert scene.last().code == codes.DEADLINE_PASSED


def test_a_trial_of_another_boot_is_given_its_length_first(scene: Scene) -> None:
    """H5: until the guard has written the record anew nobody is judged by the other boot's clock."""
    pending = scene.begin()
    scene.place.write("trial", trial.render_trial(pending._replace(boot_id="0" * 8 + "-0000" * 3 + "-" + "0" * 12)))
    scene.beat.unlink()
    threading.Timer(1.5, lambda: scene.place.write("trial", trial.render_trial(pending))).start()
    threading.Timer(1.4, scene.beat.touch).start()
    scene.watch()
    assert scene.last().state == "confirmed"


def test_probes_are_one_of_two_sources(scene: Scene) -> None:
    """Their word stands and is said; the trial waits for the other one."""
    scene.product = scene.product._replace(confirm_sources=("controller", "probe"))
    scene.begin()
    watcher = threading.Thread(target=probe_watch.watch, args=(scene.setup,), daemon=True)
    watcher.start()
    until = time.monotonic() + 10
    while b"probe" not in scene.place.state().sources and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.2)
    shown = scene.report()
    assert (shown["verdict"], shown["code"]) == ("confirmed", "not-confirmed")
    assert shown["why"].endswith("; still missing: controller")
    assert scene.place.state().sources.count(b"probe") == 1
    assert cmd_trial.confirm(scene.product, TRIAL_ID, "controller", 0).json["state"] == "confirmed"
    watcher.join(10)
    assert not watcher.is_alive()


def test_a_trial_that_another_ends_is_told_so(scene: Scene) -> None:
    """An operator takes it back while the probes still count; what was shown is given its end."""
    scene.product = scene.product._replace(confirming=FAST._replace(passes=3))
    scene.begin()
    threading.Timer(1.5, lambda: cmd_trial.rollback(scene.product, TRIAL_ID, "no more")).start()
    scene.watch()
    assert (scene.last().state, scene.last().why) == ("rolled-back", "no more")
    assert scene.report()["phase"] == "after"


def test_a_confirmation_by_another_source_is_shown_as_the_end(scene: Scene) -> None:
    """Probes that have said nothing yet do not go on as if the trial were pending."""
    scene.product = scene.product._replace(confirming=FAST._replace(passes=100))
    pending = scene.begin()
    threading.Timer(1.5, lambda: _confirm(scene)).start()
    scene.watch()
    shown = scene.report()
    assert (shown["trial"], shown["verdict"], shown["why"]) == (
        pending.trial_id,
        "ended",
        "confirmed: probe 1.1.0 is confirmed",
    )


def _confirm(scene: Scene) -> None:
    """As a source that needs nobody else."""
    with lock.held(scene.product, "test"):
        manager.confirm(scene.product, manager.look(scene.product))


def test_what_is_busy_is_tried_again(scene: Scene) -> None:
    """A lock that another holds puts the confirmation off, and forgets no round."""
    scene.begin()
    held = threading.Event()

    def hold() -> None:
        with lock.held(scene.product, "something else"):
            held.set()
            time.sleep(2.5)

    threading.Thread(target=hold, daemon=True).start()
    held.wait(5)
    scene.watch()
    assert scene.last().state == "confirmed"


def test_a_file_with_problems_judges_no_trial(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """I8: who must confirm would be a default's word; the trial ends at its deadline."""
    scene.problems = ("webd.toml:3: no such key",)
    scene.begin(length_s=5)
    scene.beat.unlink()
    scene.watch()
    assert scene.last().code == codes.DEADLINE_PASSED
    assert "the trial is not judged: webd.toml:3: no such key" in capsys.readouterr().err


def test_a_baseline_of_a_trial_that_never_began_goes(scene: Scene) -> None:
    """A cut between it and the trial's record leaves it; the next start of the unit tidies."""
    probe_store.take_baseline(scene.product, "f" * 16)
    scene.watch()
    assert "baseline.json" not in scene.place.names()
    assert scene.last() is None


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_unit_that_is_down_is_no_baseline(scene: Scene, state: str) -> None:
    """What was red for that decides all the same: a release that is no better is not confirmed."""
    scene.beat.unlink()
    scene.active("a", state)
    probe_store.take_baseline(scene.product, TRIAL_ID)
    kept = probe_store.baseline(scene.product)
    assert kept is not None
    assert kept.green() == {}
    scene.begin(baseline=False)
    scene.watch()
    assert scene.last().code == codes.PROBE_FAILED


def test_a_full_disk_refuses_before_the_swap(scene: Scene) -> None:
    """Who cannot keep what was green does not swap, and says so."""
    (scene.place.slots / "baseline.json.tmp").mkdir()
    with pytest.raises(codes.Retryable, match="keep what the probes of probe say before the switch"):
        probe_store.take_baseline(scene.product, TRIAL_ID)


# --- slotward probe ---


def ask(scene: Scene) -> answers.Answer:
    """One round by hand."""
    return cmd_probe.once(scene.product)


def test_looking_once_says_what_decides(scene: Scene) -> None:
    """Status 1 when a probe that decides is red; the baseline of the pending trial counts."""
    found = ask(scene)
    assert (found.exit, found.json["state"], found.json["code"]) == (0, "idle", "ok")
    assert found.json["probes"][0]["ok"] is True
    scene.beat.unlink()
    found = ask(scene)
    said = f"beat: {scene.beat}: No such file or directory"
    assert (found.exit, found.json["code"], found.json["message"]) == (1, "probe-failed", said)
    assert found.lines == [f"FAILED: {said}"]
    scene.begin()
    found = ask(scene)
    assert (found.exit, found.json["state"], found.json["changed"]) == (0, "trial", False)
    assert found.lines == [f"failed, decides nothing: {said}"]
    assert cmd_probe.once(scene.product._replace(probes=())).lines == ["probe has no probes"]


def test_only_root_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs commands as others."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(codes.Refused, match="run it as root"):
        cmd_probe.run(argparse.Namespace(watch=False))


def test_the_agent_itself_is_looked_at_by_its_unit(tmp_path: pathlib.Path) -> None:
    """With `probe` among its sources it has one probe, for the settle time; without, none."""
    path = tmp_path / "config.toml"
    path.write_text('[update]\nconfirm_sources = "probe"\nsettle_s = 7\n')
    path.chmod(0o600)
    setup = own.load(str(path))
    assert [(one.kind, one.unit, one.for_s) for one in setup.product.probes] == [("unit", "slotward.service", 7)]
    assert setup.agent == ("/opt/slotward/slotward/good", str(path))
    assert probe_store.is_asked(setup.product)
    path.write_text("")
    assert own.load(str(path)).product.probes == ()


def test_a_report_is_shown_in_lines(scene: Scene) -> None:
    """As `slotward update` says it."""
    scene.begin()
    scene.watch()
    assert probe_files.lines(scene.report()) == [
        "probes (trial): confirmed, 1 of 1 passes, 0 of 1 failures in a row: a round of probes passed"
    ]
    assert probing.SOURCE == "probe"
