# SPDX-License-Identifier: GPL-3.0-or-later
"""`make soak`: many updates in a row on one real host, good and broken ones in turn, with reboots, and a look at what they leave.

  run.py                                        200 upgrades, root mode, bookworm, a reboot after every 20
  run.py --upgrades 40 --mode helper --suite trixie --every 10

- Every second upgrade is to a good release and is confirmed. The others end in the ways of `TURNS`, one after the other.
- Every second reboot comes in the middle of a good release's trial, the others at rest; every third is a cut.
- After each upgrade the host comes to rest, the checker of the invariants (tests/faults/checker.py) compares it with the rest before,
  and what there is of everything is counted (look.py); at the end the counts are judged (verdict.py).

Writes `build/soak.json` after every upgrade: {"upgrades", "mode", "suite", "reboots", "seconds", "ended": {state: n}, "looks",
"verdict": "ok"|"violations"|"unfinished", "violations": […], "series": [{"n", "kind", "ended", "seconds", "boot", "numbers"}]}.
The exit status is 0 for "ok" alone. SIGINT and SIGTERM end it after the upgrade at hand; what was seen by then is judged and "unfinished".
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pathlib
import runpy
import shutil
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "hosts")]

import hosts
from soak import verdict
from support import broken, modes, releases
from support import node as nodes

OUTPUT = ROOT / "build" / "soak"
REPORT = ROOT / "build" / "soak.json"
LOOK, CHECKER, KNOWN, BEFORE = (f"/root/soak-{name}" for name in ("look.py", "checker.py", "known.json", "before.json"))
TRIAL_LENGTH_S = 900
WITHIN_S = 120
"""For whatever a host has to do by itself, on a machine that is busy with much else."""
KINDS = {kind.name: kind for kind in broken.KINDS}
TURNS = ("staged only", "crash-at-start", "exit1", "given back", "crash-at-start", "killed", "exit0-at-start")
"""How the broken ones end: by kind of release, or by what is done with a good one."""
LEFT_FOR_THE_NEXT = {"staged only", "killed"}
"""What these leave in staging goes with the next switch; the daemon's own, of a refused release, with its next start."""
IN_FLIGHT = {"trial", "trial.confirm", "trial.revert"}


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


def kind_of(number: int) -> str:
    """What upgrade `number` (from 1 on) is: every second one is good."""
    return "good" if number % 2 else TURNS[(number // 2 - 1) % len(TURNS)]


def reboot_of(number: int, every: int) -> str:
    """How the host is booted anew with upgrade `number`: in its trial, or after it, or not ("")."""
    if kind_of(number) == "good" and (number + 1) % every == 0 and (number + 1) // every % 2 == 0:
        return "in the trial"
    return "at rest" if number % every == 0 and number // every % 2 else ""


class Workshop(releases.Workshop):
    """The same commands, run within this process: two hundred starts of an interpreter are most of what a release costs."""

    def __init__(self, directory: pathlib.Path) -> None:
        sys.path[:0] = [str(ROOT / "plugins" / "module_utils"), str(ROOT / "agent" / "src")]
        self._build_main = runpy.run_path(str(ROOT / "agent" / "build.py"), run_name="build")["main"]
        super().__init__(directory, keys=1, threshold=1)

    def release_command(self, *arguments: str) -> Dict[str, Any]:
        """Run `slotward release …`; its JSON answer."""
        from slotward import release_cmd

        return dict(json.loads(self._run(release_cmd.main, [*arguments, "--json"])))

    def run_build(self, argv: List[str]) -> None:
        """Run agent/build.py."""
        self._run(self._build_main, argv)

    @staticmethod
    def _run(main: Callable[[List[str]], int], argv: List[str]) -> str:
        said, told = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            status = main(argv)
        assert status == 0, f"{' '.join(argv)}: {said.getvalue()}{told.getvalue()}"
        return said.getvalue()


class Soak:
    """One host under many upgrades."""

    def __init__(self, node: nodes.Node, shop: releases.Workshop, every: int) -> None:
        self.node, self.shop, self.every = node, shop, every
        self.version = "1.0.0"
        self.reboots = 0
        self.looks: List[verdict.Look] = []
        self.series: List[Dict[str, Any]] = []
        self.artifact = 0
        self.violations: List[str] = []
        self.known: Dict[str, Dict[str, object]] = {}
        self._ends: Dict[str, Callable[[releases.Release], str]] = {
            "given back": self._given_back,
            "staged only": self._staged_only,
            "killed": self._killed,
        }

    # -- a host ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Install the first release, and look at the host before anything was updated."""
        first = self.shop.release("1.0.0", 1)
        self.node.fresh(first, trial_length_s=TRIAL_LENGTH_S)
        self.node.host.put(ROOT / "tests" / "soak" / "look.py", LOOK, 0o644)
        self.node.host.put(ROOT / "tests" / "faults" / "checker.py", CHECKER, 0o644)
        self._confirmed(first)
        self._check()
        self.look()

    def _confirmed(self, release: releases.Release) -> None:
        """From now on the host runs it, and nothing that was not confirmed."""
        self.version = release.version
        self.known[self.shop.target(release)["sha256"]] = {"version": release.version, "sequence": release.sequence}
        self.node.host.write(KNOWN, json.dumps(self.known))

    def _check(self) -> None:
        """Have the invariants looked at, by what shares no code with the agent."""
        argv = ["python3", "-I", CHECKER, "--slots", nodes.SLOTS, "--entrypoint", nodes.ENTRYPOINT, "--known", KNOWN]
        if self.looks:
            argv += ["--before", BEFORE]
        found = self.node.host.run([*argv, "--at-rest", "--running", nodes.UNIT], check=False)
        assert found.returncode == 0, found.stdout + found.stderr + self.node.story()
        self.node.host.write(BEFORE, found.stdout)

    def look(self) -> verdict.Look:
        """See what there is in the host now."""
        watched = [nodes.UNIT, "init", "systemd-journald.service", "dbus.service"]
        if self.node.mode.name == modes.HELPER:
            watched.append(modes.HELPER_UNIT)
        seen = json.loads(self.node.host.run(["python3", "-I", LOOK, *watched]).stdout)
        self.looks.append(verdict.Look(self.reboots, seen["counts"], seen["numbers"]))
        return self.looks[-1]

    def reboot(self) -> None:
        """Boot anew, every third time after a cut; the version that ran runs again."""
        self.reboots += 1
        if self.reboots % 3 == 0:
            self.node.host.cut()
            self.node.host.boot()
        else:
            self.node.host.reboot()

    # -- one upgrade ---------------------------------------------------------------------------------------------------

    def step(self, number: int) -> Dict[str, Any]:
        """One upgrade with all that belongs to it; its row."""
        kind, began = kind_of(number), time.monotonic()
        release = self.shop.release(f"1.{number}.0", number + 1, KINDS.get(kind))
        self.artifact = max(self.artifact, release.artifact.stat().st_size)
        made = time.monotonic()
        if kind == "good":
            ended = self._good(release, reboot_of(number, self.every) == "in the trial")
        elif kind in self._ends:
            ended = self._ends[kind](release)
        else:
            ended = self._broken(release, KINDS[kind])
        took = time.monotonic() - made
        self._rests(kind)
        if reboot_of(number, self.every) == "at rest":
            self.reboot()
            self._rests(kind)
        self._tidy(release)
        numbers = dict(self.look().numbers)
        row = {
            "n": number,
            "kind": kind,
            "version": release.version,
            "ended": ended,
            "seconds": round(took, 2),
            "with_build": round(time.monotonic() - began, 2),
            "boot": self.reboots,
            "numbers": numbers,
        }
        self.series.append(row)
        return row

    def _good(self, release: releases.Release, reboots: bool) -> str:
        trial = self.node.on_trial(release)
        if reboots:
            self.reboot()
            self.node.waits(lambda: self.node.running() == release.version, WITHIN_S, f"{release.version} runs again")
        answer = self.node.confirm(trial, wait=WITHIN_S)
        assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
        self._confirmed(release)
        return "confirmed"

    def _broken(self, release: releases.Release, kind: broken.Broken) -> str:
        answer = self.node.begin(release)
        if kind.by == "look":
            assert (answer.exit, answer.code) == (3, kind.code), answer
            return "refused"
        assert answer.json["state"] == "trial", answer
        self._settled()
        last = self.node.update()["last"]
        assert last["to"] == release.version, last
        assert last["code"] in kind.trial_codes, last
        return self._went_back(last["state"], release)

    def _given_back(self, release: releases.Release) -> str:
        """An operator does not want it after all."""
        trial = self.node.on_trial(release)
        answer = self.node.slotward("rollback", "--id", trial, "--why", "soak")
        assert answer.exit == 0, answer
        return self._went_back(answer.json["state"], release)

    def _went_back(self, state: str, release: releases.Release) -> str:
        """How it ended; a good version that was not seen to run in time is a violation, and no reason to end a long run."""
        assert state in ("rolled-back", "rollback-failed"), state
        if state != "rolled-back":
            self.violations.append(f"{release.version} went back, and {self.version} was not seen to run in time")
        return state

    def _upgrade_line(self, release: releases.Release) -> List[str]:
        target, src = self.node.target(release), self.node.put(release.artifact)
        return ["upgrade", "--target", target, "--src", src]

    def _staged_only(self, release: releases.Release) -> str:
        """It is fetched, and nobody ever asks for it again."""
        answer = self.node.slotward(*self._upgrade_line(release), "--stage-only")
        assert answer.json["state"] == "staged", answer
        return "staged"

    def _killed(self, release: releases.Release) -> str:
        """Everything that works at it is killed before the switch, wherever it is."""
        trial = nodes.trial_id()
        unit = f"slotward-upgrade-slotward-{trial}.service"
        line = " ".join(["slotward", *self._upgrade_line(release), "--no-wait", "--id", trial])
        script = (
            f"{line} >/dev/null 2>&1 & for _ in $(seq 200); do systemctl is-active -q {unit} && break; sleep 0.01; done; "
            f"systemctl kill -s KILL {unit}; wait; readlink {nodes.SLOTS}/current {nodes.SLOTS}/good"
        )
        current, good = self.node.sh(script).split()[-2:]
        assert current == good, self.node.story()
        return "killed"

    def _settled(self) -> None:
        """Nothing is in flight, and the version that was confirmed last runs."""
        quiet = f"systemctl is-active {nodes.TIMER}"
        self.node.waits(lambda: not self.node.names() & IN_FLIGHT, WITHIN_S, "no trial is left")
        self.node.waits(lambda: self.node.running() == self.version, WITHIN_S, f"{self.version} runs")
        self.node.waits(lambda: self.node.sh(quiet, check=False) != "active", WITHIN_S, "the timer has stopped")

    def _rests(self, kind: str) -> None:
        """All is as before the first update, but for what this kind leaves to the next; and the invariants hold."""
        self._settled()
        if kind not in LEFT_FOR_THE_NEXT and not (
            self.node.mode.section and kind in KINDS and KINDS[kind].by == "look"
        ):
            staged = f"find {nodes.STAGING} -mindepth 1 2>/dev/null"
            self.node.waits(lambda: self.node.sh(staged, check=False) == "", WITHIN_S, "nothing is staged")
            self.node.at_rest()
        self._check()

    def _tidy(self, release: releases.Release) -> None:
        """What the soak itself made of the release goes away."""
        self.node.sh(f"rm -rf {nodes.BOX}/*")
        shutil.rmtree(release.directory)
        shutil.rmtree(self.shop.directory / "builds")

    # -- all of them ---------------------------------------------------------------------------------------------------

    def report(self, verdict_word: str, violations: Sequence[str], began: float, **more: object) -> Dict[str, Any]:
        """What is written."""
        ended: Dict[str, int] = {}
        for row in self.series:
            ended[row["ended"]] = ended.get(row["ended"], 0) + 1
        return {
            "upgrades": len(self.series),
            **more,
            "reboots": self.reboots,
            "seconds": round(time.monotonic() - began),
            "ended": ended,
            "looks": len(self.looks),
            "verdict": verdict_word,
            "violations": list(violations),
            "series": self.series,
        }


def write(report: Dict[str, Any]) -> None:
    """Put the report at its place in one step."""
    REPORT.parent.mkdir(exist_ok=True)
    fresh = REPORT.with_suffix(".new")
    fresh.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    fresh.replace(REPORT)


def told(row: Dict[str, Any], upgrades: int, mode: str) -> str:
    """A line for one upgrade."""
    numbers = row["numbers"]
    unit = nodes.UNIT
    line = (
        f"{row['n']:4}/{upgrades} {row['kind']:14} {row['ended']:11} {row['seconds']:6.1f} s  boot {row['boot']}  "
        f"node {numbers[f'memory of {unit}']} KiB, {numbers[f'descriptors of {unit}']} descriptors"
    )
    if mode == modes.HELPER:
        line += f"  helper {numbers[f'memory of {modes.HELPER_UNIT}']} KiB"
    slots, audit = numbers["disk /opt/slotward"] >> 10, numbers["audit bytes"] >> 10
    return f"{line}  slots {slots} KiB, audit {audit} KiB  {numbers['processes']} processes, {numbers['units']} units"


def arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrades", type=int, default=200)
    parser.add_argument("--mode", choices=modes.MODES, default=modes.ROOT)
    parser.add_argument("--suite", choices=hosts.SUITES, default="bookworm")
    parser.add_argument("--every", type=int, default=20, help="upgrades between two boots (an even number)")
    found = parser.parse_args(argv)
    least = verdict.WARM_UP + verdict.LEAST - 1
    if found.upgrades < least:
        parser.error(f"--upgrades {found.upgrades} is too few to judge: at least {least}")
    if found.every < 2 or found.every % 2:
        parser.error(f"--every {found.every} is no even number from 2 on")
    return found


class Stop:
    """Whether somebody asked for the end."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, *_words: object) -> None:
        self.asked = True
        say("soak: ending after the upgrade at hand")


def run(args: argparse.Namespace) -> int:
    """Upgrade, look and judge; 0 when nothing was left behind."""
    stop, began = Stop(), time.monotonic()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    more = {"mode": args.mode, "suite": args.suite, "asked": args.upgrades}
    with hosts.Run() as machines:
        shop = Workshop(OUTPUT)
        soak = Soak(nodes.Node(machines.up("soak", args.suite), shop, args.mode), shop, args.every)
        soak.begin()
        try:
            for number in range(1, args.upgrades + 1):
                say(told(soak.step(number), args.upgrades, args.mode))
                write(soak.report("unfinished", [], began, **more))
                if stop.asked:
                    break
        except (AssertionError, hosts.HostError) as error:
            soak.violations.append(f"upgrade {len(soak.series) + 1} ({kind_of(len(soak.series) + 1)}): {error}")
        finally:
            soak.node.close()
    violations = [*soak.violations, *verdict.judge(soak.looks, soak.artifact)]
    done = len(soak.series) == args.upgrades
    word = "violations" if violations else "ok" if done else "unfinished"
    report = soak.report(word, violations, began, **more)
    write(report)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    say("\n".join(f"soak: {line}" for line in violations) or "soak: nothing was left behind, memory flat, disk bounded")
    say(f"soak: {word} after {report['upgrades']} upgrades and {soak.reboots} boots in {report['seconds']} s: {REPORT}")
    return 0 if word == "ok" else 1


def main() -> int:
    """Check the command line and the machine, then run."""
    args = arguments()
    if os.geteuid() != 0:
        print("make soak boots a systemd host: run it as root", file=sys.stderr)
        return 1
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
