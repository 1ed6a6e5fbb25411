# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that `slotward setup` writes for a product: the guard, its facts, its units, the unit's drop-in.

Rules:
- Pure but for the packaged templates: facts in, a list of files out; what differs on a host is a comparison of both.
- Another product's unit is never written, only given a drop-in (DESIGN 4). The agent's own unit is the agent's.
- Files come in an order in which each names only what is there already: guard, facts, units, then the drop-ins.
- What the agent's mode adds is in `units_modes`.
- A key that an older systemd warns of is written only where it is known (`RestartMode=` from 254 on).
- What goes into a unit file is of a plain alphabet, so nothing needs quoting and nothing can break out.
"""

from __future__ import annotations

import re
from typing import Callable, List, NamedTuple, Optional, Tuple

from slotcore import codes, keeping, probing
from slotcore import product as products
from slotward import unit_files, units_modes

GUARD_DIR = unit_files.GUARD_DIR
UNIT_DIR = unit_files.UNIT_DIR

SHARED_UNITS = (
    "slotward-guard@.service",
    "slotward-rollback@.service",
    "slotward-deadline@.service",
    "slotward-deadline@.timer",
)
GUARD_SERVICES = ("slotward-guard", "slotward-rollback", "slotward-deadline")
DATA_UNIT = "slotward-data@.service"
"""Only a product with hooks for its data has an instance of it."""
AFTER_HOOK_S = 60
"""How much longer than its hooks the unit may take: to write back what they wrote, and to go back."""

_PATH = re.compile(r"/[A-Za-z0-9._/:@+=,-]*")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]*\.service")


Agent = units_modes.Agent
SystemFile = unit_files.SystemFile


class Change(NamedTuple):
    """What setup would do to a file: `create`, `update` or `mode`."""

    path: str
    what: str


Reader = Callable[[str], Optional[Tuple[int, bytes]]]


def _check(product: products.Product, agent: Optional[Agent]) -> None:
    named: List[Tuple[str, str, re.Pattern[str]]] = [
        ("name", product.name, _NAME),
        ("unit", product.unit, _UNIT),
        ("slots_dir", product.slots_dir, _PATH),
        ("entrypoint", product.entrypoint, _PATH),
    ]
    if agent is not None:
        named += [
            ("the configuration's path", agent.config_path, _PATH),
            ("data_dir", agent.data_dir, _PATH),
            ("socket_path", agent.socket_path, _PATH),
            ("the helper's socket", agent.helper_socket, _PATH),
            ("user", agent.user, _ACCOUNT),
            ("the account's group", agent.group, _ACCOUNT),
        ]
    problems = [
        f"{what} of {product.name} is {value!r}, which cannot stand in a unit file: it must match {pattern.pattern}"
        for what, value, pattern in named
        if pattern.fullmatch(value) is None
    ]
    if problems:
        raise codes.BadConfig(problems)


def timer_of(name: str) -> str:
    """The deadline timer of the product `name`, which setup enables."""
    return f"slotward-deadline@{name}.timer"


def keeps_data(product: products.Product) -> bool:
    """Whether the product's data is kept before a release that changes it, and restored after it."""
    return product.hook(keeping.SNAPSHOT) is not None and product.hook(keeping.RESTORE) is not None


def data_unit_of(name: str) -> str:
    """The unit that keeps and restores the data of the product `name`."""
    return DATA_UNIT.replace("@", f"@{name}")


def more_facts(product: products.Product) -> List[str]:
    """What the guard must know of parts, starts and data; nothing for most products."""
    lines = ["RELOAD=yes"] if product.has_unit_part else []
    lines += [f"STARTS={product.max_starts}"] if product.max_starts else []
    for name in (keeping.SNAPSHOT, keeping.RESTORE):
        hook = product.hook(name)
        if hook is not None and keeps_data(product):
            lines.append(f"{name.upper()}={hook.timeout_s} {hook.user} {' '.join(hook.command)}")
    return lines


def _data_files(product: products.Product) -> List[SystemFile]:
    """The unit that keeps and restores data, and how long that of this product may take."""
    slots, longest = product.slots_dir, max(hook.timeout_s for hook in product.hooks)
    text = (
        f"{unit_files.HEAD}.\n[Unit]\nRequiresMountsFor={slots}\n[Service]\nTimeoutStartSec={longest + AFTER_HOOK_S}s\n"
    )
    return [
        unit_files.unit(DATA_UNIT, unit_files.filled(DATA_UNIT, {"@GUARD_DIR@": GUARD_DIR})),
        unit_files.unit(f"{data_unit_of(product.name)}.d/50-slots.conf", text),
    ]


def facts_of(name: str) -> str:
    """The file with what the guard knows of the product of that name."""
    return f"{GUARD_DIR}/guard.d/{name}.env"


def guard_services(name: str) -> Tuple[str, ...]:
    """The guard's units of that product that are run: before a start, by the timer, after a failure."""
    return tuple(f"slotward-{kind}@{name}.service" for kind in ("guard", "deadline", "rollback"))


def _guard_files(product: products.Product) -> List[SystemFile]:
    hardening = unit_files.resource("units/hardening").rstrip("\n")
    marks = {"@GUARD_DIR@": GUARD_DIR, "@HARDENING@": hardening}
    facts = f"UNIT={product.unit}\nSLOTS={product.slots_dir}\n"
    if product.helper_unit:
        facts += f"HELPER={product.helper_unit}\n"
    facts += "".join(line + "\n" for line in more_facts(product))
    return [
        SystemFile(GUARD_DIR + "/guard", 0o755, unit_files.resource("guard")),
        SystemFile(facts_of(product.name), 0o644, facts),
        *(unit_files.unit(name, unit_files.filled(name, marks)) for name in SHARED_UNITS),
    ]


def _instance_files(product: products.Product) -> List[SystemFile]:
    slots = product.slots_dir
    head = f"{unit_files.HEAD}.\n[Unit]\n"
    files = [
        SystemFile(
            f"{UNIT_DIR}/{base}@{product.name}.service.d/50-slots.conf", 0o644, f"{head}RequiresMountsFor={slots}\n"
        )
        for base in GUARD_SERVICES
    ]
    # PropagatesReloadTo= does nothing here but keep systemd from forgetting how a unit that it need not keep has ended
    kept = f"{product.unit} {product.helper_unit}".rstrip()
    lasts = f"ConditionPathExists={slots}/trial\n"
    if keeps_data(product):  # ticks also try a restore that failed again
        lasts = f"ConditionPathExists=|{slots}/trial\nConditionPathExists=|{slots}/{keeping.NAME}\n"
    timer = f"{head}RequiresMountsFor={slots}\n{lasts}PropagatesReloadTo={kept}\n"
    files.append(SystemFile(f"{UNIT_DIR}/{timer_of(product.name)}.d/50-slots.conf", 0o644, timer))
    return files


def _agent_unit(product: products.Product, agent: Agent, systemd_version: int) -> SystemFile:
    marks = {
        "@ENTRYPOINT@": product.entrypoint,
        "@CONFIG@": agent.config_path,
        "@RESTART_MODE@": unit_files.restart_mode(systemd_version),
        "@WRITABLE@": units_modes.writable(agent),
    }
    return unit_files.unit(product.unit, unit_files.filled("slotward.service", marks))


def render(
    product: products.Product,
    systemd_version: int,
    agent: Optional[Agent] = None,
    command: unit_files.Command = unit_files.AGENT,
) -> Tuple[SystemFile, ...]:
    """Every system file of a product, in the order to write them. `agent` is given for the agent's own product only.

    Raises BadConfig when a name or path cannot stand in a unit file.
    """
    _check(product, agent)
    files = _guard_files(product) + _instance_files(product)
    if agent is not None:
        files.append(_agent_unit(product, agent, systemd_version))
        files += units_modes.files(product, agent)
    more: List[str] = []
    if keeps_data(product):  # no start happens without it: an old daemon must not write into newer data
        files += _data_files(product)
        data = data_unit_of(product.name)
        more += [f"Requires={data}", f"After={data}"]
    if probing.SOURCE in product.confirm_sources:
        files.append(unit_files.probe_unit(product, command))
        more.append(f"Wants={unit_files.probe_unit_of(product.name)}")
    files.append(unit_files.rollback_dropin(product.unit, product.name, *more))
    return tuple(files)


def plan(files: Tuple[SystemFile, ...], read: Reader) -> Tuple[Change, ...]:
    """What differs on the host: empty when setup has nothing to write. `read` gives (mode, bytes), None when missing."""
    changes: List[Change] = []
    for file in files:
        found = read(file.path)
        if found is None:
            changes.append(Change(file.path, "create"))
        elif found[1] != file.text.encode("utf-8"):
            changes.append(Change(file.path, "update"))
        elif found[0] != file.mode:
            changes.append(Change(file.path, "mode"))
    return tuple(changes)


def needs_reload(changes: Tuple[Change, ...]) -> bool:
    """Whether systemd must be told: a unit file or drop-in is among the changes."""
    return any(change.path.startswith(UNIT_DIR + "/") for change in changes)
