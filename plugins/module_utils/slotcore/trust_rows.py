# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of checks about the floor and the record of trust (releases.md, section 3; trust.md, section 2).

Rules:

* Each function is one row: the sentence of a refusal, or nothing.
* A permit opens the rows of the floor and no other, for its own release alone, and never the configured floor.
* A release that was withdrawn is refused by version and sequence, from wherever it would come.
"""

from __future__ import annotations

from typing import Optional

from . import manifest, semver, trust
from .facts import Facts, Offer


def keys_expired(facts: Facts) -> Optional[str]:
    """The key set in use has not expired."""
    return trust.keys_expired(facts.clocks, facts.trust)


def permitted(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    """A permit that was given is for this very release."""
    allowed = facts.permit
    if allowed is None or (allowed.version, allowed.sequence) == (body.version, body.sequence):
        return None
    text = "the downgrade permit %s is for %s, sequence %d, not for %s, sequence %d"
    return text % (allowed.permit_id, allowed.version, allowed.sequence, body.version, body.sequence)


def floor(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    """The sequence is not below the floor; with a permit, not below the configured one."""
    if facts.permit is not None and body.sequence < facts.least_floor:
        text = "release sequence %d is older than %d, the configured floor, which no permit passes ([update] release_sequence)"
        return text % (body.sequence, facts.least_floor)
    if facts.permit is not None or body.sequence >= facts.floor:
        return None
    text = "release sequence %d is older than %d, which this node ran or was installed at (rollback)"
    return text % (body.sequence, facts.floor)


def not_older(facts: Facts, body: manifest.Manifest) -> Optional[str]:
    """Only where no floor protects: a development build, whose sequence is 0."""
    if facts.permit is not None or facts.floor or not semver.is_older(body.version, facts.running_version):
        return None
    return "%s %s is older than the running %s (rollback)" % (facts.product, body.version, facts.running_version)


def needs_permit(facts: Facts, body: manifest.Manifest) -> bool:
    """Whether this release comes no further without a permit."""
    without = facts._replace(permit=None)
    return bool(floor(without, body) or not_older(without, body))


def not_withdrawn(facts: Facts, offer: Offer) -> Optional[str]:
    """No signed notice withdrew this version with this sequence."""
    found = facts.trust.withdrawal_of(facts.target.version, offer.sequence)
    return found and "%s %s, sequence %d, was withdrawn: %s" % (facts.product, *found[:3])
