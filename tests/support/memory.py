# SPDX-License-Identifier: GPL-3.0-or-later
"""A test host whose memory is limited, so that a program on it can eat until the kernel kills it.

- The hosts have no memory controller of their own (tests/hosts/README.md), so the limit is set from this machine, on all
  processes of the host together: by the controller's old tree where it is mounted, else by the group that the host has anyway.
- What was there before is put back in any case.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator

import hosts

_OLD = pathlib.Path("/sys/fs/cgroup/memory")


def _groups(host: hosts.Host) -> list[pathlib.Path]:
    """The control groups of the host's container in every tree, as its init's own record has them."""
    mounted = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = [line.split()[4] for line in mounted if line.partition(" - ")[2].startswith("cgroup2 ")]
    return [path for point in points if (path := pathlib.Path(point, "slotward-hosts", host.link.machine)).is_dir()]


def _pids(host: hosts.Host) -> list[int]:
    """Every process of the host."""
    found = []
    for group in _groups(host):
        for directory, _directories, _files in os.walk(group):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in pathlib.Path(directory, "cgroup.procs").read_text("ascii").split()]
    return [pid for pid in found if pid > 0]


def _move(pids: list[int], group: pathlib.Path) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            (group / "cgroup.procs").write_text(str(pid), encoding="ascii")


def _remove(group: pathlib.Path, within_s: float = 30) -> None:
    """Move what is in the group out of it, and remove it; a process that is just ending holds it for a moment."""
    until = time.monotonic() + within_s
    while group.is_dir():
        _move([int(pid) for pid in (group / "cgroup.procs").read_text("ascii").split()], _OLD)
        with contextlib.suppress(OSError):
            group.rmdir()
        if time.monotonic() >= until:
            raise TimeoutError(f"{group} does not empty: look at its cgroup.procs")
        time.sleep(0.05)


@contextlib.contextmanager
def limited(host: hosts.Host, mib: int) -> Iterator[None]:
    """Let the host's processes, and what they start, have `mib` MiB in all."""
    if (_OLD / "memory.limit_in_bytes").exists():
        group = _OLD / f"slotward-{host.link.machine}"
        group.mkdir(exist_ok=True)
        try:
            (group / "memory.limit_in_bytes").write_text(str(mib << 20), encoding="ascii")
            _move(_pids(host), group)
            yield
        finally:
            _remove(group)
        return
    (group,) = _groups(host)
    (group / "memory.max").write_text(str(mib << 20), encoding="ascii")  # fails where the controller is not handed down
    try:
        yield
    finally:
        (group / "memory.max").write_text("max", encoding="ascii")
