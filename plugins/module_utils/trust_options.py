# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the options and result keys of ``trust`` and ``trust_info``, for their documentation and actions."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import NODE_OPTIONS

TRUST_OPTIONS: Dict[str, Dict[str, Any]] = dict(
    NODE_OPTIONS, documents={"type": "list", "elements": "path", "required": True}
)
INFO_OPTIONS: Dict[str, Dict[str, Any]] = dict(NODE_OPTIONS, key_set={"type": "path"})

RESULT_KEYS = ("trust", "withdrawals", "permits", "floor")
