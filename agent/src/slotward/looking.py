# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at this host, as `update --json` answers it; changes nothing and takes no lock."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from slotcore import product as products
from slotcore import records, settle, status
from slotward import asking, audit_tail, build_info, clearable, hand, host, lock, own

REPAIR = "slotward update --repair"
SETTLE = "slotward settle"
CHAIN = "slotward trust apply FILE ... (every key set from the first on)"


def running(slots: Mapping[str, records.SlotRecord], current: str) -> Tuple[str, int]:
    """What this host runs: the current slot's record, else this very program."""
    entry = slots.get(current)
    if entry is not None:
        return entry.version, entry.sequence
    return build_info.VERSION, build_info.SEQUENCE


def version_of(setup: own.Setup, state: settle.State) -> Tuple[str, int]:
    """As `running`; another daemon's program is not run to answer this."""
    if not setup.is_agent and state.current not in state.slots:
        return "unknown", 0
    return running(state.slots, state.current or "")


def _aside(product: products.Product) -> Tuple[str, ...]:
    """What was set aside; most hosts have nothing, and pay for no more than the look."""
    try:
        if not any(settle.ASIDE in name for name in os.listdir(product.slots_dir)):
            return ()
    except OSError:
        return ()
    from slotward import broken

    return tuple(name.rstrip("/") for name in broken.aside(product))


def _unread(product: products.Product) -> List[str]:
    """What lies in the slots directory and is not for this account to read, so that its part of the answer is null."""
    if os.geteuid() == 0:
        return []
    paths = [product.path(name) for name in ("lock", audit_tail.NAME)]
    return [path for path in paths if os.path.exists(path) and not os.access(path, os.R_OK)]


def _probes(product: products.Product) -> Optional[Dict[str, Any]]:
    """Where probing stands, of a product that probes confirm."""
    if "probe" not in product.confirm_sources:
        return None
    from slotward import probe_store

    return probe_store.report(product)


def _progress(product: products.Product, answer: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """How far an update is; most looks find none, and pay for no more than that."""
    if answer["pending"] == "none" and not os.path.lexists(product.path("progress.json")):
        return None
    from slotward import progress_file

    return progress_file.shown(product, answer["pending"], answer["trial"]["to"] if answer["trial"] else "")


def ask(product: products.Product) -> asking.Question:
    """Put the question about the units of a product, all in one call."""
    return asking.Question(product.unit, *([product.helper_unit] if product.helper_unit else []))


def look(setup: own.Setup, state: settle.State, question: Optional[asking.Question] = None) -> Dict[str, Any]:
    """The answer of `update --json` for a state just read; systemd is asked now, unless the question was put earlier."""
    product = setup.product
    version, sequence = version_of(setup, state)
    audit = audit_tail.head(product.slots_dir)  # while systemd is at work on its answer
    shown = (question or ask(product)).answers()
    seen = status.Host(
        version,
        sequence,
        status.unit_of(shown.get(product.unit, {})),
        lock.holder(product),
        setup.problems,
        int(time.time()),
        host.machine_id(),
        _aside(product),
        setup.config.mode,
        status.unit_of(shown.get(product.helper_unit, {})),
    )
    answer = dict(status.as_json(product, state, host.clock(), seen), audit=audit, unread=_unread(product))
    answer["probes"] = _probes(product)
    answer.update(hand.shown(product, state.update))
    answer["progress"] = _progress(product, answer)
    answer["evidence"] = clearable.evidence_of(state.update.last)
    if answer["broken"] is not None:
        from slotward import broken

        answer["broken"]["run"] = broken.way_out(product, state, os.path.basename(answer["broken"]["file"]))
    return answer
