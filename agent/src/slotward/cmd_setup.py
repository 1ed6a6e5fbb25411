# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward setup`: the first slot, the guard and the units, written once and never by an update (DESIGN 4).

Rules:
- A second run changes nothing; `--check` says what a run would change and changes nothing.
- The program comes first, then the guard and the units; a crash in between leaves a host that a second run completes.
- With pins configured, a program to install needs its signed manifest, and must be the very file that it lists.
- A host on trial is left alone (field case C6).
- What the configuration's mode needs, and what another mode left, is looked for and done by `mode_setup`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

from slotcore import audit as audits
from slotcore import clocks, codes, ops, plans, settle, signatures, standing, trust
from slotcore import manifest as manifests
from slotcore import product as products
from slotward import (
    answers,
    audit,
    bringing,
    build_info,
    gate,
    host,
    immutable,
    installed,
    lock,
    manager,
    mode_setup,
    mode_steps,
    modes,
    own,
    placing,
    prepare,
    staging,
    systemd,
    units,
    units_modes,
    ways,
)

if TYPE_CHECKING:
    import argparse

DIRECTORY_MODE = 0o755
PRIVATE_MODE = 0o700


def verified(setup: own.Setup, seen: manager.Look, manifest_path: str, version: str, sha256: str) -> manifests.Manifest:
    """The release that lists these bytes under the pins in force; raises the refusal."""
    trusted, known = standing.in_force(setup.product, seen.state), gate.documents_facts(setup, seen.state).clocks
    if seen.state.trust is not None:
        known = trust.judged_by(known, seen.state.trust)
        lapsed = trust.keys_expired(known, seen.state.trust)
        if lapsed is not None:
            raise codes.refused(codes.KEYS_EXPIRED, lapsed)
    published = host.read_bytes(manifest_path, manifests.MAX_PUBLISHED)
    if published is None:
        raise codes.refused(codes.CANNOT_READ, f"there is no manifest at {manifest_path}")
    found = signatures.verify_release(published, trusted.pins, trusted.threshold)
    if isinstance(found, codes.Refusal):
        raise codes.Refused(found)
    if found.manifest.product != setup.product.name or version not in (found.manifest.version, "unknown"):
        raise codes.refused(
            codes.WRONG_VERSION,
            f"{manifest_path} releases {found.manifest.product} {found.manifest.version}, the program is {setup.product.name} {version}",
        )
    gate.artifact_of(setup.product, found.manifest, sha256, manifest_path)
    expired = clocks.expired(known, found.manifest.expires_at, f"the release of {manifest_path}")
    if expired is not None:
        raise codes.refused(codes.EXPIRED, expired)
    return found.manifest


def _what_to_install(setup: own.Setup, state: settle.State, args: argparse.Namespace) -> Tuple[str, Optional[str]]:
    """What setup does about the program: `install`, `adopt`, `relink`, `later` or `nothing`; and from which file."""
    sound = bringing.is_sound(setup.product, state)
    if state.entrypoint == "ours" and sound:
        return "nothing", None
    if state.entrypoint == "elsewhere":
        raise codes.refused(
            codes.ENTRYPOINT_ELSEWHERE,
            f"{setup.product.entrypoint} is a link to somewhere else, or no file: set [update] entrypoint, or remove it",
        )
    if state.entrypoint == "file":
        if args.adopt or setup.product.adopt:
            return "adopt", setup.product.entrypoint
        if setup.config.mode != units_modes.ROOT:
            raise codes.refused(
                codes.ADOPT_NEEDS_CONSENT,
                f"{setup.product.entrypoint} is a plain file, and in {setup.config.mode} mode root's part starts from the slots; "
                "agree with --adopt or [update] adopt = true",
            )
        return "later", None
    if sound:
        return "relink", None
    return "install", args.source or build_info.program_path()


def _directories(setup: own.Setup) -> List[Tuple[str, int]]:
    return [
        (setup.product.slots_dir, DIRECTORY_MODE),
        (units.GUARD_DIR, DIRECTORY_MODE),
        (f"{units.GUARD_DIR}/guard.d", DIRECTORY_MODE),
        (setup.config.data_dir, PRIVATE_MODE),
    ]


def _install(setup: own.Setup, seen: manager.Look, what: str, path: Optional[str], args: argparse.Namespace) -> None:
    """Do it, or, to check, judge the program and raise what setup would refuse it for."""
    product = setup.product
    if what == "relink" and not args.check:
        relink(product)
    if path is None:
        return
    descriptor, record = prepare.open_program(product, path)
    try:
        if args.manifest is not None:
            release = verified(setup, seen, args.manifest, record.version, record.sha256)
            record = prepare.record_of(release, record.sha256, record.size)  # its program may not say
        if what == "install":
            gate.installing(setup, seen.state, record)
            bringing.demand_floor(product, seen.state, record)
        if args.check:
            return
        staging.make_parents(os.path.dirname(product.entrypoint))
        placing.adopt(product, seen, record, descriptor, audits.INSTALLED if what == "install" else audits.ADOPTED)
    finally:
        os.close(descriptor)


def relink(product: products.Product) -> None:
    """Make the entrypoint a link again; what the slots hold stays."""
    manager.apply(product, plans.plan_relink(product), "relink")


def write_system_files(
    wanted: Tuple[units.SystemFile, ...], changes: Tuple[units.Change, ...], product: products.Product
) -> None:
    """Write what differs, in its order; raises Refused when systemd would not take it."""
    due = {change.path for change in changes}
    for file in wanted:
        if file.path in due:
            staging.make_parents(os.path.dirname(file.path))
            plan = ops.write_durably(file.path, file.text.encode("utf-8"), file.mode)
            manager.apply(product, plan, "setup")
    alone = [file.path for file in wanted if os.path.dirname(file.path) == units.UNIT_DIR and "@" not in file.path]
    problems = systemd.verify(alone) if due and alone else ()
    if problems:
        raise codes.refused(codes.GUARD_NOT_INSTALLED, f"systemd does not take the units: {'; '.join(problems)[:600]}")


def timer_due(product_name: str) -> bool:
    """Whether the deadline timer is still to be enabled."""
    return not systemd.is_enabled(units.timer_of(product_name))


def _changes(
    setup: own.Setup,
    what: str,
    path: Optional[str],
    files: Tuple[units.Change, ...],
    enable_due: bool,
    missing: List[str],
) -> List[Dict[str, str]]:
    product = setup.product
    listed = [{"path": name, "what": "create"} for name in missing]
    if what in ("install", "adopt"):
        listed.append({"path": product.path("current"), "what": f"{what} {path}"})
    if what in ("install", "adopt", "relink"):
        listed.append({"path": product.entrypoint, "what": "link"})
    listed += [{"path": change.path, "what": change.what} for change in files]
    if enable_due:
        listed.append({"path": units.timer_of(product.name), "what": "enable"})
    return listed


def refuse_trial(seen: manager.Look) -> None:
    """Raise Retryable `trial-pending` while a release is on trial (field case C6)."""
    pending = seen.settlement.on_trial
    if pending is not None:
        raise codes.Retryable(
            codes.TRIAL_PENDING, f"trial {pending.trial_id} of {pending.to_version} is pending: it must end first"
        )


def _answer(
    setup: own.Setup, changes: List[Dict[str, str]], what: str, unit_changed: bool, left: List[str]
) -> answers.Answer:
    product = setup.product
    state = host.read_state(product)
    entry = state.slots.get(state.current or "")
    answer: Dict[str, Any] = answers.base(product.name, "idle", changed=bool(changes))
    answer.update(
        changes=changes,
        unit_changed=unit_changed,
        restart_needed=unit_changed,
        installed=what,
        mode=setup.config.mode,
        user=setup.config.user,
        left=left,
        version=entry.version if entry is not None else None,
        sha256=entry.sha256 if entry is not None else None,
    )
    lines = [f"{change['what']}: {change['path']}" for change in changes] or ["nothing to do: all is in place"]
    lines += left
    if what == "later":
        lines.append(f"{product.entrypoint} is a plain file: the first update adopts it with --adopt")
    return answers.Answer(answers.DONE, answer, lines)


def run(args: argparse.Namespace) -> answers.Answer:
    """Set the host up, or say what that would change."""
    if args.product != build_info.NAME:
        from slotward import product_setup

        return product_setup.run(args)
    args.check = args.check or args.planned is not None
    setup = own.load(args.planned or args.config)._replace(config_path=args.config)
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "setup writes units and slots: run it as root")
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    why = systemd.booted()
    if why is not None:
        raise codes.refused(codes.NO_SYSTEMD, f"this host is not run by systemd ({why}): nothing could end a trial")
    missing = [path for path, _mode in _directories(setup) if not os.path.isdir(path)]
    immutable.check(missing)
    mended = mode_setup.refuse(setup, args.fix_directories)
    first = manager.look(setup.product)
    refuse_trial(first)  # before settling, which would make the links of another mode
    before = first.state
    if args.check:
        return _once(setup, args, missing, _Before(before, mended))
    for path, mode in _directories(setup):
        staging.make_parents(os.path.dirname(path))
        if path in missing:
            staging.make_one(path, mode)
    with lock.held(setup.product, "setup"):
        manager.settle_now(setup.product)
        with audit.refusals(setup.product):
            return _once(setup, args, missing, _Before(before, mended))


class _Before(NamedTuple):
    """What was found before the first change."""

    state: settle.State
    mended: Tuple[ways.Risk, ...]


def _once(setup: own.Setup, args: argparse.Namespace, missing: List[str], before: _Before) -> answers.Answer:
    product = setup.product
    seen = manager.look(product)
    refuse_trial(seen)
    bringing.demand(product, seen.state, args.source)
    what, path = _what_to_install(setup, seen.state, args)
    if what == "install" and standing.in_force(product, seen.state).pins and args.manifest is None:
        raise codes.refused(
            codes.NO_MANIFEST,
            f"release keys are pinned: give the signed manifest of {path} with --manifest, so that it is checked",
        )
    wanted = installed.wanted(setup)
    files = units.plan(wanted, installed.read_file)
    at_risk = installed.directories_at_risk(product)
    due = mode_setup.look(setup, before.mended, before.state, what in ("install", "adopt"))
    links = [product.entrypoint] if what in ("install", "adopt", "relink") else []
    immutable.check([*links, *(change.path for change in files)])
    enable_due = timer_due(product.name)
    changes = _changes(setup, what, path, files, enable_due, missing)
    changes += [{"path": name, "what": "mode"} for name in at_risk]
    changes += [{"path": step.path, "what": step.what} for step in due.steps]
    left: List[str] = []
    if args.check:
        _install(setup, seen, what, path, args)
    else:
        mode_setup.note_change(setup, due)
        left = mode_steps.carry_out(setup, due.steps, modes.Phase.BEFORE)
        for name in at_risk:
            staging.take_over(name, DIRECTORY_MODE)
        _install(setup, seen, what, path, args)
        write_system_files(wanted, files, product)
        mode_steps.carry_out(setup, due.steps, modes.Phase.UNITS)
        if units.needs_reload(files) or due.has(modes.Phase.UNITS):
            systemd.daemon_reload()
        if enable_due:
            systemd.enable(units.timer_of(product.name))
        left += mode_steps.carry_out(setup, due.steps, modes.Phase.AFTER)
    unit_changed = any(change["path"].startswith(f"{units.UNIT_DIR}/{product.unit}") for change in changes)
    answer = _answer(setup, changes, what, unit_changed or due.reload, left)
    return bringing.with_note(answer, seen.state, args.source, what)
