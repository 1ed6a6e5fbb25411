# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard and its units on real systemd, without the agent: each way a release can fail, and what must not count.

A product `demo` of two shell programs; a swap is done by hand as docs/design/node.md orders it. Numbers I1 to I12 are the design's.
"""

from __future__ import annotations

import pathlib
import shlex
import sys
import time
from collections.abc import Iterator

import pytest

from slotcore import product as products
from slotcore import trial as trials
from slotward import units

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))

import hosts

pytestmark = pytest.mark.hosts  # make e2e runs all of it; the marked ones are part of make host too

SLOTS = "/opt/slotward/demo"
PRODUCT = products.Product("demo", "demo.service", "/usr/local/bin/demo", SLOTS)
GOOD = "exec sleep infinity"
READY = f"systemd-notify --ready; {GOOD}"
CHECKS = f'[ "${{1-}}" != check ] || exit 0; {GOOD}'
UNIT = """[Unit]
Description=demo
StartLimitIntervalSec={interval}
StartLimitBurst=5
[Service]
{service}
ExecStart=/usr/local/bin/demo
Restart={restart}
RestartSec={wait}
[Install]
WantedBy=multi-user.target
"""


class Demo:
    """The product on one host."""

    def __init__(self, host: hosts.Host) -> None:
        self.host = host
        self.version = int(host.run("systemctl --version").stdout.split()[1])
        for file in units.render(PRODUCT, self.version):
            host.write(file.path, file.text, file.mode)

    def sh(self, script: str, check: bool = True) -> str:
        """Run a script in the host and give what it wrote."""
        return self.host.run(script, check=check, timeout=120).stdout.strip()

    def install(
        self,
        restart: str = "always",
        service: str = "",
        interval: str = "0",
        wait: str = "200ms",
        good: str = GOOD,
        enable: bool = True,
    ) -> None:
        """Set the unit and the slots up from nothing, with slot a good and running."""
        self.sh(
            "systemctl disable -q --now demo.service slotward-deadline@demo.timer 2>/dev/null;"
            f"rm -rf {SLOTS} /run/demo.log /run/demo.env; mkdir -p {SLOTS}; systemctl reset-failed; true"
        )
        text = UNIT.format(restart=restart, service=service, interval=interval, wait=wait)
        self.host.write("/etc/systemd/system/demo.service", text)
        self.slot("a", good)
        self.sh(
            f"cd {SLOTS}; ln -sfn a good; ln -sfn a current; ln -sfn {SLOTS}/current /usr/local/bin/demo;"
            "systemctl daemon-reload; systemctl enable -q slotward-deadline@demo.timer;"
            f"{'systemctl enable -q demo.service;' if enable else ''} systemctl start demo.service"
        )

    def slot(self, name: str, body: str) -> None:
        """Fill a slot with a program that says which slot it is and then does `body`."""
        self.host.write(
            f"{SLOTS}/{name}", f"#!/bin/sh\necho {name} $(cut -d' ' -f1 /proc/uptime) >>/run/demo.log\n{body}\n", 0o755
        )

    def swap(self, body: str, length: int = 60, boots: int = 3) -> float:
        """Begin a trial of a program, in the order of docs/design/node.md; answers the uptime at the restart."""
        self.slot("b", body)
        trial = trials.Trial(
            "00112233445566aa", "demo", "1.0.0", "1.1.0", "a", "b", 2,
            self.host.boot_id, length, int(self.uptime()) + length, boots, "-", "0" * 64, "1" * 64,
        )  # fmt: skip
        self.host.write(f"{SLOTS}/trial.log", trials.LOG_HEADER)
        self.sh(f"cd {SLOTS}; ln -sfn a back")
        self.host.write(f"{SLOTS}/trial", trials.render_trial(trial))
        self.sh("systemctl start slotward-deadline@demo.timer && systemctl -q is-active slotward-deadline@demo.timer")
        self.sh(
            f"cd {SLOTS}; ln -sfn b c.tmp; mv -T c.tmp current; systemctl reset-failed demo.service;"
            "systemctl --no-block restart demo.service"
        )
        return self.uptime()

    def uptime(self) -> float:
        """Seconds since the machine's boot."""
        return float(self.sh("cut -d' ' -f1 /proc/uptime"))

    def current(self) -> str:
        """The slot that a start runs."""
        return self.sh(f"readlink {SLOTS}/current")

    def reason(self) -> str:
        """Why the trial went back, or nothing."""
        return self.sh(f"sed -n s/^REASON=//p {SLOTS}/trial.revert 2>/dev/null", check=False)

    def active(self, unit: str = "demo.service") -> str:
        """The unit's state."""
        return self.sh(f"systemctl is-active {unit}", check=False)

    def running(self) -> str:
        """The slot whose program was started last."""
        return self.sh("tail -n 1 /run/demo.log | cut -d' ' -f1", check=False)

    def starts(self, slot: str) -> int:
        """How often a slot's program was started."""
        return int(self.sh(f"grep -c '^{slot} ' /run/demo.log", check=False) or "0")

    def ends(self, reason: str, within: float) -> float:
        """Wait until the trial has gone back for a reason and the good program runs; how long it took."""
        began = time.monotonic()
        while time.monotonic() - began < within:
            if self.current() == "a" and self.running() == "a" and self.active() == "active":
                assert self.reason() == reason, self.story()
                return time.monotonic() - began
            time.sleep(0.2)
        raise AssertionError(f"not back within {within} s: {self.story()}")

    def goes_on(self) -> None:
        """The trial is still pending and the new program is the one to start."""
        assert self.current() == "b", self.story()
        assert self.sh(f"ls {SLOTS}/trial") == f"{SLOTS}/trial"

    def story(self) -> str:
        """What happened, for a failed test."""
        return self.sh(
            f"ls -l {SLOTS}; cat {SLOTS}/trial.log {SLOTS}/trial.revert; cat /run/demo.log; systemctl status demo.service;"
            "journalctl -o short-monotonic --no-pager -n 60 2>&1 | tail -60",
            check=False,
        )

    def quiet(self) -> None:
        """The timer has stopped itself and nothing of ours has failed."""
        self.host.wait_for("! systemctl -q is-active slotward-deadline@demo.timer", timeout=8)
        failed = self.sh("systemctl list-units --failed --no-legend --plain 'slotward-*'")
        assert failed == "", failed + self.story()


@pytest.fixture(scope="module", params=hosts.SUITES)
def demo(request: pytest.FixtureRequest) -> Iterator[Demo]:
    """The product on a fresh host of each suite."""
    with hosts.Run() as run:
        yield Demo(run.up("guard", request.param))


@pytest.mark.parametrize(
    "body", ["exit 1", "exit 0", "kill -9 $$", "kill -SEGV $$"], ids=["exit-1", "exit-0", "killed", "segv"]
)
@pytest.mark.parametrize("service", ["", "Type=notify\nNotifyAccess=all"], ids=["simple", "notify"])
def test_w11_a_crash_loop_goes_back_before_its_fourth_restart(demo: Demo, body: str, service: str) -> None:
    """W11, I2: a release that ends at once, with any status, is replaced within ten seconds by the guard alone."""
    demo.install(service=service, good=READY if service else GOOD)
    demo.swap(body)
    took = demo.ends("crash-loop", 10)
    assert demo.starts("b") == 4, demo.story()
    print(f"back after {took:.1f} s")
    demo.quiet()


def test_crashes_after_five_seconds_are_counted(demo: Demo) -> None:
    """A release that lives five seconds each time is a crash loop too."""
    demo.install()
    demo.swap("sleep 5; exit 1")
    demo.ends("crash-loop", 40)
    demo.quiet()


@pytest.mark.host
def test_w15_one_crash_does_not_end_a_trial(demo: Demo) -> None:
    """W15: a release that fails once, or three times, and then stays, keeps its trial."""
    demo.install()
    demo.swap(f"[ $(grep -c '^b ' /run/demo.log) -gt 3 ] || exit 1; {GOOD}")
    time.sleep(6)
    demo.goes_on()
    assert demo.starts("b") == 4
    assert demo.active() == "active"


def test_w1_on_failure_of_each_restart_is_no_failure(demo: Demo) -> None:
    """W1: 257 starts OnFailure= at each automatic restart; only the guard's own count ends the trial."""
    demo.install(wait="1500ms")
    demo.swap(f"[ $(grep -c '^b ' /run/demo.log) -gt 2 ] || exit 1; {GOOD}")
    time.sleep(7)
    demo.goes_on()
    assert demo.active() == "active"


def test_a_hang_goes_back_at_the_deadline(demo: Demo) -> None:
    """I2, I10: a release that runs and is never confirmed ends with its length."""
    demo.install()
    demo.swap(GOOD, length=5)
    took = demo.ends("deadline-passed", 15)
    assert took >= 2
    demo.quiet()


def test_a_start_that_never_gets_ready_goes_back(demo: Demo) -> None:
    """A Type=notify release that never says it is ready counts each start that systemd gives up."""
    demo.install(service="Type=notify\nNotifyAccess=all\nTimeoutStartSec=2s", good=READY)
    demo.swap(GOOD)
    demo.ends("crash-loop", 25)
    demo.quiet()


def test_a_hang_before_ready_goes_back_at_the_deadline(demo: Demo) -> None:
    """A deadline ends a start that systemd itself still waits for."""
    demo.install(service="Type=notify\nNotifyAccess=all\nTimeoutStartSec=90s", good=READY)
    demo.swap(GOOD, length=5)
    demo.ends("deadline-passed", 15)


@pytest.mark.parametrize(("body", "reason"), [("exit 3", "unit-failed"), ("exit 0", "unit-stopped")])
@pytest.mark.parametrize("enable", [True, False], ids=["enabled", "not-enabled"])
def test_a_unit_that_does_not_restart_goes_back(demo: Demo, body: str, reason: str, enable: bool) -> None:
    """Failure mode 3: OnFailure= or the next tick ends the trial, and W7 the unit is started although it is inactive."""
    demo.install(restart="no", enable=enable)
    demo.swap(f"sleep 0.5; {body}")
    demo.ends(reason, 8)
    demo.quiet()


def test_a_failing_start_pre_goes_back(demo: Demo) -> None:
    """A release whose ExecStartPre= fails never has a main process; its starts are counted all the same."""
    demo.install(service="ExecStartPre=/usr/local/bin/demo check", good=CHECKS)
    demo.swap("exit 1")
    demo.ends("crash-loop", 10)


def test_a_failing_start_pre_without_restart_goes_back(demo: Demo) -> None:
    """The same where the unit does not restart."""
    demo.install(restart="no", service="ExecStartPre=/usr/local/bin/demo check", good=CHECKS)
    demo.swap("exit 1")
    demo.ends("unit-failed", 10)


def test_bytes_that_cannot_run_go_back(demo: Demo) -> None:
    """Failure mode 4 with all checks off: no program at all, and a missing interpreter."""
    demo.install()
    demo.swap(GOOD)
    demo.host.write(f"{SLOTS}/b", b"\x00\x01 no program", 0o755)
    demo.sh("systemctl kill -s KILL demo.service")
    demo.ends("crash-loop", 10)
    demo.install()
    demo.swap(GOOD)
    demo.host.write(f"{SLOTS}/b", "#!/no/such/interpreter\n", 0o755)
    demo.sh("systemctl kill -s KILL demo.service")
    demo.ends("crash-loop", 10)


@pytest.mark.host
def test_w2_the_unit_s_own_start_limit_goes_back(demo: Demo) -> None:
    """W2: a unit that hits its own limit is reset and started; OnFailure= is what tells the guard."""
    demo.install(interval="60", wait="100ms")
    demo.sh("for i in 1 2 3; do systemctl restart demo.service; done")
    demo.sh("systemctl reset-failed demo.service")
    demo.swap("exit 1")
    demo.ends("crash-loop", 10)


@pytest.mark.host
@pytest.mark.parametrize("service", ["", "KillSignal=SIGINT"], ids=["dies", "exits-5"])
def test_w3_twelve_restarts_by_hand_count_for_nothing(demo: Demo, service: str) -> None:
    """W3: outside a trial and inside one, also for a daemon that answers a stop with an error status."""
    body = "trap 'exit 5' INT; while :; do sleep 0.05; done" if service else GOOD
    demo.install(service=service)
    demo.sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do systemctl restart demo.service; done")
    assert demo.current() == "a"
    demo.swap(body)
    time.sleep(0.5)
    demo.sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do systemctl restart demo.service; sleep 0.1; done")
    time.sleep(5)
    demo.goes_on()
    assert demo.active() == "active"
    assert "crash" not in demo.sh(f"cat {SLOTS}/trial.log")


def test_w3_restarts_while_starting_count_for_nothing(demo: Demo) -> None:
    """Restarts by hand of a Type=notify unit that is not ready yet."""
    demo.install(service="Type=notify\nNotifyAccess=all", good=READY)
    demo.swap(f"sleep 3; systemd-notify --ready; {GOOD}")
    demo.sh("for i in 1 2 3 4 5 6 7; do sleep 0.3; systemctl --no-block restart demo.service; done")
    time.sleep(6)
    demo.goes_on()
    assert demo.active() == "active"


@pytest.mark.host
def test_crashes_are_counted_while_daemon_reload_runs_in_a_loop(demo: Demo) -> None:
    """Failure mode 16: 247 and 252 forget their own count at each reload."""
    demo.install(wait="500ms")
    demo.sh("systemd-run -q --unit=reloads sh -c 'while :; do systemctl daemon-reload; sleep 0.2; done'")
    try:
        demo.swap("exit 1")
        demo.ends("crash-loop", 20)
    finally:
        demo.sh("systemctl stop reloads.service")


def test_restarts_of_the_old_version_do_not_count(demo: Demo) -> None:
    """What systemd counted before the swap is the old version's."""
    demo.install()
    demo.sh("for i in 1 2 3 4 5 6; do systemctl kill -s KILL demo.service; sleep 0.5; done")
    demo.swap(f"[ $(grep -c '^b ' /run/demo.log) -gt 1 ] || exit 1; {GOOD}")
    time.sleep(4)
    demo.goes_on()


def test_w7_going_back_does_not_start_what_an_operator_stopped(demo: Demo) -> None:
    """An operator's stop is no failure: the links go back at the deadline and the unit stays stopped."""
    demo.install()
    demo.swap(GOOD, length=8)
    time.sleep(1)
    demo.sh("systemctl stop demo.service")
    time.sleep(4)
    demo.goes_on()
    time.sleep(7)
    assert demo.current() == "a", demo.story()
    assert demo.reason() == "deadline-passed"
    assert demo.active() == "inactive"
    demo.quiet()


def test_a_stop_that_ends_in_failure_is_an_operator_s_stop(demo: Demo) -> None:
    """A daemon that answers a stop with status 5 leaves its unit failed; that is not the release's failure."""
    demo.install(service="KillSignal=SIGINT")
    demo.swap("trap 'exit 5' INT; while :; do sleep 0.05; done", length=8)
    time.sleep(1)
    demo.sh("systemctl stop demo.service")
    assert demo.active() == "failed"
    time.sleep(4)
    demo.goes_on()
    time.sleep(7)
    assert demo.current() == "a"
    assert demo.active() == "failed"


def test_h5_a_reboot_gives_the_trial_its_length_again(demo: Demo) -> None:
    """H5, I7: a reboot is no failure; after it the length counts anew and one boot less is left."""
    demo.install()
    demo.swap(GOOD, length=12)
    demo.host.cut()
    time.sleep(13)
    demo.host.boot()
    demo.goes_on()
    assert "BOOTS_LEFT=2" in demo.sh(f"cat {SLOTS}/trial")
    assert demo.active("slotward-deadline@demo.timer") == "active"
    demo.ends("deadline-passed", 20)


def test_a_boot_too_many_goes_back(demo: Demo) -> None:
    """I7: the trial does not survive more boots than it has; the good version is what this boot starts."""
    demo.install()
    demo.swap(GOOD, boots=0)
    demo.host.cut()
    demo.host.boot()
    demo.ends("no-boots-left", 10)


@pytest.mark.host
def test_going_back_works_with_run_full(demo: Demo) -> None:
    """I2: with not a byte left in /run the crash loop still ends."""
    demo.install()
    demo.sh("fallocate -l 1T /run/filler 2>/dev/null || dd if=/dev/zero of=/run/filler bs=64k 2>/dev/null; true")
    try:
        full = demo.sh("df --output=avail /run | tail -n 1")
        demo.swap("exit 1")
        demo.ends("crash-loop", 20)
        assert full == "0"
    finally:
        demo.sh("rm -f /run/filler")


def test_w5_the_guard_is_no_child_of_the_unit(demo: Demo) -> None:
    """W5, I6: the guard runs in a control group of its own and takes nothing from the unit's environment."""
    demo.install(service="EnvironmentFile=-/run/demo.env")
    demo.host.write("/run/demo.env", "LD_PRELOAD=/nonexistent.so\nGUARD_PROC=/run\n")
    demo.swap("exit 1")
    demo.ends("crash-loop", 10)
    log = demo.sh("journalctl -o cat -u slotward-guard@demo.service --no-pager")
    assert "nonexistent" not in log
    assert "going back from b to a: crash-loop" in log


def test_without_a_trial_a_start_changes_nothing(demo: Demo) -> None:
    """Nothing is touched when no trial is pending: no inode, time or name in the slots directory changes."""
    demo.install()
    before = demo.sh(f"stat -c '%n %i %y %z' {SLOTS} {SLOTS}/*")
    demo.sh(
        "systemctl restart demo.service; systemctl start slotward-deadline@demo.service slotward-rollback@demo.service"
    )
    assert demo.sh(f"stat -c '%n %i %y %z' {SLOTS} {SLOTS}/*") == before


@pytest.mark.host
def test_w9_systemd_takes_every_line_of_the_units(demo: Demo) -> None:
    """W9: systemd-analyze verify has nothing to say about any unit that we write, the agent's own included."""
    demo.install()
    agent = products.Product("slotward", "slotward.service", "/usr/local/bin/slotward", "/opt/slotward/slotward")
    files = units.render(agent, demo.version, units.Agent("/etc/slotward/config.toml"))
    for file in files:
        demo.host.write(file.path, file.text, file.mode)
    demo.sh("ln -sfn /usr/bin/true /usr/local/bin/slotward; systemctl daemon-reload")
    names = [f"slotward-{kind}@demo.service" for kind in ("guard", "rollback", "deadline")]
    names += ["slotward-deadline@demo.timer", "slotward.service", "demo.service"]
    said = demo.host.run("systemd-analyze verify --man=no " + " ".join(map(shlex.quote, names)), check=False)
    ours = [line for line in (said.stdout + said.stderr).splitlines() if "slotward" in line or "demo" in line]
    assert ours == []
    assert said.returncode == 0
