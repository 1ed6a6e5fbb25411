# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo`: three real systemd hosts, installed and upgraded over SSH by the collection's own playbooks.

1. keys (two of three must sign), releases 1.0.0, 1.1.0 and a 1.2.0 that crashes at start;
2. 1.0.0 is installed on all; 3. all go to 1.1.0 in two waves;
4. 1.2.0 is tried: the first host goes back by itself, the rollout stops, the others are never touched;
5. going back to 1.0.0 is tried: the release floor refuses it.

Ends with one table and `build/demo/report.json`; the exit status is not 0 if anything ended otherwise than told here.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "hosts")]

HOSTS = (("web1", "bookworm"), ("web2", "bullseye"), ("web3", "trixie"))
OUTPUT = ROOT / "build" / "demo"
TRIAL_LENGTH_S = 60
SETTLE_S = 3
UPGRADE = "slotward.fleet.upgrade"


Ends = Dict[str, Tuple[str, str]]


class Step(NamedTuple):
    """What one step has to end in, for each host: state and code."""

    name: str
    told: str
    ends: Ends
    fails: bool


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


def expected() -> List[Step]:
    """The whole demonstration, as told at the top."""
    names = [name for name, _suite in HOSTS]
    untouched = dict.fromkeys(names[1:], ("untouched", "-"))
    return [
        Step("install 1.0.0", "install the agent", dict.fromkeys(names, ("installed", "ok")), False),
        Step("upgrade 1.1.0", "two waves, each host confirms", dict.fromkeys(names, ("confirmed", "ok")), False),
        Step(
            "upgrade 1.2.0",
            "a release that crashes at start",
            {names[0]: ("rolled-back", "crash-loop"), **untouched},
            True,
        ),
        Step("back to 1.0.0", "an older release", dict.fromkeys(names, ("refused", "below-floor")), True),
    ]


class Demo:
    """The hosts, the releases and what came of each step."""

    def __init__(self, run: Any) -> None:
        from support import plays, releases

        self.run = run
        self.workshop = releases.Workshop(OUTPUT / "work")
        self.releases: Dict[str, releases.Release] = {}
        self.hosts: Dict[str, Any] = {}
        self.report: Dict[str, List[Dict[str, Any]]] = {name: [] for name, _suite in HOSTS}
        self.wrong: List[str] = []
        self._plays = plays

    def make_releases(self) -> None:
        """Three keys, three releases, each signed by two."""
        from support import broken

        crash = broken.named("crash-at-start")
        for version, sequence, kind in (("1.0.0", 1, None), ("1.1.0", 2, None), ("1.2.0", 3, crash)):
            self.releases[version] = self.workshop.release(version, sequence, kind)
            say(
                f"  release {version}, sequence {sequence}, signed by 2 of 3 keys{'' if kind is None else ' (crashes at start)'}"
            )

    def boot(self) -> None:
        """Boot the hosts and write the inventory."""
        from concurrent import futures

        def up(name: str, suite: str) -> None:
            self.hosts[name] = self.run.up(name, suite)
            say(f"  {name} is up: Debian {suite}, {self.hosts[name].address}")

        with futures.ThreadPoolExecutor(len(HOSTS)) as pool:
            for done in [pool.submit(up, name, suite) for name, suite in HOSTS]:
                done.result()
        self.controller = self._plays.Controller(OUTPUT / "controller", self.run.inventory())

    def node(self, name: str) -> Dict[str, Any]:
        """What a host says of itself."""
        return dict(json.loads(self.hosts[name].run("slotward update --json").stdout))

    def main_pid(self, name: str) -> int:
        """The daemon's process."""
        return int(self.node(name)["unit"]["main_pid"])

    def install(self, step: Step) -> None:
        """The role, on all hosts at once."""
        played = self.controller.play(
            "slotward.fleet.install",
            {
                "target": "all",
                "agent_release": str(self.releases["1.0.0"].directory),
                "agent_release_pins": [key.pin for key in self.workshop.keys],
                "agent_release_threshold": 2,
                "agent_trial_length_s": TRIAL_LENGTH_S,
                "agent_settle_s": SETTLE_S,
            },
        )
        for name in self.hosts:
            if played.status != 0:
                self.note(step, name, "", "", "failed", "see-log", played.seconds)
                continue
            node = self.node(name)
            runs = node["unit"]["active"] == "active" and node["version"] == "1.0.0"
            self.note(step, name, "-", node["version"], "installed" if runs else "failed", node["code"], played.seconds)
        self.judge(step, played.status)

    def upgrade(self, step: Step, version: str, serial: List[Any]) -> None:
        """`upgrade.yml` to a release, in batches."""
        before = {name: (self.node(name)["version"], self.main_pid(name)) for name in self.hosts}
        played = self.controller.play(
            UPGRADE,
            {
                "target": "all",
                "upgrade_release": str(self.releases[version].directory),
                "upgrade_pins": [key.pin for key in self.workshop.keys],
                "upgrade_threshold": 2,
                "upgrade_push": True,
                "upgrade_serial": serial,
            },
        )
        for name, (was, pid) in before.items():
            result = played.last(name, UPGRADE)
            seconds = sum(row.seconds for row in played.rows if row.host == name and row.outcome != "skipped")
            if result is None:
                state = "untouched" if self.node(name)["version"] == was and self.main_pid(name) == pid else "changed"
                self.note(step, name, was, was, state, "-", 0.0)
                continue
            self.note(
                step, name, was, self.node(name)["version"], str(result.get("state")), str(result.get("code")), seconds
            )
        self.judge(step, played.status)

    def note(self, step: Step, name: str, was: str, now: str, state: str, code: str, seconds: float) -> None:
        """Remember what came of a step on a host, and whether it is what was told."""
        row = {"step": step.name, "from": was, "to": now, "state": state, "code": code, "seconds": round(seconds, 1)}
        self.report[name].append(row)
        if (state, code) != step.ends[name]:
            self.wrong.append(f"{step.name} on {name} ended {state} ({code}), not {' '.join(step.ends[name])}")

    def judge(self, step: Step, status: int) -> None:
        """The playbook's own exit status has to say the same."""
        if (status != 0) is not step.fails:
            self.wrong.append(f"{step.name}: ansible-playbook ended with {status}")

    def versions_at_the_end(self) -> None:
        """Every host runs 1.1.0, with nothing pending."""
        for name in self.hosts:
            node = self.node(name)
            if (node["version"], node["floor"], node["trial"], node["unit"]["active"]) != ("1.1.0", 2, None, "active"):
                self.wrong.append(f"{name} ends on {node['version']}, floor {node['floor']}, {node['unit']['active']}")

    def table(self) -> str:
        """Hosts and steps."""
        rows = [("host", "step", "from", "now", "state", "code", "seconds")]
        rows += [
            (name, row["step"], row["from"], row["to"], row["state"], row["code"], f"{row['seconds']:.1f}")
            for name, steps in self.report.items()
            for row in steps
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def missing() -> str:
    """What keeps the demonstration from running, "" when nothing does."""
    if os.geteuid() != 0:
        return "make demo boots systemd hosts: run it as root"
    from support import plays

    return "" if plays.ansible_is_here() else "run it as `make demo`, which sets up what it needs"


def perform(demo: Demo) -> None:
    """All steps in order; a step that fails does not keep the later ones from telling."""
    say("1. releases")
    demo.make_releases()
    say("2. hosts")
    demo.boot()
    install, good, bad, older = expected()
    acts: List[Tuple[Step, Callable[[], None]]] = [
        (install, lambda: demo.install(install)),
        (good, lambda: demo.upgrade(good, "1.1.0", [1, "100%"])),
        (bad, lambda: demo.upgrade(bad, "1.2.0", [1, "100%"])),
        (older, lambda: demo.upgrade(older, "1.0.0", ["100%"])),
    ]
    for number, (step, act) in enumerate(acts, start=3):
        say(f"{number}. {step.name}: {step.told}")
        act()
    demo.versions_at_the_end()


def main() -> int:
    """Run it; 0 when all ended as told."""
    why = missing()
    if why:
        print(why, file=sys.stderr)
        return 1
    import hosts

    keep = os.environ.get("KEEP", "") not in ("", "0")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    began = time.monotonic()
    run = hosts.Run("demo" if keep else None, owner=None if keep else -1)
    try:
        demo = Demo(run)
        perform(demo)
    finally:
        if not keep:
            run.close()
    text = json.dumps({"hosts": demo.report, "ok": not demo.wrong}, indent=2)
    (OUTPUT / "report.json").write_text(text + "\n", encoding="utf-8")
    say("")
    say(demo.table())
    say("")
    for line in demo.wrong:
        say(f"not as told: {line}")
    say(
        f"{'all ended as told' if not demo.wrong else 'FAILED'}, {time.monotonic() - began:.0f} s; build/demo/report.json has the same"
    )
    if keep:
        say(
            "the hosts are kept: tests/hosts/hostctl --run demo ssh web1; remove them by tests/hosts/hostctl --run demo down --all"
        )
    return 1 if demo.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
