# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start, or a command, does with an update in flight (seed 000 "Settle and confirm"; node.md, section 4).

Rules:
- Decided from where the links point and from the record's name, never from the version that a process claims.
- The name of the record says who won the end of the trial (I12); whoever comes later finishes that.
- A cut before `current` moved is an abandoned update, not a failed version.
- A bad or lost record, while `current` is not `good`, is past its deadline (I2).
- Deadlines are uptime in one boot (I10); another boot is a new length while boots are left (I7).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import codes, records
from . import product as products

if TYPE_CHECKING:
    from . import trial as trials
    from . import trust_record as trusts

ASIDE = ".broken-"
"""What the name of something that was set aside has between its old name and when."""
TRIAL_NAMES = ("trial.log", "trial.sources")
"""What belongs to a trial beside its record and the links to go back by."""
PROBE = ".probe-"
"""What the name begins with of the program that is tried in the directory; whose process follows."""
WAYS_BACK = ("back", "helper.back")
"""Those links, of a product with a helper or without one."""
ODD = b"\0"
"""Stands for the contents of a name that is no plain file: a bad record, to which nothing can be appended."""


class Clock(NamedTuple):
    """One reading of this boot: whole seconds of /proc/uptime, and the boot's id."""

    uptime_s: int
    boot_id: str


SLACK_S = 5
"""How much further off than its length a deadline may read before the record counts as bad; the guard has the same."""

NO_SLOTS: Mapping[str, records.SlotRecord] = {}


class Damage(NamedTuple):
    """A record that cannot be believed, and what its copy says."""

    name: str
    why: str
    there: bool
    """Whether something of this name is there to be set aside; never when only reading it failed."""
    copy: Optional[bytes] = None
    """The record's bytes when its copy proves itself."""
    copy_why: str = ""
    """What is wrong with the copy otherwise."""


class State(NamedTuple):
    """All that one look at a slots directory and its entrypoint found; links by the slot they name, None when missing or odd."""

    current: Optional[str] = None
    good: Optional[str] = None
    back: Optional[str] = None
    in_use: bool = False
    """Whether the name `current` exists, whatever it is."""
    entrypoint: str = "missing"
    """`missing`, `file`, `ours` (a link to `current`) or `elsewhere`."""
    trial: Optional[bytes] = None
    confirm: Optional[bytes] = None
    revert: Optional[bytes] = None
    log: bytes = b""
    sources: bytes = b""
    slots: Mapping[str, records.SlotRecord] = NO_SLOTS
    update: records.Update = records.Update()
    broken: Optional[Tuple[str, str]] = None
    """The record that cannot be read, and why; `slots` or `update` is then empty and must not be written."""
    damaged: Tuple[Damage, ...] = ()
    """Every JSON record that cannot be read."""
    aside: Tuple[str, ...] = ()
    """Names of what was set aside earlier, a directory's with a slash; looked for only when something is damaged."""
    trust: Optional[trusts.Trust] = None
    """The record of trust; None when none was ever written, or it cannot be believed."""
    trust_known: bool = True
    """Whether that None is to be believed: a record of trust that is lost is no licence for the configuration's pins."""
    helper: Optional[str] = None
    """What the helper's unit starts, where its release goes back to; both looked at only when the product has a helper."""
    helper_back: Optional[str] = None
    snapshot: Optional[bytes] = None
    """What says that a copy of the data is kept, which a release on trial may have changed (`keeping`)."""


def is_mendable(state: State) -> bool:
    """Whether settling has something to do about a broken record: to set it aside, to write it anew."""
    return any(damage.there or damage.copy is not None for damage in state.damaged)


def is_behind(product: products.Product, state: State) -> bool:
    """Whether the product has a helper, and its unit would not start what `current` names."""
    return bool(product.helper_unit) and state.current is not None and state.helper != state.current


class Action(enum.Enum):
    """What to do about the update in flight."""

    NONE = "none"
    AWAIT = "await"
    GO_BACK = "go-back"
    FAILED = "failed"
    ABANDONED = "abandoned"
    FINISH_REVERT = "finish-revert"
    FINISH_CONFIRM = "finish-confirm"


class Settlement(NamedTuple):
    """The action, its reason's code, and the trial when its record could be read."""

    action: Action
    reason: str
    trial: Optional[trials.Trial] = None

    @property
    def on_trial(self) -> Optional[trials.Trial]:
        """The trial that may still be confirmed; None when there is none, or its end is decided."""
        return self.trial if self.action is Action.AWAIT else None


def deadline_reason(trial: trials.Trial, clock: Clock) -> Optional[str]:
    """Why the trial is over, or None while it has time left."""
    if trial.boot_id != clock.boot_id:
        return None if trial.boots_left > 0 else codes.NO_BOOTS_LEFT
    return codes.DEADLINE_PASSED if clock.uptime_s >= trial.deadline_s else None


def left_s(trial: trials.Trial, clock: Clock) -> int:
    """Seconds until the trial's deadline; the whole length when it will be given anew in this boot."""
    if trial.boot_id != clock.boot_id:
        return trial.length_s if trial.boots_left > 0 else 0
    return max(0, trial.deadline_s - clock.uptime_s)


def is_impossible(trial: trials.Trial, clock: Clock) -> bool:
    """Whether the deadline lies further off than the trial is long, which no swap and no renewal writes."""
    return trial.boot_id == clock.boot_id and trial.deadline_s > clock.uptime_s + trial.length_s + SLACK_S


def _without_record(state: State) -> Settlement:
    if state.current == state.good or None in (state.current, state.good):
        return Settlement(Action.NONE, codes.OK)  # a link that names no slot is a broken link, not a trial's: repair
    if state.entrypoint == "file":
        return Settlement(Action.ABANDONED, codes.NEVER_STARTED)  # a cut while adopting: the file is what starts
    return Settlement(Action.GO_BACK, codes.LOST_RECORD)


def _with_trial(state: State, data: bytes, clock: Clock) -> Settlement:
    from . import trial as trials  # few starts meet a trial, and every start pays for what it imports

    trial = trials.parse_trial(data)
    if state.current == state.good:
        if trials.was_started(state.log):
            return Settlement(Action.FAILED, codes.DID_NOT_START, trial)
        return Settlement(Action.ABANDONED, codes.NEVER_STARTED, trial)
    if trial is None or state.current != trial.to_slot or is_impossible(trial, clock):
        return Settlement(Action.GO_BACK, codes.BAD_RECORD, trial)
    over = deadline_reason(trial, clock)
    if over is not None:
        return Settlement(Action.GO_BACK, over, trial)
    return Settlement(Action.AWAIT, codes.TRIAL_PENDING, trial)


def decide(state: State, clock: Clock) -> Settlement:
    """The row of node.md's settle table that `state` is in. A claimed end comes first, whatever the links say."""
    if not state.in_use:
        return Settlement(Action.NONE, codes.OK)
    if state.confirm is not None:
        from . import trial as trials

        return Settlement(Action.FINISH_CONFIRM, codes.OK, trials.parse_trial(state.confirm))
    if state.revert is not None:
        from . import trial as trials

        trial, reason = trials.parse_revert(state.revert)
        return Settlement(Action.FINISH_REVERT, reason or codes.DID_NOT_START, trial)
    if state.trial is not None:
        return _with_trial(state, state.trial, clock)
    return _without_record(state)


def new_slot(state: State, trial: Optional[trials.Trial]) -> Optional[str]:
    """The slot on trial: as recorded, else the one that is not good."""
    if trial is not None:
        return trial.to_slot
    if state.good is None:
        return None
    return products.other_slot(state.good)


def _is_leftover(name: str) -> bool:
    """A temporary of ours or of the guard, or what belongs to a trial; asked only when there is no trial."""
    return name.endswith(".tmp") or name.startswith((".trial.", PROBE)) or name in (*WAYS_BACK, *TRIAL_NAMES)


def leftovers(state: State, names: Sequence[str]) -> Tuple[str, ...]:
    """Of the `names` in the slots directory, what a cut left there; none while a trial or damage may need it."""
    records_there = (state.trial, state.confirm, state.revert) != (None, None, None)
    if records_there or state.broken is not None or state.current != state.good:
        return ()
    return tuple(sorted(filter(_is_leftover, names)))
