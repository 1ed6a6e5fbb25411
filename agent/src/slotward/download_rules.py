# SPDX-License-Identifier: GPL-3.0-or-later
"""What a download accepts and how long it waits: decisions only, on values (DESIGN 6 "stage").

Rules:
- An address is https with a host and no credentials; http only where the configuration says a test may.
- Where a product's source names hosts, every address is on one of them, and every redirect leads where they say.
- 5xx, 408, 425 and 429 pass by themselves; 416 means that the part is stale; what is left is final.
- A part is only continued by a `Content-Range` that starts where it ends and is of the manifest's size.
- `Retry-After` is honoured or the download ends; it is never shortened (field case N8).
- A shown address has no query: signed addresses carry secrets there.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple, Optional, Tuple
from urllib.parse import urljoin, urlsplit, urlunsplit

from slotcore import codes, sourcing

MAX_URL = 8192
MAX_HOPS = 5
LONGEST_BACK_OFF_S = 60.0
LONGEST_RETRY_AFTER_S = 300.0

_PLAIN_URL = re.compile(r"[!-\[\]-~]+\Z")  # printable ASCII without the backslash, which some readers take for a slash
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})\Z")
_SECONDS = re.compile(r"[0-9]{1,9}\Z")
_CERTIFICATE = re.compile(
    r"certificate verify failed: ([^()]{1,120}?) \(|hostname '[^']{1,80}' doesn't match|certificate verify failed"
)
_STRONG_ETAG = re.compile(r'"[!#-~]*"\Z')


class Answer(enum.Enum):
    """What a status code means for a download."""

    BODY = "body"
    REDIRECT = "redirect"
    LATER = "later"
    STALE_RANGE = "stale-range"
    FINAL = "final"


class Transport(NamedTuple):
    """How every fetch of this host travels (field case N1)."""

    allow_http: bool = False
    ca_file: Optional[str] = None
    proxy: Optional[str] = None
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0
    budget_s: float = 3600.0
    attempts: int = 6
    """Failures in a row, none of which moved a byte, before giving up."""
    first_wait_s: float = 1.0
    hosts: Tuple[str, ...] = ()
    """The exact hosts that an address may name, of a product with a source; none: any."""
    redirect_hosts: Tuple[str, ...] = ()
    """Where besides those a redirect may lead then."""


class Wait(NamedTuple):
    """How long to wait before the next attempt; None when the server asks for longer than anybody waits here."""

    seconds: Optional[float]
    asked_s: float = 0.0


def check_url(url: str, allow_http: bool) -> Optional[codes.Refusal]:
    """Whether bytes may be fetched from this address."""
    schemes = ("https", "http") if allow_http else ("https",)
    if len(url) > MAX_URL or not _PLAIN_URL.match(url):
        return _bad_url(url, "expected printable ASCII of at most %d characters" % MAX_URL)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return _bad_url(url, str(error))
    if parts.scheme not in schemes:
        hint = "" if allow_http else " (http only with [update] allow_http, for tests)"
        return _bad_url(url, "expected %s://%s" % (":// or ".join(schemes), hint))
    if "@" in parts.netloc:
        return _bad_url(url, "expected no credentials in it")
    if not parts.hostname or port == 0:
        return _bad_url(url, "expected a host")
    return None


def check_place(url: str, transport: Transport) -> Optional[codes.Refusal]:
    """Whether this host's transport takes this address to begin with."""
    refusal = check_url(url, transport.allow_http)
    if refusal is not None or not transport.hosts:
        return refusal
    return sourcing.check_address(url, transport.hosts, transport.allow_http)


def check_led(url: str, where: str, transport: Transport) -> Optional[codes.Refusal]:
    """Whether the server at `url` may redirect to `where`."""
    refusal = check_url(where, transport.allow_http)
    if refusal is not None:
        text = "%s redirects to an address that is not taken: %s" % (shown_url(url), refusal.text)
        return codes.Refusal(codes.BAD_REDIRECT if transport.hosts else codes.DOWNLOAD_REFUSED, text)
    if not transport.hosts:
        return None
    return sourcing.check_redirect(where, transport.hosts, transport.redirect_hosts, transport.allow_http)


def _bad_url(url: str, why: str) -> codes.Refusal:
    return codes.Refusal(
        codes.BAD_URL, "cannot download from %s: %s" % (ascii(shown_url(url))[1:-1] or "an empty address", why)
    )


def shown_url(url: str) -> str:
    """The address as a message may repeat it: without query, fragment and credentials."""
    bare = url[:MAX_URL].partition("?")[0].partition("#")[0]
    scheme, colon, rest = bare.partition("://")
    host, slash, path = rest.partition("/")
    return (scheme + colon + host.rpartition("@")[2] + slash + path)[:200]


def shown_host(url: str) -> str:
    """Host and port of an address, for a message."""
    return urlsplit(shown_url(url)).netloc


def next_url(url: str, location: str) -> str:
    """Where a redirect leads, to be judged by `check_url`; the fragment is not sent and goes."""
    try:
        return urlunsplit(urlsplit(urljoin(url, location))._replace(fragment=""))
    except ValueError:
        return location


def judge_status(status: int) -> Answer:
    """What to do with an answer of this status."""
    if status in (200, 206):
        return Answer.BODY
    if status in (301, 302, 303, 307, 308):
        return Answer.REDIRECT
    if status == 416:
        return Answer.STALE_RANGE
    if status in (408, 425, 429) or 500 <= status <= 599:
        return Answer.LATER
    return Answer.FINAL


def check_range(content_range: Optional[str], start: int, size: int) -> str:
    """What is wrong with the range that a server sends for the rest from `start`; empty when nothing is."""
    match = _RANGE.match(content_range or "")
    if not match:
        return "expected Content-Range: bytes %d-%d/%d, found %s" % (start, size - 1, size, ascii(content_range))
    first, last, total = (int(number) for number in match.groups())
    if first == start and first <= last < size and total == size:
        return ""
    return "expected Content-Range: bytes %d-%d/%d, found %d-%d/%d" % (start, size - 1, size, first, last, total)


def total_of(content_range: Optional[str]) -> Optional[int]:
    """The size of the whole file, by the range that a server sends of it."""
    match = _RANGE.match(content_range or "")
    return int(match.group(3)) if match else None


def strong_etag(value: Optional[str]) -> Optional[str]:
    """An entity tag that names these very bytes, as If-Range needs it; weak ones do not."""
    return value if value is not None and len(value) <= 256 and _STRONG_ETAG.match(value) else None


def back_off_s(failures: int, first_s: float, chance: float) -> float:
    """The wait after so many failures in a row: doubled each time, between half of it and all of it by chance (0 to 1)."""
    return min(first_s * 2.0 ** min(failures - 1, 16), LONGEST_BACK_OFF_S) * (0.5 + chance / 2)


def parse_retry_after(value: Optional[str], date: Optional[str]) -> Optional[float]:
    """Seconds that a server asks to wait; a date counts from the server's own `Date`, never from this host's clock."""
    if value is None:
        return None
    seconds = value.strip()  # takes more away than float() allows for
    if _SECONDS.match(seconds):
        return float(seconds)
    from email.utils import parsedate_to_datetime

    try:
        return max((parsedate_to_datetime(value) - parsedate_to_datetime(date or "")).total_seconds(), 0.0)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def plan_wait(failures: int, first_s: float, asked_s: Optional[float], chance: float) -> Wait:
    """The wait before the next attempt: the longer one of the server's wish and our own, never all hosts at once."""
    own_s = back_off_s(failures, first_s, chance)
    if asked_s is None:
        return Wait(own_s)
    if asked_s > LONGEST_RETRY_AFTER_S:
        return Wait(None, asked_s)
    return Wait(max(asked_s + min(asked_s, 10.0) * chance / 10, own_s), asked_s)


def certificate_problem(text: str) -> str:
    """What a failed handshake says about the server's certificate; empty when it failed for another reason."""
    match = _CERTIFICATE.search(text)
    return match.group(match.lastindex or 0) if match else ""


def describe_bytes(head: bytes) -> str:
    """What the first bytes of a body look like, in words (field case N6)."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        return "nothing"
    for magic, what in (
        (b"\x7fELF", "an ELF program"),
        (b"#!", "a script"),
        (b"\x1f\x8b", "gzip data"),
        (b"PK\x03\x04", "a zip archive"),
    ):
        if head.startswith(magic):
            return what
    if text[:14].lower() == b"<!doctype html" or b"<html" in text[:512].lower():
        return "an HTML page"
    if text[:1] == b"<":
        return "XML"
    if text[:1] in (b"{", b"["):
        return "JSON"
    return "text" if all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in head) else "binary data"
