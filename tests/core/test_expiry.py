# SPDX-License-Identifier: GPL-3.0-or-later
"""Field case N16: a host says 90, 30 and 7 days before that its keys, or its release's manifest, run out."""

from __future__ import annotations

from typing import Optional

import pytest

from slotcore import expiry

AT = 1798761600
DAY = 86400


@pytest.mark.parametrize(
    ("left_s", "level", "days"),
    [
        (90 * DAY + 1, None, 0),
        (90 * DAY, "notice", 90),
        (30 * DAY + 1, "notice", 30),
        (30 * DAY, "warning", 30),
        (7 * DAY + 1, "warning", 7),
        (7 * DAY, "critical", 7),
        (DAY - 1, "critical", 0),
        (0, "critical", -1),
        (-1, "critical", -1),
        (-DAY, "critical", -2),
    ],
)
def test_N16_the_nearer_the_louder(left_s: int, level: Optional[str], days: int) -> None:
    """Each level begins on its day; an expiry that has passed stays the loudest."""
    for found in (expiry.of_keys(3, AT, AT - left_s), expiry.of_manifest("1.0.0", AT, AT - left_s)):
        assert (found and (found.level, found.days)) == (level and (level, days))


@pytest.mark.parametrize(
    ("left_s", "said"),
    [
        (31 * DAY, "expires in 31 days, at 2027-01-01T00:00:00Z: then"),
        (DAY, "expires in 1 day, at 2027-01-01T00:00:00Z: then"),
        (5, "expires in less than a day, at 2027-01-01T00:00:00Z: then"),
        (0, "expired at 2027-01-01T00:00:00Z:"),
    ],
)
def test_the_sentence_says_when_and_what_then(left_s: int, said: str) -> None:
    """Of the key set by its number, of the manifest by its version."""
    keys, manifest = expiry.of_keys(3, AT, AT - left_s), expiry.of_manifest("1.0.0", AT, AT - left_s)
    assert keys is not None
    assert manifest is not None
    assert (keys.what, manifest.what) == ("keys", "manifest")
    assert keys.text == "key set 3 %s no release is taken before the next key set" % said
    assert manifest.text == (
        "the manifest of 1.0.0 %s it cannot be installed anew with that manifest, and runs on where it does" % said
    )
