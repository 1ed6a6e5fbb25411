# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing a configuration without touching what somebody else wrote in it.

Rules:

* At the top level only the named keys change; every other key and comment stays.
* A named section is owned whole: its other keys go, its comments stay where they are.
* A value of ``None`` removes the key, a section of ``None`` removes the section.
* Every section that is not named keeps its text, comments and order byte for byte.
* A line whose value is already right stays as it is, so that writing twice changes nothing.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional

from . import codes, toml

Wanted = Mapping[str, Optional[toml.Values]]

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_UNSAFE = re.compile(r'["\\\x00-\x1f\x7f]')
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def render(wanted: Wanted, comment: str = "") -> str:
    """A new file with these sections in this order, under a comment."""
    lines = ["# %s\n" % line if line else "#\n" for line in comment.split("\n")] if comment else []
    return replace_sections("".join(lines) + ("\n" if lines else ""), wanted)


def replace_sections(old_text: str, wanted: Wanted, name: str = "config.toml") -> str:
    """The old text with the wanted keys and sections set and everything else kept.

    Raises:
        BadConfig: the old text has errors, or the new values cannot be written.

    """
    document = toml.parse(old_text, name)
    edit = _Edit(document)
    for section in document.sections:
        if section.name in wanted:
            edit.set_section(section, wanted[section.name])
    known = {section.name for section in document.sections}
    for section_name, values in wanted.items():
        if section_name not in known and values is not None:
            edit.append(section_name, values)
    text = edit.text()
    toml.parse(text, name)  # the size limit, and a check of ourselves
    return text


def literal(section: str, key: str, value: object) -> str:
    """One value as it stands in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"%s"' % _UNSAFE.sub(lambda match: _ESCAPES.get(match.group(), "\\u%04x" % ord(match.group())), value)
    raise codes.BadConfig(
        (
            "%s: expected a string, an integer, true or false, found %s"
            % (toml.label(section, key), type(value).__name__),
        )
    )


def _line(section: str, key: str, value: object) -> str:
    if not _BARE.match(key):
        raise codes.BadConfig(("%s: expected a bare key, found %s" % (toml.label(section, key), ascii(key)),))
    return "%s = %s" % (key, literal(section, key, value))


def _lines(section: str, values: toml.Values) -> List[str]:
    return [_line(section, key, value) for key, value in values.items() if value is not None]


class _Edit:
    """Lines of the old text with their ends, what replaces each (by number, from 1), and what follows each."""

    def __init__(self, document: toml.Document) -> None:
        *ended, last = document.text.split("\n")
        self.lines = [line + "\n" for line in ended] + ([last] if last else [])
        self.end = "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"
        self.replaced: Dict[int, str] = {}
        self.after: Dict[int, List[str]] = {}
        self.tail: List[str] = []

    def set_section(self, section: toml.Section, values: Optional[toml.Values]) -> None:
        if values is None:
            last = max([section.line] + [entry.line for entry in section.entries])
            self.replaced.update((number, "") for number in range(max(section.line, 1), last + 1))
            return
        for entry in section.entries:
            value = values.get(entry.key)
            if value is None:
                if section.name != toml.TOP or entry.key in values:
                    self.replaced[entry.line] = ""
            elif type(value) is not type(entry.value) or value != entry.value:
                line = self.lines[entry.line - 1]
                new = literal(section.name, entry.key, value)
                self.replaced[entry.line] = line[: entry.start] + new + line[entry.end :]
        known = {entry.key for entry in section.entries}
        fresh = _lines(section.name, {key: value for key, value in values.items() if key not in known})
        if section.entries:
            self.after[section.entries[-1].line] = fresh
        elif section.name != toml.TOP:
            self.after[section.line] = fresh
        elif fresh:
            place = self._top()
            self.after[place] = fresh + ([""] if place < len(self.lines) and self.lines[place].strip() else [])

    def _top(self) -> int:
        """After which line the first key of the top level goes: after the file's own comment, if it has one."""
        place = 0
        while place < len(self.lines) and self.lines[place].lstrip(" \t").startswith("#"):
            place += 1
        return place + 1 if 0 < place < len(self.lines) and not self.lines[place].strip() else 0

    def append(self, name: str, values: toml.Values) -> None:
        if not _BARE.match(name):
            raise codes.BadConfig(("expected a bare section name, found %s" % ascii(name),))
        self.tail += ["", "[%s]" % name] + _lines(name, values)

    def text(self) -> str:
        out: List[str] = []
        self._add(out, self.after.get(0, []))
        for number, line in enumerate(self.lines, start=1):
            out.append(self.replaced.get(number, line))
            self._add(out, self.after.get(number, []))
        out = [line for line in out if line]
        self._add(out, self.tail if out and out[-1].strip() else self.tail[1:])
        return "".join(out)

    def _add(self, out: List[str], lines: List[str]) -> None:
        if lines and out and not out[-1].endswith("\n"):
            out[-1] += self.end if out[-1] else ""
        out.extend(line + self.end for line in lines)
