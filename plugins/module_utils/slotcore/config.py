# SPDX-License-Identifier: GPL-3.0-or-later
"""How a file becomes a ``Config``; the keys are the rows of ``config_table``.

Rules:

* ``load`` never raises for what a file says: it answers a ``Config`` that the daemon can run with, and the problems.
  Whoever updates refuses while there is a problem; whoever runs goes on (I8).
* ``check`` raises for any problem: for ``config check``, doctor, prepare and the role.
* A key with a problem counts as not set. A file that is not there is all defaults and no problem.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Set, Tuple, Union

from . import codes, config_keys, config_scan, config_table, toml

PATH = "/etc/slotward/config.toml"
KEYS = config_table.KEYS
MAX_SEQUENCE = config_table.MAX_SEQUENCE
UPDATE = config_table.UPDATE

Config = config_table.Config
Key = config_keys.Key

_FIELD: Dict[Tuple[str, str], str] = {(key.section, key.name): field for key, field in zip(KEYS, config_table.FIELDS)}


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
    document = scanned[0]
    values: Dict[str, config_keys.Setting] = {field: key.default for key, field in zip(KEYS, config_table.FIELDS)}
    found, wrong = config_scan.take(scanned, KEYS)
    values.update({field_of(one.key): one.value for one in found})
    problems = [Problem((field_of(one.key),) if one.key else (), one.text) for one in wrong]
    bad = {field_of(one.key) if one.key else one.name for one in wrong}
    modes = [section.name for section in document.sections if section.name in config_table.MODES]
    if len(modes) > 1:
        text = "[helper] and [start] are both there, and a host has one mode: remove one of them"
        problems.append(Problem((), "%s: %s" % (document.name, text)))
    values["mode"] = min(modes, default=config_table.ROOT)  # of two the one that is watched
    config = Config._make(values[field] for field in Config._fields)
    for keys, text in _disagreements(config):
        if not keys & bad:
            problems.append(Problem(tuple(sorted(keys)), "%s: %s" % (document.name, text)))
    return config, tuple(problems)


def field_of(key: Key) -> str:
    """The field of ``Config`` that a row sets; a problem is about fields."""
    return _FIELD[(key.section, key.name)]


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
    paths: Tuple[Tuple[str, str, str, str], ...] = (
        ("slots_dir", config.slots_dir, "data_dir", config.data_dir),
        ("entrypoint", config.entrypoint, "data_dir", config.data_dir),
        ("data_dir", config.data_dir, "slots_dir", config.slots_dir),
        ("entrypoint", config.entrypoint, "slots_dir", config.slots_dir),
    )
    if config.mode == config_table.HELPER:
        paths += (
            ("helper_socket", config.helper_socket, "data_dir", config.data_dir),
            ("helper_socket", config.helper_socket, "the daemon's runtime directory", config_table.RUNTIME_DIR),
        )
    for inner, path, outer, directory in paths:
        if _inside(path, directory):
            key = "[helper] socket" if inner == "helper_socket" else inner
            yield {inner, outer}, "%s (%s) lies inside %s (%s): keep them apart" % (key, path, outer, directory)
