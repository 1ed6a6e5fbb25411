# SPDX-License-Identifier: GPL-3.0-or-later
"""Children that run tests: what they say goes into a file, and they are waited for, but not for ever."""

from __future__ import annotations

import gc
import importlib
import os
import pathlib
import signal
import sys
import time
from collections.abc import Collection
from typing import Optional

PASSED, FAILED, NO_COLLECTION = 0, 1, 2  # pytest's; other ends are a trouble of whoever runs it
NOT_THERE = (4, 5)  # pytest's: it does not know the name; there is nothing of that name
NOT_ENDED = 70
"""A child of ours that could not say how its tests ended."""

PRELOADED = (
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "hypothesis.strategies",
    "subprocess",
)
"""What most tests need."""


class Trouble(Exception):
    """The run cannot tell what it should."""


def ready(ours: Collection[str]) -> None:
    """What every child needs, once: imports of others' code, and a settled environment; none of `ours` may be loaded."""
    os.environ.pop("PYTEST_ADDOPTS", None)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # so that a child does not copy what it never changes
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & set(ours))
    if loaded:
        raise Trouble(f"{', '.join(loaded)} is loaded already: children would not get what was changed")


def quiet(output: pathlib.Path) -> None:
    """Have this process, a child, say everything into a file."""
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def waited(child: int, until: float) -> Optional[int]:
    """The exit status of `child`, None when it was killed; past its time it is."""
    pause = 0.002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
