# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks systemd: `systemctl` and `systemd-run`, each call a list of arguments with a time limit.

Rules:
- No shell, no parsing of what is made for people: properties come from `systemctl show`.
- A host without systemd is refused (`no-systemd`); a call that fails or hangs is Retryable and names the command.
- `subprocess` is imported when the first call is made: most starts of the agent make none (DESIGN 9).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

from slotcore import codes

if TYPE_CHECKING:
    import subprocess

QUICK_S = 10.0
START_S = 30.0
RELOAD_S = 60.0
MAX_OUTPUT = 64 * 1024


class Output(NamedTuple):
    """How a command ended and what it wrote, both streams together, at most `MAX_OUTPUT` characters."""

    code: int
    output: str


def environment() -> Dict[str, str]:
    """What systemd's programs are run with: nothing of a terminal, a locale, or a library that is put before theirs."""
    kept = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    kept.update({"LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"})
    return kept


def no_systemd(program: str) -> codes.Refused:
    """The refusal of a host on which that program is not there."""
    return codes.refused(
        codes.NO_SYSTEMD, f"cannot run {program}: this host has no systemd, so nothing could end a trial"
    )


def failed(argv: Sequence[str], why: str) -> codes.Retryable:
    """The error of a command that says nothing, or no; it names the command."""
    return codes.Retryable(codes.SYSTEMD_FAILED, f"`{' '.join(argv)}` {why}")


def _run(argv: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    import subprocess

    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=environment(),
            check=False,
        )
    except FileNotFoundError:
        raise no_systemd(argv[0]) from None
    except subprocess.TimeoutExpired:
        raise failed(argv, f"gave no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise failed(argv, f"cannot be run: {error.strerror}") from None


def _systemctl(arguments: Sequence[str], timeout_s: float = QUICK_S) -> str:
    """Run systemctl; raises when it does not end with 0."""
    argv = ["systemctl", *arguments]
    done = _run(argv, timeout_s)
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip() or "no output").split())
        if "not been booted with systemd" in said:
            raise no_systemd("systemctl")
        raise failed(argv, f"ended with status {done.returncode}: {said[-400:]}")
    return done.stdout


def show(unit: str, properties: Sequence[str]) -> Dict[str, str]:
    """The unit's properties by name; those that this systemd does not know are missing."""
    text = _systemctl(["show", "--property=" + ",".join(properties), "--", unit])
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)


def show_each(units: Sequence[str], properties: Sequence[str]) -> List[Dict[str, str]]:
    """As `show`, for several units in one call; one unit's properties after the other."""
    text = _systemctl(["show", "--property=" + ",".join(properties), "--", *units])
    blocks = text.strip("\n").split("\n\n")
    return [dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line) for block in blocks]


def version() -> int:
    """systemd's version, as in 252."""
    text = _systemctl(["--version"])
    words = text.split()
    if len(words) < 2 or not words[1].isdigit():
        raise failed(["systemctl", "--version"], f"answers {text[:80]!r}, no version")
    return int(words[1])


def is_active(unit: str) -> bool:
    """Whether systemd reports the unit active."""
    return show(unit, ("ActiveState",)).get("ActiveState") == "active"


def is_enabled(unit: str) -> bool:
    """Whether the unit is started at boot."""
    return _run(["systemctl", "is-enabled", "--", unit], QUICK_S).returncode == 0


def start(unit: str) -> None:
    """Start the unit and wait for it."""
    _systemctl(["start", "--", unit], START_S)


def start_no_block(unit: str) -> None:
    """Have the unit started, without waiting."""
    _systemctl(["--no-block", "start", "--", unit])


def stop(unit: str) -> None:
    """Stop the unit and wait for it."""
    _systemctl(["stop", "--", unit], START_S)


def reset_failed(*units: str) -> None:
    """Forget failures and the start limit's count (field case W2); a unit that systemd does not know has none."""
    _run(["systemctl", "reset-failed", "--", *units], QUICK_S)


def restart_no_block(*units: str, alone: bool = False) -> None:
    """Have the units restarted, or started, without waiting; one that cannot be keeps none of the others from it.

    `alone`: and nothing that they want with them.
    """
    only = ["--job-mode=ignore-requirements"] if alone else []
    _systemctl(["--no-block", *only, "restart", "--", *units])


def reload_no_block(unit: str) -> None:
    """Have the unit reload itself, without waiting; a unit that is stopped stays so."""
    _systemctl(["--no-block", "reload", "--", unit])


def restart(*units: str, alone: bool = False) -> None:
    """Our own way to restart units: their failures are reset first, and nothing waits."""
    reset_failed(*units)
    restart_no_block(*units, alone=alone)


def enable(unit: str) -> None:
    """Have the unit started at boot."""
    _systemctl(["enable", "--", unit], RELOAD_S)


def disable_now(unit: str) -> None:
    """Stop the unit, wait for that, and start it no more at boot; a failure is forgotten. A cut may have taken its file."""
    try:
        _systemctl(["disable", "--now", "--", unit], RELOAD_S)
    except codes.Retryable:
        if os.path.exists(show(unit, ("FragmentPath",)).get("FragmentPath", "/")):
            raise
        stop(unit)
    reset_failed(unit)


def create_files(path: str) -> None:
    """Have systemd make the files that a configuration of tmpfiles.d names, as it does at boot."""
    argv = ["systemd-tmpfiles", "--create", path]
    done = _run(argv, START_S)
    if done.returncode != 0:
        raise failed(argv, f"ended with status {done.returncode}: {' '.join(done.stderr.split())[-400:]}")


def daemon_reload() -> None:
    """Have systemd read the unit files again."""
    _systemctl(["daemon-reload"], RELOAD_S)


def verify(paths: Sequence[str]) -> Tuple[str, ...]:
    """What `systemd-analyze verify` says against unit files, nothing when they are right or it is not installed (W9)."""
    try:
        done = _run(["systemd-analyze", "verify", "--man=no", *paths], START_S)
    except codes.Refused:
        return ()
    lines = tuple(line for line in (done.stderr + done.stdout).splitlines() if line.strip())
    return lines or ((f"systemd-analyze verify ended with status {done.returncode}",) if done.returncode else ())


def refuses(path: str) -> str:
    """Why systemd would not load the unit file `path`; "" when it would, whatever it warns of, or nobody here can say."""
    try:
        done = _run(["systemd-analyze", "verify", "--man=no", path], START_S)
    except codes.Refused:
        return ""
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    about = [line for line in lines if os.path.basename(path) in line] or lines
    return "; ".join(about[-3:]) or f"systemd-analyze verify ended with status {done.returncode}"


COLLECTED = ("--collect", "--pipe", "--wait")
"""How most are run: systemd forgets the unit when it has ended, however that was."""


def transient(
    argv: Sequence[str], unit: str, properties: Sequence[str] = (), options: Sequence[str] = COLLECTED
) -> List[str]:
    """The command that runs `argv` in a transient unit of that name, outside the caller's sandbox and session.

    In all words but the program's systemd takes `$NAME` for a variable, and `$$` for the sign itself.
    """
    words = [word.replace("$", "$$") for word in argv[1:]]
    settings = [f"--property={setting}" for setting in properties]
    return ["systemd-run", "--quiet", *options, f"--unit={unit}", *settings, "--", *argv[:1], *words]


NOT_BEGUN = frozenset(range(200, 246)) - {203}  # systemd's own (systemd.exec(5)), but for the kernel's no to a program
UNSURE = frozenset((0, 1))
"""What systemd-run ends with for a program, and for itself: 0 when the bus goes away meanwhile, 1 for any other failure.

It is also 1 for what systemd ends by any result but a status.
"""
PROGRAMS_OWN = frozenset(("exit-code", "signal", "core-dump", "timeout", "watchdog", "oom-kill"))
"""systemd's words for how a program ended; all else is about what systemd itself could not do (systemd.service(5))."""


def run_transient(argv: Sequence[str], properties: Sequence[str], timeout_s: float, what: str) -> Output:
    """Run a command in a transient unit, bounded in time, and take what it wrote.

    What systemd itself cannot begin, or systemd-run not follow to its end, raises Retryable: that says nothing of the
    command. The unit that failed is there to be asked until it is forgotten here, so it has a name of its own.
    """
    from slotward import bounded

    unit = f"slotward-{what}-{os.getpid()}-{time.monotonic_ns()}"
    limits = (f"RuntimeMaxSec={timeout_s:g}", "TimeoutStopSec=2", "KillSignal=SIGKILL")
    command = transient(argv, unit, (*properties, *limits), ("--pipe", "--wait"))
    left = True
    try:
        done = bounded.run(command, timeout_s + START_S)
        if done.code in UNSURE or done.code < 0:
            _demand_ended(unit, argv, done)
        left = done.code != 0
    except codes.Retryable:
        _run(["systemctl", "stop", "--", unit], QUICK_S)
        raise
    finally:
        if left:
            reset_failed(unit)
    if done.code in NOT_BEGUN:
        raise failed(argv, f"could not be begun (status {done.code}): `journalctl -b -t systemd -n 20` says why")
    return done


def _demand_ended(unit: str, argv: Sequence[str], done: Output) -> None:
    """Raise Retryable unless systemd says that the unit's program ended, by itself or for its limits."""
    shown = show(unit, ("ActiveState", "Result"))
    state, result = shown.get("ActiveState"), shown.get("Result")
    if (done.code == 0 and state == "inactive") or (done.code != 0 and state == "failed" and result in PROGRAMS_OWN):
        return
    from slotward import bus

    said = " ".join(done.output.split())[-300:] or "no output"
    why = bus.problem() or "`journalctl -b -t systemd -n 20` says more"
    raise failed(
        argv, f"could not be begun, or followed to its end: systemd-run ended with status {done.code}: {said}; {why}"
    )


def run_attached(argv: Sequence[str], unit: str, properties: Sequence[str] = ()) -> Output:
    """Run a command in a transient unit with this process's own input and errors, and wait; the unit outlives this process."""
    from slotward import bounded

    return bounded.attached(transient(argv, unit, properties))


def run_detached(argv: Sequence[str], unit: str, properties: Sequence[str] = (), timeout_s: float = QUICK_S) -> None:
    """Have a command run in a transient unit, without waiting for it."""
    command = transient(argv, unit, properties, ("--collect", "--no-block"))
    done = _run(command, timeout_s)
    if done.returncode != 0:
        raise failed(command, f"ended with status {done.returncode}: {done.stderr.strip()[-400:]}")


def booted() -> Optional[str]:
    """Why this host is not run by systemd, or None."""
    return None if os.path.isdir("/run/systemd/system") else "/run/systemd/system is missing"
