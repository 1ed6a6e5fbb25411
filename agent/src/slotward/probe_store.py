# SPDX-License-Identifier: GPL-3.0-or-later
"""The baseline just before a swap, and the two files of probing in the slots directory (products.md, section 5).

Rules:
- The baseline is durable before the trial is written; who cannot write it does not swap.
- `probes.json` is for reading alone: that it cannot be written changes nothing about the trial (field case S17).
- Whoever reads either believes only what is whole; damage counts as nothing there.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from slotcore import codes, ops, probe_files, probing, recording, records
from slotcore import product as products
from slotward import host

if TYPE_CHECKING:
    from slotward import probe_journal


def is_asked(product: products.Product) -> bool:
    """Whether probes have a say in this product's trials."""
    return probing.SOURCE in product.confirm_sources and bool(product.probes)


def monotonic_us() -> int:
    """Now, as the journal counts within this boot."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def _read(product: products.Product, name: str) -> Optional[bytes]:
    with contextlib.suppress(OSError, codes.BrokenRecord):
        return host.read_record(product.path(name), probe_files.MAX_BYTES)
    return None


def baseline(product: products.Product) -> Optional[probe_files.Baseline]:
    """What was seen before the swap of the trial that it names; None when there is nothing to be believed."""
    return probe_files.parse_baseline(_read(product, probe_files.BASELINE))


def baseline_of(product: products.Product, trial_id: str) -> Optional[probe_files.Baseline]:
    """As `baseline`, of that trial alone."""
    found = baseline(product)
    return found if found is not None and found.trial_id == trial_id else None


def since(product: products.Product, seen: probe_files.Baseline) -> probe_journal.Since:
    """From when on the journal counts in the trial of a baseline of this boot; a reload goes on in the same run."""
    from slotward import probe_journal

    return probe_journal.Since(seen.monotonic_us, "" if product.reload else seen.invocation)


def has_baseline(product: products.Product) -> bool:
    """Whether something lies there, whatever it is."""
    return os.path.lexists(product.path(probe_files.BASELINE))


def report(product: products.Product) -> Optional[Dict[str, Any]]:
    """Where probing stands, for status."""
    return probe_files.parse_report(_read(product, probe_files.REPORT))


def take_baseline(product: products.Product, trial_id: str) -> None:
    """Look once at every probe, and keep what was green (the lock must be held, and nothing be switched yet).

    What is red because the unit is down is no measure, nor is what it was too early to say: neither was looked at.
    """
    from slotward import effects, probe_journal, probes, systemd

    since = probe_journal.Since(max(0, monotonic_us() - product.trial_length_s * 1_000_000))
    seen = probes.Runner(product, since).round()
    shown = systemd.show(product.unit, ("InvocationID", "ActiveState"))
    is_down = shown.get("ActiveState") in ("inactive", "failed")
    found = probe_files.Baseline(
        trial_id=trial_id,
        boot_id=host.clock().boot_id,
        monotonic_us=monotonic_us(),
        at=int(time.time()),
        seen={one.name: one for one in seen if one.ok or (one.ok is not None and not is_down)},
        invocation=shown.get("InvocationID", ""),
    )
    plan = ops.write_durably(product.path(probe_files.BASELINE), probe_files.render_baseline(found))
    try:
        effects.executor_for(product, {}).apply(plan, "baseline")
    except OSError as error:
        raise effects.as_retryable(error, f"keep what the probes of {product.name} say before the switch") from error


def drop_baseline(product: products.Product) -> None:
    """Nobody needs it any more (the lock must be held)."""
    from slotward import effects

    plan = ops.unlink_durably(product.slots_dir, probe_files.BASELINE)
    with contextlib.suppress(OSError):
        effects.executor_for(product, {}).apply(plan, "drop-baseline")


def write_report(product: products.Product, data: bytes) -> str:
    """Show where probing stands; answers why it cannot be shown, "" when it is."""
    from slotward import effects

    path = product.path(probe_files.REPORT)
    plan: ops.Plan = (ops.Write(path + ".tmp", data), ops.Rename(path + ".tmp", path))
    try:
        effects.executor_for(product, {}).apply(plan, "probes")
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def note_unhealthy(product: products.Product, last: records.Last, why: str) -> None:
    """Record that going back did not help (the lock must be held); nothing is switched again (field case H6)."""
    from slotward import audit, effects, manager

    state = manager.settle_now(product)[0].state
    found = state.update.last
    if state.broken is not None or found is None or found[:2] != (last.trial_id, "rolled-back"):
        return
    ended = found._replace(state="rollback-failed", why=records.fitting(f"{found.why}; {why}"))
    update = state.update._replace(last=ended)
    try:
        manager.apply(product, recording.write(product, recording.UPDATE, records.render_update(update)), "unhealthy")
    except OSError as error:
        raise effects.as_retryable(error, f"record how {product.name} runs after going back") from error
    audit.settled(product, state._replace(update=update), None)


def start_watching(product: products.Product) -> None:
    """Have probing begin now, for a switch that starts no unit; the unit's own start wants it too."""
    from slotward import audit, systemd, unit_files

    name = unit_files.probe_unit_of(product.name)
    try:
        systemd.restart_no_block(name)  # one that looks at what was before may be ending just now
    except (codes.Refused, codes.Retryable) as error:
        audit.warn(f"{name} was not started, the next start of {product.unit} does it: {error.text}")
