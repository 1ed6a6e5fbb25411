# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's hand on a real host (docs/design/products.md, section 7): holds, going back by hand, manual, times, veto, reload.

- A foreign playbook's restarts and reloads during a trial are here too: they make neither a crash nor a confirmation.
"""

from __future__ import annotations

import datetime as dt
import pathlib
import time
from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, toys

pytestmark = pytest.mark.hosts

HOLD = f"{nodes.SLOTS}/hold.json"


@pytest.fixture
def toy(node: nodes.Node, shop: releases.Workshop) -> Iterator[toys.Toy]:
    """A toy that was adopted on a host with the agent, and runs."""
    with toys.running(node, shop.release("1.0.0", 1)) as made:
        yield made


def events(toy: toys.Toy) -> list[str]:
    """The names of the audit log's events."""
    return [line["event"] for line in toy.slotward("audit", "--limit", "0").json["lines"]]


@pytest.mark.host
def test_C9_L6_what_is_held_is_refused_as_held_and_ends_a_trial_all_the_same(
    installed: nodes.Node, v110: releases.Release
) -> None:
    """A hold is no error and no surprise: it is told with owner and reason, everywhere, until it is taken away."""
    node = installed
    trial = node.on_trial(v110)
    held = node.slotward("hold", "--why", "the audit is on", "--owner", "ana")
    assert (held.exit, held.json["changed"], held.json["hold"]["owner"]) == (0, True, "ana")
    assert node.slotward("hold", "--why", "the audit is on", "--owner", "ana").json["changed"] is False
    taken = node.slotward("rollback", "--id", trial, "--why", "not now")
    assert (taken.exit, taken.json["state"]) == (0, "rolled-back"), "a trial that is pending still ends"
    node.slotward("update", "--clear-failed")
    for answer in (node.begin(v110, "--force"), node.slotward("prepare", "--target", node.target(v110))):
        assert (answer.exit, answer.code, answer.json["state"]) == (3, "held", "refused"), answer
        assert "slotward is held by ana until it is taken away: the audit is on" in answer.message
        assert answer.json["hold"]["why"] == "the audit is on"
    other = node.slotward("hold", "--why", "mine", "--owner", "ben")
    assert (other.exit, other.code) == (3, "held")
    assert node.slotward("unhold", "--owner", "ben").code == "held"
    assert node.update()["hold"]["owner"] == "ana"
    assert node.doctor()["hold"][0] == "warn"
    assert node.slotward("unhold", "--owner", "ana").json["changed"] is True
    assert node.slotward("unhold").json["changed"] is False
    assert node.update()["hold"] is None
    assert node.upgraded(v110).json["to"] == "1.1.0"
    told = [line["event"] for line in node.slotward("audit", "--limit", "0").json["lines"]]
    assert [event for event in told if "held" in event] == ["held", "unheld"]


@pytest.mark.host
def test_the_operator_goes_back_after_confirmation(toy: toys.Toy) -> None:
    """`floor = "previous"` keeps one step open: back by a trial, held there, asked twice it changes nothing."""
    toy.describe(floor="previous")
    toy.upgraded(toy.release("1.1.0", 2))
    toy.upgraded(toy.release("1.2.0", 3))
    assert toy.update()["floor"] == 2
    planned = toy.slotward("rollback", "--to", "previous", "--check")
    assert (planned.exit, planned.json["changed"], planned.json["to"]) == (0, True, "1.1.0"), planned
    assert toy.update()["hold"] is None, "--check changes nothing"
    begun = toy.slotward("rollback", "--to", "previous", "--why", "it loses mail", "--no-wait")
    assert (begun.exit, begun.json["state"], begun.json["to"]) == (0, "trial", "1.1.0"), begun
    assert "it loses mail" in begun.json["hold"]["why"]
    again = toy.slotward("rollback", "--to", "previous")
    assert (again.exit, again.code) == (4, "trial-pending")
    done = toy.slotward("confirm", "--id", begun.json["trial"]["id"], "--wait", "15")
    assert (done.json["state"], done.json["floor"]) == ("confirmed", 2), done
    for wanted in ("previous", "1.1.0"):
        again = toy.slotward("rollback", "--to", wanted)
        assert (again.exit, again.json["state"], again.json["changed"]) == (0, "current", False), again
    assert toy.begin(toy.release("1.2.0", 3)).code == "held"
    assert toy.slotward("unhold").exit == 0
    toy.upgraded(toy.release("1.2.0", 3))
    assert toy.update()["floor"] == 2
    checks = toy.slotward("doctor").json["checks"]
    assert [check for check in checks if check["name"] == "records" and check["state"] != "ok"] == [], checks


def test_below_the_floor_the_way_is_named(toy: toys.Toy) -> None:
    """By default the floor is what was confirmed last: nothing is held for a refusal, and the key that opens it is told."""
    toy.upgraded(toy.release("1.1.0", 2))
    toy.upgraded(toy.release("1.2.0", 3))
    answer = toy.slotward("rollback", "--to", "previous")
    assert (answer.exit, answer.code) == (3, "below-floor"), answer
    assert '[update] floor = "previous"' in answer.message
    assert toy.slotward("rollback", "--to", "9.9.9").code == "not-kept"
    told = toy.slotward("rollback")
    assert (told.code, "--to previous" in told.message) == ("no-trial", True)
    assert toy.update()["hold"] is None
    agent = toy.node.slotward("rollback", "--to", "previous")
    assert (agent.exit, agent.code) == (3, "not-kept")


def test_going_back_that_fails_comes_forward_again(toy: toys.Toy) -> None:
    """It is an ordinary trial: nobody confirms it, and the guard goes back to what was confirmed; the hold stays."""
    toy.describe(floor="previous", trial_length_s=6)
    toy.upgraded(toy.release("1.1.0", 2))
    toy.upgraded(toy.release("1.2.0", 3))
    mine = toy.slotward("hold", "--why", "mine", "--owner", "ana")
    assert mine.exit == 0
    ended = toy.slotward("rollback", "--to", "1.1.0")
    assert (ended.exit, ended.code, ended.json["state"]) == (6, "deadline-passed", "rolled-back"), ended
    found = toy.update()
    assert (found["version"], found["hold"]["owner"]) == ("1.2.0", "ana"), "another one's hold is kept as it is"
    assert toy.slotward("rollback", "--to", "1.1.0").code == "failed-before"


def test_manual_stages_and_waits_for_a_word(toy: toys.Toy) -> None:
    """bilbycast's manual_only, working: staged, shown, replaced by a newer one, verified again and swapped by `apply`."""
    toy.describe(manual=True)
    first = toy.begin(toy.release("1.1.0", 2))
    assert (first.exit, first.code, first.json["state"], first.json["changed"]) == (0, "staged-manual", "staged", True)
    assert toy.begin(toy.release("1.1.0", 2)).json["changed"] is False
    assert toy.update()["staged"]["version"] == "1.1.0"
    assert toy.update()["version"] == "1.0.0"
    assert toy.begin(toy.release("1.2.0", 3)).code == "staged-manual"
    assert toy.update()["staged"]["version"] == "1.2.0"
    assert toy.node.sh(f"ls {toy.slots}/staging") == "toy-1.2.0"
    planned = toy.slotward("apply", "--check")
    assert (planned.exit, planned.json["to"], planned.json["artifact"]) == (0, "1.2.0", None), planned
    toy.node.sh(f"echo changed >>{toy.slots}/staged.target")
    assert toy.slotward("apply").code == "cannot-read"
    toy.begin(toy.release("1.2.0", 3))
    applied = toy.slotward("apply", "--no-wait")
    assert (applied.exit, applied.json["state"]) == (0, "trial"), applied
    assert toy.update()["staged"] is None
    done = toy.slotward("confirm", "--id", applied.json["trial"]["id"], "--wait", "15")
    assert done.json["state"] == "confirmed"
    nothing = toy.slotward("apply")
    assert (nothing.exit, nothing.json["changed"]) == (0, False), nothing
    assert toy.node.slotward("apply").code == "not-allowed", "the agent's own apply is start mode's"


def test_a_stale_staged_file_is_verified_again(toy: toys.Toy) -> None:
    """What was staged and changed since is not what was verified: it is fetched again, or there is nothing to swap."""
    toy.describe(manual=True)
    assert toy.begin(toy.release("1.1.0", 2)).code == "staged-manual"
    toy.node.sh(f"echo >>{toy.slots}/staging/toy-1.1.0")
    answer = toy.slotward("apply")
    assert (answer.exit, answer.code) == (3, "bad-url"), answer
    assert toy.update()["version"] == "1.0.0"


def day(offset: int) -> str:
    """A date, so many days from today."""
    return (dt.datetime.now(tz=dt.timezone.utc).date() + dt.timedelta(days=offset)).isoformat()


def test_windows_and_freezes(toy: toys.Toy) -> None:
    """Outside of its windows, and in a freeze, an update is put off and says until when; `--force` passes, and is audited."""
    toy.node.sh(
        "test -d /usr/share/zoneinfo/Europe || (apt-get -qq update && apt-get -qq install -y tzdata) >/dev/null 2>&1",
        check=False,
    )
    days = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    other = days[(dt.datetime.now(tz=dt.timezone.utc).weekday() + 3) % 7]
    window = f'[window-night]\ndays = "{other}"\nfrom = "22:00"\nto = "23:00"\nzone = "UTC"\n'
    past = '[freeze-old]\nfrom = "2020-12-01"\nto = "2021-01-01"\nzone = "UTC"\n'
    now = f'[freeze-now]\nfrom = "{day(-1)}"\nto = "{day(1)}"\nzone = "UTC"\nwhy = "the fair"\n'
    toy.describe(window + past)
    answer = toy.begin(toy.release("1.1.0", 2))
    assert (answer.exit, answer.code) == (4, "outside-window"), answer
    assert "it opens next on" in answer.message
    assert answer.json["next_at"] > time.time()
    assert toy.update()["windows"]["stale"] is True
    toy.describe(now)
    frozen = toy.begin(toy.release("1.1.0", 2))
    assert (frozen.exit, frozen.code) == (4, "frozen")
    assert "the fair" in frozen.message
    assert 0 < frozen.json["next_at"] - time.time() < 3 * 86400
    forced = toy.begin(toy.release("1.1.0", 2), "--force")
    assert (forced.exit, forced.json["state"]) == (0, "trial"), forced
    assert "forced" in events(toy)
    toy.slotward("rollback", "--id", forced.json["trial"]["id"])
    toy.describe(window.replace('"UTC"', '"Mars/Olympus"'))
    unknown = toy.begin(toy.release("1.2.0", 3))
    assert (unknown.exit, unknown.code, "tzdata" in unknown.message) == (3, "no-zone", True), unknown


VETO = '#!/bin/sh\necho "$SLOTWARD_FROM to $SLOTWARD_TO: $(id -un)"\nread -r status </run/veto\nexit "$status"\n'


def test_the_workload_may_say_later(toy: toys.Toy) -> None:
    """75 is later with its own words, anything but 0 counts as later, and nobody waits for one that hangs."""
    toy.node.host.write("/usr/local/lib/veto", VETO, 0o755)
    toy.node.sh("echo 75 >/run/veto")
    hook = '[hook-veto]\ncommand = "/usr/local/lib/veto"\nuser = "nobody"\ntimeout_s = 5\n'
    toy.describe(hook)
    try:
        later = toy.begin(toy.release("1.1.0", 2))
        assert (later.exit, later.code) == (4, "vetoed"), later
        assert "says later: 1.0.0 to 1.1.0: nobody" in later.message
        toy.node.sh("echo 3 >/run/veto")
        assert "failed with status 3" in toy.begin(toy.release("1.1.0", 2)).message
        toy.node.sh("chmod 0777 /usr/local/lib/veto")
        toy.describe(hook.replace('"nobody"', '"root"'))
        unsafe = toy.begin(toy.release("1.1.0", 2))
        assert (unsafe.exit, unsafe.code) == (3, "directory-unsafe"), unsafe
        toy.node.host.write("/usr/local/lib/veto", "#!/bin/sh\nsleep 600\n", 0o755)
        began = time.monotonic()
        assert toy.begin(toy.release("1.1.0", 2)).code == "vetoed"
        assert time.monotonic() - began < 30
        toy.node.sh("echo 0 >/run/veto")
        toy.node.host.write("/usr/local/lib/veto", VETO, 0o755)
        assert toy.upgraded(toy.release("1.1.0", 2)).json["to"] == "1.1.0"
    finally:
        toy.node.sh("rm -f /usr/local/lib/veto /run/veto")


DRAIN = """\
#!/bin/sh
exec >>/run/drained
echo "$SLOTWARD_PRODUCT $SLOTWARD_FROM $SLOTWARD_TO $SLOTWARD_TRIAL"
readlink /opt/slotward/toy/current
exit 1
"""


def test_the_workload_is_drained_before_the_switch(toy: toys.Toy) -> None:
    """The hook runs while the old one runs, the time passes, and what it fails with stops nothing."""
    toy.node.host.write("/usr/local/lib/drain", DRAIN, 0o755)
    toy.describe('[hook-drain]\ncommand = "/usr/local/lib/drain"\n[restart]\ndrain_s = 10\n')
    try:
        began = time.monotonic()
        answer = toy.begin(toy.release("1.1.0", 2))
        assert (answer.exit, answer.json["state"]) == (0, "trial"), answer
        assert time.monotonic() - began > 10
        left = answer.json["trial"]["left_s"]
        assert left >= 18, "draining takes none of the trial's time"
        trial = answer.json["trial"]["id"]
        assert toy.node.sh("cat /run/drained").split() == ["toy", "1.0.0", "1.1.0", trial, "a"]
        assert "draining toy failed" in answer.errors
        began = time.monotonic()
        assert toy.slotward("rollback", "--id", trial).json["state"] == "rolled-back"
        assert time.monotonic() - began < 10, "going back waits for nothing"
        assert toy.node.sh("wc -l </run/drained") == "2"
    finally:
        toy.node.sh("rm -f /usr/local/lib/drain /run/drained")


UNIT = """\
[Unit]
Description=A toy that reloads
[Service]
Type=notify
NotifyAccess=all
ExecStart=/usr/local/sbin/toy
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=300ms
[Install]
WantedBy=multi-user.target
"""
REPLACING = """\
#!/usr/bin/python3 -I
import os, signal, socket, subprocess, sys, time
VERSION = "{version}"
if sys.argv[1:] == ["version"]:
    print("toy", VERSION)
    raise SystemExit(0)
SELF = open(__file__, "rb")
def say(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        peer.connect(os.environ["NOTIFY_SOCKET"])
        peer.send(text.encode())
def again(*_):
    if not {replaces}:
        say("READY=1")
        return
    child = subprocess.Popen(["/usr/local/sbin/toy"])
    time.sleep(0.5)
    say("MAINPID=%d\\nREADY=1" % child.pid)
    time.sleep(0.5)
    os._exit(0)
signal.signal(signal.SIGHUP, again)
say("READY=1")
while True:
    time.sleep(1)
"""


def reloading(toy: toys.Toy, version: str, sequence: int, replaces: bool = True) -> pathlib.Path:
    """A release of a daemon that reloads: by a new process of the new bytes, or by none."""
    content = REPLACING.format(version=version, replaces=replaces).encode()
    return toy.release_of(version, sequence, content)


@pytest.fixture
def reloaded(toy: toys.Toy) -> toys.Toy:
    """A product that goes forward by a reload; 3.1.0 of it was confirmed."""
    node = toy.node
    node.host.write(f"/etc/systemd/system/{toy.unit}", UNIT)
    node.sh("systemctl daemon-reload")
    toy.describe(settle_s=2)
    toy.upgraded(reloading(toy, "3.1.0", 2))
    toy.describe('[restart]\nmethod = "reload"\n', settle_s=2, trial_length_s=60)
    return toy


def test_I11_a_reload_that_replaces_the_process_is_confirmed(reloaded: toys.Toy) -> None:
    """The new main process runs the new bytes, nobody was down for it, and going back restarts all the same."""
    toy = reloaded
    before = toy.node.unit(toy.unit)
    trial = toy.on_trial(reloading(toy, "3.2.0", 3))
    done = toy.slotward("confirm", "--id", trial, "--wait", "12")
    assert (done.exit, done.json["state"]) == (0, "confirmed"), done
    after = toy.node.unit(toy.unit)
    assert after.main_pid != before.main_pid
    assert after.restarts == before.restarts
    stamps = toy.node.sh(f"systemctl show -p InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic {toy.unit}")
    trial = toy.on_trial(reloading(toy, "3.3.0", 4))
    toy.node.waits(lambda: toy.node.unit(toy.unit).main_pid != after.main_pid, 10, "the reload has come")
    assert toy.slotward("rollback", "--id", trial).json["state"] == "rolled-back"
    toy.node.waits(lambda: toy.node.unit(toy.unit).active == "active", 10, "it runs again")
    assert stamps != toy.node.sh(
        f"systemctl show -p InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic {toy.unit}"
    ), "going back is a restart"
    assert toy.update()["version"] == "3.2.0"


def test_I11_a_reload_that_keeps_the_old_process_is_never_confirmed(reloaded: toys.Toy) -> None:
    """It is no proof, however often it is asked for: the guard goes back, and the daemon was never down for it."""
    toy = reloaded
    toy.describe(settle_s=2)
    toy.upgraded(reloading(toy, "4.2.0", 3, replaces=False))
    toy.describe('[restart]\nmethod = "reload"\n', settle_s=2, trial_length_s=40)
    pid = toy.node.unit(toy.unit).main_pid
    trial = toy.on_trial(reloading(toy, "4.3.0", 4, replaces=False))
    answer = toy.slotward("confirm", "--id", trial, "--wait", "5")
    assert (answer.exit, answer.code) == (6, "not-proven"), answer
    assert toy.node.unit(toy.unit).main_pid == pid
    toy.node.sh(f"systemctl reload {toy.unit}")
    assert toy.slotward("confirm", "--id", trial).code == "not-proven"
    assert toy.goes_back(["deadline-passed"], 70)["to"] == "4.3.0"
    assert toy.update()["version"] == "4.2.0"


def test_a_reload_starts_nothing_that_was_stopped(reloaded: toys.Toy) -> None:
    """Without consent it is refused before; stopped just before the switch, it stays stopped, and nothing is confirmed."""
    toy = reloaded
    toy.node.sh(f"systemctl stop {toy.unit}")
    refused = toy.begin(reloading(toy, "3.2.0", 3))
    assert (refused.exit, refused.code) == (3, "unit-not-running")
    begun = toy.begin(reloading(toy, "3.2.0", 3), "--start")
    assert begun.json["state"] == "trial", begun
    toy.node.waits(lambda: toy.node.unit(toy.unit).active == "active", 10, "who agreed to a start gets one")
    assert toy.slotward("confirm", "--id", begun.json["trial"]["id"], "--wait", "10").json["state"] == "confirmed"


FOREIGN = (
    "systemctl restart {unit}",
    "systemctl try-restart {unit}",
    "systemctl reload-or-restart {unit}",
    "systemctl daemon-reload",
    "systemctl reload {unit} 2>/dev/null || true",
    "sed -i 's/^Description=.*/Description=reconfigured/' /etc/systemd/system/{unit}; systemctl daemon-reload; systemctl restart {unit}",
    "systemctl stop {unit}; systemctl start {unit}",
)


@pytest.mark.host
def test_W3_C6_a_foreign_playbook_makes_neither_a_crash_nor_a_confirmation(toy: toys.Toy) -> None:
    """Restarts, reloads and a changed unit file, twelve of each round, during a trial: it stays a trial until somebody confirms."""
    toy.describe(trial_length_s=120)
    trial = toy.on_trial(toy.release("1.1.0", 2))
    for _round in range(2):
        for command in FOREIGN:
            toy.node.sh(command.format(unit=toy.unit))
    found = toy.update()
    assert found["trial"]["id"] == trial
    assert toy.node.unit(toy.unit).active == "active"
    assert "crash" not in toy.node.sh(f"cat {toy.slots}/trial.log"), "a stop that was asked for is no crash"
    done = toy.slotward("confirm", "--id", trial, "--wait", "15")
    assert (done.exit, done.json["state"], done.json["to"]) == (0, "confirmed", "1.1.0"), done


def test_C6_a_foreign_restart_saves_no_bad_release(toy: toys.Toy) -> None:
    """One that hangs and is never confirmed goes back on time, one that crashes is counted, whatever restarts it meanwhile."""
    toy.describe(trial_length_s=8)
    toy.on_trial(toy.release("1.1.0", 2))
    for _round in range(4):
        toy.node.sh(f"systemctl restart {toy.unit}; systemctl daemon-reload", check=False)
        time.sleep(1)
    assert toy.goes_back(["deadline-passed"], 30)["to"] == "1.1.0"
    toy.describe(trial_length_s=60)
    toy.on_trial(toy.release("1.8.0", 3, "sleep 1; exit 1"))
    for _round in range(3):
        toy.node.sh(f"systemctl daemon-reload; systemctl try-restart {toy.unit}", check=False)
        time.sleep(0.5)
    assert toy.goes_back(["crash-loop"], 50)["to"] == "1.8.0"
    assert toy.update()["version"] == "1.0.0"


@pytest.mark.every_mode
def test_L6_C10_a_hold_counts_in_every_mode(node: nodes.Node, v110: releases.Release) -> None:
    """Whoever does the work, and whoever asks: the daemon's own way passes the same gate, and cannot lift it."""
    held = node.slotward("hold", "--why", "the fair", "--owner", "ana")
    assert held.exit == 0, held
    answer = node.begin(v110)
    assert (answer.exit, answer.code, answer.json["state"]) == (3, "held", "refused"), answer
    assert "by ana until it is taken away: the fair" in answer.message
    assert node.running() == "1.0.0"
    if node.mode.section:
        script = "runuser -u slotward -- /usr/local/bin/slotward unhold --json"
        assert '"not-root"' in node.sh(script, check=False)
        assert node.sh(f"stat -c '%U %a' {HOLD}") == "root 644"
    assert node.slotward("unhold").json["changed"] is True
    assert node.upgraded(v110).json["to"] == "1.1.0"


def test_a_kept_tree_is_gone_back_to(toy: toys.Toy) -> None:
    """With trees the release before is still there after a newer one has failed; a tree that was changed is none."""
    toy.slotward("remove", "--purge")
    toy.install("1.0.0")
    versions = {"top": 'layout = "versions"\nprogram = "toy"', "floor": "previous"}
    toy.describe(**versions)
    assert toy.slotward("setup", "--adopt").exit == 0
    toy.upgraded(toy.release("5.1.0", 2))
    toy.upgraded(toy.release("5.2.0", 3))
    toy.on_trial(toy.release("5.3.0", 4, "exit 1"))
    assert toy.goes_back(["crash-loop", "unit-failed"], 30)["to"] == "5.3.0"
    toy.node.sh(f"cp -a {toy.slots}/versions/5.1.0/toy /run/toy; echo >>{toy.slots}/versions/5.1.0/toy")
    changed = toy.slotward("rollback", "--to", "previous")
    assert (changed.exit, changed.code) == (3, "not-kept"), changed
    toy.node.sh(f"cp -a /run/toy {toy.slots}/versions/5.1.0/toy; rm /run/toy")
    begun = toy.slotward("rollback", "--to", "previous", "--no-wait")
    assert (begun.exit, begun.json["to"]) == (0, "5.1.0"), begun
    done = toy.slotward("confirm", "--id", begun.json["trial"]["id"], "--wait", "15")
    assert (done.json["state"], done.json["floor"]) == ("confirmed", 2), done
    assert toy.slotward("rollback", "--to", "previous").json["changed"] is False
    assert toy.node.sh(f"{toy.entrypoint} version") == "toy 5.1.0"
