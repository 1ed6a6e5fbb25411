# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes by identity, not by number alone.

- A process is named by its pid, its start time and the boot it ran in, so a number used again is never mistaken for it.
- A zombie counts as gone.
- Only a process that was named that way is ever signalled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import IO

from hosts import errors

POLL_S = 0.05
# Prefixes of commands: one that dies when the caller does, and one whose children do so too.
WITH_US = ("setpriv", "--pdeathsig", "KILL")
ALL_WITH_US = (*WITH_US, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclasses.dataclass(frozen=True)
class Stat:
    """The fields of /proc/<pid>/stat that matter here."""

    state: str
    parent: int
    start: int


@dataclasses.dataclass(frozen=True)
class ProcessId:
    """One process, for all time."""

    pid: int
    start: int
    boot: str

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        stat = read_stat(self.pid)
        return stat is not None and stat.state != "Z" and stat.start == self.start and self.boot == boot_id()


def parse_stat(text: str) -> Stat:
    """Read a line of /proc/<pid>/stat, whose second field may hold spaces and brackets."""
    fields = text.rpartition(")")[2].split()
    return Stat(fields[0], int(fields[1]), int(fields[19]))


def read_stat(pid: int) -> Stat | None:
    """The state of a process, or None when there is none by that number."""
    try:
        return parse_stat(pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def boot_id() -> str:
    """The id of the present boot of this machine."""
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> ProcessId:
    """Name the process that has this pid now."""
    stat = read_stat(pid)
    if stat is None:
        raise errors.HostError(f"process {pid} is gone")
    return ProcessId(pid, stat.start, boot_id())


def identify_all(pids: Iterable[int]) -> list[ProcessId]:
    """Name those of the processes that are still there."""
    found = []
    for pid in pids:
        with contextlib.suppress(errors.HostError):
            found.append(identify(pid))
    return found


def children(pid: int) -> list[int]:
    """The pids of the children of a process, oldest first."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = read_stat(int(entry))
            if stat is not None and stat.parent == pid and stat.state != "Z":
                found.append((stat.start, int(entry)))
    return [child for _at, child in sorted(found)]


def inner_pid(pid: int) -> int | None:
    """The number that a process has in its own pid namespace."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None


def kill(process: ProcessId) -> None:
    """End a process at once, if it still is the one that was meant."""
    if process.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def wait_gone(process: ProcessId, timeout_s: float) -> bool:
    """Wait until a process is gone (and buried, when it is our child); False when it outlives the time."""
    deadline = time.monotonic() + timeout_s
    while process.alive():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return True


def tool(*argv: str, timeout_s: float = 60.0, stdin: str | None = None) -> str:
    """Run a tool of this machine and return what it printed; a failure is one line."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise errors.HostError(f"{argv[0]} is missing: run 'hostctl requirements --install'") from None
    except subprocess.TimeoutExpired:
        raise errors.HostError(f"{' '.join(argv)}: did not end within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["(it said nothing)"]
        raise errors.HostError(f"{' '.join(argv)}: {said[-1]}")
    return done.stdout


def run_group(
    argv: Sequence[str], stdin: bytes | None, timeout_s: float, output: IO[str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process group of its own, and kill the whole group when its time is over.

    What it prints is in the result, or in output when that is given.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE if output is None else output,
        stderr=subprocess.PIPE if output is None else output,
        process_group=0,
    ) as child:
        try:
            out, err = child.communicate(stdin, timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(argv), child.returncode, out, err)
