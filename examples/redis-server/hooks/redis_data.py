#!/usr/bin/python3 -I
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps Redis's data over an update: `redis_data.py snapshot` before the first start of a release, `redis_data.py restore` after going back.

- snapshot copies the append-only file as the version before left it. Where the release is an older one, which could not read
  the files, it says all data to the older one first and gives it what that wrote.
- restore puts the copy back and says again, to a private server of its version, every command that the release wrote since.
  So nothing that was acknowledged is lost, whichever of the two could read the other's files.
- A command that a version does not take ends the hook with an error: it is never skipped. slotward then goes back before the
  release ever started (snapshot), or keeps the unit down (restore).
- Both may be cut short at any point and run again: what was copied is authoritative once its directory has its final name.
- Nothing may rewrite the append-only file while a release is on trial, for that would leave the new version's format alone.
  `auto-aof-rewrite-percentage 0` is demanded; redis-rewrite.timer beside this file rewrites while there is no trial.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys
import time
from subprocess import run
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple, Union

CONFIG = pathlib.Path("/etc/redis/redis.conf")
SERVER = "/usr/bin/redis-server"
USER = "redis"
START_S = 300.0
BATCH = 500
PXAT_SINCE = (6, 2)
TREE_SINCE = (7, 0)
WORKPLACES = (".slotward-restore", ".slotward-all")

Command = List[bytes]
Part = Tuple[pathlib.Path, int]
Version = Tuple[int, int]
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
    def names(self) -> Tuple[str, ...]:
        """All that belongs to the data."""
        return self.file, self.tree, self.dump

    def names_for(self, version: Version) -> Tuple[str, ...]:
        """What of it a version reads and writes; what else is there another version has left."""
        return (self.file, self.dump) if version < TREE_SINCE else (self.tree, self.dump)

    @property
    def manifest(self) -> pathlib.Path:
        """The file below a copy that says which append-only files count, for versions that have several."""
        return pathlib.Path(self.tree) / f"{self.file}.manifest"


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
        run(["cp", "-a", "--reflink=auto", "-t", str(partial), *found], check=True)
    run(["sync", "-f", str(partial)], check=True)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    sync(target.parent)


def own(path: pathlib.Path) -> None:
    """Make a path Redis's."""
    account = pwd.getpwnam(USER)
    os.chown(path, account.pw_uid, account.pw_gid)


def sync(directory: pathlib.Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_of(data: Data, root: pathlib.Path) -> List[pathlib.Path]:
    """The append-only files below a copy in the order in which a server reads them."""
    manifest = root / data.manifest
    if not manifest.exists():
        return [path for path in [root / data.file] if path.exists()]
    entries = []
    for line in manifest.read_text(encoding="utf-8").splitlines():
        words = line.split()
        entry = dict(zip(words[::2], words[1::2]))
        if entry.get("type") in ("b", "i"):
            entries.append((entry["type"] != "b", int(entry["seq"]), manifest.with_name(entry["file"])))
    return [path for _increment, _number, path in sorted(entries)]


def added(data: Data, older: pathlib.Path, newer: pathlib.Path) -> List[Part]:
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

    def __init__(self, program: str, directory: pathlib.Path) -> None:
        self._program = program
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
        self._process = subprocess.Popen([*user, program, str(CONFIG), *words], stdin=subprocess.DEVNULL)
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
        raise Problem(f"{self._program} did not start on {self._socket.parent}; it said: {said}")

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

    def say(self, batch: Sequence[Command]) -> None:
        """Say commands, none of which may fail."""
        for command, reply in zip(batch, self.ask(batch)):
            error = self._errors(reply)
            if error:
                words = b" ".join(command[:2]).decode(errors="replace")
                raise Problem(f"{self._program} does not take {words!r}: {error[1:].decode(errors='replace')}")

    def say_all(self, parts: Sequence[Part]) -> int:
        """Say all commands of files; how many."""
        version = self.version()
        batch: List[Command] = []
        count = 0
        for path, start in parts:
            for command in commands(path, start):
                count += 1
                batch += for_version(command, version)
                if len(batch) >= BATCH:
                    self.say(batch)
                    batch = []
        self.say(batch)
        return count

    def write_commands(self) -> None:
        """Rewrite the append-only file as nothing but commands, which any version reads."""
        self.say([[b"CONFIG", b"SET", b"aof-use-rdb-preamble", b"no"], [b"BGREWRITEAOF"]])
        while not {"aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"} <= self._shown(b"persistence"):
            time.sleep(0.05)
        if "aof_last_bgrewrite_status:ok" not in self._shown(b"persistence"):
            raise Problem(f"{self._program} could not rewrite its data as commands")

    def _shown(self, section: bytes) -> Set[str]:
        """What INFO says."""
        shown = self.ask([[b"INFO", section]])[0]
        return set(shown.decode().split("\r\n")) if isinstance(shown, bytes) else set()

    def version(self) -> Version:
        """The server's own version, its first two numbers."""
        (line,) = [line for line in self._shown(b"server") if line.startswith("redis_version:")]
        return version_of(line.partition(":")[2])

    def stop(self) -> None:
        """Shut down, everything on the disk."""
        self._connection.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
        self._file.read()
        if self._process.wait(timeout=START_S) != 0:
            raise Problem("the private server did not shut down well")


@contextlib.contextmanager
def serving(program: str, directory: pathlib.Path) -> Iterator[Server]:
    """A private server while the block lasts; it must end well when the block did."""
    server = Server(program, directory)
    try:
        yield server
        server.stop()
    finally:
        server.kill()


def version_of(text: str) -> Version:
    """The first two numbers of a version."""
    numbers = text.split(".")
    return int(numbers[0]), int(numbers[1])


def for_version(command: Command, version: Version) -> List[Command]:
    """The command in words that the version knows, with all that it can keep of it."""
    upper = [word.upper() for word in command]
    if version < PXAT_SINCE and upper[0] == b"SET" and b"PXAT" in upper[3:]:
        at = upper.index(b"PXAT", 3)
        return [command[:at] + command[at + 2 :], [b"PEXPIREAT", command[1], command[at + 1]]]
    if version < TREE_SINCE and upper[0] == b"XSETID":
        return [command[:3]]  # the counters of a stream came with version 7
    if version < TREE_SINCE and upper[:2] == [b"XGROUP", b"CREATE"] and b"ENTRIESREAD" in upper[5:]:
        at = upper.index(b"ENTRIESREAD", 5)
        return [command[:at] + command[at + 2 :]]
    return [command]


def workplace(data: Data, source: Union[pathlib.Path, None]) -> pathlib.Path:
    """A directory beside the data in which a private server may work, with a copy of other data or with nothing."""
    work = data.directory / WORKPLACES[0]
    copy(data.names if source else (), source or data.directory, work)
    own(work)
    return work


def put(data: Data, work: pathlib.Path) -> None:
    """Make what a private server left the data. Cut short, it is done again from what was kept."""
    for name in data.names:
        remove(data.directory / name)
        if (work / name).exists():
            (work / name).rename(data.directory / name)
    sync(data.directory)
    shutil.rmtree(work)


def give(data: Data, work: pathlib.Path, mark: str) -> None:
    """Make what a private server of an older version left the data, by one rename: before and after it all data is there.

    The newer version may have to start again at any moment; it reads its own files before that rename, the older one's after it.
    """
    if not (work / data.manifest).exists():
        (work / data.file).rename(data.directory / data.file)
        sync(data.directory)
        return
    tree, given = data.directory / data.tree, work / data.tree
    before = {path.name for path in tree.iterdir()}
    lines = (work / data.manifest).read_text(encoding="utf-8").splitlines()
    for path in files_of(data, work):
        lines = [line.replace(f"file {path.name} ", f"file {mark}.{path.name} ") for line in lines]
        path.rename(tree / f"{mark}.{path.name}")
    manifest = given / f"{mark}.manifest"
    shutil.copy2(work / data.manifest, manifest)
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    own(manifest)
    run(["sync", "-f", str(tree)], check=True)
    manifest.rename(data.directory / data.manifest)
    sync(tree)
    for name in before - {data.manifest.name}:
        remove(tree / name)


def remove(path: pathlib.Path) -> None:
    """Remove a file or a tree, if it is there."""
    run(["rm", "-rf", str(path)], check=True)


def convert(data: Data, older: pathlib.Path, newer: str) -> pathlib.Path:
    """Say all data to a private server of the version that is to start; what that wrote."""
    with serving(newer, workplace(data, older)) as server:
        server.write_commands()
    everything = data.directory / WORKPLACES[1]
    remove(everything)
    (data.directory / WORKPLACES[0]).rename(everything)
    work = workplace(data, None)
    with serving(SERVER, work) as server:
        server.say_all([(path, 0) for path in files_of(data, everything)])
    remove(everything)
    return work


def snapshot(data: Data, kept: pathlib.Path) -> str:
    """Keep the data as they are, and give a release that is older than them data that it can read."""
    before, after = version_of(os.environ["SLOTWARD_FROM"]), version_of(os.environ["SLOTWARD_TO"])
    if before < TREE_SINCE:
        remove(data.directory / data.tree)  # of a version that ran earlier; a newer one would take it for its own
    copy(data.names_for(before), data.directory, kept / "older")
    names = ", ".join(sorted(os.listdir(kept / "older"))) or "nothing, for there is nothing"
    if after >= before:
        return f"kept {names}"
    try:
        work = convert(data, kept / "older", str(kept.parent.parent / "good"))  # what ran until now, in its slot
    except Problem:
        for name in WORKPLACES:
            remove(data.directory / name)
        raise
    give(data, work, kept.name)
    remove(work)
    copy(data.names_for(after), data.directory, kept / "given")
    return f"kept {names}, and said all data to the older version"


def restore(data: Data, kept: pathlib.Path) -> str:
    """Put the data back that were kept, and what was acknowledged since into them."""
    older, given, newer = kept / "older", kept / "given", kept / "newer"
    if not newer.exists():
        after = version_of(os.environ["SLOTWARD_TO"])
        copy(data.names_for(after) if after < TREE_SINCE else data.names, data.directory, newer)
    parts = added(data, given if given.exists() else older, newer)
    work, count = workplace(data, older), 0
    if parts:
        with serving(SERVER, work) as server:
            count = server.say_all(parts)
    put(data, work)
    return f"put the snapshot back and said {count} commands again"


def main() -> int:
    """Do what the first argument says; slotward gives the snapshot's directory in the environment."""
    what = {"snapshot": snapshot, "restore": restore}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    place = os.environ.get("SLOTWARD_SNAPSHOT", "")
    if what is None or not place:
        print("usage: SLOTWARD_SNAPSHOT=DIR redis_data.py snapshot|restore", file=sys.stderr)
        return 2
    os.umask(0o007)  # as Redis's own unit has it
    try:
        print(what(find_data(read_config(CONFIG)), pathlib.Path(place)))
    except (Problem, OSError, ValueError, subprocess.SubprocessError) as problem:
        print(f"{sys.argv[1]}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
