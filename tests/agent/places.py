# SPDX-License-Identifier: GPL-3.0-or-later
"""A slots directory of a real host, for what the agent makes of broken records: real files, a systemctl of ours."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib

import pytest

from slotcore import audit, recording, records, settle, trial
from slotcore import product as products
from slotward import host

BYTES = {"a": b"abc", "b": b"defg"}
DIGEST = {slot: hashlib.sha256(data).hexdigest() for slot, data in BYTES.items()}
OLD = records.SlotRecord("1.0.0", 1, DIGEST["a"], 3)
NEW = records.SlotRecord("1.1.0", 2, DIGEST["b"], 4, 1_800_000_000)
UPDATE = records.render_update(records.Update(floor=7))
SLOTS = records.render_slots({"a": OLD, "b": NEW})
BOOT = "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10"
TRIAL_ID = "00112233445566aa"
TRIAL = trial.Trial(TRIAL_ID, "probe", "1.0.0", "1.1.0", "a", "b", 2, BOOT, 20, 100, 0, "-", DIGEST["a"], DIGEST["b"])
RECORD = trial.render_trial(TRIAL)


class Place:
    """A slots directory in use and at rest, with copies of its records, and a systemctl of ours."""

    def __init__(self, root: pathlib.Path, slots: pathlib.Path) -> None:
        self.root, self.slots = root, slots
        slots.mkdir()
        for name, data in BYTES.items():
            (slots / name).write_bytes(data)
            (slots / name).chmod(0o755)
        self.link("current", "a")
        self.link("good", "a")
        for name, data in ((recording.SLOTS, SLOTS), (recording.UPDATE, UPDATE)):
            self.write(name, data)
            self.write(name + recording.COPY, recording.sealed(data))
        self.product = products.Product("probe", "probe.service", str(root / "probe"), str(slots))

    def write(self, name: str, data: bytes) -> None:
        """A plain file of root's, whatever the umask."""
        (self.slots / name).write_bytes(data)
        (self.slots / name).chmod(0o644)

    def link(self, name: str, target: str) -> None:
        """Point a link."""
        (self.slots / name).unlink(missing_ok=True)
        (self.slots / name).symlink_to(target)

    def on_trial(self, record: bytes = RECORD) -> None:
        """A trial without boots left, of another boot: it is over at once."""
        self.write("trial.log", trial.LOG_HEADER + b"start 10\n")
        self.write("trial", record)
        self.link("back", "a")
        self.link("current", "b")

    def names(self) -> set[str]:
        """What is in the directory, whatever it is."""
        return {entry.name for entry in os.scandir(self.slots)}

    def aside(self, name: str) -> list[str]:
        """What was set aside of that record."""
        return [entry for entry in sorted(self.names()) if entry.startswith(name + settle.ASIDE)]

    def state(self) -> settle.State:
        """What the agent reads."""
        return host.read_state(self.product)

    def noted(self) -> list[audit.Event]:
        """What the audit log says."""
        lines = (self.slots / "audit.log").read_bytes().splitlines()
        return [audit.parse(line).event for line in lines]

    def calls(self) -> str:
        """What systemd was asked."""
        return (self.root / "calls").read_text()


def fill(place: Place) -> None:
    """Use up every byte and every inode."""
    top = place.slots.parent
    with contextlib.suppress(OSError), (top / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 512)
    with contextlib.suppress(OSError):
        for number in range(1000):
            (top / f"inode{number}").touch()
    with pytest.raises(OSError, match="No space"):
        (top / "one-more").touch()
