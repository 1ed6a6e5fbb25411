# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard of two units on real systemd, without the agent: a daemon and its helper, one trial, real timers.

Both start the same bytes, the daemon by its entrypoint and the helper by `<slots>/helper`, as privilege.md orders it. A swap is
done by hand in the order of docs/design/node.md. Numbers I1 to I12 are the design's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import hosts
import pytest
from e2e.test_guard_hosts import GOOD, READY, SLOTS, Demo

from slotcore import product as products
from slotcore import trial as trials
from slotward import unit_files, units

pytestmark = pytest.mark.hosts  # make e2e runs all of it; the marked ones are part of make host too

HELPER = "demo-helper.service"
PRODUCT = products.Product("demo", "demo.service", "/usr/local/bin/demo", SLOTS, helper_unit=HELPER)
BOTH = "demo.service demo-helper.service"
SIDES = ("unit", "helper")
UNIT = """[Unit]
Description={which}
{relation}
StartLimitIntervalSec=0
[Service]
{service}
ExecStart={program}
Restart={restart}
RestartSec={wait}
[Install]
WantedBy=multi-user.target
"""
# a Python program that never gets ready: its unit is started, and hangs
HANG = "exec python3 -I -c 'import time; time.sleep(3600)'"


class Pair(Demo):
    """The product and its helper on one host."""

    def __init__(self, host: hosts.Host) -> None:
        super().__init__(host)
        for file in (*units.render(PRODUCT, self.version), unit_files.rollback_dropin(HELPER, PRODUCT.name)):
            host.write(file.path, file.text, file.mode)

    def set_up(
        self, restart: str = "always", notify: bool = True, helper_restart: str = "always", wait: str = "200ms"
    ) -> None:
        """Both units and the slots from nothing, with slot a good and running."""
        self.sh(
            f"systemctl unmask -q {BOTH}; systemctl disable -q --now {BOTH} slotward-deadline@demo.timer 2>/dev/null;"
            f"rm -rf {SLOTS} /run/demo.log; mkdir -p {SLOTS}; systemctl reset-failed; true"
        )
        kind = "Type=notify\nNotifyAccess=all\nTimeoutStartSec=3s" if notify else ""
        relation = f"Wants={HELPER}\nAfter={HELPER}"
        self.host.write(
            "/etc/systemd/system/demo.service",
            UNIT.format(
                which="demo", relation=relation, service="", program="/usr/local/bin/demo", restart=restart, wait=wait
            ),
        )
        self.host.write(
            f"/etc/systemd/system/{HELPER}",
            UNIT.format(
                which="helper", relation="", service=kind, program=f"{SLOTS}/helper", restart=helper_restart, wait=wait
            ),
        )
        self.both("a", GOOD, READY if notify else GOOD)
        self.sh(
            f"cd {SLOTS}; ln -sfn a good; ln -sfn a current; ln -sfn a helper; ln -sfn {SLOTS}/current /usr/local/bin/demo;"
            f"systemctl daemon-reload; systemctl enable -q slotward-deadline@demo.timer {BOTH}; systemctl start {BOTH}"
        )

    def both(self, name: str, unit: str, helper: str) -> None:
        """Fill a slot with a program that says which slot and which unit it is, and then does as that one."""
        self.host.write(
            f"{SLOTS}/{name}",
            "#!/bin/sh\ncase $0 in */helper) which=helper ;; *) which=unit ;; esac\n"
            f"echo {name} $which $(cut -d' ' -f1 /proc/uptime) >>/run/demo.log\n"
            f"if [ $which = helper ]; then {helper}\nelse {unit}\nfi\n",
            0o755,
        )

    def swap_both(self, unit: str = GOOD, helper: str = READY, length: int = 60, boots: int = 3) -> None:
        """Begin a trial, both links and both units."""
        self.both("b", unit, helper)
        trial = trials.Trial(
            "00112233445566aa", "demo", "1.0.0", "1.1.0", "a", "b", 2,
            self.host.boot_id, length, int(self.uptime()) + length, boots, "-", "0" * 64, "1" * 64,
        )  # fmt: skip
        self.sh(f"cd {SLOTS}; ln -sfn a back; ln -sfn a helper.back")
        self.host.write(f"{SLOTS}/trial.log", trials.LOG_HEADER)
        self.host.write(f"{SLOTS}/trial", trials.render_trial(trial))
        self.sh("systemctl start slotward-deadline@demo.timer && systemctl -q is-active slotward-deadline@demo.timer")
        self.sh(
            f"cd {SLOTS}; for link in current helper; do ln -sfn b c.tmp; mv -T c.tmp $link; done;"
            f"systemctl reset-failed {BOTH}; systemctl --no-block restart {BOTH}"
        )

    def program(self, which: str) -> str:
        """The slot whose program was started last by a unit."""
        return self.sh(f"grep ' {which} ' /run/demo.log | tail -n 1 | cut -d' ' -f1", check=False)

    def times(self, slot: str, which: str) -> int:
        """How often a slot's program was started by a unit."""
        return int(self.sh(f"grep -c '^{slot} {which} ' /run/demo.log", check=False) or "0")

    def links(self) -> str:
        """Where the two links point."""
        return self.sh(f"readlink {SLOTS}/current {SLOTS}/helper").replace("\n", " ")

    def are_back(self, reason: str, within: float, stopped: str = "") -> float:
        """Wait until both have gone back for a reason and both good programs run, but what is `stopped`; how long it took."""
        began = time.monotonic()
        names = {"unit": "demo.service", "helper": HELPER}
        running = [which for which in SIDES if which != stopped]
        while time.monotonic() - began < within:
            if self.links() == "a a" and all(
                self.program(which) == "a" and self.active(names[which]) == "active" for which in running
            ):
                assert self.reason() == reason, self.story()
                assert not stopped or self.active(names[stopped]) != "active", self.story()
                return time.monotonic() - began
            time.sleep(0.2)
        raise AssertionError(f"not back within {within} s: {self.story()}")

    def trial_goes_on(self) -> None:
        """The trial is pending, and both start the new program."""
        self.goes_on()
        assert self.links() == "b b", self.story()

    def ended(self) -> None:
        """The timer has stopped itself, nothing failed, nothing is left, and the good programs run on undisturbed."""
        self.quiet()
        before = self.sh("cat /run/demo.log")
        time.sleep(3)
        assert self.sh("cat /run/demo.log") == before, self.story()
        assert self.links() == "a a"
        # of a tick and a failure at once, the one that comes late may have made a way back again
        left = [name for name in self.sh(f"ls {SLOTS}").split() if name not in {"back", "helper.back"}]
        assert left == ["a", "b", "current", "good", "helper", "trial.log", "trial.revert"]


@pytest.fixture(scope="module", params=hosts.SUITES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The product and its helper on a fresh host of each suite."""
    with hosts.Run() as run:
        yield Pair(run.up("guardpair", request.param))


@pytest.mark.host
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("body", ["exit 1", "exit 0", "kill -9 $$"], ids=["exit-1", "exit-0", "killed"])
def test_w11_a_crash_loop_of_either_takes_both_back(pair: Pair, side: str, body: str) -> None:
    """W11, I2: four starts of the bad one, and both units run the good version."""
    pair.set_up()
    pair.swap_both(**{side: body})  # type: ignore[arg-type]
    took = pair.are_back("crash-loop", 15)
    assert pair.times("b", side) == 4, pair.story()
    assert pair.times("b", "helper" if side == "unit" else "unit") >= 1
    print(f"back after {took:.1f} s")
    pair.ended()


@pytest.mark.parametrize("side", SIDES)
def test_a_crash_loop_of_a_helper_of_the_simple_type_takes_both_back(pair: Pair, side: str) -> None:
    """The same without readiness: the daemon's start does not wait for the helper's."""
    pair.set_up(notify=False)
    pair.swap_both(**{"unit": GOOD, "helper": GOOD, side: "exit 1"})  # type: ignore[arg-type]
    pair.are_back("crash-loop", 15)
    assert pair.times("b", side) == 4, pair.story()
    pair.ended()


def test_both_crash_at_once(pair: Pair) -> None:
    """A release that can do nothing at all."""
    pair.set_up()
    pair.swap_both("exit 1", "exit 1")
    pair.are_back("crash-loop", 15)
    assert max(pair.times("b", side) for side in SIDES) == 4, pair.story()
    pair.ended()


def test_w15_three_crashes_of_each_do_not_end_a_trial(pair: Pair) -> None:
    """W15: each is counted by itself; six in all are no crash loop."""
    pair.set_up()
    fails = '[ $(grep -c "^b $which " /run/demo.log) -gt 3 ] || exit 1;'
    pair.swap_both(f"{fails} {GOOD}", f"{fails} {READY}")
    time.sleep(6)
    pair.trial_goes_on()
    assert [pair.times("b", side) for side in SIDES] == [4, 4], pair.story()
    assert [pair.active(name) for name in BOTH.split()] == ["active", "active"]


@pytest.mark.host
def test_a_helper_that_hangs_goes_back_at_the_deadline(pair: Pair) -> None:
    """I2, I10: nobody confirms; both end with the trial's length."""
    pair.set_up(notify=False)
    pair.swap_both(GOOD, HANG, length=6)
    took = pair.are_back("deadline-passed", 16)
    assert took >= 2
    pair.ended()


def test_a_helper_that_never_gets_ready_goes_back(pair: Pair) -> None:
    """Each start that systemd gives up is counted; the daemon, whose start waits for the helper's, comes up all the same."""
    pair.set_up()
    pair.swap_both(GOOD, HANG)
    pair.are_back("crash-loop", 30)
    pair.ended()


def test_a_deadline_while_the_helper_is_not_ready_yet(pair: Pair) -> None:
    """The daemon's start job waits for a helper that hangs, and both go back."""
    pair.set_up()
    pair.swap_both(GOOD, HANG, length=5)
    pair.are_back("deadline-passed", 16)
    pair.ended()


@pytest.mark.host
@pytest.mark.parametrize(("body", "reason"), [("exit 3", "unit-failed"), ("exit 0", "unit-stopped")])
@pytest.mark.parametrize("side", SIDES)
def test_one_that_ends_and_is_not_restarted_takes_both_back(pair: Pair, side: str, body: str, reason: str) -> None:
    """Failure mode 3, W7: OnFailure= of either, or the next tick; both are started again."""
    pair.set_up(restart="no", helper_restart="no")
    ready = "systemd-notify --ready;" if side == "helper" else ""
    pair.swap_both(**{side: f"{ready} sleep 0.5; {body}"})  # type: ignore[arg-type]
    pair.are_back(reason, 10)
    pair.ended()


@pytest.mark.host
@pytest.mark.parametrize("side", SIDES)
def test_w7_one_that_an_operator_stopped_stays_stopped(pair: Pair, side: str) -> None:
    """An operator's stop of one is no failure: at the deadline both links go back, and only the other is restarted."""
    pair.set_up()
    pair.swap_both(length=9)
    time.sleep(2)
    pair.sh(f"systemctl stop {'demo.service' if side == 'unit' else HELPER}")
    time.sleep(4)
    pair.trial_goes_on()
    pair.are_back("deadline-passed", 14, stopped=side)
    pair.ended()
    assert pair.active("demo.service" if side == "unit" else HELPER) == "inactive"


@pytest.mark.host
def test_w3_twelve_restarts_by_hand_of_each_count_for_nothing(pair: Pair) -> None:
    """W3: one after the other and both at once, inside a trial."""
    pair.set_up()
    pair.swap_both()
    time.sleep(0.5)
    for names in ("demo.service", HELPER, BOTH):
        pair.sh(f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do systemctl restart {names}; sleep 0.1; done")
    time.sleep(5)
    pair.trial_goes_on()
    assert "crash" not in pair.sh(f"cat {SLOTS}/trial.log")


@pytest.mark.parametrize("side", SIDES)
def test_restarts_by_hand_of_one_do_not_count_the_crashes_of_the_other_twice(pair: Pair, side: str) -> None:
    """While one waits to be restarted after a crash, the other's starts look at it again and again."""
    pair.set_up(wait="1s")
    other = HELPER if side == "unit" else "demo.service"
    ready = "systemd-notify --ready;" if side == "helper" else ""
    crash = f'[ $(grep -c "^b $which " /run/demo.log) -gt 3 ] || {{ {ready} sleep 0.3; exit 1; }};'
    good = {"unit": GOOD, "helper": READY}
    pair.swap_both(**{**good, side: f"{crash} {good[side]}"})  # type: ignore[arg-type]
    pair.sh(f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do systemctl restart {other}; sleep 0.15; done")
    time.sleep(6)
    pair.trial_goes_on()
    assert pair.times("b", side) == 4, pair.story()
    counted = pair.sh(f"grep -c 'crash ' {SLOTS}/trial.log", check=False)
    assert counted == "3", pair.story()


@pytest.mark.host
def test_crashes_are_counted_while_daemon_reload_runs_in_a_loop(pair: Pair) -> None:
    """Failure mode 16, for the helper."""
    pair.set_up()
    pair.sh("systemd-run -q --unit=reloads sh -c 'while :; do systemctl daemon-reload; sleep 0.2; done'")
    try:
        pair.swap_both(helper="exit 1")
        pair.are_back("crash-loop", 25)
    finally:
        pair.sh("systemctl stop reloads.service")


@pytest.mark.parametrize("side", SIDES)
def test_restarts_and_crashes_of_the_old_version_do_not_count(pair: Pair, side: str) -> None:
    """What either did before the swap is the old version's, up to the last moment."""
    pair.set_up()
    name = "demo.service" if side == "unit" else HELPER
    pair.sh(f"for i in 1 2 3 4 5 6; do systemctl kill -s KILL {name}; sleep 0.5; done; systemctl kill -s KILL {name}")
    pair.swap_both()
    time.sleep(4)
    pair.trial_goes_on()
    assert "crash" not in pair.sh(f"cat {SLOTS}/trial.log"), pair.story()


@pytest.mark.host
def test_w2_one_that_cannot_be_restarted_keeps_not_the_other(pair: Pair) -> None:
    """The helper's unit is masked meanwhile: the daemon is restarted, and the guard's unit says what could not be done."""
    pair.set_up()
    pair.swap_both(length=6)
    time.sleep(2)
    pair.sh(f"mv /etc/systemd/system/{HELPER} /root/kept; systemctl mask -q {HELPER}; systemctl daemon-reload")
    try:
        pair.host.wait_for(f"[ $(readlink {SLOTS}/current) = a ]", timeout=12)
        pair.host.wait_for(f"grep -q '^restart ' {SLOTS}/trial.log", timeout=5)
        pair.host.wait_for("tail -n 1 /run/demo.log | grep -q '^a unit '", timeout=5)
        assert pair.links() == "a a"
        said = pair.sh("journalctl -o cat -u slotward-deadline@demo.service --no-pager | grep 'cannot restart'")
        assert HELPER in said
        assert "cannot restart demo.service" not in said
    finally:
        pair.sh(f"systemctl unmask -q {HELPER}; mv /root/kept /etc/systemd/system/{HELPER}; systemctl daemon-reload")
    pair.are_back("deadline-passed", 10)
    assert pair.times("a", "unit") == 2, pair.story()
    pair.sh("systemctl reset-failed")
    pair.ended()


@pytest.mark.host
@pytest.mark.parametrize("at", ["claimed", "between", "moved"])
def test_p7_a_guard_that_was_killed_is_finished_by_the_next_tick(pair: Pair, at: str) -> None:
    """P7: what a guard leaves that is killed after its claim, between the two renames, or before the restarts."""
    pair.set_up()
    pair.swap_both()
    pair.host.wait_for(f"grep -q '^start ' {SLOTS}/trial.log", timeout=5)
    time.sleep(1)
    script = "mv -T trial trial.revert; echo REASON=deadline-passed >>trial.revert; printf 'owed 1\\nhelper owed 1\\n' >>trial.log;"
    if at != "claimed":
        script += "mv -T back current;"
    if at == "moved":
        script += "mv -T helper.back helper;"
    pair.sh(f"cd {SLOTS}; {script}")
    pair.are_back("deadline-passed", 8)
    pair.ended()


def test_p7_a_guard_that_was_killed_is_finished_by_the_next_start(pair: Pair) -> None:
    """The same by a start of the helper, with the timer stopped: the daemon, which still runs what failed, is restarted."""
    pair.set_up()
    pair.swap_both()
    pair.host.wait_for(f"grep -q '^start ' {SLOTS}/trial.log", timeout=5)
    time.sleep(1)
    pair.sh(
        f"systemctl stop slotward-deadline@demo.timer; cd {SLOTS}; mv -T trial trial.revert;"
        f"echo REASON=crash-loop >>trial.revert; mv -T back current; systemctl restart {HELPER}"
    )
    pair.are_back("crash-loop", 8)
    assert [pair.times("a", side) for side in SIDES] == [2, 2], pair.story()


@pytest.mark.host
def test_h5_a_cut_and_a_boot_between_the_two_renames_are_finished_before_either_starts(pair: Pair) -> None:
    """P7: power is cut there; in the next boot neither unit ever runs the failed release."""
    pair.set_up()
    pair.swap_both()
    time.sleep(2)
    pair.sh(
        f"systemctl stop slotward-deadline@demo.timer; cd {SLOTS}; mv -T trial trial.revert; mv -T back current; sync; rm -f /run/demo.log"
    )
    pair.host.cut()
    pair.host.boot()
    pair.host.wait_for(f"systemctl -q is-active {BOTH}", timeout=15)
    assert pair.links() == "a a"
    assert [pair.times("b", side) for side in SIDES] == [0, 0], pair.story()
    assert [pair.times("a", side) for side in SIDES] == [1, 1], pair.story()


def test_h5_a_reboot_gives_the_trial_its_length_again_once(pair: Pair) -> None:
    """H5, I7: two units start in the new boot, and one boot is used."""
    pair.set_up()
    pair.swap_both(length=15)
    pair.host.cut()
    time.sleep(16)
    pair.host.boot()
    pair.host.wait_for(f"systemctl -q is-active {BOTH}", timeout=15)
    pair.trial_goes_on()
    assert "BOOTS_LEFT=2" in pair.sh(f"cat {SLOTS}/trial")
    assert "crash" not in pair.sh(f"cat {SLOTS}/trial.log")
    pair.are_back("deadline-passed", 25)


@pytest.mark.host
def test_without_a_trial_starts_of_either_change_nothing(pair: Pair) -> None:
    """Nothing is touched when no trial is pending: no inode, time or name in the slots directory changes."""
    pair.set_up()
    before = pair.sh(f"stat -c '%n %i %y %z' {SLOTS} {SLOTS}/*")
    pair.sh(f"systemctl restart {BOTH}; systemctl start slotward-deadline@demo.service slotward-rollback@demo.service")
    assert pair.sh(f"stat -c '%n %i %y %z' {SLOTS} {SLOTS}/*") == before
