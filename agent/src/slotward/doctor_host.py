# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's look at the host around a product: its disks, and who else has a hand in it.

Rules:
- A look changes nothing: no file is written to try a disk, no lock is taken, no package manager's work disturbed.
- What refuses updates is a failure; what only may is a warning. Nothing here ever stops a daemon (I8).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from slotcore import codes, settle
from slotcore import product as products
from slotward import doctor_states as states
from slotward import host, opening, own, packages, preflight, product_files, progress, systemd, units, units_modes, ways

Answer = Dict[str, Any]
Found = states.Finding
RUN = "/run/systemd"
RUN_LEAST = 16 << 20
"""With less systemd refuses to read its unit files again (measured, guard.md section 5)."""
REBOOT = "/run/reboot-required"
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
)
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked")
_FLOCK = "@hhqqi4x"


class Look(NamedTuple):
    """What is decided on."""

    slots: preflight.Filesystem
    staging: preflight.Filesystem
    run: preflight.Filesystem
    size: int
    """What the release that runs takes: the next one will be about as large."""
    enabled: str
    """systemd's word for whether the unit starts at boot; "" when it does not say."""
    owner: Optional[packages.Owner] = None
    """Whose package's path the entrypoint is, where that is not diverted."""
    conflicts: Tuple[str, ...] = ()
    busy: Tuple[Tuple[str, int], ...] = ()
    """Package managers at work: whose lock, and which process holds it."""
    reboot: str = ""
    risks: Tuple[ways.Risk, ...] = ()


def findings(setup: own.Setup, state: settle.State, answer: Answer) -> List[Found]:
    """What a look at this host says."""
    return judged(setup, gather(setup, state), answer)


def judged(setup: own.Setup, look: Look, answer: Answer) -> List[Found]:
    """Every check's findings, in order."""
    unit, path = answer["unit"]["name"], setup.product.entrypoint
    found = [*_disk(look, setup), *_run_space(look)]
    if look.enabled and look.enabled not in ENABLED and answer["unit"]["active"] == "active":
        text = f"{unit} runs and is {look.enabled}: after a reboot it does not, and updates are refused"
        found.append(Found("unit at boot", "warn", text, f"systemctl enable {unit}", states.UNIT_DISABLED))
    if look.owner is not None:
        text = f"{path} belongs to the package {look.owner.package}, whose next update writes over it"
        found.append(Found("packages", "warn", text, _divert(setup, look.owner), states.PACKAGE_OWNS))
    for text in look.conflicts:
        run = f"take it out of one of the two files, {setup.config_path} or the other's"
        found.append(Found("products", "fail", text, run, states.PRODUCT_CONFLICT))
    for name, pid in look.busy:
        text = f"process {pid} holds {name}: packages are being changed, maybe those that this daemon needs"
        found.append(Found("packages", "warn", text, f"wait for it: ps -fp {pid}", states.PACKAGES_BUSY))
    if look.reboot:
        text = f"this host waits for a reboot ({look.reboot}); a trial that is pending then has one boot less"
        found.append(Found("reboot", "warn", text, "reboot, while no update is pending", states.REBOOT_PENDING))
    for risk in look.risks:
        text = f"others than root may change {risk.path} ({risk.why}), and with it what root runs"
        found.append(Found("directories", "warn", text, risk.run, states.DIRECTORY_UNSAFE))
    return found


def _disk(look: Look, setup: own.Setup) -> List[Found]:
    slots, found = look.slots, []
    away = f"set slots_dir in {setup.config_path} to a directory on a disk of this host"
    if slots.read_only:
        text = f"{slots.path} is on a read-only filesystem: updates are refused, and a trial could not go back"
        found.append(Found("disk", "fail", text, "dmesg | tail -n 50, then mount -o remount,rw it", states.READ_ONLY))
    if slots.kind in preflight.VOLATILE:
        text = f"{slots.path} is on {slots.kind}, which a reboot may empty: updates are refused"
        found.append(Found("disk", "fail", text, away, states.VOLATILE))
    if slots.noexec:
        text = f"{slots.path} is on a filesystem that is mounted noexec: nothing starts from it"
        found.append(Found("disk", "fail", text, f"mount -o remount,exec it, or {away}", states.NOEXEC))
    if found:
        return found
    for place in (slots, look.staging):
        needed = preflight.RESERVE + look.size
        if place.free < needed:
            text = f"{place.path} has {progress.bytes_text(place.free)} free, and an update needs about {progress.bytes_text(needed)}"
            found.append(_short(f"{text}; going back needs none", f"du -xh {place.mount or place.path} | sort -h"))
        elif place.inodes is not None and place.inodes < preflight.INODES:
            text = f"{place.path} has {place.inodes} free inodes, and an update needs {preflight.INODES}; going back needs none"
            found.append(_short(text, f"du --inodes -x {place.mount or place.path} | sort -n"))
        if look.slots.device == look.staging.device:
            break
    room = f"{progress.bytes_text(slots.free)} free for slots, {progress.bytes_text(look.staging.free)} for downloads"
    return found or [Found("disk", "ok", room)]


def _short(text: str, look: str) -> Found:
    return Found("disk", "warn", text, f"{look} | tail, and make room", states.NO_SPACE)


def _run_space(look: Look) -> List[Found]:
    if look.run.free >= RUN_LEAST:
        return []
    text = f"{RUN} has {progress.bytes_text(look.run.free)} free: systemd refuses to read unit files again below {progress.bytes_text(RUN_LEAST)}"
    return [Found("run", "warn", text, "du -xh /run | sort -h | tail, and make room", states.RUN_FULL)]


def _divert(setup: own.Setup, owner: packages.Owner) -> str:
    path = setup.product.entrypoint
    if not owner.diverts:
        return f"remove the package {owner.package}, or exclude it from updates"
    if (
        setup.is_agent or host.entrypoint_kind(setup.product) == "ours"
    ):  # setup diverts what it adopts, and nothing else
        return f"dpkg-divert --local --no-rename --divert {path}{packages.SUFFIX} --add {path}"
    return "slotward setup --adopt --divert"


def gather(setup: own.Setup, state: settle.State) -> Look:
    """One look; nothing is changed."""
    product = setup.product
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mountinfo = file.read()
    entry = state.slots.get(state.current or "")
    relied = (product.slots_dir, f"{units.GUARD_DIR}/guard.d", units.UNIT_DIR, os.path.dirname(product.entrypoint))
    return Look(
        slots=preflight.look_at(product.slots_dir, mountinfo),
        staging=preflight.look_at(os.path.dirname(setup.staging), mountinfo),
        run=preflight.look_at(RUN, mountinfo),
        size=entry.size if entry is not None else 0,
        enabled=_enabled(product),
        owner=_owner(product) if state.in_use else None,
        conflicts=product_files.conflicts(setup.agent[1], setup),
        busy=tuple(lock for path in LOCKS for lock in _holder(path)),
        reboot=_reboot(),
        risks=ways.at_risk(relied) if setup.config.mode == units_modes.ROOT else (),
    )


def _enabled(product: products.Product) -> str:
    try:
        return systemd.show(product.unit, ("UnitFileState",)).get("UnitFileState", "")
    except (codes.Refused, codes.Retryable):
        return ""  # what the answer says of the unit tells it


def _owner(product: products.Product) -> Optional[packages.Owner]:
    with contextlib.suppress(codes.Retryable):
        found = packages.owner(product.entrypoint)
        return None if found is None or (found.diverts and packages.is_diverted(product.entrypoint)) else found
    return None


def _holder(path: str) -> List[Tuple[str, int]]:
    """Who holds a package manager's lock; asked of the kernel, so that nobody is kept from it for a moment."""
    try:
        descriptor = os.open(path, opening.READ)
    except OSError:
        return []
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return [(path, pid)] if kind != fcntl.F_UNLCK else []


def _reboot() -> str:
    """What asks for a reboot, by Debian's own file; "" when nothing does."""
    if not os.path.exists(REBOOT):
        return ""
    with contextlib.suppress(OSError):
        said = (host.read_bytes(REBOOT + ".pkgs", 4096) or b"").decode("ascii", "replace").split()
        return ", ".join(dict.fromkeys(said[:5])) or REBOOT
    return REBOOT
