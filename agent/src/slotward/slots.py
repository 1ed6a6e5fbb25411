# SPDX-License-Identifier: GPL-3.0-or-later
"""The bytes of a slot, in the one place that reads them: a file of its own, or a tree that its link leads to.

Rules:
- A slot holds what its record says when its bytes prove it: the file's digest, or every byte of the tree by its listing.
- Nothing is said of a slot's bytes without reading it to its end.
- What root starts is root's, and nobody else may write it: an owner or a mode that says otherwise is told with what mends it.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple, Optional

from slotcore import codes, proving, records
from slotcore import product as products
from slotward import host, staging

NOT_EXECUTABLE = "is not executable"


class Exposed(NamedTuple):
    """A slot's file that is owned or may be written by others, or not run by all, in words; and the command that mends it."""

    why: str
    run: str


def exposed(product: products.Product, slot: str) -> Optional[Exposed]:
    """What is wrong with the owner or the mode of a slot's file; its bytes are another matter, and a tree's are in its listing."""
    path = product.path(slot)
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if product.layout == products.VERSIONS or not stat.S_ISREG(found.st_mode):
        return None
    mode = stat.S_IMODE(found.st_mode)
    if not host.owner_problem(found) and mode & 0o111 == 0o111:
        return None
    owner = f"owned by uid {found.st_uid}, mode {mode:04o}"
    chown = "" if found.st_uid in (0, os.geteuid()) else f"chown root:root {path} && "
    run = f"{chown}chmod {staging.PUBLIC:04o} {path}"
    return Exposed(f"slot {slot} ({path}) is {owner}; it has to be root's, mode {staging.PUBLIC:04o}", run)


def problem(product: products.Product, slot: str, entry: records.SlotRecord, named: str = "") -> str:
    """What is wrong with the bytes of a slot: "" when they are those of its record and can be started.

    `named` is the link that the slot was found by, where it was by one.
    """
    if product.layout == products.VERSIONS:
        return _tree_problem(product, slot, entry)
    path = product.path(named or slot)
    try:
        with open(host.open_named(path), "rb") as file:
            mode, digest = os.fstat(file.fileno()).st_mode, host.sha256_of(file)
    except OSError as error:
        return f"the program that {path} names cannot be read: {error.strerror}"
    if digest != entry.sha256:
        return f"slot {slot} holds other bytes than were verified for {entry.version}"
    return "" if mode & 0o111 else f"slot {slot} {NOT_EXECUTABLE}"


def _tree_problem(product: products.Product, slot: str, entry: records.SlotRecord) -> str:
    from slotward import trees

    version = trees.version_of(product, slot)
    if version != entry.version:
        return f"slot {slot} is no link to {products.tree_of(entry.version)}, the tree of its record"
    try:
        listing = trees.examine(product, version)
    except codes.BrokenRecord as error:
        return f"slot {slot}: {error.file}: {error.why}"
    if listing.record.sha256 != entry.sha256:
        return f"slot {slot} holds other bytes than were verified for {entry.version}"
    runs = any(one.path == product.program and one.mode & 0o111 for one in listing.entries)
    return "" if runs else f"slot {slot} has no program {product.program}"


def held(product: products.Product, slot: str) -> Optional[proving.Held]:
    """Digest and size of what a slot holds, as a record would say them; None when it holds nothing that proves itself."""
    if product.layout == products.VERSIONS:
        from slotward import trees

        try:
            record = trees.examine(product, trees.version_of(product, slot)).record
        except codes.BrokenRecord:
            return None
        return proving.Held(record.sha256, record.size)
    try:
        descriptor = staging.open_staged(product.slots_dir, slot)
    except (OSError, codes.Refused):
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return proving.Held(host.sha256_of(file), found.st_size, _is_kept(found))


def _is_kept(found: os.stat_result) -> bool:
    return stat.S_IMODE(found.st_mode) == staging.PUBLIC and found.st_uid in (0, os.geteuid())


def keep(product: products.Product, slot: str) -> None:
    """Make a slot's file root's (or whose process this is) and 0755 again; its bytes stay as they are."""
    descriptor = staging.open_staged(product.slots_dir, slot)
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, staging.PUBLIC)
    finally:
        os.close(descriptor)
