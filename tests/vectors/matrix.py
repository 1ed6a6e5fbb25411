# SPDX-License-Identifier: GPL-3.0-or-later
"""All vectors under both names of slotcore, on every Python and cryptography that can be had; the table goes to build/matrix.json.

- this environment (cryptography as in tools/requirements.txt);
- the base trees of the three suites, in a chroot that is mounted for the run: Debian's own Python and cryptography;
- every other Python from 3.9 on that is found (pyenv, /usr/bin), each in an environment with the newest cryptography for it;
- signatures made elsewhere (elsewhere.py), from the package cryptography-vectors.

What could not be run is said, with the reason. Exit status 1 when a case failed or nothing ran.
"""

from __future__ import annotations

import glob
import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = "tests/vectors/run.py"
NAMES = ("slotcore", "ansible_collections.slotward.fleet.plugins.module_utils.slotcore")
SUITES = ("bullseye", "bookworm", "trixie")
MINORS = range(8, 15)
FLOOR = 9
WORK = ROOT / ".build" / "matrix"
ENTER = """mount --bind "$1" "$2/mnt" && mount -t tmpfs none "$2/tmp" && exec chroot "$2" /usr/bin/python3 -B "/mnt/$3" "$4" """

Row = Dict[str, Any]


def play(where: str, words: Sequence[str]) -> Row:
    """Run one leg; its JSON line, or what it said instead."""
    done = subprocess.run(
        list(words), capture_output=True, text=True, check=False, timeout=600, cwd="/", env=environment()
    )
    try:
        row: Row = json.loads(done.stdout)
    except ValueError:
        row = {"failed": [(done.stderr or done.stdout)[-600:]]}
    return {"where": where, "status": done.returncode, **row}


def environment() -> Dict[str, str]:
    """Nothing of the caller's decides what is imported."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": os.environ.get("HOME", "/")}


def suites(skipped: List[str]) -> List[Row]:
    """The base trees, as they are installed on hosts."""
    rows: List[Row] = []
    for suite in SUITES:
        if os.geteuid() != 0:
            skipped.append(f"{suite}: needs root")
            continue
        made = subprocess.run(
            [str(ROOT / "tests/hosts/hostctl"), "base", suite], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            skipped.append(f"{suite}: no base tree: {made.stderr.strip()[-300:]}")
            continue
        base = made.stdout.split()[-1]
        enter = ["unshare", "-m", "sh", "-c", ENTER, "sh", str(ROOT), base, RUN]
        rows += [play(suite, [*enter, name]) for name in NAMES]
    return rows


def interpreter(minor: int) -> Optional[str]:
    """A Python 3.`minor` that belongs to no environment."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for path in (*sorted(glob.glob(f"{pyenv}/versions/3.{minor}.*/bin/python3")), f"/usr/bin/python3.{minor}"):
        test = (
            subprocess.run([path, "-I", "-c", "import ensurepip, venv"], capture_output=True, check=False)
            if os.path.exists(path)
            else None
        )
        if test is not None and test.returncode == 0:
            return path
    return None


def made_environment(minor: int, python: str) -> str:
    """The Python of an environment with the newest cryptography for it; made once."""
    place = WORK / f"py3.{minor}"
    inside = place / "bin" / "python"
    if not (place / "made").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True, capture_output=True)
        subprocess.run([str(inside), "-m", "pip", "install", "-q", "cryptography"], check=True, capture_output=True)
        (place / "made").touch()
    return str(inside)


def others(skipped: List[str]) -> List[Row]:
    """Every other Python that is found."""
    rows: List[Row] = []
    for minor in MINORS:
        python = interpreter(minor)
        if python is None:
            skipped.append(f"python 3.{minor}: not found")
            continue
        if minor < FLOOR:
            skipped.append(f"python 3.{minor}: below the floor, 3.{FLOOR}")
            continue
        try:
            inside = made_environment(minor, python)
        except subprocess.CalledProcessError as error:
            skipped.append(
                f"python 3.{minor}: no environment: {(error.stderr or b'').decode(errors='replace').strip()[-300:]}"
            )
            continue
        rows += [play(f"python 3.{minor}", [inside, "-B", str(ROOT / RUN), name]) for name in NAMES]
    return rows


def made_elsewhere(skipped: List[str]) -> List[Row]:
    """Signatures from the package cryptography-vectors, which is fetched once."""
    place = WORK / "vectors"
    if not (place / "cryptography_vectors").is_dir():
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", str(place)]
        done = subprocess.run(
            [*words, "-r", str(ROOT / "tests/vectors/requirements.txt")], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            skipped.append(f"signatures made elsewhere: {done.stderr.strip()[-300:]}")
            return []
    words = [sys.executable, "-B", str(ROOT / "tests/vectors/elsewhere.py"), str(place / "cryptography_vectors")]
    return [play("signatures made elsewhere", words)]


def shown(row: Row) -> str:
    """One line for people."""
    count = sum(row["passed"].values()) if "passed" in row else sum(row.get("cases", {}).values())
    said = "ok" if row["status"] == 0 else "FAILED: %s" % str(row["failed"])[:600]
    short = str(row.get("name", "")).rpartition(".")[2] if row.get("name") != NAMES[1] else "long name"
    return "matrix: %-26s %-8s cryptography %-8s %-10s %5d cases %s" % (
        row["where"], row.get("python", ""), row.get("cryptography", ""), short, count, said,
    )  # fmt: skip


def main() -> int:
    """Run all legs."""
    WORK.mkdir(parents=True, exist_ok=True)
    skipped: List[str] = []
    rows = [play("this environment", [sys.executable, "-B", str(ROOT / RUN), name]) for name in NAMES]
    rows += suites(skipped) + others(skipped) + made_elsewhere(skipped)
    for row in rows:
        print(shown(row))
    for text in skipped:
        print(f"matrix: skipped {text}")
    out = ROOT / "build" / "matrix.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"rows": rows, "skipped": skipped}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0 if rows and all(row["status"] == 0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
