# SPDX-License-Identifier: GPL-3.0-or-later
"""What is run under faults: each job of the agent and of the guard, the state it begins in, and how it is done again."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
from typing import Callable, Dict, List, NamedTuple, Tuple

from agent.accounts import ACCOUNT
from faults import hosts

from slotcore import protocol

OTHER_BOOT = "11111111-6f0e-4c39-9a3e-2f6f0a1f2f10"
OVER_S = -1
"""Time that a trial has left whose deadline has passed."""


class Job(NamedTuple):
    """One job: its words, the state that it begins in, and what there is of the daemon."""

    name: str
    state: str
    words: Tuple[str, ...]
    again: Tuple[str, ...] = ()
    """Its words the second time; none: the same."""
    given: str = ""
    given_again: str = ""
    """Its standard input, the first time and the second."""
    left_s: int = hosts.LENGTH_S - 5
    runs: bool = False
    """The daemon runs what `current` names."""
    guard: str = ""
    """The guard's mode, of what is no job of the agent."""
    ends_too: Tuple[str, ...] = ()
    """Codes of ends that are as good: of a trial whose record could not be read or written, the guard goes back."""
    unit: Tuple[Tuple[str, object], ...] = ()
    """What systemd says of the unit, other than that it runs well."""


CRASHED = (
    ("ActiveState", "activating"),
    ("SubState", "auto-restart"),
    ("NRestarts", 4),
    ("ExecMainExitTimestampMonotonic", 950000050),
)


DO = ("helper", "--do", "--json")
"""What the helper has run for each request: the request comes on standard input."""


def _asked(operation: str, number: str = "0123456789abcdef", **more: str) -> str:
    return protocol.render_request(protocol.Request(operation, number, **more)).decode("ascii")  # type: ignore[arg-type]


def _swap(trial_id: str) -> str:
    return _asked(protocol.SWAP, trial_id, target="wanted.target")


def jobs(releases: hosts.Releases) -> List[Job]:
    """All of them."""
    setup = ("setup", "--from", releases.path("1.0.0", "program"), "--manifest", releases.path("1.0.0", "manifest"))
    upgrade = ("upgrade", "--target", releases.path("1.1.0", "target"), "--src", releases.path("1.1.0", "program"))
    swap = (*upgrade, "--no-wait", "--here", "--json", "--id")
    return [
        Job("swap", "rest", (*swap, hosts.ID), (*swap, hosts.OTHER_ID)),
        Job("confirm", "trial", ("confirm", "--id", hosts.ID, "--wait", "0", "--json"), runs=True),
        Job("rollback", "trial", ("rollback", "--id", hosts.ID, "--json")),
        Job("adopt", "plain", ("setup", "--adopt", "--json")),
        Job("install", "bare", (*setup, "--json")),
        Job("clear-failed", "failed", ("update", "--clear-failed", "--json")),
        Job("settle-over", "trial", ("settle", "--json"), left_s=OVER_S),
        Job("settle-revert", "reverting", ("settle", "--json")),
        Job("settle-confirm", "confirming", ("settle", "--json")),
        Job("settle-torn", "torn", ("settle", "--json")),
        Job("guard-tick", "trial", (), left_s=OVER_S, guard="tick"),
        Job("guard-start", "crashing", (), guard="start", unit=CRASHED),
        Job("guard-boot", "rebooted", (), guard="start", ends_too=("cannot-record", "bad-record", "lost-record")),
        Job("helper-swap", "handed", DO, given=_swap(hosts.ID), given_again=_swap(hosts.OTHER_ID)),
        Job("helper-rollback", "helped-trial", DO, given=_asked(protocol.ROLLBACK, trial=hosts.ID)),
        Job("guard-tick-helper", "helped-trial", (), left_s=OVER_S, guard="tick"),
        Job("guard-finish", "reverting", (), guard="tick"),
    ]


def _rest(host: hosts.Host) -> None:
    host.clear()
    host.must(*_words(host, "install"))


def _words(host: hosts.Host, name: str) -> Tuple[str, ...]:
    return next(job.words for job in jobs(host.releases) if job.name == name)


def _trial(host: hosts.Host) -> None:
    put(host, "rest")
    host.must(*_words(host, "swap"))


def _plain(host: hosts.Host) -> None:
    host.clear()
    shutil.copy(host.releases.path("1.0.0", "program"), hosts.ENTRYPOINT)
    host.must("setup", "--json")


def _failed(host: hosts.Host) -> None:
    put(host, "trial")
    host.must("rollback", "--id", hosts.ID, "--json")


def _reverting(host: hosts.Host) -> None:
    put(host, "trial")
    path = pathlib.Path(hosts.SLOTS, "trial")
    path.write_text(path.read_text(encoding="ascii") + "REASON=deadline-passed\n", encoding="ascii")
    path.rename(f"{hosts.SLOTS}/trial.revert")


def _confirming(host: hosts.Host) -> None:
    put(host, "trial")
    os.rename(f"{hosts.SLOTS}/trial", f"{hosts.SLOTS}/trial.confirm")


def _torn(host: hosts.Host) -> None:
    put(host, "failed")
    path = pathlib.Path(hosts.SLOTS, "update.json")
    path.write_bytes(path.read_bytes()[:20])


def _crashing(host: hosts.Host) -> None:
    put(host, "trial")
    with open(f"{hosts.SLOTS}/trial.log", "a", encoding="ascii") as file:
        file.write("start 100\ncrash 110 1.1.1\nstart 110\ncrash 120 2.2.2\nstart 120\ncrash 130 3.3.3\nstart 130\n")


def _rebooted(host: hosts.Host) -> None:
    put(host, "trial")
    path = pathlib.Path(hosts.SLOTS, "trial")
    lines = [f"BOOT_ID={OTHER_BOOT}" if line.startswith("BOOT_ID=") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join([*lines, ""]), encoding="ascii")


def _helped(host: hosts.Host) -> None:
    host.clear()
    host.configure(f'[helper]\nuser = "{ACCOUNT}"\n')
    host.must(*_words(host, "install"))


def _handed(host: hosts.Host) -> None:
    put(host, "helped")
    account = pwd.getpwnam(ACCOUNT)
    staging = pathlib.Path(hosts.STAGING, "staging")
    staging.mkdir(mode=0o700, exist_ok=True)
    for kind, name in (("target", "wanted.target"), ("program", "slotward-1.1.0")):
        shutil.copy(host.releases.path("1.1.0", kind), staging / name)
        (staging / name).chmod(0o600)
    for path in (staging, *staging.iterdir()):
        os.chown(path, account.pw_uid, account.pw_gid)


def _helped_trial(host: hosts.Host) -> None:
    put(host, "handed")
    host.must(*DO, given=_swap(hosts.ID))


STATES: Dict[str, Callable[[hosts.Host], None]] = {
    "bare": lambda host: host.clear(),
    "rest": _rest,
    "trial": _trial,
    "plain": _plain,
    "failed": _failed,
    "reverting": _reverting,
    "confirming": _confirming,
    "torn": _torn,
    "crashing": _crashing,
    "rebooted": _rebooted,
    "helped": _helped,
    "handed": _handed,
    "helped-trial": _helped_trial,
}
"""How each state is made: by the commands that lead there, and by what a cut in the middle of one leaves."""


def put(host: hosts.Host, name: str, left_s: int = hosts.LENGTH_S - 5) -> None:
    """Put that state in place; it is made when it is first needed."""
    if not host.has(name):
        STATES[name](host)
        host.keep(name)
    host.put(name, left_s)
