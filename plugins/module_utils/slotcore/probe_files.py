# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files of probing: `baseline.json`, what was green before the swap, and `probes.json`, for people to read.

Rules:
- Neither is a record. Lost, torn, odd, or of another trial, a baseline is none: then every required probe decides.
- `probes.json` decides nothing at all, and is shown only when it has exactly its fields.
- Both are bounded: so many probes, and so much that each may say.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence

from . import codes, probing, records
from . import product as products

BASELINE = "baseline.json"
REPORT = "probes.json"
MAX_BYTES = 64 * 1024
MAX_PROBES = 32

TRIAL, AFTER = "trial", "after"
WAIT, CONFIRMED, GONE_BACK, ENDED = "wait", "confirmed", "gone-back", "ended"
HEALTHY, UNHEALTHY, UNKNOWN = "healthy", "unhealthy", "unknown"
VERDICTS = {TRIAL: (WAIT, CONFIRMED, GONE_BACK, ENDED), AFTER: (WAIT, HEALTHY, UNHEALTHY, UNKNOWN)}

_COUNTS = ("rounds", "passes", "failures", "changes")
_FIELDS = ("trial", "phase", "verdict", "code", "why", "at", "needed", "probes", *_COUNTS)
_PROBE = ("name", "kind", "need", "decides", "baseline", "ok", "why")


class Baseline(NamedTuple):
    """What the probes said just before the swap of one trial."""

    trial_id: str
    boot_id: str
    monotonic_us: int
    """When, as the journal counts within a boot."""
    at: int
    seen: Mapping[str, probing.Seen]
    invocation: str = ""
    """Which run of the unit that was."""

    def green(self) -> Dict[str, bool]:
        """Whether each probe passed, by name."""
        return {name: seen.ok for name, seen in self.seen.items() if seen.ok is not None}


class Report(NamedTuple):
    """Where probing stands, for status."""

    trial_id: str
    phase: str
    verdict: str
    code: str
    why: str
    at: int


def render_baseline(baseline: Baseline) -> bytes:
    """The bytes of `baseline.json`."""
    seen = [one._asdict() for one in baseline.seen.values()]
    value: Dict[str, Any] = {
        "spec": records.SPEC,
        "trial": baseline.trial_id,
        "boot_id": baseline.boot_id,
        "probes": seen,
    }
    value.update(monotonic_us=baseline.monotonic_us, at=baseline.at, invocation=baseline.invocation)
    return records.dump(value)


def parse_baseline(data: Optional[bytes]) -> Optional[Baseline]:
    """What was written before a swap; None for anything that is not exactly that."""
    name = BASELINE
    if data is None or len(data) > MAX_BYTES:
        return None
    try:
        value = records.load(data, name, ("trial", "boot_id", "probes", "monotonic_us", "at", "invocation"))
        seen = [_seen(entry, name) for entry in _list(value["probes"], name)]
        return Baseline(
            trial_id=records.text(value["trial"], name, "the trial"),
            boot_id=records.text(value["boot_id"], name, "the boot"),
            monotonic_us=records.number(value["monotonic_us"], name, "when"),
            at=records.number(value["at"], name, "when"),
            seen={one.name: one for one in seen},
            invocation=records.text(value["invocation"], name, "the run"),
        )
    except codes.BrokenRecord:
        return None


def _list(value: Any, name: str) -> List[Any]:
    if not isinstance(value, list) or len(value) > MAX_PROBES:
        records.broken(name, "it has no list of probes")
    return list(value)


def _seen(value: Any, name: str) -> probing.Seen:
    entry = records.object_of(value, name, "a probe", probing.Seen._fields)
    if not isinstance(entry["ok"], bool):
        records.broken(name, "a probe is neither green nor red")
    said = (records.text(entry[field], name, f"a probe's {field}") for field in ("name", "why"))
    return probing.Seen(next(said), entry["ok"], next(said))


def probes_as_json(
    probes: Sequence[products.Probe],
    deciding: Sequence[str],
    last: Sequence[probing.Seen],
    baseline: Optional[Baseline],
) -> List[Dict[str, Any]]:
    """Each probe with what it said last, what it said before the swap, and whether it has a say."""
    said = {seen.name: seen for seen in last}
    before = baseline.green() if baseline is not None else {}
    return [
        {
            "name": probe.name,
            "kind": probe.kind,
            "need": "required" if probe.required else "wanted",
            "decides": probe.name in deciding,
            "baseline": before.get(probe.name),
            "ok": said[probe.name].ok if probe.name in said else None,
            "why": said[probe.name].why[: probing.MAX_WHY] if probe.name in said else "",
        }
        for probe in probes[:MAX_PROBES]
    ]


def render_report(
    report: Report,
    found: probing.Count,
    rules: probing.Rules,
    probes: Sequence[products.Probe],
    last: Sequence[probing.Seen],
    baseline: Optional[Baseline],
) -> bytes:
    """The bytes of `probes.json`; `last` is what the last round saw, whether or not it counted."""
    value: Dict[str, Any] = dict(
        {name: getattr(found, name) for name in _COUNTS},
        spec=records.SPEC,
        trial=report.trial_id,
        phase=report.phase,
        verdict=report.verdict,
        code=report.code,
        why=report.why[: 4 * probing.MAX_WHY],
        at=report.at,
        needed={"passes": rules.confirming.passes, "failures": rules.confirming.failures},
        probes=probes_as_json(probes, rules.deciding, last, baseline),
    )
    return records.dump(value)


def parse_report(data: Optional[bytes]) -> Optional[Dict[str, Any]]:
    """What status shows of `probes.json`, without its `spec`; None for anything that is not exactly that."""
    if data is None or len(data) > MAX_BYTES:
        return None
    try:
        value = records.load(data, REPORT, _FIELDS)
        for field in ("trial", "code", "why"):
            records.text(value[field], REPORT, field)
        for field in ("at", *_COUNTS):
            records.number(value[field], REPORT, field)
        if value["verdict"] not in VERDICTS.get(_word(value["phase"]), ()):
            _odd("verdict", value["verdict"])
        needed = records.object_of(value["needed"], REPORT, "needed", ("passes", "failures"))
        for field in ("passes", "failures"):
            records.number(needed[field], REPORT, field)
        for entry in _list(value["probes"], REPORT):
            _check_probe(entry)
    except codes.BrokenRecord:
        return None
    return {field: value[field] for field in _FIELDS}


def _odd(what: str, value: object) -> NoReturn:
    records.broken(REPORT, f"{what} is {json.dumps(value)}")


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _check_probe(value: Any) -> None:
    entry = records.object_of(value, REPORT, "a probe", _PROBE)
    for field in ("name", "kind", "need", "why"):
        records.text(entry[field], REPORT, f"a probe's {field}")
    for field, allowed in (("decides", (True, False)), ("baseline", (True, False, None)), ("ok", (True, False, None))):
        if not any(entry[field] is one for one in allowed):
            _odd(f"a probe's {field}", entry[field])


def lines(shown: Mapping[str, Any]) -> List[str]:
    """What `update` says of probing, for people: one line, and one for each probe that is red now."""
    counted = f"{shown['passes']} of {shown['needed']['passes']} passes, {shown['failures']} of {shown['needed']['failures']} failures"
    head = "after going back" if shown["phase"] == AFTER else "trial"
    said = [f"probes ({head}): {shown['verdict']}, {counted} in a row: {shown['why']}"]
    for probe in shown["probes"]:
        if probe["ok"] is False:
            weight = (
                "decides" if probe["decides"] else "red before the swap" if probe["baseline"] is False else "wanted"
            )
            said.append(f"probe {probe['name']} ({weight}): {probe['why'] or 'failed'}")
    return said
