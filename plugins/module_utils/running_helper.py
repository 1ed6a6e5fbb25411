# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: whether root's helper runs beside the daemon, and which bytes, as seen from outside.

Rules:

* Nothing that is wrong on the host makes a look fail; what cannot be found out is unknown and not well.
* The helper says by its own first word what it runs (privilege.md, section 3); only systemd's main process of its unit counts.
* A helper that runs other bytes than the slot's, or is older than its configuration or unit, is stale: a restart mends it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

UNIT = "slotward-helper.service"
MAX_WORD = 65536
TIMEOUT_S = 2.0
UNSAFE = "5"
"""The exit status of a helper that found what others than root may write."""
PROPERTIES = ("ActiveState", "SubState", "MainPID", "NRestarts", "Result", "ExecMainStatus")

_SHA256 = re.compile(r"[0-9a-f]{64}")

Run = Callable[..., Tuple[int, str, str]]


def shown(run_command: Run) -> Dict[str, str]:
    """What systemd says of the helper's unit; nothing where there is no systemd."""
    line = ["systemctl", "show", "--property=" + ",".join(PROPERTIES), "--", UNIT]
    rc, out, _err = run_command(line, handle_exceptions=False, environ_update={"LC_ALL": "C"})
    lines = out.splitlines() if rc == 0 else []
    return dict(line.partition("=")[::2] for line in lines if "=" in line)


def ask(path: str, timeout_s: float = TIMEOUT_S) -> Tuple[Optional[Dict[str, Any]], int]:
    """The first word of the helper behind the socket, and its process; nothing when nobody speaks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect(path)
            pid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
            word = json.loads(peer.recv(MAX_WORD).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None, 0
    return (word, int(pid)) if isinstance(word, dict) else (None, 0)


def digest(said: Any) -> Optional[str]:
    """The SHA-256 in what somebody said, None when there is none."""
    found = said.get("sha256") if isinstance(said, dict) else None
    return found if isinstance(found, str) and _SHA256.fullmatch(found) else None


def slot_of(slots_dir: str) -> Optional[str]:
    """What the helper's unit starts: the slot that the link `helper` names; None when there is no such link."""
    try:
        return os.path.basename(os.readlink(os.path.join(slots_dir, "helper")))
    except OSError:
        return None


def look(run_command: Run, config: Any, slot_sha256: Optional[str], is_old: Callable[[int], bool]) -> Dict[str, Any]:
    """The helper's facts, and the verdict on it."""
    unit = shown(run_command)
    pid = _number(unit.get("MainPID"))
    word, peer = ask(config.helper_socket)
    found: Dict[str, Any] = {
        "unit": UNIT,
        "active": unit.get("ActiveState"),
        "sub": unit.get("SubState"),
        "main_pid": pid,
        "restarts": _number(unit.get("NRestarts")),
        "slot": slot_of(config.slots_dir),
        "running_sha256": digest(word),
    }
    found["why"] = _why(found, unit, peer, slot_sha256, config.helper_socket)
    found["ok"] = found["why"] is None
    others = found["running_sha256"] is not None and found["running_sha256"] != slot_sha256
    found["stale"] = is_old(pid) or others
    return found


def _number(text: Optional[str]) -> int:
    return int(text) if text and text.isdigit() else 0


def _why(
    found: Dict[str, Any], unit: Dict[str, str], peer: int, slot_sha256: Optional[str], path: str
) -> Optional[str]:
    if found["active"] != "active":
        if unit.get("ExecMainStatus") == UNSAFE:
            end = ': others than root may write on the way to what it runs or reads, and "slotward doctor" says where'
        else:
            end = " (%s)" % unit["Result"] if unit.get("Result") not in (None, "", "success") else ""
        return "%s is %s%s" % (UNIT, found["active"] or "unknown", end)
    if found["running_sha256"] is None:
        return "no answer on the helper's socket %s" % path
    if peer != found["main_pid"]:
        return "process %d answers on %s, and the main process of %s is %s" % (peer, path, UNIT, found["main_pid"])
    if found["running_sha256"] != slot_sha256:
        return "the helper, process %d, runs %s, and %s should run" % (peer, found["running_sha256"], slot_sha256)
    return None


def files(directory: str, unit: str) -> Iterable[str]:
    """What says how a unit runs: its file, its drop-ins, and their directory, from which one may have been removed."""
    path = os.path.join(directory, unit)
    folder = path + ".d"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return [path]
    return [path, folder] + [os.path.join(folder, name) for name in names]
