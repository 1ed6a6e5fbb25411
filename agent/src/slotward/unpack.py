# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a verified artifact into a directory of its own, `<versions>/<version>.partial` (seed 002 "On disk"; ADR 11).

Rules:
- An archive is read twice: once to check all of it, once to write. Both times its bytes must be the release's.
- A program becomes a directory of one file, in the same way.
- Everything is written below an open directory that was made here, name by name, never through a link.
- Modes are set whatever the umask; each file and directory is synced, so that whoever asked can give it its name.
- What was written is answered, with the digest of each file as it was written: that is the tree's listing.
- A cut leaves `<version>.partial` and nothing else; the next one, or a sweep, removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from slotcore import archive, codes, filling, listings, ops, semver, unpacking
from slotward import effects, faults, opening, preflight, staging

PIECE = 1 << 16
PARTIAL = ops.PARTIAL
EXECUTABLE, PLAIN = 0o755, 0o644


class Artifact(NamedTuple):
    """The artifact's open file, and what the release says of its bytes; without a kind its first bytes say it."""

    source: int
    size: int
    sha256: str
    kind: str = ops.ARCHIVE


def unpack(
    artifact: Artifact, versions: str, version: str, program: str, limits: archive.Limits = archive.DEFAULT
) -> Tuple[listings.Entry, ...]:
    """Make the directory `<versions>/<version>.partial` of the artifact, with `program` at its top; what is in it.

    Raises:
        Refused: `bad-archive`, or the bytes are not the release's; `already-exists`. Nothing is left.
        Retryable: no space, or the system says no.

    """
    if not semver.is_version(version):
        raise codes.refused(codes.NOT_A_RELEASE, f"{version!r} is no version, so no directory is called so")
    sizes, write = _writing(artifact, program, limits)
    try:
        staging.make_parents(versions)
        above = opening.open_directory(versions)
        try:
            _room(above, versions, sizes)
            return _write_below(above, os.path.join(versions, version), write)
        finally:
            os.close(above)
    except OSError as error:
        raise effects.as_retryable(error, f"unpack {program} {version}") from error


def _writing(artifact: Artifact, program: str, limits: archive.Limits) -> Tuple[Sequence[int], Callable[[_Tree], None]]:
    """The sizes of what the artifact becomes, and what writes it; an archive is checked to its end."""
    kind = artifact.kind or filling.kind_by(os.pread(artifact.source, filling.HEAD, 0))
    if kind == ops.BINARY:
        return [artifact.size], lambda tree: _write_program(tree, artifact, program)
    entries = archive.check(_pieces(artifact), limits)
    layout = unpacking.lay_out(entries, program)
    if isinstance(layout, codes.Refusal):
        raise codes.Refused(layout)
    return [entry.size for entry in entries], lambda tree: _write(tree, artifact, entries, layout, limits)


def remove_tree(above: int, name: str) -> None:
    """Remove `name` in the open directory `above`, and all below it; no link is followed."""
    try:
        os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        descriptor = os.open(name, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            for child in os.listdir(descriptor):
                remove_tree(descriptor, child)
        finally:
            os.close(descriptor)
        os.rmdir(name, dir_fd=above)


def _pieces(artifact: Artifact) -> Iterator[bytes]:
    """The archive's bytes; refused at the end when they are not the release's."""
    digest, done = hashlib.sha256(), 0
    while done <= artifact.size:
        block = os.pread(artifact.source, min(PIECE, artifact.size + 1 - done), done)
        if not block:
            break
        done += len(block)
        digest.update(block)
        if done <= artifact.size:
            yield block
    if done != artifact.size:
        text = f"the archive has {os.fstat(artifact.source).st_size} bytes, the release says {artifact.size}"
        raise codes.refused(codes.SIZE_MISMATCH, text)
    if digest.hexdigest() != artifact.sha256:
        text = f"the archive has the SHA-256 {digest.hexdigest()}, the release says {artifact.sha256}"
        raise codes.refused(codes.DIGEST_MISMATCH, text)


def _room(above: int, versions: str, sizes: Sequence[int]) -> None:
    """Refuse for now what does not fit, before the first byte (field case D1)."""
    found = os.fstatvfs(above)
    free, needed = found.f_bavail * found.f_frsize, sum(size + found.f_frsize for size in sizes)
    if free < needed + preflight.RESERVE:
        text = f"{versions} needs {needed + preflight.RESERVE} bytes free and has {free}"
        raise codes.Retryable(codes.NO_SPACE, text)
    if found.f_files and found.f_favail < len(sizes) + preflight.INODES:
        text = f"{versions} needs {len(sizes) + preflight.INODES} free inodes and has {found.f_favail}"
        raise codes.Retryable(codes.NO_SPACE, text)


def _write_below(above: int, path: str, write: Callable[[_Tree], None]) -> Tuple[listings.Entry, ...]:
    name = os.path.basename(path)
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=above, follow_symlinks=False)
        raise codes.refused(codes.ALREADY_EXISTS, f"{path} is there already and is never written over")
    remove_tree(above, name + PARTIAL)
    os.mkdir(name + PARTIAL, 0o700, dir_fd=above)
    root = os.open(name + PARTIAL, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        tree = _Tree(root)
        try:
            write(tree)
        finally:
            tree.end()
        tree.sync()
    except BaseException:
        remove_tree(above, name + PARTIAL)
        raise
    finally:
        os.close(root)
    os.fsync(above)
    faults.hit("unpack.made")
    return tree.entries()


def _write_program(tree: _Tree, artifact: Artifact, program: str) -> None:
    tree.begin(program, EXECUTABLE)
    for piece in _pieces(artifact):
        tree.append(piece)


def _write(
    tree: _Tree,
    artifact: Artifact,
    entries: Sequence[archive.Entry],
    layout: unpacking.Layout,
    limits: archive.Limits,
) -> None:
    """The second pass: the members as they were checked, or a refusal."""
    left = list(reversed(entries))
    for event in archive.read(_pieces(artifact), limits):
        if not isinstance(event, archive.Entry):
            tree.append(event)
            continue
        if not left or left.pop() != event:
            raise codes.refused(codes.DIGEST_MISMATCH, "the archive changed while it was unpacked: try again")
        place = unpacking.place(layout, event.name)
        if event.directory:
            tree.directory(place)
        else:
            executable = event.executable or event.name == layout.program
            tree.begin(place, EXECUTABLE if executable else PLAIN)


class _Tree:
    """What is being written below one open directory; one file at a time is open."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._made: Dict[str, None] = {}
        self._files: List[listings.Entry] = []
        self._file = -1
        self._place, self._mode, self._size = "", 0, 0
        self._digest = hashlib.sha256()

    def entries(self) -> Tuple[listings.Entry, ...]:
        """Everything that was made."""
        made = [listings.Entry(place, listings.DIRECTORY, EXECUTABLE) for place in self._made]
        return tuple(sorted([*made, *self._files]))

    def directory(self, place: str) -> None:
        """Make a directory and those above it."""
        self.end()
        os.close(self._open(place, make=True))

    def begin(self, place: str, mode: int) -> None:
        """Make a file, for the bytes that follow."""
        self.end()
        directory, name = os.path.split(place)
        above = self._open(directory, make=True)
        try:
            self._file = os.open(name, opening.CREATE, 0o600, dir_fd=above)
        finally:
            os.close(above)
        self._place, self._mode, self._size = place, mode, 0
        self._digest = hashlib.sha256()

    def append(self, block: bytes) -> None:
        """Write the next bytes of the file."""
        self._digest.update(block)
        self._size += len(block)
        opening.write_all(self._file, block)

    def end(self) -> None:
        """Finish the file that is open, if any; an error of the disk may show only at its close (field case P1)."""
        if self._file < 0:
            return
        descriptor, self._file = self._file, -1
        try:
            os.fchmod(descriptor, self._mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        digest = self._digest.hexdigest()
        self._files.append(listings.Entry(self._place, listings.FILE, self._mode, self._size, digest))

    def sync(self) -> None:
        """Make every directory durable, the deepest first."""
        for place in sorted(self._made, key=lambda one: one.count("/"), reverse=True):
            descriptor = self._open(place, make=False)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.fchmod(self._root, EXECUTABLE)
        os.fsync(self._root)

    def _open(self, place: str, make: bool) -> int:
        """A descriptor of a directory below the root, by one plain name after the other."""
        descriptor = os.dup(self._root)
        done: List[str] = []
        for part in place.split("/") if place else ():
            done.append(part)
            try:
                below = self._step(descriptor, part, "/".join(done), make)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _step(self, above: int, part: str, place: str, make: bool) -> int:
        if make and place not in self._made:
            os.mkdir(part, 0o700, dir_fd=above)
        below = os.open(part, opening.DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        if make and place not in self._made:
            os.fchmod(below, EXECUTABLE)
            self._made[place] = None
        return below
