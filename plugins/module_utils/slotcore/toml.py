# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration language: a strict subset of TOML 1.0, read line by line.

Rules:

* Bare keys; basic and literal strings on one line; decimal integers of 64 bits; booleans; bare ``[section]``.
  Everything else is an error that names file, line, column, key and what was expected.
* What is accepted here, any TOML 1.0 parser reads as the same values (a test compares with ``tomllib``).
* At most 64 KiB, UTF-8 without a byte order mark, lines end in LF or CRLF.
* ``scan`` goes on after an error, so that a daemon can run on what is left (I8); ``parse`` does not.
* The writer keeps every byte that it was not asked to change.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import codes

Value = Union[str, int, bool]
Values = Mapping[str, Optional[Value]]

MAX_BYTES = 65536
TOP = ""

_MAX_PROBLEMS = 16
_INTEGER_BITS = 63
_KINDS = "a string in quotes, a decimal integer, true or false"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9])*)\Z")
_WORD = re.compile(r"[^ \t#]*")
_BLANKS = re.compile(r"[ \t]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PLAIN = re.compile(r'[^"\\\x00-\x08\x0a-\x1f\x7f]*')
_LITERAL = re.compile(r"[^'\x00-\x08\x0a-\x1f\x7f]*")
_ESCAPE = re.compile(r'\\(?:([btnfr"\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))')
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_MULTI_LINE = "a multi-line string"
_OTHER_KINDS = (('"""', _MULTI_LINE), ("'''", _MULTI_LINE), ("[", "an array"), ("{", "an inline table"))
_OTHER_HEADERS = (("[[", "an array of tables"), ('["', "a quoted name"), ("['", "a quoted name"))
_OTHER_KEYS = (('"', "a quoted key"), ("'", "a quoted key"))


class Entry(NamedTuple):
    """One ``key = value``: its value, its line (from 1) and where in the line the value's text lies."""

    key: str
    value: Value
    line: int
    start: int
    end: int


class Section(NamedTuple):
    """One ``[name]`` with its entries in order; the top level is the section named ``""`` on line 0."""

    name: str
    line: int
    entries: Tuple[Entry, ...]


class Document(NamedTuple):
    """A whole file in the order it was written; the first section is always the top level."""

    name: str
    text: str
    sections: Tuple[Section, ...]

    def values(self) -> Dict[str, Dict[str, Value]]:
        """The bare values, by section and key."""
        return {s.name: {e.key: e.value for e in s.entries} for s in self.sections}


# By section, in order: its line, and its entries by key.
_Found = Dict[str, Tuple[int, Dict[str, Entry]]]


class _Fault(Exception):
    def __init__(self, at: int, expected: str, found: str, key: str = "") -> None:
        super().__init__(expected)
        self.at = at
        self.key = key
        self.text = "expected %s, found %s" % (expected, found)


def label(section: str, key: str) -> str:
    """How a message names a key, with its section."""
    return "[%s] %s" % (section, key) if section else key


def parse(text: Union[str, bytes], name: str) -> Document:
    """Read a whole file, or raise ``BadConfig`` with everything that is wrong with it."""
    document, problems = scan(text, name)
    if problems:
        raise codes.BadConfig(problems)
    return document


def scan(text: Union[str, bytes], name: str) -> Tuple[Document, Tuple[str, ...]]:
    """Read what can be read, and one sentence for each thing that cannot."""
    decoded, problem = _decode(text)
    if problem:
        return Document(name, "", (Section(TOP, 0, ()),)), ("%s: %s" % (name, problem),)
    found: _Found = {TOP: (0, {})}
    problems: List[str] = []
    here, skipping = TOP, False
    for number, line in enumerate(_lines(decoded), start=1):
        try:
            at = _blanks(line, 0)
            if line[at : at + 1] == "[":
                skipping = True
                here = _header(line, at, found)
                found[here] = (number, {})
                skipping = False
            elif line[at : at + 1] not in ("", "#"):
                if not skipping:
                    _take_entry(line, at, number, found[here][1])
            else:
                _finish(line, at)
        except _Fault as fault:
            where = " %s:" % label("" if skipping else here, fault.key) if fault.key else ""
            problems.append("%s:%d:%d:%s %s" % (name, number, fault.at + 1, where, fault.text))
    if len(problems) > _MAX_PROBLEMS:
        problems[_MAX_PROBLEMS:] = ["%s: %d more problems" % (name, len(problems) - _MAX_PROBLEMS)]
    sections = tuple(Section(title, line, tuple(one.values())) for title, (line, one) in found.items())
    return Document(name, decoded, sections), tuple(problems)


def _decode(text: Union[str, bytes]) -> Tuple[str, str]:
    try:
        raw = text if isinstance(text, bytes) else text.encode("utf-8")
        decoded = raw.decode("utf-8")
    except UnicodeError as error:
        return "", "expected UTF-8, found something else: %s" % error
    if len(raw) > MAX_BYTES:
        return "", "expected at most %d bytes, found %d" % (MAX_BYTES, len(raw))
    if decoded.startswith("\ufeff"):
        return "", "expected text, found a byte order mark: save the file as UTF-8 without one"
    return decoded, ""


def _lines(text: str) -> List[str]:
    *ended, last = text.split("\n")
    return [line.removesuffix("\r") for line in ended] + [last]


def _blanks(line: str, at: int) -> int:
    match = _BLANKS.match(line, at)
    return match.end() if match else at


def _span(pattern: re.Pattern[str], line: str, at: int) -> str:
    match = pattern.match(line, at)
    return match.group() if match else ""


def _show(line: str, at: int) -> str:
    if at >= len(line):
        return "the end of the line"
    return ascii(_span(_WORD, line, at)[:40] or line[at])


def _kind(line: str, at: int, known: Tuple[Tuple[str, str], ...]) -> str:
    for start, kind in known:
        if line.startswith(start, at):
            return kind
    return _show(line, at)


def _finish(line: str, at: int) -> None:
    at = _blanks(line, at)
    if line[at : at + 1] not in ("", "#"):
        raise _Fault(at, "the end of the line or a comment", _show(line, at))
    control = _CONTROL.search(line, at)
    if control:
        raise _Fault(control.start(), "a comment without control characters", _show(line, control.start()))


def _header(line: str, at: int, found: _Found) -> str:
    start = _blanks(line, at + 1)
    name = _span(_NAME, line, start)
    end = _blanks(line, start + len(name))
    if not name or line[end : end + 1] != "]":
        raise _Fault(at, "[section] with a bare name", _kind(line, at, _OTHER_HEADERS))
    _finish(line, end + 1)
    if name in found:
        raise _Fault(at, "each section once", "[%s] again" % name)
    if name in found[TOP][1]:
        raise _Fault(at, "a name of its own", "[%s], which is a key of the top level already" % name)
    return name


def _take_entry(line: str, at: int, number: int, before: Dict[str, Entry]) -> None:
    key = _span(_NAME, line, at)
    equals = _blanks(line, at + len(key))
    if not key:
        raise _Fault(at, "a bare key, [section] or a comment", _kind(line, at, _OTHER_KEYS))
    if line[equals : equals + 1] != "=":
        raise _Fault(equals, "= after the key", _kind(line, equals, ((".", "a dotted key"),)), key)
    start = _blanks(line, equals + 1)
    try:
        value, end = _value(line, start)
        _finish(line, end)
    except _Fault as fault:
        fault.key = key
        raise
    if key in before:
        raise _Fault(at, "each key once", "it again (first on line %d)" % before[key].line, key)
    before[key] = Entry(key, value, number, start, end)


def _value(line: str, at: int) -> Tuple[Value, int]:
    if line.startswith(('"""', "'''"), at):
        raise _Fault(at, _KINDS, _MULTI_LINE)
    if line[at : at + 1] == '"':
        return _basic(line, at)
    if line[at : at + 1] == "'":
        text = _span(_LITERAL, line, at + 1)
        end = at + 1 + len(text)
        if line[end : end + 1] != "'":
            raise _Fault(end, "a closing ' and no control characters before it", _show(line, end))
        return text, end + 1
    word = _span(_WORD, line, at)
    if word in ("true", "false"):
        return word == "true", at + len(word)
    if not _INTEGER.match(word):
        raise _Fault(at, _KINDS, _kind(line, at, _OTHER_KINDS))
    if len(word) > 40 or not -(1 << _INTEGER_BITS) <= int(word) < 1 << _INTEGER_BITS:
        raise _Fault(at, "an integer of at most 64 bits", _show(line, at))
    return int(word), at + len(word)


def _basic(line: str, at: int) -> Tuple[str, int]:
    parts: List[str] = []
    at += 1
    while True:
        plain = _span(_PLAIN, line, at)
        parts.append(plain)
        at += len(plain)
        if line[at : at + 1] == '"':
            return "".join(parts), at + 1
        if line[at : at + 1] != "\\":
            raise _Fault(at, 'a closing " and no control characters before it', _show(line, at))
        escape = _ESCAPE.match(line, at)
        number = int(escape.group(2) or escape.group(3) or "0", 16) if escape else -1
        if not escape or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise _Fault(at, r"one of \b \t \n \f \r \" \\ \uXXXX \UXXXXXXXX", _show(line, at))
        parts.append(_SHORT[escape.group(1)] if escape.group(1) else chr(number))
        at = escape.end()
