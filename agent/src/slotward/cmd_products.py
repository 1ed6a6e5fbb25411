# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward products`: every product of this host in one answer, the agent itself first (products.md, section 9).

Rules:
- Reading alone: no lock, and systemd is asked once for all units.
- One product whose file or records cannot be read says so in its own line and takes nothing from the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

from slotcore import codes, outcome, settle, status
from slotward import answers, build_info, hand, host, looking, own, product_files, systemd

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> answers.Answer:
    """List them."""
    good, broken = [own.load(args.config)], []
    for name in product_files.names(args.config):
        try:
            good.append(product_files.load(args.config, name))
        except (codes.BadConfig, codes.Refused) as error:
            broken.append(_broken(name, error))
    shown = systemd.show_each([setup.product.unit for setup in good], ("ActiveState", "SubState", "MainPID", "Job"))
    agent, *others = [_line(setup, status.unit_of(found)) for setup, found in zip(good, shown)]
    listed = [agent, *sorted([*others, *broken], key=lambda one: str(one["name"]))]
    answer = answers.base(build_info.NAME, "idle")
    answer["products"] = listed
    return answers.Answer(answers.DONE, answer, [_said(one) for one in listed])


def _broken(name: str, error: answers.CodedError) -> Dict[str, Any]:
    nothing = {"unit": "", "version": "unknown", "sequence": 0, "trial_pending": False, "held": False, "trial": None}
    return {"name": name, "state": "failed", "code": error.code, "message": error.text, **nothing}


def _line(setup: own.Setup, unit: status.Unit) -> Dict[str, Any]:
    product = setup.product
    state = host.read_state(product)
    settlement = settle.decide(state, host.clock())
    shown, code = outcome.state_and_code(state, settlement, unit.runs, setup.problems)
    version, sequence = looking.version_of(setup, state)
    pending = settlement.on_trial
    return {
        "name": product.name,
        "unit": product.unit,
        "version": version,
        "sequence": sequence,
        "state": shown,
        "code": code,
        "message": "; ".join(setup.problems) or (": ".join(state.broken) if state.broken else ""),
        "trial_pending": pending is not None or settlement.action is not settle.Action.NONE,
        "trial": {"id": pending.trial_id, "to": pending.to_version} if pending is not None else None,
        "held": hand.hold_as_json(product, state.update) is not None,
    }


def _said(one: Dict[str, Any]) -> str:
    more = (
        f", {one['code']}: {one['message']}"
        if one["message"]
        else ""
        if one["code"] == codes.OK
        else f", {one['code']}"
    )
    held = ", held" if one["held"] else ""
    trial = f", {one['trial']['to']} on trial" if one["trial"] else ""
    return f"{one['name']} {one['version']} ({one['unit'] or 'no unit'}): {one['state']}{trial}{held}{more}"
