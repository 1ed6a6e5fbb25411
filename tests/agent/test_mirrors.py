# SPDX-License-Identifier: GPL-3.0-or-later
"""Several places for one file: asked in order, none trusted more than another, all within one budget; and proxies."""

from __future__ import annotations

import hashlib
import pathlib
import select
import socket
import socketserver
import threading
import time
from typing import Dict, Iterator, List, Tuple, Type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import server as making
from support.web import CONTENT, SHA256, Act, Serve, answer, silent, stall, whole

from slotcore import codes
from slotcore import config as configs
from slotcore import target as targets
from slotward import download, download_sources, fetch, gate, own, reach

QUICK = download.Transport(
    allow_http=True, connect_timeout_s=10.0, idle_timeout_s=10.0, budget_s=60.0, attempts=3, first_wait_s=0.01
)
DEAD = "http://127.0.0.1:9/file"
WRONG = bytes(len(CONTENT))


def get(part: pathlib.Path, *urls: str, transport: download.Transport = QUICK) -> None:
    """Fetch the content from the first of the places that has it."""
    download.fetch(urls[0], str(part), len(CONTENT), SHA256, transport, others=urls[1:])
    assert part.read_bytes() == CONTENT


def ends(kind: Type[codes.Refused] | Type[codes.Retryable], part: pathlib.Path, *urls: str, **changes: float) -> str:
    """The text of the error that a fetch ends in."""
    with pytest.raises(kind) as caught:
        get(part, *urls, transport=QUICK._replace(**changes))  # type: ignore[arg-type]
    return str(caught.value)


# --- order and falling through ---


def test_the_first_place_that_has_it_is_the_only_one_asked(serving: Serve, part: pathlib.Path) -> None:
    """In their order, and nobody without need (N8)."""
    first, second = serving(whole()), serving(whole())
    get(part, first.url, second.url)
    assert (len(first.requests), len(second.requests)) == (1, 0)


@pytest.mark.parametrize(
    "act",
    [
        answer(404),
        answer(403),
        answer(503),
        answer(429, {"Retry-After": "200"}),
        answer(503, {"Retry-After": "4000"}),
        answer(302, {"Location": "ftp://elsewhere/"}),
        answer(200, {"Content-Type": "text/html"}, b"<html>sign in</html>"),
        answer(200, {"Content-Encoding": "gzip"}, CONTENT),
        whole(WRONG),
        whole(CONTENT[:-1]),
        whole(CONTENT + b"x"),
        whole(stop=100_000),
    ],
)
def test_N15_whatever_one_place_answers_the_next_is_asked(serving: Serve, part: pathlib.Path, act: Act) -> None:
    """N15: a mirror that is behind, broken, busy or lying costs one question and no wait."""
    first, second = serving(act), serving(whole())
    begun = time.monotonic()
    get(part, first.url, second.url)
    assert (len(first.requests), len(second.requests)) == (1, 1)
    assert time.monotonic() - begun < 25


def test_N2_a_place_that_is_not_there_is_not_fatal(serving: Serve, part: pathlib.Path) -> None:
    """N2: a refused connection, a name that does not resolve."""
    get(part, DEAD, "http://nowhere.invalid/file", serving(whole()).url)


def test_a_cut_transfer_goes_on_elsewhere(serving: Serve, part: pathlib.Path) -> None:
    """What one place sent is not fetched again, and its entity tag is not shown to another."""
    first, second = serving(whole(etag='"one"', stop=300_000)), serving(whole(etag='"two"'))
    get(part, first.url, second.url)
    assert second.requests[0].headers["range"] == "bytes=300000-"
    assert "if-range" not in second.requests[0].headers


def test_a_lie_that_was_continued_elsewhere_is_found(serving: Serve, part: pathlib.Path) -> None:
    """A place that lies and cuts: the mix is thrown away, and from then on each place is judged by its own bytes."""
    liar, honest = serving(whole(WRONG, stop=300_000)), serving(whole())
    get(part, liar.url, honest.url)
    assert "range" not in honest.requests[-1].headers


def test_a_liar_cannot_spoil_an_honest_place_that_cuts(serving: Serve, part: pathlib.Path) -> None:
    """Both cut their transfers again and again: what is kept after the first mix is of one place."""
    liar = serving(whole(WRONG, stop=300_000))
    honest = serving(whole(stop=400_000))
    get(part, liar.url, honest.url, transport=QUICK._replace(attempts=8))


def test_rounds_come_back_to_what_may_pass(serving: Serve, part: pathlib.Path) -> None:
    """A busy place is asked again in the next round, one that said no is not."""
    gone, busy = serving(answer(404)), serving(answer(503), answer(503), whole())
    get(part, gone.url, busy.url)
    assert (len(gone.requests), len(busy.requests)) == (1, 3)


def test_retry_after_holds_for_its_place_alone(serving: Serve, part: pathlib.Path) -> None:
    """N8: who asks to be left alone for a minute is, while another is asked again at once."""
    tired, busy = serving(answer(429, {"Retry-After": "60"})), serving(answer(503), answer(503), whole())
    begun = time.monotonic()
    get(part, tired.url, busy.url)
    assert (len(tired.requests), len(busy.requests)) == (1, 3)
    assert time.monotonic() - begun < 25


def test_a_host_waits_when_every_place_asks_it_to(serving: Serve, part: pathlib.Path) -> None:
    """For the shortest of their wishes."""
    one, two = (serving(answer(503, {"Retry-After": seconds}), whole()) for seconds in ("100", "1"))
    begun = time.monotonic()
    get(part, one.url, two.url)
    assert 1.0 <= time.monotonic() - begun < 60
    assert (len(one.requests), len(two.requests)) == (1, 2)


# --- how it ends ---


def test_each_place_is_named_when_none_has_it(serving: Serve, part: pathlib.Path) -> None:
    """All final: refused, with one code when they agree and download-refused when they do not."""
    one, two = serving(answer(404)), serving(answer(410))
    text = ends(codes.Refused, part, one.url, two.url)
    assert text == "no place has the file: %s answers 404 Not Found; %s answers 410 Gone" % (one.url, two.url)
    mixed = serving(whole(WRONG))
    with pytest.raises(codes.Refused) as caught:
        get(part, one.url, mixed.url)
    assert caught.value.code == codes.DOWNLOAD_REFUSED
    with pytest.raises(codes.Refused) as caught:
        get(part, mixed.url, serving(whole(WRONG)).url)
    assert caught.value.code == codes.DIGEST_MISMATCH
    assert not part.exists()


def test_one_that_may_pass_makes_it_worth_a_try_later(serving: Serve, part: pathlib.Path) -> None:
    """A final no and a passing one together are passing; the part stays."""
    one, two = serving(answer(404)), serving(whole(stop=1000), answer(503))
    text = ends(codes.Retryable, part, one.url, two.url)
    assert text.startswith(
        "cannot download the file from any of 2 places: %s answers 404 Not Found; %s: " % (one.url, two.url)
    )
    assert text.endswith("the server answers 503 Service Unavailable (3 attempts, nothing new came)")
    assert part.stat().st_size == 1000


def test_all_that_ask_for_too_long_end_it_at_once(serving: Serve, part: pathlib.Path) -> None:
    """Nobody waits here for more than five minutes, and the wish is told."""
    one, two = (serving(answer(503, {"Retry-After": "301"})) for _number in range(2))
    text = ends(codes.Retryable, part, one.url, two.url)
    assert text.count("and asks to come back in 301 s") == 2


# --- budgets ---


def test_the_time_is_one_budget_over_all_places(serving: Serve, part: pathlib.Path) -> None:
    """Three silent places end in the time of one budget, not of three."""
    urls = [serving(silent).url for _number in range(3)]
    begun = time.monotonic()
    text = ends(codes.Retryable, part, *urls, budget_s=1.0, idle_timeout_s=30.0)
    assert time.monotonic() - begun < 25
    assert "(no success in 1 s)" in text


def test_bytes_are_one_budget_over_all_places(serving: Serve, part: pathlib.Path) -> None:
    """Places that always begin anew and always cut: what they may send has an end, however long they would go on."""

    def anew(number: int) -> Act:
        def act(handler: object) -> None:
            handler.head(200, {"Content-Length": str(len(CONTENT))})  # type: ignore[attr-defined]
            handler.wfile.write(CONTENT[: 500_000 + number])  # type: ignore[attr-defined]

        return act

    one, two = (serving(*[anew(number) for number in range(start, 200, 2)]) for start in (0, 1))
    text = ends(codes.Retryable, part, one.url, two.url, attempts=1000)
    assert "bytes came for a file of 1048576" in text
    assert len(one.requests) + len(two.requests) < 20


def test_a_stalled_place_is_left_for_another(serving: Serve, part: pathlib.Path) -> None:
    """The idle watchdog ends one attempt, and the next place goes on."""
    slow, quick = serving(stall(200_000)), serving(whole())
    get(part, slow.url, quick.url, transport=QUICK._replace(idle_timeout_s=0.5))
    assert quick.requests[0].headers["range"] == "bytes=200000-"


@given(st.lists(st.sampled_from(["ok", "later", "asked", "long", "no"]), min_size=1, max_size=4), st.data())
def test_the_choice_of_places_always_ends(answers: List[str], data: st.DataObject) -> None:
    """Whatever places answer: each round asks in order, and after finitely many there is an end or a file."""
    places = download_sources.Sources(["http://h%d/x" % number for number in range(len(answers))], 3)
    now = 0.0
    asked: List[int] = []
    for _step in range(200):
        source = places.turn(now)
        try:
            if source is None:
                asked = []
                now += (places.end_round(now) or 0.0) + 1.0
                continue
            index = places.all.index(source)
            assert index not in asked
            assert all(index > other for other in asked)
            asked.append(index)
            kind = data.draw(st.sampled_from([answers[index], "later"]))
            if kind == "ok":
                return
            if kind == "no":
                places.refuse(source, codes.refused(codes.DOWNLOAD_REFUSED, "no"))
            else:
                seconds = {"later": None, "asked": 5.0, "long": 1000.0}[kind]
                places.fail(source, download_sources.Later("x", seconds), now, False)
        except (codes.Refused, codes.Retryable):
            return
    raise AssertionError("no end")


# --- what a host's configuration makes of it ---


def setup_of(**update: object) -> own.Setup:
    """A host with this configuration."""
    lines = [
        "%s = %s" % (key, str(value).lower() if isinstance(value, bool) else '"%s"' % value)
        for key, value in update.items()
    ]
    config, problems = configs.load(("[update]\n" + "\n".join(lines) + "\n").encode(), "config.toml")
    assert problems == ()
    return own.Setup(own.product_of(config), config, problems, "config.toml")


def target(url: str) -> targets.Target:
    """A target with this address."""
    return targets.Target("slotward", "1.1.0", url, SHA256, "")


def test_mirrors_come_first_and_the_targets_own_address_last() -> None:
    """A site's mirror is what its operator wants used; below it the layout is that of a release directory."""
    setup = setup_of(mirrors="https://one/x/, https://two")
    name = targets.artifact_name("slotward", "1.1.0", gate.this_platform())
    wanted = ("https://one/x/slotward/1.1.0/" + name, "https://two/slotward/1.1.0/" + name)
    assert fetch.sources_of(setup, target("https://three/file?signed=1")) == (*wanted, "https://three/file?signed=1")
    assert fetch.sources_of(setup, target("")) == wanted
    assert fetch.sources_of(setup, target(wanted[1])) == wanted
    assert fetch.sources_of(setup_of(), target("")) == ()


def test_N1_prepare_asks_each_place_once(serving: Serve) -> None:
    """N1: for one byte, by the configuration's own transport; what fails is told, one that answers is enough."""
    mirror, origin = serving(answer(404)), serving(whole())
    setup = setup_of(mirrors=mirror.url.rpartition("/")[0], allow_http=True)
    sources = fetch.sources_of(setup, target(origin.url))
    asked = reach.ask(setup, sources, len(CONTENT))
    assert [(one["url"], one["ok"]) for one in asked] == [(sources[0], False), (origin.url, True)]
    assert reach.lines(asked) == ["warning: %s is not used: %s answers 404 Not Found" % (sources[0], sources[0])]
    assert [request.headers["range"] for request in mirror.requests + origin.requests] == ["bytes=0-0"] * 2


def test_N1_prepare_ends_when_no_place_answers(serving: Serve) -> None:
    """N1: one place: its own refusal; several: all of them; a passing failure among them makes it passing."""
    gone, setup = serving(answer(404)), setup_of(allow_http=True)
    with pytest.raises(codes.Refused) as refused:
        reach.ask(setup, [gone.url], 5)
    assert refused.value.text == gone.url + " answers 404 Not Found"
    with pytest.raises(codes.Refused) as refused:
        reach.ask(setup, [gone.url, serving(whole()).url], 5)
    assert refused.value.code == codes.DOWNLOAD_REFUSED
    with pytest.raises(codes.Retryable) as later:
        reach.ask(setup, [gone.url, DEAD], 5)
    assert DEAD in later.value.text
    with pytest.raises(codes.Retryable) as later:
        reach.ask(setup, [DEAD], 5)
    assert later.value.code == codes.DOWNLOAD_FAILED


# --- proxies ---


class Proxy(socketserver.ThreadingTCPServer):
    """A small HTTP proxy: CONNECT for https, absolute addresses for http; it remembers what it was asked."""

    daemon_threads = True
    allow_reuse_address = True
    asked: List[Tuple[str, Dict[str, str]]]
    status = b"200 OK"
    to: Tuple[str, int] = ("", 0)

    def handle_error(self, request: object, client_address: object) -> None:
        """An end that goes away in the middle is no error of the test."""

    @property
    def url(self) -> str:
        """Its address."""
        return "http://127.0.0.1:%d" % self.server_address[1]


class Through(socketserver.StreamRequestHandler):
    """One connection through the proxy."""

    server: Proxy

    def handle(self) -> None:
        """Read the head, answer a CONNECT or pass the request on, and then carry bytes both ways."""
        line = self.rfile.readline().decode("latin-1").split()
        headers: Dict[str, str] = {}
        for raw in iter(self.rfile.readline, b"\r\n"):
            key, _colon, value = raw.decode("latin-1").partition(":")
            headers[key.lower()] = value.strip()
        self.server.asked.append((" ".join(line[:2]), headers))
        if self.server.status != b"200 OK":
            self.wfile.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % self.server.status)
            return
        if line[0] == "CONNECT":
            self._connect(line[1])
        else:
            host, _slash, path = line[1].partition("://")[2].partition("/")
            self._pass_on(host, path, headers)

    def _connect(self, where: str) -> None:
        host, _colon, port = where.rpartition(":")
        with socket.create_connection(self.server.to if self.server.to[1] else (host, int(port)), 10) as other:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._carry(other)

    def _pass_on(self, host: str, path: str, headers: Dict[str, str]) -> None:
        name, _colon, port = host.partition(":")
        with socket.create_connection((name, int(port or 80)), 10) as other:
            kept = "".join("%s: %s\r\n" % pair for pair in headers.items() if not pair[0].startswith("proxy-"))
            other.sendall(("GET /%s HTTP/1.1\r\n%s\r\n" % (path, kept)).encode("latin-1"))
            self._carry(other)

    def _carry(self, other: socket.socket) -> None:
        ends = {self.connection: other, other: self.connection}
        while True:
            for one in select.select(list(ends), [], [], 10)[0]:
                data = one.recv(65536)
                if not data:
                    return
                ends[one].sendall(data)


@pytest.fixture(name="proxy")
def _proxy() -> Iterator[Proxy]:
    server = Proxy(("127.0.0.1", 0), Through)
    server.asked = []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_N1_http_goes_through_the_proxy(serving: Serve, part: pathlib.Path, proxy: Proxy) -> None:
    """N1: every place of a file is reached through the one proxy of the configuration, redirects too."""
    gone, last = serving(answer(404)), serving(whole())
    moved = serving(answer(302, {"Location": last.url}))
    get(part, gone.url, moved.url, transport=QUICK._replace(proxy=proxy.url))
    assert [line for line, _headers in proxy.asked] == ["GET " + one.url for one in (gone, moved, last)]


def test_N1_the_look_ahead_goes_through_the_proxy_too(serving: Serve, proxy: Proxy) -> None:
    """N1: what prepare asks travels as the download will."""
    server = serving(whole())
    setup = setup_of(allow_http=True, proxy=proxy.url)
    assert reach.ask(setup, [server.url], len(CONTENT))[0]["ok"]
    assert [line for line, _headers in proxy.asked] == ["GET " + server.url]


def test_N1_https_goes_through_the_proxy_by_connect(
    part: pathlib.Path, proxy: Proxy, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1, N3: through CONNECT to a server that only the configuration's own authority vouches for; the proxy sees no path.

    What the environment says of proxies and authorities changes nothing, and another authority is not believed.
    """
    authority, other = (making.make_authority(tmp_path / name, ["127.0.0.1"]) for name in ("one", "other"))
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = tmp_path / "artifact"
    file.write_bytes(CONTENT)
    quick = QUICK._replace(allow_http=False, proxy=proxy.url)
    with making.FileServer("127.0.0.1", authority) as files:
        url = files.url(file)
        get(part, url, transport=quick._replace(ca_file=str(authority.ca)))
        assert [line for line, _headers in proxy.asked] == ["CONNECT " + url.split("/")[2]]
        part.unlink()
        with pytest.raises(codes.Refused) as caught:
            get(part, url, transport=quick._replace(ca_file=str(other.ca)))
    assert caught.value.code == codes.UNTRUSTED_SERVER
    assert files.requests == ["/artifact"]


def test_a_proxy_that_refuses_is_a_passing_failure(serving: Serve, part: pathlib.Path, proxy: Proxy) -> None:
    """Its 502 is tried again; a 403 of its own is final as any 403."""
    proxy.status = b"502 Bad Gateway"
    assert "502" in ends(codes.Retryable, part, serving(whole()).url, proxy=proxy.url)  # type: ignore[arg-type]
    proxy.status = b"403 Forbidden"
    assert "403" in ends(codes.Refused, part, serving(whole()).url, proxy=proxy.url)  # type: ignore[arg-type]


def test_a_proxy_that_is_not_there_is_named(part: pathlib.Path) -> None:
    """The message says that it was the way through the proxy."""
    text = ends(codes.Retryable, part, "http://127.0.0.1:9/file", proxy="http://127.0.0.1:9")  # type: ignore[arg-type]
    assert "through the proxy" in text


def test_content_is_what_it_says() -> None:
    """The vectors of this file."""
    assert hashlib.sha256(CONTENT).hexdigest() == SHA256
