# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release` as a program: from keys to a release that a host takes, and everything that it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
from typing import Dict, List, Optional, Tuple

import pytest
from agent.releasing import BYTES, ISSUED, NAME, PROGRAM, Bench, Ran, limit, on_terminal, refused, umask

from slotcore import codes, keys, manifest, release, signatures, signing


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    """A fresh one."""
    return Bench(tmp_path)


def test_two_of_three_people_make_a_release_that_a_host_takes(bench: Bench, tmp_path: pathlib.Path) -> None:
    """The tour of the help text: build, sign copies apart, merge, verify."""
    original = bench.built()
    copies = [tmp_path / name for name in ("ana", "ben")]
    for number, copy in zip((0, 2), copies):
        shutil.copy(original, copy)
        assert bench.sign(number, copy).status == 0
    assert bench.run("merge", "--output", original, *copies).status == 0
    found = signatures.verify_release(original.read_bytes(), bench.pins().split(","), 2)
    assert isinstance(found, signatures.VerifiedManifest)
    assert found.manifest.artifacts == (
        release.artifact("toy", "1.1.0", "linux-amd64", hashlib.sha256(BYTES).hexdigest(), len(BYTES)),
    )
    assert (bench.directory / NAME).read_bytes() == BYTES
    ran = bench.run(
        "verify",
        "--manifest",
        original,
        "--pins",
        bench.pins(),
        "--threshold",
        2,
        "--artifact",
        bench.directory / NAME,
        "--at",
        ISSUED,
        "--json",
    )
    assert ran.status == 0, ran
    assert ran.json["signers"] == sorted(bench.keys[number].public.pin for number in (0, 2))
    assert (ran.json["threshold"], ran.json["checked"], ran.json["signatures"]) == (2, [NAME], 2)


@pytest.mark.parametrize("alg", [None, "ES256", "EdDSA"])
def test_a_key_is_made(bench: Bench, alg: Optional[str]) -> None:
    """Private for its owner alone, public for all, kid and pin printed."""
    arguments = ["keygen", "--output", "new.pem", "--no-passphrase", "--json", *(["--alg", alg] if alg else [])]
    ran = bench.run(*arguments, preexec=umask(0))
    assert ran.status == 0, ran
    private, public = bench.top / "new.pem", bench.top / "new.pub.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    key = keys.load_private(private.read_bytes())
    assert keys.load_public(public.read_bytes()) == key.public
    assert key.public.alg == (alg or "ES256")
    told = {
        "alg": key.public.alg,
        "kid": key.public.kid,
        "pin": key.public.pin,
        "changed": True,
        "spec": 1,
        "code": "ok",
        "encrypted": False,
    }
    assert told.items() <= ran.json.items()
    assert "new.pem is not encrypted" in ran.err


def test_a_key_can_be_encrypted(bench: Bench) -> None:
    """By the first line of a file; then no warning."""
    ran = bench.run("keygen", "--output", "new.pem", "--passphrase-file", "pass")
    assert (ran.status, ran.err) == (0, "")
    key = keys.load_private((bench.top / "new.pem").read_bytes(), b"right")
    assert ran.out.splitlines() == [
        "private key new.pem",
        "public key new.pub.pem",
        "kid " + key.public.kid,
        "pin " + key.public.pin,
    ]


@pytest.mark.parametrize("there", ["new.pem", "new.pub.pem"])
def test_a_key_is_never_overwritten(bench: Bench, there: str) -> None:
    """Neither half, nor is the other half made then."""
    (bench.top / there).write_text("mine")
    before = bench.files()
    text = refused(bench.run("keygen", "--output", "new.pem", "--no-passphrase", "--json"), codes.ALREADY_EXISTS)
    assert text == "%s is there and is not overwritten; choose another name or remove it by hand" % there
    assert bench.files() == before


def test_a_link_at_a_keys_name_is_not_followed(bench: Bench) -> None:
    """Not even one that leads nowhere."""
    (bench.top / "new.pem").symlink_to(bench.top / "elsewhere")
    refused(bench.run("keygen", "--output", "new.pem", "--no-passphrase", "--json"), codes.ALREADY_EXISTS)
    assert not (bench.top / "elsewhere").exists()


def test_an_empty_passphrase_is_refused(bench: Bench) -> None:
    """It would encrypt nothing."""
    (bench.top / "pass").write_text("\nright\n")
    text = refused(bench.run("keygen", "--output", "new.pem", "--passphrase-file", "pass", "--json"), codes.BAD_KEY)
    assert text == "pass: its first line, the passphrase, is empty"
    assert not (bench.top / "new.pem").exists()


def test_a_build_writes_the_layout(bench: Bench) -> None:
    """Manifest and artifact, readable for a web server, and the answer describes them."""
    ran = bench.build()
    assert ran.status == 0, ran
    assert sorted(path.name for path in bench.directory.iterdir()) == ["manifest.json", NAME]
    body = release.read(bench.manifest.read_bytes())
    assert (body.product, body.version, body.sequence, body.channel, body.min_from) == (
        "toy",
        "1.1.0",
        5,
        "stable",
        None,
    )
    assert body.expires_at - body.issued_at == 365 * 86400
    assert [one.spki for one in body.keys] == [one.public.spki for one in bench.keys]
    assert ran.json["manifest"] == "releases/toy/1.1.0/manifest.json"
    assert {"product": "toy", "changed": True, "state": "idle", "signatures": 0}.items() <= ran.json.items()
    assert "%s: %d bytes, linux-amd64" % (NAME, len(BYTES)) in ran.err


def test_D13_an_odd_umask_changes_no_mode(bench: Bench) -> None:
    """Under 0077 the release is readable all the same, and a key is not more so than ever."""
    bench.run(*bench.build_arguments(), preexec=umask(0o077))
    for path in (bench.directory, bench.directory.parent, bench.top / "releases"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    for path in bench.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_every_option_of_a_build_reaches_the_manifest(bench: Bench) -> None:
    """Channel, stepping stone, days; and a key given twice is refused."""
    ran = bench.run(
        *bench.build_arguments(channel="beta", min_from="1.0.0", expires_days="7"),
        "--key",
        "k2.pub.pem",
    )
    assert "keys[3].kid is the same as that of keys[2]" in refused(ran, codes.BAD_RELEASE)
    assert bench.build(channel="beta", min_from="1.0.0", expires_days="7").status == 0
    body = release.read(bench.manifest.read_bytes())
    assert (body.channel, body.min_from, body.expires_at - body.issued_at) == ("beta", "1.0.0", 7 * 86400)


def test_the_platform_can_be_given(bench: Bench) -> None:
    """For a file that is not named after it; the copy is."""
    (bench.top / "toy").write_bytes(BYTES)
    assert bench.build(artifact="toy:linux-arm64").status == 0
    assert sorted(path.name for path in bench.directory.iterdir()) == ["manifest.json", "toy_1.1.0_linux_arm64"]
    (bench.top / "a:b_linux_amd64").write_bytes(BYTES)
    shutil.rmtree(bench.top / "releases")
    assert bench.build(artifact="a:b_linux_amd64").status == 0


def test_a_file_without_a_platform_is_refused(bench: Bench) -> None:
    """The message has the spelling that helps."""
    (bench.top / "toy").write_bytes(BYTES)
    text = refused(bench.build(artifact="toy"), codes.BAD_RELEASE)
    assert (
        text
        == "cannot tell the platform of toy: its name does not end in _os_arch; write toy:linux-amd64 (hosts are linux-amd64 and linux-arm64)"
    )
    assert not (bench.top / "releases").exists()


def test_building_again_changes_nothing(bench: Bench) -> None:
    """At another time, and with a signature there."""
    bench.built()
    bench.sign(0)
    before = bench.files()
    ran = bench.build(issued_at="2026-02-02T00:00:00Z")
    assert (ran.status, ran.json["changed"], ran.json["issued_at"]) == (0, False, ISSUED)
    assert bench.files() == before


def test_a_lost_artifact_is_put_back(bench: Bench) -> None:
    """The manifest stays as it is."""
    before = bench.built().read_bytes()
    (bench.directory / NAME).unlink()
    ran = bench.build()
    assert (ran.status, ran.json["changed"]) == (0, True)
    assert (bench.manifest.read_bytes(), (bench.directory / NAME).read_bytes()) == (before, BYTES)


def test_other_bytes_never_take_a_releases_place(bench: Bench) -> None:
    """Another program, another sequence, or a damaged copy beside the manifest."""
    bench.built()
    before = bench.files()
    assert "(sequence 5, not 6)" in refused(bench.build(sequence="6"), codes.ALREADY_EXISTS)
    (bench.top / NAME).write_bytes(BYTES + b"#")
    assert "(other artifacts)" in refused(bench.build(), codes.ALREADY_EXISTS)
    (bench.top / NAME).write_bytes(BYTES)
    assert bench.files() == before
    (bench.directory / NAME).write_bytes(b"damaged")
    text = refused(bench.build(), codes.ALREADY_EXISTS)
    assert text.startswith("releases/toy/1.1.0/%s is there and is not overwritten" % NAME)
    assert (bench.directory / NAME).read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"version": "1.1"}, codes.NOT_A_RELEASE, '"1.1" is not a release version, such as 1.2.0'),
        ({"version": "../../x"}, codes.NOT_A_RELEASE, '"../../x" is not a release version, such as 1.2.0'),
        (
            {"product": "../toy", "artifact": "any:linux-amd64"},
            codes.BAD_RELEASE,
            "product must be 1 to 64 of a-z, 0-9 and -, a letter first",
        ),
        ({"min_from": "2.0.0"}, codes.BAD_RELEASE, "minFrom 2.0.0 is newer than the release 1.1.0"),
        ({"channel": "a b"}, codes.BAD_RELEASE, "channel must be 1 to 32 letters"),
    ],
)
def test_what_is_no_release_leaves_nothing_behind(bench: Bench, changes: Dict[str, str], code: str, text: str) -> None:
    """Not even a directory."""
    assert text in refused(bench.build(**changes), code)
    assert not (bench.top / "releases").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "--sequence", "0"],
        ["build", "--sequence", "-1"],
        ["build", "--sequence", "1e3"],
        ["build", "--sequence", "1" * 16],
        ["build", "--expires-days", "36501"],
        ["build", "--issued-at", "yesterday"],
        ["keygen", "--output", "x", "--alg", "RSA"],
        ["keygen", "--output", "x", "--no-passphrase", "--passphrase-file", "pass"],
        ["verify", "--manifest", "x"],
        ["verify", "--manifest", "x", "--pins", "", "--pins-file", "y"],
        ["verify", "--manifest", "x", "--pins", "", "--threshold", "0"],
        ["merge", "--output", "x"],
        ["sign", "--key", "k0.pem"],
        ["frobnicate"],
        [],
    ],
)
def test_a_wrong_command_line_ends_with_2(bench: Bench, arguments: List[str]) -> None:
    """With the usage on standard error and nothing done."""
    before = bench.files()
    ran = bench.run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("usage: slotward release")
    assert bench.files() == before


@pytest.mark.parametrize("command", ["", "keygen", "build", "sign", "merge", "verify"])
def test_the_help_teaches(bench: Bench, command: str) -> None:
    """Every page ends with the exit status; the first shows two of three people."""
    ran = bench.run(*filter(None, [command, "--help"]))
    assert (ran.status, ran.err) == (0, "")
    assert "exit status: 0 done" in ran.out
    if not command:
        for step in ("keygen", "build", "sign", "merge", "verify"):
            assert "slotward release %s " % step in ran.out
        assert "--threshold 2" in ran.out


def test_signing_shows_what_is_signed(bench: Bench) -> None:
    """On standard error, before anything is written; the answer is on standard output."""
    body = signing.read(bench.built().read_bytes()).form.body
    ran = bench.sign(1)
    assert ran.status == 0
    shown = ran.err.splitlines()
    assert shown[0] == "not compared with an earlier release manifest: give --previous DIR and --pins"
    assert shown[1] == "about to sign with k1.pem"
    assert shown[2] == "  toy 1.1.0, sequence 5, channel stable"
    assert hashlib.sha256(body).hexdigest() in shown[3]
    assert ran.out.splitlines()[0] == "signed by " + bench.keys[1].public.kid
    assert bench.signers() == [1]


def test_signing_twice_changes_nothing(bench: Bench) -> None:
    """And says so."""
    bench.built()
    bench.sign(0)
    before = bench.files()
    ran = bench.sign(0, None, "--json")
    assert (ran.status, ran.json["changed"], ran.json["kid"]) == (0, False, bench.keys[0].public.kid)
    assert bench.files() == before
    assert bench.sign(0).out.startswith("already signed by ")


def ask(bench: Bench, answer: bytes) -> Tuple[int, str]:
    """Sign on a terminal and answer the question; an empty answer is Ctrl-C."""
    arguments = ["sign", "--manifest", str(bench.manifest), "--key", "k0.pem"]
    return on_terminal(bench, arguments, [(b"sign this? (yes) ", answer)])


def test_a_new_keys_passphrase_is_asked_for_twice(bench: Bench) -> None:
    """On a terminal, without showing it; two that differ and an empty one write nothing."""
    arguments = ["keygen", "--output", "new.pem"]
    first, again = b"passphrase for the new key: ", b"the same again: "
    for typed, text in (((b"one\n", b"two\n"), "the two passphrases differ"), ((b"\n",), "the passphrase is empty")):
        status, seen = on_terminal(bench, arguments, list(zip((first, again), typed)))
        assert (status, text in seen) == (3, True), seen
        assert not (bench.top / "new.pem").exists()
    status, seen = on_terminal(bench, arguments, [(first, b"open sesame\n"), (again, b"open sesame\n")])
    assert (status, "open sesame" in seen) == (0, False), seen
    made = (bench.top / "new.pem").read_bytes()
    assert b"ENCRYPTED" in made
    assert keys.load_private(made, b"open sesame").public.kid in seen


@pytest.mark.parametrize("stdin", ["", "open sesame\nopen sesame\n"])
def test_without_a_terminal_a_new_key_needs_a_word_about_its_passphrase(bench: Bench, stdin: str) -> None:
    """No unencrypted key by accident, and no passphrase out of a pipe."""
    ran = bench.run("keygen", "--output", "new.pem", "--json", stdin=stdin)
    assert "say --no-passphrase for a key that is not encrypted" in refused(ran, codes.BAD_KEY)
    assert not (bench.top / "new.pem").exists()


def test_a_locked_keys_passphrase_is_asked_for(bench: Bench) -> None:
    """On a terminal, once, after the question whether to sign."""
    bench.built()
    arguments = ["sign", "--manifest", str(bench.manifest), "--key", "k2.pem"]
    question, secret = (b"sign this? (yes) ", b"yes\n"), b"passphrase of k2.pem: "
    status, seen = on_terminal(bench, arguments, [question, (secret, b"wrong\n")])
    assert (status, bench.signers()) == (3, [])
    assert "k2.pem: the private key cannot be read with this passphrase" in seen
    status, seen = on_terminal(bench, arguments, [question, (secret, b"right\n")])
    assert (status, bench.signers()) == (0, [2]), seen


def test_a_private_key_never_goes_where_a_public_one_is_asked_for(bench: Bench) -> None:
    """Whoever builds has no business with it."""
    ran = bench.run(*bench.build_arguments(), "--key", "k2.pem")
    text = refused(ran, codes.BAD_KEY)
    assert text == "k2.pem: found ENCRYPTED PRIVATE KEY, not a public key: give its NAME.pub.pem"
    assert not (bench.top / "releases").exists()


def test_signing_asks_first(bench: Bench) -> None:
    """Only `yes` signs; what is signed stands above the question."""
    bench.built()
    for answer in (b"\n", b"y\n", b"no\n", b"\x04"):
        assert ask(bench, answer)[0] == 3
        assert bench.signers() == []
    status, seen = ask(bench, b"yes\n")
    assert (status, bench.signers()) == (0, [0])
    assert "toy 1.1.0, sequence 5" in seen


def test_ctrl_c_at_the_question_signs_nothing(bench: Bench) -> None:
    """A failure, without a trace of Python."""
    bench.built()
    status, seen = ask(bench, b"")
    assert (status, bench.signers()) == (1, [])
    assert "interrupted; nothing is half written" in seen
    assert "Traceback" not in seen


def test_without_a_terminal_signing_needs_yes(bench: Bench) -> None:
    """A `yes` in a pipe is nobody's consent."""
    bench.built()
    ran = bench.run("sign", "--manifest", bench.manifest, "--key", "k0.pem", "--json", stdin="yes\n")
    said = refused(ran, codes.NOT_AGREED)
    assert "type yes on a terminal (what comes by a pipe is not taken)" in said
    assert "give --yes after reading what is signed" in said
    assert bench.signers() == []


def test_a_key_that_cannot_sign_is_refused(bench: Bench) -> None:
    """A stranger's, a public one, a locked one, a wrong passphrase, no key at all."""
    bench.built()
    (bench.top / "stranger.pem").write_bytes(keys.generate(keys.ES256).pem())
    (bench.top / "wrong").write_text("wrong")
    for name, more, text in (
        ("stranger.pem", [], "the release manifest does not list the key "),
        ("k0.pub.pem", [], "k0.pub.pem: found PUBLIC KEY, not a private key"),
        ("k2.pem", [], "k2.pem: the private key is encrypted: its passphrase is needed; give --passphrase-file FILE"),
        ("k2.pem", ["--passphrase-file", "wrong"], "k2.pem: the private key cannot be read with this passphrase"),
        (
            "k0.pem",
            ["--passphrase-file", "pass"],
            "k0.pem: the private key is not encrypted, yet a passphrase is given",
        ),
        (NAME, [], NAME + ": no PEM block with a key in it"),
    ):
        ran = bench.run("sign", "--manifest", bench.manifest, "--key", name, "--yes", "--json", *more)
        assert refused(ran, codes.BAD_KEY).startswith(text)
    assert bench.signers() == []


def test_signers_at_the_same_moment_lose_no_signature(bench: Bench) -> None:
    """The directory's lock holds from reading to writing."""
    bench.built()
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    for _round in range(3):
        shutil.rmtree(bench.top / "releases")
        bench.built()
        children = []
        for number in range(3):
            secret = ["--passphrase-file", "pass"] if number == 2 else []
            command = [
                *PROGRAM,
                "release",
                "sign",
                "--manifest",
                str(bench.manifest),
                "--key",
                "k%d.pem" % number,
                "--yes",
                *secret,
            ]
            children.append(
                subprocess.Popen(
                    command, cwd=bench.top, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        assert [child.wait(60) for child in children] == [0, 0, 0]
        assert bench.signers() == [0, 1, 2]


def test_merging_keeps_what_the_output_has(bench: Bench) -> None:
    """And merging again changes nothing."""
    bench.built()
    copy = bench.top / "copy.json"
    shutil.copy(bench.manifest, copy)
    bench.sign(0)
    bench.sign(1, copy)
    ran = bench.run("merge", "--output", bench.manifest, copy, "--json")
    assert (ran.status, ran.json["changed"], ran.json["signatures"]) == (0, True, 2)
    assert bench.signers() == [0, 1]
    ran = bench.run("merge", "--output", bench.manifest, copy, "--json")
    assert (ran.status, ran.json["changed"]) == (0, False)


def test_merging_into_a_new_file(bench: Bench) -> None:
    """In the working directory."""
    bench.built()
    bench.sign(1)
    assert bench.run("merge", "--output", "merged.json", bench.manifest).status == 0
    assert bench.signers(bench.top / "merged.json") == [1]


def test_another_release_is_not_merged(bench: Bench) -> None:
    """The output stays as it was."""
    bench.built()
    copy = bench.top / "copy.json"
    shutil.move(bench.manifest, copy)
    assert bench.build(sequence="6").status == 0
    before = bench.files()
    text = refused(bench.run("merge", "--output", bench.manifest, copy, "--json"), codes.RELEASES_DIFFER)
    assert text == "file 2 is another release manifest than file 1: sequence 5, not 6"
    assert bench.files() == before


def verify(bench: Bench, *more: object) -> Ran:
    """Verify the manifest with all pins, two needed, at its issue."""
    return bench.run("verify", "--manifest", bench.manifest, "--threshold", 2, "--at", ISSUED, "--json", *more)


def test_verify_refuses_as_a_host_would(bench: Bench) -> None:
    """Too few signatures, a malformed one, one that is not canonical, an expired one."""
    bench.built()
    bench.sign(0)
    pins = ("--pins", bench.pins())
    text = refused(verify(bench, *pins), codes.TOO_FEW_SIGNATURES)
    assert text == (
        "the release manifest has 1 of the 2 signatures by pinned keys that it needs (of toy 1.1.0; signed by %s)"
        % bench.keys[0].public.kid
    )
    bench.sign(1)
    assert verify(bench, *pins).status == 0
    text = refused(verify(bench, *pins, "--at", "2027-01-01T00:00:00Z"), codes.EXPIRED)
    assert text == "the release manifest expired at 2027-01-01T00:00:00Z"
    bench.manifest.write_bytes(b"{}")
    assert refused(verify(bench, *pins), codes.BAD_DOCUMENT).startswith(
        f"{bench.manifest}: the document is malformed: "
    )


def test_the_published_bytes_are_checked_bit_by_bit(bench: Bench) -> None:
    """A body with one changed digit has no signatures."""
    bench.built()
    bench.sign(0)
    bench.sign(1)
    fields = json.loads(bench.manifest.read_bytes())
    body = base64.b64decode(fields["manifest"]).replace(b'"sequence":5', b'"sequence":6')
    bench.manifest.write_text(json.dumps({**fields, "manifest": base64.b64encode(body).decode()}))
    assert "it does not verify" in refused(verify(bench, "--pins", bench.pins()), codes.TOO_FEW_SIGNATURES)


def test_pins_come_from_a_file_too(bench: Bench) -> None:
    """By lines, commas and blanks."""
    bench.built()
    bench.sign(0)
    bench.sign(2)
    one, two, three = bench.pins().split(",")
    (bench.top / "pins").write_text("%s\n%s, %s\n" % (one, two, three))
    assert verify(bench, "--pins-file", "pins").status == 0
    (bench.top / "pins").write_text("%s\nsha256/x\n" % one)
    text = refused(verify(bench, "--pins-file", "pins"), codes.NO_PINS)
    assert text == "pins: pin 2 is 'sha256/x', not sha256/<base64 of 32 bytes>"


def test_a_threshold_beyond_the_pins_is_refused(bench: Bench) -> None:
    """It could never be met."""
    bench.built()
    text = refused(verify(bench, "--pins", bench.keys[0].public.pin), codes.TOO_FEW_SIGNATURES)
    assert text == "a threshold of 2 cannot be met: it is 1 to the number of distinct pins, 1"
    text = refused(verify(bench, "--pins", "", "--threshold", 1), codes.NO_PINS)
    assert text == "no pins: give --pins or --pins-file"


def test_files_are_checked_against_the_manifest(bench: Bench) -> None:
    """By name or by digest, size and bytes."""
    bench.built()
    bench.sign(0)
    bench.sign(1)
    pins = ("--pins", bench.pins())
    artifact = bench.directory / NAME
    (bench.top / "renamed").write_bytes(BYTES)
    assert verify(bench, *pins, "--artifact", artifact, "--artifact", "renamed").json["checked"] == [NAME, NAME]
    (bench.top / "other").write_bytes(b"other")
    assert "other is none of the release's files" in refused(
        verify(bench, *pins, "--artifact", "other"), codes.NO_ARTIFACT
    )
    artifact.write_bytes(BYTES[:-1])
    text = "is %d bytes; the manifest says %d" % (len(BYTES) - 1, len(BYTES))
    assert text in refused(verify(bench, *pins, "--artifact", artifact), codes.SIZE_MISMATCH)
    artifact.write_bytes(BYTES[:-1] + b"#")
    found = hashlib.sha256(BYTES[:-1] + b"#").hexdigest()
    assert "has sha256 %s;" % found in refused(verify(bench, *pins, "--artifact", artifact), codes.DIGEST_MISMATCH)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sign", "--manifest", "missing", "--key", "k0.pem", "--yes"], "missing: No such file or directory"),
        (["sign", "--manifest", ".", "--key", "k0.pem", "--yes"], ".: Is a directory"),
        (["merge", "--output", "no/where", "missing"], "missing: No such file or directory"),
        (["verify", "--manifest", "large", "--pins", "sha256/" + "A" * 43 + "="], "large: more than 2097152 bytes"),
        (["keygen", "--output", "x", "--passphrase-file", "missing"], "missing: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_fails(bench: Bench, arguments: List[str], text: str) -> None:
    """Exit status 1, naming the file and what the system said."""
    (bench.top / "large").write_bytes(b" " * (manifest.MAX_PUBLISHED + 1))
    ran = bench.run(*arguments, "--json")
    assert (ran.status, ran.json["state"], ran.json["code"], ran.json["message"]) == (1, "failed", "cannot-read", text)
    assert bench.run(*arguments).out.splitlines() == ["failed (cannot-read): " + text]


def test_a_missing_artifact_fails(bench: Bench) -> None:
    """Before anything is written."""
    ran = bench.build(artifact="missing_linux_amd64")
    assert (ran.status, ran.json["code"]) == (1, "cannot-read")
    assert not (bench.top / "releases").exists()


@pytest.mark.parametrize(("output", "code"), [("no/where.pem", "cannot-write"), (NAME + "/k.pem", "cannot-write")])
def test_a_place_that_cannot_be_written_fails(bench: Bench, output: str, code: str) -> None:
    """Naming the file that was wanted."""
    ran = bench.run("keygen", "--output", output, "--no-passphrase", "--json")
    assert (ran.status, ran.json["code"]) == (1, code)
    assert ran.json["message"].startswith(output + ": ")


def test_a_file_in_the_way_of_a_directory_fails(bench: Bench) -> None:
    """Naming it."""
    (bench.top / "releases").write_text("in the way")
    ran = bench.build()
    assert (ran.status, ran.json["code"]) == (1, "cannot-write")
    assert ran.json["message"] == "releases: not a directory"


def test_a_write_that_fails_half_way_leaves_what_was_there(bench: Bench) -> None:
    """No torn manifest, no temporary file, and the key and the artifact as if nothing had been tried."""
    bench.built()
    bench.sign(0)
    before = bench.files()
    for arguments in (
        ["sign", "--manifest", str(bench.manifest), "--key", "k1.pem", "--yes"],
        ["keygen", "--output", "new.pem", "--no-passphrase"],
    ):
        ran = bench.run(*arguments, "--json", preexec=limit(100))
        assert (ran.status, ran.json["code"]) == (1, "cannot-write"), ran
        assert "File too large" in ran.json["message"]
        assert bench.files() == before
    shutil.rmtree(bench.top / "releases")
    ran = bench.run(*bench.build_arguments(), preexec=limit(10))
    assert (ran.status, ran.json["code"]) == (1, "cannot-write")
    assert list(bench.directory.iterdir()) == []
    assert bench.build().status == 0, "the next try goes through"


def test_a_reader_that_leaves_early_is_no_error(bench: Bench) -> None:
    """As in `slotward release verify ... | head -1`."""
    bench.built()
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    reader, writer = os.pipe()
    os.close(reader)
    command = [*PROGRAM, "release", "sign", "--manifest", str(bench.manifest), "--key", "k0.pem", "--yes"]
    child = subprocess.run(
        command, cwd=bench.top, env=environment, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (child.returncode, bench.signers()) == (0, [0])
    assert b"Traceback" not in child.stderr


def test_without_the_library_the_command_says_what_to_install(bench: Bench) -> None:
    """Building from public keys needs it not; making keys does."""
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    program = (
        "import sys; sys.modules['cryptography'] = None; from slotward import cli; sys.exit(cli.main(sys.argv[1:]))"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, "release", *arguments]
        return subprocess.run(
            command, cwd=bench.top, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    assert run(*bench.build_arguments()).returncode == 0
    child = run("keygen", "--output", "new.pem", "--json")
    assert (child.returncode, json.loads(child.stdout)["code"]) == (3, "no-cryptography")
    assert "install python3-cryptography" in json.loads(child.stdout)["message"]
