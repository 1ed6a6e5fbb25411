# SPDX-License-Identifier: GPL-3.0-or-later
"""What another daemon's program says of itself when it is run: its version, and whether it takes its configuration.

Rules:
- It is run in a transient unit, as the account that the product's file or its unit names, bounded in time.
- Its version is asked with the words of the smoke test. Nothing is believed of it but a version's form.
"""

from __future__ import annotations

import os
from typing import Optional, Tuple

from slotcore import codes, smoke
from slotcore import product as products
from slotward import effects, systemd

WHILE_CHECKING = ("NoNewPrivileges=yes", "PrivateTmp=yes", "ProtectHome=read-only", "PrivateNetwork=yes")
"""A daemon looks at its own files when it judges its configuration, so those it may write stay writable."""


def version_of(product: products.Product, path: str) -> Optional[str]:
    """The version that a program says it is; None when it says none, or is not asked."""
    return asked(product, path)[0] if product.smoke_argv else None


def asked(product: products.Product, path: str) -> Tuple[Optional[str], str]:
    """The version that a program says it is, when it is run with the words of the smoke test; else what it did instead."""
    properties = (*effects.UNDER_SMOKE, *effects.unit_user(product))
    answer = systemd.run_transient(
        [path, *product.smoke_argv], properties, effects.SMOKE_TIMEOUT_S, f"version-{product.name}"
    )
    version = smoke.version_in(answer.output) if answer.code == 0 else None
    return version, f"ended with status {answer.code}: {answer.output.strip()[-300:] or 'no output'}"


def demand_config(product: products.Product, path: str, version: str) -> None:
    """Raise Refused `smoke-test-failed` when the program does not take the configuration that the daemon has."""
    properties = (*WHILE_CHECKING, *effects.unit_user(product), f"WorkingDirectory={os.path.dirname(path)}")
    argv = [path, *product.config_check]
    answer = systemd.run_transient(argv, properties, effects.SMOKE_TIMEOUT_S, f"config-{product.name}")
    if answer.code != 0:
        said = answer.output.strip()[-300:] or "no output"
        raise codes.refused(
            codes.SMOKE_TEST_FAILED,
            f"{product.name} {version} does not take this configuration: `{' '.join(argv)}` ended with status {answer.code}: {said}",
        )
