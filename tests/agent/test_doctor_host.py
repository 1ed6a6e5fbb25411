# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's look at the host around a product and at what the slots keep: each state is named, with what mends it."""

from __future__ import annotations

import fcntl
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from agent.places import NEW, OLD, Place

from slotcore import config as configs
from slotcore import recording, records
from slotward import (
    doctor_host,
    doctor_kept,
    evidence_file,
    host,
    lock,
    lock_owner,
    looking,
    own,
    packages,
    preflight,
    ways,
)
from slotward import doctor_states as states

MIB = 1 << 20
DISK = preflight.Filesystem("/opt/slots", 1, "ext4", 900 * MIB, 5000, False, False)
WELL = doctor_host.Look(
    DISK, DISK._replace(path="/var/lib/x"), DISK._replace(path="/run", kind="tmpfs"), 9 * MIB, "enabled"
)
ANSWER: Dict[str, Any] = {"unit": {"name": "probe.service", "active": "active"}}
OWNER = packages.Owner("probe", "dpkg")


def setup_of(place: Place) -> own.Setup:
    """The product of a place, as its file describes it."""
    return own.Setup(place.product, configs.load(b"", "/nowhere")[0], (), "/etc/x.toml")


@pytest.mark.parametrize(
    ("changes", "entry", "state", "said", "run"),
    [
        ({"slots": DISK._replace(read_only=True)}, states.READ_ONLY, "fail", "read-only", "mount -o remount,rw"),
        (
            {"slots": DISK._replace(kind="overlay")},
            states.VOLATILE,
            "fail",
            "on overlay",
            "set slots_dir in /etc/x.toml",
        ),
        ({"slots": DISK._replace(noexec=True)}, states.NOEXEC, "fail", "noexec", "mount -o remount,exec"),
        ({"slots": DISK._replace(free=0)}, states.NO_SPACE, "warn", "going back needs none", "du -xh /opt/slots"),
        ({"slots": DISK._replace(free=0, mount="/opt")}, states.NO_SPACE, "warn", "/opt/slots has", "du -xh /opt |"),
        ({"slots": DISK._replace(inodes=3)}, states.NO_SPACE, "warn", "3 free inodes", "du --inodes -x /opt/slots"),
        ({"staging": DISK._replace(device=2, free=5)}, states.NO_SPACE, "warn", "going back", "du -xh /opt/slots"),
        ({"run": DISK._replace(free=MIB)}, states.RUN_FULL, "warn", "1.0 MiB free", "du -xh /run"),
        (
            {"enabled": "disabled"},
            states.UNIT_DISABLED,
            "warn",
            "runs and is disabled",
            "systemctl enable probe.service",
        ),
        ({"owner": OWNER}, states.PACKAGE_OWNS, "warn", "belongs to the package probe", "setup --adopt --divert"),
        (
            {"owner": OWNER._replace(manager="rpm")},
            states.PACKAGE_OWNS,
            "warn",
            "writes over it",
            "exclude it from updates",
        ),
        (
            {"conflicts": ("unit of a is b's",)},
            states.PRODUCT_CONFLICT,
            "fail",
            "unit of a is b's",
            "one of the two files",
        ),
        ({"busy": (("/var/lib/dpkg/lock", 7),)}, states.PACKAGES_BUSY, "warn", "process 7 holds", "ps -fp 7"),
        ({"reboot": "linux-image"}, states.REBOOT_PENDING, "warn", "(linux-image)", "while no update is pending"),
        (
            {"risks": (ways.Risk("/usr/local/lib", "mode 2775, group 50", "chmod go-w /usr/local/lib"),)},
            states.DIRECTORY_UNSAFE,
            "warn",
            "/usr/local/lib (mode 2775",
            "chmod go-w /usr/local/lib",
        ),
    ],
)
def test_each_state_of_the_host_is_named(
    place: Place, changes: Dict[str, Any], entry: str, state: str, said: str, run: str
) -> None:
    """X8, D9, D10: one thing wrong, one finding; it names its entry of the runbook and what to run."""
    found = [one for one in doctor_host.judged(setup_of(place), WELL._replace(**changes), ANSWER) if one.state != "ok"]
    ((_name, shown, text, command, named),) = found
    assert (named, shown) == (entry, state)
    assert said in text
    assert run in command


def test_a_host_that_is_well_has_room_and_nothing_else(place: Place) -> None:
    """The one line says how much; a unit that does not run is told by another check."""
    (only,) = doctor_host.judged(setup_of(place), WELL, ANSWER)
    assert (only.name, only.state) == ("disk", "ok")
    down = {"unit": {"name": "probe.service", "active": "inactive"}}
    assert len(doctor_host.judged(setup_of(place), WELL._replace(enabled="disabled"), down)) == 1


def test_a_path_that_is_our_link_already_is_diverted_by_hand(place: Place) -> None:
    """`setup --divert` diverts what it adopts, and the agent has none."""
    os.symlink(place.product.path("current"), place.product.entrypoint)
    found = doctor_host.judged(setup_of(place), WELL._replace(owner=OWNER), ANSWER)[-1]
    path = place.product.entrypoint
    assert found.run == f"dpkg-divert --local --no-rename --divert {path}.distrib --add {path}"
    os.unlink(path)
    agent = setup_of(place)
    agent = agent._replace(product=agent.product._replace(name="slotward"))
    found = doctor_host.judged(agent, WELL._replace(owner=OWNER), ANSWER)[-1]
    path = agent.product.entrypoint
    assert found.run == f"dpkg-divert --local --no-rename --divert {path}.distrib --add {path}"


def test_a_look_at_this_machine_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Every fact is there, of whatever machine; files that ask for a reboot are read, not followed into a FIFO."""
    monkeypatch.setattr(doctor_host, "REBOOT", str(tmp_path / "reboot-required"))
    (tmp_path / "reboot-required").touch()
    os.mkfifo(tmp_path / "reboot-required.pkgs")
    (place.root / "show").write_text("UnitFileState=masked\n")
    before = place.names()
    look = doctor_host.gather(setup_of(place), place.state())
    assert (look.enabled, look.size, look.reboot) == ("masked", OLD.size, str(tmp_path / "reboot-required"))
    (tmp_path / "reboot-required.pkgs").unlink()
    (tmp_path / "reboot-required.pkgs").write_text("linux-image\nlinux-image\nlibc6\n")
    assert doctor_host.gather(setup_of(place), place.state()).reboot == "linux-image, libc6"
    (place.root / "fail-show").write_text("1")
    assert doctor_host.gather(setup_of(place), place.state()).enabled == ""
    assert place.names() == before


HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def test_X8_a_package_manager_at_work_is_seen_and_not_disturbed(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """By the kernel's word for who holds its lock; a lock that nobody holds, and what is no file, say nothing."""
    held, free, fifo = (tmp_path / name for name in ("held", "free", "fifo"))
    held.touch()
    free.touch()
    os.mkfifo(fifo)
    monkeypatch.setattr(doctor_host, "LOCKS", tuple(map(str, (held, free, fifo, tmp_path / "none"))))
    argv = [sys.executable, "-c", HOLD, str(held)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert doctor_host.gather(setup_of(place), place.state()).busy == ((str(held), process.pid),)
        process.communicate("")
    assert doctor_host.gather(setup_of(place), place.state()).busy == ()


# -- what the slots keep -----------------------------------------------------------------------------------------------


def kept(place: Place) -> List[states.Finding]:
    """What is not well of it."""
    setup = setup_of(place)
    answer = looking.look(setup, place.state())
    return [one for one in doctor_kept.findings(setup, place.state(), answer) if one.state != "ok"]


def test_P5_the_other_slot_is_read_to_its_end(place: Place) -> None:
    """At rest a warning; in a trial nothing could be gone back to."""
    assert kept(place) == []
    (place.slots / "b").write_bytes(b"defh")
    (found,) = kept(place)
    assert (found.state, found.entry, found.run) == ("warn", states.OTHER_SLOT_DAMAGED, "slotward update --repair")
    assert "slot b holds other bytes than were verified for 1.1.0" in found.message
    place.link("current", "b")
    (place.slots / "a").write_bytes(b"xyz")
    found = next(one for one in kept(place) if one.entry == states.OTHER_SLOT_DAMAGED)
    assert (found.state, "could not go back" in found.message) == ("fail", True)


def test_what_a_cut_left_is_named(place: Place) -> None:
    """And what removes it."""
    (place.slots / "b.tmp").write_bytes(b"x")
    (found,) = kept(place)
    assert (found.entry, found.run, "b.tmp" in found.message) == (states.LEFTOVERS, "slotward settle", True)


def test_H10_a_failed_release_without_evidence_is_named(place: Place) -> None:
    """And what lies in the place of evidence and is none."""
    last = records.Last("ab" * 8, "rolled-back", "crash-loop", "x", "1.0.0", "1.1.0", 5)
    data = records.render_update(records.Update(floor=1, last=last))
    place.write(recording.UPDATE, data)
    place.write(recording.UPDATE + recording.COPY, recording.sealed(data))
    (found,) = kept(place)
    assert (found.entry, found.run) == (states.EVIDENCE_MISSING, "slotward evidence --gather")
    pathlib.Path(evidence_file.place_of(place.product)).mkdir(0o700)
    (place.slots / "evidence" / ("ab" * 8 + ".json")).symlink_to("/etc/passwd")
    (found,) = kept(place)
    assert (found.entry, str(place.slots) in found.message) == (states.EVIDENCE_ODD, True)


@pytest.mark.parametrize("what", ["link", "directory", "fifo", "two"])
def test_a_lock_that_is_none_is_named(place: Place, what: str) -> None:
    """Every command that changes something fails by it."""
    path = place.slots / "lock"
    if what == "link":
        path.symlink_to("a")
    elif what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.touch()
        os.link(path, place.root / "second")
    (found,) = kept(place)
    assert (found.entry, found.run) == (states.LOCK_ODD, f"rm -r {path}")


def test_S18_a_lock_of_somebody_else_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is ours and young is an update at work; one of an hour, or of another program at once, is told with its owner."""
    with lock.held(place.product, "upgrade"):
        assert kept(place) == []
        monkeypatch.setattr(doctor_kept, "LONG_S", -1)
        (found,) = kept(place)
        assert (found.entry, f"process {os.getpid()}" in found.message) == (states.LOCK_HELD, True)
    with open(place.slots / "lock", "r+b") as file:
        file.truncate(0)
        fcntl.flock(file, fcntl.LOCK_EX)
        (found,) = kept(place)
        assert (found.entry, f"process {os.getpid()}" in found.message) == (states.LOCK_HELD, True)
        assert "none of our commands" in found.message
        assert found.run == f"ps -fp {os.getpid()}; end that process if it hangs"
        monkeypatch.setattr(lock_owner, "LOCKS", "/proc/none")
        (found,) = kept(place)
        assert "lock is held by an unknown change" in found.message
        assert found.run.startswith("lslocks")
    assert host.read_state(place.product).slots == {"a": OLD, "b": NEW}
