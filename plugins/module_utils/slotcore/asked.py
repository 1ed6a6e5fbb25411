# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of the request that a daemon left for its next start: root's word to it, `asked.json` (privilege.md, section 6).

Rules:
- A request is told by its id and by the SHA-256 of its bytes: the same id with other bytes is another request.
- It is carried out once. One whose id is the last trial's, or that was answered for good, is passed over.
- The record has exactly its fields, or it says nothing: then the request is judged anew, which changes nothing twice.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple, Optional

from . import records
from . import settle as settles

NAME = "asked.json"
MAX_BYTES = 64 * 1024
TRIAL, CURRENT, REFUSED, FAILED = "trial", "current", "refused", "failed"
STATES = (TRIAL, CURRENT, REFUSED, FAILED)

_ID = re.compile(r"[0-9a-f]{16}")
_CODE = re.compile(r"[a-z0-9-]{1,64}")
_FIELDS = ("id", "sha256", "state", "code", "message", "at")


class Asked(NamedTuple):
    """The last request that was looked at, and how it ended; `at` in seconds since 1970."""

    id: str
    """"" when what was left could not be read as a request."""
    sha256: str
    state: str
    code: str
    message: str
    at: int

    @property
    def final(self) -> bool:
        """Whether asking the same again gives the same answer."""
        return self.state != FAILED


class Once(enum.Enum):
    """Whether a request is carried out."""

    CARRY_OUT = "carry-out"
    DONE = "done"
    """Its trial began already, or it was answered for good."""
    REUSED = "reused"
    """Another request had this id."""


def parse(data: bytes, name: str) -> Asked:
    """The record; raises BrokenRecord naming `name`."""
    if len(data) > MAX_BYTES:
        records.broken(name, f"it is more than {MAX_BYTES} bytes")
    value = records.load(data, name, _FIELDS)
    state, code, request_id = value["state"], value["code"], value["id"]
    if state not in STATES:
        records.broken(name, f"its state is {state!r}, not one of {', '.join(STATES)}")
    if not isinstance(code, str) or _CODE.fullmatch(code) is None:
        records.broken(name, "its code is no code")
    if not isinstance(request_id, str) or (request_id and _ID.fullmatch(request_id) is None):
        records.broken(name, "its id is not 16 hexadecimal digits")
    return Asked(
        id=request_id,
        sha256=records.digest(value["sha256"], name, "its sha256"),
        state=state,
        code=code,
        message=records.text(value["message"], name, "its message"),
        at=records.number(value["at"], name, "its time"),
    )


def render(asked: Asked) -> bytes:
    """The bytes of the record; a message is made to fit."""
    value = dict(asked._asdict(), spec=records.SPEC, message=records.fitting(asked.message))
    return records.dump(value)


def is_about(asked: Optional[Asked], request_id: str, sha256: str) -> bool:
    """Whether the record is about this very request."""
    return asked is not None and (asked.id, asked.sha256) == (request_id, sha256)


def once(known: Optional[Asked], last_trial: str, request_id: str, sha256: str) -> Once:
    """Whether this request is to be carried out, was before, or comes under another one's id.

    `last_trial` is the id of the trial that is pending, or of the last one that ended; "" when there was none. What is
    no request has no id, and is told by its bytes alone.
    """
    answered = known is not None and known.final and known.id == request_id
    if answered and is_about(known, request_id, sha256):
        return Once.DONE
    if answered and request_id:
        return Once.REUSED
    return Once.DONE if request_id and request_id == last_trial else Once.CARRY_OUT


def trial_of(state: settles.State, pending_id: str) -> str:
    """The id that no new request may have: the pending trial's, else the last one's."""
    if pending_id or state.update.last is None:
        return pending_id
    return state.update.last.trial_id
