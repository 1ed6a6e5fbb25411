# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible callback for demo, bench and tests: every task's result for every host, as lines of JSON."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record_results
type: notification
short_description: Write every result as a line of JSON
description:
  - Writes to the file named by the environment variable SLOTWARD_RECORD.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible has no types
    """Writes one line for each result: host, task, action, how it ended, seconds since the task began, the result."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "record_results"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._path = os.environ.get("SLOTWARD_RECORD", "")
        self._began: dict[str, float] = {}

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Remember when the task began."""
        del is_conditional
        self._began[task._uuid] = time.monotonic()

    def _write(self, outcome: str, result: Any) -> None:
        if not self._path:
            return
        task = result._task
        row = {
            "host": result._host.get_name(),
            "task": task.get_name(),
            "action": task.action,
            "outcome": outcome,
            "seconds": round(time.monotonic() - self._began.get(task._uuid, time.monotonic()), 3),
            "result": {key: value for key, value in result._result.items() if not key.startswith("_ansible")},
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=str) + "\n")

    def v2_runner_on_ok(self, result: Any) -> None:
        """Note a result."""
        self._write("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Note a failure."""
        del ignore_errors
        self._write("failed", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Note a result."""
        self._write("skipped", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Note a result."""
        self._write("unreachable", result)
