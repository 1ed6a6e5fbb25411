# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the built agent again and again, each run a process of its own, without starting a Python for each.

The archive's modules are loaded once, from the archive, as its own first lines do; a run is a fork that calls its `main`.
What a fault may hit begins there. A run that is to be traced waits until it is told to go on. The wall clock stands still
in all of them, at when the archive was made, so that two runs that do the same leave the same bytes.

As a program: `python -I zygote.py ARCHIVE GO`, GO being a descriptor to wait on. Each line on standard input is
`{"argv": [...], "given": text, "out": file, "hold": bool}`; answered by `{"pid": n}` and, when that has ended, by `{"status": n}`.
With a directory in GO's place it is asked by whoever has only a shell (`SHIM`): the asker's number and the words, a line each,
in the directory's FIFO `asked`; that number and the status come back in `answers`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import zipfile
from typing import Any, Dict, List, Mapping


def load(archive: str) -> Any:
    """What runs a command line, with every module of the archive loaded that can be."""
    now = float(int(os.stat(archive).st_mtime) + 1)
    time.time = lambda: now
    sys.path[0] = "/proc/self/fd/%d" % os.open(archive, os.O_RDONLY)
    with zipfile.ZipFile(archive) as file:
        names = [name[: -len(".py")].replace("/", ".") for name in file.namelist() if name.endswith(".py")]
    for name in names:
        if not name.endswith(("__init__", "__main__")):
            with contextlib.suppress(ImportError):  # requests, where there is none: no job here fetches
                importlib.import_module(name)
    return importlib.import_module("slotward.cli").main


def run(main: Any, archive: str, asked: Dict[str, Any], go: int) -> None:
    """In the new process: be the agent."""
    os.setsid()
    out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(out, number)
    os.close(out)
    given, give = os.pipe()
    os.write(give, asked["given"].encode("utf-8"))  # less than a pipe holds
    os.dup2(given, 0)
    for number in (given, give):
        os.close(number)
    sys.argv = [archive, *asked["argv"]]
    if asked["hold"]:
        os.read(go, 1)
    status = 1
    try:
        status = main(sys.argv[1:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (as Python itself would end)
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status or 0)


def serve(archive: str, go: int) -> None:
    """Until standard input ends."""
    main = load(archive)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            run(main, archive, asked, go)
        print(json.dumps({"pid": pid}), flush=True)
        print(json.dumps({"status": ended(pid)}), flush=True)


def ended(pid: int) -> int:
    """Wait for its end: its status, or minus the signal that ended it."""
    _pid, status = os.waitpid(pid, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


SHIM = """#!/bin/sh
case " $* " in
*" -- {archive} "*) ;;
*) exec {fake} "$@" ;;
esac
printf 'systemd-run %s\\n' "$*" >>"$FAKE_SYSTEMD/calls"
while [ "$1" != -- ]; do shift; done
shift 2
for word in $$ "$@"; do printf '%s\\n' "$word"; done >{place}/asked
while read -r who status; do
    [ "$who" != $$ ] || exit "$status"
done <{place}/answers
"""
"""A `systemd-run` that has a listening program run the agent, where the agent is what is to be run."""


def listen(archive: str, place: str) -> None:
    """Until it is killed."""
    main = load(archive)
    answers = os.open(f"{place}/answers", os.O_RDWR)  # so that it never waits for a reader
    print(json.dumps({"ready": True}), flush=True)
    while True:
        with open(f"{place}/asked", encoding="utf-8") as file:
            who, *argv = file.read().splitlines()
        pid = os.fork()
        if not pid:
            run(main, archive, {"argv": argv, "given": "", "out": f"{place}/out", "hold": False}, 0)
        os.write(answers, f"{who} {ended(pid)}\n".encode("ascii"))


class Zygote:
    """The other side of it: one such program, and what it was last asked for."""

    def __init__(self, archive: str, environment: Mapping[str, str], out: str) -> None:
        self._out = out
        ready, self._go = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, archive, str(ready)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment), cwd="/", pass_fds=[ready], text=True,
        )  # fmt: skip
        os.close(ready)
        if not self._hear().get("ready"):
            raise AssertionError("the agent's archive does not load")

    def _hear(self) -> Dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("what runs the agent has ended")
        return dict(json.loads(line))

    def begin(self, argv: List[str], given: str = "", hold: bool = False) -> int:
        """Begin a run, `given` being its standard input; its process, which waits for `go` where it is to be held."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"argv": argv, "given": given, "out": self._out, "hold": hold}) + "\n")
        self._process.stdin.flush()
        return int(self._hear()["pid"])

    def go(self) -> None:
        """Let the run go on that is held."""
        os.write(self._go, b"x")

    def end(self) -> int:
        """Wait for its end: its status, or minus the signal that ended it."""
        return int(self._hear()["status"])

    def said(self) -> str:
        """The end of what the last run has written."""
        with open(self._out, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def close(self) -> None:
        """Leave nothing running."""
        self._process.kill()
        self._process.wait()
        os.close(self._go)


class Listener:
    """A program that runs the agent for `place`/systemd-run, as systemd would run a transient unit of it; all else `fake` runs."""

    def __init__(self, archive: str, environment: Mapping[str, str], place: pathlib.Path, fake: pathlib.Path) -> None:
        place.mkdir()
        for name in ("asked", "answers"):
            os.mkfifo(place / name)
        self.shim = SHIM.format(archive=archive, place=place, fake=fake)
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, archive, str(place)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(environment), cwd="/", text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise AssertionError("the agent's archive does not load")

    def close(self) -> None:
        """Leave nothing running."""
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[2].isdigit():
        serve(sys.argv[1], int(sys.argv[2]))
    listen(sys.argv[1], sys.argv[2])
