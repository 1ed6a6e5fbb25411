# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in a mount namespace of its own: a copy of /etc, empty places for everything that setup writes, a systemd of ours.

Run as a program it moves that host between modes and tells what it saw (`test_mode_changes.py`). What systemd is asked is
answered by `Systemd`: it knows the unit files that it has read, what is enabled and what runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import types
from typing import Any, Dict, List, Sequence, Tuple

from slotcore import codes, recording, records
from slotcore import trial as trials
from slotward import accounts, cmd_setup, faults, handover, systemd, units_modes
from slotward import host as hosts

MOUNTS = """
set -e
mount -t tmpfs -o mode=755 none "$1"
cp -a /etc "$1/etc"
rm -rf "$1/etc/systemd/system" "$1/etc/tmpfiles.d" "$1/etc/slotward"
mkdir -p "$1/etc/systemd/system" "$1/etc/tmpfiles.d" "$1/opt" "$1/lib" "$1/local/bin" "$1/local/lib" "$1/run/systemd/system"
chmod -R go-w "$1"
mount --bind "$1/etc" /etc
mount --bind "$1/opt" /opt
mount --bind "$1/lib" /var/lib
mount --bind "$1/local" /usr/local
mount --bind "$1/run" /run
"""
SLOTS = pathlib.Path("/opt/slotward/slotward")
DATA = pathlib.Path("/var/lib/slotward")
CONFIG = pathlib.Path("/etc/slotward/config.toml")
ENTRYPOINT = pathlib.Path("/usr/local/bin/slotward")
UNITS = pathlib.Path("/etc/systemd/system")
PLACES = ("/etc/systemd/system", "/etc/tmpfiles.d", "/etc/slotward", "/opt", "/var/lib/slotward", "/usr/local", "/run")
SECTIONS = {"root": "", "helper": "[helper]\n", "start": "[start]\n"}
BYTES = {"a": b"#!/bin/sh\nexit 0\n", "b": b"#!/bin/sh\nexit 1\n"}
FAILED = records.Failed("1.3.0", "crash-loop", "it crashed", 9, "2" * 64, 1_700_000_000)
Snapshot = Dict[str, Tuple[int, int, int, str]]


class Systemd:
    """What there is of systemd for setup; `run` takes the place of the agent's one function that starts a program."""

    def __init__(self) -> None:
        self.read: Dict[str, bytes] = {}
        self.enabled = {"slotward.service"}
        self.active = {"slotward.service"}

    def files(self, unit: str) -> Dict[str, bytes]:
        """The files of a unit as they are now."""
        found = [UNITS / unit, *(UNITS / f"{unit}.d").glob("*.conf")]
        return {str(path): path.read_bytes() for path in found if path.exists()}

    def user(self) -> str:
        """Who a daemon that is started now runs as: by the files that were read."""
        dropin = self.read.get(units_modes.DROPIN, b"").decode()
        return next((line[5:] for line in dropin.splitlines() if line.startswith("User=")), "root")

    def shown(self, unit: str) -> str:
        """The properties of a unit."""
        read = {path: data for path, data in self.read.items() if path.startswith((str(UNITS / unit) + ".d/",))}
        if str(UNITS / unit) in self.read:
            read[str(UNITS / unit)] = self.read[str(UNITS / unit)]
        return (
            f"Id={unit}\nLoadState={'loaded' if read else 'not-found'}\n"
            f"ActiveState={'active' if unit in self.active else 'inactive'}\n"
            f"UnitFileState={'enabled' if unit in self.enabled else 'disabled' if read else ''}\n"
            f"NeedDaemonReload={'yes' if read != self.files(unit) else 'no'}\n"
        )

    def run(self, argv: Sequence[str], _timeout_s: float) -> subprocess.CompletedProcess[str]:
        """One call."""
        words = [word for word in argv[1:] if not word.startswith("--property")]
        units = words[words.index("--") + 1 :] if "--" in words else []
        if argv[0] == "systemd-tmpfiles":
            make_triggers()
        if argv[0] != "systemctl":
            return subprocess.CompletedProcess(list(argv), 0, "", "")
        out = {"--version": "systemd 252 (252)\n", "show": "\n".join(map(self.shown, units))}.get(words[0], "")
        well = self.change(words[0], units)
        return subprocess.CompletedProcess(list(argv), 0 if well else 1, out, "")

    def change(self, verb: str, units: Sequence[str]) -> bool:
        """What a verb does; whether it went well."""
        if verb == "is-enabled":
            return units[0] in self.enabled
        if verb in ("enable", "disable") and not self.files(units[0].replace("@slotward", "@")):
            return False
        if verb == "enable":
            self.enabled.update(units)
        elif verb == "start":
            self.active.update(units)
        elif verb == "disable":
            self.enabled.difference_update(units)
            self.active.difference_update(units)
        elif verb == "daemon-reload":
            self.read = {str(path): path.read_bytes() for path in UNITS.rglob("*") if path.is_file()}
        return True


def make_triggers() -> None:
    """As systemd-tmpfiles by slotward-start.conf."""
    directory = pathlib.Path(units_modes.START_DIR)
    directory.mkdir(exist_ok=True)
    account = re.search(r"^f \S+ 0600 (\S+)", pathlib.Path(units_modes.TMPFILES).read_text(), re.MULTILINE)
    for name in units_modes.START_FILES:
        (directory / name).touch(0o600)
        if account is not None:
            shutil.chown(directory / name, account.group(1))


class Cut(BaseException):
    """The power is gone."""


class Host:
    """The one host of this process."""

    def __init__(self) -> None:
        self.systemd = Systemd()
        systemd._run = self.systemd.run  # type: ignore[assignment]  # the one seam: every program that the agent starts beside useradd
        self.points: List[str] = []
        self.cut_at = -1
        faults.hit = self._hit

    def _hit(self, point: str) -> None:
        self.points.append(point)
        if len(self.points) - 1 == self.cut_at:
            raise Cut(point)

    def configure(self, mode: str, more: str = "") -> None:
        """As the role or an operator writes it: in place of the old one, with its owner and mode."""
        mode, _colon, user = mode.partition(":")
        more += f'user = "{user}"\n' if user else ""
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.touch(0o600)
        CONFIG.write_text(f"[update]\ntrial_length_s = 20\n{SECTIONS[mode]}{more}")

    def fresh(self, mode: str) -> None:
        """A host at rest in this mode: two slots, a floor, a failed version, something in data_dir, another unit's drop-in."""
        for place in PLACES[:-1]:
            for path in pathlib.Path(place).glob("*"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.rmtree(units_modes.START_DIR, ignore_errors=True)
        for path in (ENTRYPOINT.parent, ENTRYPOINT.parents[1] / "lib", SLOTS, DATA / "sub"):
            path.mkdir(parents=True, exist_ok=True)
        os.chown(DATA, 0, 0)
        DATA.chmod(0o700)
        (DATA / "identity.json").write_bytes(b"who we are")
        (DATA / "sub" / "key").write_bytes(b"secret")
        slots = {}
        for number, (name, data) in enumerate(BYTES.items(), 1):
            (SLOTS / name).write_bytes(data)
            (SLOTS / name).chmod(0o755)
            slots[name] = records.SlotRecord(f"1.{number}.0", number, hashlib.sha256(data).hexdigest(), len(data))
        update = records.Update(floor=2, failed=(FAILED,))
        for name, data in (
            (recording.SLOTS, records.render_slots(slots)),
            (recording.UPDATE, records.render_update(update)),
        ):
            (SLOTS / name).write_bytes(data)
            (SLOTS / (name + recording.COPY)).write_bytes(recording.sealed(data))
        for name in ("current", "good"):
            (SLOTS / name).symlink_to("b")
        ENTRYPOINT.symlink_to(SLOTS / "current")
        self.systemd.__init__()  # type: ignore[misc]
        self.configure(mode)
        self.setup()
        if mode.startswith("helper"):  # the role starts it
            self.systemd.change("enable", ["slotward-helper.service"])
            self.systemd.change("start", ["slotward-helper.service"])

    def setup(self, **flags: object) -> Dict[str, Any]:
        """`slotward setup`; its answer."""
        args: Dict[str, object] = {
            "config": str(CONFIG),
            "manifest": None,
            "source": None,
            "planned": None,
            "product": "slotward",
        }
        args.update({"check": False, "fix_directories": False, "adopt": False}, **flags)
        self.points = []
        answer = cmd_setup.run(argparse.Namespace(**args))
        return dict(answer.json)

    def snapshot(self, but: Tuple[str, ...] = ()) -> Snapshot:
        """Owner, mode and contents of all that setup may touch."""
        found: Snapshot = {}
        for place in PLACES:
            for path in [pathlib.Path(place), *sorted(pathlib.Path(place).rglob("*"))]:
                if not os.path.lexists(path) or path.name.startswith("audit.log") or path.name in ("lock", *but):
                    continue
                one = path.lstat()
                what = ""
                if stat.S_ISLNK(one.st_mode):
                    what = os.readlink(path)
                elif stat.S_ISREG(one.st_mode):
                    what = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = (one.st_uid, one.st_gid, one.st_mode, what)
        return found


def kept() -> List[object]:
    """What no change of mode may lose."""
    names = ("a", "b", "slots.json", "update.json")
    found: List[object] = [(SLOTS / name).read_bytes() for name in names]
    found += [os.readlink(SLOTS / name) for name in ("current", "good")]
    return [*found, (DATA / "identity.json").read_bytes(), (DATA / "sub" / "key").read_bytes()]


def may_start(host: Host) -> str:
    """Why a daemon that is started now, with the units as systemd has read them, would not have its configuration."""
    user = host.systemd.user()
    if user == "root":
        return ""
    account = accounts.find(user)
    if account is None:
        return f"there is no account {user}"
    for path in (CONFIG.parent, CONFIG):
        found = handover.owned(str(path))
        if found.gid != account.gid or not found.mode & 0o040:
            return f"{path} is {found}"
    return ""


def move(host: Host, first: str, second: str, cut_at: int) -> Dict[str, Any]:
    """From one mode to another, cut at a point (-1: nowhere), and then again until it is done."""
    host.fresh(first)
    before, keeps = host.snapshot(), kept()
    host.configure(second)
    checked = host.setup(check=True)["changes"]
    host.cut_at = cut_at
    where, done = "", None
    try:
        done = host.setup()
    except Cut as cut:
        where = str(cut)
    host.cut_at = -1
    stays_up = may_start(host)
    again = host.setup()
    third = host.setup()
    return {
        "cut": where,
        "points": len(host.points) if done is None else 0,
        "checked": checked,
        "changes": done["changes"] if done is not None else again["changes"],
        "again": again["changes"],
        "third": third["changes"],
        "mode": [third["mode"], third["user"]],
        "kept": kept() == keeps,
        "may_start": stays_up or may_start(host),
        "user": host.systemd.user(),
        "enabled": sorted(host.systemd.enabled),
        "active": sorted(host.systemd.active),
        "after": host.snapshot(),
        "before": before,
        "log": (SLOTS / "audit.log").read_text().count('"mode-changed"'),
    }


def points(host: Host, first: str, second: str) -> int:
    """How many fault points that change has."""
    host.fresh(first)
    host.configure(second)
    host.setup()
    return len(host.points)


def refused(host: Host, case: str) -> Dict[str, Any]:
    """What setup answers to a host that cannot go to helper mode, and whether anything was changed."""
    host.fresh("root")
    more = ""
    if case == "data-dir":
        DATA.chmod(0o755)
    elif case == "account":
        subprocess.run(["useradd", "--non-unique", "--uid", "0", "toor"], check=False, capture_output=True)
        more = 'user = "toor"\n'
    elif case == "directory":
        (ENTRYPOINT.parents[1] / "lib").chmod(0o2775)
        ENTRYPOINT.parent.chmod(0o777)
    elif case == "way-to-data":
        DATA.parent.chmod(0o777)
    elif case == "entrypoint":
        for name in ("current", "good"):
            (SLOTS / name).unlink()
        ENTRYPOINT.unlink()
        ENTRYPOINT.write_bytes(BYTES["a"])
        ENTRYPOINT.chmod(0o755)
    elif case == "trial":
        for name, slot in (("back", "b"), ("current.tmp", "a")):
            (SLOTS / name).symlink_to(slot)
        (SLOTS / "current.tmp").rename(SLOTS / "current")
        record = trial_record()
        (SLOTS / "trial").write_bytes(record)
    host.configure("helper", more)
    before = host.snapshot()
    found: Dict[str, Any] = {"code": "ok", "text": ""}
    for check in (True, False):
        try:
            host.setup(check=check)
        except (codes.Refused, codes.Retryable, codes.BadConfig, codes.BrokenRecord) as error:
            found = {"code": error.code, "text": str(error)}
    same = host.snapshot() == before
    found.update(same=same, mended=[])
    if case in ("directory", "way-to-data"):
        planned = host.setup(check=True, fix_directories=True)["changes"]
        found["mended"] = host.setup(fix_directories=True)["changes"]
        found["same"] = same and planned == found["mended"] and host.setup()["changes"] == []
    DATA.parent.chmod(0o755)
    return found


def trial_record() -> bytes:
    """A trial that has all its time."""
    clock = hosts.clock()
    found = trials.Trial(
        "00112233445566aa", "slotward", "1.2.0", "1.1.0", "b", "a", 1, clock.boot_id, 600, clock.uptime_s + 600, 3, "-",
        hashlib.sha256(BYTES["b"]).hexdigest(), hashlib.sha256(BYTES["a"]).hexdigest(),
    )  # fmt: skip
    return trials.render_trial(found)


def elsewhere(host: Host) -> Dict[str, Any]:
    """The socket in a directory of its own outside /run, and an account whose group has another name."""
    host.fresh("root")
    subprocess.run(["useradd", "--system", "--gid", "adm", "keeper"], check=False, capture_output=True)
    host.configure("helper", 'socket = "/opt/sockets/deep/helper.sock"\nuser = "keeper"\n')
    planned = host.setup(check=True)["changes"]
    done, again = host.setup()["changes"], host.setup()["changes"]
    made = handover.owned("/opt/sockets/deep")
    dropin = pathlib.Path(units_modes.DROPIN).read_text()
    return {
        "planned": planned,
        "done": done,
        "again": again,
        "made": made,
        "dropin": dropin,
        "config": handover.owned(str(CONFIG)),
    }


def main() -> int:
    """`moving.py refused CASE`, `moving.py elsewhere`, or `moving.py FIRST SECOND`: lines of JSON."""
    if sys.argv[1] == "refused":
        print(json.dumps(refused(Host(), sys.argv[2])))
        return 0
    if sys.argv[1] == "elsewhere":
        print(json.dumps(elsewhere(Host())))
        return 0
    return changes()


def changes() -> int:
    """A line of JSON for the change without a cut, and one for each point at which it is cut."""
    first, second = sys.argv[1:3]
    host = Host()
    clean = move(host, first, second, -1)
    print(json.dumps(clean))
    for number in range(points(host, first, second)):
        found = move(host, first, second, number)
        same = found["after"] == clean["after"]
        if not same:
            found["differs"] = [
                [path, clean["after"].get(path), found["after"].get(path)]
                for path in sorted(set(clean["after"]) | set(found["after"]))
                if clean["after"].get(path) != found["after"].get(path)
            ]
        print(json.dumps({**found, "after": {}, "before": {}, "same": same}))
    return 0


def command(script: str, *words: str) -> List[str]:
    """A call of a file of this directory in such a namespace."""
    paths = ":".join(path for path in sys.path if path)
    inner = f'{MOUNTS}shift; exec env PYTHONPATH="$PYTHONPATH" "$@"'
    place = "/mnt"
    os.environ["PYTHONPATH"] = paths
    return ["unshare", "--mount", "sh", "-c", inner, "sh", place, sys.executable, "-B", script, *words]


if __name__ == "__main__":
    _: types.ModuleType = faults
    sys.exit(main())
