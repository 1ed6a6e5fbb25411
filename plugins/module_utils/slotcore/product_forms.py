# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms that values of a product's file may have, and rows of the table by form.

Rules:

* A form is a pattern that the whole value matches, and the words that say it to people.
* Commands are words with one blank between them: no shell ever sees them, so nothing is quoted.
"""

from __future__ import annotations

from . import config_keys

Key = config_keys.Key
Kind = config_keys.Kind

HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,39}\])(?::[1-9][0-9]{0,4})?"
UNIT = r"[A-Za-z0-9][A-Za-z0-9:_.\\-]*(?:@[A-Za-z0-9:_.\\-]+)?\.service"
TEXT = r"[^\x00-\x1f\x7f]{0,1024}"
ARGUMENTS = r"[!-~]+(?: [!-~]+){0,63}"
DATE = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
DAY = "(?:mon|tue|wed|thu|fri|sat|sun)"
DAYS = "%s(?:-%s)?" % (DAY, DAY)
STATUS = "[1-5][0-9]{2}(?:-[1-5][0-9]{2})?"


def listed(part: str, most: int = 16) -> str:
    """Several of a form, separated by commas and blanks."""
    return r"%s(?: *, *%s){0,%d}" % (part, part, most - 1)


def form(section: str, name: str, default: config_keys.Setting, meaning: str, pattern: str, words: str) -> Key:
    """A row for a text of a form, and that form in words."""
    return Key(section, name, Kind.FORM, default, meaning, form=pattern, words=words)


def text(section: str, name: str, default: config_keys.Setting, meaning: str) -> Key:
    """A row for any text on one line."""
    return form(section, name, default, meaning, TEXT, "a text of at most 1,024 characters on one line")


def command(section: str, name: str, meaning: str) -> Key:
    """A row for a command."""
    words = "an absolute path and words, with one blank between them (no shell, no quotes)"
    return form(section, name, None, meaning, r"/[!-~]+(?: [!-~]+){0,63}", words)


def integer(section: str, name: str, default: int, meaning: str, low: int, high: int) -> Key:
    """A row for an integer within bounds."""
    return Key(section, name, Kind.INTEGER, default, meaning, low, high)


def user(section: str, meaning: str) -> Key:
    """A row for an account's name."""
    return form(section, "user", None, meaning, "[a-z_][a-z0-9_-]{0,30}", "an account's name")


TIME_WORDS = "a time of the day, as 22:30"
ZONE_WORDS = "a name of the time zone database, as Europe/Berlin"


def zone(section: str) -> Key:
    """The row for the zone of a section with times."""
    return form(
        section,
        "zone",
        None,
        "required: the zone of these times",
        r"[A-Za-z0-9+_-]+(?:/[A-Za-z0-9+_-]+){0,2}",
        ZONE_WORDS,
    )
