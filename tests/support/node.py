# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent on a real test host: installed anew in about two seconds, asked by its own commands, and looked at from outside.

- What a test asserts comes from the agent's answers, from systemd, or from the files that docs/design/node.md describes.
- `fresh` leaves nothing of the test before: units, slots, records, configuration and staging are made again.
- In helper and start mode an update goes the daemon's way (`slotward ask`, confirmed by the gateway), but for one with flags that
  only an operator has: that goes root's way, which works in every mode.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import hosts

from support import modes, releases, server

SLOTS = "/opt/slotward/slotward"
STAGING = "/var/lib/slotward/staging"
CONFIG = "/etc/slotward/config.toml"
ENTRYPOINT = "/usr/local/bin/slotward"
UNIT = "slotward.service"
TIMER = "slotward-deadline@slotward.timer"
GUARD_UNITS = ("slotward-guard@slotward", "slotward-rollback@slotward", "slotward-deadline@slotward")
SUITES = hosts.SUITES
BOX = "/var/tmp/e2e"
COPIES = {"slots.json.copy", "update.json.copy", "trust.json.copy"}
AT_REST = {
    "a",
    "b",
    "current",
    "good",
    "lock",
    "slots.json",
    "update.json",
    "trust.json",
    "audit.log",
    "progress.json",
    "evidence",
} | COPIES
DEFAULTS: Mapping[str, object] = {"trial_length_s": 60, "settle_s": 1}
"""Long enough for whatever a test does in a trial, on a busy machine too; who waits for a deadline sets a shorter one."""
MODE_OF_HOST = "/var/tmp/e2e-mode"
CLEAR = f"""
systemctl stop {UNIT} {TIMER} 'slotward-*' 2>/dev/null
rm -rf {SLOTS} /var/lib/slotward /etc/slotward {ENTRYPOINT} {BOX}
mkdir -p {BOX} /etc/slotward
"""
LIGHT = f"""{CLEAR}
if rm -v /etc/systemd/system/slotward*.d/9* 2>/dev/null | grep -q .; then systemctl daemon-reload; fi
systemctl reset-failed
true
"""
WIPE = f"""{CLEAR}
systemctl disable -q {UNIT} {TIMER} 2>/dev/null
rm -rf /usr/local/lib/slotward {MODE_OF_HOST}
rm -rf /etc/systemd/system/slotward* /run/systemd/system/slotward* /etc/systemd/system/*.wants/slotward*
systemctl daemon-reload
systemctl reset-failed
userdel {modes.ACCOUNT} 2>/dev/null
true
"""

_numbers = itertools.count(1)


class Answer(NamedTuple):
    """What a command answered: its exit status, its JSON object, what it wrote to standard error."""

    exit: int
    json: dict[str, Any]
    errors: str

    @property
    def code(self) -> str:
        """The answer's code."""
        return str(self.json.get("code"))

    @property
    def message(self) -> str:
        """The answer's sentence."""
        return str(self.json.get("message"))


class Unit(NamedTuple):
    """The product's unit, as systemd shows it."""

    active: str
    main_pid: int
    restarts: int
    result: str


def toml(settings: Mapping[str, object]) -> str:
    """The [update] section of a configuration."""
    lines = ["[update]"]
    for key, value in settings.items():
        shown = (
            str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else f'"{value}"'
        )
        lines.append(f"{key} = {shown}")
    return "\n".join(lines) + "\n"


def name_of(suite: str, mode: str) -> str:
    """How a test's name tells a host: root mode is not named."""
    return suite if mode == modes.ROOT else f"{suite}-{mode}"


def trial_id() -> str:
    """A trial's id that no other in this run has."""
    return f"{next(_numbers):016x}"


class Node:
    """One host with the agent on it."""

    def __init__(self, host: hosts.Host, shop: releases.Workshop, mode: str = modes.ROOT) -> None:
        self.host = host
        self.shop = shop
        self.mode = modes.ALL[mode]
        self._since = ""
        self._files: server.FileServer | None = None
        self.damaged = False
        """Set by a test that leaves records damaged on purpose: its end is then not looked at."""

    def sh(self, script: str, check: bool = True, timeout: float = 60) -> str:
        """Run a script in the host and give what it wrote."""
        return self.host.run(script, check=check, timeout=timeout).stdout.strip()

    # -- setting up ---------------------------------------------------------------------------------------------

    def wipe(self, units: bool = True) -> None:
        """Boot the host if a test left it down, and remove all that is ours; the units only when told to."""
        self.host.boot()
        self.sh(WIPE if units else LIGHT)
        self._since = self.cursor()
        self.damaged = False

    @property
    def staging(self) -> str:
        """Where an operator's commands stage."""
        return f"{SLOTS}/staging" if self.mode.section else STAGING

    @property
    def setup_flags(self) -> tuple[str, ...]:
        """Flags of setup for this mode: /usr/local is its group's to write on older Debian."""
        return ("--fix-directories",) if self.mode.section else ()

    def close(self) -> None:
        """Stop serving files."""
        if self._files is not None:
            self._files.__exit__(None, None, None)
            self._files = None

    def configure(self, **settings: object) -> None:
        """Write the configuration: our pins and test times, and `settings` over them; None leaves a key out."""
        found: dict[str, object] = {"release_pins": self.shop.pins, "release_threshold": self.shop.threshold}
        found.update(DEFAULTS)
        found.update(self.mode.settings)
        found.update(settings)
        text = toml({key: value for key, value in found.items() if value is not None}) + self.mode.section
        self.host.write(CONFIG, text, 0o600)
        if self.mode.section:  # as setup leaves it, once there is the account
            self.sh(f"if getent group {modes.ACCOUNT}; then chgrp {modes.ACCOUNT} {CONFIG} && chmod 0640 {CONFIG}; fi")

    def fresh(self, release: releases.Release, mode: str | None = None, **settings: object) -> None:
        """A host on which `release` was installed by hand and runs, and nothing else ever happened; in `mode`, or in its own."""
        self.mode = modes.ALL[self.mode.name if mode is None else mode]
        before = self.host.run(f"cat {MODE_OF_HOST}", check=False).stdout if self.host.running else ""
        self.wipe(units=before != self.mode.name)  # setup writes again whatever a test has changed of them
        self.configure(**settings)
        self.setup(release)
        self.enable()
        self.host.write(MODE_OF_HOST, self.mode.name)

    def setup(self, release: releases.Release, *flags: str) -> Answer:
        """Run `slotward setup` of the release's own artifact with its manifest."""
        program = self.put(release.artifact, 0o755)
        manifest = self.put(release.manifest, name=f"{release.version}.manifest.json")
        answer = self.command([program, "setup", "--manifest", manifest, *self.setup_flags, *flags])
        assert answer.exit == 0, answer
        return answer

    def enable(self) -> None:
        """Start the unit, and at every boot."""
        self.sh(f"systemctl enable -q --now {UNIT}")

    def put(self, file: pathlib.Path, mode: int = 0o644, name: str = "") -> str:
        """Push a file; its path on the host."""
        path = f"{BOX}/{name or file.name}"
        self.host.put(file, path, mode)
        return path

    def target(self, release: releases.Release, url: str = "https://releases.invalid/none", **fields: str) -> str:
        """Push the target of `release`, with `fields` in place of its own; its path on the host."""
        path = f"{BOX}/target-{release.version}.json"
        self.host.write(path, json.dumps({**self.shop.target(release, url), **fields}))
        return path

    def drop_in(self, text: str, unit: str = UNIT, name: str = "90-test.conf") -> None:
        """Give a unit a drop-in."""
        self.host.write(f"/etc/systemd/system/{unit}.d/{name}", text)
        self.sh("systemctl daemon-reload")

    # -- commands ------------------------------------------------------------------------------------------------

    def command(self, argv: Sequence[str], timeout: float = 120) -> Answer:
        """Run a command of the agent with --json; its answer."""
        done = self.host.run([*argv, "--json"], check=False, timeout=timeout)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(
                f"{shlex.join(argv)}: status {done.returncode}, no JSON: {done.stdout}{done.stderr}"
            ) from None
        return Answer(done.returncode, answer, done.stderr)

    def slotward(self, *arguments: str, timeout: float = 120) -> Answer:
        """Run `slotward …` as an operator does."""
        return self.command(["slotward", *arguments], timeout)

    def served(self, release: releases.Release) -> str:
        """Where this machine serves the release's artifact to the host."""
        if self._files is None:
            self._files = server.FileServer(self.host.controller_address).__enter__()
        return self._files.url(release.artifact)

    def begin(self, release: releases.Release, *flags: str, trial: str = "") -> Answer:
        """Upgrade to `release`, without waiting for the trial's end: by the daemon, or with flags as an operator does."""
        trial = trial or trial_id()
        if self.mode.section and not flags:
            target = self.target(release, self.served(release))
            return self.slotward("ask", "upgrade", "--target", target, "--no-wait", "--id", trial)
        argv = ["upgrade", "--target", self.target(release), "--src", self.put(release.artifact), "--no-wait"]
        return self.slotward(*argv, "--id", trial, *flags)

    def on_trial(self, release: releases.Release, *flags: str) -> str:
        """Begin a trial, which must succeed; its id."""
        answer = self.begin(release, *flags)
        assert (answer.exit, answer.json["state"], answer.code) == (0, "trial", "not-confirmed"), answer
        return str(answer.json["trial"]["id"])

    def confirm(self, trial: str, wait: float = 15) -> Answer:
        """Confirm a trial: by the daemon, in the modes in which it is not root."""
        way = ("ask", "confirm") if self.mode.section else ("confirm",)
        return self.slotward(*way, "--id", trial, "--wait", f"{wait:g}")

    def confirm_line(self, trial: str, wait: float = 15) -> tuple[str, ...]:
        """What an operator types to confirm, in any mode."""
        source = ("--source", "gateway") if self.mode.section else ()
        return ("confirm", *source, "--id", trial, "--wait", f"{wait:g}")

    def upgraded(self, release: releases.Release, *flags: str) -> Answer:
        """Upgrade and confirm, which must succeed; the confirmation's answer."""
        answer = self.confirm(self.on_trial(release, *flags))
        assert (answer.exit, answer.json["state"], answer.code) == (0, "confirmed", "ok"), answer
        return answer

    def update(self) -> dict[str, Any]:
        """The host's state by `slotward update`."""
        answer = self.slotward("update")
        assert answer.exit == 0, answer
        return answer.json

    def doctor(self) -> dict[str, tuple[str, str, str]]:
        """doctor's findings by name: state, message, what to run. Of several of one name, the first that is not ok."""
        found: dict[str, tuple[str, str, str]] = {}
        for check in self.slotward("doctor").json["checks"]:
            if check["name"] not in found or found[check["name"]][0] == "ok":
                found[check["name"]] = (check["state"], check["message"], check["run"])
        return found

    # -- looking -------------------------------------------------------------------------------------------------

    def unit(self, name: str = UNIT) -> Unit:
        """What systemd says of the unit now."""
        text = self.sh(f"systemctl show -p ActiveState,MainPID,NRestarts,Result {name}")
        shown = dict(line.partition("=")[::2] for line in text.splitlines())
        return Unit(shown["ActiveState"], int(shown["MainPID"]), int(shown["NRestarts"]), shown["Result"])

    def link(self, name: str) -> str:
        """Where a link of the slots directory points; "" when it is not there."""
        return self.sh(f"readlink {SLOTS}/{name}", check=False)

    def names(self) -> set[str]:
        """The names in the slots directory."""
        return set(self.sh(f"ls -A {SLOTS}").splitlines())

    def running(self) -> str:
        """The version that the daemon itself says it runs, by its status socket; "" when nothing answers."""
        script = (
            "import json,socket; s=socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect('/run/slotward/status.sock');"
            "print(json.loads(s.makefile().read())['running']['version'])"
        )
        return self.sh(f'python3 -c "{script}"', check=False)

    def helper_slot(self) -> str:
        """The slot whose bytes the helper's main process has open; "" when there is none."""
        pid = self.unit(modes.HELPER_UNIT).main_pid
        shown = self.sh(f"readlink /proc/{pid}/fd/* 2>/dev/null | grep -x '{SLOTS}/[ab]' | sort -u", check=False)
        return shown.removeprefix(f"{SLOTS}/")

    def runnable(self) -> None:
        """I1: the entrypoint resolves to a complete program whose bytes are those of the slot's record, and it runs."""
        while True:
            slot = self.link("current")
            self.sh(f"test -x {ENTRYPOINT}")
            record = json.loads(self.host.read(f"{SLOTS}/slots.json"))["slots"][slot]
            found = self.sh(f"sha256sum <{ENTRYPOINT}").split()[0], self.sh("slotward version")
            if self.link("current") == slot:  # else a trial has ended between two looks: look again
                break
        assert found == (record["sha256"], f"slotward {record['version']}")

    def guard_log(self) -> str:
        """What the guard said, in every boot since `wipe`."""
        units = " ".join(f"-u {unit}.service" for unit in GUARD_UNITS)
        return self.said(f"-o cat {units}")

    def said(self, selection: str) -> str:
        """The journal since `wipe`, as journalctl selects it."""
        return self.sh(f"journalctl -q --no-pager --after-cursor='{self._since}' {selection}", check=False)

    def cursor(self) -> str:
        """The journal's end now."""
        return self.sh("journalctl --sync; journalctl -n 1 --show-cursor -q").rpartition("cursor: ")[2]

    def waits(self, what: Callable[[], bool], within: float, said: str) -> float:
        """Wait until `what` holds; how long it took."""
        began = time.monotonic()
        while not what():
            if time.monotonic() - began > within:
                raise AssertionError(f"{said}: not within {within:g} s\n{self.story()}")
            time.sleep(0.1)
        return time.monotonic() - began

    def goes_back(self, codes: Sequence[str], within: float, to: str = "1.0.0", stops_s: float = 0) -> dict[str, Any]:
        """The host comes back to the version `to` by itself, runs it, and says why; the state afterwards.

        `stops_s` is how long the other one may hold its stop up.
        """
        self.waits(lambda: self.link("current") == self.link("good"), within, "current names good again")
        self.waits(lambda: self.running() == to, 15 + stops_s, f"{to} runs again")
        self.waits(lambda: "trial.revert" not in self.names(), 15, "the end is settled")
        state = self.update()
        assert state["last"]["state"] == "rolled-back", state
        assert state["last"]["code"] in codes, state
        assert state["version"] == to, state
        assert self.unit().active == "active"
        return state

    def at_rest(self) -> None:
        """Nothing is left of any trial: no record, no temporary file, no unit of ours but the daemon."""
        self.waits(
            lambda: self.sh(f"systemctl is-active {TIMER}", check=False) != "active", 12, "the timer has stopped"
        )
        assert self.names() <= AT_REST | self.mode.names, self.story()
        self._audit_holds()
        staged = f"find {STAGING} {SLOTS}/staging -mindepth 1 2>/dev/null"
        if self.mode.section:  # the daemon tidies its own directory once it knows how its request ended
            self.waits(lambda: self.sh(staged, check=False) == "", 10, "nothing is staged")
        assert self.sh(staged, check=False) == "", self.story()
        assert self.sh("find /etc/slotward /usr/local/bin /usr/local/lib/slotward -name '*.tmp'") == ""
        if self.mode.name == modes.HELPER:
            self._helper_follows()
        gathers = "systemctl list-units --no-legend --plain 'slotward-evidence-*'"
        self.waits(lambda: self.sh(gathers) == "", 60, "whoever gathers evidence has ended")
        shown = self.sh("systemctl list-units --all --no-legend --plain --state=active,activating,failed 'slotward*'")
        units = {line.split()[0] for line in shown.splitlines()}
        assert units <= {UNIT} | self.mode.units, shown + self.story()

    def _helper_follows(self) -> None:
        """At rest the helper's link names what the daemon's does, and the helper runs those bytes."""
        self.waits(lambda: self.link("helper") == self.link("current"), 12, "helper names what current names")
        self.waits(lambda: self.helper_slot() == self.link("helper"), 12, "the helper runs what its link names")

    def _audit_holds(self) -> None:
        """The audit log's chain holds, and nothing of one trial stands in it twice; a host without the agent has none."""
        done = self.host.run("slotward audit --limit 0 --json", check=False)
        if done.returncode == 0 and '"lines"' in done.stdout:
            answer = json.loads(done.stdout)
            assert answer["broken"] is None, answer["broken"]
            told = [(line["id"], line["event"]) for line in answer["lines"] if line["id"]]
            assert len(set(told)) == len(told), told

    def story(self) -> str:
        """What happened, for a failed test."""
        units = " ".join([UNIT, TIMER, *sorted(self.mode.units)])
        return self.sh(
            f"ls -la {SLOTS} {SLOTS}/staging {STAGING} /run/slotward; cd {SLOTS} && tail -n +1 *.json trial* 2>&1;"
            f"cat {CONFIG}; systemctl status -n 0 --no-pager {units};"
            f"{self.story_of_journal()}",
            check=False,
        )

    def story_of_journal(self) -> str:
        """The command that shows the end of the journal."""
        return f"journalctl -q -o short-monotonic --no-pager --after-cursor='{self._since}' | tail -n 150"


class Machines:
    """The hosts of one session, by suite; made when they are asked for."""

    def __init__(self, run: hosts.Run) -> None:
        self.run = run
        self._made: dict[str, hosts.Host] = {}

    def of(self, suite: str) -> hosts.Host:
        """The host of a suite."""
        if suite not in self._made:
            self._made[suite] = self.run.up(suite, suite)
        return self._made[suite]
