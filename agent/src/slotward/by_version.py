# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare's checks of what is asked for by version alone, or taken by its digest (products.md, section 8).

Rules:
- The host's policy says yes before anything is fetched, and a target's own address never counts where there is a source.
- The version that runs, asked for by version, is no work and no question to the network; a manifest that names the
  bytes that run is none either (field case S14).
- By digest, what the other slot or the staging directory holds is told by its bytes; the size is learned, not believed.
"""

from __future__ import annotations

import os
from typing import Optional

from slotcore import checks, codes, filling, records, taking
from slotward import own, placing, prepare, sourced


def checked(
    setup: own.Setup, facts: checks.Facts, consent: prepare.Consent, base: prepare.Prepared, digest: str
) -> prepare.Prepared:
    """What is asked for to this host, whose running bytes have that digest; raises the first refusal."""
    target, product, state = facts.target, setup.product, base.seen.state
    by_version = product.source is not None and not target.sha256 and not facts.by_digest
    if by_version and digest and not target.variant and facts.running_version == target.version:
        return base._replace(there=True, record=base.record._replace(sha256=digest))
    check = (
        taking.check_asked if by_version else taking.check_digest if facts.by_digest else checks.check_before_manifest
    )
    refusal = check(facts)
    if refusal is not None:
        raise codes.error_of(refusal)
    if product.source is not None and target.url:
        text = f"the target names an address, and [source] of {product.name} decides where its releases come from: leave url empty"
        raise codes.refused(codes.SOURCE_DECIDES, text)
    if facts.by_digest:
        held = prepare.held_by(product, state, target, 0, by_digest=True)
        record = held or records.SlotRecord(target.version, 0, target.sha256, 0, 0, target.channel or "")
        return base._replace(record=record, reuse=held is not None)
    if by_version:
        facts = sourced.resolved(setup, state, facts, consent.noting)
        base = base._replace(target=facts.target, there=digest == facts.target.sha256)
    return base if base.there else prepare.by_manifest(setup, facts, consent, base)


def sized(setup: own.Setup, prepared: prepare.Prepared, src: Optional[str]) -> prepare.Prepared:
    """With the size of what is taken by its digest; raises Refused `artifact-too-large`."""
    staged = prepare.staged_path(setup, prepared.record.version) if prepared.staged else None
    size = sourced.size_of(setup, prepared.target, staged or src)
    if size > checks.MAX_ARTIFACT:
        text = f"the binary is {size} bytes; at most {checks.MAX_ARTIFACT} are taken"
        raise codes.refused(codes.ARTIFACT_TOO_LARGE, text)
    record = prepared.record._replace(size=size)
    kept = placing.tree_of(setup.product, prepared.seen.state, record)
    return prepared._replace(record=record, kept=kept, staged=prepared.staged and kept is None)


def kind_of(descriptor: int) -> str:
    """The kind of an artifact that no manifest names, by its first bytes: a compressed archive, or a program."""
    return filling.kind_by(os.pread(descriptor, filling.HEAD, 0))
