# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishing releases, drafting the documents beside them, and telling what is published."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pathlib
import shutil
from typing import Any, Dict, List

import pytest

COLLECTION = "ansible_collections.slotward.fleet.plugins."
HOST = "4b3f6a526f0e4c399a3e2f6f0a1f2f10"
SECRET = "open sesame 4711"


@pytest.fixture
def base(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where releases are published."""
    return tmp_path / "base"


def asked(base: pathlib.Path, keys: Any, source: object, **more: Any) -> Dict[str, Any]:
    """The options of a publication by two of three pins."""
    return {"source": str(source), "base": str(base), "pins": list(keys.pins), "threshold": 2, **more}


def below(path: pathlib.Path) -> Dict[str, bytes]:
    """Every file below a directory."""
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def document(tmp_path: pathlib.Path, keys: Any, kind: str, **more: Any) -> Dict[str, Any]:
    """The options of a document, signed by the first two keys."""
    plain: Dict[str, Dict[str, Any]] = {
        "withdrawal": {"version": "1.1.0", "why": "loses mail"},
        "permit": {"version": "1.1.0", "hosts": [HOST]},
        "key_set": {"pins": list(keys.pins[:2]), "threshold": 2, "old_pins": list(keys.pins), "old_threshold": 2},
    }
    return {
        "kind": kind,
        "output": str(tmp_path / (kind + ".json")),
        "sequence": 2,
        "keys": [str(path) for path in keys.public],
        "sign_with": [str(path) for path in keys.private[:2]],
        **plain[kind],
        **more,
    }


def test_a_release_is_published_once(run_module: Any, release: Any, base: pathlib.Path, keys: Any) -> None:
    """With its catalogue; check mode tells the files and writes none; the second run changes no byte."""
    source = release().directory
    told = run_module("release_publish", check=True, **asked(base, keys, source))
    assert (told["changed"], base.exists()) == (True, False), told
    result = run_module("release_publish", **asked(base, keys, source))
    assert result["written"] == told["written"]
    assert [os.path.relpath(path, base) for path in result["written"]] == [
        "slotward/1.1.0/slotward_1.1.0_linux_amd64",
        "slotward/1.1.0/manifest.json",
        "slotward/releases.json",
    ]
    assert result["diff"]["after"].splitlines() == result["written"]
    assert (result["changed"], result["document"]["version"]) == (True, "1.1.0")
    made = below(base)
    assert made["slotward/1.1.0/slotward_1.1.0_linux_amd64"] == b"#!/bin/sh\n"
    for check in (True, False):
        again = run_module("release_publish", check=check, **asked(base, keys, source))
        assert (again["changed"], again["written"]) == (False, [])
    assert below(base) == made


def test_what_does_not_verify_is_not_published(
    run_module: Any, release: Any, base: pathlib.Path, keys: Any, tmp_path: pathlib.Path
) -> None:
    """Too few signatures, a changed artifact, other bytes in the place of published ones."""
    source = release(signers=1).directory
    assert run_module("release_publish", **asked(base, keys, source))["code"] == "too-few-signatures"
    assert run_module("release_publish", **asked(base, keys, source, pins=["x"]))["code"] == "no-pins"
    shutil.rmtree(source)
    source = release().directory
    (source / "slotward_1.1.0_linux_amd64").write_bytes(b"#!/bin/sH\n")
    assert run_module("release_publish", **asked(base, keys, source))["code"] == "digest-mismatch"
    (source / "slotward_1.1.0_linux_amd64").write_bytes(b"#!/bin/sh")
    assert run_module("release_publish", **asked(base, keys, source))["code"] == "size-mismatch"
    assert run_module("release_publish", **asked(base, keys, tmp_path / "missing"))["code"] == "cannot-read"
    for odd in (tmp_path / "fifo", tmp_path / "endless"):
        os.mkfifo(odd) if odd.name == "fifo" else odd.symlink_to("/dev/zero")
        found = run_module("release_publish", **asked(base, keys, odd))
        assert (found["code"], found["msg"].endswith("it is no plain file")) == ("cannot-read", True), found
    assert not base.exists()


def test_published_bytes_are_never_overwritten(run_module: Any, release: Any, base: pathlib.Path, keys: Any) -> None:
    """Another release under the same version."""
    source = release().directory
    run_module("release_publish", **asked(base, keys, source))
    made = below(base)
    shutil.rmtree(source)
    result = run_module("release_publish", **asked(base, keys, release(sequence=3).directory))
    assert (result["failed"], result["code"]) == (True, "already-exists")
    assert below(base) == made


def test_what_a_killed_publisher_left_is_removed(run_module: Any, release: Any, base: pathlib.Path, keys: Any) -> None:
    """By the next one, under the lock."""
    (base / "slotward" / ".publishing-1.0.0").mkdir(parents=True)
    (base / "slotward" / ".publishing-1.0.0" / "half").write_bytes(b"half")
    run_module("release_publish", **asked(base, keys, release().directory))
    assert sorted(path.name for path in (base / "slotward").iterdir()) == ["1.1.0", "releases.json"]


def test_a_withdrawal_is_drafted_signed_and_published(
    run_module: Any, release: Any, base: pathlib.Path, keys: Any, tmp_path: pathlib.Path
) -> None:
    """Beside its release, which the catalogue then marks."""
    run_module("release_publish", **asked(base, keys, release().directory))
    options = document(tmp_path, keys, "withdrawal")
    told = run_module("release_document", check=True, **options)
    assert (told["changed"], os.path.exists(options["output"])) == (True, False)
    result = run_module("release_document", **options)
    assert (result["changed"], result["document"]["signatures"], result["document"]["why"]) == (True, 2, "loses mail")
    assert run_module("release_document", **options)["changed"] is False
    published = run_module("release_publish", **asked(base, keys, options["output"]))
    assert [os.path.basename(path) for path in published["written"]] == ["withdrawn.json", "releases.json"]
    assert json.loads((base / "slotward/releases.json").read_text())["releases"][0]["withdrawn"] is True


def test_a_lock_that_is_never_free_is_told(
    run_module: Any,
    keys: Any,
    tmp_path: pathlib.Path,
    release: Any,
    base: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody who can read a directory can lock it; each of the modules ends with a code, and writes nothing."""
    store = importlib.import_module(COLLECTION + "module_utils.release_store")
    monkeypatch.setattr(store, "WAIT_S", 0.1)
    (base / "slotward").mkdir(parents=True)
    written = document(tmp_path, keys, "withdrawal")
    held = [os.open(path, os.O_RDONLY) for path in (base / "slotward", tmp_path)]
    try:
        for descriptor in held:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        for name, options in (
            ("release_publish", asked(base, keys, release().directory)),
            ("release_document", written),
        ):
            result = run_module(name, **options)
            assert (result["failed"], result["code"]) == (True, "in-progress"), result
            assert "has been locked by another process for 0.1 s" in result["msg"]
    finally:
        for descriptor in held:
            os.close(descriptor)
    assert (os.listdir(base / "slotward"), os.path.exists(written["output"])) == ([], False)
    assert run_module("release_document", **written)["changed"] is True


@pytest.mark.parametrize("kind", ["withdrawal", "permit", "key_set"])
def test_several_people_sign_a_document_one_after_the_other(
    run_module: Any, keys: Any, tmp_path: pathlib.Path, kind: str
) -> None:
    """Nothing is lost, not even a permit's id; other contents are refused."""
    first = document(tmp_path, keys, kind, sign_with=[str(keys.private[0])])
    one = run_module("release_document", **first)
    two = run_module("release_document", **dict(first, sign_with=[str(keys.private[2])]))
    assert (two["changed"], two["document"]["signatures"]) == (True, 2), two
    assert two["document"].get("id") == one["document"].get("id")
    assert "not signed" in two["diff"]["before"]
    changed = run_module("release_document", **dict(first, sequence=9))
    assert (changed["failed"], changed["code"]) == (True, "already-exists")


@pytest.mark.parametrize(
    ("kind", "more", "code"),
    [
        ("key_set", {"old_pins": None}, None),
        ("key_set", {"threshold": 3}, "bad-document"),
        ("key_set", {"old_pins": ["x"]}, "no-pins"),
        ("key_set", {"old_threshold": 3, "keys": []}, "too-few-signatures"),
        ("key_set", {"old_pins": None, "previous": "/nonexistent"}, "cannot-read"),
        ("permit", {"hosts": ["web1"]}, "bad-document"),
        ("permit", {"hosts": None}, None),
        ("withdrawal", {"why": ""}, "bad-document"),
        ("withdrawal", {"version": None}, None),
        ("withdrawal", {"sign_with": [__file__]}, "bad-key"),
        ("withdrawal", {"output": "/nonexistent/x.json"}, "cannot-read"),
    ],
)
def test_what_makes_no_document_is_refused(
    run_module: Any, keys: Any, tmp_path: pathlib.Path, kind: str, more: Dict[str, Any], code: str
) -> None:
    """With a code where the options are complete; nothing is written."""
    whole = {**document(tmp_path, keys, kind), **more}
    options = {name: value for name, value in whole.items() if value is not None}
    result = run_module("release_document", **options)
    assert (result["failed"], result.get("code")) == (True, code), result
    assert not os.path.exists(options["output"])


def test_N16_a_key_set_follows_the_one_before(run_module: Any, keys: Any, tmp_path: pathlib.Path) -> None:
    """Its document says whom hosts trust; the sequence grows."""
    first = document(tmp_path, keys, "key_set", sequence=1)
    assert run_module("release_document", **first)["document"]["pins"] == list(keys.pins[:2])
    second = document(tmp_path, keys, "key_set", previous=first["output"], output=str(tmp_path / "second.json"))
    del second["old_pins"]
    assert run_module("release_document", **dict(second, sequence=1))["code"] == "keys-not-newer"
    assert run_module("release_document", **second)["document"]["signatures"] == 2


def test_the_next_sequence_is_counted_from_verified_manifests(
    run_module: Any, release: Any, keys: Any, tmp_path: pathlib.Path
) -> None:
    """What does not verify is a warning, or an error when it was named."""
    place = release("1.1.0", 7).directory
    bad = release("1.2.0", 90, signers=1).directory
    artifact = tmp_path / "slotward_1.3.0_linux_amd64"
    artifact.write_bytes(b"#!/bin/sh\n")
    options = {
        "output": str(tmp_path / "out"),
        "version": "1.3.0",
        "sequence": "next",
        "artifacts": [str(artifact)],
        "keys": [str(path) for path in keys.public],
        "previous": [str(place.parent)],
        "pins": list(keys.pins),
        "threshold": 2,
    }
    result = run_module("release", **options)
    assert (result["release"]["sequence"], result["counted"]) == (8, str(place / "manifest.json")), result
    assert str(bad) in json.dumps(result["left_out"]), result
    assert run_module("release", **options)["changed"] is False
    named = dict(options, previous=[str(bad / "manifest.json")])
    assert run_module("release", **named)["code"] == "too-few-signatures"
    assert run_module("release", **dict(options, previous=[]))["code"] == "bad-release"
    assert run_module("release", **dict(options, pins=[]))["code"] == "no-pins"
    assert run_module("release", **dict(options, sequence="last"))["code"] == "bad-release"


@pytest.fixture
def codes() -> Any:
    """The errors that carry a code."""
    return importlib.import_module(COLLECTION + "module_utils.slotcore.codes")


@pytest.fixture
def catalogues() -> Any:
    """What the action plugin asks."""
    return importlib.import_module(COLLECTION + "plugin_utils.catalogues")


@pytest.fixture
def published(
    run_module: Any, release: Any, base: pathlib.Path, served: str, keys: Any, tmp_path: pathlib.Path
) -> List[str]:
    """Three releases, one of them withdrawn, as a directory and as an address."""
    for version, sequence, channel in (("1.1.0", 2, "stable"), ("1.2.0", 3, "stable"), ("1.3.0-rc.1", 4, "beta")):
        source = release(version, sequence, channel=channel).directory
        assert run_module("release_publish", **asked(base, keys, source))["changed"], version
    notice = document(tmp_path, keys, "withdrawal", version="1.2.0", sequence=3)
    run_module("release_document", **notice)
    run_module("release_publish", **asked(base, keys, notice["output"]))
    return [str(base), served + "/base"]


def look(catalogues: Any, place: str, keys: Any, limit: int = 50, threshold: int = 2) -> Dict[str, Any]:
    """What is said of the product at a place."""
    where = catalogues.Place(place + "/slotward", True, None)
    found: Dict[str, Any] = catalogues.look(where, "slotward", keys.pins, threshold, limit)
    return found


def test_a_catalogue_is_told_with_what_verified(catalogues: Any, published: List[str], keys: Any) -> None:
    """The same from a directory and from an address: the newest that is not withdrawn, by channel."""
    for place in published:
        found = look(catalogues, place, keys)
        assert [one["version"] for one in found["claimed"]] == ["1.3.0-rc.1", "1.2.0", "1.1.0"]
        assert [(one["version"], one["code"], one["verified"], one["as_listed"]) for one in found["releases"]] == [
            ("1.3.0-rc.1", "ok", True, True),
            ("1.2.0", "withdrawn", True, True),
            ("1.1.0", "ok", True, True),
        ]
        assert found["releases"][1]["withdrawn_why"] == "loses mail"
        assert found["newest"] == {"stable": "1.1.0", "beta": "1.3.0-rc.1"}
        assert (found["catalogue_error"], found["left_out"]) == (None, 0)
        assert look(catalogues, place, keys, limit=1)["left_out"] == 2


def test_nothing_that_the_catalogue_claims_is_believed(
    catalogues: Any, published: List[str], base: pathlib.Path, keys: Any
) -> None:
    """An invented release, a withdrawal that is hidden, a sequence that is another."""
    path = base / "slotward" / "releases.json"
    claimed = json.loads(path.read_text())
    claimed["releases"][0]["sequence"] = 9
    claimed["releases"][1]["withdrawn"] = False
    claimed["releases"].insert(0, dict(claimed["releases"][0], version="9.9.9", sequence=99))
    path.write_text(json.dumps(claimed))
    for place in published:
        found = {one["version"]: one for one in look(catalogues, place, keys)["releases"]}
        assert (found["9.9.9"]["verified"], found["9.9.9"]["listed"]) == (False, True)
        assert found["9.9.9"]["code"] in ("cannot-read", "download-failed")
        assert (found["1.3.0-rc.1"]["sequence"], found["1.3.0-rc.1"]["as_listed"]) == (4, False)
    assert look(catalogues, str(base), keys)["newest"]["stable"] == "1.1.0", (
        "a directory's notices are looked at anyway"
    )


def test_a_directory_is_looked_at_without_a_catalogue(
    catalogues: Any, codes: Any, published: List[str], base: pathlib.Path, keys: Any
) -> None:
    """Behind an address there is nothing to go by."""
    path = base / "slotward" / "releases.json"
    for data, text in (
        (b"{", "malformed"),
        (json.dumps({"product": "toy", "releases": [], "spec": 1}).encode(), "of toy"),
    ):
        path.write_bytes(data)
        found = look(catalogues, str(base), keys)
        assert text in found["catalogue_error"]
        assert found["newest"] == {"stable": "1.1.0", "beta": "1.3.0-rc.1"}
        assert [one["listed"] for one in found["releases"]] == [False] * 3
        assert look(catalogues, published[1], keys)["releases"] == []
    path.unlink()
    assert look(catalogues, str(base), keys)["newest"]["stable"] == "1.1.0"
    with pytest.raises(codes.Retryable):
        look(catalogues, published[1], keys)
    with pytest.raises(codes.Refused):
        look(catalogues, str(base / "missing"), keys)
    with pytest.raises(codes.Refused):
        look(catalogues, str(base), keys, threshold=4)


def test_a_notice_that_does_not_verify_withdraws_nothing(
    catalogues: Any, run_module: Any, published: List[str], base: pathlib.Path, keys: Any, tmp_path: pathlib.Path
) -> None:
    """Signed by one, or of another release: it is told."""
    options = document(
        tmp_path, keys, "withdrawal", output=str(tmp_path / "one.json"), sign_with=[str(keys.private[0])]
    )
    run_module("release_document", **options)
    shutil.copy(tmp_path / "one.json", base / "slotward/1.1.0/withdrawn.json")
    shutil.copy(base / "slotward/1.2.0/withdrawn.json", base / "slotward/1.3.0-rc.1/withdrawn.json")
    found = {one["version"]: one for one in look(catalogues, str(base), keys)["releases"]}
    assert "a notice that it is withdrawn does not count" in found["1.1.0"]["msg"]
    assert "of another release" in found["1.3.0-rc.1"]["msg"]
    assert [found[version]["withdrawn"] for version in ("1.1.0", "1.3.0-rc.1")] == [False, False]


def test_a_release_in_another_ones_place_does_not_verify(
    catalogues: Any, published: List[str], base: pathlib.Path, keys: Any
) -> None:
    """By its version."""
    shutil.copytree(base / "slotward/1.1.0", base / "slotward/2.0.0")
    found = {one["version"]: one for one in look(catalogues, str(base), keys)["releases"]}
    assert (found["2.0.0"]["verified"], found["2.0.0"]["code"]) == (False, "wrong-version")


def test_a_play_looks_for_the_newest_release(stage: Any, published: List[str], keys: Any) -> None:
    """On the controller, in check mode too; behind http only when a test says so."""
    stage.host("h1")
    args = {"base": published[0], "pins": list(keys.pins), "threshold": 2}
    tasks = [
        {"name": "Look", "slotward.fleet.catalogue_info": args},
        {"name": "Over http", "slotward.fleet.catalogue_info": dict(args, base=published[1]), "ignore_errors": True},
    ]
    played = stage.play([{"hosts": "all", "gather_facts": False, "tasks": tasks}], "--check")
    found = played.of("h1", "Look")
    assert (found["newest"]["stable"], found["changed"]) == ("1.1.0", False), played.out
    assert found["msg"] == "3 of 3 releases verified; newest: beta 1.3.0-rc.1, stable 1.1.0"
    assert played.of("h1", "Over http")["code"] == "bad-url"


def test_the_playbook_builds_the_next_release(stage: Any, release: Any, keys: Any, tmp_path: pathlib.Path) -> None:
    """With the sequence counted, or given as a number."""
    stage.host("h1")
    place = release("1.1.0", 7).directory
    for version, sequence, wanted in (("1.2.0", "next", 8), ("1.3.0", 9, 9)):
        artifact = tmp_path / ("slotward_%s_linux_amd64" % version)
        artifact.write_bytes(b"#!/bin/sh\n")
        played = stage.play(
            "slotward.fleet.release",
            release_output=str(tmp_path / "out"),
            release_version=version,
            release_sequence=sequence,
            release_artifacts=[str(artifact)],
            release_keys=[str(path) for path in keys.public],
            release_previous=[str(place)],
            release_pins=list(keys.pins),
            release_threshold=2,
        )
        assert played.of("localhost", "Build the manifest")["release"]["sequence"] == wanted, played.out


def test_no_secret_is_shown_at_any_verbosity(stage: Any, keys: Any, tmp_path: pathlib.Path) -> None:
    """Neither the passphrase nor a line of a key, with -vvv and diff, when it works and when it does not."""
    maker = importlib.import_module(COLLECTION + "module_utils.slotcore.keys")
    key = maker.generate("ES256")
    locked, plain = tmp_path / "locked.pem", tmp_path / "plain.pem"
    locked.write_bytes(key.pem(SECRET.encode()))
    plain.write_bytes(maker.generate("EdDSA").pem())
    artifact = tmp_path / "slotward_1.1.0_linux_amd64"
    artifact.write_bytes(b"#!/bin/sh\n")
    signs = {"sign_with": [str(locked), str(plain)], "passphrase": SECRET}
    release = {
        "output": str(tmp_path / "out"),
        "version": "1.1.0",
        "sequence": 1,
        "artifacts": [str(artifact)],
        **signs,
    }
    notice = {
        "kind": "withdrawal",
        "output": str(tmp_path / "w.json"),
        "version": "1.1.0",
        "sequence": 1,
        "why": "x",
        **signs,
    }
    tasks = [
        {"name": "Release", "slotward.fleet.release": release},
        {"name": "Notice", "slotward.fleet.release_document": notice},
        {"name": "Wrong", "slotward.fleet.release": dict(release, passphrase=SECRET + "!"), "ignore_errors": True},
        {"name": "Odd", "slotward.fleet.release_document": dict(notice, sequence=0), "ignore_errors": True},
    ]
    stage.host("h1")
    played = stage.play([{"hosts": "all", "gather_facts": False, "tasks": tasks}], "-vvv", "--diff")
    assert played.of("h1", "Release")["code"] == "ok", played.out
    assert played.of("h1", "Notice")["code"] == "ok", played.out
    assert played.of("h1", "Wrong")["code"] == "bad-key"
    said = played.out + json.dumps(played.results)
    assert "signed" in said
    assert SECRET not in said
    for path in (locked, plain):
        for line in path.read_text().splitlines()[1:-1]:
            assert line not in said
