# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks by whoever serves the file, or gives its address: the genuine manifest, and something else than its bytes.

``PROCESS`` runs the real build of the agent as a process (``victim``); what waits or retries runs the same download by itself,
impatiently (``PASSING``). In both nothing is staged that was not signed for, and nothing stays that could be taken for it.
"""

from __future__ import annotations

import json
import os
import pathlib
import ssl
import time
from typing import Callable, Iterator, List, Mapping, NamedTuple, Tuple

import pytest
from forger import victim
from support import server as authorities
from support import web
from support.web import Act, Handler, Serve, answer, chunked, to_close, whole

from slotcore import codes
from slotward import download

FILE, SHA256, SIZE = victim.ARTIFACT, victim.SHA256, len(victim.ARTIFACT)
PAGE = b"<!DOCTYPE html><html><body>Sign in to the network</body></html>"
REFUSED, WRONG_SIZE, WRONG_BYTES = codes.DOWNLOAD_REFUSED, codes.SIZE_MISMATCH, codes.DIGEST_MISMATCH


class Row(NamedTuple):
    """What the server does, and the code and words of the refusal that names it."""

    name: str
    code: str
    says: str
    act: Act


class Asked(NamedTuple):
    """What the control side sends instead of a plain target."""

    name: str
    code: str
    says: str
    target: Callable[[], bytes]
    flags: Tuple[str, ...] = ()


def heads(*lines: Tuple[str, str], status: int = 200, body: bytes = FILE) -> Act:
    """An answer with these very headers, some of them twice if wanted."""

    def act(handler: Handler) -> None:
        handler.send_response(status)
        for key, value in lines:
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(body)

    return act


def endless(handler: Handler) -> None:
    """A body without an end."""
    handler.head(200, {})
    while not handler.server.gone.is_set():
        handler.wfile.write(FILE)


def dribble(handler: Handler) -> None:
    """The file, a byte at a time, each sooner than any single read times out."""
    handler.head(200, {"Content-Length": str(SIZE)})
    for byte in FILE:
        handler.wfile.write(bytes([byte]))
        if handler.server.gone.wait(0.1):
            return


def no_http(handler: Handler) -> None:
    """Another protocol."""
    handler.wfile.write(b"SSH-2.0-x\r\n")


def to(location: str, status: int = 302) -> Act:
    """A redirect."""
    return answer(status, {"Location": location})


def length(text: str) -> Act:
    """The file under a length of the server's own."""
    return heads(("Content-Length", text))


def asked(url: str = "https://releases.invalid/x", **changes: str) -> Callable[[], bytes]:
    """A target with other words."""
    return lambda: json.dumps(victim.target(url, **changes)).encode()


def altered(before: str, after: str) -> Callable[[], bytes]:
    """A target spelled otherwise."""
    return lambda: asked()().decode().replace(before, after, 1).encode("utf-8", "surrogatepass")


def released(**changes: object) -> Callable[[], bytes]:
    """A target with another signed manifest."""
    return asked(signature=victim.manifest(**changes).decode())


def one_signature() -> str:
    """The genuine manifest with the second signature taken away."""
    found = json.loads(victim.manifest())
    return json.dumps({**found, "signatures": found["signatures"][:1]})


# fmt: off
PROCESS = (
    Row("other bytes of the same size", WRONG_BYTES, SHA256, whole(FILE[:-1] + b"!")),
    Row("one bit changed", WRONG_BYTES, SHA256, whole(bytes([FILE[0] ^ 1]) + FILE[1:])),
    Row("one byte too many", WRONG_SIZE, "offers 65 bytes", whole(FILE + b"#")),
    Row("one byte too many, in chunks", WRONG_SIZE, "sends more than the 64 bytes", chunked(FILE + b"#")),
    Row("one byte too many, to the end of the connection", WRONG_SIZE, "sends more than the 64 bytes", to_close(FILE + b"#")),
    Row("one byte too few", WRONG_SIZE, "offers 63 bytes", whole(FILE[:-1])),
    Row("one byte too few, in chunks", WRONG_SIZE, "sends 63 bytes", chunked(FILE[:-1])),
    Row("nothing", WRONG_SIZE, "offers 0 bytes", answer(200)),
    Row("Content-Length lies: one more", WRONG_SIZE, "offers 65 bytes", length("65")),
    Row("Content-Length lies: one less", WRONG_SIZE, "offers 63 bytes", length("63")),
    Row("Content-Length lies: a terabyte", WRONG_SIZE, "offers 1099511627776 bytes", length("1099511627776")),
    Row("Content-Length lies: two of them", REFUSED, "contradict each other", heads(("Content-Length", "64"), ("Content-Length", "10"))),
    Row("endless body", WRONG_SIZE, "sends more than the 64 bytes", endless),
    Row("HTML error page with 200", WRONG_SIZE, "it looks like an HTML page", answer(200, {"Content-Type": "text/html"}, PAGE)),
    Row("HTML page of the right size", WRONG_BYTES, "it looks like an HTML page", answer(200, {}, PAGE.ljust(SIZE))),
    Row("gzip content-encoding", REFUSED, "gzip-encoded", answer(200, {"Content-Encoding": "gzip"}, FILE)),
    Row("a chain of encodings", REFUSED, "-encoded", answer(200, {"Content-Encoding": "identity, br"}, FILE)),
    Row("redirect loop", REFUSED, "more than 5 times", to("/again")),
    Row("redirect to credentials", REFUSED, "no credentials", to("http://ana:secret@127.0.0.1/")),
    Row("redirect to a local file", REFUSED, "expected", to("file:///etc/shadow")),
    Row("redirect to ftp", REFUSED, "expected", to("ftp://127.0.0.1/x")),
    Row("redirect to nowhere", REFUSED, "", to("")),
    Row("redirect to a name with a backslash", REFUSED, "printable ASCII", to("http://127.0.0.1\\@evil.example/")),
    Row("redirect to another port with a line end", REFUSED, "", to("http://127.0.0.1/%0d%0aX:1 y")),
    Row("401", REFUSED, "answers 401", answer(401, {"WWW-Authenticate": "Basic"})),
    Row("403", REFUSED, "answers 403", answer(403)),
    Row("404 with the file", REFUSED, "answers 404", answer(404, {}, FILE)),
    Row("204", REFUSED, "answers 204", answer(204)),
    Row("304", REFUSED, "answers 304", answer(304)),
    Row("416 to no range", REFUSED, "answers 416", answer(416, {"Content-Range": f"bytes */{SIZE}"})),
)
ASKED = (
    Asked("credentials in the URL", codes.BAD_URL, "no credentials", asked("https://ana:secret@releases.invalid/x")),
    Asked("http where the configuration allows none", codes.BAD_URL, "expected https://", asked("http://127.0.0.1:9/x"), ("strict",)),
    Asked("a local file for the URL", codes.BAD_URL, "expected", asked("file:///etc/shadow")),
    Asked("a URL with a line end", codes.BAD_URL, "printable ASCII", asked("https://releases.invalid/\r\nX: y")),
    Asked("a URL of 10,000 characters", codes.BAD_URL, "at most 8192", asked("https://releases.invalid/" + "x" * 10_000)),
    Asked("a URL without a host", codes.BAD_URL, "expected a host", asked("https:///x")),
    Asked("a URL with a backslash", codes.BAD_URL, "printable ASCII", asked("https://releases.invalid\\@evil.example/")),
    Asked("expired by the host's clock", codes.EXPIRED, "expired at 2026-01-02T00:00:00Z", released(expiresAt="2026-01-02T00:00:00Z")),
    Asked("expired by the server's time", codes.EXPIRED, "whoever asks says 2101", asked(), ("--server-time", "2101-01-01T00:00:00Z")),
    Asked("a manifest that only one key signed", codes.TOO_FEW_SIGNATURES, "1 of the 2", asked(signature=one_signature())),
    Asked("a replayed older manifest", codes.BELOW_FLOOR, "release sequence 3 is older than 4", released(sequence=3)),
    Asked("other product", codes.WRONG_PRODUCT, "releases toy", released(product="toy")),
    Asked("no manifest", codes.NO_MANIFEST, "no signed release manifest", asked(signature="")),
    Asked("a digest of other bytes", codes.NO_ARTIFACT, "with the release sha256", asked(sha256="ab" * 32)),
    Asked("a version that is a path", codes.NOT_A_RELEASE, "is not a release version", asked(version="../../etc")),
    Asked("a target with a field twice", codes.BAD_TARGET, "is there twice", altered('"version":', '"version": "9.9.9", "version":')),
    Asked("a target with a field more", codes.BAD_TARGET, "the unknown field 'pins'", altered("{", '{"pins": "", ')),
    Asked("a target behind a byte order mark", codes.BAD_TARGET, "a byte order mark", altered("{", "\ufeff{")),
    Asked("a target in UTF-16", codes.BAD_TARGET, "not UTF-8", lambda: asked()().decode().encode("utf-16")),
    Asked("a target that never ends", codes.BAD_TARGET, "at most", lambda: b" " * ((6 << 20) + 1)),
)
PASSING = (
    Row("cut in the middle, always at the same byte", codes.DOWNLOAD_FAILED, "", heads(("Content-Length", str(SIZE)), body=FILE[:10])),
    Row("cut in chunks", codes.DOWNLOAD_FAILED, "", chunked(FILE[:10], end=b"")),
    Row("chunks of no length", codes.DOWNLOAD_FAILED, "", chunked(b"", end=b"zz\r\n")),
    Row("closed without a word", codes.DOWNLOAD_FAILED, "", web.reset),
    Row("silence", codes.DOWNLOAD_FAILED, "no answer", web.silent),
    Row("slow head", codes.DOWNLOAD_FAILED, "no answer", web.dribble_head),
    Row("slow body", codes.DOWNLOAD_FAILED, "bytes came in", dribble),
    Row("no line of status", codes.DOWNLOAD_FAILED, "", no_http),
    Row("503 for ever", codes.DOWNLOAD_FAILED, "answers 503", answer(503)),
    Row("429 and an hour to wait", codes.DOWNLOAD_FAILED, "come back in 3600 s", answer(429, {"Retry-After": "3600"})),
    Row("a wait that is no number", codes.DOWNLOAD_FAILED, "answers 503", answer(503, {"Retry-After": "9\x1c\x1c"})),
    Row("206 to no range, from elsewhere", codes.DOWNLOAD_FAILED, "expected Content-Range", heads(
        ("Content-Length", "64"), ("Content-Range", "bytes 5-68/64"), status=206)),
    Row("206 to no range, without saying which", codes.DOWNLOAD_FAILED, "expected Content-Range", heads(("Content-Length", "64"), status=206)),
)
RANGES: Mapping[str, str] = {
    "from the beginning again": "bytes 0-63/64",
    "from one byte later": "bytes 11-63/64",
    "of another size": "bytes 10-63/65",
    "beyond the end": "bytes 10-64/64",
    "of a size that is not said": "bytes 10-63/*",
    "that is not there": "bytes */64",
    "in other units": "items 100-63/64",
    "backwards": "bytes 63-10/64",
    "in two parts": "bytes 10-19/64,20-63/64",
    "in other digits": "bytes \u0661\u0660\u0660-63/64",
}
# fmt: on


@pytest.fixture(name="host", scope="module")
def _host(tmp_path_factory: pytest.TempPathFactory) -> victim.Victim:
    if os.geteuid() != 0:
        pytest.skip("the agent stages as root only")
    return victim.Victim(tmp_path_factory.mktemp("victim"))


@pytest.fixture(name="serving")
def _serving() -> Iterator[Serve]:
    with web.serving() as start:
        yield start


@pytest.fixture(name="part")
def _part(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "staging").mkdir(0o700)
    return tmp_path / "staging" / "slotward-1.1.0.part"


def ids(rows: Tuple[NamedTuple, ...]) -> List[str]:
    """For pytest's output."""
    return [str(row[0]) for row in rows]


@pytest.mark.parametrize("row", PROCESS, ids=ids(PROCESS))
def test_the_agent_refuses_what_a_server_sends(host: victim.Victim, serving: Serve, row: Row) -> None:
    """As a process: final (exit status 3), by name, without a secret in the words, and nothing is left of it."""
    host.configure(allow_http=True)
    found = host.stage(asked(serving(row.act).url)())
    assert (found.exit, found.code, row.says in found.message) == (3, row.code, True), found
    assert "secret" not in found.message + found.errors
    assert found.left == []


@pytest.mark.parametrize("row", ASKED, ids=ids(ASKED))
def test_the_agent_refuses_what_a_control_side_sends(host: victim.Victim, row: Asked) -> None:
    """The same for the target: before any byte is fetched."""
    strict = "strict" in row.flags
    host.configure(allow_http=not strict)
    found = host.stage(row.target(), *(() if strict else row.flags))
    assert (found.exit, found.code, row.says in found.message) == (3, row.code, True), found
    assert "secret" not in found.message + found.errors
    assert found.left == []


def test_the_agent_leaves_tls_for_nobody(host: victim.Victim, serving: Serve, tmp_path: pathlib.Path) -> None:
    """Redirect to http from https, and a server that nobody vouches for: no request reaches the one, no byte comes from the other."""
    authority = authorities.make_authority(tmp_path / "ours", ["127.0.0.1"])
    stranger = authorities.make_authority(tmp_path / "strangers", ["127.0.0.1"])
    plain = serving(whole(FILE))
    for chain, act, code, says in (
        (authority, to(plain.url), REFUSED, "expected https://"),
        (stranger, whole(FILE), codes.UNTRUSTED_SERVER, "unable to get local issuer certificate"),
    ):
        server = serving(act)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain.server)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        host.configure(ca_file=str(authority.ca))
        found = host.stage(asked(server.url.replace("http:", "https:"))())
        assert (found.exit, found.code, says in found.message) == (3, code, True), found
        assert found.left == []
    assert plain.requests == []


def test_the_agent_takes_the_genuine_file(tmp_path: pathlib.Path, serving: Serve) -> None:
    """Else every row above would prove nothing: it is staged, by the very same commands, also from a server that chatters."""
    if os.geteuid() != 0:
        pytest.skip("the agent stages as root only")
    for number, act in enumerate((whole(FILE), chunked(FILE, end=b"0\r\nX-Trailer: y\r\n\r\ngarbage"), to_close(FILE))):
        host = victim.Victim(tmp_path / str(number))
        found = host.stage(asked(serving(act).url)())
        assert (found.exit, found.code, found.left) == (0, "ok", ["slotward-1.1.0"]), found
        assert (host.root / "data" / "staging" / "slotward-1.1.0").read_bytes() == FILE


# --- what passes by itself, what is continued, what is cut ---

IMPATIENT = download.Transport(
    allow_http=True, connect_timeout_s=0.5, idle_timeout_s=0.4, budget_s=3.0, attempts=2, first_wait_s=0.01
)


def fetch(server: web.Server, part: pathlib.Path) -> str:
    """The code that the real download ends with; `ok` when it took the file, which must be the genuine one then."""
    try:
        download.fetch(server.url, str(part), SIZE, SHA256, IMPATIENT)
    except (codes.Refused, codes.Retryable) as error:
        return "%s: %s" % (error.code, error.text)
    assert part.read_bytes() == FILE
    return "ok"


@pytest.mark.parametrize("row", PASSING, ids=ids(PASSING))
def test_what_never_becomes_the_file_ends(serving: Serve, part: pathlib.Path, row: Row) -> None:
    """In bounded time, as a failure that another try may mend, with words for the operator."""
    begun = time.monotonic()
    said = fetch(serving(row.act), part)
    assert time.monotonic() - begun < 20
    assert (said.partition(":")[0], row.says in said) == (row.code, True), said


@pytest.mark.parametrize("said", RANGES.values(), ids=["Content-Range " + name for name in RANGES])
def test_a_wrong_content_range_is_never_spliced(serving: Serve, part: pathlib.Path, said: str) -> None:
    """A part of the genuine file, and an answer that is for another place: the file is begun anew, or nothing is taken."""
    part.write_bytes(FILE[:10])
    liar = heads(("Content-Length", "54"), ("Content-Range", said), status=206, body=bytes(54))
    assert fetch(serving(liar, whole(FILE)), part) == "ok"
    part.write_bytes(FILE[:10])
    assert fetch(serving(liar), part) != "ok"


def test_200_to_a_range_request_replaces_the_part(serving: Serve, part: pathlib.Path) -> None:
    """What is there is no beginning of the answer; other bytes are refused whatever was there."""
    part.write_bytes(FILE[:10])
    server = serving(answer(200, {}, FILE))
    assert fetch(server, part) == "ok"
    assert server.requests[0].headers["range"] == "bytes=10-"
    part.write_bytes(FILE[:10])
    assert fetch(serving(answer(200, {}, FILE[10:])), part).startswith(WRONG_SIZE)


def test_416_to_a_range_request_begins_anew(serving: Serve, part: pathlib.Path) -> None:
    """And a server that says it for ever ends as a refusal or failure."""
    part.write_bytes(FILE[:10])
    assert fetch(serving(answer(416), whole(FILE)), part) == "ok"
    part.write_bytes(FILE[:10])
    assert fetch(serving(answer(416)), part) != "ok"


@pytest.mark.parametrize("kind", ["length", "chunks", "to the end of the connection", "honest length"])
def test_truncated_at_every_byte(serving: Serve, part: pathlib.Path, kind: str) -> None:
    """No beginning of the file is ever taken for it, however its end is told; a server that goes on is continued."""
    for stop in range(SIZE):
        part.unlink(missing_ok=True)
        acts = {
            "length": whole(FILE, stop=stop),
            "chunks": chunked(FILE[:stop], end=b""),
            "to the end of the connection": to_close(FILE[:stop]),
            "honest length": whole(FILE[:stop]),
        }
        server = web.serve(web.Server, [acts[kind], answer(404)])
        try:
            said = fetch(server, part)
        finally:
            server.shutdown()
            server.server_close()
        assert said != "ok", stop
        assert not part.exists() or part.read_bytes() == FILE[: part.stat().st_size], stop
