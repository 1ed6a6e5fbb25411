# SPDX-License-Identifier: GPL-3.0-or-later
"""A quick part of `make faults`, and that what it counts, aims at and compares is what it says."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import zipfile
from typing import Any, Dict, List

import pytest
from faults import cases, hosts, jobs, syscalls, tracing
from support import archive

TRACE = """\
100 openat(AT_FDCWD</>, "/usr/lib/x.py", O_RDONLY) = 3</usr/lib/x.py>
100 openat(AT_FDCWD</>, "/opt/slotward/slotward/lock", O_RDWR) = 4</opt/slotward/slotward/lock>
100 rename("/opt/slotward/slotward/trial.tmp", "/opt/slotward/slotward/trial") = 0
100 write(5</opt/slotward/slotward/.probe-4711>, "/etc/systemd/system", 9) = 9
100 write(1</dev/null>, "/opt/slotward/slotward/trial", 9) = 9
100 vfork( <unfinished ...>
200 close(4</opt/slotward/slotward/lock>) = 0
200 execve("/usr/bin/none", ["mv"], 0x1) = -1 ENOENT (No such file or directory)
200 execve("/usr/bin/mv", ["mv", "-T", "back", "current"], 0x1 <unfinished ...>
100 <... vfork resumed>) = 200
200 <... execve resumed>) = 0
200 openat(AT_FDCWD</opt/slotward/slotward>, "/etc/ld.so.cache", O_RDONLY) = 3</etc/ld.so.cache>
200 renameat2(AT_FDCWD</opt/slotward/slotward>, "back", AT_FDCWD</opt/slotward/slotward>, "current", 0) = 0
200 close(7</opt/slotward/slotward/b (deleted)>) = 0
200 +++ exited with 0 +++
"""


def found(process: str) -> List[tracing.Call]:
    """The calls in scope of one part of the trace."""
    main, child = tracing.processes(TRACE)
    lines: Dict[str, Any] = {"main": main.own, "before": child.own, "as mv": child.as_program}
    return tracing.calls(lines[process], hosts.IN_SCOPE)


def test_calls_are_told_by_name_number_and_path() -> None:
    """What is in scope is what a call is about, not what it writes; numbers of the moment do not tell calls apart."""
    assert found("main") == [
        ("openat", 2, "/opt/slotward/slotward/lock"),
        ("rename", 1, "/opt/slotward/slotward/trial.tmp"),
        ("write", 1, "/opt/slotward/slotward/.probe-#"),
    ]


def test_a_link_is_told_by_its_name_and_not_by_where_it_leads() -> None:
    """What another process has open, of whatever host, is not this run's."""
    lines = [
        'readlink("/proc/77/fd/3", "/opt/slotward/slotward/lock", 4096) = 27',
        'readlink("/opt/slotward/slotward/current", "a", 4096) = 1',
    ]
    assert tracing.calls(lines, hosts.IN_SCOPE) == [("readlink", 2, "/opt/slotward/slotward/current")]
    lines.insert(0, 'readlink("/usr/local/bin/slotward", "/opt/slotward/slotward/current", 4096) = 30')
    wanted = tracing.Call("readlink", 1, "/opt/slotward/slotward/current")
    assert tracing.on_path(lines, wanted, hosts.IN_SCOPE, "/") == (wanted.path, 1)


def test_a_program_that_is_run_is_counted_from_its_own_beginning() -> None:
    """A call before that belongs to who ran it; names without a directory are those of where it works."""
    assert tracing.processes(TRACE)[1].program == "mv"
    assert found("before") == [("close", 1, "/opt/slotward/slotward/lock")]
    assert found("as mv") == [
        ("renameat2", 1, "/opt/slotward/slotward/back"),
        ("close", 1, "/opt/slotward/slotward/b"),
    ]


SEEN = """\
openat(AT_FDCWD</>, "/etc/systemd/system", O_RDONLY) = 3</etc/systemd/system>
openat(3</etc/systemd/system>, "50-x.conf", O_RDONLY) = 4</etc/systemd/system/50-x.conf>
openat(3</etc/systemd/system>, ".", O_RDONLY) = 5</etc/systemd/system>
openat(9</opt/other>, "50-x.conf", O_RDONLY) = 6</opt/other/50-x.conf>
openat(3</etc/systemd/system>, "50-x.conf", O_RDONLY) = 7</etc/systemd/system/50-x.conf>
"""


@pytest.mark.parametrize(
    ("path", "number", "raw", "so_many"),
    [
        ("/etc/systemd/system", 1, "/etc/systemd/system", 1),
        ("/etc/systemd/system", 2, "/etc/systemd/system", 3),
        ("/etc/systemd/system/50-x.conf", 2, "50-x.conf", 3),
    ],
)
def test_a_call_is_found_by_how_it_says_its_path(path: str, number: int, raw: str, so_many: int) -> None:
    """With every call before it that says the same, in scope or not: strace counts those."""
    wanted = tracing.Call("openat", number, tracing._MOMENT.sub("#", path))
    assert tracing.on_path(SEEN.splitlines(), wanted, hosts.IN_SCOPE, "/") == (raw, so_many)
    assert tracing.on_path(SEEN.splitlines(), wanted._replace(number=3), hosts.IN_SCOPE, "/") is None


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_strace_counts_the_calls_on_a_path_alike(tmp_path: pathlib.Path) -> None:
    """The second opening of one of two files fails, however many openings there were before; no other does."""
    first, second, out = (tmp_path / name for name in ("first", "second", "out"))
    first.touch()
    second.touch()
    argv = ["cat", *(str(path) for path in (first, second, first, second, second))]
    subprocess.run(["strace", "-y", "-e", "trace=openat", "-o", str(out), *argv], check=True)
    call = tracing.Call("openat", 2, tracing._MOMENT.sub("#", str(second)))
    there = tracing.on_path(out.read_text().splitlines(), call, [str(tmp_path)], str(tmp_path))
    assert there == (str(second), 2)
    words = [*tracing.options("openat", there[1], "EIO"), "-P", there[0]]
    done = subprocess.run(["strace", *words, "-o", str(out), *argv], capture_output=True, text=True, check=False)
    assert done.stderr.count("Input/output error") == 1
    lines = out.read_text().splitlines()
    assert ["INJECTED" in line for line in lines if "second" in line] == [False, True, False]


def test_a_fault_counts_only_where_strace_says_so() -> None:
    """An error is marked; a kill is the last call of a process that died of it."""
    failed = 'rename("a", "b") = -1 EIO (Input/output error) (INJECTED)'
    assert tracing.hits(f"17 {failed}\n17 rename(\n", "rename", "EIO") == [failed]
    assert tracing.hits('rename("a", "b") = -1 EIO\n', "rename", "EIO") == []
    killed = (
        f'rename("a", "b") = 0\nrename("c", "d") = 0\n--- {tracing.KILL} {{}} ---\n+++ killed by {tracing.KILL} +++\n'
    )
    assert tracing.hits(killed, "rename", "SIGKILL") == ['rename("c", "d") = 0']
    assert tracing.hits('rename("a", "b") = 0\n+++ exited with 0 +++\n', "rename", "SIGKILL") == []


READS = """\
read(3<pipe:[1]>, "x", 1) = 1
read(5</opt/slotward/slotward/lock>, "a", 1) = 1
read(5</opt/slotward/slotward/lock>, "b", 1) = -1 EIO (Input/output error) (INJECTED)
read(5</opt/slotward/slotward/lock>, "b", 1) = 1
"""


def test_a_case_was_reached_only_at_the_call_that_was_meant() -> None:
    """Another call on the same path does not count, nor one of another path; by its path, strace has counted."""
    job = jobs.jobs(hosts.Releases(pathlib.Path("/"), "", 1))[0]
    case = cases.Case("swap", cases.MAIN, "read", 2, "/opt/slotward/slotward/lock", "EIO")
    ended = cases.Ended(0, "", READS)
    assert cases.reached(job, case, ended, by_path=False) == 1
    assert cases.reached(job, case, ended, by_path=True) == 1
    for other in (case._replace(number=1), case._replace(number=3), case._replace(path="/opt/slotward/slotward/b")):
        assert cases.reached(job, other, ended, by_path=False) == 0
    killed = READS.replace(" = -1 EIO (Input/output error) (INJECTED)", " = 1").rsplit("read(", 1)[0]
    ended = cases.Ended(-10, "", f"{killed}--- {tracing.KILL} {{}} ---\n+++ killed by {tracing.KILL} +++\n")
    assert [cases.reached(job, case._replace(number=n, fault="SIGKILL"), ended, by_path=False) for n in (1, 2)] == [
        0,
        1,
    ]


def test_each_case_is_one_workers_whatever_the_order_it_was_found_in() -> None:
    """Workers make their lists each for itself: who does what hangs on the case alone."""
    made = [cases.Case("swap", "main", "read", number, "/opt/x", "EIO") for number in range(300)]
    shares = [syscalls.share(case, 3) for case in made]
    assert [shares.count(worker) > 60 for worker in range(3)] == [True] * 3
    assert [syscalls.share(case, 3) for case in reversed(made)] == shares[::-1]


def test_an_end_that_differs_is_told() -> None:
    """The end of a repeated job is compared in everything, the files of the system one by one."""
    wanted = {"current": "1.0.0", "floor": 1, "system": {"/a": "1", "/b": "2"}}
    assert cases._differences(wanted, wanted) == []
    other = {"current": "1.1.0", "floor": 1, "system": {"/a": "1", "/b": "3", "/c": "4"}}
    assert [line.split(" is ")[0] for line in cases._differences(other, wanted)] == [
        "again: current",
        "again: /b",
        "again: /c",
    ]


def row(**changes: Any) -> Dict[str, Any]:
    """A row of the table."""
    case = cases.Case("swap", "main", "rename", 3, "/opt/x", "EIO")
    return {**case._asdict(), "exit": 4, "outcome": "", "hit": 1, "violations": [], **changes}


def test_the_figures_count_what_was_brought_about(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A violation, or a case that was not reached, ends with 1 and is printed; the table has each outcome."""
    rows = [row(), row(fault="SIGKILL", exit=-10), row(number=4, exit=0)]
    assert syscalls.report(rows, True, tmp_path) == 0
    kept = json.loads((tmp_path / "faults.json").read_text())
    assert (kept["cases"], kept["violations"], kept["calls"], kept["missed"], kept["complete"]) == (3, 0, 2, 0, True)
    assert "1d 1f" in capsys.readouterr().out
    assert syscalls.report([*rows, row(number=5, violations=["I1: gone"])], True, tmp_path) == 1
    assert "I1: gone" in capsys.readouterr().out
    assert syscalls.report([*rows, row(number=5, hit=0)], True, tmp_path) == 1
    assert json.loads((tmp_path / "faults.json").read_text())["missed"] == 1
    assert "not reached" in capsys.readouterr().out


def test_rows_are_gone_on_with_by_the_sources_alone(tmp_path: pathlib.Path) -> None:
    """Two compilations of one source need not have the same bytes; another source is another agent."""

    def told(source: str, compiled: bytes) -> str:
        with zipfile.ZipFile(tmp_path / "agent", "w") as packed:
            packed.writestr("a.py", source)
            packed.writestr("a.pyc", compiled)
        return archive.source(tmp_path / "agent")

    assert told("1\n", b"one") == told("1\n", b"two") != told("2\n", b"one")


def test_what_an_earlier_run_did_not_reach_is_not_told_again(tmp_path: pathlib.Path) -> None:
    """Its own run tells of it; a later one reaches it, says so itself, or has no such call."""
    old, new = row(number=1, hit=0), row(number=2)
    lines = [{"source": "here", "run": "one"}, old, new]
    (tmp_path / "0-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(syscalls.kept_rows(tmp_path, "here", "one")) == [old, new]
    assert list(syscalls.kept_rows(tmp_path, "here", "two")) == [new]
    assert list(syscalls.kept_rows(tmp_path, "there", "one")) == []


def test_two_hosts_are_the_same_but_for_the_time_of_their_cases() -> None:
    """The deadline that was given, what was written meanwhile, and a length from then; no other number, and no part of a word."""
    record = b"SPEC=1\nID=00112233445566aa\nDEADLINE_S=%d\nLENGTH_S=600\nstart %d\ncrash 110 950000050.%d.4\n"
    one, two = record % (1595, 1003, 1003), record % (71595, 71000, 1003)
    assert hosts.timeless(one, 1000, 595) == hosts.timeless(two, 71000, 595)
    assert b"DEADLINE_S=given\nLENGTH_S=600\nstart now\ncrash 110 950000050.1003.4\n" in hosts.timeless(one, 1000, 595)
    assert b"DEADLINE_S=then\n" in hosts.timeless(record % (1601, 1, 1), 1000, 595)
    for other in (record % (1594, 1003, 1003), record % (1595, 999, 1003), record % (1595, 1003, 1004)):
        assert hosts.timeless(other, 1000, 595) != hosts.timeless(one, 1000, 595)
    seen = [b'{"at": 1, "environment": {"MemFree": "%d kB"}}' % kib for kib in (1, 2)]
    assert hosts.gathered(seen[0]) == hosts.gathered(seen[1]) != hosts.gathered(seen[0].replace(b"at", b"an"))
    assert hosts.gathered(b'{"at": 1, "env') == b'{"at": 1, "env'
    held = b'pid=4711\nsince=12.5\nwhat=upgrade to 1.1.0\n{"at": 1, "pid": 4711}\n'
    assert hosts.ended(held) == b'pid=gone\nsince=gone\nwhat=upgrade to 1.1.0\n{"at": 1, "pid": gone}\n'


def test_what_changes_something_comes_first() -> None:
    """So that a run that is ended early has done what matters most."""
    calls = ["read", "newfstatat", "close", "rename"]
    made = [cases.Case("swap", "main", call, 1, "/opt/x", "EIO") for call in calls]
    assert [case.call for case in sorted(made, key=syscalls.weight)] == ["rename", "close", "newfstatat", "read"]


WHY = cases.available()


@pytest.mark.skipif(bool(WHY), reason=f"cannot inject faults: {WHY}")
def test_renames_that_fail_or_are_the_last_leave_a_sound_host(tmp_path: pathlib.Path) -> None:
    """The claim and the links of going back, by the agent and by the guard; the whole table is `make faults`."""
    argv = [sys.executable, syscalls.__file__, "--jobs", "rollback guard-finish", "--calls", "rename renameat2"]
    done = subprocess.run(
        [*argv, "--faults", "EIO SIGKILL", "--output", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((tmp_path / "faults.json").read_text())
    assert (kept["violations"], kept["missed"]) == (0, 0)
    claimed = [one for one in kept["rows"] if one["path"].endswith("/trial") and one["fault"] == "SIGKILL"]
    assert [one["outcome"] for one in claimed] == ["killed; settle: finish-revert"]
    assert {one["process"] for one in kept["rows"]} == {"main", "mv.1"}
