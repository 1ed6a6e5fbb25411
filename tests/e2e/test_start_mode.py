# SPDX-License-Identifier: GPL-3.0-or-later
"""Start mode on real hosts: the account stages, systemd starts the daemon anew, and root's oneshots do the rest."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import time

import pytest
from support import faults, modes, releases, starting
from support import node as nodes

pytestmark = [pytest.mark.quick_modes, pytest.mark.only_modes(modes.START)]

APPLY = modes.APPLY_UNIT
CONFIRM, GIVE_UP = "slotward-confirm", "slotward-giveup"
EVIL = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
    char path[64];
    snprintf(path, sizeof path, "/var/lib/slotward/evil/%d-%d", (int)getuid(), (int)getpid());
    FILE *file = fopen(path, "w");
    if (file) fclose(file);
}
"""


@pytest.fixture(scope="module")
def stoppable(shop: releases.Workshop) -> releases.Workshop:
    """A workshop of its own, whose builds stop where they are told."""
    return releases.Workshop(shop.directory / "stoppable-start")


@pytest.fixture
def start(node: nodes.Node) -> starting.Starting:
    """A host in start mode, 1.0.0 running as the account."""
    return starting.Starting(node)


def became_trial(start: starting.Starting, trial: str, version: str = "1.1.0") -> None:
    """The start has begun the trial, and it is the new release that it started."""
    asked = start.asked()
    assert (asked["id"], asked["state"], asked["code"]) == (trial, "trial", "not-confirmed"), asked
    node = start.node
    node.waits(lambda: node.running() == version, 15, f"{version} runs")
    assert node.update()["trial"]["id"] == trial


def ends(start: starting.Starting, trial: str, state: str, within: float = 15) -> dict[str, object]:
    """The trial ends so."""
    node = start.node
    node.waits(lambda: (node.update()["last"] or {}).get("id") == trial, within, f"{trial} has ended")
    last: dict[str, object] = node.update()["last"]
    assert last["state"] == state, last
    return last


@pytest.mark.host
def test_an_update_is_a_start_and_a_touched_file(start: starting.Starting, v110: releases.Release) -> None:
    """Seed 004 "Flow" 2 and 3: staged by the account, applied by root before the start, confirmed without a parameter."""
    node = start.node
    assert node.sh(f"stat -c %U /proc/{node.unit().main_pid}") == modes.ACCOUNT
    trial = start.stages(v110)
    assert node.link("current") == "a"
    start.restart()
    became_trial(start, trial)
    assert node.sh(f"stat -c %U /proc/{node.unit().main_pid}") == modes.ACCOUNT
    start.touch("confirm")
    assert ends(start, trial, "confirmed")["code"] == "ok"
    assert (node.link("good"), node.update()["floor"]) == (node.link("current"), 2)
    start.restart()
    assert node.running() == "1.1.0"
    node.runnable()


@pytest.mark.hosts
def test_an_update_that_the_daemon_is_asked_for(
    start: starting.Starting, v110: releases.Release, v120: releases.Release
) -> None:
    """privilege.md, section 5: it fetches, leaves its request and ends; systemd starts it anew, and it carries the word to root."""
    node = start.node
    before = node.unit().main_pid
    node.upgraded(v110)
    assert node.unit().main_pid != before
    trial = node.on_trial(v120)
    assert node.slotward("ask", "rollback", "--id", trial).code == "gave-up"
    node.goes_back(("gave-up",), 10, to="1.1.0")
    again = node.begin(v120)
    assert (again.exit, again.code) == (3, "failed-before")
    node.sh("sleep 2")
    assert node.running() == "1.1.0"
    node.waits(lambda: "apply" not in node.sh(f"ls {nodes.STAGING}"), 10, "nothing waits")


@pytest.mark.hosts
def test_the_account_s_own_commands_follow_what_they_trigger(
    start: starting.Starting, v110: releases.Release, v120: releases.Release
) -> None:
    """`confirm` and `rollback` as the account trigger and answer what the records say, by the trial's id."""
    node = start.node
    trial = start.stages(v110)
    start.restart()
    other = json.loads(start.by_account("slotward confirm --id ffffffffffffffff --source gateway --json", check=False))
    assert other["code"] == "wrong-trial"
    answer = json.loads(start.by_account(f"slotward confirm --id {trial} --source gateway --wait 15 --json"))
    assert (answer["state"], answer["id"], answer["to"]) == ("confirmed", trial, "1.1.0"), answer
    again = json.loads(start.by_account(f"slotward confirm --id {trial} --source gateway --json"))
    assert again["state"] == "confirmed"
    trial = start.stages(v120)
    start.restart()
    answer = json.loads(start.by_account(f"slotward rollback --id {trial} --json"))
    assert (answer["state"], answer["code"], answer["to"]) == ("rolled-back", "gave-up", "1.2.0"), answer
    node.goes_back(("gave-up",), 10, to="1.1.0")
    assert json.loads(start.by_account("slotward rollback --json", check=False))["code"] == "no-trial"
    start.restart()


@pytest.mark.hosts
def test_the_daemon_gives_its_own_trial_up(start: starting.Starting, v110: releases.Release) -> None:
    """Back by a root oneshot that takes no parameter; the version is remembered as given up."""
    trial = start.stages(v110)
    start.restart()
    became_trial(start, trial)
    start.touch("give-up")
    state = start.node.goes_back(("gave-up",), 15)
    assert [failure["code"] for failure in state["failed"]] == ["gave-up"]
    start.stages_refused(v110, "failed-before")


@pytest.mark.hosts
def test_a_bad_release_goes_back_by_the_guard(start: starting.Starting, crashing: releases.Release) -> None:
    """I2: root's oneshot runs before each of its starts, from the good slot, and does not get in the guard's way."""
    start.stages(crashing)
    start.restart(check=False)
    start.node.goes_back(("crash-loop",), 20)
    start.restart()


@pytest.mark.hosts
def test_a_trial_that_nobody_confirms_goes_back(start: starting.Starting, v110: releases.Release) -> None:
    """I2, I5: staged, started, and never confirmed."""
    start.node.configure(trial_length_s=8)
    start.stages(v110)
    start.restart()
    start.node.goes_back(("deadline-passed",), 30)
    start.restart()


@pytest.mark.hosts
def test_a_reboot_between_staging_and_the_start(start: starting.Starting, v110: releases.Release) -> None:
    """The boot's own start of the daemon carries the request out; a reboot in the trial then gives it its length again (I7)."""
    node = start.node
    trial = start.stages(v110)
    node.host.cut()
    node.host.boot()
    node.waits(lambda: node.running() == "1.1.0", 20, "the new version runs")
    became_trial(start, trial)
    node.host.cut()
    node.host.boot()
    node.waits(lambda: node.running() == "1.1.0", 20, "the new version runs again")
    assert node.update()["trial"]["boots_left"] < 3
    start.touch("confirm")
    ends(start, trial, "confirmed")
    start.restart()


@pytest.mark.hosts
def test_a_stop_of_the_daemon_confirms_nothing(start: starting.Starting, v110: releases.Release) -> None:
    """I5: what was said about an earlier trial, or about none, is never taken for a word about this one."""
    node = start.node
    start.touch("confirm")
    node.sh(f"systemctl stop {nodes.UNIT}; sleep 1; systemctl start {nodes.UNIT}")
    trial = start.stages(v110)
    start.restart()
    became_trial(start, trial)
    start.restart()
    node.sh(f"systemctl stop {nodes.UNIT}; systemctl start {nodes.UNIT}; sleep 8")
    assert node.update()["trial"]["id"] == trial, "settle_s is over and nobody has confirmed"
    start.touch("give-up")
    node.goes_back(("gave-up",), 15)
    start.restart()


@pytest.mark.hosts
def test_a_bare_look_at_the_files_that_trigger(start: starting.Starting) -> None:
    """I6: the account can change the two files and nothing else there; no name there can become a link."""
    for command in ("rm -f confirm", "ln -s /etc/passwd confirm2", "mv confirm x", "ln -sf /etc/passwd confirm"):
        before = start.node.sh(f"stat -c '%n %i %F %U %a' {starting.TRIGGERS} {starting.TRIGGERS}/*")
        start.by_account(f"cd {starting.TRIGGERS}; ! {command} 2>/dev/null")
        assert start.node.sh(f"stat -c '%n %i %F %U %a' {starting.TRIGGERS} {starting.TRIGGERS}/*") == before
    assert start.node.sh(f"stat -c '%U %a' {starting.TRIGGERS}") == "root 755"


@pytest.mark.hosts
def test_hammering_the_triggers_does_no_harm(start: starting.Starting, v110: releases.Release) -> None:
    """Root's oneshots are started a few times and then refused; the next switch is listened to again."""
    node = start.node
    start.by_account(
        f"i=0; while [ $i -lt 400 ]; do i=$((i + 1)); echo x >{starting.TRIGGERS}/confirm;"
        f" echo x >{starting.TRIGGERS}/give-up; sleep 0.02; done"
    )
    for unit in (CONFIRM, GIVE_UP):
        shown = functools.partial(node.sh, f"systemctl show -p Result {unit}.path")
        node.waits(lambda: "start-limit-hit" in shown(), 15, unit)  # noqa: B023 (called before the next one)
        started = start.journal(f"{unit}.service").count("no trial of slotward is pending")
        assert 1 <= started <= 10, started
    assert node.running() == "1.0.0"
    assert node.unit().restarts == 0
    trial = start.stages(v110)
    start.restart()
    became_trial(start, trial)
    start.touch("confirm")
    ends(start, trial, "confirmed")
    start.restart()


@pytest.mark.hosts
def test_what_root_refuses_is_told_and_the_daemon_runs_on(start: starting.Starting, v110: releases.Release) -> None:
    """I6, I8: forged, swapped and linked by hand; the daemon starts each time, is told why, and does not loop."""
    node = start.node
    cases = (
        ("other-bytes", "digest-mismatch"),
        ("forged", "too-few-signatures"),
        ("linked", "staged-unsafe"),
        ("torn", "bad-request"),
        ("fifo", "staged-unsafe"),
    )
    for what, code in cases:
        spoil(start, v110, what)
        began = time.monotonic()
        start.restart()
        assert time.monotonic() - began < 30
        asked = start.asked()
        assert (asked["state"], asked["code"]) == ("refused", code), (what, asked)
        assert (node.running(), node.link("current")) == ("1.0.0", "a")
        node.sh("sleep 2")
        assert node.unit().restarts == 0, what
    assert node.sh(f"systemctl is-failed {APPLY}", check=False) != "failed"
    trial = start.stages(v110)
    start.restart()
    became_trial(start, trial)
    start.touch("confirm")
    ends(start, trial, "confirmed")
    start.restart()


def spoil(start: starting.Starting, release: releases.Release, what: str) -> None:
    """Stage it by hand, with one thing wrong."""
    staged = f"{nodes.STAGING}/slotward-{release.version}"
    start.by_account(f"rm -rf {nodes.STAGING}/*")
    if what == "forged":
        target = start.node.shop.target(release)
        published = json.loads(target["signature"])
        published["signatures"] = published["signatures"][:1]
        start.plant(release, signature=json.dumps(published))
        return
    start.plant(release)
    if what == "other-bytes":
        start.by_account(f"printf X | dd of={staged} bs=1 seek=5000 conv=notrunc 2>/dev/null")
    elif what == "linked":
        start.by_account(f"mv {staged} {staged}.x; ln -s {staged}.x {staged}")
    elif what == "torn":
        start.by_account(f"printf '{{' >{nodes.STAGING}/apply")
    elif what == "fifo":
        start.by_account(f"rm {nodes.STAGING}/apply; mkfifo {nodes.STAGING}/apply")


@pytest.mark.hosts
def test_I6_the_account_s_environment_reaches_nothing_of_root_s(
    start: starting.Starting, v110: releases.Release, tmp_path: pathlib.Path
) -> None:
    """I6: an EnvironmentFile of the daemon's unit that the account writes: its program runs it, nothing of root's does."""
    node = start.node
    source, library = tmp_path / "evil.c", tmp_path / "evil.so"
    source.write_text(EVIL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    start.by_account("mkdir -p -m 0700 /var/lib/slotward/evil /var/lib/slotward/bin")
    node.host.put(library, "/var/lib/slotward/evil.so", 0o755)
    script = "#!/bin/sh\necho $(id -u) >>/var/lib/slotward/evil/called-$(id -u)\n"
    for name in ("systemctl", "systemd-run", "sh", "python3", "id"):
        node.host.write(f"/var/lib/slotward/bin/{name}", script if name != "id" else "#!/bin/sh\n", 0o755)
    lines = (
        "LD_PRELOAD=/var/lib/slotward/evil.so",
        "LD_AUDIT=/var/lib/slotward/evil.so",
        "PATH=/var/lib/slotward/bin:/usr/bin:/bin",
        "ENV=/var/lib/slotward/bin/sh",
        "BASH_ENV=/var/lib/slotward/bin/sh",
        "PYTHONPATH=/var/lib/slotward/bin",
        "SLOTWARD_WHO=the operator",
    )
    start.by_account("cat >/var/lib/slotward/env <<'E'\n" + "\n".join(lines) + "\nE")
    node.drop_in("[Service]\nEnvironmentFile=-/var/lib/slotward/env\n")
    uid = node.sh(f"id -u {modes.ACCOUNT}")
    trial = start.stages(v110)
    start.restart()
    became_trial(start, trial)
    start.touch("confirm")
    ends(start, trial, "confirmed")
    seen = node.sh("ls /var/lib/slotward/evil").split()
    assert any(name.startswith(f"{uid}-") for name in seen), "the daemon itself is what the account makes of it"
    assert [name for name in seen if name.startswith(("0-", "called-0"))] == []
    audit = node.slotward("audit", "--limit", "0").json["lines"]
    assert {line["who"] for line in audit if line["id"] == trial} == {APPLY, f"{CONFIRM}.service"}
    node.sh("rm -rf /var/lib/slotward/evil /var/lib/slotward/bin /var/lib/slotward/env /var/lib/slotward/evil.so")
    start.restart()


POINTS = [point for point in faults.stage_points() if point.endswith("Copy")]
POINTS += [point for point in faults.swap_points(restart=False) if faults.number_of(point) in (0, 8, 13, 14, 15)]


@pytest.mark.hosts
@pytest.mark.parametrize("point", POINTS)
def test_root_s_part_that_hangs_does_not_keep_the_daemon_from_starting(
    start: starting.Starting, stoppable: releases.Workshop, point: str
) -> None:
    """I8, I9: it is stopped at its time limit, and the daemon starts; what was cut is finished or undone by the next start."""
    node = start.node
    node.shop = stoppable
    overlay = faults.overlay(stoppable.directory / "overlay")
    old, new = stoppable.release("1.0.0", 1, extra=overlay), stoppable.release("1.1.0", 2, extra=overlay)
    node.fresh(old)
    node.drop_in("[Service]\nTimeoutStartSec=10s\nTimeoutStopSec=1s\n", APPLY)
    node.host.write(faults.WANTED, point)
    trial = start.stages(new)
    began = time.monotonic()
    start.restart()
    assert time.monotonic() - began < 60
    node.sh(f"test -e {faults.HIT}")
    node.drop_in("", APPLY)  # the next one has all the time that it is given on a host
    node.waits(lambda: node.unit().active == "active", 15, "the daemon runs")
    node.runnable()
    pending = node.update()["trial"]
    if pending is None:
        assert node.running() == "1.0.0"
        start.restart()
        pending = node.update()["trial"]
    if pending is None:
        last = node.update()["last"]
        assert (last["id"], last["state"]) == (trial, "abandoned"), (point, last)
    else:
        assert pending["id"] == trial
        node.waits(lambda: node.running() == "1.1.0", 15, "the new version runs")
        start.touch("confirm")
        ends(start, trial, "confirmed")
    start.restart()


@pytest.mark.hosts
def test_a_start_that_is_held_up_for_longer_than_its_trial_starts_what_is_good(
    start: starting.Starting, stoppable: releases.Workshop
) -> None:
    """I2, I4, I12: a tick ends the trial before `current` moves; then nothing of it starts, and the account is told so."""
    node = start.node
    node.shop = stoppable
    overlay = faults.overlay(stoppable.directory / "overlay")
    old, new = stoppable.release("1.0.0", 1, extra=overlay), stoppable.release("1.1.0", 2, extra=overlay)
    node.fresh(old, trial_length_s=5, settle_s=1)
    point = faults.swap_points(restart=False)[faults.switched(modes.START) - 1]
    node.host.write(faults.WANTED, f"{point} 12")
    trial = start.stages(new)
    start.restart()
    node.sh(f"test -e {faults.HIT}")
    node.waits(lambda: node.unit().active == "active", 15, "the daemon runs")
    asked = start.asked()
    assert (asked["id"], asked["state"], asked["code"]) == (trial, "failed", "cancelled"), asked
    ends(start, trial, "abandoned")
    assert (node.link("current"), node.link("good"), node.running()) == ("a", "a", "1.0.0")
    node.runnable()
    node.sh(f"rm -f {nodes.STAGING}/*")  # its id is used up, and it lies there until the account asks anew


@pytest.mark.hosts
def test_removed_staging_and_a_lost_answer_change_nothing(start: starting.Starting, v110: releases.Release) -> None:
    """I8, I9: with the records of both sides lost in the trial, it goes on, and ends as it would have."""
    node = start.node
    trial = start.stages(v110)
    start.restart()
    became_trial(start, trial)
    node.sh(f"rm -rf {nodes.STAGING} {starting.ASKED}")
    start.restart()
    assert node.update()["trial"]["id"] == trial
    start.touch("confirm")
    ends(start, trial, "confirmed")
    start.restart()
