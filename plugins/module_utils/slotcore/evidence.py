# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a release that failed: its form, its bounds, and which of the kept goes (faults.md, section 7).

Rules:

* One file for a trial, at most ``MAX_BYTES`` whatever the release wrote; the newest ``KEEP`` stay.
* Where the journal is too long its beginning and its end are kept, and what lies between is counted.
* What could not be gathered is said in ``missing``; nobody fails for it.
* It decides nothing: damage, or a file of another form, is no evidence and that is all.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import strictjson

SPEC = 1
KEEP = 4
MAX_BYTES = 256 * 1024
MAX_LINE = 2000
MAX_STARTS = 64
MAX_TEXT = 500
MAX_WHY = 4096
MAX_EXIT = 100
MAX_MISSING = 9
DIRECTORY = "evidence"
SUFFIX = ".json"
PARTIAL = ".partial"
UNTOLD = "ended by itself, with a status that the journal does not tell"
_NAME = re.compile(r"([0-9a-f]{16})\.json")
_LOGGED = re.compile(rb"(start|crash) ([0-9]{1,15})(?:\.[0-9]+)?(?: .*)?")
_FIELDS = ("trial_id", "product", "from", "to", "code", "why")


class Start(NamedTuple):
    """One start of the release on trial, in seconds after the switch; how it ended, None when somebody ended it."""

    at: int
    exit: Optional[str]


class Evidence(NamedTuple):
    """All that is kept of one failed trial."""

    trial_id: str
    product: str
    from_version: str
    to_version: str
    code: str
    why: str
    at: int
    journal: Tuple[str, ...] = ()
    starts: Tuple[Start, ...] = ()
    checks: Optional[Mapping[str, Any]] = None
    environment: Mapping[str, str] = {}
    missing: Tuple[str, ...] = ()
    truncated: bool = False


def name_of(trial_id: str) -> str:
    """The file of one trial's evidence."""
    return trial_id + SUFFIX


def id_of(name: str) -> Optional[str]:
    """Whose evidence a file of this name is; None when it is nobody's."""
    match = _NAME.fullmatch(name)
    return match.group(1) if match else None


def surplus(newest_first: Sequence[str], keep: int = KEEP) -> Tuple[str, ...]:
    """Which names go, so that `keep` files of evidence are left: the oldest, and what was left half written."""
    ours = [name for name in newest_first if id_of(name) is not None]
    halves = [name for name in newest_first if name.endswith(SUFFIX + PARTIAL)]
    return (*ours[keep:], *halves)


def starts_of(log: bytes, begun_s: int, exits: Sequence[Tuple[float, str]]) -> Tuple[Start, ...]:
    """The starts that `trial.log` tells of, each with the exit that the journal has for it.

    `exits` are the ends of main processes in their order, by the clock of the log; a start has the first that came
    before the next start. The log's seconds are whole, so a second's doubt is given.
    """
    starts: List[Tuple[int, bool]] = []
    for line in log.split(b"\n")[:-1]:
        match = _LOGGED.fullmatch(line)
        if match is None:
            continue
        if match.group(1) == b"start":
            starts.append((int(match.group(2)), False))
        elif starts:
            starts[-1] = (starts[-1][0], True)
    left, found = list(exits), []
    for number, (at, crashed) in enumerate(starts):
        until = starts[number + 1][0] + 1 if number + 1 < len(starts) else float("inf")
        while left and left[0][0] < at:
            left.pop(0)
        told = left.pop(0)[1] if left and left[0][0] < until else None
        found.append(Start(max(0, at - begun_s), told or (UNTOLD if crashed else None)))
    return tuple(found)


def _object(kept: Evidence, journal: Sequence[str]) -> Dict[str, Any]:
    return {
        "spec": SPEC,
        "trial_id": kept.trial_id,
        "product": kept.product,
        "from": kept.from_version,
        "to": kept.to_version,
        "code": kept.code,
        "why": kept.why[:MAX_WHY],
        "at": kept.at,
        "journal": list(journal),
        "starts": [
            {"at": start.at, "exit": start.exit and start.exit[:MAX_EXIT]} for start in kept.starts[:MAX_STARTS]
        ],
        "checks": kept.checks,
        "environment": {key: value[:MAX_TEXT] for key, value in kept.environment.items()},
        "missing": [one[:MAX_TEXT] for one in kept.missing[:MAX_MISSING]],
        "truncated": kept.truncated,
    }


def _bytes(found: Dict[str, Any]) -> bytes:
    return json.dumps(found, sort_keys=True).encode("ascii") + b"\n"


def _fitting(lines: Sequence[str], room: int) -> Tuple[str, ...]:
    """As many lines as fit: a quarter of the room for the first ones, the rest for the last ones, what is left out counted."""
    sizes = [len(json.dumps(line)) + 2 for line in lines]
    if sum(sizes) <= room:
        return tuple(lines)
    head = end = 0
    spent = 100  # for the line that counts
    while spent + sizes[head] <= room // 4:
        spent += sizes[head]
        head += 1
    while spent + sizes[-1 - end] <= room:
        spent += sizes[-1 - end]
        end += 1
    said = "[%d lines are left out here]" % (len(lines) - head - end)
    return (*lines[:head], said, *lines[len(lines) - end :])


def render(kept: Evidence) -> bytes:
    """The file's bytes, never more than ``MAX_BYTES``."""
    lines = [line[:MAX_LINE] for line in kept.journal]
    cut = any(len(line) > MAX_LINE for line in kept.journal)
    if len(_bytes(_object(kept, ()))) > MAX_BYTES // 2:  # somebody's probes say a great deal
        missing = (*kept.missing[: MAX_MISSING - 1], "the checks are too long to be kept")
        kept = kept._replace(checks=None, environment={}, missing=missing, truncated=True)
    fits = _fitting(lines, MAX_BYTES - len(_bytes(_object(kept._replace(truncated=False), ()))))
    kept = kept._replace(truncated=kept.truncated or cut or len(fits) != len(lines))
    return _bytes(_object(kept, fits))


def parse(data: bytes) -> Dict[str, Any]:
    """What a file says; raises NotJson for what is no evidence."""
    found = strictjson.parse(data, MAX_BYTES)
    if not isinstance(found, dict) or found.get("spec") != SPEC:
        raise strictjson.NotJson("it is no evidence of spec %d" % SPEC)
    for field in _FIELDS:
        if not isinstance(found.get(field), str):
            raise strictjson.NotJson("%s is not a text" % field)
    for field, kind in (("at", int), ("journal", list), ("starts", list), ("environment", dict), ("missing", list)):
        if not isinstance(found.get(field), kind):
            raise strictjson.NotJson("%s is not what it has to be" % field)
    return found


def head_of(found: Mapping[str, Any]) -> Dict[str, Any]:
    """What a list shows of one."""
    return {
        "id": found["trial_id"],
        "from": found["from"],
        "to": found["to"],
        "code": found["code"],
        "at": found["at"],
        "truncated": bool(found.get("truncated")),
    }


def lines_of(found: Mapping[str, Any], time_text: str) -> List[str]:
    """One for people."""
    lines = [
        "%s %s, which failed on trial %s at %s" % (found["product"], found["to"], found["trial_id"], time_text),
        "%s: %s" % (found["code"], found["why"]),
        "running since: %s" % found["from"],
    ]
    for start in found["starts"]:
        at, ended = (start.get("at"), start.get("exit")) if isinstance(start, dict) else (start, None)
        lines.append("start at +%s s: %s" % (at, ended or "did not end by itself"))
    lines += ["check %s" % line for line in _checks(found.get("checks"))]
    lines += ["%s: %s" % (key, value) for key, value in sorted(found["environment"].items())]
    lines += ["not gathered: %s" % one for one in found["missing"]]
    lines += ["journal:", *("  %s" % line for line in found["journal"])]
    return lines


def _checks(checks: object) -> List[str]:
    probes = checks.get("probes") if isinstance(checks, dict) else None
    if not isinstance(probes, list):
        return []
    return [
        "%s: %s%s" % (one.get("name"), _said(one.get("ok")), ": %s" % one["why"] if one.get("why") else "")
        for one in probes
        if isinstance(one, dict)
    ]


def _said(passed: object) -> str:
    if passed is None:
        return "too early to say"
    return "passed" if passed else "failed"
