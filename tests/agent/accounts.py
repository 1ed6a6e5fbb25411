# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent as processes of another account, wherever this Python and this tree lie: in a mount namespace of their own.

What the account must reach is bound below a directory that everybody may walk; nothing of it is left when the process ends.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import shlex
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCOUNT, STRANGER = "games", "news"
"""Two accounts that every Debian has."""
MAIN = """
import sys
sys.path[1:1] = ["{top}/core", "{top}/agent", "{top}/site"]
from slotward import cli
sys.exit(cli.main(sys.argv[1:]))
"""


def open_way(path: pathlib.Path) -> None:
    """Let everybody walk to what pytest made for root alone."""
    for directory in (path, *path.parents):
        if directory.stat().st_uid == os.geteuid() and len(directory.parts) > 2:
            directory.chmod(0o755)


class Accounts:
    """A place from which the agent runs as any account."""

    def __init__(self, top: pathlib.Path) -> None:
        open_way(top)
        self._binds = {
            "python": sys.base_prefix,
            "site": sysconfig.get_path("purelib"),
            "core": str(ROOT / "plugins" / "module_utils"),
            "agent": str(ROOT / "agent" / "src"),
        }
        for name in self._binds:
            (top / name).mkdir()
        self._top = top
        self.program = top / "slotward"
        python = f"{top}/python/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
        self.program.write_text(f"#!{python} -IB\n" + MAIN.format(top=top))
        self.program.chmod(0o755)

    def argv(self, user: str, *words: object) -> List[str]:
        """A call of the agent as that account."""
        found = pwd.getpwnam(user)
        binds = [f"mount --bind {shlex.quote(what)} {self._top}/{name}" for name, what in self._binds.items()]
        become = f"setpriv --reuid {found.pw_uid} --regid {found.pw_gid} --clear-groups --"
        call = shlex.join([str(self.program), *map(str, words)])
        return ["unshare", "--mount", "sh", "-ec", "; ".join([*binds, f"exec {become} {call}"])]

    def run(
        self, user: str, *words: object, environment: Optional[Dict[str, str]] = None, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        env = {**os.environ, **(environment or {})}
        argv = self.argv(user, *words)
        return subprocess.run(argv, cwd="/", env=env, capture_output=True, timeout=60, check=False, **more)

    def start(
        self, user: str, *words: object, environment: Optional[Dict[str, str]] = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start it; the process that is answered is the agent's own."""
        return subprocess.Popen(self.argv(user, *words), cwd="/", env={**os.environ, **(environment or {})}, **more)
