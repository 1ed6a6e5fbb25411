# SPDX-License-Identifier: GPL-3.0-or-later
"""`S/evidence`: the files that are kept of failed releases (faults.md, section 7; I6).

Rules:
- The directory is root's alone, 0700, and never reached through a link; a file in it by one plain name below the open
  directory, whatever lies there: no link is followed, no FIFO waited for.
- A file is written beside, synced and renamed; the older ones go first, so that there are never more than the bound.
- Nothing is written where that would leave the filesystem short: a host that is full has better use for the space.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any, Dict, Iterator, List, Optional, Tuple

from slotcore import codes, evidence, strictjson
from slotcore import product as products
from slotward import opening, staging

LEAST_FREE = 16 << 20
LEAST_INODES = 64


def place_of(product: products.Product) -> str:
    """The directory."""
    return product.path(evidence.DIRECTORY)


def _judged(descriptor: int, path: str) -> int:
    found = os.fstat(descriptor)
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        os.close(descriptor)
        raise codes.refused(codes.DIRECTORY_UNSAFE, f"{path} is not root's alone: remove it, or chown and chmod it")
    return descriptor


def _open(product: products.Product) -> int:
    path = place_of(product)
    return _judged(opening.open_directory(path), path)


@contextlib.contextmanager
def _there(product: products.Product, makes: bool = False) -> Iterator[int]:
    """The open directory; raises FileNotFoundError where there is none and none is made."""
    if makes:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place_of(product), 0o700)
    descriptor = _open(product)
    try:
        if makes:
            os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)


def _names(directory: int) -> List[str]:
    """What is in the directory, the newest first."""
    found: List[Tuple[int, str]] = []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            found.append((os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime_ns, name))
    return [name for _at, name in sorted(found, reverse=True)]


def _remove(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):  # somebody else was first, or it is a directory of nobody's
        os.unlink(name, dir_fd=directory)


def short_of(directory: int) -> str:
    """What of the filesystem is too little for evidence; "" when there is enough."""
    found = os.fstatvfs(directory)
    if found.f_bavail * found.f_frsize < LEAST_FREE:
        return f"{found.f_bavail * found.f_frsize >> 20} MiB are free, and {LEAST_FREE >> 20} have to stay so"
    if found.f_files and found.f_favail < LEAST_INODES:
        return f"{found.f_favail} inodes are free, and {LEAST_INODES} have to stay so"
    return ""


def is_kept(product: products.Product, trial_id: str) -> bool:
    """Whether there is a file of that trial."""
    return os.path.lexists(os.path.join(place_of(product), evidence.name_of(trial_id)))


def make_room(product: products.Product) -> str:
    """Remove what is too much, with one place for a new file; answers why none may be written, "" when one may."""
    with _there(product, makes=True) as directory:
        for name in evidence.surplus(_names(directory), evidence.KEEP - 1):
            _remove(directory, name)
        return short_of(directory)


def write(product: products.Product, trial_id: str, data: bytes) -> None:
    """Put a trial's file there, in the place of whatever has its name."""
    with _there(product, makes=True) as directory:
        staging.put(directory, evidence.name_of(trial_id), data, evidence.PARTIAL)


def _read(directory: int, name: str, path: str) -> Dict[str, Any]:
    """What a file says; raises Refused, NotJson or OSError for what is no evidence."""
    descriptor = opening.open_at(directory, name, path, opening.READ)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise opening.unsafe(path, f"{opening.kind(found.st_mode)}, not a plain file")
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
            raise opening.unsafe(path, "a file that others than root may have written")
        return evidence.parse(file.read(evidence.MAX_BYTES + 1))


def read(product: products.Product, trial_id: str) -> Optional[Dict[str, Any]]:
    """One trial's evidence; None when none is kept. Raises Refused `cannot-read` for what cannot be believed."""
    name = evidence.name_of(trial_id)
    path = os.path.join(place_of(product), name)
    try:
        with _there(product) as directory:
            return _read(directory, name, path)
    except FileNotFoundError:
        return None
    except strictjson.NotJson as error:
        raise codes.refused(codes.CANNOT_READ, f"{path} is damaged: {error}; remove it") from error
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, f"cannot read {path}: {error.strerror}") from error


def kept(product: products.Product) -> Tuple[List[Dict[str, Any]], List[str]]:
    """All that is kept, the newest first, each as a list shows it; and what lies there and cannot be read."""
    heads: List[Dict[str, Any]] = []
    odd: List[str] = []
    try:
        with _there(product) as directory:
            for name in _names(directory):
                path = os.path.join(place_of(product), name)
                try:
                    found = _read(directory, name, path)
                    if evidence.id_of(name) != found["trial_id"]:
                        raise strictjson.NotJson("it is of trial %s" % found["trial_id"])
                    heads.append(evidence.head_of(found))
                except (strictjson.NotJson, OSError, codes.Refused) as error:
                    odd.append(f"{path}: {error}")
    except FileNotFoundError:
        return [], []
    except (OSError, codes.Refused) as error:
        return [], [f"{place_of(product)}: {error}"]
    return heads, odd
