# SPDX-License-Identifier: GPL-3.0-or-later
"""A closer look at records that cannot be believed: their copies, and what was set aside before (trust.md, section 4).

Rules:
- Only looked at when something is damaged: the usual start pays nothing for it.
- A copy counts when it is root's own plain file, its first line fits the rest, and the rest is a sound record.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, Sequence, Tuple

from slotcore import audit as audits
from slotcore import codes, recording, records, settle, trust_record
from slotcore import product as products
from slotward import audit, effects, host, looking

PARSERS: Dict[str, Callable[[bytes, str], object]] = {
    recording.SLOTS: records.parse_slots,
    recording.UPDATE: records.parse_update,
    recording.TRUST: trust_record.parse,
}


def examined(product: products.Product, state: settle.State, damaged: Sequence[settle.Damage]) -> settle.State:
    """The state with what the copies of the damaged records say, and with what was set aside before."""
    return state._replace(damaged=tuple(_with_copy(product, state, damage) for damage in damaged), aside=aside(product))


def read_copy(product: products.Product, name: str) -> bytes:
    """The bytes of the record `name` by its copy; raises BrokenRecord saying what is wrong with the copy, or OSError."""
    path = product.path(name) + recording.COPY
    data = host.read_record(path, records.MAX_BYTES + recording.SEAL_BYTES)
    if data is None:
        raise codes.BrokenRecord(path, "it is missing")
    held = recording.unsealed(data)
    if held is None:
        raise codes.BrokenRecord(path, "its first line does not fit the rest: it is torn or was changed")
    PARSERS[name](held, path)
    return held


def _with_copy(product: products.Product, state: settle.State, damage: settle.Damage) -> settle.Damage:
    if not damage.there and os.path.lexists(product.path(damage.name)):
        return damage._replace(copy_why="not looked at: the record could not be read, which says nothing about it")
    try:
        copy = read_copy(product, damage.name)
        if damage.name == recording.TRUST:
            _demand(product.path(damage.name) + recording.COPY, copy, state.update.trust)
        return damage._replace(copy=copy)
    except OSError as error:
        return damage._replace(
            copy_why=f"{product.path(damage.name)}{recording.COPY}: cannot be read: {error.strerror}"
        )
    except codes.BrokenRecord as error:
        return damage._replace(copy_why=error.text)


def _demand(path: str, copy: bytes, generation: int) -> None:
    """Refuse a copy of the record of trust that is older than what was written since: it would bring revoked keys back."""
    found = trust_record.parse(copy, path).generation
    if found < generation:
        raise codes.BrokenRecord(path, f"its generation is {found}, and {generation} was written")


def aside(product: products.Product) -> Tuple[str, ...]:
    """The names of what was set aside; of whatever kind it is, so that nothing is ever renamed over it."""
    try:
        with os.scandir(product.slots_dir) as entries:
            found = {
                entry.name: entry.is_dir(follow_symlinks=False) for entry in entries if recording.is_aside(entry.name)
            }
    except OSError:
        return ()
    return tuple(name + "/" * is_directory for name, is_directory in sorted(found.items()))


def restore(product: products.Product, state: settle.State) -> bool:
    """Set broken records aside and write anew those whose copy proves itself; whether anything was changed.

    Going back must work with no space and on a read-only disk: what cannot be written now stays broken until later.
    """
    at = int(time.time())
    plan = recording.plan_restore(product, state, at)
    try:
        effects.executor_for(product, {}).apply(plan, "restore")
    except OSError:
        return False
    for damage in state.damaged:
        _tell(product, state, damage)
    return bool(plan)


def way_out(product: products.Product, state: settle.State, name: str) -> str:
    """The command that mends a broken record: one that held key sets is mended by nothing but the chain of them.

    Where no key set is known of, a repair finds out whether there ever was one, and says so when it cannot. A copy that
    proves itself is all that is needed: whatever settles writes the record anew from it.
    """
    if any(damage.name == name and damage.copy is not None for damage in state.damaged):
        return looking.SETTLE
    if name != recording.TRUST:
        return looking.REPAIR
    from slotward import cmd_repair

    known = [held for held in cmd_repair.readable_trusts(product, state) if held.keys is not None]
    return looking.CHAIN if known or _log_has_keys(product) else looking.REPAIR


def _log_has_keys(product: products.Product) -> bool:
    try:
        return audit.facts(product).keys > 0
    except OSError:
        return False


def _tell(product: products.Product, state: settle.State, damage: settle.Damage) -> None:
    what = f"{product.path(damage.name)}: {damage.why}"
    if damage.copy is not None:
        audit.note(product, audits.RESTORED, code=codes.RECORD_BROKEN, why=f"{what}; written anew from its copy")
    elif damage.there:
        why = f"{what}; set aside, and nothing proves what was in it ({damage.copy_why}): run `{way_out(product, state, damage.name)}`"
        audit.note(product, audits.REFUSED, code=codes.RECORD_BROKEN, why=why)
