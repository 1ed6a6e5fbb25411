# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scanned file sets, by a table of keys, and what is wrong with it by file, line and column.

Rules:

* A key with a problem counts as not set; every problem is told, none ends the scan.
* A section of the table that ends in ``-*`` stands for any number of sections of that beginning.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import config_keys, toml


class Set(NamedTuple):
    """One key that the file sets: in which of its sections, by which row, to what."""

    section: str
    key: config_keys.Key
    value: config_keys.Setting


class Wrong(NamedTuple):
    """One problem: in which section, about which row (none for what is no known key) or name, and the whole sentence."""

    section: str
    key: Optional[config_keys.Key]
    name: str
    text: str


def take(
    scanned: Tuple[toml.Document, Tuple[str, ...]], keys: Sequence[config_keys.Key], name_rule: str = ""
) -> Tuple[List[Set], List[Wrong]]:
    """What a file sets by the rows `keys`, and its problems; ``name_rule`` is the pattern of a repeated section's name."""
    document, found = scanned
    lines = document.text.split("\n")
    rows: Dict[Tuple[str, str], config_keys.Key] = {(key.section, key.name): key for key in keys}
    sections = tuple(dict.fromkeys(key.section for key in keys))
    values: List[Set] = []
    problems = [Wrong("", None, "", text) for text in found]
    for section in document.sections:
        row = _row_section(section.name, sections, name_rule)
        if row is None:
            known = " or ".join("[%s]" % one for one in sections if one)
            text = "[%s]: unknown section, expected %s" % (section.name, known)
            where = "%s:%s: %s" % (document.name, _place(lines, section.line), text)
            problems.append(Wrong(section.name, None, "", where))
            continue
        for entry in section.entries:
            key = rows.get((row, entry.key))
            what = config_keys.problem(key, entry.value) if key else _unknown(row, entry.key, keys)
            if key is None or what:
                place = _place(lines, entry.line, entry.start if key else -1)
                text = "%s:%s: %s: %s" % (document.name, place, toml.label(section.name, entry.key), what)
                problems.append(Wrong(section.name, key, entry.key, text))
            else:
                values.append(Set(section.name, key, config_keys.setting(key, entry.value)))
    return values, problems


def _row_section(name: str, sections: Sequence[str], rule: str) -> Optional[str]:
    """The section of the table that a file's section is of."""
    if name in sections and not name.endswith("*"):
        return name
    kind, dash, rest = name.partition("-")
    row = kind + "-*"
    return row if dash and row in sections and re.fullmatch(rule, rest) else None


def _place(lines: List[str], line: int, start: int = -1) -> str:
    """Line and column (from 1) of a value, or of what a line begins with."""
    text = lines[line - 1]
    return "%d:%d" % (line, (start if start >= 0 else len(text) - len(text.lstrip(" \t"))) + 1)


def _unknown(section: str, name: str, keys: Sequence[config_keys.Key]) -> str:
    here = [key.name for key in keys if key.section == section]
    for key in keys:
        if key.name == name:
            place = "into [%s]" % key.section if key.section else "above the first section"
            return "unknown key here, it belongs %s" % place
    return "unknown key, expected one of %s" % ", ".join(here)
