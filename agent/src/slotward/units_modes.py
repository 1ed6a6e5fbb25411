# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that the agent has on a host in helper and start mode, and those that another mode left (privilege.md).

Rules:
- Pure but for the packaged templates. The daemon's own unit is the same in every mode; a mode is its drop-in
  `unprivileged.conf` and the units beside it.
- `Wants=`, never `Requires=`: nothing of root's part keeps the daemon from starting.
- In neither mode has the daemon a `StateDirectory=`: systemd hands such a tree over when `User=` changes, hard links and
  set-user-ID bits too (ADR 19).
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

from slotcore import config_table
from slotcore import product as products
from slotward import build_info, unit_files

ROOT, HELPER, START = config_table.ROOT, config_table.HELPER, config_table.START
DROPIN = f"{unit_files.UNIT_DIR}/{build_info.UNIT}.d/unprivileged.conf"
TMPFILES = "/etc/tmpfiles.d/slotward-start.conf"
START_DIR = "/run/slotward-start"
START_FILES = ("confirm", "give-up")
RUN = "/run/"
TRIGGERS = ("slotward-confirm.path", "slotward-giveup.path")
START_UNITS = ("slotward-apply.service", "slotward-confirm.service", "slotward-giveup.service", *TRIGGERS)
ENABLED: Dict[str, Tuple[str, ...]] = {ROOT: (), HELPER: (), START: TRIGGERS}
"""Units that setup enables and starts: what only triggers. The helper, as the daemon, is for the role or the operator."""
STOPPED: Dict[str, Tuple[str, ...]] = {ROOT: (), HELPER: (build_info.HELPER_UNIT,), START: TRIGGERS}
"""Units that setup stops and disables when a host leaves the mode."""


class Agent(NamedTuple):
    """What the agent's own unit needs to know; only its own product has one."""

    config_path: str
    data_dir: str = "/var/lib/slotward"
    socket_path: str = config_table.RUNTIME_DIR + "/status.sock"
    mode: str = ROOT
    user: str = "root"
    group: str = "root"
    helper_socket: str = config_table.HELPER_SOCKET


def writable(agent: Agent) -> str:
    """The settings that let the daemon write where it keeps its things."""
    places = [agent.data_dir]
    if not agent.socket_path.startswith(config_table.RUNTIME_DIR + "/"):
        places.append(agent.socket_path.rpartition("/")[0] or "/")
    return "\n".join(f"ReadWritePaths=-{path}" for path in places)


def socket_directory(agent: Agent) -> Tuple[str, str]:
    """Where the helper's socket lies: the name below /run that systemd makes, or the directory that setup makes."""
    directory = agent.helper_socket.rpartition("/")[0] or "/"
    if directory.startswith("/var" + RUN):  # a link to /run; a directory made there would be gone after a boot
        directory = directory[len("/var") :]
    if directory.startswith(RUN):
        return directory[len(RUN) :], ""
    return "", "" if directory + "/" == RUN else directory


def files(product: products.Product, agent: Agent) -> List[unit_files.SystemFile]:
    """The files of the agent's mode, in the order to write them; none in root mode."""
    if agent.mode == HELPER:
        beside = _helper_files(product, agent)
    elif agent.mode == START:
        beside = _start_files(product, agent)
    else:
        return []
    account = {"@USER@": agent.user, "@GROUP@": agent.group}
    sandbox = unit_files.filled("sandbox-unprivileged", account).rstrip("\n")
    text = unit_files.filled(f"unprivileged-{agent.mode}.conf", {"@SANDBOX@": sandbox})
    return [*beside, unit_files.SystemFile(DROPIN, 0o644, text)]


def _helper_files(product: products.Product, agent: Agent) -> List[unit_files.SystemFile]:
    runtime, made = socket_directory(agent)
    elsewhere = made or ("" if runtime else RUN.rstrip("/"))
    marks = {
        "@SLOTS@": product.slots_dir,
        "@CONFIG@": agent.config_path,
        "@UNIT@": product.unit,
        "@GROUP@": agent.group,
        "@RUNTIME@": f"RuntimeDirectory={runtime}\nRuntimeDirectoryMode=0755" if runtime else "",
        "@WRITABLE@": f"ReadWritePaths={elsewhere}" if elsewhere else "",
    }
    return [
        unit_files.unit(build_info.HELPER_UNIT, unit_files.filled("slotward-helper.service", marks)),
        unit_files.rollback_dropin(build_info.HELPER_UNIT, product.name),
    ]


def _start_files(product: products.Product, agent: Agent) -> List[unit_files.SystemFile]:
    marks = {
        "@SLOTS@": product.slots_dir,
        "@CONFIG@": agent.config_path,
        "@DATA_DIR@": agent.data_dir,
        "@UNIT@": product.unit,
        "@PRODUCT@": product.name,
        "@USER@": agent.user,
        "@HARDENING@": unit_files.resource("units/hardening").rstrip("\n"),
    }
    triggers = unit_files.SystemFile(TMPFILES, 0o644, unit_files.filled("slotward-start.conf", marks))
    return [triggers, *(unit_files.unit(name, unit_files.filled(name, marks)) for name in START_UNITS)]


def paths_of(mode: str) -> Tuple[str, ...]:
    """Every file that only the agent's mode has, the drop-in that says who the daemon runs as first."""
    if mode == HELPER:
        names = (f"{build_info.HELPER_UNIT}.d/50-slotward-rollback.conf", build_info.HELPER_UNIT)
        return (DROPIN, *(f"{unit_files.UNIT_DIR}/{name}" for name in names))
    if mode == START:
        return (DROPIN, *(f"{unit_files.UNIT_DIR}/{name}" for name in reversed(START_UNITS)), TMPFILES)
    return ()


def stale_paths(mode: str) -> Tuple[str, ...]:
    """The files that a host in `mode` may have from another one, in the order to remove them."""
    own = set(paths_of(mode))
    return tuple(dict.fromkeys(path for other in (HELPER, START) for path in paths_of(other) if path not in own))


def mode_of(dropin: str) -> Tuple[str, str]:
    """The mode and account that a written drop-in is of, root's for an empty one."""
    lines = dropin.splitlines()
    user = next((line[len("User=") :] for line in lines if line.startswith("User=")), "root")
    for mode, unit in ((HELPER, build_info.HELPER_UNIT), (START, START_UNITS[0])):
        if f"After={unit}" in lines:
            return mode, user
    return ROOT, user
