# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that setup is given with `--from`, and what keeps setup from doing what it is asked.

Rules:
- A program is asked its version by a copy that can be executed and that the sandbox lets through: neither the mode of the
  file nor where it lies says anything about it. Where a signed manifest vouches for the file, nobody needs to be asked.
- Beside a sound slot `--from` installs nothing, and that is said; where only a link is broken, it mends that too.
- What is masked was masked by somebody: setup neither passes over it nor takes it back.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, Optional, Tuple

from slotcore import codes, records, settle, status
from slotcore import product as products
from slotward import (
    adoption,
    answers,
    host,
    looking,
    opening,
    preflight,
    prepare,
    program_facts,
    staging,
    systemd,
    units,
)


@contextlib.contextmanager
def _copy_of(product: products.Product, descriptor: int) -> Iterator[str]:
    """A copy of the file where slots are (or will be), as a slot's file is; gone afterwards."""
    path = os.path.join(preflight.existing(product.slots_dir), f"{settle.PROBE}{os.getpid()}")
    copy = os.open(path, opening.CREATE, staging.PRIVATE)
    try:
        try:
            with open(f"/proc/self/fd/{descriptor}", "rb") as source:
                for block in iter(lambda: source.read(staging.CHUNK), b""):
                    opening.write_all(copy, block)
            os.fchmod(copy, staging.PUBLIC)
        finally:
            os.close(copy)
        yield path
    finally:
        os.unlink(path)


def _version(product: products.Product, path: str, descriptor: int, vouched: bool) -> str:
    """The version that a copy of the file says; "unknown" where a manifest says it, or it is an archive."""
    from slotward import placing

    archive = product.layout == products.VERSIONS and placing.is_archive(f"/proc/self/fd/{descriptor}")
    if vouched or archive or not product.smoke_argv:
        return "unknown"
    with _copy_of(product, descriptor) as copy:
        version, said = program_facts.asked(product, copy)
    if version is None:
        words = " ".join(product.smoke_argv)
        raise codes.refused(
            codes.SMOKE_TEST_FAILED,
            f"{path} does not say its version: a copy of it, asked with `{words}`, {said}; give the version with --version, "
            "its signed manifest with --manifest, or set [smoke] arguments",
        )
    return version


def open_file(product: products.Product, path: str, vouched: bool) -> Tuple[int, records.SlotRecord]:
    """A descriptor of another daemon's program that is brought, and what is known of it; `vouched`: its manifest says more."""
    descriptor = adoption.open_adoptable(path, "the file")
    try:
        version = _version(product, path, descriptor, vouched)
        digest = prepare.digest_of(f"/proc/self/fd/{descriptor}")
        return descriptor, records.SlotRecord(version, 0, digest, os.fstat(descriptor).st_size)
    except BaseException:
        os.close(descriptor)
        raise


def demand_floor(product: products.Product, state: settle.State, record: records.SlotRecord) -> None:
    """Raise Refused `below-floor` for a release that an update would not take either (I3)."""
    floor = status.floor_of(product, state)
    if record.sequence < floor:
        raise codes.refused(
            codes.BELOW_FLOOR,
            f"release sequence {record.sequence} is older than {floor}, which this node ran or was installed at (rollback)",
        )


def demand(product: products.Product, state: settle.State, source: Optional[str]) -> None:
    """Raise what keeps setup from anything: a broken record (a link is made anew, where a program is given), a masked unit."""
    if state.broken is not None and (state.damaged or source is None):
        raise codes.BrokenRecord(*state.broken)
    names = [*units.guard_services(product.name), units.timer_of(product.name)]
    shown = systemd.show_each(names, ("LoadState",))
    masked = [name for name, unit in zip(names, shown) if unit.get("LoadState") == "masked"]
    if masked:
        text = f"masked by somebody: {', '.join(masked)}; run `systemctl unmask {' '.join(masked)}`, then setup again"
        raise codes.refused(codes.GUARD_NOT_INSTALLED, text)


def is_sound(product: products.Product, state: settle.State) -> bool:
    """Whether what starts is what was verified, and nothing about links or records is broken."""
    return state.in_use and state.broken is None and not host.damage(product, state)


def demand_program(product: products.Product, state: settle.State, source: Optional[str]) -> None:
    """Raise the refusal that says what is wrong with what starts, when no program is given to be put in its place."""
    if source is not None:
        return
    give = "give the release's file with --from FILE and its --manifest"
    if state.entrypoint != "ours" or not state.in_use:
        text = f"there is no program at {product.entrypoint}: install it first, or {give}"
        raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text)
    text = f"{host.damage(product, state)}: run `{looking.REPAIR} --slots`, or {give}"
    raise codes.refused(codes.DIGEST_MISMATCH, text)


def with_note(answer: answers.Answer, state: settle.State, source: Optional[str], what: str) -> answers.Answer:
    """The answer, with what there is to say of a file that was given and not needed: an update goes another way."""
    entry = state.slots.get(state.current or "")
    if source is None or what in ("install", "adopt") or entry is None or prepare.digest_of(source) == entry.sha256:
        return answer
    note = f"{source} was not taken: slot {state.current} holds {entry.version}, which proves itself; `slotward upgrade` goes to another release"
    return answer._replace(json=dict(answer.json, message=note), lines=[*answer.lines, note])
