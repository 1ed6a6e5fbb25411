# SPDX-License-Identifier: GPL-3.0-or-later
"""What a build of the agent carries about itself, read without running it."""

from __future__ import annotations

import json
from typing import Any, Dict, Tuple

from slotcore import records, semver
from slotward import host

BUILD_FACTS = "slotward-build.json"


def built_in(path: str) -> Tuple[str, int]:
    """Version and sequence that a build of the agent carries, read without running it; "unknown" and 0 for others."""
    import zipfile

    try:
        with open(host.open_named(path), "rb") as file, zipfile.ZipFile(file) as archive:
            facts: Dict[str, Any] = json.loads(archive.read(BUILD_FACTS))
        version, sequence = str(facts["version"]), int(facts["sequence"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, zipfile.BadZipFile):
        return "unknown", 0
    if not (semver.is_version(version) and 0 <= sequence <= records.MAX_INT):
        return "unknown", 0  # these go into records, which hold nothing else
    return version, sequence
