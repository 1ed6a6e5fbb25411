# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written down about runs and hosts, so that a later process can find, use or remove them.

- A run is a directory: run.json, its SSH key and known_hosts, and one directory for each host with host.json.
- A record is written before the thing it stands for is made, and removed after the thing is gone.
- Runs and numbers are given out under one lock for the whole machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from hosts import errors, process, settings

NAME = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$")


@dataclasses.dataclass(frozen=True)
class Run:
    """A set of hosts with one owner; without an owner it is kept until somebody takes it down."""

    id: str
    owner: process.ProcessId | None


@dataclasses.dataclass(frozen=True)
class Host:
    """What has to be known to boot a host again, or to remove it."""

    name: str
    suite: str
    number: int
    base: str | None = None  # the base tree that parts of /usr are overlaid on; None for a whole copy
    maker: process.ProcessId | None = None
    keeper: process.ProcessId | None = None
    disk_mb: int | None = None
    inodes: int | None = None
    binds: tuple[str, ...] = ()


def check_name(name: str) -> str:
    """Return a host's or a run's name, or refuse it."""
    if not NAME.fullmatch(name):
        raise errors.HostError(f"{name!r} is no name for a host or run: use 1 to 32 of a-z, 0-9 and '-'")
    return name


def to_json(record: Run | Host) -> str:
    """Write a record as text."""
    return json.dumps(dataclasses.asdict(record), indent=1) + "\n"


def _process(fields: dict[str, Any] | None) -> process.ProcessId | None:
    return None if fields is None else process.ProcessId(**fields)


def run_from_json(text: str) -> Run:
    """Read a run's record."""
    fields = json.loads(text)
    return Run(fields["id"], _process(fields["owner"]))


def host_from_json(text: str) -> Host:
    """Read a host's record."""
    fields = json.loads(text)
    fields["maker"], fields["keeper"] = _process(fields["maker"]), _process(fields["keeper"])
    fields["binds"] = tuple(fields["binds"])
    return Host(**fields)


def is_leftover(run: Run | None, alive: Callable[[process.ProcessId], bool]) -> bool:
    """Tell whether nobody will come back for a run: its owner is dead, or its record was never finished."""
    if run is None:
        return True
    return run.owner is not None and not alive(run.owner)


def is_half_made(host: Host | None, alive: Callable[[process.ProcessId], bool]) -> bool:
    """Tell whether a host's making was cut short."""
    if host is None:
        return True
    return host.maker is not None and not alive(host.maker)


@contextlib.contextmanager
def locked(path: pathlib.Path, timeout_s: float = settings.LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold a lock file; the kernel lets go of it when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("w", encoding="ascii") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise errors.HostError(f"{path} is held by another process for over {timeout_s:.0f} s") from None
                time.sleep(process.POLL_S)
        yield


def machine_lock() -> contextlib.AbstractContextManager[None]:
    """The lock under which runs and numbers are given out and removed."""
    return locked(settings.state_dir() / "lock")


def runs_dir() -> pathlib.Path:
    """The directory of all runs."""
    return settings.state_dir() / "runs"


def run_dir(run_id: str) -> pathlib.Path:
    """The directory of one run."""
    return runs_dir() / run_id


def host_dir(run_id: str, name: str) -> pathlib.Path:
    """The directory of one host."""
    return run_dir(run_id) / "hosts" / name


def write(path: pathlib.Path, record: Run | Host) -> None:
    """Write a record whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(to_json(record), encoding="utf-8")
    os.replace(fresh, path)


def read_run(run_id: str) -> Run | None:
    """The record of a run, or None when it has none."""
    try:
        return run_from_json((run_dir(run_id) / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_host(run_id: str, name: str) -> Host | None:
    """The record of a host, or None when it has none."""
    try:
        return host_from_json((host_dir(run_id, name) / "host.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


def run_ids() -> list[str]:
    """The names of all runs."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(runs_dir()))
    return []


def host_names(run_id: str) -> list[str]:
    """The names of all hosts of a run."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(run_dir(run_id) / "hosts"))
    return []


def all_hosts() -> list[Host]:
    """The records of all hosts of all runs."""
    hosts = (read_host(run_id, name) for run_id in run_ids() for name in host_names(run_id))
    return [host for host in hosts if host is not None]


def taken_numbers() -> set[int]:
    """The numbers that records stand for, of hosts that run or not."""
    return {host.number for host in all_hosts()}


def used_bases() -> set[str | None]:
    """The base trees that hosts stand on."""
    return {host.base for host in all_hosts()}
