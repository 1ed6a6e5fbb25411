# SPDX-License-Identifier: GPL-3.0-or-later
"""I6, I8 and I11 on real hosts: a hostile service user, damaged records and configurations, and a unit that lies."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Iterable

import pytest
from support import broken, releases
from support import node as nodes

MARKS = "/srv/marks"
# Says which user ran it, and as what program; needs nothing but the oldest symbols of libc.
EVIL = r"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
    char path[64], name[64] = "?";
    int from = open("/proc/self/comm", O_RDONLY);
    int length = from < 0 ? 0 : read(from, name, sizeof name - 1);
    name[length > 0 ? length - 1 : 0] = 0;
    snprintf(path, sizeof path, "/srv/marks/%d", (int)geteuid());
    int to = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (to >= 0) { dprintf(to, "%s\n", name); close(to); }
}
"""
DROP_IN = f"""[Service]
User=svc
Group=svc
EnvironmentFile=-/home/svc/environment
ReadWritePaths={MARKS}
ProtectHome=no
"""
HOSTILE = """LD_PRELOAD=/home/svc/evil.so
LD_AUDIT=/home/svc/evil.so
PATH=/home/svc/bin:/usr/bin:/bin
BASH_ENV=/home/svc/bin/sourced
ENV=/home/svc/bin/sourced
PYTHONPATH=/home/svc/python
PYTHONSTARTUP=/home/svc/python/sitecustomize.py
GUARD_PROC=/home/svc/proc
SYSTEMD_UNIT_PATH=/home/svc/units
"""


@pytest.fixture(scope="session")
def evil(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A library whose constructor writes down who ran it."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed to make the hostile library (apt-get install gcc libc6-dev)")
    made = tmp_path_factory.mktemp("evil") / "evil.so"
    source = made.with_suffix(".c")
    source.write_text(EVIL, encoding="ascii")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", made, source], check=True)
    return made


def marked(names: Iterable[str], quick: set[str]) -> list[object]:
    """A parameter a name; the quick ones are for every run, the others for the long one."""
    return [pytest.param(name, marks=pytest.mark.host if name in quick else pytest.mark.hosts) for name in names]


def marks(node: nodes.Node, user: str) -> list[str]:
    """The programs in which code of the hostile user ran as `user`."""
    return node.sh(f"cat {MARKS}/$(id -u {user}) 2>/dev/null", check=False).splitlines()


@pytest.mark.host
def test_i6_nothing_that_the_service_user_controls_runs_as_root(
    node: nodes.Node, shop: releases.Workshop, v110: releases.Release, evil: pathlib.Path
) -> None:
    """A unit with a user whose environment file that user writes: through install, upgrade, crash and going back."""
    node.sh(
        "id svc >/dev/null 2>&1 || useradd --create-home --shell /bin/sh svc; rm -rf /home/svc/*;"
        f"mkdir -p /home/svc/bin /home/svc/python {MARKS}; rm -f {MARKS}/*; chmod 1777 {MARKS}"
    )
    node.host.put(evil, "/home/svc/evil.so", 0o755)
    node.host.write("/home/svc/environment", HOSTILE)
    mark = f"echo sourced >>{MARKS}/$(id -u)\n"
    node.host.write("/home/svc/bin/sourced", mark)
    for name in ("timeout", "systemctl", "readlink", "mv", "sync", "rm", "ln", "wc", "systemd-run"):
        node.host.write(f"/home/svc/bin/{name}", f'#!/bin/sh\n{mark}PATH=/usr/bin:/bin exec {name} "$@"\n', 0o755)
    text = f"import os\nopen('{MARKS}/%d' % os.geteuid(), 'a').write('python\\n')\n"
    node.host.write("/home/svc/python/sitecustomize.py", text)
    node.sh("chown -R svc:svc /home/svc")
    try:
        node.drop_in(DROP_IN)
        node.sh(f"systemctl restart {nodes.UNIT}")
        assert node.sh(f"ps -o user= -p {node.unit().main_pid}") == "svc"
        assert marks(node, "svc") != []  # the library works: the daemon itself, which is svc's, loaded it

        node.upgraded(v110)
        node.on_trial(shop.broken(broken.named("crash-at-start")))
        node.waits(lambda: node.link("current") == node.link("good") == "b", 30, "current names good again")
        node.waits(lambda: node.unit().active == "active", 20, "the old version runs")
        assert node.update()["last"]["code"] == "crash-loop"
        assert "going back from a to b: crash-loop" in node.guard_log()
        assert marks(node, "root") == []
    finally:
        node.sh(
            f"rm -f /etc/systemd/system/{nodes.UNIT}.d/90-test.conf; systemctl daemon-reload; rm -rf /home/svc/* {MARKS}"
        )


@pytest.mark.hosts
def test_i6_links_and_pipes_in_staging_are_never_followed(node: nodes.Node, v110: releases.Release) -> None:
    """Whatever lies where a pushed file should: a link, a pipe, a second name of the file, a directory of links."""
    target = node.target(v110)
    real = node.put(v110.artifact)
    node.sh(
        f"mkdir {nodes.BOX}/odd; cd {nodes.BOX}/odd; ln -s {real} link; mkfifo pipe; cp {real} twice; ln twice second; mkdir dir"
    )
    node.sh(f"ln -s {nodes.BOX}/odd {nodes.BOX}/linked")
    for name in ("odd/link", "odd/pipe", "odd/twice", "odd/dir"):
        answer = node.slotward("upgrade", "--target", target, "--src", f"{nodes.BOX}/{name}", "--no-wait", timeout=30)
        assert (answer.exit, answer.code) == (3, "staged-unsafe"), (name, answer)
    assert (node.link("current"), node.update()["failed"]) == ("a", [])
    node.upgraded(v110)


CONFIGURATIONS = {
    "unknown-key": ("[update]\nsurprise = 1\n", "bad-config", "surprise"),
    "bad-pins": ('[update]\nrelease_pins = "sha256/abc"\n', "bad-config", "release_pins"),
    "threshold": ("[update]\nrelease_threshold = 9\n", "bad-config", "release_threshold"),
    "syntax": ("[update\n", "bad-config", "config.toml:1:1: "),
    "too-large": ("# " + "x" * 70000 + "\n", "bad-config", "65536"),
}


@pytest.mark.parametrize("name", marked(CONFIGURATIONS, {"unknown-key"}))
def test_i8_a_bad_configuration_refuses_updates_and_nothing_else(
    node: nodes.Node, v110: releases.Release, name: str
) -> None:
    """The daemon runs on through a restart, upgrade and prepare are refused, doctor names the place."""
    text, code, place = CONFIGURATIONS[name]
    node.host.write(nodes.CONFIG, text, 0o600)
    node.sh(f"systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.running() == "1.0.0", 10, "the daemon runs")
    answer = node.begin(v110)
    assert (answer.exit, answer.code) == (5, code), answer
    state, said, run = node.doctor()["configuration"]
    assert (state, nodes.CONFIG in said, nodes.CONFIG in run) == ("fail", True, True)
    assert place in said
    shown = node.update()
    assert (shown["code"], len(shown["config_problems"]) > 0, shown["unit"]["active"]) == (code, True, "active")
    assert node.slotward("setup").code == code
    node.configure()
    node.upgraded(v110)


@pytest.mark.hosts
def test_i8_a_bad_configuration_in_the_middle_of_a_trial_does_not_save_the_release(
    node: nodes.Node, v110: releases.Release
) -> None:
    """The deadline is kept by what the record says; the configuration of that moment does not matter."""
    node.configure(trial_length_s=6)
    node.on_trial(v110)
    node.host.write(nodes.CONFIG, "[update\n", 0o600)
    node.waits(lambda: node.link("current") == node.link("good"), 20, "current names good again")
    node.waits(lambda: node.running() == "1.0.0", 15, "1.0.0 runs")
    assert node.update()["last"]["code"] == "deadline-passed"


RECORDS = {
    "torn update.json": f'printf \'{{"spec":1,"flo\' >{nodes.SLOTS}/update.json',
    "empty update.json": f": >{nodes.SLOTS}/update.json",
    "missing update.json": f"rm {nodes.SLOTS}/update.json",
    "missing slots.json": f"rm {nodes.SLOTS}/slots.json",
    "binary slots.json": f"head -c 200 /dev/urandom >{nodes.SLOTS}/slots.json",
    "missing good": f"rm {nodes.SLOTS}/good",
    "good to nowhere": f"ln -sfn c {nodes.SLOTS}/good",
}


@pytest.mark.parametrize("what", marked(RECORDS, {"torn update.json"}))
def test_i3_a_broken_record_refuses_updates_and_the_daemon_runs_on(
    node: nodes.Node, v110: releases.Release, v120: releases.Release, what: str
) -> None:
    """I3, I8: with no copy to prove it, nothing is written over what is broken, doctor says which file and what to do, a restart changes nothing."""
    node.damaged = True
    node.upgraded(v110)
    node.sh(f"cp -a {nodes.SLOTS} {nodes.BOX}/saved; rm {nodes.SLOTS}/*.copy; {RECORDS[what]}")
    node.sh(f"systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.running() == "1.1.0", 10, "the daemon runs")
    node.waits(lambda: node.slotward("settle").exit == 0, 10, "what is broken is set aside")
    before = node.sh(LOOK), node.unit()
    for answer in (node.begin(v120), node.slotward("update", "--clear-failed"), node.slotward("setup")):
        assert (answer.exit, answer.code) == (5, "record-broken"), answer
    shown = node.update()
    file = "good" if "good" in what else what.split()[1]
    assert (shown["code"], shown["broken"]["file"]) == ("record-broken", f"{nodes.SLOTS}/{file}")
    state, said, run = node.doctor()["slots" if file == "good" else "records"]
    assert state == "fail"
    assert said.startswith(f"{nodes.SLOTS}/{file}")
    assert run != ""
    node.sh(f"systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.running() == "1.1.0", 10, "the daemon runs")
    assert node.sh(LOOK) == before[0]
    node.sh(f"rm -rf {nodes.SLOTS} && cp -a {nodes.BOX}/saved {nodes.SLOTS}")
    answer = node.upgraded(v120)
    assert answer.json["floor"] == 3


LOOK = f"cd {nodes.SLOTS}; sha256sum [!p]*.json; ls -lI lock -I audit.log -I progress.json --time-style=full-iso"


@pytest.mark.host
def test_i11_a_unit_that_starts_another_program_is_not_confirmed(node: nodes.Node, v110: releases.Release) -> None:
    """ExecStart= names a copy of the old program: it runs, it even answers, and it proves nothing."""
    node.sh(f"cp {nodes.ENTRYPOINT} /usr/local/bin/old-slotward")
    node.drop_in("[Service]\nExecStart=\nExecStart=/usr/local/bin/old-slotward node\n")
    node.configure(trial_length_s=8)
    trial = node.on_trial(v110)
    node.waits(lambda: node.unit().active == "active", 10, "the unit is up")
    answer = node.confirm(trial, wait=3)
    assert (answer.exit, answer.code, answer.json["state"]) == (6, "not-proven", "trial"), answer
    assert "does not run the new slot's bytes" in answer.message
    node.goes_back(("deadline-passed",), 20)
    node.sh("rm /usr/local/bin/old-slotward")


@pytest.mark.hosts
def test_i11_a_process_that_survives_the_switch_is_not_confirmed(node: nodes.Node, v110: releases.Release) -> None:
    """A unit that refuses to be stopped keeps its old process: the swap says so, and nothing confirms it."""
    node.drop_in("[Unit]\nRefuseManualStop=yes\n")
    node.configure(trial_length_s=8)
    before = node.unit().main_pid
    trial = nodes.trial_id()
    answer = node.begin(v110, trial=trial)
    assert (answer.exit, answer.code) == (4, "systemd-failed"), answer
    assert "refused" in answer.message
    assert node.unit().main_pid == before
    confirmed = node.confirm(trial, wait=1)
    assert (confirmed.exit, confirmed.code, confirmed.json["state"]) == (6, "not-proven", "trial"), confirmed
    assert confirmed.message == f"main process {before} is older than the swap: the unit was not restarted"
    node.waits(lambda: node.link("current") == node.link("good"), 20, "current names good again")
    assert node.unit().main_pid == before
    assert node.running() == "1.0.0"
    node.sh(f"rm /etc/systemd/system/{nodes.UNIT}.d/90-test.conf; systemctl daemon-reload")


@pytest.mark.hosts
def test_an_early_confirmation_waits_for_the_daemon_to_have_settled(node: nodes.Node, v110: releases.Release) -> None:
    """settle_s: up as one process for so long, or the answer is not-proven and the trial goes on."""
    node.configure(settle_s=6, trial_length_s=25)
    trial = node.on_trial(v110)
    early = node.confirm(trial, wait=0)
    assert (early.exit, early.code) == (6, "not-proven"), early
    wrong = node.slotward("confirm", "--id", "ffffffffffffffff", "--wait", "0")
    assert (wrong.exit, wrong.code) == (3, "wrong-trial"), wrong
    other = node.slotward("confirm", "--id", trial, "--source", "gateway")
    assert (other.exit, other.code) == (3, "wrong-source"), other
    assert node.confirm(trial, wait=15).json["state"] == "confirmed"


@pytest.mark.hosts
def test_i8_a_trial_is_not_confirmed_by_defaults(node: nodes.Node, v110: releases.Release) -> None:
    """With a configuration that cannot be read, nobody knows who must confirm: the trial stays open until it is mended."""
    trial = node.on_trial(v110)
    config = node.host.read(nodes.CONFIG)
    node.host.write(nodes.CONFIG, config.replace("settle_s = 1", "settle_s = soon"), 0o600)
    answer = node.confirm(trial)
    assert (answer.exit, answer.code) == (5, "bad-config"), answer
    assert node.link("good") != node.link("current")
    node.host.write(nodes.CONFIG, config, 0o600)
    assert node.confirm(trial).json["state"] == "confirmed"


@pytest.mark.hosts
def test_a_rollback_never_starts_what_an_operator_stopped(node: nodes.Node, v110: releases.Release) -> None:
    """DESIGN 6: with the daemon stopped by hand, rollback moves the links back and leaves it stopped."""
    trial = node.on_trial(v110)
    node.sh(f"systemctl stop {nodes.UNIT}")
    answer = node.slotward("rollback", "--id", trial)
    assert answer.code == "operator", answer
    assert node.link("current") == node.link("good")
    assert node.unit().active == "inactive"
    node.sh(f"systemctl start {nodes.UNIT}")
    node.waits(lambda: node.running() == "1.0.0", 10, "the good version runs")
