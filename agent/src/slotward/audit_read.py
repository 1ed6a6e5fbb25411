# SPDX-License-Identifier: GPL-3.0-or-later
"""All of the audit log, and whether its chain holds (trust.md, section 5).

Rules:
- Reading changes nothing and takes no lock: what is appended meanwhile is seen or not; a file that is closed meanwhile
  makes the reader begin again.
- Lines after a fault are shown, and believed by nobody.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from slotcore import audit, audit_chain, codes
from slotward import audit_file, audit_tail

ROUNDS = 3


class Fault(NamedTuple):
    """Where the chain breaks: the file, the line in it counted from 1 (0: the file as a whole), and why."""

    file: str
    line: int
    why: str


class Report(NamedTuple):
    """The lines in their order, the chain up to the first fault, and what was cut at the end and is healed by itself."""

    lines: List[bytes]
    chain: audit_chain.Chain
    holds: int
    """How many of the lines are before the fault."""
    torn: int
    fault: Optional[Fault]
    files: List[str]


class _Reader:
    def __init__(self) -> None:
        self.lines: List[bytes] = []
        self.chain = audit_chain.Chain(0, audit.EMPTY)
        self.holds = 0
        self.torn = 0
        self.fault: Optional[Fault] = None

    def _file(self, directory: str, name: str) -> None:
        path = audit_file.path_of(directory, name)
        try:
            data = audit_file.read_file(path)
        except codes.BrokenAudit as broken:
            self._broken(path, 0, broken.why.removesuffix(audit_tail.WAY_OUT))
            return
        if len(data) > audit_file.MAX_READ:
            self._broken(path, 0, f"it is larger than {audit_file.MAX_READ} bytes, which is never written")
        *lines, rest = data.split(b"\n")
        if name == audit_chain.NAME:
            self.torn, lines = _torn(lines, rest)
        elif rest:
            self._broken(path, len(lines) + 1, "a closed file ends in the middle of a line")
        self.lines += lines
        if self.fault is None:
            self._follow(path, name, lines)

    def _follow(self, path: str, name: str, lines: List[bytes]) -> None:
        found = audit_chain.verify(lines, self.chain)
        if isinstance(found, audit_chain.Fault):
            part = audit_chain.verify(lines[: found.line - 1], self.chain)
            self.chain = part if isinstance(part, audit_chain.Chain) else self.chain
            self.holds += found.line - 1
            self._broken(path, found.line, found.why)
            return
        first = audit.parse(lines[0]).number if lines else 0
        self.chain, self.holds = found, self.holds + len(lines)
        if name not in (audit_chain.NAME, audit_chain.closed_name(first)):
            self._broken(path, 1, f"its first line is number {first}, its name says another")

    def _broken(self, path: str, line: int, why: str) -> None:
        self.fault = self.fault or Fault(path, line, why)

    def read(self, directory: str, names: List[str]) -> Report:
        """Read these files in their order."""
        for name in names:
            self._file(directory, name)
        return Report(self.lines, self.chain, self.holds, self.torn, self.fault, names)


def _torn(lines: List[bytes], rest: bytes) -> Tuple[int, List[bytes]]:
    """What the next append cuts off, as audit_tail says, and the lines before it."""
    torn = len(rest)
    while lines and b"\0" in lines[-1]:
        torn += len(lines[-1]) + 1
        lines = lines[:-1]
    return torn, lines


def read(directory: str) -> Report:
    """Read the whole log; none at all is an empty chain. Raises OSError for what cannot be read."""
    for rounds_left in reversed(range(ROUNDS)):
        try:
            names = audit_file.names(directory)
        except FileNotFoundError:
            return _Reader().read(directory, [])
        try:
            report = _Reader().read(directory, names)
        except FileNotFoundError:
            if not rounds_left:
                raise
            continue
        if audit_file.names(directory) == names or not rounds_left:
            return report
    raise AssertionError("unreachable: the last round returns or raises")


def holds_head(report: Report, head: str) -> bool:
    """Whether a head that was seen earlier is still in the chain, or is what its first line follows."""
    lines = report.lines[: report.holds]
    if head == audit.ZEROS or any(audit.hash_of(line) == head for line in lines):
        return True
    return bool(lines) and audit.parse(lines[0]).prev == head


def facts(directory: str) -> audit_chain.Facts:
    """What the log proves to a repair: only the part that holds is believed, and only a whole chain proves a floor."""
    try:
        report = read(directory)
    except OSError:
        return audit_chain.facts([])
    found = audit_chain.facts(report.lines[: report.holds])
    return found if report.fault is None else found._replace(whole=False)
