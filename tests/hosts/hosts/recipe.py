# SPDX-License-Identifier: GPL-3.0-or-later
"""What a base tree is made of. Its hash names the cached tree, so a change here makes a new one.

Decisions only: nothing here reads or writes a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "python3",
    "python3-cryptography",
    "python3-requests",
    "python3-apt",
    "ca-certificates",
    "iproute2",
    "openssh-server",
    "procps",
)
DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/doc/*/copyright",
)
# A bullseye that was installed has /bin and /lib below /usr, as the later suites always have.
SETUP = {"bullseye": 'cd "$1" && for part in bin sbin lib lib64; do mkdir -p usr/$part && ln -s usr/$part $part; done'}
# Units that need a network, work by themselves in the background or print a login prompt to the log.
MASKED = (
    "apt-daily.service",
    "apt-daily.timer",
    "apt-daily-upgrade.service",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "console-getty.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "rsyslog.service",
)
SSHD = """HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
MaxStartups 100
"""
# What the build leaves behind: keys and names that each host needs for itself, and options of the build.
REMOVED = (
    "etc/machine-id",
    "etc/hostname",
    "etc/resolv.conf",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "var/lib/dbus/machine-id",
)
ARCHIVE = "http://archive.debian.org/debian"
DEFAULT_MIRROR = "http://deb.debian.org/debian"
MIRROR = re.compile(r"\bhttps?://\S+/debian/?(?=\s|$)")
APT_OPTION = re.compile(r'^Acquire::(?:https?::|Check-)\S+ "[^"]+";$')


def digest(suite: str) -> str:
    """Name the content of a base tree."""
    text = json.dumps([suite, PACKAGES, DPKG_OPTIONS, SETUP.get(suite), MASKED, SSHD, REMOVED])
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def tree_name(suite: str) -> str:
    """The directory name of a base tree in the cache."""
    return f"{suite}-{digest(suite)}"


def mirror_of(sources: str) -> str:
    """Choose the Debian mirror that the machine's own apt uses, from the text of its source lists."""
    lines = (line for line in sources.splitlines() if not line.lstrip().startswith("#"))
    for line in lines:
        found = MIRROR.search(line)
        if found:
            return found[0].rstrip("/")
    return DEFAULT_MIRROR


def apt_options(dump: str) -> list[str]:
    """Choose from 'apt-config dump' what a build has to share: proxies, certificates, clock checks."""
    return [line.rstrip(";") for line in dump.splitlines() if APT_OPTION.match(line)]


def build_command(suite: str, target: str, mirror: str, options: Iterable[str]) -> list[str]:
    """The mmdebstrap command of a build."""
    return [
        "mmdebstrap",
        "--variant=minbase",
        "--quiet",
        f"--include={','.join(PACKAGES)}",
        *(f"--dpkgopt={option}" for option in DPKG_OPTIONS),
        *(f"--aptopt={option}" for option in options),
        *([f"--setup-hook={SETUP[suite]}"] if suite in SETUP else []),
        suite,
        target,
        mirror,
    ]
