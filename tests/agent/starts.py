# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in start mode, as directories: root's slots, the account's staging, signed releases, and a systemctl of ours."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import pwd
import signal
import stat
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import pytest
from agent.accounts import ACCOUNT
from support import releases, signing

from slotcore import audit, keys, recording, records
from slotward import answers, cli, cmd_apply, faults, host, manager, own, systemd, units

UID = pwd.getpwnam(ACCOUNT).pw_uid
OLD_PROGRAM = b"#!/bin/sh\necho slotward 1.0.0\n"
OLD = records.SlotRecord("1.0.0", 1, hashlib.sha256(OLD_PROGRAM).hexdigest(), len(OLD_PROGRAM), 0, "stable")
ID = "00112233445566aa"
TIMER = "slotward-deadline@slotward.timer"
SHOWN = """ActiveState={state}
SubState={sub}
Job={job}
LoadState=loaded
UnitFileState={enabled}
NeedDaemonReload=no
Wants=slotward-guard@slotward.service
After=slotward-guard@slotward.service
OnFailure=slotward-rollback@slotward.service
"""
HOOK = f"""case "$*" in
*"--property=ActiveState -- {TIMER}") cat "$FAKE_SYSTEMD/timer"; exit 0 ;;
esac
"""


class Signed(NamedTuple):
    """A release of a program of a few lines: its target's bytes, and the program's."""

    version: str
    target: bytes
    program: bytes


class Shop:
    """Makes signed releases whose programs are shell scripts."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._shop = releases.Workshop(directory)
        self.pins, self.threshold = self._shop.pins, self._shop.threshold
        self._directory = directory

    def permit(self, version: str, sequence: int, permit_id: str = "0123456789abcdef") -> bytes:
        """A permit for this host to go to that release."""
        by = [keys.load_private(key.path.read_bytes()) for key in self._shop.keys[: self.threshold]]
        return signing.permit(version, sequence, [host.machine_id()], by, permit_id)

    def release(self, version: str, sequence: int, program: str = "", signers: int = 0) -> Signed:
        """Build, write and sign one."""
        data = (program or f"#!/bin/sh\necho slotward {version}\n").encode()
        name = f"slotward_{version}_linux_{releases.ARCH}"
        artifact = self._directory / "programs" / version / name
        artifact.parent.mkdir(parents=True)
        artifact.write_bytes(data)
        artifact.chmod(0o755)
        argv = ["build", "--product", "slotward", "--version", version, "--sequence", str(sequence)]
        for key in self._shop.keys:
            argv += ["--key", str(key.path.with_suffix(".pub.pem"))]
        base = self._directory / "published"
        self._shop.release_command(*argv, "--artifact", str(artifact), "--output", str(base))
        manifest = base / "slotward" / version / "manifest.json"
        for key in self._shop.keys[: signers or self.threshold]:
            self._shop.release_command("sign", "--manifest", str(manifest), "--key", str(key.path), "--yes")
        target = {
            "product": "slotward",
            "version": version,
            "url": "https://releases.invalid/none",
            "sha256": hashlib.sha256(data).hexdigest(),
            "signature": manifest.read_text(encoding="utf-8"),
        }
        return Signed(version, json.dumps(target).encode(), data)


class Start:
    """One host between two starts of its daemon."""

    def __init__(self, root: pathlib.Path, shop: Shop, patch: pytest.MonkeyPatch) -> None:
        self.root, self.slots, self.staging = root, root / "slots", root / "data" / "staging"
        self.config = root / "config.toml"
        self._settings: Dict[str, object] = {"release_pins": shop.pins, "release_threshold": shop.threshold}
        self.configure()
        self._make_slots()
        self.staging.mkdir(parents=True)
        for path in (root / "data", self.staging):
            path.chmod(0o700)
            os.chown(path, UID, UID)
        guard = root / "guard"
        (guard / "guard.d").mkdir(parents=True)
        (guard / "guard").write_text("#!/bin/sh\n")
        (guard / "guard").chmod(0o755)
        (guard / "guard.d" / "slotward.env").write_text("UNIT=slotward.service\n")
        patch.setattr(units, "GUARD_DIR", str(guard))
        patch.setattr(systemd, "booted", lambda: None)
        patch.setenv("SLOTWARD_WHO", "test")
        (root / "hook-show").write_text(HOOK)
        (root / "timer").write_text("ActiveState=active\n")
        self.shows()

    def configure(self, section: str = f'[start]\nuser = "{ACCOUNT}"\n', **settings: object) -> None:
        """Write root's configuration."""
        places = {"slots_dir": str(self.slots), "entrypoint": str(self.root / "entry")}
        found = {**self._settings, **places, **settings}
        lines = [f'data_dir = "{self.root}/data"', "[update]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in found.items()]
        self.config.write_text("\n".join(lines) + "\n" + section)
        self.config.chmod(0o600)

    def _make_slots(self) -> None:
        self.slots.mkdir()
        (self.slots / "a").write_bytes(OLD_PROGRAM)
        (self.slots / "a").chmod(0o755)
        for name in ("current", "good"):
            (self.slots / name).symlink_to("a")
        (self.root / "entry").symlink_to(self.slots / "current")
        held = {
            recording.SLOTS: records.render_slots({"a": OLD}),
            recording.UPDATE: records.render_update(records.Update(floor=1)),
        }
        for name, data in held.items():
            self.write(name, data)
            self.write(name + recording.COPY, recording.sealed(data))

    def write(self, name: str, data: bytes) -> None:
        """A plain file of root's among the slots, whatever the umask."""
        (self.slots / name).write_bytes(data)
        (self.slots / name).chmod(0o644)

    def shows(
        self, state: str = "activating", sub: str = "auto-restart", job: int = 0, enabled: str = "enabled"
    ) -> None:
        """What systemd says of the daemon's unit; by default that it is about to start it again."""
        block = SHOWN.format(state=state, sub=sub, job=job, enabled=enabled)
        timer = SHOWN.format(state=state, sub=sub, job=job, enabled="enabled")
        (self.root / "show").write_text(f"{block}\n{block}\n{timer}")

    # -- the account ---------------------------------------------------------------------------------------------

    def file(self, name: str, data: bytes, uid: int = UID) -> pathlib.Path:
        """A file in the account's staging directory."""
        path = self.staging / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
        os.chown(path, uid, uid)
        return path

    def request(self, trial_id: str = ID, **more: Any) -> bytes:
        """Leave a request; its bytes."""
        value = {"protocol": 1, "id": trial_id, "op": "update.swap", "target": f"{trial_id}.target", **more}
        data = json.dumps({key: one for key, one in value.items() if one is not None}).encode()
        self.file("apply", data)
        return data

    def stage(self, release: Signed, trial_id: str = ID, **more: Any) -> bytes:
        """Leave all that an honest daemon leaves; the request's bytes."""
        self.file(f"{trial_id}.target", release.target)
        self.file(f"slotward-{release.version}", release.program)
        return self.request(trial_id, **more)

    # -- root ----------------------------------------------------------------------------------------------------

    @property
    def setup(self) -> own.Setup:
        """The configuration as root reads it."""
        return own.load(str(self.config))

    def apply(self) -> answers.Answer:
        """Run what the unit runs before a start, in this process; an error that carries a code is its answer."""
        args = argparse.Namespace(
            config=str(self.config), json=False, product="slotward", command="apply", **cli.PLAIN["apply"]
        )
        try:
            return cmd_apply.run(args)
        except answers.CODED as error:
            return answers.of_error("slotward", error)

    def applied(self) -> Tuple[int, str, str]:
        """Run it: exit status, state and code."""
        answer = self.apply()
        return answer.exit, str(answer.json["state"]), str(answer.json["code"])

    def cut(self, number: int, how: Callable[[], None]) -> Optional[str]:
        """Run it in a process of its own that ends at its `number`-th fault point; that point, None when it came to its end."""
        ready, told = os.pipe()
        pid = os.fork()
        if not pid:  # pragma: no cover
            _die_at(number, told, how, self.apply)
        os.close(told)
        with open(ready, "rb") as file:
            point = file.read().decode()
        _pid, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return None
        assert os.WIFSIGNALED(status), (status, point)
        return point

    # -- what is there -------------------------------------------------------------------------------------------

    def asked(self) -> Optional[Dict[str, Any]]:
        """What root says of the last request; None when it never said anything."""
        path = self.slots / "asked.json"
        if not path.exists():
            return None
        found = path.lstat()
        assert (stat.S_ISREG(found.st_mode), found.st_uid, stat.S_IMODE(found.st_mode)) == (True, 0, 0o644)
        value: Dict[str, Any] = json.loads(path.read_bytes())
        return value

    def link(self, name: str) -> str:
        """The slot that a link names."""
        return os.readlink(self.slots / name)

    def state(self) -> Any:
        """What the agent reads."""
        return host.read_state(self.setup.product)

    def on_trial(self) -> str:
        """The id of the trial that is pending; "" when none is."""
        pending = manager.look(self.setup.product).settlement.on_trial
        return pending.trial_id if pending is not None else ""

    def events(self) -> List[str]:
        """What the audit log says."""
        path = self.slots / "audit.log"
        return [audit.parse(line).event.event for line in path.read_bytes().splitlines()] if path.exists() else []

    def calls(self) -> List[str]:
        """What systemd was asked to do."""
        lines = (self.root / "calls").read_text().splitlines()
        return [line for line in lines if not line.startswith(("show", "--version"))]

    def outside(self) -> Mapping[str, Tuple[int, int, bytes]]:
        """Everything of the account's: mode, owner and bytes."""
        found = {}
        for path in [self.root / "data", *sorted((self.root / "data").rglob("*"))]:
            seen = path.lstat()
            found[str(path)] = (seen.st_mode, seen.st_uid, path.read_bytes() if stat.S_ISREG(seen.st_mode) else b"")
        return found

    def runnable(self) -> None:
        """I1: what starts is complete, and its bytes are those of its slot's record."""
        state = self.state()
        assert state.broken is None, state.broken
        assert host.damage(self.setup.product, state) == ""


def _die_at(number: int, told: int, how: Callable[[], None], act: Callable[[], object]) -> None:  # pragma: no cover
    left = [number]

    def hit(point: str) -> None:
        left[0] -= 1
        if not left[0]:
            os.write(told, point.encode())
            how()

    faults.hit = hit
    status = 1
    try:
        act()
        status = 0
    finally:
        os._exit(status)


def kill() -> None:  # pragma: no cover
    """The process is gone."""
    os.kill(os.getpid(), signal.SIGKILL)
