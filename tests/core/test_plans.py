# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans, operation by operation. What they are worth after a crash is shown in test_crash_matrix.py."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest
from core.crash import values
from core.crash.values import PRODUCT, RECORD, TRIAL, record, slots, state

from slotcore import codes, ops, plans, recording, records, settle, trial

END = plans.End("crash-loop", "probe 1.1.0 kept exiting", 1_700_000_000)
LAST = records.Last(TRIAL.trial_id, "rolled-back", END.code, END.why, "1.0.0", "1.1.0", END.at)


def names(plan: ops.Plan) -> List[str]:
    """A plan in short: what happens to which final name; temporaries, syncs and copies of records are left out."""
    shown = []
    for operation in plan:
        if isinstance(operation, (ops.Rename, ops.Claim)):
            source = operation.source.rpartition("/")[2]
            name = operation.path.rpartition("/")[2]
            if not name.endswith(recording.COPY):
                shown.append(name if source == name + ".tmp" else f"{source} over {name}")
        elif isinstance(operation, ops.Unlink):
            shown.append("-" + operation.path.rpartition("/")[2])
        elif isinstance(operation, (ops.Arm, ops.Demand, ops.Restart, ops.RestartHelper)):
            shown.append(type(operation).__name__)
    return shown


def written(plan: ops.Plan, name: str) -> List[Any]:
    """What is written to a JSON record, in order."""
    return [
        json.loads(operation.data)
        for operation in plan
        if isinstance(operation, ops.Write) and operation.path.endswith(f"/{name}.tmp")
    ]


def link_of(plan: ops.Plan, name: str) -> List[str]:
    """What a link is made to name, in order."""
    return [op.target for op in plan if isinstance(op, ops.Link) and op.path.endswith(f"/{name}.tmp")]


def all_synced(plan: ops.Plan) -> bool:
    """Whether every file is synced before its rename, and every directory before the next step of another kind."""
    dirty: set[str] = set()
    for operation in plan:
        if isinstance(operation, (ops.Write, ops.Copy, ops.Append)):
            dirty.add(operation.path)
        elif isinstance(operation, ops.Sync):
            dirty.discard(operation.path)
        elif isinstance(operation, ops.Rename):
            if operation.source in dirty:
                return False
            dirty.add(ops.directory_of(operation.path))
        elif isinstance(operation, (ops.Claim, ops.Unlink)):
            dirty.add(ops.directory_of(operation.path))
        elif isinstance(operation, ops.SyncDir):
            dirty.discard(operation.path)
        elif isinstance(operation, (ops.Arm, ops.Demand, ops.Restart, ops.RestartHelper)) and dirty:
            return False
    return not dirty


def test_adopting_for_the_first_time_goes_in_the_order_of_the_page() -> None:
    """Bytes, records, good, current, and the entrypoint last of all."""
    plan = plans.plan_adopt(PRODUCT, settle.State(), record("0.9.0-by-hand"))
    assert names(plan) == ["slots.json", "a", "slots.json", "update.json", "good", "current", "probe"]
    cleared, filled = written(plan, "slots.json")
    assert (cleared["slots"], filled) == ({}, {"spec": 1, "slots": {"a": record("0.9.0-by-hand").as_json()}})
    assert link_of(plan, "good") == link_of(plan, "current") == ["a"]
    assert link_of(plan, "probe") == ["/slots/current"]
    assert all_synced(plan)


@pytest.mark.parametrize(
    ("recorded", "configured", "sequence", "floor"),
    [(0, 0, 0, 0), (0, 5, 2, 5), (7, 5, 2, 7), (0, 1, 9, 9)],
)
def test_I3_adopting_takes_the_highest_floor_it_knows(
    recorded: int, configured: int, sequence: int, floor: int
) -> None:
    """The record's, the configured and embedded, and the adopted file's own."""
    found = settle.State(update=records.Update(floor=recorded, newest_issued=11))
    product = PRODUCT._replace(base_floor=configured)
    plan = plans.plan_adopt(product, found, record("0.9.0-by-hand")._replace(sequence=sequence))
    (update,) = written(plan, "update.json")
    assert (update["floor"], update["newest_issued"]) == (floor, 11)


def test_C2_adopting_in_use_fills_the_free_slot_and_moves_good_first() -> None:
    """The file at the entrypoint is what starts until the last step."""
    plan = plans.plan_adopt(PRODUCT, state("a", "a", entrypoint="file"), record("0.9.0-by-hand"))
    assert names(plan) == ["slots.json", "b", "slots.json", "update.json", "good", "current", "probe"]
    assert sorted(written(plan, "slots.json")[0]["slots"]) == ["a"]
    assert link_of(plan, "good") == link_of(plan, "current") == ["b"]
    assert all_synced(plan)


def test_D5_staging_clears_the_record_fills_the_free_slot_and_records_it_last() -> None:
    """Nothing that starts is touched: neither current's slot, nor good's, nor a link."""
    plan = plans.plan_stage(PRODUCT, state("b", "b"), record("0.9.0-by-hand"), 0)
    assert names(plan) == ["slots.json", "a", "slots.json"]
    assert [sorted(value["slots"]) for value in written(plan, "slots.json")] == [["b"], ["a", "b"]]
    assert [op for op in plan if isinstance(op, ops.Copy)] == [
        ops.Copy("/slots/a.tmp", plans.STAGED, values.digest("0.9.0-by-hand"), len(values.BYTES["0.9.0-by-hand"]))
    ]
    assert all_synced(plan)


def test_a_slot_without_a_record_is_cleared_too() -> None:
    """After a cut the copy may name it; and the newest manifest is noted only when it is newer."""
    found = state(held=slots(a="1.0.0"), update=records.Update(floor=1, newest_issued=50))
    plan = plans.plan_stage(PRODUCT, found, record("1.1.0"), 50)
    assert names(plan) == ["slots.json", "b", "slots.json"]
    assert [sorted(value["slots"]) for value in written(plan, "slots.json")] == [["a"], ["a", "b"]]
    newer = plans.plan_stage(PRODUCT, found, record("1.1.0"), 51)
    assert names(newer) == ["update.json", "slots.json", "b", "slots.json"]
    assert written(newer, "update.json")[0]["newest_issued"] == 51


def test_I4_current_moves_after_the_armed_timer_and_before_the_restart() -> None:
    """Back, log, record, timer, current, restart (DESIGN 4), each durable before the next; in between the trial is demanded."""
    plan = plans.plan_swap(PRODUCT, TRIAL)
    assert names(plan) == ["back", "trial.log", "trial", "Arm", "current", "Demand", "Restart"]
    assert ops.Demand("/slots/trial", TRIAL.trial_id) in plan
    assert link_of(plan, "back") == ["a"]
    assert link_of(plan, "current") == ["b"]
    writes = {op.path: op.data for op in plan if isinstance(op, ops.Write)}
    assert writes == {"/slots/trial.log.tmp": trial.LOG_HEADER, "/slots/trial.tmp": RECORD}
    assert all_synced(plan)


def test_a_start_that_waits_for_the_switch_is_its_restart() -> None:
    """privilege.md, section 6: all else is the same, in the same order; the start is logged once `current` has moved."""
    whole, plan = plans.plan_swap(PRODUCT, TRIAL), plans.plan_swap(PRODUCT, TRIAL, restart=False)
    assert isinstance(whole[-1], ops.Restart)
    assert plan[:-2] == whole[:-1]
    line = b"start %d\n" % (TRIAL.deadline_s - TRIAL.length_s)
    assert plan[-2:] == (ops.Append("/slots/trial.log", line), ops.Sync("/slots/trial.log"))
    assert trial.was_started(trial.LOG_HEADER + line)


def test_confirming_raises_the_floor_before_good_moves() -> None:
    """Claim, no way back, floor and last, good, and only then the record goes (I3, I12)."""
    end = plans.End(codes.OK, "probe 1.1.0 is confirmed", END.at)
    found = state("b", "a", "a", claim={"trial": RECORD}, update=records.Update(floor=1))
    plan = plans.plan_confirm(PRODUCT, found, TRIAL, end)
    assert names(plan) == [
        "trial over trial.confirm",
        "-back",
        "update.json",
        "good",
        "-trial.confirm",
        "-trial.log",
        "-trial.sources",
    ]
    assert plan[:2] == (ops.Claim("/slots/trial", "/slots/trial.confirm"), ops.SyncDir("/slots"))
    (update,) = written(plan, "update.json")
    assert update["floor"] == 2
    assert update["last"] == {
        "id": TRIAL.trial_id,
        "state": "confirmed",
        "code": "ok",
        "why": end.why,
        "from": "1.0.0",
        "to": "1.1.0",
        "at": END.at,
    }
    assert link_of(plan, "good") == ["b"]
    assert all_synced(plan)


@pytest.mark.parametrize(
    ("known", "current", "slot", "floor"),
    [
        pytest.param({"b": "1.1.0"}, "b", "b", 4, id="as the slot's record says"),
        pytest.param({}, "b", "b", 4, id="an unknown slot"),
        pytest.param({}, None, "b", 4, id="current names nothing: the slot that is not good"),
    ],
)
def test_a_confirmation_whose_record_is_damaged_is_finished_all_the_same(
    known: Dict[str, str], current: Optional[str], slot: str, floor: int
) -> None:
    """Its name says that it was won (I12); the floor keeps what it had (I3)."""
    found = state(current, "a", held=slots(a="1.0.0", **known), update=records.Update(floor=4))
    plan = plans.plan_finish_confirm(PRODUCT, found, None, END)
    assert link_of(plan, "good") == [slot]
    assert written(plan, "update.json")[0]["floor"] == floor


def test_going_back_is_a_claim_and_one_rename_before_anything_that_needs_space() -> None:
    """Claim, reason, links, restart; what needs space comes after (I2)."""
    plan = plans.plan_go_back(PRODUCT, state("b", "a", "a", claim={"trial": RECORD}), TRIAL, END)
    assert names(plan) == [
        "trial over trial.revert",
        "back over current",
        "Restart",
        "update.json",
        "-trial.revert",
        "-trial.log",
        "-trial.sources",
        "-back",
    ]
    until_restart = plan[: plan.index(ops.Restart())]
    assert not any(isinstance(op, (ops.Write, ops.Copy, ops.Link)) for op in until_restart)
    assert ops.Append("/slots/trial.revert", b"REASON=crash-loop\n") in until_restart
    assert all_synced(plan)
    (update,) = written(plan, "update.json")
    assert update["last"]["state"] == "rolled-back"
    (gather,) = [operation for operation in plan if isinstance(operation, ops.Gather)]
    assert (gather.last.trial_id, gather.last.code, gather.trial) == (TRIAL.trial_id, END.code, TRIAL)
    written_at = max(n for n, one in enumerate(plan) if isinstance(one, ops.Rename) and "update.json" in one.path)
    gone_at = next(n for n, one in enumerate(plan) if isinstance(one, ops.Unlink) and one.path == "/slots/trial.revert")
    assert written_at < plan.index(gather) < gone_at, "after a cut whoever finishes this has it gathered too"
    assert update["failed"] == [
        {"version": "1.1.0", "code": END.code, "why": END.why, "sequence": 2, "sha256": TRIAL.to_sha256, "at": END.at}
    ]


@pytest.mark.parametrize(
    ("found", "moves"),
    [
        pytest.param(state("a", "a"), [], id="current is good already"),
        pytest.param(state("b", "a", "a"), ["back over current", "Restart"], id="one rename"),
        pytest.param(state("b", "a", None), ["back", "back over current", "Restart"], id="back is gone"),
        pytest.param(state("b", "a", "b"), ["back", "back over current", "Restart"], id="back names another slot"),
        pytest.param(state(None, "a", "a"), ["back over current", "Restart"], id="current names nothing"),
        pytest.param(state("b", None, "a"), ["back over current", "Restart"], id="good is lost: back was good's slot"),
        pytest.param(state("b", None, None), [], id="good and back are lost: nobody knows where to go"),
    ],
)
def test_the_links_go_back_to_good_and_to_nothing_else(found: settle.State, moves: Sequence[str]) -> None:
    """And a restart follows only when they moved here: else the guard has done it."""
    plan = plans.plan_finish_revert(PRODUCT, found, TRIAL, END)
    assert names(plan)[: len(moves) + 1] == [*moves, "update.json"]
    assert link_of(plan, "back") == ["a"] * ("back" in moves)


def test_links_that_somebody_moved_by_hand_are_followed_by_a_restart() -> None:
    """The release on trial was started, and moving a link ends no process (I2)."""
    plan = plans.plan_go_back(PRODUCT, state("a", "a", claim={"trial": RECORD}, log=values.STARTED), TRIAL, END)
    assert names(plan)[:3] == ["trial over trial.revert", "Restart", "update.json"]


def test_going_back_without_a_record_claims_nothing() -> None:
    """A lost record has nothing to rename; the version is the one in the slot that is not good."""
    plan = plans.plan_go_back(PRODUCT, state("b", "a", "a"), None, END)
    assert names(plan)[0] == "back over current"
    (update,) = written(plan, "update.json")
    assert [entry["version"] for entry in update["failed"]] == ["1.1.0"]
    assert (update["last"]["id"], update["last"]["from"], update["last"]["to"]) == ("", "", "1.1.0")


def test_a_version_that_nobody_knows_is_not_among_the_failed() -> None:
    """Neither the trial nor the slot says what it was."""
    plan = plans.plan_finish_revert(PRODUCT, state("b", "a", "a", held=slots(a="1.0.0")), None, END)
    (update,) = written(plan, "update.json")
    assert update["failed"] == []
    assert update["last"]["state"] == "rolled-back"


def test_I3_a_broken_record_is_never_written_over_by_going_back() -> None:
    """The links move, the claim stays, and a repair finishes it."""
    broken = state("b", "a", "a", claim={"trial": RECORD})._replace(broken=("/slots/update.json", "torn"))
    assert names(plans.plan_go_back(PRODUCT, broken, TRIAL, END)) == [
        "trial over trial.revert",
        "back over current",
        "Restart",
    ]
    assert plans.plan_finish_revert(PRODUCT, broken._replace(current="a"), TRIAL, END) == ()
    assert names(plans.plan_abandon(PRODUCT, broken._replace(current="a"), TRIAL, END)) == [
        "-trial",
        "-trial.log",
        "-trial.sources",
        "-back",
    ]


@pytest.mark.parametrize(
    ("found", "plan_of", "tidied"),
    [
        (state(claim={"trial": RECORD}), plans.plan_abandon, "-trial"),
        (state(claim={"revert": RECORD}), plans.plan_finish_revert, "-trial.revert"),
    ],
)
def test_an_update_that_never_started_is_abandoned_and_free_to_retry(
    found: settle.State, plan_of: Any, tidied: str
) -> None:
    """It is no failed version: a cut before the switch says nothing about the release."""
    plan = plan_of(PRODUCT, found, TRIAL, plans.End(codes.NEVER_STARTED, "it was cut", END.at))
    assert names(plan) == ["update.json", tidied, "-trial.log", "-trial.sources", "-back"]
    (update,) = written(plan, "update.json")
    assert update["failed"] == []
    assert (update["last"]["state"], update["last"]["code"]) == ("abandoned", "never-started")


@pytest.mark.parametrize("state_of_last", ["confirmed", "rolled-back", "abandoned"])
def test_I12_a_leftover_of_a_trial_that_has_ended_writes_no_second_end(state_of_last: str) -> None:
    """What is recorded of that trial stands; only the leftover goes."""
    update = records.Update(floor=2, last=LAST._replace(state=state_of_last))
    found = state("b", "b", claim={"trial": RECORD}, update=update)
    plan = plans.plan_abandon(PRODUCT, found, TRIAL, plans.End(codes.NEVER_STARTED, "", END.at))
    assert names(plan) == ["-trial", "-trial.log", "-trial.sources", "-back"]
    other = plans.plan_abandon(PRODUCT, found, TRIAL._replace(trial_id="0" * 16), END)
    assert names(other)[0] == "update.json"


def test_a_cut_while_adopting_is_no_update_and_leaves_no_word_of_one() -> None:
    """The link is set right, `last` keeps what it said, and no `back` stands there for the guard to take for a trial."""
    plan = plans.plan_abandon(PRODUCT, state("a", "b", entrypoint="file"), None, END)
    assert plan == ops.link_durably("/slots/current", "b")


@pytest.mark.parametrize(
    "found", [state("a", "a", "a", entrypoint="file"), state(log=values.STARTED, entrypoint="file")]
)
def test_adopting_in_use_clears_what_an_earlier_trial_left(found: settle.State) -> None:
    """A cut between the two links must not look like a trial whose record was lost."""
    plan = plans.plan_adopt(PRODUCT, found, record("0.9.0-by-hand"))
    assert names(plan)[:3] == ["-trial.log", "-trial.sources", "-back"]
    assert all_synced(plan)


@pytest.mark.parametrize(
    ("current", "good", "free"),
    [(None, None, "a"), ("a", "a", "b"), ("b", "b", "a"), (None, "a", "b"), ("b", None, "a")],
)
def test_the_free_slot_is_neither_current_nor_good(current: Optional[str], good: Optional[str], free: str) -> None:
    """Whatever is missing."""
    assert plans.free_slot(state(current, good)) == free


def test_there_is_no_free_slot_during_a_trial() -> None:
    """Asking for one is a bug of the caller: bytes that run, or that are the way back, are never written over."""
    with pytest.raises(AssertionError, match="no slot is free"):
        plans.free_slot(state("b", "a"))


def test_relinking_replaces_the_entrypoint_in_one_rename() -> None:
    """The repair of an entrypoint that is not linked to current."""
    assert plans.plan_relink(PRODUCT) == (
        ops.Link("/bin/probe.tmp", "/slots/current"),
        ops.Rename("/bin/probe.tmp", "/bin/probe"),
        ops.SyncDir("/bin"),
    )


EVERY: List[Tuple[str, ops.Plan]] = [
    ("swap", plans.plan_swap(PRODUCT, TRIAL)),
    ("confirm", plans.plan_confirm(PRODUCT, state("b", "a", "a"), TRIAL, END)),
    ("go back", plans.plan_go_back(PRODUCT, state("b", "a", "a", claim={"trial": RECORD}), TRIAL, END)),
    ("abandon", plans.plan_abandon(PRODUCT, state(claim={"trial": RECORD}), TRIAL, END)),
]


@pytest.mark.parametrize(("name", "plan"), EVERY)
def test_P6_no_plan_writes_a_record_in_place(name: str, plan: ops.Plan) -> None:
    """New contents go to a temporary name; only the reason of a claimed record is appended."""
    for operation in plan:
        if isinstance(operation, (ops.Write, ops.Copy, ops.Link)):
            assert operation.path.endswith(".tmp")
        if isinstance(operation, ops.Append):
            assert operation.path == "/slots/trial.revert"


@pytest.mark.parametrize(
    "plan",
    [
        plans.plan_adopt(PRODUCT, state("a", "a", entrypoint="file"), record("0.9.0-by-hand")),
        plans.plan_stage(PRODUCT, state("b", "b"), record("0.9.0-by-hand"), 9),
        *(plan for _name, plan in EVERY[1:]),
    ],
)
def test_P4_every_record_is_written_after_a_durable_copy_of_the_very_same_bytes(plan: ops.Plan) -> None:
    """So at any instant one of the two is whole, and the copy is never the older one."""
    records_written = [op for op in plan if isinstance(op, ops.Write) and op.path.endswith(".json.tmp")]
    assert records_written
    for written_record in records_written:
        path = written_record.path[: -len(".tmp")]
        at = plan.index(written_record)
        assert plan[at - 4 : at] == ops.write_durably(path + ".copy", recording.sealed(written_record.data))


LEFT = (
    "a",
    "b",
    "b.tmp",
    "back",
    "current",
    "current.tmp",
    "good",
    "slots.json",
    "trial.log",
    "update.json",
    ".trial.71",
)


def test_tidying_removes_what_a_cut_left_and_nothing_else() -> None:
    """Temporaries, the guard's too, and what belongs to a trial that has no record, in one sync."""
    plan = plans.plan_tidy(PRODUCT, state(current="a", good="a"), LEFT)
    assert names(plan) == ["-.trial.71", "-b.tmp", "-back", "-current.tmp", "-trial.log"]
    assert isinstance(plan[-1], ops.SyncDir)
    assert plans.plan_tidy(PRODUCT, state(current="a", good="a"), ("a", "current", "good", "lock")) == ()


ASIDE = "trial.broken-1700000000"


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        pytest.param(b"SPEC=1\n", True, id="damaged"),
        pytest.param(b"\0\0\0", True, id="zeros"),
        pytest.param(settle.ODD, True, id="no plain file"),
        pytest.param(b"SPEC=1\nREASON=bad-record\n", True, id="damaged, with its reason"),
        pytest.param(b"REASON=lost-record\n", False, id="the guard's mark for a lost record"),
        pytest.param(b"REASON=lo", False, id="the same, torn"),
        pytest.param(b"", False, id="empty"),
        pytest.param(RECORD, False, id="sound"),
        pytest.param(RECORD + b"REASON=oper", False, id="sound, its reason torn"),
    ],
)
def test_a_damaged_trial_record_is_set_aside_and_a_sound_one_goes(data: bytes, kept: bool) -> None:
    """Under each of its three names, in the step in which it would be removed; what an investigator needs is kept."""
    known, _reason = trial.parse_revert(data)
    confirmed = plans.plan_finish_confirm(PRODUCT, state("b", "b", claim={"confirm": data}), known, END)
    reverted = plans.plan_finish_revert(PRODUCT, state("a", "a", claim={"revert": data}), known, END)
    abandoned = plans.plan_abandon(PRODUCT, state("a", "a", claim={"trial": data}), known, END)
    for name, plan in (("trial.confirm", confirmed), ("trial.revert", reverted), ("trial", abandoned)):
        assert (f"{name} over {ASIDE}" in names(plan)) == kept
        assert (f"-{name}" in names(plan)) != kept
        assert all_synced(plan)


def test_a_trial_that_is_no_plain_file_is_ended_without_an_append_to_it() -> None:
    """A FIFO in its place would hold whoever opens it; it is renamed, and set aside at last."""
    found = state("b", "a", "a", claim={"trial": settle.ODD}, log=values.STARTED)
    plan = plans.plan_go_back(PRODUCT, found, None, END)
    assert not any(isinstance(op, ops.Append) or getattr(op, "path", "") == "/slots/trial.revert.tmp" for op in plan)
    assert ops.Sync("/slots/trial.revert") not in plan
    assert names(plan)[:3] == ["trial over trial.revert", "back over current", "Restart"]
    assert f"trial.revert over {ASIDE}" in names(plan)


@pytest.mark.parametrize(
    "odd",
    [
        {"current": "b"},
        {"trial": b"torn"},
        {"confirm": b""},
        {"revert": b""},
        {"broken": ("update.json", "it is torn")},
    ],
)
def test_nothing_is_tidied_while_a_trial_or_damage_may_need_it(odd: Dict[str, Any]) -> None:
    """A record in whatever state, links that differ and a broken record leave every name alone."""
    assert plans.plan_tidy(PRODUCT, state(current="a", good="a")._replace(**odd), LEFT) == ()


def test_a_reload_is_written_down_since_the_guard_sees_no_start() -> None:
    """Right after `current` has moved, so that the first exit of the new process counts; a restart leaves it to the guard."""
    reloads = PRODUCT._replace(reload=True)
    plan = plans.plan_swap(reloads, TRIAL)
    ordinary = plans.plan_swap(PRODUCT, TRIAL)
    log = reloads.path("trial.log")
    started = b"start %d\n" % (TRIAL.deadline_s - TRIAL.length_s)
    assert plan == (*ordinary[:-1], ops.Append(log, started), ops.Sync(log), ops.Restart())
    assert ordinary[-1] == ops.Restart()
