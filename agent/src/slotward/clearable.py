# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that an operator is told of a version that failed here: what allows it again, what shows how it failed.

Rules:
- Whoever is refused such a version is told the exact command, whichever mode's way the refusal came (DESIGN 6).
- It is made here, from the version that was asked for, never taken from an answer of another account's.
"""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from slotcore import codes, records
from slotward import answers

REMEMBERED = (
    codes.SMOKE_TEST_FAILED,
    codes.NOT_EXECUTABLE,
    codes.WRONG_MACHINE,
    codes.NO_INTERPRETER,
    codes.BAD_ARCHIVE,
)
"""Refusals of bytes in their slot, after which the version is remembered as failed."""
CLEARABLE = (*REMEMBERED, codes.FAILED_BEFORE)


def command(version: str) -> str:
    """The exact command that allows a failed version again on this host."""
    return f"slotward update --clear-failed {version}"


def evidence(trial_id: str) -> str:
    """The command that shows what is kept of a trial that failed (faults.md, section 7)."""
    return f"slotward evidence {trial_id}"


def evidence_of(last: Optional[records.Last]) -> Optional[str]:
    """The same of the last trial, None where that did not fail."""
    if last is None or not last.trial_id or last.state not in ("rolled-back", "rollback-failed"):
        return None
    return evidence(last.trial_id)


def told(answer: answers.Answer, version: str) -> answers.Answer:
    """The answer, with that command where it is a refusal that an operator may lift; a `version` of "" is not known."""
    is_one = answer.exit == answers.REFUSED and answer.json["code"] in CLEARABLE
    if not (is_one and version) or answer.json.get("retry"):
        return answer
    retry = command(version)
    return answer._replace(json={**answer.json, "retry": retry}, lines=[*answer.lines, f"to allow it again: {retry}"])


def answered(product: str, asked: Sequence[str], act: Callable[[], answers.Answer]) -> answers.Answer:
    """What `act` answers, or the refusal that it raises when an operator may lift that; `asked` begins with the version, once known."""
    try:
        return act()
    except codes.Refused as error:
        if error.code not in CLEARABLE or not asked:
            raise
        return told(answers.of_error(product, error), asked[0])
