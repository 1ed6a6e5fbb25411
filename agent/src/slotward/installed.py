# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard and the units on this host, compared with what this version writes; and whether systemd has them in force.

Rules:
- `differences` is for setup and doctor: every file, byte for byte.
- `not_in_force` is for prepare: what systemd itself says of the unit, its guard and its timer (I4), in one call.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import List, Mapping, Optional, Tuple

from slotcore import config as configs
from slotcore import probing
from slotcore import product as products
from slotward import accounts, effects, opening, own, systemd, unit_files, units

FOREIGN = -1
"""In the place of a mode: the file is not root's."""
GUARD_PROPERTIES = (
    "Id",
    "LoadState",
    "UnitFileState",
    "Wants",
    "After",
    "OnFailure",
    "Requires",
    "NeedDaemonReload",
    "ActiveState",
)


def agent_facts(config: configs.Config, config_path: str) -> units.Agent:
    """What the agent's own unit needs to know; an account that is not there yet gets a group of its own name."""
    account = accounts.find(config.user)
    return units.Agent(
        config_path=config_path,
        data_dir=config.data_dir,
        socket_path=config.socket_path,
        mode=config.mode,
        user=config.user,
        group=account.group if account is not None else config.user,
        helper_socket=config.helper_socket,
    )


def wanted(setup: own.Setup) -> Tuple[units.SystemFile, ...]:
    """Every system file as it has to be on this host."""
    agent = agent_facts(setup.config, setup.config_path) if setup.is_agent else None
    return units.render(setup.product, systemd.version(), agent, unit_files.Command(*setup.agent))


def read_file(path: str) -> Optional[Tuple[int, bytes]]:
    """Mode and bytes of a system file, None when there is no plain file of that name; somebody else's has no mode of ours."""
    try:
        descriptor = os.open(path, opening.READ)
    except OSError as error:
        if error.errno in (errno.ENOENT, *opening.NOT_PLAIN):
            return None
        raise
    try:
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode) if found.st_uid in (0, os.geteuid()) else FOREIGN
        return (mode, os.read(descriptor, 1 << 20)) if stat.S_ISREG(found.st_mode) else None
    finally:
        os.close(descriptor)


def differences(setup: own.Setup) -> List[str]:
    """What is missing or other than this version writes it, as sentences."""
    said = {
        "create": "is missing",
        "update": "is other than this version writes it",
        "mode": "has another owner or mode than this version gives it",
    }
    changes = units.plan(wanted(setup), read_file)
    found = [f"{path} may be changed by others than root" for path in directories_at_risk(setup.product)]
    found += [f"{change.path} {said[change.what]}" for change in changes]
    known = tuple(f"{change.path} " for change in changes)
    return found + [text for text in not_in_force(setup.product) if not text.startswith(known)]


def directories_at_risk(product: products.Product) -> List[str]:
    """Directories of links, records and the guard that are not root's alone (I6); one that is missing is no risk."""
    found: List[str] = []
    for path in (product.slots_dir, units.GUARD_DIR, f"{units.GUARD_DIR}/guard.d"):
        try:
            seen = os.stat(path)
        except OSError:
            continue
        if seen.st_uid != 0 or seen.st_mode & 0o022:
            found.append(path)
    return found


def _files_missing(product: products.Product) -> List[str]:
    """What is missing of the guard itself and its facts."""
    missing: List[str] = []
    guard = f"{units.GUARD_DIR}/guard"
    if not os.access(guard, os.X_OK):
        missing.append(f"{guard} is {'not executable' if os.path.exists(guard) else 'missing'}")
    facts = units.facts_of(product.name)
    found = read_file(facts)
    if found is None:
        missing.append(f"{facts} is missing")
    elif product.helper_unit and f"HELPER={product.helper_unit}" not in found[1].decode("ascii", "replace").split("\n"):
        missing.append(f"{facts} does not say HELPER={product.helper_unit}")
    else:
        said = found[1].decode("utf-8", "replace").split("\n")
        missing += [f"{facts} does not say {line}" for line in units.more_facts(product) if line not in said]
    return missing


def not_in_force(product: products.Product) -> List[str]:
    """What systemd says is not armed for this product; empty when the watchdog is ready."""
    guard, *enders = units.guard_services(product.name)
    timer = units.timer_of(product.name)
    missing = _files_missing(product)
    if product.parts:
        from slotward import parts

        missing += parts.not_linked(product)
    ours = effects.units_of(product)
    shown = systemd.show_each((*ours, guard, timer, *enders), GUARD_PROPERTIES)
    for name, unit in zip(ours, shown):
        missing += _not_guarded(product, name, unit)
    probe = unit_files.probe_unit_of(product.name)
    if probing.SOURCE in product.confirm_sources and probe not in shown[0].get("Wants", "").split():
        missing.append(f"systemd does not have {probe} in Wants= of {product.unit}")
    data = units.data_unit_of(product.name)
    if units.keeps_data(product) and data not in shown[0].get("Requires", "").split():
        missing.append(f"systemd does not have {data} in Requires= of {product.unit}")
    for name, unit in zip((guard, timer, *enders), shown[len(ours) :]):
        if unit.get("LoadState") == "masked":
            missing.append(f"{name} is masked")
        elif name == guard and unit.get("LoadState") != "loaded":
            missing.append(f"systemd has not loaded {guard}")
        elif name == timer and (unit.get("LoadState"), unit.get("UnitFileState")) != ("loaded", "enabled"):
            missing.append(f"{timer} is not loaded and enabled")
    if "yes" in [unit.get("NeedDaemonReload") for unit in shown if unit.get("LoadState") != "masked"]:
        missing.append("a unit file has changed since systemd read it (systemctl daemon-reload)")
    return missing


def _not_guarded(product: products.Product, name: str, unit: Mapping[str, str]) -> List[str]:
    """What is missing for the guard to run before every start of this unit, and when it fails."""
    guard, _deadline, rollback = units.guard_services(product.name)
    wanted = (("Wants", guard), ("After", guard), ("OnFailure", rollback))
    return [
        f"systemd does not have {other} in {key}= of {name}"
        for key, other in wanted
        if other not in unit.get(key, "").split()
    ]
