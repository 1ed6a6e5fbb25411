# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be under way when the power goes: a tree before, and the plan that changes it."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from core.crash import disk, values
from core.crash.host import Host, mapped
from core.crash.values import BYTES, IN_TIME, LENGTH_S, TRIAL

from slotcore import codes, ops, plans, recording, records, settle, trial, trust_plans
from slotcore import trust_record as trusts

AT = values.AT
SOURCES: Mapping[str, bytes] = {plans.STAGED: BYTES["1.1.0"], plans.ENTRYPOINT: BYTES["0.9.0-by-hand"]}
SOURCES_OF_ALL: Mapping[str, bytes] = {**BYTES, **SOURCES}
LINKED = b"->@/current"


MARK = "bin/damaged"
"""A file of this name says that the host's records were damaged before the plan began."""
BAD_COPY = b"sha256 " + b"0" * 64 + b"\n{}\n"
BAD_COPIES: Mapping[str, bytes] = {"torn": BAD_COPY, "missing": b""}
DAMAGES: Mapping[str, Mapping[str, Optional[bytes]]] = {
    "torn floor": {"update.json": b'{"spec":1,"flo'},
    "empty floor": {"update.json": b""},
    "lost floor": {"update.json": None},
    "another spec": {"update.json": b'{"spec":2,"floor":0,"foreign":1}\n'},
    "other fields": {"update.json": b'{"spec":1,"floor":0,"foreign":1}\n'},
    "torn slots": {"slots.json": b'{"spec":1,"slots":{"a"'},
    "lost slots": {"slots.json": None},
    "both torn": {"update.json": b"\0" * 40, "slots.json": b"\0" * 40},
    "one torn, one lost": {"update.json": b"\xff", "slots.json": None},
}


class Timing(NamedTuple):
    """When the host is looked at again, and when a trial that is still in time then would be over."""

    name: str
    now: settle.Clock
    over: settle.Clock


SOON = Timing("soon", IN_TIME, values.OVER)
LATE = Timing("late", values.OVER, values.OVER)
NEW_BOOT = Timing("new boot", values.REBOOTED, settle.Clock(values.REBOOTED.uptime_s + LENGTH_S, values.NEXT_BOOT))
TIMINGS = (SOON, LATE, NEW_BOOT)


class Scenario(NamedTuple):
    """A tree, the plan at work on it, and the trial that it is about."""

    name: str
    tree: disk.Tree
    plan: ops.Plan
    end: disk.Tree
    """Names that have these contents when the whole plan was carried out; empty contents: the name is gone."""
    last: Tuple[str, str]
    """State and code of `last` then; empty when no trial has ended."""
    trial: trial.Trial
    orderly: bool
    """Whether the trial record is sound and there for as long as current is not good."""


def _slots(**versions: str) -> bytes:
    return records.render_slots(values.slots(**versions))


def installed(**more: bytes) -> disk.Tree:
    """Version 1.0.0 in slot a, good and running; `more` are names in the slots directory, `_` for a dot."""
    tree = {
        "bin/probe": LINKED,
        "slots/a": BYTES["1.0.0"],
        "slots/good": b"->a",
        "slots/current": b"->a",
        "slots/slots.json": _slots(a="1.0.0"),
        "slots/update.json": records.render_update(records.Update(floor=1, newest_issued=5)),
    }
    tree.update({f"slots/{name.replace('_', '.')}": data for name, data in more.items()})
    for name in ("slots/slots.json", "slots/update.json"):
        tree.setdefault(name + recording.COPY, recording.sealed(tree[name]))
    return tree


def staged(**more: bytes) -> disk.Tree:
    """As installed, with 1.1.0 verified in slot b."""
    return installed(**{"b": BYTES["1.1.0"], "slots_json": _slots(a="1.0.0", b="1.1.0"), **more})


def on_trial(pending: trial.Trial = TRIAL, /, **more: bytes) -> disk.Tree:
    """1.1.0 on trial and started."""
    found = {"current": b"->b", "back": b"->a", "trial": trial.render_trial(pending), "trial_log": values.STARTED}
    return staged(**{**found, **more})


def above(**more: bytes) -> disk.Tree:
    """1.2.0 confirmed in slot a, and 1.1.0 verified in slot b, below the floor."""
    found = {"a": BYTES["1.2.0"], "slots_json": _slots(a="1.2.0", b="1.1.0"), "update_json": _floor(3), **more}
    return staged(**found)


def permitted(allowed: bool = True, **more: bytes) -> disk.Tree:
    """1.1.0 on trial by a permit; or, not `allowed` any more, after what it allowed was forgotten."""
    trust = trusts.Trust().using(values.PERMIT, AT)
    held = trusts.render((trust if allowed else trust.ended(swapped=True))._replace(generation=1))
    found = {"current": b"->b", "back": b"->a", "trial": trial.render_trial(values.DOWNWARD), **more}
    found = {"trial_log": values.STARTED, "update_json": _floor(3, trust=1), "trust_json": held, **found}
    tree = above(**found)
    tree["slots/trust.json" + recording.COPY] = recording.sealed(tree["slots/trust.json"])
    return tree


def _floor(floor: int, trust: int = 0) -> bytes:
    return records.render_update(records.Update(floor=floor, newest_issued=5, trust=trust))


def claimed_from(tree: disk.Tree, name: str, reason: bytes = b"") -> disk.Tree:
    """A tree whose trial's end was claimed under `name`."""
    tree[f"slots/{name}"] = tree.pop("slots/trial") + reason
    return tree


def claimed(name: str, reason: bytes = b"", **more: bytes) -> disk.Tree:
    """A trial whose end was claimed under `name`."""
    return claimed_from(on_trial(**more), name, reason)


def _state(host: Host, tree: disk.Tree) -> settle.State:
    host.put(mapped(host.product, tree))
    return host.look(IN_TIME).state


GONE: disk.Tree = {
    f"slots/{name}": b""
    for name in ("trial", "trial.confirm", "trial.revert", "trial.log", "trial.sources", "back", "helper.back")
}
ON_NEW: disk.Tree = {**GONE, "slots/current": b"->b", "slots/good": b"->b"}
ON_OLD: disk.Tree = {**GONE, "slots/current": b"->a", "slots/good": b"->a"}


def all_of(host: Host) -> Dict[str, Scenario]:
    """Every scenario, with its plan as made from the state in which it begins."""
    return {**_of_updates(host), **_of_trust(host)}


def _of_updates(host: Host) -> Dict[str, Scenario]:
    product = host.product
    found: Dict[str, Scenario] = {}

    def add(
        name: str,
        tree: disk.Tree,
        plan: ops.Plan,
        end: disk.Tree,
        last: Tuple[str, str] = ("", ""),
        pending: trial.Trial = TRIAL,
        orderly: bool = True,
    ) -> None:
        tree = mapped(product, tree)
        found[name] = Scenario(name, tree, plan, mapped(product, end), last, pending, orderly)

    def end(code: str) -> plans.End:
        return plans.End(code, f"because of {code}", AT)

    by_hand: disk.Tree = {"bin/probe": BYTES["0.9.0-by-hand"]}
    for name, tree, slot in (
        ("adopt", by_hand, "a"),
        ("adopt after a cut adopt", {**by_hand, **without(installed(), "current", "probe")}, "b"),
        ("adopt in use", {**staged(), **by_hand}, "b"),
        ("adopt in use, slot free", {**installed(), **by_hand}, "b"),
        ("adopt in use, leftovers", {**installed(back=b"->a", trial_log=values.STARTED), **by_hand}, "b"),
    ):
        plan = plans.plan_adopt(product, _state(host, tree), values.record("0.9.0-by-hand"))
        link = f"->{slot}".encode()
        held = {**_state(host, tree).slots, slot: values.record("0.9.0-by-hand")}
        done = {"slots/good": link, "slots/current": link, "bin/probe": LINKED, f"slots/{slot}": BYTES["0.9.0-by-hand"]}
        add(name, tree, plan, {**done, "slots/slots.json": records.render_slots(held)})
    for name, tree in (
        ("stage", installed()),
        ("stage over another", installed(b=BYTES["0.9.0-by-hand"], slots_json=_slots(a="1.0.0", b="0.9.0-by-hand"))),
        ("stage over an unknown file", installed(b=b"half of some")),
    ):
        noted = records.render_update(records.Update(floor=1, newest_issued=9))
        done = {"slots/b": BYTES["1.1.0"], "slots/slots.json": _slots(a="1.0.0", b="1.1.0"), "slots/update.json": noted}
        add(name, tree, plans.plan_stage(product, _state(host, tree), values.record("1.1.0"), 9), done)
    done = {
        "slots/back": b"->a",
        "slots/trial": values.RECORD,
        "slots/trial.log": trial.LOG_HEADER,
        "slots/current": b"->b",
    }
    add("swap", staged(), plans.plan_swap(product, TRIAL), done)
    leftovers = {"back": b"->b", "trial_log": values.STARTED, "trial_sources": b"0000000000000000 controller\n"}
    add("swap over leftovers", staged(**leftovers), plans.plan_swap(product, TRIAL), done)
    started = trial.LOG_HEADER + b"start %d\n" % (TRIAL.deadline_s - TRIAL.length_s)
    waited_for = plans.plan_swap(product, TRIAL, restart=False)
    add("swap before a start", staged(), waited_for, {**done, "slots/trial.log": started})
    last_boot = TRIAL._replace(boots_left=0)
    done = {**done, "slots/trial": trial.render_trial(last_boot)}
    add("swap without boots", staged(), plans.plan_swap(product, last_boot), done, pending=last_boot)
    sources = f"{TRIAL.trial_id} controller\n".encode()
    won = ("confirmed", codes.OK)
    for name, pending, tree in (
        ("confirm", TRIAL, on_trial()),
        ("confirm with sources", TRIAL, on_trial(trial_sources=sources)),
        ("confirm in the last boot", last_boot, on_trial(last_boot)),
    ):
        plan = plans.plan_confirm(product, _state(host, tree), pending, end(codes.OK))
        add(name, tree, plan, ON_NEW, won, pending)
    for name, known, code, tree in (
        ("go back", TRIAL, codes.OPERATOR, on_trial()),
        ("go back with sources", TRIAL, codes.OPERATOR, on_trial(trial_sources=sources)),
        ("go back, bad record", None, codes.BAD_RECORD, on_trial(trial=b"SPEC=1\n")),
        ("go back, lost record", None, codes.LOST_RECORD, without(on_trial(), "trial")),
    ):
        plan = plans.plan_go_back(product, _state(host, tree), known, end(code))
        add(name, tree, plan, ON_OLD, ("rolled-back", code), orderly=known is not None)
    tree = staged(back=b"->a", trial_log=trial.LOG_HEADER, trial=values.RECORD)
    plan = plans.plan_abandon(product, _state(host, tree), TRIAL, end(codes.NEVER_STARTED))
    add("abandon", tree, plan, ON_OLD, ("abandoned", codes.NEVER_STARTED))
    tree = without(on_trial(current=b"->a"), "back")
    plan = plans.plan_go_back(product, _state(host, tree), TRIAL, end(codes.DID_NOT_START))
    add("go back, moved by hand", tree, plan, ON_OLD, ("rolled-back", codes.DID_NOT_START))
    crash_loop = b"REASON=crash-loop\n"
    for name, tree, state, code in (
        ("finish revert", claimed("trial.revert", crash_loop), "rolled-back", codes.CRASH_LOOP),
        (
            "finish revert, moved",
            without(claimed("trial.revert", crash_loop, current=b"->a"), "back"),
            "rolled-back",
            codes.CRASH_LOOP,
        ),
        ("finish revert, no reason", claimed("trial.revert", b"REAS"), "rolled-back", codes.DID_NOT_START),
        (
            "finish revert, never started",
            claimed("trial.revert", b"REASON=never-started\n", current=b"->a"),
            "abandoned",
            codes.NEVER_STARTED,
        ),
        ("finish confirm", claimed("trial.confirm"), *won),
        ("finish confirm, good moved", claimed("trial.confirm", good=b"->b"), *won),
    ):
        _state(host, tree)
        add(name, tree, host.settling_plan(IN_TIME), ON_NEW if state == "confirmed" else ON_OLD, (state, code))
    tree = staged(**{**leftovers, "current_tmp": b"->b", "a_tmp": b"half of some"})
    plan = plans.plan_tidy(product, _state(host, tree), [name.rpartition("/")[2] for name in mapped(product, tree)])
    add("tidy", tree, plan, {**ON_OLD, "slots/current.tmp": b"", "slots/a.tmp": b""})
    for name, tree, what in (
        ("restore", staged(), "torn floor"),
        ("restore in a trial", on_trial(), "lost slots"),
        ("restore after a claim", claimed("trial.revert", crash_loop), "both torn"),
    ):
        broken = damaged(tree, what)
        add(name, broken, _restoring(host, broken), restored(what, tree))
    tree = {**staged(), **by_hand, "slots/good": b"->b"}
    _state(host, tree)
    done = {"slots/current": b"->b", "slots/good": b"->b", **({"slots/helper": b"->a"} if host.helped else {})}
    add("settle a cut adopt", tree, host.settling_plan(IN_TIME), done)  # the helper follows next
    return found


KEYS = trusts.Keys(1, 5, 9, ("sha256/" + "A" * 43 + "=",), 1, "0" * 64)


def _taking_keys(host: Host) -> Tuple[ops.Plan, disk.Tree]:
    """A key set takes the place of other pins, and with it goes the record of what they let in."""
    taken = trusts.Trust(0, KEYS)
    plan = trust_plans.plan_apply(host.product, _state(host, staged()), "b", taken)
    written = trusts.render(taken._replace(generation=1))
    return plan, {"slots/trust.json": written, "slots/slots.json": _slots(a="1.0.0")}


def _of_trust(host: Host) -> Dict[str, Scenario]:
    found: Dict[str, Scenario] = {}

    def add(name: str, tree: disk.Tree, plan: ops.Plan, end: disk.Tree, last: Tuple[str, str], by: trial.Trial) -> None:
        found[name] = Scenario(name, mapped(host.product, tree), plan, mapped(host.product, end), last, by, True)

    for name, tree, plan, state in _by_permit(host):
        code = {"confirmed": codes.OK, "rolled-back": codes.OPERATOR, "abandoned": codes.NEVER_STARTED}.get(state, "")
        ended = {"": done_by_permit(), "confirmed": ON_NEW}.get(state, ON_OLD)
        add(name, tree, plan, ended, (state, code), values.DOWNWARD)
    plan, ended = _taking_keys(host)
    add("take a key set", staged(), plan, ended, ("", ""), TRIAL)
    return found


def done_by_permit() -> disk.Tree:
    """What a swap by a permit has made."""
    names = ("trial", "trial.log", "current", "back", "trust.json")
    tree = permitted(trial_log=trial.LOG_HEADER)
    return {f"slots/{name}": tree[f"slots/{name}"] for name in names}


def _by_permit(host: Host) -> Iterator[Tuple[str, disk.Tree, ops.Plan, str]]:
    """Each step of a downgrade that a permit allows: its name, tree and plan, and how the trial ends by it."""
    product, pending = host.product, values.DOWNWARD
    ok, back = plans.End(codes.OK, "because of ok", AT), plans.End(codes.OPERATOR, "because of operator", AT)
    tree = above()
    using = trust_plans.plan_permitted(product, _state(host, tree), values.PERMIT, AT)
    yield "swap by permit", tree, plans.plan_swap(product, pending, using), ""
    tree = permitted()
    yield "confirm by permit", tree, plans.plan_confirm(product, _state(host, tree), pending, ok), "confirmed"
    tree = permitted()
    yield "go back by permit", tree, plans.plan_go_back(product, _state(host, tree), pending, back), "rolled-back"
    tree = permitted(current=b"->a", trial_log=trial.LOG_HEADER)
    never = back._replace(code=codes.NEVER_STARTED)
    yield "abandon by permit", tree, plans.plan_abandon(product, _state(host, tree), pending, never), "abandoned"
    last = records.Last(pending.trial_id, "confirmed", codes.OK, "because of ok", "1.2.0", "1.1.0", AT)
    update = records.Update(floor=2, newest_issued=5, last=last, trust=1)
    for name, tree in (
        ("finish confirm by permit", permitted()),
        ("finish confirm by permit, good moved", permitted(good=b"->b", update_json=records.render_update(update))),
        (
            "finish confirm by permit, all but the claim done",
            permitted(False, good=b"->b", update_json=records.render_update(update)),
        ),
    ):
        claim = without(claimed_from(tree, "trial.confirm"), "back")
        _state(host, claim)
        yield name, claim, host.settling_plan(IN_TIME), "confirmed"


def damaged(tree: disk.Tree, what: str, copy: Optional[bytes] = None) -> disk.Tree:
    """A tree with that damage to its records; `copy` takes the place of their copies, empty: they are missing."""
    found = {**tree, MARK: b"yes"}
    for name, data in DAMAGES[what].items():
        found.pop(f"slots/{name}")
        if data is not None:
            found[f"slots/{name}"] = data
        if copy is not None:
            found.pop(f"slots/{name}{recording.COPY}")
        if copy:
            found[f"slots/{name}{recording.COPY}"] = copy
    return found


def restored(what: str, tree: disk.Tree) -> disk.Tree:
    """What the records of a sound `tree` and what was set aside are when that damage was restored."""
    found = {f"slots/{name}": tree[f"slots/{name}"] for name in DAMAGES[what]}
    return {**found, **set_aside(what)}


def set_aside(what: str) -> disk.Tree:
    """What that damage leaves under other names."""
    left = {name: data for name, data in DAMAGES[what].items() if data is not None}
    return {f"slots/{name}{settle.ASIDE}{AT}": data for name, data in left.items()}


def _restoring(host: Host, tree: disk.Tree) -> ops.Plan:
    _state(host, tree)
    name, plan = host.settling(IN_TIME)
    return plan if name == "restore" else ()


def restorings(host: Host, copy: Optional[bytes] = None) -> Dict[str, Scenario]:
    """Every damage to the records in every state of a trial, with the plan of settling for it."""
    found: Dict[str, Scenario] = {}
    crash_loop = b"REASON=crash-loop\n"
    for when, tree in (
        ("at rest", staged()),
        ("on trial", on_trial()),
        ("never switched", staged(back=b"->a", trial_log=trial.LOG_HEADER, trial=values.RECORD)),
        ("going back", claimed("trial.revert", crash_loop)),
        ("confirming", claimed("trial.confirm")),
    ):
        for what in DAMAGES:
            broken = damaged(tree, what, copy)
            end = restored(what, tree) if copy is None else set_aside(what)
            plan = _restoring(host, broken)
            broken, end = mapped(host.product, broken), mapped(host.product, end)
            found[f"{what}, {when}"] = Scenario(f"{what}, {when}", broken, plan, end, ("", ""), TRIAL, True)
    return found


def without(tree: disk.Tree, *names: str) -> disk.Tree:
    """A tree without some names."""
    return {path: data for path, data in tree.items() if path.rpartition("/")[2] not in names}


def names() -> Tuple[str, ...]:
    """The names of the scenarios, for a test's parameters."""
    host = Host()
    try:
        return tuple(all_of(host))
    finally:
        host.remove()
