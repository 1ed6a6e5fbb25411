# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations: what a plan is made of. Data only; the agent's executor carries them out one by one.

Rules:
- An operation is one effect. A crash after step n of a plan is `plan[:n]`, so a test can try every n.
- Making a thing durable is an operation of its own, so a test can drop any write that was not synced.
- A name is replaced only by a rename of a complete, synced temporary; no file is ever written in place, but for appends.
- Every operation may be carried out again after a crash: leftovers of a temporary name are replaced.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple, Union

from . import records
from . import trial as trials


class Write(NamedTuple):
    """Write a new file, replacing a leftover of the same (temporary) name; the mode holds under any umask."""

    path: str
    data: bytes
    mode: int = 0o644


class Copy(NamedTuple):
    """Copy `source` (see the plan) into a new file, 0755, refusing other bytes than `sha256` and `size`."""

    path: str
    source: str
    sha256: str
    size: int


class Discard(NamedTuple):
    """Remove a tree and its listing: the listing first, and durably, so that what is half gone proves nothing."""

    path: str


class Unpack(NamedTuple):
    """Make the tree `<path>.partial` of `source` (see the plan), and its listing `<path>.json.partial`, both durable.

    Refuses other bytes than the record's. What lies under these names is replaced, `path` itself is not touched.
    """

    path: str
    source: str
    record: records.SlotRecord
    kind: str
    """The artifact's kind; "" when nobody says: then its first bytes do."""


class Append(NamedTuple):
    """Append to an existing file; never fatal, since it needs space."""

    path: str
    data: bytes


class Sync(NamedTuple):
    """Make a file's bytes durable."""

    path: str


class SyncDir(NamedTuple):
    """Make a directory's names durable."""

    path: str


class Link(NamedTuple):
    """Make a symbolic link under a temporary name, replacing a leftover."""

    path: str
    target: str


class Rename(NamedTuple):
    """Rename, replacing what is there."""

    source: str
    path: str


class Claim(NamedTuple):
    """Rename that decides who ends the trial (I12): when the source is gone, somebody else has won."""

    source: str
    path: str


class Demand(NamedTuple):
    """Demand that the trial of this id is pending still, by its record: what it is over for must not be started (I2, I12)."""

    path: str
    trial_id: str


class Unlink(NamedTuple):
    """Remove a name; nothing happens when it is gone."""

    path: str


class Check(NamedTuple):
    """Look at a freshly written slot: kind of file, machine, interpreter, smoke test. Refuses before the switch."""

    path: str
    version: str


class Arm(NamedTuple):
    """Start the deadline timer and have systemd say that it is active (I4)."""


class Restart(NamedTuple):
    """Restart the product's unit, and its helper's with it, resetting their failures first, without waiting."""


class RestartHelper(NamedTuple):
    """Restart the helper's unit alone, in the same way: only its link has moved."""


class Reload(NamedTuple):
    """Have systemd read its unit files again: one of them has moved.

    What need not be is told when it is refused, and ends the plan only after its restart, on which nothing may depend.
    """

    must: bool


class Gather(NamedTuple):
    """Have what is known of a release that failed gathered; never fatal, and nothing depends on it.

    It comes before the claim goes, so that whoever finishes this after a cut has it gathered too.
    """

    last: records.Last
    trial: Optional[trials.Trial]
    log: bytes


Operation = Union[
    Write,
    Copy,
    Discard,
    Unpack,
    Append,
    Sync,
    SyncDir,
    Link,
    Rename,
    Claim,
    Demand,
    Unlink,
    Check,
    Arm,
    Restart,
    RestartHelper,
    Reload,
    Gather,
]
Plan = Tuple[Operation, ...]


def directory_of(path: str) -> str:
    """The directory that holds the name `path`."""
    return path.rpartition("/")[0] or "/"


def write_durably(path: str, data: bytes, mode: int = 0o644) -> Plan:
    """Replace `path` by a complete file: temporary, sync, rename, sync of the directory (field case P1)."""
    temporary = path + ".tmp"
    return (
        Write(temporary, data, mode),
        Sync(temporary),
        Rename(temporary, path),
        SyncDir(directory_of(path)),
    )


def copy_durably(path: str, source: str, sha256: str, size: int) -> Plan:
    """As `write_durably`, with the bytes of `source`, executable."""
    temporary = path + ".tmp"
    return (
        Copy(temporary, source, sha256, size),
        Sync(temporary),
        Rename(temporary, path),
        SyncDir(directory_of(path)),
    )


BINARY, ARCHIVE = "binary", "tar.gz"
"""Kinds of artifacts, as manifests call them."""
PARTIAL = ".partial"
LISTING = ".json"


def unpack_durably(path: str, source: str, record: records.SlotRecord, kind: str) -> Plan:
    """The tree `path` and its listing, whatever lay there before; the name comes when all is durable below it."""
    return (
        Discard(path),
        Unpack(path, source, record, kind),
        Rename(path + PARTIAL, path),
        Rename(path + LISTING + PARTIAL, path + LISTING),
        SyncDir(directory_of(path)),
    )


def link_durably(path: str, target: str) -> Plan:
    """Point the link `path` at `target`, atomically."""
    temporary = path + ".tmp"
    return (Link(temporary, target), Rename(temporary, path), SyncDir(directory_of(path)))


def unlink_durably(directory: str, *names: str) -> Plan:
    """Remove names of one directory, then make that durable once."""
    return tuple(Unlink(directory + "/" + name) for name in names) + (SyncDir(directory),)
