# SPDX-License-Identifier: GPL-3.0-or-later
"""`make faults`: each call that names a path under slots, records, staging or units fails once in each way, or is the last.

A run begins with a dry run of each job, which counts the calls; then comes one case for each call and each fault
(docs/design/faults.md, section 2). Each worker has a mount namespace and a disk in memory of its own. What was done is
kept in build/faults.d as it comes, so that a run that was ended goes on where it was (--resume, while the agent is the
same); build/faults.json and the table are made of all of it.
Exit status: 0 without a violation, 1 with one, with a case that could not be brought about, or when a worker did not come to its end.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any, Counter, Dict, Iterator, List, NoReturn, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / place) for place in ("tests", "plugins/module_utils", "agent/src")]

from faults import cases, hosts, tracing
from support import archive

TELL_EVERY_S = 60.0
KEY = ("job", "process", "call", "number", "path", "fault")
OPENING = ("openat", "close")
SOONEST = ("SIGKILL", "EIO")

Row = Dict[str, Any]


def weight(case: cases.Case) -> Tuple[int, int, str]:
    """What changes something comes first, then what opens and closes, then what only looks; of all, kills and a bad disk."""
    rank = 0 if case.call in cases.CHANGING else 1 if case.call in OPENING else 3 if case.call == "read" else 2
    return rank, 0 if case.fault in SOONEST else 1, case.job


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Every call of the agent and the guard fails once.")
    parser.add_argument("--workers", type=int, default=1, help="how many run at once (default 1)")
    parser.add_argument("--jobs", default="", help="of these jobs only, by blanks: swap confirm … (default all)")
    parser.add_argument(
        "--calls", default="", help="of these system calls only; `changing`: those that change something"
    )
    parser.add_argument("--faults", default=" ".join(tracing.FAULTS), help="these faults only")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what an earlier run has left, of the same source"
    )
    parser.add_argument("--output", default=str(ROOT / "build"), help="where faults.json goes (default build)")
    parser.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--top", help=argparse.SUPPRESS)
    return parser.parse_args()


def releases_in(top: pathlib.Path) -> hosts.Releases:
    """The releases that the first process has made."""
    return hosts.read_releases(top / "releases")


# -- a worker ------------------------------------------------------------------------------------------------------------


def wanted(bench: cases.Bench, args: argparse.Namespace) -> List[cases.Case]:
    """The cases that were asked for, in their order; each worker has the same ones."""
    names = args.jobs.split() or list(bench.jobs)
    calls = set(args.calls.split())
    if "changing" in calls:
        calls |= cases.CHANGING
    found: List[cases.Case] = []
    for name in names:
        found += bench.cases(bench.jobs[name], args.faults.split())
    return sorted((case for case in found if not calls or case.call in calls), key=weight)


def end(_number: int, _frame: object) -> NoReturn:
    """When told to end: leave nothing running and nothing in memory."""
    raise KeyboardInterrupt


def work(args: argparse.Namespace) -> None:
    """This worker's share of the cases, on one processor: strace and what it traces wait for each other at every call."""
    there = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {there[args.worker % len(there)]})
    top = pathlib.Path(args.top)
    kept = kept_rows(kept_in(args), source_of(top), top.name)
    done = {tuple(row[key] for key in KEY) for row in kept if row["hit"]}
    bench = cases.Bench(top / f"worker-{args.worker}", releases_in(top))
    try:
        todo = wanted(bench, args)
        with open(kept_in(args) / f"{args.worker}-{os.getpid()}.jsonl", "w", encoding="utf-8", buffering=1) as file:
            head = {
                "source": source_of(top),
                "run": top.name,
                "worker": args.worker,
                "cases": len(todo),
                "jobs": args.jobs,
                "calls": args.calls,
            }
            file.write(json.dumps(head) + "\n")
            for case in todo:
                if share(case, args.workers) == args.worker and tuple(case) not in done:
                    file.write(json.dumps(checked(bench, case)) + "\n")
    finally:
        bench.close()


def share(case: cases.Case, workers: int) -> int:
    """Whose case it is, whatever the order in which a worker has found them."""
    return zlib.crc32(repr(tuple(case)).encode()) % workers


def checked(bench: cases.Bench, case: cases.Case) -> Row:
    """The row of a case. What hit another call than was meant is run again, by its path; what found something, too: a program may have been slow."""
    row: Row = {}
    for _turn in range(cases.TRIES):
        row = bench.check(case, by_path=bool(row) and not row["hit"])
        if row["hit"] and not row["violations"]:
            return row
    return row


# -- what is kept --------------------------------------------------------------------------------------------------------


def source_of(top: pathlib.Path) -> str:
    """What was tested: the archive of the agent, with the guard in it."""
    return archive.source(top / "releases" / "agent")


def kept_in(args: argparse.Namespace) -> pathlib.Path:
    """Where rows are kept as they come."""
    return pathlib.Path(args.output) / "faults.d"


def kept_rows(kept: pathlib.Path, source: str, run: str) -> Iterator[Row]:
    """The rows of all runs of this source, one for each case: one that was reached, if any was; a last line that was cut is none.

    What was not reached counts for its own run alone: another one tries it again, or does not find that call at all.
    """
    found: Dict[Tuple[Any, ...], Row] = {}
    for path in sorted(kept.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        head = json.loads(lines[0]) if lines else {}
        if head.get("source") == source:
            for row in map(json.loads, lines[1:]):
                if not row["hit"] and head.get("run") != run:
                    continue
                key = tuple(row[key] for key in KEY)
                if key not in found or row["hit"]:
                    found[key] = row
    return iter(found.values())


def summary(rows: Sequence[Row], complete: bool) -> Dict[str, Any]:
    """The figures, and every row."""
    calls = {tuple(row[key] for key in KEY[:-1]) for row in rows}
    return {
        "cases": sum(1 for row in rows if row["hit"]),
        "violations": sum(1 for row in rows if row["violations"]),
        "calls": len(calls),
        "missed": sum(1 for row in rows if not row["hit"]),
        "complete": complete,
        "rows": list(rows),
    }


def table(rows: Sequence[Row]) -> List[str]:
    """Calls by faults: how often the job came to its end all the same, said what was wrong, or was killed."""
    cells: Dict[Tuple[str, str], Dict[str, Counter[str]]] = {}
    for row in rows:
        if row["hit"]:
            how = "!" if row["violations"] else "k" if row["exit"] < 0 else "d" if row["exit"] == 0 else "f"
            cell = cells.setdefault((row["job"], row["call"]), {}).setdefault(row["fault"], collections.Counter())
            cell[how] += 1
    lines = [f"{'job':15}{'call':12}" + "".join(f"{fault:>15}" for fault in tracing.FAULTS)]
    for (job, call), found in sorted(cells.items()):
        text = f"{job:15}{call:12}"
        for fault in tracing.FAULTS:
            counts = found.get(fault, collections.Counter())
            text += f"{' '.join(f'{counts[how]}{how}' for how in 'dfk!' if counts[how]) or '-':>15}"
        lines.append(text)
    lines.append("d: done all the same, f: failed and said so, k: killed, !: a violation")
    return lines


# -- the first process ---------------------------------------------------------------------------------------------------


def start(args: argparse.Namespace, top: pathlib.Path) -> List[subprocess.Popen[bytes]]:
    """The workers, each in a mount namespace of its own."""
    words = ["--jobs", args.jobs, "--calls", args.calls, "--faults", args.faults, "--workers", str(args.workers)]
    words += ["--output", args.output]
    begun = []
    for number in range(args.workers):
        (top / f"worker-{number}").mkdir()
        argv = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--worker", str(number)]
        begun.append(subprocess.Popen([*argv, "--top", str(top), *words], start_new_session=True))
    return begun


def follow(workers: Sequence[subprocess.Popen[bytes]], kept: pathlib.Path, source: str, run: str) -> bool:
    """Tell how far they are, until they have ended; whether all of them came to their end."""
    began, told = time.monotonic(), 0.0
    while any(worker.poll() is None for worker in workers):
        time.sleep(0.5)
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            rows = list(kept_rows(kept, source, run))
            bad = sum(1 for row in rows if row["violations"])
            print(f"faults: {len(rows)} cases, {bad} with violations, {told - began:.0f} s", flush=True)
    return all(worker.returncode == 0 for worker in workers)


def main() -> int:
    """Run what was asked for, and say what came of it."""
    args = parse()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if args.worker >= 0:
        with contextlib.suppress(KeyboardInterrupt):
            work(args)
            return 0
        return 1
    why = cases.available()
    if why:
        print(f"faults: {why}", file=sys.stderr)
        return 2
    kept = kept_in(args)
    kept.mkdir(parents=True, exist_ok=True)
    if not args.resume:
        for path in kept.glob("*.jsonl"):
            path.unlink()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = pathlib.Path(tempfile.mkdtemp(prefix="slotward-faults-", dir=memory))
    workers: List[subprocess.Popen[bytes]] = []
    ended = complete = False
    try:
        top.chmod(0o755)
        hosts.make_releases(top / "releases")
        source = source_of(top)
        workers = start(args, top)
        ended = follow(workers, kept, source, top.name)
        complete = ended and not (args.jobs or args.calls)
    except KeyboardInterrupt:
        print("faults: interrupted", file=sys.stderr)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()  # `unshare` has become the worker
                worker.wait()
        known = (top / "releases" / "agent").exists()
        rows = list(kept_rows(kept, source_of(top), top.name)) if known else []
        shutil.rmtree(top)
    status = report(rows, complete, pathlib.Path(args.output))
    return status or (0 if ended else 1)


def report(rows: Sequence[Row], complete: bool, output: pathlib.Path) -> int:
    """Write the figures down, print the table and every violation."""
    found = summary(rows, complete)
    (output / "faults.json").write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    print("\n".join(table(rows)))
    for row in rows:
        for wrong in row["violations"]:
            print(f"{row['job']} {row['process']} {row['call']} {row['number']} {row['path']} {row['fault']}: {wrong}")
        if not row["hit"]:
            print(
                f"{row['job']} {row['process']} {row['call']} {row['number']} {row['path']} {row['fault']}: not reached"
            )
    print(
        f"faults: {found['cases']} cases at {found['calls']} calls, {found['violations']} with violations, "
        f"{found['missed']} not reached{'' if complete else ' (not the whole table)'}; {output}/faults.json"
    )
    return 1 if found["violations"] or found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
