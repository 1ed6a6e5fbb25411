# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of trust on disk: in which order it is written, and what a permit does to the floor (I3)."""

from __future__ import annotations

from typing import Any, Dict, Optional

import pytest
from core.crash import values
from core.crash.values import PRODUCT, RECORD, TRIAL, record, slots, state
from core.test_plans import END, all_synced, names, written

from slotcore import codes, plans, records, settle, standing, status, trust_plans
from slotcore import trust_record as trusts

PIN = "sha256/" + "A" * 43 + "="
OTHER = "sha256/" + "B" * 43 + "="
KEYS = trusts.Keys(1, 100, 900, (PIN, OTHER), 2, "ab" * 32)
ALLOWED = trusts.Allowed("0123456789abcdef", "1.1.0", 2)
USED = trusts.Trust(4).using(ALLOWED, 70)
OK_END = END._replace(code=codes.OK)


def trusting(trust: Optional[trusts.Trust], floor: int = 3, **more: Any) -> settle.State:
    """A host at a floor, with a record of trust that `update.json` knows."""
    update = records.Update(floor=floor, trust=trust.generation if trust is not None else 0)
    return state(update=update, **more)._replace(trust=trust)


def on_permitted_trial(trust: trusts.Trust = USED, **changes: Any) -> settle.State:
    """1.1.0 on trial below the floor."""
    return trusting(trust, current="b", good="a", back="a", claim={"trial": RECORD}, **changes)


def test_whom_a_host_trusts() -> None:
    """The configuration's pins, the key set's, or nobody's where the record is lost."""
    assert standing.in_force(PRODUCT, state()) == standing.InForce("configuration", 0, ("sha256/x",), 1, 0)
    assert standing.in_force(PRODUCT, trusting(trusts.Trust(1))).source == "configuration"
    with_keys = trusting(trusts.Trust(1, KEYS))
    assert standing.in_force(PRODUCT, with_keys) == standing.InForce("key-set", 1, (PIN, OTHER), 2, 900)
    lost = state()._replace(trust_known=False)
    assert standing.in_force(PRODUCT, lost) == standing.InForce("unknown", 0, (), 0, 0)


def test_digests_are_trusted_only_where_no_key_is() -> None:
    """Root's word for it counts where nothing is pinned and no key set was ever taken; a lost record is no licence."""
    told = PRODUCT._replace(trust="digest")
    bare = told._replace(pins=())
    assert standing.in_force(bare, state()) == standing.InForce("digest", 0, (), 0, 0)
    assert standing.in_force(bare, trusting(trusts.Trust(1))).source == "digest"
    assert standing.in_force(told, state()).source == "configuration"
    assert standing.in_force(bare, trusting(trusts.Trust(1, KEYS))).source == "key-set"
    assert standing.in_force(bare, state()._replace(trust_known=False)).source == "unknown"
    assert standing.in_force(PRODUCT._replace(pins=()), state()).source == "configuration"
    answer = {"trust": {"source": "digest", "sequence": 0}}
    assert standing.of_key_set(answer) == "; releases are taken by their digest, and there is no floor"


def test_trust_is_written_before_update_demands_it() -> None:
    """One generation on; the record that demands it comes after the record itself."""
    found = trusting(trusts.Trust(4, KEYS))
    plan = trust_plans.plan_apply(PRODUCT, found, "b", trusts.Trust(4, KEYS._replace(sequence=2)))
    assert names(plan) == ["trust.json", "update.json"]
    assert written(plan, "trust.json")[0]["generation"] == written(plan, "update.json")[0]["trust"] == 5
    assert written(plan, "trust.json")[0]["keys"]["sequence"] == 2
    assert written(plan, "update.json")[0]["floor"] == 3
    assert all_synced(plan)


def test_the_generation_is_above_whatever_was_demanded() -> None:
    """Also when the record at hand is older than what `update.json` knew, as after a repair."""
    found = trusting(trusts.Trust(4, KEYS))._replace(update=records.Update(floor=1, trust=9))
    plan = trust_plans.plan_apply(PRODUCT, found, "b", trusts.Trust(4, KEYS))
    assert written(plan, "trust.json")[0]["generation"] == 10


@pytest.mark.parametrize(
    ("before", "pins", "cleared"),
    [
        (None, ("sha256/x", PIN), False),
        (None, (PIN, OTHER), True),
        (KEYS, (PIN, OTHER, "sha256/x"), False),
        (KEYS, (PIN,), True),
    ],
)
def test_a_pin_that_goes_away_takes_the_free_slots_record_with_it(
    before: Optional[trusts.Keys], pins: Any, cleared: bool
) -> None:
    """Bytes that were let in by a revoked key must prove themselves again; before the key counts for nothing."""
    after = trusts.Trust(4, KEYS._replace(sequence=2, pins=pins, threshold=1))
    plan = trust_plans.plan_apply(PRODUCT, trusting(trusts.Trust(4, before)), "b", after)
    assert names(plan) == [*(["slots.json"] if cleared else []), "trust.json", "update.json"]
    assert [sorted(value["slots"]) for value in written(plan, "slots.json")] == ([["a"]] if cleared else [])
    empty = trusting(trusts.Trust(4, before), held=slots(a="1.0.0"))
    assert trust_plans.clears(PRODUCT, trusting(trusts.Trust(4, before)), "b", after) is cleared
    assert not trust_plans.clears(PRODUCT, empty, "b", after)
    same = trust_plans.plan_apply(PRODUCT, empty, "b", after)  # the copy may name the slot, after a cut
    assert names(same) == [*(["slots.json"] if cleared else []), "trust.json", "update.json"]


def test_a_threshold_that_rises_takes_the_free_slots_record_with_it() -> None:
    """What fewer signatures let in is let in by the slot's record alone, so it must prove itself again."""
    before = trusting(trusts.Trust(4, KEYS._replace(threshold=1)))
    for threshold, cleared in ((1, []), (2, ["slots.json"])):
        after = trusts.Trust(4, KEYS._replace(sequence=2, threshold=threshold))
        plan = trust_plans.plan_apply(PRODUCT, before, "b", after)
        assert names(plan) == [*cleared, "trust.json", "update.json"]


def test_with_the_record_begun_anew_what_was_staged_proves_itself_again() -> None:
    """Nobody knows whose signatures counted before, so it goes although no key of the configuration does."""
    after = trusts.Trust(4, KEYS._replace(pins=("sha256/x",), threshold=1))
    plan = trust_plans.plan_apply(PRODUCT, trusting(None), "b", after, all_anew=True)
    assert names(plan) == ["slots.json", "trust.json", "update.json"]


def test_a_withdrawal_alone_clears_nothing() -> None:
    """No key went away."""
    after = trusts.Trust(0, None, (trusts.Withdrawn("1.1.0", 2, "why", 1),))
    plan = trust_plans.plan_apply(PRODUCT, trusting(None), "b", after)
    assert names(plan) == ["trust.json", "update.json"]
    assert written(plan, "trust.json")[0]["generation"] == 1


def test_a_cut_between_the_two_records_is_caught_up_with() -> None:
    """So that a record which is there is demanded; not while a record is broken."""
    found = trusting(trusts.Trust(4, KEYS))
    assert trust_plans.plan_catch_up(PRODUCT, found) == ()
    assert trust_plans.plan_catch_up(PRODUCT, trusting(None)) == ()
    cut = found._replace(update=records.Update(floor=3, trust=3))
    plan = trust_plans.plan_catch_up(PRODUCT, cut)
    assert names(plan) == ["update.json"]
    assert (written(plan, "update.json")[0]["trust"], written(plan, "update.json")[0]["floor"]) == (4, 3)
    assert trust_plans.plan_catch_up(PRODUCT, cut._replace(broken=("x", "torn"))) == ()


def test_I3_a_permit_is_used_up_between_the_trial_record_and_the_switch() -> None:
    """Whoever finds it allowed finds the trial that it is for; the timer is armed after it, and current moves last."""
    permitted = trust_plans.plan_permitted(PRODUCT, trusting(None), ALLOWED, 70)
    plan = plans.plan_swap(PRODUCT, TRIAL, permitted)
    assert names(plan) == [
        "back",
        "trial.log",
        "trial",
        "trust.json",
        "update.json",
        "Arm",
        "current",
        "Demand",
        "Restart",
    ]
    (found,) = written(plan, "trust.json")
    assert found["permits"] == [{"at": 70, "id": "0123456789abcdef"}]
    assert found["allowed"] == {"id": "0123456789abcdef", "sequence": 2, "version": "1.1.0"}
    assert written(plan, "update.json")[0]["floor"] == 3
    assert all_synced(plan)
    again = trust_plans.plan_permitted(PRODUCT, trusting(trusts.Trust(7, KEYS)), ALLOWED, 70)
    assert (written(again, "trust.json")[0]["generation"], written(again, "trust.json")[0]["keys"]["sequence"]) == (
        8,
        1,
    )
    assert trust_plans.plan_permitted(PRODUCT, trusting(None), None, 70) == ()


def test_I3_confirming_a_permitted_downgrade_sets_the_floor_to_it() -> None:
    """Floor, good, and only then what was allowed is forgotten; the permit stays used."""
    plan = plans.plan_confirm(PRODUCT, on_permitted_trial(), TRIAL, OK_END)
    assert names(plan) == [
        "trial over trial.confirm",
        "-back",
        "update.json",
        "good",
        "trust.json",
        "update.json",
        "-trial.confirm",
        "-trial.log",
        "-trial.sources",
    ]
    assert [value["floor"] for value in written(plan, "update.json")] == [2, 2]
    (found,) = written(plan, "trust.json")
    assert (found["allowed"], [entry["id"] for entry in found["permits"]]) == (None, ["0123456789abcdef"])
    assert all_synced(plan)


@pytest.mark.parametrize(
    ("allowed", "least", "base", "floor"),
    [
        (ALLOWED, 0, 9, 2),
        (ALLOWED, 5, 9, 5),
        (ALLOWED, 1, 0, 2),
        (ALLOWED._replace(version="1.0.9"), 0, 0, 3),
        (ALLOWED._replace(sequence=1), 0, 0, 3),
        (ALLOWED._replace(sequence=1), 0, 9, 9),
    ],
)
def test_I3_the_floor_falls_by_a_permit_for_this_very_release_alone(
    allowed: trusts.Allowed, least: int, base: int, floor: int
) -> None:
    """Past what the running program was built with, never below what is configured."""
    product = PRODUCT._replace(base_floor=max(base, least), least_floor=least)
    plan = plans.plan_confirm(product, on_permitted_trial(trusts.Trust(4).using(allowed, 70)), TRIAL, OK_END)
    assert {value["floor"] for value in written(plan, "update.json")} == {floor}
    assert written(plan, "trust.json")[0]["allowed"] is None


def test_I9_a_confirmation_that_is_finished_again_leaves_the_floor_where_it_was_set() -> None:
    """Also by a program of a higher sequence that was started before: the first run has decided."""
    last = records.Last(TRIAL.trial_id, "confirmed", "ok", "confirmed", "1.0.0", "1.1.0", END.at)
    found = state("b", "b", claim={"confirm": RECORD}, update=records.Update(floor=2, last=last, trust=6))
    found = found._replace(trust=trusts.Trust(6).using(ALLOWED, 70).ended(swapped=True))
    product = PRODUCT._replace(base_floor=9)
    assert written(plans.plan_finish_confirm(product, found, TRIAL, OK_END), "update.json")[0]["floor"] == 2
    other = found._replace(update=found.update._replace(last=last._replace(trial_id="0" * 16)))
    assert written(plans.plan_finish_confirm(product, other, TRIAL, OK_END), "update.json")[0]["floor"] == 9


def test_a_permitted_trial_that_goes_back_leaves_the_permit_used_and_the_floor_alone() -> None:
    """Whatever came of it."""
    plan = plans.plan_go_back(PRODUCT, on_permitted_trial(), TRIAL, END)
    assert names(plan)[:6] == [
        "trial over trial.revert",
        "back over current",
        "Restart",
        "trust.json",
        "update.json",
        "-trial.revert",
    ]
    (found,) = written(plan, "trust.json")
    assert (found["allowed"], [entry["id"] for entry in found["permits"]]) == (None, ["0123456789abcdef"])
    (noted,) = written(plan, "update.json")
    assert (noted["floor"], noted["trust"], noted["last"]["state"]) == (3, 5, "rolled-back")


def test_a_swap_that_never_was_gives_the_permit_back() -> None:
    """An abandoned update is free to be tried again, with the same permit."""
    found = trusting(USED, current="a", good="a", back="a", claim={"trial": RECORD}, log=b"")
    plan = plans.plan_abandon(PRODUCT, found, TRIAL, END)
    assert names(plan)[:3] == ["trust.json", "update.json", "-trial"]
    (trust,) = written(plan, "trust.json")
    assert (trust["allowed"], trust["permits"]) == (None, [])


def test_a_trial_without_a_permit_writes_no_trust() -> None:
    """Nothing was allowed, so nothing ends."""
    found = on_permitted_trial(trusts.Trust(4, KEYS))
    for plan in (
        plans.plan_confirm(PRODUCT, found, TRIAL, OK_END),
        plans.plan_go_back(PRODUCT, found, TRIAL, END),
        plans.plan_abandon(PRODUCT, found._replace(current="a"), TRIAL, END),
    ):
        assert "trust.json" not in names(plan)
        assert written(plan, "update.json")[0]["trust"] == 4


def host(**changes: Any) -> status.Host:
    """The rest of a look."""
    plain = status.Host("1.0.0", 1, status.Unit("active"), None, (), now_s=1000, machine_id="c" * 32)
    return plain._replace(**changes)


def shown(found: settle.State, **changes: Any) -> Dict[str, Any]:
    """The answer of `update`."""
    return status.as_json(PRODUCT, found, values.IN_TIME, host(**changes))


def test_update_says_whom_the_host_trusts() -> None:
    """In one place, and in the line that people read."""
    plain = shown(state())
    assert (plain["pins"], plain["threshold"]) == (1, 1)
    assert plain["trust"] == {
        "source": "configuration",
        "sequence": 0,
        "pins": ["sha256/x"],
        "threshold": 1,
        "expires_at": 0,
        "withdrawn": False,
        "machine_id": "c" * 32,
    }
    found = shown(trusting(trusts.Trust(1, KEYS)))
    assert (found["pins"], found["threshold"], found["trust"]["source"]) == (2, 2, "key-set")
    assert status.lines(found, "/bin/probe")[0].endswith("2 release pins (threshold 2) of key set 1")


def test_a_lost_record_shows_nobody_as_trusted() -> None:
    """Never the configuration's pins."""
    lost = shown(state()._replace(trust_known=False, broken=("/slots/trust.json", "gone")))
    assert (lost["trust"]["source"], lost["trust"]["pins"], lost["pins"], lost["threshold"]) == ("unknown", [], 0, 0)


def test_a_host_that_runs_a_withdrawn_release_says_so() -> None:
    """And stays as it is."""
    withdrawn = trusts.Trust(1, None, (trusts.Withdrawn("1.0.0", 1, "loses mail", 5),))
    found = shown(trusting(withdrawn))
    assert (found["trust"]["withdrawn"], found["state"], found["code"]) == (True, "idle", "ok")
    assert "withdrawn: 1.0.0 was withdrawn by whoever signs releases: go to another one" in status.lines(found, "/x")
    assert not shown(trusting(withdrawn), sequence=2)["trust"]["withdrawn"]


DAY = 86400


def test_N16_update_warns_of_keys_and_manifest() -> None:
    """Both, by their levels; none without a clock, and none when it is not time."""
    held = {"a": record("1.0.0")._replace(expires_at=1000 + 29 * DAY)}
    found = trusting(trusts.Trust(1, KEYS._replace(expires_at=1000 + 3 * DAY)), held=held)
    warnings = shown(found)["warnings"]
    assert [(one["level"], one["what"], one["days"]) for one in warnings] == [
        ("critical", "keys", 3),
        ("warning", "manifest", 29),
    ]
    assert [line.split(" ")[0] for line in status.lines(shown(found), "/x")[2:]] == ["critical:", "warning:"]
    assert shown(found, now_s=0)["warnings"] == []
    far = trusting(trusts.Trust(1, KEYS._replace(expires_at=1000 + 92 * DAY)), held=held)
    assert [one["what"] for one in shown(far)["warnings"]] == ["manifest"]
    assert [one["what"] for one in shown(found._replace(slots={}))["warnings"]] == ["keys"]
    assert shown(far._replace(slots={}))["warnings"] == []
    assert [one["what"] for one in shown(found._replace(trust=None))["warnings"]] == ["manifest"]
