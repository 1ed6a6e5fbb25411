# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of the sections that a product's file may repeat: probes, hooks, parts, windows, freezes (products.md).

Rules:

* ``probe-*`` stands for ``[probe-http]``, ``[probe-disk]`` and so on; what follows the dash is the name.
"""

from __future__ import annotations

from typing import Tuple

from . import config_keys
from . import product_forms as forms

Key = config_keys.Key
Kind = config_keys.Kind

PROBE, HOOK, PART, WINDOW, FREEZE = "probe-*", "hook-*", "part-*", "window-*", "freeze-*"
REPEATED = (PROBE, HOOK, PART, WINDOW, FREEZE)
MAX_REPEATED = 32
NAME = r"[a-z][a-z0-9-]{0,31}"
HOOKS = ("snapshot", "restore", "veto", "drain")
PROBES = ("command", "http", "tcp", "unit", "file", "journal")

KEYS: Tuple[Key, ...] = (
    Key(PROBE, "kind", Kind.CHOICE, None, "required: what is looked at", choices=PROBES),
    Key(
        PROBE,
        "need",
        Kind.CHOICE,
        "required",
        "a `wanted` one is told and decides nothing",
        choices=("required", "wanted"),
    ),
    forms.integer(PROBE, "timeout_s", 5, "seconds that it may take", 1, 120),
    forms.command(PROBE, "command", "kind `command`: what must end with 0"),
    forms.user(PROBE, "kind `command`: who runs it; the product's `user` when not set"),
    forms.form(
        PROBE,
        "url",
        None,
        "kind `http`: the address",
        r"https?://%s(?:/[!-~]*)?" % forms.HOST,
        "an http:// or https:// address without credentials",
    ),
    forms.form(
        PROBE,
        "status",
        "200",
        "kind `http`: the status that it must have",
        forms.listed(forms.STATUS),
        "a comma-separated list of statuses and ranges, as 200-299",
    ),
    forms.text(PROBE, "body", None, "kind `http`: a text that the answer must have"),
    Key(PROBE, "ca_file", Kind.PATH, None, "kind `http`: PEM file of the authorities to believe"),
    forms.form(PROBE, "address", None, "kind `tcp`: where a connection must be accepted", forms.HOST, "host:port"),
    forms.form(
        PROBE, "unit", None, "kinds `unit` and `journal`: the product's own when not set", forms.UNIT, "a service unit"
    ),
    forms.integer(
        PROBE, "for_s", 0, "kind `unit`: seconds that it must have been active with one main process", 0, 3500
    ),
    Key(PROBE, "path", Kind.PATH, None, "kind `file`: the file"),
    forms.integer(PROBE, "fresh_s", 60, "kind `file`: changed within so many seconds", 1, 86400),
    forms.form(
        PROBE,
        "pattern",
        None,
        "kind `journal`: what no line since the trial began may match",
        r"[^\x00-\x1f\x7f]{1,256}",
        "a pattern of at most 256 characters",
    ),
    forms.command(HOOK, "command", "required: what is run"),
    forms.integer(HOOK, "timeout_s", 60, "seconds that it may take", 1, 3600),
    forms.form(HOOK, "user", "root", "who runs it", "[a-z_][a-z0-9_-]{0,30}", "an account's name"),
    Key(
        HOOK,
        "when",
        Kind.CHOICE,
        "epoch",
        "`snapshot` only: where the epoch changes, or for every trial",
        choices=("epoch", "always"),
    ),
    forms.form(
        PART,
        "from",
        None,
        "required: its path in the tree",
        r"[A-Za-z0-9][A-Za-z0-9_+=:@,.-]*(?:/[A-Za-z0-9_+=:@,-][A-Za-z0-9_+=:@,.-]*){0,31}",
        "a path below the tree",
    ),
    Key(PART, "path", Kind.PATH, None, "required: the place on the host that links to it"),
    Key(PART, "kind", Kind.CHOICE, "file", "`unit`: systemd must read its files anew", choices=("file", "unit")),
    forms.form(
        WINDOW,
        "days",
        "mon-sun",
        "the days on which it opens",
        forms.listed(forms.DAYS, 7),
        "days and ranges, as mon-fri,sun",
    ),
    forms.form(WINDOW, "from", None, "required: when it opens", "(?:[01][0-9]|2[0-3]):[0-5][0-9]", forms.TIME_WORDS),
    forms.form(
        WINDOW,
        "to",
        None,
        "required: when it closes; before `from` it is on the next day",
        "(?:[01][0-9]|2[0-3]):[0-5][0-9]|24:00",
        forms.TIME_WORDS,
    ),
    forms.zone(WINDOW),
    forms.form(FREEZE, "from", None, "required: its first day", forms.DATE, "a date, as 2026-12-20"),
    forms.form(FREEZE, "to", None, "required: its last day", forms.DATE, "a date, as 2027-01-03"),
    forms.zone(FREEZE),
    forms.text(FREEZE, "why", "", "what who asks is told"),
)
