# SPDX-License-Identifier: GPL-3.0-or-later
"""How each broken release ended on each host: `build/broken.json` (docs/design/faults.md, section 4).

- A row is written when its test ends, whatever happened: a host that does not run a version that works counts as left without.
- One row for a kind, suite and mode: a later run replaces it, runs at once lose none.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from support import node as nodes

PATH = pathlib.Path(__file__).resolve().parents[2] / "build" / "broken.json"


class Row:
    """What is to be told of one broken release on one host."""

    def __init__(self, kind: str, suite: str, mode: str) -> None:
        self.kind, self.suite, self.mode = kind, suite, mode
        self.ended = ""
        self.recovered_s: float | None = None

    def tell(self, ended: str, recovered_s: float | None) -> None:
        """How it ended, and how long the host had no version that works; None where it always had one."""
        self.ended = ended
        self.recovered_s = None if recovered_s is None else round(recovered_s, 1)

    def as_json(self, works: bool) -> dict[str, Any]:
        """The row."""
        shown = {"kind": self.kind, "suite": self.suite, "mode": self.mode, "ended": self.ended}
        return {**shown, "recovered_s": self.recovered_s, "works": works}


@contextlib.contextmanager
def told(node: nodes.Node, kind: str, mode: str = "", works: Callable[[], bool] | None = None) -> Iterator[Row]:
    """Keep how a release of that kind ends on this host; of a product that is no agent, `mode` and how to see that it works are given."""
    row = Row(kind, node.host.suite, mode or node.mode.name)
    passed = False
    try:
        yield row
        passed = True
    finally:
        row.ended = row.ended if passed else f"the test failed: {row.ended or 'no end was seen'}"
        write(row.as_json(_in_time(works or functools.partial(_agent_works, node))))


def _agent_works(node: nodes.Node) -> bool:
    """What the entrypoint leads to is what was signed and can be run, and the daemon answers."""
    node.runnable()
    return node.running() != ""


def _in_time(works: Callable[[], bool], within_s: float = 15) -> bool:
    """Whether the host has a version that works; a start that is under way is waited for."""
    until = time.monotonic() + within_s
    while True:
        with contextlib.suppress(Exception):
            if works():
                return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.5)


def write(row: dict[str, Any], path: pathlib.Path = PATH) -> None:
    """Put a row into the table, by a rename."""
    path.parent.mkdir(exist_ok=True)
    with open(path.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows: list[dict[str, Any]] = []
        with contextlib.suppress(OSError, ValueError, KeyError):
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        key = ("kind", "suite", "mode")
        kept = [one for one in rows if any(one[name] != row[name] for name in key)]
        rows = sorted([*kept, row], key=lambda one: [one[name] for name in key])
        table = {"hosts_left_without": sum(not one["works"] for one in rows), "rows": rows}
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        beside.rename(path)
