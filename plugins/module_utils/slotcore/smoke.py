# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program said when it was asked for its version (DESIGN 6; products.md, sections 1 and 2).

Rules:

* What is expected must not stand within a longer word or number: 1.2.3 is not said by 1.2.30, 1.2.3-rc1 or 11.2.3.
* A version of two numbers reads as one of three: daemons say 1.22 and mean 1.22.0.
"""

from __future__ import annotations

import re
from typing import Optional

from . import semver

MARK = "{version}"
_BEFORE, _AFTER = r"(?<![0-9A-Za-z.+-])", r"(?![0-9A-Za-z+-]|\.[0-9A-Za-z])"
_VERSION = re.compile(r"(?<![0-9.])([0-9]+\.[0-9]+)(\.[0-9]+)?((?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
_MAX_SAID = 65536


def says(output: str, expect: str, version: str) -> bool:
    """Whether the output has what is expected of this version, as a whole."""
    wanted = expect.replace(MARK, version)
    return re.search(_BEFORE + re.escape(wanted) + _AFTER, output[-_MAX_SAID:]) is not None


def version_in(output: str) -> Optional[str]:
    """The first version that the output has, as a semantic version."""
    for found in _VERSION.finditer(output[:_MAX_SAID]):
        for more in (found.group(3), ""):
            version = found.group(1) + (found.group(2) or ".0") + more.rstrip(".-")
            if semver.is_version(version):
                return version
    return None
