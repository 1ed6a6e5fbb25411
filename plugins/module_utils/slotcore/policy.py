# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases root's configuration lets a host go to (seed 002; releases.md, section 3).

Rules:

* Each function is one row: the sentence of a refusal, or nothing.
* The rows of what is asked for come first, before a manifest is read and before anything is fetched; the rows of what a
  release offers come after it is verified. A slot that holds the release already is judged by both (field case C10).
* A version that is no version is another row's to refuse; build parts do not count.
* Without a known running version the way back has nothing to compare, and the floor protects as always; ``same_major``
  refuses, since it was asked for and cannot be shown.
"""

from __future__ import annotations

from typing import Optional

from . import semver
from .facts import Facts, Offer


def enabled(facts: Facts) -> Optional[str]:
    """Updates are on."""
    if facts.policy.enabled:
        return None
    return "updates of %s are disabled on this host ([update] enabled = false)" % facts.product


def requested_channel(facts: Facts) -> Optional[str]:
    """The channel that was asked for, if any, is one that the host takes."""
    channel = facts.target.channel
    if channel is None or channel in facts.policy.allowed_channels:
        return None
    return "channel %s is asked for; this host takes %s" % (channel, _channels(facts))


def min_version(facts: Facts) -> Optional[str]:
    """The version is not older than the oldest that the host takes."""
    least, wanted = semver.parse(facts.policy.min_version or ""), semver.parse(facts.target.version)
    if least is None or wanted is None or not semver.older(wanted, least):
        return None
    said = (facts.product, wanted.text, least.text)
    return "%s %s is older than %s, the oldest that this host takes ([update] min_version)" % said


def same_major(facts: Facts) -> Optional[str]:
    """The version is of the running major version, where the host wants that."""
    wanted, running = semver.parse(facts.target.version), semver.parse(facts.running_version or "")
    if not facts.policy.same_major or wanted is None:
        return None
    if running is not None and wanted.precedence[0] == running.precedence[0]:
        return None
    text = "%s %s is of another major version than the running %s ([update] same_major)"
    return text % (facts.product, wanted.text, running.text if running else "one, which nobody knows")


def way_back(facts: Facts) -> Optional[str]:
    """The version is not further back than the host goes: so many minor versions, and never below the major version."""
    wanted, running = semver.parse(facts.target.version), semver.parse(facts.running_version or "")
    if wanted is None or running is None or not semver.older(wanted, running):
        return None
    major, minor = wanted.precedence[:2]
    grace = facts.policy.rollback_grace
    if major == running.precedence[0] and running.precedence[1] - minor <= grace:
        return None
    text = "%s %s is further back than this host goes from the running %s: %d minor version%s ([update] rollback_grace)"
    return text % (facts.product, wanted.text, running.text, grace, "" if grace == 1 else "s")


def channel(facts: Facts, offer: Offer) -> Optional[str]:
    """The release's channel is one that the host takes."""
    if offer.channel in facts.policy.allowed_channels:
        return None
    return "the manifest is on channel %s; this host takes %s" % (offer.channel, _channels(facts))


def channel_as_asked(facts: Facts, offer: Offer) -> Optional[str]:
    """The release's channel is the one that was asked for, if any."""
    if facts.target.channel in (None, offer.channel):
        return None
    return "the manifest is on channel %s, asked for is %s" % (offer.channel, facts.target.channel)


def strict_sequence(facts: Facts, offer: Offer) -> Optional[str]:
    """The sequence is above the floor, where the host wants that."""
    if not facts.policy.strict_sequence or offer.sequence > facts.floor:
        return None
    text = "release sequence %d is not above the floor %d ([update] strict_sequence)"
    return text % (offer.sequence, facts.floor)


def min_from(facts: Facts, least: Optional[str], version: str) -> Optional[str]:
    """What runs is not below the oldest version that the release takes over from: its word, not the host's."""
    oldest, running = semver.parse(least or ""), semver.parse(facts.running_version or "")
    if oldest is None or (running is not None and not semver.older(running, oldest)):
        return None
    text = "%s %s takes over from %s or later, not from %s: go to a release in between first"
    return text % (facts.product, version, oldest.text, facts.running)


def _channels(facts: Facts) -> str:
    return ", ".join(facts.policy.allowed_channels)
