# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's policy: how far back, which major version, which channel, and what each does where nothing can be compared."""

from __future__ import annotations

from typing import Optional

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import checks, facts, policy, semver
from slotcore import product as products


def asked(
    wanted: str, running: Optional[str], channel: Optional[str] = None, floor: int = 4, **changes: object
) -> facts.Facts:
    """A target of `wanted` on a host that runs `running` with this policy."""
    own = products.Policy()._replace(**changes)  # type: ignore[arg-type]
    target = making.target(b"", version=wanted)._replace(channel=channel)
    return making.facts(b"", target=target, running_version=running, policy=own, floor=floor)


@pytest.mark.parametrize(
    ("wanted", "running", "grace", "taken"),
    [
        ("1.4.0", "1.4.0", 0, True),
        ("1.4.0", "1.4.9", 0, True),
        ("1.4.0-rc.1", "1.4.0", 0, True),
        ("1.3.9", "1.4.0", 0, False),
        ("1.3.0", "1.4.9", 1, True),
        ("1.2.99", "1.4.0", 1, False),
        ("1.2.99", "1.4.0", 2, True),
        ("1.0.0", "1.100.0", 100, True),
        ("1.0.0", "1.101.0", 100, False),
        ("1.9.0", "2.0.0", 100, False),
        ("0.9.0", "1.9.0", 100, False),
        ("1.99.0", "2.0.0-rc.1", 100, False),
        ("2.0.0", "1.0.0", 0, True),
        ("1.99.0", "1.0.0", 0, True),
        ("1.0.0", None, 0, True),
        ("1.0.0", "a build of mine", 0, True),
        ("no version", "9.0.0", 0, True),
    ],
)
def test_how_far_back_a_host_goes(wanted: str, running: Optional[str], grace: int, taken: bool) -> None:
    """So many minor versions, never below the running major version, and any way forward."""
    assert (policy.way_back(asked(wanted, running, rollback_grace=grace)) is None) == taken


@pytest.mark.parametrize(
    ("wanted", "running", "taken"),
    [
        ("1.0.0", "1.9.0", True),
        ("1.9.0", "1.0.0-rc.1+b", True),
        ("2.0.0", "1.9.0", False),
        ("1.9.0", "2.0.0", False),
        ("2.0.0-rc.1", "1.9.0", False),
        ("1.0.0", None, False),
        ("1.0.0", "a build of mine", False),
        ("no version", "1.0.0", True),
    ],
)
def test_only_the_running_major_version_where_that_is_wanted(wanted: str, running: Optional[str], taken: bool) -> None:
    """Up and down alike; a running version that nobody knows cannot be shown to be of the same one."""
    assert (policy.same_major(asked(wanted, running, same_major=True)) is None) == taken
    assert policy.same_major(asked(wanted, running)) is None


@pytest.mark.parametrize(
    ("wanted", "least", "taken"),
    [
        ("1.2.3", "1.2.3", True),
        ("1.2.3-rc.1", "1.2.3", False),
        ("1.2.3", "1.2.3-rc.1", True),
        ("1.2.3+old", "1.2.3+new", True),
        ("1.10.0", "1.9.0", True),
        ("0.9.9", "1.0.0", False),
        ("no version", "1.0.0", True),
        ("0.0.1", None, True),
    ],
)
def test_the_oldest_version_that_is_taken(wanted: str, least: Optional[str], taken: bool) -> None:
    """By precedence; a version that is none is another row's to refuse."""
    assert (policy.min_version(asked(wanted, "1.0.0", min_version=least)) is None) == taken


@pytest.mark.parametrize(
    ("requested", "offered", "first", "second", "third"),
    [
        (None, "stable", True, True, True),
        ("stable", "stable", True, True, True),
        ("beta", "beta", True, True, True),
        ("stable", "beta", True, True, False),
        ("edge", "edge", False, False, True),
        (None, "edge", True, False, True),
        (None, "Stable", True, False, True),
    ],
)
def test_channels(requested: Optional[str], offered: str, first: bool, second: bool, third: bool) -> None:
    """What is asked for and what is offered must both be taken, and be the same when something was asked for."""
    known = asked("1.1.0", "1.0.0", channel=requested, allowed_channels=("stable", "beta"))
    offer = facts.Offer(5, offered)
    assert (policy.requested_channel(known) is None) == first
    assert (policy.channel(known, offer) is None) == second
    assert (policy.channel_as_asked(known, offer) is None) == third


@pytest.mark.parametrize(("sequence", "floor", "taken"), [(5, 4, True), (5, 5, False), (4, 5, False), (1, 0, True)])
def test_only_sequences_above_the_floor_where_that_is_wanted(sequence: int, floor: int, taken: bool) -> None:
    """The floor itself is not above it."""
    offer = facts.Offer(sequence, "stable")
    known = asked("1.1.0", "1.0.0", floor=floor, strict_sequence=True)
    assert (policy.strict_sequence(known, offer) is None) == taken
    assert policy.strict_sequence(asked("1.1.0", "1.0.0", floor=floor), offer) is None


def test_C10_a_slot_that_holds_the_release_is_asked_the_same() -> None:
    """What a verified manifest is refused for, the record of a slot is refused for, with the same code and sentence."""
    known = asked("1.1.0", "1.0.0", channel="beta", floor=5, strict_sequence=True, allowed_channels=("stable", "beta"))
    for offer, code in (
        (checks.Offer(6, "edge"), "channel-not-allowed"),
        (checks.Offer(6, "stable"), "wrong-channel"),
        (checks.Offer(5, "beta"), "sequence-not-newer"),
    ):
        found = checks.check_offer(known, offer)
        assert found is not None
        assert found.code == code
    assert checks.check_offer(known, checks.Offer(6, "beta")) is None


numbers = st.integers(0, 4)
versions = st.builds("{}.{}.{}{}".format, numbers, numbers, numbers, st.sampled_from(["", "-rc.1", "+b"]))


@given(versions, versions, st.integers(0, 5))
def test_more_grace_never_refuses_more(wanted: str, running: str, grace: int) -> None:
    """And a release that is not older is never too far back."""
    less = policy.way_back(asked(wanted, running, rollback_grace=grace))
    more = policy.way_back(asked(wanted, running, rollback_grace=grace + 1))
    assert more is None or less is not None
    one, other = semver.parse(wanted), semver.parse(running)
    assert one is not None
    assert other is not None
    if not semver.older(one, other):
        assert less is None
