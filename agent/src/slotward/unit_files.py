# SPDX-License-Identifier: GPL-3.0-or-later
"""What a system file is, where system files lie, and how a packaged template becomes one.

Rules:
- A mark is `@NAME@`. A line that is a mark without a value is left out; a mark within a line always has one.
"""

from __future__ import annotations

import pkgutil
from typing import Dict, NamedTuple

from slotcore import product as products
from slotward import build_info

GUARD_DIR = "/usr/local/lib/slotward"
UNIT_DIR = build_info.UNIT_DIR
HEAD = "# SPDX-License-Identifier: GPL-3.0-or-later\n# Written by slotward setup"
RESTART_MODE_SINCE = 254


class SystemFile(NamedTuple):
    """One file as it has to be; all are root's."""

    path: str
    mode: int
    text: str


class Command(NamedTuple):
    """How a unit calls the agent for another product: the program, and the agent's own configuration."""

    program: str = f"/usr/local/bin/{build_info.NAME}"
    config_path: str = build_info.CONFIG


AGENT = Command()
"""Where both are, unless the host's configuration says otherwise."""


def resource(name: str) -> str:
    """A packaged text."""
    data = pkgutil.get_data("slotward", "resources/" + name)
    if data is None:
        raise FileNotFoundError(f"this build of slotward carries no resources/{name}")
    return data.decode("utf-8")


def filled(name: str, values: Dict[str, str]) -> str:
    """The template `units/<name>` with its marks replaced."""
    empty = {mark for mark, value in values.items() if not value}
    text = "".join(line + "\n" for line in resource("units/" + name).splitlines() if line not in empty)
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def unit(name: str, text: str) -> SystemFile:
    """A unit file or drop-in, by its name below systemd's directory."""
    return SystemFile(f"{UNIT_DIR}/{name}", 0o644, text)


def restart_mode(systemd_version: int) -> str:
    """The setting that only newer versions know; older ones warn of it."""
    return "RestartMode=direct" if systemd_version >= RESTART_MODE_SINCE else ""


def rollback_dropin(unit_name: str, product_name: str, *more: str) -> SystemFile:
    """What puts a unit under the guard: it runs before each start, and after a failure. `more` are further lines of it."""
    guard = f"slotward-guard@{product_name}.service"
    text = (
        f"{HEAD}: a release that is not confirmed does not survive. Changes nothing without a trial.\n"
        f"[Unit]\nWants={guard}\nAfter={guard}\nOnFailure=slotward-rollback@{product_name}.service\n"
    )
    return unit(f"{unit_name}.d/50-slotward-rollback.conf", text + "".join(line + "\n" for line in more))


def probe_unit_of(product_name: str) -> str:
    """The unit that looks at the probes of a product while its trial lasts."""
    return f"slotward-probe@{product_name}.service"


def probe_unit(product: products.Product, command: Command) -> SystemFile:
    """That unit, for a product that probes confirm."""
    marks = {
        "@PRODUCT@": product.name,
        "@UNIT@": product.unit,
        "@SLOTS@": product.slots_dir,
        "@PROGRAM@": command.program,
        "@CONFIG@": command.config_path,
    }
    return unit(probe_unit_of(product.name), filled("slotward-probe.service", marks))
