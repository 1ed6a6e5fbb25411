# SPDX-License-Identifier: GPL-3.0-or-later
"""What each kind of probe says, against real servers, files and processes (products.md, section 5; field case H3)."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from slotcore import codes
from slotcore import product as products
from slotward import bus, probe_http, probe_journal, probe_kinds, probes

DEMO = products.Product("demo", "demo.service", "/usr/local/bin/demo", "/srv/demo", trial_length_s=60)


def probe(kind: str, **fields: Any) -> products.Probe:
    """A probe of a kind."""
    return products.Probe("p", kind, **fields)


# --- http ---


class Web(http.server.ThreadingHTTPServer):
    """Answers by what the test put into `acts`, by path."""

    daemon_threads = True

    def __init__(self) -> None:
        self.acts: Dict[str, Callable[[http.server.BaseHTTPRequestHandler], None]] = {}
        self.asked: List[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def url(self, path: str, scheme: str = "http", host: str = "127.0.0.1") -> str:
        """Where a path is."""
        return f"{scheme}://{host}:{self.server_address[1]}{path}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        try:
            self.server.acts[self.path](self)
        except OSError:
            return  # who asked has gone: that is what some tests are about

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def say(status: int, body: bytes = b"", **headers: str) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """An answer."""

    def act(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return act


def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
    """A head that never ends, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"y")
        time.sleep(0.2)


def nonsense(handler: http.server.BaseHTTPRequestHandler) -> None:
    """No HTTP."""
    handler.wfile.write(b"SSH-2.0-other\r\n")


@pytest.fixture
def web() -> Iterator[Web]:
    """A server on loopback."""
    server = Web()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(url: str, **fields: Any) -> probe_kinds.Said:
    """What an HTTP probe says of an address."""
    return probe_http.http_answer(probe("http", url=url, **fields), DEMO)()


@pytest.mark.parametrize(
    ("act", "fields", "ok", "said"),
    [
        pytest.param(say(200), {}, True, "answered 200", id="as expected"),
        pytest.param(say(429), {}, False, "answered 429, expected 200", id="H1: too many requests"),
        pytest.param(say(204), {"status": ((200, 200), (202, 299))}, True, "answered 204", id="in a range"),
        pytest.param(say(201), {"status": ((200, 200), (202, 299))}, False, "expected 200,202-299", id="in none"),
        pytest.param(say(200, b"all is well"), {"body": "is well"}, True, "answered 200", id="the text is there"),
        pytest.param(say(200, b"degraded"), {"body": "is well"}, False, "without 'is well' in its", id="it is not"),
        pytest.param(
            say(200, b"x" * (1 << 20) + b"is well"), {"body": "is well"}, False, "without", id="after more than is read"
        ),
        pytest.param(say(302, Location="/there"), {}, False, "302 (redirects are not followed)", id="a redirect"),
        pytest.param(drip, {"timeout_s": 1}, False, "gave no answer within 1 s", id="drawn out without an end"),
        pytest.param(nonsense, {}, False, "SSH-2.0-other", id="no HTTP"),
    ],
)
def test_http(web: Web, act: Any, fields: Dict[str, Any], ok: bool, said: str) -> None:
    """Status and text decide; no redirect is followed, and nothing is waited for longer than its time."""
    web.acts = {"/x?y=1": act, "/there": say(200)}
    began = time.monotonic()
    found = ask(web.url("/x?y=1"), **fields)
    assert time.monotonic() - began < 3
    assert found[0] is ok, found
    assert said in found[1]
    assert web.asked == ["/x?y=1"]


def test_nothing_of_the_environment_leads_an_http_probe_elsewhere(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment is not asked; and where nobody listens is said."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    web.acts = {"/": say(200)}
    assert ask(web.url("")) == (True, web.url("") + " answered 200")
    assert ask("http://127.0.0.1:9/") == (False, "http://127.0.0.1:9/: Connection refused")


def certificate(directory: pathlib.Path, name: str) -> pathlib.Path:
    """A key and a certificate of its own for `name`, in one file."""
    path = directory / f"{name}.pem"
    extensions = [
        f"subjectAltName=DNS:{name}",
        "keyUsage=critical,digitalSignature,keyCertSign",
        "basicConstraints=CA:TRUE",
    ]
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-keyout", str(path) + ".key", "-out", str(path), "-subj", f"/CN={name}"]
    for extension in extensions:
        argv += ["-addext", extension]
    subprocess.run(argv, check=True, capture_output=True)
    return path


@pytest.mark.parametrize(
    ("trusts", "host", "ok", "said"),
    [
        pytest.param("localhost", "localhost", True, "answered 200", id="its own authority"),
        pytest.param(None, "localhost", False, "CERTIFICATE_VERIFY_FAILED", id="none that this host knows"),
        pytest.param("other", "localhost", False, "CERTIFICATE_VERIFY_FAILED", id="another authority"),
        pytest.param("localhost", "127.0.0.1", False, "CERTIFICATE_VERIFY_FAILED", id="another name"),
        pytest.param("missing", "localhost", False, "No such file", id="no such file"),
    ],
)
def test_https(web: Web, tmp_path: pathlib.Path, trusts: Optional[str], host: str, ok: bool, said: str) -> None:
    """The server's certificate is checked, by the authorities that the probe names or the host's own."""
    ours = certificate(tmp_path, "localhost")
    certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours, str(ours) + ".key")
    web.socket = context.wrap_socket(web.socket, server_side=True)
    web.acts = {"/": say(200)}
    found = ask(web.url("/", "https", host), ca_file="" if trusts is None else str(tmp_path / f"{trusts}.pem"))
    assert found[0] is ok, found
    assert said in found[1]


# --- tcp, unit, file ---


def test_tcp() -> None:
    """A connection is accepted, or it is refused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        look = probe_kinds.tcp(probe("tcp", address=address), DEMO)
        assert look() == (True, f"127.0.0.1:{address[1]} accepts connections")
    assert look() == (False, f"127.0.0.1:{address[1]}: Connection refused")


@pytest.mark.usefixtures("systemctl")
@pytest.mark.parametrize(
    ("shown", "for_s", "ok", "said"),
    [
        ("ActiveState=active\nMainPID={pid}\n", 0, True, "main process {pid} of demo.service is up"),
        ("ActiveState=active\nMainPID={pid}\n", 600, None, "s of 600 s"),
        ("ActiveState=failed\nMainPID=0\n", 0, False, "demo.service is failed"),
        ("ActiveState=active\nMainPID=0\n", 0, False, "demo.service has no main process"),
    ],
)
def test_unit(tmp_path: pathlib.Path, shown: str, for_s: int, ok: Optional[bool], said: str) -> None:
    """Active, with one main process for so long."""
    with subprocess.Popen(["sleep", "60"]) as child:
        (tmp_path / "show").write_text(shown.format(pid=child.pid))
        found = probe_kinds.unit(probe("unit", for_s=for_s), DEMO)()
        child.kill()
    assert found[0] is ok, found
    assert said.format(pid=child.pid) in found[1]


@pytest.mark.usefixtures("systemctl")
def test_W15_a_unit_that_restarts_has_failed_until_its_time_is_over(tmp_path: pathlib.Path) -> None:
    """Its first process may take the time that it needs; one that came after it has lost some already."""
    look = probe_kinds.unit(probe("unit", for_s=600), DEMO)
    said = []
    for _start in range(2):
        with subprocess.Popen(["sleep", "60"]) as child:
            (tmp_path / "show").write_text(f"ActiveState=active\nMainPID={child.pid}\n")
            said += [look()[0], look()[0]]
            child.kill()
    assert said == [None, None, False, False]


def test_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: how fresh it is is measured by when it changed; a step of the wall clock makes nothing stale."""
    path = tmp_path / "beat"
    look = probe_kinds.file(probe("file", path=str(path), fresh_s=60), DEMO)
    assert look() == (False, f"{path}: No such file or directory")
    path.touch()
    assert look()[0] is True
    now, ahead = time.time, 3600
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    assert look()[0] is True
    other = probe_kinds.file(probe("file", path=str(path), fresh_s=60), DEMO)
    assert other() == (False, f"{path} was changed 3600 s ago, more than 60 s")
    os.utime(path, ns=(1, 1))
    assert other() == (True, f"{path} was changed 0 s ago")


def test_a_file_that_is_not_touched_grows_stale(tmp_path: pathlib.Path) -> None:
    """By this boot's clock."""
    path = tmp_path / "beat"
    path.touch()
    look = probe_kinds.file(probe("file", path=str(path), fresh_s=1), DEMO)
    assert look()[0] is True
    time.sleep(1.3)
    assert look()[0] is False


# --- command ---


@pytest.fixture
def tool(tmp_path: pathlib.Path) -> Callable[[str], str]:
    """Writes a command."""

    def write(script: str) -> str:
        path = tmp_path / "tool"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return str(path)

    return write


@pytest.mark.usefixtures("systemctl")
@pytest.mark.parametrize(
    ("script", "ok", "said"),
    [
        ("echo it works", True, "it works"),
        ("exit 0", True, "it ended with 0"),
        ("echo no >&2; exit 7", False, "it ended with status 7: no"),
        ("sleep 1.2; exit 1", False, "it did not end within 1 s"),
    ],
)
def test_H3_command(tool: Callable[[str], str], script: str, ok: bool, said: str) -> None:
    """Its status decides, and what it says is told."""
    look = probe_kinds.command(probe("command", command=(tool(script),), user="nobody", timeout_s=1), DEMO)
    assert look() == (ok, said)


@pytest.mark.parametrize(
    ("own", "of_product", "of_unit", "runs_as"),
    [
        ("nobody", "daemon", "www-data", ["User=nobody"]),
        ("", "daemon", "www-data", ["User=daemon"]),
        ("", "", "www-data", ["User=www-data"]),
        ("", "", "", []),
    ],
)
def test_H3_a_command_runs_as_who_was_chosen(
    systemctl: None, tmp_path: pathlib.Path, own: str, of_product: str, of_unit: str, runs_as: List[str]
) -> None:
    """The probe's account, the product's, the unit's; sandboxed, with the network, each time in a unit of its own."""
    (tmp_path / "show").write_text(f"User={of_unit}\n")
    look = probe_kinds.command(probe("command", command=("/bin/true",), user=own), DEMO._replace(user=of_product))
    assert look()[0] is True
    assert look()[0] is True
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("systemd-run")]
    assert re.findall("--property=(User=[^ ]*)", calls[0]) == runs_as
    assert "--property=ProtectSystem=strict" in calls[0]
    assert "PrivateNetwork" not in calls[0]
    assert len({re.findall("--unit=([^ ]*)", call)[0] for call in calls}) == 2


@pytest.mark.usefixtures("systemctl")
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_what_runs_as_root_must_be_root_s(tool: Callable[[str], str]) -> None:
    """I6: another's file is run as that other, and never as root."""
    path = tool("exit 0")
    os.chown(path, 65534, -1)
    for user in ("root", "0"):
        with pytest.raises(codes.Refused, match=r"owned by uid 65534, not by root.*would run as root"):
            probe_kinds.command(probe("command", command=(path,), user=user), DEMO)()
    assert probe_kinds.command(probe("command", command=(path,), user="nobody"), DEMO)()[0] is True
    assert probe_kinds.command(probe("command", command=(path,), user="no-such-account"), DEMO)()[0] is True


# --- journal ---

RUN, OLD = "aa" * 16, "bb" * 16


@pytest.fixture
def journal(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A journalctl whose entries a test adds one by one; it says them all, or those after the cursor."""
    (tmp_path / "entries").touch()
    script = tmp_path / "journalctl"
    script.write_text(
        f"""#!/bin/sh
printf '%s\\n' "$*" >>{tmp_path}/asked
for word in "$@"; do case $word in --after-cursor=*) after=${{word#--after-cursor=}};; esac; done
[ ! -f {tmp_path}/hangs ] || exec sleep 60
if [ -n "$after" ]; then sed "1,/\\"$after\\"/d" {tmp_path}/entries; else cat {tmp_path}/entries; fi
exit $(cat {tmp_path}/status 2>/dev/null || echo 0)
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    numbers = iter(range(1000))

    def add(message: Any, at_us: int = 2000, **more: Any) -> None:
        entry = {"__CURSOR": f"c{next(numbers)}", "__MONOTONIC_TIMESTAMP": str(at_us), "MESSAGE": message, **more}
        with (tmp_path / "entries").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    return add


def reader(pattern: str = "panic", **fields: Any) -> probe_journal.Reader:
    """A reader of lines from 1,000 µs on, but for those of the run before."""
    fields.setdefault("timeout_s", 5)
    return probe_journal.Reader(probe("journal", pattern=pattern, **fields), DEMO, probe_journal.Since(1000, OLD))


def test_journal(journal: Callable[..., None], tmp_path: pathlib.Path) -> None:
    """Each line is read once; what was said before, or by the run before, is not the new release's; what matched stays."""
    journal("panic: long ago", at_us=999)
    journal("panic: stopped", _SYSTEMD_INVOCATION_ID=OLD)
    journal("panic: of systemd about that run", INVOCATION_ID=OLD)
    journal("ready", _SYSTEMD_INVOCATION_ID=RUN)
    found = reader()
    assert found.look() == (True, "no line of demo.service matches")
    assert found.look() == (True, "no line of demo.service matches")
    journal("panic: at once", _SYSTEMD_INVOCATION_ID=RUN)
    assert found.look() == (False, "demo.service said 'panic: at once'")
    (tmp_path / "entries").write_text("")
    assert found.look() == (False, "demo.service said 'panic: at once'")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert ["--after-cursor=c3" in line for line in asked] == [False, True, True]
    assert all("--boot" in line and "--unit=demo.service" in line for line in asked)


def test_what_an_update_says_of_the_unit_is_not_the_unit_s(journal: Callable[..., None]) -> None:
    """`journalctl -u` shows it with the unit's lines, and it quotes what took the release back; a unit that says so itself is heard."""
    journal("ready")
    journal("rolled-back: it said 'panic'", SLOTWARD_EVENT="rolled-back", _SYSTEMD_UNIT="slotward-probe@demo.service")
    found = reader()
    assert found.look() == (True, "no line of demo.service matches")
    journal("panic: hidden", SLOTWARD_EVENT="rolled-back", _SYSTEMD_UNIT="demo.service")
    assert found.look() == (False, "demo.service said 'panic: hidden'")


def test_another_unit_s_journal_is_its_own(journal: Callable[..., None]) -> None:
    """The swap begins no new run of another unit, so none of its is left out."""
    journal("panic", _SYSTEMD_INVOCATION_ID=OLD)
    assert reader(unit="other.service").look() == (False, "other.service said 'panic'")


@pytest.mark.parametrize(
    ("message", "pattern", "ok"),
    [
        ([112, 97, 110, 105, 99, 255], "^panic", False),
        (["ready", "panic"], "panic", False),
        (["ready", [112, 97, 110, 105, 99]], "panic", False),
        (None, "panic", True),
        ("x" * 20_000 + "panic", "panic", True),
        ("ERROR 12: full", r"ERROR \d+", False),
    ],
)
def test_journal_entries_of_any_form(journal: Callable[..., None], message: Any, pattern: str, ok: bool) -> None:
    """Bytes, several messages, none, and no more of a line than its bound."""
    journal(message)
    assert reader(pattern).look()[0] is ok


def test_a_journal_that_cannot_be_read_is_no_pass(
    journal: Callable[..., None], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with an error, hangs, says more than is read, or what it says is no entry."""
    with (tmp_path / "entries").open("w") as file:
        file.write('not json\n{"MESSAGE":"panic"}\n')
    assert reader().look()[0] is True
    (tmp_path / "status").write_text("1")
    assert reader().look() == (False, "journalctl ended with status 1, or not within 5 s")
    (tmp_path / "status").unlink()
    for _number in range(3):
        journal("x" * 1000)
    monkeypatch.setattr(probe_journal, "MAX_READ", 2000)
    found = reader()
    assert found.look() == (False, "the journal of demo.service grows faster than it is read")
    assert [found.look()[0] for _look in range(2)] == [False, True]
    (tmp_path / "hangs").touch()
    began = time.monotonic()
    assert reader(timeout_s=1).look()[0] is False
    assert time.monotonic() - began < 4
    monkeypatch.setenv("PATH", "/nowhere")
    assert reader().look() == (False, "cannot run journalctl: No such file or directory")


# --- a round ---


def test_a_round_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs has failed, and is not asked again beside itself; all are looked at beside one another."""
    gate = threading.Event()
    calls: List[str] = []

    def slow(_probe: products.Probe, _product: products.Product) -> probe_kinds.Look:
        def look() -> probe_kinds.Said:
            calls.append("slow")
            gate.wait(30)
            return True, "at last"

        return look

    def refused(_probe: products.Probe, _product: products.Product) -> probe_kinds.Look:
        def look() -> probe_kinds.Said:
            raise codes.refused(codes.DIRECTORY_UNSAFE, "it is another's")

        return look

    def broken(_probe: products.Probe, _product: products.Product) -> probe_kinds.Look:
        def look() -> probe_kinds.Said:
            raise OSError(5, "Input/output error", "/x")

        return look

    kinds = {"slow": slow, "refused": refused, "broken": broken}
    monkeypatch.setattr(probes, "KINDS", kinds)
    monkeypatch.setattr(probes, "SPARE_S", 0.2)
    product = DEMO._replace(probes=tuple(products.Probe(kind, kind, timeout_s=1) for kind in kinds))
    runner = probes.Runner(product, probe_journal.Since(0))
    began = time.monotonic()
    first = {seen.name: (seen.ok, seen.why) for seen in runner.round()}
    assert time.monotonic() - began < 3
    assert first == {
        "slow": (False, "it gave no answer within 1 s"),
        "refused": (False, "it is another's"),
        "broken": (False, "/x: Input/output error"),
    }
    second = {seen.name: (seen.ok, seen.why) for seen in runner.round()}
    assert second["slow"] == (False, "it has still not come back from an earlier round")
    assert calls == ["slow"]
    gate.set()
    time.sleep(0.2)
    assert runner.round()[0].ok is True


def test_every_kind_of_the_table_is_known() -> None:
    """What a product's file may name can be looked at."""
    from slotcore import product_table

    choices = next(key.choices for key in product_table.KEYS if (key.section, key.name) == ("probe-*", "kind"))
    assert set(choices) == {*probes.KINDS, "journal"}


@pytest.mark.parametrize("listens", [False, True])
def test_what_could_not_be_asked_without_a_bus_says_neither(
    tmp_path: pathlib.Path, systemctl: None, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    """A trial is not failed for a bus that is gone; a command that cannot be begun for another reason has failed."""
    (tmp_path / "fail-systemd-run").write_text("1")
    monkeypatch.setattr(bus, "SOCKET", str(tmp_path / "bus"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        if listens:
            peer.bind(bus.SOCKET)
            peer.listen(8)
        asked = DEMO._replace(user="nobody", probes=(probe("command", command=("/bin/true",)),))
        (seen,) = probes.Runner(asked, probe_journal.Since(0)).round()
    assert seen.ok is (False if listens else None)
    assert ("D-Bus does not listen" in seen.why) is not listens
