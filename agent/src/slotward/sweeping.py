# SPDX-License-Identifier: GPL-3.0-or-later
"""Removing trees that nobody needs any more (products.md, section 3); the lock is held.

Rules:
- What a cut left goes always. Whole trees go only at rest or in a sound trial: with a broken record none is touched.
- A process runs from a tree when its program, its working directory or a file that it has mapped lies there, or its
  command line names it. Of one that hides all else, as those outside of a container do, the command line must do.
- Sweeping is nobody's success or failure: what cannot be removed now is said, and removed another time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from slotcore import codes, ops, pruning, records, settle
from slotcore import product as products
from slotward import answers, opening, trees, unpack


def sweep(product: products.Product, state: settle.State) -> List[str]:
    """Remove what is not needed of the trees; what was removed."""
    try:
        return _sweep(product, state)
    except (OSError, codes.Refused) as error:
        said = error.text if isinstance(error, codes.Refused) else f"{error.strerror}: {error.filename}"
        print(answers.plain(f"{product.path(products.TREES)} was not swept: {said}"), file=sys.stderr)
        return []


def _sweep(product: products.Product, state: settle.State) -> List[str]:
    try:
        above = opening.open_directory(product.path(products.TREES))
    except FileNotFoundError:
        return []
    try:
        found = pruning.sort_out(os.listdir(above))
        for name in found.left:
            unpack.remove_tree(above, name)
        if state.broken is not None:
            return list(found.left)
        alone = [version for version in found.alone if version not in _live(product, state)]
        for version in alone:
            unpack.remove_tree(above, version + ops.LISTING)
    finally:
        os.close(above)
    gone = _superfluous(product, state, found.trees)
    for version in gone:
        trees.discard(product.tree(version))
    return [*found.left, *alone, *gone]


def _live(product: products.Product, state: settle.State) -> Set[str]:
    """The versions that a link leads to, or that a slot's record is about."""
    linked = {trees.version_of(product, name) for name in products.SLOTS}
    return linked | {entry.version for entry in state.slots.values()}


def _superfluous(product: products.Product, state: settle.State, versions: Sequence[str]) -> Tuple[str, ...]:
    live = _live(product, state)
    listed = {version: _record(product, version) for version in versions}
    if not pruning.superfluous(listed, live, set(), product.keep):
        return ()  # most of the time, and no process is looked at
    running = running_from(product, [version for version in versions if version not in live])
    return pruning.superfluous(listed, live, set(running), product.keep)


def _record(product: products.Product, version: str) -> Optional[records.SlotRecord]:
    try:
        listing = trees.read_listing(product, version)
    except (OSError, codes.BrokenRecord):
        return None
    return listing.record if listing is not None else None


class Files:
    """The files and directories of some trees, by what a process may show of them."""

    def __init__(self, product: products.Product, versions: Sequence[str]) -> None:
        self._paths = {os.path.realpath(product.tree(version)) + "/": version for version in versions}
        self._inodes: Dict[Tuple[int, int], str] = {}
        self._names: Dict[Tuple[int, str], str] = {}
        for path, version in self._paths.items():
            for found, name in _all_below(path):
                self._inodes[found.st_dev, found.st_ino] = version
                self._names[found.st_ino, name] = version

    def by_inode(self, found: os.stat_result) -> Optional[str]:
        """The version whose tree this file or directory is in."""
        return self._inodes.get((found.st_dev, found.st_ino))

    def by_mapping(self, inode: str, path: str) -> Optional[str]:
        """The same for a line of `maps`; its device is not that of the file on every file system, so its name counts."""
        name = os.path.basename(path.removesuffix(" (deleted)"))
        return self.by_path(path) or self._names.get((int(inode), name))

    def by_path(self, path: str) -> Optional[str]:
        """The version in whose tree this path lies, as it is written."""
        return next((version for start, version in self._paths.items() if path.startswith(start)), None)


def _all_below(path: str) -> Iterator[Tuple[os.stat_result, str]]:
    yield os.stat(path), ""
    for directory, subdirectories, files in os.walk(path):
        for name in (*subdirectories, *files):
            yield os.lstat(os.path.join(directory, name)), name


def running_from(product: products.Product, versions: Sequence[str], proc: str = "/proc") -> Mapping[str, str]:
    """Of these versions, those whose trees a process runs from, and which process that is."""
    files = Files(product, [version for version in versions if os.path.isdir(product.tree(version))])
    found: Dict[str, str] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            for version in _of_process(files, f"{proc}/{pid}"):
                found[version] = f"process {pid} runs from it"
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended, or is the kernel's own
    return found


def _of_process(files: Files, process: str) -> Set[str]:
    shown = {files.by_path(word) for word in _text(f"{process}/cmdline").split("\0")}
    with contextlib.suppress(PermissionError):
        shown |= {files.by_inode(os.stat(f"{process}/{name}")) for name in ("exe", "cwd")}
        for line in _text(f"{process}/maps").splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[4] != "0":
                shown.add(files.by_mapping(fields[4], fields[5]))
    return {version for version in shown if version is not None}


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
