# SPDX-License-Identifier: GPL-3.0-or-later
"""Who cuts the power in `make powercut`, with a program of the test's in qemu's place: what is cut, told, judged and kept."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List

import pytest
from powercut import cuts, image, machine

# A guest: it reads its mail, keeps it, and says what `script` has for this boot; the rest of its time it works.
GUEST = """#!/usr/bin/python3
import json, os, pathlib, re, sys, time
disks = [re.match("file=([^,]*)", word)[1] for word in sys.argv if word.startswith("file=/") and ",format=raw" in word]
home = pathlib.Path(disks[1]).parent
mail = json.loads(pathlib.Path(disks[1]).read_bytes().rstrip(b"\\0"))
with open(home / "mails", "a") as file:
    file.write(json.dumps(mail) + "\\n")
if mail["install"]:
    print(json.dumps({"installed": True}), flush=True)
    sys.exit(0)
for line in json.loads((home / "script").read_text()):
    if line == "work":
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        (home / "worked").touch()
    elif line in ("idle", "lost"):
        first = not (home / "idled").exists()
        (home / "idled").touch()
        (home / "console.log").write_text("")
        if (first or mail["cut"] > 2) and line == "idle":
            time.sleep(60)
        elif first or mail["cut"] > 2:
            (home / "console.log").write_text("[  339.064785] I/O error, dev nvme0n1, sector 3432 op 0x1:(WRITE)\\n")
            sys.exit(0)
    elif line == "end":
        sys.exit(0)
    elif line == "killed":
        os.kill(os.getpid(), 9)
    elif line == "point":
        print(json.dumps({"reached": mail["points"]["swap"][0]}), flush=True)
    else:
        print(json.dumps(line), flush=True)
while True:
    time.process_time()
"""
STATE = {"state": {"current": "a", "good": "a", "floor": 3, "failed": [], "trial": None, "claim": None}}
UP: List[Any] = [{"boot": 1}, {"verdict": [], "exit": 0, "code": "ok", "said": "", "state": STATE}, {"jobs": True}]
AIMED: List[Any] = [*UP, {"aim": "swap"}, {"job": "swap"}, "point"]


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> cuts.Run:
    """Cuts on ext4 of a machine that is a script."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / machine.QEMU).write_text(GUEST, encoding="utf-8")
    (tmp_path / "bin" / machine.QEMU).chmod(0o755)
    (tmp_path / "images" / image.EXT4).mkdir(parents=True)
    (tmp_path / "images" / image.EXT4 / "root.img").write_bytes(b"as made")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("POWERCUT_DISKS", str(tmp_path))
    for name, path in (("JOURNAL", "journal"), ("RESULT", "result.json"), ("WORK", "work")):
        monkeypatch.setattr(cuts, name, tmp_path / path)
    found = cuts.Run(image.Images(tmp_path / "vmlinuz", tmp_path / "images", {}), image.EXT4, 1, [])
    found.jobs = [0.1] * 15
    found.boots = [0.2] * 15
    return found


def script(run: cuts.Run, *lines: Any) -> None:
    """What the guest says at each boot."""
    (run.disks.directory / "script").write_text(json.dumps(lines), encoding="utf-8")


def mails(run: cuts.Run) -> List[Dict[str, Any]]:
    """What the guest was told, boot by boot, after its installation."""
    lines = (run.disks.directory / "mails").read_text(encoding="utf-8").splitlines()
    return [mail for mail in map(json.loads, lines) if not mail["install"]]


def test_cuts_are_aimed_judged_and_kept(run: cuts.Run) -> None:
    """The power goes where the point says so; each boot judges the cut before it, by what was told before."""
    script(run, *AIMED)
    rows: List[Dict[str, Any]] = []
    for row in run.cuts(3):
        cuts.keep(rows, row)
        run.rows = rows
    points = run.points["swap"]
    assert all(row["point"] in points and row["job"] == "swap" and row["violations"] == [] for row in rows)
    assert len({row["point"] for row in rows[1:]}) == 2, "a point that was cut already came again before the others"
    assert [mail["before"] for mail in mails(run)] == [None, STATE, STATE, STATE]
    found = json.loads(cuts.RESULT.read_text(encoding="utf-8"))
    assert (found["cuts"], found["aimed"], found["violations"], found["filesystems"]["ext4"]) == (3, 3, 0, 3)
    with cuts.JOURNAL.open("a", encoding="utf-8") as file:
        file.write('{"cut": 4, "jo')
    assert cuts.read_journal(run.images.agent) == rows
    assert cuts.read_journal("another") == []


def test_a_cut_that_is_not_aimed_comes_during_the_work(run: cuts.Run) -> None:
    """Without a point the moment is chosen in processor seconds."""
    script(run, *UP, {"job": "confirm"})
    (row,) = run.cuts(1)
    assert (row["job"], row["point"], row["state"]["floor"]) == ("confirm", "", 3)


def test_nobody_cuts_while_the_guest_begins_anew(run: cuts.Run) -> None:
    """What is wiped half is no state of the agent's."""
    script(run, *UP, {"wiping": True}, "work", {"wiping": False}, {"job": "adopt"})
    (row,) = run.cuts(1)
    assert (run.disks.directory / "worked").exists()
    assert row["job"] in {"adopt", ""}


def test_a_violation_is_a_row_and_the_machine_begins_anew(run: cuts.Run) -> None:
    """The disks are as made again, and what was told before counts no more."""
    script(run, *AIMED)
    made = run.cuts(2)
    first = next(made)
    assert first["violations"] == []
    bad = {"verdict": [{"rule": "I3", "what": "the floor is 1, and was 3"}], "exit": 5, "code": "x", "said": "y"}
    script(run, {"boot": 1}, {**bad, "state": STATE})
    run.disks.paths[0].write_bytes(b"changed")
    second = next(made)
    assert [one["rule"] for one in second["violations"]] == ["I3", "settle"]
    assert (run.disks.keep(2) / "root.img").read_bytes() == b"changed"
    assert list(made) == []
    assert (run.disks.paths[0].read_bytes(), run.before) == (b"as made", None)


def test_a_machine_that_does_not_come_up_is_a_violation(run: cuts.Run) -> None:
    """It ended before the checker could look."""
    script(run, *AIMED)
    made = run.cuts(2)
    next(made)
    script(run, {"boot": 1}, "end")
    assert [one["rule"] for one in next(made)["violations"]] == ["boot"]


def test_qemu_that_somebody_ended_is_no_violation(run: cuts.Run) -> None:
    """Nothing of it is judged, and the run ends."""
    script(run, *AIMED)
    made = run.cuts(2)
    next(made)
    script(run, {"boot": 1}, "killed")
    with pytest.raises(machine.Killed):
        next(made)


@pytest.mark.parametrize("how", ["idle", "lost"])
def test_a_machine_that_does_nothing_any_more_is_started_again(
    run: cuts.Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nor one whose disk does not answer. The next boot judges what it has cut; with a disk that never comes up the run ends, and says so."""
    monkeypatch.setattr(machine, "STALLED_S", 1.0)
    script(run, how, *AIMED)
    rows: List[Dict[str, Any]] = []
    made = run.cuts(5)
    run.rows = rows
    for row in (next(made), next(made)):
        cuts.keep(rows, row)
        assert row["violations"] == []
    with pytest.raises(cuts.Failed, match="does not come up, 3 times"):
        list(made)


@pytest.mark.parametrize("line", [{"error": "ours"}, {"done": "swap", "violations": [{"rule": "I1"}], "state": STATE}])
def test_what_goes_wrong_without_a_cut_ends_the_run(run: cuts.Run, line: Dict[str, Any]) -> None:
    """The driver's own failure, and a violation that no cut explains, are not counted as cuts."""
    script(run, *UP, {"aim": "swap"}, line)
    with pytest.raises(cuts.Failed):
        list(run.cuts(1))
