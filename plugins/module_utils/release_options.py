# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the options and result keys of ``release_info`` and ``catalogue_info``, for documentation and actions."""

from __future__ import annotations

from typing import Any, Dict

INFO_OPTIONS: Dict[str, Dict[str, Any]] = {
    "release": {"type": "str", "required": True},
    "pins": {"type": "list", "elements": "str"},
    "threshold": {"type": "int", "default": 1},
    "sha256": {"type": "dict"},
    "product": {"type": "str"},
    "version": {"type": "str"},
    "url": {"type": "str"},
    "allow_http": {"type": "bool", "default": False},
    "ca_file": {"type": "path"},
}

INFO_KEYS = (
    "product",
    "version",
    "sequence",
    "channel",
    "min_from",
    "issued_at",
    "expires_at",
    "expired",
    "release_keys",
    "signers",
    "verified",
    "artifacts",
    "target",
    "stones",
)

CATALOGUE_OPTIONS: Dict[str, Dict[str, Any]] = {
    "base": {"type": "str", "required": True},
    "product": {"type": "str", "default": "slotward"},
    "pins": {"type": "list", "elements": "str", "required": True},
    "threshold": {"type": "int", "default": 1},
    "limit": {"type": "int", "default": 50},
    "allow_http": {"type": "bool", "default": False},
    "ca_file": {"type": "path"},
}

CATALOGUE_KEYS = ("claimed", "catalogue_error", "releases", "newest", "left_out")
