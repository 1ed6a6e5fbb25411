# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare: every check of a target, before anything is downloaded or changed (DESIGN 6; seed 000 "Prepare and download").

Rules:
- Changes nothing; an upgrade, a dry run and check mode get the same answer from it.
- A broken record or configuration refuses; a trial or another update in flight says "later".
- Already there, by digest, is no work, whatever names say (field case S14).
- A slot that holds the target's bytes, re-read, above the floor, needs no manifest and no download; the policy is
  asked all the same (`gate`).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple, Optional, Tuple

from slotcore import checks, codes, ops, plans, records, settle, trust_record
from slotcore import manifest as manifests
from slotcore import product as products
from slotward import audit, build_info, builds, gate, hooks, host, manager, own, placing

if TYPE_CHECKING:
    from slotcore import listings


class Prepared(NamedTuple):
    """What an upgrade to the target would do."""

    target: checks.Target
    seen: manager.Look
    from_version: str
    record: records.SlotRecord
    newest_issued: int
    there: bool = False
    """The target is what runs: nothing to do."""
    reuse: bool = False
    """The other slot holds the target's bytes."""
    staged: bool = False
    """The staging directory holds them: an earlier run fetched and verified them."""
    adopt: bool = False
    """A plain file at the entrypoint is taken into a slot first."""
    permit: Optional[trust_record.Allowed] = None
    """What lets it below the floor, when it needs that."""
    kind: str = ops.BINARY
    name: str = ""
    """The artifact's own name; "" when no manifest was asked for."""
    kept: Optional[listings.Listing] = None
    """The listing of a tree that holds the target's bytes already."""

    @property
    def here(self) -> bool:
        """Whether the slots directory holds the target's bytes, and proves it."""
        return self.reuse or self.kept is not None


def read_target(path: str) -> checks.Target:
    """The target file, or standard input for `-`; raises Refused `bad-target` or `cannot-read`."""
    return checks.parse_target(read_target_bytes(path))


def read_target_bytes(path: str) -> bytes:
    """Its bytes, at most one more than a target may have; raises Refused `cannot-read`."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(checks.MAX_TARGET + 1)
        else:
            data = host.read_bytes(path, checks.MAX_TARGET) or b""
            if not data:
                raise codes.refused(codes.CANNOT_READ, f"the target file {path} is missing or empty")
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, f"cannot read the target file {path}: {error.strerror}") from error
    return data


def read_document(path: str) -> bytes:
    """A published document; raises Refused `cannot-read`. Nobody waits for what is no plain file."""
    try:
        with open(host.open_named(path), "rb") as file:
            return file.read(manifests.MAX_PUBLISHED + 1)
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, f"cannot read {path}: {error.strerror}") from error


def read_whole_document(path: str) -> bytes:
    """As `read_document`, for who hands it on as it is; raises Refused `bad-document` for what is longer than any."""
    data = read_document(path)
    if len(data) > manifests.MAX_PUBLISHED:
        raise codes.refused(codes.BAD_DOCUMENT, f"{path} has more than {manifests.MAX_PUBLISHED} bytes")
    return data


def digest_of(path: str) -> str:
    """SHA-256 of a file's bytes."""
    with open(host.open_named(path), "rb") as file:
        return host.sha256_of(file)


def open_program(product: products.Product, path: str) -> Tuple[int, records.SlotRecord]:
    """A descriptor of a program (a link at the entrypoint is followed), and what it says it is, asked by the name given."""
    from slotward import adoption

    descriptor = adoption.open_adoptable(os.path.realpath(path) if path == product.entrypoint else path)
    here = f"/proc/self/fd/{descriptor}"
    version, sequence = said_of(product, here, path)
    return descriptor, records.SlotRecord(version, sequence, digest_of(here), os.fstat(descriptor).st_size)


def record_of(release: manifests.Manifest, sha256: str, size: int) -> records.SlotRecord:
    """What a slot's record says of a release's bytes."""
    lasting = (release.expires_at, release.channel, release.epoch)
    return records.SlotRecord(release.version, release.sequence, sha256, size, *lasting)


def said_of(product: products.Product, content: str, path: str) -> Tuple[str, int]:
    """Version and sequence of a program: what a build of the agent carries, or what another daemon answers when asked."""
    if product.name == build_info.NAME:
        return builds.built_in(content)
    if product.layout == products.VERSIONS and placing.is_archive(content):
        return "unknown", 0  # what is in it is not run before it is unpacked
    from slotward import program_facts  # only another daemon's program is run to know it

    return program_facts.version_of(product, path) or "unknown", 0


def running_version(product: products.Product, state: settle.State) -> Tuple[Optional[str], Optional[str]]:
    """Version and digest of what starts today; None where nobody knows."""
    if state.in_use and state.entrypoint == "ours":
        entry = state.slots.get(state.current or "")
        return (entry.version, entry.sha256) if entry is not None else (None, None)
    if state.entrypoint == "file":
        version, _sequence = said_of(product, product.entrypoint, product.entrypoint)
        return (None if version == "unknown" else version), digest_of(product.entrypoint)
    return (build_info.VERSION if product.name == build_info.NAME else None), None


def quiet(product: products.Product, seen: manager.Look) -> None:
    """No record is broken and nothing is in flight, or a refusal says what is."""
    if seen.state.broken is not None:
        raise codes.BrokenRecord(*seen.state.broken)
    audit.check(product)
    in_flight(product, seen)


def in_flight(product: products.Product, seen: manager.Look) -> None:
    """Nothing is in flight, or a refusal says what is."""
    action, reason, _trial = seen.settlement
    pending = seen.settlement.on_trial
    if pending is not None:
        left = settle.left_s(pending, seen.clock)
        raise codes.Retryable(
            codes.TRIAL_PENDING,
            f"an update is already in progress: trial {pending.trial_id} of {product.name} {pending.to_version}, "
            f"{left} s of {pending.length_s} s left; it must end first",
        )
    if action is not settle.Action.NONE:
        raise codes.Retryable(
            codes.TRIAL_PENDING,
            f"an earlier update is not settled yet ({action.value}, {reason}): run `slotward update`",
        )


def held_by(
    product: products.Product, state: settle.State, target: checks.Target, floor: int, by_digest: bool = False
) -> Optional[records.SlotRecord]:
    """The free slot's record, when that slot holds the target's very bytes: by the record and by reading them again."""
    if not state.in_use or state.entrypoint != "ours":
        return None
    slot = plans.free_slot(state)
    entry = state.slots.get(slot)
    if entry is None or not (by_digest or entry.sequence >= max(floor, 1)):
        return None
    if (entry.version, entry.sha256) != (target.version, target.sha256):
        return None
    from slotward import slots

    held = slots.held(product, slot)
    return entry if held is not None and held.sha256 == entry.sha256 else None


class Consent(NamedTuple):
    """What whoever asks agrees to and brings: to adopt a file, to start a unit, to change data for good; a time, a permit."""

    adopt: bool = False
    start: bool = False
    server_s: int = 0
    permit: Optional[bytes] = None
    starting: bool = False
    """The unit is down for this alone: a start of it waits for whoever asks."""
    one_way: bool = False
    force: bool = False
    """An operator passes over windows, freezes and the workload's veto; a hold nobody passes."""
    noting: bool = False
    """The lock is held: a notice of a withdrawal that lies beside the release is kept."""


def _checked(setup: own.Setup, seen: manager.Look, target: checks.Target, consent: Consent) -> Prepared:
    """What the target is to this host by its records and by the release's own checks; raises the first refusal."""
    product = setup.product
    running, digest = running_version(product, seen.state)
    base = Prepared(
        target=target,
        seen=seen,
        from_version=running or "unknown",
        record=records.SlotRecord(target.version, 0, target.sha256, 0),
        newest_issued=0,
        there=digest is not None and digest == target.sha256 and running == target.version,
    )
    if base.there:
        return base
    facts = gate.facts_of(setup, seen.state, target, running, consent.server_s, consent.force)
    if product.source is not None or facts.by_digest:
        from slotward import by_version

        return by_version.checked(setup, facts, consent, base, digest or "")
    refusal = checks.check_before_manifest(facts)
    if refusal is not None:
        raise codes.error_of(refusal)
    return by_manifest(setup, facts, consent, base)


def by_manifest(setup: own.Setup, facts: checks.Facts, consent: Consent, base: Prepared) -> Prepared:
    """What the other slot holds, or what a signed manifest lets in."""
    product, seen, target = setup.product, base.seen, facts.target
    held = held_by(product, seen.state, target, facts.floor)
    if held is not None and gate.may_reuse(facts, held):
        return base._replace(record=held, reuse=True)
    found = checks.check(gate.with_permit(setup, seen.state, facts, consent.permit))
    if isinstance(found, codes.Refusal):
        raise codes.Refused(found)
    manifest, artifact = found.manifest, found.artifact
    record = record_of(manifest, artifact.sha256, artifact.size)
    return base._replace(
        record=record,
        newest_issued=manifest.issued_at,
        permit=found.permit,
        kind=artifact.kind,
        name=artifact.name,
        kept=placing.tree_of(product, seen.state, record),
    )


def prepare(setup: own.Setup, target: checks.Target, consent: Consent, src: Optional[str] = None) -> Prepared:
    """All checks of `target` on this host; raises the first refusal."""
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    product = setup.product
    seen = manager.look(product)
    quiet(product, seen)
    prepared = judged(setup, seen, target, consent)
    if prepared.there:
        return prepared
    from slotward import lookahead, reversing

    if not (prepared.record.size or prepared.here):  # by digest: no manifest has said it
        from slotward import by_version

        prepared = by_version.sized(setup, prepared, src)
    reversing.demand(product, seen.state, prepared.record, prepared.from_version, consent.one_way)
    known = src or prepared.here or prepared.staged
    url = None if known else target.url or None  # no address: the file is still to be pushed, or its source knows
    adopt_size = os.stat(product.entrypoint).st_size if prepared.adopt else 0
    size = 0 if prepared.here else prepared.record.size
    lookahead.check(setup, size, adopt_size, url, consent.start, consent.starting)
    hooks.veto(product, prepared.from_version, target.version, consent.force)
    return prepared


def judged(setup: own.Setup, seen: manager.Look, target: checks.Target, consent: Consent) -> Prepared:
    """What needs neither root nor systemd: the release's own checks, the entrypoint, and what is staged already."""
    prepared = _checked(setup, seen, target, consent)
    if prepared.there:
        return prepared
    from slotward import adoption

    must_adopt = adoption.is_due(setup.product, seen.state, consent.adopt)
    return prepared._replace(adopt=must_adopt, staged=not prepared.here and is_staged(setup, prepared.record))


def is_staged(setup: own.Setup, record: records.SlotRecord) -> bool:
    """Whether an earlier run left exactly these bytes in the staging directory."""
    from slotward import staging

    directory, name = os.path.split(staged_path(setup, record.version))
    try:
        descriptor = staging.open_staged(directory, name)
    except (OSError, codes.Refused):
        return False
    try:
        same_size = record.size in (0, os.fstat(descriptor).st_size)  # 0: by digest, where nobody has said it
        return same_size and digest_of(f"/proc/self/fd/{descriptor}") == record.sha256
    finally:
        os.close(descriptor)


def staged_path(setup: own.Setup, version: str) -> str:
    """Where a release's bytes wait between stage and swap, for whoever this process is."""
    return os.path.join(setup.staging, f"{setup.product.name}-{version}")
