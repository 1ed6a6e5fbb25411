# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: a release directory made from artifacts and keys, the same directory however often.

Rules:

* What a release is and who may sign it is decided in slotcore; here files are read and written.
* Nothing is overwritten but the manifest, by the same manifest with more signatures.
* Planning writes nothing: it reads the artifacts, the keys and what is there, and answers what would be written.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils import release_store as store
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import (
    archive,
    artifacts,
    codes,
    documents,
    jumps,
    keys,
    manifest,
    program,
    release,
    signing,
    unpacking,
    verifying,
)

NEXT = "next"
MAX_KEY_FILE = 64 << 10
DAY_S = 86400


class Plan(NamedTuple):
    """What the release directory should hold: its manifest, and where each artifact comes from."""

    directory: str
    before: Optional[bytes]
    published: bytes
    copies: Tuple[Tuple[str, manifest.Artifact], ...]
    counted: Optional[str] = None
    left_out: Tuple[str, ...] = ()

    @property
    def manifest_path(self) -> str:
        """The published manifest."""
        return os.path.join(self.directory, release.MANIFEST_NAME)

    @property
    def changed(self) -> bool:
        """True when anything has to be written."""
        return self.before != self.published or bool(self.copies)


def _read(path: str, load: Any) -> Any:
    try:
        return load(store.read(path, MAX_KEY_FILE))
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
        path, platform, kind, variant = artifacts.source(spec, params["product"], params["version"])
        sha256, size, head = _looked_at(path, kind, params.get("program") or params["product"])
        refusal = program.check(path, head, platform) if kind == manifest.KINDS[0] else None
        if refusal is not None:
            raise codes.Refused(refusal)
        named = (params["product"], params["version"], platform)
        found.append((path, release.artifact(*named, sha256, size, kind, variant)))
    return found


def _looked_at(path: str, kind: str, wanted: str) -> Tuple[str, int, bytes]:
    """The digest, size and first bytes of an artifact; an archive is read to its end, as a host would."""
    digest, size, head = hashlib.sha256(), 0, b""

    def pieces() -> Iterator[bytes]:
        nonlocal size, head
        for piece in store.chunks(path):
            digest.update(piece)
            size += len(piece)
            head = (head + piece[: program.HEAD])[: program.HEAD]
            yield piece

    reading = pieces()
    if kind != manifest.KINDS[0]:
        laid_out = unpacking.lay_out(archive.check(reading), wanted)
        if isinstance(laid_out, codes.Refusal):
            raise codes.refused(laid_out.code, "%s: %s" % (path, laid_out.text))
    for _piece in reading:
        pass
    return digest.hexdigest(), size, head


def listed_keys(params: Dict[str, Any], signers: List[keys.PrivateKey]) -> Tuple[manifest.Key, ...]:
    """The keys given and those that sign, each once, in their order."""
    public = [public_key(path) for path in params["keys"]]
    public += [signer.public for signer in signers]
    return tuple(release.key(key) for key in dict.fromkeys(public))


def plan(params: Dict[str, Any]) -> Plan:
    """Everything that would be written, from a look at the artifacts, the keys and the directory."""
    sequence, counted, left_out = _sequence(params)
    given = _artifacts(params)
    signers = [private_key(path, params["passphrase"]) for path in params["sign_with"]]
    now = int(time.time())
    wanted = manifest.Manifest(
        product=params["product"],
        version=params["version"],
        sequence=sequence,
        issued_at=now,
        expires_at=now + params["expires_days"] * DAY_S,
        keys=listed_keys(params, signers),
        artifacts=tuple(entry for _path, entry in given),
        channel=params["channel"],
        min_from=params["min_from"],
        epoch=params["epoch"],
    )
    release.build_manifest(wanted)  # a name that is none must not become a directory
    directory = os.path.join(params["output"], release.directory(params["product"], params["version"]))
    before = store.read_if_there(os.path.join(directory, release.MANIFEST_NAME))
    published = release.build(before, wanted).published
    for signer in signers:
        published = signing.sign(published, signer.public, signer.sign).published
    copies = [
        (source, entry) for source, entry in given if not store.is_copied(os.path.join(directory, entry.name), entry)
    ]
    return Plan(directory, before, published, tuple(copies), counted, left_out)


def _sequence(params: Dict[str, Any]) -> Tuple[int, Optional[str], Tuple[str, ...]]:
    """The sequence given, or the next one, the manifest it was counted from, and what was not counted."""
    given = str(params["sequence"])
    if given != NEXT:
        if not (given.isascii() and given.isdigit()):
            text = "sequence is %s, not a positive number and not next" % ascii(given)
            raise codes.refused(codes.BAD_RELEASE, text)
        return int(given), None, ()
    if not params.get("previous"):
        raise codes.refused(
            codes.BAD_RELEASE, "sequence next is counted from verified manifests: give previous and pins"
        )
    found: Dict[str, manifest.Manifest] = {}
    left_out = []
    for place in params["previous"]:
        for path in _manifests(place):
            try:
                judged = verifying.judge(store.read(path), params["pins"], params["threshold"], kind=documents.RELEASE)
            except codes.Refused as error:
                if path == place or error.code in (codes.NO_PINS, codes.BAD_KEY):
                    raise codes.refused(error.code, "%s: %s" % (path, error.text)) from None
                left_out.append("not counted: %s: %s" % (path, error.text))
                continue
            if judged.parts.body.product == params["product"]:
                found[path] = release.read(store.read(path))
    sequence, last = jumps.next_sequence(params["version"], list(found.values()))
    if last is None:
        text = "no release of %s at %s verifies, so there is nothing to count from: the first has sequence 1"
        raise codes.refused(codes.BAD_RELEASE, text % (params["product"], ", ".join(params["previous"])))
    return sequence, next(path for path, body in found.items() if body == last), tuple(left_out)


def _manifests(place: str) -> List[str]:
    """A manifest, or those below a release's, a product's or the base's directory."""
    if not os.path.isdir(place):
        return [place]
    patterns = [os.path.join(glob.escape(place), *["*"] * depth, release.MANIFEST_NAME) for depth in range(3)]
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


def make(params: Dict[str, Any], check: bool) -> Plan:
    """The plan, written unless it is only asked for; what others signed meanwhile is kept."""
    planned = plan(params)
    if check or not planned.changed:
        return planned
    store.make_directory(planned.directory)
    with store.locked(planned.directory):
        if store.read_if_there(planned.manifest_path) != planned.before:
            planned = plan(params)
        write(planned)
    return planned


def write(planned: Plan) -> None:
    """Write the plan, the manifest last, so that a directory with a manifest is whole."""
    store.make_directory(planned.directory)
    for source, entry in planned.copies:
        store.copy(source, os.path.join(planned.directory, entry.name), entry)
    if planned.before is None:
        store.create(planned.manifest_path, (planned.published,))
    elif planned.before != planned.published:
        store.replace(planned.manifest_path, planned.published)
