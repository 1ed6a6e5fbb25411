# SPDX-License-Identifier: GPL-3.0-or-later
"""A slots directory in use and at rest, without copies of its records, and the record of a trial for it."""

from __future__ import annotations

import hashlib
import pathlib

from slotcore import product as products
from slotcore import records, trial

BYTES = {"a": b"old", "b": b"new"}
OLD, NEW = (
    records.SlotRecord(version, sequence, hashlib.sha256(BYTES[slot]).hexdigest(), len(BYTES[slot]))
    for slot, version, sequence in (("a", "1.0.0", 1), ("b", "1.1.0", 2))
)
BOOT = "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10"
ID = "00112233445566aa"
TRIAL = trial.Trial(ID, "probe", "1.0.0", "1.1.0", "a", "b", 2, BOOT, 20, 100, 3, "-", OLD.sha256, NEW.sha256)
RECORD = trial.render_trial(TRIAL)


def product(directory: pathlib.Path) -> products.Product:
    """A product with 1.0.0 in slot a, which is current and good, and 1.1.0 in slot b."""
    slots = directory / "slots"
    slots.mkdir()
    for name, content in BYTES.items():
        (slots / name).write_bytes(content)
        (slots / name).chmod(0o755)
    (slots / "current").symlink_to("a")
    (slots / "good").symlink_to("a")
    (slots / "slots.json").write_bytes(records.render_slots({"a": OLD, "b": NEW}))
    (slots / "update.json").write_bytes(records.render_update(records.Update(floor=1)))
    return products.Product("probe", "probe.service", str(directory / "probe"), str(slots))
