# SPDX-License-Identifier: GPL-3.0-or-later
"""What one configuration key may hold, and what is wrong with a value.

Rules:

* A key is a row of data: section, name, kind, default, meaning, bounds. Its kind decides how it is checked and read.
* A check answers the end of a sentence that names the value and what was expected, or nothing; it never raises.
* Paths are plain enough to stand in a unit file, an environment file and a shell word as they are.
* Lists are comma-separated strings, since the language has no arrays.
* A proxy may carry a password, so its value is never shown; nor is that of a mirror, which must not.
"""

from __future__ import annotations

import enum
import re
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

from . import toml

Setting = Union[str, int, bool, Tuple[str, ...], None]

MAX_PATH = 1024
MAX_CHANNEL = 32
MAX_URL = 1024

_PATH = re.compile(r"(?:/[A-Za-z0-9_+=:@,.-]+)+\Z")
_PIN = re.compile(r"sha256/[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}\Z")
_PROXY = re.compile(r"https?://(?:[!-.0-~]+@)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?\Z")


class Kind(enum.Enum):
    """What a value may be; the text is how a message and the documentation say it."""

    PATH = "an absolute path without . or .. or unusual characters"
    INTEGER = "an integer"
    FLAG = "true or false"
    CHOICE = "one of"
    NAMES = "a comma-separated list out of"
    PINS = "a comma-separated list of sha256/ and the base64 of 32 bytes"
    PROXY = "http://host:port or https://host:port"
    CHANNELS = "a comma-separated list of channels (1 to 32 letters, digits, _, / and -)"
    VERSION = "a semantic version"
    USER = "an account's name (a small letter or _, then at most 30 small letters, digits, _ and -)"
    FORM = "a text of a form of its own"
    URLS = "a comma-separated list of https:// addresses (without credentials, query or fragment)"


LISTS = (Kind.PINS, Kind.NAMES, Kind.CHANNELS, Kind.URLS)


class Key(NamedTuple):
    """One key: where it stands, what it may be, what it is when it is not set, and what it does."""

    section: str
    name: str
    kind: Kind
    default: Setting
    meaning: str
    low: int = 0
    high: int = MAX_PATH
    choices: Tuple[str, ...] = ()
    form: str = ""
    """Of kind ``FORM``: the pattern that the whole value matches."""
    words: str = ""
    """That pattern in words."""


def setting(key: Key, value: toml.Value) -> Setting:
    """The value as the program uses it; an empty string is the same as no optional value."""
    if key.kind in LISTS:
        return split_names(str(value))
    return value if value != "" else key.default


def problem(key: Key, value: toml.Value) -> str:
    """What is wrong with a value, as the end of a sentence; empty when nothing is."""
    wanted = {Kind.INTEGER: int, Kind.FLAG: bool}.get(key.kind, str)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is int):
        return "expected %s, found %s" % (describe(key), show(value))
    return _CHECKS[key.kind](key, value)


def split_names(value: str) -> Tuple[str, ...]:
    """The parts of a comma-separated string without the blanks around them; an empty string has none."""
    return tuple(part.strip(" \t") for part in value.split(",")) if value.strip(" \t") else ()


def describe(key: Key) -> str:
    """What a key's value may be, in words."""
    if key.kind is Kind.INTEGER:
        return "%s from %d to %d" % (key.kind.value, key.low, key.high)
    if key.kind in (Kind.CHANNELS, Kind.URLS):
        return "%s, %d to %d of them" % (key.kind.value, key.low, key.high)
    if key.kind is Kind.FORM:
        return key.words
    return "%s %s" % (key.kind.value, ", ".join(key.choices)) if key.choices else key.kind.value


def show(value: Setting) -> str:
    """A value as a file writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return '"%s"' % ascii(",".join(value) if isinstance(value, tuple) else value or "")[1:-1]


def _expected(key: Key, value: toml.Value) -> str:
    return "expected %s, found %s" % (describe(key), show(value))


def _integer(key: Key, value: toml.Value) -> str:
    return "" if key.low <= int(value) <= key.high else _expected(key, value)


def _flag(_key: Key, _value: toml.Value) -> str:
    return ""


def _path(key: Key, value: toml.Value) -> str:
    text = str(value)
    if not text and key.default is None:
        return ""
    if len(text) > key.high:
        return "expected at most %d characters, found %d" % (key.high, len(text))
    plain = _PATH.match(text) and not {".", ".."} & set(text.split("/"))
    return "" if plain else _expected(key, value)


def _choice(key: Key, value: toml.Value) -> str:
    return "" if value in key.choices else _expected(key, value)


def _form(key: Key, value: toml.Value) -> str:
    return "" if value == "" or re.fullmatch(key.form, str(value)) else _expected(key, value)


def _names(key: Key, value: toml.Value) -> str:
    names = split_names(str(value))
    good = names and len(set(names)) == len(names) and set(names) <= set(key.choices)
    return "" if good else _expected(key, value) + " (each at most once, at least one)"


def _pins(key: Key, value: toml.Value) -> str:
    for pin in split_names(str(value)):
        if not _PIN.match(pin):
            return _expected(key, pin)
    return ""


def _proxy(key: Key, value: toml.Value) -> str:
    return "" if not value or _PROXY.match(str(value)) else "expected %s, found something else" % describe(key)


def _channels(key: Key, value: toml.Value) -> str:
    return _listed(key, value, r"[A-Za-z0-9][A-Za-z0-9_/-]{0,%d}" % (MAX_CHANNEL - 1))


def _version(key: Key, value: toml.Value) -> str:
    from . import semver  # its pattern costs every start, and few set this

    return "" if not value or semver.is_version(str(value)) else _expected(key, value)


def _urls(key: Key, value: toml.Value) -> str:
    """The values are not shown: an address that is refused may be one with a password in it."""
    port = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
    host = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::(?:%s))?" % port
    wrong = _listed(key, value, r"(?=.{1,%d}\Z)https?://%s(?:/[A-Za-z0-9._~%%+=:@-]+)*/?" % (MAX_URL, host))
    return "expected %s, found something else" % describe(key) if wrong else ""


def _user(key: Key, value: toml.Value) -> str:
    return "" if _USER.match(str(value)) and value != "root" else _expected(key, value) + " (not root)"


def _listed(key: Key, value: toml.Value, pattern: str) -> str:
    """A list whose parts are distinct, as many as they may be, and each of one form."""
    parts = split_names(str(value))
    good = key.low <= len(parts) <= key.high and len(set(parts)) == len(parts)
    if good and all(re.fullmatch(pattern, part) for part in parts):
        return ""
    return _expected(key, value) + " (each at most once)"


_CHECKS: Dict[Kind, Callable[[Key, toml.Value], str]] = {
    Kind.PATH: _path,
    Kind.INTEGER: _integer,
    Kind.FLAG: _flag,
    Kind.CHOICE: _choice,
    Kind.FORM: _form,
    Kind.NAMES: _names,
    Kind.PINS: _pins,
    Kind.PROXY: _proxy,
    Kind.CHANNELS: _channels,
    Kind.VERSION: _version,
    Kind.URLS: _urls,
    Kind.USER: _user,
}


def render_table(keys: Sequence[Key]) -> str:
    """The tables of the documentation, as Markdown."""
    lines: List[str] = []
    for section in dict.fromkeys(key.section for key in keys):
        lines += ["", "### %s" % ("Section `[%s]`" % section if section else "Top level"), ""]
        lines += ["| key | default | value | meaning |", "| --- | --- | --- | --- |"]
        for key in keys:
            if key.section == section:
                default = "`%s`" % show(key.default) if key.default not in (None, ()) else "none"
                lines.append("| `%s` | %s | %s | %s |" % (key.name, default, describe(key), key.meaning))
    return "\n".join(lines[1:]) + "\n"
