# SPDX-License-Identifier: GPL-3.0-or-later
"""The sentence for each end of a trial, and the state shown for it."""

from __future__ import annotations

from typing import Optional

import pytest
from core.crash import values

from slotcore import codes, outcome, records, settle

LAST = records.Last("9f8a6c1e22d04b57", "rolled-back", "crash-loop", "it kept exiting", "1.0.0", "1.1.0", 1)
NO_ENDS = (codes.NOT_CONFIRMED, codes.STAGED_MANUAL)
ENDS = [code for code, info in codes.CODES.items() if info.kind == codes.OUTCOME and code not in NO_ENDS]


@pytest.mark.parametrize("code", ENDS)
def test_H11_every_end_has_a_sentence_of_its_own_that_names_product_and_version(code: str) -> None:
    """Two codes never share a sentence, and none falls back to "did not start" but the one that means it."""
    said = outcome.why("probe", "1.1.0", code)
    assert "probe" in said
    assert "1.1.0" in said
    assert said[0].islower()
    assert not said.endswith(".")
    others = [outcome.why("probe", "1.1.0", other) for other in ENDS if other != code]
    assert said not in others


def test_a_confirmed_release_is_never_said_not_to_have_started() -> None:
    """A confirmation that was cut and finished later says what it is."""
    assert outcome.why("probe", "1.1.0", codes.OK) == "probe 1.1.0 is confirmed"


def test_a_lost_reason_reads_as_the_seed_says_it() -> None:
    """Where nobody could write down why, it "did not start"."""
    assert outcome.why("probe", "1.1.0", "a-code-of-a-later-version") == "probe 1.1.0 did not start"
    assert outcome.why("probe", "", codes.LOST_RECORD) == "the trial record of probe (unknown version) was lost"


AWAITING = settle.Settlement(settle.Action.AWAIT, codes.TRIAL_PENDING, values.TRIAL)
DONE = settle.Settlement(settle.Action.NONE, codes.OK)


@pytest.mark.parametrize(
    ("settlement", "last", "runs", "shown"),
    [
        pytest.param(AWAITING, None, True, ("trial", "trial-pending"), id="S4: a trial is a trial until confirmed"),
        pytest.param(AWAITING, LAST, True, ("trial", "trial-pending"), id="the trial in flight, not the one before"),
        pytest.param(DONE, None, True, ("idle", "ok"), id="nothing has ever been updated"),
        pytest.param(DONE, LAST, True, ("rolled-back", "crash-loop"), id="back, and the good version runs"),
        pytest.param(DONE, LAST, False, ("rollback-failed", "crash-loop"), id="H6: back, but nothing runs"),
        pytest.param(DONE, LAST._replace(state="confirmed", code="ok"), False, ("confirmed", "ok"), id="confirmed"),
        pytest.param(
            DONE, LAST._replace(state="abandoned", code="never-started"), True, ("abandoned", "never-started"), id="cut"
        ),
    ],
)
def test_the_state_shown_is_how_things_stand(
    settlement: settle.Settlement, last: records.Last, runs: bool, shown: object
) -> None:
    """A trial in flight, else how the last one ended, else idle."""
    assert outcome.state_now(settlement, records.Update(last=last), runs) == shown


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        pytest.param(None, ("rolled-back", "crash-loop"), id="no data was kept"),
        pytest.param(b"", ("rolled-back", "crash-loop"), id="its restore is still to come"),
        pytest.param(b"FAILED=7\n", ("rollback-failed", "restore-failed"), id="a restore failed"),
    ],
)
def test_data_that_could_not_be_restored_is_shown(kept: Optional[bytes], shown: object) -> None:
    """As how things stand, before the end of the trial that it is of."""
    about = b"ID=%s\nTO_SLOT=b\nFROM_VERSION=1.0.0\nTO_VERSION=1.1.0\n" % LAST.trial_id.encode()
    snapshot = None if kept is None else about + kept
    state = settle.State(current="a", good="a", update=records.Update(last=LAST), snapshot=snapshot)
    assert outcome.state_and_code(state, DONE, True, ()) == shown


def test_what_refuses_updates_comes_before_how_the_last_one_ended() -> None:
    """A broken record first, then the configuration; the state shown stays."""
    state = settle.State(current="a", good="a", update=records.Update(last=LAST))
    broken = state._replace(broken=("/slots/update.json", "it is torn"))
    assert outcome.state_and_code(state, DONE, True, ()) == ("rolled-back", "crash-loop")
    assert outcome.state_and_code(state, DONE, True, ("a problem",)) == ("rolled-back", codes.BAD_CONFIG)
    assert outcome.state_and_code(broken, DONE, True, ("a problem",)) == ("rolled-back", codes.RECORD_BROKEN)
