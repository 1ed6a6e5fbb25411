# SPDX-License-Identifier: GPL-3.0-or-later
"""What daemons say of their versions, as they really say it."""

from __future__ import annotations

from typing import Optional

import pytest

from slotcore import smoke

EXPORTER = "node_exporter, version 1.5.0 (branch: debian/sid, revision: 1.5.0-1+b6)\n  build user: team"
REDIS = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=9e8d1a3f"
NGINX = "nginx version: nginx/1.22.1"


@pytest.mark.parametrize(
    ("output", "expect", "version", "said"),
    [
        ("slotward 1.2.3", "{version}", "1.2.3", True),
        ("slotward 1.2.30", "{version}", "1.2.3", False),
        ("slotward 11.2.3", "{version}", "1.2.3", False),
        ("slotward 1.2.3-rc1", "{version}", "1.2.3", False),
        ("slotward 1.2.3.4", "{version}", "1.2.3", False),
        ("slotward 1.2.3.", "{version}", "1.2.3", True),
        ("slotward 1.2.3-rc1", "{version}", "1.2.3-rc1", True),
        (EXPORTER, "{version}", "1.5.0", True),
        (REDIS, "v={version}", "7.0.15", True),
        (REDIS, "v={version}", "5.3.0", False),
        (NGINX, "nginx/{version}", "1.22.1", True),
        (NGINX, "{version}", "1.22.1", True),
        ("ready", "ready", "1.0.0", True),
        ("already", "ready", "1.0.0", False),
    ],
)
def test_the_version_is_said_as_a_whole(output: str, expect: str, version: str, said: bool) -> None:
    """Not as a part of another one."""
    assert smoke.says(output, expect, version) is said


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (EXPORTER, "1.5.0"),
        (REDIS, "7.0.15"),
        (NGINX, "1.22.1"),
        ("tool 1.22", "1.22.0"),
        ("tool 2.0.0-rc.1+build.5 (x)", "2.0.0-rc.1+build.5"),
        ("tool 1.2.3-.", "1.2.3"),
        ("tool 1.02", None),
        ("tool 7", None),
        ("", None),
    ],
)
def test_a_version_is_found_in_what_daemons_say(output: str, version: Optional[str]) -> None:
    """The first one, made semantic."""
    assert smoke.version_in(output) == version
