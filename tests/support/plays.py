# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs playbooks of the collection against test hosts, as an operator would, and reads what came of each host.

Nothing of the user's own Ansible is used: home, configuration and collections are this checkout's.
"""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """One task's result on one host; seconds since the task began."""

    host: str
    task: str
    action: str
    outcome: str
    seconds: float
    result: Dict[str, Any]


class Played(NamedTuple):
    """A playbook run: its exit status, output, results in order, and how long it took (seconds)."""

    status: int
    output: str
    rows: List[Row]
    seconds: float

    def recap(self) -> Dict[str, Dict[str, int]]:
        """Ansible's own counts for each host."""
        counts: Dict[str, Dict[str, int]] = {}
        for line in self.output.partition("PLAY RECAP")[2].splitlines()[1:]:
            host, colon, rest = line.partition(" : ")
            if colon:
                counts[host.strip()] = {key: int(value) for key, value in (pair.split("=") for pair in rest.split())}
        return counts

    def last(self, host: str, action: str) -> Optional[Dict[str, Any]]:
        """The last result of an action on a host, skipped ones apart."""
        found = [
            row.result for row in self.rows if row.host == host and row.action == action and row.outcome != "skipped"
        ]
        return found[-1] if found else None


class Controller:
    """Where playbooks run: an inventory and a private home under `directory`."""

    def __init__(self, directory: pathlib.Path, inventory: str, forks: int = 5) -> None:
        self.directory = directory
        (directory / "home").mkdir(parents=True, exist_ok=True)
        self.inventory = directory / "hosts.yml"
        self.inventory.write_text(inventory, encoding="utf-8")
        self._forks = forks
        # a control socket's path is bounded: it cannot lie under a deep directory
        self._sockets = tempfile.mkdtemp(prefix="sw-")
        atexit.register(shutil.rmtree, self._sockets, ignore_errors=True)
        self.limit = "all"

    def environment(self, record: pathlib.Path) -> Dict[str, str]:
        """The whole environment of a run."""
        venv = pathlib.Path(sys.executable).parent
        return {
            "PATH": f"{venv}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.directory / "home"),
            "LANG": "C.UTF-8",
            "ANSIBLE_HOME": str(self.directory / "home" / ".ansible"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".build" / "collections"),
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "support" / "callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "record_results",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self._sockets,
            "ANSIBLE_FORKS": str(self._forks),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_NOCOWS": "1",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_DEPRECATION_WARNINGS": "false",
            "ANSIBLE_RETRY_FILES_ENABLED": "false",
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "SLOTWARD_RECORD": str(record),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def play(
        self, playbook: str, variables: Dict[str, Any], more: Sequence[str] = (), timeout_s: float = 900.0
    ) -> Played:
        """Run a playbook: `slotward.fleet.…` or a path."""
        name = playbook.rpartition(".")[2] if playbook.startswith("slotward.") else pathlib.Path(playbook).stem
        number = len(list(self.directory.glob("*.jsonl"))) + 1
        record = self.directory / f"{number:02d}-{name}.jsonl"
        given = self.directory / f"{number:02d}-{name}.vars.json"
        given.write_text(json.dumps(variables), encoding="utf-8")
        record.write_text("", encoding="utf-8")
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        argv = [str(program), "-i", str(self.inventory), playbook, "-e", f"@{given}", *more]
        began = time.monotonic()
        done = subprocess.run(
            argv,
            env=self.environment(record),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            cwd=self.directory,
            check=False,
        )
        seconds = time.monotonic() - began
        (self.directory / f"{number:02d}-{name}.log").write_text(done.stdout, encoding="utf-8")
        rows = [Row(**json.loads(line)) for line in record.read_text(encoding="utf-8").splitlines()]
        return Played(done.returncode, done.stdout, rows, seconds)


def ansible_is_here() -> bool:
    """Whether this Python has Ansible beside it and the checkout can be found as a collection."""
    link = ROOT / ".build" / "collections" / "ansible_collections" / "slotward" / "fleet"
    return os.access(pathlib.Path(sys.executable).parent / "ansible-playbook", os.X_OK) and link.exists()
