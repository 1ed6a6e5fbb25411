# SPDX-License-Identifier: GPL-3.0-or-later
"""The product of `guarding` with parts or hooks: its facts say so, its hooks write down what they were told."""

from __future__ import annotations

import os
import pathlib
from typing import Dict, List, Optional, Tuple

from agent import guarding
from slotcore import trial as trials

WANTED = b"snapshot due\n"


class Keeping(guarding.Tree):
    """The product with facts beyond its unit and slots; its data is one file."""

    def __init__(self, root: pathlib.Path, shell: Tuple[str, ...] = guarding.SHELLS[0], user: str = "root") -> None:
        super().__init__(root, shell)
        self.data = root / "data"
        self.data.write_text("as 1.0.0 wrote it", encoding="ascii")
        self.told = root / "told"
        self.hook("snapshot", f'cp {self.data} "$SLOTWARD_SNAPSHOT/data"')
        self.hook("restore", f'cp "$SLOTWARD_SNAPSHOT/data" {self.data}')
        hooks = (f"{name.upper()}=5 {user} {root}/{name} of demo" for name in ("snapshot", "restore"))
        self.facts(*hooks)

    def facts(self, *lines: str) -> None:
        """Write the facts, with these lines beside those that every product has."""
        text = "\n".join((f"UNIT=demo.service\nSLOTS={self.slots}", *lines, ""))
        (self.root / "guard.d/demo.env").write_text(text, encoding="ascii")

    def hook(self, name: str, script: str) -> None:
        """Make that hook: it writes down its words and its environment, then runs `script`."""
        path = self.root / name
        path.write_text(f'#!/bin/sh\n{{ echo "{name} $*"; env; }} >>{self.told}\n{script}\n', encoding="ascii")
        path.chmod(0o755)

    def ran(self) -> List[str]:
        """Which hooks were run, in order, with their words."""
        text = self.told.read_text(encoding="ascii") if self.told.exists() else ""
        return [line for line in text.splitlines() if line.startswith(("snapshot ", "restore "))]

    def environment_of_hook(self) -> Dict[str, str]:
        """What the last hook's environment was, without what a shell adds of its own."""
        lines = self.told.read_text(encoding="ascii").splitlines()
        last = max(index for index, line in enumerate(lines) if line.startswith(("snapshot ", "restore ")))
        found = dict(line.partition("=")[::2] for line in lines[last + 1 :])
        return {key: value for key, value in found.items() if key not in {"PWD", "OLDPWD", "SHLVL", "_"}}

    def swap(self, trial: Optional[trials.Trial] = None, switched: bool = True) -> None:
        """Begin a trial of slot b that changes the data."""
        super().swap(trial, switched)
        (self.slots / "trial.log").write_bytes(trials.LOG_HEADER + WANTED)

    def kept(self) -> Optional[str]:
        """What `snapshot` in the slots directory says, None when it is not there."""
        path = self.slots / "snapshot"
        return path.read_text(encoding="ascii") if path.exists() else None

    def snapshots(self) -> Dict[str, List[str]]:
        """The directories of copies, and what is in each."""
        top = self.slots / "snapshots"
        return {path.name: sorted(os.listdir(path)) for path in top.iterdir()} if top.exists() else {}

    def changed(self) -> None:
        """Have the new release change the data."""
        self.data.write_text("as 1.1.0 wrote it", encoding="ascii")

    def was(self) -> str:
        """Who wrote the data as it is."""
        return self.data.read_text(encoding="ascii")
