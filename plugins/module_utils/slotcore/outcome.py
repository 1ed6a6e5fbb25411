# SPDX-License-Identifier: GPL-3.0-or-later
"""The sentence for the end of a trial, and the state that an answer shows for it.

Rules:
- Success is said only after confirmation; until then the state is `trial` (I5).
- `rolled-back` and `rollback-failed` differ by whether the good version was seen to run (field case H6).
"""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

from . import codes, records
from . import settle as settles

_WHY: Dict[str, str] = {
    codes.CRASH_LOOP: "{product} {version} kept exiting by itself during its trial",
    codes.DEADLINE_PASSED: "{product} {version} was not confirmed before its deadline",
    codes.NO_BOOTS_LEFT: "the host rebooted more often than the trial of {product} {version} survives",
    codes.CANNOT_RECORD: "a reboot during the trial of {product} {version} could not be recorded",
    codes.SLOT_UNPROVEN: "at boot the slot of {product} {version} no longer held the bytes that had been verified",
    codes.BAD_RECORD: "the trial record of {product} {version} was damaged",
    codes.LOST_RECORD: "the trial record of {product} {version} was lost",
    codes.NEVER_STARTED: "the update to {product} {version} ended before it was started",
    codes.UNIT_FAILED: "the unit failed while {product} {version} was on trial",
    codes.UNIT_STOPPED: "{product} {version} exited during its trial and systemd does not restart it",
    codes.STAGED_MANUAL: "{product} {version} is staged and waits for an operator's word",
    codes.OPERATOR: "an operator took {product} {version} back",
    codes.GAVE_UP: "{product} {version} itself asked to go back",
    codes.PROBE_FAILED: "a required probe of {product} {version} kept failing",
    codes.PROBE_FLAPPING: "a required probe of {product} {version} kept changing between passing and failing",
    codes.SNAPSHOT_FAILED: "the data could not be kept before the first start of {product} {version}",
    codes.RESTORE_FAILED: "the data of before {product} {version} could not be restored",
    codes.TOO_MANY_STARTS: "{product} {version} was started more often than its trial allows",
    codes.OK: "{product} {version} is confirmed",
}
_DID_NOT_START = "{product} {version} did not start"


def why(product: str, version: str, code: str) -> str:
    """One sentence for `code`; seed 000's "did not start" where nobody said why."""
    return _WHY.get(code, _DID_NOT_START).format(product=product, version=version or "(unknown version)")


def state_now(
    settlement: settles.Settlement, update: records.Update, unit_runs: bool, restore_failed: bool = False
) -> Tuple[str, str]:
    """The state and code to show: a trial in flight, else how the last one ended, else idle.

    Data that could not be restored keeps the good version from starting, so nothing was rolled back yet.
    """
    if settlement.action is settles.Action.AWAIT:
        return "trial", codes.TRIAL_PENDING
    if restore_failed:
        return "rollback-failed", codes.RESTORE_FAILED
    last: Optional[records.Last] = update.last
    if last is None:
        return "idle", codes.OK
    if last.state == "rolled-back" and not unit_runs:
        return "rollback-failed", last.code
    return last.state, codes.OK if last.state == "confirmed" else last.code


def _restore_failed(state: settles.State) -> bool:
    if state.snapshot is None:
        return False
    from . import keeping  # few hosts keep data, and every start pays for what it imports

    return keeping.has_failed(state)


def state_and_code(
    state: settles.State, settlement: settles.Settlement, runs: bool, problems: Sequence[str]
) -> Tuple[str, str]:
    """The state that is shown, and its code; what refuses updates comes before how the last one ended."""
    shown, code = state_now(settlement, state.update, runs, _restore_failed(state))
    if state.broken is not None:
        return shown, codes.RECORD_BROKEN
    return shown, codes.BAD_CONFIG if problems else code
