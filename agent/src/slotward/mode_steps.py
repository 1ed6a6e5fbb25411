# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the steps that `modes` names, one effect each.

Rules:
- Each step may be carried out again, and has a fault point before it; a cut anywhere is completed by the next run.
- Nothing of root's is reached by a way that others may change: `mode_setup` has refused, or mended, such a directory.
"""

from __future__ import annotations

import contextlib
import os
from typing import Callable, List, Mapping, Sequence

from slotcore import codes, ops
from slotward import (
    accounts,
    effects,
    faults,
    following,
    handover,
    host,
    manager,
    modes,
    opening,
    own,
    staging,
    systemd,
    units,
    units_modes,
    unpack,
    ways,
)


def carry_out(setup: own.Setup, steps: Sequence[modes.Step], phase: modes.Phase) -> List[str]:
    """The steps of one phase, in order; what had to be left, each with the reason."""
    left: List[str] = []
    for number, step in enumerate(steps):
        if step.phase is phase:
            faults.hit(f"mode.{number}.{step.kind.value}")
            try:
                left += _EFFECTS[step.kind](setup, step)
            except OSError as error:
                raise effects.as_retryable(error, f"change {step.path} ({step.what})") from error
    faults.hit(f"mode.{phase.name.lower()}.end")
    return left


def _account(setup: own.Setup, step: modes.Step) -> List[str]:
    accounts.make(step.path, setup.config.data_dir)
    return []


def _mend(_setup: own.Setup, step: modes.Step) -> List[str]:
    ways.mend(step.path)
    return []


def _directory(_setup: own.Setup, step: modes.Step) -> List[str]:
    staging.make_parents(step.path)
    return []


def _owner(setup: own.Setup, step: modes.Step) -> List[str]:
    wanted = step.owned
    if wanted is None:
        return []
    if wanted.gid < 0:  # the account was made since the look
        account = accounts.find(setup.config.user) or accounts.ROOT
        wanted = wanted._replace(gid=account.gid)
    ways.give(step.path, *wanted)
    return []


def _link(setup: own.Setup, _step: modes.Step) -> List[str]:
    following.follow(setup.product, host.read_state(setup.product))
    return []


def _stop(_setup: own.Setup, step: modes.Step) -> List[str]:
    systemd.disable_now(step.path)
    return []


def _remove(setup: own.Setup, step: modes.Step) -> List[str]:
    if os.path.isdir(step.path) and not os.path.islink(step.path):  # of drop-ins, which a cut left empty
        os.rmdir(step.path)
        return []
    plan = ops.unlink_durably(*os.path.split(step.path))
    manager.apply(setup.product, plan, f"remove-{os.path.basename(step.path)}")
    above = os.path.dirname(step.path)
    if above.startswith(units.UNIT_DIR + "/"):
        with contextlib.suppress(OSError):  # an operator's own drop-ins may lie there
            os.rmdir(above)
    return []


def _reload(_setup: own.Setup, _step: modes.Step) -> List[str]:
    """Systemd is told once, after the last of the files."""
    return []


def _create(_setup: own.Setup, _step: modes.Step) -> List[str]:
    systemd.create_files(units_modes.TMPFILES)
    return []


def _enable(_setup: own.Setup, step: modes.Step) -> List[str]:
    systemd.enable(step.path)
    systemd.start(step.path)
    return []


def _empty(_setup: own.Setup, step: modes.Step) -> List[str]:
    above = opening.open_directory(os.path.dirname(step.path))
    try:
        unpack.remove_tree(above, os.path.basename(step.path))
    finally:
        os.close(above)
    return []


def _forget(_setup: own.Setup, step: modes.Step) -> List[str]:
    staging.remove(step.path)
    return []


def _hand_over(setup: own.Setup, step: modes.Step) -> List[str]:
    account = accounts.find(setup.config.user)
    if account is None:
        raise codes.refused(codes.NO_ACCOUNT, f"there is no account {setup.config.user}: run setup again")
    return handover.hand_over(step.path, account)


_EFFECTS: Mapping[modes.Kind, Callable[[own.Setup, modes.Step], List[str]]] = {
    modes.Kind.ACCOUNT: _account,
    modes.Kind.MEND: _mend,
    modes.Kind.DIRECTORY: _directory,
    modes.Kind.OWNER: _owner,
    modes.Kind.LINK: _link,
    modes.Kind.STOP: _stop,
    modes.Kind.REMOVE: _remove,
    modes.Kind.RELOAD: _reload,
    modes.Kind.CREATE: _create,
    modes.Kind.ENABLE: _enable,
    modes.Kind.EMPTY: _empty,
    modes.Kind.FORGET: _forget,
    modes.Kind.HAND_OVER: _hand_over,
}
