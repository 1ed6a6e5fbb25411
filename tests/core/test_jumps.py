# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new release does that the one before would not make one expect is said, each with both values."""

from __future__ import annotations

from typing import Any, List

import pytest
from core import making

from slotcore import documents, jumps, manifest, release, rfc3339

KEYS = making.three()


def made(version: str, sequence: int, **changes: Any) -> manifest.Manifest:
    """A release of the toy."""
    plain = manifest.Manifest(
        product="toy",
        version=version,
        sequence=sequence,
        issued_at=making.ISSUED + sequence,
        expires_at=making.EXPIRES,
        keys=tuple(release.key(one.public) for one in KEYS),
        artifacts=(release.artifact("toy", version, making.PLATFORM, making.SHA256, 12),),
    )
    return plain._replace(**changes)


def key_set(sequence: int, **changes: Any) -> documents.KeySet:
    """A key set of the toy."""
    listed = made("1.0.0", 1).keys
    plain = documents.KeySet("toy", making.ISSUED, listed, sequence, making.EXPIRES, making.pins(), 2)
    return plain._replace(**changes)


BEFORE = [made("1.0.0", 4), made("1.1.0", 5), made("0.9.0", 3)]


def test_the_next_release_is_no_jump() -> None:
    """Nor is the first one, nor the very same one again."""
    assert jumps.of_release(made("1.2.0", 6), BEFORE) == ()
    assert jumps.of_release(made("1.2.0", 6), []) == ()
    assert jumps.of_release(BEFORE[1], [BEFORE[1]]) == ()
    assert jumps.of_release(made("1.1.1", 6), BEFORE) == ()


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (made("1.2.0", 9), "sequence 9; release 1.1.0 has 5, so 6 would be next"),
        (made("1.2.0", 5), "sequence 5 is not above 5, that of release 1.1.0: hosts would refuse it"),
        (made("1.0.1", 6), "version 1.0.1 is lower than 1.1.0"),
        (made("1.1.0", 6), "version 1.1.0 is that of the release before, which has sequence 5"),
        (made("1.2.0", 6, channel="beta"), "channel beta; the release before was on stable"),
        (
            made("1.2.0", 6, keys=made("1.0.0", 1).keys[:2]),
            "key %s may not sign any more" % KEYS[2].public.pin,
        ),
        (
            made("1.2.0", 6, keys=(*made("1.0.0", 1).keys, release.key(making.key(7).public))),
            "key %s may sign now; it could not before" % making.key(7).public.pin,
        ),
        (
            made("1.2.0", 6, artifacts=(release.artifact("toy", "1.2.0", "linux-arm64", making.SHA256, 1),)),
            "nothing for linux-amd64 any more",
        ),
        (
            made("1.2.0", 6, issued_at=making.ISSUED),
            "issued 2026-01-01T00:00:00Z, before the release before it (2026-01-01T00:00:05Z)",
        ),
    ],
    ids=lambda value: (
        value.partition(" sha256/")[0] if isinstance(value, str) else None
    ),  # keys are new in each process
)
def test_each_jump_is_told(new: manifest.Manifest, text: str) -> None:
    """Alone, when it is the only one."""
    assert jumps.of_release(new, BEFORE) == (text,)


def test_all_jumps_of_a_release_are_told() -> None:
    """Whoever signs sees them together."""
    new = made("0.1.0", 2, channel="beta", keys=made("1.0.0", 1).keys[:1], issued_at=0)
    assert len(jumps.of_release(new, BEFORE)) == 6


@pytest.mark.parametrize(
    ("version", "before", "wanted", "counted"),
    [
        ("1.2.0", BEFORE, 6, "1.1.0"),
        ("1.1.0", BEFORE, 5, "1.1.0"),
        ("1.0.0", BEFORE, 4, "1.0.0"),
        ("1.2.0", [], 1, None),
    ],
)
def test_the_next_sequence_is_counted(version: str, before: List[manifest.Manifest], wanted: int, counted: str) -> None:
    """From the highest, and the same version keeps its own, so that building again changes nothing."""
    sequence, last = jumps.next_sequence(version, before)
    assert (sequence, last.version if last else None) == (wanted, counted)


def test_the_next_key_set_is_no_jump() -> None:
    """With the keys of before, or some of them."""
    assert jumps.of_key_set(key_set(2), [key_set(1)]) == ()
    assert jumps.of_key_set(key_set(2), []) == ()
    kept = key_set(2, pins=(*making.pins(0), making.key(7).public.pin))
    assert jumps.of_key_set(kept, [key_set(1)]) == ()


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (key_set(3), "sequence 3; the key set before has 1, so 2 would be next"),
        (key_set(2, threshold=1), "threshold 1; it was 2"),
        (key_set(2, pins=(making.key(7).public.pin,) * 2), "no pin of the key set before is kept"),
        (
            key_set(2, expires_at=making.EXPIRES - 1),
            "expires 2026-12-31T23:59:59Z, earlier than the key set before (2027-01-01T00:00:00Z)",
        ),
    ],
)
def test_each_jump_of_a_key_set_is_told(new: documents.KeySet, text: str) -> None:
    """As of a release."""
    assert jumps.of_key_set(new, [key_set(1)]) == (text,)


def test_a_time_of_issue_that_has_not_come_is_a_jump() -> None:
    """A day of difference between clocks is none."""
    new = made("1.1.0", 2)
    assert jumps.ahead(new, new.issued_at - jumps.AHEAD_S) == ()
    (said,) = jumps.ahead(new, new.issued_at - 3 * jumps.AHEAD_S - 1)
    assert said.startswith("issued %s, 3 days ahead of this machine's clock" % rfc3339.render(new.issued_at))
    assert jumps.ahead(key_set(1), 0) != ()


def test_pins_are_shown_as_new_kept_or_gone() -> None:
    """Those of the new set in its order, then those that count no more."""
    one, two, three = making.pins()
    assert jumps.pin_lines(key_set(1, pins=(one, two)), (two, three)) == [
        f"+ {one} (new)",
        f"= {two} (kept)",
        f"- {three} (gone)",
    ]
