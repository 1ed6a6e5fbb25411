# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe that reads a unit's journal: no line since the trial began may match (products.md, section 5).

Rules:
- From when on is told by the journal's own count within this boot; the wall clock is asked for nothing (I10).
- Each line is read once, in order, and not more of them at a time than a bound: what is left is read by the next look.
- A line that matched stays: the trial is not forgiven it. What the version before said, as while it was stopped, is not
  the new one's; nor is what an update says of the unit, which may be what was matched.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, List, Mapping, NamedTuple, Tuple

from slotcore import product as products
from slotward import probe_kinds, systemd, waits

MAX_READ = 4 << 20
MAX_LINE = 16 * 1024
FIRST_LINES = 5000
_EVENT = "SLOTWARD_EVENT"
_FIELDS = f"MESSAGE,_SYSTEMD_INVOCATION_ID,INVOCATION_ID,_SYSTEMD_UNIT,{_EVENT}"


class Since(NamedTuple):
    """From when on lines count, and of which run of the product's unit none does."""

    monotonic_us: int
    not_of: str = ""


def bounded(argv: List[str], timeout_s: float) -> Tuple[bytes, int]:
    """What a command writes, not more than the bound and one byte, and how it ended."""
    data = b""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=systemd.environment()
    ) as process:
        timer = waits.Timer(timeout_s, process.kill)
        try:
            data = process.stdout.read(MAX_READ + 1) if process.stdout is not None else data
        finally:
            timer.cancel()
            if len(data) > MAX_READ:
                process.kill()
    return data, process.returncode


def message_of(entry: Mapping[str, Any]) -> str:
    """The text of an entry; what is no text is an array of bytes, and more than one message is one after the other."""
    found = entry.get("MESSAGE")
    parts = [found]
    if isinstance(found, list) and not all(isinstance(one, int) for one in found):
        parts = found
    return "\n".join(map(_text, parts))[:MAX_LINE]


def _text(part: object) -> str:
    if isinstance(part, list):
        return bytes(one & 0xFF for one in part if isinstance(one, int)).decode("utf-8", "replace")
    return part if isinstance(part, str) else ""


class Reader:
    """Reads on in one unit's journal."""

    def __init__(self, probe: products.Probe, product: products.Product, since: Since) -> None:
        self._unit = probe.unit or product.unit
        self._not_of = since.not_of if self._unit == product.unit else ""
        self._since = since
        self._timeout_s = probe.timeout_s
        self._pattern = re.compile(probe.pattern)
        self._cursor = ""
        self._matched = ""

    def look(self) -> probe_kinds.Said:
        """Read what is new."""
        if self._matched:
            return False, self._matched
        argv = ["journalctl", "--quiet", "--no-pager", "--boot", f"--unit={self._unit}", "--output=json", "--all"]
        argv += [f"--output-fields={_FIELDS}"]
        argv += [f"--after-cursor={self._cursor}"] if self._cursor else [f"--lines={FIRST_LINES}"]
        try:
            data, status = bounded(argv, self._timeout_s)
        except OSError as error:
            return False, f"cannot run journalctl: {error.strerror}"
        for line in data[:MAX_READ].split(b"\n")[:-1]:
            self._take(line)
        return self._judge(len(data), status)

    def _judge(self, length: int, status: int) -> probe_kinds.Said:
        if self._matched:
            return False, self._matched
        if length > MAX_READ:
            return False, f"the journal of {self._unit} grows faster than it is read"
        if status != 0:
            return False, f"journalctl ended with status {status}, or not within {self._timeout_s} s"
        return True, f"no line of {self._unit} matches"

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            cursor, at_us = str(entry["__CURSOR"]), int(entry["__MONOTONIC_TIMESTAMP"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        self._cursor = cursor
        run = entry.get("_SYSTEMD_INVOCATION_ID") or entry.get("INVOCATION_ID")
        if self._matched or at_us < self._since.monotonic_us or (self._not_of and run == self._not_of):
            return
        if _EVENT in entry and entry.get("_SYSTEMD_UNIT") != self._unit:
            return
        said = message_of(entry)
        if self._pattern.search(said):
            self._matched = f"{self._unit} said {said[: probe_kinds.MOST_SAID]!r}"
