# SPDX-License-Identifier: GPL-3.0-or-later
"""The listing of a tree: what it says, what is none, and the first way in which a tree is another."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, listings, records

SHA256 = "ab" * 32
RECORD = records.SlotRecord("1.1.0", 2, "cd" * 32, 700, 9, "stable")
APP = listings.Entry("app", listings.FILE, 0o755, 17, SHA256)
LIB = listings.Entry("lib", listings.DIRECTORY, 0o755)
DATA = listings.Entry("lib/data", listings.FILE, 0o644, 0, SHA256)
LISTING = listings.Listing(RECORD, (APP, LIB, DATA))
NAME = "/s/versions/1.1.0.json"


def test_a_listing_reads_as_it_was_written_whatever_the_order() -> None:
    """Equal trees have equal listings; the modes are written as people write them."""
    data = listings.render(LISTING._replace(entries=(DATA, LIB, APP)))
    assert listings.parse(data, NAME) == LISTING
    assert data == listings.render(LISTING)
    written = json.loads(data)
    assert (written["spec"], written["record"]) == (1, RECORD.as_json())
    assert written["entries"][0] == {"path": "app", "kind": "file", "mode": "0755", "size": 17, "sha256": SHA256}
    assert written["entries"][1] == {"path": "lib", "kind": "directory", "mode": "0755", "size": 0, "sha256": ""}


def change(**changes: object) -> Callable[[Dict[str, Any]], None]:
    """Other values in the entry of the program."""
    return lambda value: value["entries"][0].update(changes)


BROKEN: Dict[str, Callable[[Dict[str, Any]], object]] = {
    "its spec is 2": lambda value: value.update(spec=2),
    "other fields than": lambda value: value.update(extra=1),
    "entries is not a list": lambda value: value.update(entries={}),
    "a path stands in it twice": lambda value: value["entries"].append(value["entries"][0]),
    "an entry is not an object": lambda value: value["entries"].append(1),
    "an entry has other fields": change(owner=0),
    "an entry's path is not a text": change(path=1),
    "app's kind is 'link', neither file nor directory": change(kind="link"),
    "app's mode is not a text": change(mode=493),
    "app's mode is '755', not four octal digits": change(mode="755"),
    "app's mode is '4755', not four": change(mode="4755"),
    "app's size is -1": change(size=-1),
    "app's sha256 is not 64 hexadecimal digits": change(sha256=""),
    "app is a directory, and has a size": change(kind="directory"),
    "the release's version is not a text": lambda value: value["record"].update(version=None),
    "the release has other fields": lambda value: value["record"].update(more=1),
}


@pytest.mark.parametrize("text", BROKEN)
def test_anything_else_is_broken_and_says_what(text: str) -> None:
    """Nothing is guessed: such a tree proves nothing."""
    value = json.loads(listings.render(LISTING))
    BROKEN[text](value)
    with pytest.raises(codes.BrokenRecord) as error:
        listings.parse(json.dumps(value).encode(), NAME)
    assert error.value.file == NAME
    assert text in error.value.why


def test_a_listing_is_larger_than_a_record_may_be_but_bounded() -> None:
    """4,096 long names fit; more than any archive can hold is not read."""
    many = tuple(APP._replace(path=f"{number:04d}" + "n" * 1000) for number in range(4096))
    data = listings.render(LISTING._replace(entries=many))
    assert len(data) > records.MAX_BYTES
    assert len(listings.parse(data, NAME).entries) == 4096
    with pytest.raises(codes.BrokenRecord) as error:
        listings.parse(b" " * (listings.MAX_BYTES + 1), NAME)
    assert "at most 16777216 are read" in error.value.why


@given(st.binary(max_size=200))
def test_any_bytes_are_a_listing_or_broken(data: bytes) -> None:
    """Nothing else is raised."""
    with pytest.raises(codes.BrokenRecord):
        listings.parse(data, NAME)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([APP, LIB, DATA], ""),
        ([DATA, APP, LIB], ""),
        ([APP, LIB], "'lib/data' is missing"),
        ([], "'app' is missing"),
        ([APP, LIB, DATA, APP._replace(path="x\n")], "'x\\n' is there and stands not in its listing"),
        (
            [APP._replace(sha256="0" * 64), LIB, DATA],
            f"'app' is a file of 17 bytes with the mode 0755 and the SHA-256 {'0' * 64}, not a",
        ),
        ([APP._replace(mode=0o4755), LIB, DATA], "with the mode 4755"),
        (
            [APP, LIB._replace(mode=0o777), DATA],
            "'lib' is a directory with the mode 0777, not a directory with the mode 0755",
        ),
        ([APP, listings.Entry("lib", listings.FILE, 0o755), DATA], "'lib' is a file of 0 bytes"),
        (
            [APP, LIB, listings.Entry("lib/data", "a FIFO", 0)],
            "'lib/data' is a FIFO, not a file of 0 bytes with the mode 0644",
        ),
    ],
)
def test_a_tree_proves_itself_when_nothing_is_missing_other_or_more(found: List[listings.Entry], said: str) -> None:
    """The first difference is said, with both values."""
    difference = listings.difference(LISTING, found)
    assert said in difference
    assert bool(said) == bool(difference)
