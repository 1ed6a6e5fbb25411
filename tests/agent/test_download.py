# SPDX-License-Identifier: GPL-3.0-or-later
"""Downloads from a real server on loopback that can stall, cut, lie, redirect, refuse and pretend."""

from __future__ import annotations

import datetime as dt
import gc
import hashlib
import io
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import server as file_server
from support.web import (
    CONTENT,
    SHA256,
    Act,
    Handler,
    Serve,
    Server,
    answer,
    chunked,
    dribble,
    dribble_head,
    ranged,
    reset,
    serving,
    silent,
    stall,
    to_close,
    whole,
)  # fmt: skip

from slotcore import codes
from slotcore import config as configs
from slotcore import product as products
from slotward import download, download_part, download_probe, download_rules, download_small, own, progress, reach

ROOT = pathlib.Path(__file__).parents[2]
QUICK = download.Transport(
    allow_http=True, connect_timeout_s=10.0, idle_timeout_s=10.0, budget_s=60.0, attempts=3, first_wait_s=0.01
)
IMPATIENT = QUICK._replace(connect_timeout_s=0.5, idle_timeout_s=0.4)


def fetch(
    url: str,
    part: pathlib.Path,
    transport: download.Transport = QUICK,
    told: Optional[progress.Progress] = None,
    content: bytes = CONTENT,
) -> None:
    """Fetch the content."""
    download.fetch(url, str(part), len(content), hashlib.sha256(content).hexdigest(), transport, told)


def refused(url: str, part: pathlib.Path, transport: download.Transport = QUICK) -> codes.Refused:
    """The refusal that a fetch ends in."""
    with pytest.raises(codes.Refused) as caught:
        fetch(url, part, transport)
    return caught.value


def failed(url: str, part: pathlib.Path, transport: download.Transport = QUICK) -> codes.Retryable:
    """The failure that a fetch ends in."""
    with pytest.raises(codes.Retryable) as caught:
        fetch(url, part, transport)
    assert caught.value.code == codes.DOWNLOAD_FAILED
    return caught.value


# --- the good ways ---


@pytest.mark.parametrize("act", [whole(), chunked(CONTENT), to_close(CONTENT)], ids=["length", "chunked", "to-close"])
def test_the_bytes_arrive(serving: Serve, part: pathlib.Path, act: Act) -> None:
    """Every way that HTTP has to end a body gives the file, for its owner alone."""
    server = serving(act)
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert part.stat().st_mode & 0o777 == 0o600
    assert len(server.requests) == 1
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert "range" not in server.requests[0].headers


def test_a_complete_part_needs_no_server(part: pathlib.Path) -> None:
    """What an earlier run finished is not asked for again."""
    part.write_bytes(CONTENT)
    fetch("http://127.0.0.1:9/never", part)
    assert part.read_bytes() == CONTENT


def test_a_part_of_an_earlier_run_is_continued(serving: Serve, part: pathlib.Path) -> None:
    """Only the rest is asked for."""
    part.write_bytes(CONTENT[:400_000])
    server = serving(whole())
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert [request.headers["range"] for request in server.requests] == ["bytes=400000-"]


def test_a_cut_transfer_is_continued_if_the_file_is_the_same(serving: Serve, part: pathlib.Path) -> None:
    """The next attempt names the entity that the first part was of."""
    server = serving(whole(etag='"one"', stop=300_000), whole(etag='"one"'))
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert server.requests[1].headers["range"] == "bytes=300000-"
    assert server.requests[1].headers["if-range"] == '"one"'


def test_a_file_that_changed_meanwhile_is_taken_whole(serving: Serve, part: pathlib.Path) -> None:
    """With If-Range the server sends all of the new file, and nothing is mixed."""
    server = serving(whole(bytes(len(CONTENT)), etag='"old"', stop=300_000), whole(etag='"new"'))
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT


def test_a_weak_entity_tag_is_not_used(serving: Serve, part: pathlib.Path) -> None:
    """A weak tag does not name bytes."""
    server = serving(whole(etag='W/"one"', stop=300_000), whole())
    fetch(server.url, part)
    assert "if-range" not in server.requests[1].headers


def test_a_mix_of_two_files_is_begun_again_once(serving: Serve, part: pathlib.Path) -> None:
    """A part of other bytes cannot be seen until the end; then the whole file is fetched once more."""
    part.write_bytes(bytes(500_000))
    server = serving(whole())
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert ["range" in request.headers for request in server.requests] == [True, False]


def test_a_mix_that_stays_wrong_is_refused(serving: Serve, part: pathlib.Path) -> None:
    """Beginning again happens once; the second time it is the server's bytes that are wrong."""
    part.write_bytes(bytes(500_000))
    server = serving(whole(bytes(len(CONTENT))))
    assert refused(server.url, part).code == codes.DIGEST_MISMATCH
    assert len(server.requests) == 2


def test_wrong_bytes_in_pieces_are_refused_too(serving: Serve, part: pathlib.Path) -> None:
    """Beginning again happens once, also when the second time comes in pieces."""
    part.write_bytes(bytes(500_000))
    server = serving(whole(bytes(len(CONTENT)), stop=600_000))
    assert refused(server.url, part).code == codes.DIGEST_MISMATCH
    assert len(server.requests) == 3


def test_a_server_without_ranges_sends_all(serving: Serve, part: pathlib.Path) -> None:
    """A 200 to a range request replaces what was there."""
    part.write_bytes(bytes(900_000))

    def no_ranges(handler: Handler) -> None:
        handler.head(200, {"Content-Length": str(len(CONTENT))})
        handler.wfile.write(CONTENT)

    server = serving(no_ranges)
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_a_short_range_is_continued(serving: Serve, part: pathlib.Path) -> None:
    """A server may send less of a range than it was asked for."""

    def some(handler: Handler) -> None:
        start = handler.start()
        stop = min(start + 400_000, len(CONTENT))
        headers = {
            "Content-Length": str(stop - start),
            "Content-Range": "bytes %d-%d/%d" % (start, stop - 1, len(CONTENT)),
        }
        handler.head(206, headers)
        handler.wfile.write(CONTENT[start:stop])

    part.write_bytes(CONTENT[:10])
    server = serving(some)
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "content_range",
    [
        "bytes 0-1048575/1048576",
        "bytes 500001-1048575/1048576",
        "bytes 500000-1048575/2000000",
        "bytes 500000-1048576/1048576",
        "bytes 500000-1048575/*",
        "bytes */1048576",
        "items 500000-1048575/1048576",
        "bytes 600000-500000/1048576",
    ],
)
def test_a_wrong_range_is_never_spliced(serving: Serve, part: pathlib.Path, content_range: str) -> None:
    """A partial answer that does not start where the part ends, of the right size, begins the file anew."""
    part.write_bytes(CONTENT[:500_000])
    server = serving(ranged(content_range, 500_000), whole())
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert "range" not in server.requests[1].headers


def test_a_range_that_is_not_there_begins_anew(serving: Serve, part: pathlib.Path) -> None:
    """416 to a part: the part is stale."""
    part.write_bytes(CONTENT[:500_000])
    server = serving(answer(416, {"Content-Range": "bytes */1"}), whole())
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_begins_anew(serving: Serve, part: pathlib.Path) -> None:
    """What cannot be a beginning of the file is dropped before anything is asked."""
    part.write_bytes(CONTENT + b"x")
    opened = download_part.Part(str(part), len(CONTENT))
    assert opened.done == 0
    opened.close()
    part.write_bytes(CONTENT + b"x")
    server = serving(whole())
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert "range" not in server.requests[0].headers


# --- what passes by itself ---


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_a_passing_error_is_tried_again(serving: Serve, part: pathlib.Path, status: int) -> None:
    """Server errors and "too many" are not the end."""
    server = serving(answer(status), answer(status), whole())
    fetch(server.url, part)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "act",
    [
        whole(stop=0),
        whole(stop=100_000),
        chunked(CONTENT[:200_000], end=b""),
        chunked(CONTENT[:9], end=b"zz\r\n"),
        reset,
    ],
    ids=["empty", "cut", "chunk-cut", "chunk-garbage", "reset"],
)
def test_a_broken_body_is_tried_again(serving: Serve, part: pathlib.Path, act: Act) -> None:
    """A transfer that ends early is continued or begun again."""
    server = serving(act, whole())
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT


def test_nobody_listens(part: pathlib.Path) -> None:
    """A refused connection is tried a few times and then passes to whoever asked, with the system's words."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    error = failed("http://127.0.0.1:%d/file?token=secret" % port, part)
    assert "Connection refused" in error.text
    assert "3 attempts" in error.text
    assert "secret" not in error.text


def test_a_name_that_is_not_known(part: pathlib.Path) -> None:
    """A name without an address is a passing failure."""
    error = failed("http://no-such-host.invalid/file", part, QUICK._replace(attempts=1))
    assert "no-such-host.invalid" in error.text


def test_S3_a_server_that_keeps_failing_has_an_end(serving: Serve, part: pathlib.Path) -> None:
    """S3, L1: after so many attempts that moved nothing the download has failed, and says at what."""
    server = serving(answer(503))
    error = failed(server.url, part)
    assert len(server.requests) == 3
    assert "the server answers 503" in error.text
    assert server.url in error.text


def test_S3_the_budget_is_a_deadline(serving: Serve, part: pathlib.Path) -> None:
    """S3: progress resets the count of failures, never the deadline; what came stays for the next run."""

    def a_little(handler: Handler) -> None:
        start = handler.start()
        headers = {"Content-Range": "bytes %d-%d/%d" % (start, len(CONTENT) - 1, len(CONTENT))}
        handler.head(206 if start else 200, {"Content-Length": str(len(CONTENT) - start), **headers})
        handler.wfile.write(CONTENT[start : start + 1000])

    server = serving(a_little)
    begun = time.monotonic()
    error = failed(server.url, part, QUICK._replace(budget_s=1.0, first_wait_s=0.1))
    assert time.monotonic() - begun < 5
    assert len(server.requests) > 3
    assert "no success in 1 s" in error.text
    assert part.stat().st_size >= 4000


def test_N8_retry_after_is_honoured(serving: Serve, part: pathlib.Path) -> None:
    """N8: the next attempt comes no sooner than the server asked for."""
    times: List[float] = []

    def busy(handler: Handler) -> None:
        times.append(time.monotonic())
        answer(429, {"Retry-After": "1"})(handler)

    def late(handler: Handler) -> None:
        times.append(time.monotonic())
        whole()(handler)

    fetch(serving(busy, late).url, part)
    assert 1.0 <= times[1] - times[0] < 3.0


def test_N8_a_wait_that_is_too_long_ends_the_download(serving: Serve, part: pathlib.Path) -> None:
    """N8: nobody is asked again sooner than it wished; the operator is told when."""
    server = serving(answer(503, {"Retry-After": "3600"}))
    error = failed(server.url, part)
    assert len(server.requests) == 1
    assert "asks to come back in 3600 s" in error.text


def test_a_stalled_transfer_ends(serving: Serve, part: pathlib.Path) -> None:
    """Bytes that stop coming end the attempt, and the next one continues."""
    server = serving(stall(300_000), whole())
    begun = time.monotonic()
    fetch(server.url, part, IMPATIENT._replace(attempts=9))
    assert time.monotonic() - begun < 5
    assert server.requests[1].headers["range"] == "bytes=300000-"


def test_a_dribble_is_a_stall(serving: Serve, part: pathlib.Path) -> None:
    """A transfer that moves a little all the time moves too little."""
    server = serving(dribble)
    begun = time.monotonic()
    error = failed(server.url, part, IMPATIENT._replace(attempts=1))
    assert 0.3 < time.monotonic() - begun < 5
    assert "bytes came in" in error.text


@pytest.mark.parametrize("act", [silent, dribble_head], ids=["silent", "dribbled-head"])
def test_a_server_without_an_answer_ends(serving: Serve, part: pathlib.Path, act: Act) -> None:
    """No head in time, however it is drawn out, is a failed attempt."""
    server = serving(act)
    begun = time.monotonic()
    error = failed(server.url, part, IMPATIENT._replace(attempts=1))
    assert time.monotonic() - begun < 5
    assert "no answer" in error.text


def test_the_deadline_holds_within_a_body(serving: Serve, part: pathlib.Path) -> None:
    """A steady transfer that would take for ever ends at the deadline."""

    def slowly(handler: Handler) -> None:
        handler.head(200, {"Content-Length": str(len(CONTENT))})
        start = 0
        while not handler.server.gone.wait(0.05):
            handler.wfile.write(CONTENT[start : start + 8192])
            start += 8192

    begun = time.monotonic()
    error = failed(serving(slowly).url, part, QUICK._replace(budget_s=1.0))
    assert 0.9 < time.monotonic() - begun < 5
    assert "no success in 1 s" in error.text


# --- what is final ---


@pytest.mark.parametrize("status", [204, 203, 300, 304, 400, 401, 403, 404, 407, 410, 416, 451])
def test_any_other_status_is_final(serving: Serve, part: pathlib.Path, status: int) -> None:
    """Asking again would not help, and is not done; what an earlier run fetched stays."""
    server = serving(answer(status))
    error = refused(server.url, part)
    assert error.code == codes.DOWNLOAD_REFUSED
    assert " answers %d" % status in error.text
    assert len(server.requests) == 1


def test_N6_a_page_instead_of_the_file_is_named(serving: Serve, part: pathlib.Path) -> None:
    """N6: an error page with status 200 is refused before it is taken, with its type and its looks."""
    page = b"<!DOCTYPE html><html><body>Sign in to the network</body></html>"
    error = refused(serving(answer(200, {"Content-Type": "text/html; charset=utf-8"}, page)).url, part)
    assert error.code == codes.SIZE_MISMATCH
    assert "offers %d bytes" % len(page) in error.text
    assert "called it text/html; charset=utf-8 and it looks like an HTML page" in error.text
    assert not part.exists()


def test_N6_other_bytes_of_the_right_size_are_named(serving: Serve, part: pathlib.Path) -> None:
    """N6: the digest catches what the size does not, and the message shows both digests and the looks."""
    other = b'{"error": "quota"}'.ljust(len(CONTENT))
    error = refused(serving(whole(other, kind="application/json")).url, part)
    assert error.code == codes.DIGEST_MISMATCH
    assert SHA256 in error.text
    assert hashlib.sha256(other).hexdigest() in error.text
    assert "called it application/json and it looks like JSON" in error.text
    assert not part.exists()


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (whole(CONTENT + b"x"), "offers 1048577 bytes"),
        (whole(CONTENT[:-1]), "offers 1048575 bytes"),
        (chunked(CONTENT + b"x"), "sends more than the 1048576 bytes"),
        (to_close(CONTENT + b"x"), "sends more than the 1048576 bytes"),
        (chunked(CONTENT[:-1]), "sends 1048575 bytes"),
    ],
    ids=["long", "short", "chunked-long", "to-close-long", "chunked-short"],
)
def test_another_size_is_final(serving: Serve, part: pathlib.Path, act: Act, text: str) -> None:
    """A body of another length is not the file, whichever way it says its length."""
    server = serving(act)
    error = refused(server.url, part)
    assert error.code == codes.SIZE_MISMATCH
    assert text in error.text
    assert len(server.requests) == 1
    assert not part.exists()


def test_at_most_one_byte_too_many_is_read(serving: Serve, part: pathlib.Path) -> None:
    """A server that never stops does not fill the disk."""

    def endless(handler: Handler) -> None:
        handler.head(200, {})
        while True:
            handler.wfile.write(CONTENT)

    assert refused(serving(endless).url, part).code == codes.SIZE_MISMATCH


def test_an_encoded_body_is_refused(serving: Serve, part: pathlib.Path) -> None:
    """Nothing but the bytes themselves is taken."""
    error = refused(serving(answer(200, {"Content-Encoding": "gzip"}, CONTENT)).url, part)
    assert error.code == codes.DOWNLOAD_REFUSED
    assert "gzip-encoded" in error.text


def test_identity_is_no_encoding(serving: Serve, part: pathlib.Path) -> None:
    """The name for no encoding is allowed."""
    fetch(serving(answer(200, {"Content-Encoding": "Identity"}, CONTENT)).url, part)
    assert part.read_bytes() == CONTENT


# --- redirects ---


def test_redirects_are_followed(serving: Serve, part: pathlib.Path) -> None:
    """Relative and absolute, five of them, and the range goes along."""
    part.write_bytes(CONTENT[:1000])
    server = serving(whole())
    server.script[:0] = [
        answer(301, {"Location": "/two"}),
        answer(302, {"Location": "three?x=1#part"}),
        answer(303, {"Location": "http://127.0.0.1:%d/four" % server.server_address[1]}),
        answer(307, {"Location": "//127.0.0.1:%d/five" % server.server_address[1]}),
        answer(308, {"Location": "six"}),
    ]
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert [request.path for request in server.requests] == ["/file", "/two", "/three?x=1", "/four", "/five", "/six"]
    assert {request.headers["range"] for request in server.requests} == {"bytes=1000-"}


def test_the_body_of_a_redirect_is_not_read(serving: Serve, part: pathlib.Path) -> None:
    """A redirect with an endless body costs nothing."""

    def endless(handler: Handler) -> None:
        handler.head(302, {"Location": "/file"})
        while not handler.server.gone.wait(0.01):
            handler.wfile.write(b"x" * 1000)

    begun = time.monotonic()
    fetch(serving(endless, whole()).url, part)
    assert part.read_bytes() == CONTENT
    assert time.monotonic() - begun < 5


def test_six_redirects_are_too_many(serving: Serve, part: pathlib.Path) -> None:
    """A loop ends."""
    server = serving(answer(302, {"Location": "/again"}))
    error = refused(server.url, part)
    assert (error.code, len(server.requests)) == (codes.DOWNLOAD_REFUSED, 6)
    assert "more than 5 times" in error.text


@pytest.mark.parametrize(
    "location",
    ["", "ftp://127.0.0.1/file", "file:///etc/shadow", "http://user:pw@127.0.0.1/", "http:///x", "//[bad", "/a b"],
)
def test_a_redirect_elsewhere_is_refused(serving: Serve, part: pathlib.Path, location: str) -> None:
    """Each address on the way is judged like the first one."""
    error = refused(serving(answer(302, {"Location": location} if location else {})).url, part)
    assert error.code == codes.DOWNLOAD_REFUSED
    assert "pw" not in error.text


# --- addresses ---


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://host/file",
        "ftp://host/file",
        "host/file",
        "https:///file",
        "https://user@host/",
        "https://user:pw@host/",
        "https://host:99999/",
        "https://host:0/",
        "https://ho st/",
        "https://host/\n",
        "https://host\\@other/",
        "https://h\u00f6st/",
        "https://[::1/",
        "https://host/" + "x" * 8192,
    ],
)
def test_an_address_that_is_not_taken(part: pathlib.Path, url: str) -> None:
    """https with a host and no credentials; nothing is made on the disk before that is known."""
    error = refused(url, part, download.Transport())
    assert error.code == codes.BAD_URL
    assert "pw" not in error.text
    assert not part.exists()


@pytest.mark.parametrize("url", ["https://..", "https://" + "a" * 70 + ".example/", "https://a..b/"])
def test_an_address_that_only_the_library_refuses(part: pathlib.Path, url: str) -> None:
    """What looks like an address and is none ends as one, or as a name without an address."""
    with pytest.raises((codes.Refused, codes.Retryable)) as caught:
        fetch(url, part, QUICK._replace(attempts=1))
    assert isinstance(caught.value, (codes.Refused, codes.Retryable))
    assert caught.value.code in (codes.BAD_URL, codes.DOWNLOAD_FAILED)


@given(st.text(max_size=40), st.booleans())
def test_judging_an_address_never_raises(url: str, allow_http: bool) -> None:
    """Whatever is asked for, the answer is a refusal or nothing, and the refusal is one line."""
    refusal = download_rules.check_url(url, allow_http)
    assert refusal is None or "\n" not in refusal.text


# --- TLS ---


class Authority(NamedTuple):
    """A certificate authority of the test, and a server's key and certificate for 127.0.0.1 and localhost."""

    ca: pathlib.Path
    chain: pathlib.Path


def make_authority(directory: pathlib.Path, days: str = "2") -> Authority:
    """Made with the extensions that Python 3.13 insists on."""
    directory.mkdir()

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    (directory / "ca.ext").write_text(
        "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
    )
    (directory / "leaf.ext").write_text(
        "basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
    )
    for name in ("ca", "leaf"):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", name + ".key")
        openssl("req", "-new", "-key", name + ".key", "-subj", "/CN=test " + name, "-out", name + ".csr")
    openssl("x509", "-req", "-in", "ca.csr", "-signkey", "ca.key", "-days", "2", "-extfile", "ca.ext", "-out", "ca.pem")
    openssl(
        *("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", days, "-extfile", "leaf.ext", "-out", "leaf.pem"),
    )
    (directory / "chain.pem").write_bytes((directory / "leaf.key").read_bytes() + (directory / "leaf.pem").read_bytes())
    return Authority(directory / "ca.pem", directory / "chain.pem")


@pytest.fixture(name="authority", scope="module")
def _authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls") / "one")


@pytest.fixture(name="secure")
def _secure(authority: Authority) -> Iterator[Serve]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.chain)

    class Secure(Server):
        """The same over TLS; the handshake is the handler's business, not the listener's."""

        def finish_request(self, request: object, client_address: object) -> None:
            """Shake hands and answer."""
            with context.wrap_socket(request, server_side=True) as wrapped:  # type: ignore[arg-type]
                self.RequestHandlerClass(wrapped, client_address, self)  # type: ignore[arg-type]

        @property
        def url(self) -> str:
            """The address of the file."""
            return f"https://{self.server_address[0]!s}:{self.server_address[1]}/file"

    with serving(Secure) as start:
        yield start


def test_https_with_an_authority_of_ones_own(secure: Serve, authority: Authority, part: pathlib.Path) -> None:
    """N3: a private authority from the configuration is believed."""
    fetch(secure(whole()).url, part, QUICK._replace(allow_http=False, ca_file=str(authority.ca)))
    assert part.read_bytes() == CONTENT


def test_a_cut_over_tls_is_continued(secure: Serve, authority: Authority, part: pathlib.Path) -> None:
    """A connection that ends without the end of TLS is a broken body like any other."""
    server = secure(whole(stop=123_456), whole())
    fetch(server.url, part, QUICK._replace(allow_http=False, ca_file=str(authority.ca)))
    assert part.read_bytes() == CONTENT


def test_an_unknown_authority_is_final(secure: Serve, part: pathlib.Path) -> None:
    """A certificate of nobody known is refused at once, with what to look at."""
    server = secure(whole())
    error = refused(server.url, part, QUICK._replace(allow_http=False))
    assert error.code == codes.UNTRUSTED_SERVER
    assert "[update] ca_file" in error.text
    assert "clock" not in error.text, "it is not the clock"
    assert not server.requests


def refused_or_later(asks: Callable[[], object]) -> Tuple[str, str, str]:
    """The code and the words of what must not succeed, and of which kind the error was."""
    try:
        asks()
    except codes.Refused as error:
        return error.code, error.text, codes.REFUSAL
    except codes.Retryable as error:
        return error.code, error.text, codes.RETRYABLE
    raise AssertionError("it was taken")


@pytest.mark.parametrize(
    ("days", "code", "said"),
    [
        (30, codes.CLOCK_BEHIND, "is not yet valid, and this host's clock says 20"),
        (-30, codes.UNTRUSTED_SERVER, "has expired by this host's clock, which says 20"),
    ],
)
def test_N9_a_certificate_of_another_time_names_the_clock(
    tmp_path: pathlib.Path, part: pathlib.Path, days: int, code: str, said: str
) -> None:
    """N9: of one that begins later the host's clock is behind, which may still be set; one that is over is final."""
    at = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=days)
    authority = file_server.make_authority(tmp_path / "authority", ["127.0.0.1"], at)
    transport = QUICK._replace(allow_http=False, ca_file=str(authority.ca))
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    config = configs.load(b"", "/nowhere")[0]._replace(ca_file=str(authority.ca))
    setup = own.Setup(products.Product("probe", "probe.service", "/nowhere", "/nowhere"), config, (), "/nowhere")
    with file_server.FileServer("127.0.0.1", authority) as files:
        url = files.url(file)
        for asks in (
            lambda: fetch(url, part, transport),
            lambda: download_probe.probe(url, len(CONTENT), transport),
            lambda: download_probe.size_of(url, transport),
            lambda: download_small.fetch(url, 100, transport, 2),
            lambda: reach.ask(setup, [url], len(CONTENT)),
        ):
            found, text, kind = refused_or_later(asks)
            assert (found, said in text, kind) == (code, True, codes.CODES[code].kind), text
    assert files.requests == []


def test_another_name_is_final(secure: Serve, authority: Authority, part: pathlib.Path) -> None:
    """A certificate for another host is refused."""
    server = secure(whole(), host="127.0.0.2")
    error = refused(server.url, part, QUICK._replace(allow_http=False, ca_file=str(authority.ca)))
    assert error.code == codes.UNTRUSTED_SERVER
    assert not server.requests


def test_the_environment_decides_nothing(
    secure: Serve, authority: Authority, part: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1: bundles, proxies and netrc of the environment are ignored, in both directions."""
    other = make_authority(tmp_path / "other")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(other.ca))
    server = secure(whole())
    fetch(server.url, part, QUICK._replace(allow_http=False, ca_file=str(authority.ca)))
    assert "authorization" not in server.requests[0].headers
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(authority.ca))
    part.unlink()
    assert refused(server.url, part, QUICK._replace(allow_http=False)).code == codes.UNTRUSTED_SERVER


def test_https_never_leads_to_http(secure: Serve, serving: Serve, authority: Authority, part: pathlib.Path) -> None:
    """A redirect away from TLS is refused unless the configuration says that this is a test."""
    plain = serving(whole())
    transport = QUICK._replace(allow_http=False, ca_file=str(authority.ca))
    server = secure(answer(302, {"Location": plain.url}))
    error = refused(server.url, part, transport)
    assert error.code == codes.DOWNLOAD_REFUSED
    assert "expected https://" in error.text
    assert not plain.requests
    fetch(server.url, part, transport._replace(allow_http=True))
    assert part.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_N3_a_ca_file_without_authorities_is_named(
    part: pathlib.Path, tmp_path: pathlib.Path, content: Optional[bytes]
) -> None:
    """N3: a missing or empty file of the configuration is said before anything is tried."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    error = refused("https://127.0.0.1:9/", part, download.Transport(ca_file=str(file)))
    assert error.code == codes.NO_CA_ROOTS
    assert str(file) in error.text


def test_N3_a_host_without_authorities_is_told(part: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N3: without any roots the message names the package and the setting."""
    import requests.utils

    monkeypatch.setattr(requests.utils, "DEFAULT_CA_BUNDLE_PATH", "/nowhere/ca-certificates.crt")
    error = refused("https://127.0.0.1:9/", part, download.Transport())
    assert error.code == codes.NO_CA_ROOTS
    assert "ca-certificates" in error.text
    assert "[update] ca_file" in error.text


# --- the look ahead ---


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (whole(), None),
        (ranged("bytes 0-0/1048576"), None),
        (chunked(CONTENT), None),
        (ranged("bytes 0-0/7"), codes.SIZE_MISMATCH),
        (whole(b"short"), codes.SIZE_MISMATCH),
        (answer(404), codes.DOWNLOAD_REFUSED),
        (answer(302, {"Location": "ftp://x/"}), codes.DOWNLOAD_REFUSED),
        (answer(200, {"Content-Encoding": "gzip"}, CONTENT), codes.DOWNLOAD_REFUSED),
        (answer(503), codes.DOWNLOAD_FAILED),
        (reset, codes.DOWNLOAD_FAILED),
    ],
)
def test_N1_a_probe_sees_what_a_download_would(serving: Serve, act: Act, code: Optional[str]) -> None:
    """N1: one question of one byte, over the same transport, answers for the host before anything is changed."""
    server = serving(act)
    if code is None:
        download_probe.probe(server.url, len(CONTENT), QUICK)
    else:
        with pytest.raises((codes.Refused, codes.Retryable)) as caught:
            download_probe.probe(server.url, len(CONTENT), QUICK)
        assert isinstance(caught.value, (codes.Refused, codes.Retryable))
        assert caught.value.code == code
    assert len(server.requests) == 1
    assert server.requests[0].headers["range"] == "bytes=0-0"


def test_N1_a_probe_judges_the_address_first() -> None:
    """N1: the same addresses are refused as for a download."""
    with pytest.raises(codes.Refused) as caught:
        download_probe.probe("http://127.0.0.1:9/", 1, download.Transport())
    assert caught.value.code == codes.BAD_URL


# --- proxies ---


def test_N1_the_configured_proxy_is_used(serving: Serve, part: pathlib.Path) -> None:
    """N1: with a proxy in the configuration the request goes there, whatever the host."""
    proxy = serving(whole())
    fetch(
        "http://files.invalid/slotward",
        part,
        QUICK._replace(proxy="http://127.0.0.1:%d" % proxy.server_address[1]),
    )
    assert part.read_bytes() == CONTENT
    assert proxy.requests[0].path == "http://files.invalid/slotward"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # old urllib3 leaves this socket to gc
def test_N1_a_proxy_that_says_no_is_named(serving: Serve, authority: Authority, part: pathlib.Path) -> None:
    """N1: a tunnel that the proxy does not open is told in its words, without a password."""

    class NoTunnel(Handler):
        """Refuses CONNECT."""

        def do_CONNECT(self) -> None:
            """No."""
            self.send_error(403, "Not through here")

    proxy = serving(whole())
    proxy.RequestHandlerClass = NoTunnel
    text = failed(
        "https://files.invalid/slotward",
        part,
        QUICK._replace(
            attempts=1, ca_file=str(authority.ca), proxy="http://user:secret@127.0.0.1:%d" % proxy.server_address[1]
        ),
    ).text
    gc.collect()
    assert "403" in text
    assert "secret" not in text


# --- the part file ---


@pytest.mark.parametrize("kind", ["link", "hardlink", "fifo", "dangling"])
def test_i6_a_planted_part_is_not_followed(
    serving: Serve, part: pathlib.Path, tmp_path: pathlib.Path, kind: str
) -> None:
    """I6: whatever lies under the part's name, the bytes go into a new file and nothing else is written."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    if kind == "link":
        part.symlink_to(victim)
    elif kind == "dangling":
        part.symlink_to(tmp_path / "nothing")
    elif kind == "hardlink":
        os.link(victim, part)
    else:
        os.mkfifo(part)
    fetch(serving(whole()).url, part)
    assert part.read_bytes() == CONTENT
    assert part.is_file()
    assert not part.is_symlink()
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "nothing").exists()


def test_i6_a_linked_staging_directory_is_refused(serving: Serve, part: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """I6: the directory's own name may not be a link."""
    (tmp_path / "link").symlink_to(part.parent)
    error = refused(serving(whole()).url, tmp_path / "link" / part.name)
    assert error.code == codes.STAGED_UNSAFE


def test_a_disk_that_cannot_be_written_is_no_download_error(serving: Serve, tmp_path: pathlib.Path) -> None:
    """What the local disk says comes out as what it is."""
    with pytest.raises(FileNotFoundError):
        fetch(serving(whole()).url, tmp_path / "nowhere" / "x.part")


def test_a_full_disk_is_no_download_error(part: pathlib.Path, serving: Serve) -> None:
    """A write that fails is neither tried again nor blamed on the server."""
    server = serving(whole())
    program = (
        "import resource, signal, sys\n"
        "from slotward import download\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500000, 500000))\n"
        "try:\n"
        "    download.fetch(sys.argv[1], sys.argv[2], 1048576, sys.argv[3], download.Transport(allow_http=True))\n"
        "except OSError as error:\n"
        "    print(type(error).__name__, error.strerror)\n"
    )
    done = run_agent(program, server.url, str(part), SHA256)
    assert done.stdout == "OSError File too large\n"
    assert len(server.requests) == 1


def run_agent(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the agent's modules in a process of its own."""
    paths = os.pathsep.join(str(ROOT / place) for place in ("plugins/module_utils", "agent/src"))
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_memory_is_bounded_whatever_the_size(serving: Serve, part: pathlib.Path) -> None:
    """Fetching and copying 80 MiB takes at most 64 MiB of memory (issue 2, speed)."""
    block, count = os.urandom(1 << 20), 80
    digest = hashlib.sha256()
    for _number in range(count):
        digest.update(block)

    def large(handler: Handler) -> None:
        handler.head(200, {"Content-Length": str(count << 20)})
        for _number in range(count):
            handler.wfile.write(block)

    program = (
        "import os, sys\n"
        "from slotward import download, staging\n"
        "size = int(sys.argv[3])\n"
        "download.fetch(sys.argv[1], sys.argv[2], size, sys.argv[4], download.Transport(allow_http=True))\n"
        "source = staging.open_staged(*os.path.split(sys.argv[2]))\n"
        "staging.copy_verified(source, sys.argv[2] + '.slot', size, sys.argv[4])\n"
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])\n"
    )
    done = run_agent(program, serving(large).url, str(part), str(count << 20), digest.hexdigest())
    assert int(done.stdout) <= 64 * 1024


def test_a_killed_download_is_continued(serving: Serve, part: pathlib.Path) -> None:
    """After SIGKILL in the middle the next run asks for the rest only."""
    program = (
        "import sys\n"
        "from slotward import download\n"
        "download.fetch(sys.argv[1], sys.argv[2], 1048576, sys.argv[3], download.Transport(allow_http=True))\n"
    )
    server = serving(stall(700_000), whole())
    paths = os.pathsep.join(str(ROOT / place) for place in ("plugins/module_utils", "agent/src"))
    argv = [sys.executable, "-B", "-c", program, server.url, str(part), SHA256]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": paths}) as child:
        until = time.monotonic() + 20
        while time.monotonic() < until and not (part.exists() and part.stat().st_size == 700_000):
            time.sleep(0.02)
        child.kill()
    fetch(server.url, part)
    assert part.read_bytes() == CONTENT
    assert server.requests[1].headers["range"] == "bytes=700000-"


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    """Importing the module costs no requests (DESIGN 9)."""
    program = "import sys\nfrom slotward import download\nprint([name for name in ('requests', 'urllib3', 'email') if name in sys.modules])\n"
    assert run_agent(program).stdout in ("[]\n", "['email']\n")


# --- decisions ---


def test_back_off_doubles_up_to_a_minute() -> None:
    """Between half of it and all of it, by chance."""
    assert [download_rules.back_off_s(number, 1.0, 1.0) for number in (1, 2, 3, 4, 7, 99)] == [1, 2, 4, 8, 60, 60]
    assert [download_rules.back_off_s(number, 1.0, 0.0) for number in (1, 2, 3)] == [0.5, 1, 2]


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        (None, None, None),
        ("0", None, 0.0),
        ("120", None, 120.0),
        (" 7 ", None, 7.0),
        ("-1", None, None),
        ("1.5", None, None),
        ("soon", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:27:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", None, None),
        ("Wed, 21 Oct 2026 07:28:30", "Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_retry_after_in_both_forms(value: Optional[str], date: Optional[str], seconds: Optional[float]) -> None:
    """Seconds, or a date against the server's own clock; anything else is as if it were not there."""
    assert download_rules.parse_retry_after(value, date) == seconds


def test_N8_hosts_do_not_come_back_at_once() -> None:
    """N8: the same answer to many hosts spreads them, and never before the time asked for."""
    waits = [download_rules.plan_wait(1, 1.0, 100.0, chance / 10).seconds for chance in range(11)]
    assert len(set(waits)) == 11
    assert min(wait for wait in waits if wait is not None) == 100.0
    assert download_rules.plan_wait(6, 1.0, 0.0, 1.0).seconds == 32.0
    assert download_rules.plan_wait(1, 1.0, 301.0, 1.0) == (None, 301.0)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"", "nothing"),
        (b"\x7fELF\x02", "an ELF program"),
        (b"#!/bin/sh", "a script"),
        (b"\x1f\x8b\x08", "gzip data"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\xef\xbb\xbf\n<!doctype HTML>", "an HTML page"),
        (b"<head></head><HTML>", "an HTML page"),
        (b"<?xml version='1.0'?><Error/>", "XML"),
        (b' {"a": 1}', "JSON"),
        (b"Not found\n", "text"),
        (b"\x00\x01", "binary data"),
    ],
)
def test_N6_what_first_bytes_look_like(head: bytes, what: str) -> None:
    """N6: in words that tell an operator where the bytes came from."""
    assert download_rules.describe_bytes(head) == what


# --- progress ---


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        """As told."""
        return self.terminal


def test_progress_on_a_terminal_is_one_line() -> None:
    """Bytes, rate and time left, drawn over itself, at most ten times a second, and ended."""
    screen, clock = Screen(True), iter([0.0, 0.05, 1.0, 1.01, 2.0])
    told = progress.Progress(screen, "slotward 1.1.0", now=lambda: next(clock))
    for done in (0, 1 << 20, 5 << 20, 6 << 20, 10 << 20):
        told(done, 10 << 20)
    told.close()
    lines = screen.getvalue().split("\r")
    assert [line.rstrip(" ") for line in lines] == [
        "",
        "slotward 1.1.0: 5.0 MiB of 10.0 MiB (50 %), 5.0 MiB/s, 0:01 left",
        "slotward 1.1.0: 10.0 MiB of 10.0 MiB (100 %), 5.0 MiB/s".ljust(79) + "\n",
    ]


def test_progress_elsewhere_is_a_few_lines() -> None:
    """A line for each quarter, and one each ten seconds when it is slow."""
    screen = Screen(False)
    seconds = 0.0

    def now() -> float:
        return seconds

    told = progress.Progress(screen, "x", now=now)
    for percent in range(101):
        told(percent * 1000, 100_000)
        seconds += 0.01
    assert screen.getvalue().count("\n") == 4
    told = progress.Progress(screen, "x", now=now)
    for percent in range(25):
        told(percent * 1000, 100_000)
        seconds += 1.0
    assert screen.getvalue().count("\n") == 6


def test_a_resumed_download_has_the_rate_of_this_run() -> None:
    """What an earlier run fetched does not count as speed."""
    screen, clock = Screen(False), iter([0.0, 10.0])
    told = progress.Progress(screen, "x", now=lambda: next(clock))
    told(900, 1000)
    told(1000, 1000)
    assert screen.getvalue() == "x: 1000 B of 1000 B (100 %), 10 B/s\n"


def test_progress_survives_a_closed_stream() -> None:
    """What cannot be written is not an error of the work."""
    screen = Screen(False)
    told = progress.Progress(screen, "x")
    screen.close()
    told.note("hello")
    told(0, 1)
    told(1, 1)


def test_waits_are_told(serving: Serve, part: pathlib.Path) -> None:
    """An operator sees why nothing moves."""
    screen = Screen(True)
    fetch(serving(whole(stop=300_000), whole()).url, part, told=download.progress_to(screen, "slotward 1.1.0"))
    assert "slotward 1.1.0: the transfer ended after 300000 of 1048576 bytes; next attempt in" in screen.getvalue()
    assert screen.getvalue().endswith("\n")
