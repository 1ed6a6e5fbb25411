# SPDX-License-Identifier: GPL-3.0-or-later
"""`prepare` asks each place of a file once, for one byte: which of them this host reaches, trusts and finds it at.

Rules:
- All are asked at once and bounded in time, by the transport that the download will use (field case N1).
- One that answers is enough; the others are told and never fatal (N2, N15). None that answers ends prepare.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Sequence

from slotcore import codes
from slotward import download_probe, download_sources, own, waits
from slotward import download_rules as rules

ANSWER_S = 5.0
TOTAL_S = 20.0


def ask(setup: own.Setup, urls: Sequence[str], size: int) -> List[Dict[str, Any]]:
    """What each place answered, as `prepare --json` shows it; raises when none of them has the file."""
    from slotward import fetch

    transport = fetch.transport_of(setup)._replace(
        connect_timeout_s=ANSWER_S, idle_timeout_s=ANSWER_S, budget_s=TOTAL_S
    )
    places = download_sources.Sources(urls, 1)
    threads = [threading.Thread(target=_ask, args=(place, size, transport), daemon=True) for place in places.all]
    for thread in threads:
        thread.start()
    for thread in threads:
        waits.join(thread, TOTAL_S + ANSWER_S)
    if all(_problem(place) for place in places.all):
        raise _end(places)
    return [
        {"url": rules.shown_url(place.url), "ok": not _problem(place), "message": _problem(place)}
        for place in places.all
    ]


def lines(asked: Sequence[Dict[str, Any]]) -> List[str]:
    """The places that do not have the file, for people."""
    return [f"warning: {one['url']} is not used: {one['message']}" for one in asked if not one["ok"]]


def _ask(place: download_sources.Source, size: int, transport: rules.Transport) -> None:
    try:
        download_probe.probe(place.url, size, transport)
    except codes.Refused as error:
        place.refused = error
    except codes.Retryable as error:
        place.said, place.code = error.text, error.code
    else:
        place.out = True  # asked, and all is well


def _problem(place: download_sources.Source) -> str:
    """What is wrong with a place; empty when it has the file."""
    if place.refused is not None:
        return place.refused.text
    return "" if place.out else place.said or f"no answer in {TOTAL_S + ANSWER_S:g} s"


def _end(places: download_sources.Sources) -> Exception:
    if len(places.all) > 1:
        return places.end("")
    only: Optional[codes.Refused] = places.all[0].refused
    return only or codes.Retryable(places.all[0].code, _problem(places.all[0]))
