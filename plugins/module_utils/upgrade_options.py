# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the options of ``upgrade``, for its documentation and its action."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import NODE_OPTIONS

# What ``release_info`` returns as ``target``.
TARGET_OPTIONS: Dict[str, Dict[str, Any]] = {
    "product": {"type": "str", "required": True},
    "version": {"type": "str", "required": True},
    "sequence": {"type": "int"},
    "manifest": {"type": "str", "required": True},
    "artifacts": {"type": "dict", "required": True},
    "directory": {"type": "str"},
    "min_from": {"type": "str"},
}

UPGRADE_OPTIONS: Dict[str, Dict[str, Any]] = dict(
    NODE_OPTIONS,
    release={"type": "str"},
    target={"type": "dict", "options": TARGET_OPTIONS},
    pins={"type": "list", "elements": "str"},
    threshold={"type": "int", "default": 1},
    sha256={"type": "dict"},
    version={"type": "str"},
    channel={"type": "str"},
    variant={"type": "str"},
    url={"type": "str"},
    push={"type": "bool", "default": False},
    src={"type": "path"},
    stage_only={"type": "bool", "default": False},
    apply={"type": "bool"},
    force={"type": "bool", "default": False},
    accept_one_way={"type": "bool", "default": False},
    adopt={"type": "bool", "default": False},
    start={"type": "bool", "default": False},
    smoke={"type": "bool", "default": True},
    confirm={"type": "bool", "default": True},
    reconnect_s={"type": "int"},
    id={"type": "str"},
    permit={"type": "path"},
    stones={"type": "list", "elements": "dict", "default": [], "options": TARGET_OPTIONS},
)
EXCLUSIVE = [
    ["release", "target"],
    ["push", "src"],
    ["sha256", "pins"],
    ["sha256", "target"],
]
ONE_OF = [["release", "target", "version", "apply"]]
REQUIRED_IF = [
    ["push", True, ["release", "target"], True],
    ["apply", False, ["release", "target", "version"], True],
]

# ``rollback`` with ``to`` is an ordinary trial too.
ROLLBACK_OPTIONS: Dict[str, Dict[str, Any]] = dict(
    NODE_OPTIONS,
    id={"type": "str"},
    why={"type": "str"},
    to={"type": "str"},
    start={"type": "bool", "default": False},
    accept_one_way={"type": "bool", "default": False},
    confirm={"type": "bool", "default": True},
    reconnect_s={"type": "int"},
)
