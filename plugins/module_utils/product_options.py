# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: the options of ``product``, by the sections of a product's file.

Rules:

* An option is a key of the table ``slotcore.product_table``; a test compares them. None has a default here: the agent's counts.
* A section that may be repeated is a list of dictionaries with a ``name``.
"""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import NODE_OPTIONS

Options = Dict[str, Dict[str, Any]]

TEXT: Dict[str, Any] = {"type": "str"}
NUMBER: Dict[str, Any] = {"type": "int"}
FLAG: Dict[str, Any] = {"type": "bool"}
WORDS: Dict[str, Any] = {"type": "list", "elements": "str"}
NEEDED: Dict[str, Any] = {"type": "str", "required": True}

TOP: Options = {
    "unit": TEXT,
    "entrypoint": TEXT,
    "slots_dir": TEXT,
    "layout": {"type": "str", "choices": ["ab", "versions"]},
    "program": TEXT,
    "keep": NUMBER,
    "platform": TEXT,
    "variant": TEXT,
    "user": TEXT,
}
SECTIONS: Dict[str, Options] = {
    "update": {
        "release_pins": WORDS,
        "release_threshold": NUMBER,
        "release_sequence": NUMBER,
        "trial_length_s": NUMBER,
        "settle_s": NUMBER,
        "max_boots": NUMBER,
        "confirm_sources": WORDS,
        "smoke_test": FLAG,
        "adopt": FLAG,
        "allow_http": FLAG,
        "ca_file": TEXT,
        "proxy": {"type": "str", "no_log": True},  # it may hold a password
        "enabled": FLAG,
        "allowed_channels": WORDS,
        "min_version": TEXT,
        "rollback_grace": NUMBER,
        "same_major": FLAG,
        "strict_sequence": FLAG,
        "mirrors": WORDS,
        "trust": {"type": "str", "choices": ["pins", "digest"]},
        "floor": {"type": "str", "choices": ["current", "previous"]},
        "manual": FLAG,
        "max_starts": NUMBER,
        "health_window_s": NUMBER,
    },
    "source": {"url": TEXT, "hosts": WORDS, "redirect_hosts": WORDS},
    "smoke": {"arguments": TEXT, "expect": TEXT, "config_arguments": TEXT},
    "restart": {"method": {"type": "str", "choices": ["restart", "reload"]}, "drain_s": NUMBER},
    "confirm": {"interval_s": NUMBER, "passes": {"type": "int", "no_log": False}, "failures": NUMBER},
}
REPEATED: Dict[str, Options] = {
    "probes": {
        "name": NEEDED,
        "kind": {"type": "str", "required": True, "choices": ["command", "http", "tcp", "unit", "file", "journal"]},
        "need": {"type": "str", "choices": ["required", "wanted"]},
        "timeout_s": NUMBER,
        "command": TEXT,
        "user": TEXT,
        "url": TEXT,
        "status": WORDS,
        "body": TEXT,
        "ca_file": TEXT,
        "address": TEXT,
        "unit": TEXT,
        "for_s": NUMBER,
        "path": TEXT,
        "fresh_s": NUMBER,
        "pattern": TEXT,
    },
    "hooks": {
        "name": {"type": "str", "required": True, "choices": ["snapshot", "restore", "veto", "drain"]},
        "command": NEEDED,
        "timeout_s": NUMBER,
        "user": TEXT,
        "when": {"type": "str", "choices": ["epoch", "always"]},
    },
    "parts": {
        "name": NEEDED,
        "from": NEEDED,
        "path": NEEDED,
        "kind": {"type": "str", "choices": ["file", "unit"]},
    },
    "windows": {"name": NEEDED, "days": WORDS, "from": NEEDED, "to": NEEDED, "zone": NEEDED},
    "freezes": {"name": NEEDED, "from": NEEDED, "to": NEEDED, "zone": NEEDED, "why": TEXT},
}
SINGULAR = {"probes": "probe", "hooks": "hook", "parts": "part", "windows": "window", "freezes": "freeze"}
"""What a repeated section's name begins with in the file."""

PRODUCT_OPTIONS: Options = dict(
    NODE_OPTIONS,
    product=NEEDED,
    state={"type": "str", "default": "present", "choices": ["present", "absent"]},
    adopt={"type": "bool", "default": False},
    divert={"type": "bool", "default": False},
    version=TEXT,
    src={"type": "path"},
    manifest={"type": "path"},
    purge={"type": "bool", "default": False},
    **TOP,
    **{name: {"type": "dict", "options": options} for name, options in SECTIONS.items()},
    **{name: {"type": "list", "elements": "dict", "options": options} for name, options in REPEATED.items()},
)
REQUIRED_IF = [["state", "present", ["unit", "entrypoint"]]]
