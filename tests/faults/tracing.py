# SPDX-License-Identifier: GPL-3.0-or-later
"""strace: which calls a run makes on the paths that count, and one of them made to fail, or to be the last.

Rules:
- A call is told by its name and by how many of that name its process has made before it: strace's `when=`. In forks of a
  shell, which nothing else tells apart, by how many of that name on that path (strace's `-P`): else the shell itself would be hit.
- Where that number is another in each run (of a pipe's reads, of what a program looks at in the order of a hash), a call is told by how many on
  its path there were, that path as the call itself says it.
- A dry run lists the calls. A run with a fault is read again: what strace marks as injected must be the call that was
  meant, with the same path; anything else is not counted as a case.
"""

from __future__ import annotations

import collections
import os
import pathlib
import re
import signal
import subprocess
from typing import Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

_CALLS = """
open openat openat2 creat read pread64 readv write pwrite64 writev close fsync fdatasync sync syncfs sync_file_range rename
renameat renameat2 symlink symlinkat link linkat unlink unlinkat rmdir mkdir mkdirat mknod mknodat chmod fchmod fchmodat
fchmodat2 chown fchown lchown fchownat flock ftruncate truncate fallocate sendfile copy_file_range utimensat stat lstat fstat
newfstatat statx access faccessat faccessat2 readlink readlinkat getdents64 getxattr lgetxattr fgetxattr setxattr lsetxattr
fsetxattr listxattr llistxattr flistxattr statfs fstatfs lseek chdir
"""
CALLS = _CALLS.split()
"""Every call to a file system that the agent, the guard or coreutils make; a name that this kernel has not is left out."""
FAULTS = ("EIO", "ENOSPC", "EROFS", "EACCES", "EINTR", "SIGKILL")
ATTACHED_S = 30.0
SOON = 100
"""So many processes may have begun before the one that gives its number to a file."""

_LINE = re.compile(r"(\w+)\((.*)")
_FD = re.compile(r"\w+<(/[^>]*)>")
_NAMED = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_MOMENT = re.compile(r"(?<![\w.])\d{2,}(?![\w.])|(?<=[-.])\d{3,}\b|\b[0-9a-f]{16}\b")
_BY_DESCRIPTOR = """
read pread64 readv write pwrite64 writev close fsync fdatasync syncfs sync_file_range fchmod fchown flock ftruncate fallocate
sendfile copy_file_range fstat getdents64 fgetxattr fsetxattr flistxattr fstatfs lseek
"""
BY_DESCRIPTOR = frozenset(_BY_DESCRIPTOR.split())
"""They are about what a descriptor leads to; what is quoted is data. All others name what they are about."""
ANSWERING = frozenset(("readlink", "readlinkat"))
"""What they name is what is quoted first; after it comes the answer, which for another process's descriptor may be any path."""


class Call(NamedTuple):
    """One call: its name, how many of that name there were, in all or on that path, and the path that counts, with numbers of the moment as #."""

    name: str
    number: int
    path: str


def by_path(found: Sequence[Call]) -> List[Call]:
    """The same calls, each by how many of its name on its path there were."""
    counted: Dict[Tuple[str, str], int] = {}
    numbered = []
    for call in found:
        key = (call.name, call.path)
        counted[key] = counted.get(key, 0) + 1
        numbered.append(call._replace(number=counted[key]))
    return numbered


def only(path: str, working: str) -> List[str]:
    """strace's words for nothing but calls on this path, by its name from `working` too; `#` is a process that begins soon."""
    last = int(pathlib.Path("/proc/sys/kernel/ns_last_pid").read_text("ascii"))
    names = [path.replace("#", str(last + ahead)) for ahead in range(1, SOON)] if "#" in path else [path]
    words = ["-qq"]
    for name in names:
        words += ["-P", name]
        if name.startswith(working + "/"):
            words += ["-P", name[len(working) + 1 :]]
    return words


def on_path(lines: Sequence[str], wanted: Call, scope: Sequence[str], working: str) -> Optional[Tuple[str, int]]:
    """How that call (its number by its path) says its path, and how many calls that say this there are, with it; None: it is not made."""
    said: Counter[str] = collections.Counter()
    left = wanted.number
    for line in lines:
        match = _LINE.match(line)
        if match is None or match.group(1) != wanted.name:
            continue
        arguments = match.group(2).partition(") = ")[0]
        said.update({*_FD.findall(arguments), *(text for _place, text in _quoted(wanted.name, arguments))})
        if path_of(wanted.name, match.group(2), scope, working) == wanted.path:
            left -= 1
            if not left:
                raw = _raw(wanted.name, arguments, scope, working)
                return raw, said[raw]
    return None


def _raw(name: str, arguments: str, scope: Sequence[str], working: str) -> str:
    """The first path in scope, as the call says it; of a directory by its descriptor, that one's."""
    if name in BY_DESCRIPTOR:
        said: List[Tuple[str, str]] = [(text, text) for text in _FD.findall(arguments)]
    else:
        pairs = zip(_quoted(name, arguments), named(name, arguments, working))
        said = [(text if text not in ("", ".") else place, path) for (place, text), path in pairs]
    return next(raw for raw, path in said if _in_scope(path, scope))


def supported() -> List[str]:
    """The calls that this strace knows for this machine."""
    return [
        name
        for name in CALLS
        if subprocess.run(["strace", "-e", f"trace={name}", "true"], capture_output=True, check=False).returncode == 0
    ]


def _quoted(name: str, arguments: str) -> List[Tuple[str, str]]:
    """The names in a call, each with its directory's where that is given."""
    return _NAMED.findall(arguments)[: 1 if name in ANSWERING else None]


def named(name: str, arguments: str, working: str) -> Iterator[str]:
    """The paths that a call is about, from the root; `working` is where names begin that have no directory of their own."""
    arguments = arguments.partition(") = ")[0]
    if name in BY_DESCRIPTOR:
        yield from _FD.findall(arguments)
        return
    for place, text in _quoted(name, arguments):
        yield os.path.normpath(os.path.join(place or working, text)) if text else place


def path_of(name: str, arguments: str, scope: Sequence[str], working: str) -> Optional[str]:
    """The first path of a call that is in scope, with numbers of the moment as #; None: it is about none."""
    for text in named(name, arguments, working):
        if _in_scope(text, scope):
            return _MOMENT.sub("#", text.removesuffix(" (deleted)"))
    return None


def _in_scope(text: str, scope: Sequence[str]) -> bool:
    path = text.removesuffix(" (deleted)")
    return any(path == one or path.startswith(one + "/") for one in scope)


def calls(lines: Sequence[str], scope: Sequence[str], working: str = "/") -> List[Call]:
    """The calls of one process that are in scope, in order."""
    counted: Dict[str, int] = {}
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        name = match.group(1)
        if name not in CALLS:
            continue
        counted[name] = counted.get(name, 0) + 1
        path = path_of(name, match.group(2), scope, working)
        if path is not None:
            found.append(Call(name, counted[name], path))
    return found


class Process(NamedTuple):
    """What one process did: before it became another program, and as that one; main is the one that was begun."""

    pid: str
    own: List[str]
    program: str = ""
    as_program: Tuple[str, ...] = ()


def processes(text: str) -> List[Process]:
    """The processes in a trace with `execve`, the one that was begun first."""
    found: Dict[str, List[str]] = {}
    for line in text.splitlines():
        pid, _blank, rest = line.partition(" ")
        rest = rest.lstrip()
        resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", rest)
        if resumed is None:
            found.setdefault(pid, []).append(rest)
            continue
        begun = next((n for n in reversed(range(len(found[pid]))) if found[pid][n].endswith("<unfinished ...>")), None)
        if begun is not None:
            found[pid][begun] = found[pid][begun][: -len("<unfinished ...>")] + resumed.group(1)
    return [_process(pid, lines) for pid, lines in found.items()]


def _process(pid: str, lines: List[str]) -> Process:
    for number, line in enumerate(lines):
        match = re.match(r'execve\("([^"]+)".* = 0$', line)
        if match is not None:
            return Process(pid, lines[:number], os.path.basename(match.group(1)), tuple(lines[number + 1 :]))
    return Process(pid, lines)


KILL = "SIGUSR1"
"""Ends a process that has no handler for it, and none has. SIGKILL on the way into a call would keep the call from being made."""


def hits(text: str, name: str, fault: str) -> List[str]:
    """The calls that the fault was in, without the process before each."""
    made: Dict[str, List[str]] = {}
    for line in text.splitlines():
        pid, said = re.match(r"(\d*) *(.*)", line).groups()  # type: ignore[union-attr]
        made.setdefault(pid, []).append(said)
    if fault != "SIGKILL":
        return [line for lines in made.values() for line in lines if "(INJECTED)" in line]
    killed = [lines for lines in made.values() if any(line.startswith("+++ killed by " + KILL) for line in lines)]
    return [line for lines in killed for line in [one for one in lines if one.startswith(name + "(")][-1:]]


def options(name: str, number: int, fault: str) -> List[str]:
    """strace's words for one fault at one call."""
    how = f"signal={KILL}" if fault == "SIGKILL" else f"error={fault}"
    return ["-y", "-s", "160", "-e", f"trace={name}", "-e", f"inject={name}:{how}:when={number}"]


class Tracer:
    """strace, attached to a process that waits."""

    def __init__(self, pid: int, out: str, words: Sequence[str]) -> None:
        self.out = out
        self._process = subprocess.Popen(
            ["strace", "-o", out, *words, "-p", str(pid)], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        while line and "attached" not in line:  # it says first which names `-P` leads to
            line = self._process.stderr.readline()
        if not line:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"strace does not attach to {pid}: {' '.join(words)}")

    def end(self) -> str:
        """What it saw, once the process is gone."""
        try:
            self._process.communicate(timeout=ATTACHED_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate()
        with open(self.out, encoding="utf-8", errors="replace") as file:
            return file.read()
