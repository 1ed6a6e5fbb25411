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

from slotcore import clocks, codes
from slotward import download_part, download_sources
from slotward import download_rules as rules
from slotward import progress as progresses

if TYPE_CHECKING:
    import requests

Told = progresses.Progress
Later = download_sources.Later

CHUNK = 1 << 18
LEAST_IN_WINDOW = 16 * 1024


def distrust(where: str, why: str) -> Exception:
    """What a certificate that is not trusted means: one that is not valid yet is this host's clock, which may still be set (N9)."""
    now = clocks.shown(int(time.time()))
    if "not yet valid" in why:
        text = "cannot trust the server: %s, and this host's clock says %s: it is behind, set it"
        return Later(text % (why, now), code=codes.CLOCK_BEHIND)
    text = "cannot trust the server of %s: %s; set [update] ca_file" % (where, why)
    if "expired" in why:
        text = "cannot trust the server of %s: %s by this host's clock, which says %s: set the clock if it is wrong"
        text %= (where, why, now)
    return codes.refused(codes.UNTRUSTED_SERVER, text)


class Stale(Later):
    """What is there already cannot be continued."""


def judge(response: requests.Response, start: int, size: int) -> None:
    """Raise what the head of an answer forbids, whatever its body is; `start` bytes are there already."""
    headers = response.headers
    kind = rules.judge_status(response.status_code)
    said = ("%d %s" % (response.status_code, response.reason or "")).strip()
    where = rules.shown_url(response.url)
    if kind is rules.Answer.LATER:
        asked_s = rules.parse_retry_after(headers.get("Retry-After"), headers.get("Date"))
        raise Later("the server answers %s" % said, asked_s)
    if kind is rules.Answer.STALE_RANGE and start:
        raise Stale("the server answers %s" % said)
    if kind is not rules.Answer.BODY:
        raise codes.refused(codes.DOWNLOAD_REFUSED, "%s answers %s" % (where, said))
    encoding = headers.get("Content-Encoding", "identity").strip()
    if encoding.lower() not in ("", "identity"):
        text = "%s sends %s-encoded content, though nothing but the bytes themselves was asked for"
        raise codes.refused(codes.DOWNLOAD_REFUSED, text % (where, ascii(encoding)[1:-1]))
    if response.status_code == 206:
        problem = rules.check_range(headers.get("Content-Range"), start, size)
        if problem:
            raise Stale(problem)


def take(response: requests.Response, part: download_part.Part, idle_s: float, until: float, told: Told) -> None:
    """Judge the answer and take its body."""
    try:
        judge(response, part.done, part.size)
    except Stale as error:
        part.restart()
        raise Later("the server does not continue the part: %s" % error) from error
    if response.status_code == 200 and part.done:
        part.restart()
    part.said = ascii(response.headers.get("Content-Type", ""))[1:-1][:80]
    part.etag = rules.strong_etag(response.headers.get("ETag"))
    _body(response, part, idle_s, until, told)


def whole(response: requests.Response, most: int, until: float) -> bytes:
    """The body of an answer, of at most `most` bytes; who dribbles it has until then."""
    judge(response, 0, most)
    where, size = rules.shown_url(response.url), offered(response)
    if size is not None and size > most:
        raise codes.refused(codes.DOWNLOAD_REFUSED, "%s sends %d bytes; at most %d are taken" % (where, size, most))
    stream = getattr(response.raw, "_fp", response.raw)
    found = bytearray()
    while len(found) <= most:
        block = _read(stream, most + 1 - len(found))
        if not block:
            break
        found += block
        if time.monotonic() >= until:
            raise Later("only %d bytes came in time" % len(found))
    if len(found) > most:
        raise codes.refused(codes.DOWNLOAD_REFUSED, "%s sends more than the %d bytes that are taken" % (where, most))
    if size is not None and len(found) < size:
        raise Later("the transfer ended after %d of %d bytes" % (len(found), size))
    return bytes(found)


def offered(response: requests.Response) -> Optional[int]:
    """The size of the whole file, if the answer says it beforehand."""
    length = response.headers.get("Content-Length", "")
    if response.status_code != 200 or _chunked(response) or not (length.isascii() and length.isdigit()):
        return None
    return int(length[:20])


def whole_size(response: requests.Response) -> Optional[int]:
    """The size of the whole file, by the answer to a request for its first byte; None when it is not said."""
    total = rules.total_of(response.headers.get("Content-Range")) if response.status_code == 206 else None
    judge(response, 0, total or 1)
    return total if response.status_code == 206 else offered(response)


def _chunked(response: requests.Response) -> bool:
    return "chunked" in response.headers.get("Transfer-Encoding", "").lower()


def _body(response: requests.Response, part: download_part.Part, idle_s: float, until: float, told: Told) -> None:
    # http.client's own stream in any urllib3: one read of the socket at a time, so that a dribble is seen as one
    stream = getattr(response.raw, "_fp", response.raw)
    size = offered(response)
    if size is not None and size != part.size:
        head = _read(stream, download_part.HEAD)
        text = "the server offers %d bytes, the release says %d%s"
        raise codes.refused(codes.SIZE_MISMATCH, text % (size, part.size, looks(part.said, head)))
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
    _ended(part, _chunked(response))


def _ended(part: download_part.Part, chunked: bool) -> None:
    if part.done > part.size:
        text = "the server sends more than the %d bytes that the release says%s"
        raise codes.refused(codes.SIZE_MISMATCH, text % (part.size, looks(part.said, part.head)))
    if part.done < part.size:
        if chunked and part.pieces == 1:  # it said itself that this was all
            text = "the server sends %d bytes, the release says %d%s"
            raise codes.refused(codes.SIZE_MISMATCH, text % (part.done, part.size, looks(part.said, part.head)))
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
