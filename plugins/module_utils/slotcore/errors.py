# SPDX-License-Identifier: GPL-3.0-or-later
"""The few errors that carry a code; everybody names them by `codes`, where the codes stand.

Rules:

* Errors are named after who must act: ``Refused`` is final, ``Retryable`` passes by itself,
  ``BrokenRecord`` and ``BadConfig`` wait for an operator. A bug is none of them.
* Texts are lower case, name both values and the way out, and have no final period.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence, Tuple


class Refusal(NamedTuple):
    """A terminal no: a stable code and a sentence."""

    code: str
    text: str


class Refused(Exception):
    """Raised by whoever executes when a decision was a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal

    @property
    def code(self) -> str:
        """The refusal's code."""
        return self.refusal.code

    @property
    def text(self) -> str:
        """The refusal's sentence."""
        return self.refusal.text


def refused(code: str, text: str) -> Refused:
    """A refusal, ready to be raised."""
    return Refused(Refusal(code, text))


class Retryable(Exception):
    """It may work later with nothing changed: network, lock, space."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class BrokenRecord(Exception):
    """A record that the floor or the slots depend on cannot be believed."""

    code = "record-broken"

    def __init__(self, file: str, why: str) -> None:
        super().__init__("%s: %s" % (file, why))
        self.file = file
        self.why = why

    @property
    def text(self) -> str:
        """The file and what is wrong with it."""
        return "%s: %s" % (self.file, self.why)


class BrokenAudit(BrokenRecord):
    """The audit log was changed or cut, or is something that nobody should write to."""

    code = "audit-broken"


class BadConfig(Exception):
    """The configuration has problems; each names file, line or key."""

    code = "bad-config"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems: Tuple[str, ...] = tuple(problems)

    @property
    def text(self) -> str:
        """All problems on one line."""
        return "; ".join(self.problems)
