# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: a release directory made from artifacts and keys, the same directory however often.

Rules:

* What a release is and who may sign it is decided in slotcore; here files are read and written.
* Nothing is overwritten but the manifest, by the same manifest with more signatures.
* Planning writes nothing: it reads the artifacts, the keys and what is there, and answers what would be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    archive,
    artifacts,
    codes,
    keys,
    manifest,
    program,
    release,
    signing,
    unpacking,
)

CHUNK = 1 << 20
MAX_KEY_FILE = 64 << 10
DAY_S = 86400


class Plan(NamedTuple):
    """What the release directory should hold: its manifest, and where each artifact comes from."""

    directory: str
    before: Optional[bytes]
    published: bytes
    copies: Tuple[Tuple[str, manifest.Artifact], ...]

    @property
    def manifest_path(self) -> str:
        """The published manifest."""
        return os.path.join(self.directory, release.MANIFEST_NAME)

    @property
    def changed(self) -> bool:
        """True when anything has to be written."""
        return self.before != self.published or bool(self.copies)


def chunks(path: str) -> Iterator[bytes]:
    """A file in pieces; raises Refused when it cannot be read."""
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(CHUNK), b"")
    except OSError as error:
        raise codes.refused(codes.CANNOT_READ, "%s cannot be read: %s" % (path, error.strerror)) from None


def _read(path: str, load: Any) -> Any:
    try:
        return load(b"".join(chunks(path))[: MAX_KEY_FILE + 1])
    except keys.BadKey as error:
        raise codes.refused(codes.BAD_KEY, "%s: %s" % (path, error)) from None
    except keys.Unavailable as error:
        raise codes.refused(codes.NO_CRYPTOGRAPHY, str(error)) from None


def public_key(path: str) -> keys.PublicKey:
    """The public key in a file."""
    found: keys.PublicKey = _read(path, keys.load_public)
    return found


def private_key(path: str, passphrase: Optional[str]) -> keys.PrivateKey:
    """The private key in a file; the passphrase is for those that are encrypted."""

    def load(data: bytes) -> keys.PrivateKey:
        try:
            return keys.load_private(data)
        except keys.Locked:
            return keys.load_private(data, passphrase.encode("utf-8") if passphrase else None)

    found: keys.PrivateKey = _read(path, load)
    return found


def _artifacts(params: Dict[str, Any]) -> List[Tuple[str, manifest.Artifact]]:
    found = []
    for spec in params["artifacts"]:
        path, platform, kind = artifacts.source(spec, params["product"], params["version"])
        sha256, size, head = _looked_at(path, kind, params["product"])
        refusal = program.check(path, head, platform) if kind == manifest.KINDS[0] else None
        if refusal is not None:
            raise codes.Refused(refusal)
        found.append((path, release.artifact(params["product"], params["version"], platform, sha256, size, kind)))
    return found


def _looked_at(path: str, kind: str, product: str) -> Tuple[str, int, bytes]:
    """The digest, size and first bytes of an artifact; an archive is read to its end, as a host would."""
    digest, size, head = hashlib.sha256(), 0, b""

    def pieces() -> Iterator[bytes]:
        nonlocal size, head
        for piece in chunks(path):
            digest.update(piece)
            size += len(piece)
            head = (head + piece[: program.HEAD])[: program.HEAD]
            yield piece

    reading = pieces()
    if kind != manifest.KINDS[0]:
        laid_out = unpacking.lay_out(archive.check(reading), product)
        if isinstance(laid_out, codes.Refusal):
            raise codes.refused(laid_out.code, "%s: %s" % (path, laid_out.text))
    for _piece in reading:
        pass
    return digest.hexdigest(), size, head


def _public_keys(params: Dict[str, Any], signers: List[keys.PrivateKey]) -> Tuple[manifest.Key, ...]:
    """The keys given and those that sign, each once, in their order."""
    public = [public_key(path) for path in params["keys"]]
    public += [signer.public for signer in signers]
    return tuple(release.key(key) for key in dict.fromkeys(public))


def plan(params: Dict[str, Any]) -> Plan:
    """Everything that would be written, from a look at the artifacts, the keys and the directory."""
    artifacts = _artifacts(params)
    signers = [private_key(path, params["passphrase"]) for path in params["sign_with"]]
    now = int(time.time())
    wanted = manifest.Manifest(
        product=params["product"],
        version=params["version"],
        sequence=params["sequence"],
        issued_at=now,
        expires_at=now + params["expires_days"] * DAY_S,
        keys=_public_keys(params, signers),
        artifacts=tuple(entry for _path, entry in artifacts),
        channel=params["channel"],
        min_from=params["min_from"],
    )
    release.build_manifest(wanted)  # a name that is none must not become a directory
    directory = os.path.join(params["output"], release.directory(params["product"], params["version"]))
    path = os.path.join(directory, release.MANIFEST_NAME)
    before = b"".join(chunks(path)) if os.path.lexists(path) else None
    published = release.build(before, wanted).published
    for signer in signers:
        published = signing.sign(published, signer.public, signer.sign).published
    return Plan(directory, before, published, tuple(_to_copy(directory, artifacts)))


def _to_copy(directory: str, artifacts: List[Tuple[str, manifest.Artifact]]) -> Iterator[Tuple[str, manifest.Artifact]]:
    for source, entry in artifacts:
        there = os.path.join(directory, entry.name)
        if not os.path.lexists(there):
            yield source, entry
        elif release.measure(chunks(there)) != (entry.sha256, entry.size):
            raise codes.refused(codes.ALREADY_EXISTS, "%s is there with other contents and is not overwritten" % there)


def write(planned: Plan) -> None:
    """Write the plan, the manifest last, so that a directory with a manifest is whole."""
    try:
        os.makedirs(planned.directory, mode=0o755, exist_ok=True)
        for source, entry in planned.copies:
            _place(os.path.join(planned.directory, entry.name), _same(source, entry))
        if planned.before != planned.published:
            _place(planned.manifest_path, iter((planned.published,)))
    except OSError as error:
        raise codes.refused(codes.CANNOT_WRITE, "%s cannot be written: %s" % (planned.directory, error)) from None


def _same(source: str, entry: manifest.Artifact) -> Iterator[bytes]:
    """The pieces of an artifact, and an error at the end when they are not what was measured."""
    digest, size = hashlib.sha256(), 0
    for piece in chunks(source):
        digest.update(piece)
        size += len(piece)
        yield piece
    if (digest.hexdigest(), size) != (entry.sha256, entry.size):
        raise codes.refused(codes.DIGEST_MISMATCH, "%s changed while it was read; run again" % source)


def _place(path: str, pieces: Iterator[bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.rename(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
