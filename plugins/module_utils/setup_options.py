# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the options of ``agent_setup``, for the module on the host and its action on the controller."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import NODE_OPTIONS
from ansible_collections.slotward.fleet.plugins.module_utils.upgrade_options import TARGET_OPTIONS

SETUP_OPTIONS: Dict[str, Dict[str, Any]] = dict(
    NODE_OPTIONS,
    target={"type": "dict", "required": True, "options": TARGET_OPTIONS},
    delivery={"type": "str", "default": "push", "choices": ["push", "download"]},
    src={"type": "path"},
    adopt={"type": "bool", "default": False},
    verify={"type": "bool", "default": True},
    allow_http={"type": "bool", "default": False},
    ca_file={"type": "path"},
    proxy={"type": "str", "no_log": True},
    fix_directories={"type": "bool", "default": False},
    planned_config={"type": "str", "no_log": False},
)

BRING = "bring_program"
"""What the module answers to its action alone: the host has no program to set itself up with after all."""
