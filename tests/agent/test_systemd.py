# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent asks of systemd, call by call, and what it says when systemd says no, nothing, or is not there."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import List

import pytest

from agent import guarding
from slotcore import codes
from slotcore import product as products
from slotward import effects, systemd


class Fake:
    """The directory that steers the fake systemctl and systemd-run."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def says(self, verb: str, text: str) -> None:
        """What a verb answers."""
        name = "show" if verb == "show" else f"say-{verb}"
        (self.root / name).write_text(text, encoding="utf-8")

    def fails(self, verb: str, status: int) -> None:
        """Make a verb fail."""
        (self.root / f"fail-{verb}").write_text(str(status), encoding="ascii")

    def hangs(self, verb: str) -> None:
        """Make a verb take ten seconds."""
        (self.root / f"hook-{verb}").write_text("exec sleep 10\n", encoding="ascii")

    def calls(self) -> List[str]:
        """What was asked so far."""
        path = self.root / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def fake(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Our own systemctl and systemd-run before the real ones on PATH."""
    monkeypatch.setenv("PATH", f"{guarding.FAKES}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    return Fake(tmp_path)


def test_properties_come_by_name(fake: Fake) -> None:
    """Values may hold equals signs and be empty; unknown ones are missing."""
    fake.says("show", "ActiveState=active\nJob=\nEnvironment=A=b C=d\n")
    assert systemd.show("demo.service", ("ActiveState", "Job", "Nothing")) == {
        "ActiveState": "active",
        "Job": "",
        "Environment": "A=b C=d",
    }
    assert fake.calls() == ["show --property=ActiveState,Job,Nothing -- demo.service"]


@pytest.mark.parametrize(
    ("state", "expected"), [("active", True), ("activating", False), ("failed", False), ("", False)]
)
def test_active_is_what_systemd_calls_active(fake: Fake, state: str, expected: bool) -> None:
    """I4: nothing else counts as armed."""
    fake.says("show", f"ActiveState={state}\n")
    assert systemd.is_active("slotward-deadline@demo.timer") is expected


LOOKS = """
read -r state rest <"$FAKE_SYSTEMD/looks"
echo "ActiveState=$state" >"$FAKE_SYSTEMD/show"
[ -z "$rest" ] || echo "$rest" >"$FAKE_SYSTEMD/looks"
"""


@pytest.mark.parametrize(("looks", "armed"), [("active", True), ("inactive active", True), ("inactive", False)])
def test_a_timer_that_the_last_look_stopped_is_armed_again(fake: Fake, looks: str, armed: bool) -> None:
    """I4: the guard's last look at the trial before stops the timer that a switch has found active; then it starts it anew."""
    product = products.Product("demo", "demo.service", "/nowhere", "/nowhere")
    (fake.root / "looks").write_text(f"{looks}\n", encoding="ascii")
    (fake.root / "hook-show").write_text(LOOKS, encoding="ascii")
    if armed:
        effects.arm(product)
    else:
        with pytest.raises(codes.Refused, match="nothing was switched"):
            effects.arm(product)
    assert fake.calls().count("start -- slotward-deadline@demo.timer") == {"active": 1, "inactive active": 2}.get(
        looks, 3
    )


def test_w2_a_restart_forgets_the_failure_first_and_does_not_wait(fake: Fake) -> None:
    """W2: reset-failed, which may say no, then a restart in the background."""
    fake.fails("reset-failed", 1)
    systemd.restart("demo.service")
    assert fake.calls() == ["reset-failed -- demo.service", "--no-block restart -- demo.service"]


def test_each_wish_is_one_call(fake: Fake) -> None:
    """The rest of the verbs."""
    systemd.start("x.timer")
    systemd.start_no_block("x.service")
    systemd.stop("x.timer")
    systemd.enable("x.timer")
    systemd.daemon_reload()
    assert systemd.is_enabled("x.timer")
    fake.fails("is-enabled", 1)
    assert not systemd.is_enabled("x.timer")
    assert fake.calls() == [
        "start -- x.timer",
        "--no-block start -- x.service",
        "stop -- x.timer",
        "enable -- x.timer",
        "daemon-reload",
        "is-enabled -- x.timer",
        "is-enabled -- x.timer",
    ]


def test_a_no_names_the_command_and_what_was_said(fake: Fake) -> None:
    """Retryable, with the whole command to try by hand."""
    fake.fails("start", 5)
    with pytest.raises(codes.Retryable) as caught:
        systemd.start("x.timer")
    assert caught.value.code == codes.SYSTEMD_FAILED
    assert caught.value.text == "`systemctl start -- x.timer` ended with status 5: Failed to start: made to fail"


def test_silence_has_an_end(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A systemd that does not answer is not waited for."""
    monkeypatch.setattr(systemd, "START_S", 0.3)
    fake.hangs("start")
    with pytest.raises(codes.Retryable, match=r"no answer within 0\.3 s"):
        systemd.start("x.timer")


def test_a_host_without_systemd_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """I4: no systemctl, no trial."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (lambda: systemd.show("x", ("A",)), systemd.version, lambda: systemd.run_attached(["true"], "x")):
        with pytest.raises(codes.Refused) as caught:
            call()
        assert caught.value.code == codes.NO_SYSTEMD


def test_a_systemctl_that_finds_no_systemd_is_refused(fake: Fake) -> None:
    """A container has the program and not the service manager."""
    (fake.root / "hook-show").write_text(
        "echo 'System has not been booted with systemd as init system (PID 1).' >&2; exit 1\n", encoding="ascii"
    )
    with pytest.raises(codes.Refused) as caught:
        systemd.show("x", ("A",))
    assert caught.value.code == codes.NO_SYSTEMD


def test_the_version_is_a_number(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`systemctl --version` has it as its second word."""
    program = tmp_path / "systemctl"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program.write_text("#!/bin/sh\necho 'systemd 252 (252.39-1~deb12u2)'\n", encoding="ascii")
    program.chmod(0o755)
    assert systemd.version() == 252
    program.write_text("#!/bin/sh\necho unknown\n", encoding="ascii")
    with pytest.raises(codes.Retryable, match="no version"):
        systemd.version()


def test_w13_a_transient_unit_takes_its_output_and_its_limits(fake: Fake) -> None:
    """W13: outside the caller's control group, with the properties asked for and an end."""
    answer = systemd.run_transient(
        ["sh", "-c", "echo out; echo err >&2; exit 7"], ["User=nobody"], timeout_s=20, what="smoke-demo"
    )
    assert answer == systemd.Output(7, "out\nerr\n")
    call, forgotten = fake.calls()
    assert forgotten == f"reset-failed -- {unit_in(call)}", "7 is no status of systemd-run's own"
    assert call.startswith(f"systemd-run --quiet --pipe --wait --unit=slotward-smoke-demo-{os.getpid()}-")
    assert "--property=User=nobody --property=RuntimeMaxSec=20 " in call


def unit_in(call: str) -> str:
    """The name of the transient unit that a call of systemd-run asks for."""
    return call.partition("--unit=")[2].split()[0]


GONE = "ActiveState=inactive\nResult=success\n"
RUNS = "ActiveState=active\nResult=success\n"
NO_FORK = "ActiveState=failed\nResult=resources\n"


@pytest.mark.parametrize(
    ("ends", "shown"),
    [("exit 1", GONE), ("exit 1", RUNS), ("exit 1", NO_FORK), ("exit 0", RUNS), ("exit 0", NO_FORK)],
    ids=["never-there", "still-runs", "no-resources", "bus-lost", "bus-lost-and-failed"],
)
def test_what_systemd_run_cannot_follow_says_nothing_of_the_command(fake: Fake, ends: str, shown: str) -> None:
    """A bus that is gone, before or meanwhile: systemd-run's own 1 is no program's, and the unit is asked."""
    (fake.root / "hook-show").write_text(f"for one in $FAKE_SYSTEMD/show-*; do printf '{shown}' >$one; done\n")
    with pytest.raises(codes.Retryable, match=r"systemd-run ended with status [01]: Failed to connect to bus"):
        systemd.run_transient(["sh", "-c", f"echo Failed to connect to bus; {ends}"], (), timeout_s=20, what="smoke")
    unit = unit_in(fake.calls()[0])
    assert fake.calls()[-2:] == [f"stop -- {unit}", f"reset-failed -- {unit}"]


@pytest.mark.parametrize("result", ["exit-code", "timeout", "core-dump", "oom-kill"])
def test_a_programs_own_end_is_told_from_systemd_runs(fake: Fake, result: str) -> None:
    """Where systemd says so: its status 1, its time limit, its crash."""
    hook = f"for one in $FAKE_SYSTEMD/show-*; do printf 'ActiveState=failed\nResult={result}\n' >$one; done\n"
    (fake.root / "hook-show").write_text(hook)
    answer = systemd.run_transient(["sh", "-c", "echo no; exit 1"], (), timeout_s=20, what="smoke")
    assert answer == systemd.Output(1, "no\n")
    unit = unit_in(fake.calls()[0])
    assert fake.calls()[1:] == [f"show --property=ActiveState,Result -- {unit}", f"reset-failed -- {unit}"]


def test_no_two_transient_units_have_one_name(fake: Fake) -> None:
    """Of the one before it could be said how it ended."""
    for _turn in range(3):
        systemd.run_transient(["true"], (), timeout_s=20, what="smoke")
    units = {unit_in(call) for call in fake.calls() if call.startswith("systemd-run")}
    assert len(units) == 3


@pytest.mark.parametrize(("status", "begun"), [(217, False), (226, False), (203, True), (199, True), (255, True)])
def test_what_systemd_cannot_begin_says_nothing_of_the_command(fake: Fake, status: int, begun: bool) -> None:
    """No such account, no mount namespace: the host's matter, and to be tried again. A program that cannot be executed is its own."""
    run = functools.partial(systemd.run_transient, ["sh", "-c", f"exit {status}"], (), timeout_s=20, what="smoke")
    if begun:
        assert run().code == status
    else:
        with pytest.raises(codes.Retryable, match=f"could not be begun .status {status}.*journalctl"):
            run()


def test_a_transient_unit_that_does_not_end_is_killed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the unit nor the wait for it outlives the limit."""
    monkeypatch.setattr(systemd, "START_S", 0.2)
    with pytest.raises(codes.Retryable, match="no answer"):
        systemd.run_transient(["sleep", "10"], (), timeout_s=0.1, what="smoke")
    unit = unit_in(fake.calls()[0])
    assert fake.calls()[-2:] == [f"stop -- {unit}", f"reset-failed -- {unit}"]


def test_a_unit_whose_file_is_gone_already_is_stopped(fake: Fake, tmp_path: pathlib.Path) -> None:
    """A setup that was killed has removed the file, and a start of the daemon has started the unit again."""
    (tmp_path / "fail-disable").write_text("1")
    there = tmp_path / "gone.path"
    (tmp_path / "show").write_text(f"FragmentPath={there}\n")
    systemd.disable_now("gone.path")
    assert "stop -- gone.path" in fake.calls()
    there.touch()
    with pytest.raises(codes.Retryable, match="disable --now"):
        systemd.disable_now("gone.path")


def test_an_attached_command_answers_with_its_own_status(fake: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    """What it answers is taken; its other streams are this process's own."""
    script = "echo hello; echo on the way >&2; exit 3"
    assert systemd.run_attached(["sh", "-c", script], "slotward-x") == systemd.Output(3, "hello\n")
    assert capfd.readouterr() == ("", "on the way\n")
    assert fake.calls() == [f"systemd-run --quiet --collect --pipe --wait --unit=slotward-x -- sh -c {script}"]


def test_a_detached_command_is_not_waited_for(fake: Fake) -> None:
    """What the node asks for at its start."""
    systemd.run_detached(["true"], "slotward-settle", ("Nice=5",))
    assert fake.calls() == ["systemd-run --quiet --collect --no-block --unit=slotward-settle --property=Nice=5 -- true"]
    fake.fails("systemd-run", 1)
    with pytest.raises(codes.Retryable, match="made to fail"):
        systemd.run_detached(["true"], "slotward-settle")


def test_w9_what_systemd_analyze_finds_is_passed_on(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W9: a wrong line in a unit is known before the unit is used; without the program nothing is claimed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert systemd.verify(["/etc/systemd/system/x.service"]) == ()
    program = tmp_path / "systemd-analyze"
    for body, expected in (
        ("exit 0", ()),
        ("echo 'x.service:3: Unknown key' >&2", ("x.service:3: Unknown key",)),
        ("exit 1", ("systemd-analyze verify ended with status 1",)),
    ):
        program.write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
        program.chmod(0o755)
        assert systemd.verify(["/etc/systemd/system/x.service"]) == expected


def test_subprocess_is_imported_only_when_it_is_needed() -> None:
    """DESIGN 9: most starts of the agent ask systemd nothing."""
    code = "import sys; from slotward import systemd; sys.exit('subprocess' in sys.modules)"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": path}, check=False)
    assert done.returncode == 0


def test_a_host_says_whether_systemd_runs_it() -> None:
    """The same question that sd_booted(3) asks."""
    assert (systemd.booted() is None) == os.path.isdir("/run/systemd/system")


def test_what_a_transient_unit_says_is_bounded(fake: Fake) -> None:
    """A program that runs as the daemon's account may say as much as it likes: root keeps the end of it."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "head -c 300000000 /dev/zero | tr '\\0' a; echo; echo the end; exit 3"
    answer = systemd.run_transient(["sh", "-c", script], (), timeout_s=60, what="smoke")
    assert (answer.code, len(answer.output)) == (3, systemd.MAX_OUTPUT)
    assert answer.output.endswith("aaa\nthe end\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "KiB"
    assert fake.calls()


def test_who_keeps_a_transient_units_stream_is_not_waited_for(fake: Fake) -> None:
    """Another process of the account may have got hold of it."""
    began = time.monotonic()
    answer = systemd.run_transient(["sh", "-c", "sleep 20 & echo done"], (), timeout_s=60, what="smoke")
    assert (answer, time.monotonic() - began < 5) == (systemd.Output(0, "done\n"), True)
    assert fake.calls()


def test_words_of_a_transient_unit_are_no_variables() -> None:
    """A command's words are words (products.md, section 1): systemd would put variables in their place."""
    command = systemd.transient(["/srv/$x/hook", "--why", "costs $5, ${HOME}", "$$"], "unit")
    assert command[command.index("--") + 1 :] == ["/srv/$x/hook", "--why", "costs $$5, $${HOME}", "$$$$"]


def test_who_is_interrupted_waits_for_nothing(fake: Fake) -> None:
    """An operator's Ctrl-C, or a cancel, comes as an exception."""

    def cancel(_number: int, _frame: object) -> None:
        raise codes.Retryable(codes.CANCELLED, "cancelled")

    before = signal.signal(signal.SIGALRM, cancel)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    try:
        with pytest.raises(codes.Retryable, match="cancelled"):
            systemd.run_attached(["sleep", "20"], "slotward-x")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 10
    assert fake.calls()
