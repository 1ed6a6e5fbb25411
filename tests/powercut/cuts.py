# SPDX-License-Identifier: GPL-3.0-or-later
"""`make powercut`: power cuts of a virtual machine whose agent is at work, each judged at the next boot (docs/design/faults.md, section 3).

  cuts.py [--cuts N] [--seed N] [--filesystem ext4|xfs|both] [--machines N] [--resume] [--fetch]

- One boot for each cut: settle, the checker, jobs, until the cut. Half of the cuts at least are aimed: a point between two operations
  says that it was reached. The others come at a random moment of the work, one in eight of them before the boot has ended.
- What the guest reported before a cut is what the next look is compared with: a floor that was told must still be there.
- Each judged cut is a line of `build/powercut.journal`, appended at once; `--resume` goes on from there, while the agent is the same.
  `build/powercut.json` is the sum.
- The disks of a cut that broke an invariant are kept, and the machine begins anew from its first disks.

Exit status: 0 when so many cuts were made and none broke anything, else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import threading
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "tests/hosts", "agent/src", "plugins/module_utils")]

from support import faults

from powercut import image, machine

WORK = ROOT / "build" / "powercut"
JOURNAL = ROOT / "build" / "powercut.journal"
RESULT = ROOT / "build" / "powercut.json"
PLANS = ("adopt", "stage", "swap", "confirm", "go-back")
BOOT_CPU_S = 240.0
"""More than ten times what a boot takes until its verdict: who needs more has not come up."""
JOBS_FOR_A_POINT = 5
"""After so many jobs a point that was aimed at will not come: the cut is then a random one."""
USUAL_BOOT_S, USUAL_JOB_S = 20.0, 10.0
STALLS = 2
"""So often in a row a machine that does nothing any more is started again. A disk with which none comes up is the agent's matter."""
IN_BOOT = 0.125
XFS_PART = 0.1
ONE = threading.Lock()
"""Held by the one machine that is installed, or that writes down what it saw."""


class Cut(NamedTuple):
    """What was cut: when, in which job, and at which point ("" for a random moment)."""

    job: str
    point: str


class Failed(Exception):
    """The machine's own driver went wrong: nothing can be said of the agent."""


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


def points() -> Dict[str, List[str]]:
    """Every point between two operations of each plan."""
    return {plan: faults.PLANS[plan]("root") for plan in PLANS}


class Disks:
    """The disks of one machine, from boot to boot."""

    def __init__(self, images: image.Images, filesystem: str, machine_number: int = 0) -> None:
        self.images = images
        self.filesystem = filesystem
        name = f"machine-{filesystem}-{machine_number}"
        self.directory = pathlib.Path(os.environ.get("POWERCUT_DISKS", str(WORK))) / name
        self.first = images.directory / filesystem / "installed"
        self.paths = [self.directory / path.name for path in images.disks(filesystem)]
        self.directory.mkdir(parents=True, exist_ok=True)

    def renew(self) -> None:
        """As they were after the installation."""
        with ONE:
            if not (self.first / "done").exists():
                self._install()
        image.copy([self.first / path.name for path in self.paths], self.directory)

    def _install(self) -> None:
        """The first boot, once for these sources."""
        say(f"powercut: the first boot of a machine with slots on {self.filesystem}")
        image.copy(self.images.disks(self.filesystem), self.first)
        disks = [self.first / path.name for path in self.paths]
        mail = {"cut": 0, "install": True}
        with contextlib.closing(machine.Machine(self.images.kernel, disks, mail, self.directory)) as guest:
            while True:
                told = guest.say(BOOT_CPU_S * 2)
                if told is None or "error" in told:
                    raise Failed(f"the installation: {told or 'it took too long'}\n{guest.last_words()}")
                if told.get("installed"):
                    break
            with contextlib.suppress(machine.Ended):
                while guest.say(BOOT_CPU_S * 3) is not None:
                    pass
        (self.first / "done").touch()

    def keep(self, number: int) -> pathlib.Path:
        """Put what a cut left where nothing overwrites it."""
        kept = WORK / f"violation-{self.filesystem}-{number}"
        image.copy([path for path in (*self.paths, self.directory / "console.log") if path.exists()], kept)
        return kept


class Run:
    """Cuts of one machine on one file system; `rows` are those of all machines."""

    def __init__(
        self, images: image.Images, filesystem: str, seed: int, rows: List[Dict[str, Any]], machine_number: int = 0
    ) -> None:
        self.disks = Disks(images, filesystem, machine_number)
        self.images = images
        self.filesystem = filesystem
        self.rows = rows
        self.random = random.Random(f"{seed} {filesystem} {len(rows)} {machine_number}")  # noqa: S311 # no secret
        self.points = points()
        self.before: Optional[Dict[str, Any]] = None
        self.cleared: List[str] = []
        self.boots: List[float] = []
        self.jobs: List[float] = []
        self.job = ""
        self.stalls = 0

    def mail(self, number: int, aimed: bool) -> Dict[str, Any]:
        """What the next boot is told: for each plan the points, those that were cut least first."""
        hits = Counter(row["point"] for row in self.rows if row["filesystem"] == self.filesystem)
        ranked = {
            plan: sorted(found, key=lambda point: (hits[point], self.random.random()))
            for plan, found in self.points.items()
        }
        return {
            "cut": number,
            "install": False,
            "known": self.images.known,
            "before": self.before,
            "cleared": self.cleared,
            "points": ranked,
            "seed": self.random.getrandbits(48),
            "aimed": aimed,
        }

    def wants_aim(self) -> bool:
        """Whether the next cut is aimed: half of them at least."""
        mine = [row for row in self.rows if row["filesystem"] == self.filesystem]
        aimed = sum(1 for row in mine if row["point"])
        return aimed * 2 <= len(mine) or self.random.random() < 0.5

    def cuts(self, wanted: int) -> Iterator[Dict[str, Any]]:
        """Judged cuts, so many: a boot judges the cut before it, works, and is cut."""
        self.disks.renew()
        made, last = 0, None
        while made < wanted:
            row = self.boot(last)
            if row is None:
                last = self.cut
                continue
            made += 1
            yield row
            last = self.cut
            if row["violations"]:
                self.before, self.cleared, last = None, [], None
                self.disks.renew()

    def boot(self, last: Optional[Cut]) -> Optional[Dict[str, Any]]:
        """One boot, from power on to its cut, which is then `self.cut`; the row of the cut before, when there was one.

        None as well where the power went before the verdict: the next boot judges both, as one.
        """
        aimed = self.wants_aim()
        early = last is not None and not last.point and not aimed and self.random.random() < IN_BOOT
        mail = self.mail(len(self.rows) + 1, aimed)
        guest = machine.Machine(self.images.kernel, self.disks.paths, mail, self.disks.directory)
        try:
            return self._until_cut(guest, last, early)
        except machine.Stalled:  # a cut too, at a moment that nobody chose
            self.stalls += 1
            if self.stalls > STALLS:
                raise Failed(
                    f"it does not come up, {self.stalls} times with the same disk: {guest.last_words()}"
                ) from None
            self.cut = Cut(self.job or "boot", "")
            return None

    def _until_cut(self, guest: machine.Machine, last: Optional[Cut], early: bool) -> Optional[Dict[str, Any]]:
        with contextlib.closing(guest):
            until = self.random.uniform(0.3, 1.0) * self.usual(self.boots, USUAL_BOOT_S) if early else BOOT_CPU_S
            verdict = self.verdict(guest, until)
            if verdict is None and early:
                self.cut = Cut("boot", "")
                return None
            if verdict is None:
                verdict = {"verdict": [{"rule": "boot", "what": f"no verdict: {guest.last_words()}"}], "state": None}
            self.boots.append(guest.cpu_s())
            row = self.row(last, verdict, guest) if last is not None else None
            if row is None and verdict["verdict"]:
                raise Failed(f"without a cut: {verdict['verdict']}")
            if row is None or not row["violations"]:
                self.job = ""
                self.cut = self.work(guest)
            return row

    cut = Cut("", "")

    def verdict(self, guest: machine.Machine, until_cpu_s: float) -> Optional[Dict[str, Any]]:
        """What the checker saw after the boot; None when that took too long. A machine that ended did not boot."""
        try:
            while True:
                told = guest.say(until_cpu_s)
                if told is None:
                    return None
                self.demand(told)
                if "verdict" in told:
                    self.before, self.cleared, self.stalls = told["state"], [], 0
                    return told
        except machine.Ended as error:
            return {"verdict": [{"rule": "boot", "what": f"the machine ended: {error}"}], "state": None}

    @staticmethod
    def demand(told: Dict[str, Any]) -> None:
        """Raise Failed when the driver says that it went wrong itself."""
        if "error" in told:
            raise Failed(told["error"])

    def row(self, last: Cut, verdict: Dict[str, Any], guest: machine.Machine) -> Dict[str, Any]:
        """What is kept of a cut."""
        violations = list(verdict["verdict"])
        if verdict.get("exit", 0) not in (0, 6):
            violations.append({"rule": "settle", "what": f"{verdict['exit']} {verdict['code']}: {verdict['said']}"})
        found = (verdict["state"] or {}).get("state") or {}
        state = {key: found.get(key) for key in ("current", "good", "floor", "failed", "trial", "claim")}
        return {
            "job": last.job,
            "point": last.point,
            "filesystem": self.filesystem,
            "boot_s": round(guest.cpu_s(), 1),
            "agent": self.images.agent,
            "state": state,
            "violations": violations,
        }

    @staticmethod
    def usual(found: Sequence[float], otherwise: float) -> float:
        """What something takes, by what it took lately."""
        return statistics.median(found[-15:]) if found else otherwise

    def work(self, guest: machine.Machine) -> Cut:
        """Listen to the jobs until the moment of the cut has come."""
        began, ended, aim, wiping = guest.cpu_s(), 0, "", False
        moment = began + self.random.uniform(0.02, 1.6) * self.usual(self.jobs, USUAL_JOB_S)
        started = wiped = began
        while True:
            late = began + JOBS_FOR_A_POINT * 8 * self.usual(self.jobs, USUAL_JOB_S)
            told = guest.say(late if aim or wiping else moment)
            if told is None:
                return Cut(self.job, "")
            self.demand(told)
            if "reached" in told:
                return Cut(self.job, str(told["reached"]))
            aim = str(told.get("aim", aim))
            if "clearing" in told:
                self.cleared.append(told["clearing"])
            if "wiping" in told:
                wiping = bool(told["wiping"])
                self.before, self.cleared = (None, []) if wiping else (self.before, self.cleared)
                wiped, moment = guest.cpu_s(), moment if wiping else moment + guest.cpu_s() - wiped
            if "job" in told:
                self.job, started = told["job"], guest.cpu_s()
            if "done" in told:
                self.jobs.append(guest.cpu_s() - started)
                self.before, self.cleared, ended = told["state"], [], ended + 1
                if told["violations"]:
                    raise Failed(f"without a cut, after {told['done']}: {told['violations']}")
                if aim and ended >= JOBS_FOR_A_POINT:
                    aim, moment = "", guest.cpu_s() + self.random.uniform(0, 1) * self.usual(self.jobs, USUAL_JOB_S)


def read_journal(agent: str) -> List[Dict[str, Any]]:
    """The rows of earlier runs of this agent; a last line that is torn does not count."""
    if not JOURNAL.exists():
        return []
    lines = JOURNAL.read_text(encoding="utf-8").split("\n")[:-1]
    return [row for row in map(json.loads, lines) if row["agent"] == agent]


def summed(rows: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """What `build/powercut.json` says."""
    return {
        "cuts": len(rows),
        "violations": sum(len(row["violations"]) for row in rows),
        "aimed": sum(1 for row in rows if row["point"]),
        "filesystems": {name: sum(row["filesystem"] == name for row in rows) for name in image.FILESYSTEMS},
        "rows": list(rows),
    }


def keep(rows: List[Dict[str, Any]], row: Dict[str, Any]) -> None:
    """Append a row, with its number, and write the sum anew."""
    row["cut"] = len(rows) + 1
    rows.append(row)
    with JOURNAL.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, sort_keys=True) + "\n")
    beside = RESULT.with_suffix(".tmp")
    beside.write_text(json.dumps(summed(rows), sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(RESULT)


def told(row: Dict[str, Any]) -> str:
    """A row for whoever watches."""
    where = row["point"] or f"some moment of {row['job']}"
    shown = "; ".join(f"{one['rule']}: {one['what']}" for one in row["violations"]) or "all holds"
    return f"{row['cut']:4}  {row['filesystem']:4}  {where:28}  {row['boot_s']:5.1f} s  {shown}"


def shares(cuts: int, filesystem: str) -> Dict[str, int]:
    """How many cuts on which file system."""
    if filesystem != "both":
        return {filesystem: cuts}
    few = round(cuts * XFS_PART)
    return {image.XFS: few, image.EXT4: cuts - few}


class Machines:
    """All machines of a run, a thread each; the first that fails has the others end."""

    def __init__(self, images: image.Images, seed: int, rows: List[Dict[str, Any]]) -> None:
        self.images, self.seed, self.rows = images, seed, rows
        self.errors: List[BaseException] = []

    def cut(self, wanted: Dict[str, int], machines: int) -> None:
        """So many cuts on each file system, by so many machines at once."""
        threads = []
        for number in range(machines):
            mine = {name: count // machines + (number < count % machines) for name, count in wanted.items()}
            threads.append(threading.Thread(target=self._one, args=(mine, number)))
            threads[-1].start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt as error:
            self.errors.append(error)
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _one(self, wanted: Dict[str, int], number: int) -> None:
        try:
            for filesystem, count in wanted.items():
                one = Run(self.images, filesystem, self.seed, self.rows, number)
                for row in one.cuts(count) if count > 0 else ():
                    with ONE:
                        keep(self.rows, row)
                        say(told(row))
                    if row["violations"]:
                        say(f"powercut: its disks are kept in {one.disks.keep(row['cut'])}")
                    if self.errors:
                        return
        except BaseException as error:  # noqa: BLE001 (raised again by who waits for this)
            self.errors.append(error)


def run(args: argparse.Namespace) -> int:
    """Cut, and judge."""
    images = image.ensure(WORK)
    if args.fetch:
        return 0
    rows = read_journal(images.agent) if args.resume else []
    if not args.resume:
        JOURNAL.unlink(missing_ok=True)
    left = {
        filesystem: wanted - sum(row["filesystem"] == filesystem for row in rows)
        for filesystem, wanted in shares(args.cuts, args.filesystem).items()
    }
    Machines(images, args.seed, rows).cut(left, args.machines)
    found = summed(rows)
    kinds = ", ".join(f"{count} on {name}" for name, count in found["filesystems"].items() if count)
    say(f"powercut: {found['cuts']} cuts ({found['aimed']} aimed; {kinds}), {found['violations']} violations: {RESULT}")
    return 0 if found["cuts"] >= args.cuts and not found["violations"] else 1


def interrupt(_number: int, _frame: object) -> NoReturn:
    """When told to end: each machine ends with its next verdict."""
    raise KeyboardInterrupt


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Power cuts of a virtual machine.")
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--filesystem", choices=(*image.FILESYSTEMS, "both"), default="both")
    parser.add_argument("--machines", type=int, default=1, help="how many run at once (default 1)")
    parser.add_argument("--resume", action="store_true", help="go on with build/powercut.journal")
    parser.add_argument("--fetch", action="store_true", help="only make ready what a run needs")
    args = parser.parse_args()
    if shutil.which(machine.QEMU) is None:
        print(f"powercut: {machine.QEMU} is missing: run tools/setup --powercut", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        return run(args)
    except KeyboardInterrupt:
        print("powercut: interrupted; --resume goes on", file=sys.stderr)
        return 1
    except (Failed, machine.Ended, machine.Killed) as error:
        print(f"powercut: the machine itself failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
