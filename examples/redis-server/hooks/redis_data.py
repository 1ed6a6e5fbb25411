#!/usr/bin/python3 -I
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps Redis's data over an update: `redis_data.py snapshot` before the first start of a release, `redis_data.py restore` after going back.

- snapshot copies the append-only file as the old version left it.
- restore puts that copy back and says again, to a private server of the old version, every command that the new one wrote since.
  So nothing that was acknowledged is lost, though the old version could not read the files of the new one.
- A command that the old version does not take ends the restore with an error, and slotward keeps the unit down: it is never skipped.
- Both may be cut short at any point and run again: what was copied is authoritative once its directory has its final name.
- Nothing may rewrite the append-only file while a release is on trial, for that would leave the new version's format alone.
  `auto-aof-rewrite-percentage 0` is demanded; redis-rewrite.timer beside this file rewrites while there is no trial.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys
import time
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

CONFIG = pathlib.Path("/etc/redis/redis.conf")
SERVER = "/usr/bin/redis-server"
USER = "redis"
START_S = 300.0
BATCH = 500
PXAT_SINCE = (6, 2)

Command = List[bytes]
Reply = Union[bytes, None, List["Reply"]]


class Problem(Exception):
    """Why it cannot be done."""


class Data(NamedTuple):
    """Where Redis keeps its data, by its configuration."""

    directory: pathlib.Path
    file: str
    """The append-only file of versions before 7."""
    tree: str
    """The directory of the append-only files of version 7 and later."""
    dump: str

    @property
    def names(self) -> Tuple[str, str, str]:
        """All that belongs to the data."""
        return self.file, self.tree, self.dump


def read_config(path: pathlib.Path) -> Dict[str, str]:
    """The last value of each key; files that it includes are not read."""
    found: Dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _blank, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            found[key.lower()] = value.strip().strip("\"'")
    return found


def find_data(config: Dict[str, str]) -> Data:
    """The places of the data, when the configuration is one that these hooks are good for."""
    if config.get("appendonly") != "yes":
        raise Problem(
            f"{CONFIG}: appendonly is not yes: what the new version acknowledges could not be told to the old one"
        )
    if config.get("auto-aof-rewrite-percentage") != "0":
        raise Problem(f"{CONFIG}: auto-aof-rewrite-percentage is not 0: a rewrite during a trial cannot be undone")
    for key in ("replicaof", "slaveof"):
        if key in config:
            raise Problem(f"{CONFIG}: {key}: a replica has its data from its primary and needs no snapshot")
    return Data(
        pathlib.Path(config.get("dir", "/var/lib/redis")),
        config.get("appendfilename", "appendonly.aof"),
        config.get("appenddirname", "appendonlydir"),
        config.get("dbfilename", "dump.rdb"),
    )


def copy(names: Sequence[str], source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy what is there of `names` into a new directory that has its name once all of it is on the disk."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700, parents=True)
    found = [str(source / name) for name in names if (source / name).exists()]
    if found:
        subprocess.run(["cp", "-a", "--reflink=auto", "-t", str(partial), *found], check=True)
    subprocess.run(["sync", "-f", str(partial)], check=True)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    sync(target.parent)


def sync(directory: pathlib.Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_of(data: Data, root: pathlib.Path) -> List[pathlib.Path]:
    """The append-only files below a copy in the order in which a server reads them."""
    manifest = root / data.tree / f"{data.file}.manifest"
    if not manifest.exists():
        return [path for path in [root / data.file] if path.exists()]
    entries = []
    for line in manifest.read_text(encoding="utf-8").splitlines():
        words = line.split()
        entry = dict(zip(words[::2], words[1::2]))
        if entry.get("type") in ("b", "i"):
            entries.append((entry["type"] != "b", int(entry["seq"]), manifest.with_name(entry["file"])))
    return [path for _increment, _number, path in sorted(entries)]


def added(data: Data, older: pathlib.Path, newer: pathlib.Path) -> List[Tuple[pathlib.Path, int]]:
    """The files of the newer copy that hold what was written since the older one, each with the offset where that begins."""
    old, new = files_of(data, older), files_of(data, newer)
    found = []
    for number, path in enumerate(new):
        start = 0
        if number < len(old):
            start = old[number].stat().st_size
            if not begins_with(path, old[number]):
                raise Problem(
                    f"{path.name} was rewritten during the trial: its commands since the snapshot are not there any more"
                )
        found.append((path, start))
    if len(new) < len(old):
        raise Problem(f"{len(new)} append-only files now, {len(old)} in the snapshot: something else changed them")
    return [(path, start) for path, start in found if path.stat().st_size > start]


def begins_with(path: pathlib.Path, beginning: pathlib.Path) -> bool:
    """Whether a file begins with the bytes of another."""
    with path.open("rb") as one, beginning.open("rb") as other:
        while True:
            block = other.read(1 << 20)
            if not block:
                return True
            if one.read(len(block)) != block:
                return False


def commands(path: pathlib.Path, start: int) -> Iterator[Command]:
    """The commands of an append-only file from an offset; one that was cut off by a crash was never acknowledged."""
    with path.open("rb") as file:
        file.seek(start)
        while True:
            line = file.readline()
            if line.startswith(b"#"):
                continue
            if not line.endswith(b"\r\n"):
                return
            if not line.startswith(b"*"):
                raise Problem(f"{path.name}: no command at byte {file.tell() - len(line)}")
            words = [word_of(file) for _number in range(int(line[1:]))]
            if None in words:
                return
            yield [word for word in words if word is not None]


def word_of(file: BinaryIO) -> Union[bytes, None]:
    """One word of a command, None when the file ends in it."""
    line = file.readline()
    if not line.endswith(b"\r\n"):
        return None
    length = int(line[1:])
    word = file.read(length + 2)
    return word[:-2] if len(word) == length + 2 else None


class Server:
    """A private server on a copy of the data: no port, a socket that only root reaches."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._socket = directory / "socket"
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(directory),
            "pidfile": str(directory / "pid"),
            "logfile": str(directory / "log"),
            "daemonize": "no",
            "supervised": "no",
            "save": "",
            "requirepass": "",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
        self._process = subprocess.Popen([*user, SERVER, str(CONFIG), *words], stdin=subprocess.DEVNULL)
        self._log = directory / "log"
        self._file = self._connected()

    def _connected(self) -> BinaryIO:
        """A connection, once the data are loaded."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self._socket))
            except OSError:
                time.sleep(0.05)
                continue
            self._connection = connection
            self._file = connection.makefile("rb")
            while b"LOADING" in self._errors(self.ask([[b"PING"]])[0]):
                time.sleep(0.05)
            return self._file
        self.kill()
        said = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else "nothing"
        raise Problem(f"{SERVER} did not start on the snapshot; it said: {said}")

    def kill(self) -> None:
        """End the server, whatever it does."""
        self._process.kill()
        self._process.wait()

    def ask(self, batch: Sequence[Command]) -> List[Reply]:
        """Say commands and read their answers."""
        self._connection.sendall(
            b"".join(b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in c) for c in batch)
        )
        return [self._reply() for _command in batch]

    def _reply(self) -> Reply:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise Problem("the private server has gone away")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$" and rest != b"-1":
            return b"$" + self._file.read(int(rest) + 2)[:-2]
        if kind == b"*" and rest != b"-1":
            return [self._reply() for _number in range(int(rest))]
        return line[:-2] if kind in b"+-:" else None

    def _errors(self, reply: Reply) -> bytes:
        """The first error in an answer."""
        if isinstance(reply, list):
            return next((found for found in map(self._errors, reply) if found), b"")
        return reply if reply is not None and reply.startswith(b"-") else b""

    def version(self) -> Tuple[int, int]:
        """The server's own version, its first two numbers."""
        shown = self.ask([[b"INFO", b"server"]])[0]
        text = shown.decode() if isinstance(shown, bytes) else ""
        number = text.partition("redis_version:")[2].split()[0]
        return int(number.split(".")[0]), int(number.split(".")[1])

    def say(self, batch: Sequence[Command]) -> None:
        """Say commands, none of which may fail."""
        for command, reply in zip(batch, self.ask(batch)):
            error = self._errors(reply)
            if error:
                words = b" ".join(command[:2]).decode(errors="replace")
                raise Problem(f"the old version does not take {words!r}: {error[1:].decode(errors='replace')}")

    def stop(self) -> None:
        """Shut down, everything on the disk."""
        self._connection.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
        self._file.read()
        if self._process.wait(timeout=START_S) != 0:
            raise Problem("the private server did not shut down well")


def for_version(command: Command, version: Tuple[int, int]) -> List[Command]:
    """The command in words that the version knows: SET takes a time of expiry since 6.2."""
    upper = [word.upper() for word in command]
    if version < PXAT_SINCE and upper[0] == b"SET" and b"PXAT" in upper[3:]:
        at = upper.index(b"PXAT", 3)
        return [command[:at] + command[at + 2 :], [b"PEXPIREAT", command[1], command[at + 1]]]
    return [command]


def say_again(directory: pathlib.Path, parts: Sequence[Tuple[pathlib.Path, int]]) -> int:
    """Say all that was written since to a server on `directory`; how many commands."""
    server = Server(directory)
    try:
        version = server.version()
        batch: List[Command] = []
        count = 0
        for path, start in parts:
            for command in commands(path, start):
                count += 1
                batch += for_version(command, version)
                if len(batch) >= BATCH:
                    server.say(batch)
                    batch = []
        server.say(batch)
        server.stop()
    finally:
        server.kill()
    return count


def snapshot(data: Data, kept: pathlib.Path) -> str:
    """Keep the data as the old version left them."""
    copy(data.names, data.directory, kept / "older")
    return f"kept {', '.join(sorted(os.listdir(kept / 'older'))) or 'nothing, for there is nothing'}"


def restore(data: Data, kept: pathlib.Path) -> str:
    """Put the old version's data back, and what was acknowledged since into them."""
    older, newer, work = kept / "older", kept / "newer", data.directory / ".slotward-restore"
    if not newer.exists():
        copy(data.names, data.directory, newer)
    parts = added(data, older, newer)
    copy(data.names, older, work)
    account = pwd.getpwnam(USER)
    os.chown(work, account.pw_uid, account.pw_gid)
    count = say_again(work, parts) if parts else 0
    for name in data.names:
        subprocess.run(["rm", "-rf", str(data.directory / name)], check=True)
        if (work / name).exists():
            (work / name).rename(data.directory / name)
    sync(data.directory)
    shutil.rmtree(work)
    return f"put the snapshot back and said {count} commands again"


def main() -> int:
    """Do what the first argument says; slotward gives the snapshot's directory in the environment."""
    work = {"snapshot": snapshot, "restore": restore}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    place = os.environ.get("SLOTWARD_SNAPSHOT", "")
    if work is None or not place:
        print("usage: SLOTWARD_SNAPSHOT=DIR redis_data.py snapshot|restore", file=sys.stderr)
        return 2
    try:
        print(work(find_data(read_config(CONFIG)), pathlib.Path(place)))
    except (Problem, OSError, ValueError, subprocess.SubprocessError) as problem:
        print(f"{sys.argv[1]}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
