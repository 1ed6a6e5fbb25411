# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the files of releases and documents, read with a limit, written whole or not at all.

Rules:

* A new file appears complete and synced, by a link that fails when its name is taken; nothing is overwritten by other bytes.
* What is replaced (a document by itself with more signatures, a catalogue) is replaced under the lock of its directory.
* A published version appears by the rename of its directory; what a killed publisher left is removed by the next one.
* Whoever may read a directory may lock it too, for good: waiting for a lock has an end.
* Modes are set whatever the umask says: files 0644, directories 0755.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
from typing import Dict, Iterable, Iterator, List, Optional, Sequence

from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    catalogue,
    codes,
    manifest,
    publishing,
    release,
    semver,
)

CHUNK = 1 << 20
WAIT_S = 60.0
POLL_S = 0.05
HALF_DONE = ".publishing-"


def chunks(path: str) -> Iterator[bytes]:
    """A file in pieces; raises Refused when it cannot be read. Nobody waits for a FIFO, or reads a device for ever."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is no plain file")
            yield from iter(lambda: file.read(CHUNK), b"")
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (path, error.strerror)) from None


def read(path: str, limit: int = manifest.MAX_PUBLISHED) -> bytes:
    """A file of at most so many bytes."""
    found = b""
    for piece in chunks(path):
        found += piece
        if len(found) > limit:
            raise codes.refused(codes.CANNOT_READ, "%s cannot be read: more than %d bytes" % (path, limit))
    return found


def read_if_there(path: str) -> Optional[bytes]:
    """A document, or None when there is none."""
    return read(path) if os.path.lexists(path) else None


def make_directory(path: str) -> None:
    """A directory and those above it, 0755 where they are new."""
    missing: List[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        try:
            os.mkdir(one)
            os.chmod(one, 0o755)  # noqa: S103 - a web server reads it
        except FileExistsError:
            if not os.path.isdir(one):
                raise _failed(one, OSError(errno.ENOTDIR, "not a directory")) from None
        except OSError as error:
            raise _failed(one, error) from None


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Hold the lock of a directory, the same one that ``slotward release`` takes."""
    try:
        held = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (directory or ".", error.strerror)) from None
    try:
        _lock(held, directory or ".")
        yield
    finally:
        os.close(held)


def _lock(descriptor: int, directory: str) -> None:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                text = "%s has been locked by another process for %g s (`fuser -v %s` shows it)"
                raise codes.Retryable(codes.IN_PROGRESS, text % (directory, WAIT_S, directory)) from None
        time.sleep(POLL_S)


def create(path: str, pieces: Iterable[bytes]) -> None:
    """Write a new file; one that is there is refused and stays."""
    with _written(path, pieces) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            text = "%s is there with other contents and is not overwritten" % path
            raise codes.refused(codes.ALREADY_EXISTS, text) from None


def replace(path: str, data: bytes) -> None:
    """Write a file in the place of the one that is there, if any."""
    with _written(path, (data,)) as temporary:
        os.rename(temporary, path)


def is_copied(path: str, entry: manifest.Artifact) -> bool:
    """Whether an artifact lies there; refused when something else does."""
    if not os.path.lexists(path):
        return False
    if release.measure(chunks(path)) != (entry.sha256, entry.size):
        raise codes.refused(codes.ALREADY_EXISTS, "%s is there with other contents and is not overwritten" % path)
    return True


def copy(source: str, path: str, entry: manifest.Artifact) -> None:
    """Copy an artifact, whose bytes must be those of its entry."""
    if not is_copied(path, entry):
        create(path, _same(source, entry))


def shelf(path: str) -> publishing.Shelf:
    """What is published below `<base>/<product>`; nothing when that is not there."""
    names = os.listdir(path) if os.path.isdir(path) else []
    manifests: Dict[str, bytes] = {}
    notices: Dict[str, bytes] = {}
    for version in sorted(name for name in names if semver.is_version(name)):
        for name, found in ((release.MANIFEST_NAME, manifests), (publishing.NOTICE_NAME, notices)):
            data = read_if_there(os.path.join(path, version, name))
            if data is not None:
                found[version] = data
    return publishing.Shelf(manifests, notices, read_if_there(os.path.join(path, catalogue.NAME)))


def to_write(base: str, planned: publishing.Plan) -> List[str]:
    """The files that a plan would write."""
    places = [os.path.join(base, planned.directory, one.name) for one in planned.artifacts]
    missing = [place for place, one in zip(places, planned.artifacts) if not is_copied(place, one)]
    return missing + [os.path.join(base, write.path) for write in planned.writes]


def execute(base: str, source: str, planned: publishing.Plan) -> None:
    """Write what a plan says, artifacts first; the lock of the product's directory is held."""
    final = os.path.join(base, planned.directory)
    with _place(final, bool(planned.writes)) as directory:
        for one in planned.artifacts:
            copy(os.path.join(source, one.name), os.path.join(directory, one.name), one)
        for write in planned.writes:
            if directory != final and os.path.dirname(os.path.join(base, write.path)) == final:
                create(os.path.join(directory, os.path.basename(write.path)), (write.data,))
    for write in planned.writes:
        path = os.path.join(base, write.path)
        if read_if_there(path) != write.data:
            replace(path, write.data)


def sweep(path: str) -> None:
    """Remove what a publisher that was killed left behind; the lock is held, so nobody is writing it."""
    for name in os.listdir(path):
        if name.startswith(HALF_DONE):
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)


@contextlib.contextmanager
def _place(final: str, wanted: bool) -> Iterator[str]:
    """The version's directory, or a new one that becomes it by one rename when all went well."""
    if os.path.lexists(final) or not wanted:
        yield final
        return
    fresh = os.path.join(os.path.dirname(final), HALF_DONE + os.path.basename(final))
    make_directory(fresh)
    try:
        yield fresh
        try:
            _sync(fresh)
            os.rename(fresh, final)
            _sync(os.path.dirname(final))
        except OSError as error:
            raise _failed(final, error) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _same(source: str, entry: manifest.Artifact) -> Iterator[bytes]:
    """The pieces of an artifact, and an error at the end when they are not those of its entry."""
    digest, size = hashlib.sha256(), 0
    for piece in chunks(source):
        digest.update(piece)
        size += len(piece)
        yield piece
    if (digest.hexdigest(), size) != (entry.sha256, entry.size):
        raise codes.refused(codes.DIGEST_MISMATCH, "%s changed while it was read; run again" % source)


@contextlib.contextmanager
def _written(path: str, pieces: Iterable[bytes]) -> Iterator[str]:
    """A complete, synced temporary beside `path`; what the caller did with it is made durable."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, ".%s.%s.tmp" % (name[:200], os.urandom(4).hex()))
    try:
        held = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(held, "wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync(directory or ".")
    except OSError as error:
        raise _failed(path, error) from None


def _sync(directory: str) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _failed(path: str, error: OSError) -> codes.Refused:
    return codes.refused(codes.CANNOT_WRITE, "%s cannot be written: %s" % (path, error.strerror or error))


def described(path: str, before: Optional[Sequence[str]], after: Sequence[str]) -> Dict[str, str]:
    """A diff of what a document says to people."""
    shown = ["".join("%s\n" % line for line in lines or ()) for lines in (before, after)]
    return {"before_header": path, "after_header": path, "before": shown[0], "after": shown[1]}
