# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the operations of a plan, one effect each, in order.

Rules:
- No decision is made here: an operation either happens or raises.
- A write, a sync or a close that fails is an error; an append may fail for lack of space (node.md, section 3).
- A new file never follows a link: leftovers of a temporary name are removed and the name is created exclusively.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Callable, Dict, Mapping

from slotcore import codes, ops, trial
from slotward import faults, opening


def sync_path(path: str) -> None:
    """fsync a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _write(path: str, data: bytes, mode: int) -> None:
    _remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        opening.write_all(descriptor, data)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _append(path: str, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError:
        return


def _link(path: str, target: str) -> None:
    _remove(path)
    os.symlink(target, path)


def _discard(path: str) -> None:
    from slotward import trees  # most hosts have none, and every start pays for what it imports

    trees.discard(path)


def _claim(source: str, path: str) -> None:
    try:
        os.rename(source, path)
    except FileNotFoundError:
        raise codes.refused(codes.TRIAL_OVER, "the trial has ended already: somebody else decided it first") from None


def _demand(path: str, trial_id: str) -> None:
    data = b""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, opening.READ)
        try:
            data = os.read(descriptor, trial.MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    found = trial.parse_trial(data)
    if found is None or found.trial_id != trial_id:
        text = f"trial {trial_id} was over before its release was started, and {path} is not its record any more"
        raise codes.Retryable(codes.CANCELLED, f"{text}: the host was held up for longer than the trial; try again")


class Executor:
    """Applies plans; what it is given are the effects that need more than a path."""

    def __init__(
        self,
        copy: Callable[[ops.Copy], None],
        check: Callable[[ops.Check], None],
        arm: Callable[[], None],
        restart: Callable[[], None],
        restart_helper: Callable[[], None],
        reload: Callable[[ops.Reload], None],
        unpack: Callable[[ops.Unpack], None],
        gather: Callable[[ops.Gather], None],
    ) -> None:
        self._act: Mapping[type, Callable[..., None]] = {
            **self._table(copy, check, arm, restart, restart_helper),
            ops.Reload: reload,
            ops.Unpack: unpack,
            ops.Gather: gather,
        }

    @staticmethod
    def _table(
        copy: Callable[[ops.Copy], None],
        check: Callable[[ops.Check], None],
        arm: Callable[[], None],
        restart: Callable[[], None],
        restart_helper: Callable[[], None],
    ) -> Dict[type, Callable[..., None]]:
        return {
            ops.Write: lambda op: _write(op.path, op.data, op.mode),
            ops.Copy: copy,
            ops.Discard: lambda op: _discard(op.path),
            ops.Append: lambda op: _append(op.path, op.data),
            ops.Sync: lambda op: sync_path(op.path),
            ops.SyncDir: lambda op: sync_path(op.path),
            ops.Link: lambda op: _link(op.path, op.target),
            ops.Rename: lambda op: os.rename(op.source, op.path),
            ops.Claim: lambda op: _claim(op.source, op.path),
            ops.Demand: lambda op: _demand(op.path, op.trial_id),
            ops.Unlink: lambda op: _remove(op.path),
            ops.Check: check,
            ops.Arm: lambda _op: arm(),
            ops.Restart: lambda _op: restart(),
            ops.RestartHelper: lambda _op: restart_helper(),
        }

    def apply(self, plan: ops.Plan, name: str) -> None:
        """Carry out `plan`; `name` names its fault points."""
        for number, operation in enumerate(plan):
            faults.hit(f"{name}.{number}.{type(operation).__name__}")
            self._act[type(operation)](operation)
        faults.hit(f"{name}.{len(plan)}.end")
