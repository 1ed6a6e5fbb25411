# SPDX-License-Identifier: GPL-3.0-or-later
"""Canonical JSON: one spelling for a value, nothing that two readers could take differently."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles

from slotcore import canonical, strictjson

MOST = canonical.MAX_INT
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-MOST, MOST) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)

NODE = """
const canon = v => Array.isArray(v) ? '[' + v.map(canon).join(',') + ']'
  : v && typeof v === 'object' ? '{' + Object.keys(v).sort().map(k => JSON.stringify(k) + ':' + canon(v[k])).join(',') + '}'
  : JSON.stringify(v);
process.stdout.write(canon(JSON.parse(require('fs').readFileSync(0, 'utf8'))));
"""


def nested(depth: int) -> bytes:
    """Lists within lists."""
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, b"null"),
        (True, b"true"),
        (False, b"false"),
        (0, b"0"),
        (-1, b"-1"),
        (MOST, b"9007199254740991"),
        ("", b'""'),
        ([], b"[]"),
        ((1, 2), b"[1,2]"),
        ({}, b"{}"),
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        ('a"b\\c/d', b'"a\\"b\\\\c/d"'),
        ("\b\f\n\r\t", b'"\\b\\f\\n\\r\\t"'),
        ("\x00\x1f\x7f", b'"\\u0000\\u001f\x7f"'),
        ("\u00e9\u2028\U0001f600", '"\u00e9\u2028\U0001f600"'.encode()),
        ({"10": 1, "9": 2}, b'{"10":1,"9":2}'),
        # U+1F600 is two code units that start with D83D, so it comes before U+FB33 although its code point is higher
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'.encode()),
    ],
)
def test_a_value_has_one_spelling(value: object, written: bytes) -> None:
    """Known values are written as JSON.stringify with sorted keys writes them, and read back."""
    assert canonical.encode(value) == written
    assert canonical.decode(written) == (list(value) if isinstance(value, tuple) else value)


@given(VALUES)
def test_what_is_written_reads_back(value: object) -> None:
    """The standard library reads the same value, and our own reader finds it canonical."""
    data = canonical.encode(value)
    assert json.loads(data) == value
    assert canonical.decode(data) == value


@given(VALUES)
def test_python_writes_the_same_apart_from_the_order(value: object) -> None:
    """Sorted by code units instead of code points, json.dumps would write our bytes."""
    assert canonical.encode(value) == oracles.canonical_json(value)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on this machine")
@settings(max_examples=15)
@given(st.lists(VALUES, min_size=8, max_size=24))
def test_javascript_writes_the_same(values: List[object]) -> None:
    """JSON.stringify over sorted keys is the reference that other signers use."""
    run = subprocess.run(
        ["node", "-e", NODE], input=json.dumps(values).encode(), capture_output=True, timeout=60, check=False
    )
    assert run.stderr == b""
    assert canonical.encode(values) == run.stdout


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbf{}", "byte 0: a byte order mark"),
        (b'{"a":"\xff"}', "byte 6: not UTF-8"),
        (b'"\xed\xa0\x80"', "byte 1: not UTF-8"),
        (b"", "byte 0: expected a value, found the end"),
        (b"nul", "byte 0: expected a value, found 'n'"),
        (b"1 2", "byte 2: expected the end, found '2'"),
        (b"{}x", "byte 2: expected the end, found 'x'"),
        (b"[1,]", "byte 3: expected a value, found ']'"),
        (b"[1;2]", "byte 2: expected ',' or ']', found ';'"),
        (b"[1", "byte 2: expected ',' or ']', found the end"),
        (b"{1:2}", "byte 1: expected a string, found '1'"),
        (b'{"a" 1}', "byte 5: expected ':', found '1'"),
        (b'{"a":1,"a":2}', "byte 7: the key 'a' is there twice"),
        (b'{"a":1,"\\u0061":2}', "byte 7: the key 'a' is there twice"),
        ('{"\u00e9\u00e9":1.5}'.encode(), "byte 8: not a plain integer"),
        (b"[1.0]", "byte 1: not a plain integer"),
        (b"[1e3]", "byte 1: not a plain integer"),
        (b"[1E3]", "byte 1: not a plain integer"),
        (b"[01]", "byte 1: not a plain integer"),
        (b"[1+1]", "byte 1: not a plain integer"),
        (b"[1-1]", "byte 1: not a plain integer"),
        (b"[+1]", "byte 1: expected a value, found '+'"),
        (b"[-]", "byte 1: expected a value, found '-'"),
        (b"NaN", "byte 0: expected a value, found 'N'"),
        (b"Infinity", "byte 0: expected a value, found 'I'"),
        (b"-Infinity", "byte 0: expected a value, found '-'"),
        (b"9007199254740992", "byte 0: an integer beyond 2**53 - 1"),
        (b"-9007199254740992", "byte 0: an integer beyond 2**53 - 1"),
        (b"9" * 5000, "byte 0: an integer beyond 2**53 - 1"),
        (b'"a', "byte 2: expected the rest of a string, found the end"),
        (b'"a\nb"', "byte 2: expected the rest of a string, found '\\n'"),
        (b'"a\nb\\n"', "byte 2: expected the rest of a string, found '\\n'"),
        (b'"\\x41"', "byte 2: an escape that JSON does not have"),
        (b'"\\u12g4"', "byte 3: an escape that JSON does not have"),
        (b'"\\', "byte 2: an escape that JSON does not have"),
        (b'"\\ud800"', "byte 7: half of a surrogate pair"),
        (b'"\\ud800\\u0041"', "byte 13: half of a surrogate pair"),
        (b'"\\ud800\\n"', "byte 8: an escape that JSON does not have"),
        (b'"\\udc00"', "byte 7: half of a surrogate pair"),
        (b'"\\udc00\\udc00"', "byte 7: half of a surrogate pair"),
        (b'"\\udfff"', "byte 7: half of a surrogate pair"),
        (b'"\\ud800\\ue000"', "byte 13: half of a surrogate pair"),
        (b'"\\ud800\\udbff"', "byte 13: half of a surrogate pair"),
        (nested(17), "byte 16: nested deeper than 16"),
        (b"[" * 100000, "byte 16: nested deeper than 16"),
        (b" " * ((1 << 20) + 1), "1048577 bytes; at most 1048576 are taken"),
    ],
)
def test_what_two_readers_could_take_differently_is_refused(data: bytes, text: str) -> None:
    """The error says what and at which byte."""
    with pytest.raises(canonical.NotJson) as error:
        canonical.decode(data)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{ "a":1}', "byte 1: found ' ', the canonical form has '\"'"),
        (b"[]\n", "byte 2: found '\\n', the canonical form has the end"),
        (b'{"b":1,"a":2}', "byte 2: found 'b', the canonical form has 'a'"),
        (b'"\\u0041"', "byte 1: found '\\\\', the canonical form has 'A'"),
        (b'"\\/"', "byte 1: found '\\\\', the canonical form has '/'"),
        (b'"\\u000A"', "byte 2: found 'u', the canonical form has 'n'"),
        (b'"\\u001F"', "byte 6: found 'F', the canonical form has 'f'"),
        (b"-0", "byte 0: found '-', the canonical form has '0'"),
        (b'"\\ud83d\\ude00"', "byte 1: found '\\\\', the canonical form has '\\xf0'"),
    ],
)
def test_another_spelling_is_not_canonical(data: bytes, text: str) -> None:
    """Such bytes parse, and decode names the first byte that differs."""
    canonical.parse(data)
    with pytest.raises(canonical.NotCanonical) as error:
        canonical.decode(data)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (b"\\u0f9a\\uABcd", "\u0f9a\uabcd"),
        (b"\\ud7ff\\u0041", "\ud7ffA"),
        (b"\\ue000", "\ue000"),
        (b"\\ud800\\udc00", "\U00010000"),
        (b"\\udbff\\udfff", "\U0010ffff"),
    ],
)
def test_escapes_beside_and_at_the_ends_of_surrogate_pairs(escaped: bytes, text: str) -> None:
    """The first and the last pair, and the characters next to the range of halves."""
    assert canonical.parse(b'"%s"' % escaped) == text


def test_white_space_may_stand_between_any_two_tokens() -> None:
    """In empty containers too."""
    assert canonical.parse(b"\t[\r\n1\t]\r") == [1]
    assert canonical.parse(b' { "a" : [ ] , "b" : { } , "c" : [ 1 , 2 ] } ') == {"a": [], "b": {}, "c": [1, 2]}


def test_objects_nest_as_deep_as_lists_and_no_deeper() -> None:
    """Read and written, and mixed."""
    for opened, closed in ((b'{"a":', b"}"), (b'[{"a":', b"}]")):
        levels = 8 if b"[" in opened else 16
        deepest = opened * levels + b"0" + closed * levels
        assert canonical.encode(canonical.decode(deepest)) == deepest
        for text in (b"[%s]" % deepest, b'{"a":%s}' % deepest):
            with pytest.raises(canonical.NotJson, match=r"^byte \d+: nested deeper than 16$"):
                canonical.parse(text)
    value: object = 0
    for _time in range(17):
        value = {"a": value}
    with pytest.raises(canonical.NotJson, match=r"nested deeper than 16$"):
        canonical.encode(value)


def test_limits_are_taken_in_full() -> None:
    """What lies exactly at a limit is fine."""
    assert canonical.encode(canonical.decode(nested(16))) == nested(16)
    longest = b'"' + b"a" * ((1 << 20) - 2) + b'"'
    assert canonical.encode(canonical.decode(longest)) == longest


def test_too_many_values_are_refused_both_ways() -> None:
    """65,536 are read and written, one more is neither."""
    most: List[object] = [0] * (strictjson.MAX_VALUES - 1)
    data = canonical.encode(most)
    assert canonical.decode(data) == most
    with pytest.raises(canonical.NotJson, match=r"^byte 131071: more than 65536 values$"):
        canonical.parse(b"[0," + data[1:])
    with pytest.raises(canonical.NotJson, match=r"^\$: 65537 values; at most 65536 are written$"):
        canonical.encode([*most, 0])
    with pytest.raises(canonical.NotJson, match="65538 values"):
        canonical.encode({"a": {"b": tuple(most)}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (MOST + 1, "$: 9007199254740992 is beyond 2**53 - 1"),
        ({"a": [0, -MOST - 1]}, "$.a[1]: -9007199254740992 is beyond 2**53 - 1"),
        (1.0, "$: float cannot be written"),
        ([b"x"], "$[0]: bytes cannot be written"),
        ({1: 2}, "$: the key 1 is not a string"),
        ({"a": "\ud800"}, "$.a: half of a surrogate pair"),
        ({"\udc00": 1}, "$: half of a surrogate pair"),
        ("a" * ((1 << 20) - 1), "$: 1048577 bytes; at most 1048576 are written"),
    ],
)
def test_what_cannot_be_written_is_named_by_its_path(value: object, text: str) -> None:
    """Nothing is rounded or replaced on the way out."""
    with pytest.raises(canonical.NotJson) as error:
        canonical.encode(value)
    assert str(error.value) == text


def test_too_deep_a_value_is_not_written() -> None:
    """The reader's limit holds for the writer."""
    value: List[object] = []
    for _time in range(16):
        value = [value]
    with pytest.raises(canonical.NotJson, match=r"nested deeper than 16$"):
        canonical.encode(value)


@settings(max_examples=400)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_the_reader_agrees_with_the_standard_library(
    value: object, ascii_only: bool, indent: int, data: st.DataObject
) -> None:
    """On documents spelled in many ways, and on the same with one character changed, added or taken away."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at]
        + data.draw(st.sampled_from(list('"\\{}[]:,0123456789.eE+-tfn u\n\x00') + [""]))
        + text[at + data.draw(st.integers(0, 1)) :]
    )
    try:
        wanted: object = ("read", oracles.strict_json(text))
    except ValueError:
        wanted = "refused"
    try:
        found: object = ("read", strictjson.parse(text.encode("utf-8")))
    except strictjson.NotJson:
        found = "refused"
    assert found == wanted


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No other error ever comes out of the reader."""
    try:
        value = canonical.parse(data)
    except canonical.NotJson:
        return
    assert canonical.decode(canonical.encode(value)) == value


@given(st.binary(max_size=40))
def test_base64_reads_what_it_writes(data: bytes) -> None:
    """The standard spelling is the one that is taken."""
    assert canonical.decode_base64(base64.b64encode(data).decode()) == data


@pytest.mark.parametrize("text", ["QQ", "QQ=", "QQ==\n", "Q Q=", "QQ==QQ==", "-_-_", "=", "\u00e9", "QQ==="])
def test_what_is_no_base64_is_refused(text: str) -> None:
    """Nothing is skipped, and nothing is filled up."""
    with pytest.raises(ValueError, match=r"^not base64 \(standard alphabet, padded, on one line\)$"):
        canonical.decode_base64(text)


@pytest.mark.parametrize("text", ["QR==", "QUJ="])
def test_other_spellings_of_base64_are_refused(text: str) -> None:
    """No second text may stand for the same bytes."""
    with pytest.raises(ValueError, match=r"^not the one base64 spelling of its bytes \(padding or unused bits\)$"):
        canonical.decode_base64(text)
