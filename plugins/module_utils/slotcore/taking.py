# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of checks for who asks otherwise than by a signed target: by version alone, or by a digest (products.md, section 8).

Rules:

* The rows and their order are those of ``checks``; some have nothing to say yet, or never.
* By version: the digest is what the manifest of the source will say, so it is asked for later.
* By digest: nobody signed, so there is no sequence, no floor and no expiry; the channel is the one that is asked for.
"""

from __future__ import annotations

from typing import Optional

from . import checks, codes
from .facts import Facts


def check_asked(facts: Facts) -> Optional[codes.Refusal]:
    """The first refusal of the rows that need no manifest, for who names a version alone."""
    refusal = checks.check_policy(facts)
    for row in checks.TARGET_CHECKS:
        text = None if refusal or row.code == codes.BAD_DIGEST else row.rule(facts)
        refusal = codes.Refusal(row.code, text) if text else refusal
    return refusal


def check_digest(facts: Facts) -> Optional[codes.Refusal]:
    """The first refusal of a release that is taken by its digest."""
    channel = facts.target.channel or facts.policy.allowed_channels[0]
    return checks.check_before_manifest(facts) or checks.check_offer(facts, checks.Offer(0, channel))
