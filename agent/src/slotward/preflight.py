# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the filesystems of a host can take a release: looked at before the first byte is fetched.

Rules:
- `look` gathers facts, `judge` decides on them; the order of its lines is the order of the refusals.
- Needed: the download, the slot and a reserve, on each filesystem that they lie on (field case D1).
- A filesystem that a reboot empties is no place for slots (D10), nor one that is read-only or mounted noexec.
- Flags do not tell everything, so a small program is written to the slots directory and run from it (D7), as the
  service's user. It is gone afterwards, whatever came of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from slotcore import codes, settle
from slotward import allowlist, progress

RESERVE = 32 << 20
INODES = 64
PROBE_S = 10
PROBE = b"#!/bin/sh\nexit 0\n"
VOLATILE = ("overlay", "overlayfs", "aufs", "unionfs", "tmpfs", "ramfs", "rootfs")

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Filesystem(NamedTuple):
    """What holds a directory that exists already, or its nearest parent that does."""

    path: str
    device: int
    kind: str
    free: int
    inodes: Optional[int]
    """Free inodes; None where the filesystem makes them as needed."""
    read_only: bool
    noexec: bool
    mount: str = ""
    """Where the filesystem begins, as far as its directories show."""


class Probe(NamedTuple):
    """How far the probe came (`written`, `run` or neither), and the error that stopped it."""

    written: bool
    run: bool
    code: int = 0
    why: str = ""


class Facts(NamedTuple):
    """Everything that is decided on."""

    slots: Filesystem
    staging: Filesystem
    probe: Optional[Probe]
    user: str = ""
    allow_list: bool = False
    """The probe could not run, and an allow-list of programs is active."""


def kind_of(mountinfo: str, path: str) -> str:
    """The type of the filesystem that holds `path`, a real path; the last of several mounts on one place counts."""
    best, kind = -1, "unknown"
    for line in mountinfo.splitlines():
        fields, _separator, rest = line.partition(" - ")
        words = fields.split(" ")
        if len(words) < 5 or not rest:
            continue
        place = _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), words[4])
        if len(place) >= best and (path + "/").startswith(place.rstrip("/") + "/"):
            best, kind = len(place), rest.split(" ")[0]
    return kind


def existing(path: str) -> str:
    """The path itself if it exists, else its nearest parent that does."""
    path = os.path.realpath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def look_at(path: str, mountinfo: str) -> Filesystem:
    """The filesystem of a directory, or of where it would be made."""
    place = existing(path)
    found = os.statvfs(place)
    return Filesystem(
        path=path,
        device=os.stat(place).st_dev,
        kind=kind_of(mountinfo, place),
        free=found.f_bavail * found.f_frsize,
        inodes=found.f_favail if found.f_files else None,
        read_only=bool(found.f_flag & os.ST_RDONLY),
        noexec=bool(found.f_flag & os.ST_NOEXEC),
        mount=_mount_of(place),
    )


def _mount_of(place: str) -> str:
    while not os.path.ismount(place):
        place = os.path.dirname(place)
    return place


def look(slots_dir: str, data_dir: str, user: str = "") -> Facts:
    """Look at both filesystems, and try the slots directory if it is there."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mountinfo = file.read()
    slots = look_at(slots_dir, mountinfo)
    tried = None if slots.read_only or not os.path.isdir(slots_dir) else try_directory(slots_dir, user)
    allow_list = tried is not None and tried.written and not tried.run and allowlist.active()
    return Facts(slots, look_at(data_dir, mountinfo), tried, user, allow_list)


def try_directory(directory: str, user: str = "") -> Probe:
    """Write a small program into the directory and run it from there, as `user` where that is possible."""
    path = os.path.join(directory, "%s%d" % (settle.PROBE, os.getpid()))
    try:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
            try:
                os.write(descriptor, PROBE)
                os.fchmod(descriptor, 0o755)
            finally:
                os.close(descriptor)
        except OSError as error:
            return Probe(False, False, error.errno or 0, error.strerror or str(error))
        return _run(path, _identity(user))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _identity(user: str) -> Optional[Tuple[int, int]]:
    """User and group of the service, when this process may become them."""
    if not user or os.geteuid() != 0:
        return None
    import pwd

    try:
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def _run(path: str, identity: Optional[Tuple[int, int]]) -> Probe:
    import subprocess

    more: Dict[str, object] = {}
    if identity is not None:
        more = {"user": identity[0], "group": identity[1], "extra_groups": ()}
    try:
        done = subprocess.run(  # type: ignore[call-overload]  # user and group by name
            [path], cwd="/", env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PROBE_S, check=False, **more,
        )  # fmt: skip
    except OSError as error:
        if error.errno == errno.EPERM and identity is not None:
            return _run(path, None)  # a sandbox does not let us become somebody else: what is left to try is ourselves
        return Probe(True, False, error.errno or 0, error.strerror or str(error))
    except subprocess.TimeoutExpired:
        return Probe(True, False, 0, "no end after %d s" % PROBE_S)
    if done.returncode != 0:
        return Probe(True, False, 0, "status %d" % done.returncode)
    return Probe(True, True)


def judge(facts: Facts, size: int, adopt_size: int = 0) -> Optional[codes.Refusal]:
    """Why this host cannot take a release of `size` bytes, if it cannot."""
    slots, staging = facts.slots, facts.staging
    advice = "set [update] slots_dir to a directory on a disk of this host"
    if slots.read_only:
        return codes.Refusal(codes.READ_ONLY, "%s is on a read-only filesystem: %s" % (slots.path, advice))
    if slots.kind in VOLATILE:
        text = "%s is on %s, which a reboot may empty: %s"
        return codes.Refusal(codes.OVERLAY, text % (slots.path, slots.kind, advice))
    if slots.noexec:
        text = "%s is on a filesystem that is mounted noexec: %s"
        return codes.Refusal(codes.NOEXEC, text % (slots.path, advice))
    if facts.allow_list:
        return allowlist.refusal(slots.path, "a program of that directory")
    refusal = _judge_probe(slots.path, facts.probe, facts.user)
    if refusal is not None or not size:
        return refusal
    if staging.read_only:
        text = "%s is on a read-only filesystem: set data_dir to a directory that can be written"
        return codes.Refusal(codes.READ_ONLY, text % staging.path)
    return _judge_space(((slots, size + adopt_size), (staging, size)))


def _judge_probe(path: str, probe: Optional[Probe], user: str) -> Optional[codes.Refusal]:
    if probe is None or probe.run:
        return None
    if probe.written:
        who = " as user %s" % user if user else ""
        return codes.Refusal(codes.NOEXEC, "cannot run a program from %s%s: %s" % (path, who, probe.why))
    if probe.code in (errno.ENOSPC, errno.EDQUOT):
        return codes.Refusal(codes.NO_SPACE, "cannot write to %s: %s" % (path, probe.why))
    if probe.code == errno.EROFS:
        return codes.Refusal(codes.READ_ONLY, "cannot write to %s: %s" % (path, probe.why))
    return codes.Refusal(codes.CANNOT_WRITE, "cannot write to %s: %s" % (path, probe.why))


def _judge_space(needs: Sequence[Tuple[Filesystem, int]]) -> Optional[codes.Refusal]:
    """Sum what each filesystem must take; the reserve counts once for each."""
    by_device: Dict[int, List[Tuple[Filesystem, int]]] = {}
    for place, count in needs:
        by_device.setdefault(place.device, []).append((place, count))
    for parts in by_device.values():
        place = parts[0][0]
        paths = " and ".join(dict.fromkeys(part.path for part, _count in parts))
        needed = sum(count for _part, count in parts) + RESERVE
        if place.free < needed:
            text = "%s needs %s free and has %s: free %s more"
            shown = (
                progress.bytes_text(needed),
                progress.bytes_text(place.free),
                progress.bytes_text(needed - place.free),
            )
            return codes.Refusal(codes.NO_SPACE, text % ((paths,) + shown))
        if place.inodes is not None and place.inodes < INODES:
            text = "%s has %d free inodes and needs %d: remove files there"
            return codes.Refusal(codes.NO_SPACE, text % (paths, place.inodes, INODES))
    return None


def check(slots_dir: str, data_dir: str, size: int, user: str = "", adopt_size: int = 0) -> Optional[codes.Refusal]:
    """Look and judge; `size` is 0 when nothing is fetched, `user` whom the service runs as."""
    return judge(look(slots_dir, data_dir, user), size, adopt_size)
