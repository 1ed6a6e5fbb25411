# SPDX-License-Identifier: GPL-3.0-or-later
"""A release that is asked for by version alone, or taken by its digest (products.md, section 8).

Rules:
- Nothing is fetched before the host's policy has said yes; addresses come from root's template and the version alone.
- A manifest is believed by its signatures, wherever it was found; each place is asked in turn, and one whose manifest
  is not to be taken is passed over (field case N15).
- The notice of a withdrawal beside the manifest counts by its signatures as if somebody had applied it; one that cannot be
  fetched or believed is told and stops nothing (N2).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Optional, Tuple, Union

from slotcore import checks, codes, documents, manifest, settle, signatures, sourcing, trust, trust_record
from slotward import audit, download_rules, fetch, gate, own, prepare, progress_file

if TYPE_CHECKING:
    import argparse

IDLE_S = 10.0
NOTICE_S = 10.0


def target_of(setup: own.Setup, args: argparse.Namespace) -> checks.Target:
    """What a command line asks for: by a file, or by a version that the product's source knows; raises Refused."""
    if args.version is not None:
        return asked(setup, args)
    if args.channel is not None or args.variant is not None:
        text = "--channel and --variant go with --version; a target file says them itself"
        raise codes.refused(codes.BAD_TARGET, text)
    return prepare.read_target(args.target)


def file_of(setup: own.Setup, prepared: prepare.Prepared) -> Tuple[str, str]:
    """The name of what is fetched, and the address that the product's source or the target gives it."""
    name = prepared.name or file_name(setup, prepared.target)
    known = fetch.sources_of(setup, prepared.target, name)[-1] if setup.product.source else prepared.target.url
    return name, known


def asked(setup: own.Setup, args: argparse.Namespace) -> checks.Target:
    """What a command line with `--version` asks for; raises Refused `bad-target`."""
    product = setup.product
    if product.source is None:
        text = f"{product.name} has no [source] url, so a version alone does not say where it is: give --target FILE"
        raise codes.refused(codes.BAD_TARGET, text)
    problem = sourcing.variant_problem(args.variant or "")
    if args.channel is not None and manifest.CHANNEL.fullmatch(args.channel) is None:
        problem = f"a channel is {manifest.CHANNEL_RULE}, not {ascii(args.channel)[:80]}"
    if problem:
        raise codes.refused(codes.BAD_TARGET, problem)
    return checks.Target(product.name, args.version, "", "", "", args.channel, args.variant or None)


def file_name(setup: own.Setup, target: checks.Target) -> str:
    """The name of the target's file where no manifest has said it."""
    variant = target.variant or setup.product.variant or None
    return checks.artifact_name(target.product, target.version, gate.platform_of(setup.product), variant)


def _transport(setup: own.Setup, budget_s: float) -> download_rules.Transport:
    return fetch.transport_of(setup)._replace(budget_s=budget_s, idle_timeout_s=IDLE_S)


def resolved(setup: own.Setup, state: settle.State, facts: checks.Facts, noting: bool) -> checks.Facts:
    """The facts with the target whole, from the manifest of the version that is asked for, and with what was withdrawn.

    `noting`: the lock is held, so a notice of a withdrawal is kept.
    """
    product, version = setup.product, facts.target.version
    if product.source is None:
        raise AssertionError("only a product with a source is asked for by version")
    bases = sourcing.places(product.source, product.name, version, product.mirrors)
    problems: List[Exception] = []
    for number, base in enumerate(bases, 1):
        try:
            found = _from(setup, facts, base, last=number == len(bases))
        except (codes.Refused, codes.Retryable) as error:
            problems.append(error)
            continue
        for problem in problems:
            audit.warn(f"the release is taken from another place: {problem}")
        return found._replace(trust=_with_notice(setup, state, found, base, noting))
    raise problems[-1]


def _from(setup: own.Setup, facts: checks.Facts, base: str, last: bool) -> checks.Facts:
    """The facts with what one place says of the release, when that may be taken."""
    from slotward import download_small

    transport = _transport(setup, sourcing.METADATA_S)
    attempts = download_small.ATTEMPTS if last else 1
    url = f"{base}/{sourcing.MANIFEST}"
    published = download_small.fetch(url, manifest.MAX_PUBLISHED, transport, attempts, progress_file.waits)
    verified = signatures.verify_release(published, facts.pins, facts.threshold)
    if isinstance(verified, codes.Refusal):
        raise codes.refused(verified.code, f"{sourcing.shown(url)}: {verified.text}")
    body = verified.manifest
    chosen = sourcing.choose(body, facts.platform, facts.variant, tuple(reversed(facts.kinds)))
    named = (body.product, body.version) == (facts.product, facts.target.version)
    if isinstance(chosen, codes.Refusal) and named:
        raise codes.Refused(chosen)
    sha256 = "0" * 64 if isinstance(chosen, codes.Refusal) else chosen.sha256
    found = facts._replace(target=facts.target._replace(sha256=sha256, signature=published.decode("utf-8")))
    refusal = checks.check(found)
    if not last and isinstance(refusal, codes.Refusal):
        raise codes.refused(refusal.code, f"{sourcing.shown(url)}: {refusal.text}")
    return found


def _with_notice(
    setup: own.Setup, state: settle.State, facts: checks.Facts, base: str, noting: bool
) -> trust_record.Trust:
    """The record of trust with the notice that lies beside the manifest, if one does."""
    from slotward import download_small

    url = f"{base}/{sourcing.WITHDRAWN}"
    try:
        published = download_small.fetch(url, manifest.MAX_PUBLISHED, _transport(setup, NOTICE_S), attempts=1)
    except codes.Refused:
        return facts.trust  # the usual answer: there is none
    except codes.Retryable as error:
        audit.warn(f"cannot say whether {facts.product} {facts.target.version} was withdrawn: {error.text}")
        return facts.trust
    step = _step(setup, state, facts, published)
    if isinstance(step, codes.Refusal):
        if step.code == codes.RECORD_FULL:
            raise codes.Refused(step)
        audit.warn(f"{sourcing.shown(url)} does not count: {step.text}")
        return facts.trust
    if step.event and noting:
        from slotward import cmd_trust

        cmd_trust.take(setup.product, state, step)
    return step.trust


def _step(
    setup: own.Setup, state: settle.State, facts: checks.Facts, published: bytes
) -> Union[trust.Step, codes.Refusal]:
    try:
        if documents.kind_of(manifest.parse_published(published).body) is not documents.WITHDRAWAL:
            return codes.Refusal(codes.BAD_DOCUMENT, "it is no notice of a withdrawal")
    except documents.BadDocument as error:
        return codes.Refusal(codes.BAD_DOCUMENT, f"it is malformed: {error}")
    known = gate.documents_facts(setup, state, facts.server_s)
    found = trust.apply(known, facts.trust, [(sourcing.WITHDRAWN, published)])
    return found if isinstance(found, codes.Refusal) else found[0]


def size_of(setup: own.Setup, target: checks.Target, src: Optional[str]) -> int:
    """The size of a release that is taken by its digest: of the file that was pushed, else as its places say."""
    if src:
        descriptor = fetch.pushed(src)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    from slotward import download_probe

    urls = fetch.sources_of(setup, target)
    if not urls:
        return 0  # still to be pushed: then its size is known
    problems: List[Exception] = []
    for url in urls:
        try:
            return download_probe.size_of(url, _transport(setup, sourcing.METADATA_S))
        except (codes.Refused, codes.Retryable) as error:
            problems.append(error)
    raise problems[-1]
