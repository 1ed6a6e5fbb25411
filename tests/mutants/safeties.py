# SPDX-License-Identifier: GPL-3.0-or-later
"""`make safeties`: take one safety at a time out of a copy of the source, and see a suite fail for each.

A safety that nothing misses is one that anybody may take out without noticing. It fails the run, unless `safeties.toml` says
which other safety does the same. The steps of the plans are taken out, and change places, in `tests/core/test_crash_orders.py`,
which is run here too. Writes `build/safeties.json`:
{"removed": n, "unnoticed": n, "redundant": n, "rows": [{"safety", "file", "noticed_by", "test", "first_failure"}]}.
The test that failed is asked first the next time: `noticed.json`, next to this file, keeps their names. It is no result: what it
names must fail again, and where it does not, or is gone, the suites of the table are asked as ever.

  safeties.py              all of them
  safeties.py NAME…        those with one of these words in their name; writes no figures
  safeties.py --resume     as all of them, but what the last run of the very same files has shown is not shown again
  safeties.py --narrow     without the wide suites, which run where none of the table's own notices
  safeties.py --workers 2  so many at once, each with a copy of its own

A copy lies in memory, and only there is anything changed; what tests write lies on the disk. Each run of pytest is a child that is
forked, so that what is not ours is imported once; Hypothesis gives the same examples every time. What failed must fail again, and
pass with the safety in its place.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants import removals
from mutants.children import FAILED, NO_COLLECTION, NOT_ENDED, NOT_THERE, PASSED, Trouble, quiet, ready, waited

OUTPUT = ROOT / "build" / "safeties.json"
NOTICED = ROOT / "tests" / "mutants" / "noticed.json"
"""By safety, the test that noticed last."""
PLANS = "-m slow tests/core/test_crash_orders.py"
WIDE = ("tests/core", "tests/agent", "tests/unit")
TOLD = "safety"
"""The property by which a test says what it has taken out, and who has missed it."""
LIMIT_S = 1800
OPTIONS = (
    "-x",
    "-q",
    "-o",
    "cache_dir=.cache",
    "--hypothesis-profile=mutants",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)


class Row(NamedTuple):
    """One safety that was taken out: the suite that failed, the first test that did, and what it said; empty: none."""

    safety: str
    file: str
    noticed_by: str
    first_failure: str
    redundant: str = ""
    test: str = ""


class Ended(NamedTuple):
    """How one run of pytest ended: its status, the first failure, and what its tests have told."""

    status: Optional[int]
    test: str
    """The first test that failed."""
    first: str
    """The same with what it said."""
    told: Tuple[Dict[str, str], ...]

    @property
    def noticed(self) -> bool:
        """Whether a test failed, or the run did not end."""
        return self.status in (None, FAILED, NO_COLLECTION)

    @property
    def ran(self) -> bool:
        """Whether there was something to run, and it came to an end of its own or of its time."""
        return self.noticed or self.status == PASSED


class Watcher:
    """A plugin that writes the first failure, and what tests tell of safeties, into a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._failed = False

    def _say(self, **said: object) -> None:
        os.write(self._descriptor, json.dumps(said).encode() + b"\n")

    def _seen(self, report: Any) -> None:
        if report.failed and not self._failed:
            self._failed = True
            crash = getattr(report.longrepr, "reprcrash", None)
            message = str(crash.message if crash is not None else report.longrepr).strip()
            self._say(test=report.nodeid, first="%s: %s" % (report.nodeid, message.partition("\n")[0][:200]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test failed, or its fixtures did; or it tells something."""
        self._seen(report)
        for name, value in report.user_properties if report.when == "call" else ():
            if name == TOLD:
                self._say(told=value)

    def pytest_collectreport(self, report: Any) -> None:
        """A file of tests could not be read."""
        self._seen(report)


class Copy:
    """The repository's files in memory, of which one at a time is changed."""

    def __init__(self, top: pathlib.Path) -> None:
        self.top = top / "copy"
        self.output = top / "said"
        self.digest = hashlib.sha256()
        self._stamp = time.time() + 10
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
            source, target = ROOT / name, self.top / name
            if source.is_symlink() or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            if source == NOTICED:
                continue
            self.digest.update(name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
        (self.top / ".build").symlink_to(ROOT / ".build")

    def write(self, file: str, text: str) -> None:
        """Change a file, and its time, by which Python knows that what it has compiled is an older one's."""
        self._stamp += 2
        path = self.top / file
        path.write_text(text, encoding="utf-8")
        os.utime(path, (self._stamp, self._stamp))

    def run(self, suite: str, may_be_gone: bool = False) -> Ended:
        """Run pytest on the copy in a child with a group of its own; what is left of that in the end is killed.

        What only an earlier run has named may be gone.
        """
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(suite, writer)
        os.close(writer)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        status = None
        try:
            status = waited(child, time.monotonic() + LIMIT_S)
        finally:  # also what a test has left behind, like a guard that waits for a FIFO without its safety
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        with open(reader, encoding="utf-8") as lines:
            said = [json.loads(line) for line in lines]
        failed = next((one for one in said if "test" in one), {"test": "", "first": ""})
        first = str(failed["first"]) or ("" if status == PASSED else "did not end")
        ended = Ended(status, str(failed["test"]), first, tuple(one["told"] for one in said if "told" in one))
        if not ended.ran and not (may_be_gone and status in NOT_THERE):
            raise Trouble("%s ended with %s:\n%s" % (suite, status, self.output.read_text(errors="replace")[-2000:]))
        return ended

    def _child(self, suite: str, writer: int) -> None:
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            quiet(self.output)
            os.chdir(self.top)
            sys.path[:] = [path for path in sys.path if path != str(ROOT / "tests")]
            sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(self.top.parent / "compiled")
            options = [*OPTIONS, "--rootdir=%s" % self.top, "-c", str(self.top / "pyproject.toml")]
            end = pytest.main([*options, *shlex.split(suite)], plugins=[Watcher(writer)])
            sys.stdout.flush()
            os._exit(int(end))
        except BaseException:  # noqa: BLE001 - told, and a child never goes on as its parent
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(NOT_ENDED)


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


def shown(row: Row) -> str:
    """A row as a line."""
    if row.noticed_by:
        return "%-56s %s" % (row.safety, row.first_failure[:150])
    return "%-56s %s" % (row.safety, "redundant: " + row.redundant if row.redundant else "NOBODY NOTICES")


def taken_out(copy: Copy, safety: removals.Safety, wide: Sequence[str], last: str = "") -> Row:
    """Who notices that this one is gone; the likeliest are asked first, and of one that is redundant only those.

    The test that failed must fail again, and pass with the safety in its place: chance notices nothing.
    """
    source = (copy.top / safety.file).read_text(encoding="utf-8")
    first = (shlex.quote(last),) if last else ()
    for suite in (*first, *safety.suites, *(() if safety.redundant else wide)):
        copy.write(safety.file, safety.removed(source))
        try:
            ended = copy.run(suite, may_be_gone=suite in first)
            again = ended.noticed and (not ended.test or copy.run(shlex.quote(ended.test)).noticed)
        finally:
            copy.write(safety.file, source)
        if again and not copy.run(shlex.quote(ended.test) if ended.test else suite).noticed:
            return Row(safety.name, safety.file, suite, ended.first, test=ended.test)
    return Row(safety.name, safety.file, "", "", safety.redundant)


def of_plans(copy: Copy) -> List[Row]:
    """What is taken out of the plans, and changes places in them, by the crash matrix itself."""
    ended = copy.run(PLANS)
    if ended.noticed:
        raise Trouble("the orders of the plans are not as their list says: %s" % ended.first)
    file = removals.PLACES["core"] + "plans.py"
    return [
        Row(one["safety"], file, PLANS if one["failure"] else "", one["failure"], one["redundant"])
        for one in ended.told
    ]


class Worker:
    """One of those that run at once: a process with a copy of its own."""

    copy: Copy
    wide: Sequence[str]
    last: Dict[str, str]

    @classmethod
    def begin(cls, top: str, disk: str, wide: Sequence[str], last: Dict[str, str]) -> None:
        """In the new process: make the copy, and a place for the tests' own files.

        Where several pytests keep those, one looks through directories that another removes, and ends with an error.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        place = pathlib.Path(disk, str(os.getpid()))  # short: a socket's path has 107 bytes
        place.mkdir()
        place.chmod(0o755)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(place)
        cls.copy, cls.wide, cls.last = Copy(pathlib.Path(tempfile.mkdtemp(dir=top))), wide, last

    @classmethod
    def rows(cls, safety: Optional[removals.Safety]) -> List[Row]:
        """Of one safety; None: of the plans."""
        if safety is None:
            return of_plans(cls.copy)
        return [taken_out(cls.copy, safety, cls.wide, cls.last.get(safety.name, ""))]


def known(digest: str) -> List[Row]:
    """The rows of the last run of the very same files."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        last = json.loads(OUTPUT.read_text())
        if last["of"] == digest:
            return [Row(**row) for row in last["rows"]]
    return []


def noticed() -> Dict[str, str]:
    """By safety, the test that noticed last; of each that there is no more, nothing."""
    names = {one.name for one in removals.read()}
    try:
        read = json.loads(NOTICED.read_text(encoding="utf-8"))
        return {name: str(test) for name, test in read.items() if name in names}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise Trouble("%s is damaged (%s): remove it, the next run writes it anew" % (NOTICED, error)) from error


def keep(last: Dict[str, str], rows: Sequence[Row]) -> None:
    """Keep which tests noticed, with those of before."""
    last.update((row.safety, row.test) for row in rows if row.test)
    text = json.dumps(last, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    NOTICED.write_text(text, encoding="utf-8")


def write(digest: str, rows: Sequence[Row]) -> Dict[str, Any]:
    """Keep the rows; the figures of all of them."""
    figures: Dict[str, Any] = {
        "removed": len(rows),
        "unnoticed": sum(not row.noticed_by and not row.redundant for row in rows),
        "redundant": sum(not row.noticed_by and bool(row.redundant) for row in rows),
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps({**figures, "of": digest, "rows": [row._asdict() for row in rows]}, indent=1) + "\n")
    return figures


def run(top: str, disk: str, options: argparse.Namespace) -> int:
    """Take them out, as many at once as there are workers; the copies lie in `top`, what tests write in `disk`."""
    words = options.words
    table = [one for one in removals.read() if not words or any(word in one.name for word in words)]
    if not table:
        raise Trouble("no safety is called like that; see tests/mutants/safeties.toml")
    for safety in table:
        safety.removed((ROOT / safety.file).read_text(encoding="utf-8"))  # the whole table first: it takes no time
    digest = Copy(pathlib.Path(top)).digest.hexdigest()
    rows = known(digest) if options.resume else []
    done = {row.safety for row in rows}
    left: List[Optional[removals.Safety]] = [one for one in table if one.name not in done]
    if not words and not any(row.noticed_by == PLANS for row in rows):
        left.insert(0, None)  # the longest first
    wide = () if options.narrow else WIDE
    last = noticed()
    with multiprocessing.get_context("fork").Pool(options.workers, Worker.begin, (top, disk, wide, last)) as pool:
        for found in pool.imap_unordered(Worker.rows, left):
            rows += found
            for row in found:
                say(shown(row))
            keep(last, found)
            if not words:
                write(digest, rows)
        pool.close()  # they end by themselves: a signal may come right before one waits for more work, and is lost then
        pool.join()
    return told(rows, table)


def told(rows: Sequence[Row], table: Sequence[removals.Safety]) -> int:
    """The figures, and what is wrong, as an exit status."""
    wrong = [row for row in rows if not row.noticed_by and not row.redundant]
    stale = [
        one.name for one in table if one.redundant and any(row.safety == one.name and row.noticed_by for row in rows)
    ]
    for name in stale:
        say("%s is called redundant, and a test notices: take that out of the table" % name)
    say("%d removed, %d that nobody notices" % (len(rows), len(wrong)))
    return 1 if wrong or stale else 0


def end(_number: int, _frame: object) -> NoReturn:
    """When a worker is told to end: what it runs ends too."""
    sys.exit(1)


def interrupt(_number: int, _frame: object) -> NoReturn:
    """When told to end: leave nothing running and nothing in memory."""
    raise KeyboardInterrupt


def main(argv: Sequence[str]) -> int:
    """Run, write the figures, and end with 1 when something was not missed."""
    parser = argparse.ArgumentParser(
        prog="make safeties", description="see that tests miss every safety that is taken out"
    )
    parser.add_argument(
        "words", nargs="*", metavar="NAME", help="only those with this in their name; writes no figures"
    )
    parser.add_argument("--resume", action="store_true", help="go on where a run of the same files has ended")
    parser.add_argument("--narrow", action="store_true", help="without the wide suites")
    parser.add_argument("--workers", type=int, default=1, help="how many run at once (default 1)")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, interrupt)
    ready({"slotcore", "slotward"})
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="slotward-safeties-", dir=memory) as top,
        tempfile.TemporaryDirectory(prefix="s", ignore_cleanup_errors=True) as disk,
    ):
        os.chmod(disk, 0o755)  # some tests run programs as other accounts
        return run(top, disk, options)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the same order of sets every time
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606
    try:
        sys.exit(main(sys.argv[1:]))
    except (Trouble, removals.BadTable) as trouble:
        say(str(trouble))
        sys.exit(2)
    except KeyboardInterrupt:
        say("safeties: interrupted; --resume goes on")
        sys.exit(1)
