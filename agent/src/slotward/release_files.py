# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the release command: read with a limit, written whole or not at all.

Rules:
- A FIFO or a device among what somebody hands over is an error, nothing to wait for or to read for ever.
- A new file appears under its name complete and synced, by a link that fails when the name is taken.
- What is there is replaced only when the caller has read it first, under the directory's lock.
- Whoever may read a directory may lock it too, for good: waiting for a lock has an end.
- Modes are set, whatever the umask says: private keys 0600, all else 0644, directories 0755.
- Errors name the path and what the system said.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from typing import Iterator, List, Optional

from slotcore import codes, release

CHUNK = 1 << 20
PIPES = ("/dev/", "/proc/")
"""Where a shell's `<(command)` is read from, and a terminal."""
WAIT_S = 60.0
POLL_S = 0.05


class Failed(Exception):
    """The system said no; `code` is cannot-read or cannot-write."""

    def __init__(self, code: str, path: str, error: OSError) -> None:
        directory = os.path.dirname(path)
        missing = error.errno == errno.ENOENT and directory and not os.path.isdir(directory)
        super().__init__(
            f"{path}: there is no directory {directory}" if missing else f"{path}: {error.strerror or error}"
        )
        self.code = code
        self.text = str(self)


def read(path: str, limit: int) -> bytes:
    """The bytes of a file of at most `limit` bytes."""
    try:
        with open(_open(path), "rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise Failed(codes.CANNOT_READ, path, error) from None
    if len(data) > limit:
        raise Failed(codes.CANNOT_READ, path, OSError(errno.EFBIG, f"more than {limit} bytes"))
    return data


def _open(path: str) -> int:
    """A descriptor to read from; what is no plain file is waited for by nobody, but for the pipe that a shell made."""
    if path.startswith(PIPES):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    is_directory = stat.S_ISDIR(mode)
    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR)) if is_directory else OSError(errno.EINVAL, "no plain file")


def read_if_there(path: str, limit: int) -> Optional[bytes]:
    """As `read`, or None when there is no such file."""
    return read(path, limit) if os.path.lexists(path) else None


def chunks(path: str) -> Iterator[bytes]:
    """The bytes of a file of any size, in pieces."""
    try:
        with open(_open(path), "rb") as stream:
            while True:
                piece = stream.read(CHUNK)
                if not piece:
                    return
                yield piece
    except OSError as error:
        raise Failed(codes.CANNOT_READ, path, error) from None


def create(path: str, pieces: Iterator[bytes], mode: int = 0o644) -> None:
    """Write a new file; an existing one is refused and stays as it is."""
    with _written(path, pieces, mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise _there(path) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            if os.path.lexists(path):  # a filesystem without links: the best it can do
                raise _there(path) from None
            os.rename(temporary, path)


def replace(path: str, data: bytes) -> None:
    """Write a file in the place of the one that is there, if any."""
    with _written(path, iter((data,)), 0o644) as temporary:
        os.rename(temporary, path)


def copy(source: str, path: str, sha256: str, size: int) -> bool:
    """Copy an artifact, whose bytes must still be those measured; false when it is there already."""
    if os.path.lexists(path):
        if release.measure(chunks(path)) != (sha256, size):
            raise _there(path)
        return False
    create(path, _checked(source, sha256, size))
    return True


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
                raise Failed(codes.CANNOT_WRITE, one, OSError(errno.ENOTDIR, "not a directory")) from None
        except OSError as error:
            raise Failed(codes.CANNOT_WRITE, one, error) from None


def rename_directory(path: str, final: str) -> None:
    """Let a complete directory appear under its name, durably."""
    try:
        _sync_directory(path)
        os.rename(path, final)
        _sync_directory(os.path.dirname(final) or ".")
    except OSError as error:
        raise Failed(codes.CANNOT_WRITE, final, error) from None


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Hold the lock of a directory, so that two signers on one machine do not lose a signature."""
    try:
        held = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        text = "there is no such directory: make it first"
        raise Failed(codes.CANNOT_READ, directory, OSError(text)) from None
    except OSError as error:
        raise Failed(codes.CANNOT_READ, directory or ".", error) from None
    try:
        _lock(held, directory or ".")
        yield
    finally:
        os.close(held)


def _lock(descriptor: int, directory: str) -> None:
    import fcntl

    until = time.monotonic() + WAIT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                text = (
                    f"{directory} has been locked by another process for {WAIT_S:g} s (`fuser -v {directory}` shows it)"
                )
                raise codes.Retryable(codes.IN_PROGRESS, text) from None
        time.sleep(POLL_S)


def _there(path: str) -> codes.Refused:
    text = f"{path} is there and is not overwritten; choose another name or remove it by hand"
    return codes.refused(codes.ALREADY_EXISTS, text)


def _checked(source: str, sha256: str, size: int) -> Iterator[bytes]:
    """The pieces of `source`, and at the end an error when they are not the bytes measured before."""
    import hashlib

    digest, count = hashlib.sha256(), 0
    for piece in chunks(source):
        digest.update(piece)
        count += len(piece)
        yield piece
    if (digest.hexdigest(), count) != (sha256, size):
        raise Failed(codes.CANNOT_READ, source, OSError(errno.EBUSY, "changed while it was read; try again"))


@contextlib.contextmanager
def _written(path: str, pieces: Iterator[bytes], mode: int) -> Iterator[str]:
    """A complete, synced temporary beside `path`; what the caller did with it is made durable."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name[:200]}.{os.urandom(4).hex()}.tmp")
    try:
        held = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(held, "wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_directory(directory or ".")
    except OSError as error:
        raise Failed(codes.CANNOT_WRITE, path, error) from None


def _sync_directory(directory: str) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)
