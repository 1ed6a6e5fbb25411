# SPDX-License-Identifier: GPL-3.0-or-later
"""The virtual machine's kernel and disks (docs/design/faults.md, section 3).

- The kernel is Debian's `linux-image-cloud-amd64`, unpacked in the cache of the base trees: nvme and ext4 are built in, xfs is a module.
- The disk is the bookworm base tree of tests/hosts with the agent (a build with fault points), a toy, signed releases of it and the
  driver. Units that only a machine of people needs are masked: it boots once for each cut.
- With xfs the slots and records lie on a second disk, which is mounted before anything of ours starts.
- Made once for a checkout's sources: the digest of all that goes in names it.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

from hosts import base, process, settings
from support import archive, debian, products, releases

SUITE = "bookworm"
PACKAGE = "linux-image-cloud-amd64"
HERE = pathlib.Path(__file__).resolve().parent
GUEST = HERE / "guest"
CHECKER = HERE.parent / "faults" / "checker.py"
EXT4, XFS = "ext4", "xfs"
FILESYSTEMS = (EXT4, XFS)
MODULES = ("kernel/lib/libcrc32c.ko", "kernel/fs/xfs/xfs.ko")
ROOT_MIB, DATA_MIB = 640, 320
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0")
ADOPTED = VERSIONS[0]

FAULTS = '''# SPDX-License-Identifier: GPL-3.0-or-later
"""Says on the serial line that a point was reached, and goes on no more: whoever reads it cuts the power."""

import json
import os
import time


def hit(point: str) -> None:
    """Stop at `point` if it is the one."""
    try:
        with open("/run/powercut/aim", encoding="ascii") as file:
            wanted = file.read().strip()
    except OSError:
        return
    if wanted != point:
        return
    line = os.open("/dev/ttyS1", os.O_WRONLY | os.O_NOCTTY)
    os.write(line, (json.dumps({"reached": point}) + "\\n").encode("ascii"))
    while True:
        time.sleep(3600)
'''
TOY_UNIT = """\
[Unit]
Description=A toy

[Service]
ExecStart=/usr/local/sbin/toy
Restart=on-failure
RestartSec=300ms

[Install]
WantedBy=multi-user.target
"""
DRIVER_UNIT = """\
[Unit]
Description=Work until the power is cut
After=toy.service basic.target dbus.socket

[Service]
ExecStart=/usr/bin/python3 -I -c "import sys; sys.path.insert(0, '/powercut'); import driver; driver.main()"
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
"""
MODULES_UNIT = """\
[Unit]
Description=Load the file system of slots and records
DefaultDependencies=no

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/powercut/busybox insmod /powercut/libcrc32c.ko
ExecStart=/powercut/busybox insmod /powercut/xfs.ko
"""
# A link to the disk, not the disk: for that systemd would wait, and nobody tells it of devices here.
MOUNT_UNIT = """\
[Unit]
Description=The disk of slots and records
DefaultDependencies=no
Requires=powercut-modules.service
After=powercut-modules.service
Before=local-fs.target
Conflicts=umount.target
Before=umount.target

[Mount]
What=/powercut/data
Where=/opt/slotward
Type=xfs
"""
PRODUCT = """\
unit = "toy.service"
entrypoint = "/usr/local/sbin/toy"

[update]
release_pins = "{pins}"
trial_length_s = 900
settle_s = 0
max_boots = 9
adopt = true
"""
# What a machine that boots for one cut does not need: logins, devices by name, housekeeping of years.
MASKED = (
    *("getty.target", "getty@tty1.service", "serial-getty@ttyS0.service", "ssh.service", "systemd-logind.service"),
    *("systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-control.socket"),
    *("systemd-udevd-kernel.socket", "systemd-hwdb-update.service", "systemd-random-seed.service"),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "systemd-user-sessions.service"),
    *("systemd-tmpfiles-clean.timer", "systemd-sysctl.service", "systemd-pstore.service", "systemd-sysusers.service"),
    *("systemd-journal-flush.service", "systemd-journal-catalog-update.service", "systemd-machine-id-commit.service"),
    *("systemd-firstboot.service", "systemd-boot-system-token.service", "systemd-update-done.service"),
    *("kmod-static-nodes.service", "modprobe@configfs.service", "modprobe@drm.service", "modprobe@fuse.service"),
    *(
        "modprobe@dm_mod.service",
        "modprobe@efi_pstore.service",
        "modprobe@loop.service",
        "systemd-modules-load.service",
    ),
    *("dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount"),
    *("sys-kernel-config.mount", "sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount"),
    *("systemd-binfmt.service", "systemd-tmpfiles-setup-dev.service", "ldconfig.service", "remote-fs.target"),
    *(
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "e2scrub_reap.service",
    ),
)


GENERATORS = "usr/lib/systemd/system-generators"
"""What makes units of partitions, of init scripts and the like: a dozen programs at each boot, for nothing that is here."""


class Images(NamedTuple):
    """The files that a machine starts from, and what the releases on them are."""

    kernel: pathlib.Path
    directory: pathlib.Path
    known: Dict[str, Any]
    agent: str = ""
    """The beginning of the digest of the agent that is on them."""

    def disks(self, filesystem: str) -> List[pathlib.Path]:
        """The disks of a machine: its root, and with xfs that of its slots."""
        names = ["root.img", "data.img"] if filesystem == XFS else ["root.img"]
        return [self.directory / filesystem / name for name in names]


def kernel() -> pathlib.Path:
    """The directory of an unpacked kernel, fetched when the cache has none."""
    target = debian.cache() / "unpacked" / SUITE / PACKAGE
    if not target.is_dir():
        (deb,) = debian.packages(SUITE, (PACKAGE,)).glob("linux-image-[0-9]*-cloud-amd64_*.deb")
        fresh = target.with_name(f".{PACKAGE}.making")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        process.tool("dpkg-deb", "-x", str(deb), str(fresh))
        os.rename(fresh, target)
    return target


def program(version: str) -> bytes:
    """The toy: it says its version and stays, and the shell keeps the script open."""
    text = f'#!/bin/sh\nif [ "$1" = version ]; then echo "toy {version}"; exit 0; fi\nwhile :; do sleep 3600; done\n'
    return (text + "#" * 16384 + "\n").encode("ascii")  # some blocks, that a cut can lose


def _inputs() -> List[pathlib.Path]:
    """Every file of this checkout that goes into the disks."""
    root = releases.ROOT
    sources = [*(root / "agent").rglob("*"), *(root / "plugins/module_utils/slotcore").rglob("*.py")]
    found = [*sources, *GUEST.rglob("*.py"), CHECKER, pathlib.Path(__file__)]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def ensure(directory: pathlib.Path) -> Images:
    """Kernel and disks, made when they are not there for these sources."""
    total = hashlib.sha256(base.path_of(SUITE).name.encode())
    for path in _inputs():
        total.update(f"{path.relative_to(releases.ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    (vmlinuz,) = (kernel() / "boot").glob("vmlinuz-*")
    target = directory / f"images-{total.hexdigest()[:12]}"
    known = target / "known.json"
    if not known.exists():
        for old in directory.glob("images-*"):
            shutil.rmtree(old)
        _make(target)
    agent = (target / "agent").read_text(encoding="ascii")
    return Images(vmlinuz, target, json.loads(known.read_text(encoding="ascii")), agent)


def _make(target: pathlib.Path) -> None:
    """Build the agent and the releases, lay the tree out, make the disks."""
    target.mkdir(parents=True)
    shop = releases.Workshop(target / "shop", keys=1, threshold=1)
    overlay = target / "overlay" / "slotward"
    overlay.mkdir(parents=True)
    (overlay / "faults.py").write_text(FAULTS, encoding="ascii")
    agent = shop.build("1.0.0", 1, extra=overlay.parent)
    tree = target / "tree"
    process.tool("cp", "-a", "--reflink=auto", str(base.ensure(SUITE)), str(tree), timeout_s=settings.BUILD_TIMEOUT_S)
    known = {hashlib.sha256(program(ADOPTED)).hexdigest(): {"version": ADOPTED, "sequence": 0}}
    known.update(_releases(shop, tree / "powercut" / "releases"))
    _lay_out(tree, archive.compiled(agent.read_bytes()), shop.pins)
    for filesystem in FILESYSTEMS:
        _disks(tree, target / filesystem, filesystem)
    shutil.rmtree(tree)
    (target / "agent").write_text(hashlib.sha256(agent.read_bytes()).hexdigest()[:16], encoding="ascii")
    (target / "known.json").write_text(json.dumps(known), encoding="ascii")


def _releases(shop: releases.Workshop, place: pathlib.Path) -> Dict[str, Any]:
    """Sign a release of each version, and lay it and its target out; what vouches for which bytes."""
    known = {}
    for sequence, version in enumerate(VERSIONS[1:], 1):
        source = shop.directory / f"toy-{version}"
        source.write_bytes(program(version))
        made = products.released(shop, "toy", version, sequence, source)
        fields = {"product": "toy", "version": version, "url": "https://releases.invalid/none", "sha256": made.sha256}
        (place / version).mkdir(parents=True)
        (place / version / "toy").write_bytes(program(version))
        text = json.dumps({**fields, "signature": made.manifest.read_text(encoding="utf-8")})
        (place / version / "target.json").write_text(text, encoding="utf-8")
        known[made.sha256] = {"version": version, "sequence": sequence}
    return known


def _write(path: pathlib.Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def _module(path: pathlib.Path, source: pathlib.Path) -> None:
    """A module of ours, and what it compiles to."""
    _write(path, source.read_bytes())
    _write(
        path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc",
        archive.bytecode(source.read_bytes(), str(path)),
    )


def _lay_out(tree: pathlib.Path, agent: bytes, pins: str) -> None:
    """What the base tree lacks: the agent, the toy, the driver, and quiet."""
    units = tree / "etc/systemd/system"
    _write(tree / "usr/local/bin/slotward", agent, 0o755)
    _write(tree / "usr/local/sbin/toy", program(ADOPTED), 0o755)
    _write(tree / f"powercut/toy-{ADOPTED}", program(ADOPTED), 0o755)
    _module(tree / "powercut/driver.py", GUEST / "driver.py")
    _module(tree / "powercut/faults/checker.py", CHECKER)
    _write(tree / "powercut/busybox", pathlib.Path("/bin/busybox").read_bytes(), 0o755)
    _write(tree / "etc/slotward/config.toml", f'[update]\nrelease_pins = "{pins}"\n'.encode(), 0o600)
    _write(tree / "etc/slotward/products.d/toy.toml", PRODUCT.format(pins=pins).encode(), 0o644)
    _write(units / "toy.service", TOY_UNIT.encode())
    _write(units / "powercut.service", DRIVER_UNIT.encode())
    _write(tree / "etc/systemd/journald.conf.d/powercut.conf", b"[Journal]\nStorage=volatile\n")
    _write(tree / "etc/machine-id", b"0123456789abcdef0123456789abcdef\n")
    _write(tree / "etc/hostname", b"powercut\n")
    _write(tree / "etc/fstab", b"")
    (tree / "opt/slotward").mkdir(parents=True, exist_ok=True)
    for unit in MASKED:
        _link_to_nothing(units / unit)
    for generator in (tree / GENERATORS).iterdir():
        _link_to_nothing(tree / "etc/systemd/system-generators" / generator.name)
    (tree / "usr/lib/systemd/system/multi-user.target.wants/dbus.service").unlink()  # its socket starts it
    _want(units, "multi-user.target", "powercut.service")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (modules,) = (kernel() / "lib/modules").iterdir()
    for module in MODULES:
        source = modules / module
        _write(tree / "powercut" / source.name, source.read_bytes())


def _link_to_nothing(path: pathlib.Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/null")


def _want(units: pathlib.Path, target: str, unit: str) -> None:
    wants = units / f"{target}.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit).symlink_to(f"../{unit}")


def _disks(tree: pathlib.Path, directory: pathlib.Path, filesystem: str) -> None:
    directory.mkdir()
    if filesystem == XFS:  # the last of them: with such a unit the directory is always a mount point
        units = tree / "etc/systemd/system"
        _write(units / "powercut-modules.service", MODULES_UNIT.encode())
        _write(units / "opt-slotward.mount", MOUNT_UNIT.encode())
        (tree / "powercut/data").symlink_to("/dev/nvme0n3")
        _want(units, "local-fs.target", "opt-slotward.mount")
        data = directory / "data.img"
        _truncate(data, DATA_MIB)
        _tool("mkfs.xfs", "-q", str(data))
    root = directory / "root.img"
    _truncate(root, ROOT_MIB)
    options = "lazy_itable_init=0,lazy_journal_init=0"
    _tool("mkfs.ext4", "-q", "-N", "40000", "-E", options, "-d", str(tree), str(root))


def _truncate(path: pathlib.Path, mib: int) -> None:
    with path.open("wb") as file:
        file.truncate(mib << 20)


def _tool(*argv: str) -> None:
    subprocess.run([shutil.which(argv[0]) or f"/sbin/{argv[0]}", *argv[1:]], check=True)


def copy(sources: Sequence[pathlib.Path], directory: pathlib.Path) -> List[pathlib.Path]:
    """Fresh copies of disks, with their holes."""
    directory.mkdir(parents=True, exist_ok=True)
    made = [directory / source.name for source in sources]
    for source, path in zip(sources, made):
        process.tool("cp", "--sparse=always", "--reflink=auto", str(source), str(path), timeout_s=600)
    return made
