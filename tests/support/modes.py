# SPDX-License-Identifier: GPL-3.0-or-later
"""The three ways to hold privilege, as the tests on real hosts need them: what configures each, and what each leaves on a host.

`SLOTWARD_MODES` says in which of them tests run that are marked `every_mode` ("root helper start"; root alone when it is not set).
Tests marked `quick_modes` run in all three whatever it says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

ROOT, HELPER, START = "root", "helper", "start"
MODES = (ROOT, HELPER, START)
ACCOUNT = "slotward"
HELPER_UNIT = "slotward-helper.service"
APPLY_UNIT = "slotward-apply.service"
SOCKET = "/run/slotward-helper/helper.sock"
PATHS = ("slotward-confirm.path", "slotward-giveup.path")


class Mode(NamedTuple):
    """What is different on a host in one mode."""

    name: str
    section: str
    """What the configuration has besides [update]."""
    settings: Mapping[str, object]
    """Keys of [update] that the daemon's own way needs."""
    names: frozenset[str]
    """Names in the slots directory beside those of every mode."""
    units: frozenset[str]
    """Units that are active at rest beside the daemon's."""


_ASKED: Mapping[str, object] = {"confirm_sources": "gateway", "allow_http": True}

ALL = {
    ROOT: Mode(ROOT, "", {}, frozenset(), frozenset()),
    HELPER: Mode(HELPER, "[helper]\n", _ASKED, frozenset({"helper", "staging"}), frozenset({HELPER_UNIT})),
    START: Mode(START, "[start]\n", _ASKED, frozenset({"staging", "asked.json"}), frozenset(PATHS)),
}


def chosen() -> tuple[str, ...]:
    """The modes that this run is asked for, in their order."""
    asked = os.environ.get("SLOTWARD_MODES", ROOT).replace(",", " ").split()
    unknown = sorted(set(asked) - set(MODES))
    if unknown or not asked:
        raise ValueError(f"SLOTWARD_MODES names {', '.join(unknown) or 'no mode'}; the modes are {', '.join(MODES)}")
    return tuple(mode for mode in MODES if mode in asked)
