# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold of every tree that a power cut can leave, and of everything that the guard and settling make of it.

`View` reads a tree by itself, without the engine's parsers where that is easy, so that it can contradict them.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from core.crash import disk, scenarios, values
from core.crash.host import FAILED, HELPER_FAILED, RUNS, STOPPED, Host, Unit
from core.crash.scenarios import Scenario, Timing

from slotcore import codes, ops, plans, recording, settle, trial
from slotcore import product as products

Items = FrozenSet[Tuple[str, bytes]]
"""A tree as what can be remembered."""
SEEN = 8192
"""Of so many trees; a test walks through fewer."""
VERIFIED = frozenset(values.BYTES.values())
ORDERS: Dict[str, Tuple[Tuple[str, Unit], ...]] = {
    "a command": (),
    "a start": (("start", STOPPED),),
    "a tick": (("tick", RUNS),),
    "a failure": (("failed", FAILED),),
}
ORDERS_HELPED: Dict[str, Tuple[Tuple[str, Unit], ...]] = {
    **ORDERS,
    "the helper's failure": (("failed", HELPER_FAILED),),
}


def orders(host: Host) -> Dict[str, Tuple[Tuple[str, Unit], ...]]:
    """Who may look first at a host."""
    return ORDERS_HELPED if host.helped else ORDERS


class View(NamedTuple):
    """A tree as its parts."""

    starts: Optional[bytes]
    """The bytes that a start of the unit would run."""
    current: Optional[str]
    good: Optional[str]
    names: FrozenSet[str]
    files: Dict[str, bytes]
    floor: int
    last: Optional[Dict[str, Any]]
    failed: Dict[str, Dict[str, Any]]
    slots: Dict[str, Dict[str, Any]]
    trust: Dict[str, Any]

    @property
    def by_permit(self) -> bool:
        """Whether the permit of the tests was used up here, so that the floor may be its release's."""
        return values.PERMIT.permit_id in [entry["id"] for entry in self.trust["permits"]]

    @property
    def allowed(self) -> Optional[Dict[str, Any]]:
        """What a permit allows to run below the floor."""
        found: Optional[Dict[str, Any]] = self.trust["allowed"]
        return found

    @property
    def record(self) -> str:
        """Which name the trial record has: a claim goes before a trial."""
        return next((name for name in ("trial.confirm", "trial.revert", "trial") if name in self.names), "none")

    @property
    def was_started(self) -> bool:
        """Whether the log says that the release on trial was started."""
        return b"\nstart " in self.files.get("trial.log", b"")


def view(host: Host, tree: disk.Tree) -> View:
    """The parts of a tree; a link that leads nowhere and a record that is none are errors here.

    In a tree with the mark of a damaged host, a record may be none, and then its copy is what counts.
    The same tree comes back at many moments, and is taken apart once: nobody changes a view.
    """
    return _parts(host, frozenset(tree.items()))


@functools.lru_cache(maxsize=SEEN)
def _parts(host: Host, items: Items) -> View:
    tree = dict(items)
    top = host.product.slots_dir + "/"
    files = {path[len(top) :]: data for path, data in tree.items() if path.startswith(top)}
    entry: Optional[bytes] = tree.get(host.product.entrypoint)
    if entry is not None and entry.startswith(disk.LINK):
        wanted = host.product.program_path("current")
        assert entry == disk.LINK + wanted.encode(), f"the entrypoint leads elsewhere: {entry!r}"
        entry = _slot_bytes(files, "current")
    damaged = any(path.endswith("/" + scenarios.MARK) for path in tree)
    update = _record(files, recording.UPDATE, damaged)
    return View(
        starts=entry,
        current=_link(files, "current"),
        good=_link(files, "good"),
        names=frozenset(files),
        files=files,
        floor=update["floor"],
        last=update["last"],
        failed={entry["version"]: entry for entry in update["failed"]},
        slots=_record(files, recording.SLOTS, damaged)["slots"],
        trust=_trust(files, int(update["trust"])),
    )


def _record(files: Dict[str, bytes], name: str, damaged: bool) -> Dict[str, Any]:
    """What a record says; one that was damaged before the plan began says what its copy says, or nothing.

    No operation of ours may damage one.
    """
    sound = json.loads(files[name]) if _is_sound(files.get(name)) else None
    if sound is None and damaged:
        copy = recording.unsealed(files.get(name + recording.COPY, b""))
        sound = json.loads(copy) if copy is not None and _is_sound(copy) else None
    elif name in files:
        assert sound is not None, f"I3: {name} is torn: {files[name]!r}"
    value: Dict[str, Any] = sound or {"floor": 0, "last": None, "failed": [], "slots": {}, "trust": 0}
    return value


def _trust(files: Dict[str, bytes], demanded: int) -> Dict[str, Any]:
    """The record of trust, which is there in the generation that was demanded, or none ever was."""
    nothing: Dict[str, Any] = {"generation": 0, "keys": None, "withdrawn": [], "permits": [], "allowed": None}
    found: Dict[str, Any] = json.loads(files["trust.json"]) if "trust.json" in files else nothing
    assert found["generation"] >= demanded, f"generation {found['generation']} of trust, {demanded} is demanded"
    return found


def _is_sound(data: Optional[bytes]) -> bool:
    try:
        value = json.loads(data or b"")
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("spec") == 1 and "foreign" not in value


def _link(files: Dict[str, bytes], name: str) -> Optional[str]:
    data = files.get(name)
    if data is None:
        return None
    assert data in {b"->a", b"->b"}, f"{name} is {data!r}"
    return data[len(disk.LINK) :].decode()


def _slot_bytes(files: Dict[str, bytes], name: str) -> bytes:
    slot = _link(files, name)
    assert slot is not None, f"the entrypoint leads to {name}, which is not there"
    assert slot in files, f"{name} names {slot}, which is not there"
    held = slot_holds(files, slot)
    assert held is not None, f"{name} names {slot}, which leads to no tree that its listing proves"
    return held


def slot_holds(files: Mapping[str, bytes], slot: str) -> Optional[bytes]:
    """The program of a slot; of one in a tree, when the listing of the whole tree proves it."""
    data = files.get(slot)
    if data is None or not data.startswith(disk.LINK):
        return data
    place = data[len(disk.LINK) :].decode()
    held, listing = files.get(place, b""), files.get(place + ops.LISTING)
    proves = [version for version in values.BYTES if listing == values.listing(version)]
    good = held.startswith(disk.TREE) and proves and held[len(disk.TREE) :] == values.BYTES[proves[0]]
    return held[len(disk.TREE) :] if good else None


def check_always(host: Host, tree: disk.Tree, before: View) -> View:
    """What holds at every instant: I1 and I3, and that no link dangles and no slot record lies."""
    return _always(host, frozenset(tree.items()), before.floor)


@functools.lru_cache(maxsize=SEEN)
def _always(host: Host, items: Items, floor: int) -> View:
    """The same of the same tree is looked at once; what does not hold is never remembered."""
    tree = dict(items)
    now = view(host, tree)
    assert now.starts in VERIFIED, f"I1: a start would run {now.starts!r}"
    for name in ("current", "good", "helper"):
        if _link(now.files, name) is not None:
            assert _slot_bytes(now.files, name) in VERIFIED, f"{name} is not complete"
    check_slots(now, now.slots, recording.SLOTS)
    lowered = now.by_permit and now.floor == values.PERMIT.sequence
    assert now.floor >= floor or lowered, f"I3: the floor fell from {floor} to {now.floor}"
    running = now.slots.get(now.current or "", {}).get("sequence", 0)
    assert running == 0 or running >= now.floor or _is_allowed(now) or tree[host.product.entrypoint][:2] != disk.LINK, (
        f"I3: sequence {running} runs below the floor {now.floor}"
    )
    check_copies(now)
    claims = [name for name in ("trial.confirm", "trial.revert") if name in now.names]
    assert len(claims) <= 1, f"I12: two claims at once: {claims}"
    return now


def check_slots(now: View, slots: Dict[str, Dict[str, Any]], name: str) -> None:
    """No record of a slot, and no copy of one, ever lies about the bytes in it."""
    for slot, entry in slots.items():
        held = values.BYTES[entry["version"]]
        assert entry["sha256"] == values.digest(entry["version"])
        assert slot_holds(now.files, slot) == held, f"{name} says that {slot} holds {entry['version']}, and it does not"


def _is_allowed(now: View) -> bool:
    """Whether what runs is on trial by a permit for this very release, which is used up."""
    entry = now.slots.get(now.current or "", {})
    wanted = {"id": values.PERMIT.permit_id, "sequence": entry.get("sequence"), "version": entry.get("version")}
    return now.by_permit and now.allowed == wanted and now.record != "none"


def check_copies(now: View) -> None:
    """P4: a copy that is there proves itself, lies about no slot, and has no lower floor than its record."""
    for name in (recording.SLOTS, recording.UPDATE, recording.TRUST):
        copy = now.files.get(name + recording.COPY)
        if copy is None or copy == scenarios.BAD_COPY:  # damaged before the plan began
            continue
        held = recording.unsealed(copy)
        assert held is not None, f"P4: the copy of {name} is torn: {copy!r}"
        if name == recording.SLOTS:
            check_slots(now, json.loads(held)["slots"], name + recording.COPY)
        elif name == recording.UPDATE:
            floor = json.loads(held)["floor"]
            lowered = now.by_permit and floor == values.PERMIT.sequence
            assert floor >= now.floor or lowered, f"P4: the copy has a lower floor than {now.floor}"


def check_crashed(host: Host, tree: disk.Tree, before: View, scenario: Scenario, armed: bool) -> View:
    """What holds besides in every tree that a cut leaves: the way back is there, and the timer before the switch."""
    now = check_always(host, tree, before)
    linked = tree[host.product.entrypoint].startswith(disk.LINK)
    if now.record == "none" and before.record != "none" and scenario.last[0]:
        said = (now.last["state"], now.last["code"]) if now.last is not None else ("", "")
        assert said == scenario.last, f"the trial is over, and what is known of its end is {said}"
    if now.record == "trial.revert" and now.current == now.good and scenario.last[1] != codes.DID_NOT_START:
        assert now.files["trial.revert"].endswith(f"REASON={scenario.last[1]}\n".encode()), "nobody knows why any more"
    if not scenario.orderly or not linked or now.current in {None, now.good} or now.record == "trial.confirm":
        return now
    assert now.record != "none", f"current is {now.current}, good is {now.good}, and no record says why"
    assert now.files[now.record].startswith(trial.render_trial(scenario.trial)), f"{now.record} is torn"
    assert now.files.get("trial.log", b"").startswith(trial.LOG_HEADER), "the log's first block is not there"
    assert _link(now.files, "back") == now.good, "I2: going back would need space"
    assert not host.helped or now.good in {_link(now.files, "helper"), _link(now.files, "helper.back")}, (
        "I2: the helper's going back would need space"
    )
    assert armed, "I4: current moved before the timer was armed"
    return now


def check_done(host: Host, tree: disk.Tree, scenario: Scenario) -> None:
    """What the whole plan has made."""
    now = view(host, tree)
    for path, data in scenario.end.items():
        assert tree.get(path, b"") == data, f"the plan is carried out, and {path} is {tree.get(path)!r}"
    for name in (recording.SLOTS, recording.UPDATE):
        assert now.files.get(name + recording.COPY) == recording.sealed(now.files[name]), (
            f"the copy of {name} was forgotten"
        )
    said = (now.last["state"], now.last["code"]) if now.last is not None else ("", "")
    assert said == scenario.last, f"the plan is carried out, and the last trial is {said}"
    assert (now.last or {}).get("why") != ""
    kept = max(view(host, scenario.tree).floor, host.product.base_floor)
    assert now.floor == (2 if scenario.last[0] == "confirmed" else kept), f"the floor is {now.floor}"
    assert set(now.failed) == ({"1.1.0"} if scenario.last[0] == "rolled-back" else set())


def check_permit(now: View, crashed: View, scenario: Scenario, how: str) -> None:
    """A permit serves for one swap, whatever comes of it, and a swap that never was gives it back."""
    if scenario.trial != values.DOWNWARD:
        assert not now.by_permit
        return
    assert (now.allowed is not None) == (how == "await"), f"{how}, and {now.allowed} is allowed"
    used = {"await": True, "confirmed": True, "rolled-back": True, "abandoned": False}.get(how, crashed.by_permit)
    assert now.by_permit == used, f"{how}, and the permit is {'' if now.by_permit else 'not '}used up"


def check_helper(host: Host, now: View, how: str) -> None:
    """Settled, the helper starts what `current` names, in a trial too; a link to go back by is there in a trial alone."""
    if not host.helped:
        assert not {"helper", "helper.back"} & now.names
        return
    assert _link(now.files, "helper") == now.current or now.current is None, f"{how}, and the helper was left behind"
    assert how in {"await", "none"} or "helper.back" not in now.names, f"{how}, and helper.back is left"  # else tidied
    assert how != "await" or _link(now.files, "helper.back") == _link(now.files, "back")


class Expected(NamedTuple):
    """How what is in flight must end, and with which codes; none: any code will do."""

    how: str
    codes: FrozenSet[str] = frozenset()


def expected(now: View, timing: Timing, unit: Unit, entrypoint: bytes) -> Expected:
    """What section 4 of node.md says about this tree, told once more from scratch."""
    if now.current is None:
        return Expected("none")
    if now.record == "trial.confirm":
        return Expected("confirmed", frozenset({"ok"}))
    if now.record == "trial.revert":
        return _expected_of_revert(now.files["trial.revert"])
    if now.record == "none":
        if now.current == now.good or not entrypoint.startswith(disk.LINK):
            return Expected("none")
        return Expected("rolled-back", frozenset({"lost-record"}))
    pending = trial.parse_trial(now.files["trial"])
    if now.current == now.good:
        if not now.was_started:
            return Expected("abandoned", frozenset({"never-started"}))
        return Expected("rolled-back", frozenset({"did-not-start", "bad-record", "deadline-passed"}))
    if pending is None:
        return Expected("rolled-back", frozenset({"bad-record"}))
    rebooted = timing.now.boot_id != pending.boot_id
    if rebooted and pending.boots_left == 0:
        return Expected("rolled-back", frozenset({"no-boots-left"}))
    if not rebooted and timing.now.uptime_s >= pending.deadline_s:
        return Expected("rolled-back", frozenset({"deadline-passed"}))
    failed = unit in {FAILED, HELPER_FAILED}
    return Expected("rolled-back", frozenset({"unit-failed"})) if failed else Expected("await")


def _expected_of_revert(record: bytes) -> Expected:
    reason = record.rpartition(b"REASON=")[2].decode("ascii", "replace")
    if not reason.endswith("\n") or reason[:-1] not in codes.CODES:
        return Expected("rolled-back", frozenset({"did-not-start"}))
    return Expected("abandoned" if reason == "never-started\n" else "rolled-back", frozenset({reason[:-1]}))


class Walker:
    """Follows what happens to trees on one host; runs of the guard and of settling are remembered by what they read."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.guard_runs = 0
        self.settlings = 0
        self._guarded: Dict[Tuple[object, ...], disk.Tree] = {}
        self._settled: Dict[Tuple[object, ...], disk.Tree] = {}

    def _is_read_by_the_guard(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return (
            path.startswith(self.host.product.slots_dir)
            and (name in {"current", "good", "back", "helper", "helper.back"} or name.startswith("trial"))
            and not name.endswith(".tmp")
            and settle.ASIDE not in name
        )

    def guard(self, tree: disk.Tree, mode: str, clock: settle.Clock, unit: Unit) -> disk.Tree:
        """The tree after one run of the guard. It neither reads nor changes anything but links and trial files."""
        read: disk.Tree = {}
        others: disk.Tree = {}
        for path, data in tree.items():
            (read if self._is_read_by_the_guard(path) else others)[path] = data
        slots = tuple(path for path in others if path.rpartition("/")[2] in {"a", "b"})
        key = (frozenset(read.items()), slots, mode, clock, unit)
        if key not in self._guarded:
            self.host.put(tree)
            ran = self.host.guard(mode, clock, unit)
            assert ran.status == 0, ran
            found = self.host.tree()
            after = {path: data for path, data in found.items() if self._is_read_by_the_guard(path)}
            assert {path: data for path, data in found.items() if path not in after} == others, "the guard touched more"
            self._guarded[key] = after
            self.guard_runs += 1
        return {**others, **self._guarded[key]}

    def settled(self, tree: disk.Tree, clock: settle.Clock, before: View) -> disk.Tree:
        """The tree after settling, looked at after every operation; settling again changes nothing (I9)."""
        key = (frozenset(tree.items()), clock, before.floor)
        if key not in self._settled:
            self.host.put(tree)
            self.settlings += 1
            self.host.settle(clock, lambda: self._step(before))
            self._settled[key] = self.host.tree()
            assert self.host.settle(clock, lambda: None) == [], "I9: settling again did something"
        return self._settled[key]

    def _step(self, before: View) -> None:
        check_always(self.host, self.host.tree(), before)

    def follow(self, tree: disk.Tree, scenario: Scenario, timing: Timing, order: str, before: View) -> disk.Tree:
        """From a crash to the end: the guard, settling, and where the trial goes on, both of its ends.

        Returns what was left when everything was settled.
        """
        crashed = view(self.host, tree)
        entry = tree[self.host.product.entrypoint]
        unit = RUNS
        for mode, unit in orders(self.host)[order]:  # the last unit is what the guard saw
            tree = self.guard(tree, mode, timing.now, unit)
            check_always(self.host, tree, before)
        tree = self.settled(tree, timing.now, before)
        end = expected(crashed, timing, unit, entry)
        self.check_end(tree, end, crashed, scenario)
        if end.how == "await":
            self.go_on(tree, scenario, timing, crashed)
        else:
            self.check_quiet(tree, timing.now)
        if self.host.product.layout == products.VERSIONS:
            self.check_swept(tree)
        return tree

    def go_on(self, tree: disk.Tree, scenario: Scenario, timing: Timing, crashed: View) -> None:
        """A trial that goes on ends in both ways: nobody confirms, or somebody does."""
        renewed = self.guard(tree, "tick", timing.now, RUNS)  # in a new boot the guard gives it its length again
        passed = Expected("rolled-back", frozenset({"deadline-passed"}))
        for late in (renewed, self.guard(renewed, "tick", timing.over, RUNS)):
            self.check_end(self.settled(late, timing.over, crashed), passed, crashed, scenario)
        self.host.put(tree)
        look = self.host.look(timing.now)
        assert look.settlement.trial is not None
        end = plans.End(codes.OK, "somebody confirmed", scenarios.AT)
        plan = plans.plan_confirm(self.host.product, look.state, look.settlement.trial, end)
        self.host.apply(plan, "confirm", lambda: self._step(crashed), {})
        confirmed = self.host.tree()
        self.check_end(confirmed, Expected("confirmed", frozenset({"ok"})), crashed, scenario)
        self.check_quiet(confirmed, timing.over)

    def check_swept(self, tree: disk.Tree) -> None:
        """Nothing is left beside whole trees and their listings."""
        top = self.host.product.path(products.TREES) + "/"
        names = {path[len(top) :] for path in tree if path.startswith(top)}
        whole = {name for name in names if name + ops.LISTING in names}
        assert names == whole | {name + ops.LISTING for name in whole}, f"left among the trees: {sorted(names)}"

    def check_quiet(self, tree: disk.Tree, clock: settle.Clock) -> None:
        """After the end the guard changes nothing, whenever it is run; a missing `current` it makes once."""
        if view(self.host, tree).current is None:
            tree = self.guard(tree, "start", clock, STOPPED)
        for mode, unit in (("start", STOPPED), ("tick", RUNS), ("failed", FAILED)):
            assert self.guard(tree, mode, clock, unit) == tree, f"guard {mode} changed a host at rest"

    def check_end(self, tree: disk.Tree, end: Expected, crashed: View, scenario: Scenario) -> None:
        """What is left when everything is settled."""
        how = end.how
        now = check_always(self.host, tree, crashed)
        check_helper(self.host, now, how)
        check_permit(now, crashed, scenario, how)
        if how == "await":
            assert now.record == "trial"
            assert (now.current, now.good) == (scenario.trial.to_slot, scenario.trial.from_slot)
            assert now.last == crashed.last
            return
        assert now.record == "none", f"{how}, but {now.record} is left"
        assert now.current in {now.good, None}, f"{how}, but current is {now.current} and good is {now.good}"
        if how == "none":
            assert (now.last, now.failed, now.floor) == (crashed.last, crashed.failed, crashed.floor)
            assert now.current is not None or crashed.current is None
            return
        assert now.current is not None
        assert now.last is not None
        assert now.last["state"] == how, f"{how} was expected, {now.last} is recorded"
        assert now.last["to"] == "1.1.0"
        assert now.last["why"]
        assert now.last["code"] in end.codes, f"the code is {now.last['code']}, not one of {set(end.codes)}"
        if how == "confirmed":
            assert (now.good, now.floor) == ("b", 2)
            assert "1.1.0" not in now.failed
            return
        assert (now.good, now.floor) == ("a", crashed.floor)
        assert ("1.1.0" in now.failed) == (how == "rolled-back"), now.failed
        if how == "rolled-back":
            failure = now.failed["1.1.0"]
            assert (failure["code"], failure["why"]) == (now.last["code"], now.last["why"])
            assert failure["sha256"] == values.digest("1.1.0")

    def next_update(self, tree: disk.Tree, clock: settle.Clock) -> None:
        """Whatever a crash left lying about, the next update goes through."""
        self.host.put(tree)
        before = view(self.host, tree)
        product = self.host.product

        version = "1.1.0" if before.floor <= values.SEQUENCE["1.1.0"] else "1.3.0"
        sources = {**scenarios.SOURCES, plans.STAGED: values.BYTES[version]}

        def apply(plan: ops.Plan) -> None:
            self.host.apply(plan, "next", lambda: None, sources)
            self._step(before)

        if before.current is None or not tree[product.entrypoint].startswith(disk.LINK):
            record = values.record("0.9.0-by-hand")
            apply(self.host.adopting(self.host.look(clock).state, record))
        found = self.host.look(clock).state
        assert found.broken is None
        assert found.current is not None
        apply(self.host.staging(found, values.record(version), 9))
        again = values.TRIAL._replace(
            trial_id="0123456789abcdef",
            to_version=version,
            sequence=values.SEQUENCE[version],
            to_sha256=values.digest(version),
            from_slot=found.current,
            to_slot=plans.free_slot(found),
            boot_id=clock.boot_id,
            deadline_s=clock.uptime_s + values.LENGTH_S,
        )
        apply(plans.plan_swap(product, again))
        look = self.host.look(clock)
        assert look.settlement == settle.Settlement(settle.Action.AWAIT, codes.TRIAL_PENDING, again)
        apply(plans.plan_confirm(product, look.state, again, plans.End(codes.OK, "confirmed", scenarios.AT)))
        after = view(self.host, self.host.tree())
        assert (after.current, after.good, after.record) == (again.to_slot, again.to_slot, "none")
        assert after.last is not None
        assert (after.last["id"], after.last["state"]) == (again.trial_id, "confirmed")
        assert not after.names & {"back", "trial.log", "trial.sources"}
        check_helper(self.host, after, "confirmed")
