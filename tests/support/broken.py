# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed-but-broken releases: of the agent, each a real build with one file laid over it, or other bytes altogether; and of a shell daemon.

- `by` says who can catch it: `look` by prepare's or the smoke test's look at the bytes, `trial` by the trial alone, `nobody` where
  its trial may well be confirmed.
- What they do is text in `tests/support/misdeeds.py`; how each of them ended is kept by `tests/support/outcomes.py`.
"""

from __future__ import annotations

import hashlib
import pathlib
from typing import Callable, NamedTuple, Optional

from support import misdeeds


class Broken(NamedTuple):
    """One kind of broken release."""

    name: str
    by: str
    """`look`: refused before the switch, and caught by the trial when that look is switched off; `trial` alone; or `nobody`."""
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
    body: Optional[str] = None
    """What a daemon of an operator's does that is broken in the same way, where that ends otherwise than for the agent."""
    body_codes: tuple[str, ...] = ()
    """The codes that the trial of that daemon may end with."""


def noise(data: bytes) -> bytes:
    """Bytes that are no program, the same length, the same each time."""
    block = hashlib.sha256(b"not a program").digest()
    return (block * (len(data) // len(block) + 1))[: len(data)]


def other_interpreter(data: bytes) -> bytes:
    """The same program for an interpreter that no host has."""
    return data.replace(b"#!/usr/bin/python3 -I\n", b"#!/opt/missing/py -I \n", 1)


LATE = ("deadline-passed",)
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
    Broken("unconfirmed", "trial", "", LATE),
    Broken("slow-start", "nobody", "", (), node="import time\ntime.sleep(12)\n"),
    Broken("too-slow", "trial", "", LATE, node="import time\ntime.sleep(25)\n"),
    Broken(
        "forks-and-exits",
        "trial",
        "",
        ("crash-loop",),
        node=misdeeds.FORKS,
        body=misdeeds.SHELL_FORKS,
        body_codes=("unit-stopped",),
    ),
    Broken("ignores-sigterm", "trial", "", LATE, node=misdeeds.DEAF, body=misdeeds.SHELL_DEAF, body_codes=LATE),
    Broken("extends-its-stop", "trial", "", LATE, node=misdeeds.EXTENDS),
    Broken("closes-its-sockets", "trial", "", LATE, node=misdeeds.WITHOUT_SOCKETS),
    Broken("eats-memory", "trial", "", ("crash-loop",), node=misdeeds.EATS),
    Broken("fills-the-disk", "trial", "", ("crash-loop",), node=misdeeds.FILLS),
    Broken("spins", "trial", "", LATE, node=misdeeds.SPINS),
    Broken("crashes-once-confirmed", "nobody", "", (), node=misdeeds.ONCE_GOOD, body=misdeeds.SHELL_ONCE_GOOD),
    Broken("crashes-every-second-start", "nobody", "", (), node=misdeeds.EVERY_SECOND),
    Broken(
        "changes-its-files",
        "trial",
        "",
        LATE,
        node=misdeeds.OWN_FILES,
        body=misdeeds.SHELL_OWN_FILES,
        body_codes=LATE,
    ),
    Broken("sets-the-clock", "trial", "", LATE, node=misdeeds.CLOCK),
    Broken(
        "writes-the-records",
        "trial",
        "",
        LATE,
        node=misdeeds.RECORDS,
        body=misdeeds.SHELL_RECORDS,
        body_codes=("bad-record",),
    ),
    Broken("removes-the-guard", "trial", "", LATE, node=misdeeds.NO_GUARD, body=misdeeds.SHELL_NO_GUARD),
    Broken("acts-as-root", "trial", "", LATE, node=misdeeds.AS_ROOT),
)


def named(name: str) -> Broken:
    """The kind of that name."""
    return next(kind for kind in KINDS if kind.name == name)


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
