# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch one file whose size and SHA-256 are known before the first byte (DESIGN 6 "stage"; seed 000).

Rules:
- The only user of `requests`, and of nothing from the environment: proxy and authorities come from the configuration.
- Redirects are followed by hand, at most five, each address judged like the first.
- Bytes are hashed while they come, at most one more than the size is read, and memory is bounded by one block.
- A transfer that moves too little in its idle window ends; so does one that sends no answer in time.
- What was received stays in the part file; the next attempt, in this run or a later one, asks for the rest only.
- Attempts have a deadline and an end (field cases L1, S3); `Retry-After` and chance spread them (N8).
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, TextIO, Union

from slotcore import codes
from slotward import build_info, download_answer, download_part, download_sources, host, waits
from slotward import download_rules as rules
from slotward import progress as progresses

if TYPE_CHECKING:
    import requests


MORE_TIMES = 2
MORE_BYTES = 1 << 20
"""A download ends when this many times its size more than once from each place has come, and these bytes."""


Transport = rules.Transport


def progress_to(stream: Optional[TextIO], label: str) -> progresses.Progress:
    """Progress of a download on a terminal or in a log."""
    return progresses.Progress(stream, label)


def fetch(
    url: str,
    part_path: str,
    size: int,
    sha256: str,
    transport: Transport,
    progress: Optional[progresses.Progress] = None,
    others: Sequence[str] = (),
) -> None:
    """Bring exactly the bytes of this size and SHA-256 into `part_path`, from `url` or else from `others`, in that order.

    Raises:
        Refused: the address, the servers or the bytes are not what they must be; asking again will not help.
        Retryable: `download-failed`, the part stays for the next try.
        OSError: the part cannot be written.

    """
    urls = (url, *others)
    for one in urls:
        refusal = rules.check_place(one, transport) or check_authorities(one, transport)
        if refusal is not None:
            raise codes.Refused(refusal)
    told = progress or progresses.Progress(None, "")
    part = download_part.Part(part_path, size)
    try:
        _attempts(download_sources.Sources(urls, transport.attempts), part, sha256, transport, told)
    except codes.Refused as error:
        if error.code in (codes.DIGEST_MISMATCH, codes.SIZE_MISMATCH):
            part.discard()
        raise
    finally:
        told.close()
        part.close()


def check_authorities(url: str, transport: Transport) -> Optional[codes.Refusal]:
    """Whether this host can check the certificate of a server at all (field case N3)."""
    if not url.startswith("https:"):
        return None
    if transport.ca_file is not None:
        import ssl

        try:
            os.close(host.open_named(transport.ca_file))  # the library would wait for a FIFO
            ssl.create_default_context(cafile=transport.ca_file)
        except OSError as error:  # SSLError too: there is no certificate in it
            why = getattr(error, "reason", None) or error.strerror or str(error)
            return codes.Refusal(codes.NO_CA_ROOTS, "cannot use [update] ca_file %s: %s" % (transport.ca_file, why))
        return None
    from requests import utils

    roots = utils.DEFAULT_CA_BUNDLE_PATH
    if os.path.isdir(roots) or (os.path.isfile(roots) and os.path.getsize(roots)):
        return None
    text = "this host has no certificate authorities (%s): install ca-certificates or set [update] ca_file"
    return codes.Refusal(codes.NO_CA_ROOTS, text % roots)


def _attempts(
    places: download_sources.Sources,
    part: download_part.Part,
    sha256: str,
    transport: Transport,
    told: progresses.Progress,
) -> None:
    until = time.monotonic() + transport.budget_s
    most = part.size * (len(places.all) + MORE_TIMES) + MORE_BYTES
    done = _complete(part, sha256)
    with session_of(transport) as session:
        while not done:
            source, before, best = places.turn(time.monotonic()), part.done, part.best
            if source is None:
                _wait(places, transport, until, told)
                continue
            try:
                _from(session, source.url, part, transport, until, told, sha256)
                done = True
            except codes.Refused as error:
                places.refuse(source, error)
                if part.done != before:
                    part.restart()  # what came is no good, and nobody knows since when
                told.note(error.text)
            except download_answer.Later as error:
                places.fail(source, error, time.monotonic(), part.best > best)
                goes_on = part.alone and part.done > part.began and error.asked_s is None
                places.keep(source if goes_on else None)
            if part.received > most:
                raise places.end("%d bytes came for a file of %d" % (part.received, part.size))


def _from(
    session: requests.Session,
    url: str,
    part: download_part.Part,
    transport: Transport,
    until: float,
    told: progresses.Progress,
    sha256: str,
) -> None:
    """One attempt at one place, and another one when the bytes of several answers did not fit together."""
    while True:
        told(part.done, part.size)
        part.begin(url)
        _attempt(session, url, part, transport, until, told)
        if _complete(part, sha256):
            return


def _complete(part: download_part.Part, sha256: str) -> bool:
    """Whether the part is the file."""
    if part.done < part.size:
        return False
    if part.digest.hexdigest() == sha256:
        return True
    if part.may_begin_again():
        return False
    text = "the download has the SHA-256 %s, the release says %s%s"
    raise codes.refused(
        codes.DIGEST_MISMATCH, text % (part.digest.hexdigest(), sha256, download_answer.looks(part.said, part.head))
    )


def _wait(places: download_sources.Sources, transport: Transport, until: float, told: progresses.Progress) -> None:
    """Between two rounds: as long as the servers ask, and at least our own back-off."""
    now = time.monotonic()
    asked_s = places.end_round(now)
    chance = int.from_bytes(os.urandom(4), "big") / 2.0**32
    wait_s = rules.plan_wait(places.failures, transport.first_wait_s, asked_s, chance).seconds or 0.0
    if now + wait_s >= until:
        raise places.end("no success in %d s" % transport.budget_s)
    said = [source.said if len(places.all) == 1 else source.text for source in places.alive()]
    told.wait(said, wait_s, until - now)
    time.sleep(wait_s)


def session_of(transport: Transport) -> requests.Session:
    """A session that knows the configuration and nothing of the environment."""
    import warnings

    import requests

    warnings.filterwarnings("ignore", message="System time is way off")  # what is refused for it says so in our words
    session = requests.Session()
    session.trust_env = False  # REQUESTS_CA_BUNDLE would win over verify, and proxies would be taken from outside
    if transport.proxy:
        session.proxies = {"http": transport.proxy, "https": transport.proxy}
    session.headers.update({"User-Agent": "slotward/%s" % build_info.VERSION, "Accept": "*/*"})
    return session


def _get(session: requests.Session, url: str, headers: Dict[str, str], transport: Transport) -> requests.Response:
    """One request and the head of its answer; the session's own `get` would read a redirect's body, however long."""
    import requests

    request = session.prepare_request(requests.Request("GET", url, headers=headers))
    timeouts = (transport.connect_timeout_s, transport.idle_timeout_s)
    adapter = session.get_adapter(url)
    response: requests.Response = adapter.send(
        request, stream=True, timeout=timeouts, verify=transport.ca_file or True, proxies=session.proxies
    )
    return response


def _attempt(
    session: requests.Session,
    url: str,
    part: download_part.Part,
    transport: Transport,
    until: float,
    told: progresses.Progress,
) -> None:
    """One attempt: ask for what is missing, take the body."""
    headers = {"Accept-Encoding": "identity"}
    if part.done:
        headers["Range"] = "bytes=%d-" % part.done
        if part.etag:
            headers["If-Range"] = part.etag
    response = follow(session, url, headers, transport, until)
    try:
        download_answer.take(response, part, transport.idle_timeout_s, until, told)
    finally:
        response.close()


def follow(
    session: requests.Session, url: str, headers: Dict[str, str], transport: Transport, until: float
) -> requests.Response:
    """The first answer that is no redirect."""
    at = url
    for _hop in range(rules.MAX_HOPS + 1):
        response = _ask(session, at, headers, transport, until)
        if rules.judge_status(response.status_code) is not rules.Answer.REDIRECT:
            return response
        response.close()
        at = _redirected(at, response, transport)
    code = codes.BAD_REDIRECT if transport.hosts else codes.DOWNLOAD_REFUSED
    raise codes.refused(code, "%s redirects more than %d times" % (rules.shown_url(url), rules.MAX_HOPS))


def _ask(
    session: requests.Session, url: str, headers: Dict[str, str], transport: Transport, until: float
) -> requests.Response:
    """The head of the server's answer, or a passing failure; a server that dribbles it counts as silent."""
    limit = transport.connect_timeout_s + transport.idle_timeout_s
    limit = max(min(limit, until - time.monotonic()), 0.1)
    outcome: List[Union[requests.Response, Exception]] = []
    gone = threading.Event()

    def ask() -> None:
        try:
            response = _get(session, url, headers, transport)
        except (OSError, ValueError, http.client.HTTPException) as error:
            outcome.append(error)
        else:
            outcome.append(response)
            if gone.is_set():
                response.close()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    waits.join(thread, limit)
    gone.set()
    if not outcome:
        raise download_answer.Later("no answer from %s in %g s" % (rules.shown_host(url), round(limit, 1)))
    if isinstance(outcome[0], Exception):
        raise _as_ours(url, outcome[0], transport) from outcome[0]
    return outcome[0]


def _as_ours(url: str, error: Exception, transport: Transport) -> Exception:
    """What a failed request means, in words without the library's names and the address's query."""
    import requests

    where = rules.shown_url(url)
    if isinstance(error, requests.exceptions.SSLError):
        why = rules.certificate_problem(str(error))
        if why:
            return download_answer.distrust(where, why)
    if isinstance(error, requests.exceptions.InvalidHeader):  # two lengths: two readers would take two bodies
        return codes.refused(codes.DOWNLOAD_REFUSED, "%s answers with headers that contradict each other" % where)
    if isinstance(error, ValueError):
        return codes.refused(codes.BAD_URL, "cannot download from %s: not an address that works" % where)
    host = rules.shown_host(url) + (" through the proxy" if transport.proxy else "")
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return download_answer.Later("no connection to %s in %g s" % (host, transport.connect_timeout_s))
    if isinstance(error, requests.exceptions.Timeout):
        return download_answer.Later("no answer from %s in %g s" % (host, transport.idle_timeout_s))
    return download_answer.Later("no answer from %s: %s" % (host, download_answer.reason(error)))


def _redirected(url: str, response: requests.Response, transport: Transport) -> str:
    location = response.headers.get("Location", "")
    where = rules.next_url(url, location) if location else ""
    refusal = rules.check_led(url, where, transport)
    if refusal is not None:
        raise codes.Refused(refusal)
    return where
