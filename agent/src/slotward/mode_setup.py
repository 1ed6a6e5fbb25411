# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at what the mode of the configuration needs, for the steps that `modes` names.

Rules:
- A look changes nothing.
- Nothing of root's is reached by a way that others may change: such a directory refuses everything, or is mended first.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from slotcore import audit as audits
from slotcore import codes, links, settle
from slotward import (
    accounts,
    audit,
    build_info,
    handover,
    installed,
    modes,
    own,
    systemd,
    units,
    units_modes,
    ways,
)

CONFIG_DIRECTORY = os.path.dirname(build_info.CONFIG)
ASKED = "asked.json"
MOVES_TO_START = (units_modes.HELPER, units_modes.START)
"""The one change of mode in which staging stays: its owner is the same."""
SHOWN = ("Id", "LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload")
RUNS = ("active", "activating", "reloading", "deactivating")


class Due(NamedTuple):
    """What is to be done for the mode, and which mode the host is in so far ("" on a host without the agent's unit)."""

    steps: Tuple[modes.Step, ...]
    before: str
    user_before: str

    def has(self, phase: modes.Phase) -> bool:
        """Whether there is a step of this phase."""
        return any(step.phase is phase for step in self.steps)

    @property
    def reload(self) -> bool:
        """Whether a run that was cut left units that systemd has not read."""
        return any(step.kind is modes.Kind.RELOAD for step in self.steps)


def relied_on(setup: own.Setup) -> Tuple[str, ...]:
    """The places that nobody but root may change the ways to, beside a daemon that is not root's."""
    config = setup.config
    if config.mode == units_modes.ROOT:
        return ()
    places = [
        config.slots_dir,
        f"{units.GUARD_DIR}/guard.d",
        units.UNIT_DIR,
        os.path.dirname(config.entrypoint),
        os.path.dirname(os.path.abspath(setup.config_path)),
        os.path.dirname(os.path.realpath(setup.config_path)),
        os.path.dirname(config.data_dir),
    ]
    if config.mode == units_modes.HELPER:
        places.append(os.path.dirname(config.helper_socket))
    return tuple(places)


def risks(setup: own.Setup) -> Tuple[ways.Risk, ...]:
    """Directories that refuse the mode; those that setup takes over in every mode are none."""
    ours = installed.directories_at_risk(setup.product)
    return tuple(risk for risk in ways.at_risk(relied_on(setup)) if risk.path not in ours)


def refuse(setup: own.Setup, fix_directories: bool) -> Tuple[ways.Risk, ...]:
    """The directories to mend; raises what makes this host no host for the mode before anything is changed."""
    found = risks(setup)
    if any(risk.public for risk in found) or (found and not fix_directories):
        raise ways.refusal(found)
    problem = accounts.problem(accounts.find(setup.config.user))
    if problem:
        raise codes.BadConfig([f"[{setup.config.mode}] user: {problem}"])
    if os.path.lexists(setup.config.data_dir):
        _data_due(setup, accounts.find(setup.config.user), _before()[1], found)
    return found


def _owned(path: str) -> Optional[handover.Owned]:
    try:
        return handover.owned(path)
    except OSError:
        return None


def _before() -> Tuple[str, str]:
    """Mode and account of the units that are written here."""
    found = installed.read_file(units_modes.DROPIN)
    if found is not None:
        return units_modes.mode_of(found[1].decode("utf-8", "replace"))
    written = installed.read_file(f"{units.UNIT_DIR}/{build_info.UNIT}") is not None
    return (units_modes.ROOT if written else ""), "root"


def account_written() -> str:
    """The account that the units here were written for."""
    return _before()[1]


def _known_uids(*names: str) -> Tuple[int, ...]:
    found = [accounts.find(name) for name in names]
    return tuple(account.uid for account in found if account is not None)


def _data_due(
    setup: own.Setup, account: Optional[accounts.Account], user_before: str, mended: Sequence[ways.Risk]
) -> bool:
    path = setup.config.data_dir
    if not os.path.lexists(path):
        return setup.config.mode != units_modes.ROOT
    if account is not None and not handover.is_due(path, account):
        return False
    found = [risk for risk in ways.at_risk((os.path.dirname(path),)) if risk not in mended]
    if found and setup.config.mode == units_modes.ROOT:
        raise ways.refusal(found)
    users = (setup.config.user, user_before, setup.config.helper_user, setup.config.start_user)
    handover.refuse_strange(path, _known_uids(*users))
    return True


def _stale_files(mode: str) -> Tuple[str, ...]:
    paths = units_modes.stale_paths(mode)
    found = [path for path in paths if os.path.lexists(path)]
    above = dict.fromkeys(os.path.dirname(path) for path in paths if path.startswith(units.UNIT_DIR))
    above.pop(os.path.dirname(units_modes.DROPIN), None)  # every mode has a file in the daemon's own
    dropins = [path for path in above if path.endswith(".d") and os.path.isdir(path) and not os.listdir(path)]
    return (*found, *dropins)


def _stale_units(shown: Mapping[str, Dict[str, str]], mode: str) -> Tuple[str, ...]:
    names = [name for other, found in units_modes.STOPPED.items() if other != mode for name in found]
    return tuple(
        name
        for name in names
        if shown.get(name, {}).get("ActiveState") in RUNS
        or shown.get(name, {}).get("UnitFileState", "").startswith("enabled")
    )


def _to_enable(shown: Mapping[str, Dict[str, str]], mode: str) -> Tuple[str, ...]:
    return tuple(
        name
        for name in units_modes.ENABLED[mode]
        if shown.get(name, {}).get("UnitFileState") != "enabled" or shown.get(name, {}).get("ActiveState") != "active"
    )


def _leftovers(setup: own.Setup) -> Tuple[str, ...]:
    mode, product = setup.config.mode, setup.product
    names = [] if mode == units_modes.HELPER else [links.HELPER, links.HELPER_BACK]
    names += [] if mode == units_modes.START else [ASKED]
    return tuple(product.path(name) for name in names if os.path.lexists(product.path(name)))


def _triggers_are_of(account: Optional[accounts.Account]) -> bool:
    found = [_owned(f"{units_modes.START_DIR}/{name}") for name in units_modes.START_FILES]
    return account is not None and all(one is not None and one.uid == account.uid for one in found)


def _trees(setup: own.Setup) -> Tuple[str, ...]:
    """Root's own staging, which root's commands have in data_dir in root mode, and the files that trigger."""
    mode, found = setup.config.mode, []
    if mode == units_modes.ROOT:
        found.append(setup.product.path(handover.STAGING))
    if mode != units_modes.START:
        found.append(units_modes.START_DIR)
    return tuple(path for path in found if os.path.isdir(path) and not os.path.islink(path))


def _helper_link(setup: own.Setup, state: settle.State, installs: bool) -> str:
    due = setup.product.helper_unit and (installs or links.plan_follow(setup.product, state))
    return setup.product.path(links.HELPER) if due else ""


def look(setup: own.Setup, mended: Sequence[ways.Risk], state: settle.State, installs: bool) -> Due:
    """What there is to do; `installs`: a first slot comes, and with it the links."""
    config = setup.config
    before, user_before = _before()
    account = accounts.find(config.user)
    names = tuple(dict.fromkeys((build_info.UNIT, build_info.HELPER_UNIT, *units_modes.START_UNITS)))
    shown = dict(zip(names, systemd.show_each(names, SHOWN)))
    socket_directory = units_modes.socket_directory(installed.agent_facts(config, setup.config_path))[1]
    directory = os.path.dirname(os.path.abspath(setup.config_path))
    helper = config.mode == units_modes.HELPER
    seen = modes.Seen(
        mode=config.mode,
        user=config.user,
        account=account,
        config=os.path.realpath(setup.config_path),
        config_is=_owned(os.path.realpath(setup.config_path)),
        directory=directory if directory == CONFIG_DIRECTORY else "",
        directory_is=_owned(CONFIG_DIRECTORY),
        data_dir=config.data_dir,
        between_accounts="root" not in (user_before, config.user),
        data_due=_data_due(setup, account, user_before, mended),
        risks=tuple(mended),
        socket_directory=socket_directory if helper and not os.path.isdir(socket_directory or "/") else "",
        helper_link=_helper_link(setup, state, installs),
        stale_files=_stale_files(config.mode),
        stale_units=_stale_units(shown, config.mode),
        leftovers=_leftovers(setup),
        trees=_trees(setup),
        forget=f"{config.data_dir}/staging/apply" if (before, config.mode) == MOVES_TO_START else "",
        start_directory=_triggers_are_of(account),
        enable=_to_enable(shown, config.mode),
        reload=any(found.get("NeedDaemonReload") == "yes" for found in shown.values()),
    )
    return Due(modes.plan(seen), before, user_before)


def note_change(setup: own.Setup, due: Due) -> None:
    """Write down that the host changes its mode, before it does; a new host changes none."""
    config = setup.config
    if due.before and (due.before, due.user_before) != (config.mode, config.user):
        why = f"mode {due.before} (user {due.user_before}) -> {config.mode} (user {config.user})"
        audit.note(setup.product, audits.MODE_CHANGED, why=why)
