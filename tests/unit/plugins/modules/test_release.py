# SPDX-License-Identifier: GPL-3.0-or-later
"""Building and signing on the controller."""

from __future__ import annotations

import importlib
import io
import os
import pathlib
import tarfile
from typing import Any, Dict

import pytest


@pytest.fixture
def asked(tmp_path: pathlib.Path, keys: Any) -> Dict[str, Any]:
    """What one release is made of."""
    artifact = tmp_path / "slotward_1.1.0_linux_amd64"
    artifact.write_bytes(b"#!/bin/sh\n")
    return {
        "output": str(tmp_path / "releases"),
        "version": "1.1.0",
        "sequence": 2,
        "artifacts": [str(artifact)],
        "keys": [str(path) for path in keys.public],
        "sign_with": [str(path) for path in keys.private[:1]],
    }


def files(asked: Dict[str, Any]) -> Dict[str, bytes]:
    """Everything below the output."""
    root = pathlib.Path(asked["output"])
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_once_made_it_stays_the_same(run_module: Any, asked: Dict[str, Any]) -> None:
    """The manifest and the artifacts, readable by a web server; the second run changes no byte."""
    result = run_module("release", **asked)
    assert (result["changed"], result["code"], result["release"]["signatures"]) == (True, "ok", 1)
    made = files(asked)
    assert set(made) == {"slotward/1.1.0/manifest.json", "slotward/1.1.0/slotward_1.1.0_linux_amd64"}
    assert os.stat(result["manifest"]).st_mode & 0o777 == 0o644
    again = run_module("release", **asked)
    assert again["changed"] is False
    assert files(asked) == made


def test_a_second_signer_adds_and_keeps(run_module: Any, asked: Dict[str, Any], keys: Any) -> None:
    """Each alone, with a private key only; the order does not matter and nothing is lost."""
    run_module("release", **asked)
    second = dict(asked, sign_with=[str(keys.private[1])])
    result = run_module("release", **second)
    assert (result["changed"], result["release"]["signatures"]) == (True, 2)
    assert run_module("release", **second)["changed"] is False
    assert run_module("release", **asked)["release"]["signatures"] == 2


def test_check_mode_writes_nothing_and_tells_the_change(run_module: Any, asked: Dict[str, Any], keys: Any) -> None:
    """Nothing there, a missing signature, all there."""
    assert run_module("release", check=True, **asked)["changed"] is True
    assert not os.path.exists(asked["output"])
    run_module("release", **asked)
    made = files(asked)
    result = run_module("release", check=True, **dict(asked, sign_with=[str(keys.private[1])]))
    assert result["changed"] is True
    assert "signed" in result["diff"]["after"]
    assert files(asked) == made
    assert run_module("release", check=True, **asked)["changed"] is False


def test_other_contents_under_the_same_version_are_refused(run_module: Any, asked: Dict[str, Any]) -> None:
    """A release is made once."""
    run_module("release", **asked)
    made = files(asked)
    pathlib.Path(asked["artifacts"][0]).write_bytes(b"#!/bin/sh\nother\n")
    result = run_module("release", **asked)
    assert (result["failed"], result["code"]) == (True, "already-exists")
    assert files(asked) == made
    assert run_module("release", **dict(asked, sequence=3))["code"] == "already-exists"


def test_a_lost_artifact_is_put_back_and_a_damaged_one_is_refused(run_module: Any, asked: Dict[str, Any]) -> None:
    """What lies beside the manifest is what the manifest says."""
    place = pathlib.Path(run_module("release", **asked)["directory"]) / "slotward_1.1.0_linux_amd64"
    place.unlink()
    assert run_module("release", **asked)["changed"] is True
    assert place.read_bytes() == b"#!/bin/sh\n"
    place.write_bytes(b"damaged")
    assert run_module("release", **asked)["code"] == "already-exists"
    assert place.read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"version": "1.1"}, "bad-release"),
        ({"sequence": 0}, "bad-release"),
        ({"product": "../x"}, "bad-release"),
        ({"artifacts": ["/nonexistent/slotward_1.1.0_linux_amd64"]}, "cannot-read"),
        ({"artifacts": [__file__]}, "bad-release"),
        ({"sign_with": [__file__]}, "bad-key"),
        ({"keys": ["/nonexistent/key"]}, "cannot-read"),
        ({"min_from": "2.0.0"}, "bad-release"),
    ],
)
def test_what_makes_no_release_is_refused(run_module: Any, asked: Dict[str, Any], more: Any, code: str) -> None:
    """With a code, a sentence, and nothing written."""
    result = run_module("release", **{**asked, **more})
    assert (result["failed"], result["code"], result["changed"]) == (True, code, False)
    assert result["msg"]
    assert not os.path.exists(asked["output"])


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("slotward_1.1.0_linux_amd64", b"no program", "not-executable"),
        ("slotward_1.1.0_linux_amd64", b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xb7\0" + bytes(44), "wrong-machine"),
        ("slotward_1.0.0_linux_amd64", b"#!/bin/sh\n", "bad-release"),
        ("other_1.1.0_linux_amd64", b"#!/bin/sh\n", "bad-release"),
        ("slotward_1.1.0_linux_amd64.tar.gz", b"#!/bin/sh\n", "bad-archive"),
    ],
)
def test_N7_an_artifact_of_something_else_is_refused(
    run_module: Any, asked: Dict[str, Any], tmp_path: pathlib.Path, name: str, data: bytes, code: str
) -> None:
    """Not a program, another machine's, another version's, another product's, a damaged archive."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_bytes(data)
    result = run_module("release", **dict(asked, artifacts=[str(tmp_path / "other" / name)]))
    assert (result["failed"], result["code"]) == (True, code), result
    assert not os.path.exists(asked["output"])


@pytest.mark.parametrize("member", ["slotward", "other"])
def test_an_archive_is_released_as_one(
    run_module: Any, asked: Dict[str, Any], tmp_path: pathlib.Path, member: str
) -> None:
    """When hosts would unpack it and find the program in it."""
    archive = tmp_path / "slotward_1.1.0_linux_amd64.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        entry = tarfile.TarInfo(member)
        entry.size = 10
        made.addfile(entry, io.BytesIO(b"#!/bin/sh\n"))
    result = run_module("release", **dict(asked, artifacts=[str(archive)]))
    if member == "other":
        assert (result["failed"], result["code"]) == (True, "bad-archive")
        return
    listed = result["release"]["artifacts"][0]
    assert (listed["name"], listed["kind"]) == ("slotward_1.1.0_linux_amd64", "tar.gz")
    assert pathlib.Path(result["directory"], listed["name"]).read_bytes() == archive.read_bytes()


def test_a_platform_may_be_given(run_module: Any, asked: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    """A file of any name goes into the release under the name that hosts look for."""
    (tmp_path / "program").write_bytes(b"#!/bin/sh\n# for arm\n")
    result = run_module("release", **dict(asked, artifacts=["%s/program:linux-arm64" % tmp_path]))
    assert result["release"]["artifacts"][0]["name"] == "slotward_1.1.0_linux_arm64"


def test_an_encrypted_key_needs_its_passphrase(run_module: Any, asked: Dict[str, Any], tmp_path: pathlib.Path) -> None:
    """The passphrase is never shown."""
    maker = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.keys")
    path = tmp_path / "locked.pem"
    path.write_bytes(maker.generate("ES256").pem(b"open sesame"))
    locked = dict(asked, sign_with=[str(path)])
    assert run_module("release", **locked)["code"] == "bad-key"
    assert run_module("release", **locked, passphrase="wrong")["code"] == "bad-key"
    result = run_module("release", **locked, passphrase="open sesame")
    assert result["changed"] is True
    assert "open sesame" not in str(result)


def test_a_private_key_among_the_public_ones_is_refused(run_module: Any, asked: Dict[str, Any], keys: Any) -> None:
    """It belongs into sign_with, or on another machine."""
    result = run_module("release", **dict(asked, keys=[str(keys.private[2])]))
    assert (result["failed"], result["code"]) == (True, "bad-key")
    assert "not a public key" in result["msg"]
    assert not os.path.exists(asked["output"])
