# SPDX-License-Identifier: GPL-3.0-or-later
"""What the daemon was asked for, in its staging directory: put there whole and durable, and tidied by who put it there.

Rules:
- A name is made anew and renamed into its place, so whoever reads it reads all of it. It is its owner's alone.
- One piece of work at a time puts and removes; a lock on the directory says so, and a dead owner's lock is free.
- Tidying keeps parts of downloads, to be resumed, and what others put there (start mode's request); it removes what
  nobody can need any more (field case D3).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Iterator

from slotcore import codes, config_table, protocol
from slotward import opening, own, staging

KINDS = ("target", "permit")
WAITING = "apply"
"""Start mode's request: while it is there, all that it names is still needed (section 6)."""


def put(directory: str, name: str, content: bytes) -> str:
    """Put a file there, durable before this returns; its name."""
    try:
        staging.make_directory(directory)
        staging.write(directory, name, content)
    except OSError as error:
        from slotward import effects

        raise effects.as_retryable(error, f"put {name} into {directory}") from error
    return name


def drop(directory: str, name: str) -> None:
    """Remove a file if it is there."""
    staging.remove(os.path.join(directory, name))


@contextlib.contextmanager
def alone(directory: str) -> Iterator[None]:
    """Be the only one who works there; raises Retryable `in-progress` at once when somebody is."""
    staging.make_directory(directory)
    descriptor = opening.open_directory(directory)
    try:
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = f"somebody is at work in {directory}: try again when it has ended"
        raise codes.Retryable(codes.IN_PROGRESS, text) from None


def is_asked(name: str) -> bool:
    """Whether the name is that of something that was asked for."""
    stem, _dot, kind = name.removesuffix(staging.NEW).rpartition(".")
    return kind in KINDS and protocol.ID.fullmatch(stem) is not None


def _is_used(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except OSError:
        return False


def tidy(setup: own.Setup) -> None:
    """Remove what was asked for and is done with, and bytes that a slot holds by now."""
    if not _is_used(setup.inbox):
        return  # most starts find nothing, and pay for no more than the look
    from slotward import host, prepare

    if setup.config.mode == config_table.START and os.path.lexists(os.path.join(setup.inbox, WAITING)):
        from slotward import start_way

        start_way.forget(setup)
    with contextlib.suppress(OSError, codes.Refused, codes.Retryable), alone(setup.inbox):
        slots = host.read_state(setup.product).slots.values()
        done = {os.path.basename(prepare.staged_path(setup, entry.version)) for entry in slots}
        names = os.listdir(setup.inbox)
        for name in () if WAITING in names else names:
            if is_asked(name) or name in done:
                drop(setup.inbox, name)
