# SPDX-License-Identifier: GPL-3.0-or-later
"""A host made of one real directory: the guard is run by sh on it, and plans by the agent's own executor.

Nothing is mocked: the guard finds a `systemctl` of ours on its PATH, which answers from a file and writes down what it
was asked; the executor gets callables for the timer and the restart. A state is put in place as a tree and read back.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from core.crash import disk, values

from slotcore import filling, links, ops, plans, recording, records, settle
from slotcore import product as products
from slotward import executor, manager, placing, sweeping, trees
from slotward import host as agent_host

GUARD = pathlib.Path(__file__).parents[3] / "agent" / "src" / "slotward" / "resources" / "guard"
SHELLS: Dict[str, Tuple[str, ...]] = {"dash": ("dash",), "busybox": ("busybox", "sh")}

_SYSTEMCTL = """#!/bin/sh
printf '%s\\n' "$*" >>"${0%/bin/*}/calls"
case $1 in show) exec cat "${0%/bin/*}/unit" ;; esac
"""
# Passes on to the real tool, but at one call kills the guard, or waits until the file `paused` is gone.
_CUT = """#!/bin/sh
root=${0%%/cut/*}
read -r left what <"$root/left"
echo $((left - 1)) "$what" >"$root/left"
if [ "$left" -eq 0 ] && [ "$what" = kill ]; then
    kill -9 "$PPID"
    exit 1
elif [ "$left" -eq 0 ]; then
    : >"$root/paused"
    while [ -e "$root/paused" ]; do sleep 0.002; done
fi
exec /usr/bin/%s "$@"
"""
CUT_TOOLS = ("mv", "rm", "ln", "sync")


class Unit(NamedTuple):
    """What systemd says of the unit, as far as the guard asks."""

    active: str
    result: str = "success"
    main_exit: int = 0
    active_exit: int = 0
    sub: str = ""
    job: str = ""
    """The number of the job that systemd has for it: it has one when the guard runs before its start."""
    helper_failed: bool = False
    """Whether its helper has failed by itself; else that runs."""

    def shown(self, helped: bool = False) -> str:
        """The answer of `systemctl show` about the unit, its helper where it has one, and the timer."""
        helper = (FAILED if self.helper_failed else RUNS)._block() + "\n" if helped else ""
        return f"{self._block()}\n{helper}ActiveState=active\n"

    def _block(self) -> str:
        stamps = {
            "ActiveExitTimestampMonotonic": self.active_exit,
            "InactiveExitTimestampMonotonic": 900_000_000,
            "ExecMainStartTimestampMonotonic": 900_000_000,
            "ExecMainExitTimestampMonotonic": self.main_exit,
        }
        facts = {"Restart": "always", "NRestarts": 0, "Result": self.result, **stamps, "SubState": self.sub}
        facts["ActiveState"], facts["Job"] = self.active, self.job
        return "".join(f"{key}={value}\n" for key, value in facts.items())


RUNS = Unit("active")
STOPPED = Unit("inactive")
FAILED = Unit("failed", "exit-code", 1_050_000_000, 1_050_000_001)
HELPER_FAILED = RUNS._replace(helper_failed=True)


def crashed(at_s: int, more_us: int = 0) -> Unit:
    """The main process has exited by itself at that time, and systemd is about to start it again."""
    at_us = at_s * 1_000_000 + more_us
    return Unit("activating", "exit-code", at_us, at_us + 1, "auto-restart", "7")


class Ran(NamedTuple):
    """What one run of the guard said and asked of systemd."""

    status: int
    calls: Tuple[str, ...]
    stderr: str


class Host:
    """The directory, the product whose slots are in it, and the programs around them."""

    def __init__(
        self, shell: str = "dash", root: Optional[str] = None, helped: bool = False, layout: str = products.AB
    ) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = root or tempfile.mkdtemp(prefix="slotward-crash-", dir=memory)
        self.shell = SHELLS[shell]
        self.restarts = 0
        self.helped = helped
        plain = values.TREES if layout == products.VERSIONS else values.PRODUCT
        self.product = (values.HELPED if helped else plain)._replace(
            slots_dir=f"{self.root}/tree/slots", entrypoint=f"{self.root}/tree/bin/probe"
        )
        for name in ("bin", "lib/guard.d", "proc/sys/kernel/random", "tree", "cut"):
            os.makedirs(f"{self.root}/{name}")
        shutil.copy(GUARD, f"{self.root}/lib/guard")
        helper = f"HELPER={self.product.helper_unit}\n" if helped else ""
        self._write("lib/guard.d/probe.env", f"UNIT={self.product.unit}\nSLOTS={self.product.slots_dir}\n{helper}")
        self._program("bin/systemctl", _SYSTEMCTL)
        for tool in CUT_TOOLS:
            self._program(f"cut/{tool}", _CUT % tool)

    def facts(self, *lines: str) -> None:
        """Have the guard know more of the product than its unit and slots."""
        text = "\n".join((f"UNIT={self.product.unit}\nSLOTS={self.product.slots_dir}", *lines, ""))
        self._write("lib/guard.d/probe.env", text)

    def _write(self, name: str, text: str) -> None:
        """In one step: a guard that runs already reads the old text or the new one, never the half of it."""
        path = pathlib.Path(self.root, name)
        beside = path.with_name(path.name + ".new")
        beside.write_text(text)
        beside.replace(path)

    def _program(self, name: str, text: str) -> None:
        self._write(name, text)
        os.chmod(f"{self.root}/{name}", 0o755)

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.root)

    def put(self, tree: Mapping[str, bytes]) -> None:
        """Make the tree hold exactly `tree`."""
        shutil.rmtree(f"{self.root}/tree")
        os.makedirs(self.product.slots_dir)
        os.makedirs(os.path.dirname(self.product.entrypoint))
        trees_there = {path: data for path, data in tree.items() if data.startswith(disk.TREE)}
        programs = {f"{path}/{self.product.program}": data[len(disk.TREE) :] for path, data in trees_there.items()}
        files = {path: data for path, data in tree.items() if path not in trees_there}
        for path, data in {**files, **programs}.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if data.startswith(disk.LINK):
                os.symlink(data[len(disk.LINK) :].decode(), path)
                continue
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, 0o755 if path.rpartition("/")[2] in {"a", "b", "probe"} else 0o644)

    def tree(self) -> disk.Tree:
        """What is there now; the lock is left out."""
        found: disk.Tree = {}
        places = [self.product.slots_dir, os.path.dirname(self.product.entrypoint)]
        while places:
            for entry in os.scandir(places.pop(0)):
                if entry.name == products.TREES:
                    places.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    found[entry.path] = disk.TREE + pathlib.Path(entry.path, self.product.program).read_bytes()
                elif entry.is_symlink():
                    found[entry.path] = disk.LINK + os.readlink(entry.path).encode()
                elif entry.name != "lock":
                    with open(entry.path, "rb") as file:
                        found[entry.path] = file.read()
        return found

    def set_clock(self, clock: settle.Clock) -> None:
        """What the guard reads as /proc."""
        self._write("proc/uptime", f"{clock.uptime_s}.37 99.00\n")
        self._write("proc/sys/kernel/random/boot_id", clock.boot_id + "\n")

    def set_unit(self, unit: Unit) -> None:
        """What systemd says from now on."""
        self._write("unit", unit.shown(self.helped))

    def asked(self) -> List[str]:
        """What systemd was asked since this was called last, or a guard began; it is forgotten."""
        calls = pathlib.Path(self.root, "calls").read_text().splitlines()
        self._write("calls", "")
        return calls

    def begin_guard(
        self, mode: str, clock: settle.Clock, unit: Unit = RUNS, at: Optional[int] = None, what: str = "kill"
    ) -> subprocess.Popen[str]:
        """Start the guard; at that call of a tool that changes something it is killed, or pauses."""
        self.set_clock(clock)
        self.set_unit(unit)
        self._write("calls", "")
        path = f"{self.root}/bin:/usr/bin:/bin"
        if at is not None:
            self._write("left", f"{at} {what}\n")
            path = f"{self.root}/cut:{path}"
        return subprocess.Popen(
            [*self.shell, f"{self.root}/lib/guard", mode, self.product.name],
            env={"PATH": path, "GUARD_PROC": f"{self.root}/proc"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def guard(self, mode: str, clock: settle.Clock, unit: Unit = RUNS, cut_at: Optional[int] = None) -> Ran:
        """Run the guard; with `cut_at` it is killed at that call of a tool that changes something."""
        return self.end_guard(self.begin_guard(mode, clock, unit, cut_at))

    def end_guard(self, running: subprocess.Popen[str]) -> Ran:
        """Wait for the guard."""
        _out, said = running.communicate(timeout=60)
        calls = pathlib.Path(self.root, "calls").read_text().splitlines()
        return Ran(running.returncode, tuple(calls), said)

    def is_paused(self, running: subprocess.Popen[str]) -> bool:
        """Wait until the guard pauses; False when it ends without."""
        while running.poll() is None:
            if os.path.exists(f"{self.root}/paused"):
                return True
            time.sleep(0.001)
        return False

    def go_on(self) -> None:
        """Let a paused guard go on."""
        os.unlink(f"{self.root}/paused")

    def executor(self, sources: Mapping[str, bytes]) -> executor.Executor:
        """The agent's executor, with the effects that are not on the disk given as callables."""

        def copy(operation: ops.Copy) -> None:
            with open(operation.path, "wb") as file:
                file.write(sources[operation.source])
            os.chmod(operation.path, 0o755)

        def restart() -> None:
            self.restarts += 1

        def nothing(*_arguments: object) -> None:
            return

        def unpack(operation: ops.Unpack) -> None:
            staged = pathlib.Path(self.root, "staged")
            staged.write_bytes(sources[operation.source])
            with open(staged, "rb") as file:
                trees.make(self.product, operation, file.fileno())

        return executor.Executor(copy, nothing, nothing, restart, restart, nothing, unpack, nothing)

    def staging(self, state: settle.State, record: records.SlotRecord, newest_issued: int) -> ops.Plan:
        """The plan that brings a release into the free slot, as the agent makes it."""
        source = filling.Source(plans.STAGED, kept=placing.tree_of(self.product, state, record))
        return plans.plan_stage(self.product, state, record, newest_issued, source)

    def adopting(self, state: settle.State, record: records.SlotRecord) -> ops.Plan:
        """The plan that adopts the file at the entrypoint."""
        kept = placing.tree_of(self.product, state, record)
        return plans.plan_adopt(self.product, state, record, filling.Source(plans.ENTRYPOINT, kept=kept))

    def look(self, clock: settle.Clock) -> manager.Look:
        """The agent's look at the host, by a clock of ours."""
        state = agent_host.read_state(self.product)
        return manager.Look(state, clock, settle.decide(state, clock))

    def settling(self, clock: settle.Clock) -> Tuple[str, ops.Plan]:
        """The next plan of settling, and its name: what is broken comes first, the helper last, as in `settle_now`."""
        look = self.look(clock)
        restore = recording.plan_restore(self.product, look.state, values.AT)
        name, plan = ("restore", restore) if restore else manager.settling_plan(self.product, look)
        return (name, plan) if plan else ("follow", links.plan_follow(self.product, look.state))

    def settling_plans(self, clock: settle.Clock) -> Iterator[ops.Plan]:
        """What settling tries one after the other: a record that cannot be restored keeps nothing from going back."""
        yield recording.plan_restore(self.product, self.look(clock).state, values.AT)
        yield manager.settling_plan(self.product, self.look(clock))[1]
        yield links.plan_follow(self.product, self.look(clock).state)

    def settling_plan(self, clock: settle.Clock) -> ops.Plan:
        """The operations that settle what is in flight."""
        return self.settling(clock)[1]

    def apply(self, plan: ops.Plan, name: str, step: Callable[[], None], sources: Mapping[str, bytes]) -> None:
        """Carry out a plan, looking at the host after each operation."""
        acting = self.executor(sources)
        for operation in plan:
            acting.apply((operation,), name)
            step()

    def settle(self, clock: settle.Clock, step: Callable[[], None]) -> List[str]:
        """Settle until nothing is left to settle; what was done."""
        done: List[str] = []
        while len(done) < 4:
            name, plan = self.settling(clock)
            if not plan:
                if self.product.layout == products.VERSIONS:
                    sweeping.sweep(self.product, self.look(clock).state)
                    step()
                return done
            self.apply(plan, name, step, {})
            done.append(name)
        raise AssertionError(f"settling never ends: {done}")


def mapped(product: products.Product, tree: Mapping[str, bytes]) -> disk.Tree:
    """A tree of short names (`slots/a`, `bin/probe`) as the paths of a product; `@` in a link is the slots directory.

    Where the product has a helper, its links are as the tree says, else as those of the daemon beside them.
    """
    top = os.path.dirname(product.slots_dir)
    both = in_trees(tree) if product.layout == products.VERSIONS else dict(tree)
    for name, other in (("slots/current", "slots/helper"), ("slots/back", "slots/helper.back")):
        if product.helper_unit and name in tree:
            both.setdefault(other, tree[name])
    return {f"{top}/{name}": data.replace(b"->@", b"->" + product.slots_dir.encode()) for name, data in both.items()}


def in_trees(tree: Mapping[str, bytes]) -> disk.Tree:
    """The same with a tree, a listing and a link for each slot that holds a version; what holds another thing stays."""
    found: disk.Tree = {}
    versions = {data: version for version, data in values.BYTES.items()}
    for name, data in tree.items():
        if name == "bin/probe" and data.startswith(disk.LINK):
            found[name] = data + b"/probe"
        elif name in {"slots/a", "slots/b"} and data in versions:
            place = f"slots/{products.tree_of(versions[data])}"
            found[name] = disk.LINK + products.tree_of(versions[data]).encode()
            found[place] = disk.TREE + data
            found[place + ops.LISTING] = values.listing(versions[data])
        else:
            found[name] = data
    return found
