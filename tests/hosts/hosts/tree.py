# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree of one host: a real copy of the base, with an identity of its own.

- Copies, not overlays: no mount to leak, and the slots lie on the same kind of filesystem as on a real server.
- Before a tree is removed everything mounted below it is unmounted, and the removal never crosses a filesystem.
"""

from __future__ import annotations

import pathlib
import re
import uuid

from hosts import errors, network, process, records

DISK_MOUNT = "opt/slotward"
OCTAL = re.compile(r"\\([0-7]{3})")


def copy(base: pathlib.Path, root: pathlib.Path) -> None:
    """Copy the base tree; a filesystem with reflinks shares the blocks."""
    root.parent.mkdir(parents=True, exist_ok=True)
    process.tool("cp", "-a", "--reflink=auto", str(base), str(root), timeout_s=600)


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
    process.tool("rm", "-rf", "--one-file-system", str(directory), timeout_s=600)
