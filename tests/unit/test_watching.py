# SPDX-License-Identifier: GPL-3.0-or-later
"""Who watches the enemy sees what must not be: each violation is made here and has to be told."""

from __future__ import annotations

import hashlib
import json
import pathlib

import pytest
from support import watching

GOOD, NEXT, EVIL = b"good", b"next", b"evil"


class Slots:
    """A slots directory to spoil."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root / "slots"
        self.root.mkdir()
        self.out = root / "seen"
        for slot, data in (("a", GOOD), ("b", NEXT)):
            (self.root / slot).write_bytes(data)
        for name in ("current", "good"):
            self.link(name, "a")
        self.floor(3)
        allowed = [hashlib.sha256(data).hexdigest() for data in (GOOD, NEXT)]
        self.watch = watching.Watch(str(self.root), str(self.out), 35, allowed)

    def link(self, name: str, to: str) -> None:
        """Point a link."""
        (self.root / name).unlink(missing_ok=True)
        (self.root / name).symlink_to(to)

    def floor(self, number: int) -> None:
        """Write the floor."""
        (self.root / "update.json").write_text(json.dumps({"floor": number}))

    def trial(self, deadline: float) -> None:
        """A trial with that deadline."""
        (self.root / "trial").write_text(f"ID=00112233445566aa\nTO_SLOT=b\nDEADLINE_S={deadline:.0f}\n")

    def seen(self) -> str:
        """What is told after another look."""
        self.watch.links()
        self.watch.records()
        self.watch.overdue()
        return self.out.read_text() if self.out.exists() else ""


@pytest.fixture
def slots(tmp_path: pathlib.Path) -> Slots:
    """Slots at rest."""
    return Slots(tmp_path)


def uptime() -> float:
    """Seconds since boot."""
    return float(pathlib.Path("/proc/uptime").read_text().split()[0])


def test_a_whole_update_is_nothing_to_tell(slots: Slots) -> None:
    """Swap, trial, confirmation, and a higher floor."""
    assert slots.seen() == ""
    slots.link("back", "a")
    slots.trial(uptime() + 5)
    slots.link("current", "b")
    assert slots.seen() == ""
    slots.link("good", "b")
    slots.floor(4)
    assert slots.seen() == ""
    assert slots.watch.looks == 0


@pytest.mark.parametrize("name", ["current", "good", "back", "helper"])
def test_bytes_that_nobody_signed_are_told(slots: Slots, name: str) -> None:
    """Whichever link leads to them."""
    slots.seen()
    (slots.root / "b").write_bytes(EVIL)
    if name == "good":
        slots.link("current", "b")
    slots.link(name, "b")
    assert f"{name} names b, which holds {hashlib.sha256(EVIL).hexdigest()}" in slots.seen()


def test_a_link_that_leads_elsewhere_is_told(slots: Slots) -> None:
    """Out of the slots, or nowhere."""
    slots.link("helper", "/bin/sh")
    (slots.root / "good").unlink()
    told = slots.seen()
    assert "helper names /bin/sh" in told
    assert "good is gone" in told


def test_a_floor_that_falls_is_told(slots: Slots) -> None:
    """By one."""
    slots.seen()
    slots.floor(2)
    assert slots.seen() == "the floor fell from 3 to 2\n"


def test_good_that_moves_to_what_is_not_current_is_told(slots: Slots) -> None:
    """A confirmation of what does not run."""
    slots.seen()
    slots.link("good", "b")
    assert slots.seen() == "good moved from a to b, and current is a\n"


def test_a_trial_that_outlives_the_watchdog_is_told(slots: Slots) -> None:
    """Not before the deadline and its grace, and not when the link has gone back already."""
    slots.link("current", "b")
    slots.trial(uptime() - 30)
    assert slots.seen() == ""
    slots.trial(uptime() - 40)
    assert "the trial 00112233445566aa is alive 35 s after its deadline" in slots.seen()
