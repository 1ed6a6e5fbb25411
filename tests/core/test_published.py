# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that were published once verify for ever (field case N18)."""

from __future__ import annotations

import hashlib
import pathlib
from typing import Dict, Tuple, cast

import pytest
from core import making

from slotcore import archive, catalogue, checks, codes, documents, manifest, product, release, unpacking, verifying

TOP = pathlib.Path(__file__).resolve().parents[1] / "vectors" / "published"
# the files of each version, which nobody may ever change
FROZEN: Dict[str, Dict[str, str]] = {
    "0.1.0": {
        "key-set.json": "0773abbf8243d206b846e3eb6df70522a9812274eb77b9c89f6af6c10d0a1349",
        "permit.json": "e308f31ee87d25441ef8fe2d656ac594ce3c8da7570ff829f833f68a99324cdb",
        "pins.txt": "a8900172753d94fd0d068bcf4dd1ce4a207d9d433ebb966c6b8c6b352a5add77",
        "toy/1.0.0/manifest.json": "10bb9d32e8c6e63eb07a6d3d79dc19d70314a8bca2149054b10af9bf41b8be81",
        "toy/1.0.0/toy_1.0.0_linux_amd64": "c477d958bae31dc208a7655a5bff763cdc98e23090b95697a4bf49bef9fe461b",
        "toy/1.0.0/toy_1.0.0_linux_arm64": "fbebfe7cafefea4baa409e15f4dd320cd8375f3a5f5d2b428ce8d457614f10bb",
        "toy/1.0.0/withdrawn.json": "ab477d1af9f5c833be1345ef9558333991300a3d1b8a233610a0716d0bb16262",
        "toy/releases.json": "cf0e848cdc9c1a542d4627314eb675b33350727a46d185f5313954e7e610f418",
    }
}
SIGNED = (
    ("toy/1.0.0/manifest.json", documents.RELEASE),
    ("toy/1.0.0/withdrawn.json", documents.WITHDRAWAL),
    ("key-set.json", documents.KEY_SET),
    ("permit.json", documents.PERMIT),
)
AT = 1796083200  # the first of December 2026
VERSIONS = pytest.mark.parametrize("version", sorted(FROZEN))


def pins(version: str) -> Tuple[str, ...]:
    """The three pins."""
    return tuple((TOP / version / "pins.txt").read_text().split())


def published(version: str) -> manifest.Manifest:
    """The release, verified."""
    data = (TOP / version / "toy/1.0.0/manifest.json").read_bytes()
    return cast(manifest.Manifest, verifying.judge(data, pins(version), 2, AT).parts.body)


def test_what_is_frozen_is_there_and_unchanged() -> None:
    """Every file by its digest, and none that nobody knows of."""
    found = {
        directory.name: {
            str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in directory.rglob("*")
            if path.is_file()
        }
        for directory in TOP.iterdir()
        if directory.is_dir()
    }
    assert found == FROZEN


@VERSIONS
@pytest.mark.parametrize(("name", "kind"), SIGNED, ids=[kind.type for _name, kind in SIGNED])
def test_N18_a_document_that_was_published_verifies(version: str, name: str, kind: documents.Kind) -> None:
    """By two of its three pins, one of each algorithm; by the third alone it does not."""
    data = (TOP / version / name).read_bytes()
    judged = verifying.judge(data, pins(version), 2, AT, kind)
    assert set(judged.signers) == set(pins(version)[:2])
    with pytest.raises(codes.Refused) as error:
        verifying.judge(data, pins(version)[2:], 1, AT, kind)
    assert error.value.code == codes.TOO_FEW_SIGNATURES


@VERSIONS
def test_N18_a_host_takes_the_release_that_was_published(version: str) -> None:
    """All rows of the table, for the platform of the program; the archive is one that hosts unpack."""
    text = (TOP / version / "toy/1.0.0/manifest.json").read_bytes()
    body = published(version)
    program, packed = sorted(body.artifacts, key=lambda one: one.platform)
    assert (program.kind, packed.kind) == ("binary", "tar.gz")
    of_host = making.facts(
        text,
        target=checks.Target("toy", "1.0.0", "https://releases.example.com/toy", program.sha256, text.decode()),
        running_version="0.9.0",
        floor=1,
        pins=pins(version),
        now_s=AT,
        policy=product.Policy(allowed_channels=("beta",)),
    )
    found = checks.check(of_host)
    assert isinstance(found, checks.Verified), found
    for one in body.artifacts:
        data = (TOP / version / "toy/1.0.0" / one.name).read_bytes()
        assert release.measure([data]) == (one.sha256, one.size)
    entries = archive.check([(TOP / version / "toy/1.0.0" / packed.name).read_bytes()])
    assert isinstance(unpacking.lay_out(entries, "toy"), unpacking.Layout)


@VERSIONS
def test_N18_the_catalogue_that_was_published_is_read(version: str) -> None:
    """It lists the release as withdrawn, and writing it again gives the same bytes."""
    data = (TOP / version / "toy/releases.json").read_bytes()
    found = catalogue.parse(data)
    assert [(one.version, one.withdrawn, one.min_from) for one in found.releases] == [("1.0.0", True, "0.9.0")]
    assert catalogue.encode(found.product, found.releases) == data
