# SPDX-License-Identifier: GPL-3.0-or-later
"""A workshop for tests, demo and bench: keys, builds and signed releases, made by the real commands as an operator would.

Nothing here knows a format: builds come from `agent/build.py`, manifests and signatures from `slotward release`.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import platform
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from support import broken as brokens

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
PRODUCT = "slotward"


class Key(NamedTuple):
    """A release key: its file, id and pin."""

    path: pathlib.Path
    kid: str
    pin: str


class Release(NamedTuple):
    """A published release directory."""

    version: str
    sequence: int
    directory: pathlib.Path

    @property
    def manifest(self) -> pathlib.Path:
        """The published manifest."""
        return self.directory / "manifest.json"

    @property
    def artifact(self) -> pathlib.Path:
        """The artifact for this machine's architecture."""
        return self.directory / f"{PRODUCT}_{self.version}_linux_{ARCH}"


class Workshop:
    """Makes keys, builds and releases under one directory; the same release is made once."""

    def __init__(self, directory: pathlib.Path, keys: int = 3, threshold: int = 2) -> None:
        self.directory = directory
        self.threshold = threshold
        self.base = directory / "releases"
        self._environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}/agent/src:{ROOT}/plugins/module_utils"}
        directory.mkdir(parents=True, exist_ok=True)
        self._made: Dict[str, object] = {}
        self.keys = [self._keygen(number) for number in range(1, keys + 1)]

    @property
    def pins(self) -> str:
        """All pins, as `[update] release_pins` takes them."""
        return ",".join(key.pin for key in self.keys)

    def release_command(self, *arguments: str) -> Dict[str, Any]:
        """Run `slotward release …` from the source tree; its JSON answer."""
        code = "import sys; from slotward import release_cmd; sys.exit(release_cmd.main(sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments, "--json"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"release {' '.join(arguments)}: {done.stdout}{done.stderr}")
        answer: Dict[str, Any] = json.loads(done.stdout)
        return answer

    def _keygen(self, number: int) -> Key:
        path = self.directory / f"release-key-{number}.pem"
        answer = self.release_command("keygen", "--output", str(path), "--no-passphrase")
        return Key(path, str(answer["kid"]), str(answer["pin"]))

    def run_build(self, argv: List[str]) -> None:
        """Run agent/build.py."""
        subprocess.run([sys.executable, str(ROOT / "agent" / "build.py"), *argv], check=True, capture_output=True)

    def build(
        self,
        version: str,
        sequence: int,
        kind: Optional[brokens.Broken] = None,
        pad_mib: int = 0,
        extra: Optional[pathlib.Path] = None,
    ) -> pathlib.Path:
        """Build the agent; with `kind`, a broken one."""
        output = self.directory / "builds" / f"{version}-{sequence}"
        argv = ["--version", version, "--sequence", str(sequence), "--arch", ARCH, "--output", str(output)]
        overlay = extra if kind is None else brokens.lay_over(kind, self.directory / "overlays" / kind.name)
        if overlay is not None:
            argv += ["--extra", str(overlay)]
        if pad_mib:
            argv += ["--pad-mib", str(pad_mib)]
        self.run_build(argv)
        path = output / f"{PRODUCT}_{version}_linux_{ARCH}"
        if kind is not None and kind.mangle is not None:
            path.write_bytes(kind.mangle(path.read_bytes()))
        return path

    def release(
        self,
        version: str,
        sequence: int,
        kind: Optional[brokens.Broken] = None,
        pad_mib: int = 0,
        extra: Optional[pathlib.Path] = None,
        signers: Optional[Sequence[Key]] = None,
        more: Sequence[str] = (),
    ) -> Release:
        """Build, write and sign a release by `signers` (default: as many keys as the threshold asks for)."""
        found = Release(version, sequence, self.base / PRODUCT / version)
        asked = (
            sequence,
            kind.name if kind else None,
            pad_mib,
            extra,
            tuple(signers) if signers else None,
            tuple(more),
        )
        if self._made.setdefault(version, asked) != asked:
            raise AssertionError(f"{version} was made otherwise before: {self._made[version]}, now {asked}")
        if found.manifest.exists():
            return found
        artifact = self.build(version, sequence, kind, pad_mib, extra)
        argv: List[str] = ["build", "--product", PRODUCT, "--version", version, "--sequence", str(sequence)]
        for key in self.keys:
            argv += ["--key", str(key.path.with_suffix(".pub.pem"))]
        if kind is not None and kind.mangle is not None:
            argv.append("--no-program-check")  # the hosts' own look is what such a release is for
        self.release_command(*argv, "--artifact", str(artifact), "--output", str(self.base), *more)
        for key in self.keys[: self.threshold] if signers is None else signers:
            self.release_command("sign", "--manifest", str(found.manifest), "--key", str(key.path), "--yes")
        return found

    def broken(self, kind: brokens.Broken) -> Release:
        """The release that is broken in this way; each has a version and a sequence of its own."""
        number = 10 + brokens.KINDS.index(kind)
        return self.release(f"1.{number}.0", number, kind)

    def target(self, release: Release, url: str = "https://releases.invalid/none") -> Dict[str, str]:
        """The target that a control side would send for `release`."""
        published = release.manifest.read_text(encoding="utf-8")
        sha256 = hashlib.sha256(release.artifact.read_bytes()).hexdigest()
        return {"product": PRODUCT, "version": release.version, "url": url, "sha256": sha256, "signature": published}
