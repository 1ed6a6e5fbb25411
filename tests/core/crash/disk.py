# SPDX-License-Identifier: GPL-3.0-or-later
"""A small model of a file system that forgets what was not synced.

Rules:
- What is durable survives. What is not yet durable survives a power cut in any combination.
- A file's bytes are durable after a sync of that file; until then they may be missing, cut short or complete, also
  where the file's name is durable already. An append may be cut short in the same way, and never takes what was there.
- A name is durable after a sync of its directory. A rename is atomic: both names change, or neither.
- Effects on one name that survive keep their order; effects on other names do not wait for each other.
- A tree is one name here, whose bytes are those of its program. `Unpack` and `Discard` have made all durable when they are
  done; a power cut within them leaves any part of a tree under its temporary name, and a tree without its listing.
- This is weaker than any file system in use promises, so what holds here holds there.
"""

from __future__ import annotations

import errno
import itertools
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from slotcore import listings, ops


class Node(NamedTuple):
    """What a name leads to: a link's target, or a file's number."""

    target: Optional[str] = None
    file: Optional[int] = None


class Tear(NamedTuple):
    """Bytes of a file that are not durable: what is, and what is not yet."""

    file: int
    durable: bytes
    pending: bytes

    def survivors(self) -> Tuple[bytes, ...]:
        """What may be left of it: nothing, a part, or all."""
        cuts = sorted({0, len(self.pending) // 2, len(self.pending)})
        return tuple(self.durable + self.pending[:cut] for cut in cuts)


Tree = Dict[str, bytes]
"""A tree of files and links by path; a link's value is `->` and its target, a release's tree `=>` and its program.

No file here begins like that.
"""
LINK = b"->"
TREE = b"=>"
Changes = Tuple[Tuple[str, Optional[Node]], ...]


class Choice(NamedTuple):
    """What survives one power cut: which changes of names, and how much of each torn file."""

    names: Tuple[bool, ...]
    bytes: Tuple[int, ...]


class Disk:
    """Durable names and bytes, and the effects that are not durable yet."""

    def __init__(self, tree: Mapping[str, bytes], sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._numbers = itertools.count()
        self._names: Dict[str, Node] = {}
        self._bytes: Dict[int, bytes] = {}
        for path, data in tree.items():
            if data.startswith(LINK):
                self._names[path] = Node(target=data[len(LINK) :].decode())
            else:
                self._names[path] = self._new_file(data)
        self._durable_names = dict(self._names)
        self._durable_bytes = dict(self._bytes)
        self._pending: List[Changes] = []
        self._within: List[str] = []
        """Directories that the last operation has synced when it is done."""

    def _new_file(self, data: bytes) -> Node:
        number = next(self._numbers)
        self._bytes[number] = data
        return Node(file=number)

    def _change(self, *changes: Tuple[str, Optional[Node]]) -> None:
        self._pending.append(changes)
        _apply(self._names, changes)

    def _create(self, path: str, node: Node) -> None:
        if path in self._names:
            self._change((path, None))
        self._change((path, node))

    def do(self, operation: ops.Operation) -> None:
        """Carry out one operation in memory."""
        self._settle()
        if isinstance(operation, ops.Discard):
            self._discard(operation)
        elif isinstance(operation, ops.Unpack):
            self._unpack(operation)
        elif isinstance(operation, ops.Write):
            self._create(operation.path, self._new_file(operation.data))
        elif isinstance(operation, ops.Copy):
            self._create(operation.path, self._new_file(self._sources[operation.source]))
        elif isinstance(operation, ops.Link):
            self._create(operation.path, Node(target=operation.target))
        elif isinstance(operation, (ops.Rename, ops.Claim)):
            self._rename(operation.source, operation.path)
        elif isinstance(operation, ops.Unlink):
            if operation.path in self._names:
                self._change((operation.path, None))
        elif isinstance(operation, ops.Append):
            self._bytes[self._file(operation.path)] += operation.data
        elif isinstance(operation, ops.Sync):
            number = self._file(operation.path)
            self._durable_bytes[number] = self._bytes[number]
        elif isinstance(operation, ops.SyncDir):
            self._sync_directory(operation.path)

    def _settle(self) -> None:
        """What the last operation did is durable now: another one begins."""
        for directory in self._within:
            self._sync_directory(directory)
            for path, node in self._names.items():
                if node.file is not None and ops.directory_of(path) == directory:
                    self._durable_bytes[node.file] = self._bytes[node.file]
        self._within = []

    def _discard(self, operation: ops.Discard) -> None:
        directory = ops.directory_of(operation.path)
        if operation.path + ops.LISTING in self._names:
            self._change((operation.path + ops.LISTING, None))
            self._sync_directory(directory)
        if operation.path in self._names:
            self._change((operation.path, None))
        self._within = [directory]

    def _unpack(self, operation: ops.Unpack) -> None:
        data = self._sources[operation.source]
        tree = self._new_file(TREE + data)
        self._durable_bytes[int(tree.file or 0)] = TREE
        self._create(operation.path + ops.PARTIAL, tree)
        program = listings.Entry("probe", listings.FILE, 0o755, len(data), operation.record.sha256)
        listing = listings.render(listings.Listing(operation.record, (program,)))
        self._create(operation.path + ops.LISTING + ops.PARTIAL, self._new_file(listing))
        self._within = [ops.directory_of(operation.path)]

    def _rename(self, source: str, path: str) -> None:
        if self._is_tree(source) and self._is_tree(path):
            raise OSError(errno.ENOTEMPTY, "a directory is renamed over another", path)
        self._change((source, None), (path, self._names[source]))

    def _is_tree(self, path: str) -> bool:
        node = self._names.get(path)
        return node is not None and node.file is not None and self._bytes[node.file].startswith(TREE)

    def _file(self, path: str) -> int:
        number = self._names[path].file
        assert number is not None, f"{path} is a link"
        return number

    def _sync_directory(self, directory: str) -> None:
        durable = [changes for changes in self._pending if ops.directory_of(changes[0][0]) == directory]
        for changes in durable:
            _apply(self._durable_names, changes)
        self._pending = [changes for changes in self._pending if changes not in durable]

    def tears(self) -> Tuple[Tear, ...]:
        """The files whose bytes are not durable; one that no name leads to any more, even after a cut, is none."""
        named = {node.file for names in (self._names, self._durable_names) for node in names.values()}
        return tuple(
            Tear(number, self._durable_bytes.get(number, b""), data[len(self._durable_bytes.get(number, b"")) :])
            for number, data in self._bytes.items()
            if number in named and self._durable_bytes.get(number) != data
        )

    def choices(self) -> Iterator[Choice]:
        """Every combination of what may survive a power cut now."""
        names = itertools.product((False, True), repeat=len(self._pending))
        torn = [range(len(tear.survivors())) for tear in self.tears()]
        return (Choice(kept, tuple(cuts)) for kept in names for cuts in itertools.product(*torn))

    def is_durable(self) -> bool:
        """Whether a power cut now would lose nothing."""
        return not self._pending and not self.tears()

    def kept(self) -> Choice:
        """The choice that loses nothing: the process was killed, not the machine."""
        return Choice((True,) * len(self._pending), tuple(len(tear.survivors()) - 1 for tear in self.tears()))

    def after(self, choice: Choice) -> Tree:
        """The tree that a power cut leaves."""
        names, held = dict(self._durable_names), dict(self._durable_bytes)
        for kept, changes in zip(choice.names, self._pending):
            if kept:
                _apply(names, changes)
        for cut, tear in zip(choice.bytes, self.tears()):
            held[tear.file] = tear.survivors()[cut]
        return {path: _shown(node, held) for path, node in names.items()}


def _apply(names: Dict[str, Node], changes: Changes) -> None:
    for path, node in changes:
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node


def _shown(node: Node, held: Mapping[int, bytes]) -> bytes:
    if node.file is None:
        return LINK + str(node.target).encode()
    return held.get(node.file, b"")


def cut(tree: Mapping[str, bytes], sources: Mapping[str, bytes], plan: Sequence[ops.Operation], after: int) -> Disk:
    """The disk when the power goes after `after` operations of `plan`."""
    disk = Disk(tree, sources)
    for operation in plan[:after]:
        disk.do(operation)
    return disk
