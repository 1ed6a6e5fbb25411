# SPDX-License-Identifier: GPL-3.0-or-later
"""The links of a product with a helper, in every plan; and that a product without one has none of them.

What the plans are worth after a crash is shown in test_crash_matrix.py.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

import pytest
from core.crash import values
from core.crash.values import HELPED, PRODUCT, RECORD, TRIAL, record, state
from core.test_plans import END, all_synced, link_of, names

from slotcore import codes, links, ops, plans, settle
from slotcore import product as products


def found(
    current: Optional[str], good: Optional[str], helper: Optional[str], back: Optional[str] = "a", **more: bytes
) -> settle.State:
    """A state with a helper, whose two links to go back by name the same; `more` as the trial's record."""
    return state(current, good, back, claim=more, log=values.STARTED)._replace(helper=helper, helper_back=back)


def test_I4_a_swap_moves_the_helper_right_after_current_and_restarts_once() -> None:
    """Both ways back are there before anything moves, each step durable before the next."""
    plan = plans.plan_swap(HELPED, TRIAL)
    assert names(plan) == ["back", "helper.back", "trial.log", "trial", "Arm", "current", "helper", "Demand", "Restart"]
    assert link_of(plan, "back") == link_of(plan, "helper.back") == ["a"]
    assert link_of(plan, "current") == link_of(plan, "helper") == ["b"]
    assert all_synced(plan)


def test_confirming_takes_both_ways_back_away_first() -> None:
    """A guard that was held up in an earlier trial finds nothing to move any more."""
    plan = plans.plan_confirm(HELPED, found("b", "a", "b", trial=RECORD), TRIAL, END._replace(code=codes.OK))
    assert names(plan)[:4] == ["trial over trial.confirm", "-back", "-helper.back", "update.json"]
    assert link_of(plan, "helper") == []
    assert all_synced(plan)


def test_I2_going_back_is_two_renames_of_links_that_exist() -> None:
    """Current first; one restart is for both; nothing that needs space comes before it."""
    plan = plans.plan_go_back(HELPED, found("b", "a", "b", trial=RECORD), TRIAL, END)
    assert names(plan) == [
        "trial over trial.revert",
        "back over current",
        "helper.back over helper",
        "Restart",
        "update.json",
        "-trial.revert",
        "-trial.log",
        "-trial.sources",
        "-back",
        "-helper.back",
    ]
    until_restart = plan[: plan.index(ops.Restart())]
    assert not any(isinstance(op, (ops.Write, ops.Copy, ops.Link)) for op in until_restart)
    assert all_synced(plan)


@pytest.mark.parametrize(
    ("seen", "moves"),
    [
        pytest.param(found("a", "a", "a"), [], id="both are home"),
        pytest.param(found("a", "a", "b"), ["helper.back over helper", "Restart"], id="a cut between the two"),
        pytest.param(found("b", "a", "a"), ["back over current", "Restart"], id="a cut between the two of a swap"),
        pytest.param(
            found("b", "a", "b", None),
            ["back", "back over current", "Restart", "helper", "RestartHelper"],
            id="neither way back is there",
        ),
        pytest.param(
            found("b", "a", "b")._replace(helper_back="b"),
            ["back over current", "Restart", "helper", "RestartHelper"],
            id="the helper's names another slot",
        ),
        pytest.param(found("a", "a", None, None), ["helper", "RestartHelper"], id="no link at all"),
        pytest.param(found("b", None, "b"), ["back over current", "helper.back over helper", "Restart"], id="no good"),
        pytest.param(found("b", None, "b", None), [], id="nobody knows where to go"),
    ],
)
def test_going_back_never_holds_the_product_up_for_its_helper(seen: settle.State, moves: Sequence[str]) -> None:
    """What needs an inode for the helper comes after the product's restart, and only ever names good."""
    plan = links.plan_return(HELPED, seen)
    assert names(plan) == moves
    assert link_of(plan, "helper") == ["a"] * ("helper" in moves)
    assert all_synced(plan)


@pytest.mark.parametrize(
    ("helper", "back", "moves"),
    [
        ("a", "a", ["Restart", "update.json"]),
        ("b", "a", ["helper.back over helper", "Restart", "update.json"]),
        ("b", None, ["Restart", "helper", "RestartHelper", "update.json"]),
    ],
)
def test_links_that_somebody_moved_by_hand_are_followed_by_one_restart(
    helper: str, back: Optional[str], moves: Sequence[str]
) -> None:
    """What was started may still be what runs, of either unit; the product is restarted once (I2)."""
    plan = plans.plan_go_back(HELPED, found("a", "a", helper, back, trial=RECORD), TRIAL, END)
    assert names(plan)[1 : 1 + len(moves)] == moves


def test_an_abandoned_update_leaves_no_way_back() -> None:
    """Neither of the two links outlives the record."""
    plan = plans.plan_abandon(HELPED, found("a", "a", "a", trial=RECORD), TRIAL, END)
    assert names(plan)[-3:] == ["-trial.sources", "-back", "-helper.back"]


def test_adopting_takes_the_helper_along() -> None:
    """Otherwise its link would name the slot that the next release is written to, outside of any trial."""
    plan = plans.plan_adopt(HELPED, state("a", "a", entrypoint="file"), record("0.9.0-by-hand"))
    assert names(plan)[-4:] == ["good", "current", "helper", "probe"]
    assert link_of(plan, "helper") == ["b"]
    left = state("a", "a", entrypoint="file")._replace(helper_back="a")
    plan = plans.plan_adopt(HELPED, left, record("0.9.0-by-hand"))
    assert names(plan)[:4] == ["-trial.log", "-trial.sources", "-back", "-helper.back"]


@pytest.mark.parametrize(
    ("current", "helper", "behind"),
    [("a", "a", False), ("a", "b", True), ("b", "a", True), ("a", None, True), (None, "a", False), (None, None, False)],
)
def test_the_helper_is_behind_when_it_does_not_name_what_current_names(
    current: Optional[str], helper: Optional[str], behind: bool
) -> None:
    """A link that is missing or odd too; without `current` there is nothing to follow; without a helper nobody asks."""
    seen = found(current, "a", helper)
    assert settle.is_behind(HELPED, seen) is behind
    assert settle.is_behind(PRODUCT, seen) is False
    plan = links.plan_follow(HELPED, seen)
    assert names(plan) == ["helper", "RestartHelper"] * behind
    assert link_of(plan, "helper") == [current] * behind
    assert links.plan_follow(PRODUCT, seen) == ()
    assert all_synced(plan)


def test_a_way_back_that_a_cut_left_is_a_leftover() -> None:
    """The helper's own link is not."""
    assert settle.leftovers(state(), ("helper", "helper.back", "helper.tmp", "helper.back.tmp")) == (
        "helper.back",
        "helper.back.tmp",
        "helper.tmp",
    )


def test_a_product_without_a_helper_has_nothing_of_it_in_its_plans() -> None:
    """Whatever lies at those names."""
    seen = found("b", "a", "b", trial=RECORD)
    for plan in (
        plans.plan_swap(PRODUCT, TRIAL),
        plans.plan_confirm(PRODUCT, seen, TRIAL, END),
        plans.plan_go_back(PRODUCT, seen, TRIAL, END),
        plans.plan_abandon(PRODUCT, seen, TRIAL, END),
        plans.plan_adopt(PRODUCT, state("a", "a", entrypoint="file"), record("0.9.0-by-hand")),
    ):
        assert "helper" not in repr(plan)
        assert not any(isinstance(operation, ops.RestartHelper) for operation in plan)


@pytest.mark.parametrize(
    ("current", "helper", "back", "undone"),
    [
        ("b", "b", "a", ["back over current", "helper.back over helper"]),
        ("b", "a", "a", ["back over current"]),
        ("a", "b", "a", ["helper.back over helper"]),
        ("a", "a", "a", []),
        ("b", "b", "b", []),
        ("b", "b", None, []),
    ],
)
def test_a_switch_of_which_nothing_was_started_is_undone_by_the_links_alone(
    current: str, helper: str, back: Optional[str], undone: List[str]
) -> None:
    """Only ever to good, by links that are there, in the order of going back; nothing restarts."""
    plan = links.plan_undo(HELPED, found(current, "a", helper, back, revert=RECORD))
    assert names(plan) == undone
    assert all_synced(plan)
    assert {type(operation) for operation in plan} <= {ops.Rename, ops.SyncDir}


def test_a_switch_that_brought_a_unit_file_has_it_read_again_when_it_is_undone() -> None:
    """Somebody may have had systemd read it meanwhile; that it refuses keeps no link from going home."""
    parted = PRODUCT._replace(
        layout="versions",
        program="probe",
        parts=(products.Part("unit", "probe.service", "/etc/probe.service", unit=True),),
    )
    seen = found("b", "a", None, revert=RECORD)
    assert links.plan_undo(parted, seen) == (*links.plan_undo(PRODUCT, seen), ops.Reload(must=False))
    assert links.plan_undo(parted, seen._replace(current="a")) == ()


@pytest.mark.parametrize(
    ("lines", "helper", "restarts"),
    [
        (b"owed 1\nhelper owed 1\n", "a", [ops.Restart]),
        (b"owed 1\nhelper owed 1\nrestart 1\n", "a", [ops.RestartHelper]),
        (b"owed 1\nhelper owed 1\nrestart 1\nhelper restart 1\n", "a", []),
        (b"owed 1\nhelper owed 1\n", "b", [ops.Restart]),
        (b"owed 1\nhelper owed 1\nrestart 1\n", "b", [ops.Restart]),
        (b"", "a", []),
    ],
)
@pytest.mark.parametrize("back", ["a", None])
def test_I2_what_a_guard_owed_is_paid_before_its_log_goes(
    lines: bytes, helper: str, restarts: Sequence[type], back: Optional[str]
) -> None:
    """The links are home, or one is; a guard was ended before it restarted what still runs the failed release."""
    here = found("a", "a", helper, back, revert=RECORD)._replace(log=values.STARTED + lines)
    owed = b"owed" in lines and b"\nrestart" not in lines
    if (helper, back) == ("b", None):  # the helper's link is made anew, and its unit restarted after it
        restarts = [ops.RestartHelper, *([ops.Restart] if owed else [])]

    def kinds(plan: ops.Plan) -> list[type]:
        return [type(one) for one in plan if isinstance(one, (ops.Restart, ops.RestartHelper))]

    assert kinds(plans.plan_finish_revert(HELPED, here, TRIAL, END)) == list(restarts)
    assert plans.plan_finish_revert(HELPED, here._replace(broken=("x", "torn"), helper="a"), TRIAL, END) == ()
    assert kinds(plans.plan_finish_revert(PRODUCT, here, TRIAL, END)) == ([ops.Restart] if owed else [])
