# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch a small document, a manifest or a notice, whole and into memory (products.md, section 8).

Rules:
- By the transport and the rules of every download: redirects by hand, each address judged, nothing from the environment.
- At most one byte more than is taken is read; an answer that says beforehand that it is longer is not read at all.
- Few attempts, spread by chance, and one end for all of them together (field cases S3, L1, N8).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Optional

from slotcore import codes
from slotward import download, download_answer
from slotward import download_rules as rules
from slotward import progress as progresses

if TYPE_CHECKING:
    import requests

ATTEMPTS = 3
FIRST_WAIT_S = 0.5


def fetch(
    url: str,
    most: int,
    transport: rules.Transport,
    attempts: int = ATTEMPTS,
    waits: Optional[progresses.Waits] = None,
) -> bytes:
    """The document at `url`, of at most `most` bytes; `waits` is told of each wait.

    Raises:
        Refused: the address or the answer is not what it must be; asking again will not help.
        Retryable: `download-failed`.

    """
    refusal = rules.check_place(url, transport) or download.check_authorities(url, transport)
    if refusal is not None:
        raise codes.Refused(refusal)
    until = time.monotonic() + transport.budget_s
    with download.session_of(transport) as session:
        for failures in range(1, attempts + 1):
            try:
                return _attempt(session, url, most, transport, until)
            except download_answer.Later as error:
                wait_s = _wait_s(failures, error)
                if failures == attempts or time.monotonic() + wait_s >= until:
                    raise _end(url, failures, error) from error
                if waits is not None:
                    waits(f"{rules.shown_url(url)}: {error}", wait_s, until - time.monotonic())
                time.sleep(wait_s)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _wait_s(failures: int, error: download_answer.Later) -> float:
    chance = int.from_bytes(os.urandom(4), "big") / 2.0**32
    wait = rules.plan_wait(failures, FIRST_WAIT_S, error.asked_s, chance)
    return wait.asked_s if wait.seconds is None else wait.seconds  # longer than anybody waits here: past every end


def _end(url: str, failures: int, error: download_answer.Later) -> codes.Retryable:
    asked = "" if error.asked_s is None else ", and asks to come back in %d s" % error.asked_s
    tried = "%d attempt%s" % (failures, "" if failures == 1 else "s")
    text = "cannot fetch %s: %s%s (%s)" % (rules.shown_url(url), error, asked, tried)
    return codes.Retryable(error.code, text)


def _attempt(session: requests.Session, url: str, most: int, transport: rules.Transport, until: float) -> bytes:
    response = download.follow(session, url, {"Accept-Encoding": "identity"}, transport, until)
    try:
        return download_answer.whole(response, most, until)
    finally:
        response.close()
