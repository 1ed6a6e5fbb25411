# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rows of checks decide on: the host, what it is asked for, and what a release says of itself.

Rules:

* Values only. Whoever asks gathers them; no row reads a clock, a file or the network.
* `now_s` is the host's clock, `server_s` the time of whoever asks, `newest_issued` the newest ``issuedAt`` of any
  manifest verified on this host; 0 for what is not known. ``clocks.py`` says which of them counts.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

from . import clocks, codes, manifest, target
from . import product as products
from . import trust_record as trusts

MAX_ARTIFACT = 512 << 20


class Facts(NamedTuple):
    """All that a decision about one target needs.

    `running_version` is None when nobody knows it; `failed` gives code and reason of each version that failed here.
    """

    target: target.Target
    product: str
    platform: str
    running_version: Optional[str]
    floor: int
    failed: Mapping[str, Tuple[str, str]]
    pins: Sequence[str]
    threshold: int
    now_s: int
    max_bytes: int = MAX_ARTIFACT
    kinds: Tuple[str, ...] = manifest.KINDS[:1]
    """The kinds of artifact that the product's slots hold."""
    variant: Optional[str] = None
    """The variant of a build that this host takes; None: the one that is of none."""
    by_digest: bool = False
    """The host takes what it is told by digest alone (trust ``digest``): no manifest, no sequence, no floor."""
    policy: products.Policy = products.Policy()
    newest_issued: int = 0
    server_s: int = 0
    trust: trusts.Trust = trusts.Trust()
    """The record of trust: whose key set is in use, and what was withdrawn."""
    permit: Optional[trusts.Allowed] = None
    """The release that a permit, verified for this host, lets below the floor."""
    least_floor: int = 0
    """The configured floor, which no permit passes."""
    hand: Optional[codes.Refusal] = None
    """What an operator has set against any release now: a hold, a freeze, a window that is closed (products.md, section 7)."""

    @property
    def clocks(self) -> clocks.Clocks:
        """The times by which an expiry is judged."""
        issued = self.trust.keys.issued_at if self.trust.keys is not None else 0
        return clocks.Clocks(self.now_s, max(self.newest_issued, issued), self.server_s)

    @property
    def running(self) -> str:
        """The running version, for a sentence."""
        return self.running_version or "an unknown version"


class Offer(NamedTuple):
    """What the policy asks of a release: of a verified manifest, or of a slot's record."""

    sequence: int
    channel: str


def offer_of(body: manifest.Manifest) -> Offer:
    """A manifest, as the policy sees it."""
    return Offer(body.sequence, body.channel)
