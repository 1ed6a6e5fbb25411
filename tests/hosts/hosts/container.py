# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of a host: systemd-nspawn under a small keeper.

- The keeper is a shell that starts systemd-nspawn again when the host reboots by itself, and ends otherwise.
- Every container has a control group of its own: two that share their caller's see each other's services.
- A host's init counts only when its root directory is the host's tree; before that nothing is run in it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import time
from collections.abc import Sequence

from hosts import errors, network, process, records, tree

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[^\[]|\r")
PROGRESS = re.compile(r"\[[ *]+\] (?!Job .*\(1s)")
REBOOTED = 133
# $1 is the container's control group; the rest is the command. Each start joins the group anew.
KEEPER = f"""\
group=$1; shift
mkdir -p "$group/keeper" && echo $$ > "$group/keeper/cgroup.procs"
while :; do
    sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@"
    [ $? -eq {REBOOTED} ] || exit
done
"""


def parse_cgroup_mounts(text: str) -> dict[str, str]:
    """The mount points of a mountinfo text that can hold a container's group: 'unified' and perhaps 'legacy'."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        before, _dash, after = line.partition(" - ")
        kind, _source, options = after.split(maxsplit=2)
        if kind == "cgroup2":
            found.setdefault("unified", before.split()[4])
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            found.setdefault("legacy", before.split()[4])
    return found


def _groups(machine: str) -> dict[str, pathlib.Path]:
    mounts = parse_cgroup_mounts(pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    if "unified" not in mounts:
        raise errors.HostError("no cgroup2 is mounted here: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
    return {kind: pathlib.Path(point, "slotward-hosts", machine) for kind, point in mounts.items()}


def command(record: records.Host, root: pathlib.Path) -> list[str]:
    """The command that boots a host."""
    machine = network.Link(record.number).machine
    return [
        "systemd-nspawn",
        "--quiet",
        "--boot",
        f"--directory={root}",
        f"--machine={machine}",
        f"--hostname={record.name}",
        "--register=no",
        "--keep-unit",
        f"--network-namespace-path=/run/netns/{machine}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        *(f"--overlay={overlay}" for overlay in tree.overlays(record.base, root)),
        *(f"--bind={bind}" for bind in record.binds),
    ]


def start(record: records.Host, root: pathlib.Path, console: pathlib.Path) -> process.ProcessId:
    """Start a host's container and return its keeper."""
    group = _groups(network.Link(record.number).machine)["unified"]
    argv = ["/bin/sh", "-c", KEEPER, "sh", str(group), *command(record, root)]
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(console), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environment = {"PATH": os.defpath + ":/usr/sbin:/sbin", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    # A session of its own: Ctrl-C in the caller's terminal must not shut hosts down behind the library's back.
    pid = os.posix_spawn("/bin/sh", argv, environment, file_actions=actions, setsid=True)
    return process.identify(pid)


def init_of(keeper: process.ProcessId | None, root: pathlib.Path) -> int | None:
    """The pid of a host's init, or None while it does not run in its own root yet, or any more."""
    for pid in _descendants(keeper):
        if process.inner_pid(pid) == 1:
            with contextlib.suppress(OSError):
                if os.path.samefile(f"/proc/{pid}/root", root):
                    return pid
    return None


def _descendants(keeper: process.ProcessId | None) -> list[int]:
    """systemd-nspawn below the keeper, and what is below that: not the processes of the host."""
    if keeper is None or not keeper.alive():
        return []
    spawned = process.children(keeper.pid)
    return spawned + [pid for parent in spawned for pid in process.children(parent)]


def kill(keeper: process.ProcessId | None, machine: str) -> None:
    """End a container at once, as a power cut would: first the keeper, then what it started, then its group."""
    if keeper is not None:
        family = process.identify_all(_descendants(keeper))
        for member in (keeper, *reversed(family)):
            process.kill(member)
        for member in (keeper, *family):
            if not process.wait_gone(member, 30):
                raise errors.HostError(f"process {member.pid} of container {machine} does not die")
    for group in _groups(machine).values():
        _empty(group)
    for kind in ("propagate", "unix-export"):
        shutil.rmtree(pathlib.Path("/run/systemd/nspawn", kind, machine), ignore_errors=True)


def _empty(group: pathlib.Path, timeout_s: float = 30) -> None:
    """Kill what is left in a group of ours, and remove it."""
    deadline = time.monotonic() + timeout_s
    while group.is_dir():
        for directory, _directories, _files in os.walk(group):  # groups go away while they are looked at
            with contextlib.suppress(OSError):
                members = [int(pid) for pid in pathlib.Path(directory, "cgroup.procs").read_text("ascii").split()]
                for member in process.identify_all(pid for pid in members if pid > 0):
                    process.kill(member)
        for directory, _directories, _files in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        if time.monotonic() >= deadline:
            raise errors.HostError(f"control group {group} does not empty: look at its cgroup.procs")
        time.sleep(process.POLL_S / 5)


def readable(console: str, lines: int) -> str:
    """The last lines of a console's text, without colours, blank lines and progress bars."""
    kept = (line.rstrip() for line in ESCAPES.sub("", console).splitlines())
    return "\n".join([line for line in kept if line and not PROGRESS.match(line)][-lines:])


def console_tail(console: pathlib.Path, lines: int = 25) -> str:
    """The last lines of a host's console log."""
    try:
        return readable(console.read_text(encoding="utf-8", errors="replace"), lines)
    except FileNotFoundError:
        return "(no console log)"


def enter_command(init: int, argv: Sequence[str], cwd: str, env: dict[str, str]) -> list[str]:
    """The command that runs another one inside a host, with a clean environment."""
    pairs = [f"{key}={value}" for key, value in env.items()]
    return ["nsenter", "-t", str(init), "-a", "/usr/bin/env", "-i", "-C", cwd, *pairs, *argv]
