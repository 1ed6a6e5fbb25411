# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzz each target for a while, play what was found again, and write build/fuzz.json: run.py SECONDS [TARGET…].

- One target after the other, one process at a time; a find ends the process, is kept, and the time goes on.
- The corpus stays in .build/fuzz, so that a later run begins where this one ended.
- At the end each input of the corpus is played once more in a fresh process, with its memory traced exactly.
- Exit status 1 when there was a find, or when a target ran nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any, Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("plugins/module_utils", "agent/src", "tests")]

from fuzz import seeds, targets

WORK = ROOT / ".build" / "fuzz"
PYTHON = ROOT / ".build" / "venv-fuzz" / "bin" / "python"
MAX_LEN = 8192
MAX_FINDS = 5
_UNITS = re.compile(r"stat::number_of_executed_units:\s*([0-9]+)")
_COVERAGE = re.compile(r"cov: ([0-9]+) ft: ([0-9]+) corp: ([0-9]+)")


def plant(name: str) -> pathlib.Path:
    """Write a target's seeds and finds into its corpus."""
    corpus = WORK / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in [*seeds.plain().get(name, []), *seeds.finds().get(name, [])]:
        (corpus / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)
    return corpus


def fuzz(name: str, seconds: int) -> Dict[str, Any]:
    """Fuzz one target; what was run and what was found."""
    corpus, made = plant(name), WORK / name / "made"
    made.mkdir(exist_ok=True)
    words = WORK / "words"
    words.write_text(seeds.dictionary(), encoding="ascii")
    began, executed = time.monotonic(), 0
    found: List[Dict[str, str]] = []
    coverage: List[int] = []
    while time.monotonic() - began < seconds - 1 and len(found) < MAX_FINDS:
        left = max(int(seconds - (time.monotonic() - began)), 1)
        argv = [str(PYTHON), str(ROOT / "tests/fuzz/one.py"), name, str(corpus), f"-max_total_time={left}"]
        argv += [f"-max_len={MAX_LEN}", "-timeout=20", "-rss_limit_mb=2048", f"-dict={words}"]
        argv += [f"-artifact_prefix={made}/", "-print_final_stats=1", "-verbosity=1"]
        for path in made.iterdir():  # a find of an earlier run is no news if it is found again
            path.rename(WORK / name / path.name)
        log = WORK / name / "log"
        with log.open("wb") as output:
            status = subprocess.run(
                argv, stdout=output, stderr=subprocess.STDOUT, check=False, env=environment(), timeout=left + 120
            ).returncode
        text = log.read_text(encoding="utf-8", errors="replace")
        units = _UNITS.findall(text)
        executed += int(units[-1]) if units else 0
        numbers = _COVERAGE.findall(text)
        coverage = [int(number) for number in numbers[-1]] if numbers else coverage
        fresh = [shown(path, text) for path in made.iterdir()]
        if any(one["base64"] == known["base64"] for one in fresh for known in found):
            break  # the way is closed until this find is mended
        found += fresh
        if status != 0 and not fresh:
            raise SystemExit(f"fuzz: {name}: status {status}, its last words: {text[-800:]}")
    ran = round(time.monotonic() - began, 1)
    return {
        "seconds": ran,
        "executions": executed,
        "coverage": dict(zip(("edges", "features", "inputs"), coverage)),
        "finds": found,
    }


def shown(path: pathlib.Path, text: str) -> Dict[str, str]:
    """A find as the report has it."""
    data = path.read_bytes()
    said = [line for line in text.splitlines() if re.match(r"[A-Za-z_.]+(Error|Find|Exception|Unavailable)\b", line)]
    return {
        "file": str(path),
        "base64": base64.b64encode(data[:4096]).decode(),
        "said": said[-1] if said else path.name,
    }


def environment() -> Dict[str, str]:
    """The environment of a run; nothing of the caller's decides what is imported."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def play_again(name: str) -> Dict[str, Any]:
    """Every input of the corpus once more, without instrumentation and with its memory traced; in a fresh process."""
    argv = [str(PYTHON), str(ROOT / "tests/fuzz/replay.py"), name, str(WORK / name / "corpus")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment())
    if done.returncode != 0:
        raise SystemExit(f"fuzz: {name}: the corpus fails when it is played again: {done.stderr[-2000:]}")
    answer: Dict[str, Any] = json.loads(done.stdout)
    return answer


def main(argv: List[str]) -> int:
    """Fuzz what is asked for."""
    seconds, names = int(argv[0]), argv[1:] or sorted(targets.TARGETS)
    unknown = sorted(set(names) - set(targets.TARGETS))
    if unknown:
        raise SystemExit(f"fuzz: no target {', '.join(unknown)}; there are {', '.join(sorted(targets.TARGETS))}")
    report: Dict[str, Any] = {"seconds_each": seconds, "targets": {}}
    out = ROOT / "build" / "fuzz.json"
    out.parent.mkdir(exist_ok=True)
    for name in names:
        row = fuzz(name, seconds)
        row["replayed"] = play_again(name)
        report["targets"][name] = row
        counts = (name, row["executions"], row["seconds"], row["coverage"].get("edges", 0), len(row["finds"]))
        print("fuzz: %-10s %9d executions in %6.1f s, %4d edges, %d finds" % counts, flush=True)
        for one in row["finds"]:
            print(f"fuzz:   {one['said']}: {one['file']}", flush=True)
        rows = report["targets"].values()
        report["executions"] = sum(one["executions"] for one in rows)
        report["seconds"] = round(sum(one["seconds"] for one in rows), 1)
        report["finds"] = sum(len(one["finds"]) for one in rows)
        out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(
        "fuzz: %d executions in %.0f s, %d finds; build/fuzz.json"
        % (report["executions"], report["seconds"], report["finds"])
    )
    return 1 if report["finds"] or not all(row["executions"] for row in report["targets"].values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
