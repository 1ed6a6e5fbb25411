# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a `tar.gz` artifact strictly: what it holds, or the member and the rule that it breaks.

Rules:

* Regular files and directories only; modes become 0755 or 0644, owners, times and attributes are not looked at.
* Names are relative, UTF-8, without `.`, `..`, empty components, backslashes and control characters (one leading `./`
  is taken away); none is there twice, and no file lies above another member.
* One GNU long name or one PAX header belongs to the member after it; a header that belongs to none is refused.
* Two blocks of zeros end the archive, and nothing but zeros follows them.
* Names, bytes, their ratio to the compressed bytes and everything held at a time are limited.

Pieces go in, entries and their bytes come out, in blocks; whoever wants no byte before all is checked reads it twice.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import codes, inflate, tarheader

ZEROS = bytes(tarheader.BLOCK)
MAX_NAME = 1024
MAX_COMPONENT = 255
MAX_PARTS = 32
MAX_RECORDS = 64 * 1024
MAX_ALL_RECORDS = 4 << 20
MAX_PADDING = 1 << 20


class Limits(NamedTuple):
    """What an archive may cost: names in its tree, bytes of all files, and how far it may unpack."""

    entries: int = 4096
    total: int = 4 << 30
    ratio: int = 200


class Entry(NamedTuple):
    """A file or directory; the archive's own root, if it is in it, has the name ""."""

    name: str
    size: int
    directory: bool
    executable: bool


DEFAULT = Limits()


def check(pieces: Iterable[bytes], limits: Limits = DEFAULT) -> Tuple[Entry, ...]:
    """What the archive holds, once all of it is read. Raises Refused `bad-archive`."""
    return tuple(found for found in read(pieces, limits) if isinstance(found, Entry))


def read(pieces: Iterable[bytes], limits: Limits = DEFAULT) -> Iterator[Union[Entry, bytes]]:
    """Each entry, and after it its bytes in blocks. Raises Refused `bad-archive`, at the latest at the end."""
    reader = _Reader(pieces, limits)
    try:
        yield from reader.members()
    except tarheader.BadHeader as error:
        raise codes.refused(codes.BAD_ARCHIVE, "cannot take the archive: %s: %s" % (reader.where, error)) from None
    except inflate.NotGzip as error:
        raise codes.refused(codes.BAD_ARCHIVE, "cannot take the archive: %s" % error) from None


class _Stream:
    """Decompressed bytes, by the number that is wanted."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = b""
        self._at = 0
        self.done = 0

    def some(self, most: int) -> bytes:
        """At most so many bytes; none at the end."""
        if self._at == len(self._held):
            self._held, self._at = next(self._blocks, b""), 0
        found = self._held[self._at : self._at + most]
        self._at += len(found)
        self.done += len(found)
        return found

    def pieces(self, count: int) -> Iterator[bytes]:
        """Exactly so many bytes, as they come."""
        while count:
            found = self.some(count)
            if not found:
                raise tarheader.BadHeader("the archive ends in it, %d bytes are missing" % count)
            count -= len(found)
            yield found

    def exactly(self, count: int) -> bytes:
        """So many bytes at once."""
        return b"".join(self.pieces(count))


class _Reader:
    """Reads one archive from its beginning to its end; `where` is the member that an error is about."""

    def __init__(self, pieces: Iterable[bytes], limits: Limits) -> None:
        self._stream = _Stream(inflate.inflate(pieces, limits.ratio))
        self._limits = limits
        self._tree = _Tree(limits.entries)
        self._total = 0
        self._headers = 0
        self._records_size = 0
        self._long_name: Optional[bytes] = None
        self._records: Optional[Dict[str, bytes]] = None
        self.where = ""

    def members(self) -> Iterator[Union[Entry, bytes]]:
        """Everything, in order."""
        while True:
            self.where = "the header at byte %d" % self._stream.done
            block = self._stream.exactly(tarheader.BLOCK)
            if block == ZEROS:
                return self._end()
            header = tarheader.parse(block)
            self._named(header.name)
            if header.kind in (tarheader.Kind.FILE, tarheader.Kind.DIRECTORY):
                yield self._entry(header)
                yield from self._stream.pieces(header.size)
            else:
                self._extension(header)
            if self._stream.exactly(-header.size % tarheader.BLOCK).strip(b"\0"):
                raise tarheader.BadHeader("there are bytes between its end and the next header")

    def _named(self, name: bytes) -> None:
        self.where = "member %s" % ascii(name[:200].decode("utf-8", "backslashreplace"))

    def _extension(self, header: tarheader.Header) -> None:
        self._headers += 1
        if self._headers > 2 * self._limits.entries:
            raise tarheader.BadHeader("the archive has more than %d headers beside its members" % (self._headers - 1))
        most = MAX_NAME + 1 if header.kind is tarheader.Kind.LONG_NAME else MAX_RECORDS
        if header.size > most:
            raise tarheader.BadHeader("a %s of %d bytes; at most %d are taken" % (header.kind.value, header.size, most))
        self._records_size += header.size
        if self._records_size > MAX_ALL_RECORDS:
            raise tarheader.BadHeader("the archive's PAX headers are together more than %d bytes" % MAX_ALL_RECORDS)
        data = self._stream.exactly(header.size)
        if header.kind is tarheader.Kind.GLOBAL:
            said = tarheader.parse_records(data)
            if said:
                raise tarheader.BadHeader("a global PAX header says %s, which is not taken" % ascii(sorted(said)))
            return
        if self._long_name is not None or self._records is not None:
            raise tarheader.BadHeader("a second %s for one member" % header.kind.value)
        if header.kind is tarheader.Kind.EXTENDED:
            self._records = tarheader.parse_records(data)
            return
        self._long_name = data[:-1]
        if data[-1:] != b"\0" or b"\0" in self._long_name:
            raise tarheader.BadHeader("a long name that does not end with its only NUL")

    def _entry(self, header: tarheader.Header) -> Entry:
        records, name = self._records or {}, header.name
        if self._long_name is not None:
            name = self._long_name
        elif "path" in records:
            name = records["path"]
        self._records = self._long_name = None
        self._named(name)
        tarheader.check_records(records, header.size)
        directory = header.kind is tarheader.Kind.DIRECTORY
        plain = _plain_name(name, directory)
        self._tree.add(plain, directory)
        self._total += header.size
        if self._total > self._limits.total:
            text = "the archive's files are together %d bytes or more; at most %d are taken"
            raise tarheader.BadHeader(text % (self._total, self._limits.total))
        return Entry(plain, header.size, directory, directory or header.executable)

    def _end(self) -> None:
        if self._long_name is not None or self._records is not None:
            raise tarheader.BadHeader("the archive ends after a header that belongs to the next member")
        if self._stream.exactly(tarheader.BLOCK) != ZEROS:
            raise tarheader.BadHeader("one block of zeros, where two end the archive")
        begin = self._stream.done
        while True:
            found = self._stream.some(inflate.CHUNK)
            if not found:
                return
            if found.strip(b"\0"):
                raise tarheader.BadHeader("there are bytes after the end of the archive")
            if self._stream.done - begin > MAX_PADDING:
                raise tarheader.BadHeader("more than %d zeros after the end of the archive" % MAX_PADDING)


class _Tree:
    """The names so far: whether each is a directory, and whether a member said so."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._directories: Dict[str, bool] = {"": False}
        self._files: Dict[str, None] = {}

    def add(self, name: str, directory: bool) -> None:
        """A member; raises BadHeader when it cannot lie beside the others."""
        for parent in _parents(name):
            if parent in self._files:
                raise tarheader.BadHeader("it lies below %s, which is a file" % ascii(parent))
            self._directories.setdefault(parent, False)
        if name in self._files or self._directories.get(name):
            raise tarheader.BadHeader("its name is there twice")
        if directory:
            self._directories[name] = True
        elif name in self._directories:
            raise tarheader.BadHeader("it is a file, and other members lie below it")
        else:
            self._files[name] = None
        if len(self._directories) + len(self._files) > self._most + 1:
            raise tarheader.BadHeader("the archive has more than %d names" % self._most)


def _parents(name: str) -> List[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _plain_name(raw: bytes, directory: bool) -> str:
    """The name as it is below the place where the archive is unpacked."""
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise tarheader.BadHeader("its name is not UTF-8") from None
    if directory and name in (".", "./"):
        return ""
    name = name.removeprefix("./")
    if name.startswith("/"):
        raise tarheader.BadHeader("its name is absolute")
    if name.endswith("/"):
        if not directory:
            raise tarheader.BadHeader("it is a file, and its name ends in a slash")
        name = name[:-1]
    parts = name.split("/")
    if len(raw) > MAX_NAME or any(len(part.encode("utf-8")) > MAX_COMPONENT for part in parts):
        raise tarheader.BadHeader(
            "its name is longer than %d bytes, or a part of it than %d" % (MAX_NAME, MAX_COMPONENT)
        )
    if len(parts) > MAX_PARTS:
        raise tarheader.BadHeader("its name has %d parts; at most %d are taken" % (len(parts), MAX_PARTS))
    for part in parts:
        if part in ("", ".", ".."):
            raise tarheader.BadHeader("its name has the part %s" % ascii(part))
    if "\\" in name or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        raise tarheader.BadHeader("its name has a backslash or a control character")
    return name
