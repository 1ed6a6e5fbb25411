# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward remove --product NAME`: give a daemon back to whoever installs it otherwise (products.md, section 2).

Rules:
- What runs goes on running. What the next start runs is there at every moment: one rename puts the program back (I1).
- A trial must end first. Every step may be repeated; the product's file goes last, so that a cut run can be completed.
- The slots stay, with their records, unless `--purge` is given; guard and shared units stay, other products need them.
- A file with a problem may leave out a part, or the slots: nothing is taken away by it. Nor while data is to be restored.
- What `--purge` removes is a directory that has nothing of others in it, and nothing that the unit still starts from.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from slotcore import codes, evidence, keeping, ops
from slotcore import product as products
from slotward import (
    answers,
    cmd_audit,
    cmd_setup,
    effects,
    executor,
    host,
    installed,
    lock,
    manager,
    opening,
    own,
    packages,
    product_setup,
    staging,
    systemd,
    unfinished,
    unit_files,
    units,
    unpack,
)

if TYPE_CHECKING:
    import argparse

DIRECTORIES = (products.TREES, evidence.DIRECTORY, "snapshots", "staging", "verify")
"""What a product's slots have besides plain files and links."""


def run(args: argparse.Namespace) -> answers.Answer:
    """Remove a product, or say what that would change."""
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "remove takes units and links away: run it as root")
    setup = own.asked(args)
    if setup.is_agent:
        text = "remove is for other products: name one with --product; the agent itself is removed as docs/operator/install.md says"
        raise codes.refused(codes.UNKNOWN_PRODUCT, text)
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    _refuse(setup, manager.look(setup.product), args)
    if args.check or not os.path.isdir(setup.product.slots_dir):
        return _once(setup, args)
    with lock.held(setup.product, "remove"):
        seen, _done = manager.settle_now(setup.product)
        _refuse(setup, seen, args)
        return _once(setup, args)


def _refuse(setup: own.Setup, seen: manager.Look, args: argparse.Namespace) -> None:
    """Raise what forbids it now: a trial, data that only the slots' copy has, slots that are not only the product's."""
    unfinished.refuse(setup.product, seen)
    pending = keeping.pending(setup.product, seen.state)
    if pending is not None:
        raise codes.Retryable(pending.code, pending.text)
    if args.purge and os.path.isdir(setup.product.slots_dir):
        demand_own(setup.product, seen)


def _may_be_own(found: os.DirEntry[str]) -> bool:
    """Whether it is one of the directories of slots, or a slot, or a record: nobody starts those."""
    if found.is_dir(follow_symlinks=False):
        return found.name in DIRECTORIES or found.name.startswith(cmd_audit.ASIDE)
    runs = found.is_file(follow_symlinks=False) and found.stat(follow_symlinks=False).st_mode & 0o111
    return not runs or found.name.partition(".")[0] in products.SLOTS


def demand_own(product: products.Product, seen: manager.Look) -> None:
    """Raise Refused where `--purge` would remove what is not the product's alone, or what its unit starts."""
    place = product.slots_dir
    others = sorted(found.name for found in os.scandir(place) if not _may_be_own(found))
    if others:
        text = f"{place} has what is not of {product.name} ({', '.join(others[:5])}): move it away, or remove without --purge"
        raise codes.refused(codes.DIRECTORY_UNSAFE, text)
    put_back = [product.entrypoint] if seen.state.entrypoint == "ours" else []
    put_back += [part.path for part in product.parts]
    units_of_parts = [os.path.realpath(part.path) for part in product.parts if part.unit]  # systemd may name either
    inside = os.path.join(os.path.realpath(place), "")
    for path in product_setup.named_by_unit(product.unit):
        real = os.path.realpath(path)
        if real.startswith(inside) and path not in put_back and real not in units_of_parts:
            text = (
                f"{product.unit} still needs {path}, which leads into {place} and is neither the entrypoint nor a part "
                "in the product's file: put a file there first"
            )
            raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text)


def own_files(setup: own.Setup) -> List[str]:
    """The system files that this product alone has."""
    units_of_all = {f"{units.UNIT_DIR}/{name}" for name in (*units.SHARED_UNITS, units.DATA_UNIT)}
    shared = units_of_all | {f"{units.GUARD_DIR}/guard"}
    probe = _probe_unit(setup)  # its source may have been taken out of the file since
    wanted = [file.path for file in installed.wanted(setup) if file.path not in shared]
    return [probe, *(path for path in wanted if path != probe)]


def _probe_unit(setup: own.Setup) -> str:
    return f"{units.UNIT_DIR}/{unit_files.probe_unit_of(setup.product.name)}"


def _once(setup: own.Setup, args: argparse.Namespace) -> answers.Answer:
    product = setup.product
    files = [path for path in own_files(setup) if os.path.lexists(path)]
    enabled = not cmd_setup.timer_due(product.name)
    changes, left = _program(setup, args.check)
    changes += [{"path": units.timer_of(product.name), "what": "disable"}] if enabled else []
    changes += [{"path": path, "what": "remove"} for path in files]
    purge = args.purge and os.path.isdir(product.slots_dir)
    changes += [{"path": product.slots_dir, "what": "remove"}] if purge else []
    changes += [{"path": setup.config_path, "what": "remove"}]
    if not args.purge and os.path.isdir(product.slots_dir):
        left.append(f"{product.slots_dir} stays, with its records: --purge removes it too")
    if not args.check:
        _carry_out(setup, files, enabled, purge)
    answer: Dict[str, Any] = answers.base(product.name, "idle", changed=True)
    answer.update(changes=changes, left=left)
    lines = [f"{change['what']}: {change['path']}" for change in changes] + left
    return answers.Answer(answers.DONE, answer, lines)


def _carry_out(setup: own.Setup, files: List[str], enabled: bool, purge: bool) -> None:
    product = setup.product
    if enabled:
        systemd.disable_now(units.timer_of(product.name))
    if _probe_unit(setup) in files:
        systemd.stop(unit_files.probe_unit_of(product.name))  # it may look at what a trial went back to
    for path in files:
        manager.apply(product, ops.unlink_durably(os.path.dirname(path), os.path.basename(path)), "remove")
        with contextlib.suppress(OSError):  # others have files in it
            os.rmdir(os.path.dirname(path))
    systemd.daemon_reload()  # also of what a run that was cut had removed
    if purge:
        above, name = os.path.split(product.slots_dir)
        descriptor = os.open(above, opening.DIRECTORY)
        try:
            unpack.remove_tree(descriptor, name)
        finally:
            os.close(descriptor)
    directory, name = os.path.split(setup.config_path)
    manager.apply(product, ops.unlink_durably(directory, name), "remove")


def _program(setup: own.Setup, check: bool) -> Tuple[List[Dict[str, str]], List[str]]:
    """Put a plain file at the entrypoint, where that is our link; what that changes, and what is to be known of it."""
    product = setup.product
    path, left = product.entrypoint, []
    diverted = packages.is_diverted(path)
    state = host.read_state(product)
    changes: List[Dict[str, str]] = []
    if state.entrypoint == "ours" and not (diverted and os.path.lexists(path + packages.SUFFIX)):
        changes.append({"path": path, "what": f"file of {product.program_path('current')}"})
        if not check:
            _put_back(product.program_path("current"), path)
    for part in product.parts:
        changes += _part(setup, part, check)
    if diverted:
        changes.append({"path": path + packages.SUFFIX, "what": "undivert"})
        left.append(f"the next start of {product.unit} runs {path} as its package brings it")
        if not check:
            packages.undivert(path)
    return changes, left


def _part(setup: own.Setup, part: products.Part, check: bool) -> List[Dict[str, str]]:
    """Put a plain file at a part's path, where that is our link, or what its package brings."""
    from slotward import parts

    if parts.kind(setup.product, part) != "ours":
        return []
    diverted = packages.is_diverted(part.path)
    what = "undivert" if diverted else f"file of {parts.target(setup.product, part)}"
    if not check and not (diverted and packages.undivert(part.path)):
        _put_back(parts.target(setup.product, part), part.path)
    return [{"path": part.path, "what": what}]


def _put_back(source: str, path: str) -> None:
    descriptor = os.open(os.path.realpath(source), opening.READ)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, f"{source} is no plain file: nothing was put at {path}")
        digest = f"/proc/self/fd/{descriptor}"
        from slotward import prepare

        sha256 = prepare.digest_of(digest)
        temporary = path + ".tmp"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        staging.copy_verified(descriptor, temporary, found.st_size, sha256, stat.S_IMODE(found.st_mode))
        os.rename(temporary, path)
        executor.sync_path(os.path.dirname(path))
    except OSError as error:
        raise effects.as_retryable(error, f"put the program back at {path}") from error
    finally:
        os.close(descriptor)
