# SPDX-License-Identifier: GPL-3.0-or-later
"""The stepping stones beside a release, in a directory and behind a URL."""

from __future__ import annotations

import importlib
import json
import pathlib
from typing import Any, Dict, List

import pytest

UTILS = "ansible_collections.slotward.fleet.plugins.plugin_utils."


@pytest.fixture(scope="module")
def stones() -> Any:
    """The module under test."""
    return importlib.import_module(UTILS + "stones")


@pytest.fixture(scope="module")
def releases() -> Any:
    """How a release is read."""
    return importlib.import_module(UTILS + "releases")


@pytest.fixture
def base(release: Any) -> pathlib.Path:
    """Four releases of one product; the newest but one asks for 1.2.0."""
    for version, sequence, least in (("1.0.0", 1, None), ("1.2.0", 2, "1.0.0"), ("1.4.0", 4, None)):
        release(version, sequence, min_from=least)
    made: pathlib.Path = release("1.3.0", 3, min_from="1.2.0").directory
    return made.parent


def claim(version: str, sequence: int, withdrawn: bool) -> Dict[str, Any]:
    """What a catalogue says of a release."""
    times = {"issuedAt": "2026-01-01T00:00:00Z", "expiresAt": "2027-01-01T00:00:00Z"}
    more = {"channel": "stable", "manifestSha256": "0" * 64, "withdrawn": withdrawn}
    return {"version": version, "sequence": sequence, **times, **more}


def versions(found: List[Any]) -> List[str]:
    """Of releases."""
    return [one.manifest.version for one in found]


def test_what_lies_beside_and_comes_before(stones: Any, releases: Any, base: pathlib.Path, keys: Any) -> None:
    """Highest sequence first; what comes after the release is no stone of it."""
    release = releases.read(str(base / "1.3.0"), keys.pins, 2)
    assert versions(stones.find(release, keys.pins, 2)) == ["1.2.0", "1.0.0"]


def test_a_release_that_asks_for_nothing_has_none(stones: Any, releases: Any, base: pathlib.Path, keys: Any) -> None:
    """Nobody looks around."""
    assert stones.find(releases.read(str(base / "1.4.0"), keys.pins, 2), keys.pins, 2) == []


def test_what_does_not_pass_is_no_stone(
    stones: Any, releases: Any, base: pathlib.Path, keys: Any, release: Any
) -> None:
    """Too few signatures, another product, damage, a withdrawal, and what is no release at all."""
    release("1.1.0", 1, signers=1)
    release("1.1.1", 2, product="exporter")
    (base / "1.0.0" / "manifest.json").write_text("{}")
    (base / "notes").mkdir()
    found = releases.read(str(base / "1.3.0"), keys.pins, 2)
    assert versions(stones.find(found, keys.pins, 2)) == ["1.2.0"]
    (base / "1.2.0" / "withdrawn.json").write_text("{}")
    assert stones.find(found, keys.pins, 2) == []


def test_behind_a_url_the_catalogue_says_where_to_look(
    stones: Any, releases: Any, base: pathlib.Path, keys: Any, served: str, tmp_path: pathlib.Path
) -> None:
    """What it claims is not believed; without one, or with rubbish in its place, there are no stones."""
    place = "%s/%s/1.3.0" % (served, base.relative_to(tmp_path))
    release = releases.read(place, keys.pins, 2, allow_http=True)

    def found() -> List[str]:
        return versions(stones.find(release, keys.pins, 2, allow_http=True))

    assert found() == []
    claims = (("1.4.0", 6, False), ("1.3.9", 5, False), ("1.2.0", 2, False), ("1.1.7", 1, False))
    listed = [claim(*one) for one in claims]
    catalogue = base / "releases.json"
    catalogue.write_text(json.dumps({"spec": 1, "product": "slotward", "releases": listed}))
    assert found() == ["1.2.0"]
    listed[2]["withdrawn"] = True
    catalogue.write_text(json.dumps({"spec": 1, "product": "slotward", "releases": listed}))
    assert found() == []
    listed[2].update(withdrawn=False, version="../../etc")
    twisted = json.dumps({"spec": 1, "product": "slotward", "releases": listed})
    for rubbish in ("", "[]", "{}", '{"releases": [1]}', twisted, "[" * 5000):
        catalogue.write_text(rubbish)
        assert found() == []


def test_hosts_fetch_a_stone_from_beside_the_release(stones: Any, releases: Any, base: pathlib.Path, keys: Any) -> None:
    """By the hosts' own address when it ends in the version; else there is none to guess."""
    release = releases.read(str(base / "1.3.0"), keys.pins, 2)
    (stone, _older) = stones.find(release, keys.pins, 2)
    mirror = "https://mirror.example/slotward/"
    there = stones.target(release, stone, mirror + "1.3.0/")
    assert there["artifacts"]["linux-amd64"]["url"] == mirror + "1.2.0/slotward_1.2.0_linux_amd64"
    assert (there["version"], there["min_from"], there["directory"]) == ("1.2.0", "1.0.0", str(base / "1.2.0"))
    assert stones.target(release, stone, "https://mirror.example/files")["artifacts"]["linux-amd64"]["url"] == ""
