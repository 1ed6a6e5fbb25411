# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for faults: the real agent and guard, at their real paths, on a disk in memory, in a mount namespace of their own.

Rules:
- This process must be alone in its mount namespace (`unshare --mount`): nothing that is mounted here is seen outside.
- The disk is an ext4 image in memory, since the agent takes no tmpfs for its slots; it is gone with the namespace.
- systemd is the one of `tests/agent/fakes`, which answers from files; the account, the kernel and the clock are real.
- A state is made once, by the real commands, kept as a tree, and put back before each case. What a trial's record says
  of time is moved to now.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence

from faults import checker
from support import archive

from agent import starts
from slotward.host import uptime_s

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "agent" / "fakes"
SLOTS = "/opt/slotward/slotward"
EVIDENCE = SLOTS + "/evidence"
ENTRYPOINT = "/usr/local/bin/slotward"
CONFIG = "/etc/slotward/config.toml"
STAGING = "/var/lib/slotward"
GUARD = "/usr/local/lib/slotward/guard"
UNITS = "/etc/systemd/system"
RUN = "/run/slotward-guard"
"""What the guard remembers until the next boot; each case is the first of its boot."""
PLACES = ("/opt", "/usr/local", STAGING, UNITS, "/etc/slotward")
"""What a case may change: emptied and filled again before each."""
IN_SCOPE = (SLOTS, ENTRYPOINT, STAGING, os.path.dirname(GUARD), UNITS)
"""Slots and records, staging, units and the guard's facts: a call that names something below is injected into."""
ID, OTHER_ID = "00112233445566aa", "00112233445566bb"
LENGTH_S = 600
LIMIT_S = 60
HUNG = -signal.SIGKILL
"""The status of what did not end by itself."""
MOUNTS = """
set -e
mount -t tmpfs -o mode=755 none "$1"
truncate -s 192M "$1/disk"
mkfs.ext4 -q -F -O ^has_journal -E nodiscard "$1/disk"
mkdir "$1/host"
mount -o loop,noatime "$1/disk" "$1/host"
cd "$1/host"
rmdir lost+found
cp -a /etc etc
rm -rf etc/systemd/system etc/slotward
mkdir -p etc/systemd/system etc/slotward opt local lib/slotward run/systemd/system "$1/states" "$1/systemd"
chmod -R go-w .
mount --bind etc /etc
mount --bind opt /opt
mount --bind lib /var/lib
mount --bind local /usr/local
mount --bind run /run
"""
PROGRAM = """#!/bin/sh
# {version}
case ${{1-}} in
version) echo "slotward {version}"; exit 0 ;;
?*) exit 2 ;;
esac
while :; do sleep 1000; done
"""
SHOWN = """LoadState=loaded
ActiveState=active
SubState=running
Result=success
Job=
Restart=always
NRestarts={restarts}
UnitFileState=enabled
NeedDaemonReload=no
MainPID={pid}
Wants=slotward-guard@slotward.service
After=slotward-guard@slotward.service
OnFailure=slotward-rollback@slotward.service
ActiveExitTimestampMonotonic=0
InactiveExitTimestampMonotonic=950000100
ExecMainStartTimestampMonotonic=950000000
ExecMainExitTimestampMonotonic=0
"""
HOOK = """
[ ! -f "$FAKE_SYSTEMD/show-${*##*-- }" ] || { cat "$FAKE_SYSTEMD/show-${*##*-- }"; exit 0; }
block=$(cat "$FAKE_SYSTEMD/unit") named= said=
for word in "$@"; do
    [ -z "$named" ] || printf '%sId=%s\\n%s\\n' "$said" "$word" "$block"
    [ -z "$named" ] || said='
'
    [ "$word" != -- ] || named=yes
done
exit 0
"""
"""Of `systemctl show`: a block for each unit that it is asked about; of a transient one, how it ended."""


class Ran(NamedTuple):
    """How a command ended, and the last of what it said."""

    status: int
    said: str

    @property
    def answer(self) -> Dict[str, Any]:
        """The JSON object that it printed, {} when it printed none."""
        for line in self.said.splitlines():
            if line.startswith("{"):
                try:
                    return dict(json.loads(line))
                except ValueError:
                    continue
        return {}


VERSIONS = ("1.0.0", "1.1.0", "1.2.0")


class Releases(NamedTuple):
    """Signed releases of a few lines, sequences 1 to 3, and the built agent that all is done with."""

    directory: pathlib.Path
    pins: str
    threshold: int

    def path(self, version: str, kind: str) -> str:
        """The file of a release: `program`, `target` or `manifest`."""
        return str(self.directory / f"{version}.{kind}")


def make_releases(directory: pathlib.Path) -> Releases:
    """Sign the releases, and build the agent."""
    directory.mkdir(parents=True)
    shop = starts.Shop(directory / "shop")
    for sequence, version in enumerate(VERSIONS, 1):
        signed = shop.release(version, sequence, PROGRAM.format(version=version))
        (directory / f"{version}.program").write_bytes(signed.program)
        (directory / f"{version}.program").chmod(0o755)
        (directory / f"{version}.target").write_bytes(signed.target)
        (directory / f"{version}.manifest").write_text(json.loads(signed.target)["signature"], encoding="utf-8")
    argv = [sys.executable, str(ROOT / "agent/build.py"), "--version", "0.9.0", "--sequence", "1", "--output"]
    built = subprocess.run([*argv, str(directory)], capture_output=True, text=True, check=True).stdout.strip()
    (directory / "agent").write_bytes(archive.compiled(pathlib.Path(built).read_bytes()))
    (directory / "agent").chmod(0o755)
    os.unlink(built)
    (directory / "trust.json").write_text(json.dumps([shop.pins, shop.threshold]), encoding="ascii")
    return read_releases(directory)


def read_releases(directory: pathlib.Path) -> Releases:
    """What `make_releases` has left there."""
    return Releases(directory, *json.loads((directory / "trust.json").read_text(encoding="ascii")))


def digest(path: pathlib.Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def timeless(data: bytes, now: int, left_s: int) -> bytes:
    """A record or log of a trial with the seconds of a case as words: its deadline as given, now, a trial's length from now."""

    def word(found: re.Match[bytes]) -> bytes:
        after = int(found.group()) - now
        if after == left_s:
            return b"given"
        moments = ((0, b"now"), (LENGTH_S, b"then"))
        return next((name for begin, name in moments if begin <= after <= begin + LIMIT_S), found.group())

    return re.sub(rb"(?<![\w.])\d+(?![\w.])", word, data)


def ended(data: bytes) -> bytes:
    """Who holds the lock or tells progress, as a word: a process that is over, and since when."""
    return re.sub(rb'\b(pid=|since=|pid": )[\d.]+', rb"\1gone", data)


def gathered(data: bytes) -> bytes:
    """Evidence without what the machine is like at the moment; what is none, as it is."""
    try:
        found = json.loads(data)
        return json.dumps({**found, "environment": sorted(found["environment"])}).encode()
    except (ValueError, KeyError, TypeError):
        return data


def copy_tree(source: str, target: str) -> None:
    """Copy a directory into one that may be there, with modes and owners."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    for place, _directories, files in os.walk(source):
        for path in (place, *(os.path.join(place, name) for name in files)):
            found = os.lstat(path)
            if found.st_uid or found.st_gid:
                os.lchown(target + path[len(source) :], found.st_uid, found.st_gid)


class Host:
    """The one host of this process."""

    def __init__(self, top: pathlib.Path, releases: Releases) -> None:
        self.top, self.releases = top, releases
        subprocess.run(["sh", "-c", MOUNTS, "mounts", str(top)], check=True)
        self.systemd, self.states = top / "systemd", top / "states"
        (self.systemd / "hook-show").write_text(HOOK)
        (self.systemd / "say-").write_text("systemd 252 (252)\n")  # to --version
        self.known = {
            digest(pathlib.Path(releases.path(version, "program"))): {"version": version, "sequence": number}
            for number, version in enumerate(VERSIONS, 1)
        }
        self.runs: Optional[subprocess.Popen[bytes]] = None
        self.put_at_s, self.left_s = 0, 0
        self.environment = {
            "PATH": f"{FAKES}:/usr/sbin:/usr/bin:/sbin:/bin",
            "FAKE_SYSTEMD": str(self.systemd),
            "LC_ALL": "C",
            "PYTHONHASHSEED": "0",
            "SLOTWARD_WHO": "test",
        }
        self.run_agent: Callable[..., Ran]
        """Runs the agent to its end; set by who has it."""
        self.show(0)

    # -- systemd and the daemon ----------------------------------------------------------------------------------

    def show(self, pid: int, **changes: object) -> None:
        """What systemd says of every unit."""
        text = SHOWN.format(pid=pid, restarts=0)
        for key, value in changes.items():
            text = re.sub(rf"(?m)^{key}=.*$", f"{key}={value}", text)
        (self.systemd / "unit").write_text(text)

    def starts_current(self) -> None:
        """The unit's main process is what `current` names."""
        self.ends()
        program = f"{SLOTS}/{os.readlink(f'{SLOTS}/current')}"
        self.runs = subprocess.Popen([program], start_new_session=True, stdout=subprocess.DEVNULL)
        self.show(self.runs.pid)

    def ends(self) -> None:
        """No process of the unit is left."""
        if self.runs is not None:
            os.killpg(self.runs.pid, signal.SIGKILL)
            self.runs.wait()
            self.runs = None
            self.show(0)

    # -- running -------------------------------------------------------------------------------------------------

    def run(self, argv: Sequence[str]) -> Ran:
        """Run it to its end."""
        process = subprocess.Popen(
            list(argv), env=self.environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            said, _none = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _none = process.communicate()
            return Ran(HUNG, said[-4000:])
        return Ran(process.returncode, said[-4000:])

    def must(self, *words: str, given: str = "") -> None:
        """Run the agent where nothing may go wrong."""
        done = self.run_agent(*words, given=given)
        if done.status != 0:
            raise AssertionError(f"{' '.join(words)} ended with {done.status}: {done.said}")

    # -- states --------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """As an empty disk, with a configuration."""
        self.ends()
        for place in PLACES:
            for entry in os.scandir(place):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
        os.chmod(STAGING, 0o755)
        os.chown(STAGING, 0, 0)
        shutil.rmtree(RUN, ignore_errors=True)
        (self.systemd / "calls").write_text("")
        for path in self.systemd.glob("show-*"):
            path.unlink()
        for name in ("bin", "lib"):
            os.mkdir(f"/usr/local/{name}", 0o755)
        self.configure()

    def configure(self, section: str = "") -> None:
        """Write the configuration, with the section of its mode."""
        text = f'[update]\nrelease_pins = "{self.releases.pins}"\nrelease_threshold = {self.releases.threshold}\n'
        text += f"settle_s = 0\ntrial_length_s = {LENGTH_S}\n{section}"
        pathlib.Path(CONFIG).write_text(text, encoding="ascii")
        os.chmod(CONFIG, 0o600)

    def keep(self, name: str) -> None:
        """Keep the state as it is now."""
        for number, place in enumerate(PLACES):
            copy_tree(place, str(self.states / name / str(number)))

    def put(self, name: str, left_s: int = LENGTH_S - 5) -> None:
        """Put a kept state back; a trial's record is of this boot, with that time left."""
        self.clear()
        for number, place in enumerate(PLACES):
            copy_tree(str(self.states / name / str(number)), place)
        self.put_at_s, self.left_s = int(uptime_s()), left_s
        self.move_deadline(left_s, self.put_at_s)

    def move_deadline(self, left_s: int, now: Optional[int] = None) -> None:
        """Have the trial's record say that so much time is left."""
        deadline_s = (int(uptime_s()) if now is None else now) + left_s
        for one in ("trial", "trial.confirm", "trial.revert"):
            path = pathlib.Path(SLOTS, one)
            if path.exists():
                path.write_text(re.sub(r"(?m)^DEADLINE_S=.*$", f"DEADLINE_S={deadline_s}", path.read_text("ascii")))

    def fingerprint(self) -> str:
        """The digest of all that what comes next depends on: every file of the host, with mode and owner, and systemd's answers.

        What names this case alone, its moments and its processes, which are gone, counts as what that is to it.
        """
        total = hashlib.sha256((self.systemd / "unit").read_bytes() if self.runs is None else b"runs")
        for top in (*PLACES, RUN):
            for place, directories, files in os.walk(top):
                directories.sort()
                for path in (place, *(os.path.join(place, name) for name in sorted(files + directories))):
                    seen = os.lstat(path)
                    text = f"{path} {seen.st_mode:o} {seen.st_uid}:{seen.st_gid} ".encode()
                    if stat.S_ISLNK(seen.st_mode):
                        text += os.readlink(path).encode()
                    elif stat.S_ISREG(seen.st_mode):
                        text += self._as_words(path, pathlib.Path(path).read_bytes())
                    total.update(hashlib.sha256(text).digest())
        return total.hexdigest()

    def _as_words(self, path: str, data: bytes) -> bytes:
        place, name = os.path.split(path)
        if place == EVIDENCE:
            return gathered(data)
        if place != SLOTS:
            return data
        if name.startswith(("trial", ".trial")):
            return timeless(data, self.put_at_s, self.left_s)
        return ended(data) if name.startswith(("lock", "progress.json")) else data

    def has(self, name: str) -> bool:
        """Whether that state was kept."""
        return (self.states / name).is_dir()

    # -- looking -------------------------------------------------------------------------------------------------

    def look(self, before: Optional[Mapping[str, Any]] = None, **more: Any) -> Dict[str, Any]:
        """What the checker says; at rest, where no trial is pending."""
        found = checker.judge(SLOTS, ENTRYPOINT, known=self.known, before=before, **more)
        if found["state"]["trial"] is None and found["state"]["current"] is not None:
            found = checker.judge(SLOTS, ENTRYPOINT, known=self.known, before=before, at_rest=True, **more)
        return found

    def summary(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        """What two ends of the same job have in common, whichever slot it took and however it got there."""
        pending = state["trial"]
        by_slot = {}
        for slot in ("a", "b"):
            path = pathlib.Path(SLOTS, slot)
            if path.is_file():
                known = self.known.get(digest(path), {})
                by_slot[slot] = known.get("version", "unknown")
        last = state["last"] if pending is None else None
        return {
            "current": by_slot.get(state["current"]),
            "good": by_slot.get(state["good"]),
            "trial": pending["to_version"] if isinstance(pending, dict) else pending,
            "floor": state["floor"],
            "failed": sorted(state["failed"]),
            "last": last["state"] if last else None,
            "system": self.system_files(),
        }

    def system_files(self) -> Dict[str, str]:
        """The units, the guard and its facts, and the directories of all: what they are, with mode and owner."""
        found = {}
        for top in (UNITS, os.path.dirname(GUARD), os.path.dirname(ENTRYPOINT), SLOTS, STAGING):
            for place, _directories, files in os.walk(top):
                seen = os.lstat(place)
                found[place] = f"{stat.S_IMODE(seen.st_mode):04o} {seen.st_uid}:{seen.st_gid}"
                for name in files if top not in (SLOTS, STAGING) else ():
                    path = os.path.join(place, name)
                    if os.path.islink(path):
                        found[path] = "-> " + os.readlink(path)
                    else:
                        found[path] = f"{stat.S_IMODE(os.lstat(path).st_mode):04o} {digest(pathlib.Path(path))}"
        return found
