# SPDX-License-Identifier: GPL-3.0-or-later
"""A product of layout `versions` in a directory: adopted, staged, swapped and confirmed by the agent's own code, without systemd."""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Dict, List, Optional

from support import tars

from slotcore import ops, plans, records, settle
from slotcore import product as products
from slotward import effects, executor, manager, placing, trial_ids

PROGRAM = b"#!/bin/sh\nexec sleep 60\n"


def archive(program: bytes, **more: bytes) -> bytes:
    """A release as it is packed: below one directory, with files beside the program; `_` stands for a slash."""
    members = [tars.member(b"app-1/" + name.replace("_", "/").encode(), data) for name, data in more.items()]
    return tars.packed(tars.member(b"app-1/app", program, mode=b"0000755\0"), *members)


class Grove:
    """The directory and its product."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.slots = root, root / "slots"
        self.slots.mkdir(mode=0o755)
        self.entrypoint = root / "bin" / "app"
        self.entrypoint.parent.mkdir(mode=0o755)
        self.product = products.Product(
            "app", "app.service", str(self.entrypoint), str(self.slots), layout=products.VERSIONS, program="app", keep=2
        )

    def record(self, version: str, data: bytes, sequence: int = 0) -> records.SlotRecord:
        """What a release's manifest says of these bytes."""
        return records.SlotRecord(version, sequence, hashlib.sha256(data).hexdigest(), len(data), channel="stable")

    def adopt(self, version: str = "1.0.0", data: bytes = PROGRAM) -> manager.Look:
        """Put a file at the entrypoint and adopt it."""
        self.entrypoint.unlink(missing_ok=True)
        self.entrypoint.write_bytes(data)
        self.entrypoint.chmod(0o755)
        with open(self.entrypoint, "rb") as file:
            record = self.record(version, data)
            return placing.adopt(self.product, manager.look(self.product), record, file.fileno())

    def stage(self, version: str, data: bytes, sequence: int, kind: str = ops.ARCHIVE) -> manager.Release:
        """Bring a release into the free slot."""
        record = self.record(version, data, sequence)
        release = manager.Release(version, record, 0, "-", trial_ids.new(), kind=kind)
        (self.root / "staged").write_bytes(data)
        with open(self.root / "staged", "rb") as file:
            placing.fill_free_slot(self.product, manager.look(self.product), release, file.fileno())
        return release

    def swap(self, release: manager.Release) -> None:
        """Begin its trial; there is no timer, and nothing is restarted."""
        seen = manager.look(self.product)
        pending = manager._trial_of(self.product, seen, release)

        def nothing(*_arguments: object) -> None:
            return

        acting = executor.Executor(*[nothing] * 8)
        acting.apply(plans.plan_swap(self.product, pending), "swap")

    def upgrade(self, version: str, data: bytes, sequence: int, kind: str = ops.ARCHIVE) -> None:
        """All of it, to the confirmation."""
        self.swap(self.stage(version, data, sequence, kind))
        manager.confirm(self.product, manager.look(self.product))

    def state(self) -> settle.State:
        """What is there."""
        return manager.look(self.product).state

    def link(self, name: str) -> str:
        """What a link names."""
        return os.readlink(self.slots / name)

    def trees(self) -> List[str]:
        """The names among the trees, listings left out."""
        return sorted(name for name in os.listdir(self.slots / "versions") if not name.endswith(ops.LISTING))

    def files(self, version: str) -> Dict[str, bytes]:
        """The files of a tree."""
        top = self.slots / "versions" / version
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}

    def apply(self, *plan: ops.Operation, sources: Optional[Dict[str, int]] = None) -> None:
        """Carry out operations as the agent does."""
        effects.executor_for(self.product, sources or {}).apply(plan, "test")
