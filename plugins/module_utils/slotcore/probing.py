# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of probes in, a decision out (products.md, section 5; field cases H1, H2, H3, H5, W15).

Rules:
- A round counts only once the new release is proven to be what runs, as one process, for the settle time. Until then
  nothing passes and nothing fails.
- Required probes that were green before the swap decide. What was red then counts as wanted: told, and without a say.
- A probe may say that it is too early to say. A round in which nothing else is wrong with what decides neither passes nor
  fails: a time that has to pass first is no failure, however often it is looked at meanwhile.
- One failed round decides nothing. So many in a row go back; so does going from passing to failing so many times, unless
  a long stretch of passing rounds lies between.
- Rounds that pass count in a row for one main process, and without a gap: each is looked at when it ends, and none that is
  older than two intervals counts for anything.
- Confirming needs the last round to have passed, be fresh, and the health window to be over.
- What was counted is never read from disk: whoever starts anew, as after a reboot, counts anew.
"""

from __future__ import annotations

import enum
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

from . import codes
from . import product as products

SOURCE = "probe"
"""The source that probes confirm as."""
FRESH_INTERVALS = 2
MAX_WHY = 300


class Seen(NamedTuple):
    """What one probe said in one round."""

    name: str
    ok: Optional[bool]
    """None: too early to say."""
    why: str = ""
    """What was seen, in a few words; of a probe that failed, what was expected too."""


class Round(NamedTuple):
    """One look at everything; times are seconds of /proc/uptime (I10)."""

    began_s: float
    ended_s: float
    seen: Tuple[Seen, ...] = ()
    main_pid: int = 0
    waits_for: str = ""
    """Why this round cannot count yet; "" when what runs is proven."""


class Rules(NamedTuple):
    """How rounds decide, for one trial."""

    confirming: products.Confirming
    deciding: Tuple[str, ...] = ()
    """The probes without which no round passes."""
    window_s: int = 0
    began_s: float = 0.0
    """When the trial began in this boot."""


class Count(NamedTuple):
    """What the rounds so far add up to."""

    rounds: int = 0
    passes: int = 0
    """Rounds in a row that passed."""
    failures: int = 0
    """Rounds in a row that failed."""
    changes: int = 0
    """How often a round failed right after one that had passed."""
    passed: Optional[bool] = None
    """Whether the last round that counted passed."""
    main_pid: int = 0
    ended_s: float = 0.0
    waits_for: str = ""
    failed: Tuple[Seen, ...] = ()
    """The deciding probes that failed in the last round that did not pass."""


class Verdict(enum.Enum):
    """What to do now."""

    WAIT = "wait"
    CONFIRM = "confirm"
    GO_BACK = "go-back"


class Decision(NamedTuple):
    """The verdict, its code, and the sentence that says why."""

    verdict: Verdict
    code: str
    why: str


def deciding(probes: Sequence[products.Probe], baseline: Mapping[str, bool]) -> Tuple[str, ...]:
    """The required probes, without those that were red before the swap; one that was not looked at then decides."""
    return tuple(probe.name for probe in probes if probe.required and baseline.get(probe.name, True))


def failed(rules: Rules, found: Round) -> Tuple[Seen, ...]:
    """The deciding probes that did not pass in a round, in the order of the configuration."""
    said = {seen.name: seen for seen in found.seen}
    looked = (said.get(name, Seen(name, False, "it was not looked at")) for name in rules.deciding)
    return tuple(seen for seen in looked if not seen.ok)


def is_fresh(rules: Rules, then_s: float, now_s: float) -> bool:
    """Whether what was seen then still says something now."""
    return now_s - then_s <= FRESH_INTERVALS * rules.confirming.interval_s


def count(rules: Rules, before: Count, found: Round) -> Count:
    """The count with one more round."""
    if found.waits_for:
        return before._replace(waits_for=found.waits_for)
    how, wrong = rules.confirming, failed(rules, found)
    if wrong and all(seen.ok is None for seen in wrong):
        return before._replace(waits_for=named(wrong))
    after = before._replace(
        rounds=before.rounds + 1, passed=not wrong, main_pid=found.main_pid, ended_s=found.ended_s, waits_for=""
    )
    if wrong:
        changes = before.changes + (1 if before.passed else 0)
        return after._replace(passes=0, failures=before.failures + 1, changes=changes, failed=wrong)
    in_a_row = before.main_pid == found.main_pid and is_fresh(rules, before.ended_s, found.began_s)
    passes = before.passes + 1 if in_a_row else 1
    forgiven = passes >= how.passes * how.failures
    return after._replace(passes=passes, failures=0, changes=0 if forgiven else before.changes)


def named(wrong: Sequence[Seen]) -> str:
    """Which probes failed and why, in one line."""
    return "; ".join(f"{seen.name}: {seen.why or 'it failed'}" for seen in wrong)[: 4 * MAX_WHY]


def _rounds(number: int) -> str:
    return "a round of probes" if number == 1 else f"{number} rounds of probes in a row"


def _gone_wrong(rules: Rules, found: Count) -> Optional[Decision]:
    how = rules.confirming
    if found.failures >= how.failures:
        why = f"{_rounds(found.failures)} failed: {named(found.failed)}"
        return Decision(Verdict.GO_BACK, codes.PROBE_FAILED, why)
    if found.changes >= how.failures:
        why = f"probes went from passing to failing {found.changes} times; the last time {named(found.failed)}"
        return Decision(Verdict.GO_BACK, codes.PROBE_FLAPPING, why)
    return None


def _not_yet(rules: Rules, found: Count, now_s: float) -> str:
    """Why nothing is confirmed yet; "" when nothing is missing."""
    how = rules.confirming
    if found.waits_for:
        return found.waits_for
    if found.passed is None:
        return "no round of probes has counted yet"
    if not found.passed:
        return f"{found.failures} of {how.failures} rounds in a row failed: {named(found.failed)}"
    if found.passes < how.passes:
        return f"{found.passes} of {how.passes} rounds in a row passed"
    if now_s - rules.began_s < rules.window_s:
        return f"healthy, {int(now_s - rules.began_s)} s of {rules.window_s} s since the trial began"
    if not is_fresh(rules, found.ended_s, now_s):
        return f"the last round is {int(now_s - found.ended_s)} s old: it is looked at again"
    return ""


def decide(rules: Rules, found: Count, now_s: float) -> Decision:
    """What to do about the trial after a round."""
    wrong = _gone_wrong(rules, found)
    if wrong is not None:
        return wrong
    waits_for = _not_yet(rules, found, now_s)
    if waits_for:
        return Decision(Verdict.WAIT, codes.TRIAL_PENDING, waits_for)
    said = f"{_rounds(found.passes)} passed"
    return Decision(Verdict.CONFIRM, codes.OK, said if rules.deciding else f"{said}, none of which decides")


def decide_after(rules: Rules, found: Count, now_s: float, most_s: int) -> Decision:
    """What to say of the old version after going back, `most_s` after that at the latest (field case H6).

    CONFIRM: it is healthy. GO_BACK: going back has not helped; there is nowhere to go from there.
    """
    wrong = _gone_wrong(rules, found)
    if wrong is not None:
        return wrong
    waits_for = _not_yet(rules, found, now_s)
    if not waits_for:
        return Decision(Verdict.CONFIRM, codes.OK, f"{_rounds(found.passes)} passed")
    if now_s - rules.began_s >= most_s:
        return Decision(Verdict.GO_BACK, codes.PROBE_FAILED, f"not healthy within {most_s} s: {waits_for}")
    return Decision(Verdict.WAIT, codes.TRIAL_PENDING, waits_for)
