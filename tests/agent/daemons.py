# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with the daemon on it, as a process of the account that its mode has, asked over its real sockets."""

from __future__ import annotations

import array
import contextlib
import hashlib
import json
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from agent.accounts import ACCOUNT, Accounts

from slotcore import protocol, records, reply, trial

FAKES = pathlib.Path(__file__).parent / "fakes"
BYTES = b"#!/bin/sh\nexit 0\n"
OLD = records.SlotRecord("1.0.0", 1, hashlib.sha256(BYTES).hexdigest(), len(BYTES))


class Host:
    """Slots at rest, a configuration, and the daemon when it was started."""

    def __init__(self, top: pathlib.Path, agent: Accounts, mode: str = "helper", more: str = "") -> None:
        self.top, self.agent, self.mode = top, agent, mode
        self.user = "root" if mode == "root" else ACCOUNT
        self.data, self.run, self.slots = top / "data", top / "run", top / "slots"
        self.socket, self.helper = self.run / "control.sock", top / "helper.sock"
        self.errors = top / "errors"
        found = pwd.getpwnam(self.user)
        for path, mode_bits in ((self.data, 0o700), (self.run, 0o700), (self.slots, 0o755)):
            path.mkdir(mode_bits)
            if path != self.slots:
                os.chown(path, found.pw_uid, found.pw_gid)
        for name in ("a", "b"):
            (self.slots / name).write_bytes(BYTES)
            (self.slots / name).chmod(0o755)
        (self.slots / "current").symlink_to("a")
        (self.slots / "good").symlink_to("a")
        if mode == "helper":
            (self.slots / "helper").symlink_to("a")
        (self.slots / "slots.json").write_bytes(records.render_slots({"a": OLD}))
        (self.slots / "update.json").write_bytes(records.render_update(records.Update(floor=1)))
        for name in ("slots.json", "update.json"):
            (self.slots / name).chmod(0o644)
        self.config = top / "config.toml"
        section = {"root": "", "helper": f'[helper]\nsocket = "{self.helper}"\nuser = "{ACCOUNT}"\n'}
        section["start"] = f'[start]\nuser = "{ACCOUNT}"\n'
        self.config.write_text(
            f'data_dir = "{self.data}"\nsocket_path = "{self.run}/status.sock"\n[update]\nslots_dir = "{self.slots}"\n'
            f'entrypoint = "{top}/entry"\nallow_http = true\nrelease_pins = "sha256/{"A" * 43}="\n'
            f'confirm_sources = "gateway"\n{more}{section[mode]}'
        )
        self.config.chmod(0o644)
        (top / "entry").symlink_to(self.slots / "current")
        self.process: Optional[subprocess.Popen[bytes]] = None

    @property
    def staging(self) -> pathlib.Path:
        """Where the daemon stages."""
        return self.data / "staging"

    def staged(self) -> List[str]:
        """What lies there."""
        return sorted(os.listdir(self.staging)) if self.staging.is_dir() else []

    def environment(self) -> Dict[str, str]:
        """Fakes of systemd's programs come first."""
        (self.top / "calls").touch(0o666)
        (self.top / "calls").chmod(0o666)
        (self.top / "show").write_text("ActiveState=active\n")
        return {"FAKE_SYSTEMD": str(self.top), "PATH": f"{self.top}/bin:{FAKES}:{os.environ['PATH']}"}

    def start(self, umask: int = 0o077) -> None:
        """Start the daemon, and wait until it listens."""
        with open(self.errors, "ab") as errors:
            self.process = self.agent.start(
                self.user,
                "node",
                "--config",
                self.config,
                environment=self.environment(),
                stderr=errors,
                preexec_fn=lambda: os.umask(umask),
            )
        self.waits(self.socket.exists, "the control socket is there")

    def stop(self) -> int:
        """Stop the daemon as systemd does; its exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20)
        self.process = None
        return status

    def kill(self) -> None:
        """End whatever is left."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)

    def waits(self, what: Callable[[], object], said: str, within: float = 20) -> None:
        """Wait until it holds."""
        until = time.monotonic() + within
        while not what():
            assert time.monotonic() < until, f"{said}: not within {within:g} s\n{self.errors.read_text()}"
            time.sleep(0.02)

    def status(self) -> Dict[str, Any]:
        """What the status socket answers."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(5)
            peer.connect(str(self.run / "status.sock"))
            found: Dict[str, Any] = json.loads(b"".join(iter(lambda: peer.recv(65536), b"")))
            return found

    def target(self, version: str = "1.1.0", url: str = "", content: bytes = BYTES, **more: str) -> pathlib.Path:
        """A target file of root's alone."""
        path = self.top / f"target-{version}.json"
        sha256 = hashlib.sha256(content).hexdigest()
        fields = {"product": "slotward", "version": version, "url": url, "sha256": sha256, "signature": "none"}
        path.write_text(json.dumps({**fields, **more}))
        path.chmod(0o600)
        return path

    def ask(self, *words: object, user: str = "root") -> Tuple[int, Dict[str, Any], str]:
        """`slotward ask …`: exit status, answer, and what it told meanwhile."""
        done = self.agent.run(user, "ask", *words, "--config", self.config, "--json", environment=self.environment())
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr.decode()

    def asking(self, *words: object) -> subprocess.Popen[bytes]:
        """The same, going on meanwhile."""
        argv = (*words, "--config", self.config, "--json")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.agent.start("root", "ask", *argv, environment=self.environment(), **pipes)

    def on_trial(self, trial_id: str, left_s: int = 100) -> None:
        """A trial of slot b, as a swap leaves it."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open("/proc/uptime", encoding="ascii") as file:
            deadline = int(float(file.read().split()[0])) + left_s
        found = trial.Trial(
            trial_id, "slotward", "1.0.0", "1.1.0", "a", "b", 2, boot, max(left_s, 5), deadline, 3, "-", OLD.sha256,
            OLD.sha256,
        )  # fmt: skip
        new = OLD._replace(version="1.1.0", sequence=2)
        (self.slots / "slots.json").write_bytes(records.render_slots({"a": OLD, "b": new}))
        (self.slots / "trial.log").write_bytes(trial.LOG_HEADER)
        (self.slots / "back").symlink_to("a")
        (self.slots / "trial").write_bytes(trial.render_trial(found))
        self._point("current", "b")

    def _point(self, name: str, slot: str) -> None:
        for link in (name, "helper") if self.mode == "helper" else (name,):
            (self.slots / "new").symlink_to(slot)
            os.rename(self.slots / "new", self.slots / link)

    def going_back(self) -> None:
        """That trial between its claim and the record of its end."""
        os.rename(self.slots / "trial", self.slots / "trial.revert")
        self._point("current", "a")
        (self.slots / "back").unlink()

    def went_back(self, trial_id: str) -> None:
        """And with that record."""
        (self.slots / "trial.revert").rename(self.slots / "trial")
        (self.slots / "back").symlink_to("a")
        self.ended(trial_id)

    def ended(self, trial_id: str, state: str = "rolled-back", code: str = "gave-up") -> None:
        """The end of that trial, as settling leaves it."""
        last = records.Last(trial_id, state, code, "told by the test", "1.0.0", "1.1.0", 1_800_000_000)
        (self.slots / "update.json").write_bytes(records.render_update(records.Update(floor=1, last=last)))
        for name in ("trial", "back", "trial.log"):
            (self.slots / name).unlink()
        self._point("current", "b" if state == "confirmed" else "a")
        if state == "confirmed":
            self._point("good", "b")


@contextlib.contextmanager
def connected(host: Host) -> Iterator[Tuple[socket.socket, protocol.Hello]]:
    """A connection to the daemon's control socket, greeted."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(20)
        peer.connect(str(host.socket))
        yield peer, protocol.parse_hello(peer.recv(protocol.MAX_ANSWER + 1))


def asked(host: Host, request: protocol.Request, files: Sequence[int] = ()) -> reply.Reply:
    """One request by hand."""
    with connected(host) as (peer, hello):
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        peer.sendmsg([protocol.render_request(request._replace(nonce=hello.nonce))], passed)
        return reply.parse(peer.recv(protocol.MAX_ANSWER + 1))
