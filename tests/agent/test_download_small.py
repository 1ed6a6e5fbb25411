# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests and notices from a real server on loopback: bounded in bytes, attempts and time, on the source's hosts alone."""

from __future__ import annotations

import hashlib
import pathlib
import time

import pytest
from support.web import Act, Serve, answer, chunked, dribble, reset, silent, to_close, whole

from slotcore import codes
from slotward import download, download_small

BODY = b'{"manifest": "e30=", "signatures": []}'
QUICK = download.Transport(
    allow_http=True, connect_timeout_s=5.0, idle_timeout_s=5.0, budget_s=20.0, hosts=("127.0.0.1:1",)
)


def redirect(where: str) -> Act:
    """An answer that leads elsewhere."""
    return answer(302, {"Location": where})


def of(url: str, **changes: object) -> download.Transport:
    """The transport of a source on this server."""
    return QUICK._replace(hosts=(url.split("/")[2],), **changes)  # type: ignore[arg-type]


def fetch(url: str, most: int = 1000, **changes: object) -> bytes:
    """Fetch a document from it."""
    return download_small.fetch(url, most, of(url, **changes))


@pytest.mark.parametrize(
    "act", [answer(200, {}, BODY), chunked(BODY), to_close(BODY)], ids=["length", "chunked", "to-close"]
)
def test_a_document_arrives(serving: Serve, act: Act) -> None:
    """Every way that HTTP has to end a body gives the document."""
    assert fetch(serving(act).url) == BODY


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_passes_is_asked_again(serving: Serve, status: int) -> None:
    """Three attempts, and the third may be the one."""
    server = serving(answer(status), reset, answer(200, {}, BODY))
    assert fetch(server.url) == BODY
    assert len(server.requests) == 3


def test_L1_attempts_have_an_end(serving: Serve) -> None:
    """The third failure is the last: whoever asked is told what the server said, and may try again later."""
    server = serving(answer(503))
    with pytest.raises(codes.Retryable, match=r"the server answers 503 .*\(3 attempts\)") as caught:
        fetch(server.url)
    assert caught.value.code == codes.DOWNLOAD_FAILED
    assert len(server.requests) == 3


def test_N8_a_server_that_asks_for_longer_than_there_is_time_is_left_alone(serving: Serve) -> None:
    """Nobody hammers it: the first answer ends it."""
    server = serving(answer(429, {"Retry-After": "600"}))
    with pytest.raises(codes.Retryable, match="asks to come back in 600 s"):
        fetch(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_what_does_not_pass_is_final(serving: Serve, status: int) -> None:
    """One request, one refusal."""
    server = serving(answer(status))
    with pytest.raises(codes.Refused) as caught:
        fetch(server.url)
    assert caught.value.code == codes.DOWNLOAD_REFUSED
    assert len(server.requests) == 1


@pytest.mark.parametrize("act", [answer(200, {}, b"x" * 1001), chunked(b"x" * 70_000), to_close(b"x" * 5_000_000)])
def test_a_longer_document_is_refused(serving: Serve, act: Act) -> None:
    """By its length where it is told, by one byte more than is taken where it is not."""
    with pytest.raises(codes.Refused, match=r"1001 bytes; at most 1000|more than the 1000 bytes"):
        fetch(serving(act).url)
    assert len(fetch(serving(answer(200, {}, b"x" * 1000)).url)) == 1000


def test_a_cut_document_is_asked_for_again(serving: Serve) -> None:
    """Half a manifest is none."""
    server = serving(whole(BODY, stop=10), answer(200, {}, BODY))
    assert fetch(server.url) == BODY


@pytest.mark.parametrize("act", [silent, dribble], ids=["silent", "dribble"])
def test_S3_time_has_an_end_however_a_server_draws_it_out(serving: Serve, act: Act) -> None:
    """Silence and a byte now and then both end with the budget."""
    server, began = serving(act), time.monotonic()
    with pytest.raises(codes.Retryable):
        download_small.fetch(server.url, 1 << 20, of(server.url, budget_s=1.5, idle_timeout_s=1.0))
    assert time.monotonic() - began < 5


def test_another_host_is_not_asked(serving: Serve) -> None:
    """An address that the source does not name costs no connection."""
    server = serving(answer(200, {}, BODY))
    with pytest.raises(codes.Refused) as caught:
        download_small.fetch(server.url, 1000, QUICK._replace(hosts=("releases.example",)))
    assert caught.value.code == codes.BAD_URL
    assert not server.requests


def test_a_redirect_leads_to_named_hosts_alone(serving: Serve) -> None:
    """Five steps within them arrive, another host is refused without being asked, and so is a sixth step."""
    target, other = serving(answer(200, {}, BODY)), serving(answer(200, {}, BODY))
    led = target.url.split("/")[2]
    first = serving(redirect(target.url))
    assert fetch(first.url, redirect_hosts=(led,)) == BODY
    elsewhere = serving(redirect(other.url))
    with pytest.raises(codes.Refused, match=r"\[source\] redirect_hosts") as caught:
        fetch(elsewhere.url, redirect_hosts=(led,))
    assert (caught.value.code, other.requests) == (codes.BAD_REDIRECT, [])
    around = serving(redirect("/again"))
    with pytest.raises(codes.Refused, match="redirects more than 5 times") as caught:
        fetch(around.url)
    assert (caught.value.code, len(around.requests)) == (codes.BAD_REDIRECT, 6)
    down = serving(redirect("ftp://127.0.0.1/x"))
    with pytest.raises(codes.Refused) as caught:
        fetch(down.url)
    assert caught.value.code == codes.BAD_REDIRECT


def test_a_download_keeps_to_the_hosts_too(serving: Serve, tmp_path: pathlib.Path) -> None:
    """The same transport holds for the release itself: its address, and where it is led."""
    content = b"#!/bin/sh\n"
    digest, part = hashlib.sha256(content).hexdigest(), str(tmp_path / "part")
    target = serving(whole(content))
    first = serving(redirect(target.url))
    for hosts, code in ((("releases.example",), codes.BAD_URL), ((first.url.split("/")[2],), codes.BAD_REDIRECT)):
        with pytest.raises(codes.Refused) as caught:
            download.fetch(first.url, part, len(content), digest, QUICK._replace(hosts=hosts))
        assert (caught.value.code, target.requests) == (code, [])
    led = QUICK._replace(hosts=(first.url.split("/")[2],), redirect_hosts=(target.url.split("/")[2],))
    download.fetch(first.url, part, len(content), digest, led)
    assert pathlib.Path(part).read_bytes() == content
