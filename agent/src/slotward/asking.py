# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks systemd for the properties of units while this process goes on: the question is put first, the answer taken later.

Rules:
- No `subprocess`: importing it costs as much as the call itself, and this runs at every `update` (DESIGN 9).
- Bounded in time and size; whoever gets no answer goes on without one.
"""

from __future__ import annotations

import os
import select
import time
from typing import Dict, Sequence

UNIT_PROPERTIES = ("ActiveState", "SubState", "MainPID", "NRestarts", "Job")
TIMEOUT_S = 10.0
SIGKILL = 9
"""As `signal` has it, whose import costs more than asking does."""
MAX_OUTPUT = 64 * 1024


class Question:
    """One running `systemctl show`."""

    def __init__(self, *units: str, properties: Sequence[str] = UNIT_PROPERTIES) -> None:
        argv = ["systemctl", "show", "--property=" + ",".join(properties), "--", *units]
        self._units = units
        self._read, write = os.pipe2(os.O_CLOEXEC)
        self._pid = 0
        quiet = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        )
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        try:
            self._pid = os.posix_spawnp(
                argv[0], argv, environment, file_actions=[*quiet, (os.POSIX_SPAWN_DUP2, write, 1)]
            )
        except OSError:
            self._pid = 0  # no systemctl here: there is no answer
        finally:
            os.close(write)

    def answers(self, timeout_s: float = TIMEOUT_S) -> Dict[str, Dict[str, str]]:
        """Each unit's properties by name; empty when systemd did not answer in time. May be called once."""
        text = b""
        until = time.monotonic() + timeout_s
        try:
            while self._pid and len(text) < MAX_OUTPUT:
                left = until - time.monotonic()
                if left <= 0 or not select.select([self._read], [], [], left)[0]:
                    os.kill(self._pid, SIGKILL)
                    break
                block = os.read(self._read, 4096)
                if not block:
                    break
                text += block
        finally:
            os.close(self._read)
            if self._pid:
                os.waitpid(self._pid, 0)
        blocks = text.decode("utf-8", "replace").strip("\n").split("\n\n")
        shown = [dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line) for block in blocks]
        return dict(zip(self._units, shown))
