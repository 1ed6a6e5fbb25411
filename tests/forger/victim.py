# SPDX-License-Identifier: GPL-3.0-or-later
"""A host to attack: the real build of the agent as a process, as root, with a systemd that says that all is well.

It lives in a mount namespace of its own (``unshare -m``): /run and the guard's place are a directory of the test's, everything
else is the machine's. It stages (``upgrade --stage-only``) and never switches, so that nothing of this machine is touched.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple

from core import making

from slotcore import checks
from slotward import gate

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT, VERSION = "slotward", "1.1.0"
ARTIFACT = b"#!/bin/sh\nexit 0\n".ljust(64, b"#")
SHA256 = hashlib.sha256(ARTIFACT).hexdigest()
SYSTEMCTL = """#!/bin/sh
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
for unit in "$@"; do
    [ "$unit" = -- ] || cat <<LINES
ActiveState=active
UnitFileState=enabled
User=
LoadState=loaded
NeedDaemonReload=no
Wants=slotward-guard@slotward.service
After=slotward-guard@slotward.service
OnFailure=slotward-rollback@slotward.service

LINES
done
"""
ENTER = """mount -t tmpfs none /run && mkdir -p /run/systemd/system && mount --bind "$1/lib" /usr/local/lib &&
PATH="$1/bin:/usr/bin:/bin" && shift && exec "$@"
"""


class Answer(NamedTuple):
    """What the process answered, and what lies on the host now."""

    exit: int
    code: str
    message: str
    errors: str
    left: List[str]


@functools.cache
def program() -> str:
    """A real build of the agent, made once."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="slotward-forger-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    words = [
        sys.executable,
        str(ROOT / "agent" / "build.py"),
        "--version",
        "1.0.0",
        "--sequence",
        "4",
        "--output",
        str(directory),
    ]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    (found,) = directory.iterdir()
    return str(found)


def manifest(**changes: object) -> bytes:
    """The genuine release of the artifact, signed by two of the three keys; or another, signed as well."""
    artifact = {
        "name": checks.artifact_name(PRODUCT, VERSION, gate.this_platform()),
        "platform": gate.this_platform(),
        "sha256": SHA256,
        "size": len(ARTIFACT),
    }
    body = making.body(**{"product": PRODUCT, "artifacts": [artifact], "expiresAt": "2100-01-01T00:00:00Z", **changes})
    return making.published(body, making.three()[:2])


def target(url: str, **changes: str) -> Dict[str, str]:
    """The control side's word for it."""
    plain = {"product": PRODUCT, "version": VERSION, "url": url, "sha256": SHA256, "signature": manifest().decode()}
    return {**plain, **changes}


class Victim:
    """The host, below a directory of root's."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        for name in ("bin", "lib/slotward/guard.d", "slots", "data", "config"):
            (root / name).mkdir(parents=True)
        for name, text, mode in (
            ("bin/systemctl", SYSTEMCTL, 0o755),
            ("lib/slotward/guard", "#!/bin/sh\n", 0o755),
            ("lib/slotward/guard.d/slotward.env", "", 0o644),
            ("entry", "#!/bin/sh\nexit 0\n", 0o755),
        ):
            (root / name).write_text(text)
            (root / name).chmod(mode)
        self.configure(allow_http=True)

    def configure(self, **settings: object) -> None:
        """Write the configuration: three pins, two of them asked for."""
        plain: Dict[str, object] = {
            "release_pins": ",".join(making.pins()),
            "release_threshold": 2,
            "slots_dir": f"{self.root}/slots",
            "entrypoint": f"{self.root}/entry",
            "adopt": True,
            **settings,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
        path = self.root / "config" / "config.toml"
        path.write_text("\n".join([f'data_dir = "{self.root}/data"', "[update]", *lines, ""]))
        path.chmod(0o600)

    def stage(self, asked: bytes, *flags: str) -> Answer:
        """`slotward upgrade --stage-only` with these bytes as its target, as a process."""
        (self.root / "target").write_bytes(asked)
        words = ["unshare", "-m", "sh", "-c", ENTER, "sh", str(self.root), sys.executable, "-B", program()]
        words += ["--config", f"{self.root}/config/config.toml", "upgrade", "--stage-only", "--json"]
        words += ["--target", f"{self.root}/target", *flags]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd="/")
        try:
            found: Dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"status {done.returncode}, no JSON: {done.stdout}{done.stderr}") from None
        return Answer(done.returncode, found["code"], found["message"], done.stderr, self.left())

    def left(self) -> List[str]:
        """The names of everything in the staging directory, and of slots."""
        places = (self.root / "data" / "staging", self.root / "slots")
        names = [name for place in places if place.is_dir() for name in os.listdir(place)]
        return sorted(name for name in names if name in ("a", "b", "current", "good") or name.startswith(PRODUCT + "-"))
