# SPDX-License-Identifier: GPL-3.0-or-later
"""The settle table of node.md, section 4, row by row, and what the rows rest on."""

from __future__ import annotations

import pathlib
import re
from typing import List, NamedTuple, Optional, Tuple

import pytest
from core.crash import values
from core.crash.values import BOOT, IN_TIME, OVER, REBOOTED, RECORD, STARTED, TRIAL, on_trial, state
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, records, settle, trial

NODE = pathlib.Path(__file__).parents[2] / "docs" / "design" / "node.md"
GUARD = pathlib.Path(__file__).parents[2] / "agent" / "src" / "slotward" / "resources" / "guard"
NO_BOOTS = trial.render_trial(TRIAL._replace(boots_left=0))
TORN = RECORD[:-1]
Action = settle.Action


class Row(NamedTuple):
    """One row of the table: its first two cells, examples of it, and what is decided."""

    record: str
    current: str
    action: settle.Action
    reason: str
    examples: Tuple[Tuple[settle.State, settle.Clock], ...]
    read: Optional[trial.Trial] = None


ROWS: List[Row] = [
    Row("none", "is good", Action.NONE, codes.OK, ((state(), IN_TIME), (state("b", "b"), REBOOTED))),
    Row(
        "none",
        "is not good, the entrypoint is a file",
        Action.ABANDONED,
        codes.NEVER_STARTED,
        ((state("a", "b", entrypoint="file"), IN_TIME),),
    ),
    Row(
        "none",
        "is not good",
        Action.GO_BACK,
        codes.LOST_RECORD,
        ((state("b", "a"), IN_TIME), (state("b", "a", entrypoint="missing"), REBOOTED)),
    ),
    Row(
        "none",
        "any, and `current` or `good` names no slot",
        Action.NONE,
        codes.OK,
        ((state("b", None), IN_TIME), (state(None, "a"), IN_TIME), (state(None, None), REBOOTED)),
    ),
    Row(
        "`trial`",
        "new slot, length left, same boot",
        Action.AWAIT,
        codes.TRIAL_PENDING,
        (
            (on_trial(), IN_TIME),
            (on_trial(), settle.Clock(1119, BOOT)),
        ),
        TRIAL,
    ),
    Row(
        "`trial`",
        "new slot, another boot, boots left",
        Action.AWAIT,
        codes.TRIAL_PENDING,
        (
            (on_trial(), REBOOTED),
            (on_trial(), settle.Clock(10**6, values.NEXT_BOOT)),
        ),
        TRIAL,
    ),
    Row(
        "`trial`",
        "new slot, length over or no boot left",
        Action.GO_BACK,
        codes.DEADLINE_PASSED,
        (
            (on_trial(), OVER),
            (on_trial(), settle.Clock(10**6, BOOT)),
        ),
        TRIAL,
    ),
    Row(
        "`trial`",
        "new slot, length over or no boot left",
        Action.GO_BACK,
        codes.NO_BOOTS_LEFT,
        ((on_trial(NO_BOOTS), REBOOTED),),
        TRIAL._replace(boots_left=0),
    ),
    Row(
        "`trial`, bad",
        "not good",
        Action.GO_BACK,
        codes.BAD_RECORD,
        ((on_trial(TORN), IN_TIME), (state("b", "a", "a", claim={"trial": b""}, log=STARTED), REBOOTED)),
    ),
    Row(
        "`trial`, bad",
        "not good",
        Action.GO_BACK,
        codes.BAD_RECORD,
        ((state(None, "a", claim={"trial": RECORD}), IN_TIME), (state("a", "b", claim={"trial": RECORD}), IN_TIME)),
        TRIAL,
    ),
    Row(
        "`trial`, bad",
        "not good",
        Action.GO_BACK,
        codes.BAD_RECORD,
        ((on_trial(), settle.Clock(values.STARTED_S - settle.SLACK_S - 1, BOOT)),),
        TRIAL,
    ),
    Row(
        "`trial`, also bad",
        "is good, never started",
        Action.ABANDONED,
        codes.NEVER_STARTED,
        (
            (state(claim={"trial": RECORD}, log=trial.LOG_HEADER), IN_TIME),
            (state(claim={"trial": RECORD}, log=b""), REBOOTED),
        ),
        TRIAL,
    ),
    Row(
        "`trial`, also bad",
        "is good, never started",
        Action.ABANDONED,
        codes.NEVER_STARTED,
        ((state(claim={"trial": TORN}), OVER),),
    ),
    Row(
        "`trial`",
        "is good, was started",
        Action.FAILED,
        codes.DID_NOT_START,
        ((state(claim={"trial": RECORD}, log=STARTED), IN_TIME),),
        TRIAL,
    ),
    Row(
        "`trial.revert`",
        "any",
        Action.FINISH_REVERT,
        codes.NEVER_STARTED,
        ((state(claim={"revert": RECORD + b"REASON=never-started\n"}), IN_TIME),),
        TRIAL,
    ),
    Row(
        "`trial.revert`",
        "any",
        Action.FINISH_REVERT,
        codes.CRASH_LOOP,
        (
            (state(claim={"revert": RECORD + b"REASON=crash-loop\n"}), IN_TIME),
            (state("b", "a", "a", claim={"revert": RECORD + b"REASON=crash-loop\n"}, log=STARTED), OVER),
            (
                state("b", "a", "a", claim={"revert": RECORD + b"REASON=crash-loop\n", "trial": RECORD}, log=STARTED),
                OVER,
            ),
        ),
        TRIAL,
    ),
    Row(
        "`trial.revert`",
        "any",
        Action.FINISH_REVERT,
        codes.DID_NOT_START,
        ((state(claim={"revert": RECORD + b"REASO"}), IN_TIME),),
        TRIAL,
    ),
    Row(
        "`trial.revert`",
        "any",
        Action.FINISH_REVERT,
        codes.LOST_RECORD,
        ((state(claim={"revert": b"REASON=lost-record\n"}), IN_TIME),),
    ),
    Row(
        "`trial.confirm`",
        "any",
        Action.FINISH_CONFIRM,
        codes.OK,
        (
            (state("b", "a", "a", claim={"confirm": RECORD}, log=STARTED), OVER),
            (state("b", "b", claim={"confirm": RECORD}), REBOOTED),
            (state("b", "a", "a", claim={"confirm": RECORD, "trial": RECORD}, log=STARTED), OVER),
        ),
        TRIAL,
    ),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.record}: {row.current}: {row.reason}") for row in ROWS])
def test_each_row_decides_as_the_table_says(row: Row) -> None:
    """From where the links point and from the record's name, and from nothing else."""
    for found, clock in row.examples:
        assert settle.decide(found, clock) == settle.Settlement(row.action, row.reason, row.read)


def table() -> List[Tuple[str, str, str, str]]:
    """The page's rows: record, current, action, and the reasons that it names."""
    lines = NODE.read_text().split("**Settle**")[1].split("## 5.")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [(record, current, action.split("`")[1], action) for record, current, action in cells[2:]]


def test_the_page_and_the_rows_say_the_same() -> None:
    """Every row of node.md has an example here, with its action and the reasons that it names, and the reverse."""
    page = {(record, current): (action, said) for record, current, action, said in table()}
    assert {(row.record, row.current) for row in ROWS} == set(page)
    for key, (action, said) in page.items():
        rows = [row for row in ROWS if (row.record, row.current) == key]
        assert {row.action.value for row in rows} == {action}
        reasons = {row.reason for row in rows}
        named = {part for part in said.split("`")[3::2] if part in codes.CODES}
        assert named == reasons if action == "go-back" else named <= reasons


def test_every_action_has_a_row() -> None:
    """No action is without an example."""
    assert {row.action for row in ROWS} == set(Action)


def test_nothing_is_done_where_no_slots_are_in_use() -> None:
    """Before the first install, and after a cut in it, there is nothing to settle."""
    assert settle.decide(settle.State(), IN_TIME) == settle.Settlement(Action.NONE, codes.OK)
    assert settle.decide(settle.State(good="a"), IN_TIME) == settle.Settlement(Action.NONE, codes.OK)


@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 9))
def test_what_is_left_and_what_is_over_are_one_clock(uptime_s: int, same_boot: bool, boots: int) -> None:
    """A trial is over exactly when nothing is left of it (I7, I10)."""
    pending = TRIAL._replace(boots_left=boots)
    clock = settle.Clock(uptime_s, BOOT if same_boot else values.NEXT_BOOT)
    left, over = settle.left_s(pending, clock), settle.deadline_reason(pending, clock)
    assert left >= 0
    assert (left == 0) == (over is not None)
    if not same_boot:
        assert left == (pending.length_s if boots else 0)


def test_S9_a_deadline_already_past_acts_at_once() -> None:
    """Zero left is over, not for ever."""
    pending = trial.render_trial(TRIAL._replace(deadline_s=0))
    found = settle.decide(on_trial(pending), settle.Clock(0, BOOT))
    assert found.action is Action.GO_BACK


def test_a_deadline_may_lie_a_little_further_off_than_the_length_and_no_more() -> None:
    """Clocks are read at two moments; a deadline of another hour is damage, and never a long trial."""
    edge = settle.Clock(values.STARTED_S - settle.SLACK_S, BOOT)
    assert settle.decide(on_trial(), edge).action is Action.AWAIT
    assert settle.decide(on_trial(), edge._replace(uptime_s=edge.uptime_s - 1)).action is Action.GO_BACK
    assert settle.decide(on_trial(), settle.Clock(1, values.NEXT_BOOT)).action is Action.AWAIT


def test_the_new_slot_is_the_recorded_one_else_the_one_that_is_not_good() -> None:
    """And without a good slot nobody knows."""
    assert settle.new_slot(state("a", "b"), TRIAL) == "b"
    assert settle.new_slot(state("b", "a"), None) == "b"
    assert settle.new_slot(state("a", None), None) is None


def test_the_guard_allows_a_deadline_the_same_slack() -> None:
    """One record is good or bad for both."""
    found = re.findall(r"r_length \+ (\d+)\)\)", GUARD.read_text(encoding="utf-8"))
    assert found == [str(settle.SLACK_S)]


def test_what_was_not_found_is_not_there() -> None:
    """A look at an empty directory: no link, no record, nothing broken, and no trust that was lost."""
    nothing: Tuple[object, ...] = (
        None,
        None,
        None,
        False,
        "missing",
        None,
        None,
        None,
        b"",
        b"",
        {},
        records.Update(),
        None,
        (),
        (),
        None,
        True,
        None,
        None,
        None,
    )
    assert settle.State() == nothing
    assert settle.Damage("slots.json", "torn", True) == ("slots.json", "torn", True, None, "")


@pytest.mark.parametrize(
    ("there", "copy", "mendable"), [(True, None, True), (False, b"{}", True), (True, b"{}", True), (False, None, False)]
)
def test_a_broken_record_is_mended_when_something_can_be_done(
    there: bool, copy: Optional[bytes], mendable: bool
) -> None:
    """To set aside what is there, or to write what the copy says; a record that only cannot be read waits."""
    hopeless = settle.Damage("update.json", "cannot be read", False)
    damage = settle.Damage("slots.json", "torn", there, copy)
    assert settle.is_mendable(state()._replace(damaged=(hopeless, damage))) is mendable
    assert settle.is_mendable(state()) is False


LEFT = (".probe-4711", ".trial.9f8a", "back", "current.tmp", "helper.back", "trial.log", "trial.sources")
OTHERS = (
    "a",
    "b",
    "current",
    "good",
    "helper",
    "tmp",
    "update.json",
    "slots.json",
    "trial",
    "Back",
    "x.tmp.y",
    "my.trial.z",
    "my.probe-1",
)


def test_what_a_cut_left_is_known_by_its_name() -> None:
    """Temporaries, what belonged to a trial, and nothing else, in a known order."""
    assert settle.leftovers(state(), (*OTHERS, *reversed(LEFT))) == LEFT
    assert settle.leftovers(state(), OTHERS) == ()


@pytest.mark.parametrize(
    "found",
    [
        state(claim={"trial": b""}),
        state(claim={"confirm": b""}),
        state(claim={"revert": b""}),
        state()._replace(broken=("slots.json", "torn")),
        state("b", "a"),
    ],
)
def test_nothing_is_left_over_while_a_trial_or_damage_may_need_it(found: settle.State) -> None:
    """An empty record is one; without any, the links that differ are a trial."""
    assert settle.leftovers(found, LEFT) == ()


def test_what_stands_for_no_plain_file_is_a_bad_record() -> None:
    """One byte that no trial's file of ours holds, the guard's included."""
    assert settle.ODD == b"\0"
    assert trial.parse_trial(settle.ODD) is None
    assert trial.is_damaged(settle.ODD)


def test_only_a_trial_that_may_still_be_confirmed_is_on() -> None:
    """One whose end is decided is none, though its record can still be read."""
    pending = values.TRIAL
    for action in Action:
        found = settle.Settlement(action, codes.OK, pending).on_trial
        assert found == (pending if action is Action.AWAIT else None)
