# SPDX-License-Identifier: GPL-3.0-or-later
"""One job with one fault in it: which calls there are, what the fault made of the job, and what the checker says then.

After the fault come, without any: settling, the checker; the job again, the checker, and the comparison with how the job
ends where nothing failed. Of a guard's job the guard comes again first, and must end by itself what it had to end (I2).
A trial that is still pending at the end is ended by the guard at its deadline. Where the fault left the same host as one
before it of the same job, to the byte, and all of this found nothing there, it is not done again: it could not differ.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from faults import hosts, jobs, tracing, zygote

MAIN, CHILDREN = "main", "children"
TRIES = 3
SHIM = """#!/bin/sh
read -r left <{place}/left
echo $((left - 1)) >{place}/left
[ "$left" -ne 1 ] || exec strace -o {place}/trace {words} {real} "$@"
exec {real} "$@"
"""
JOURNAL = """#!/bin/sh
echo '{"MESSAGE": "what the release says", "__MONOTONIC_TIMESTAMP": "1"}'
"""
"""In place of this machine's journal, which has nothing of ours."""
_CHANGING = """
rename renameat renameat2 fsync fdatasync sync write pwrite64 writev symlink symlinkat link linkat unlink unlinkat rmdir mkdir
mkdirat chmod fchmod fchmodat chown fchown fchownat ftruncate flock
"""
CHANGING = frozenset(_CHANGING.split())
"""Calls that change something, or make it last: their cases come first."""


class Case(NamedTuple):
    """One fault at one call of one process: the job's own, a program that it runs (`mv.2`: the second), or all others.

    The number is how many of that call on that path there were: it is the same in each run, as that of all of its name is not.
    """

    job: str
    process: str
    call: str
    number: int
    path: str
    fault: str

    def of(self) -> tracing.Call:
        """The call that it is about."""
        return tracing.Call(self.call, self.number, self.path)


class Ended(NamedTuple):
    """How a run under strace ended."""

    status: int
    said: str
    traced: str


class Bench:
    """The host, and what jobs are run with."""

    def __init__(self, top: pathlib.Path, releases: hosts.Releases) -> None:
        self.host = hosts.Host(top, releases)
        self.tools = top / "tools"
        self.tools.mkdir()
        self.host.environment["PATH"] = f"{self.tools}:{self.host.environment['PATH']}"
        self.trace, self.names = str(top / "trace"), ",".join(tracing.supported())
        archive = str(releases.directory / "agent")
        self.agent = zygote.Zygote(archive, self.host.environment, str(top / "out"))
        self.units = zygote.Listener(archive, self.host.environment, top / "units", hosts.FAKES / "systemd-run")
        self._tool("journalctl", JOURNAL)
        self._tool("systemd-run", self.units.shim)
        self.host.run_agent = self.run_agent
        self.jobs = {job.name: job for job in jobs.jobs(releases)}
        self._expected: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {}
        self._sound: Dict[Tuple[str, str, bool, bool], str] = {}
        self._when: Dict[Tuple[str, str, tracing.Call], int] = {}

    def close(self) -> None:
        """Leave nothing running."""
        self.host.ends()
        self.agent.close()
        self.units.close()

    def _tool(self, name: str, text: str) -> None:
        """Put a program in front of the one of that name."""
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    @contextlib.contextmanager
    def _units_as_programs(self) -> Iterator[None]:
        """Meanwhile what runs the agent in a unit starts it as a program: faults are for its processes too."""
        (self.tools / "systemd-run").unlink()
        try:
            yield
        finally:
            self._tool("systemd-run", self.units.shim)

    # -- running -------------------------------------------------------------------------------------------------

    def run_agent(self, *words: str, given: str = "") -> hosts.Ran:
        """The agent, without a fault."""
        self.agent.begin(["--config", hosts.CONFIG, *words], given)
        return hosts.Ran(self.agent.end(), self.agent.said())

    def run_guard(self, job: jobs.Job) -> hosts.Ran:
        """The guard, without a fault."""
        return self.host.run(self._guard(job))

    @staticmethod
    def _guard(job: jobs.Job) -> List[str]:
        return ["dash", hosts.GUARD, job.guard, "slotward"]

    def run(self, job: jobs.Job) -> hosts.Ran:
        """The job, without a fault."""
        if job.guard:
            return self.run_guard(job)
        return self.run_agent(*(job.again or job.words), given=job.given_again or job.given)

    def traced(self, job: jobs.Job, words: Sequence[str]) -> Ended:
        """The job, under strace with these words."""
        if job.guard:
            done = self.host.run(["strace", "-o", self.trace, *words, *self._guard(job)])
            return Ended(done.status, done.said, pathlib.Path(self.trace).read_text("utf-8", "replace"))
        pid = self.agent.begin(["--config", hosts.CONFIG, *job.words], job.given, hold=True)
        tracer = tracing.Tracer(pid, self.trace, words)
        self.agent.go()
        status = self.agent.end()
        return Ended(status, self.agent.said(), tracer.end())

    def prepare(self, job: jobs.Job) -> Dict[str, Any]:
        """Put its state in place; what the checker says of it."""
        jobs.put(self.host, job.state, job.left_s)
        if job.runs:
            self.host.starts_current()
        else:
            self.host.show(0, **dict(job.unit))
        return self.host.look()

    # -- what there is to fail -----------------------------------------------------------------------------------

    def cases(self, job: jobs.Job, faults: Sequence[str] = tracing.FAULTS) -> List[Case]:
        """Every call of the job in scope, with every fault."""
        dry = self._dry(job)
        found: Dict[Tuple[str, tracing.Call], None] = {}
        for process, lines in self._parts(job, dry.traced):
            calls = tracing.calls(lines, hosts.IN_SCOPE, _working(job))
            on_path = tracing.by_path(calls)
            self._when.update(((job.name, process, call), same.number) for call, same in zip(on_path, calls))
            found.update(dict.fromkeys((process, call) for call in on_path))
        return [
            Case(job.name, process, call.name, call.number, call.path, fault)
            for process, call in found
            for fault in faults
        ]

    def _dry(self, job: jobs.Job) -> Ended:
        """The job without a fault, with every call; on a busy machine a program may be too slow for its time limit once."""
        dry = Ended(1, "", "")
        for _turn in range(TRIES):
            self.prepare(job)
            with self._units_as_programs():
                dry = self.traced(job, ["-f", "-y", "-s", "160", "-e", f"trace=execve,{self.names}"])
            if dry.status == 0:
                return dry
        raise AssertionError(f"the dry run of {job.name} ends with {dry.status}: {dry.said}")

    @staticmethod
    def _parts(job: jobs.Job, seen: str) -> Iterator[Tuple[str, Sequence[str]]]:
        """The lines of each process by what a fault can be aimed at."""
        ran: Dict[str, int] = {}
        for number, process in enumerate(tracing.processes(seen)):
            if number == 0:
                yield MAIN, process.as_program if job.guard else process.own
                continue
            if job.guard:
                yield CHILDREN, process.own
            if process.program and _real(process.program):
                ran[process.program] = ran.get(process.program, 0) + 1
                yield f"{process.program}.{ran[process.program]}", process.as_program

    def expected(self, job: jobs.Job) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """How the job ends, and how all is settled after it, where nothing fails."""
        if job.name not in self._expected:
            before, done = self._well(job)
            if done.status != 0:
                raise AssertionError(f"{job.name} ends with {done.status}: {done.said}")
            first = self.host.summary(self.host.look(before, **self._more(job))["state"])
            self.run_agent("settle", "--json")
            found = self.host.look(before, **self._more(job))
            if found["violations"]:
                raise AssertionError(f"{job.name} without a fault: {found['violations']}")
            self._expected[job.name] = first, self.host.summary(found["state"])
        return self._expected[job.name]

    def _well(self, job: jobs.Job) -> Tuple[Dict[str, Any], hosts.Ran]:
        """The job without a fault, in as many tries as a dry run has."""
        before, done = {}, hosts.Ran(1, "")
        for _turn in range(TRIES):
            before = self.prepare(job)
            done = self.run_guard(job) if job.guard else self.run_agent(*job.words, given=job.given)
            if done.status == 0:
                break
        return before, done

    @staticmethod
    def _more(job: jobs.Job) -> Dict[str, Any]:
        return {"cleared": ["all"]} if job.name == "clear-failed" else {}

    # -- one case ------------------------------------------------------------------------------------------------

    def inject(self, job: jobs.Job, case: Case, words: Sequence[str] = ()) -> Ended:
        """The job with the fault in it, or with strace's words for the process of the case."""
        (self.tools / "trace").unlink(missing_ok=True)
        if case.process == CHILDREN:
            words = [*tracing.options(case.call, case.number, case.fault), *tracing.only(case.path, hosts.SLOTS)]
            return self.traced(job, ["-f", *words])
        words = words or tracing.options(case.call, self._when[job.name, case.process, case.of()], case.fault)
        if case.process == MAIN:
            return self.traced(job, words)
        program, _dot, number = case.process.rpartition(".")
        (self.tools / "left").write_text(f"{number}\n")
        quoted = " ".join(f"'{word}'" for word in words)
        self._tool(program, SHIM.format(place=self.tools, words=quoted, real=_real(program)))
        try:
            done = self.run_guard(job) if job.guard else self.run_agent(*job.words, given=job.given)
        finally:
            (self.tools / program).unlink()
        trace = self.tools / "trace"
        return Ended(done.status, done.said, trace.read_text("utf-8", "replace") if trace.exists() else "")

    def _by_path(self, job: jobs.Job, case: Case) -> Sequence[str]:
        """strace's words for the case where its number is another in each run: by its path, as that call says it."""
        self.prepare(job)
        with self._units(case):
            seen = self.inject(job, case, ["-y", "-s", "160", "-e", f"trace={case.call}"]).traced
        there = tracing.on_path(seen.splitlines(), case.of(), hosts.IN_SCOPE, _working(job))
        return [*tracing.options(case.call, there[1], case.fault), "-P", there[0]] if there else ()

    def _units(self, case: Case) -> contextlib.AbstractContextManager[None]:
        """How units run meanwhile: as programs, where the fault is for one."""
        return self._units_as_programs() if _in_units(case) else contextlib.nullcontext()

    def check(self, case: Case, by_path: bool = False) -> Dict[str, Any]:
        """Run the case; its row of the table. `hit` is how many calls the fault was in: none, and it was no case."""
        job = self.jobs[case.job]
        self.expected(job)  # made before the case's own state
        words = self._by_path(job, case) if by_path and case.process != CHILDREN else ()
        before = self.prepare(job)
        with self._units(case):
            ended = self.inject(job, case, words)
        hit = reached(job, case, ended, bool(words))
        outcome = _outcome(ended)
        wrong: List[str] = [f"it hung for {hosts.LIMIT_S} s"] if ended.status == hosts.HUNG else []
        if "Traceback (most recent call last)" in ended.said and "KeyboardInterrupt" not in ended.said:
            wrong.append(f"said: a traceback: {ended.said.strip().splitlines()[-1]}")
        left = (job.name, self.host.fingerprint(), hit > 1, _in_units(case))
        said = self._sound.get(left)
        if said is None:
            said, after = self._after(job, before, hit > 1, _in_units(case))
            wrong += after
            if not after:
                self._sound[left] = said
        return {
            **case._asdict(),
            "exit": ended.status,
            "outcome": f"{outcome}; settle: {said}",
            "hit": hit,
            "violations": wrong,
        }

    def _after(self, job: jobs.Job, before: Mapping[str, Any], at_once: bool, in_units: bool) -> Tuple[str, List[str]]:
        """What comes after the fault: how settling ended, and what is wrong."""
        expected = self.expected(job)
        wrong: List[str] = []
        if job.guard:
            self.run_guard(job)
            found = self.host.summary(self.host.look(before)["state"])
            if found["current"] not in (expected[0]["current"], found["good"] if job.ends_too else None):
                wrong.append(f"I2: the guard alone leaves current at {found['current']}, good at {found['good']}")
        settled = self.run_agent("settle", "--json")
        wrong += self._looked(job, before, "settled")
        self.run(job)
        wrong += self._looked(job, before, "again")
        state = self.host.look(before, **self._more(job))["state"]
        found = self.host.summary(state)
        # a record that no look at it can read ends the trial as a bad one does, whatever is read of it later
        also = (*job.ends_too, "bad-record") if at_once else job.ends_too
        if found["trial"] is not None or (state["last"] or {}).get("code") not in also:
            wrong += _differences(found, expected[1], in_units)
        if found["trial"] is not None:
            wrong += self._end(job, before)
        answer = settled.answer
        return str(answer.get("settled", answer.get("code", "")) if settled.status == 0 else answer.get("code")), wrong

    def _looked(self, job: jobs.Job, before: Mapping[str, Any], when: str) -> List[str]:
        found = self.host.look(before, **self._more(job))["violations"]
        return [f"{one['rule']}: {when}: {one['what']}" for one in found]

    def _end(self, job: jobs.Job, before: Mapping[str, Any]) -> List[str]:
        """Let the deadline pass: the guard goes back by itself, and nothing is left."""
        self.host.show(0)
        self.host.move_deadline(jobs.OVER_S)
        self.host.run(["dash", hosts.GUARD, "tick", "slotward"])
        self.run_agent("settle", "--json")
        found = self.host.look(before)
        wrong = [f"{one['rule']}: at its end: {one['what']}" for one in found["violations"]]
        if found["state"]["trial"] is not None:
            wrong.append("I2: the trial is still pending after its deadline")
        return wrong


def reached(job: jobs.Job, case: Case, ended: Ended, by_path: bool) -> int:
    """How many calls the fault was in; 0 when the one that was meant was not among them."""
    lines = tracing.hits(ended.traced, case.call, case.fault)
    paths = [tracing.path_of(case.call, line.partition("(")[2], hosts.IN_SCOPE, _working(job)) for line in lines]
    if case.process == CHILDREN:  # the call of that number of each of them: which one comes first is chance
        return len(paths) - paths.count(None)
    if case.path not in paths:
        return 0
    if by_path:
        return len(paths)
    made = ended.traced.splitlines()
    until = max(number for number, line in enumerate(made) if line == lines[-1])
    seen = tracing.by_path(tracing.calls(made[: until + 1], hosts.IN_SCOPE, _working(job)))
    return len(paths) if seen[-1:] == [case.of()] else 0


def _working(job: jobs.Job) -> str:
    """Where names begin that have no directory of their own."""
    return hosts.SLOTS if job.guard else "/"


def _in_units(case: Case) -> bool:
    """Whether the fault may be in what runs in a unit of its own."""
    return case.process == CHILDREN or case.process.startswith("systemd-run.")


def _real(program: str) -> str:
    """Where a program is that is run by its name alone; "" for one that is not."""
    for place in (str(hosts.FAKES), "/usr/bin", "/bin"):
        if os.access(f"{place}/{program}", os.X_OK) and program not in ("sh", "dash", "strace"):
            return f"{place}/{program}"
    return ""


def _outcome(ended: Ended) -> str:
    if ended.status < 0:
        return "killed"
    answer = hosts.Ran(ended.status, ended.said).answer
    return f"{answer['state']} {answer['code']}" if answer else f"status {ended.status}"


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any], gathering: bool = False) -> List[str]:
    """What differs at the end. Where the fault was in gathering evidence, there may be none: nothing waits for it."""
    wrong = [
        f"again: {key} is {found[key]}, without a fault {wanted[key]}"
        for key in wanted
        if key != "system" and found[key] != wanted[key]
    ]
    there, due = found["system"], wanted["system"]
    odd = sorted(path for path in {*there, *due} if there.get(path) != due.get(path))
    odd = [path for path in odd if path in there or not (gathering and path == hosts.EVIDENCE)]
    return wrong + [f"again: {path} is {there.get(path)}, without a fault {due.get(path)}" for path in odd]


def available() -> str:
    """Why no fault can be injected here; "" where it can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("mkfs.ext4") is None or not os.path.exists("/dev/loop-control"):
        return "needs mkfs.ext4 and loop devices"
    done = subprocess.run(["unshare", "--mount", "strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"strace or unshare does not work here: {done.stderr.decode()[-200:]}"
