# SPDX-License-Identifier: GPL-3.0-or-later
"""The enemy on a real host, led from here: its processes, what it must not change, and who watches it.

- `Enemy` is arbitrary code as the daemon's account, in the daemon's control group (or out of it, or as somebody else):
  without the unit's sandbox, as one that had already broken out of it.
- `Canaries` are inodes outside the slots: nothing of them may change, not even a time.
- `Watch` is a process of root's that checks the invariants all the while (tests/support/watching.py).
"""

from __future__ import annotations

import itertools
import json
import pathlib
import select
import subprocess
import time
from types import TracebackType
from typing import Any, Self

from support import modes, releases
from support import node as nodes

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = f"{nodes.BOX}/hostile.py"
GROUP = f"/sys/fs/cgroup/system.slice/{nodes.UNIT}"
DATA = "/var/lib/slotward"
CANARY = "/srv/canary"
TREES = ("/etc", "/root", "/home", "/srv", "/usr/local", "/boot", "/opt", "/var/spool", "/var/lib/dpkg")
GRACE_S = 35.0
"""The watchdog's 30 s after the deadline, and what going back itself may take."""

_numbers = itertools.count(1)

LOOK = """
import hashlib, json, os, stat, sys
slots, found = sys.argv[1], {}
def note(path):
    seen = os.lstat(path)
    what = ""
    if stat.S_ISREG(seen.st_mode) and path.startswith("/srv/"):
        with open(path, "rb") as file:
            what = hashlib.sha256(file.read()).hexdigest()
    elif stat.S_ISLNK(seen.st_mode):
        what = os.readlink(path)
    found[path] = [seen.st_ino, seen.st_uid, seen.st_gid, seen.st_mode, seen.st_nlink, seen.st_size,
                   seen.st_mtime_ns, seen.st_ctime_ns, what]
for top in sys.argv[2:]:
    if not os.path.isdir(top):
        continue
    note(top)
    for directory, directories, files in os.walk(top):
        if directory == slots:
            directories.clear()
            continue
        for name in directories + files:
            note(os.path.join(directory, name))
print(json.dumps(found))
"""

PLANT = f"""
rm -rf {CANARY}; mkdir -p {CANARY}/directory/below {CANARY}/empty
echo precious >{CANARY}/file; echo secret >{CANARY}/secret; chmod 0600 {CANARY}/secret
echo '#!/bin/sh' >{CANARY}/program; chmod 0755 {CANARY}/program; cp {CANARY}/file {CANARY}/directory/below/file
ln -s file {CANARY}/link; mkfifo {CANARY}/fifo; chmod 0711 {CANARY}/directory
"""


class Enemy:
    """A process of the account's that does one thing after another, and answers."""

    def __init__(self, node: nodes.Node, inside: bool = True, user: str = modes.ACCOUNT) -> None:
        self.node = node
        self.group = GROUP if inside else "-"
        self.user = user
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.node.host.put(HERE / "hostile.py", PROGRAM, 0o644)
        if self.user == modes.ACCOUNT:
            self.call("directory", nodes.STAGING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _begin(self) -> subprocess.Popen[str]:
        unit = f"--unit=e2e-enemy-{next(_numbers)}"
        command = ["systemd-run", "-q", "--pipe", "--wait", "--collect", unit, "-p", "LimitNOFILE=8192"]
        argv = [*command, "-p", "TasksMax=infinity", "--", "python3", PROGRAM, self.group, self.user]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.node.host.enter_argv(argv), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    @property
    def alive(self) -> bool:
        """Whether it has not been killed with the daemon's control group."""
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """Be gone."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def call(self, name: str, *arguments: object, timeout: float = 90) -> Any:
        """Have it do something; its answer. It is made anew when it was killed before; ConnectionError when it dies of this."""
        if not self.alive:
            self.end()
            self._process = self._begin()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([name, *arguments]) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise ConnectionError(f"{name}: the enemy is gone") from None
        if not select.select([process.stdout], [], [], timeout)[0]:
            raise AssertionError(f"{name}: no answer within {timeout:g} s\n{self.node.story()}")
        line = process.stdout.readline()
        if not line:
            raise ConnectionError(f"{name}: the enemy is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise OSError(f"{name}: {answer['error']}")
        return answer["ok"]

    def ask(self, operation: str, number: str = "", timeout: float = 60, **more: object) -> dict[str, Any]:
        """One exchange with the helper by the protocol; how the connection ended, when there was no answer."""
        try:
            return dict(
                self.call(
                    "ask", modes.SOCKET, operation, number or nodes.trial_id(), more, timeout, timeout=timeout + 10
                )
            )
        except OSError as error:
            return {"ended": str(error)}

    def stage(self, release: releases.Release, number: str, **fields: str) -> str:
        """Put a release's bytes and its target where the daemon would; the target's name in staging."""
        source = self.node.put(release.artifact)
        target = {**self.node.shop.target(release), **fields}
        self.call("fetch", source, f"{nodes.STAGING}/slotward-{release.version}")
        self.call("write", f"{nodes.STAGING}/{number}.target", json.dumps(target))
        return f"{number}.target"


def next_pid(node: nodes.Node, pid: int) -> None:
    """Have the host's kernel give this pid out next; /proc/sys is closed inside, so it is done from here, in the host's pids alone."""
    inside = ["nsenter", "-t", str(node.host._init()), "--pid", "--"]
    script = f"echo {pid - 1} >/proc/sys/kernel/ns_last_pid"
    subprocess.run([*inside, "sh", "-c", script], check=True)


class Canaries:
    """What must be the same afterwards, on the host's disk outside the slots and the account's own directory."""

    def __init__(self, node: nodes.Node) -> None:
        self.node = node
        node.sh(PLANT)
        self._before = self._look()

    def _look(self) -> dict[str, list[Any]]:
        script = self.node.host.run(["python3", "-c", LOOK, nodes.SLOTS, *TREES])
        found: dict[str, list[Any]] = json.loads(script.stdout)
        found.pop(nodes.SLOTS, None)  # its times change with each record
        return found

    def unchanged(self) -> None:
        """No inode is another, no owner, mode, time, link or byte."""
        after = self._look()
        changed = sorted(path for path in {*self._before, *after} if self._before.get(path) != after.get(path))
        told = "\n".join(f"{path}: {self._before.get(path)} {after.get(path)}" for path in changed)
        assert changed == [], told
        others = self.node.sh(f"find {DATA} -mindepth 1 ! -user {modes.ACCOUNT}", check=False)
        assert others == "", f"root has made or taken over what lies in the account's directory: {others}"


class Watch:
    """Root's eye on the slots, from `with` to its end."""

    def __init__(self, node: nodes.Node, *signed: releases.Release) -> None:
        self.node = node
        self._allowed = [node.shop.target(release)["sha256"] for release in signed]
        self._out = f"/var/tmp/e2e-watch-{next(_numbers)}"

    def __enter__(self) -> Self:
        self.node.host.put(HERE / "watching.py", "/var/tmp/e2e-watching.py", 0o644)
        argv = ["python3", "/var/tmp/e2e-watching.py", nodes.SLOTS, self._out, f"{GRACE_S:g}", *self._allowed]
        unit = f"--unit={pathlib.Path(self._out).name}"
        self.node.host.run(["systemd-run", "-q", "--collect", unit, "--", *argv])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.sh(f"touch {self._out}.stop")
        if kind is None:
            self.node.host.wait_for(f"test -s {self._out}.looks", timeout=20)
            assert int(self.node.sh(f"cat {self._out}.looks")) > 10, "nobody watched"
            seen = self.node.sh(f"cat {self._out} 2>/dev/null", check=False)
            assert seen == "", seen + self.node.story()

    def quiet(self) -> None:
        """Nothing was seen so far."""
        seen = self.node.sh(f"cat {self._out} 2>/dev/null", check=False)
        assert seen == "", seen + self.node.story()


def held_for(seconds: float, what: Any, every: float = 0.5) -> None:
    """Look again and again for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        what()
        time.sleep(every)
