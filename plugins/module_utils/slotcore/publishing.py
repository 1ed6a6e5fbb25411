# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be written so that a release, or the notice of its withdrawal, is published in the static layout.

Rules:

* `<base>/<product>/<version>/` holds `manifest.json`, the artifacts, and `withdrawn.json` once there is a notice;
  `<base>/<product>/releases.json` is made anew from what is there, so a damaged or missing one repairs itself.
* A version is published once: a document there is replaced only by itself with more signatures.
* A sequence belongs to one version; a release that nobody has signed is not published.
* A notice goes beside the release that it withdraws: product, version and sequence are those of its manifest.
* Whoever writes does it in the order given: what a reader finds listed is there already.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, cast

from . import catalogue, codes, documents, manifest, release, signing

NOTICE_NAME = "withdrawn.json"


class Shelf(NamedTuple):
    """What lies below `<base>/<product>`: published manifests and notices by version, and the catalogue."""

    manifests: Mapping[str, bytes]
    notices: Mapping[str, bytes]
    catalogue: Optional[bytes]


class Write(NamedTuple):
    """A file below the base, and its bytes."""

    path: str
    data: bytes


class Plan(NamedTuple):
    """What has to be written, in this order, after the artifacts; `ignored` says what of the shelf is not listed."""

    directory: str
    parts: signing.Parts
    artifacts: Tuple[manifest.Artifact, ...]
    writes: Tuple[Write, ...]
    ignored: Tuple[str, ...]


def plan_release(shelf: Shelf, offered: bytes) -> Plan:
    """Publish a release; its signatures are added to those that are there. Raises Refused."""
    parts = signing.read(offered, documents.RELEASE)
    body = cast(manifest.Manifest, parts.body)
    published = _joined(parts, offered, shelf.manifests.get(body.version))
    others = {version: data for version, data in shelf.manifests.items() if version != body.version}
    for version, data in sorted(others.items()):
        found = _listed(version, data, body.product)
        if isinstance(found, signing.Parts) and found.body.sequence == body.sequence:
            text = "sequence %d is that of the published release %s already: build %s with a higher one"
            raise codes.refused(codes.BAD_RELEASE, text % (body.sequence, version, body.version))
    manifests = {**others, body.version: published}
    return _plan(shelf, signing.read(published), release.MANIFEST_NAME, published, manifests, shelf.notices)


def plan_notice(shelf: Shelf, offered: bytes) -> Plan:
    """Publish a withdrawal beside the release that it is about. Raises Refused."""
    parts = signing.read(offered, documents.WITHDRAWAL)
    body = cast(documents.Withdrawal, parts.body)
    there = shelf.manifests.get(body.version)
    if there is None:
        text = "%s %s is not published here, so its withdrawal has no place: publish the release first, or give the right --to"
        raise codes.refused(codes.BAD_RELEASE, text % (body.product, body.version))
    of = signing.read(there, documents.RELEASE).body
    if (of.product, of.sequence) != (body.product, body.sequence):
        text = "the withdrawal is of %s %s, sequence %d; what is published is %s, sequence %d"
        said = (body.product, body.version, body.sequence, of.product, of.sequence)
        raise codes.refused(codes.RELEASES_DIFFER, text % said)
    published = _joined(parts, offered, shelf.notices.get(body.version))
    notices = {**shelf.notices, body.version: published}
    return _plan(shelf, signing.read(published), NOTICE_NAME, published, shelf.manifests, notices)


def after(shelf: Shelf, plan: Plan) -> Shelf:
    """The shelf when all of the plan is written."""
    found = {write.path.rpartition("/")[2]: write.data for write in plan.writes}
    version = plan.directory.rpartition("/")[2]
    added = [
        {version: found[name]} if name in found else cast(Dict[str, bytes], {})
        for name in (release.MANIFEST_NAME, NOTICE_NAME)
    ]
    listed = found.get(catalogue.NAME, shelf.catalogue)
    return Shelf({**shelf.manifests, **added[0]}, {**shelf.notices, **added[1]}, listed)


def plan(shelf: Shelf, offered: Sequence[bytes]) -> Tuple[Plan, ...]:
    """Publish releases and withdrawals in the order given, each as if those before it were there. Raises Refused."""
    found = []
    for document in offered:
        of_kind = plan_release if signing.read(document).kind is documents.RELEASE else plan_notice
        found.append(of_kind(shelf, document))
        shelf = after(shelf, found[-1])
    return tuple(found)


def _plan(
    shelf: Shelf,
    parts: signing.Parts,
    name: str,
    published: bytes,
    manifests: Mapping[str, bytes],
    notices: Mapping[str, bytes],
) -> Plan:
    """The document's own file when it is new or has more signatures, and the catalogue when it changes."""
    product, version = parts.body.product, cast(manifest.Manifest, parts.body).version
    directory = release.directory(product, version)
    entries: Dict[str, catalogue.Entry] = {}
    ignored: List[str] = []
    for at, data in sorted(manifests.items()):
        found = _listed(at, data, product)
        if isinstance(found, str):
            ignored.append(found)
        else:
            body = cast(manifest.Manifest, found.body)
            entries[at] = catalogue.entry(found, body, _is_withdrawn(body, notices.get(at)))
    listed = catalogue.encode(product, tuple(entries.values()))
    there = shelf.manifests if name == release.MANIFEST_NAME else shelf.notices
    writes = [Write("%s/%s" % (directory, name), published)] if there.get(version) != published else []
    if shelf.catalogue != listed:
        writes.append(Write("%s/%s" % (product, catalogue.NAME), listed))
    artifacts = parts.body.artifacts if isinstance(parts.body, manifest.Manifest) else ()
    return Plan(directory, parts, artifacts, tuple(writes), tuple(ignored))


def _joined(parts: signing.Parts, offered: bytes, there: Optional[bytes]) -> bytes:
    """The document with the signatures of both; refused when another one is there, or nobody has signed."""
    if not signing.good(parts):
        text = "nobody has signed the %s of %s: sign it first"
        raise codes.refused(codes.TOO_FEW_SIGNATURES, text % (parts.kind.name, documents.named(parts.body)))
    if there is None:
        return signing.merge([offered])
    if signing.read(there, parts.kind).form.body != parts.form.body:
        text = "another %s of %s is published here and is never overwritten: a version is published once"
        raise codes.refused(codes.ALREADY_EXISTS, text % (parts.kind.name, documents.named(parts.body)))
    return signing.merge([there, offered])


def _listed(version: str, data: bytes, product: str) -> Union[signing.Parts, str]:
    """The published release, or why the catalogue cannot list it."""
    try:
        parts = signing.read(data, documents.RELEASE)
    except codes.Refused as error:
        return "%s: %s" % (version, error.text)
    body = cast(manifest.Manifest, parts.body)
    if (body.product, body.version) != (product, version):
        return "%s: the manifest there is of %s %s" % (version, body.product, body.version)
    return parts if signing.good(parts) else "%s: nobody has signed it" % version


def _is_withdrawn(body: manifest.Manifest, notice: Optional[bytes]) -> bool:
    """Whether the notice beside a release is one of its withdrawal, signed by anybody: the catalogue is a hint."""
    if notice is None:
        return False
    try:
        parts = signing.read(notice, documents.WITHDRAWAL)
    except codes.Refused:
        return False
    of = cast(documents.Withdrawal, parts.body)
    same = (of.product, of.version, of.sequence) == (body.product, body.version, body.sequence)
    return same and bool(signing.good(parts))
