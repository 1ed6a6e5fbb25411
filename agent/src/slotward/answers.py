# SPDX-License-Identifier: GPL-3.0-or-later
"""What every command answers: an exit status, one JSON object, and lines for people (node.md, section 6)."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Union

from slotcore import codes

DONE, FAILED, USAGE, REFUSED, RETRY, BROKEN, NOT_CONFIRMED = range(7)

CodedError = Union[codes.Refused, codes.Retryable, codes.BrokenRecord, codes.BadConfig]
CODED = (codes.Refused, codes.Retryable, codes.BrokenRecord, codes.BadConfig)


class Answer(NamedTuple):
    """The end of a command."""

    exit: int
    json: Dict[str, Any]
    lines: List[str]


def plain(line: str) -> str:
    """A line as a terminal may have it: what would move the cursor, begin another line, hide or turn text is spelled out.

    Lines quote what others wrote: a target's version, a file's name, the words of a program on trial.
    """
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in line)


def base(product: str, state: str, code: str = codes.OK, message: str = "", changed: bool = False) -> Dict[str, Any]:
    """The fields that every answer has."""
    return {
        "spec": 1,
        "product": product,
        "changed": changed,
        "state": state,
        "code": code,
        "message": message,
    }


def usage(product: str, text: str) -> Answer:
    """The answer to a command line whose words do not go together; nothing was looked at."""
    return Answer(USAGE, base(product, "failed", codes.USAGE, text), [text])


def exit_of(error: CodedError) -> int:
    """The exit status for an error that carries a code."""
    if isinstance(error, codes.Refused):
        return REFUSED
    if isinstance(error, codes.Retryable):
        return RETRY
    return BROKEN


def of_error(product: str, error: CodedError) -> Answer:
    """The answer for an error that carries a code; nothing was changed by what failed, or it was undone."""
    status = exit_of(error)
    state = "refused" if status in (REFUSED, BROKEN) else "failed"
    word = {REFUSED: "refused", RETRY: "try again later", BROKEN: "updates are refused"}[status]
    return Answer(status, base(product, state, error.code, error.text), [f"{word} ({error.code}): {error.text}"])
