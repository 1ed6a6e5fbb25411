# SPDX-License-Identifier: GPL-3.0-or-later
"""One test host: run commands in it, move files, stop it in every way and boot it again.

- Commands enter through the host's init, so they work without network and without sshd.
- poweroff() and reboot() are clean; cut() is not: the link goes silent, then every process dies at once.
- Every wait has an end, and a boot that fails shows the end of the console.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence

from hosts import container, errors, network, process, records, settings, tree

Command = str | Sequence[str]
Result = subprocess.CompletedProcess[str]
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "USER": "root",
    "SHELL": "/bin/bash",
}
BOOTED = ("running", "degraded")


class Host:
    """A host by its run and its name; the object holds nothing that the record on disk does not."""

    def __init__(self, run_id: str, name: str) -> None:
        self.run_id = run_id
        self.name = name
        self.directory = records.host_dir(run_id, name)
        self.root = self.directory / "root"
        self.console = self.directory / "console.log"
        self.suite = self.record.suite
        self.link = network.Link(self.record.number)
        self.address = self.link.guest
        self.controller_address = self.link.controller

    def __repr__(self) -> str:
        return f"Host({self.name!r}, {self.suite!r}, {self.address!r})"

    @property
    def record(self) -> records.Host:
        """What is written down about the host."""
        record = records.read_host(self.run_id, self.name)
        if record is None:
            raise errors.HostError(f"there is no host {self.name!r} in run {self.run_id!r}: see 'hostctl list'")
        return record

    @property
    def running(self) -> bool:
        """Whether the host's init runs now."""
        return self._init() is not None

    @property
    def boot_id(self) -> str:
        """The id of the host's present boot."""
        return self.read("/proc/sys/kernel/random/boot_id").strip()

    @property
    def key(self) -> pathlib.Path:
        """The private SSH key of the run."""
        return records.run_dir(self.run_id) / "key"

    @property
    def ssh_options(self) -> list[str]:
        """What makes ssh use the run's key and its list of host keys, and notice a dead host within 20 s."""
        known = records.run_dir(self.run_id) / "known_hosts"
        options = (
            f"UserKnownHostsFile={known}",
            "GlobalKnownHostsFile=/dev/null",
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
        )
        return [word for option in options for word in ("-o", option)]

    @property
    def ssh_args(self) -> list[str]:
        """The ssh command that reaches the host; append the remote command."""
        return ["ssh", "-F", "none", "-i", str(self.key), *self.ssh_options, f"root@{self.address}"]

    def _init(self) -> int | None:
        return container.init_of(self.record.keeper, self.root)

    def enter_argv(self, command: Command, cwd: str = "/", env: dict[str, str] | None = None) -> list[str]:
        """The command of this machine that runs a command in the host."""
        init = self._init()
        if init is None:
            raise errors.HostError(f"host {self.name!r} is not running: boot it first ('hostctl boot {self.name}')")
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        return container.enter_command(init, argv, cwd, {**ENVIRONMENT, **(env or {})})

    def run_bytes(
        self,
        command: Command,
        *,
        stdin: bytes | None = None,
        timeout: float = settings.COMMAND_TIMEOUT_S,
        cwd: str = "/",
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command as root in the host and return its result, whatever it is."""
        argv = self.enter_argv(command, cwd, env)
        try:
            return process.run_group(argv, stdin, timeout)
        except subprocess.TimeoutExpired:
            text = command if isinstance(command, str) else shlex.join(command)
            raise errors.CommandTimeout(f"{self.name}: {text!r} did not end within {timeout:g} s") from None

    def run(
        self,
        command: Command,
        check: bool = True,
        timeout: float = settings.COMMAND_TIMEOUT_S,
        *,
        stdin: str | None = None,
        cwd: str = "/",
        env: dict[str, str] | None = None,
    ) -> Result:
        """Run a command (a string for sh, or a list) as root in the host, in a clean environment.

        Raises CommandFailed (with .result) when check is set and the code is not 0, CommandTimeout when it takes too long.
        """
        data = None if stdin is None else stdin.encode()
        done = self.run_bytes(command, stdin=data, timeout=timeout, cwd=cwd, env=env)
        result = Result(
            command, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and result.returncode != 0:
            raise errors.CommandFailed(self.name, command if isinstance(command, str) else shlex.join(command), result)
        return result

    def wait_for(self, command: Command, timeout: float = 60.0, every: float = 0.2) -> Result:
        """Repeat a command until it ends with 0; a host that is down in between is waited for too."""
        deadline = time.monotonic() + timeout
        said = "(the host was not running)"
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise errors.CommandTimeout(f"{self.name}: {command!r} was not true within {timeout:g} s: {said}")
            try:
                result = self.run(command, check=False, timeout=max(left, 0.5))
                if result.returncode == 0:
                    return result
                said = (result.stderr or result.stdout).strip()[-500:] or f"code {result.returncode}"
            except errors.HostError as error:
                said = str(error)
            time.sleep(every)

    def read(self, path: str) -> str:
        """The text of a file in the host."""
        return self.run(["cat", "--", path]).stdout

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Write a file in the host, by a rename; its directory is made when it is missing."""
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1.new" && chmod "$2" "$1.new" && mv -T -- "$1.new" "$1"'
        data = text.encode() if isinstance(text, str) else text
        done = self.run_bytes(["/bin/sh", "-c", script, "sh", path, f"{mode:o}"], stdin=data)
        if done.returncode != 0:
            raise errors.HostError(f"{self.name}: cannot write {path}: {done.stderr.decode(errors='replace').strip()}")

    def put(self, source: pathlib.Path | str, target: str, mode: int | None = None) -> None:
        """Copy a file of the controller to a path in the host; the mode is the file's own unless given."""
        file = pathlib.Path(source)
        self.write(target, file.read_bytes(), file.stat().st_mode & 0o7777 if mode is None else mode)

    def get(self, source: str, target: pathlib.Path | str) -> None:
        """Copy a file of the host to a path on the controller."""
        done = self.run_bytes(["cat", "--", source])
        if done.returncode != 0:
            raise errors.HostError(f"{self.name}: cannot read {source}: {done.stderr.decode(errors='replace').strip()}")
        pathlib.Path(target).write_bytes(done.stdout)

    def boot(self, timeout: float = settings.BOOT_TIMEOUT_S) -> None:
        """Boot a host that is down, and wait until it is up; a host that runs is left alone."""
        if self.running:
            return
        self._clear()
        record = self.record
        if record.disk_mb is not None:
            tree.mount_disk(self.directory / "disk.img", self.root)
        network.create(self.link)
        keeper = container.start(record, self.root, self.console)
        records.write(self.directory / "host.json", dataclasses.replace(record, keeper=keeper))
        self.wait_booted(timeout)

    def wait_booted(self, timeout: float = settings.BOOT_TIMEOUT_S) -> None:
        """Wait until systemd has finished booting and sshd answers."""
        deadline = time.monotonic() + timeout
        state = "not started"
        while time.monotonic() < deadline:
            keeper = self.record.keeper
            if keeper is None or not keeper.alive():
                state = "ended"
                break
            if self._init() is not None:
                state = self._system_state()
                if state in BOOTED and self.ssh_answers():
                    return
            time.sleep(process.POLL_S)
        tail = container.console_tail(self.console)
        raise errors.HostError(
            f"host {self.name!r} did not boot within {timeout:g} s (state: {state}); console:\n{tail}"
        )

    def _system_state(self) -> str:
        try:
            return self.run(["systemctl", "is-system-running"], check=False, timeout=20).stdout.strip() or "starting"
        except errors.HostError:
            return "starting"

    def ssh_answers(self) -> bool:
        """Whether something that calls itself SSH greets on the host's port 22."""
        try:
            with socket.create_connection((self.address, 22), timeout=5) as connection:
                connection.settimeout(5)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def poweroff(self, timeout: float = settings.STOP_TIMEOUT_S) -> None:
        """Shut the host down cleanly; the tree stays. A host that is down is left alone."""
        keeper = self.record.keeper
        if keeper is None or not self.running:
            self._clear()
            return
        self.run(["systemctl", "--no-block", "poweroff"], check=False)
        if not process.wait_gone(keeper, timeout):
            tail = container.console_tail(self.console)
            raise errors.HostError(f"host {self.name!r} did not shut down within {timeout:g} s; console:\n{tail}")
        self._clear()

    def reboot(self, timeout: float = settings.BOOT_TIMEOUT_S) -> None:
        """Shut the host down cleanly and boot it again."""
        self.poweroff()
        self.boot(timeout)

    def cut(self) -> None:
        """Stop the host hard: its link goes silent first, then all its processes die by SIGKILL; the tree stays."""
        if self.running:
            network.cut(self.link)
        self._clear()

    def network_cut(self) -> None:
        """Pull the host's cable."""
        network.cut(self.link)

    def network_restore(self) -> None:
        """Plug the host's cable in again."""
        network.restore(self.link)

    def _clear(self) -> None:
        """Leave nothing of the last boot: no process, no control group, no link."""
        record = self.record
        container.kill(record.keeper, self.link.machine)
        network.remove(self.link)
        if record.keeper is not None:
            records.write(self.directory / "host.json", dataclasses.replace(record, keeper=None))

    def destroy(self) -> None:
        """Remove the host and all that belongs to it."""
        self._clear()
        network.destroy(self.link)
        tree.remove_host(self.directory)
