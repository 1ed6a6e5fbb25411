# SPDX-License-Identifier: GPL-3.0-or-later
"""The one gate before every way to another release: what this host is, and what its rows of checks say (field case C10).

Rules:
- Prepare and upgrade, with or without a switch, from a download, a pushed file or the other slot, and setup with a
  program to install come through here. What does not take a release never does: confirming, going back, settling.
- The operator's hand comes first (`hand`): a hold, which nothing passes, then freezes and windows. `still_open` asks for it
  again right before a switch: what was fetched meanwhile took its time.
- A slot that holds the release was let in by its manifest; its record answers the policy. A record that names no
  channel cannot, so that slot is filled again, with the manifest.
"""

from __future__ import annotations

import platform
import time
from typing import Optional

from slotcore import checks, clocks, codes, manifest, records, settle, standing, status, trust, trust_record
from slotcore import product as products
from slotcore import target as targets
from slotward import hand, host, own

ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


def this_platform() -> str:
    """`os-arch` of this host, as manifests write it."""
    machine = platform.machine()
    return "linux-" + ARCHES.get(machine, machine)


def platform_of(product: products.Product) -> str:
    """Whose artifacts this host takes for a product."""
    return product.platform or this_platform()


def artifact_of(product: products.Product, body: manifest.Manifest, sha256: str, path: str) -> manifest.Artifact:
    """The artifact of this host's platform and variant with that digest, in the release of `path`; raises `no-artifact`."""
    platform, variant = platform_of(product), product.variant or None
    for one in targets.named_for(body, platform):
        if (one.variant, one.sha256) == (variant, sha256):
            return one
    name = targets.artifact_name(body.product, body.version, platform, variant)
    raise codes.refused(codes.NO_ARTIFACT, f"{path} lists no {name} with the SHA-256 {sha256} of the program")


def facts_of(
    setup: own.Setup,
    state: settle.State,
    target: checks.Target,
    running: Optional[str],
    server_s: int = 0,
    forced: bool = False,
) -> checks.Facts:
    """All that the rows decide on, on this host and now; `forced` by an operator past windows, freezes and veto."""
    product, update = setup.product, state.update
    trusted = standing.in_force(product, state)
    return checks.Facts(
        target=target,
        product=product.name,
        platform=platform_of(product),
        running_version=running,
        floor=status.floor_of(product, state),
        failed={entry.version: (entry.code, entry.why) for entry in update.failed},
        pins=trusted.pins,
        threshold=trusted.threshold,
        now_s=int(time.time()),
        policy=product.policy,
        newest_issued=update.newest_issued,
        server_s=server_s,
        trust=state.trust or trust_record.Trust(),
        least_floor=product.least_floor,
        kinds=manifest.KINDS if product.layout == products.VERSIONS else manifest.KINDS[:1],
        variant=target.variant or product.variant or None,
        by_digest=trusted.source == products.DIGEST,
        hand=hand.objection(product, update, forced),
    )


def documents_facts(setup: own.Setup, state: settle.State, server_s: int = 0) -> trust.Facts:
    """All that a decision about a signed document beside the manifest needs, on this host and now."""
    product = setup.product
    return trust.Facts(
        product=product.name,
        pins=product.pins,
        threshold=product.threshold,
        floor=status.floor_of(product, state),
        clocks=clocks.Clocks(int(time.time()), state.update.newest_issued, server_s),
        machine_id=host.machine_id(),
    )


def with_permit(setup: own.Setup, state: settle.State, facts: checks.Facts, published: Optional[bytes]) -> checks.Facts:
    """The facts with what a permit allows on this host; raises its refusal."""
    if published is None:
        return facts
    allowed = trust.permit(documents_facts(setup, state, facts.server_s), facts.trust, published)
    if isinstance(allowed, codes.Refusal):
        raise codes.Refused(allowed)
    return facts._replace(permit=allowed)


def still_open(product: products.Product, state: settle.State, forced: bool) -> None:
    """Raise what an operator has set against any release since it was asked for."""
    objection = hand.objection(product, state.update, forced)
    if objection is not None:
        raise codes.error_of(objection)


def may_reuse(facts: checks.Facts, entry: records.SlotRecord) -> bool:
    """Whether a slot's own record is enough to go to it; raises the policy's refusal."""
    if not entry.channel:
        return False
    refusal = checks.check_offer(facts, checks.Offer(entry.sequence, entry.channel))
    if refusal is not None:
        raise codes.error_of(refusal)
    return True


def installing(setup: own.Setup, state: settle.State, record: records.SlotRecord) -> None:
    """Refuse a program that setup would install where the policy would not take it; what runs already is no question."""
    current = state.slots.get(state.current or "")
    running = current.version if current is not None else None
    if current is not None and (running, current.sha256) == (record.version, record.sha256):
        return
    target = checks.Target(setup.product.name, record.version, "", record.sha256, "")
    facts = facts_of(setup, state, target, running, forced=not state.in_use)  # windows are for what runs already
    if running is None:  # nothing known is replaced; what runs all the same is, and on hold that is no update either
        enabled = facts.policy.enabled or not state.in_use
        facts = facts._replace(policy=facts.policy._replace(enabled=enabled, same_major=False, strict_sequence=False))
    refusal = checks.check_policy(facts)
    if refusal is None and record.channel:
        refusal = checks.check_offer(facts, checks.Offer(record.sequence, record.channel))
    if refusal is not None:
        raise codes.error_of(refusal)
