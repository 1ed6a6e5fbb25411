# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading and checking a release on the controller."""

from __future__ import annotations

import importlib
import pathlib
import types
from typing import Any

import pytest

NAME = "slotward_1.1.0_linux_amd64"


@pytest.fixture(scope="module")
def releases() -> Any:
    """The module under test."""
    return importlib.import_module("ansible_collections.slotward.fleet.plugins.plugin_utils.releases")


@pytest.fixture(scope="module")
def codes() -> Any:
    """The codes, by the collection's name."""
    return importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.codes")


def refusal(codes: Any, call: Any, *args: Any, **more: Any) -> Any:
    """What a call is refused with."""
    with pytest.raises(codes.Refused) as raised:
        call(*args, **more)
    return raised.value


def test_two_of_three_keys(releases: Any, codes: Any, release: Any, keys: Any) -> None:
    """Enough signatures pass, one too few does not, and no pins verify nothing and say so."""
    place = str(release().directory)
    read = releases.read(place, keys.pins, 2, "slotward", "1.1.0")
    assert sorted(read.signers) == sorted(keys.pins[:2])
    assert releases.describe(read)["verified"] is True
    assert refusal(codes, releases.read, place, keys.pins, 3).code == "too-few-signatures"
    assert releases.describe(releases.read(place))["verified"] is False


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"product": "exporter"}, "wrong-product"),
        ({"version": "1.2.0"}, "wrong-version"),
        ({"threshold": 4}, "too-few-signatures"),
        ({"threshold": 0}, "too-few-signatures"),
        ({"pins": ["sha256/short"]}, "bad-key"),
    ],
)
def test_what_was_not_asked_for_is_refused(
    releases: Any, codes: Any, release: Any, keys: Any, more: Any, code: str
) -> None:
    """Each refusal has the code that a host would give."""
    args = {"pins": keys.pins, "threshold": 2, **more}
    assert refusal(codes, releases.read, str(release().directory), **args).code == code


def test_an_expired_release_is_refused_when_it_is_verified(releases: Any, codes: Any, release: Any, keys: Any) -> None:
    """It can still be described."""
    place = str(release(expires_days=1).directory)
    late = releases.time.time() + 2 * 86400
    real, releases.time.time = releases.time.time, lambda: late
    try:
        assert refusal(codes, releases.read, place, keys.pins, 2).code == "expired"
        assert releases.describe(releases.read(place))["expired"] is True
    finally:
        releases.time.time = real


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"<html>not found</html>", b"\xff\xfe", b'{"manifest": "e30=", "signatures": []}']
)
def test_N6_something_else_than_a_manifest_is_refused(
    releases: Any, codes: Any, tmp_path: pathlib.Path, data: bytes
) -> None:
    """A page of HTML or an empty file is no release."""
    (tmp_path / "manifest.json").write_bytes(data)
    assert refusal(codes, releases.read, str(tmp_path)).code == "bad-manifest"


def test_no_manifest_at_all(releases: Any, codes: Any, tmp_path: pathlib.Path) -> None:
    """The path is named."""
    error = refusal(codes, releases.read, str(tmp_path))
    assert error.code == "cannot-read"
    assert str(tmp_path / "manifest.json") in error.text


def test_from_a_url(releases: Any, codes: Any, release: Any, keys: Any, served: str, tmp_path: pathlib.Path) -> None:
    """The hosts download from the same place unless told otherwise; http must be allowed; a missing one can be tried again."""
    url = "%s/%s/" % (served, release().directory.relative_to(tmp_path))
    assert refusal(codes, releases.read, url).code == "bad-url"
    read = releases.read(url, keys.pins, 2, allow_http=True)
    target = releases.target(read)
    assert target["artifacts"]["linux-amd64"]["url"] == url + NAME
    assert target["directory"] is None
    with pytest.raises(codes.Retryable) as raised:
        releases.read(url + "none", allow_http=True)
    assert raised.value.code == "download-failed"
    assert "404" in raised.value.text


def test_the_target_has_what_hosts_run(releases: Any, release: Any) -> None:
    """By the name that a host looks for; without a URL there is none to download from."""
    read = releases.read(str(release().directory))
    target = releases.target(read)
    assert set(target["artifacts"]) == {"linux-amd64"}
    assert target["artifacts"]["linux-amd64"]["url"] == ""
    assert target["directory"] == str(read.directory)
    assert target["manifest"] == pathlib.Path(target["directory"], "manifest.json").read_text()


def test_a_local_artifact_is_checked_when_it_is_used(releases: Any, codes: Any, release: Any) -> None:
    """What changed since the release was made is not pushed."""
    place = release(data=b"#!/12345").directory
    entry = releases.target(releases.read(str(place)))["artifacts"]["linux-amd64"]
    assert releases.local_artifact(str(place), entry) == str(place / NAME)
    (place / NAME).write_bytes(b"#!/12346")
    assert refusal(codes, releases.local_artifact, str(place), entry).code == "digest-mismatch"
    (place / NAME).write_bytes(b"#!/123456")
    assert refusal(codes, releases.local_artifact, str(place), entry).code == "size-mismatch"
    (place / NAME).unlink()
    assert refusal(codes, releases.local_artifact, str(place), entry).code == "cannot-read"


def test_by_digest(releases: Any, codes: Any, release: Any, tmp_path: pathlib.Path) -> None:
    """A manifest is compared and handed on; without one the version must be given; nothing is verified by keys."""
    place = release(data=b"#!/12345").directory
    sha256 = releases.hashlib.sha256(b"#!/12345").hexdigest()
    info = releases.by_digest(str(place), {"amd64": sha256.upper()}, "slotward", None, None)
    assert (info["verified"], info["version"], info["target"]["artifacts"]["linux-amd64"]["sha256"]) == (
        False,
        "1.1.0",
        sha256,
    )
    assert info["target"]["manifest"]
    other = refusal(codes, releases.by_digest, str(place), {"amd64": "0" * 64}, "slotward", None, None)
    assert other.code == "digest-mismatch"
    assert (
        refusal(codes, releases.by_digest, str(tmp_path), {"amd64": sha256}, "slotward", None, None).code
        == "not-a-release"
    )
    assert (
        refusal(codes, releases.by_digest, str(tmp_path), {"amd64": "12"}, "slotward", "1.0.0", None).code
        == "bad-digest"
    )
    assert refusal(codes, releases.by_digest, str(tmp_path), {}, "slotward", "1.0.0", None).code == "bad-digest"
    info = releases.by_digest("https://r.example/1.0.0", {"arm64": sha256}, "slotward", "1.0.0", None)
    assert info["target"]["artifacts"] == {
        "linux-arm64": {
            "name": "slotward_1.0.0_linux_arm64",
            "url": "https://r.example/1.0.0/slotward_1.0.0_linux_arm64",
            "sha256": sha256,
            "size": None,
        }
    }
    assert (info["target"]["manifest"], info["target"]["directory"]) == ("", None)


def test_variants_are_beside_what_a_host_without_one_takes(releases: Any) -> None:
    """By platform the plain name, by platform and variant each that names its variant; what has another name is for nobody."""
    manifest = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.manifest")

    def entry(name: str, variant: Any = None) -> Any:
        return manifest.Artifact(name, "linux-amd64", "ab" * 32, 5, "binary", variant)

    plain, full = entry("edge_1.0.0_linux_amd64", "full"), entry("edge_1.0.0_linux_amd64_musl", "musl")
    odd = entry("edge_1.0.0_linux_amd64_other", "small")
    body = types.SimpleNamespace(product="edge", version="1.0.0", artifacts=(plain, full, odd))
    assert releases.artifacts_of(body) == {
        "linux-amd64": plain,
        "linux-amd64/full": plain,
        "linux-amd64/musl": full,
    }
