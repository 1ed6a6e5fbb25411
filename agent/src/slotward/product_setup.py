# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward setup --product NAME`: put a daemon of this host under the guard, once (products.md, section 2).

Rules:
- The unit itself is never written, only given drop-ins; it goes on running what it runs.
- The program at the entrypoint is adopted with consent. One that a package owns is diverted, with consent of its own.
- A second run changes nothing; `--check` says what a run would change and changes nothing. A trial is left alone.
- The slots come first, then the guard and the units: a crash in between leaves what a second run completes.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from slotcore import audit as audits
from slotcore import codes, records, semver, settle, standing
from slotward import (
    answers,
    audit,
    bringing,
    cmd_setup,
    host,
    immutable,
    installed,
    lock,
    manager,
    own,
    packages,
    parts,
    placing,
    prepare,
    product_files,
    staging,
    systemd,
    unfinished,
    units,
)

if TYPE_CHECKING:
    import argparse

_PROGRAM_IN = re.compile(r"path=([^ ;]+) ; argv\[\]=([^;]*) ;")


class Work(NamedTuple):
    """What is to be done about the program: `nothing`, `relink`, `adopt` or `install`; from which file, by whose package."""

    what: str
    path: Optional[str] = None
    owner: Optional[packages.Owner] = None


def directories(setup: own.Setup) -> List[str]:
    """The directories that a product needs."""
    return [setup.product.slots_dir, units.GUARD_DIR, f"{units.GUARD_DIR}/guard.d"]


def run(args: argparse.Namespace) -> answers.Answer:
    """Set a product up, or say what that would change."""
    args.check = args.check or args.planned is not None
    setup = product_files.load(args.config, args.product, args.planned or "")
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "setup writes units and slots: run it as root")
    demand_sound(setup, args)
    missing = [path for path in directories(setup) if not os.path.isdir(path)]
    immutable.check(missing)
    unfinished.refuse(setup.product, manager.look(setup.product))
    if args.check:
        return _once(setup, args, missing)
    _work(setup, host.read_state(setup.product), args)  # a refusal leaves nothing behind
    for path in directories(setup):
        staging.make_parents(os.path.dirname(path))
        if path in missing:
            staging.make_one(path, cmd_setup.DIRECTORY_MODE)
    with lock.held(setup.product, "setup"):
        manager.settle_now(setup.product)
        with audit.refusals(setup.product):
            return _once(setup, args, missing)


def demand_sound(setup: own.Setup, args: argparse.Namespace) -> None:
    """The file has no problem, nothing else claims what it names, and systemd starts the entrypoint."""
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    why = systemd.booted()
    if why is not None:
        raise codes.refused(codes.NO_SYSTEMD, f"this host is not run by systemd ({why}): nothing could end a trial")
    twice = product_files.conflicts(args.config, setup)
    if twice:
        raise codes.refused(codes.PRODUCT_CONFLICT, f"{'; '.join(twice)}: one of them must let go of it")
    product = setup.product
    shown = systemd.show(product.unit, ("LoadState", "ExecStart"))
    if shown.get("LoadState") != "loaded":
        text = f"systemd has no unit {product.unit} ({shown.get('LoadState') or 'unknown'}): install it first, or name another in {setup.config_path}"
        raise codes.refused(codes.UNIT_NOT_RUNNING, text)
    starts = _started(shown)
    if starts and product.entrypoint not in starts:
        text = f"{product.unit} starts {starts[0]}, not the entrypoint {product.entrypoint}: set entrypoint in {setup.config_path}"
        raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text)


def _started(shown: Mapping[str, str]) -> List[str]:
    """The program that a unit starts, and the words of its command."""
    found = _PROGRAM_IN.search(shown.get("ExecStart", ""))
    return [found.group(1), *found.group(2).split()] if found is not None else []


def named_by_unit(unit: str) -> List[str]:
    """The absolute paths without which a unit does not start: its file, and what its command names."""
    shown = systemd.show(unit, ("FragmentPath", "ExecStart"))
    return [path for path in (shown.get("FragmentPath", ""), *_started(shown)) if path.startswith("/")]


def _work(setup: own.Setup, state: settle.State, args: argparse.Namespace) -> Work:
    product = setup.product
    bringing.demand(product, state, args.source)
    sound = bringing.is_sound(product, state)
    if state.entrypoint == "ours" and sound:
        return Work("nothing")
    if state.entrypoint == "file" or (state.entrypoint == "elsewhere" and os.path.isfile(product.entrypoint)):
        return _adoption(setup, args)
    if state.entrypoint == "elsewhere":
        text = f"{product.entrypoint} leads to no file: set entrypoint in {setup.config_path}, or remove it"
        raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text)
    if sound and args.source is None:
        return Work("relink")
    bringing.demand_program(product, state, args.source)
    return Work("install", args.source)


def _adoption(setup: own.Setup, args: argparse.Namespace) -> Work:
    """The file at the entrypoint, or the one that a link there leads to: packages give one program several names."""
    path = setup.product.entrypoint
    if not (args.adopt or setup.product.adopt):
        what = f"a link to {os.path.realpath(path)}" if os.path.islink(path) else "a plain file"
        raise codes.refused(
            codes.ADOPT_NEEDS_CONSENT,
            f"{path} is {what}, placed by hand, a package or a script: it would be copied into a slot "
            f"and replaced by a link to {setup.product.program_path('current')}; agree with --adopt or [update] adopt = true",
        )
    return Work("adopt", path, packages.agreed(path, args.divert))


def _version(setup: own.Setup, args: argparse.Namespace, said: str, path: str) -> str:
    """The version that is recorded of the program: given, or said by itself."""
    if args.as_version is not None:
        if not semver.is_version(args.as_version):
            raise codes.refused(codes.NOT_A_RELEASE, f"--version {args.as_version!r} is not a version, such as 1.2.0")
        return str(args.as_version)
    if said == "unknown":
        words = " ".join(setup.product.smoke_argv) or "nothing, smoke_test is false"
        raise codes.refused(
            codes.SMOKE_TEST_FAILED,
            f"{path} does not say its version (asked with: {words}): give it with --version, or set [smoke] arguments",
        )
    return said


@contextlib.contextmanager
def _judged(
    setup: own.Setup, seen: manager.Look, work: Work, path: str, args: argparse.Namespace
) -> Iterator[Tuple[int, records.SlotRecord]]:
    """The program that is installed or adopted, and its record; raises the refusal."""
    product, brings = setup.product, work.what == "install"
    vouched = args.manifest is not None or args.as_version is not None
    descriptor, record = bringing.open_file(product, path, vouched) if brings else prepare.open_program(product, path)
    try:
        if args.manifest is None or args.as_version is not None or not brings:
            record = record._replace(version=_version(setup, args, record.version, path))
        if args.manifest is not None:
            release = cmd_setup.verified(setup, seen, args.manifest, record.version, record.sha256)
            record = prepare.record_of(release, record.sha256, record.size)
        if brings:
            bringing.demand_floor(product, seen.state, record)
        yield descriptor, record
    finally:
        os.close(descriptor)


def _install(setup: own.Setup, seen: manager.Look, work: Work, args: argparse.Namespace) -> None:
    product = setup.product
    if work.what == "relink":
        cmd_setup.relink(product)
    if work.path is None:
        return
    diverts = work.owner is not None and work.owner.diverts
    if work.what == "adopt" and _is_second_name(work.path):
        diverts = diverts or packages.is_diverted(work.path)  # of a run that was cut
        packages.forget_copy(work.path)
    with _judged(setup, seen, work, work.path, args) as (descriptor, record):
        if diverts:
            packages.divert(work.path)
        staging.make_parents(os.path.dirname(product.entrypoint))
        event = audits.INSTALLED if work.what == "install" else audits.ADOPTED
        placing.adopt(product, seen, record, descriptor, event)


def _is_second_name(path: str) -> bool:
    try:
        return os.path.samefile(path, path + packages.SUFFIX)
    except OSError:
        return False


def _changes(
    setup: own.Setup, work: Work, files: Tuple[units.Change, ...], timer_due: bool, missing: List[str]
) -> List[Dict[str, str]]:
    product = setup.product
    listed = [{"path": path, "what": "create"} for path in missing]
    if work.path is not None:
        listed.append({"path": product.path("current"), "what": f"{work.what} {work.path}"})
    if work.owner is not None and work.owner.diverts:
        listed.append({"path": product.entrypoint + packages.SUFFIX, "what": f"divert {work.owner.package}"})
    if work.what != "nothing":
        listed.append({"path": product.entrypoint, "what": "link"})
    listed += [{"path": change.path, "what": change.what} for change in files]
    if timer_due:
        listed.append({"path": units.timer_of(product.name), "what": "enable"})
    return listed


def _once(setup: own.Setup, args: argparse.Namespace, missing: List[str]) -> answers.Answer:
    product = setup.product
    seen = manager.look(product)
    unfinished.refuse(product, seen)
    work = _work(setup, seen.state, args)
    parted = parts.work(product, args.adopt, args.divert, work.what == "install")
    if work.what == "install" and standing.in_force(product, seen.state).pins and args.manifest is None:
        text = (
            f"release keys are pinned: give the signed manifest of {work.path} with --manifest, so that it is checked"
        )
        raise codes.refused(codes.NO_MANIFEST, text)
    wanted = installed.wanted(setup)
    files = units.plan(wanted, installed.read_file)
    at_risk = installed.directories_at_risk(product)
    immutable.check([product.entrypoint] * (work.what != "nothing") + [change.path for change in files])
    timer_due = cmd_setup.timer_due(product.name)
    changes = _changes(setup, work, files, timer_due, missing) + [{"path": name, "what": "mode"} for name in at_risk]
    changes += parts.changes(product, parted)
    if args.check and work.path is not None and not (work.what == "adopt" and _is_second_name(work.path)):
        with _judged(setup, seen, work, work.path, args):
            pass  # it is what setup would take, or is refused
    if not args.check:
        for name in at_risk:
            staging.take_over(name, cmd_setup.DIRECTORY_MODE)
        _install(setup, seen, work, args)
        parts.bring(product, parted)
        cmd_setup.write_system_files(wanted, files, product)
        if units.needs_reload(files):
            systemd.daemon_reload()
        if timer_due:
            systemd.enable(units.timer_of(product.name))
    return bringing.with_note(_answer(setup, changes, work), seen.state, args.source, work.what)


def _answer(setup: own.Setup, changes: List[Dict[str, str]], work: Work) -> answers.Answer:
    product = setup.product
    state = host.read_state(product)
    entry = state.slots.get(state.current or "")
    left = []
    if work.owner is not None and not work.owner.diverts:
        left.append(f"{product.entrypoint}: the next update of the package {work.owner.package} writes over the link")
    answer: Dict[str, Any] = answers.base(product.name, "idle", changed=bool(changes))
    answer.update(
        changes=changes,
        installed=work.what,
        left=left,
        version=entry.version if entry is not None else None,
        sha256=entry.sha256 if entry is not None else None,
    )
    lines = [f"{change['what']}: {change['path']}" for change in changes] or ["nothing to do: all is in place"]
    return answers.Answer(answers.DONE, answer, lines + left)
