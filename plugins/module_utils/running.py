# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: whether a product's main process runs the bytes of its slot, as seen from outside.

Rules:

* Nothing that is wrong on the host makes a look fail; what cannot be found out is unknown and not well.
* The agent says by its status socket what it runs; of other products the main process's own file is compared.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Dict, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import PRODUCT
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import config

MAX_ANSWER = 1 << 20
TIMEOUT_S = 2.0


def status_socket(path: str) -> str:
    """Where the agent's status socket is, by the configuration at ``path``; the default when there is none."""
    try:
        with open(path, "rb") as file:
            text: Optional[bytes] = file.read(config.toml.MAX_BYTES + 1)
    except OSError:
        text = None
    return str(config.load(text, path)[0].socket_path)


def ask(path: str, timeout_s: float = TIMEOUT_S) -> Tuple[Optional[Dict[str, Any]], int]:
    """What the daemon behind the socket answers, and its process; nothing when nobody answers."""
    data = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect(path)
            pid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
            while len(data) <= MAX_ANSWER:
                block = peer.recv(65536)
                if not block:
                    break
                data += block
            answer = json.loads(data.decode("utf-8"))
        except (OSError, ValueError):
            return None, 0
    return (answer, int(pid)) if isinstance(answer, dict) else (None, 0)


def health(found: Dict[str, Any], socket_path: str) -> Dict[str, Any]:
    """The verdict on one look of ``node_info``."""
    unit, slots = found["unit"] or {}, found["slots"] or {}
    slot = slots.get(slots.get("current") or "") or {}
    verdict: Dict[str, Any] = {"ok": False, "running_sha256": None, "slot_sha256": slot.get("sha256"), "why": None}
    if not found["installed"]:
        verdict["why"] = found["reason"]
        return verdict
    if unit.get("active") != "active":
        verdict["why"] = "%s is %s" % (unit.get("name") or "the unit", unit.get("active") or "unknown")
        return verdict
    if found["product"] != PRODUCT:
        verdict["ok"] = True
        return verdict
    answer, pid = ask(socket_path)
    running = (answer or {}).get("running")
    verdict["running_sha256"] = running.get("sha256") if isinstance(running, dict) else None
    verdict["why"] = _why(unit, slot, verdict, pid, socket_path)
    verdict["ok"] = verdict["why"] is None
    return verdict


def _why(unit: Dict[str, Any], slot: Dict[str, Any], verdict: Dict[str, Any], pid: int, path: str) -> Optional[str]:
    if verdict["running_sha256"] is None:
        return "no answer on the status socket %s" % path
    if pid != unit.get("main_pid"):
        return "process %d answers on %s, and the main process of %s is %s" % (
            pid, path, unit.get("name"), unit.get("main_pid"))
    if not slot:
        return "the slots are not in use, so nothing says what should run"
    if verdict["running_sha256"] != slot["sha256"]:
        return "process %d runs %s, and the current slot holds %s" % (pid, verdict["running_sha256"], slot["sha256"])
    return None
