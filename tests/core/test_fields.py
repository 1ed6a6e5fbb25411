# SPDX-License-Identifier: GPL-3.0-or-later
"""The readers of strict fields: what each takes, and errors that name path, rule and value."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict

import pytest

from slotcore import fields

WORD = re.compile(r"[a-z]+")


def one(value: object) -> fields.Fields:
    """An object at `at`, with the field `x`."""
    return fields.Fields({"x": value}, "at", ("x",))


READERS: Dict[str, Callable[[object], object]] = {
    "text": lambda value: one(value).text("x"),
    "integer": lambda value: one(value).integer("x"),
    "to nine": lambda value: one(value).integer("x", 9),
    "flag": lambda value: one(value).flag("x"),
    "sha256": lambda value: one(value).sha256("x"),
    "items": lambda value: one(value).items("x"),
    "matching": lambda value: one(value).matching("x", WORD, "a word"),
    "optional": lambda value: one(value).optional("x", WORD, "a word"),
    "version": lambda value: one(value).version("x"),
    "time": lambda value: one(value).time("x"),
    "binary": lambda value: one(value).binary("x"),
}


@pytest.mark.parametrize(
    ("reader", "value", "wanted"),
    [
        ("text", "", ""),
        ("integer", 1, 1),
        ("integer", 9007199254740991, 9007199254740991),
        ("to nine", 9, 9),
        ("flag", False, False),
        ("flag", True, True),
        ("sha256", "0123456789abcdef" * 4, "0123456789abcdef" * 4),
        ("items", [], []),
        ("items", ["a", {}], [("at.x[0]", "a"), ("at.x[1]", {})]),
        ("matching", "abc", "abc"),
        ("optional", "abc", "abc"),
        ("version", "1.0.0-rc.1", "1.0.0-rc.1"),
        ("time", "1970-01-01T00:00:01Z", 1),
        ("binary", "QQ==", b"A"),
    ],
)
def test_a_reader_takes_its_type(reader: str, value: object, wanted: object) -> None:
    """As it is, or read."""
    found = READERS[reader](value)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("reader", "value", "text"),
    [
        ("text", 1, "at.x must be a string, not 1"),
        ("text", None, "at.x must be a string, not None"),
        ("integer", 0, "at.x must be a positive integer, not 0"),
        ("integer", True, "at.x must be a positive integer, not True"),
        ("integer", "1", "at.x must be a positive integer, not '1'"),
        ("integer", 9007199254740992, "at.x must be at most 9007199254740991, not 9007199254740992"),
        ("to nine", 10, "at.x must be at most 9, not 10"),
        ("flag", 1, "at.x must be true or false, not 1"),
        ("flag", None, "at.x must be true or false, not None"),
        ("sha256", "a" * 63, "at.x must be 64 lower-case hexadecimal digits, not '" + "a" * 56 + "..."),
        ("sha256", "a" * 65, "at.x must be 64 lower-case hexadecimal digits, not '" + "a" * 56 + "..."),
        ("sha256", "a" * 63 + "g", "at.x must be 64 lower-case hexadecimal digits, not '" + "a" * 56 + "..."),
        ("items", {}, "at.x must be a list, not {}"),
        ("items", "ab", "at.x must be a list, not 'ab'"),
        ("matching", "abc\n", "at.x must be a word, not 'abc\\n'"),
        ("matching", 1, "at.x must be a string, not 1"),
        ("optional", "", "at.x must be a word, not ''"),
        ("version", "1.0", "at.x must be a semantic version such as 1.4.0, not '1.0'"),
        ("time", "today", "at.x: 'today' is not a time like 2026-01-31T23:59:59Z"),
        ("binary", "QQ", "at.x: not base64 (standard alphabet, padded, on one line)"),
        (
            "text",
            list(range(20)),
            "at.x must be a string, not [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16...",
        ),
    ],
)
def test_a_reader_takes_nothing_else(reader: str, value: object, text: str) -> None:
    """No value is turned into another type, and the error is whole."""
    with pytest.raises(fields.BadField) as error:
        READERS[reader](value)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: fields.Fields([], "", ()), "the whole must be an object, not []"),
        (lambda: fields.Fields("x", "keys[0]", ()), "keys[0] must be an object, not 'x'"),
        (lambda: fields.Fields({}, "", ("b", "a"), ("c",)), "the whole has no b, no a"),
        (lambda: fields.Fields({"x": 1}, "keys[0]", ()), "keys[0] has the unknown field 'x'"),
        (
            lambda: fields.Fields({"z": 1, "\u00e9": 1, "y": 1, "x": 1}, "", ("a",)),
            "the whole has no a, the unknown field 'x', the unknown field 'y', the unknown field 'z'",
        ),
    ],
)
def test_an_object_has_exactly_its_fields(make: Callable[[], Any], text: str) -> None:
    """What is missing in the order of the format, then the first three that are unknown."""
    with pytest.raises(fields.BadField) as error:
        make()
    assert str(error.value) == text


def test_a_field_may_be_left_out_where_the_format_says_so() -> None:
    """And is asked for by name."""
    found = fields.Fields({"a": 1}, "", ("a",), ("b",))
    assert "a" in found
    assert "b" not in found
    assert found.optional("b", WORD, "a word") is None
    assert found.path("a") == "a"
    assert fields.Fields({"a": 1, "b": "x"}, "", ("a",), ("b",)).optional("b", WORD, "a word") == "x"


def test_a_json_value_is_read_or_its_error_names_what_it_is() -> None:
    """With a limit of its own."""
    assert fields.read(b'{"a":1}', "the thing", 7) == {"a": 1}
    with pytest.raises(fields.BadField) as error:
        fields.read(b'{"a":1}', "the thing", 6)
    assert str(error.value) == "the thing is not plain JSON: 7 bytes; at most 6 are taken"


def test_equal_items_are_named() -> None:
    """The later one, and the first that it is equal to."""
    fields.distinct("keys", "kid", [])
    fields.distinct("keys", "kid", ["a", "b", b"a"])
    with pytest.raises(fields.BadField) as error:
        fields.distinct("keys", "kid", ["a", "b", "c", "b", "b"])
    assert str(error.value) == "keys[3].kid is the same as that of keys[1]"


def test_a_value_is_shown_whole_up_to_60_characters() -> None:
    """In ASCII, and cut short beyond that."""
    assert fields.shown("\u00e9") == "'\\xe9'"
    assert fields.shown("a" * 58) == "'" + "a" * 58 + "'"
    assert fields.shown("a" * 59) == "'" + "a" * 56 + "..."
