# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the library keeps its things, and the numbers that it waits for.

The environment is read at each call, so that a test can point the library elsewhere.
"""

from __future__ import annotations

import os
import pathlib

SUITES = ("bullseye", "bookworm", "trixie")
DEFAULT_RUN = "default"
BOOT_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 90.0
COMMAND_TIMEOUT_S = 120.0
BUILD_TIMEOUT_S = 1800.0
LOCK_TIMEOUT_S = 120.0


def cache_dir() -> pathlib.Path:
    """The directory of the base trees."""
    return pathlib.Path(os.environ.get("SLOTWARD_HOSTS_CACHE", "/var/cache/slotward-hosts"))


def state_dir() -> pathlib.Path:
    """The directory of the runs: records, keys, and the trees of the hosts."""
    return pathlib.Path(os.environ.get("SLOTWARD_HOSTS_STATE", "/var/lib/slotward-hosts"))


def network() -> str:
    """The first two octets of the hosts' private addresses."""
    return os.environ.get("SLOTWARD_HOSTS_NETWORK", "10.213")
