# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release publish`, `withdraw`, `key-set`, `permit` and `inspect`: what others than manifests are made of, and where it goes."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List

import pytest
from agent.releasing import BYTES, ISSUED, PROGRAM, Bench, Ran, limit, refused, umask

from slotcore import catalogue, codes, documents, signing
from slotward import release_cmd, release_files

AT = ["--at", ISSUED]
HOST = "4b3f6a526f0e4c399a3e2f6f0a1f2f10"
MAKES = ["--product", "toy", "--issued-at", ISSUED, "--key", "k0.pub.pem", "--key", "k1.pub.pem", "--key", "k2.pub.pem"]


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    """A fresh one."""
    return Bench(tmp_path)


def publish(bench: Bench, source: object, *more: str) -> Ran:
    """Publish with two of three pins."""
    return bench.run("publish", "--from", source, "--to", "base", *bench.pinned(), *AT, "--json", *more)


def listed(bench: Bench) -> List[catalogue.Entry]:
    """What the catalogue has."""
    return list(catalogue.parse((bench.top / "base/toy/releases.json").read_bytes()).releases)


def below(path: pathlib.Path) -> Dict[str, bytes]:
    """Every file below a directory, hidden ones too."""
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def withdrawn(bench: Bench, version: str, sequence: int, *numbers: int) -> pathlib.Path:
    """A notice, signed by some of the keys."""
    path = bench.top / ("withdrawn-%s.json" % version)
    ran = bench.run(
        *("withdraw", *MAKES, "--version", version, "--sequence", sequence, "--why", "loses mail", "--output", path)
    )
    assert ran.status == 0, ran
    for number in numbers:
        assert bench.sign(number, path).status == 0
    return path


def test_a_release_is_published_with_its_catalogue(bench: Bench) -> None:
    """The layout of the design, readable for a web server under any umask, the newest sequence first."""
    first, second = bench.release("1.0.0", 4, 0, 1), bench.release("1.1.0", 5, 1, 2, channel="beta", min_from="1.0.0")
    arguments = ["publish", "--to", "base", *bench.pinned(), *AT, "--json", "--from"]
    ran = bench.run(*arguments, second, preexec=umask(0o077))
    assert (ran.status, ran.json["changed"]) == (0, True), ran
    assert ran.json["written"] == [
        "base/toy/1.1.0/toy_1.1.0_linux_amd64",
        "base/toy/1.1.0/manifest.json",
        "base/toy/releases.json",
    ]
    assert bench.run(*arguments, first, preexec=umask(0)).status == 0
    found = below(bench.top / "base")
    assert set(found) == {
        "toy/releases.json",
        *(
            "toy/%s/%s" % (one, name)
            for one in ("1.0.0", "1.1.0")
            for name in ("manifest.json", "toy_%s_linux_amd64" % one)
        ),
    }
    assert found["toy/1.1.0/toy_1.1.0_linux_amd64"] == BYTES
    assert [(one.version, one.sequence, one.channel, one.min_from) for one in listed(bench)] == [
        ("1.1.0", 5, "beta", "1.0.0"),
        ("1.0.0", 4, "stable", None),
    ]
    for path in (bench.top / "base").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path
    ran = bench.run("verify", "--manifest", "base/toy/1.1.0/manifest.json", *bench.pinned(), *AT)
    assert ran.status == 0


def test_publishing_again_changes_nothing(bench: Bench) -> None:
    """Not a byte, not a time; and more signatures are added to those that are there."""
    place = bench.release("1.1.0", 5, 0, 1)
    publish(bench, place)
    before = {str(path): path.stat().st_mtime_ns for path in (bench.top / "base").rglob("*")}
    ran = publish(bench, place)
    assert (ran.status, ran.json["changed"], ran.json["written"]) == (0, False, [])
    assert {str(path): path.stat().st_mtime_ns for path in (bench.top / "base").rglob("*")} == before
    bench.sign(2, place / "manifest.json")
    ran = publish(bench, place)
    assert (ran.json["changed"], ran.json["written"]) == (True, ["base/toy/1.1.0/manifest.json"])
    assert bench.signers(bench.top / "base/toy/1.1.0/manifest.json") == [0, 1, 2]


def test_a_release_built_in_its_place_only_gets_its_catalogue(bench: Bench) -> None:
    """Publishing from the base to the base."""
    place = bench.release("1.1.0", 5, 0, 1)
    ran = bench.run("publish", "--from", place, "--to", "releases", *bench.pinned(), *AT, "--json")
    assert (ran.status, ran.json["written"]) == (0, ["releases/toy/releases.json"]), ran


def test_what_does_not_verify_is_not_published(bench: Bench) -> None:
    """Too few signatures, an expired one, a damaged or lost artifact, a manifest changed: the base stays empty."""
    half = bench.release("1.0.0", 4, 0)
    assert refused(publish(bench, half), codes.TOO_FEW_SIGNATURES).startswith(str(half / "manifest.json"))
    place = bench.release("1.1.0", 5, 0, 1)
    ran = bench.run(
        "publish", "--from", place, "--to", "base", *bench.pinned(), "--at", "2027-01-01T00:00:00Z", "--json"
    )
    refused(ran, codes.EXPIRED)
    artifact = place / "toy_1.1.0_linux_amd64"
    artifact.write_bytes(BYTES[:-1] + b"#")
    refused(publish(bench, place), codes.DIGEST_MISMATCH)
    artifact.write_bytes(BYTES + b"#")
    refused(publish(bench, place), codes.SIZE_MISMATCH)
    artifact.unlink()
    ran = publish(bench, place)
    assert (ran.status, ran.json["code"]) == (1, "cannot-read")
    assert not (bench.top / "base").exists()


def test_without_pins_a_signature_and_the_expiry_are_still_needed(bench: Bench) -> None:
    """And it is said that nobody's signature was asked for in particular."""
    arguments = ["publish", "--to", "base", "--json", "--from"]
    ran = bench.run(*arguments, bench.release("1.0.0", 4), *AT)
    assert "nobody has signed the release manifest of toy 1.0.0" in refused(ran, codes.TOO_FEW_SIGNATURES)
    place = bench.release("1.1.0", 5, 0)
    refused(bench.run(*arguments, place, "--at", "2027-01-01T00:00:00Z"), codes.EXPIRED)
    ran = bench.run(*arguments, place, *AT)
    assert (ran.status, "no pins given" in ran.err) == (0, True)


def test_published_bytes_are_never_overwritten(bench: Bench) -> None:
    """Another release of that version, a file in an artifact's place, another version with that sequence."""
    publish(bench, bench.release("1.1.0", 5, 0, 1))
    before = below(bench.top / "base")
    shutil.rmtree(bench.top / "releases")
    assert "never overwritten" in refused(publish(bench, bench.release("1.1.0", 6, 0, 1)), codes.ALREADY_EXISTS)
    text = refused(publish(bench, bench.release("1.2.0", 5, 0, 1)), codes.BAD_RELEASE)
    assert text == "sequence 5 is that of the published release 1.1.0 already: build 1.2.0 with a higher one"
    assert below(bench.top / "base") == before
    place = bench.release("1.3.0", 7, 0, 1)
    (bench.top / "base/toy/1.3.0").mkdir()
    (bench.top / "base/toy/1.3.0/toy_1.3.0_linux_amd64").write_bytes(b"something else")
    assert "is not overwritten" in refused(publish(bench, place), codes.ALREADY_EXISTS)
    assert not (bench.top / "base/toy/1.3.0/manifest.json").exists()
    (bench.top / "base/toy/1.3.0/toy_1.3.0_linux_amd64").unlink()
    assert publish(bench, place).status == 0, "a directory that somebody made is filled"


def test_a_damaged_catalogue_is_made_anew(bench: Bench) -> None:
    """From the manifests that are there; what cannot be listed is told."""
    publish(bench, bench.release("1.0.0", 4, 0, 1))
    place = bench.release("1.1.0", 5, 0, 1)
    publish(bench, place)
    (bench.top / "base/toy/releases.json").write_bytes(b"{")
    (bench.top / "base/toy/1.0.0/manifest.json").write_bytes(b"{")
    ran = publish(bench, place)
    assert ran.json["written"] == ["base/toy/releases.json"]
    assert "not in the catalogue: base/toy/1.0.0: " in ran.err
    assert [one.version for one in listed(bench)] == ["1.1.0"]


def test_publishers_at_the_same_moment_lose_nothing(bench: Bench) -> None:
    """One after the other by the lock: all are in the catalogue."""
    places = [bench.release("1.%d.0" % number, number + 1, 0, 1) for number in range(4)]
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    children = [
        subprocess.Popen(
            [*PROGRAM, "release", "publish", "--from", str(place), "--to", "base", *AT],
            cwd=bench.top,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for place in places
    ]
    assert [child.wait(120) for child in children] == [0, 0, 0, 0]
    assert [one.sequence for one in listed(bench)] == [4, 3, 2, 1]


def test_waiting_for_a_lock_that_never_ends_has_an_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everybody who can read a web server's directory can lock it; the publisher says so and writes nothing."""
    bench.release("1.0.0", 4, 0, 1)
    base = bench.top / "base/toy"
    base.mkdir(parents=True)
    monkeypatch.setattr(release_files, "WAIT_S", 0.2)
    words = ["publish", "--from", str(bench.top / "releases/toy/1.0.0"), "--to", str(bench.top / "base"), *AT]
    held = os.open(base, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert release_cmd.main([*words, "--json"]) == 4
        answer = json.loads(capsys.readouterr().out)
        assert (answer["code"], list(base.iterdir())) == (codes.IN_PROGRESS, [])
        assert f"{base} has been locked by another process for 0.2 s" in answer["message"]
        monkeypatch.setattr(release_files, "WAIT_S", 60.0)
        timer = threading.Timer(0.3, fcntl.flock, (held, fcntl.LOCK_UN))
        timer.start()
        assert release_cmd.main(words) == 0
        timer.join()
    finally:
        os.close(held)


def test_a_publisher_that_is_killed_leaves_no_half_release(bench: Bench) -> None:
    """At any moment: the version is whole or not there, the catalogue lists only whole ones, and the next one cleans up."""
    bench.release("1.1.0", 5, 0, 1)
    big = bench.top / "releases/toy/1.1.0"
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    for number in range(12):
        shutil.rmtree(bench.top / "base", ignore_errors=True)
        child = subprocess.Popen(
            [*PROGRAM, "release", "publish", "--from", str(big), "--to", "base", *AT],
            cwd=bench.top,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        shelf, end = bench.top / "base/toy", time.monotonic() + 30
        while child.poll() is None and time.monotonic() < end and not shelf.exists():
            pass
        time.sleep(number * 0.001)
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        if (shelf / "1.1.0").exists():
            assert {path.name for path in (shelf / "1.1.0").iterdir()} == {"manifest.json", "toy_1.1.0_linux_amd64"}
        assert (shelf / "1.1.0").exists() or not (shelf / "releases.json").exists()
        assert publish(bench, big).status == 0
        assert sorted(path.name for path in shelf.iterdir()) == ["1.1.0", "releases.json"]


def test_a_full_disk_publishes_nothing(bench: Bench) -> None:
    """The version does not appear, and the next try goes through."""
    place = bench.release("1.1.0", 5, 0, 1)
    ran = bench.run("publish", "--from", place, "--to", "base", *AT, "--json", preexec=limit(10))
    assert (ran.status, ran.json["code"]) == (1, "cannot-write")
    assert list((bench.top / "base/toy").iterdir()) == []
    assert publish(bench, place).status == 0


def test_a_withdrawal_is_published_beside_its_release(bench: Bench) -> None:
    """As withdrawn.json; the catalogue is marked; the release itself stays, and stays marked."""
    place = bench.release("1.1.0", 5, 0, 1)
    publish(bench, place)
    notice = withdrawn(bench, "1.1.0", 5, 0, 2)
    ran = publish(bench, notice)
    assert ran.json["written"] == ["base/toy/1.1.0/withdrawn.json", "base/toy/releases.json"], ran
    assert [one.withdrawn for one in listed(bench)] == [True]
    ran = publish(bench, notice)
    assert (ran.status, ran.json["changed"]) == (0, False)
    assert publish(bench, place).json["changed"] is False
    ran = bench.run("verify", "--document", "base/toy/1.1.0/withdrawn.json", *bench.pinned(), "--json")
    assert (ran.status, ran.json["why"]) == (0, "loses mail")


def test_a_directory_with_a_notice_is_published_whole(bench: Bench) -> None:
    """To a base that has neither."""
    place = bench.release("1.1.0", 5, 0, 1)
    shutil.copy(withdrawn(bench, "1.1.0", 5, 0, 1), place / "withdrawn.json")
    assert len(publish(bench, place).json["written"]) == 5
    assert [one.withdrawn for one in listed(bench)] == [True]


def test_a_withdrawal_of_what_is_not_there_has_no_place(bench: Bench) -> None:
    """Nor has one that too few signed, nor one of another sequence."""
    assert "is not published here" in refused(publish(bench, withdrawn(bench, "1.1.0", 5, 0, 1)), codes.BAD_RELEASE)
    publish(bench, bench.release("1.1.0", 5, 0, 1))
    refused(publish(bench, withdrawn(bench, "1.0.0", 4, 0)), codes.TOO_FEW_SIGNATURES)
    (bench.top / "withdrawn-1.1.0.json").unlink()
    found = refused(publish(bench, withdrawn(bench, "1.1.0", 6, 0, 1)), codes.RELEASES_DIFFER)
    assert "sequence 6; what is published is toy, sequence 5" in found
    assert [one.withdrawn for one in listed(bench)] == [False]


def permit(bench: Bench, *more: str) -> Ran:
    """A permit for one host."""
    return bench.run(
        *(
            "permit",
            *MAKES,
            "--version",
            "1.0.0",
            "--sequence",
            "4",
            "--host",
            HOST,
            "--output",
            "permit.json",
            "--json",
        ),
        *more,
    )


def key_set(bench: Bench, sequence: int, *more: str) -> Ran:
    """A key set with the first two keys."""
    pins = ["--pin", bench.keys[0].public.pin, "--pin", bench.keys[1].public.pin]
    output = ["--output", "keys-%d.json" % sequence]
    return bench.run("key-set", *MAKES, "--sequence", sequence, *pins, "--threshold", 2, *output, "--json", *more)


def test_a_permit_is_drafted_signed_and_verified(bench: Bench) -> None:
    """With an id of its own; drafted again it stays the same one. It is given to hosts, not published."""
    ran = permit(bench)
    assert (ran.status, ran.json["changed"], ran.json["hosts"], ran.json["signatures"]) == (0, True, [HOST], 0), ran
    assert len(ran.json["id"]) == 32
    assert ran.json["expires_at"] == "2026-01-08T00:00:00Z"
    again = permit(bench)
    assert (again.json["changed"], again.json["id"]) == (False, ran.json["id"])
    assert "sequence 4, not 9" in refused(permit(bench, "--sequence", "9"), codes.ALREADY_EXISTS)
    for number in (0, 2):
        assert bench.sign(number, bench.top / "permit.json").status == 0
    assert bench.run("verify", "--document", "permit.json", *bench.pinned(), *AT).status == 0
    refused(bench.run("verify", "--document", "permit.json", *bench.pinned(), "--json"), codes.EXPIRED)
    text = refused(publish(bench, "permit.json"), codes.BAD_DOCUMENT)
    assert "permit.json is a downgrade permit, which is not published but given to hosts" in text
    assert not (bench.top / "base").exists()


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (["--version", "1.0"], codes.NOT_A_RELEASE, '"1.0" is not a release version, such as 1.2.0'),
        (["--host", "web1"], codes.BAD_DOCUMENT, "hosts[1] must be a machine id"),
        (["--id", "x"], codes.BAD_DOCUMENT, "id must be 16 to 64 of 0-9 and a-f"),
        (["--key", "k0.pem"], codes.BAD_KEY, "k0.pem: found PRIVATE KEY, not a public key"),
        (["--product", "Toy"], codes.BAD_DOCUMENT, "product must be 1 to 64"),
    ],
)
def test_what_no_host_would_take_is_not_drafted(bench: Bench, more: List[str], code: str, text: str) -> None:
    """Nothing is written."""
    assert text in refused(permit(bench, *more), code)
    assert not (bench.top / "permit.json").exists()


def test_N16_a_chain_of_key_sets(bench: Bench) -> None:
    """The first follows the configuration's pins, the next the one before; each is judged by what was in force."""
    old = ["--old-pins", bench.pins(), "--old-threshold", "2"]
    ran = key_set(bench, 1, *old)
    assert (ran.status, ran.json["threshold"]) == (0, 2), ran
    assert ran.json["pins"] == [one.public.pin for one in bench.keys[:2]]
    assert "nobody has signed the key set" in refused(
        key_set(bench, 2, "--previous", "keys-1.json"), codes.TOO_FEW_SIGNATURES
    )
    for number in (0, 2):
        assert bench.sign(number, bench.top / "keys-1.json").status == 0
    assert bench.run("verify", "--document", "keys-1.json", *bench.pinned(), *AT).status == 0
    assert key_set(bench, 2, "--previous", "keys-1.json").status == 0
    refused(key_set(bench, 1, "--previous", "keys-1.json"), codes.KEYS_NOT_NEWER)
    late = ["--previous", "keys-1.json", "--issued-at", "2027-01-01T00:00:00Z"]
    assert "--accept-gap" in refused(key_set(bench, 3, *late), codes.KEYS_EXPIRED)
    assert not (bench.top / "keys-3.json").exists()
    assert key_set(bench, 3, *late, "--accept-gap").status == 0
    text = refused(
        key_set(bench, 4, "--old-pins", bench.keys[2].public.pin + "," + Bench.stranger_pin(), "--old-threshold", "2"),
        codes.TOO_FEW_SIGNATURES,
    )
    assert text.startswith("1 of the keys given are in the old set, which needs 2 signatures")


@pytest.mark.parametrize("make", ["permit", "withdraw", "key-set", "release"])
def test_inspect_shows_all_that_is_signed(bench: Bench, make: str) -> None:
    """Of any kind, to people and to programs, with who has signed and the digest of the body."""
    made: Dict[str, Any] = {
        "permit": lambda: bench.top / str(permit(bench).json["manifest"]),
        "withdraw": lambda: withdrawn(bench, "1.1.0", 5),
        "key-set": lambda: bench.top / str(key_set(bench, 1, "--old-pins", bench.pins()).json["manifest"]),
        "release": bench.built,
    }
    path = made[make]()
    bench.sign(1, path)
    parts = signing.read(path.read_bytes())
    ran = bench.run("inspect", "--document", path, "--json")
    assert (ran.status, ran.json["changed"], ran.json["body_sha256"]) == (0, False, parts.sha256), ran
    assert (ran.json["type"], ran.json["product"], ran.json["signatures"]) == (parts.kind.type, "toy", 1)
    assert [one["signed"] for one in ran.json["keys"]] == [False, True, False]
    text = bench.run("inspect", "--document", path).out
    assert parts.sha256 in text
    for name in ("why", "hosts", "pins", "version"):
        value = ran.json.get(name)
        for one in value if isinstance(value, list) else [value] if value else []:
            assert str(one) in text, name
    assert text.count("not signed") == 2


def test_inspect_refuses_what_is_no_document(bench: Bench) -> None:
    """With the code of its kind; a kind that this tool does not know is named."""
    path = bench.top / "what.json"
    path.write_text("{}")
    refused(bench.run("inspect", "--document", path, "--json"), codes.BAD_DOCUMENT)
    text = refused(bench.run("inspect", "--document", "k0.pub.pem", "--json"), codes.BAD_DOCUMENT)
    assert "not plain JSON" in text
    assert {kind.type for kind in documents.KINDS} == {
        "slotward.release",
        "slotward.key-set",
        "slotward.downgrade-permit",
        "slotward.withdrawal",
    }


def test_a_signature_for_one_kind_is_worth_nothing_for_another(bench: Bench) -> None:
    """A permit's signature moved to a withdrawal with the same keys."""
    permit(bench)
    bench.sign(0, bench.top / "permit.json")
    notice = withdrawn(bench, "1.0.0", 4)
    fields = json.loads(notice.read_text())
    fields["signatures"] = json.loads((bench.top / "permit.json").read_text())["signatures"]
    notice.write_text(json.dumps(fields))
    ran = bench.run("verify", "--document", notice, *bench.pinned(1), "--json")
    assert "it does not verify" in refused(ran, codes.TOO_FEW_SIGNATURES)


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "--manifest"],
        ["sign", "--key", "k0.pem", "--yes", "--manifest"],
        ["verify", "--pins", "sha256/" + "A" * 43 + "=", "--manifest"],
        ["merge", "--output", "merged.json"],
    ],
)
def test_a_file_that_is_no_document_is_named(bench: Bench, words: List[str]) -> None:
    """A catalogue is told from what somebody signs."""
    publish(bench, bench.release("1.1.0", 5, 0, 1))
    text = refused(bench.run(*words, "base/toy/releases.json", "--json"), codes.BAD_DOCUMENT)
    assert text == (
        "base/toy/releases.json: the document is malformed: it is a catalogue (releases.json), which nobody signs: "
        "give the manifest.json of a release"
    )
    (bench.top / "odd.json").write_bytes(b"{")
    text = refused(bench.run(*words, "odd.json", "--json"), codes.BAD_DOCUMENT)
    assert text.startswith("odd.json: the document is malformed: the document is not plain JSON: ")


def test_a_product_is_not_published_into_itself(bench: Bench) -> None:
    """One level too deep, or two: the base that was meant is named, and nothing is written."""
    place = bench.release("1.1.0", 5, 0, 1)
    publish(bench, place)
    before = below(bench.top)
    inner = bench.top / "base" / "toy"
    for base, there, meant in (
        ("base/toy", "base/toy/releases.json", "base"),
        ("base/toy/toy", f"{inner}/releases.json", "base"),
        (str(inner), f"{inner}/releases.json", str(inner.parent)),
    ):
        text = refused(bench.run("publish", "--from", place, "--to", base, *AT, "--json"), codes.BAD_RELEASE)
        assert (
            text == f"{base} is not the base but the directory of toy in it, since {there} is there: give --to {meant}"
        )
    assert below(bench.top) == before
    shutil.copytree(bench.top / "base", bench.top / "toy")
    ran = bench.run("publish", "--from", place, "--to", "toy", *AT, "--json")
    assert (ran.status, ran.json["written"]) == (0, []), "a base may have any name"


def test_a_missing_manifest_or_directory_is_named(bench: Bench) -> None:
    """With what would have to be there."""
    (bench.top / "empty").mkdir()
    ran = publish(bench, "empty")
    assert (ran.status, ran.json["code"]) == (1, "cannot-read")
    assert ran.json["message"] == (
        "empty/manifest.json: there is none; the directory of a release, as build makes it, holds its signed "
        "manifest.json and its artifacts"
    )
    ran = bench.run("keygen", "--output", "no/where", "--no-passphrase", "--json")
    assert (ran.status, ran.json["message"]) == (1, "no/where: there is no directory no")
    ran = bench.run(
        *("withdraw", *MAKES, "--version", "1.0.0", "--sequence", 1, "--why", "x"), "--output", "no/x", "--json"
    )
    assert (ran.status, ran.json["message"]) == (1, "no: there is no such directory: make it first")


def test_a_host_that_is_no_machine_id_is_told_where_to_look(bench: Bench) -> None:
    """Not by its name."""
    ran = bench.run(
        *("permit", *MAKES, "--version", "1.0.0", "--sequence", 1, "--host", "web1"), "--output", "p", "--json"
    )
    assert "must be a machine id, 32 of 0-9 and a-f, as `slotward trust` on the host shows it, not 'web1'" in refused(
        ran, codes.BAD_DOCUMENT
    )


def test_what_is_merged_is_called_a_document(bench: Bench) -> None:
    """It may be of any kind."""
    path = withdrawn(bench, "1.0.0", 4, 0)
    assert bench.run("merge", "--output", "merged.json", path).out.splitlines()[0] == "document merged.json"
