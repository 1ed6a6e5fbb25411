# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's checks of the mode: account, owners, root's part, and the sandbox that systemd has in force (field case D8).

Rules:
- A check is a pure function of one `Look`; what is `fail` names the command that mends it.
- What setup would do is what is wrong: the list of its steps is the check of owners, links and leftovers.
- The mode is the agent's: of another product only its unit's sandbox is looked at, and `S/staging` is root's in every mode.
"""

from __future__ import annotations

import os
from typing import List, Mapping, NamedTuple, Optional, Tuple

from slotcore import codes, settle
from slotward import accounts, build_info, doctor_sandbox, own, units_modes, ways
from slotward import doctor_states as states

Found = states.Finding
Shown = Mapping[str, str]

SETUP = "slotward setup"
TAKE_OUT = (
    f"`systemctl cat {build_info.UNIT}` shows which drop-in has User=: take it out, then systemctl daemon-reload && "
    f"systemctl restart {build_info.UNIT}"
)
REFUSED_TO_START = "5"
PART = {
    units_modes.ROOT: "its commands run as transient units of root's",
    units_modes.HELPER: f"root's part is done by {build_info.HELPER_UNIT}",
    units_modes.START: f"root's part is done by {units_modes.START_UNITS[0]} before each start",
}


class Look(NamedTuple):
    """What the checks look at."""

    mode: str
    user: str
    account: Optional[accounts.Account]
    runs_as: Optional[int]
    """The uid of the daemon's main process, None when there is none."""
    writes: Tuple[str, ...]
    """The directories that the daemon writes in."""
    helper_writes: str
    slots: str
    unreachable: Tuple[Tuple[str, str], ...]
    """What the account must read or start and cannot, each with what mends it."""
    risks: Tuple[ways.Risk, ...]
    steps: Tuple[Tuple[str, str], ...]
    """What setup would do about the mode: path, what."""
    refusal: str
    """Why setup would refuse, "" when it would not."""
    helper_runs: str
    """What the helper's link names and does not start, as a sentence; "" when all is well."""
    units: Mapping[str, Shown]
    written: str = ""
    """The account in the units that setup wrote."""


def told(setup: own.Setup, state: settle.State) -> List[Found]:
    """What there is to say of this host for the agent, or for another product."""
    if not setup.is_agent:
        return doctor_sandbox.of_product(setup.product)
    if setup.problems and own.mends(setup.config_path):  # none of it counts, so nobody knows what mode was meant
        text = f"the mode of this host is not known: {setup.config_path} could be somebody else's word than root's"
        return [Found("mode", "warn", text, f"mend {setup.config_path} first", states.BAD_CONFIG)]
    return findings(gather(setup, state))


def findings(look: Look) -> List[Found]:
    """Every check's findings, in order."""
    return [*_mode(look), *_account(look), *_owners(look), *_directories(look), *_helper(look), *_sandbox(look)]


def _unit(look: Look, name: str) -> Shown:
    return look.units.get(name, {})


def _restart(unit: str) -> str:
    return f"systemctl restart {unit}"


def _mode(look: Look) -> List[Found]:
    name, unit = "mode", _unit(look, build_info.UNIT)
    wanted = "" if look.mode == units_modes.ROOT else look.user
    in_force = unit.get("User", "")
    if unit.get("LoadState") == "loaded" and (in_force or "root") != (wanted or "root"):
        text = (
            f"{look.mode} mode: {build_info.UNIT} is to run as {look.user}, and systemd has User={in_force or 'root'}"
        )
        ours = look.written == (wanted or "root")  # so somebody else's drop-in says it, which setup leaves alone
        return [Found(name, "fail", text, TAKE_OUT if ours else SETUP, states.MODE)]
    uid = look.account.uid if look.account is not None else None
    if look.runs_as is not None and uid is not None and look.runs_as != uid:
        text = f"{build_info.UNIT} still runs as uid {look.runs_as}, and {look.mode} mode has it run as {look.user}"
        return [Found(name, "fail", text, _restart(build_info.UNIT), states.MODE)]
    return [Found(name, "ok", f"{look.mode}: {build_info.UNIT} runs as {look.user}, {PART[look.mode]}")]


def _account(look: Look) -> List[Found]:
    if look.mode == units_modes.ROOT:
        return []
    if look.account is None:
        text = f"there is no account {look.user}: {build_info.UNIT} cannot start"
        run = f"{SETUP} makes it; or correct [{look.mode}] user in the configuration"
        return [Found("account", "fail", text, run, states.NO_ACCOUNT)]
    problem = accounts.problem(look.account)
    if problem:
        run = f"set [{look.mode}] user to an account of its own, then {SETUP}"
        return [Found("account", "fail", problem, run, states.NO_ACCOUNT)]
    return [Found("account", "ok", f"{look.user} has uid {look.account.uid} and group {look.account.group}")]


def _owners(look: Look) -> List[Found]:
    if look.refusal:
        return [Found("ownership", "fail", look.refusal, f"{SETUP} --check", states.OWNERSHIP)]
    texts = [f"{path} is not as {look.mode} mode needs it: {what}" for path, what in look.steps]
    found = [Found("ownership", "fail", text, SETUP, states.OWNERSHIP) for text in texts]
    return found or [Found("ownership", "ok", f"configuration, data_dir and links are as {look.mode} mode needs them")]


def _directories(look: Look) -> List[Found]:
    said = "others than root may change {} ({}), which root relies on"
    found = [
        Found("directories", "fail", said.format(risk.path, risk.why), risk.run, states.DIRECTORY_UNSAFE)
        for risk in look.risks
    ]
    if look.mode == units_modes.ROOT:
        return []  # told by the look at the host: nobody beside the daemon means harm there
    return found or [Found("directories", "ok", "every directory on the way to root's files is root's alone")]


def _helper(look: Look) -> List[Found]:
    if look.mode != units_modes.HELPER:
        return []
    name, unit = build_info.HELPER_UNIT, _unit(look, build_info.HELPER_UNIT)
    active = unit.get("ActiveState", "")
    if active in ("active", "reloading"):
        if look.helper_runs:
            return [Found("helper", "fail", look.helper_runs, "slotward settle", states.HELPER_BEHIND)]
        return [Found("helper", "ok", f"{name} is {active}")]
    log = f"journalctl -u {name} -n 20"
    if unit.get("ExecMainStatus") == REFUSED_TO_START:
        why = "; ".join(f"others may change {risk.path} ({risk.why})" for risk in look.risks)
        text = f"{name} refuses to start: {why or 'its last words are in the journal'}"
        then = "; then " if any(risk.public for risk in look.risks) else " && "
        run = then.join([*(risk.run for risk in look.risks), f"systemctl restart {name}"]) if why else log
        return [Found("helper", "fail", text, run, states.HELPER_DOWN)]
    text = (
        f"{name} is {active or 'unknown'} (status {unit.get('ExecMainStatus', '?')}): updates are refused until it runs"
    )
    return [Found("helper", "fail", text, f"systemctl enable --now {name}, or {log}", states.HELPER_DOWN)]


def _sandbox(look: Look) -> List[Found]:
    places = [(build_info.UNIT, path) for path in look.writes]
    if look.mode == units_modes.HELPER:
        places.append((build_info.HELPER_UNIT, look.helper_writes))
    found = doctor_sandbox.findings(places, look.slots, look.units)
    found += [Found("sandbox", "fail", text, run, states.SANDBOX) for text, run in look.unreachable]
    return found or [Found("sandbox", "ok", "what the daemon needs is let through, and nothing keeps its account out")]


def gather(setup: own.Setup, state: settle.State) -> Look:
    """One look at this host; nothing is changed."""
    from slotward import mode_setup, systemd

    config, product = setup.config, setup.product
    names = (build_info.UNIT, build_info.HELPER_UNIT)
    shown = dict(zip(names, systemd.show_each(names, doctor_sandbox.PROPERTIES)))
    account = accounts.find(config.user)
    steps, refusal = _steps(setup, state)
    kept_out: List[Tuple[str, str]] = []
    if account is not None and config.mode != units_modes.ROOT:
        kept_out = doctor_sandbox.unreachable(account, product.entrypoint, setup.config_path)
    behind = settle.is_behind(product, state) and state.trial is None
    text = (
        f"{product.path('helper')} names slot {state.helper or '-'}, and {product.path('current')} slot {state.current}"
    )
    return Look(
        mode=config.mode,
        user=config.user,
        account=account,
        runs_as=_uid_of(shown[build_info.UNIT].get("MainPID", "")),
        writes=(config.data_dir, os.path.dirname(config.socket_path)),
        slots=product.slots_dir,
        helper_writes=os.path.dirname(config.helper_socket),
        unreachable=tuple(kept_out),
        risks=mode_setup.risks(setup),
        steps=steps,
        refusal=refusal,
        helper_runs=text if behind else "",
        units=shown,
        written=mode_setup.account_written(),
    )


def _steps(setup: own.Setup, state: settle.State) -> Tuple[Tuple[Tuple[str, str], ...], str]:
    """What setup would do for the mode, or why it would not."""
    from slotward import mode_setup, modes

    try:
        due = mode_setup.look(setup, (), state, installs=False)
    except codes.Refused as error:
        return (), error.text
    other = (modes.Kind.RELOAD, modes.Kind.LINK)  # told by the checks of the guard and the helper
    return tuple((step.path, step.what) for step in due.steps if step.kind not in other), ""


def _uid_of(pid: str) -> Optional[int]:
    try:
        return os.stat(f"/proc/{int(pid)}").st_uid if pid not in ("", "0") else None
    except (OSError, ValueError):
        return None
