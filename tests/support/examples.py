# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemons of examples/ on a test host: installed as their makers ship them, with releases that are good or broken, and clients.

- What is good is a real later version (tests/support/daemons.py); what is broken answers for its version and then does not do its work.
- `clear` leaves nothing of a daemon and of its product, however far the test before came.
"""

from __future__ import annotations

import pathlib
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from support import daemons, load, products
from support import node as nodes

EXITS = "exit 1"
HANGS = "trap 'exit 0' TERM; while :; do sleep 1; done"
DEBS = "/var/tmp/debs"
HOOKS = "/etc/slotward-hooks"
TRACES = (
    "find /etc /usr/local /usr/bin /usr/sbin /opt /run/systemd -xdev \\( -name '*slotward*' -o -lname '*slotward*' \\)"
    " ! -path '/etc/slotward' ! -path '/usr/local/lib/slotward' ! -path '/opt/slotward' -print 2>/dev/null | grep -e '{name}' -e '{unit}'"
)


class Example(products.Product):
    """One daemon of examples/ on one host."""

    NAME: ClassVar[str]
    ENTRYPOINT: ClassVar[str]
    SAYS: ClassVar[str]
    """What the program answers for its version, with {version} in it."""
    ASKED: ClassVar[str]
    """The word that asks it."""

    def __init__(self, node: nodes.Node) -> None:
        super().__init__(node, self.NAME)
        self.suite = node.host.suite

    # -- what each has of its own -------------------------------------------------------------------------------

    @property
    def versions(self) -> tuple[str, str]:
        """What is installed, and the later version."""
        raise NotImplementedError

    def later(self) -> pathlib.Path:
        """The later version's artifact."""
        raise NotImplementedError

    def install(self) -> None:
        """Install the daemon as it comes, and start it."""
        raise NotImplementedError

    def uninstall(self) -> str:
        """The command that takes it off the host."""
        raise NotImplementedError

    def clients(self) -> list[load.Asking]:
        """Clients of the daemon."""
        raise NotImplementedError

    # -- what all have ------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Take the daemon and the product off the host."""
        units = f"/etc/systemd/system/{self.unit}.d /etc/systemd/system/slotward-*@{self.name}.*"
        self.node.sh(
            f"systemctl stop {self.unit} slotward-*@{self.name}.timer slotward-*@{self.name}.service; rm -rf {self.slots} {self.file} {units}"
            f" /usr/local/lib/slotward/guard.d/{self.name}.env /etc/systemd/system/*.wants/slotward-*@{self.name}.*;"
            f" dpkg-divert --local --no-rename --remove {self.ENTRYPOINT}; rm -f {self.ENTRYPOINT}.distrib;"
            f" {self.uninstall()}; rm -f {self.ENTRYPOINT}; systemctl daemon-reload; systemctl reset-failed",
            check=False,
        )

    def good(self, sequence: int = 2) -> products.Release:
        """The release of the later version."""
        return self._released(self.versions[1], sequence, self.later())

    def _released(self, version: str, sequence: int, program: pathlib.Path) -> products.Release:
        return products.released(self.node.shop, self.name, version, sequence, program, shelf=self.suite)

    def broken(self, version: str, sequence: int, body: str) -> products.Release:
        """A release that answers for its version and its configuration, and then does `body`."""
        script = f'#!/bin/sh\ncase "$1" in {self.ASKED}) echo "{self.SAYS.format(version=version)}"; exit 0;; -t) exit 0;; esac\n{body}\n'
        return self._program(version, sequence, script)

    def _program(self, version: str, sequence: int, script: str) -> products.Release:
        path = self.node.shop.directory / "broken" / f"{self.name}-{version}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
        return self._released(version, sequence, path)

    def restart(self) -> None:
        """Restart the unit plainly, as an operator would."""
        self.node.sh(f"systemctl reset-failed {self.unit}; systemctl restart {self.unit}")

    def runs(self, version: str) -> bool:
        """Whether the unit's main process runs a program that says this version."""
        self.node.waits(lambda: self.node.unit(self.unit).active == "active", 20, f"{self.unit} is active")
        said = self.node.sh(f"{self.ENTRYPOINT} {self.ASKED} 2>&1")
        same = f"test /proc/{self.pid()}/exe -ef {self.ENTRYPOINT} && echo same"
        return self.SAYS.format(version=version) in said and self.node.sh(same, check=False) == "same"

    def traces(self) -> str:
        """What of ours is left of this product."""
        return self.node.sh(TRACES.format(name=self.name, unit=self.unit), check=False)


class Packaged(Example):
    """A daemon that a Debian package brings."""

    DAEMON: ClassVar[daemons.Daemon]

    @property
    def versions(self) -> tuple[str, str]:
        """As Debian has them."""
        return self.DAEMON.versions[self.suite]

    def later(self) -> pathlib.Path:
        """The next suite's."""
        return self.DAEMON.later(self.suite)

    def install(self) -> None:
        """Install the suite's package, and what it needs."""
        node = self.node
        node.sh(f"rm -rf {DEBS}; mkdir -p {DEBS}")
        for deb in self.DAEMON.installed(self.suite).glob("*.deb"):
            node.host.put(deb, f"{DEBS}/{deb.name}")
        node.sh(f"DEBIAN_FRONTEND=noninteractive dpkg -i {DEBS}/*.deb && rm -r {DEBS}", timeout=300)
        self.prepare()
        node.sh(f"systemctl reset-failed {self.unit}; systemctl restart {self.unit}")

    def prepare(self) -> None:
        """What an operator sets before the first start."""

    def uninstall(self) -> str:
        """Purge the packages."""
        return f"dpkg --purge --force-all {' '.join(self.DAEMON.packages)}"


class NodeExporter(Packaged):
    """prometheus-node-exporter: one file."""

    NAME = "prometheus-node-exporter"
    ENTRYPOINT = "/usr/bin/prometheus-node-exporter"
    SAYS = "node_exporter, version {version}"
    ASKED = "--version"
    DAEMON = daemons.NODE_EXPORTER

    def clients(self) -> list[load.Asking]:
        """Two that scrape a small page."""
        return [load.Web(self.node.host.address, 9100) for _number in range(2)]


class Nginx(Packaged):
    """nginx: a master and its workers."""

    NAME = "nginx"
    ENTRYPOINT = "/usr/sbin/nginx"
    SAYS = "nginx version: nginx/{version}"
    ASKED = "-v"
    DAEMON = daemons.NGINX_LIGHT

    def prepare(self) -> None:
        """A page; and no module that is built for one version alone."""
        self.node.sh("rm -f /etc/nginx/modules-enabled/*; echo hello >/var/www/html/index.html")

    def uninstall(self) -> str:
        """Purge what nginx-light brings."""
        return "dpkg --purge --force-all nginx-light nginx nginx-common libnginx-mod-http-echo; rm -rf /etc/nginx /var/lib/nginx"

    def clients(self) -> list[load.Asking]:
        """Three that read a page."""
        return [load.Web(self.node.host.address, 80) for _number in range(3)]


class Redis(Packaged):
    """redis-server: data, a snapshot and its restore."""

    NAME = "redis-server"
    ENTRYPOINT = "/usr/bin/redis-server"
    SAYS = "Redis server v={version}"
    ASKED = "--version"
    DAEMON = daemons.REDIS_SERVER

    def prepare(self) -> None:
        """What examples/README.md asks for: an append-only file that nothing rewrites in a trial, and the hooks."""
        settings = {"appendonly": "yes", "auto-aof-rewrite-percentage": "0", "protected-mode": "no"}
        settings["bind"] = f"127.0.0.1 {self.node.host.address}"
        changes = "; ".join(f"s/^{key} .*/{key} {value}/" for key, value in settings.items())
        self.node.sh(
            f"systemctl stop {self.unit}; sed -i -E '{changes}' /etc/redis/redis.conf; rm -f /var/lib/redis/dump.rdb"
        )
        self.node.sh(f"mkdir -p -m 0755 {HOOKS}")
        for file in (products.EXAMPLES / self.name / "hooks").iterdir():
            self.node.host.put(file, f"{HOOKS}/{file.name}", 0o755)

    def uninstall(self) -> str:
        """Purge it with its data."""
        return f"dpkg --purge --force-all redis-server redis-tools; rm -rf /var/lib/redis /etc/redis {HOOKS}"

    def clients(self) -> list[load.Asking]:
        """Three that count what was acknowledged."""
        return [*self.counters()]

    def counters(self, count: int = 3) -> list[load.Counter]:
        """Clients that count; each test has keys of its own."""
        mark = nodes.trial_id()
        return [load.Counter(self.node.host.address, 6379, f"{mark}-{number}") for number in range(count)]


class Tally(Example):
    """tally: a program, its unit file and a companion in one tree; installed by hand, as a script would."""

    NAME = "tally"
    ENTRYPOINT = "/opt/tally/bin/tally"
    SAYS = "tally {version}"
    ASKED = "version"
    UNIT_FILE = "/etc/systemd/system/tally.service"

    @property
    def versions(self) -> tuple[str, str]:
        """Ours to choose."""
        return ("1.0.0", "1.1.0")

    def packed(self, version: str) -> pathlib.Path:
        """The archive of a version, made by the example's own script."""
        made = self.node.shop.directory / "tally" / f"tally-{version}.tar.gz"
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(products.EXAMPLES / "tally" / "pack"), version, str(made)], check=True, timeout=60)
        return made

    def later(self) -> pathlib.Path:
        """The next version's archive."""
        return self.packed(self.versions[1])

    def install(self) -> None:
        """Copy the program and its unit file to their places, as plain files."""
        node = self.node
        archive = node.put(self.packed(self.versions[0]))
        node.sh(
            f"mkdir -p /opt/tally/bin {nodes.BOX}/tally; tar -xzf {archive} -C {nodes.BOX}/tally;"
            f" cd {nodes.BOX}/tally && install -m 0755 tally {self.ENTRYPOINT} && install -m 0644 tally.service {self.UNIT_FILE};"
            f" systemctl daemon-reload; systemctl enable -q {self.unit}; systemctl restart {self.unit}"
        )

    def uninstall(self) -> str:
        """Remove what was copied."""
        return f"systemctl disable -q {self.unit}; rm -rf {self.UNIT_FILE} /opt/tally"

    def _program(self, version: str, sequence: int, script: str) -> products.Release:
        """A tree whose program is broken."""
        work = self.node.shop.directory / "broken" / f"tally-{version}"
        work.mkdir(parents=True, exist_ok=True)
        made = work / f"tally-{version}.tar.gz"
        subprocess.run(["tar", "-xzf", str(self.packed(version)), "-C", str(work)], check=True, timeout=60)
        (work / "tally").write_text(script.replace("-t) exit 0", "check) exit 0"), encoding="utf-8")
        names = ("tally", "tally.service", "greeting.txt")
        subprocess.run(
            ["tar", "-czf", str(made), "--format=ustar", "--mtime=@0", "-C", str(work), *names], check=True, timeout=60
        )
        return self._released(version, sequence, made)

    def clients(self) -> list[load.Asking]:
        """Three that ask who answers."""
        return [load.Web(self.node.host.address, 8090) for _number in range(3)]

    def runs(self, version: str) -> bool:
        """Whether program, unit file and companion that answer are all of this version."""
        client = load.Web(self.node.host.address, 8090)
        until = time.monotonic() + 20
        while True:
            try:
                answered = client.ask()
                return answered.count(version) >= 2 + ("at your service" in answered)
            except (OSError, ValueError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            finally:
                client.close()


ALL: tuple[Callable[[nodes.Node], Example], ...] = (NodeExporter, Nginx, Redis, Tally)
NAMES: Sequence[str] = ("prometheus-node-exporter", "nginx", "redis-server", "tally")
