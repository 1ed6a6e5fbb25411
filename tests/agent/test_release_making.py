# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward release` before anybody signs: artifacts looked at, sequences counted, jumps questioned, keys held elsewhere."""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
from typing import List

import pytest
from agent.releasing import BYTES, ISSUED, NAME, Bench, on_terminal, refused

from slotcore import artifacts, codes, manifest, release, signing
from slotward import gate

ELF_ARM64 = b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xb7\0" + bytes(44)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on this machine")


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    """A fresh one."""
    return Bench(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "code", "text"),
    [
        (NAME, ELF_ARM64, codes.WRONG_MACHINE, "is a program for aarch64 (64 bits, little-endian)"),
        (NAME, b"<html>", codes.NOT_EXECUTABLE, "neither ELF nor a script, it begins with 3c 68 74 6d"),
        ("toy_1.0.0_linux_amd64", BYTES, codes.BAD_RELEASE, "is of version 1.0.0 by its name, not 1.1.0"),
        ("yot_1.1.0_linux_amd64", BYTES, codes.BAD_RELEASE, "is of product yot by its name, not toy"),
        (NAME + ".tar.gz", BYTES, codes.BAD_ARCHIVE, NAME + ".tar.gz: cannot take the archive: "),
    ],
)
def test_N7_an_artifact_of_something_else_is_refused(
    bench: Bench, name: str, data: bytes, code: str, text: str
) -> None:
    """Before anything is written, with the file's name and both values."""
    (bench.top / name).write_bytes(data)
    assert text in refused(bench.build(artifact=name), code)
    assert not (bench.top / "releases").exists()


def test_a_program_that_the_tool_cannot_judge_needs_a_word(bench: Bench) -> None:
    """The refusal names the option; with it the bytes are taken as they are."""
    (bench.top / NAME).write_bytes(ELF_ARM64)
    assert refused(bench.build(), codes.WRONG_MACHINE).endswith("; --no-program-check takes it all the same")
    assert bench.run(*bench.build_arguments(), "--no-program-check").status == 0
    assert (bench.directory / NAME).read_bytes() == ELF_ARM64


def archive(path: pathlib.Path, *members: str) -> None:
    """A tar.gz with these members, each a script."""
    with tarfile.open(path, "w:gz") as made:
        for name in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(BYTES), 0o755
            made.addfile(entry, io.BytesIO(BYTES))


def test_an_archive_is_released_as_one(bench: Bench) -> None:
    """Read to its end as a host would; the copy has the name that hosts look for, and its kind is in the manifest."""
    archive(bench.top / (NAME + ".tar.gz"), "toy-1.1.0/toy", "toy-1.1.0/share/text")
    ran = bench.build(artifact=NAME + ".tar.gz")
    assert ran.status == 0, ran
    assert "2 members, the program is toy-1.1.0/toy" in ran.err
    listed = release.read(bench.manifest.read_bytes()).artifacts[0]
    assert (listed.name, listed.kind) == (NAME, "tar.gz")
    assert (bench.directory / NAME).read_bytes() == (bench.top / (NAME + ".tar.gz")).read_bytes()
    assert release.measure(iter([(bench.directory / NAME).read_bytes()])) == (listed.sha256, listed.size)


def test_a_variant_and_a_program_of_another_name(bench: Bench) -> None:
    """Several builds for one platform lie side by side; what the program is called is the hosts' matter, and may be said."""
    archive(bench.top / "full.tar.gz", "bin/toyd", "bin/other")
    shutil.copy(bench.top / "full.tar.gz", bench.top / (NAME + "_lean.tar.gz"))
    words = bench.build_arguments(artifact="full.tar.gz:linux-amd64:full")
    ran = bench.run(*words, "--artifact", NAME + "_lean.tar.gz", "--program", "toyd")
    assert ran.status == 0, ran
    assert "the program is bin/toyd" in ran.err
    listed = release.read(bench.manifest.read_bytes()).artifacts
    assert [(one.name, one.variant) for one in listed] == [(f"{NAME}_full", "full"), (f"{NAME}_lean", "lean")]
    assert (bench.directory / f"{NAME}_lean").exists()
    assert "it has no file toy" in refused(bench.run(*words), codes.BAD_ARCHIVE)


def test_an_archive_without_the_program_is_refused(bench: Bench) -> None:
    """And so is one with a name that hosts never unpack."""
    for member in ("other", "../toy"):
        archive(bench.top / (NAME + ".tar.gz"), member)
        assert NAME + ".tar.gz: " in refused(bench.build(artifact=NAME + ".tar.gz"), codes.BAD_ARCHIVE)
    assert not (bench.top / "releases").exists()


def test_the_next_sequence_is_counted_from_verified_manifests(bench: Bench) -> None:
    """Base, product, release directory or file; which one was counted is said. A catalogue changes nothing."""
    bench.release("1.0.0", 4, 0, 1)
    bench.release("1.1.0", 7, 0, 1)
    (bench.top / "releases/toy/releases.json").write_text(json.dumps({"releases": [{"sequence": 99}]}))
    for number, place in enumerate(
        ("releases", "releases/toy", "releases/toy/1.1.0", "releases/toy/1.1.0/manifest.json")
    ):
        ran = bench.run(
            *bench.build_arguments(
                version="1.2.0", sequence="next", artifact="any:linux-amd64", output="out%d" % number
            ),
            *("--previous", place, *bench.pinned()),
        )
        assert (ran.status, ran.json["sequence"]) == (0, 8), ran
        assert ran.json["counted"] == "releases/toy/1.1.0/manifest.json"
        assert "sequence 8, counted from releases/toy/1.1.0/manifest.json: toy 1.1.0 has 7" in ran.err


def test_what_does_not_verify_is_not_counted(bench: Bench) -> None:
    """An unsigned, a half signed, a damaged and a stranger's manifest are named and left out; a named file is refused."""
    bench.release("1.0.0", 4, 0, 1)
    bench.release("1.1.0", 90)
    bench.release("1.2.0", 91, 0)
    (bench.release("1.3.0", 92, 0, 1) / "manifest.json").write_bytes(b"{}")
    stranger = bench.release("1.4.0", 93, 0, 1)
    fields = json.loads((stranger / "manifest.json").read_text())
    fields["signatures"][0]["sig"], fields["signatures"][1]["sig"] = (one["sig"] for one in fields["signatures"][::-1])
    (stranger / "manifest.json").write_text(json.dumps(fields))
    arguments = bench.build_arguments(version="2.0.0", sequence="next", artifact="any:linux-amd64")
    ran = bench.run(*arguments, "--previous", "releases", *bench.pinned())
    assert (ran.status, ran.json["sequence"]) == (0, 5), ran
    for version in ("1.1.0", "1.2.0", "1.3.0", "1.4.0"):
        assert "not counted: releases/toy/%s/manifest.json: " % version in ran.err
    ran = bench.run(*arguments, "--previous", "releases/toy/1.2.0/manifest.json", *bench.pinned())
    assert refused(ran, codes.TOO_FEW_SIGNATURES).startswith("releases/toy/1.2.0/manifest.json: ")


def test_another_products_manifests_are_not_counted(bench: Bench) -> None:
    """Found in a directory they are passed over, named they are refused."""
    bench.release("1.0.0", 4, 0, 1)
    ran = bench.build(product="yot", version="1.0.0", sequence="9", artifact="any:linux-amd64")
    yot = bench.top / "releases/yot/1.0.0/manifest.json"
    for number in (0, 1):
        bench.sign(number, yot)
    arguments = bench.build_arguments(version="1.2.0", sequence="next", artifact="any:linux-amd64")
    ran = bench.run(*arguments, "--previous", "releases", *bench.pinned())
    assert (ran.status, ran.json["sequence"]) == (0, 5), ran
    ran = bench.run(*arguments, "--previous", yot, *bench.pinned())
    assert "is of yot, not toy: leave it out" in refused(ran, codes.WRONG_PRODUCT)


def test_the_next_sequence_needs_something_to_count_from(bench: Bench) -> None:
    """Places, pins, and at least one manifest that verifies."""
    arguments = bench.build_arguments(sequence="next")
    assert "give --previous DIR, or --sequence N" in refused(bench.run(*arguments), codes.BAD_RELEASE)
    ran = bench.run(*arguments, "--previous", "releases")
    assert "only what verifies is counted" in refused(ran, codes.NO_PINS)
    (bench.top / "releases").mkdir()
    ran = bench.run(*arguments, "--previous", "releases", *bench.pinned())
    assert "the first has --sequence 1" in refused(ran, codes.BAD_RELEASE)


def test_building_the_next_release_again_changes_nothing(bench: Bench) -> None:
    """Although it is now the highest itself, in the place that is counted."""
    bench.release("1.0.0", 4, 0, 1)
    arguments = bench.build_arguments(version="1.1.0", sequence="next")
    arguments += ["--previous", "releases", *bench.pinned()]
    assert bench.run(*arguments).json["sequence"] == 5
    for number in (0, 1):
        bench.sign(number)
    ran = bench.run(*arguments)
    assert (ran.status, ran.json["changed"], ran.json["sequence"]) == (0, False, 5)


def sign_arguments(bench: Bench, directory: pathlib.Path, *more: str) -> List[str]:
    """Sign with the first key, compared with all releases."""
    path = str(directory / "manifest.json")
    return ["sign", "--manifest", path, "--key", "k0.pem", "--previous", "releases", *bench.pinned(), *more]


def test_signing_compares_with_the_release_before(bench: Bench) -> None:
    """The next one is no jump and needs no more than a yes; what it was compared with is said."""
    bench.release("1.0.0", 4, 0, 1)
    ran = bench.run(*sign_arguments(bench, bench.release("1.1.0", 5), "--yes", "--json"))
    assert (ran.status, ran.json["jumps"]) == (0, []), ran
    assert "compared with releases/toy/1.0.0/manifest.json: toy 1.0.0" in ran.err
    ran = bench.run(*sign_arguments(bench, bench.top / "releases/toy/1.1.0", "--yes", "--json"))
    assert (ran.status, ran.json["changed"]) == (0, False)


def test_yes_is_not_enough_for_a_jump(bench: Bench) -> None:
    """A jump is shown before, refused with its name, and signed with --accept-jump."""
    bench.release("1.0.0", 4, 0, 1)
    jump = bench.release("0.9.0", 9)
    ran = bench.run(*sign_arguments(bench, jump, "--yes", "--json"))
    text = refused(ran, codes.NOT_AGREED)
    said = ("sequence 9; release 1.0.0 has 4, so 5 would be next", "version 0.9.0 is lower than 1.0.0")
    for one in said:
        assert one in text
        assert "  JUMP: " + one in ran.err
    assert "--accept-jump" in text
    assert bench.signers(jump / "manifest.json") == []
    ran = bench.run(*sign_arguments(bench, jump, "--accept-jump", "--json"))
    assert "give --yes after reading" in refused(ran, codes.NOT_AGREED), "the other question stays"
    ran = bench.run(*sign_arguments(bench, jump, "--yes", "--accept-jump", "--json"))
    assert (ran.status, ran.json["jumps"]) == (0, list(said))
    assert bench.signers(jump / "manifest.json") == [0]


@pytest.mark.parametrize("compared", [False, True])
def test_a_time_of_issue_that_has_not_come_is_a_jump(bench: Bench, compared: bool) -> None:
    """Hosts would judge every expiry by it for ever, so nobody signs it by a slip of the year; compared with others or not."""
    bench.release("1.0.0", 4, 0, 1)
    bench.build(version="1.1.0", sequence="5", artifact="any:linux-amd64", issued_at="2226-01-01T00:00:00Z")
    path = bench.top / "releases/toy/1.1.0/manifest.json"
    arguments = sign_arguments(bench, path.parent, "--yes", "--json")
    if not compared:
        arguments = ["sign", "--manifest", str(path), "--key", "k0.pem", "--yes", "--json"]
    text = refused(bench.run(*arguments), codes.NOT_AGREED)
    assert "issued 2226-01-01T00:00:00Z, " in text
    assert "ahead of this machine's clock" in text
    assert bench.signers(path) == []
    assert bench.run(*arguments, "--accept-jump").status == 0
    assert bench.signers(path) == [0]


def test_on_a_terminal_a_jump_needs_its_word(bench: Bench) -> None:
    """`yes` is not that word, even with --yes on the command line."""
    bench.release("1.0.0", 4, 0, 1)
    jump = bench.release("1.1.0", 9)
    question = b"this jumps; type the word to sign it all the same (jump) "
    for answer in (b"yes\n", b"\n"):
        status, seen = on_terminal(bench, sign_arguments(bench, jump, "--yes"), [(question, answer)])
        assert (status, bench.signers(jump / "manifest.json")) == (3, []), seen
    status, seen = on_terminal(bench, sign_arguments(bench, jump), [(question, b"jump\n")])
    assert (status, bench.signers(jump / "manifest.json")) == (0, [0]), seen


def command(bench: Bench, name: str, body: str) -> str:
    """A program that signs, written in Python; the message is in `message`."""
    path = bench.top / name
    path.write_text("#!%s -I\nimport sys\nmessage = sys.stdin.buffer.read()\n%s\n" % (sys.executable, body))
    path.chmod(0o755)
    return str(path)


def by_command(bench: Bench, words: str, public: str = "k0.pub.pem", *more: str) -> List[str]:
    """Sign by a command."""
    arguments = ["sign", "--manifest", str(bench.manifest), "--key-command", words, "--public-key", public]
    return [*arguments, "--yes", "--json", *more]


@needs_openssl
def test_a_command_signs_with_openssl_alone(bench: Bench) -> None:
    """ES256 in DER from `openssl dgst`, EdDSA from `pkeyutl`, as the operator's page has them; hosts take both."""
    bench.built()
    for words, public in (
        ("openssl dgst -sha256 -sign k0.pem", "k0.pub.pem"),
        ("openssl pkeyutl -sign -rawin -inkey k1.pem -in /dev/stdin", "k1.pub.pem"),
    ):
        ran = bench.run(*by_command(bench, words, public))
        assert (ran.status, ran.json["changed"]) == (0, True), ran
        assert "asking openssl for a signature" in ran.err
    assert bench.signers() == [0, 1]
    ran = bench.run("verify", "--manifest", bench.manifest, *bench.pinned(), "--at", ISSUED)
    assert ran.status == 0, ran


def test_a_command_gets_the_bytes_to_sign_and_nothing_else(bench: Bench) -> None:
    """Purpose and body, on a file at its beginning; a quoted argument stays one word and no shell sees it."""
    bench.built()
    parts = signing.read(bench.manifest.read_bytes())
    words = command(
        bench, "token", "open('seen', 'wb').write(message); print(sys.argv[1:], file=sys.stderr); sys.exit(9)"
    )
    ran = bench.run(*by_command(bench, words + " 'two words' $HOME ;id"))
    assert "token ended with status 9; what it says is above" in refused(ran, codes.BAD_KEY)
    assert "['two words', '$HOME', ';id']" in ran.err
    assert (bench.top / "seen").read_bytes() == b"slotward.release-manifest\0" + parts.form.body


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("sys.stdout.buffer.write(bytes(64))", "answered 64 bytes that are no ES256 signature of what it was given by"),
        ("pass", "answered 0 bytes that are no ES256 signature"),
        ("sys.stdout.buffer.write(bytes(1 << 20))", "answered more than 4096 bytes: no signature"),
        ("while True: sys.stdout.buffer.write(bytes(1 << 16))", "answered more than 4096 bytes: no signature"),
        ("import os; os.kill(os.getpid(), 9)", "ended with status -9"),
    ],
)
def test_what_a_command_answers_is_not_believed(bench: Bench, body: str, text: str) -> None:
    """It is verified by the public key before anything is written."""
    before = bench.built().read_bytes()
    assert text in refused(bench.run(*by_command(bench, command(bench, "token", body))), codes.BAD_KEY)
    assert bench.manifest.read_bytes() == before


@pytest.mark.parametrize(
    "body",
    [
        "import time; time.sleep(60)",
        "import os, time; os.close(1); time.sleep(60)",
        "import os, time\nif not os.fork(): os.close(2); time.sleep(20)",
    ],
    ids=["sleeps", "closes its output and sleeps", "leaves a child with its output"],
)
def test_a_command_has_bounded_time(bench: Bench, body: str) -> None:
    """Whatever it does with its output; nothing is signed."""
    before = bench.built().read_bytes()
    since = time.monotonic()
    text = refused(
        bench.run(*by_command(bench, command(bench, "token", body), "k0.pub.pem", "--key-timeout", "1")), codes.BAD_KEY
    )
    assert "in 1 s" in text
    assert time.monotonic() - since < 15
    assert bench.manifest.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--key-command", "token"], "--key-command needs --public-key PUB.pem"),
        (["--key-command", "", "--public-key", "k0.pub.pem"], "--key-command is empty"),
        (["--key-command", "a 'b", "--public-key", "k0.pub.pem"], "cannot be split into words"),
        (["--key-command", "./missing", "--public-key", "k0.pub.pem"], "cannot run ./missing: No such file"),
        (["--key-command", "./any", "--public-key", "k0.pub.pem"], "cannot run ./any: Permission denied"),
        (["--key-command", "./any", "--public-key", "k0.pem"], "k0.pem: found PRIVATE KEY, not a public key"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(bench: Bench, arguments: List[str], text: str) -> None:
    """With the way out."""
    bench.built()
    ran = bench.run("sign", "--manifest", bench.manifest, "--yes", "--json", *arguments)
    assert text in refused(ran, codes.BAD_KEY)
    assert bench.signers() == []


def test_a_key_of_another_document_is_refused_before_a_token_is_asked(bench: Bench) -> None:
    """Nobody types a PIN for nothing."""
    bench.built()
    (bench.top / "stranger.pub.pem").write_bytes(Bench.stranger_pem())
    words = command(bench, "token", "open('asked', 'w').close()")
    ran = bench.run(*by_command(bench, words, "stranger.pub.pem"))
    assert "does not list the key" in refused(ran, codes.BAD_KEY)
    assert not (bench.top / "asked").exists()


def test_a_command_reaches_the_terminal_for_its_pin(bench: Bench) -> None:
    """Its standard error is the operator's, and /dev/tty is where it was."""
    bench.built()
    body = "tty = open('/dev/tty', 'r+b', buffering=0); tty.write(b'PIN: '); open('pin', 'wb').write(tty.readline())"
    words = command(bench, "token", body)
    arguments = [
        "sign",
        "--manifest",
        str(bench.manifest),
        "--key-command",
        words,
        "--public-key",
        "k0.pub.pem",
        "--yes",
    ]
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    program = (
        "import os, pty, select, sys\n"
        "pid, master = pty.fork()\n"
        "if pid == 0:\n"
        "    from slotward import cli\n"
        "    sys.exit(cli.main(['release', *sys.argv[1:]]))\n"
        "seen = b''\n"
        "while b'PIN: ' not in seen:\n"
        "    assert select.select([master], [], [], 60)[0], seen\n"
        "    seen += os.read(master, 4096)\n"
        "os.write(master, b'1234\\n')\n"
        "os.waitpid(pid, 0)\n"
    )
    subprocess.run([sys.executable, "-c", program, *arguments], cwd=bench.top, env=environment, timeout=90, check=True)
    assert (bench.top / "pin").read_bytes() == b"1234\n"


def test_key_sets_are_compared_with_the_one_before(bench: Bench) -> None:
    """As releases are: a lower threshold is a jump."""
    options = ["--product", "toy", "--issued-at", ISSUED, "--key", "k0.pub.pem", "--key", "k1.pub.pem"]
    first = [
        "key-set",
        *options,
        "--sequence",
        "1",
        "--pin",
        bench.keys[0].public.pin,
        "--pin",
        bench.keys[1].public.pin,
    ]
    first += [
        "--threshold",
        "2",
        "--old-pins",
        bench.pins(),
        "--old-threshold",
        "2",
        "--output",
        "sets-1.json",
        "--json",
    ]
    assert bench.run(*first).status == 0
    (bench.top / "sets").mkdir()
    for number in (0, 1):
        assert bench.sign(number, bench.top / "sets-1.json").status == 0
    shutil.move(str(bench.top / "sets-1.json"), str(bench.top / "sets" / "1.json"))
    second = ["key-set", *options, "--sequence", "2", "--pin", bench.keys[0].public.pin, "--threshold", "1"]
    assert bench.run(*second, "--previous", "sets/1.json", "--output", "two.json").status == 0
    ran = bench.run(
        *("sign", "--document", "two.json", "--key", "k0.pem", "--yes", "--json", "--previous", "sets", *bench.pinned())
    )
    assert "threshold 1; it was 2" in refused(ran, codes.NOT_AGREED)
    assert manifest.parse_published((bench.top / "two.json").read_bytes()).signatures == ()


def test_what_is_no_plain_file_is_waited_for_by_nobody(bench: Bench) -> None:
    """A FIFO or a link to an endless device, in a directory that is searched or given by its name; a shell's pipe is read."""
    directory = bench.release("1.0.0", 4, 0, 1)
    path = str(directory / "manifest.json")
    for number, version in enumerate(("0.1.0", "0.2.0")):
        (bench.top / "releases/toy" / version).mkdir()
        odd = bench.top / "releases/toy" / version / "manifest.json"
        os.mkfifo(odd) if number else odd.symlink_to("/dev/zero")
        ran = bench.run("inspect", "--document", str(odd), "--json")
        assert (ran.status, ran.json["code"]) == (1, codes.CANNOT_READ), ran
        assert ran.json["message"].endswith(": no plain file")
    ran = bench.run(*sign_arguments(bench, directory, "--yes", "--json"))
    assert ran.status == 0, ran
    assert ran.err.count(": no plain file") == 2
    piped = f"{sys.executable} -c 'from slotward import cli; import sys; sys.exit(cli.main(sys.argv[1:]))'"
    script = f"{piped} release inspect --json --document <(cat {path})"
    environment = {**os.environ, "PYTHONPATH": ":".join(each for each in sys.path if each)}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["signatures"] == 2


def test_a_sequence_that_is_given_is_compared_with_what_verifies(bench: Bench) -> None:
    """Not above the highest is refused with both; the same release again is no new one."""
    bench.release("1.0.0", 4, 0, 1)
    previous = ["--previous", "releases", *bench.pinned()]
    for sequence in ("3", "4"):
        text = refused(bench.run(*bench.build_arguments(sequence=sequence), *previous), codes.BAD_RELEASE)
        assert text == (
            f"sequence {sequence} is not above 4, which toy 1.0.0 has (releases/toy/1.0.0/manifest.json): "
            "give --sequence 5, or next"
        )
    assert not bench.directory.exists()
    for _again in range(2):
        assert bench.run(*bench.build_arguments(sequence="5"), *previous).status == 0
    for number in (0, 1):
        bench.sign(number)
    ran = bench.run(*bench.build_arguments(sequence="5"), *previous)
    assert (ran.status, ran.json["changed"]) == (0, False)


def test_a_sequence_that_cannot_be_compared_is_said(bench: Bench) -> None:
    """Nothing there verifies."""
    bench.release("1.0.0", 4)
    ran = bench.run(*bench.build_arguments(sequence="3"), "--previous", "releases", *bench.pinned())
    assert ran.status == 0
    assert "no release of toy at releases verifies: --sequence 3 is taken as it is" in ran.err


def test_platforms_are_those_of_hosts(bench: Bench) -> None:
    """Another spelling is refused with the right one, an unknown one is told."""
    text = refused(bench.build(artifact="any:linux-x86_64"), codes.BAD_RELEASE)
    assert "write any:linux-amd64 (hosts are linux-amd64 and linux-arm64)" in text
    ran = bench.build(artifact="any:linux-riscv")
    assert ran.status == 0
    said = (
        "warning: any: the agent is made for hosts that call themselves linux-amd64 and linux-arm64; none of them takes"
    )
    assert said in ran.err
    assert gate.ARCHES == artifacts.ARCHES


def key_set(bench: Bench, path: str, sequence: int, pins: List[str], *old: str) -> None:
    """An unsigned key set by two keys."""
    options = ["--product", "toy", "--issued-at", ISSUED, "--key", "k0.pub.pem", "--key", "k1.pub.pem"]
    options += [word for pin in pins for word in ("--pin", pin)]
    ran = bench.run("key-set", *options, "--sequence", sequence, "--threshold", 1, *old, "--output", path)
    assert ran.status == 0, ran


def test_a_signer_sees_what_a_key_set_does_to_the_pins(bench: Bench) -> None:
    """Beside the set before, beside the pins given for a first one; with neither, the signer is told to compare."""
    one, two, three = bench.pins().split(",")
    key_set(bench, "1.json", 1, [one, two], "--old-pins", f"{two},{three}")
    ran = bench.sign(0, bench.top / "1.json")
    assert "compared with nothing: compare each with your own list of pins" in ran.err
    ran = bench.sign(1, bench.top / "1.json", "--pins", f"{two},{three}")
    shown = [f"    + {one} (new)", f"    = {two} (kept)", f"    - {three} (gone)"]
    assert ["  its pins beside those of --pins:", *shown] == ran.err.splitlines()[-4:], ran.err
    key_set(bench, "2.json", 2, [two, three], "--previous", "1.json")
    ran = bench.sign(0, bench.top / "2.json", "--previous", "1.json", "--pins", f"{one},{two}")
    shown = [f"    = {two} (kept)", f"    + {three} (new)", f"    - {one} (gone)"]
    assert ["  its pins beside those of 1.json:", *shown] == ran.err.splitlines()[-4:], ran.err


def test_what_a_key_has_signed_is_not_asked_again(bench: Bench) -> None:
    """An open key, and a locked one by the public half beside it."""
    bench.built()
    for number in (0, 2):
        bench.sign(number)
    sign = ["sign", "--manifest", str(bench.manifest)]
    ran = bench.run(*sign, "--key", "k0.pem")
    assert (ran.status, ran.out.splitlines()[0]) == (0, f"already signed by {bench.keys[0].public.kid}"), ran
    status, seen = on_terminal(bench, [*sign, "--key", "k2.pem"], [(b"passphrase of k2.pem: ", b"right\n")])
    assert (status, "sign this?" in seen) == (0, False), seen
    assert f"already signed by {bench.keys[2].public.kid}" in seen
    refused(bench.run(*sign, "--key", "k1.pem", "--json"), codes.NOT_AGREED)


def test_a_public_key_signs_nothing(bench: Bench) -> None:
    """It is found before anything is shown."""
    ran = bench.run("sign", "--manifest", bench.built(), "--key", "k0.pub.pem", "--json")
    text = refused(ran, codes.BAD_KEY)
    assert text == "k0.pub.pem: found PUBLIC KEY, not a private key: give its NAME.pem"
    assert ran.err == ""
