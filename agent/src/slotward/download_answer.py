# SPDX-License-Identifier: GPL-3.0-or-later
"""A server's answer to a download: what its head says, and its body into the part.

Rules:
- Only the bytes themselves are taken: no content encoding, no range that was not asked for.
- A length that cannot be right is refused before the body, with what the server called it and what it looks like (N6).
- At most one byte more than the size is read, in blocks that bound the memory.
- A body that moves less than a little in each idle window has stalled, however steadily it dribbles.
"""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING, Any, Optional

from slotcore import codes
from slotward import download_part, opening
from slotward import download_rules as rules
from slotward import progress as progresses

if TYPE_CHECKING:
    import requests

CHUNK = 1 << 18
LEAST_IN_WINDOW = 16 * 1024


class Later(Exception):
    """A passing failure: another attempt may do, after `asked_s` if the server said so."""

    def __init__(self, why: str, asked_s: Optional[float] = None) -> None:
        super().__init__(why)
        self.asked_s = asked_s


def take(
    kind: rules.Answer,
    response: requests.Response,
    part: download_part.Part,
    idle_s: float,
    until: float,
    told: progresses.Progress,
) -> None:
    """Judge the answer and take its body."""
    headers = response.headers
    said = "%d %s" % (response.status_code, response.reason or "")
    if kind is rules.Answer.LATER:
        asked_s = rules.parse_retry_after(headers.get("Retry-After"), headers.get("Date"))
        raise Later("the server answers %s" % said.strip(), asked_s)
    if kind is rules.Answer.FINAL or (kind is rules.Answer.STALE_RANGE and not part.done):
        raise opening.refused(codes.DOWNLOAD_REFUSED, "%s answers %s" % (rules.shown_url(response.url), said.strip()))
    problem = rules.check_range(headers.get("Content-Range"), part.done, part.size)
    if kind is rules.Answer.STALE_RANGE or (response.status_code == 206 and problem):
        part.restart()
        raise Later("the server does not continue the part: %s" % (problem or said))
    encoding = headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        text = "%s sends %s-encoded content, though nothing but the bytes themselves was asked for"
        raise opening.refused(codes.DOWNLOAD_REFUSED, text % (rules.shown_url(response.url), ascii(encoding)[1:-1]))
    if response.status_code == 200 and part.done:
        part.restart()
    part.said = ascii(headers.get("Content-Type", ""))[1:-1][:80]
    part.etag = rules.strong_etag(headers.get("ETag"))
    _body(response, part, idle_s, until, told)


def _body(
    response: requests.Response,
    part: download_part.Part,
    idle_s: float,
    until: float,
    told: progresses.Progress,
) -> None:
    # http.client's own stream in any urllib3: one read of the socket at a time, so that a dribble is seen as one
    stream = getattr(response.raw, "_fp", response.raw)
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    length = response.headers.get("Content-Length", "")
    if response.status_code == 200 and length.isdigit() and not chunked and int(length) != part.size:
        head = _read(stream, download_part.HEAD)
        text = "the server offers %s bytes where the release has %d%s"
        raise opening.refused(codes.SIZE_MISMATCH, text % (length[:20], part.size, looks(part.said, head)))
    part.pieces += 1
    window, moved = time.monotonic(), 0
    while part.done <= part.size:
        block = _read(stream, min(CHUNK, part.size + 1 - part.done))
        if not block:
            break
        part.append(block)
        told(part.done, part.size)
        moved += len(block)
        now = time.monotonic()
        if now >= until:
            raise Later("%d of %d bytes came" % (part.done, part.size))
        if now - window >= idle_s:
            if moved < LEAST_IN_WINDOW:
                raise Later("only %d bytes came in %d s" % (moved, now - window))
            window, moved = now, 0
    _ended(part, chunked)


def _ended(part: download_part.Part, chunked: bool) -> None:
    if part.done > part.size:
        text = "the server sends more than the %d bytes that the release says%s"
        raise opening.refused(codes.SIZE_MISMATCH, text % (part.size, looks(part.said, part.head)))
    if part.done < part.size:
        if chunked and part.pieces == 1:  # it said itself that this was all
            text = "the server sends %d bytes, the release says %d%s"
            raise opening.refused(codes.SIZE_MISMATCH, text % (part.done, part.size, looks(part.said, part.head)))
        raise Later("the transfer ended after %d of %d bytes" % (part.done, part.size))


def _read(stream: Any, most: int) -> bytes:
    try:
        block: bytes = stream.read1(most)
    except (OSError, http.client.HTTPException) as error:
        raise Later("the transfer broke: %s" % reason(error)) from error
    return block


def looks(said: str, head: bytes) -> str:
    """The end of a sentence: what the server called its body and what that looks like."""
    called = "the server called it %s and " % said if said else ""
    return "; %sit looks like %s" % (called, rules.describe_bytes(head))


def reason(error: BaseException) -> str:
    """The operating system's own words, from the bottom of whatever they are wrapped in."""
    found = type(error).__name__
    step: object = error
    for _depth in range(8):
        if not isinstance(step, BaseException):
            break
        if isinstance(step, OSError) and not type(step).__module__.startswith(("requests", "urllib3")):
            found = step.strerror or str(step) or found
        step = getattr(step, "reason", None) or step.__cause__ or step.__context__ or next(iter(step.args[-1:]), None)
    return found
