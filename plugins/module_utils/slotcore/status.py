# SPDX-License-Identifier: GPL-3.0-or-later
"""What `update` answers, as one JSON-ready value and as seed 000's lines (seed 000 "bcd update"; node.md, section 6).

Rules:
- A pure function of one look at the host; every key is always there, whatever the state (field case H11).
- A broken record or configuration shows as such; it never makes the rest unreadable (I3, I8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import outcome, records, standing
from . import product as products
from . import settle as settles

if TYPE_CHECKING:
    from . import trial as trials


class Unit(NamedTuple):
    """What systemd says of the product's unit."""

    active: str = "unknown"
    sub: str = ""
    main_pid: int = 0
    restarts: int = 0
    job: int = 0
    """The number of the job that systemd has for it; 0 when it is not on its way anywhere."""

    @property
    def runs(self) -> bool:
        """Whether it runs, or is on its way to: between two attempts of a crash loop it is not."""
        moving = self.active in ("activating", "deactivating", "reloading") and not self.sub.startswith("auto-restart")
        return self.active == "active" or self.job != 0 or moving


def unit_of(shown: Mapping[str, str]) -> Unit:
    """The unit's state from systemd's properties; unknown where systemd did not answer."""
    return Unit(
        active=shown.get("ActiveState", "unknown"),
        sub=shown.get("SubState", ""),
        main_pid=_number(shown.get("MainPID", "0")),
        restarts=_number(shown.get("NRestarts", "0")),
        job=_number(shown.get("Job", "0")),
    )


STOP_PROPERTIES = (
    "ActiveState",
    "Job",
    "ActiveExitTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
)


def was_stopped(shown: Mapping[str, str]) -> bool:
    """Whether the unit is down because systemd was asked to stop it: it left `active` before its process ended."""
    left, started, ended = (_number(shown.get(name, "")) for name in STOP_PROPERTIES[2:])
    idle = shown.get("ActiveState") == "inactive" and shown.get("Job", "0") in ("", "0")
    return idle and started <= left <= ended


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


class Lock(NamedTuple):
    """Who holds the lock and for how long (seconds); process 0 where nobody knows."""

    pid: int
    age_s: int
    what: str

    @property
    def said(self) -> str:
        """What is being done, and by whom where that is known."""
        return self.what + (f", process {self.pid}, for {self.age_s} s" if self.pid else "")


class Host(NamedTuple):
    """The rest of one look: what runs, the unit, the lock, and what is wrong with the configuration."""

    version: str
    sequence: int
    unit: Unit
    lock: Optional[Lock]
    problems: Tuple[str, ...]
    now_s: int = 0
    """The wall clock, for nothing but warnings: 0 gives none."""
    machine_id: str = ""
    aside: Tuple[str, ...] = ()
    """Names of damaged records that were set aside and are still kept."""
    mode: str = "root"
    """Who does root's part here, by the configuration (privilege.md)."""
    helper: Unit = Unit()
    """The helper's unit, of a product that has one."""


def floor_of(product: products.Product, state: settles.State) -> int:
    """The effective floor: the highest of the configured, the embedded and the recorded sequence."""
    return max(product.base_floor, state.update.floor)


def trial_as_json(
    product: products.Product, state: settles.State, trial: trials.Trial, clock: settles.Clock
) -> Dict[str, Any]:
    """A trial in flight, with the time and the boots that it has left and the sources still missing."""
    from . import proof  # only a trial needs it, and every start pays for what it imports

    return {
        "id": trial.trial_id,
        "from": trial.from_version,
        "to": trial.to_version,
        "from_slot": trial.from_slot,
        "to_slot": trial.to_slot,
        "sequence": trial.sequence,
        "left_s": settles.left_s(trial, clock),
        "length_s": trial.length_s,
        "boots_left": trial.boots_left,
        "missing": list(proof.missing_sources(product.confirm_sources, state.sources, trial.trial_id)),
    }


def _slots_as_json(state: settles.State) -> Dict[str, Any]:
    other = products.other_slot(state.current) if state.current else None
    answer: Dict[str, Any] = {
        "in_use": state.in_use,
        "current": state.current,
        "good": state.good,
        "other": other,
    }
    for slot in products.SLOTS:
        entry = state.slots.get(slot)
        answer[slot] = entry.as_json() if entry is not None else None
    return answer


def _helper_as_json(product: products.Product, state: settles.State, unit: Unit) -> Dict[str, Any]:
    """The helper's unit, and the slot that it starts."""
    shown = {"active": unit.active, "main_pid": unit.main_pid, "restarts": unit.restarts}
    return {"name": product.helper_unit, "slot": state.helper, **shown}


def _broken_as_json(state: settles.State) -> Optional[Dict[str, str]]:
    """The broken record, why it is broken, and what of its copy; a link has none."""
    if state.broken is None:
        return None
    file, why = state.broken
    copies = [damage for damage in state.damaged if file.endswith("/" + damage.name)]
    said = [each.copy_why if each.copy is None else "it proves itself and is used next" for each in copies]
    return {"file": file, "why": why, "copy": "".join(said)}


def as_json(product: products.Product, state: settles.State, clock: settles.Clock, host: Host) -> Dict[str, Any]:
    """The answer of `update --json`."""
    settlement = settles.decide(state, clock)
    trial = settlement.on_trial
    runs = host.unit.runs and (host.helper.runs or not product.helper_unit)
    shown, code = outcome.state_and_code(state, settlement, runs, host.problems)
    trusted = standing.in_force(product, state)
    return {
        "spec": 1,
        "product": product.name,
        "changed": False,
        "state": shown,
        "code": code,
        "message": "",
        "version": host.version,
        "sequence": host.sequence,
        "floor": floor_of(product, state),
        "pins": len(trusted.pins),
        "threshold": trusted.threshold,
        "trust": standing.as_json(trusted, state, host.version, host.sequence, host.machine_id),
        "warnings": standing.warnings(trusted, state, host.version, host.now_s) + standing.kept(host.aside),
        "policy": dict(product.policy._asdict(), allowed_channels=list(product.policy.allowed_channels)),
        "slots": _slots_as_json(state),
        "trial": trial_as_json(product, state, trial, clock) if trial is not None else None,
        "pending": settlement.action.value,
        "failed": [entry._asdict() for entry in state.update.failed],
        "last": records.last_as_json(state.update.last),
        "lock": host.lock._asdict() if host.lock is not None else None,
        "broken": _broken_as_json(state),
        "unit": dict(host.unit._asdict(), name=product.unit),
        "mode": host.mode,
        "helper": _helper_as_json(product, state, host.helper) if product.helper_unit else None,
        "config_problems": list(host.problems),
    }


def broken_line(broken: Mapping[str, str]) -> str:
    """What is broken, in one line."""
    copy = f" (its copy: {broken['copy']})" if broken["copy"] else ""
    return f"broken: {broken['file']}: {broken['why']}{copy}"


def _version_in(answer: Dict[str, Any], slot: Optional[str]) -> str:
    entry = answer["slots"].get(slot) if slot else None
    return entry["version"] if entry else "empty"


def _slots_line(answer: Dict[str, Any], entrypoint: str) -> str:
    slots = answer["slots"]
    if not slots["in_use"]:
        return f"slots: not in use yet (the first update adopts {entrypoint})"
    current, other = slots["current"], slots["other"]
    return (
        f"slots: current {current or 'missing'} ({_version_in(answer, current)}), "
        f"other {other or 'missing'} ({_version_in(answer, other)})"
    )


def _helper_line(helper: Mapping[str, Any], current: Optional[str]) -> str:
    behind = "" if helper["slot"] == current else f", not {current or 'missing'} as current"
    what = f"{helper['active']}, process {helper['main_pid'] or 'none'}"
    return f"helper: {helper['name']} {what}, slot {helper['slot'] or 'missing'}{behind}"


def lines(answer: Dict[str, Any], entrypoint: str) -> List[str]:
    """The lines of `update` for people, from its JSON answer."""
    shown = [
        f"version {answer['version']}, {standing.floor_and_pins(answer)}",
        _slots_line(answer, entrypoint),
    ]
    unit = answer["unit"]
    if unit["active"] != "active" or unit["restarts"]:
        shown.append(f"unit: {unit['name']} is {unit['active']}, restarted {unit['restarts']} times by itself")
    if answer["helper"] is not None:
        shown.append(_helper_line(answer["helper"], answer["slots"]["current"]))
    if not answer["policy"]["enabled"]:
        shown.append("updates are disabled on this host ([update] enabled = false)")
    trial = answer["trial"]
    if trial is not None:
        shown.append(
            f"pending: {trial['from']} -> {trial['to']}, trial, {trial['left_s']} s and {trial['boots_left']} boots left, "
            f"waiting for {', '.join(trial['missing']) or 'proof'}"
        )
    elif answer["pending"] != "none":
        shown.append(f"pending: {answer['pending']}, finished by the next start or command")
    held = answer["lock"]
    if held is not None:
        shown.append(f"busy: {Lock(held['pid'], held['age_s'], held['what']).said}")
    if answer["broken"] is not None:
        shown.append(broken_line(answer["broken"]) + "; updates are refused")
    shown.extend(standing.lines(answer))
    shown.extend(f"configuration: {problem}; updates are refused" for problem in answer["config_problems"])
    shown.extend(f"failed: {entry['version']} ({entry['why']})" for entry in answer["failed"])
    return shown
