# SPDX-License-Identifier: GPL-3.0-or-later
"""PEM blocks with keys in them, as text; what the bytes inside mean is read in ``keys.py``.

Rules:

* The first block whose label ends in KEY counts: OpenSSL writes ``EC PARAMETERS`` before an ``EC PRIVATE KEY``.
* Base64 inside has its one spelling; a block is written with lines of 64 characters.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple, Optional

from . import canonical

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]*KEY)-----\s(.*?)-----END \1-----", re.DOTALL)


class Block(NamedTuple):
    """A block: its label, the whole of it, and what is between its lines."""

    label: str
    whole: bytes
    inside: bytes

    def der(self) -> bytes:
        """The bytes that the block holds; ValueError says why it holds none."""
        return canonical.decode_base64("".join(self.inside.decode("ascii").split()))


def find(data: bytes) -> Optional[Block]:
    """The first block with a key, or None."""
    match = _BLOCK.search(data)
    return Block(match.group(1).decode("ascii"), match.group(0) + b"\n", match.group(2)) if match else None


def write(label: str, der: bytes) -> bytes:
    """The block with this label and these bytes."""
    text = base64.b64encode(der).decode("ascii")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN %s-----" % label, *lines, "-----END %s-----" % label, ""]).encode("ascii")
