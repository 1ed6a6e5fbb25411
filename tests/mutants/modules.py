# SPDX-License-Identifier: GPL-3.0-or-later
"""Which modules of slotcore are tried, and with which of the files in tests/core: those that are for the module."""

from __future__ import annotations

from typing import Dict, Tuple

MODULES: Dict[str, Tuple[str, ...]] = {
    "semver": ("test_semver.py",),
    "canonical": ("test_canonical.py",),
    "strictjson": ("test_canonical.py",),
    "fields": ("test_fields.py",),
    "manifest": ("test_manifest.py",),
    "settle": ("test_settle.py",),
    "signatures": ("test_signatures.py", "test_documents.py"),
    "checks": ("test_checks.py", "test_policy.py"),
    "policy": ("test_policy.py", "test_checks.py"),
}
