# SPDX-License-Identifier: GPL-3.0-or-later
"""`make mutants`: change slotcore in every small way, one at a time, and see the module's own tests fail for each.

A mutant that no test kills is a rule that nobody checks. It fails the run unless `equivalent.toml` says why nothing
can show the change. Writes `build/mutants.json`: {module: {"mutants", "killed", "equivalent", "survived": [...]}}.

  run.py               all modules
  run.py MODULE…       some of them
  run.py --again …     only those that survived in `build/mutants.json`; writes nothing (to try new tests)

Each mutant is a child that is forked. A change inside of one function is put into the loaded module, of which the tests
have been collected already; any other comes from an importer. Never from a file, so that a run that is killed leaves
no changed code behind. A child that works on for much longer than the unchanged module's tests is killed, and
counts as noticed. Hypothesis gives the same examples every time.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import resource
import signal
import sys
import time
import traceback
from types import CodeType, FrameType, ModuleType
from typing import Any, Callable, Dict, FrozenSet, Generator, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import pytest
from _pytest.config import _prepareconfig  # what pytest.main does first
from _pytest.main import pytest_runtestloop

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants import changes, equivalents, swap
from mutants.children import FAILED, NO_COLLECTION, NOT_ENDED, PASSED, Trouble, quiet, ready, waited
from mutants.modules import MODULES

SLOTCORE = ROOT / "plugins" / "module_utils" / "slotcore"
LISTED = pathlib.Path(__file__).with_name("equivalent.toml")
OUTPUT = ROOT / "build" / "mutants.json"

MEMORY = 2 << 30
ONE_TEST_S = 5  # of processor time; the slowest of them takes a tenth of that


Changes = FrozenSet[equivalents.Change]


class Report(NamedTuple):
    """One module's figures; `survived` are those that the list does not have."""

    mutants: int
    killed: int
    equivalent: int
    survived: List[Dict[str, Any]]


class Importer:
    """Finds one module of slotcore with another source."""

    def __init__(self, module: str, code: str) -> None:
        self.name = "slotcore." + module
        self.path = str(SLOTCORE / (module + ".py"))
        self.code = code
        self.loaded = False

    def find_spec(
        self, name: str, path: object = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of that module, and of no other."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=_Loader(self))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, importer: Importer) -> None:
        super().__init__(importer.name, importer.path)
        self._importer = importer

    def get_code(self, fullname: str) -> CodeType:
        self._importer.loaded = True
        return compile(self._importer.code, self.path, "exec", dont_inherit=True)


def _is_property(item: Any) -> bool:
    return bool(getattr(item.obj, "is_hypothesis_test", False))


class Plugin:
    """Property tests last: the others are quicker to notice something. Each of those has a limit of its own, so that an
    endless loop ends soon. And the loop is ours where `serve` is set.
    """

    serve: Optional[Callable[[Any], None]] = None

    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        """Sort by that."""
        items.sort(key=_is_property)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, bool, bool]:
        """Past its processor time, SIGPROF ends this process, which counts as noticed."""
        signal.setitimer(signal.ITIMER_PROF, 0 if _is_property(item) else ONE_TEST_S)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> Optional[bool]:
        """Serve instead of running the tests once."""
        if self.serve is None:
            return None
        self.serve(session)
        return True


class Runner:
    """Runs the tests of one module, each time in a child of its own, with a pytest that was set up once."""

    def __init__(self, module: str, source: str, output: pathlib.Path) -> None:
        options = ["-x", "-q", "-s", "-o", "cache_dir=.build/cache/mutants", "--hypothesis-profile=mutants"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "--rootdir=%s" % ROOT]
        self.plugin = Plugin()
        self.config = _prepareconfig(options + ["tests/core/" + name for name in MODULES[module]], [self.plugin])
        self.module = module
        self.source = source
        self.output = output
        self.limit_s = 600

    def imported(self, code: str) -> bool:
        """Whether the tests notice that the module is imported from `code`."""

        def child() -> int:
            importer = Importer(self.module, code)
            sys.meta_path.insert(0, importer)
            end = int(self.config.hook.pytest_cmdline_main(config=self.config))
            return end if importer.loaded else NOT_ENDED

        return self._is_noticed(child)

    def swapped(self, codes: Sequence[str]) -> Iterator[Tuple[int, bool]]:
        """For those of `codes` that can be swapped in: the number, and whether the tests notice.

        One child collects the tests with the source as it is, and forks a child of its own for each of the codes.
        """
        reader, writer = os.pipe()
        server = os.fork()
        if server == 0:
            os.close(reader)
            quiet(self.output)
            try:
                self._serve(codes, writer)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - told, and a child never goes on as its parent
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)
        os.close(writer)
        with open(reader) as lines:
            for line in lines:
                number, noticed = line.split()
                yield int(number), noticed == "True"
        if os.waitpid(server, 0)[1]:
            raise Trouble("the tests of %s cannot be served:\n%s" % (self.module, self.output.read_text()[-2000:]))

    def _serve(self, codes: Sequence[str], writer: int) -> None:
        called: Set[CodeType] = set()
        path = str(SLOTCORE / (self.module + ".py"))

        def watch(frame: FrameType, event: str, _argument: object) -> None:
            if event == "call" and frame.f_code.co_filename == path:
                called.add(frame.f_code)

        def serve(session: Any) -> None:
            sys.setprofile(None)
            gc.freeze()  # so that a child does not copy what it never changes
            module = sys.modules["slotcore." + self.module]
            for number, code in enumerate(codes):
                found = swap.find(module, self.source, code)
                if found and found.was not in called:
                    noticed = self._is_noticed(functools.partial(self._run_swapped, session, found))
                    os.write(writer, b"%d %s\n" % (number, str(noticed).encode()))

        self.plugin.serve = serve
        sys.setprofile(watch)
        end = int(self.config.hook.pytest_cmdline_main(config=self.config))
        if end != PASSED:
            raise Trouble("pytest ended with %d" % end)

    @staticmethod
    def _run_swapped(session: Any, change: swap.Swap) -> int:
        change.put()
        try:
            pytest_runtestloop(session)
        except (session.Failed, session.Interrupted):
            return FAILED
        return FAILED if session.testsfailed else PASSED

    def _is_noticed(self, run: Callable[[], int]) -> bool:
        """Whether `run`, in a child, ends with a failure or not in time; Trouble when it ends in another way."""
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                quiet(self.output)
                resource.setrlimit(resource.RLIMIT_CPU, (self.limit_s, self.limit_s + 1))
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                end = run()
                sys.stdout.flush()
                os._exit(end)
            except BaseException:  # noqa: BLE001 - told, and a child never goes on as its parent
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(NOT_ENDED)
        ended = waited(child, began + 10 * self.limit_s)
        if ended in (None, FAILED, NO_COLLECTION):
            return True
        if ended == PASSED:
            return False
        said = self.output.read_text(errors="replace")[-2000:]
        raise Trouble("the tests of %s ended with %s instead of a result:\n%s" % (self.module, ended, said))


def _run(runner: Runner, codes: Sequence[str]) -> Iterator[Tuple[int, bool]]:
    """The number of each of `codes`, and whether the tests notice it."""
    done = set()
    for number, noticed in runner.swapped(codes):
        done.add(number)
        yield number, noticed
    for number in sorted(set(range(len(codes))) - done):
        yield number, runner.imported(codes[number])


def _children_s() -> float:
    """The processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_module(
    module: str, listed: Changes, only: Optional[Changes], output: pathlib.Path
) -> Tuple[Report, Tuple[str, ...]]:
    """Every mutant of one module; what is wrong with its entries in the list."""
    source = (SLOTCORE / (module + ".py")).read_text(encoding="utf-8")
    runner = Runner(module, source, output)
    began = _children_s()
    if runner.imported(source):
        raise Trouble("the tests of %s fail without a change:\n%s" % (module, output.read_text()[-2000:]))
    runner.limit_s = 10 + int(3 * (_children_s() - began))
    found = [one for one in changes.mutants(module, source) if only is None or one.change in only]
    noticed: Dict[int, bool] = {}
    for number, is_noticed in _run(runner, [mutant.code for mutant in found]):
        noticed[number] = is_noticed
        if not is_noticed and found[number].change not in listed:
            say("%s.py:%d: %s" % (module, found[number].line, found[number].change))
    killed = [mutant.change for number, mutant in enumerate(found) if noticed[number]]
    survived = [mutant for number, mutant in enumerate(found) if not noticed[number]]
    reported = [{"line": one.line, **one.change._asdict()} for one in survived if one.change not in listed]
    wrong = equivalents.stale(listed, killed, [one.change for one in survived]) if only is None else ()
    return Report(len(found), len(killed), len(survived) - len(reported), reported), wrong


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


def survivors() -> Dict[str, Changes]:
    """What the last run left, for each module."""
    last = json.loads(OUTPUT.read_text())
    return {
        module: frozenset(equivalents.Change(one["function"], one["was"], one["becomes"]) for one in report["survived"])
        for module, report in last.items()
    }


def prepare() -> None:
    """What every child needs, once: imports of others' code, and a settled environment."""
    os.chdir(ROOT)
    ready({"slotcore"})


def main(argv: Sequence[str]) -> int:
    """Run, write the figures, and end with 1 when something survived or the list is wrong."""
    parser = argparse.ArgumentParser(prog="make mutants", description="see that tests notice every change of slotcore")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--again", action="store_true", help="only what survived last time; writes nothing")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.modules) - set(MODULES))
    if unknown:
        parser.error("no module is called %s; there are: %s" % (", ".join(unknown), ", ".join(MODULES)))
    listed = equivalents.read(LISTED, MODULES)
    last = survivors() if options.again else {}
    prepare()
    OUTPUT.parent.mkdir(exist_ok=True)
    reports = {}
    problems: List[str] = []
    for module in options.modules or MODULES:
        began = time.monotonic()
        only = last.get(module, frozenset()) if options.again else None
        report, wrong = run_module(module, listed.get(module, frozenset()), only, OUTPUT.with_suffix(".log"))
        reports[module] = report._asdict()
        problems += ["%s: %s" % (module, text) for text in wrong]
        told = (module, report.mutants, report.killed, report.equivalent, len(report.survived))
        say(
            "%-12s %4d mutants, %4d killed, %3d equivalent, %3d survived" % told + ", %d s" % (time.monotonic() - began)
        )
    if not options.again:
        OUTPUT.write_text(json.dumps(reports, indent=1) + "\n")
    for text in problems:
        say("tests/mutants/equivalent.toml: " + text)
    return 1 if problems or any(report["survived"] for report in reports.values()) else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the same order of sets every time
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        say(str(trouble))
        sys.exit(2)
