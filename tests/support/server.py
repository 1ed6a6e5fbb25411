# SPDX-License-Identifier: GPL-3.0-or-later
"""A file server on the controller's end of the hosts' links: http or https with an authority of its own, counting requests."""

from __future__ import annotations

import datetime as dt
import http.server
import ipaddress
import pathlib
import ssl
import threading
from types import TracebackType
from typing import NamedTuple, Self


class Authority(NamedTuple):
    """A certificate authority's own certificate, and a server's certificate with its key."""

    ca: pathlib.Path
    server: pathlib.Path


def make_authority(directory: pathlib.Path, addresses: list[str], at: dt.datetime | None = None) -> Authority:
    """An authority that has signed one certificate for these addresses, with the extensions that Python 3.13 asks for.

    Both are valid from a day before `at`, which is now unless given, until two days after it.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = dt.datetime.now(dt.timezone.utc) if at is None else at
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e2e authority")])
    usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    usage.update(encipher_only=False, decipher_only=False)

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey, is_ca: bool) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        made = made.serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=2))
        made = made.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        return made.add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=is_ca, crl_sign=is_ca, **usage), critical=True
        )

    ca = builder(issuer, ca_key.public_key(), True).sign(ca_key, hashes.SHA256())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e2e server")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address)) for address in addresses])
    leaf = builder(subject, key.public_key(), False).add_extension(names, critical=False)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    found = Authority(directory / "ca.pem", directory / "server.pem")
    directory.mkdir(parents=True, exist_ok=True)
    found.ca.write_bytes(ca.public_bytes(pem))
    found.server.write_bytes(leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem) + private)
    return found


class FileServer:
    """Serves files by path while the `with` block lasts; a path in `stalling` sends half of its file and then waits."""

    def __init__(self, address: str, authority: Authority | None = None) -> None:
        self._address = address
        self.files: dict[str, pathlib.Path] = {}
        self.stalling: set[str] = set()
        self.requests: list[str] = []
        self._released = threading.Event()
        self._server = http.server.ThreadingHTTPServer((address, 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "http"
        if authority is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(authority.server)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def let_go(self) -> None:
        """Nothing stalls any more: who waits is cut off after its half, and may come again."""
        self.stalling.clear()
        self._released.set()

    def url(self, file: pathlib.Path) -> str:
        """Serve a file; its address."""
        path = f"/{file.name}"
        self.files[path] = file
        return f"{self._scheme}://{self._address}:{self._server.server_port}{path}"

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                file = server.files.get(self.path)
                if file is None:
                    self.send_error(404)
                    return
                data = file.read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.path in server.stalling:
                    self.wfile.write(data[: len(data) // 2])
                    server._released.wait(120)
                else:
                    self.wfile.write(data)

            def log_message(self, *_words: object) -> None:
                return

        return Handler
