# SPDX-License-Identifier: GPL-3.0-or-later
"""`make mutants`: change slotcore in every small way, one at a time, and see the module's own tests fail for each.

A mutant that no test kills is a rule that nobody checks. It fails the run unless `equivalent.toml` says why nothing
can show the change. Writes `build/mutants.json`: {module: {"mutants", "killed", "equivalent", "survived": [...]}}.

  run.py               all modules
  run.py MODULE…       some of them
  run.py --again …     only those that survived in `build/mutants.json`; writes nothing (to try new tests)

Each mutant is a child that this process forks: it gets the changed source from an importer, never from a file, so that
a run that is killed leaves no changed code behind. A child that works on for much longer than the unchanged
module's tests is killed, and counts as noticed. Hypothesis gives the same examples every time.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import resource
import signal
import sys
import time
from types import CodeType, ModuleType
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

import changes
import equivalents
from modules import MODULES

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOTCORE = ROOT / "plugins" / "module_utils" / "slotcore"
LISTED = pathlib.Path(__file__).with_name("equivalent.toml")
OUTPUT = ROOT / "build" / "mutants.json"

PRELOADED = (
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "hypothesis.strategies",
    "pytest",
    "subprocess",
)
MEMORY = 2 << 30
PASSED, FAILED, NO_COLLECTION = 0, 1, 2  # pytest's; other ends are a trouble of this program
NOT_LOADED = 70


Changes = FrozenSet[equivalents.Change]


class Report(NamedTuple):
    """One module's figures; `survived` are those that the list does not have."""

    mutants: int
    killed: int
    equivalent: int
    survived: List[Dict[str, Any]]


class Trouble(Exception):
    """The run cannot tell what it should."""


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


class Order:
    """Property tests last: the others are quicker to notice something."""

    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        """Sort by that."""
        items.sort(key=lambda item: bool(getattr(item.obj, "is_hypothesis_test", False)))


def pytest_for(module: str) -> Any:
    """A pytest that is set up for the tests of one module and has not imported them yet."""
    from _pytest.config import _prepareconfig  # what pytest.main does first

    options = ["-x", "-q", "-s", "-o", "cache_dir=.build/cache/mutants", "--hypothesis-profile=mutants"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "--rootdir=%s" % ROOT]
    return _prepareconfig(options + ["tests/core/" + name for name in MODULES[module]], plugins=[Order()])


def run_tests(module: str, code: str, config: Any) -> int:
    """In a child: the end of the module's tests when its source is `code`."""
    importer = Importer(module, code)
    sys.meta_path.insert(0, importer)  # type: ignore[arg-type]
    end = int(config.hook.pytest_cmdline_main(config=config))
    return end if importer.loaded else NOT_LOADED


def forked(module: str, code: str, config: Any, limit_s: int, output: pathlib.Path) -> Tuple[Optional[int], float]:
    """The end of a child's tests, None when it had to be killed, and how long that took."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(out, 1)
            os.dup2(out, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            end = run_tests(module, code, config)
            sys.stdout.flush()
            os._exit(end)
        finally:
            os._exit(NOT_LOADED)
    return _waited(child, began + 10 * limit_s), time.monotonic() - began


def _waited(child: int, until: float) -> Optional[int]:
    """The exit status of `child`; past its time it is killed."""
    pause = 0.002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)


def is_killed(end: Optional[int], module: str, output: pathlib.Path) -> bool:
    """Whether the tests noticed something; Trouble when they did not run."""
    if end in (None, FAILED, NO_COLLECTION):
        return True
    if end == PASSED:
        return False
    said = output.read_text(errors="replace")[-2000:]
    raise Trouble("the tests of %s ended with %s instead of a result:\n%s" % (module, end, said))


def run_module(
    module: str, listed: Changes, only: Optional[Changes], output: pathlib.Path
) -> Tuple[Report, Tuple[str, ...]]:
    """Every mutant of one module; what is wrong with its entries in the list."""
    source = (SLOTCORE / (module + ".py")).read_text(encoding="utf-8")
    config = pytest_for(module)
    end, took = forked(module, source, config, 600, output)
    if is_killed(end, module, output):
        raise Trouble("the tests of %s fail without a change:\n%s" % (module, output.read_text()[-2000:]))
    limit_s = 10 + int(3 * took)
    killed: List[equivalents.Change] = []
    survived: List[equivalents.Change] = []
    reported = []
    for mutant in changes.mutants(module, source):
        change = equivalents.Change(mutant.function, mutant.was, mutant.becomes)
        if only is not None and change not in only:
            continue
        end, _took = forked(module, mutant.code, config, limit_s, output)
        if is_killed(end, module, output):
            killed.append(change)
            continue
        survived.append(change)
        if change not in listed:
            reported.append({"line": mutant.line, **change._asdict()})
            say("%s.py:%d: %s" % (module, mutant.line, change))
    wrong = equivalents.stale(listed, killed, survived) if only is None else ()
    report = Report(len(killed) + len(survived), len(killed), len(survived) - len(reported), reported)
    return report, wrong


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
    os.environ.pop("PYTEST_ADDOPTS", None)
    for name in PRELOADED:
        importlib.import_module(name)
    if any(name.partition(".")[0] == "slotcore" for name in sys.modules):
        raise Trouble("slotcore is loaded already: children would not get the changed one")


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
