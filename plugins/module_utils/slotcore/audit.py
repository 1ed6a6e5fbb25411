# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log: one line for each decision, each with the hash of the line before it (trust.md, section 5).

Rules:

* A line has exactly its fields, of exactly their types, in the one canonical spelling; the hash is that of its bytes
  without the newline. So one line has one hash, and another line has another.
* Numbers go up by one; the first line is 1 and its ``prev`` is 64 zeros.
* An event that this version does not know is a line like any other: a later version may have written it.
* What an event says is made to fit before it is written, so that no text can keep a decision out of the log.
* ``MESSAGE_ID`` and names of events never change: people and programs search for them.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Dict, Iterable, NamedTuple, Optional, Union

SPEC = 1
ZEROS = "0" * 64
MAX_INT = 2**53 - 1
MAX_LINE = 8192
MAX_VERSION = 128
MAX_WHO = 64
MAX_WHY = 1000


class Kind(NamedTuple):
    """What goes with an event: its id and priority in the journal, and whether it is durable first or not done."""

    message_id: str
    priority: int
    first: bool = False


EVENTS: Dict[str, Kind] = {}


def _event(name: str, message_id: str, priority: int, first: bool = False) -> str:
    EVENTS[name] = Kind(message_id, priority, first)
    return name


ACCEPTED = _event("accepted", "6a0acf78d075bcab534cdcb9aab4d08e", 6, first=True)
REFUSED = _event("refused", "347a697e813b644ccd8bdac591a50b03", 4)
SWAPPED = _event("swapped", "b846d44fb9cf8d22e578501848ed5f1e", 5)
CONFIRMED = _event("confirmed", "637853e138b83f03774cd3e38a93416b", 5)
ROLLED_BACK = _event("rolled-back", "b5358e5a7392041d8cd35a32b0a400e9", 4)
ROLLBACK_FAILED = _event("rollback-failed", "e9b7575a802ca5f9004af93d754d25ac", 2)
ABANDONED = _event("abandoned", "ffda04d6222fe0cc7215862a2c778d9f", 4)
CLEARED = _event("cleared", "79cb6203faae6e2cd2caf1fff0be7dd7", 5)
PERMITTED = _event("permitted", "f97c2aa624571d74eccaa14eee0f438d", 4, first=True)
KEYS_CHANGED = _event("keys-changed", "e6bb661127424b76f08e1b6853ca559b", 4, first=True)
WITHDRAWN = _event("withdrawn", "8cd7ec0127381696b7c35c53d81af1bd", 4)
RESTORED = _event("restored", "11953d726e073fd381fd40201fa59efb", 4)
REPAIRED = _event("repaired", "389f25f3d87f0a09e60b736cd495e3dc", 4, first=True)
INSTALLED = _event("installed", "22d747ec646db57fbfcc773147dd9a3b", 5)
ADOPTED = _event("adopted", "261c5cca075d59e7cecf59820006c343", 5)
ONE_WAY = _event("one-way", "0b7e2f7cf4d94c36b0b8a3d5e1c96a47", 4, first=True)
HELD = _event("held", "6c26386df1564f979e52b7b0500feb9a", 5)
UNHELD = _event("unheld", "dd7721a7ba284cb3a2d31d595296db5a", 5)
FORCED = _event("forced", "557b7499b7b8469094f7772798d16072", 4, first=True)
STARTED = _event("started", "5d8c7a5c74473a0d00685cd56769ef16", 6)
DOWNLOADED = _event("downloaded", "66855c1bf70adaa88465527c82ad8735", 6)
STAGED = _event("staged", "8df237e97b314b11b091ce84ab8506cc", 6)
MODE_CHANGED = _event("mode-changed", "41981705da5ccccc02413aa566f253a7", 4, first=True)

STEPS = (STARTED, DOWNLOADED)
"""Steps on the way to a decision, and no decisions: an update that is tried again makes each of them once."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_ID = re.compile(r"(?:[0-9a-f]{16,64})?")
_HEX64 = re.compile(r"[0-9a-f]{64}")
# What would move the cursor, hide text or turn its direction on somebody's terminal; halves of surrogate pairs too.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


class Event(NamedTuple):
    """One decision; `at` in seconds since 1970, the sequence that of the release it is about, or 0."""

    event: str
    product: str
    at: int = 0
    code: str = "ok"
    from_version: str = ""
    to_version: str = ""
    trial_id: str = ""
    sequence: int = 0
    sha256: str = ""
    who: str = "root"
    why: str = ""


class Line(NamedTuple):
    """An event in its place in the chain."""

    number: int
    prev: str
    event: Event


class Head(NamedTuple):
    """The last line of a chain: its number and the hash of its bytes; 0 and zeros when there is none."""

    number: int = 0
    hash: str = ZEROS


EMPTY = Head()


class BadLine(ValueError):
    """The bytes are not one line of an audit log."""


def fitting(text: str, most: int = MAX_WHY) -> str:
    """`text` as a line may hold it: without characters that would play tricks on a terminal, and not too long."""
    return _ODD.sub(" ", text[:most])


def fit(event: Event) -> Event:
    """The event with every field made to fit; what cannot is left out rather than the event."""
    return event._replace(
        at=min(max(event.at, 0), MAX_INT),
        code=event.code if _NAME.fullmatch(event.code) else "ok",
        from_version=fitting(event.from_version, MAX_VERSION),
        to_version=fitting(event.to_version, MAX_VERSION),
        trial_id=event.trial_id if _ID.fullmatch(event.trial_id) else "",
        sequence=event.sequence if 0 <= event.sequence <= MAX_INT else 0,
        sha256=event.sha256 if _HEX64.fullmatch(event.sha256) else "",
        who=fitting(event.who, MAX_WHO) or "root",
        why=fitting(event.why),
    )


def as_json(line: Line) -> Dict[str, Union[int, str]]:
    """The fields of a line by their names in the file."""
    event = line.event
    return {
        "at": event.at,
        "code": event.code,
        "event": event.event,
        "from": event.from_version,
        "id": event.trial_id,
        "n": line.number,
        "prev": line.prev,
        "product": event.product,
        "sequence": event.sequence,
        "sha256": event.sha256,
        "spec": SPEC,
        "to": event.to_version,
        "who": event.who,
        "why": event.why,
    }


def render(line: Line) -> bytes:
    """The line's one spelling, without the newline."""
    return json.dumps(as_json(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _texts_are_sound(event: Event) -> bool:
    texts = ((event.from_version, MAX_VERSION), (event.to_version, MAX_VERSION), (event.who, MAX_WHO))
    return (
        all(len(text) <= most and not _ODD.search(text) for text, most in (*texts, (event.why, MAX_WHY)))
        and all(_NAME.fullmatch(text) for text in (event.event, event.product, event.code))
        and _ID.fullmatch(event.trial_id) is not None
        and (event.sha256 == "" or _HEX64.fullmatch(event.sha256) is not None)
        and event.who != ""
    )


def _line_of(value: object) -> Line:
    names = as_json(Line(0, "", Event("", "")))
    if not isinstance(value, dict) or set(value) != set(names):
        raise BadLine("it is not an object with the fields %s" % ", ".join(sorted(names)))
    for name, example in names.items():
        if type(value[name]) is not type(example):
            raise BadLine("its %s is no %s" % (name, "number" if isinstance(example, int) else "text"))
    if value["spec"] != SPEC:
        raise BadLine("its spec is %d; this version reads %d" % (value["spec"], SPEC))
    texts = ("code", "from", "to", "id", "sequence", "sha256", "who", "why")
    event = Event(value["event"], value["product"], value["at"], *(value[name] for name in texts))
    line = Line(value["n"], value["prev"], event)
    numbers = (event.at, event.sequence, line.number - 1)
    if not all(0 <= number <= MAX_INT for number in numbers) or not _HEX64.fullmatch(line.prev):
        raise BadLine("its at, sequence, n or prev is out of bounds")
    if not _texts_are_sound(event):
        raise BadLine("one of its texts is longer or of other characters than is ever written")
    return line


def parse(data: bytes) -> Line:
    """The line of these bytes, without newline; raises BadLine for anything but its one spelling."""
    if len(data) > MAX_LINE:
        raise BadLine("it is %d bytes long; at most %d are ever written" % (len(data), MAX_LINE))
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadLine("it is not JSON") from None
    line = _line_of(value)
    if render(line) != data:
        raise BadLine("it is not spelled as it is ever written")
    return line


def hash_of(data: bytes) -> str:
    """What the next line names as its `prev`: SHA-256 of a line's bytes without the newline."""
    return hashlib.sha256(data).hexdigest()


def head_of(data: Optional[bytes]) -> Head:
    """The head after this line; raises BadLine."""
    return EMPTY if data is None else Head(parse(data).number, hash_of(data))


def append(last: Optional[bytes], event: Event) -> bytes:
    """The line for `event` after the line `last` (None: the first one); raises BadLine when `last` is none."""
    head = head_of(last)
    return render(Line(head.number + 1, head.hash, fit(event)))


def goes_on(lines: Iterable[bytes], event: Event) -> bool:
    """Whether `event` is a step of an update that has gone no further since it made it before; `lines` are the last ones.

    So an update that fails and is asked for again and again does not push what is older out of the log.
    """
    for data in reversed(list(lines)):
        try:
            before = parse(data).event
        except BadLine:  # the first one of a look back is cut
            return False
        if (before.event, before.to_version, before.sha256) == (event.event, event.to_version, event.sha256):
            return True
        if before.event not in (*STEPS, REFUSED):
            return False
    return False


def repeats(last: Optional[bytes], event: Event) -> bool:
    """Whether `event` is a refusal that is word for word the last line's: only when, and under which id, may differ."""
    if last is None or event.event != REFUSED:
        return False
    before, now = parse(last).event, fit(event)
    return before._replace(at=0, trial_id="") == now._replace(at=0, trial_id="")
