# SPDX-License-Identifier: GPL-3.0-or-later
"""Every key of the configuration with what it means, what it may be, what it is here, and where that was set.

Rules:

* From the one table of keys, as the documentation is; nothing is said here that the table does not say.
* A value with a problem counts as not set, as everywhere, and its problem stands with the key.
* What may carry a password is shown without it.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence, Tuple, Union

from . import config, config_keys, config_scan, toml

_CREDENTIALS = re.compile(r"//[^/@]*@")


class Explained(NamedTuple):
    """One key; `set_at` is ``file:line``, or empty when the default counts."""

    section: str
    key: str
    meaning: str
    value: str
    """What it may be."""
    default: str
    """The default as a file would write it; empty when there is none."""
    current: str
    """The value in force as a file would write it; empty when there is none."""
    set_at: str
    problem: str


def explain(text: Union[str, bytes, None], name: str) -> Tuple[Explained, ...]:
    """All keys in the order of the table, for a file's text (no file is ``None``)."""
    scanned = toml.scan(b"" if text is None else text, name)
    loaded, problems = config.judge(scanned)
    entries = {(section.name, entry.key): entry for section in scanned[0].sections for entry in section.entries}
    found = []
    for key in config.KEYS:
        entry = entries.get((key.section, key.name))
        counts = entry is not None and not config_keys.problem(key, entry.value)
        found.append(
            Explained(
                section=key.section,
                key=key.name,
                meaning=key.meaning,
                value=config_keys.describe(key),
                default=_shown(key.default),
                current=_shown(getattr(loaded, config.field_of(key))),
                set_at="%s:%d" % (name, entry.line) if entry is not None and counts else "",
                problem="; ".join(problem.text for problem in problems if config.field_of(key) in problem.keys),
            )
        )
    return tuple(found)


def of_rows(
    keys: Sequence[config_keys.Key], text: Union[str, bytes, None], name: str, name_rule: str
) -> Tuple[Explained, ...]:
    """As ``explain``, by another table. A section that may be repeated is explained once, and each of the file's own."""
    scanned = toml.scan(b"" if text is None else text, name)
    values, wrong = config_scan.take(scanned, keys, name_rule)
    current = {(one.section, one.key.name): one.value for one in values}
    lines = {(section.name, entry.key): entry.line for section in scanned[0].sections for entry in section.entries}
    found = []
    for key in keys:
        kind = key.section[:-1] if key.section.endswith("*") else ""
        own = [section.name for section in scanned[0].sections if kind and section.name.startswith(kind)]
        for section in own or [key.section]:
            place = (section, key.name)
            found.append(
                Explained(
                    section=section,
                    key=key.name,
                    meaning=key.meaning,
                    value=config_keys.describe(key),
                    default=_shown(key.default),
                    current=_shown(current.get(place, key.default)),
                    set_at="%s:%d" % (name, lines[place]) if place in current else "",
                    problem="; ".join(one.text for one in wrong if (one.section, one.name) == place),
                )
            )
    return tuple(found)


def lines_of(one: Explained) -> Tuple[str, ...]:
    """The lines of one key for people."""
    place = one.set_at or "default"
    lines = ["%s = %s (%s)" % (toml.label(one.section, one.key), one.current or "nothing", place)]
    lines.append("    %s" % one.meaning)
    lines.append("    %s; default: %s" % (one.value, one.default or "none"))
    if one.problem:
        lines.append("    problem: %s" % one.problem)
    return tuple(lines)


def _shown(value: config_keys.Setting) -> str:
    if value in (None, ()):
        return ""
    return _CREDENTIALS.sub("//***@", config_keys.show(value))
