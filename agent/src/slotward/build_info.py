# SPDX-License-Identifier: GPL-3.0-or-later
"""What this program is: its names; version and release sequence, embedded by the build, none in a source tree."""

from __future__ import annotations

import os
import sys

NAME = "slotward"
UNIT = "slotward.service"
HELPER_UNIT = "slotward-helper.service"
UNIT_DIR = "/etc/systemd/system"
CONFIG = "/etc/slotward/config.toml"

try:
    from slotward import _build  # type: ignore[attr-defined, unused-ignore]  # made by agent/build.py
except ImportError:
    VERSION, SEQUENCE = "0.0.0-dev", 0
else:
    VERSION, SEQUENCE = _build.VERSION, _build.SEQUENCE


def program_path() -> str:
    """The real path of the program that runs, through any link it was started by."""
    return os.path.realpath(sys.argv[0])


def running_digest() -> str:
    """SHA-256 of the bytes that run, read from the open descriptor that imports come from; "" in a source tree.

    The path may name other bytes by now (DESIGN 9); the descriptor cannot.
    """
    import hashlib

    place = sys.path[0]
    if not place.startswith("/proc/self/fd/"):
        return ""
    digest = hashlib.sha256()
    with open(place, "rb") as file:
        while True:
            block = file.read(256 * 1024)
            if not block:
                return digest.hexdigest()
            digest.update(block)
