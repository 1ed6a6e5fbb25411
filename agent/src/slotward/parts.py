# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a release that lie elsewhere on the host: links into the current slot's tree (products.md, section 4).

Rules:
- A part's path is a link to `S/current/<from>`, made once, by setup. What it leads to moves with `current` and nothing else.
- A plain file that is there is adopted as the program is: with consent, into the tree of the version that runs. The tree is
  given the file first, then a listing that has it, then the link takes its place: a cut leaves what a second run completes.
- Before a switch the new tree must have every part, and systemd must take its unit file under the name that it will have.
- Nothing is confirmed while a part leads elsewhere, or systemd has not read the unit file that came with the release.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from slotcore import codes, listings, ops, settle, trial
from slotcore import product as products
from slotward import adoption, effects, host, packages, staging, systemd, trees

MAX_BYTES = 64 << 20
RELOAD_ROOM = 16 << 20
"""What systemd itself demands in /run before it reads its unit files again."""


class Todo(NamedTuple):
    """A part whose path is no link of ours yet: the file that is adopted for it, if any, and the package that owns that."""

    part: products.Part
    adopts: str = ""
    owner: Optional[packages.Owner] = None


def target(product: products.Product, part: products.Part) -> str:
    """What a part's path has to be a link to."""
    return f"{product.path('current')}/{part.source}"


def kind(product: products.Product, part: products.Part) -> str:
    """What is at a part's path: `missing`, `file`, `ours` (its link) or `elsewhere`."""
    return host.kind_at(part.path, target(product, part))


def not_linked(product: products.Product) -> List[str]:
    """The parts whose paths are not theirs, as sentences."""
    return [
        f"{part.path} is no link to {target(product, part)}, the part {part.name} of {product.name}"
        for part in product.parts
        if kind(product, part) != "ours"
    ]


def work(product: products.Product, consent: bool, divert: bool, comes: bool) -> Tuple[Todo, ...]:
    """What setup has to do about parts, before it does anything; `comes`: the program comes with a release of its own.

    Raises:
        Refused: `adopt-needs-consent`, `package-owns-path`, `entrypoint-elsewhere`, `part-missing`.

    """
    found = []
    for part in product.parts:
        what = kind(product, part)
        if what == "elsewhere":
            text = (
                f"{part.path} is a link to somewhere else, or no file: remove it, or change path in [part-{part.name}]"
            )
            raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text)
        if what == "ours":
            continue
        source = part.path if what == "file" else "" if comes else _loaded(product, part)
        if not source and not comes and not os.path.isfile(target(product, part)):
            text = f"there is nothing at {part.path}, and the version that runs has no {part.source}: put the file of [part-{part.name}] there first"
            raise codes.refused(codes.PART_MISSING, text)
        found.append(_adopting(product, part, source, consent, divert) if source else Todo(part))
    return tuple(found)


def _loaded(product: products.Product, part: products.Part) -> str:
    """The file from which systemd has the product's unit, for a part that will stand before it in systemd's order."""
    if not part.unit or os.path.basename(part.path) != product.unit or os.path.isfile(target(product, part)):
        return ""
    return systemd.show(product.unit, ("FragmentPath",)).get("FragmentPath", "")


def _adopting(product: products.Product, part: products.Part, source: str, consent: bool, divert: bool) -> Todo:
    if not (consent or product.adopt):
        text = (
            f"{source} is a plain file: it would be copied into the tree of the version that runs, and {part.path} become a "
            f"link to {target(product, part)}; agree with --adopt or [update] adopt = true"
        )
        raise codes.refused(codes.ADOPT_NEEDS_CONSENT, text)
    os.close(adoption.open_adoptable(source))
    return Todo(part, source, packages.agreed(source, divert) if source == part.path else None)


def changes(product: products.Product, todo: Tuple[Todo, ...]) -> List[Dict[str, str]]:
    """The same as setup lists its changes."""
    listed = []
    for one in todo:
        if one.adopts:
            listed.append({"path": target(product, one.part), "what": f"adopt {one.adopts}"})
        if one.owner is not None and one.owner.diverts:
            listed.append({"path": one.part.path + packages.SUFFIX, "what": f"divert {one.owner.package}"})
        listed.append({"path": one.part.path, "what": "link"})
    return listed


def bring(product: products.Product, todo: Tuple[Todo, ...]) -> None:
    """Carry it out: adopt what is to be adopted, and make the links (the lock is held)."""
    for one in todo:
        if one.adopts:
            _adopt(product, one.part, one.adopts)
        if one.owner is not None and one.owner.diverts:
            packages.divert(one.part.path)
        if not os.path.isfile(target(product, one.part)):
            text = f"the version that runs has no {one.part.source}, so {one.part.path} would lead nowhere"
            raise codes.refused(codes.PART_MISSING, text)
        effects.executor_for(product, {}).apply(ops.link_durably(one.part.path, target(product, one.part)), "part")
    if any(one.part.unit for one in todo):
        systemd.daemon_reload()


def _adopt(product: products.Product, part: products.Part, source: str) -> None:
    state = host.read_state(product)
    version = trees.version_of(product, state.current or "")
    listing = trees.read_listing(product, version) if version else None
    if listing is None:
        text = f"nothing lists the tree of the version that runs, so {source} cannot be taken into it: run setup"
        raise codes.refused(codes.PART_MISSING, text)
    descriptor = adoption.open_adoptable(source)
    with open(descriptor, "rb") as file:
        mode = 0o755 if os.fstat(descriptor).st_mode & 0o111 else 0o644
        data = file.read(MAX_BYTES + 1)
        file.seek(0)
        digest = host.sha256_of(file)
    if len(data) > MAX_BYTES:
        text = f"{source} has more than {MAX_BYTES} bytes, which is too much to be adopted: remove it, and let a release bring it"
        raise codes.refused(codes.ARTIFACT_TOO_LARGE, text)
    tree = product.tree(version)
    entries = {entry.path: entry for entry in listing.entries}
    for above in _directories(part.source):
        entries.setdefault(above, listings.Entry(above, listings.DIRECTORY, 0o755))
        if not os.path.isdir(f"{tree}/{above}"):
            staging.make_one(f"{tree}/{above}", 0o755)
    entries[part.source] = listings.Entry(part.source, listings.FILE, mode, len(data), digest)
    listed = listings.render(listing._replace(entries=tuple(entries.values())))
    plan = ops.write_durably(f"{tree}/{part.source}", data, mode)
    plan += ops.write_durably(tree + ops.LISTING, listed)
    effects.executor_for(product, {}).apply(plan, "adopt-part")


def _directories(path: str) -> List[str]:
    """The directories of a tree that lead to a path in it, the topmost first."""
    names = path.split("/")[:-1]
    return ["/".join(names[: count + 1]) for count in range(len(names))]


def demand(product: products.Product, slot: str) -> None:
    """Raise Refused `part-missing` or `bad-unit` for a tree that cannot be switched to; `slot` is its path, or a link's."""
    tree = os.path.realpath(slot)
    for part in product.parts:
        path = f"{tree}/{part.source}"
        if not os.path.isfile(path) or os.path.islink(path):
            text = (
                f"the release has no file {part.source}, which [part-{part.name}] of {product.name} puts at {part.path}"
            )
            raise codes.refused(codes.PART_MISSING, text)
        if part.unit:
            why = _refused_by_systemd(product, part, path)
            if why:
                text = f"systemd does not take {part.source} of the release as {os.path.basename(part.path)}: {why}"
                raise codes.refused(codes.BAD_UNIT, text)


def _refused_by_systemd(product: products.Product, part: products.Part, path: str) -> str:
    """Why systemd would not load that file under the part's name; "" when it would."""
    name = os.path.basename(part.path)
    if os.path.basename(path) == name:
        return systemd.refuses(path)
    place = product.path("verify")
    staging.make_one(place, 0o755)
    try:
        data = host.read_bytes(path, MAX_BYTES) or b""
        effects.executor_for(product, {}).apply((ops.Write(f"{place}/{name}", data),), "verify")
        return systemd.refuses(f"{place}/{name}")
    finally:
        effects.executor_for(product, {}).apply((ops.Unlink(f"{place}/{name}"),), "verified")
        os.rmdir(place)


def demand_room(product: products.Product) -> None:
    """Raise Retryable `no-space` while systemd would refuse to read a new unit file."""
    if not product.has_unit_part:
        return
    found = os.statvfs("/run")
    free = found.f_bavail * found.f_frsize
    if free < RELOAD_ROOM:
        text = f"/run has {free >> 10} KiB free, and systemd reads no unit file with less than {RELOAD_ROOM >> 20} MiB: free some"
        raise codes.Retryable(codes.NO_SPACE, text)


def unproven(product: products.Product, state: settle.State, slot: str) -> str:
    """Which part does not lead into that slot, or was not taken up by systemd; "" when all of them are proven."""
    for part in product.parts:
        wanted = f"{product.path(slot)}/{part.source}"
        if kind(product, part) != "ours":
            return f"{part.path} is no link to {target(product, part)} (part {part.name}): run `slotward setup`"
        if os.path.realpath(part.path) != os.path.realpath(wanted) or not os.path.isfile(part.path):
            return f"{part.path} does not lead to {wanted} (part {part.name})"
    if product.has_unit_part and state.trial is not None and not trial.is_unit_read(state.log):
        return (
            f"systemd has not read the unit file that came with the release, so {product.unit} runs by the one before"
        )
    return ""
