# SPDX-License-Identifier: GPL-3.0-or-later
"""The trees of layout `versions`: made of an artifact, proven by their listings, discarded (products.md, section 3).

Rules:
- A tree is proven by reading all of it: nothing missing, nothing more, every byte and mode as its listing says, all of it
  root's. A listing that is missing or broken proves nothing.
- No link is followed within a tree, nor to it but by the slot's own; what was looked at is the open descriptor.
- A tree that a start may run from, or a process runs from, is never discarded.
"""

from __future__ import annotations

import os
import stat
from typing import Iterator, Optional

from slotcore import codes, listings, ops, records, semver, settle
from slotcore import product as products
from slotward import effects, executor, host, labels, opening, unpack

TAKEN_ENDS = (ops.PARTIAL, ops.LISTING, ".tmp")
"""Ends of names that lie beside the trees."""


def demand_name(version: str) -> None:
    """Raise Refused `not-a-release` for what no tree is called."""
    if not semver.is_version(version):
        raise codes.refused(codes.NOT_A_RELEASE, f"{version!r} is no version, so no directory is called so")
    if version.endswith(TAKEN_ENDS):
        text = f"{version} ends in {' or '.join(TAKEN_ENDS)}, as what lies beside the trees does: give another version"
        raise codes.refused(codes.NOT_A_RELEASE, text)


def make(product: products.Product, operation: ops.Unpack, source: int) -> None:
    """Carry out `Unpack` from the open file `source`: the tree and its listing under their temporary names, durable."""
    record, partial = operation.record, operation.path + ops.PARTIAL
    demand_name(record.version)
    artifact = unpack.Artifact(source, record.size, record.sha256, operation.kind)
    entries = unpack.unpack(artifact, os.path.dirname(operation.path), record.version, product.program)
    try:
        labels.give(f"{partial}/{product.program}", like=product.entrypoint, tree=partial)  # the rename keeps them
    except codes.Refused:
        discard(partial)
        raise
    listing = operation.path + ops.LISTING + ops.PARTIAL
    data = listings.render(listings.Listing(record, entries))
    effects.executor_for(product, {}).apply((ops.Write(listing, data), ops.Sync(listing)), "listing")
    executor.sync_path(product.slots_dir)  # the directory of the trees may be new


def discard(path: str) -> None:
    """Remove a tree: its listing first, durably, so that no half of it is ever taken for a whole one."""
    try:
        above = opening.open_directory(os.path.dirname(path))
    except FileNotFoundError:
        return
    try:
        name = os.path.basename(path)
        unpack.remove_tree(above, name + ops.LISTING)
        os.fsync(above)
        unpack.remove_tree(above, name)
        os.fsync(above)
    finally:
        os.close(above)


def version_of(product: products.Product, name: str) -> str:
    """The version whose tree a slot's link names; "" when it is no such link."""
    try:
        directory, _slash, version = os.readlink(product.path(name)).rpartition("/")
    except OSError:
        return ""
    return version if directory == products.TREES and semver.is_version(version) else ""


def read_listing(product: products.Product, version: str) -> Optional[listings.Listing]:
    """What the tree of a version has to be; None when nothing says it. Raises BrokenRecord and OSError."""
    path = product.tree(version) + ops.LISTING
    data = host.read_record(path, listings.MAX_BYTES)
    found = listings.parse(data, path) if data is not None else None
    if found is not None and found.record.version != version:
        raise codes.BrokenRecord(path, f"it is the listing of {found.record.version}")
    return found


def examine(product: products.Product, version: str) -> listings.Listing:
    """The listing of a version's tree, when all of the tree proves it; raises BrokenRecord saying what does not."""
    path = product.tree(version)
    try:
        listing = read_listing(product, version)
        if listing is None:
            raise codes.BrokenRecord(path, f"it has no listing {path}{ops.LISTING}, so nothing proves it")
        root = opening.open_directory(path)
        try:
            why = _root_problem(root) or listings.difference(listing, _below(root, ""))
        finally:
            os.close(root)
    except (OSError, codes.Refused) as error:
        raise codes.BrokenRecord(path, f"it cannot be read: {_said(error)}") from None
    if why:
        raise codes.BrokenRecord(path, f"it is not what its listing says: {why}")
    return listing


def _said(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _root_problem(root: int) -> str:
    found = os.fstat(root)
    problem = host.owner_problem(found)
    mode = stat.S_IMODE(found.st_mode)
    return f"its directory {problem}" if problem else ("" if mode == 0o755 else f"its mode is {mode:04o}, not 0755")


def _below(above: int, place: str) -> Iterator[listings.Entry]:
    """Everything below an open directory, a directory before what is in it; what cannot be in a tree is said as such."""
    for name in sorted(os.listdir(above)):
        kind = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
        if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
            yield listings.Entry(place + name, opening.kind(kind), 0)
            continue
        flags = opening.DIRECTORY | os.O_NOFOLLOW if stat.S_ISDIR(kind) else opening.READ
        descriptor = os.open(name, flags, dir_fd=above)
        try:
            entry = _entry(descriptor, place + name)
            yield entry
            if entry.kind == listings.DIRECTORY:
                yield from _below(descriptor, place + name + "/")
        finally:
            os.close(descriptor)


def _entry(descriptor: int, path: str) -> listings.Entry:
    found = os.fstat(descriptor)
    mode, problem = stat.S_IMODE(found.st_mode), host.owner_problem(found)
    if problem:
        return listings.Entry(path, f"something that {problem}", mode)
    if stat.S_ISDIR(found.st_mode):
        return listings.Entry(path, listings.DIRECTORY, mode)
    if not stat.S_ISREG(found.st_mode):
        return listings.Entry(path, opening.kind(found.st_mode), mode)
    with open(descriptor, "rb", closefd=False) as file:
        return listings.Entry(path, listings.FILE, mode, found.st_size, host.sha256_of(file))


def kept(product: products.Product, record: records.SlotRecord) -> Optional[listings.Listing]:
    """The listing of a tree that holds a release's very bytes already, and proves it; None when there is none."""
    try:
        listing = read_listing(product, record.version)  # few bytes say most of the time that there is nothing to read
        if listing is None or (listing.record.sha256, listing.record.size) != (record.sha256, record.size):
            return None
        return examine(product, record.version)
    except (OSError, codes.BrokenRecord):
        return None


def demand_free(product: products.Product, state: settle.State, version: str) -> None:
    """Raise Refused `already-exists` where the tree of a version would be replaced under what starts, or runs."""
    from slotward import sweeping

    path = product.tree(version)
    if not os.path.lexists(path):
        return
    used = [name for name in ("current", "good", "back") if version_of(product, getattr(state, name) or "") == version]
    what = f"{product.path(used[0])} leads to it" if used else sweeping.running_from(product, [version]).get(version)
    if what:
        text = f"{path} is there, with other bytes than this release's, and {what}: it is not replaced"
        raise codes.refused(codes.ALREADY_EXISTS, f"{text}; give these bytes another version")
