# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/operator/signing.md and verify-by-hand.md tell people to type is what works: their blocks are run as they stand."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
from typing import Callable, Dict, List, Tuple

import pytest
from agent.releasing import BYTES, ISSUED, Bench, terminal

from agent import pages
from slotcore import catalogue, documents, keys, rfc3339, verifying

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALONE = ("unshare", "-n")
TOOLS = ("openssl", "jq", "sha256sum", "base64", "od")
MISSING = [tool for tool in TOOLS if shutil.which(tool, path="/usr/bin:/bin") is None]
needs_tools = pytest.mark.skipif(bool(MISSING), reason="not on this machine: %s" % ", ".join(MISSING))


def alone_problem() -> str:
    """Why no process can be started without a network here; nothing when it can."""
    if shutil.which(ALONE[0]) is None:
        return "unshare is not on this machine"
    done = subprocess.run([*ALONE, "true"], capture_output=True, text=True, timeout=60, check=False)
    return "unshare -n: " + done.stderr.strip() if done.returncode else ""


class Machine:
    """A machine with a home of its own, the program, and no network; the stick is where it is plugged in."""

    def __init__(self, top: pathlib.Path, name: str, program: pathlib.Path) -> None:
        self.name = name
        self.home = top / name / "home"
        self.stick = top / name / "stick"
        self.bin = top / name / "bin"
        for directory in (self.home, self.bin):
            directory.mkdir(parents=True)
        own = self.bin / "slotward.zip"
        shutil.copy(program, own)
        (self.bin / "slotward").write_text("#!/bin/sh\nexec '%s' -I '%s' \"$@\"\n" % (sys.executable, own))
        (self.bin / "slotward").chmod(0o755)

    @property
    def answers(self) -> Dict[bytes, bytes]:
        """What its owner types."""
        secret = b"the secret of %s\n" % self.name.encode()
        return {
            b"passphrase for the new key: ": secret,
            b"the same again: ": secret,
            b"passphrase of %s.pem: " % self.name.encode(): secret,
            b"sign this? (yes) ": b"yes\n",
        }

    def run(self, text: str) -> Tuple[int, str]:
        """Run commands on a terminal, alone, and answer what they ask."""
        environment = {"PATH": "%s:/usr/bin:/bin" % self.bin, "HOME": str(self.home), "STICK": str(self.stick)}
        with terminal([*ALONE, "sh", "-eu", "-c", text], self.home, environment) as (child, master):
            return self._answer(child, master)

    def _answer(self, child: subprocess.Popen[bytes], master: int) -> Tuple[int, str]:
        seen, at = b"", 0
        while True:
            assert select.select([master], [], [], 120)[0], seen
            try:
                piece = os.read(master, 4096)
            except OSError:  # the last one that had the terminal open is gone
                piece = b""
            if not piece:
                return child.wait(60), seen.decode()
            seen += piece
            typed = next((text for asked, text in self.answers.items() if seen[at:].endswith(asked)), None)
            if typed is not None:
                at = len(seen)
                os.write(master, typed)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program as people get it: one file."""
    output = tmp_path_factory.mktemp("agent")
    arguments = ["--version", "1.0.0", "--sequence", "1", "--arch", "amd64", "--output", str(output)]
    subprocess.run([sys.executable, str(ROOT / "agent" / "build.py"), *arguments], check=True, capture_output=True)
    return output / "slotward_1.0.0_linux_amd64"


def carry(machines: Dict[str, Machine], to: str) -> None:
    """Plug the stick into one machine; the others do not have it then."""
    there = next((one.stick for one in machines.values() if one.stick.exists()), None)
    if there is None:
        machines[to].stick.mkdir()
    elif there != machines[to].stick:
        shutil.move(str(there), str(machines[to].stick))


def test_signing_across_machines_with_files_only_works_as_the_page_says(
    tmp_path: pathlib.Path, program: pathlib.Path
) -> None:
    """Every block of the page, on its machine, without a network: two releases, a withdrawal, a key set and a permit."""
    problem = alone_problem()
    if problem:
        pytest.skip(problem)
    shown = pages.blocks("signing.md")
    names = {block.machine for block in shown}
    assert names == {"ana", "ben", "eva", "fay", "builder"}
    machines = {name: Machine(tmp_path, name, program) for name in sorted(names)}
    for version in ("1.0.0", "1.1.0"):
        (machines["builder"].home / ("toy_%s_linux_amd64" % version)).write_bytes(BYTES)
    for block in shown:
        carry(machines, block.machine)
        status, seen = machines[block.machine].run(block.text)
        assert status == 0, "%s: %s\n%s" % (block.machine, block.text, seen)
        assert "secret of" not in seen
    builder = machines["builder"].home
    pins = tuple((builder / "pins.txt").read_text().split())
    for version, sequence in (("1.0.0", 1), ("1.1.0", 2)):
        published = (builder / "published/toy" / version / "manifest.json").read_bytes()
        judged = verifying.judge(published, pins, 2, kind=documents.RELEASE)
        assert (judged.parts.body.sequence, set(judged.signers)) == (sequence, set(pins[:2]))
    listed = catalogue.parse((builder / "published/toy/releases.json").read_bytes()).releases
    assert [(one.version, one.withdrawn) for one in listed] == [("1.1.0", True), ("1.0.0", False)]
    key_set = verifying.judge((builder / "key-set-1.json").read_bytes(), pins, 2, kind=documents.KEY_SET).parts.body
    assert isinstance(key_set, documents.KeySet)
    assert key_set.pins == tuple((builder / "new-pins.txt").read_text().split())
    stays_at_home(tmp_path, names - {"builder"})


def stays_at_home(top: pathlib.Path, signers: set[str]) -> None:
    """Each private key is on its own machine, encrypted, and nowhere else."""
    private = [path for path in top.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()[:200]]
    assert {path.relative_to(top).parts for path in private} == {(name, "home", name + ".pem") for name in signers}
    assert all(b"ENCRYPTED PRIVATE KEY" in path.read_bytes() for path in private)


def test_a_machine_of_that_test_has_no_network(tmp_path: pathlib.Path, program: pathlib.Path) -> None:
    """Not even the loopback: what listens outside cannot be reached from in there."""
    problem = alone_problem()
    if problem:
        pytest.skip(problem)
    reach = "'%s' -c 'import socket, sys; socket.create_connection((\"127.0.0.1\", int(sys.argv[1])), 5)' %d"
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = reach % (sys.executable, server.getsockname()[1])
        subprocess.run(["sh", "-c", text], check=True, timeout=60)
        status, seen = Machine(tmp_path, "ana", program).run(text)
    assert status != 0
    assert "unreachable" in seen


@pytest.fixture
def by_hand(tmp_path: pathlib.Path) -> pathlib.Path:
    """A release signed by an ES256 and an EdDSA key, as the page wants it: manifest, files and pins in one directory."""
    bench = Bench(tmp_path)
    place = bench.release("1.1.0", 5, 0, 1, issued_at=None)
    (place / "pins.txt").write_text("".join("%s\n" % one.public.pin for one in bench.keys))
    return place


def type_the_page(directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run every block of the page in one shell, with the system's tools alone."""
    text = "\n".join(block.text for block in pages.blocks("verify-by-hand.md"))
    assert "slotward release" not in text
    return subprocess.run(
        ["/bin/sh", "-c", text],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@needs_tools
def test_a_release_verifies_by_hand(by_hand: pathlib.Path) -> None:
    """Two of three, one of each algorithm, and the file."""
    done = type_the_page(by_hand)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of your pins signed" in done.stdout
    assert "toy_1.1.0_linux_amd64: OK" in done.stdout
    assert json.loads((by_hand / "body.json").read_text())["version"] == "1.1.0"


def body_changed(change: Callable[[bytes], bytes]) -> Callable[[pathlib.Path], None]:
    """Change the signed body."""

    def apply(place: pathlib.Path) -> None:
        fields = json.loads((place / "manifest.json").read_text())
        body = change(base64.b64decode(fields["manifest"]))
        fields["manifest"] = base64.b64encode(body).decode()
        (place / "manifest.json").write_text(json.dumps(fields))

    return apply


def signature_changed(number: int) -> Callable[[pathlib.Path], None]:
    """Change one bit of one signature."""

    def apply(place: pathlib.Path) -> None:
        fields = json.loads((place / "manifest.json").read_text())
        made = bytearray(base64.b64decode(fields["signatures"][number]["sig"]))
        made[40] ^= 1
        fields["signatures"][number]["sig"] = base64.b64encode(bytes(made)).decode()
        (place / "manifest.json").write_text(json.dumps(fields))

    return apply


def signed_twice(place: pathlib.Path) -> None:
    """One signer, twice."""
    fields = json.loads((place / "manifest.json").read_text())
    fields["signatures"] = fields["signatures"][:1] * 2
    (place / "manifest.json").write_text(json.dumps(fields))


def artifact_changed(place: pathlib.Path) -> None:
    """Change one byte of the program."""
    (place / "toy_1.1.0_linux_amd64").write_bytes(BYTES[:-2] + b"?\n")


def pins_changed(place: pathlib.Path) -> None:
    """Trust other keys than those that signed."""
    pins = (place / "pins.txt").read_text().splitlines()
    (place / "pins.txt").write_text("%s\n%s\n%s\n" % (pins[0], keys.generate("ES256").public.pin, pins[2]))


WRONG: List[Tuple[str, Callable[[pathlib.Path], None], str]] = [
    ("a tampered artifact", artifact_changed, "toy_1.1.0_linux_amd64: FAILED"),
    (
        "a tampered manifest",
        body_changed(lambda body: body.replace(b'"sequence":5', b'"sequence":6')),
        "0 of your pins",
    ),
    ("another spelling", body_changed(lambda body: body.replace(b'"sequence":5', b'"sequence": 5')), "differ"),
    ("another kind", body_changed(lambda body: body.replace(b"slotward.release", b"slotward.permits")), ""),
    ("a tampered ES256 signature", signature_changed(0), "1 of your pins signed"),
    ("a tampered EdDSA signature", signature_changed(1), "1 of your pins signed"),
    ("one signer twice", signed_twice, "1 of your pins signed"),
    ("a wrong pin", pins_changed, "not one of your pins"),
]


@needs_tools
@pytest.mark.parametrize(("damage", "said"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG])
def test_what_is_wrong_fails_by_hand(by_hand: pathlib.Path, damage: Callable[[pathlib.Path], None], said: str) -> None:
    """The shell ends with an error, and what it printed says where."""
    damage(by_hand)
    done = type_the_page(by_hand)
    assert done.returncode != 0, done.stdout
    assert said in done.stdout + done.stderr


@needs_tools
def test_an_expired_release_fails_by_hand(tmp_path: pathlib.Path) -> None:
    """All else is right."""
    bench = Bench(tmp_path)
    place = bench.release("1.1.0", 5, 0, 1, issued_at="2020-01-01T00:00:00Z")
    (place / "pins.txt").write_text("".join("%s\n" % one.public.pin for one in bench.keys))
    assert rfc3339.parse("2020-12-31T00:00:00Z") < rfc3339.parse(ISSUED)
    done = type_the_page(place)
    assert done.returncode != 0
    assert "2 of your pins signed" in done.stdout
