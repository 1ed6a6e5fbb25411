# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kept release an operator goes back to after a confirmation, and why not (products.md, section 7).

Rules:
- `previous` is the release before the one that runs: kept here, older, and not one that failed. A newer one that lies in
  the other slot, because it failed or was gone back from, is no previous one: asked twice, nobody goes forward again (I9).
- Older is told by the sequence; where neither release has one, by the version.
- The release floor is the only limit of how far; the configuration's rows about updates are not asked, since nobody
  offers anything. What was withdrawn, or failed here, is refused as ever.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple, Union

from . import codes, records, semver
from . import product as products
from . import settle as settles

PREVIOUS = "previous"
_NO_VERSION: semver.Precedence = (0, 0, 0, False, ())


class Kept(NamedTuple):
    """A release whose bytes are on this host; `slot` is "" for a tree that no slot names."""

    record: records.SlotRecord
    slot: str = ""


class Already(NamedTuple):
    """Nothing is to be done, and why."""

    text: str


Choice = Union[Kept, Already, codes.Refusal]


def kept_in_slots(state: settles.State) -> Sequence[Kept]:
    """What the slots hold beside what runs."""
    return tuple(
        Kept(state.slots[slot], slot) for slot in products.SLOTS if slot != state.current and slot in state.slots
    )


def is_older(record: records.SlotRecord, running: records.SlotRecord) -> bool:
    """Whether going to it is going back."""
    if record.sequence or running.sequence:
        return record.sequence < running.sequence
    return semver.is_older(record.version, running.version)


def choose(
    product: products.Product,
    state: settles.State,
    kept: Sequence[Kept],
    wanted: str,
    floor: int,
    way_out: str,
) -> Choice:
    """The release to go back to; nothing to do; or a refusal. `way_out` says what opens the way below the floor."""
    running = state.slots.get(state.current or "")
    if running is None:
        return codes.Refusal(codes.NOT_KEPT, f"nobody knows what {product.name} runs, so nothing is before it")
    if wanted == running.version:
        return Already(f"{product.name} {wanted} is what runs: nothing to do")
    found = _previous(product, state, kept, running) if wanted == PREVIOUS else _named(product, kept, running, wanted)
    if not isinstance(found, Kept):
        return found
    return _objection(product, state, found.record, floor, way_out) or found


def _previous(
    product: products.Product, state: settles.State, kept: Sequence[Kept], running: records.SlotRecord
) -> Choice:
    older = [one for one in kept if is_older(one.record, running)]
    well = [one for one in older if state.update.failure_of(one.record.version) is None]
    last = state.update.last
    confirmed = last is not None and (last.state, last.to_version) == ("confirmed", running.version)
    before = last.from_version if last is not None and confirmed else None
    for one in well:
        if one.record.version == before:
            return one
    if well:
        return max(well, key=_rank)
    gone_back = any(one.record.version == before for one in kept)
    if gone_back and not older:
        return Already(f"{product.name} went back from {before} to {running.version} already: nothing to do")
    return codes.Refusal(codes.NOT_KEPT, f"no release before {running.version} is kept here{_shown(kept)}")


def _rank(one: Kept) -> Tuple[int, bool, semver.Precedence]:
    version = semver.parse(one.record.version)
    return one.record.sequence, version is not None, version.precedence if version is not None else _NO_VERSION


def _named(product: products.Product, kept: Sequence[Kept], running: records.SlotRecord, wanted: str) -> Choice:
    for one in kept:
        if one.record.version != wanted:
            continue
        if is_older(one.record, running):
            return one
        text = f"{product.name} {wanted} is not older than the running {running.version}: going there is an upgrade"
        return codes.Refusal(codes.NOT_KEPT, text)
    return codes.Refusal(codes.NOT_KEPT, f"{product.name} {wanted} is not kept here{_shown(kept)}")


def _shown(kept: Sequence[Kept]) -> str:
    versions = ", ".join(sorted({one.record.version for one in kept}))
    return f"; what is kept beside what runs: {versions or 'nothing'}"


def _objection(
    product: products.Product, state: settles.State, record: records.SlotRecord, floor: int, way_out: str
) -> Optional[codes.Refusal]:
    """Why the product does not go to this kept release, or nothing."""
    failure = state.update.failure_of(record.version)
    if failure is not None:
        return codes.Refusal(codes.FAILED_BEFORE, f"{product.name} {record.version} failed here: {failure.why}")
    withdrawn = state.trust.withdrawal_of(record.version, record.sequence) if state.trust is not None else None
    if withdrawn is not None:
        text = f"{product.name} {record.version}, sequence {record.sequence}, was withdrawn: {withdrawn.why}"
        return codes.Refusal(codes.WITHDRAWN, text)
    if record.sequence < floor:
        text = (
            f"release sequence {record.sequence} of {product.name} {record.version} is below the release floor {floor}"
        )
        return codes.Refusal(codes.BELOW_FLOOR, f"{text}: {way_out}")
    return None
