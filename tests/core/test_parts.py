# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of a product with a unit file among its parts, or whose data is kept: what they add, and in which order (products.md)."""

from __future__ import annotations

import pytest
from core.crash import values
from core.crash.values import IN_TIME, OVER, TRIAL

from slotcore import codes, links, ops, plans, settle, trial
from slotcore import product as products

UNIT = products.Part("unit", "probe.service", "/etc/systemd/system/probe.service", unit=True)
DATA = products.Part("schema", "schema.sql", "/usr/share/probe/schema.sql")
PARTED = values.PRODUCT._replace(layout="versions", program="probe", parts=(DATA, UNIT))
END = plans.End(codes.OPERATOR, "because", values.AT)
HOME = [ops.Append, ops.Reload, ops.Restart, ops.Append]
LOG = trial.LOG_HEADER + trial.UNIT_DUE


def kinds(plan: ops.Plan, *wanted: type) -> list[type]:
    """The kinds of those operations of a plan that are of the wanted kinds."""
    return [type(operation) for operation in plan if type(operation) in wanted]


def written(plan: ops.Plan, name: str) -> bytes:
    """What a plan writes into the new file of that name."""
    return next(op.data for op in plan if isinstance(op, ops.Write) and op.path == f"/slots/{name}.tmp")


def test_only_a_unit_file_makes_systemd_read_again() -> None:
    """Companion files are nothing to systemd."""
    assert PARTED.has_unit_part
    assert not PARTED._replace(parts=(DATA,)).has_unit_part
    plan = plans.plan_swap(PARTED._replace(parts=(DATA,)), TRIAL)
    assert kinds(plan, ops.Reload) == []
    assert written(plan, "trial.log") == trial.LOG_HEADER


def test_a_swap_has_systemd_read_the_new_unit_file_before_the_restart() -> None:
    """Only once the link has moved, and the log says first that it is due and then that it was done."""
    plan = plans.plan_swap(PARTED, TRIAL)
    assert written(plan, "trial.log") == LOG
    moved = plan.index(ops.Rename("/slots/current.tmp", "/slots/current"))
    log = "/slots/trial.log"
    pending = ops.Demand("/slots/trial", TRIAL.trial_id)
    read = (ops.Reload(must=True), ops.Append(log, trial.UNIT_READ), ops.Sync(log))
    assert plan[moved + 2 :] == (pending, *read, ops.Restart())
    assert not trial.is_unit_read(LOG)
    assert trial.is_unit_read(LOG + b"start 5\n" + trial.UNIT_READ)
    assert trial.is_unit_read(trial.LOG_HEADER)


def test_a_swap_says_that_the_data_is_to_be_kept() -> None:
    """The guard goes by the log, which needs no room of its own."""
    assert written(plans.plan_swap(values.PRODUCT, TRIAL, snapshot=True), "trial.log").endswith(b"\nsnapshot due\n")
    assert written(plans.plan_swap(PARTED, TRIAL, snapshot=True), "trial.log") == (
        trial.LOG_HEADER + trial.SNAPSHOT_DUE + trial.UNIT_DUE
    )


def test_going_back_reads_the_old_unit_file_before_the_restart_and_depends_on_nothing() -> None:
    """I2: the rename comes first; a refusal to read is no reason not to restart."""
    state = values.on_trial()._replace(log=LOG)
    plan = links.plan_return(PARTED, state)
    assert plan[:2] == (ops.Append("/slots/trial.log", trial.MOVED), ops.Rename("/slots/back", "/slots/current"))
    assert kinds(plan, ops.Append, ops.Reload, ops.Restart) == HOME
    assert ops.Reload(must=False) in plan
    lost = links.plan_return(PARTED, state._replace(log=b""))
    assert kinds(lost, ops.Append, ops.Reload, ops.Restart) == [ops.Reload, ops.Restart]


@pytest.mark.parametrize(
    ("log", "unread"),
    [
        (b"", False),
        (LOG, False),
        (LOG + b"moved 9\n", True),
        (LOG + b"moved 9\nowed 9\nrestart 9\n", True),
        (LOG + b"moved 9\nreloaded 10\n", False),
        (LOG + b"moved 9\nreloaded 10\nmoved 0\n", True),
        (LOG + b"moved 9", False),
    ],
)
def test_who_went_back_and_was_ended_before_systemd_read_is_finished(log: bytes, unread: bool) -> None:
    """What runs by then was started by the wrong file, so it is restarted too; a line that is torn was not written."""
    assert trial.is_unread(log) == unread
    state = values.state(claim={"revert": values.RECORD + b"REASON=crash-loop\n"}, log=log)
    owed = links.plan_owed(PARTED, state, ())
    assert kinds(owed, ops.Reload, ops.Restart) == ([ops.Reload, ops.Restart] if unread else [])
    assert links.plan_owed(values.PRODUCT, state, ()) == ()


def test_abandoning_reads_and_restarts_nothing() -> None:
    """Nothing ever moved."""
    state = values.state(back="a", claim={"trial": values.RECORD}, log=LOG)
    assert kinds(plans.plan_abandon(PARTED, state, TRIAL, END), ops.Reload, ops.Restart) == []


def test_confirming_forgets_the_copy_of_the_data_before_good_moves() -> None:
    """Once good has moved, no start may restore what the old version left."""
    state = values.on_trial()._replace(snapshot=b"ID=9f8a6c1e22d04b57\nTO_SLOT=b\n")
    plan = plans.plan_confirm(values.PRODUCT, state, TRIAL, END._replace(code=codes.OK))
    gone = plan.index(ops.Unlink("/slots/snapshot"))
    synced = gone + plan[gone:].index(ops.SyncDir("/slots"))
    assert synced < plan.index(ops.Rename("/slots/good.tmp", "/slots/good"))
    assert isinstance(plan[0], ops.Claim)
    without = plans.plan_confirm(values.PRODUCT, values.on_trial(), TRIAL, END._replace(code=codes.OK))
    assert ops.Unlink("/slots/snapshot") not in without


def test_going_back_leaves_the_copy_for_the_start_that_restores_it() -> None:
    """Whoever settles tidies up everything but that."""
    state = values.on_trial()._replace(snapshot=b"ID=9f8a6c1e22d04b57\nTO_SLOT=b\n")
    assert ops.Unlink("/slots/snapshot") not in plans.plan_go_back(values.PRODUCT, state, TRIAL, END)
    assert settle.leftovers(values.state()._replace(snapshot=b"x"), ("snapshot", "snapshot.tmp")) == ("snapshot.tmp",)
    assert settle.decide(state, IN_TIME).action is settle.Action.AWAIT
    assert settle.decide(state, OVER).action is settle.Action.GO_BACK
