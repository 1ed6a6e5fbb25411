# SPDX-License-Identifier: GPL-3.0-or-later
"""The part file of a download: the bytes so far, and their digest.

Rules:
- What lies there from an earlier run is read and hashed once; what is longer than the file begins anew.
- The digest is of the bytes in the order they lie in the file, so a wrong piece cannot hide.
- A part that was put together from several answers may mix two files: it is begun again once before it counts as wrong.
- What one place sent is continued from another; from the moment that a mix was seen, a part is of one place alone.
"""

from __future__ import annotations

import hashlib
import os
from typing import Optional

from slotward import staging

HEAD = 512


class Part:
    """An open part file; `done` bytes of `size` are in it."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.said = ""
        """What the server called it."""
        self.received = 0
        """Bytes that came in this run, those thrown away too."""
        self.best = 0
        """The most that ever lay here of one beginning."""
        self.began = 0
        """How much lay here when the last attempt began."""
        self.alone = False
        """All that lies here is of one place."""
        self._source = ""
        self._descriptor = staging.open_part(path)
        self._reset()
        self._read_back()

    def _reset(self) -> None:
        self.done = 0
        self.digest = hashlib.sha256()
        self.head = b""
        self.etag: Optional[str] = None
        self.pieces = 0

    def _read_back(self) -> None:
        if os.fstat(self._descriptor).st_size > self.size:
            os.ftruncate(self._descriptor, 0)
        while True:
            block = os.pread(self._descriptor, staging.CHUNK, self.done)
            if not block:
                break
            self._count(block)
            self.pieces = 2  # who knows how many
        self.best = self.done

    def _count(self, block: bytes) -> None:
        self.digest.update(block)
        self.done += len(block)
        if len(self.head) < HEAD:
            self.head += block[: HEAD - len(self.head)]

    def begin(self, source: str) -> None:
        """The next bytes come from this place; its entity tags say nothing about another's bytes.

        Once bytes of several answers turned out not to fit together, a part is of one place alone.
        """
        if source != self._source:
            self.etag = None
            if self.alone and self.done:
                self.restart()
        self._source = source
        self.began = self.done

    def restart(self) -> None:
        """Forget all bytes."""
        os.ftruncate(self._descriptor, 0)
        self._reset()

    def may_begin_again(self) -> bool:
        """Whether a wrong digest may come from mixing; true once, and then everything is forgotten."""
        if self.pieces < 2 or self.alone:
            return False
        self.alone = True
        self.restart()
        self.best = 0
        return True

    def append(self, block: bytes) -> None:
        """Write the next bytes."""
        view, offset = memoryview(block), self.done
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            offset += written
            view = view[written:]
        self._count(block)
        self.received += len(block)
        self.best = max(self.best, self.done)

    def close(self) -> None:
        """Close the file; an error of the disk may show only here (field case P1)."""
        os.close(self._descriptor)

    def discard(self) -> None:
        """Remove the file: what is in it is wrong."""
        staging.remove(self.path)
