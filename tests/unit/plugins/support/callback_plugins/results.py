# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes every task's result as one JSON line to RESULTS_FILE."""

from __future__ import annotations

DOCUMENTATION = """
name: results
type: aggregate
short_description: results as JSON lines
description: For tests.
version_added: 0.1.0
author: The Slotward maintainers
"""

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible has no types
    """One line for each end of a task on a host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "results"

    def _note(self, kind: str, result: Any) -> None:
        data = json.loads(self._dump_results(result._result))
        line = {"kind": kind, "host": result._host.get_name(), "task": result._task.get_name(), "result": data}
        with open(os.environ["RESULTS_FILE"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def v2_runner_on_ok(self, result: Any) -> None:
        """Well."""
        self._note("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Not well."""
        self._note("failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Not reached."""
        self._note("unreachable", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Not run."""
        self._note("skipped", result)
