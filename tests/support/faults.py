# SPDX-License-Identifier: GPL-3.0-or-later
"""A build of the agent that stops at one point between two operations, for ever or for some seconds, so that a test can cut the host there.

The names of the points come from the plans themselves: an operation that is added to a plan is a point of the tests.
"""

from __future__ import annotations

import pathlib

from slotcore import ops, plans, records, settle
from slotcore import product as products
from slotcore import trial as trials
from support import modes

WANTED = "/var/tmp/e2e/fault"
HIT = WANTED + ".hit"
MODULE = f'''# SPDX-License-Identifier: GPL-3.0-or-later
"""Stops at the point named in a file, once: for ever, or for the seconds that follow it."""

import os
import time


def hit(point: str) -> None:
    """Stop at `point` if it is the one."""
    try:
        with open({WANTED!r}, encoding="ascii") as file:
            wanted = file.read().split()
    except OSError:
        return
    if wanted[:1] != [point]:
        return
    os.rename({WANTED!r}, {HIT!r})
    os.sync()
    if wanted[1:]:
        time.sleep(float(wanted[1]))
        return
    while True:
        time.sleep(3600)
'''

PRODUCT = products.Product("slotward", "slotward.service", "/usr/local/bin/slotward", "/opt/slotward/slotward")
HELPED = PRODUCT._replace(helper_unit=modes.HELPER_UNIT, helper_socket=modes.SOCKET)
OLD = records.SlotRecord("1.0.0", 1, "0" * 64, 1)
NEW = records.SlotRecord("1.1.0", 2, "1" * 64, 1)
TRIAL = trials.Trial(
    "00112233445566aa",
    PRODUCT.name,
    OLD.version,
    NEW.version,
    "a",
    "b",
    NEW.sequence,
    "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10",
    20,
    100,
    3,
    "-",
    OLD.sha256,
    NEW.sha256,
)
END = plans.End("ok", "why", 1)
AT_REST = settle.State(current="a", good="a", in_use=True, entrypoint="ours", slots={"a": OLD})
REFILLED = AT_REST._replace(slots={"a": OLD, "b": OLD})
ON_TRIAL = AT_REST._replace(
    current="b", back="a", slots={"a": OLD, "b": NEW}, trial=trials.render_trial(TRIAL), log=trials.LOG_HEADER
)
WITH_HELPER = ON_TRIAL._replace(helper="b", helper_back="a")


def overlay(directory: pathlib.Path) -> pathlib.Path:
    """Write what `agent/build.py --extra` lays over the real build."""
    (directory / "slotward").mkdir(parents=True, exist_ok=True)
    (directory / "slotward" / "faults.py").write_text(MODULE, encoding="utf-8")
    return directory


def points(name: str, plan: ops.Plan) -> list[str]:
    """Every point of a plan, as the executor names them."""
    return [f"{name}.{number}.{type(step).__name__}" for number, step in enumerate(plan)] + [f"{name}.{len(plan)}.end"]


def _in(mode: str) -> tuple[products.Product, settle.State]:
    """The product and a state on trial, as a mode has them."""
    return (HELPED, WITH_HELPER) if mode == modes.HELPER else (PRODUCT, ON_TRIAL)


def adopt_points(mode: str = modes.ROOT) -> list[str]:
    """Adopting a plain file on a host whose slots are not in use."""
    state = settle.State(entrypoint="file")
    return points("adopt", plans.plan_adopt(_in(mode)[0], state, OLD))


def stage_points(mode: str = modes.ROOT) -> list[str]:
    """Filling a slot that held another release before."""
    return points("stage", plans.plan_stage(_in(mode)[0], REFILLED, NEW, newest_issued=1))


def swap_points(mode: str = modes.ROOT, restart: bool = True) -> list[str]:
    """From the first link of a trial to the restart, or to the start that waits for it."""
    return points("swap", plans.plan_swap(_in(mode)[0], TRIAL, restart=restart))


def confirm_points(mode: str = modes.ROOT) -> list[str]:
    """From the claim to the last unlink of a confirmation."""
    product, state = _in(mode)
    return points("confirm", plans.plan_confirm(product, state, TRIAL, END))


def go_back_points(mode: str = modes.ROOT) -> list[str]:
    """From the claim to the last unlink of going back at an operator's word."""
    product, state = _in(mode)
    return points("go-back", plans.plan_go_back(product, state, TRIAL, END._replace(code="operator")))


def switched(mode: str = modes.ROOT) -> int:
    """The number of the first point of a swap at which `current` has moved."""
    plan = plans.plan_swap(_in(mode)[0], TRIAL)
    return 1 + next(
        number
        for number, step in enumerate(plan)
        if isinstance(step, ops.Rename) and step.path == PRODUCT.path("current")
    )


def asked_points(mode: str) -> list[str]:
    """A switch that the daemon has asked for: in start mode the start that waits for it is the restart."""
    return swap_points(mode, restart=mode != modes.START)


PLANS = {
    "asked": asked_points,
    "stage": stage_points,
    "swap": swap_points,
    "confirm": confirm_points,
    "go-back": go_back_points,
    "adopt": adopt_points,
}


def quick(mode: str) -> set[str]:
    """The points that every run tries: after each rename that decides something, and between the two of helper mode."""
    after = switched(mode)
    found = {swap_points(mode)[after], confirm_points(mode)[1], go_back_points(mode)[4]}
    return found | {swap_points(mode)[after + 2], go_back_points(mode)[6]} if mode == modes.HELPER else found


def chosen(plan: str, mode: str) -> list[str]:
    """The points at which a host is cut in a mode: all of them in root mode, elsewhere those at which the disk differs."""
    every = PLANS[plan](mode)
    if mode == modes.ROOT:
        return every
    return [
        point
        for point in every
        if point.endswith((".Rename", ".Claim", ".Arm", ".Restart", ".end")) or point in quick(mode)
    ]


def number_of(point: str) -> int:
    """The number of a point in its plan."""
    return int(point.split(".")[1])
