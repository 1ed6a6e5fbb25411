# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: whether a product's main process runs the bytes of its slot, as seen from outside.

Rules:

* Nothing that is wrong on the host makes a look fail; what cannot be found out is unknown and not well.
* What the daemon says may be anything (it may be an account's, and taken over): bounded in time and size, and taken for no more than it is.
* The agent says by its status socket what it runs. Of other products only systemd is asked.
* A process that is older than its configuration, its unit file or a drop-in does not know it. A file from the future says nothing.
* Nor does the agent's process know a slot that was filled anew under it. What starts from no slot is nobody's to restart into.
* While the slots are not in use, the file at the agent's path is what should run.
* The mode is what the configuration says. In helper mode the helper must be well too.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils import running_helper
from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import PRODUCT
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import config, config_table

UNIT_DIR = "/etc/systemd/system"
MAX_ANSWER = 1 << 20
TIMEOUT_S = 2.0
PYTHON = "/usr/bin/python3"
LIBRARIES = ("cryptography", "requests")
Run = Callable[..., Tuple[int, str, str]]
LOOK_FOR = "import importlib.util as i; print(' '.join(m for m in %r if not i.find_spec(m)))" % (LIBRARIES,)


def configuration(path: str) -> config.Config:
    """The configuration at ``path`` as the agent takes it; the default when there is none."""
    try:
        with open(path, "rb") as file:
            text: Optional[bytes] = file.read(config.toml.MAX_BYTES + 1)
    except OSError:
        text = None
    return config.load(text, path)[0]


def ask(path: str, timeout_s: float = TIMEOUT_S) -> Tuple[Optional[Dict[str, Any]], int]:
    """What the daemon behind the socket answers, and its process; nothing when nobody answers."""
    data = b""
    until = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect(path)
            pid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
            while len(data) <= MAX_ANSWER:
                peer.settimeout(max(until - time.monotonic(), 0.001))
                block = peer.recv(65536)
                if not block:
                    break
                data += block
            answer = json.loads(data.decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None, 0
    return (answer, int(pid)) if isinstance(answer, dict) else (None, 0)


def started_at(pid: int) -> Optional[float]:
    """When a process started, in seconds since 1970; None when there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/uptime", "rb") as file:
            uptime = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return time.time() - uptime + ticks / float(os.sysconf("SC_CLK_TCK"))


def older_than(pid: int, paths: Iterable[str]) -> bool:
    """True when one of the files was written after the process had started."""
    since = started_at(pid) if pid > 0 else None
    return since is not None and any(since < written <= time.time() for written in _written(paths))


def _written(paths: Iterable[str]) -> Iterator[float]:
    for path in paths:
        try:
            yield os.stat(path).st_mtime
        except OSError:
            continue


def digest_of(path: str) -> Optional[str]:
    """SHA-256 of a file, or None when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 18), b""):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def health(found: Dict[str, Any], config_path: str, executable: str, socket_path: str) -> Dict[str, Any]:
    """The verdict on one look of ``node_info``, as far as the daemon goes."""
    unit, slots = found["unit"] or {}, found["slots"] or {}
    slot = slots.get(slots.get("current") or "") or {}
    verdict: Dict[str, Any] = {"ok": False, "running_sha256": None, "slot_sha256": slot.get("sha256"), "why": None}
    files = files_of(config_path, str(unit.get("name")))
    if found["product"] != PRODUCT:
        files.remove(config_path)  # no other daemon reads the agent's
    verdict["stale"] = older_than(int(unit.get("main_pid") or 0), files)
    if not found["installed"]:
        verdict["why"] = found["reason"]
        return verdict
    if unit.get("active") != "active":
        verdict["why"] = "%s is %s" % (unit.get("name") or "the unit", unit.get("active") or "unknown")
        return verdict
    if found["product"] != PRODUCT:
        verdict["ok"] = True
        return verdict
    if not slots.get("in_use"):
        verdict["slot_sha256"] = digest_of(executable)
    answer, pid = ask(socket_path)
    running = (answer or {}).get("running")
    verdict["running_sha256"] = running_helper.digest(running)
    verdict["why"] = _why(unit, verdict, pid, socket_path)
    if slots.get("in_use") and pid == unit.get("main_pid") and verdict["running_sha256"] is not None:
        verdict["stale"] = verdict["stale"] or verdict["running_sha256"] != verdict["slot_sha256"]
    verdict["ok"] = verdict["why"] is None
    return verdict


def files_of(config_path: str, unit: str) -> List[str]:
    """What a process of the agent has to be younger than: its configuration, its unit and the unit's drop-ins."""
    return [config_path, *running_helper.files(UNIT_DIR, unit)]


def privilege(found: Dict[str, Any], config_path: str, executable: str, run_command: Run) -> Dict[str, Any]:
    """Who does root's part, the daemon's verdict, and the helper's where there is one: both must be well."""
    known = configuration(config_path)
    verdict = health(found, config_path, executable, known.socket_path)
    told: Dict[str, Any] = {"mode": None, "user": None, "helper": None, "health": verdict}
    if found["product"] != PRODUCT or not found["installed"]:
        return told
    told.update(mode=known.mode, user=known.user)
    if known.mode != config_table.HELPER:
        return told

    def is_old(pid: int) -> bool:
        return older_than(pid, files_of(config_path, running_helper.UNIT))

    helper = running_helper.look(run_command, known, verdict["slot_sha256"], is_old)
    told["helper"] = helper
    if verdict["ok"] and not helper["ok"]:
        verdict.update(ok=False, why=helper["why"])
    return told


def _why(unit: Dict[str, Any], verdict: Dict[str, Any], pid: int, path: str) -> Optional[str]:
    if verdict["running_sha256"] is None:
        return "no answer on the status socket %s" % path
    if pid != unit.get("main_pid"):
        return "process %d answers on %s, and the main process of %s is %s" % (
            pid,
            path,
            unit.get("name"),
            unit.get("main_pid"),
        )
    if verdict["running_sha256"] != verdict["slot_sha256"]:
        return "process %d runs %s, and %s should run" % (pid, verdict["running_sha256"], verdict["slot_sha256"])
    return None


def missing(run_command: Run) -> List[str]:
    """What the agent needs and the host's own Python does not have."""
    if not os.access(PYTHON, os.X_OK):
        return ["python3"] + list(LIBRARIES)
    rc, out, _err = run_command([PYTHON, "-I", "-c", LOOK_FOR], handle_exceptions=False)
    return out.split() if rc == 0 else list(LIBRARIES)
