# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows for who asks by version alone, or by a digest: the same rows in the same order, some of which say nothing."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from core import making

from slotcore import checks, codes, taking, target
from slotcore import product as products

SHA = "ab" * 32


def facts(sha256: str = "", channel: str | None = None, **changes: Any) -> checks.Facts:
    """A host that runs 1.0.0 of the toy and is asked for 1.1.0."""
    found = making.facts(making.published(making.body(), making.three()))
    asked = target.Target("toy", str(changes.pop("version", "1.1.0")), "", sha256, "", channel)
    return found._replace(target=asked, running_version="1.0.0", **changes)


REFUSED: Dict[str, Dict[str, Any]] = {
    codes.UPDATES_DISABLED: {"policy": products.Policy(enabled=False)},
    codes.CHANNEL_NOT_ALLOWED: {"channel": "beta"},
    codes.BELOW_MIN_VERSION: {"policy": products.Policy(min_version="2.0.0")},
    codes.OTHER_MAJOR: {"version": "2.0.0", "policy": products.Policy(same_major=True)},
    codes.TOO_FAR_BACK: {"version": "0.9.0"},
    codes.NOT_A_RELEASE: {"version": "latest"},
    codes.FAILED_BEFORE: {"failed": {"1.1.0": ("crash-loop", "it kept exiting")}},
}


@pytest.mark.parametrize("code", REFUSED)
def test_C10_each_row_that_needs_no_manifest_is_asked_both_ways(code: str) -> None:
    """There is no way around the policy; the words are those of every other way."""
    for found, check in (
        (facts(**REFUSED[code]), taking.check_asked),
        (facts(SHA, by_digest=True, pins=(), **REFUSED[code]), taking.check_digest),
    ):
        refusal = check(found)
        assert refusal is not None
        assert refusal.code == code
        full = checks.check_before_manifest(found._replace(target=found.target._replace(sha256=SHA)))
        assert refusal == full


def test_by_version_the_digest_comes_later() -> None:
    """The manifest will say it; keys must be pinned all the same."""
    assert taking.check_asked(facts()) is None
    refusal = taking.check_asked(facts(pins=()))
    assert refusal is not None
    assert refusal.code == codes.NO_PINS


def test_by_digest_no_keys_are_asked_for_but_a_digest_is() -> None:
    """What an operator hands over must be one."""
    assert taking.check_digest(facts(SHA, by_digest=True, pins=())) is None
    refusal = taking.check_digest(facts("abc", by_digest=True, pins=()))
    assert refusal is not None
    assert refusal.code == codes.BAD_DIGEST


def test_by_digest_the_channel_is_the_one_that_is_asked_for() -> None:
    """Nothing is claimed of a release that says nothing; with none asked for, it is the host's own."""
    policy = products.Policy(allowed_channels=("beta", "stable"))
    assert taking.check_digest(facts(SHA, "stable", by_digest=True, policy=policy)) is None
    assert taking.check_digest(facts(SHA, by_digest=True, policy=policy)) is None


def test_by_digest_nothing_is_above_a_floor() -> None:
    """A host that wants sequences above its floor takes nothing that has none."""
    refusal = taking.check_digest(facts(SHA, by_digest=True, policy=products.Policy(strict_sequence=True)))
    assert refusal is not None
    assert refusal.code == codes.SEQUENCE_NOT_NEWER


def test_a_digest_without_that_trust_has_no_manifest() -> None:
    """The ordinary checks go on asking for one."""
    found = checks.check(facts(SHA))
    assert isinstance(found, codes.Refusal)
    assert found.code == codes.NO_MANIFEST
