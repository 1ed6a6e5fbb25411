# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree of one host: made from the base, with an identity of its own.

- All that a product writes to is a plain copy on one plain filesystem, as on a real server: no overlay, no mount point.
- Only the bulk of /usr is overlaid on the base, and only in the container's own mount namespace: no mount to leak.
- Before a tree is removed everything mounted below it is unmounted, and the removal never crosses a filesystem.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import time
import uuid
from collections.abc import Collection

from hosts import errors, network, process, records

OVERLAID = ("usr/bin", "usr/lib", "usr/sbin", "usr/share")
DISK_MOUNT = "opt/slotward"
OCTAL = re.compile(r"\\([0-7]{3})")


def can_overlay(place: pathlib.Path) -> bool:
    """Tell whether the kernel has overlays and a directory can hold what is written to one."""
    with contextlib.suppress(errors.HostError):
        process.tool("modprobe", "--quiet", "overlay")
    known = "overlay" in pathlib.Path("/proc/filesystems").read_text(encoding="ascii").split()
    return known and not process.tool("stat", "-f", "-c", "%T", str(place)).startswith("overlay")


def upper(root: pathlib.Path, part: str) -> pathlib.Path:
    """Where what a host writes to an overlaid part is kept."""
    return root.with_name("upper") / part.replace("/", "-")


def overlays(base: str | None, root: pathlib.Path) -> list[str]:
    """The overlays of a host, each as lower:upper:mount point."""
    return [] if base is None else [f"{base}/{part}:{upper(root, part)}:/{part}" for part in OVERLAID]


def make(base: pathlib.Path, root: pathlib.Path, whole: bool) -> None:
    """Copy the base tree, whole or without the parts that are overlaid on it."""
    root.mkdir(parents=True)
    if whole:
        _copy(base, root, [])
        return
    _copy(base, root, ["usr"])
    (root / "usr").mkdir()
    _copy(base / "usr", root / "usr", [part.removeprefix("usr/") for part in OVERLAID])
    for part in OVERLAID:
        (root / part).mkdir()
        upper(root, part).mkdir(parents=True)
    # systemd-nspawn looks for this one before anything is mounted.
    process.tool("cp", "-a", str(base / "usr/lib/os-release"), str(root / "usr/lib"))


def _copy(source: pathlib.Path, target: pathlib.Path, without: Collection[str]) -> None:
    names = [str(path) for path in source.iterdir() if path.name not in without]
    process.tool(*process.WITH_US, "cp", "-a", "--reflink=auto", "-t", str(target), *names, timeout_s=600)


def personalise(root: pathlib.Path, name: str, link: network.Link, authorized: str) -> str:
    """Give a tree its name, id and keys, and return its public host key."""
    (root / "etc/hostname").write_text(f"{name}\n", encoding="ascii")
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")
    (root / "etc/hosts").write_text(
        f"127.0.0.1 localhost\n::1 localhost\n{link.guest} {name}\n{link.controller} controller\n", encoding="ascii"
    )
    keys = root / "root/.ssh/authorized_keys"
    keys.write_text(authorized, encoding="ascii")
    keys.chmod(0o600)
    return make_key(root / "etc/ssh/ssh_host_ed25519_key", name)


def make_key(path: pathlib.Path, comment: str) -> str:
    """Make an SSH key pair and return the public key."""
    process.tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path.with_name(path.name + ".pub").read_text(encoding="ascii")


def make_disk(record: records.Host, image: pathlib.Path) -> None:
    """Make the small filesystem that /opt/slotward is to lie on."""
    process.tool("truncate", "-s", f"{record.disk_mb}M", str(image))
    inodes = () if record.inodes is None else ("-N", str(record.inodes))
    process.tool("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", *inodes, str(image))


def mount_disk(image: pathlib.Path, root: pathlib.Path) -> None:
    """Mount that filesystem in the tree, once."""
    target = root / DISK_MOUNT
    if str(target) in mounts_below(root):
        return
    target.mkdir(parents=True, exist_ok=True)
    process.tool("mount", "-o", "loop", str(image), str(target))
    if (target / "lost+found").is_dir():
        (target / "lost+found").rmdir()


def parse_mounts(text: str, below: str) -> list[str]:
    """The mount points of a mountinfo text that lie below a directory, innermost first."""
    points = [
        OCTAL.sub(lambda code: chr(int(code[1], 8)), line.split()[4]) for line in text.splitlines() if line.strip()
    ]
    return sorted((point for point in points if point.startswith(below.rstrip("/") + "/")), key=len, reverse=True)


def mounts_below(directory: pathlib.Path) -> list[str]:
    """What is mounted below a directory now."""
    return parse_mounts(pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8"), str(directory))


def remove_host(directory: pathlib.Path) -> None:
    """Remove a host's directory, its record last, so that a removal cut short is taken up again."""
    remove(directory / "root")
    remove(directory)


def remove(directory: pathlib.Path) -> None:
    """Remove a directory, after unmounting what is mounted below it."""
    for point in mounts_below(directory):
        process.tool("umount", point)
    left = mounts_below(directory)
    if left:
        raise errors.HostError(f"cannot remove {directory}: {left[0]} is still mounted")
    for last in (False, False, True):
        try:
            process.tool("rm", "-rf", "--one-file-system", str(directory), timeout_s=600)
            return
        except errors.HostError:  # what a killed run had started may still be writing
            if last:
                raise
            time.sleep(1)
