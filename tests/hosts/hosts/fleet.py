# SPDX-License-Identifier: GPL-3.0-or-later
"""A run: the hosts that one test session, demo or person made, and their common key.

- A run with an owner is removed by whoever comes next, once the owner is dead; a run without one is kept.
- Making a host twice changes nothing; asking for something else under its name is refused.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from hosts import base, errors, inventory, network, process, reap, records, requirements, tree
from hosts.host import Host


class Run:
    """The hosts of one run. As a context manager it removes them all at the end.

    Args:
        run_id: a name that other processes can use too; left out, a fresh one.
        owner: the pid of the process that the hosts belong to; left out, this process; None for a run that is kept.

    """

    def __init__(self, run_id: str | None = None, owner: int | None = -1) -> None:
        requirements.check()
        self.id = records.check_name(run_id or f"run-{os.getpid()}-{uuid.uuid4().hex[:6]}")
        self.directory = records.run_dir(self.id)
        holder = None if owner is None else process.identify(os.getpid() if owner == -1 else owner)
        reap.leftovers()
        with records.machine_lock():
            if records.read_run(self.id) is None:
                self._create(holder)

    def _create(self, owner: process.ProcessId | None) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        tree.make_key(self.directory / "key", f"slotward-hosts {self.id}")
        (self.directory / "known_hosts").touch()
        records.write(self.directory / "run.json", records.Run(self.id, owner))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def up(
        self,
        name: str,
        suite: str = "bookworm",
        *,
        disk_mb: int | None = None,
        inodes: int | None = None,
        binds: Iterable[str] = (),
    ) -> Host:
        """Make a host and boot it; a host of that name that is there already is booted when it is down."""
        wanted = records.Host(
            records.check_name(name), suite, 0, disk_mb=disk_mb, inodes=inodes, binds=check_binds(binds)
        )
        if inodes is not None and disk_mb is None:
            raise errors.HostError("--inodes needs --disk: only a filesystem of its own has a number of inodes")
        source = base.ensure(suite)
        record, fresh = self._claim(wanted, source if tree.can_overlay(self.directory) else None)
        if fresh:
            try:
                self._furnish(record, source)
            except BaseException:
                self.down(name)
                raise
        host = Host(self.id, name)
        host.boot()
        return host

    def _claim(self, wanted: records.Host, lower: pathlib.Path | None) -> tuple[records.Host, bool]:
        """Write the host's record, which gives it its number; tell whether it is new."""
        with records.machine_lock():
            there = records.read_host(self.id, wanted.name)
            if there is not None:
                self._check_same(there, wanted)
                return there, False
            number = network.lowest_free(records.taken_numbers() | network.present())
            maker = process.identify(os.getpid())
            record = dataclasses.replace(wanted, number=number, base=None if lower is None else str(lower), maker=maker)
            records.write(records.host_dir(self.id, wanted.name) / "host.json", record)
            return record, True

    @staticmethod
    def _check_same(there: records.Host, wanted: records.Host) -> None:
        """Refuse to take a host for what it is not."""
        if there.maker is not None:
            state = (
                f"is being made by process {there.maker.pid}: wait for it"
                if there.maker.alive()
                else "was never finished"
            )
            raise errors.HostError(f"host {there.name!r} {state} (or 'hostctl down {there.name}')")
        if dataclasses.replace(there, number=0, base=None, keeper=None) != wanted:
            raise errors.HostError(
                f"host {there.name!r} is there but was made otherwise: 'hostctl down {there.name}' first"
            )

    def _furnish(self, record: records.Host, source: pathlib.Path) -> None:
        directory = records.host_dir(self.id, record.name)
        link = network.Link(record.number)
        tree.make(source, directory / "root", whole=record.base is None)
        authorized = (self.directory / "key.pub").read_text(encoding="ascii")
        public = tree.personalise(directory / "root", record.name, link, authorized)
        if record.disk_mb is not None:
            tree.make_disk(record, directory / "disk.img")
        know(self.id, link.guest, public)
        records.write(directory / "host.json", dataclasses.replace(record, maker=None))

    def host(self, name: str) -> Host:
        """A host of this run by its name."""
        return Host(self.id, name)

    def hosts(self) -> list[Host]:
        """All hosts of this run."""
        return hosts_of(self.id)

    def down(self, name: str) -> bool:
        """Remove a host; tell whether there was one."""
        return down(self.id, name)

    def close(self) -> None:
        """Remove all hosts of the run, and the run."""
        reap.remove_run(self.id)

    def inventory(self) -> str:
        """An Ansible inventory (YAML) of the run's hosts."""
        return inventory_of(self.id)


def hosts_of(run_id: str) -> list[Host]:
    """All hosts of a run, made ones and half-made ones."""
    return [Host(run_id, name) for name in records.host_names(run_id) if records.read_host(run_id, name)]


def inventory_of(run_id: str) -> str:
    """An Ansible inventory (YAML) of a run's hosts."""
    return inventory.render([inventory.entry(host) for host in hosts_of(run_id)])


def down(run_id: str, name: str) -> bool:
    """Remove a host; tell whether there was one."""
    record = records.read_host(run_id, name)
    if record is None:
        return False
    Host(run_id, name).destroy()
    know(run_id, network.Link(record.number).guest, None)
    return True


def know(run_id: str, address: str, public: str | None) -> None:
    """Put a host's key into known_hosts, in place of any other for its address; None takes it out."""
    file = records.run_dir(run_id) / "known_hosts"
    with records.locked(file.with_suffix(".lock")):
        kept = [line for line in file.read_text(encoding="ascii").splitlines() if line.split()[0] != address]
        if public is not None:
            kept.append(f"{address} {' '.join(public.split()[:2])}")
        fresh = file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in kept), encoding="ascii")
        os.replace(fresh, file)


def check_binds(binds: Iterable[str]) -> tuple[str, ...]:
    """Return host:guest pairs of absolute paths, or refuse them."""
    chosen = tuple(binds)
    for bind in chosen:
        source, colon, target = bind.partition(":")
        if not colon or not source.startswith("/") or not target.startswith("/") or ":" in target:
            raise errors.HostError(f"{bind!r} is no bind: use /path/here:/path/in/host")
        if not os.path.exists(source):
            raise errors.HostError(f"cannot bind {source}: it does not exist")
    return chosen
