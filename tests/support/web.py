# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback that can stall, cut, lie, redirect, refuse and pretend, by a script of acts."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import threading
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Type

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()

Act = Callable[["Handler"], None]


class Request(NamedTuple):
    """What the server was asked."""

    path: str
    headers: Dict[str, str]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers each request with the next act of the server's script; the last one is repeated."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Answer."""
        self.server.requests.append(Request(self.path, {key.lower(): value for key, value in self.headers.items()}))
        act = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has gone: that is what some tests are about
            act(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def head(self, status: int, headers: Dict[str, str]) -> None:
        """Status line and headers, nothing else but the date."""
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def start(self) -> int:
        """Where the wanted range starts."""
        wanted = self.headers.get("Range", "")
        return int(wanted[len("bytes=") :].split("-")[0]) if wanted else 0


class Server(http.server.ThreadingHTTPServer):
    """A server with a script."""

    daemon_threads = True
    script: List[Act]
    requests: List[Request]
    gone: threading.Event

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves in the middle is no error of the test."""

    @property
    def url(self) -> str:
        """The address of the file."""
        return "http://127.0.0.1:%d/file" % self.server_address[1]


def whole(content: bytes = CONTENT, etag: str = "", kind: str = "application/octet-stream", stop: int = 1 << 40) -> Act:
    """The file, with ranges; cut off after `stop` bytes of the body."""

    def act(handler: Handler) -> None:
        start = handler.start()
        headers = {"Content-Type": kind, "Content-Length": str(len(content) - start)}
        if etag:
            headers["ETag"] = etag
        if handler.headers.get("If-Range") not in (None, etag):
            start, headers["Content-Length"] = 0, str(len(content))
        if start:
            headers["Content-Range"] = "bytes %d-%d/%d" % (start, len(content) - 1, len(content))
        handler.head(206 if start else 200, headers)
        handler.wfile.write(content[start : start + stop])

    return act


def answer(status: int, headers: Optional[Dict[str, str]] = None, body: bytes = b"") -> Act:
    """A fixed answer."""

    def act(handler: Handler) -> None:
        handler.head(status, {"Content-Length": str(len(body)), **(headers or {})})
        handler.wfile.write(body)

    return act


def chunked(content: bytes, end: bytes = b"0\r\n\r\n") -> Act:
    """The file in chunks of odd sizes."""

    def act(handler: Handler) -> None:
        handler.head(200, {"Transfer-Encoding": "chunked"})
        for start in range(0, len(content), 70001):
            block = content[start : start + 70001]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
        handler.wfile.write(end)

    return act


def to_close(content: bytes) -> Act:
    """The file without a length: the end of the connection is its end."""

    def act(handler: Handler) -> None:
        handler.head(200, {})
        handler.wfile.write(content)

    return act


def ranged(content_range: str, start: int = 0) -> Act:
    """A partial answer that says what it wants."""

    def act(handler: Handler) -> None:
        body = CONTENT[start:]
        handler.head(206, {"Content-Length": str(len(body)), "Content-Range": content_range})
        handler.wfile.write(body)

    return act


def stall(after: int) -> Act:
    """Some of the file, and then nothing until the test is over."""

    def act(handler: Handler) -> None:
        handler.head(200, {"Content-Length": str(len(CONTENT))})
        handler.wfile.write(CONTENT[:after])
        handler.wfile.flush()
        handler.server.gone.wait(30)

    return act


def dribble(handler: Handler) -> None:
    """The file, ten bytes at a time, each sooner than any single read times out."""
    start = handler.start()
    handler.head(200, {"Content-Length": str(len(CONTENT))})
    while not handler.server.gone.wait(0.05):
        handler.wfile.write(CONTENT[start : start + 10])
        start += 10


def silent(handler: Handler) -> None:
    """Nothing at all."""
    handler.server.gone.wait(30)


def dribble_head(handler: Handler) -> None:
    """A status line and then headers for ever, each byte sooner than a read times out."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not handler.server.gone.wait(0.05):
        handler.wfile.write(b"x")


def reset(handler: Handler) -> None:
    """Close without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def serve(server_class: Type[Server], script: List[Act], host: str = "127.0.0.1") -> Server:
    """A running server."""
    server = server_class((host, 0), Handler)
    server.script, server.requests, server.gone = list(script), [], threading.Event()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


Serve = Callable[..., Server]


@contextlib.contextmanager
def serving(server_class: Type[Server] = Server) -> Iterator[Serve]:
    """What starts a server with a script; all that were started are gone at the end."""
    servers: List[Server] = []

    def start(*script: Act, host: str = "127.0.0.1") -> Server:
        servers.append(serve(server_class, list(script), host))
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.gone.set()
            server.shutdown()
            server.server_close()
