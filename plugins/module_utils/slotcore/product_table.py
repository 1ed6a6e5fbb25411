# SPDX-License-Identifier: GPL-3.0-or-later
"""The one table of the keys of a product's file (products.md, section 1).

Rules:

* A section whose name ends in ``-*`` may be repeated (``product_sections``).
* What ``[update]`` shares with the agent's own configuration is the same row, with the same rule and default.
"""

from __future__ import annotations

from typing import Tuple

from . import config_keys, config_table, product_sections, toml
from . import product as products
from . import product_forms as forms

Key = config_keys.Key
Kind = config_keys.Kind

SHARED = (
    "release_pins",
    "release_threshold",
    "release_sequence",
    "trial_length_s",
    "settle_s",
    "max_boots",
    "confirm_sources",
    "smoke_test",
    "adopt",
    "allow_http",
    "ca_file",
    "proxy",
    "enabled",
    "allowed_channels",
    "min_version",
    "rollback_grace",
    "same_major",
    "strict_sequence",
    "mirrors",
)
UPDATE, SOURCE, SMOKE, RESTART, CONFIRM = config_table.UPDATE, "source", "smoke", "restart", "confirm"

_SHARED_KEYS = tuple(key for key in config_table.KEYS if key.section == UPDATE and key.name in SHARED)

KEYS: Tuple[Key, ...] = (
    forms.form(toml.TOP, "unit", None, "required: the service unit", forms.UNIT, "a service unit, as x.service"),
    Key(toml.TOP, "entrypoint", Kind.PATH, None, "required: the path that the unit's `ExecStart=` names"),
    Key(
        toml.TOP,
        "slots_dir",
        Kind.PATH,
        None,
        "the slots and their records; in the common directory, by the product's name, when not set",
    ),
    Key(
        toml.TOP,
        "layout",
        Kind.CHOICE,
        products.AB,
        "`ab`: a slot is one file; `versions`: a slot is a tree, `versions/<v>/`",
        choices=(products.AB, products.VERSIONS),
    ),
    forms.form(
        toml.TOP,
        "program",
        None,
        "with trees: the program's name at the top of one; the product's name when not set",
        r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}",
        "a plain file name",
    ),
    forms.integer(toml.TOP, "keep", 3, "with trees: how many are kept besides the live ones", 0, 50),
    forms.form(
        toml.TOP,
        "platform",
        None,
        "which artifact of a release is this host's; its own platform when not set",
        "[a-z0-9]+-[a-z0-9_]+",
        "os-arch, as linux-amd64",
    ),
    forms.form(
        toml.TOP,
        "variant",
        None,
        "which variant of the artifact",
        r"[a-z0-9][a-z0-9._-]{0,31}",
        "1 to 32 small letters, digits, `.`, `_` and `-`",
    ),
    forms.user(toml.TOP, "who runs smoke tests and probes; the unit's own account when not set"),
    *_SHARED_KEYS,
    Key(
        UPDATE,
        "trust",
        Kind.CHOICE,
        products.PINS,
        "`pins`, or `digest`: the SHA-256 that an operator with root hands over is enough, and there is no floor",
        choices=(products.PINS, products.DIGEST),
    ),
    Key(
        UPDATE,
        "floor",
        Kind.CHOICE,
        products.CURRENT,
        "`current`, or `previous`: the floor rises to the release confirmed before, which keeps one step back open",
        choices=(products.CURRENT, products.PREVIOUS),
    ),
    Key(UPDATE, "manual", Kind.FLAG, False, "an upgrade stages and stops, and `apply` swaps"),
    forms.integer(UPDATE, "max_starts", 0, "starts that a trial may have; 0: no such limit", 0, 10),
    forms.integer(
        UPDATE,
        "health_window_s",
        0,
        "with probes: healthy for so long since the trial began; less than `trial_length_s`",
        0,
        3500,
    ),
    forms.form(
        SOURCE,
        "url",
        None,
        "the base of a release, with `{version}` in it: then a version is asked for, never an address",
        r"https?://%s(?:/(?:[A-Za-z0-9._~%%+=:@-]|\{version\})+)*/?" % forms.HOST,
        "an address with {version} in its path, without credentials, query or fragment",
    ),
    forms.form(
        SOURCE,
        "hosts",
        None,
        "the hosts that an address may name; the one in `url` when not set",
        forms.listed(forms.HOST),
        "a comma-separated list of hosts",
    ),
    forms.form(
        SOURCE,
        "redirect_hosts",
        None,
        "what else a redirect may lead to",
        forms.listed(r"(?:\*\.)?" + forms.HOST),
        "a comma-separated list of hosts and *.suffixes",
    ),
    forms.form(
        SMOKE,
        "arguments",
        "version",
        "words after the program, for the smoke test",
        forms.ARGUMENTS,
        "words with one blank between them",
    ),
    forms.text(SMOKE, "expect", "{version}", "what its output must have; `{version}` stands for the version"),
    forms.form(
        SMOKE,
        "config_arguments",
        None,
        "words with which the new program judges the daemon's configuration",
        forms.ARGUMENTS,
        "words with one blank between them",
    ),
    Key(
        RESTART,
        "method",
        Kind.CHOICE,
        "restart",
        "or `reload`, for a daemon that replaces its own main process; going back always restarts",
        choices=("restart", "reload"),
    ),
    forms.integer(RESTART, "drain_s", 0, "seconds between draining and the switch", 0, 600),
    forms.integer(CONFIRM, "interval_s", 2, "seconds between two rounds of the probes", 1, 300),
    forms.integer(CONFIRM, "passes", 3, "consecutive rounds that must pass", 1, 100),
    forms.integer(CONFIRM, "failures", 3, "consecutive rounds that fail, after which it goes back", 1, 100),
    *product_sections.KEYS,
)
REQUIRED = tuple((key.section, key.name) for key in KEYS if key.meaning.startswith("required"))
