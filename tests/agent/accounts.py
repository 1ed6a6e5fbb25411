# SPDX-License-Identifier: GPL-3.0-or-later
"""The built agent as processes of any account, wherever this Python lies: in a mount namespace of their own.

What the account must reach is bound below a directory that everybody may walk; nothing of it is left when the process ends.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Dict, Iterator, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCOUNT, STRANGER = "games", "news"
"""Two accounts that every Debian has."""


@contextlib.contextmanager
def place() -> Iterator[pathlib.Path]:
    """A directory that everybody may walk. Not pytest's: each run of it closes the way to those of all others."""
    with tempfile.TemporaryDirectory(prefix="slotward-accounts-") as directory:
        path = pathlib.Path(directory)
        path.chmod(0o755)
        yield path


def built(output: pathlib.Path, version: str = "1.0.0", sequence: int = 1) -> pathlib.Path:
    """The agent, built from this tree."""
    command = [sys.executable, str(ROOT / "agent" / "build.py"), "--version", version, "--sequence", str(sequence)]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, timeout=60, check=True)
    return pathlib.Path(done.stdout.strip())


class Accounts:
    """A place from which the agent runs as any account."""

    def __init__(self, top: pathlib.Path, agent: pathlib.Path) -> None:
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self._binds = [(sys.base_prefix, top / "python"), (sysconfig.get_path("purelib"), top / "site")]
        for _what, where in self._binds:
            where.mkdir()
        self._environment = {"PYTHONPATH": str(top / "site")}  # what the virtual environment has
        self.program = top / "slotward"
        content = agent.read_bytes()
        self.program.write_bytes(f"#!{top}/python/bin/{name} -B\n".encode() + content[content.index(b"\n") + 1 :])
        self.program.chmod(0o755)

    def argv(self, user: str, *words: object) -> List[str]:
        """A call of the agent as that account."""
        found = pwd.getpwnam(user)
        binds = [f"mount --bind {shlex.quote(what)} {shlex.quote(str(where))}" for what, where in self._binds]
        become = f"setpriv --reuid {found.pw_uid} --regid {found.pw_gid} --clear-groups --"
        call = shlex.join([str(self.program), *map(str, words)])
        return ["unshare", "--mount", "sh", "-ec", "; ".join([*binds, f"exec {become} {call}"])]

    def run(
        self, user: str, *words: object, environment: Optional[Dict[str, str]] = None, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        env = {**os.environ, **self._environment, **(environment or {})}
        argv = self.argv(user, *words)
        return subprocess.run(argv, cwd="/", env=env, capture_output=True, timeout=60, check=False, **more)

    def start(
        self, user: str, *words: object, environment: Optional[Dict[str, str]] = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start it; the process that is answered is the agent's own."""
        env = {**os.environ, **self._environment, **(environment or {})}
        return subprocess.Popen(self.argv(user, *words), cwd="/", env=env, **more)
