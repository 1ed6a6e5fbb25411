# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's look at the sandboxes as systemd has them in force, with every drop-in (field case D8; privilege.md, section 7).

Rules:
- What a unit writes must be let through; which setting does not is named.
- What the daemon's account starts and reads must be reachable for that account, whatever the sandbox says.
"""

from __future__ import annotations

import os
from typing import List, Mapping, Sequence, Tuple

from slotcore import product as products
from slotward import accounts, ways
from slotward import doctor_states as states

Found = states.Finding
Shown = Mapping[str, str]

PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "MainPID", "ExecMainStatus", "NeedDaemonReload", "User", "ProtectSystem",
    "ProtectHome", "PrivateTmp", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "NoExecPaths", "ExecPaths", "RuntimeDirectory",
    "StateDirectory", "RootDirectory", "RootImage",
)  # fmt: skip
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 (what PrivateTmp= replaces)
HOMES = ("/home", "/root", "/run/user")
CLOSED = {"strict": ("/",), "full": ("/usr", "/boot", "/efi", "/etc"), "yes": ("/usr", "/boot", "/efi")}
"""What each ProtectSystem= makes read-only."""


def _paths(shown: Shown, key: str) -> List[str]:
    return [path.lstrip("-+") for path in shown.get(key, "").split()]


def _covers(paths: Sequence[str], path: str) -> bool:
    return any(one in ("/", path) or path.startswith(one.rstrip("/") + "/") for one in paths)


def _writable(shown: Shown) -> List[str]:
    made = [f"/run/{name}" for name in shown.get("RuntimeDirectory", "").split()]
    made += [f"/var/lib/{name}" for name in shown.get("StateDirectory", "").split()]
    return [*_paths(shown, "ReadWritePaths"), *made]


def _closed_by_name(shown: Shown, path: str) -> str:
    """The nearer of two settings counts: a path that is let through within one that is closed."""
    for key in ("InaccessiblePaths", "ReadOnlyPaths"):
        closed = [one for one in _paths(shown, key) if _covers([one], path)]
        longest = max((len(one) for one in closed), default=-1)
        if closed and not any(_covers([one], path) and len(one) > longest for one in _writable(shown)):
            return f"{key}= has {max(closed, key=len)}"
    return ""


def why_not_writable(shown: Shown, path: str) -> str:
    """Which setting in force keeps a unit from writing below `path`; "" when none does."""
    by_name = _closed_by_name(shown, path)
    if by_name:
        return by_name
    if shown.get("PrivateTmp", "no") not in ("no", "") and _covers(TEMPORARY, path):
        return f"PrivateTmp={shown['PrivateTmp']} gives the unit another one"
    let = _covers(_writable(shown), path)
    if shown.get("ProtectHome", "no") not in ("no", "") and _covers(HOMES, path) and not let:
        return f"ProtectHome={shown['ProtectHome']} hides it"
    system = shown.get("ProtectSystem", "no")
    if _covers(CLOSED.get(system, ()), path) and not let:
        return f"ProtectSystem={system}, and no ReadWritePaths= has it"
    return ""


def why_not_startable(shown: Shown, path: str) -> str:
    """Which setting in force keeps a unit from starting or reading what lies below `path`; "" when none does."""
    if _covers(_paths(shown, "InaccessiblePaths"), path):
        return "InaccessiblePaths= has it"
    if _covers(_paths(shown, "NoExecPaths"), path) and not _covers(_paths(shown, "ExecPaths"), path):
        return "NoExecPaths= has it"
    if shown.get("ProtectHome", "no") not in ("no", "", "read-only") and _covers(HOMES, path):
        return f"ProtectHome={shown['ProtectHome']} hides it"
    return ""


def findings(places: Sequence[Tuple[str, str]], starts: str, units: Mapping[str, Shown]) -> List[Found]:
    """What keeps each unit from each directory that it writes in, and from the slots; nothing of a unit that is not there."""
    closed = [(unit, f"write in {path}", why_not_writable(units.get(unit, {}), path)) for unit, path in places]
    closed += [(unit, f"start {starts}", why_not_startable(units.get(unit, {}), starts)) for unit in dict(places)]
    found = [_closed(unit, what, why) for unit, what, why in closed if why and units[unit].get("LoadState") == "loaded"]
    return found + [one for unit in dict(places) for one in _unknown(unit, units.get(unit, {}))]


def _unknown(unit: str, shown: Shown) -> List[Found]:
    roots = [key for key in ("RootDirectory", "RootImage") if shown.get(key)]
    text = f"{unit} has {'= and '.join(roots)}=: what it can reach is not known here"
    return [Found("sandbox", "warn", text, f"systemctl cat {unit}", states.SANDBOX)] if roots else []


def of_product(product: products.Product) -> List[Found]:
    """What keeps the unit of another product from what a start needs; what it writes is not known here."""
    from slotward import systemd

    unit = product.unit
    (shown,) = systemd.show_each((unit,), PROPERTIES)
    if shown.get("LoadState") != "loaded":
        return []  # told by the check of the guard
    needed = (product.slots_dir, product.entrypoint, *(part.path for part in product.parts))
    closed = [(f"start {path}", why_not_startable(shown, path)) for path in dict.fromkeys(needed)]
    found = [_closed(unit, what, why) for what, why in closed if why] + _unknown(unit, shown)
    return found or [Found("sandbox", "ok", f"nothing keeps {unit} from its program")]


def _closed(unit: str, what: str, why: str) -> Found:
    run = f"`systemctl cat {unit}` shows where from: take it out, then systemctl restart {unit}"
    return Found("sandbox", "fail", f"{unit} may not {what}, which it needs: {why}", run, states.SANDBOX)


def unreachable(account: accounts.Account, starts: str, reads: str) -> List[Tuple[str, str]]:
    """What the account cannot start or read, with the command that mends it."""
    found: List[Tuple[str, str]] = []
    for path, bits, what in ((starts, 0o5, "start"), (reads, 0o4, "read")):
        real = os.path.realpath(path)
        closed = [one for one in ways.directories(os.path.dirname(real)) if not _may(one, account, 0o1)]
        said = f"{account.name} cannot {what} {path}"
        found += [(f"{said}: {directory} is closed to it", f"chmod o+x {directory}") for directory in closed]
        if not closed and os.path.exists(real) and not _may(real, account, bits):
            found.append((f"{said}: its mode is {os.stat(real).st_mode & 0o7777:04o}", "slotward setup"))
    return found


def _may(path: str, account: accounts.Account, bits: int) -> bool:
    found = os.stat(path)
    shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
    return found.st_mode >> shift & bits == bits
