# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory with keys and a program to release, and `slotward release` run in it as people would."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import resource
import select
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from slotcore import keys, manifest

PROGRAM = [
    sys.executable,
    "-W",
    "error",
    "-c",
    "import sys; from slotward import cli; sys.exit(cli.main(sys.argv[1:]))",
]
ISSUED = "2026-01-01T00:00:00Z"
BYTES = b"#!/bin/sh\necho toy 1.1.0\n"
NAME = "toy_1.1.0_linux_amd64"


class Ran(NamedTuple):
    """The end of one call."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Dict[str, Any]:
        """The one object on standard output."""
        found: Dict[str, Any] = json.loads(self.out)
        return found


class Bench:
    """A directory with three key pairs and a program to release."""

    def __init__(self, top: pathlib.Path) -> None:
        self.top = top
        self.keys = [keys.generate(alg) for alg in (keys.ES256, keys.EDDSA, keys.ES256)]
        for number, one in enumerate(self.keys):
            (top / ("k%d.pem" % number)).write_bytes(one.pem(b"right" if number == 2 else None))
            (top / ("k%d.pub.pem" % number)).write_bytes(keys.public_pem(one.public))
        (top / "pass").write_text("right\n")
        (top / NAME).write_bytes(BYTES)
        (top / "any").write_bytes(BYTES)
        self.directory = top / "releases" / "toy" / "1.1.0"
        self.manifest = self.directory / "manifest.json"

    def run(self, *arguments: object, stdin: str = "", preexec: Optional[Callable[[], None]] = None) -> Ran:
        """One `slotward release` command in this directory."""
        environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
        done = subprocess.run(
            [*PROGRAM, "release", *(str(one) for one in arguments)],
            cwd=self.top,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            preexec_fn=preexec,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def build_arguments(self, **changes: Optional[str]) -> List[str]:
        """The usual build; None takes an argument away."""
        plain: Dict[str, Optional[str]] = {
            "product": "toy",
            "version": "1.1.0",
            "sequence": "5",
            "artifact": NAME,
            "output": "releases",
            "issued-at": ISSUED,
        }
        plain.update({name.replace("_", "-"): value for name, value in changes.items()})
        listed = ["--%s=%s" % (name, value) for name, value in plain.items() if value is not None]
        return ["build", *listed, "--key", "k0.pub.pem", "--key", "k1.pub.pem", "--key", "k2.pub.pem", "--json"]

    def build(self, **changes: Optional[str]) -> Ran:
        """Build it."""
        return self.run(*self.build_arguments(**changes))

    def built(self) -> pathlib.Path:
        """The manifest of a build that must succeed."""
        ran = self.build()
        assert ran.status == 0, ran
        return self.manifest

    def sign(self, number: int, path: Optional[pathlib.Path] = None, *more: str) -> Ran:
        """Sign with one of the keys, without a question."""
        secret = ["--passphrase-file", "pass"] if number == 2 else []
        return self.run(
            "sign", "--manifest", path or self.manifest, "--key", "k%d.pem" % number, "--yes", *secret, *more
        )

    def release(self, version: str, sequence: int, *numbers: int, **changes: Optional[str]) -> pathlib.Path:
        """A release of the toy by the command, signed by some of the keys; its directory."""
        ran = self.build(version=version, sequence=str(sequence), artifact="any:linux-amd64", **changes)
        assert ran.status == 0, ran
        directory = self.top / "releases" / "toy" / version
        for number in numbers:
            ran = self.sign(number, directory / "manifest.json")
            assert ran.status == 0, ran
        return directory

    @staticmethod
    def stranger_pem() -> bytes:
        """A public key that no document lists."""
        return keys.public_pem(keys.generate(keys.ES256).public)

    @staticmethod
    def stranger_pin() -> str:
        """A pin that nobody has the key of any more."""
        return keys.generate(keys.ES256).public.pin

    def pinned(self, threshold: int = 2) -> List[str]:
        """The options that say whose signatures count."""
        return ["--pins", self.pins(), "--threshold", str(threshold)]

    def pins(self) -> str:
        """All three."""
        return ",".join(one.public.pin for one in self.keys)

    def signers(self, path: Optional[pathlib.Path] = None) -> List[int]:
        """Whose signatures the manifest has, in its order."""
        kids = [one.public.kid for one in self.keys]
        form = manifest.parse_published((path or self.manifest).read_bytes()).signatures
        return [kids.index(one.kid) for one in form]

    def files(self) -> Dict[str, bytes]:
        """Every file below the directory."""
        found = sorted(path for path in self.top.rglob("*") if path.is_file())
        return {str(path.relative_to(self.top)): path.read_bytes() for path in found}


def umask(mask: int) -> Callable[[], None]:
    """Start the command under this umask."""

    def apply() -> None:
        os.umask(mask)

    return apply


def refused(ran: Ran, code: str) -> str:
    """The message of a refusal with this code and exit status 3."""
    assert (ran.status, ran.json["code"], ran.json["state"], ran.json["changed"]) == (3, code, "refused", False), ran
    return str(ran.json["message"])


def interruptible() -> None:
    """Take Ctrl-C as a program started by hand does: what runs behind a script's `&` ignores it, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(child: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, once it waits for an answer: Python sees what comes between the question and the read only after that read."""
    stat, until = pathlib.Path("/proc/%d/stat" % child.pid), time.monotonic() + 60
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < until
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)


@contextlib.contextmanager
def terminal(
    command: Sequence[str], cwd: pathlib.Path, environment: Mapping[str, str]
) -> Iterator[Tuple[subprocess.Popen[bytes], int]]:
    """A command on a terminal of its own, and that terminal's other end; in the end it is killed."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=interruptible,  # noqa: PLW1509 - one thread
    )
    os.close(slave)
    try:
        yield child, master
    finally:
        child.kill()
        child.wait(60)
        os.close(master)


def on_terminal(bench: Bench, arguments: List[str], answers: List[Tuple[bytes, bytes]]) -> Tuple[int, str]:
    """Run on a terminal; each pair is what is waited for and what is typed then, where nothing is Ctrl-C."""
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    with terminal([*PROGRAM, "release", *arguments], bench.top, environment) as (child, master):
        seen, at = b"", 0
        for wanted, typed in answers:
            while wanted not in seen[at:]:
                assert select.select([master], [], [], 60)[0], seen
                seen += os.read(master, 4096)
            at = len(seen)
            if typed:
                os.write(master, typed)
            else:
                interrupt(child)
        status = child.wait(60)
        return status, (seen + os.read(master, 65536)).decode()


def limit(size: int) -> Callable[[], None]:
    """Let no file grow beyond `size`: what a full disk does to a write."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
