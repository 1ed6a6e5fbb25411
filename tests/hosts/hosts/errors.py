# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong with a test host, as errors whose text is one line and names the way out."""

from __future__ import annotations

import subprocess


class HostError(Exception):
    """A test host, or the machine under it, is not in the state that was asked for."""


class CommandFailed(HostError):
    """A command in a host ended with a non-zero code (or, with code None, not in time)."""

    def __init__(self, where: str, command: str, result: subprocess.CompletedProcess[str]) -> None:
        said = (result.stderr or result.stdout or "").strip()
        super().__init__(f"{where}: {command!r} ended with {result.returncode}: {said[-2000:]}")
        self.result = result


class CommandTimeout(HostError):
    """A command did not end within its time and was killed."""
