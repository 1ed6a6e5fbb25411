# SPDX-License-Identifier: GPL-3.0-or-later
"""What `S/snapshot` says: a release on trial may have changed the data, a copy of it as it was is kept (products.md, section 6).

Rules:
- The guard writes it before the first start of such a release, and removes it once the data is restored; confirming
  removes it before `good` moves. While it is there and no trial is pending, the data is still to be restored.
- It has `KEY=value` lines; of each restore that failed a line `FAILED=<uptime>` is appended, the last of which may be torn.
- One that says neither whose copy it is nor where the release is counts as a restore that fails.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from . import codes, records
from . import product as products
from . import settle as settles
from . import trial as trials

NAME = "snapshot"
SNAPSHOT, RESTORE = "snapshot", "restore"

_LINE = re.compile(r"(ID|TO_SLOT|FROM_VERSION|TO_VERSION|FAILED)=(.*)")
_ID = re.compile(r"[0-9a-f]{16}")


class Kept(NamedTuple):
    """Of which trial, which slot's release may have changed the data, and how often restoring it has failed."""

    trial_id: str
    to_slot: str
    from_version: str = ""
    to_version: str = ""
    failures: int = 0


def parse(data: bytes) -> Optional[Kept]:
    """What the file says; None when nobody knows whose copy it is."""
    found = {"ID": "", "TO_SLOT": "", "FROM_VERSION": "", "TO_VERSION": ""}
    failures = 0
    for line in data.decode("ascii", "replace").split("\n")[:-1]:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        if match.group(1) == "FAILED":
            failures += 1
        else:
            found[match.group(1)] = match.group(2)
    if _ID.fullmatch(found["ID"]) is None or found["TO_SLOT"] not in products.SLOTS:
        return None
    return Kept(found["ID"], found["TO_SLOT"], found["FROM_VERSION"], found["TO_VERSION"], failures)


def is_due(state: settles.State) -> bool:
    """Whether the data is to be restored before the next start, as the guard sees it."""
    if state.snapshot is None or state.confirm is not None:
        return False
    kept = parse(state.snapshot)
    return kept is None or state.current != kept.to_slot


def has_failed(state: settles.State) -> bool:
    """Whether it is still to be restored, and restoring it has failed: the unit does not start."""
    if state.snapshot is None or not is_due(state):
        return False
    kept = parse(state.snapshot)
    return kept is None or kept.failures > 0


def pending(product: products.Product, state: settles.State) -> Optional[codes.Refusal]:
    """Why no release can be swapped to now: the data of the version before was not restored yet."""
    if state.snapshot is None:
        return None
    path = product.path(NAME)
    return codes.Refusal(
        codes.RESTORE_PENDING,
        f"the data of {product.name} is still to be restored, as {path} says: a start of {product.unit} does that "
        f"(`systemctl restart {product.unit}`, and its journal has why it failed), "
        f"or remove {path} to go on with the data as it is",
    )


def epoch(state: settles.State) -> int:
    """Of the data that what runs has left."""
    known = state.slots.get(state.current or "")
    return known.epoch if known is not None else 0


def is_kept(product: products.Product, old_epoch: int, new_epoch: int) -> bool:
    """Whether a trial keeps the data before its release's first start."""
    hook = product.hook(SNAPSHOT)
    return hook is not None and product.hook(RESTORE) is not None and (hook.always or old_epoch != new_epoch)


def one_way(
    product: products.Product, state: settles.State, record: records.SlotRecord, running: str
) -> Optional[codes.Refusal]:
    """Why the release cannot be undone: its data has another format, and nothing keeps the old one."""
    old_epoch, new_epoch = epoch(state), record.epoch
    if old_epoch == new_epoch or is_kept(product, old_epoch, new_epoch):
        return None
    return codes.Refusal(
        codes.CANNOT_BE_UNDONE,
        f"{product.name} {record.version} has data of epoch {new_epoch}, and {running} that runs has epoch {old_epoch}: going back "
        f"could leave data that {running} does not read; describe [hook-snapshot] and [hook-restore], or agree with --accept-one-way",
    )


def left_behind(product: products.Product, state: settles.State, trial: Optional[trials.Trial], code: str) -> str:
    """What is said besides of an end that goes back without the data: that the version before may not read it."""
    if trial is None or code in (codes.OK, codes.NEVER_STARTED):
        return ""
    old, new = state.slots.get(trial.from_slot), state.slots.get(trial.to_slot)
    if old is None or new is None or old.epoch == new.epoch or is_kept(product, old.epoch, new.epoch):
        return ""
    return f"; data of epoch {new.epoch} stays, which {trial.from_version} with epoch {old.epoch} may not read"
