# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command that may say and take as much as it likes, within bounds of time and of what is kept.

Rules:
- What each stream said last is kept, at most `systemd.MAX_OUTPUT` bytes of it.
- Imported when such a command is run: it brings `subprocess` (DESIGN 9).
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import Optional, Sequence

from slotward import systemd


def run(argv: Sequence[str], timeout_s: float) -> systemd.Output:
    """Run a command and keep the last that each of its streams said, however much that was."""
    pipe = subprocess.PIPE
    process = _begun(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    return _taken(argv, process, timeout_s)


def attached(argv: Sequence[str]) -> systemd.Output:
    """Run a command with this process's own standard input and error, for as long as it takes; keep what it answers."""
    return _taken(argv, _begun(argv, stdin=None, stdout=subprocess.PIPE, stderr=None), None)


def _begun(argv: Sequence[str], stdin: Optional[int], stdout: int, stderr: Optional[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(argv), stdin=stdin, stdout=stdout, stderr=stderr, env=systemd.environment())
    except FileNotFoundError:
        raise systemd.no_systemd(argv[0]) from None
    except OSError as error:
        raise systemd.failed(argv, f"cannot be run: {error.strerror}") from None


def _taken(argv: Sequence[str], process: subprocess.Popen[bytes], timeout_s: Optional[float]) -> systemd.Output:
    """What it says until it ends. Who holds a stream after that is not waited for: it may be another of the same account."""
    said = {stream.fileno(): b"" for stream in (process.stdout, process.stderr) if stream is not None}
    ended, open_ones = os.pidfd_open(process.pid), set(said)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    with process:
        try:
            ready = [ended, *open_ones]
            while ready != [ended]:
                left = None if until is None else until - time.monotonic()
                ready = select.select([ended, *open_ones], [], [], left)[0] if left is None or left > 0 else []
                if not ready:
                    raise systemd.failed(argv, f"gave no answer within {timeout_s:g} s")
                for one in open_ones.intersection(ready):
                    block = os.read(one, systemd.MAX_OUTPUT)
                    said[one] = (said[one] + block)[-systemd.MAX_OUTPUT :]
                    open_ones -= set() if block else {one}
        except BaseException:
            process.kill()  # before it is waited for
            raise
        finally:
            os.close(ended)
    return systemd.Output(process.returncode, b"".join(said.values()).decode("utf-8", "replace")[-systemd.MAX_OUTPUT :])
