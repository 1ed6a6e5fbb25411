# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in a host as root, apart from everything of ours, and writes down each moment at which an invariant does not hold.

`watching.py SLOTS OUT GRACE_S SHA256…` looks every few milliseconds until `OUT.stop` is there:

- `current`, `good`, `back` and `helper` never name anything but a slot with the bytes of a release that the pins signed (I1, I6);
- the floor never falls (I3);
- `good` never moves to what is not current at that moment (only what is on trial is confirmed);
- no trial outlives its deadline by more than GRACE_S while `current` is at the new slot.

It reads the files by a few lines of its own. Python 3.9, standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Dict, List, Optional, Sequence, Set, Tuple

LINKS = ("current", "good", "back", "helper", "helper.back")
EVERY_S = 0.015


class Watch:
    """What was seen so far."""

    def __init__(self, slots: str, out: str, grace_s: float, allowed: Sequence[str]) -> None:
        self.slots, self.out, self.grace_s, self.allowed = slots, out, grace_s, set(allowed)
        self._digests: Dict[Tuple[int, ...], str] = {}
        self._said: Set[str] = set()
        self._floor = 0
        self._good: Optional[str] = None
        self.looks = 0

    def wrong(self, text: str) -> None:
        """Write a violation down, once."""
        if text not in self._said:
            self._said.add(text)
            with open(self.out, "a", encoding="utf-8") as file:
                file.write(text + "\n")

    def _link(self, name: str) -> Optional[str]:
        try:
            return os.readlink(f"{self.slots}/{name}")
        except OSError:
            return None

    def _digest(self, path: str) -> str:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            key = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if key not in self._digests:
                self._digests[key] = hashlib.sha256(file.read()).hexdigest()
            return self._digests[key]

    def links(self) -> None:
        """What a start runs, or would run after going back, was signed."""
        for name in LINKS:
            slot = self._link(name)
            if slot is None:
                if name in ("current", "good"):
                    self.wrong(f"{name} is gone")
                continue
            if slot not in ("a", "b"):
                self.wrong(f"{name} names {slot}")
                continue
            try:
                digest = self._digest(f"{self.slots}/{slot}")
            except OSError as error:
                self.wrong(f"{name} names {slot}: {error.strerror}")
                continue
            if digest not in self.allowed and self._link(name) == slot:
                self.wrong(f"{name} names {slot}, which holds {digest}")

    def records(self) -> None:
        """The floor, and which slot is good."""
        try:
            with open(f"{self.slots}/update.json", encoding="ascii") as file:
                floor = int(json.load(file)["floor"])
        except (OSError, ValueError, KeyError):
            floor = self._floor
        if floor < self._floor:
            self.wrong(f"the floor fell from {self._floor} to {floor}")
        self._floor = max(floor, self._floor)
        good = self._link("good")
        if self._good is not None and good != self._good and self._link("current") != good:
            self.wrong(f"good moved from {self._good} to {good}, and current is {self._link('current')}")
        self._good = good

    def overdue(self) -> None:
        """A trial that should have ended."""
        try:
            with open(f"{self.slots}/trial", encoding="ascii") as file:
                record = dict(line.partition("=")[::2] for line in file.read().splitlines())
            deadline, slot = int(record["DEADLINE_S"]), record["TO_SLOT"]
        except (OSError, ValueError, KeyError):
            return
        with open("/proc/uptime", encoding="ascii") as file:
            over = float(file.read().split()[0]) - deadline
        if over > self.grace_s and self._link("current") == slot != self._link("good"):
            self.wrong(f"the trial {record['ID']} is alive {self.grace_s:g} s after its deadline")

    def run(self) -> None:
        """Look until told to stop."""
        while not os.path.exists(self.out + ".stop"):
            self.links()
            self.records()
            self.overdue()
            self.looks += 1
            time.sleep(EVERY_S)
        with open(self.out + ".looks", "w", encoding="ascii") as file:
            file.write(str(self.looks))


def main(argv: List[str]) -> None:
    """Watch, as the command line says."""
    Watch(argv[1], argv[2], float(argv[3]), argv[4:]).run()


if __name__ == "__main__":
    main(sys.argv)
