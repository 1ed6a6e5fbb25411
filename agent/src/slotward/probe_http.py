# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe that asks over HTTP (products.md, section 5).

Rules:
- No redirect is followed, no proxy and no environment is asked, and nothing is kept between two looks.
- It is bounded in all, however the answer is drawn out: when its time is over the connection is cut.
- Not more than `MAX_BODY` is read of a body, and nothing when no text is looked for in it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import urllib.parse
from typing import TYPE_CHECKING

from slotcore import product as products
from slotward import build_info, host, probe_kinds, waits

if TYPE_CHECKING:
    import ssl

MAX_BODY = 1 << 20


def _expected(probe: products.Probe) -> str:
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in probe.status)


def context_of(ca_file: str) -> ssl.SSLContext:
    """Whom to trust: the authorities in that file, the host's own when none is named. Raises OSError."""
    import ssl

    if ca_file:
        os.close(host.open_named(ca_file))  # the library would wait for a FIFO
    return ssl.create_default_context(cafile=ca_file or None)


def _connection(probe: products.Probe, url: urllib.parse.SplitResult) -> http.client.HTTPConnection:
    name, port = url.hostname or "", url.port
    if url.scheme != "https":
        return http.client.HTTPConnection(name, port, timeout=probe.timeout_s)
    return http.client.HTTPSConnection(name, port, timeout=probe.timeout_s, context=context_of(probe.ca_file))


def _cut(connection: http.client.HTTPConnection) -> None:
    """End whatever waits for this connection; not by TLS, which would wait for an answer."""
    peer = connection.sock
    if peer is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(peer, socket.SHUT_RDWR)


def _judge(probe: products.Probe, answer: http.client.HTTPResponse) -> probe_kinds.Said:
    if not any(low <= answer.status <= high for low, high in probe.status):
        aside = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
        return False, f"{probe.url} answered {answer.status}{aside}, expected {_expected(probe)}"
    if probe.body and probe.body.encode("utf-8") not in answer.read(MAX_BODY):
        return False, f"{probe.url} answered {answer.status} without {probe.body!r} in its body"
    return True, f"{probe.url} answered {answer.status}"


def http_answer(probe: products.Probe, _product: products.Product) -> probe_kinds.Look:
    """It answers with one of the statuses, and with the text in its body."""
    url = urllib.parse.urlsplit(probe.url)
    path = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
    headers = {"User-Agent": f"{build_info.NAME}/{build_info.VERSION}", "Accept": "*/*", "Connection": "close"}

    def look() -> probe_kinds.Said:
        over = threading.Event()
        try:
            connection = _connection(probe, url)
        except OSError as error:  # the file of authorities
            return False, f"{probe.ca_file}: {error.strerror or error}"

        def cut() -> None:
            over.set()
            _cut(connection)

        timer = waits.Timer(probe.timeout_s, cut)
        try:
            connection.request("GET", path, headers=headers)
            said = _judge(probe, connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            said = False, f"{probe.url}: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"
        finally:
            timer.cancel()
            connection.close()
        return (False, f"{probe.url} gave no answer within {probe.timeout_s} s") if over.is_set() else said

    return look
