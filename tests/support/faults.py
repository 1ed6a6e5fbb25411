# SPDX-License-Identifier: GPL-3.0-or-later
"""A build of the agent that stops for ever at one point between two operations, so that a test can cut the host there.

The names of the points come from the plans themselves: an operation that is added to a plan is a point of the tests.
"""

from __future__ import annotations

import pathlib

from slotcore import ops, plans, records, settle
from slotcore import product as products
from slotcore import trial as trials

WANTED = "/var/tmp/e2e/fault"
HIT = WANTED + ".hit"
MODULE = f'''# SPDX-License-Identifier: GPL-3.0-or-later
"""Stops for ever at the point named in a file, once."""

import os
import time


def hit(point: str) -> None:
    """Stop at `point` if it is the one."""
    try:
        with open({WANTED!r}, encoding="ascii") as file:
            wanted = file.read().strip()
    except OSError:
        return
    if wanted != point:
        return
    os.rename({WANTED!r}, {HIT!r})
    os.sync()
    while True:
        time.sleep(3600)
'''

PRODUCT = products.Product("slotward", "slotward.service", "/usr/local/bin/slotward", "/opt/slotward/slotward")
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


def overlay(directory: pathlib.Path) -> pathlib.Path:
    """Write what `agent/build.py --extra` lays over the real build."""
    (directory / "slotward").mkdir(parents=True, exist_ok=True)
    (directory / "slotward" / "faults.py").write_text(MODULE, encoding="utf-8")
    return directory


def points(name: str, plan: ops.Plan) -> list[str]:
    """Every point of a plan, as the executor names them."""
    return [f"{name}.{number}.{type(step).__name__}" for number, step in enumerate(plan)] + [f"{name}.{len(plan)}.end"]


def adopt_points() -> list[str]:
    """Adopting a plain file on a host whose slots are not in use."""
    state = settle.State(entrypoint="file")
    return points("adopt", plans.plan_adopt(PRODUCT, state, OLD, plans.ENTRYPOINT))


def stage_points() -> list[str]:
    """Filling a slot that held another release before."""
    return points("stage", plans.plan_stage(PRODUCT, REFILLED, NEW, newest_issued=1))


def swap_points(restart: bool = True) -> list[str]:
    """From the first link of a trial to the restart, or to the start that waits for it."""
    return points("swap", plans.plan_swap(PRODUCT, TRIAL, restart=restart))


def confirm_points() -> list[str]:
    """From the claim to the last unlink of a confirmation."""
    return points("confirm", plans.plan_confirm(PRODUCT, ON_TRIAL, TRIAL, END))


def go_back_points() -> list[str]:
    """From the claim to the last unlink of going back at an operator's word."""
    return points("go-back", plans.plan_go_back(PRODUCT, ON_TRIAL, TRIAL, END._replace(code="operator")))


def number_of(point: str) -> int:
    """The number of a point in its plan."""
    return int(point.split(".")[1])
