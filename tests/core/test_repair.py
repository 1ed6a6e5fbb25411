# SPDX-License-Identifier: GPL-3.0-or-later
"""Repair: what is written anew from what can be proven, and what an operator must say first (trust.md, section 4)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest
from core.crash import values
from core.crash.values import BYTES, PRODUCT, RECORD, TRIAL, digest, record, slots
from hypothesis import given
from hypothesis import strategies as st

from slotcore import audit, audit_chain, ops, proving, recording, records, repair, settle, trial, trust_record
from slotcore import product as products

LOST_UPDATE = settle.Damage("update.json", "it is missing", False)
LOST_SLOTS = settle.Damage("slots.json", "it is torn", True)
LAST = records.Last(TRIAL.trial_id, "confirmed", "ok", "", "0.9.0", "1.0.0", 1_700_000_000)
SOUND = records.Update(floor=1, last=LAST)


def held(**versions: str) -> Dict[str, proving.Held]:
    """The bytes of versions in slots."""
    return {slot: proving.Held(digest(version), len(BYTES[version])) for slot, version in versions.items()}


def broken(*lost: settle.Damage, **changes: Any) -> settle.State:
    """The state of values.state, without what these records held."""
    names = {damage.name for damage in lost}
    kept = values.state(update=records.Update() if "update.json" in names else SOUND)
    kept = kept._replace(slots={} if "slots.json" in names else kept.slots, damaged=lost)
    return kept._replace(**changes)


def log(confirmed: int = 1, whole: bool = True, **named: str) -> audit_chain.Facts:
    """What an audit log proves; `named` are versions whose bytes it knows."""
    known = {digest(version): audit_chain.Named(version, values.SEQUENCE[version]) for version in named.values()}
    return audit_chain.Facts(confirmed, known, whole)


def facts(state: settle.State, *sources: proving.Source, **changes: Any) -> proving.Facts:
    """Facts of a host with 1.0.0 in a and 1.1.0 in b; a sound record is a source of its own."""
    sound = tuple(
        source
        for source in (
            proving.Source("slots.json", slots=state.slots),
            proving.Source("update.json", update=state.update),
        )
        if not proving.is_damaged(state, source.name)
    )
    found = proving.Facts(state, held(a="1.0.0", b="1.1.0"), sound + sources)
    return found._replace(**changes)


def repaired(known: proving.Facts, floor: Optional[int] = None) -> repair.Repair:
    """The decision, which must be one."""
    found = repair.decide(PRODUCT, known, floor)
    assert isinstance(found, repair.Repair), found
    return found


def unproven(known: proving.Facts, floor: Optional[int] = None) -> repair.Unproven:
    """The refusal, which must be one."""
    found = repair.decide(PRODUCT, known, floor)
    assert isinstance(found, repair.Unproven), found
    return found


def test_a_sound_host_has_nothing_to_repair() -> None:
    """I9: records that fit the bytes and links that name slots stay as they are, whatever else is known."""
    known = facts(broken(), audit=log(9, named="1.1.0"), trust_there=True)
    assert repaired(known) == repair.Repair()
    assert not repaired(known).changes
    assert repaired(known, 1) == repair.Repair(), "the very floor that it has"


@pytest.mark.parametrize("floor", [0, 2, 900])
def test_a_sound_floor_is_not_changed_by_saying_another(floor: int) -> None:
    """Neither down, which takes a permit, nor up by a slip of the finger."""
    found = unproven(facts(broken()), floor)
    assert found.text.startswith(f"the floor is 1 by a sound record, and --floor {floor} does not change that")
    assert found.least is None


def test_a_lost_floor_asks_for_the_command_that_says_it() -> None:
    """`floor-unproven` names what is known and the exact command; nothing is written meanwhile."""
    aside = proving.Source("update.json.broken-5", update=records.Update(floor=4), proves=False)
    known = facts(broken(LOST_UPDATE), aside, audit=log(3, whole=False))
    found = unproven(known)
    assert found.known == proving.Known(configured=1, slots=1, audit=3, records=4)
    assert found.least == 4
    assert "it was at least 4" in found.text
    for low in (0, 3):
        again = unproven(known, low)
        assert f"--floor {low} is lower than 4" in again.text
        assert again.least == 4
    for high in (4, 7):
        update = repaired(known, high).update
        assert update is not None
        assert update.floor == high


def test_an_audit_log_that_misses_nothing_proves_the_floor() -> None:
    """From its beginning, and with every confirmation that the slots know of."""
    known = facts(broken(LOST_UPDATE), audit=log(5))
    assert repaired(known).update == records.Update(floor=5)
    assert isinstance(repair.decide(PRODUCT, known._replace(audit=log(5, whole=False))), repair.Unproven)
    cut = known._replace(state=broken(LOST_UPDATE, good="b", current="b"), audit=log(1))
    assert unproven(cut).known.slots == 2, "slot b was confirmed, and the log does not know it: its end was cut off"
    assert repaired(cut, 2).update == records.Update(floor=2)


def test_a_copy_that_settling_could_not_write_back_proves_the_floor_and_keeps_all_it_says() -> None:
    """It is as new as the record was: failures, last trial and clock are kept, and the floor is never below others'."""
    failure = records.Failed("1.1.0", "crash-loop", "why", 2, digest("1.1.0"), 9)
    said = records.Update(floor=3, newest_issued=8, failed=(failure,), last=LAST, trust=2)
    copy = proving.Source("update.json.copy", update=said)
    aside = proving.Source(
        "update.json.broken-5", update=records.Update(floor=2, newest_issued=99, trust=5), proves=False
    )
    known = facts(broken(LOST_UPDATE), copy, aside, audit=log(6, whole=False), trust_there=True)
    assert repaired(known).update == said._replace(floor=6, newest_issued=99, trust=5)


def test_I3_a_lost_update_record_never_forgets_that_there_was_a_key_set() -> None:
    """With `trust` 0 the configuration's pins would be back; so a generation that anybody knows of is kept."""
    update = repaired(facts(broken(LOST_UPDATE), trusts=(trust_record.Trust(3),)), 1).update
    assert update is not None
    assert update.trust == 3


@pytest.mark.parametrize(
    "told",
    [
        {"keys": 4},
        {"permits": (("0123456789abcdef", 7),)},
        {"withdrawn": (audit.Event(audit.WITHDRAWN, "probe", 7, to_version="2", sequence=2),)},
    ],
)
def test_I3_a_log_that_knows_of_keys_permits_or_withdrawals_knows_that_there_was_a_record_of_them(
    told: Dict[str, Any],
) -> None:
    """With both records gone and their copies, a permit that was used would serve again, and what was withdrawn come back."""
    update = repaired(facts(broken(LOST_UPDATE), audit=log()._replace(**told))).update
    assert update is not None
    assert update.trust == 1, "so that its absence is a loss, which the next round of the repair mends or names"


LOST_TRUST = settle.Damage("trust.json", "it is torn", True)
KEYS = trust_record.Keys(4, 5, 9, ("sha256/" + "A" * 43 + "=",), 1, "0" * 64)
PERMIT = "0123456789abcdef"


def about(event: str, **more: Any) -> audit.Event:
    """An event of the log."""
    return audit.Event(event, "probe", 7)._replace(**more)


def test_a_lost_record_of_trust_is_never_begun_by_a_repair_where_a_key_set_was_in_use() -> None:
    """Neither by what was set aside nor by the log; the chain is asked for, up to the newest that is known."""
    lost = facts(broken(LOST_TRUST), audit=log())
    for known in (
        lost._replace(audit=log()._replace(keys=4)),
        lost._replace(trusts=(trust_record.Trust(1, KEYS),)),
        lost._replace(trusts=(trust_record.Trust(9), trust_record.Trust(1, KEYS))),
    ):
        found = repaired(known)
        assert not found.changes
        assert found.left[0].endswith("(trust apply FILE...), up to key set 4 at least")
    unknown = repaired(lost._replace(audit=log(whole=False)))
    assert unknown.trust is None
    assert unknown.left[0].endswith("give the chain of key sets again (trust apply FILE...)")
    older = lost._replace(audit=log(whole=False), trusts=(trust_record.Trust(2),))
    assert repaired(older._replace(state=broken(LOST_TRUST, update=SOUND._replace(trust=3)))).trust is None
    assert repaired(older._replace(state=broken(LOST_TRUST, LOST_UPDATE)), 1).trust is None


def test_a_lost_record_of_trust_without_key_sets_is_written_anew_with_what_is_known() -> None:
    """What was withdrawn and which permits were used is kept from the log and from what was set aside."""
    told = log()._replace(
        withdrawn=(
            about(audit.WITHDRAWN, to_version="2", sequence=2, why="bad"),
            about(audit.WITHDRAWN, to_version="3", sequence=3),
        ),
        permits=((PERMIT, 7), ("no id", 8)),
    )
    old = trust_record.Trust(
        5, withdrawn=(trust_record.Withdrawn("2", 2, "worse", 1),), permits=(trust_record.Permitted("f" * 16, 3),)
    )
    found = repaired(facts(broken(LOST_TRUST), trusts=(old,), audit=told)).trust
    assert found == trust_record.Trust(
        6,
        withdrawn=(trust_record.Withdrawn("2", 2, "worse", 1), trust_record.Withdrawn("3", 3, "it was withdrawn", 7)),
        permits=(trust_record.Permitted("f" * 16, 3), trust_record.Permitted(PERMIT, 7)),
    )
    assert trust_record.parse(trust_record.render(found), "f") == found
    newest = facts(broken(LOST_TRUST, update=SOUND._replace(trust=5)), trusts=(old,), audit=log(whole=False))
    assert (repaired(newest).trust or old).generation == 6, "what was set aside is no older than what must be there"
    cut = log()._replace(whole=True, confirmed=0)
    assert repaired(facts(broken(LOST_TRUST), audit=cut)).trust is None, "a log whose end is missing proves nothing"


def test_the_record_of_trust_is_written_before_the_floor() -> None:
    """As ever: `update.json` demands the generation that is there."""
    found = repair.Repair(trust=trust_record.Trust(6), update=SOUND)
    plan = repair.plan_repair(PRODUCT, broken(LOST_TRUST), found, 9, ("trust.json",))
    names = [op.path.rpartition("/")[2] for op in plan if isinstance(op, ops.Rename)]
    assert names == ["trust.json.broken-9", "trust.json.copy", "trust.json", "update.json.copy", "update.json"]


def test_P5_a_slot_whose_bytes_changed_loses_its_record() -> None:
    """By digest, not by name: the next upgrade stages it again, and what starts is said to be unproven."""
    known = facts(broken())._replace(held={**held(a="1.0.0"), "b": proving.Held("f" * 64, 9)})
    found = repaired(known)
    assert found.slots == slots(a="1.0.0")
    assert found.done == ("slot b has no record: nothing says that its bytes were ever verified",)
    assert found.left == ()
    both = repaired(known._replace(held={}))
    assert both.slots == {}
    assert both.left[0].startswith(
        "slot a is what starts, and nothing says that its bytes were ever verified: FILE setup"
    )


AT_FLOOR = SOUND._replace(floor=2)
FAILED = records.Failed("1.1.0", "crash-loop", "", 2, digest("1.1.0"), 5)


def test_P5_a_damaged_slot_is_left_for_what_the_floor_stands_at_when_that_is_asked_for() -> None:
    """I1, I3: never without being asked, and `good` moves with it; what is offered is said."""
    known = facts(broken(update=AT_FLOOR))._replace(held=held(b="1.1.0"))
    offered = repaired(known)
    assert (offered.good, offered.current) == (None, None)
    assert offered.left[0] == "slot b holds 1.1.0, which proves itself: update --repair --slots goes to it"
    moved = repair.decide(PRODUCT, known, moves=True)
    assert isinstance(moved, repair.Repair)
    assert (moved.good, moved.current, moved.left) == ("b", "b", ())
    assert "slot a is damaged: current and good name b, which holds 1.1.0 and proves itself" in moved.done
    names = [
        op.path.rpartition("/")[2]
        for op in repair.plan_repair(PRODUCT, known.state, moved, 9, ())
        if isinstance(op, ops.Link)
    ]
    assert [name.partition(".")[0] for name in names] == ["good", "current"], "a cut between them leads to good"
    lost = facts(known.state._replace(slots={"b": record("1.1.0")}))._replace(held=held(b="1.1.0"))
    again = repair.decide(PRODUCT, lost, moves=True)
    assert isinstance(again, repair.Repair)
    assert again.current == "b", "also once a repair has taken the damaged slot's record away"


@pytest.mark.parametrize(
    "changes",
    [
        {"update": SOUND},
        {"update": AT_FLOOR._replace(floor=3)},
        {"update": AT_FLOOR._replace(failed=(FAILED,))},
        {"update": AT_FLOOR, "slots": {"a": record("1.0.0"), "b": record("1.1.0")._replace(epoch=7)}},
    ],
)
def test_I5_a_damaged_slot_is_not_left_for_what_was_not_confirmed(changes: Dict[str, Any]) -> None:
    """Above the floor nobody confirmed it, below it is too old, it failed here, or its data are others: the release is installed anew."""
    known = facts(broken(**changes))._replace(held=held(b="1.1.0"))
    found = repair.decide(PRODUCT, known, moves=True)
    assert isinstance(found, repair.Repair)
    assert (found.good, found.current, len(found.left)) == (None, None, 1)


def test_a_sound_slot_is_never_left() -> None:
    """Asked for on a host that is well, it changes nothing (I9)."""
    found = repair.decide(PRODUCT, facts(broken(update=AT_FLOOR)), moves=True)
    assert isinstance(found, repair.Repair)
    assert not found.changes


def test_slots_swapped_by_hand_are_told_by_their_bytes() -> None:
    """What a record says of the other slot counts: bytes were verified, not names."""
    found = repaired(facts(broken())._replace(held=held(a="1.1.0", b="1.0.0")))
    assert found.slots == {"a": record("1.1.0")}, "a starts; b keeps nothing it does not hold"


@pytest.mark.parametrize("name", ["a set-aside record", "a trial record", "the audit log", "a trial's old side"])
def test_bytes_are_what_somebody_readable_says_of_their_digest(name: str) -> None:
    """With `slots.json` lost: for the slot that starts and for the other one."""
    known = facts(broken(LOST_SLOTS))
    if name == "a set-aside record":
        old = proving.Source("slots.json.broken-1", slots=slots(a="1.0.0", b="1.1.0"), proves=False)
        assert repaired(facts(broken(LOST_SLOTS), old)).slots == slots(a="1.0.0", b="1.1.0")
    elif name == "the audit log":
        found = repaired(known._replace(audit=log(1, a="1.0.0", b="1.1.0")))
        assert found.slots == slots(a="1.0.0", b="1.1.0")
        assert found.done[0] == "slot a holds 1.0.0, sequence 1, by its digest"
    elif name == "a trial record":
        found = repaired(known._replace(trials=(TRIAL,), audit=log(1, a="1.0.0")))
        assert found.slots == slots(a="1.0.0", b="1.1.0")
    else:
        found = repaired(known._replace(trials=(TRIAL,)))
        assert (found.slots or {})["a"] == record("1.0.0")._replace(sequence=0), "its sequence is not known"


def test_I6_bytes_that_nothing_names_get_no_record() -> None:
    """Junk in the other slot is never reused, and what was refused, or said to have failed, proves nothing."""
    failure = records.Failed("1.1.0", "crash-loop", "why", 2, "f" * 64, 9)
    known = facts(broken(LOST_SLOTS, update=SOUND._replace(failed=(failure,))), audit=log(1, a="1.0.0"))
    known = known._replace(held={**held(a="1.0.0"), "b": proving.Held("f" * 64, 9)})
    assert repaired(known).slots == slots(a="1.0.0")
    trials_of_it = TRIAL._replace(to_sha256="e" * 64)
    assert repaired(known._replace(trials=(trials_of_it,))).slots == slots(a="1.0.0")


def test_bytes_staged_under_a_revoked_key_do_not_come_back_by_a_repair() -> None:
    """With a key set ever in use, the free slot keeps its record or loses it; what runs may regain one."""
    known = facts(broken(LOST_SLOTS), audit=log(1, a="1.0.0", b="1.1.0"), trust_there=True)
    assert repaired(known).slots == slots(a="1.0.0")
    cleared = facts(broken(slots=slots(a="1.0.0")), audit=log(1, a="1.0.0", b="1.1.0"))
    assert repaired(cleared) == repair.Repair(), "a record that was cleared on purpose is no damage"


@pytest.mark.parametrize(
    ("changes", "slot"),
    [
        pytest.param({"current": "a"}, "a", id="the last trial confirmed what is current"),
        pytest.param(
            {"current": "a", "update": SOUND._replace(last=LAST._replace(state="rolled-back", from_version="1.0.0", to_version="2"))},
            "a",
            id="the last trial went back to what is current",
        ),
        pytest.param({"current": "b"}, None, id="current is not what was confirmed last"),
        pytest.param({"update": SOUND._replace(last=None)}, None, id="no trial has ever ended"),
        pytest.param({"update": SOUND._replace(floor=0)}, None, id="a sequence above the floor was never confirmed"),
        pytest.param({"update": SOUND._replace(last=None), "current": "a"}, None, id="no trial, and no log"),
        pytest.param({"back": "a"}, None, id="a trial's leftovers: its record was lost"),
        pytest.param({"log": values.STARTED}, None, id="a trial's log: its record was lost"),
        pytest.param({"slots": slots(b="1.1.0")}, None, id="nobody knows what is current"),
        pytest.param({"current": "b", "revert": RECORD}, "a", id="a claim to go back names whence it came"),
        pytest.param({"current": "b", "revert": RECORD + b"REASON=opera"}, "a", id="the same, its reason torn"),
        pytest.param({"current": "b", "confirm": RECORD}, "b", id="a won confirmation"),
        pytest.param({"current": "b", "trial": RECORD}, "a", id="a trial that nobody has ended"),
        pytest.param({"current": "b", "revert": b"SPEC=1\n", "back": "a"}, None, id="a claim that cannot be read"),
        pytest.param(
            {"revert": trial.render_trial(TRIAL._replace(from_sha256="0" * 64))}, None, id="other bytes than the claim names"
        ),
    ],
)  # fmt: skip
def test_a_lost_good_is_made_again_only_where_it_is_proven(changes: Dict[str, object], slot: Optional[str]) -> None:
    """Else the answer names the command that an operator may give, and nothing is guessed."""
    found = repaired(facts(broken(**{"good": None, **changes})))
    assert found.good == slot
    assert found.current is None
    if slot is None:
        assert found.left[0].startswith("/slots/good names no slot and nothing proves")
        assert "ln -sfn" in found.left[0]
    else:
        assert found.done[-1] == f"/slots/good names {slot}"


def test_a_lost_good_is_proven_by_the_newest_line_of_the_log_that_made_one() -> None:
    """After an install no trial has ended: the log has the digest of what was put in place."""
    lost = facts(broken(good=None, update=SOUND._replace(last=None)))
    for digest_of, slot in ((digest("1.0.0"), "a"), (digest("1.1.0"), None), ("", None)):
        assert repaired(lost._replace(audit=log()._replace(good=digest_of))).good == slot
    leftovers = facts(broken(good=None, log=values.STARTED))
    assert repaired(leftovers._replace(audit=log()._replace(good=digest("1.0.0")))).good is None


def test_a_lost_current_is_made_again_when_the_bytes_of_good_are_proven() -> None:
    """It is what the guard does at a start; unproven bytes are not made to start (I6)."""
    lost = broken(current=None, in_use=False)
    found = repaired(facts(lost))
    assert (found.current, found.done, found.left) == ("a", ("/slots/current names a",), ())
    junk = repaired(facts(lost)._replace(held=held(b="1.1.0")))
    assert junk.current is None
    assert junk.left == ("slot a holds bytes that nothing proves, so /slots/current is not made to name it",)


def test_with_both_links_lost_nothing_is_guessed() -> None:
    """The command names a slot, and the operator decides."""
    found = repaired(facts(broken(current=None, good=None, in_use=False)))
    assert not found.changes
    assert found.left[0].endswith(
        "; if that was slot a (1.0.0, sequence 1): ln -sfn a /slots/good; if that was slot b (1.1.0, sequence 2): ln -sfn b /slots/good"
    )


SECOND = LAST._replace(from_version="1.0.0", to_version="1.1.0")


@pytest.mark.parametrize(
    ("good", "changes", "slot"),
    [
        pytest.param("1.1.0", {}, "b", id="log, record, floor and the last trial agree"),
        pytest.param("1.1.0", {"last": None}, "b", id="it was installed: no trial has ended"),
        pytest.param("1.0.0", {}, None, id="below the floor"),
        pytest.param("1.1.0", {"floor": 1}, None, id="above the floor, so nobody confirmed it"),
        pytest.param("1.1.0", {"last": LAST}, None, id="the last trial ended on another release"),
        pytest.param("1.1.0", {"last": SECOND._replace(state="rolled-back")}, None, id="the last trial went back from it"),
        pytest.param("", {}, None, id="no log"),
    ],
)  # fmt: skip
def test_A3_with_both_links_lost_what_everything_proves_is_taken(
    good: str, changes: Dict[str, Any], slot: Optional[str]
) -> None:
    """Both links are made; where one of them says otherwise, the operator decides."""
    update = records.Update(floor=2, last=SECOND)._replace(**changes)
    lost = facts(broken(current=None, good=None, in_use=False, update=update))
    found = repaired(lost._replace(audit=log()._replace(good=digest(good) if good else "")))
    assert (found.good, found.current) == (slot, slot)
    assert bool(found.left) is (slot is None)
    if slot is not None:
        assert found.done == ("/slots/good names b", "/slots/current names b")


def test_A3_with_both_links_lost_one_step_back_is_proven_by_the_log() -> None:
    """Where the floor is that of the release before, what was confirmed last may stand above it."""
    product = PRODUCT._replace(floor=products.PREVIOUS)
    lost = facts(broken(current=None, good=None, in_use=False, update=records.Update(floor=1, last=SECOND)))
    found = repair.decide(product, lost._replace(audit=log()._replace(good=digest("1.1.0"))))
    assert isinstance(found, repair.Repair)
    assert (found.good, found.current) == ("b", "b")


@pytest.mark.parametrize(
    ("floor", "base", "named"), [(1, 0, ["a", "b"]), (2, 0, ["b"]), (0, 2, ["b"]), (3, 0, []), (1, 9, [])]
)
def test_A3_no_slot_below_the_floor_is_named_for_an_operator(floor: int, base: int, named: List[str]) -> None:
    """Neither below the recorded nor below the configured one; with none left, the release is installed anew."""
    lost = facts(broken(current=None, good=None, in_use=False, update=records.Update(floor=floor)))
    found = repair.decide(PRODUCT._replace(base_floor=base), lost)
    assert isinstance(found, repair.Repair)
    assert [slot for slot in "ab" if f"ln -sfn {slot} /slots/good" in found.left[0]] == named
    assert ("FILE setup --from FILE" in found.left[0]) is not bool(named)
    assert (f"not below the floor, {max(floor, base)}" in found.left[0]) is not bool(named)


@pytest.mark.parametrize("slot", ["a", "b"])
def test_A5_the_file_of_a_slot_whose_bytes_are_proven_is_made_as_it_was(slot: str) -> None:
    """Only the mode differs: that is mended; where the bytes do too, the record goes and nothing is made to start."""
    sound = facts(broken())
    odd = {one: held._replace(kept=one != slot) for one, held in sound.held.items()}
    found = repaired(sound._replace(held=odd))
    version = {"a": "1.0.0", "b": "1.1.0"}[slot]
    assert (found.kept, found.changes, found.slots, found.left) == ((slot,), True, None, ())
    assert found.done == (f"slot {slot} is root's and executable again: it holds {version}, by its digest",)
    assert repair.plan_repair(PRODUCT, sound.state, found, 9, ()) == (ops.Sync(f"/slots/{slot}"),)
    other = {**odd, slot: proving.Held("f" * 64, 9, kept=False)}
    assert repaired(sound._replace(held=other)).kept == ()


def test_a_directory_that_was_never_in_use_has_nothing_to_repair() -> None:
    """Before the first setup."""
    assert repaired(proving.Facts(settle.State(), {})) == repair.Repair()


def test_P1_what_is_repaired_is_written_slots_first_and_links_last() -> None:
    """Until the last step something is broken and updates are refused; what stands in the way is set aside."""
    found = repair.Repair(slots=slots(a="1.0.0"), update=SOUND, good="a", current="a")
    state = broken(LOST_SLOTS, LOST_UPDATE)._replace(aside=("slots.json.broken-9",))
    plan = repair.plan_repair(PRODUCT, state, found, 9, ("slots.json",))
    names = [op.path.rpartition("/")[2] for op in plan if isinstance(op, ops.Rename)]
    assert names == [
        "slots.json.broken-10",
        "slots.json.copy",
        "slots.json",
        "update.json.copy",
        "update.json",
        "good",
        "current",
    ]
    assert repair.plan_repair(PRODUCT, state, repair.Repair(), 9, ()) == ()


def test_P6_neither_restoring_nor_repairing_writes_a_record_in_place() -> None:
    """New contents go to a temporary name, synced before its rename; what was there is renamed away, never unlinked."""
    found = repair.Repair(slots=slots(a="1.0.0"), trust=trust_record.Trust(6), update=SOUND, good="a", current="a")
    lost = broken(LOST_SLOTS, LOST_UPDATE._replace(there=True, copy=b"{}"), LOST_TRUST)
    for plan in (
        repair.plan_repair(PRODUCT, lost, found, 9, ("slots.json", "update.json", "trust.json")),
        recording.plan_restore(PRODUCT, lost, 9),
    ):
        for number, operation in enumerate(plan):
            if isinstance(operation, (ops.Write, ops.Link)):
                assert operation.path.endswith(".tmp")
            if isinstance(operation, ops.Write):
                assert plan[number + 1] == ops.Sync(operation.path)
        assert not any(isinstance(operation, (ops.Unlink, ops.Append)) for operation in plan)
        assert isinstance(plan[-1], ops.SyncDir)


floors = st.integers(0, 40)


@given(
    lost=st.sets(st.sampled_from((LOST_SLOTS, LOST_UPDATE)), max_size=2),
    named=st.tuples(*[st.sampled_from(("1.0.0", "1.1.0", "junk"))] * 2),
    links=st.tuples(*[st.sampled_from((None, "a", "b"))] * 2),
    aside=st.lists(floors, max_size=3),
    copy=st.none() | floors,
    confirmed=floors,
    whole=st.booleans(),
    floor=st.none() | floors,
)
def test_I3_no_repair_ever_sets_a_floor_below_what_anybody_knows(
    lost: Tuple[settle.Damage, ...],
    named: Tuple[str, str],
    links: Tuple[Optional[str], Optional[str]],
    aside: Tuple[int, ...],
    copy: Optional[int],
    confirmed: int,
    whole: bool,
    floor: Optional[int],
) -> None:
    """And it never lowers a sound one, never names bytes that nobody verified, and has nothing to do a second time."""
    state = broken(*lost, current=links[0], good=links[1])
    found = [proving.Source("c", update=records.Update(floor=copy))] if copy is not None else []
    found += [proving.Source("x", update=records.Update(floor=each), proves=False) for each in aside]
    bytes_there = {
        slot: proving.Held(digest(name), 1) if name in BYTES else proving.Held("f" * 64, 1)
        for slot, name in zip("ab", named)
    }
    known = facts(state, *found, held=bytes_there, audit=log(confirmed, whole, a="1.0.0", b="1.1.0"))
    decided = repair.decide(PRODUCT, known, floor)
    if isinstance(decided, repair.Unproven):
        assert decided.known.lowest >= max(confirmed, PRODUCT.base_floor, *aside, copy or 0)
        assert floor is not None or LOST_UPDATE in lost
        return
    if decided.update is not None:
        assert LOST_UPDATE in lost
        good = (decided.slots if decided.slots is not None else state.slots).get(links[1] or "")
        lowest = max(confirmed, PRODUCT.base_floor, *aside, copy or 0, good.sequence if good is not None else 0)
        assert decided.update.floor >= lowest
        assert floor is None or decided.update.floor == floor
    for slot, entry in (decided.slots or {}).items():
        assert entry.sha256 == bytes_there[slot].sha256
        assert entry.sha256 != "f" * 64
    after = state._replace(
        damaged=(),
        slots=state.slots if decided.slots is None else decided.slots,
        update=decided.update or state.update,
        good=decided.good or state.good,
        current=decided.current or state.current,
    )
    again = repair.decide(PRODUCT, known._replace(state=after))
    assert isinstance(again, repair.Repair)
    assert (again.update, again.good) == (None, None)
    if again.slots is not None:  # a link that was made says that its slot is in use, so it may regain a record
        assert decided.good or decided.current
