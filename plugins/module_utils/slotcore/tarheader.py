# SPDX-License-Identifier: GPL-3.0-or-later
"""Read one header of a tar archive, and the records of a PAX header.

Rules:

* Headers are ustar as POSIX or GNU tar write it, with a right checksum; numbers that matter are octal, never base 256.
* Only files, directories, GNU long names and PAX headers pass; links, devices, FIFOs, sparse files and what
  nobody knows do not.
* What a header has no use for is empty, so that no second reader can find another meaning there.
* A PAX header may say again what the header says, name the file, and say what is not used here; nothing else.
"""

from __future__ import annotations

import enum
import re
from typing import Dict, NamedTuple

BLOCK = 512
POSIX = b"ustar\00000"
GNU = b"ustar  \0"
UTF8 = b"ISO-IR 10646 2000 UTF-8"


class Kind(enum.Enum):
    """What a header stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    LONG_NAME = "long name"
    EXTENDED = "PAX header"
    GLOBAL = "global PAX header"


class Header(NamedTuple):
    """What is used of a header."""

    kind: Kind
    name: bytes
    size: int
    executable: bool


class BadHeader(ValueError):
    """The bytes are not what the rules allow."""


KINDS = {b"0": Kind.FILE, b"5": Kind.DIRECTORY, b"L": Kind.LONG_NAME, b"x": Kind.EXTENDED, b"g": Kind.GLOBAL}
REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"D": "a list of a directory",
    b"K": "a long name of a link",
    b"M": "the rest of a file of another volume",
    b"S": "a sparse file",
    b"V": "a volume's label",
    b"X": "an extended header of Solaris",
}
UNUSED = {"atime", "comment", "ctime", "gid", "gname", "mtime", "uid", "uname"}
UNUSED |= {"LIBARCHIVE.creationtime", "RHT.security.selinux"}
UNUSED |= {"SCHILY.dev", "SCHILY.fflags", "SCHILY.ino", "SCHILY.nlink"}
UNUSED_PREFIXES = ("LIBARCHIVE.xattr.", "SCHILY.acl.", "SCHILY.xattr.")

_OCTAL = re.compile(rb" *([0-7]{1,12})[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=\0\n]{1,300})=")
_DECIMAL = re.compile(rb"(?:0|[1-9][0-9]{0,15})\Z")


def parse(block: bytes) -> Header:
    """The header of these 512 bytes. Raises BadHeader."""
    _check_sum(block)
    if block[257:265] not in (POSIX, GNU):
        raise BadHeader("its header is neither ustar nor GNU tar's: it says %s" % ascii(block[257:265])[1:])
    flag = block[156:157]
    if flag in REFUSED:
        raise BadHeader("it is %s; only files and directories are taken" % REFUSED[flag])
    if flag not in KINDS:
        raise BadHeader("it is of the type %s; only files and directories are taken" % ascii(flag)[1:])
    kind = KINDS[flag]
    name, size = _text(block[:100], "name"), _octal(block[124:136], "size")
    if kind is Kind.DIRECTORY and size:
        raise BadHeader("it is a directory with a size of %d bytes" % size)
    if _text(block[157:257], "link name"):
        raise BadHeader("it has a link name, though it is no link")
    if block[257:265] == GNU:
        _empty(block[369:], "it has what GNU tar writes for sparse files or other volumes")
    else:
        _empty(block[500:], "its header has more than ustar says")
        prefix = _text(block[345:500], "prefix")
        name = prefix + b"/" + name if prefix else name
    return Header(kind, name, size, bool(_octal(block[100:108], "mode") & 0o100))


def _check_sum(block: bytes) -> None:
    said = _octal(block[148:156], "checksum")
    found = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
    if said != found:
        raise BadHeader("its header has the checksum %d, the bytes give %d" % (said, found))


def _octal(field: bytes, what: str) -> int:
    match = _OCTAL.match(field)
    if match:
        return int(match.group(1), 8)
    if field[0] & 0x80:
        raise BadHeader("its %s is in base 256, which nothing of a size taken here needs" % what)
    raise BadHeader("its %s is no octal number: %s" % (what, ascii(field)[1:]))


def _text(field: bytes, what: str) -> bytes:
    text, _end, rest = field.partition(b"\0")
    _empty(rest, "there are bytes after the end of its %s" % what)
    return text


def _empty(field: bytes, what: str) -> None:
    if field.strip(b"\0"):
        raise BadHeader(what)


def parse_records(data: bytes) -> Dict[str, bytes]:
    """The records of a PAX header by keyword, without those that are not used here. Raises BadHeader."""
    found: Dict[str, bytes] = {}
    at = 0
    while at < len(data):
        match = _RECORD.match(data, at)
        end = at + int(match.group(1)) if match else 0
        if not match or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise BadHeader("its PAX header is damaged at byte %d" % at)
        key = match.group(2).decode("utf-8", "backslashreplace")
        if key in found:
            raise BadHeader("its PAX header says %s twice" % ascii(key)[1:-1])
        found[key] = data[match.end() : end - 1]
        at = end
    return {key: value for key, value in found.items() if not _is_unused(key)}


def _is_unused(key: str) -> bool:
    return key in UNUSED or key.startswith(UNUSED_PREFIXES)


def check_records(records: Dict[str, bytes], size: int) -> None:
    """Raise BadHeader for what a PAX header may not say of a member of `size` bytes."""
    for key, value in records.items():
        if key == "size" and (not _DECIMAL.match(value) or int(value) != size):
            raise BadHeader("its PAX header says %s bytes, its header %d" % (ascii(value)[2:-1], size))
        if key == "hdrcharset" and value != UTF8:
            raise BadHeader("its PAX header is in another alphabet than UTF-8: %s" % ascii(value)[2:-1])
        if key.startswith(("GNU.sparse.", "SCHILY.realsize", "SUN.holesdata")):
            raise BadHeader("it is a sparse file (%s)" % ascii(key)[1:-1])
        if key not in ("size", "hdrcharset", "path"):
            raise BadHeader("its PAX header says %s, which is not taken" % ascii(key)[1:-1])
