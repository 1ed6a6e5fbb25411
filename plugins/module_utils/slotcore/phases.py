# SPDX-License-Identifier: GPL-3.0-or-later
"""How far an update is, for people and programs that look on (products.md, section 8).

Rules:

* Never a record: nothing is decided by it, so what cannot be read says nothing.
* A phase that failed is told until the next update begins, with its code; one whose process is gone and that did not
  fail is over. A trial that is pending says so by its own record, whatever stands here.
* A retry always has an end: the time by which it has succeeded, or the phase has failed (field cases S3, L1).
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

NAME = "progress.json"
MAX_BYTES = 8192
MAX_TEXT = 1000
MAX_INT = 2**53 - 1
PREPARE, FETCH, STAGE, SWAP, TRIAL, CONFIRM, GO_BACK = (
    "prepare",
    "fetch",
    "stage",
    "swap",
    "trial",
    "confirm",
    "go-back",
)
PHASES = (PREPARE, FETCH, STAGE, SWAP, TRIAL, CONFIRM, GO_BACK)
OK = "ok"


class Retry(NamedTuple):
    """Why something is tried again, when the next try begins, and when no more begins; seconds since 1970."""

    why: str
    next_at: int
    until: int


class Progress(NamedTuple):
    """One look at an update that is at work, or at the one that failed last."""

    phase: str
    to: str
    """The version that it is about; "" where none is known yet."""
    at: int
    pid: int
    """Who is at work; 0 for nobody."""
    percent: Optional[int] = None
    """Of this phase, where that can be told."""
    rate: Optional[int] = None
    """Bytes a second."""
    retry: Optional[Retry] = None
    failed_in: str = ""
    code: str = OK


def percent_of(done: int, total: int) -> int:
    """How much of it is done."""
    return min(100, max(0, done * 100 // total)) if total > 0 else 0


def as_json(found: Progress) -> Dict[str, Any]:
    """The fields of the file and of `update --json`."""
    return dict(found._asdict(), retry=None if found.retry is None else found.retry._asdict())


def render(found: Progress) -> bytes:
    """The bytes of the file; what is too long is cut."""
    if found.retry is not None:
        found = found._replace(retry=found.retry._replace(why=found.retry.why[:MAX_TEXT]))
    return json.dumps(as_json(found), sort_keys=True).encode("ascii") + b"\n"


def parse(data: bytes) -> Optional[Progress]:
    """What the file says; None for anything that it never is."""
    try:
        value = json.loads(data.decode("ascii")) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != set(Progress._fields):
        return None
    retry = value["retry"]
    if retry is not None:
        if not isinstance(retry, dict) or set(retry) != set(Retry._fields):
            return None
        retry = Retry(**retry)
    found = Progress(**dict(value, retry=retry))
    return found if _is_sound(found) else None


def _is_sound(found: Progress) -> bool:
    retry = found.retry or Retry("", 0, 0)
    numbers: Tuple[object, ...] = (found.at, found.pid, found.percent or 0, found.rate or 0, retry.next_at, retry.until)
    texts: Tuple[object, ...] = (found.phase, found.to, found.failed_in, found.code, retry.why)
    return (
        all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= MAX_INT for one in numbers)
        and all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts)
        and found.phase in PHASES
        and found.failed_in in ("", *PHASES)
    )


OF_ACTIONS = {
    "await": TRIAL,
    "finish-confirm": CONFIRM,
    "go-back": GO_BACK,
    "finish-revert": GO_BACK,
    "failed": GO_BACK,
}
"""What a trial in flight is at, by what settling would do with it (``settle.Action``)."""


def shown(found: Optional[Progress], alive: bool, phase: str, to: str) -> Optional[Progress]:
    """What is told of it: `alive` when who wrote it is at work; `phase` and `to` of a trial in flight, as its records say."""
    if found is not None and alive and found.phase != TRIAL:
        return found
    if phase:
        return Progress(phase, to, found.at if found is not None and found.to == to else 0, 0)
    return found if found is not None and found.failed_in else None


def line(answer: Mapping[str, Any]) -> str:
    """The same in one line, from the JSON."""
    what = "progress: %s%s" % (answer["phase"], " of " + answer["to"] if answer["to"] else "")
    if answer["failed_in"]:
        return "%s, failed in %s (%s)" % (what, answer["failed_in"], answer["code"])
    what += ", %d %%" % answer["percent"] if answer["percent"] is not None else ""
    what += ", %d KiB/s" % (answer["rate"] // 1024) if answer["rate"] is not None else ""
    return what + (", tried again: %s" % answer["retry"]["why"] if answer["retry"] is not None else "")
