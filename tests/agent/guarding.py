# SPDX-License-Identifier: GPL-3.0-or-later
"""A slots directory, a /proc and a systemctl of our own, on which the real guard is run by a real shell."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Dict, List, Mapping, Optional, Tuple

from slotcore import trial as trials

GUARD = pathlib.Path(__file__).parents[2] / "agent" / "src" / "slotward" / "resources" / "guard"
FAKES = pathlib.Path(__file__).parent / "fakes"
SHELLS: Tuple[Tuple[str, ...], ...] = (("dash",), ("busybox", "sh"))
BOOT = "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10"
OTHER_BOOT = "11111111-6f0e-4c39-9a3e-2f6f0a1f2f10"
ID = "9f8a6c1e22d04b57"
NOW = 1000

# Times of a unit in microseconds: started at 900 s, active at once.
RUNNING = {
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "Job": "",
    "Restart": "always",
    "NRestarts": "0",
    "ActiveExitTimestampMonotonic": "0",
    "InactiveExitTimestampMonotonic": "950000100",
    "ExecMainStartTimestampMonotonic": "950000000",
    "ExecMainExitTimestampMonotonic": "0",
}


RESTARTED = r"""
block=0
for word in "$@"; do
    case $word in
    demo.service) block=1 ;;
    demo-helper.service) block=2 ;;
    esac
done
[ "$block" -eq 0 ] || [ -f "$FAKE_SYSTEMD/stuck" ] || {
    awk -v block="$block" 'BEGIN { RS = ""; ORS = "\n\n"; FS = OFS = "\n" }
        NR == block && $1 == "ActiveState=active" {
            for (i = 1; i <= NF; i++)
                if (split($i, part, "=") == 2 && part[1] ~ /MainStart/) $i = part[1] "=" part[2] + 50000000
        }
        { print }' "$FAKE_SYSTEMD/show" >"$FAKE_SYSTEMD/show.new" && cat "$FAKE_SYSTEMD/show.new" >"$FAKE_SYSTEMD/show"
}
"""
"""After `systemctl restart`: what was active has another main process, unless a file `stuck` is there."""
ANEW = {"ExecMainStartTimestampMonotonic": "1000000000"}
"""Of a unit that runs: that it was restarted once since it was RUNNING."""


def record(**changes: object) -> trials.Trial:
    """A sound record whose deadline is a minute off, with fields of the reader's choice."""
    trial = trials.Trial(
        trial_id=ID,
        product="demo",
        from_version="1.0.0",
        to_version="1.1.0",
        from_slot="a",
        to_slot="b",
        sequence=2,
        boot_id=BOOT,
        length_s=120,
        deadline_s=NOW + 60,
        boots_left=3,
        command="-",
        from_sha256="a" * 64,
        to_sha256="b" * 64,
    )
    return trial._replace(**changes)  # type: ignore[arg-type]


def shown(**changes: str) -> str:
    """What systemd shows of a unit that runs, but for the changes."""
    return "".join(f"{key}={value}\n" for key, value in dict(RUNNING, **changes).items())


def function(name: str) -> str:
    """The text of one of the guard's functions."""
    text = GUARD.read_text(encoding="ascii")
    start = text.index(f"\n{name}() {{\n") + 1
    return text[start : text.index("\n}\n", start) + 3]


class Tree:
    """One product `demo` with slots a (good) and b, below a directory of the test's."""

    def __init__(
        self, root: pathlib.Path, shell: Tuple[str, ...] = SHELLS[0], slots: Optional[pathlib.Path] = None
    ) -> None:
        self.root = root
        self.shell = shell
        self.slots = slots if slots is not None else root / "slots"
        self.systemd = root / "systemd"
        self.proc = root / "proc"
        for path in (self.slots, self.systemd, self.proc / "sys/kernel/random", root / "guard.d"):
            path.mkdir(parents=True, exist_ok=True)
        self.guard = root / "guard"
        self.guard.write_bytes(GUARD.read_bytes())
        (root / "guard.d/demo.env").write_text(f"UNIT=demo.service\nSLOTS={self.slots}\n", encoding="ascii")
        (self.systemd / "calls").touch()
        (self.systemd / "then-restart").write_text(RESTARTED, encoding="ascii")
        self.at(NOW)
        self.unit()
        for slot in ("a", "b"):
            (self.slots / slot).write_text(slot, encoding="ascii")
        self.link("good", "a")
        self.link("current", "a")

    @classmethod
    def on_trial(cls, root: pathlib.Path, shell: Tuple[str, ...]) -> Tree:
        """A product with a trial under way that has been started once."""
        made = cls(root, shell)
        made.swap()
        made.started()
        return made

    def at(self, uptime: int, boot: str = BOOT) -> None:
        """Set the clock: seconds since boot, and which boot."""
        (self.proc / "uptime").write_text(f"{uptime}.42 77.00\n", encoding="ascii")
        (self.proc / "sys/kernel/random/boot_id").write_text(boot + "\n", encoding="ascii")

    def unit(self, timer: str = "active", **changes: str) -> None:
        """Set what systemd says of the unit and of the timer."""
        self.shows(shown(**changes), timer=timer)

    def shows(self, *units: str, timer: str = "active") -> None:
        """Set systemd's answer: a block for each unit, and one for the timer."""
        text = "\n".join([*units, f"ActiveState={timer}\nResult=success\n"])
        (self.systemd / "show").write_text(text, encoding="ascii")

    def link(self, name: str, target: str) -> None:
        """Point a link of the slots directory at a slot."""
        path = self.slots / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def swap(self, trial: Optional[trials.Trial] = None, switched: bool = True) -> None:
        """Begin a trial of slot b, as the agent does."""
        self.link("back", "a")
        (self.slots / "trial.log").write_bytes(trials.LOG_HEADER)
        (self.slots / "trial").write_bytes(trials.render_trial(trial if trial is not None else record()))
        if switched:
            self.link("current", "b")

    def started(self, times: int = 1) -> None:
        """Have the log say that the new release was started."""
        with (self.slots / "trial.log").open("ab") as file:
            file.write(b"start 900\n" * times)

    def environment(self) -> Dict[str, str]:
        """The guard's environment."""
        stand_ins = self.root / "bin"
        return {
            "PATH": f"{stand_ins}:{FAKES}:/usr/bin:/bin" if stand_ins.exists() else f"{FAKES}:/usr/bin:/bin",
            "GUARD_PROC": str(self.proc),
            "FAKE_SYSTEMD": str(self.systemd),
            "LC_ALL": "C",
        }

    def behind(self, program: str, lines: str) -> None:
        """From now on these lines of sh run in front of a program. For dash: busybox's sh has its own programs."""
        stand_in = self.root / "bin" / program
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(f'#!/bin/sh\n{lines}\nexec /bin/{program} "$@"\n', encoding="ascii")
        stand_in.chmod(0o755)

    def argv(self, mode: str) -> List[str]:
        """The guard's command line."""
        return [*self.shell, str(self.guard), mode, "demo"]

    def run(self, mode: str, expect: int = 0) -> str:
        """Run the guard and give what it said."""
        done = subprocess.run(
            self.argv(mode), env=self.environment(), capture_output=True, encoding="utf-8", check=False, timeout=60
        )
        assert done.stdout == ""
        assert done.returncode == expect, done.stderr
        return done.stderr

    def calls(self, *but: str) -> List[str]:
        """What systemctl was asked, without the questions and what else is named."""
        text = (self.systemd / "calls").read_text(encoding="ascii")
        return [line for line in text.splitlines() if not line.startswith(("show", *but))]

    def forget_calls(self) -> None:
        """Begin a new list of calls."""
        (self.systemd / "calls").write_text("", encoding="ascii")

    def current(self) -> Optional[str]:
        """Where the link `current` points."""
        path = self.slots / "current"
        return os.readlink(path) if path.is_symlink() else None

    def names(self) -> List[str]:
        """What is in the slots directory."""
        return sorted(path.name for path in self.slots.iterdir())

    def reason(self) -> Optional[str]:
        """The reason in trial.revert, None without such a file."""
        path = self.slots / "trial.revert"
        if not path.exists():
            return None
        return trials.parse_revert(path.read_bytes())[1]

    def log(self) -> List[str]:
        """The lines that the guard wrote into trial.log."""
        return (self.slots / "trial.log").read_text(encoding="ascii").splitlines()[1:]

    def stamps(self) -> Mapping[str, Tuple[int, int, int]]:
        """Inode and times of everything, to show that nothing was touched."""
        found = {}
        for path in [self.slots, *self.slots.iterdir()]:
            info = path.lstat()
            found[path.name] = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        return found

    def went_back(self, reason: str) -> None:
        """Assert the whole state after going back."""
        assert self.current() == "a"
        assert os.readlink(self.slots / "good") == "a"
        assert self.reason() == reason
        assert not (self.slots / "trial").exists()
        assert (self.slots / "b").read_text(encoding="ascii") == "b"

    def goes_on(self) -> None:
        """Assert that the trial is pending and unchanged but for its log."""
        assert self.current() == "b"
        assert (self.slots / "trial").exists()
        assert "trial.revert" not in self.names()
        assert os.readlink(self.slots / "back") == "a"


RESTART = ["reset-failed -- demo.service", "--no-block restart -- demo.service"]
STOP_TIMER = ["stop -- slotward-deadline@demo.timer"]


class PairTree(Tree):
    """The same product with a helper."""

    def __init__(
        self, root: pathlib.Path, shell: Tuple[str, ...] = SHELLS[0], slots: Optional[pathlib.Path] = None
    ) -> None:
        super().__init__(root, shell, slots)
        self.facts(f"UNIT=demo.service\nSLOTS={self.slots}\nHELPER=demo-helper.service\n")
        self.link("helper", "a")

    def facts(self, text: str) -> None:
        """Write the facts file."""
        (self.root / "guard.d/demo.env").write_text(text, encoding="ascii")

    def unit(self, timer: str = "active", **changes: str) -> None:
        """Set what systemd says of the unit; the helper runs."""
        self.pair(changes, timer=timer)

    def pair(
        self,
        unit: Optional[Mapping[str, str]] = None,
        helper: Optional[Mapping[str, str]] = None,
        timer: str = "active",
    ) -> None:
        """Set what systemd says of both; what is not given runs."""
        self.shows(shown(**(unit or {})), shown(**(helper or {})), timer=timer)

    def swap(self, trial: Optional[trials.Trial] = None, switched: bool = True) -> None:
        """Begin a trial of slot b for both."""
        self.link("helper.back", "a")
        super().swap(trial, switched)
        if switched:
            self.link("helper", "b")

    def helper(self) -> Optional[str]:
        """Where the link `helper` points."""
        path = self.slots / "helper"
        return os.readlink(path) if path.is_symlink() else None

    def went_back(self, reason: str) -> None:
        """Assert the whole state after going back."""
        super().went_back(reason)
        assert self.helper() == "a"
        assert "helper.back" not in self.names()

    def goes_on(self) -> None:
        """Assert that the trial is pending and unchanged but for its log."""
        super().goes_on()
        assert self.helper() == "b"
        assert os.readlink(self.slots / "helper.back") == "a"


RESTART_BOTH = [
    "reset-failed -- demo.service demo-helper.service",
    "--no-block restart -- demo.service",
    "--no-block restart -- demo-helper.service",
]
RESTART_HELPER = ["reset-failed -- demo-helper.service", "--no-block restart -- demo-helper.service"]
