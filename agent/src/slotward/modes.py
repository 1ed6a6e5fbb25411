# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host needs beside its units to be in the mode of its configuration, and what another mode left: a list of steps.

Rules:
- Pure: what was found goes in, steps come out. `mode_setup` looks and carries them out; `--check` shows the same list.
- What the daemon needs comes before its units (the account, a configuration that it can read), what it must no longer
  have comes after systemd has read them (data_dir, files of the other mode). So at every instant a daemon that is started
  anew starts, and a cut leaves something that the next run still finds.
- A host that is as it should be has no steps.
"""

from __future__ import annotations

import enum
from typing import List, NamedTuple, Optional, Tuple

from slotward import accounts, handover, units_modes, ways

FILE_MODE, DIRECTORY_MODE = 0o640, 0o750
ROOT_FILE_MODE, ROOT_DIRECTORY_MODE = 0o600, 0o755


class Kind(enum.Enum):
    """The effects that there are."""

    ACCOUNT = "account"
    MEND = "mend"
    DIRECTORY = "directory"
    OWNER = "owner"
    LINK = "link"
    STOP = "stop"
    REMOVE = "remove"
    RELOAD = "reload"
    CREATE = "create"
    ENABLE = "enable"
    EMPTY = "empty"
    FORGET = "forget"
    HAND_OVER = "hand-over"


class Phase(enum.Enum):
    """When a step is due: before the units are written, with them, after systemd has read them."""

    BEFORE = 0
    UNITS = 1
    AFTER = 2


class Step(NamedTuple):
    """One effect; `what` says it to an operator."""

    phase: Phase
    kind: Kind
    path: str
    what: str
    owned: Optional[handover.Owned] = None
    """Owner and mode that a configuration gets."""


class Seen(NamedTuple):
    """What one look at the host found."""

    mode: str
    user: str
    account: Optional[accounts.Account]
    config: str = ""
    config_is: Optional[handover.Owned] = None
    directory: str = ""
    """The configuration's directory where it is the agent's own; "" for one that others use too."""
    directory_is: Optional[handover.Owned] = None
    data_dir: str = ""
    data_due: bool = False
    between_accounts: bool = False
    """Whether data_dir goes from one account to another: then first, while the units still say whose it was."""
    risks: Tuple[ways.Risk, ...] = ()
    socket_directory: str = ""
    """The directory of the helper's socket, when it has to be made."""
    helper_link: str = ""
    """The helper's link, when it does not name what starts."""
    stale_files: Tuple[str, ...] = ()
    stale_units: Tuple[str, ...] = ()
    """Units of another mode that run or are enabled."""
    leftovers: Tuple[str, ...] = ()
    """Names that root made for another mode, which are there."""
    trees: Tuple[str, ...] = ()
    """Directories that root made for another mode, which are there."""
    forget: str = ""
    """A request that an earlier time in start mode may have left, and that nobody asks for any more."""
    start_directory: bool = False
    """Whether the files that trigger in start mode are there, and the account's."""
    enable: Tuple[str, ...] = ()
    reload: bool = False
    """Whether systemd has not read what lies there, after a run that was cut."""


def _step(phase: Phase, kind: Kind, path: str, what: str = "", owned: Optional[handover.Owned] = None) -> Step:
    return Step(phase, kind, path, what or kind.value, owned)


def wanted_owner(mode: str, gid: int, found: handover.Owned, file: bool) -> handover.Owned:
    """Owner and mode of the configuration, or of its directory: root's, readable by the daemon and nobody else.

    Beside root's own daemon an operator's choice stands, while nobody else's group is left in it.
    """
    if mode != units_modes.ROOT:
        return handover.Owned(0, gid, FILE_MODE if file else DIRECTORY_MODE)
    if (found.uid, found.gid) == (0, 0) and not found.mode & 0o022:
        return found
    return handover.Owned(0, 0, ROOT_FILE_MODE if file else ROOT_DIRECTORY_MODE)


def _configuration(seen: Seen, group: str) -> List[Step]:
    phase = Phase.AFTER if seen.mode == units_modes.ROOT else Phase.BEFORE
    gid = seen.account.gid if seen.account is not None else -1
    steps = []
    for path, found, file in ((seen.directory, seen.directory_is, False), (seen.config, seen.config_is, True)):
        if path and found is not None:
            wanted = wanted_owner(seen.mode, gid, found, file)
            if wanted != found:
                steps.append(_step(phase, Kind.OWNER, path, f"owner root:{group} {wanted.mode:04o}", wanted))
    return steps


def _stale(seen: Seen) -> List[Step]:
    steps = [_step(Phase.UNITS, Kind.STOP, unit) for unit in seen.stale_units]
    steps += [_step(Phase.UNITS, Kind.REMOVE, path) for path in seen.stale_files]
    if seen.reload:
        steps.append(_step(Phase.UNITS, Kind.RELOAD, "systemd"))
    return steps


def _start_directory(seen: Seen) -> List[Step]:
    if seen.mode == units_modes.START and not seen.start_directory:
        return [_step(Phase.AFTER, Kind.CREATE, units_modes.START_DIR)]
    return []


def plan(seen: Seen) -> Tuple[Step, ...]:
    """Everything to do beside the units and slots, in order."""
    group = seen.account.group if seen.account is not None else seen.user
    steps: List[Step] = []
    if seen.account is None:
        steps.append(_step(Phase.BEFORE, Kind.ACCOUNT, seen.user, "create account"))
    steps += [_step(Phase.BEFORE, Kind.MEND, risk.path, risk.run) for risk in seen.risks]
    if seen.socket_directory:
        steps.append(_step(Phase.BEFORE, Kind.DIRECTORY, seen.socket_directory, "create"))
    steps += _configuration(seen, group)
    if seen.forget:
        steps.append(_step(Phase.BEFORE, Kind.FORGET, seen.forget, "remove"))
    steps += _stale(seen)
    if seen.helper_link:
        steps.append(_step(Phase.AFTER, Kind.LINK, seen.helper_link))
    steps += _start_directory(seen)
    steps += [_step(Phase.AFTER, Kind.ENABLE, unit) for unit in seen.enable]
    steps += [_step(Phase.AFTER, Kind.REMOVE, path) for path in seen.leftovers]
    steps += [_step(Phase.AFTER, Kind.EMPTY, path, "remove") for path in seen.trees]
    if seen.data_due:
        phase = Phase.BEFORE if seen.between_accounts else Phase.AFTER
        steps.append(_step(phase, Kind.HAND_OVER, seen.data_dir, f"owner {seen.user}:{group} 0700"))
    return tuple(sorted(steps, key=lambda step: step.phase.value))
