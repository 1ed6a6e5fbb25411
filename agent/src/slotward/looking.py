# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at this host, as `update --json` answers it; changes nothing and takes no lock."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from slotcore import records, status
from slotward import asking, build_info, host, lock, own


def ask(unit: str) -> asking.Question:
    """Ask systemd about the unit; the answer is taken when the look is made."""
    return asking.Question(unit, status.UNIT_PROPERTIES)


def running(slots: Mapping[str, records.SlotRecord], current: str) -> Tuple[str, int]:
    """What this host runs: the current slot's record, else this very program."""
    entry = slots.get(current)
    if entry is not None:
        return entry.version, entry.sequence
    return build_info.VERSION, build_info.SEQUENCE


def look(setup: own.Setup, question: asking.Question) -> Dict[str, Any]:
    """The answer of `update --json`, from one look."""
    product = setup.product
    state = host.read_state(product)
    version, sequence = running(state.slots, state.current or "")
    unit = status.unit_of(question.answer())
    seen = status.Host(version, sequence, unit, lock.holder(product), setup.problems)
    return status.as_json(product, state, host.clock(), seen)
