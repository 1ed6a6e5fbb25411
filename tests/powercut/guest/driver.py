# SPDX-License-Identifier: GPL-3.0-or-later
"""What the virtual machine does from its boot to its cut: settle, look, then one job after another (docs/design/faults.md, section 3).

Rules:
- It speaks a JSON object a line on the second serial line, and is told what to do by a disk of its own, `mail`.
- After a boot nothing is done before the checker has looked; what it saw is the first thing that is said.
- A job is announced before it begins and told when it has ended, and the checker looks after each.
- It ends by nothing but a cut. Whatever goes wrong in here is told as `error`, and is no finding about the agent.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from typing import Any, Dict, List, NamedTuple, Optional

from faults import checker

LINE = "/dev/ttyS1"
MAIL = "/dev/nvme0n2"
RELEASES = "/powercut/releases"
AIM = "/run/powercut/aim"
ADOPTED = "/powercut/toy-1.0.0"
SLOTS = "/opt/slotward/toy"
ENTRYPOINT = "/usr/local/sbin/toy"
UNIT = "toy.service"
TIMER = "slotward-deadline@toy.timer"
SLOTWARD = "/usr/local/bin/slotward"
UP_WITHIN_S = 60.0
FIRST = "1.0.0"
OF_A_TRIAL = ("confirm", "go-back")
"""Plans that end a trial; the others begin one, and `adopt` comes before the first."""


class Done(NamedTuple):
    """How a command of the agent ended."""

    exit: int
    code: str
    said: str


def say(**what: Any) -> None:
    """One line to whoever cuts the power."""
    line = os.open(LINE, os.O_WRONLY | os.O_NOCTTY)
    try:
        os.write(line, (json.dumps(what, sort_keys=True) + "\n").encode("ascii"))
    finally:
        os.close(line)


def read_mail() -> Dict[str, Any]:
    """What this boot is for."""
    with open(MAIL, "rb") as file:
        found: Dict[str, Any] = json.loads(file.read(1 << 20).rstrip(b"\0"))
    return found


def command(*words: str) -> Done:
    """Run `slotward --product toy …`."""
    argv = [SLOTWARD, "--product", "toy", *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return Done(done.returncode, "", (done.stdout + done.stderr)[-1000:])
    return Done(done.returncode, str(answer.get("code")), str(answer.get("message"))[:500])


def install() -> None:
    """The first boot: the product is described and guarded; what it runs is still a file put there by hand."""
    for argv in (
        ["systemctl", "enable", "--now", UNIT],
        [SLOTWARD, "--product", "toy", "setup", "--json"],
        ["systemctl", "is-active", UNIT],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{argv}: {done.returncode} {done.stdout}{done.stderr}")
    os.sync()
    say(installed=True)
    subprocess.run(["systemctl", "reboot"], check=True)  # qemu ends with it


class Driver:
    """One boot's work."""

    def __init__(self, mail: Dict[str, Any]) -> None:
        self.known: Dict[str, Any] = mail["known"]
        self.before: Optional[Dict[str, Any]] = mail["before"]
        self.cleared: List[str] = mail["cleared"]
        self.points: Dict[str, List[str]] = mail["points"]
        self.random = random.Random(mail["seed"])  # noqa: S311 # no secret
        self.aimed = bool(mail["aimed"])
        self.versions = sorted(one["version"] for one in self.known.values())
        self.state: Dict[str, Any] = {}

    # -- looking -------------------------------------------------------------------------------------------------

    def look(self) -> List[Dict[str, str]]:
        """Have the checker look, and remember what it saw; its violations."""
        rests = not any(os.path.lexists(f"{SLOTS}/{name}") for name in ("trial", "trial.confirm", "trial.revert"))
        found = checker.judge(
            SLOTS, ENTRYPOINT, known=self.known, before=self.before, cleared=self.cleared, at_rest=rests
        )
        until = time.monotonic() + UP_WITHIN_S
        while True:
            running = checker.judge(SLOTS, ENTRYPOINT, known=self.known, running=UNIT)["violations"]
            more = [one for one in running if one not in found["violations"]]
            if not more or time.monotonic() > until:
                break
            time.sleep(0.2)
        self.state = found["state"]
        self.before, self.cleared = found, []
        return [*found["violations"], *more]

    @property
    def version(self) -> str:
        """The version that a start runs."""
        return str(self.known[self.state["bytes"]["entrypoint"]]["version"])

    # -- jobs ----------------------------------------------------------------------------------------------------

    def job(self, name: str, *words: str) -> None:
        """Announce a job, do it, tell how it ended and what the checker saw then."""
        say(job=name)
        done = command(*words)
        said = "" if done.exit == 0 else done.said
        violations = self.look()
        say(done=name, exit=done.exit, code=done.code, said=said, violations=violations, state=self.before)

    def wipe(self) -> None:
        """Begin anew, with a program put there by hand: nobody cuts the power before this has ended."""
        say(wiping=True)
        subprocess.run(["systemctl", "stop", UNIT, TIMER], check=True)
        for name in os.listdir(SLOTS):
            path = f"{SLOTS}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        os.unlink(ENTRYPOINT)
        shutil.copy(ADOPTED, ENTRYPOINT)
        subprocess.run(["systemctl", "reset-failed"], check=True)
        subprocess.run(["systemctl", "start", UNIT], check=True)
        os.sync()
        self.before, self.cleared = None, []
        self.look()
        say(wiping=False)

    def upgrade(self) -> None:
        """The next version, by a trial; the first one adopts what is there."""
        in_use = self.state["current"] is not None
        version = self.versions[self.versions.index(self.version) + 1]
        if version in self.state["failed"]:
            self.cleared = [version]
            say(clearing=version)
            self.job("clear-failed", "update", "--clear-failed", version)
        files = f"{RELEASES}/{version}"
        words = ("upgrade", "--target", f"{files}/target.json", "--src", f"{files}/toy", "--no-wait")
        # in a unit of its own it is the same work, after one more start of Python
        here = ("--here",) if self.aimed else ()
        more = ("--id", f"{self.random.getrandbits(64):016x}", *here, *(() if in_use else ("--adopt",)))
        self.job("swap" if in_use else "adopt", *words, *more)

    def next_job(self, plan: str) -> None:
        """One job: of the plan that is aimed at where that can be, else any that can be now."""
        if self.state["trial"] is not None:
            goes_back = plan == "go-back" if plan in OF_A_TRIAL else self.random.random() < 0.3
            if goes_back:
                self.job("rollback", "rollback", "--pending", "--why", "somebody took it back")
            else:
                self.job("confirm", "confirm", "--pending", "--wait", "30")
            return
        over = self.state["current"] is not None and self.version == self.versions[-1]
        if over or (plan == "adopt" and self.state["current"] is not None):
            self.wipe()
        self.upgrade()

    def aim(self) -> str:
        """Choose the point to be cut at: one that the first job can come to, and of those one that was cut least; its plan."""
        if not self.aimed:
            return ""
        if self.state["trial"] is not None:
            plans = [self.random.choice(OF_A_TRIAL)]
        elif self.state["current"] is None:
            plans = ["adopt"]
        else:
            plans = self.random.choices([["stage"], ["swap"], ["adopt"], list(OF_A_TRIAL)], [4, 5, 2, 2])[0]
        plan = self.random.choice(plans)
        point = self.points[plan][0]
        os.makedirs(os.path.dirname(AIM), exist_ok=True)
        with open(AIM, "w", encoding="ascii") as file:
            file.write(point)
        say(aim=point)
        return plan

    def run(self) -> None:
        """From the boot to the cut."""
        done = command("settle")
        violations = self.look()
        said = "" if done.exit == 0 else done.said
        say(verdict=violations, exit=done.exit, code=done.code, said=said, state=self.before)
        plan = self.aim()
        say(jobs=True)
        while True:
            self.next_job(plan)


def main() -> int:
    """Do what the mail says; whoever cuts the power must know when it is we who failed."""
    sys.excepthook = lambda *error: say(error="".join(traceback.format_exception(*error))[-3000:])
    mail = read_mail()
    say(boot=mail["cut"], uptime=time.clock_gettime(time.CLOCK_BOOTTIME))
    if mail["install"]:
        install()
    else:
        Driver(mail).run()
    return 0
