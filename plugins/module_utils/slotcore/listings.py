# SPDX-License-Identifier: GPL-3.0-or-later
"""The listing of a release's tree, by which the tree is proven (products.md, section 3).

Rules:
- It lies beside the tree, is written last, and has everything that is in the tree: path, kind, mode, size and SHA-256.
- It holds the release's record too, as `slots.json` has it for a slot: a tree that no slot leads to can be gone back to.
- A tree proves itself when it has all of that, as it stands there, and nothing else. Nothing is guessed.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, NamedTuple, Tuple

from . import records

FILE, DIRECTORY = "file", "directory"
MAX_BYTES = 16 << 20
"""More than any archive that is unpacked can fill."""

_MODE = re.compile(r"0[0-7]{3}")


class Entry(NamedTuple):
    """One file or directory of a tree; a directory has no size and no digest."""

    path: str
    kind: str
    mode: int
    size: int = 0
    sha256: str = ""


class Listing(NamedTuple):
    """A release's record, and everything in its tree but the tree's own directory."""

    record: records.SlotRecord
    entries: Tuple[Entry, ...]


def render(listing: Listing) -> bytes:
    """The bytes of a listing; equal trees have equal listings."""
    entries = [dict(entry._asdict(), mode=f"{entry.mode:04o}") for entry in sorted(listing.entries)]
    return records.dump({"spec": records.SPEC, "record": listing.record.as_json(), "entries": entries})


def parse(data: bytes, name: str) -> Listing:
    """The listing in `data`; raises BrokenRecord naming `name`."""
    value = records.load(data, name, ("entries", "record"), MAX_BYTES)
    if not isinstance(value["entries"], list):
        records.broken(name, "entries is not a list")
    entries = tuple(_entry(item, name) for item in value["entries"])
    if len({entry.path for entry in entries}) != len(entries):
        records.broken(name, "a path stands in it twice")
    return Listing(records.slot_record(value["record"], name, "the release"), entries)


def _entry(value: Any, name: str) -> Entry:
    found = records.object_of(value, name, "an entry", Entry._fields)
    path = records.text(found["path"], name, "an entry's path")
    what = f"{path}'s"
    if found["kind"] not in (FILE, DIRECTORY):
        records.broken(name, f"{what} kind is {found['kind']!r}, neither {FILE} nor {DIRECTORY}")
    mode = records.text(found["mode"], name, f"{what} mode")
    if _MODE.fullmatch(mode) is None:
        records.broken(name, f"{what} mode is {mode!r}, not four octal digits")
    size = records.number(found["size"], name, f"{what} size")
    digest = found["sha256"]
    if found["kind"] == DIRECTORY and (size, digest) != (0, ""):
        records.broken(name, f"{path} is a directory, and has a size or a digest")
    if found["kind"] == FILE:
        records.digest(digest, name, f"{what} sha256")
    return Entry(path, str(found["kind"]), int(mode, 8), size, str(digest))


def difference(listing: Listing, found: Iterable[Entry]) -> str:
    """How a tree is another than its listing says, by its first difference; "" when it proves itself."""
    wanted = {entry.path: entry for entry in listing.entries}
    there: Dict[str, Entry] = {}
    for entry in found:
        if entry.path not in wanted:
            return f"{entry.path!a} is there and stands not in its listing"
        there[entry.path] = entry
    for path in sorted(wanted):
        if path not in there:
            return f"{path!a} is missing"
        if there[path] != wanted[path]:
            return f"{path!a} is {_said(there[path])}, not {_said(wanted[path])}"
    return ""


def _said(entry: Entry) -> str:
    if entry.kind == DIRECTORY:
        return f"a directory with the mode {entry.mode:04o}"
    if entry.kind != FILE:
        return entry.kind  # whoever looked says what is there instead
    return f"a file of {entry.size} bytes with the mode {entry.mode:04o} and the SHA-256 {entry.sha256}"
