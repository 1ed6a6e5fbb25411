# SPDX-License-Identifier: GPL-3.0-or-later
"""Decompress one gzip member, in blocks, so that neither memory nor the answer depends on what the sender wants.

Rules:

* Exactly one member, complete, with the right checksum and length; not one byte after it.
* Blocks are at most `CHUNK` bytes; what comes out is at most `ratio` times what went in, above a first `SLACK`.
"""

from __future__ import annotations

import zlib
from typing import Iterable, Iterator

CHUNK = 1 << 18
SLACK = 16 << 20
GZIP = 16 + zlib.MAX_WBITS


class NotGzip(ValueError):
    """The bytes are not what the rules allow."""


def inflate(pieces: Iterable[bytes], ratio: int) -> Iterator[bytes]:
    """The decompressed blocks of the compressed `pieces`; raises NotGzip when a rule is broken, at the latest at the end."""
    machine = zlib.decompressobj(GZIP)
    taken = given = 0
    for piece in pieces:
        if machine.eof and piece:
            raise _more(piece)
        taken += len(piece)
        left, more = piece, bool(piece)
        while more:
            try:
                block = machine.decompress(left, CHUNK)
            except zlib.error as error:
                raise NotGzip("it is not gzip data, or damaged: %s" % str(error).rpartition(": ")[2]) from None
            left = machine.unconsumed_tail
            given += len(block)
            if given > SLACK + ratio * taken:
                raise NotGzip("it unpacks to more than %d times its size (after %d bytes of it)" % (ratio, taken))
            if block:
                yield block
            more = not machine.eof and (bool(left) or len(block) == CHUNK)
        if machine.unused_data:
            raise _more(machine.unused_data)
    if not machine.eof:
        raise NotGzip("its gzip data end too early, after %d bytes" % taken)


def _more(rest: bytes) -> NotGzip:
    what = "another gzip member" if rest.startswith(b"\x1f\x8b") else "more bytes"
    return NotGzip("%s after the end of its gzip data" % what)
