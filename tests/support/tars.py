# SPDX-License-Identifier: GPL-3.0-or-later
"""Tar archives made by hand, byte by byte, so that every field can be wrong by itself."""

from __future__ import annotations

import gzip
from typing import Dict, List, Mapping, Tuple

END = bytes(1024)
POSIX = b"ustar\00000"
GNU = b"ustar  \0"

# where each field of a header lies
FIELDS: Mapping[str, Tuple[int, int]] = {
    "name": (0, 100),
    "mode": (100, 8),
    "uid": (108, 8),
    "gid": (116, 8),
    "size": (124, 12),
    "mtime": (136, 12),
    "flag": (156, 1),
    "link": (157, 100),
    "magic": (257, 8),
    "prefix": (345, 155),
    "gnu": (369, 143),
    "last": (500, 12),
}


def header(**fields: bytes) -> bytes:
    """One header with a right checksum; `checksum` replaces it."""
    values: Dict[str, bytes] = {
        "name": b"file",
        "mode": b"0000644\0",
        "uid": b"0000000\0",
        "gid": b"0000000\0",
        "size": b"%011o\0" % 0,
        "mtime": b"%011o\0" % 0,
        "flag": b"0",
        "magic": POSIX,
    }
    checksum = fields.pop("checksum", b"")
    values.update(fields)
    block = bytearray(512)
    for name, value in values.items():
        start, length = FIELDS[name]
        assert len(value) <= length, name
        block[start : start + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = checksum or b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    """The bytes, up to the next block with zeros."""
    return data + bytes(-len(data) % 512)


def member(name: bytes, data: bytes = b"", **fields: bytes) -> bytes:
    """A header and the data after it."""
    return header(**{"name": name, "size": b"%011o\0" % len(data), **fields}) + padded(data)


def directory(name: bytes, **fields: bytes) -> bytes:
    """A directory."""
    return header(**{"name": name, "flag": b"5", "mode": b"0000755\0", **fields})


def record(key: bytes, value: bytes) -> bytes:
    """One record of a PAX header."""
    length = len(key) + len(value) + 3
    while len(b"%d" % length) + len(key) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (length, key, value)


def extended(*records: Tuple[bytes, bytes], flag: bytes = b"x", raw: bytes = b"") -> bytes:
    """A PAX header."""
    return member(b"./PaxHeaders/x", b"".join(record(*one) for one in records) + raw, flag=flag)


def long_name(name: bytes) -> bytes:
    """GNU tar's header for a long name, as it is given."""
    return member(b"././@LongLink", name, flag=b"L", magic=GNU)


def packed(*parts: bytes, end: bytes = END) -> bytes:
    """The parts and the end, compressed."""
    return gzip.compress(b"".join(parts) + end, 6, mtime=0)


def pieces(data: bytes, size: int = 65536) -> List[bytes]:
    """The bytes in pieces of that size."""
    return [data[start : start + size] for start in range(0, len(data), size)]
