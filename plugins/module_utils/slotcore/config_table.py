# SPDX-License-Identifier: GPL-3.0-or-later
"""The one table of the configuration's keys, and what a configuration is.

Rules:

* A row of ``KEYS`` is a field of ``Config``, in the same order; documentation, checks and explanations are made from it.
* The mode is no key: it is which of the sections ``[helper]`` and ``[start]`` the file has (privilege.md).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from . import config_keys, toml

UPDATE = "update"
HELPER = "helper"
START = "start"
ROOT = "root"
"""The mode of a configuration with neither section; the others are named as their sections."""
MODES = (HELPER, START)
DEFAULT_USER = "slotward"
RUNTIME_DIR = "/run/slotward"
"""Of the account that the daemon runs as."""
SLOTS_HOME = "/opt/slotward"
"""Below it each product has its slots, where its file names no other place."""
HELPER_SOCKET = "/run/slotward-helper/helper.sock"
MAX_THRESHOLD = 16
MAX_SEQUENCE = 999_999_999_999_999
MAX_SOCKET_PATH = 107
SOURCES = ("controller", "gateway", "probe")
LEVELS = ("debug", "info", "warning", "error")

Key = config_keys.Key
Kind = config_keys.Kind


class Config(NamedTuple):
    """The configuration of one host's agent; the fields are the keys of ``KEYS``, in their order, and the mode."""

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
    helper_socket: str = HELPER_SOCKET
    helper_user: str = DEFAULT_USER
    start_user: str = DEFAULT_USER
    mode: str = ROOT

    @property
    def user(self) -> str:
        """The account that the daemon runs as; root's in root mode."""
        return {HELPER: self.helper_user, START: self.start_user}.get(self.mode, "root")


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
        SLOTS_HOME + "/slotward",
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
    Key(
        HELPER,
        "socket",
        Kind.PATH,
        HELPER_SOCKET,
        "where the helper is asked, at most 107 characters; the section, even an empty one, chooses helper mode",
        high=MAX_SOCKET_PATH,
    ),
    Key(HELPER, "user", Kind.USER, DEFAULT_USER, "the account that the daemon runs as, beside a helper of root's"),
    Key(
        START,
        "user",
        Kind.USER,
        DEFAULT_USER,
        "the account that the daemon runs as; the section, even an empty one, chooses start mode",
    ),
)
FIELDS = tuple(key.name if key.section in ("", UPDATE) else "%s_%s" % (key.section, key.name) for key in KEYS)
"""The field of ``Config`` for each row."""
