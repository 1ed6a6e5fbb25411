# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that `slotward setup` writes for a product: the guard, its facts, its units, the unit's drop-in.

Rules:
- Pure but for the packaged templates: facts in, a list of files out; what differs on a host is a comparison of both.
- Another product's unit is never written, only given a drop-in (DESIGN 4). The agent's own unit is the agent's.
- Files come in an order in which each names only what is there already: guard, facts, units, then the drop-in.
- A key that an older systemd warns of is written only where it is known (`RestartMode=` from 254 on).
- What goes into a unit file is of a plain alphabet, so nothing needs quoting and nothing can break out.
"""

from __future__ import annotations

import pkgutil
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from slotcore import codes
from slotcore import product as products
from slotward import build_info

GUARD_DIR = "/usr/local/lib/slotward"
UNIT_DIR = build_info.UNIT_DIR
DEFAULT_DATA_DIR = "/var/lib/slotward"
RUNTIME_DIR = "/run/slotward/"
RESTART_MODE_SINCE = 254

SHARED_UNITS = (
    "slotward-guard@.service",
    "slotward-rollback@.service",
    "slotward-deadline@.service",
    "slotward-deadline@.timer",
)
GUARD_SERVICES = ("slotward-guard", "slotward-rollback", "slotward-deadline")

_PATH = re.compile(r"/[A-Za-z0-9._/:@+=,-]*")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]*\.service")


class Agent(NamedTuple):
    """What the agent's own unit needs to know; only its own product has one."""

    config_path: str
    data_dir: str = DEFAULT_DATA_DIR
    socket_path: str = RUNTIME_DIR + "status.sock"


class SystemFile(NamedTuple):
    """One file as it has to be; all are root's."""

    path: str
    mode: int
    text: str


class Change(NamedTuple):
    """What setup would do to a file: `create`, `update` or `mode`."""

    path: str
    what: str


Reader = Callable[[str], Optional[Tuple[int, bytes]]]


def _resource(name: str) -> str:
    data = pkgutil.get_data("slotward", "resources/" + name)
    if data is None:
        raise FileNotFoundError(f"this build of slotward carries no resources/{name}")
    return data.decode("utf-8")


def _filled(name: str, values: Dict[str, str]) -> str:
    """A template with its marks replaced; a line whose mark has no value is left out."""
    empty = {mark for mark, value in values.items() if not value}
    text = "".join(line + "\n" for line in _resource("units/" + name).splitlines() if line not in empty)
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


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


def _guard_files(product: products.Product) -> List[SystemFile]:
    marks = {"@GUARD_DIR@": GUARD_DIR, "@HARDENING@": _resource("units/hardening").rstrip("\n")}
    files = [
        SystemFile(GUARD_DIR + "/guard", 0o755, _resource("guard")),
        SystemFile(
            f"{GUARD_DIR}/guard.d/{product.name}.env", 0o644, f"UNIT={product.unit}\nSLOTS={product.slots_dir}\n"
        ),
    ]
    files += [SystemFile(f"{UNIT_DIR}/{name}", 0o644, _filled(name, marks)) for name in SHARED_UNITS]
    return files


def _instance_files(product: products.Product) -> List[SystemFile]:
    slots = product.slots_dir
    head = "# SPDX-License-Identifier: GPL-3.0-or-later\n# Written by slotward setup.\n[Unit]\n"
    files = [
        SystemFile(
            f"{UNIT_DIR}/{base}@{product.name}.service.d/50-slots.conf", 0o644, f"{head}RequiresMountsFor={slots}\n"
        )
        for base in GUARD_SERVICES
    ]
    # PropagatesReloadTo= does nothing here but keep systemd from forgetting how a unit that it need not keep has ended
    timer = f"{head}RequiresMountsFor={slots}\nConditionPathExists={slots}/trial\nPropagatesReloadTo={product.unit}\n"
    files.append(SystemFile(f"{UNIT_DIR}/{timer_of(product.name)}.d/50-slots.conf", 0o644, timer))
    return files


def _dropin(product: products.Product) -> SystemFile:
    guard = f"slotward-guard@{product.name}.service"
    text = (
        "# SPDX-License-Identifier: GPL-3.0-or-later\n"
        "# Written by slotward setup: a release that is not confirmed does not survive. Changes nothing without a trial.\n"
        f"[Unit]\nWants={guard}\nAfter={guard}\nOnFailure=slotward-rollback@{product.name}.service\n"
    )
    return SystemFile(f"{UNIT_DIR}/{product.unit}.d/50-slotward-rollback.conf", 0o644, text)


def _agent_unit(product: products.Product, agent: Agent, systemd_version: int) -> SystemFile:
    writable: List[str] = []
    if agent.data_dir != DEFAULT_DATA_DIR:
        writable.append(agent.data_dir)
    if not agent.socket_path.startswith(RUNTIME_DIR):
        writable.append(agent.socket_path.rpartition("/")[0] or "/")
    marks = {
        "@ENTRYPOINT@": product.entrypoint,
        "@CONFIG@": agent.config_path,
        "@RESTART_MODE@": "RestartMode=direct" if systemd_version >= RESTART_MODE_SINCE else "",
        "@WRITABLE@": "".join(f"ReadWritePaths=-{path}\n" for path in writable).rstrip("\n"),
    }
    return SystemFile(f"{UNIT_DIR}/{product.unit}", 0o644, _filled("slotward.service", marks))


def render(product: products.Product, systemd_version: int, agent: Optional[Agent] = None) -> Tuple[SystemFile, ...]:
    """Every system file of a product, in the order to write them. `agent` is given for the agent's own product only.

    Raises BadConfig when a name or path cannot stand in a unit file.
    """
    _check(product, agent)
    files = _guard_files(product) + _instance_files(product)
    if agent is not None:
        files.append(_agent_unit(product, agent, systemd_version))
    files.append(_dropin(product))
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
