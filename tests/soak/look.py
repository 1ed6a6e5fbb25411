# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in a host as root and prints, as one JSON object, everything there that an update could leave behind.

`look.py UNIT…` gives `counts` (how often each thing is there: processes, units, files and links, descriptors, mounts) and
`numbers` (memory in KiB, disk in bytes). What is named at random or after a number stands under one name, with `#` for it.
It knows nothing of the product but where its things lie. Python 3.9, standard library only.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from typing import Counter, Dict, List, Tuple

PLACES = (
    "/opt/slotward",
    "/var/lib/slotward",
    "/etc/slotward",
    "/etc/systemd/system",
    "/usr/local",
    "/var/lib/systemd",
    "/run",
    "/tmp",
    "/dev/shm",
)
LEFT_OUT = ("/run/log", "/run/udev")
"""A journal is bounded by journald, and what udev writes is not made by an update."""
DISK = ("/opt/slotward", "/var/lib/slotward", "/run")
GROWING = re.compile(r"/(audit\.log(\.[0-9]+)?|evidence/.*)$")
"""What has a bound of its own, which is looked at for itself."""
NUMBERED = re.compile(r"(?<=\.service-)\w{6}(?=/|$)|[0-9a-f]{8,}|[0-9]+")
SLOT = re.compile(r"(/opt/slotward/[^/]+)/[ab]$")

Counts = Dict[str, Counter[str]]
Numbers = Dict[str, int]


def named(text: str) -> str:
    """The text with `#` for every number, every word of at least eight hexadecimal digits, and the end of a private /tmp's name."""
    return NUMBERED.sub("#", text)


def is_ours(group: str) -> bool:
    """Whether a process belongs to the host: who came in from outside is in no control group of it."""
    return not group.startswith("/..")


def processes(proc: str = "/proc") -> Counter[str]:
    """The host's processes: their control group and what they run."""
    found: Counter[str] = collections.Counter()
    for pid in os.listdir(proc):
        if not pid.isdigit():
            continue
        try:
            with open(f"{proc}/{pid}/cgroup", encoding="ascii", errors="replace") as file:
                group = file.read().strip().rpartition("::")[2]
            with open(f"{proc}/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it has ended
        if is_ours(group):
            found[f"{named(group)} {named(line)}"] += 1
    return found


def units() -> Counter[str]:
    """The units that systemd holds in memory, and the state of each."""
    argv = ["systemctl", "list-units", "--all", "--no-legend", "--plain"]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    rows = [line.split(None, 4) for line in shown.splitlines() if line.strip()]
    return collections.Counter(f"{named(row[0])} {row[1]}" for row in rows if not row[0].endswith(".device"))


def files(places: Tuple[str, ...] = PLACES) -> Tuple[Counter[str], Numbers]:
    """Files, links and directories by name, and for each place the blocks that they take."""
    found: Counter[str] = collections.Counter()
    taken: Numbers = dict.fromkeys(DISK, 0)
    for place in places:
        for directory, directories, names in os.walk(place):
            directories[:] = [name for name in directories if os.path.join(directory, name) not in LEFT_OUT]
            for name in names + directories:
                path = os.path.join(directory, name)
                try:
                    status = os.lstat(path)
                except OSError:
                    continue  # it is gone
                found[named(path)] += 1
                if place in taken and not GROWING.search(path):
                    taken[place] += status.st_blocks * 512
    return found, taken


def growing(top: str) -> Numbers:
    """How many of what has a bound of its own there are below a slots directory, and how big."""
    sizes: Dict[str, List[int]] = {"audit": [], "evidence": []}
    for directory, _directories, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if GROWING.search(path):
                kind = "evidence" if "/evidence/" in path else "audit"
                sizes[kind].append(os.lstat(path).st_size)
    found: Numbers = {}
    for kind, each in sizes.items():
        found[f"{kind} files"], found[f"{kind} bytes"] = len(each), sum(each)
        found[f"{kind} largest"] = max(each, default=0)
    return found


def main_pid(unit: str) -> str:
    """The unit's main process; 1 stands for systemd itself."""
    if unit == "init":
        return "1"
    shown = subprocess.run(["systemctl", "show", "-p", "MainPID", unit], check=True, capture_output=True, text=True)
    return shown.stdout.strip().partition("=")[2]


def descriptors(pid: str) -> Counter[str]:
    """What a process has open."""
    found: Counter[str] = collections.Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[named(SLOT.sub(r"\1/a or b", os.readlink(f"/proc/{pid}/fd/{name}")))] += 1
        except OSError:
            continue  # it was closed
    return found


def memory(pid: str) -> Tuple[int, int]:
    """A process's memory and its part that no file stands behind, in KiB: what it shares counts for its share."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        rows = dict(line.split()[:2] for line in file.read().splitlines()[1:])
    return int(rows["Pss:"]), int(rows["Pss_Anon:"])


def look(watched: List[str]) -> Dict[str, object]:
    """Everything."""
    counts: Counts = {"processes": processes(), "units": units()}
    counts["files"], taken = files()
    numbers: Numbers = {f"disk {place}": value for place, value in taken.items()}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        counts["mounts"] = collections.Counter(named(line.split()[4]) for line in file)
    for unit in watched:
        pid = main_pid(unit)
        counts[f"descriptors of {unit}"] = descriptors(pid)
        numbers[f"memory of {unit}"], numbers[f"own memory of {unit}"] = memory(pid)
        numbers[f"descriptors of {unit}"] = sum(counts[f"descriptors of {unit}"].values())
    numbers.update(growing("/opt/slotward"))
    for kind in ("processes", "units", "files"):
        numbers[kind] = sum(counts[kind].values())
    return {"counts": counts, "numbers": numbers}


if __name__ == "__main__":
    json.dump(look(sys.argv[1:]), sys.stdout)
