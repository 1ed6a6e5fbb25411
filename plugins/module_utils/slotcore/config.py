# SPDX-License-Identifier: GPL-3.0-or-later
"""Every key of the configuration in one table, and how a file becomes a ``Config``.

Rules:

* ``load`` never raises for what a file says: it answers a ``Config`` that the daemon can run with, and the problems.
  Whoever updates refuses while there is a problem; whoever runs goes on (I8).
* ``check`` raises for any problem: for ``config check``, doctor, prepare and the role.
* A key with a problem counts as not set. A file that is not there is all defaults and no problem.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

from . import codes, config_keys, toml

PATH = "/etc/slotward/config.toml"
UPDATE = "update"
MAX_THRESHOLD = 16
MAX_SEQUENCE = 999_999_999_999_999
MAX_SOCKET_PATH = 107
SOURCES = ("controller", "gateway", "probe")
LEVELS = ("debug", "info", "warning", "error")

Key = config_keys.Key
Kind = config_keys.Kind


class Config(NamedTuple):
    """The configuration of one host's agent; the fields are the keys of ``KEYS``, in their order."""

    data_dir: str
    socket_path: str
    log_level: str
    release_pins: Tuple[str, ...]
    release_threshold: int
    release_sequence: int
    slots_dir: str
    entrypoint: str
    trial_length_s: int
    settle_s: int
    max_boots: int
    confirm_sources: Tuple[str, ...]
    smoke_test: bool
    adopt: bool
    allow_http: bool
    ca_file: Optional[str]
    proxy: Optional[str]
    enabled: bool
    allowed_channels: Tuple[str, ...]
    min_version: Optional[str]
    rollback_grace: int
    same_major: bool
    strict_sequence: bool
    mirrors: Tuple[str, ...]


KEYS: Tuple[Key, ...] = (
    Key(toml.TOP, "data_dir", Kind.PATH, "/var/lib/slotward", "what the daemon keeps; downloads go to `staging` in it"),
    Key(
        toml.TOP,
        "socket_path",
        Kind.PATH,
        "/run/slotward/status.sock",
        "the status socket, at most 107 characters",
        high=MAX_SOCKET_PATH,
    ),
    Key(toml.TOP, "log_level", Kind.CHOICE, "info", "the least important messages that are logged", choices=LEVELS),
    Key(UPDATE, "release_pins", Kind.PINS, (), "the release keys; without any, every update is refused"),
    Key(
        UPDATE,
        "release_threshold",
        Kind.INTEGER,
        1,
        "distinct pinned keys that must have signed, at most the number of distinct pins",
        1,
        MAX_THRESHOLD,
    ),
    Key(UPDATE, "release_sequence", Kind.INTEGER, 0, "a floor this host starts from", 0, MAX_SEQUENCE),
    Key(
        UPDATE,
        "slots_dir",
        Kind.PATH,
        "/opt/slotward/slotward",
        "the slots and their records; not inside `data_dir`, nor around it",
    ),
    Key(
        UPDATE,
        "entrypoint",
        Kind.PATH,
        "/usr/local/bin/slotward",
        "what systemd starts; not inside `data_dir` or `slots_dir`",
    ),
    Key(UPDATE, "trial_length_s", Kind.INTEGER, 120, "seconds that a new release has to be confirmed", 5, 3600),
    Key(
        UPDATE,
        "settle_s",
        Kind.INTEGER,
        10,
        "seconds that the new main process must have been up, with one PID, before a confirmation counts; "
        "less than `trial_length_s`",
        0,
        600,
    ),
    Key(UPDATE, "max_boots", Kind.INTEGER, 3, "reboots that a trial survives", 0, 9),
    Key(UPDATE, "confirm_sources", Kind.NAMES, ("controller",), "who must confirm; all must agree", choices=SOURCES),
    Key(UPDATE, "smoke_test", Kind.FLAG, True, "run `<file> version` before the switch"),
    Key(UPDATE, "adopt", Kind.FLAG, False, "consent to adopt a plain file found at the entrypoint"),
    Key(UPDATE, "allow_http", Kind.FLAG, False, "take `http://` downloads; for tests only"),
    Key(
        UPDATE,
        "ca_file",
        Kind.PATH,
        None,
        "PEM file of the authorities to believe for downloads, instead of the system's",
    ),
    Key(UPDATE, "proxy", Kind.PROXY, None, "proxy for downloads; the environment's are never used"),
    Key(
        UPDATE,
        "enabled",
        Kind.FLAG,
        True,
        "take updates at all; false is a hold, and a trial that is pending still ends",
    ),
    Key(UPDATE, "allowed_channels", Kind.CHANNELS, ("stable",), "the channels whose releases this host takes", 1, 8),
    Key(UPDATE, "min_version", Kind.VERSION, None, "the oldest version that this host takes"),
    Key(UPDATE, "rollback_grace", Kind.INTEGER, 1, "minor versions below the running one that may be taken", 0, 100),
    Key(UPDATE, "same_major", Kind.FLAG, False, "take only releases of the running major version"),
    Key(UPDATE, "strict_sequence", Kind.FLAG, False, "take only releases whose sequence is above the floor"),
    Key(
        UPDATE,
        "mirrors",
        Kind.URLS,
        (),
        "where the files of a release are looked for first, in order: `<base>/<product>/<version>/<file>`",
        0,
        8,
    ),
)
_BY_NAME: Dict[Tuple[str, str], Key] = {(key.section, key.name): key for key in KEYS}
_SECTIONS = tuple(dict.fromkeys(key.section for key in KEYS))


class Problem(NamedTuple):
    """One reason to refuse updates, and the keys that it is about; none for what is no known key."""

    keys: Tuple[str, ...]
    text: str


def load(text: Union[str, bytes, None], name: str) -> Tuple[Config, Tuple[str, ...]]:
    """The configuration to run with, and every reason to refuse updates; no file is ``None``."""
    config, problems = judge(toml.scan(b"" if text is None else text, name))
    return config, tuple(problem.text for problem in problems)


def judge(scanned: Tuple[toml.Document, Tuple[str, ...]]) -> Tuple[Config, Tuple[Problem, ...]]:
    """As ``load``, for a file that was scanned, and which keys each problem is about."""
    document, found = scanned
    lines = document.text.split("\n")
    values: Dict[str, config_keys.Setting] = {key.name: key.default for key in KEYS}
    problems = [Problem((), text) for text in found]
    bad: Set[str] = set()
    for section in document.sections:
        if section.name not in _SECTIONS:
            known = " or ".join("[%s]" % one for one in _SECTIONS if one)
            text = "[%s]: unknown section, expected %s" % (section.name, known)
            problems.append(Problem((), "%s:%s: %s" % (document.name, _place(lines, section.line), text)))
            continue
        for entry in section.entries:
            key = _BY_NAME.get((section.name, entry.key))
            what = config_keys.problem(key, entry.value) if key else _unknown(section.name, entry.key)
            if key is None or what:
                place = _place(lines, entry.line, entry.start if key else -1)
                text = "%s:%s: %s: %s" % (document.name, place, toml.label(section.name, entry.key), what)
                problems.append(Problem((entry.key,) if key else (), text))
                bad.add(entry.key)
            else:
                values[key.name] = config_keys.setting(key, entry.value)
    config = Config._make(values[field] for field in Config._fields)
    for keys, text in _disagreements(config):
        if not keys & bad:
            problems.append(Problem(tuple(sorted(keys)), "%s: %s" % (document.name, text)))
    return config, tuple(problems)


def check(text: Union[str, bytes, None], name: str) -> Config:
    """The configuration, or ``BadConfig`` with every problem."""
    config, problems = load(text, name)
    if problems:
        raise codes.BadConfig(problems)
    return config


def unreadable(name: str, why: str) -> Tuple[Config, Tuple[str, ...]]:
    """What ``load`` answers for a file that is there and cannot be read."""
    return load(None, name)[0], ("%s: cannot read it: %s" % (name, why),)


def render_documentation() -> str:
    """The tables of ``docs/design/configuration.md``."""
    return config_keys.render_table(KEYS)


def _place(lines: List[str], line: int, start: int = -1) -> str:
    """Line and column (from 1) of a value, or of what a line begins with."""
    text = lines[line - 1]
    return "%d:%d" % (line, (start if start >= 0 else len(text) - len(text.lstrip(" \t"))) + 1)


def _unknown(section: str, name: str) -> str:
    for key in KEYS:
        if key.name == name:
            place = "into [%s]" % key.section if key.section else "above the first section"
            return "unknown key here, it belongs %s" % place
    return "unknown key, expected one of %s" % ", ".join(key.name for key in KEYS if key.section == section)


def _inside(path: str, directory: str) -> bool:
    return (path + "/").startswith(directory + "/")


def _disagreements(config: Config) -> Iterator[Tuple[Set[str], str]]:
    """Values that are good alone and not together, and the keys they belong to."""
    pins = len(set(config.release_pins))
    if config.release_threshold > max(pins, 1):
        yield (
            {"release_pins", "release_threshold"},
            "[update] release_threshold is %d and there are %d distinct pins, so no release could pass"
            % (config.release_threshold, pins),
        )
    if config.settle_s >= config.trial_length_s:
        yield (
            {"settle_s", "trial_length_s"},
            "[update] settle_s is %d and trial_length_s is %d, so no trial could pass: set a shorter settle_s"
            % (config.settle_s, config.trial_length_s),
        )
    if not config.allow_http and any(base.startswith("http:") for base in config.mirrors):
        yield {"mirrors", "allow_http"}, "[update] mirrors has an http:// address: make it https:// or set allow_http"
    paths = (
        ("slots_dir", config.slots_dir, "data_dir", config.data_dir),
        ("entrypoint", config.entrypoint, "data_dir", config.data_dir),
        ("data_dir", config.data_dir, "slots_dir", config.slots_dir),
        ("entrypoint", config.entrypoint, "slots_dir", config.slots_dir),
    )
    for inner, path, outer, directory in paths:
        if _inside(path, directory):
            yield {inner, outer}, "%s (%s) lies inside %s (%s): keep them apart" % (inner, path, outer, directory)
