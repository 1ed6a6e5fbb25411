# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects behind a plan's operations that need more than a path: copying, the look at a slot, timer, restart."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from slotcore import codes, ops, smoke, status
from slotcore import product as products
from slotward import answers, executor

SMOKE_TIMEOUT_S = 20
ARM_TURNS = 3
UNDER_SMOKE = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "DevicePolicy=closed",  # PrivateDevices= needs room in /tmp (sandbox.md)
    "PrivateNetwork=yes",
    "RestrictSUIDSGID=yes",
    "CapabilityBoundingSet=",
)


def unit_user(product: products.Product) -> Tuple[str, ...]:
    """systemd properties that make a transient unit run as the product's unit does."""
    from slotward import systemd

    if product.user:
        return (f"User={product.user}",)
    shown = systemd.show(product.unit, ("User", "Group"))
    return tuple(f"{key}={shown[key]}" for key in ("User", "Group") if shown.get(key))


def smoke_test(product: products.Product, path: str, version: str) -> None:
    """Run `<file> version` as the service user, from the slots directory, bounded; refuses another answer.

    That is remembered of the version, so it is tried twice: an error of the disk, or a kill, is no property of the bytes.
    """
    began = time.monotonic()
    refusal = _smoked(product, path, version)
    if refusal is not None and time.monotonic() - began < SMOKE_TIMEOUT_S / 2:  # what hangs does so again
        refusal = _smoked(product, path, version)
    if refusal is not None:
        raise codes.Refused(refusal)


def _smoked(product: products.Product, path: str, version: str) -> Optional[codes.Refusal]:
    from slotward import allowlist, systemd

    properties = (*UNDER_SMOKE, *unit_user(product), f"WorkingDirectory={product.slots_dir}")
    answer = systemd.run_transient(
        [path, *product.smoke_argv], properties=properties, timeout_s=SMOKE_TIMEOUT_S, what=f"smoke-{product.name}"
    )
    said = answer.output.strip()
    command = " ".join((path, *product.smoke_argv))
    refusal = allowlist.judge(product.slots_dir, path, answer.code)
    if refusal is not None:
        return refusal
    if answer.code != 0:
        return codes.Refusal(
            codes.SMOKE_TEST_FAILED,
            f"the smoke test `{command}` of {product.name} {version} ended with status {answer.code}: {said[-300:] or 'no output'}",
        )
    if not smoke.says(answer.output, product.smoke_expect, version):
        wanted = product.smoke_expect.replace(smoke.MARK, version)
        return codes.Refusal(
            codes.SMOKE_TEST_FAILED, f"the smoke test `{command}` answered {said[:80]!r}, expected {wanted}"
        )
    return None


def check_config(product: products.Product, path: str, version: str) -> None:
    """Have the staged release judge this host's configuration, as the service user; refuse when it finds problems.

    A release that knows no such command, or cannot read the file, has no say: its trial shows whether it can start.
    """
    from slotward import systemd

    properties = (*UNDER_SMOKE, *unit_user(product), f"WorkingDirectory={product.slots_dir}")
    answer = systemd.run_transient(
        [path, *product.config_argv], properties=properties, timeout_s=SMOKE_TIMEOUT_S, what=f"config-{product.name}"
    )
    if answer.code == answers.BROKEN:
        problems = _problems_in(answer.output) or [f"it ended with status {answer.code}"]
        raise codes.BadConfig([f"{product.name} {version} does not take this configuration: {one}" for one in problems])
    if answer.code not in (answers.DONE, answers.USAGE):
        said = answer.output.strip()[-300:] or "no output"
        text = f"{product.name} {version} did not judge the configuration (status {answer.code}): {said}"
        print(answers.plain(text), file=sys.stderr)


def _problems_in(output: str) -> List[str]:
    """The problems of a `bad-config` answer among what a command wrote; none when there is no such answer."""
    import json

    for line in output.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and answer.get("code") == codes.BAD_CONFIG:
            found = answer.get("problems")
            return [str(one) for one in found] if isinstance(found, list) and found else [str(answer.get("message"))]
    return []


def check_slot(product: products.Product, path: str, version: str) -> None:
    """What must hold of a slot's bytes before a switch: a program for this machine, that answers its version."""
    from slotward import elf, labels

    tree = os.path.realpath(os.path.dirname(path)) if product.layout == products.VERSIONS else ""
    labels.give(path, like=product.entrypoint, tree=tree)
    if product.parts:
        from slotward import parts

        parts.demand(product, os.path.dirname(path))
    if not product.smoke_argv:
        return
    refusal = elf.check_program(path)
    if refusal is not None:
        raise codes.Refused(refusal)
    smoke_test(product, path, version)
    if product.config_argv:
        check_config(product, path, version)
    if product.config_check:
        from slotward import program_facts

        program_facts.demand_config(product, path, version)


def arm(product: products.Product) -> None:
    """Start the deadline timer and have systemd say that it is active (I4).

    The last look at the trial before may still have stopped it meanwhile. Whoever looks from now on finds this one.
    """
    from slotward import systemd, units

    timer = units.timer_of(product.name)
    for _turn in range(ARM_TURNS):
        systemd.start(timer)
        if systemd.is_active(timer):
            return
    raise codes.refused(
        codes.WATCHDOG_NOT_ARMED,
        f"systemd does not report {timer} active; nothing was switched (run `slotward setup`)",
    )


def units_of(product: products.Product) -> Tuple[str, ...]:
    """The units that a switch restarts: the product's own, and its helper's where it has one."""
    return (product.unit, product.helper_unit) if product.helper_unit else (product.unit,)


def restart(units: Sequence[str], respect_stop: bool) -> None:
    """Restart the units without waiting for them; their failures are reset first (field case W2).

    Going back respects a stop, of each by itself: it never starts what an operator had stopped (DESIGN 6). From here on
    this process stands back: what it has left to do must not keep the daemon from starting.
    """
    from slotward import systemd

    alone = False
    if respect_stop:
        shown = systemd.show_each(units, status.STOP_PROPERTIES)
        running = [unit for unit, found in zip(units, shown) if not status.was_stopped(found)]
        alone, units = len(running) < len(units), running
    if units:
        with contextlib.suppress(OSError):  # a sandbox may forbid that
            os.nice(10)
        systemd.restart(*units, alone=alone)  # the daemon's unit wants the helper's, and would start it


def reload(product: products.Product, must: bool) -> List[codes.Retryable]:
    """Have systemd read its unit files again; a refusal is told, and answered, where no restart may depend on it."""
    from slotward import systemd

    try:
        systemd.daemon_reload()
    except codes.Retryable as error:
        if must:
            raise
        text = f"{product.unit} starts as the other release's unit file says: {error.text}"
        print(answers.plain(text), file=sys.stderr)
        return [error]
    return []


def reload_daemon(product: products.Product, start: bool) -> bool:
    """Go forward by a reload, without waiting; whether that is all. Only an operator's consent starts what is stopped.

    A reload that fails, or keeps the old process, is no proof (I11): nobody confirms it, and the guard goes back.
    """
    from slotward import systemd

    active = systemd.show(product.unit, ("ActiveState",)).get("ActiveState")
    if active not in ("active", "reloading", "activating"):
        return not start
    try:
        systemd.reload_no_block(product.unit)
    except codes.Retryable as error:
        print(answers.plain(f"warning: {product.unit} was not reloaded: {error.text}"), file=sys.stderr, flush=True)
    return True


class Forward(NamedTuple):
    """How a switch goes forward: what is done right before the restart, and whether that is a reload."""

    before: Callable[[], None]
    reload: bool = False
    start: bool = False
    """With a reload: a stopped unit is started instead."""


def _copy(product: products.Product, operation: ops.Copy, descriptor: int) -> None:
    from slotward import labels, staging

    os.lseek(descriptor, 0, os.SEEK_SET)
    staging.copy_verified(descriptor, operation.path, operation.size, operation.sha256)
    try:
        labels.give(operation.path, like=product.entrypoint)  # the rename keeps it
    except codes.Refused:
        staging.remove(operation.path)
        raise


def executor_for(
    product: products.Product,
    sources: Mapping[str, int],
    respect_stop: bool = False,
    forward: Optional[Forward] = None,
) -> executor.Executor:
    """An executor whose copies read from the open descriptors `sources`, by the plan's source name."""

    def unpack(operation: ops.Unpack) -> None:
        from slotward import trees

        trees.make(product, operation, sources[operation.source])

    unread: List[codes.Retryable] = []

    def restarted() -> None:
        if forward is not None:
            forward.before()
        if forward is None or not forward.reload or not reload_daemon(product, forward.start):
            restart(units_of(product), respect_stop)
        if unread:
            raise unread[0]

    def gather(operation: ops.Gather) -> None:
        from slotward import evidence_gather  # few starts meet a trial's end, and every start pays for what it imports

        evidence_gather.begin(product, operation)

    return executor.Executor(
        copy=lambda operation: _copy(product, operation, sources[operation.source]),
        check=lambda operation: check_slot(product, operation.path, operation.version),
        arm=lambda: arm(product),
        restart=restarted,
        restart_helper=lambda: restart((product.helper_unit,), respect_stop),
        reload=lambda operation: unread.extend(reload(product, operation.must)),
        unpack=unpack,
        gather=gather,
    )


def as_retryable(error: OSError, what: str) -> codes.Retryable:
    """An operating system's no as an error for an operator; full disks say so."""
    path = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return codes.Retryable(codes.NO_SPACE, f"cannot {what}{path}: no space or inode left; free some and try again")
    return codes.Retryable(codes.CANNOT_WRITE, f"cannot {what}{path}: {error.strerror or error}")
