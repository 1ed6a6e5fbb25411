# SPDX-License-Identifier: GPL-3.0-or-later
"""The probes that need little: a command, a connection, a unit, a file (products.md, section 5).

Rules:
- Each is made once for a trial and looks as often as it is asked; it answers whether it passes, and what it saw.
- A command runs in a transient unit as the account that was chosen, never as this process does; what runs as root must be
  root's, and so must the way there.
- How fresh a file is, is measured by when it was seen to change: a step of the wall clock makes nothing stale (I10).
"""

from __future__ import annotations

import os
import pwd
import socket
import time
from typing import Callable, Optional, Tuple

from slotcore import codes, status
from slotcore import product as products
from slotward import effects, host, process, root_run, systemd

Said = Tuple[Optional[bool], str]
"""Whether it passed, None when it is too early to say; and what was seen."""
Look = Callable[[], Said]

UNDER_PROBE = tuple(setting for setting in effects.UNDER_SMOKE if setting != "PrivateNetwork=yes")
MOST_SAID = 200


def account(probe: products.Probe, product: products.Product) -> Tuple[str, ...]:
    """systemd properties for who runs the probe's command: its own account, the product's, or the unit's."""
    named = probe.user or product.user
    return (f"User={named}",) if named else effects.unit_user(product)


def _is_root(properties: Tuple[str, ...]) -> bool:
    user = next((entry[len("User=") :] for entry in properties if entry.startswith("User=")), "root")
    try:
        return (int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid) == 0
    except KeyError:
        return False  # systemd says so


def demand_root_s(path: str) -> None:
    """Refuse to run as root what somebody else than root could have written."""
    problem = root_run.problem(path)
    if problem:
        raise codes.refused(codes.DIRECTORY_UNSAFE, f"{path} {problem}, and would run as root")


def command(probe: products.Probe, product: products.Product) -> Look:
    """It ends with 0, in time."""
    runs = 0

    def look() -> Said:
        nonlocal runs
        runs += 1
        properties = account(probe, product)
        if _is_root(properties):
            demand_root_s(probe.command[0])
        began = time.monotonic()
        what = f"probe-{product.name}-{probe.name}-{runs}"
        answer = systemd.run_transient(probe.command, (*UNDER_PROBE, *properties), probe.timeout_s, what)
        said = " ".join(answer.output.split())[-MOST_SAID:]
        if answer.code == 0:
            return True, said or "it ended with 0"
        if time.monotonic() - began >= probe.timeout_s:
            return False, f"it did not end within {probe.timeout_s} s"
        return False, f"it ended with status {answer.code}: {said or 'no output'}"

    return look


def tcp(probe: products.Probe, _product: products.Product) -> Look:
    """A connection is accepted."""
    place = "{}:{}".format(*probe.address)

    def look() -> Said:
        try:
            with socket.create_connection(probe.address, timeout=probe.timeout_s):
                return True, f"{place} accepts connections"
        except OSError as error:
            return False, f"{place}: {error.strerror or error}"

    return look


def unit(probe: products.Probe, product: products.Product) -> Look:
    """It is active, with one main process for so long; of the first one that is seen it is too early to say before that."""
    name = probe.unit or product.unit
    first = 0

    def look() -> Said:
        nonlocal first
        found = status.unit_of(systemd.show(name, ("ActiveState", "MainPID")))
        if found.active != "active":
            return False, f"{name} is {found.active}"
        started_s = process.started_s(found.main_pid) if found.main_pid else None
        if started_s is None:
            return False, f"{name} has no main process"
        up_s = host.uptime_s() - started_s
        said = f"main process {found.main_pid} of {name} is up {up_s:.1f} s"
        first = first or found.main_pid
        early = None if found.main_pid == first else False
        return (True, said) if up_s >= probe.for_s else (early, f"{said} of {probe.for_s} s")

    return look


def file(probe: products.Probe, _product: products.Product) -> Look:
    """It was changed within so many seconds."""
    seen: Optional[Tuple[int, int]] = None
    changed_s = 0.0

    def look() -> Said:
        nonlocal seen, changed_s
        try:
            found = os.stat(probe.path)
        except OSError as error:
            return False, f"{probe.path}: {error.strerror}"
        now_s, marks = host.uptime_s(), (found.st_ino, found.st_mtime_ns)
        if seen is None:  # nothing but the wall clock tells how old it was when it was first seen
            changed_s = now_s - max(0.0, time.time() - found.st_mtime)
        elif marks != seen:
            changed_s = now_s
        seen = marks
        age_s = now_s - changed_s
        said = f"{probe.path} was changed {age_s:.0f} s ago"
        return (True, said) if age_s <= probe.fresh_s else (False, f"{said}, more than {probe.fresh_s} s")

    return look
