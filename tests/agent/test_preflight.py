# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at the filesystems before the first byte: space, inodes, read-only, noexec, volatile, and the probe."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
from typing import Dict, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes
from slotcore import product as products
from slotward import lookahead, preflight, systemd

ROOT = pathlib.Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / place) for place in ("plugins/module_utils", "agent/src"))
MIB = 1 << 20
GOOD = preflight.Filesystem("/opt/slots", 1, "ext4", 1000 * MIB, 10_000, False, False)
DATA = GOOD._replace(path="/var/data")
RAN = preflight.Probe(True, True)
FACTS = preflight.Facts(GOOD, DATA, RAN)


def can_mount() -> bool:
    """Whether this process may have a mount namespace of its own."""
    if os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="mounts filesystems in a namespace of its own: needs root")


def judged(facts: preflight.Facts, size: int = MIB, adopt_size: int = 0) -> codes.Refusal:
    """The refusal of these facts."""
    refusal = preflight.judge(facts, size, adopt_size)
    assert refusal is not None
    return refusal


# --- decisions ---


def test_a_good_host_is_taken() -> None:
    """Nothing wrong, nothing said."""
    assert preflight.judge(FACTS, 400 * MIB) is None


@pytest.mark.parametrize(
    ("facts", "code", "text"),
    [
        (
            FACTS._replace(slots=GOOD._replace(read_only=True)),
            codes.READ_ONLY,
            "/opt/slots is on a read-only filesystem",
        ),
        (
            FACTS._replace(slots=GOOD._replace(kind="overlay")),
            codes.OVERLAY,
            "/opt/slots is on overlay, which a reboot",
        ),
        (FACTS._replace(slots=GOOD._replace(kind="tmpfs")), codes.OVERLAY, "/opt/slots is on tmpfs, which a reboot"),
        (FACTS._replace(slots=GOOD._replace(noexec=True)), codes.NOEXEC, "mounted noexec"),
        (
            FACTS._replace(staging=DATA._replace(read_only=True)),
            codes.READ_ONLY,
            "/var/data is on a read-only filesystem",
        ),
        (
            FACTS._replace(probe=preflight.Probe(True, False, errno.EACCES, "Permission denied"), user="agent"),
            codes.NOEXEC,
            "cannot run a program from /opt/slots as user agent: Permission denied",
        ),
        (
            FACTS._replace(probe=preflight.Probe(True, False, 0, "status 1")),
            codes.NOEXEC,
            "cannot run a program from /opt/slots: status 1",
        ),
        (
            FACTS._replace(probe=preflight.Probe(False, False, errno.EACCES, "Permission denied")),
            codes.CANNOT_WRITE,
            "cannot write to /opt/slots: Permission denied",
        ),
        (
            FACTS._replace(probe=preflight.Probe(False, False, errno.EROFS, "Read-only file system")),
            codes.READ_ONLY,
            "cannot write to /opt/slots: Read-only file system",
        ),
        (
            FACTS._replace(probe=preflight.Probe(False, False, errno.ENOSPC, "No space left on device")),
            codes.NO_SPACE,
            "cannot write to /opt/slots: No space left on device",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(facts: preflight.Facts, code: str, text: str) -> None:
    """D7, D10, D16: each fault has its code, and the message names the directory."""
    refusal = judged(facts)
    assert refusal.code == code
    assert text in refusal.text


def test_D1_both_copies_and_a_reserve_on_one_filesystem() -> None:
    """D1: download and slot on one disk need both at once."""
    needed = 2 * 100 * MIB + preflight.RESERVE
    assert (
        preflight.judge(FACTS._replace(slots=GOOD._replace(free=needed), staging=DATA._replace(free=needed)), 100 * MIB)
        is None
    )
    low = needed - 1
    refusal = judged(FACTS._replace(slots=GOOD._replace(free=low), staging=DATA._replace(free=low)), 100 * MIB)
    assert refusal.code == codes.NO_SPACE
    assert refusal.text == "/opt/slots and /var/data needs 232.0 MiB free and has 232.0 MiB: free 1 B more"
    place = GOOD._replace(free=low)
    assert judged(FACTS._replace(slots=place, staging=place), 100 * MIB).text.startswith("/opt/slots needs 232.0 MiB")


@pytest.mark.parametrize("short", ["slots", "staging"])
def test_D1_each_filesystem_is_asked(short: str) -> None:
    """D1: on two disks each needs its copy and a reserve."""
    needed = 100 * MIB + preflight.RESERVE
    slots, staging = GOOD._replace(free=needed), DATA._replace(free=needed, device=2)
    assert preflight.judge(FACTS._replace(slots=slots, staging=staging), 100 * MIB) is None
    if short == "slots":
        slots = slots._replace(free=needed - MIB)
    else:
        staging = staging._replace(free=needed - MIB)
    refusal = judged(FACTS._replace(slots=slots, staging=staging), 100 * MIB)
    assert refusal.code == codes.NO_SPACE
    assert refusal.text.startswith((slots if short == "slots" else staging).path + " needs 132.0 MiB")
    assert refusal.text.endswith("free 1.0 MiB more")


def test_D1_an_adopted_file_needs_a_slot_too() -> None:
    """D1: the first update fills both slots."""
    slots = GOOD._replace(free=preflight.RESERVE + 150 * MIB)
    facts = FACTS._replace(slots=slots, staging=DATA._replace(device=2))
    assert preflight.judge(facts, 100 * MIB, 50 * MIB) is None
    assert judged(facts, 100 * MIB, 51 * MIB).code == codes.NO_SPACE


def test_inodes_are_counted_where_there_are_any() -> None:
    """No inode is no space; a filesystem that makes them as needed is not asked."""
    refusal = judged(FACTS._replace(slots=GOOD._replace(inodes=3)))
    assert refusal.code == codes.NO_SPACE
    assert "has 3 free inodes" in refusal.text
    assert (
        preflight.judge(FACTS._replace(slots=GOOD._replace(inodes=None), staging=DATA._replace(inodes=None)), MIB)
        is None
    )


def test_nothing_to_fetch_needs_no_space() -> None:
    """A release that the other slot holds needs no room, but a directory that can run it."""
    full = FACTS._replace(slots=GOOD._replace(free=0, inodes=0), staging=DATA._replace(free=0, read_only=True))
    assert preflight.judge(full, 0) is None
    assert judged(full._replace(slots=full.slots._replace(noexec=True)), 0).code == codes.NOEXEC


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:20 / /opt rw - overlay overlay rw,lowerdir=/a,upperdir=/b
24 22 0:21 / /opt/with\\040blank rw master:2 propagate_from:1 - xfs /dev/b rw
25 22 0:22 / /srv rw - tmpfs tmpfs rw
26 25 0:23 / /srv rw - btrfs /dev/c rw
garbage
27 22 0:24 / /short
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/etc", "ext4"),
        ("/optional", "ext4"),
        ("/opt", "overlay"),
        ("/opt/slots", "overlay"),
        ("/opt/with blank/x", "xfs"),
        ("/srv/x", "btrfs"),
        ("/short/x", "ext4"),
    ],
)
def test_the_mount_of_a_path_is_found(path: str, kind: str) -> None:
    """The longest place that holds the path, the last of several on it, escapes undone."""
    assert preflight.kind_of(MOUNTS, path) == kind


@given(st.text(max_size=60), st.text(max_size=20))
def test_no_mount_table_breaks_the_reader(table: str, path: str) -> None:
    """Whatever the table holds, the answer is a word."""
    assert isinstance(preflight.kind_of(table, path), str)


# --- facts ---


def test_a_directory_that_is_not_there_yet(tmp_path: pathlib.Path) -> None:
    """Where nothing is yet, the nearest parent counts, and nothing is made."""
    facts = preflight.look(str(tmp_path / "a" / "b"), str(tmp_path / "c"))
    assert facts.probe is None
    assert facts.slots.device == facts.staging.device == tmp_path.stat().st_dev
    assert facts.slots.free > 0
    assert list(tmp_path.iterdir()) == []


def test_D7_a_program_runs_from_the_directory(tmp_path: pathlib.Path) -> None:
    """D7: the probe is written, run, and gone."""
    assert preflight.try_directory(str(tmp_path)) == RAN
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bits", [0o077, 0o777])
def test_D13_the_probe_does_not_depend_on_the_umask(tmp_path: pathlib.Path, bits: int) -> None:
    """D13: the mode of the probe is set explicitly."""
    old = os.umask(bits)
    try:
        assert preflight.try_directory(str(tmp_path)) == RAN
    finally:
        os.umask(old)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_D7_the_service_user_must_be_able_to_run_it(tmp_path: pathlib.Path) -> None:
    """D7: what root can run, the service's user may not reach."""
    open_to_all = pathlib.Path("/tmp") / ("slotward-preflight-%d" % os.getpid())
    open_to_all.mkdir()
    try:
        open_to_all.chmod(0o755)
        assert preflight.try_directory(str(open_to_all), "nobody") == RAN
        assert preflight.try_directory(str(open_to_all), "65534") == RAN
        open_to_all.chmod(0o700)
        probe = preflight.try_directory(str(open_to_all), "nobody")
        assert (probe.written, probe.run, probe.code) == (True, False, errno.EACCES)
        assert preflight.try_directory(str(open_to_all), "no-such-user") == RAN
    finally:
        open_to_all.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="drops capabilities of root")
def test_a_sandbox_that_cannot_change_users_still_proves_something(tmp_path: pathlib.Path) -> None:
    """Where this process may not become the service's user, the probe runs as itself (DESIGN 4)."""
    program = "import sys\nfrom slotward import preflight\nprint(preflight.try_directory(sys.argv[1], 'nobody').run)\n"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-setuid,-setgid", sys.executable, "-B", "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


def test_a_planted_probe_is_not_followed(tmp_path: pathlib.Path) -> None:
    """I6: a link in place of the probe is not written through."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / (".probe-%d" % os.getpid())).symlink_to(victim)
    probe = preflight.try_directory(str(tmp_path))
    assert not probe.written
    assert victim.read_bytes() == b"precious"


def test_D16_a_directory_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    """D16: the path is named with the system's words."""
    file = tmp_path / "file"
    file.write_bytes(b"")
    probe = preflight.try_directory(str(file))
    assert (probe.written, probe.code) == (False, errno.ENOTDIR)


def on_mount(options: str, tmp_path: pathlib.Path, fill: str = "", kind: str = "tmpfs") -> Optional[str]:
    """What `check` answers for slots on a filesystem mounted so, in a namespace of its own: the code, or None."""
    program = (
        "import sys\n"
        "from slotward import preflight\n"
        "preflight.VOLATILE = ()\n"
        "found = preflight.check(sys.argv[1], sys.argv[1], 1 << 20)\n"
        "print(found.code if found else None)\n"
    )
    script = 'mount -t %s -o %s none "$1" && { %s :; } && exec "$2" -B -c "$3" "$1"' % (kind, options, fill)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip()
    return None if said == "None" else said


@needs_mounts
@pytest.mark.parametrize(
    ("options", "fill", "code"),
    [
        ("size=100m", "", None),
        ("size=100m,noexec", "", codes.NOEXEC),
        ("size=100m", 'mount -o remount,ro "$1";', codes.READ_ONLY),
        ("size=33m", "", codes.NO_SPACE),
        ("size=100m,nr_inodes=60", "", codes.NO_SPACE),
        ("size=100m", 'dd if=/dev/zero of="$1/f" bs=1M 2>/dev/null;', codes.NO_SPACE),
    ],
)
def test_real_filesystems(tmp_path: pathlib.Path, options: str, fill: str, code: Optional[str]) -> None:
    """Each fault of a real mount is seen for what it is."""
    assert on_mount(options, tmp_path, fill) == code


@needs_mounts
def test_D10_a_real_overlay_is_seen(tmp_path: pathlib.Path) -> None:
    """D10: an overlay is known by its name in the mount table."""
    program = "import sys\nfrom slotward import preflight\nprint(preflight.check(sys.argv[1], '/', 1).code)\n"
    script = (
        'mount -t tmpfs none "$1" && mkdir "$1/l" "$1/u" "$1/w" "$1/m" && '
        'mount -t overlay -o lowerdir="$1/l",upperdir="$1/u",workdir="$1/w" none "$1/m" && exec "$2" -B -c "$3" "$1/m/slots"'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
    )
    if "overlay" in done.stderr and "unknown filesystem" in done.stderr:
        pytest.skip("this kernel has no overlay")
    assert done.stdout == "overlay\n", done.stderr


def test_this_host_as_a_whole(tmp_path: pathlib.Path) -> None:
    """The whole way on this host's own disk; a container's overlay is told as one."""
    refusal = preflight.check(str(tmp_path), str(tmp_path), MIB)
    assert refusal is None or refusal.code == codes.OVERLAY
    huge = preflight.check(str(tmp_path), str(tmp_path), 1 << 60)
    assert huge is not None
    assert huge.code in (codes.NO_SPACE, codes.OVERLAY)


@pytest.mark.parametrize(
    ("shown", "stopped"),
    [
        ({"ActiveState": "active"}, False),
        ({"ActiveState": "activating"}, False),
        ({"ActiveState": "inactive", "Job": "7"}, False),
        ({"ActiveState": "failed"}, False),
        ({"ActiveState": "inactive"}, True),
    ],
    ids=["runs", "starts", "is to start", "crashed", "stopped"],
)
def test_what_somebody_stopped_meanwhile_is_not_started_by_the_switch(
    monkeypatch: pytest.MonkeyPatch, shown: Dict[str, str], stopped: bool
) -> None:
    """An operator who stops the daemon during a download means it; a crash does not keep the update that mends it away."""
    order = {
        "ExecMainStartTimestampMonotonic": "10",
        "ActiveExitTimestampMonotonic": "20",
        "ExecMainExitTimestampMonotonic": "30",
    }
    monkeypatch.setattr(systemd, "show_each", lambda units, _names: [{**order, **shown} for _unit in units])
    product = products.Product("demo", "demo.service", "/usr/bin/demo", "/opt/demo")
    if not stopped:
        lookahead.demand_not_stopped(product)
        return
    with pytest.raises(codes.Refused, match="was stopped while this update got ready") as caught:
        lookahead.demand_not_stopped(product)
    assert caught.value.code == codes.UNIT_NOT_RUNNING
