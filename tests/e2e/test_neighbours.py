# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever else is at work on a host: other runs, other updaters, an operator's systemctl, and file systems that are other than usual.

Each state is one that doctor names, and what doctor says to run ends it; no trial is lost over it, and none is won.
What stands elsewhere: two upgrades at once (test_two_at_once.py), a reboot in a trial and a package manager at work (X8, there),
restarts by hand that count for nothing (W3, test_crashes.py), a file put over the link at rest (test_install.py), a package's next version
beside a diverted file at rest (test_products.py), any umask (D13, test_umask.py), a directory of a group's in helper mode (test_modes_role.py).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from hosts import errors
from support import broken, modes, releases, server, toys
from support import node as nodes

pytestmark = pytest.mark.hosts

S, DATA = nodes.SLOTS, "/var/lib/slotward"
GUARD = "slotward-guard@slotward.service"
PYTHON = ["python3", "-I", f"{S}/current"]
"""The program where nothing can be executed."""
NEEDRESTART = (
    "systemctl restart slotward.service systemd-journald.service dbus.service ssh.service; systemctl daemon-reexec"
)
"""What needrestart does after an upgrade of the C library: systemd itself, and each unit that has old libraries open."""


LEFT_OUT = {"", "on-trial", "failed-version", "evidence-missing", "unsettled"}
"""What doctor says of trials themselves."""


def unwell(node: nodes.Node, program: str = "slotward") -> dict[str, dict[str, str]]:
    """What doctor names, by its entry of the runbook, but for trials and for versions that failed."""
    checks = node.command([program, "doctor"]).json["checks"]
    return {check["entry"]: check for check in checks if check["state"] != "ok" and check["entry"] not in LEFT_OUT}


def named(node: nodes.Node, entry: str) -> str:
    """What doctor says to run about the one thing that it names."""
    found = unwell(node)
    assert set(found) == {entry}, found
    return found[entry]["run"]


@contextlib.contextmanager
def mounted(node: nodes.Node, place: str, *steps: str) -> Iterator[None]:
    """Something mounted over a place, and away again."""
    node.sh(" && ".join(steps))
    try:
        yield
    finally:
        node.sh(f"umount -l {place}", check=False)


# --- other runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.quick_modes
@pytest.mark.only_modes(modes.ROOT, modes.HELPER)
def test_a_run_and_the_gateway_at_once(node: nodes.Node, v110: releases.Release, v120: releases.Release) -> None:
    """A controller's upgrade and the gateway's at the same moment: one trial; then a confirmation and a rollback: one end, told by both."""
    node.configure(confirm_sources="gateway", allow_http=True)
    node.sh(f"systemctl restart {nodes.UNIT}")
    run, asked = nodes.trial_id(), nodes.trial_id()
    by_run = (
        f"slotward upgrade --target {node.target(v110)} --src {node.put(v110.artifact)} --no-wait --json --id {run}"
    )
    asks = f"slotward ask upgrade --target {node.target(v120, node.served(v120))} --no-wait --json --id {asked}"
    node.sh(f"cd {nodes.BOX}; ({by_run} >1 2>/dev/null) & ({asks} >2 2>/dev/null) & wait; true", timeout=120)
    answers = [json.loads(node.host.read(f"{nodes.BOX}/{number}")) for number in (1, 2)]
    trial = node.update()["trial"]
    assert trial["id"] in (run, asked)
    other = answers[1 if trial["id"] == run else 0]
    assert other["state"] != "trial", answers
    assert other["code"] in ("in-progress", "trial-pending", "daemon-unreachable"), answers

    confirms = f"slotward ask confirm --id {trial['id']} --wait 15 --json"
    takes_back = f"slotward rollback --id {trial['id']} --json"
    node.waits(lambda: node.running() == trial["to"], 30, "the new version runs")
    node.sh(
        f"cd {nodes.BOX}; ({confirms} >3 2>/dev/null) & (sleep 1; {takes_back} >4 2>/dev/null) & wait; true",
        timeout=120,
    )
    node.waits(lambda: node.update()["trial"] is None, 30, "the trial has ended")
    last = node.update()["last"]
    assert last["id"] == trial["id"]
    assert last["state"] in ("confirmed", "rolled-back")
    back = json.loads(node.host.read(f"{nodes.BOX}/4"))
    assert (back["state"] == "rolled-back") == (last["state"] == "rolled-back"), back
    node.waits(lambda: node.running() == (last["to"] if last["state"] == "confirmed" else last["from"]), 30, "it runs")
    node.configure()
    node.sh(f"slotward update --clear-failed >/dev/null; systemctl restart {nodes.UNIT}")
    node.upgraded(node.shop.release("1.5.0", 8))


@pytest.mark.parametrize("restarts", [True, False], ids=["restarts", "stops"])
def test_a_package_of_the_same_path_is_upgraded_in_a_trial(
    node: nodes.Node, v100: releases.Release, restarts: bool
) -> None:
    """dpkg writes beside the diverted name, and what its scripts do to the unit is an operator's doing: neither ends the trial."""
    with toys.running(node, v100, adopted=False) as toy:
        box = "/var/tmp/toypkg"
        script = (
            f"systemctl restart {toy.unit}" if restarts else f"systemctl stop {toy.unit}; systemctl start {toy.unit}"
        )

        def package(version: str) -> None:
            node.sh(f"rm -rf {box}; mkdir -p {box}/DEBIAN {box}/usr/local/sbin")
            node.host.write(
                f"{box}/DEBIAN/control",
                f"Package: toypkg\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@x.example>\nDescription: toy\n",
            )
            node.host.write(f"{box}/DEBIAN/postinst", f"#!/bin/sh\n{script}\n", 0o755)
            node.host.write(f"{box}/usr/local/sbin/toy", toy.program(version), 0o755)
            node.sh(f"dpkg-deb --root-owner-group -b {box} {box}.deb >/dev/null && dpkg -i {box}.deb")

        try:
            package("1.0.0")
            adopted = toy.slotward("setup", "--adopt", "--divert")
            assert adopted.exit == 0, adopted
            trial = toy.on_trial(toy.release("1.1.0", 2))
            package("3.0.0")
            assert node.sh(f"{toy.entrypoint} version; {toy.entrypoint}.distrib version") == "toy 1.1.0\ntoy 3.0.0"
            assert toy.update()["trial"]["id"] == trial
            assert toy.slotward("confirm", "--id", trial, "--wait", "15").json["state"] == "confirmed"
            assert toy.slotward("doctor").exit == 0
        finally:
            node.sh(
                f"dpkg-divert --local --no-rename --remove {toy.entrypoint} >/dev/null 2>&1; "
                f"dpkg -r --force-all toypkg >/dev/null 2>&1; rm -rf {box}*"
            )


@pytest.mark.every_mode
@pytest.mark.parametrize("name", ["", "crash-at-start"], ids=["good", "crashing"])
def test_needrestart_in_a_trial_ends_nothing_and_saves_nothing(
    node: nodes.Node, v110: releases.Release, name: str
) -> None:
    """systemd executes itself anew and every unit is restarted: no crash of a good release, and no new life for a bad one."""
    release = node.shop.broken(broken.named(name)) if name else v110
    trial = node.on_trial(release)
    for _again in range(3):
        node.sh(NEEDRESTART, check=False)
    if name:
        node.goes_back(broken.named(name).trial_codes, 60)
    else:
        node.waits(lambda: node.running() == "1.1.0", 30, "the new version runs")
        assert node.confirm(trial, wait=30).json["state"] == "confirmed"
    assert unwell(node) == {}
    node.runnable()


def _booted_anew(node: nodes.Node, began: str) -> bool:
    try:
        return node.host.running and node.host.boot_id != began
    except errors.HostError:
        return False  # on its way down


def test_an_unattended_reboot_in_the_middle_of_a_download(node: nodes.Node, v110: releases.Release) -> None:
    """Nothing was switched, nothing is in flight after the boot, no version has failed; what was fetched is resumed or goes."""
    node.configure(allow_http=True)
    with server.FileServer(node.host.controller_address) as files:
        target = node.target(v110, files.url(v110.artifact))
        files.stalling.add(f"/{v110.artifact.name}")
        node.sh(f"systemd-run -q --collect -- slotward upgrade --target {target} --no-wait --id {nodes.trial_id()}")
        node.waits(lambda: len(files.requests) == 1, 30, "the upgrade downloads")
        began = node.host.boot_id
        node.sh("systemctl reboot")
        node.waits(lambda: _booted_anew(node, began), 60, "the host boots")
        node.host.wait_booted()
        node.waits(lambda: node.running() == "1.0.0", 30, "the old version runs")
        state = node.update()
        assert (state["trial"], state["lock"], state["failed"]) == (None, None, []), state
        assert (state["progress"] or {"code": "cancelled"})["code"] == "cancelled"
        assert unwell(node) == {}
        files.let_go()
        again = node.slotward("upgrade", "--target", node.target(v110, files.url(v110.artifact)), "--no-wait")
        assert again.json["state"] == "trial", again
    assert node.confirm(str(again.json["trial"]["id"])).json["state"] == "confirmed"


OTHERS = {
    "over the link": "cp {file} {entry}.other && mv {entry}.other {entry}",
    "through the link": "cat {file} >{entry}",
    "no program": "rm {entry}",
}


@pytest.mark.parametrize("way", OTHERS)
def test_another_updater_in_a_trial(node: nodes.Node, v110: releases.Release, way: str) -> None:
    """What it wrote is not what is on trial: nobody confirms it, doctor names it, the guard goes back, and what doctor says mends it."""
    node.configure(trial_length_s=20)
    other = node.put(node.shop.release("1.3.0", 5).artifact)
    trial = node.on_trial(v110)
    node.sh(OTHERS[way].format(file=other, entry=nodes.ENTRYPOINT))
    node.sh(f"timeout 5 systemctl restart {nodes.UNIT}", check=False)
    told = node.command([f"{S}/a", "confirm", "--id", trial, "--wait", "2"])
    assert told.exit != 0, told
    assert told.json["state"] != "confirmed", told
    found = unwell(node, f"{S}/a")
    assert found.keys() & {"entrypoint-missing", "entrypoint-elsewhere", "slot-damaged"}, found
    node.waits(lambda: node.link("current") == node.link("good") == "a", 60, "the guard goes back")
    if way != "through the link":  # then going back has mended it: the slot that was written to is not what starts
        found = unwell(node, f"{S}/a")
        run = next(said["run"] for entry, said in found.items() if entry.startswith("entrypoint-"))
        assert run == ("slotward" if way == "over the link" else f"{S}/current") + " setup --adopt", found
        assert node.command([f"{S}/a", *run.split()[1:]]).exit == 0
        node.sh(f"systemctl reset-failed {nodes.UNIT}; systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.running() != "", 30, "a version runs")
    node.waits(lambda: node.update()["trial"] is None, 30, "the trial has ended")
    for said in unwell(node).values():
        node.sh(said["run"])
    assert unwell(node) == {}
    node.sh("slotward update --clear-failed >/dev/null")
    node.upgraded(node.shop.release("1.5.0", 8))
    node.runnable()


# --- systemctl by hand ------------------------------------------------------------------------------------------------------

DROP_IN = f"/etc/systemd/system/{nodes.UNIT}.d"
BY_HAND = {
    "stop": (f"systemctl stop {nodes.UNIT}", "unit-down"),
    "disable": (f"systemctl disable -q {nodes.UNIT}", "unit-disabled"),
    "kill": (f"systemctl kill -s KILL {nodes.UNIT}", ""),
    "daemon-reload": ("for i in 1 2 3; do systemctl daemon-reload; done", ""),
    "edit": (
        f"mkdir -p {DROP_IN}; printf '[Service]\\nEnvironment=X=1\\n' >{DROP_IN}/90-test.conf; systemctl daemon-reload",
        "",
    ),
    "edit unread": (f"printf '[Service]\\nEnvironment=X=1\\n' >{DROP_IN}/91-test.conf", "guard-missing"),
    "mask the guard": (f"systemctl mask -q {GUARD}", "guard-masked"),
    "stop the timer": (f"systemctl stop {nodes.TIMER}", ""),
    "mask the timer": (f"systemctl stop {nodes.TIMER}; systemctl mask -q {nodes.TIMER}", "guard-masked"),
}
"""What is typed, and what doctor names then; "" for what is no state that stays."""


def put_right(node: nodes.Node, entry: str) -> None:
    """Doctor names it, and what it says to run mends it."""
    if entry:
        node.sh(named(node, entry))
        assert unwell(node) == {}


@pytest.fixture(autouse=True)
def nothing_typed_is_left(node: nodes.Node) -> Iterator[None]:
    """The host is shared."""
    yield
    node.sh(
        f"systemctl unmask -q {GUARD} {nodes.TIMER}; rm -rf {DROP_IN}/9?-test.conf; systemctl daemon-reload;"
        f" systemctl enable -q {nodes.UNIT} {nodes.TIMER}; systemctl reset-failed",
        check=False,
    )


@pytest.mark.parametrize("verb", BY_HAND)
def test_systemctl_by_hand_while_it_downloads(
    node: nodes.Node, v110: releases.Release, v120: releases.Release, verb: str
) -> None:
    """Whatever was typed before the switch: the upgrade goes on to a trial, or says why not and has changed nothing."""
    typed, entry = BY_HAND[verb]
    node.configure(allow_http=True)
    with server.FileServer(node.host.controller_address) as files:
        target = node.target(v110, files.url(v110.artifact))
        files.stalling.add(f"/{v110.artifact.name}")
        line = f"slotward upgrade --target {target} --no-wait --json --id {nodes.trial_id()}"
        node.sh(f"systemd-run -q --collect --unit=e2e-up -- sh -c '{line} >{nodes.BOX}/out 2>/dev/null'")
        node.waits(lambda: len(files.requests) == 1, 30, "the upgrade downloads")
        node.sh(typed)
        files.let_go()  # the other half is never sent: the download goes on where it stood
        node.waits(lambda: node.unit("e2e-up.service").active == "inactive", 90, "the upgrade has ended")
    answer = json.loads(node.host.read(f"{nodes.BOX}/out"))
    if answer["state"] == "trial":
        put_right(node, entry)
        node.waits(lambda: node.running() == "1.1.0", 30, "the new version runs")
        assert node.confirm(str(answer["trial"]["id"]), wait=30).json["state"] == "confirmed"
    else:
        wanted = ("unit-not-running", "guard-not-installed", "watchdog-not-armed")
        assert answer["code"] in wanted or "is masked" in answer["message"], answer
        assert (node.link("current"), node.link("good"), node.update()["trial"]) == ("a", "a", None)
        put_right(node, entry)
    node.waits(lambda: node.running() != "", 30, "a version runs")
    node.upgraded(v120)


@pytest.mark.every_mode
@pytest.mark.parametrize("verb", BY_HAND)
def test_systemctl_by_hand_in_a_good_trial(node: nodes.Node, v110: releases.Release, verb: str) -> None:
    """Nothing that is typed fails a good release: once it is put right the trial is confirmed."""
    typed, entry = BY_HAND[verb]
    trial = node.on_trial(v110)
    node.waits(lambda: node.running() == "1.1.0", 30, "the new version runs")
    node.sh(typed)
    if verb == "kill":
        node.waits(lambda: node.running() == "1.1.0", 30, "the new version runs again")
    put_right(node, entry)
    node.waits(lambda: node.running() == "1.1.0", 30, "the new version runs")
    assert node.confirm(trial, wait=30).json["state"] == "confirmed"
    assert unwell(node) == {}
    node.runnable()


@pytest.mark.parametrize("verb", BY_HAND)
@pytest.mark.parametrize("name", ["crash-at-start", "hang-at-start"])
def test_systemctl_by_hand_in_a_bad_trial(node: nodes.Node, v110: releases.Release, verb: str, name: str) -> None:
    """Nothing that is typed keeps a bad release: the host is back on the old one, at the latest with the next command of ours."""
    typed, entry = BY_HAND[verb]
    node.configure(trial_length_s=10)
    node.on_trial(node.shop.broken(broken.named(name)))
    node.sh(typed)
    if (
        verb in ("mask the timer", "stop the timer") and name == "hang-at-start"
    ):  # with the watchdog taken away only somebody who comes by ends it
        node.waits(lambda: (node.update()["trial"] or {"left_s": 0})["left_s"] == 0, 20, "the length is over")
        node.slotward("settle")
    node.waits(lambda: node.link("current") == node.link("good") == "a", 40, "current names good again")
    node.waits(
        lambda: not node.names() & {"trial", "trial.revert"} or bool(node.slotward("settle")), 30, "it is settled"
    )
    if verb == "stop":
        assert node.unit().active in ("inactive", "failed"), "W7: what an operator stopped stays so"
    put_right(node, entry)
    node.waits(lambda: node.running() == "1.0.0", 30, "the old version runs")
    assert node.update()["last"]["state"] == "rolled-back"
    node.configure()
    node.upgraded(v110)


# --- file systems -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick_modes
@pytest.mark.parametrize("full", ["blocks", "inodes"])
def test_a_full_tmp_is_nobodys_business(
    node: nodes.Node, v110: releases.Release, v120: releases.Release, full: str
) -> None:
    """Nothing of ours is in /tmp, and systemd gives a unit that asks for its own one an empty one: forth, confirmed, forth and back."""
    size = "size=64k" if full == "blocks" else "size=1m,nr_inodes=20"
    fill = (
        "dd if=/dev/zero of=/tmp/x bs=4k 2>/dev/null"
        if full == "blocks"
        else "i=0; while mkdir /tmp/$i; do i=$((i+1)); done"
    )
    with mounted(
        node,
        "/tmp",
        f"mount -t tmpfs -o {size} tmpfs /tmp",
        f"({fill}) 2>/dev/null; ! cp /etc/passwd /tmp/y 2>/dev/null",
    ):
        node.upgraded(v110)
        trial = node.on_trial(v120)
        node.waits(lambda: node.running() == "1.2.0", 30, "the new version runs")
        told = node.slotward("rollback", "--id", trial)
        assert told.json["state"] == "rolled-back", told
        node.waits(lambda: node.running() == "1.1.0", 30, "the old version runs")
        assert unwell(node) == {}


@pytest.mark.quick_modes
def test_D9_a_read_only_usr(node: nodes.Node, v110: releases.Release) -> None:
    """D9: an update writes nothing below /usr, and neither does going back; setup that has nothing to write does not try."""
    ro = (
        "mount --bind /usr/local /usr/local",
        "mount -o remount,bind,ro /usr/local",
        "! touch /usr/local/x 2>/dev/null",
    )
    with mounted(node, "/usr/local", *ro):
        node.upgraded(v110)
        node.on_trial(node.shop.broken(broken.named("crash-at-start")))
        node.goes_back(("crash-loop",), 60, to="1.1.0")
        assert node.slotward("setup", *node.setup_flags).json["changed"] is False
        assert unwell(node) == {}
        node.runnable()


def test_D9_setup_that_cannot_write_below_usr_says_so(node: nodes.Node) -> None:
    """D9, D18: which file it is and why, nothing half done; with /usr writable again it goes on."""
    node.sh("echo '# older' >>/usr/local/lib/slotward/guard")
    ro = ("mount --bind /usr/local /usr/local", "mount -o remount,bind,ro /usr/local")
    with mounted(node, "/usr/local", *ro):
        told = node.slotward("setup")
        assert told.exit != 0, told
        assert "/usr/local/lib/slotward" in told.message, told
        assert (told.code, "read-only filesystem" in told.message) == ("read-only", True), told
        assert named(node, "guard-missing") == "slotward setup"
        assert node.running() == "1.0.0"
    assert node.slotward("setup").exit == 0
    assert unwell(node) == {}


def test_D1_var_on_another_filesystem(node: nodes.Node, v110: releases.Release, v120: releases.Release) -> None:
    """Downloads come from there into the slots; when it is full nothing is fetched, what runs goes on, and going back needs none of it."""
    node.configure(allow_http=True)
    with mounted(node, DATA, f"mount -t tmpfs -o size=48m,mode=0700 tmpfs {DATA}", f"systemctl restart {nodes.UNIT}"):
        done = node.slotward("upgrade", "--target", node.target(v110, node.served(v110)), "--no-wait")
        assert done.json["state"] == "trial", done
        assert node.confirm(str(done.json["trial"]["id"])).json["state"] == "confirmed"
        trial = node.on_trial(v120)
        node.sh(f"dd if=/dev/zero of={DATA}/full bs=1M 2>/dev/null; true", check=False)
        told = node.slotward("rollback", "--id", trial)
        assert told.json["state"] == "rolled-back", told
        node.waits(lambda: node.running() == "1.1.0", 30, "the old version runs")
        release = node.shop.release("1.5.0", 8)
        refused = node.slotward("upgrade", "--target", node.target(release, node.served(release)), "--no-wait")
        assert (refused.exit, refused.code) == (4, "no-space"), refused
        assert DATA in refused.message
        assert DATA in named(node, "no-space")
        node.sh(f"rm {DATA}/full")
        assert unwell(node) == {}
        node.sh(f"rm -rf {DATA}/staging")
    node.sh(f"systemctl restart {nodes.UNIT}")


BIND = f"mount --bind {S} {S} && mount -o remount,bind,"
ODD = {
    "noexec": (f"{BIND}noexec {S}", "noexec", f"mount -o remount,bind,exec {S}"),
    "read-only": (f"{BIND}ro {S}", "read-only", f"mount -o remount,bind,rw {S}"),
    "volatile": (
        f"cp -a {S} /root/slots && mount -t tmpfs tmpfs {S} && cp -a /root/slots/. {S} && rm -r /root/slots",
        "overlay",
        "",
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_D10_slots_where_no_release_can_be(node: nodes.Node, v110: releases.Release, kind: str) -> None:
    """D7, D10: refused before anything is fetched, named by doctor, and ended by what its entry says; the daemon runs all the while."""
    how, code, mends = ODD[kind]
    before = node.unit()
    with mounted(node, S, how):
        answer = node.command(PYTHON + ["prepare", "--target", node.target(v110), "--src", node.put(v110.artifact)])
        assert (answer.exit, answer.code) == (3, code), answer
        assert node.link("current") == node.link("good") == "a"
        assert node.unit() == before
        checks = node.command([*PYTHON, "doctor"]).json["checks"]
        assert [check["entry"] for check in checks if check["name"] == "disk"] == [kind], checks
        if mends:
            node.sh(mends)
            assert node.doctor()["disk"][0] == "ok"
            node.upgraded(v110)
    node.runnable()


def test_a_directory_of_a_group_s_on_the_way(node: nodes.Node, v110: releases.Release) -> None:
    """/usr/local/lib as older Debian made it: told in root mode, where it refuses nothing, with the command that closes it."""
    node.sh("chgrp staff /usr/local/lib && chmod 2775 /usr/local/lib")
    try:
        node.upgraded(v110)
        node.sh(named(node, "directory-unsafe"))
        assert unwell(node) == {}
    finally:
        node.sh("chgrp root /usr/local/lib && chmod 0755 /usr/local/lib")
