# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the release that runs to the one that is wanted, by way of stepping stones (`minFrom`).

Rules:

* A release takes over from a version that is its `minFrom` or later; without one, from any.
* Sequences grow on the way, and the first is not below the host's floor.
* The way has as few steps as there can be; of ways of one length, the one over newer releases.
* This plans only: each host checks each release of the way itself.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import codes, semver


class Step(NamedTuple):
    """A release as far as the way matters."""

    version: str
    sequence: int
    min_from: Optional[str] = None


Way = Tuple[Step, ...]


def takes_over(step: Step, running: str) -> bool:
    """Whether the release may follow directly on the version that runs; a version that is none satisfies no `minFrom`."""
    if step.min_from is None:
        return True
    least, known = semver.parse(step.min_from), semver.parse(running)
    return least is not None and known is not None and not semver.older(known, least)


def plan(running: str, floor: int, wanted: Step, known: Sequence[Step]) -> Union[Way, codes.Refusal]:
    """The releases to go through, `wanted` last, or why there is no way over the `known` ones.

    `floor` is the lowest sequence that the host takes; what runs there is at or above it.
    """
    if takes_over(wanted, running):
        return (wanted,)
    stones = sorted(
        {one for one in known if floor <= one.sequence < wanted.sequence and one.version != running},
        key=lambda one: one.sequence,
        reverse=True,
    )
    ways: List[Way] = [(one,) for one in stones if takes_over(one, running)]
    reached: Dict[Step, None] = dict.fromkeys(way[-1] for way in ways)
    while ways:
        for way in ways:
            if takes_over(wanted, way[-1].version):
                return (*way, wanted)
        longer: List[Way] = []
        for way in ways:
            for one in stones:
                if one not in reached and one.sequence > way[-1].sequence and takes_over(one, way[-1].version):
                    reached[one] = None
                    longer.append((*way, one))
        ways = longer
    return codes.Refusal(codes.BELOW_MIN_FROM, _no_way(running, wanted, stones))


def _no_way(running: str, wanted: Step, stones: Sequence[Step]) -> str:
    text = "%s takes over from %s or later, not from %s, and %s; publish a release in between beside it"
    if not stones:
        found = "no release in between is known"
    else:
        found = "none of the releases in between leads there: " + ", ".join(
            "%s (from %s on)" % (one.version, one.min_from or "any version") for one in stones[:8]
        )
    return text % (wanted.version, wanted.min_from, running, found)
