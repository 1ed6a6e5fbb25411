# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine needs before it can hold test hosts, and how to get it."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable

from hosts import errors, process, settings

# Tool: the Debian package that has it.
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mke2fs": "e2fsprogs",
    "mount": "mount",
    "umount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "dbus-daemon": "dbus-daemon",
    "wrk": "wrk",
    "gcc": "gcc",  # for tests/support/wall.py
}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
INOTIFY = "/proc/sys/fs/inotify/max_user_instances"
INOTIFY_WANTED = 1024
UNFIT = ("overlay", "tmpfs")


def packages(missing: Callable[[str], bool]) -> list[str]:
    """The packages that are missing, given a way to tell whether a tool is."""
    wanted = {package for tool, package in TOOLS.items() if missing(tool)}
    return sorted(wanted)


def missing_tool(tool: str) -> bool:
    """Tell whether a tool is missing on this machine."""
    return shutil.which(tool) is None


def missing_packages() -> list[str]:
    """The packages that are missing on this machine."""
    keyring = [] if os.path.exists(KEYRING) else ["debian-archive-keyring"]
    return packages(missing_tool) + keyring


def check() -> None:
    """Refuse in one line when this machine or this user cannot hold test hosts."""
    if os.geteuid() != 0:
        raise errors.HostError("test hosts need root: run this with sudo")
    lacking = missing_packages()
    if not lacking:
        return
    names = " ".join(lacking)
    if not os.path.exists("/etc/debian_version"):
        raise errors.HostError(f"this is not Debian, so install what stands for these packages by hand: {names}")
    raise errors.HostError(f"missing: {names}: run 'tests/hosts/hostctl requirements --install'")


def install() -> None:
    """Install what is missing with apt-get, and raise the inotify limit when it is low."""
    if os.geteuid() != 0:
        raise errors.HostError("installing needs root: run this with sudo")
    lacking = missing_packages()
    if lacking:
        if missing_tool("apt-get"):
            raise errors.HostError(f"there is no apt-get here: install by hand: {' '.join(lacking)}")
        process.tool("apt-get", "update", timeout_s=600)
        process.tool("apt-get", "install", "-y", "--no-install-recommends", *lacking, timeout_s=900)
    if inotify_instances() < INOTIFY_WANTED:
        pathlib.Path(INOTIFY).write_text(f"{INOTIFY_WANTED}\n", encoding="ascii")


def inotify_instances() -> int:
    """How many inotify instances root may have; each host takes several."""
    return int(pathlib.Path(INOTIFY).read_text(encoding="ascii"))


def warnings() -> list[str]:
    """What works here, but not well."""
    found = []
    if inotify_instances() < INOTIFY_WANTED:
        found.append(
            f"fs.inotify.max_user_instances is {inotify_instances()}, enough for about 15 hosts:"
            f" 'requirements --install' sets it to {INOTIFY_WANTED} until the next boot"
        )
    place = settings.state_dir()
    while not place.exists():
        place = place.parent
    kind = process.tool("stat", "-f", "-c", "%T", str(place)).strip()
    if kind.startswith(UNFIT):
        found.append(
            f"{place} is on {kind}, where the product refuses its slots: set SLOTWARD_HOSTS_STATE to a real disk"
        )
    return found
