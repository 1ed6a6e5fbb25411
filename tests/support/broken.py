# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed-but-broken releases of the agent: each is a real build with one file laid over it, or other bytes altogether.

`by` says who can catch it: `look` by prepare's or the smoke test's look at the bytes, `trial` by the trial alone.
"""

from __future__ import annotations

import hashlib
import pathlib
from typing import Callable, NamedTuple, Optional


class Broken(NamedTuple):
    """One kind of broken release."""

    name: str
    by: str
    """`look`: refused before the switch, and caught by the trial when that look is switched off; or `trial` alone."""
    code: str
    """The refusal's code when the look catches it."""
    trial_codes: tuple[str, ...]
    """The codes that its trial may end with."""
    overlay: Optional[str] = None
    """Text of `__main__.py` instead of the real one."""
    node: Optional[str] = None
    """Text put at the start of the node's run, in the real program."""
    mangle: Optional[Callable[[bytes], bytes]] = None
    """What is done to the finished bytes."""


def noise(data: bytes) -> bytes:
    """Bytes that are no program, the same length, the same each time."""
    block = hashlib.sha256(b"not a program").digest()
    return (block * (len(data) // len(block) + 1))[: len(data)]


def other_interpreter(data: bytes) -> bytes:
    """The same program for an interpreter that no host has."""
    return data.replace(b"#!/usr/bin/python3 -I\n", b"#!/opt/missing/py -I \n", 1)


KINDS = (
    Broken("exit1", "look", "smoke-test-failed", ("crash-loop",), overlay="import sys\nsys.exit(1)\n"),
    Broken("exit0", "look", "smoke-test-failed", ("crash-loop",), overlay="import sys\nsys.exit(0)\n"),
    Broken(
        "hang",
        "look",
        "smoke-test-failed",
        ("deadline-passed",),
        overlay="import time\nwhile True:\n    time.sleep(60)\n",
    ),
    Broken("noise", "look", "not-executable", ("crash-loop",), mangle=noise),
    Broken("interpreter", "look", "no-interpreter", ("crash-loop",), mangle=other_interpreter),
    Broken(
        "crash-late",
        "trial",
        "",
        ("crash-loop", "deadline-passed"),
        node="import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(5), os._exit(3)), daemon=True).start()\n",
    ),
    Broken("crash-at-start", "trial", "", ("crash-loop",), node="import sys\nsys.exit(1)\n"),
    Broken("exit0-at-start", "trial", "", ("crash-loop",), node="import sys\nsys.exit(0)\n"),
    Broken("hang-at-start", "trial", "", ("deadline-passed",), node="import time\nwhile True:\n    time.sleep(60)\n"),
    Broken("unconfirmed", "trial", "", ("deadline-passed",)),
)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lay_over(kind: Broken, directory: pathlib.Path) -> Optional[pathlib.Path]:
    """Write the files that `agent/build.py --extra` lays over the real ones; None when there are none."""
    if kind.overlay is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "__main__.py").write_text(kind.overlay, encoding="utf-8")
        return directory
    if kind.node is not None:
        real = (ROOT / "agent" / "src" / "slotward" / "node.py").read_text(encoding="utf-8")
        head, mark, tail = real.partition('    """Run the daemon until it is told to stop."""\n')
        if not mark:
            raise AssertionError("node.run has lost its docstring: the broken releases need it to find their place")
        text = head + mark + "".join(f"    {line}\n" for line in kind.node.splitlines()) + tail
        (directory / "slotward").mkdir(parents=True, exist_ok=True)
        (directory / "slotward" / "node.py").write_text(text, encoding="utf-8")
        return directory
    return None
