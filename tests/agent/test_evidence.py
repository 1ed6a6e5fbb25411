# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward evidence`: gathered after going back, by a unit that nobody waits for, and safe against what lies there (H10, I6)."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from typing import Any, Dict, List, NoReturn, Tuple

import pytest
from agent.resting import BOOT, ID, RECORD, TRIAL

from agent import resting
from slotcore import codes, records, settle, trial
from slotcore import product as products
from slotward import (
    answers,
    cli,
    evidence_file,
    evidence_gather,
    evidence_journal,
    host,
    manager,
    probe_journal,
    systemd,
)

JOURNALCTL = """#!/bin/sh
echo "$*" >>"$FAKE_SYSTEMD/asked"
case "$*" in *--since*) ! [ -f "$FAKE_SYSTEMD/deaf" ] || exit 0;; esac
[ ! -f "$FAKE_SYSTEMD/journal" ] || cat "$FAKE_SYSTEMD/journal"
exit "$(cat "$FAKE_SYSTEMD/journal-status" 2>/dev/null || echo 0)"
"""
LAST = records.Last(ID, "rolled-back", codes.CRASH_LOOP, "it kept exiting", "1.0.0", "1.1.0", int(time.time()))


@pytest.fixture(name="product")
def _product(tmp_path: pathlib.Path, systemctl: None, monkeypatch: pytest.MonkeyPatch) -> products.Product:
    """A product whose last trial failed, and a journal that is a file of this test."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "journalctl").write_text(JOURNALCTL)
    (own / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    found = resting.product(tmp_path)
    update = records.Update(floor=1, last=LAST)
    pathlib.Path(found.path("update.json")).write_bytes(records.render_update(update))
    return found


def entry(at_s: float, message: str, boot: str = BOOT, **more: str) -> Dict[str, str]:
    """One line of the journal, of that second of the boot."""
    wall = str(int((LAST.at + at_s - 130) * 1e6))
    return {
        "__MONOTONIC_TIMESTAMP": str(int(at_s * 1e6)),
        "__REALTIME_TIMESTAMP": wall,
        "_BOOT_ID": boot.replace("-", ""),
        "_PID": "77",
        "SYSLOG_IDENTIFIER": "probe",
        "MESSAGE": message,
        **more,
    }


def ended(at_s: float, code: str, status: str) -> Dict[str, str]:
    """What systemd says of the end of a main process."""
    message = f"probe.service: Main process exited, code={code}, status={status}"
    more = {"MESSAGE_ID": evidence_journal.PROCESS_EXIT, "EXIT_CODE": code, "EXIT_STATUS": status, "_PID": "1"}
    return entry(at_s, message, SYSLOG_IDENTIFIER="systemd", **more)


def journal(tmp_path: pathlib.Path, *entries: Dict[str, str]) -> None:
    """What the journal has, newest first as it is asked for."""
    lines = [json.dumps(one) + "\n" for one in reversed(entries)]
    (tmp_path / "journal").write_text("".join(lines) + "not json\n[]\n")


def in_boot(monkeypatch: pytest.MonkeyPatch, boot: str = BOOT, uptime_s: int = 130) -> None:
    """This boot, and how long it has lasted; nothing was ever suspended."""
    monkeypatch.setattr(host, "clock", lambda _proc="/proc": settle.Clock(uptime_s, boot))
    monkeypatch.setattr(host, "uptime_s", lambda _proc="/proc": float(uptime_s))
    monkeypatch.setattr(time, "monotonic", lambda: float(uptime_s))


def known(product: products.Product, log: bytes = b"log 1\nstart 80\ncrash 81 1-1\nstart 82\nowed 90\n") -> Any:
    """A trial of second 80 to 100 of the boot, and what its log says."""
    return evidence_gather.Known(product, LAST, TRIAL, log, 120)


def kept(product: products.Product) -> Dict[str, Any]:
    """What is kept of the one trial."""
    found = evidence_file.read(product, ID)
    assert found is not None
    return found


def test_H10_what_the_release_left_is_kept(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines and exits within its own time, by the clock of the boot; root's alone; the same again changes nothing (I9)."""
    in_boot(monkeypatch)
    (tmp_path / "show").write_text("ActiveState=active\nNRestarts=3\n")
    journal(
        tmp_path,
        entry(10, "of the version before"),
        entry(10, "of another boot", boot="f" * 32),
        entry(80.5, "cannot open the door\nand no window"),
        ended(81, "exited", "1"),
        entry(83, "Started guard", UNIT="slotward-guard@probe.service", _PID="1"),
        entry(89, "going back from b to a", UNIT="slotward-guard@probe.service"),
        ended(89.5, "killed", "KILL"),
        entry(119, "the good one is ready"),
        entry(125, "long after"),
    )
    assert evidence_gather.gather(known(product)) == ""
    found = kept(product)
    texts = [line.split("]: ", 1)[1] for line in found["journal"]]
    assert [text.split(":")[0] for text in texts] == [
        "cannot open the door\nand no window",
        "probe.service",
        "going back from b to a",
        "probe.service",
        "the good one is ready",
    ]
    assert found["journal"][0].startswith("+0.500 probe[77]: ")
    assert found["starts"] == [{"at": 0, "exit": "exited 1"}, {"at": 2, "exit": "killed KILL"}]
    assert found["environment"]["probe.service NRestarts"] == "3"
    assert (found["missing"], found["code"], found["why"]) == ([], "crash-loop", "it kept exiting")
    path = pathlib.Path(product.path("evidence"))
    assert (path.stat().st_mode & 0o777, (path / f"{ID}.json").stat().st_mode & 0o777) == (0o700, 0o600)
    before = (path / f"{ID}.json").stat()
    assert evidence_gather.gather(known(product)) == ""
    assert (path / f"{ID}.json").stat() == before
    assert os.listdir(path) == [f"{ID}.json"]


def test_a_clock_that_was_set_is_no_matter(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I10: where the wall clock finds nothing the newest lines are looked at, by the clock of the boot."""
    in_boot(monkeypatch)
    (tmp_path / "deaf").touch()
    journal(tmp_path, entry(85, "here"))
    assert evidence_gather.gather(known(product)) == ""
    assert [line.split("]: ")[1] for line in kept(product)["journal"]] == ["here"]
    assert "--lines" in (tmp_path / "asked").read_text().splitlines()[1]


def test_a_trial_of_an_earlier_boot(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own boot and what came after it, not what was before."""
    in_boot(monkeypatch, boot="a" * 8 + BOOT[8:])
    journal(tmp_path, entry(5, "before", boot="f" * 32), entry(85, "one"), entry(3, "two", boot="a" * 32))
    assert evidence_gather.gather(known(product)) == ""
    assert [line.split("]: ")[1] for line in kept(product)["journal"]] == ["one", "two"]


def no_such_program(*_given: object) -> NoReturn:
    """It is not installed."""
    raise FileNotFoundError(2, "none")


@pytest.mark.parametrize("how", ["none", "fails", "empty"])
def test_no_journal_is_said_and_that_is_all(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Evidence without it is worth having; systemd that says nothing is no hindrance either."""
    in_boot(monkeypatch)
    (tmp_path / "fail-show").write_text("1")
    if how == "none":
        monkeypatch.setattr(probe_journal, "bounded", no_such_program)
    elif how == "fails":
        (tmp_path / "journal-status").write_text("1")
    assert evidence_gather.gather(known(product)) == ""
    said = kept(product)["missing"]
    wanted = {"none": "cannot run journalctl", "fails": "journalctl ended with status 1", "empty": "has no line of"}[
        how
    ]
    assert wanted in said[0]
    assert "systemd says nothing" in said[1]


def test_only_the_newest_four_stay(product: products.Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of what a cut left half written."""
    in_boot(monkeypatch)
    directory = pathlib.Path(product.path("evidence"))
    for number in range(7):
        last = LAST._replace(trial_id=f"{number:016x}")
        assert evidence_gather.gather(known(product)._replace(last=last)) == ""
        at = time.time() + number
        os.utime(directory / f"{number:016x}.json", (at, at))
        (directory / f"{number:016x}.json.partial").write_bytes(b"half")
    assert evidence_gather.gather(known(product)) == ""
    names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    assert names == [*(f"{number:016x}.json" for number in (4, 5, 6)), f"{ID}.json"]
    assert [name for name in os.listdir(directory) if name.endswith(".partial")] == []


def test_no_space_keeps_nothing_and_takes_nothing(
    product: products.Product, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """I2: a full host has better use for its space; it is said, and what is kept stays readable."""
    in_boot(monkeypatch)
    real = os.fstatvfs

    def full(descriptor: int) -> Any:
        found = real(descriptor)
        return os.statvfs_result((*found[:4], 100, *found[5:]))

    assert evidence_gather.gather(known(product)._replace(last=LAST._replace(trial_id="f" * 16))) == ""
    monkeypatch.setattr(os, "fstatvfs", full)
    assert "have to stay so" in evidence_gather.gather(known(product))
    assert [one["id"] for one in evidence_file.kept(product)[0]] == ["f" * 16]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("what", ["link", "file", "fifo", "foreign", "open"])
def test_i6_a_directory_that_is_not_ours(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """I6: nothing is written where a link leads, nor into what others may change; it is said and nothing fails."""
    in_boot(monkeypatch)
    path, outside = pathlib.Path(product.path("evidence")), tmp_path / "outside"
    outside.mkdir()
    if what == "link":
        path.symlink_to(outside)
    elif what == "file":
        path.write_bytes(b"x")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir(0o700)
        os.chown(path, 4711 if what == "foreign" else 0, 0)
        path.chmod(0o700 if what == "foreign" else 0o770)
    assert str(path) in evidence_gather.gather(known(product))
    assert list(outside.iterdir()) == []
    found, odd = evidence_file.kept(product)
    assert (found, [str(path) in one for one in odd]) == ([], [True])


@pytest.mark.skipif(os.geteuid() != 0, reason="makes devices and gives files to another user")
@pytest.mark.parametrize(
    "what", ["link", "fifo", "zero", "directory", "foreign", "writable", "huge", "another", "json"]
)
def test_i6_a_file_that_is_none_of_ours(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """I6: neither followed, nor waited for, nor believed; the list shows the others and says which one it is not."""
    in_boot(monkeypatch)
    assert evidence_gather.gather(known(product)._replace(last=LAST._replace(trial_id="f" * 16))) == ""
    data = pathlib.Path(product.path("evidence"), "f" * 16 + ".json").read_bytes()
    path = pathlib.Path(product.path("evidence"), f"{ID}.json")
    if what == "link":
        (tmp_path / "secret").write_bytes(data)
        path.symlink_to(tmp_path / "secret")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "zero":
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    elif what == "directory":
        path.mkdir()
    else:
        path.write_bytes({"json": b"[" * 90_000}.get(what, data))
        os.chown(path, 4711 if what == "foreign" else 0, 0)
        path.chmod(0o620 if what == "writable" else 0o600)
        if what == "huge":
            os.truncate(path, 1 << 40)
    found, odd = evidence_file.kept(product)
    assert [one["id"] for one in found] == ["f" * 16]
    assert [str(path) in one for one in odd] == [True]
    if what != "another":
        with pytest.raises(codes.Refused):
            evidence_file.read(product, ID)


def test_a_planted_name_is_replaced_never_written_through(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: a link at the name that is written first leads nowhere."""
    in_boot(monkeypatch)
    directory = pathlib.Path(product.path("evidence"))
    directory.mkdir(0o700)
    (tmp_path / "victim").write_bytes(b"kept")
    (directory / f"{ID}.json.partial").symlink_to(tmp_path / "victim")
    assert evidence_gather.gather(known(product)) == ""
    assert (tmp_path / "victim").read_bytes() == b"kept"
    assert kept(product)["trial_id"] == ID


class Asked:
    """What systemd was asked to run, in the stead of asking it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> None:
        self.calls: List[Tuple[List[str], str]] = []
        self.fails = fails
        monkeypatch.setattr(systemd, "run_detached", self.run)
        monkeypatch.setattr(sys, "path", ["/proc/self/fd/9", *sys.path])

    def run(self, argv: List[str], unit: str, properties: Any, timeout_s: float) -> None:
        """Take the call."""
        assert timeout_s <= 2
        self.calls.append((argv, unit))
        if self.fails:
            raise codes.Retryable(codes.SYSTEMD_FAILED, "no answer")


def test_H10_whoever_settles_has_it_gathered_once(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a unit of its own, with what only the one who settles still knows: the record and the log are gone by then."""
    asked = Asked(monkeypatch)
    pathlib.Path(product.path("trial.revert")).write_bytes(RECORD + b"REASON=crash-loop\n")
    pathlib.Path(product.path("trial.log")).write_bytes(trial.LOG_HEADER + b"start 80\n")
    assert manager.settle_now(product)[1] == "finish-revert"
    manager.settle_now(product)
    ((argv, unit),) = asked.calls
    assert unit == f"slotward-evidence-probe-{ID}"
    assert argv[1:5] == ["evidence", "--product", "probe", "--gather"]
    found = evidence_gather.unpacked("probe", argv[5])
    assert (found.pending, found.log) == (TRIAL, trial.LOG_HEADER + b"start 80\n")
    assert (found.last.trial_id, found.last.code, found.product.slots_dir) == (ID, "crash-loop", product.slots_dir)
    assert not os.path.exists(product.path("evidence")), "nobody who settles gathers"


def test_what_cannot_be_asked_for_stops_nothing(
    product: products.Product, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """I8: going back is done, and the way to gather it by hand is said."""
    Asked(monkeypatch, fails=True)
    pathlib.Path(product.path("trial.revert")).write_bytes(RECORD + b"REASON=crash-loop\n")
    assert manager.settle_now(product)[1] == "finish-revert"
    assert "`slotward evidence --product probe --gather` does it now" in capsys.readouterr().err


def test_what_is_being_gathered_is_asked_for_once(
    product: products.Product, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever was cut between that and the end of the claim had asked; a second unit of the name is refused, and that is well."""
    Asked(monkeypatch, fails=True)
    shown = {"Transient": "yes", "ActiveState": "active"}
    monkeypatch.setattr(systemd, "show", lambda unit, _names: shown if unit.startswith("slotward-evidence-") else {})
    pathlib.Path(product.path("trial.revert")).write_bytes(RECORD + b"REASON=crash-loop\n")
    assert manager.settle_now(product)[1] == "finish-revert"
    assert "evidence" not in capsys.readouterr().err


@pytest.mark.parametrize("record", [b"trial", b"trial.confirm"])
def test_only_a_failed_trial_has_evidence(
    product: products.Product, monkeypatch: pytest.MonkeyPatch, record: bytes
) -> None:
    """One that never began, and one that was confirmed, left nothing to look into."""
    asked = Asked(monkeypatch)
    pathlib.Path(product.path(record.decode())).write_bytes(RECORD)
    assert manager.settle_now(product)[1] in ("abandon", "finish-confirm")
    assert asked.calls == []


@pytest.mark.parametrize("text", ["x", "e30=", "WzFd"])
def test_strange_facts_are_a_wrong_command_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--gather` is given nothing by hand."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert cli.main(["evidence", "--gather", text, "--json"]) == answers.USAGE


@pytest.mark.skipif(os.geteuid() != 0, reason="evidence is root's")
def test_the_command_lists_shows_and_gathers(
    product: products.Product,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What nobody could gather at the end is gathered by hand, from what the journal still has."""
    config = tmp_path / "config.toml"
    config.write_text(f'[update]\nslots_dir = "{product.slots_dir}"\nentrypoint = "{tmp_path}/probe"\n')
    tmp_path.chmod(0o755)

    def ask(*words: str) -> Tuple[int, Dict[str, Any]]:
        capsys.readouterr()
        status = cli.main(["evidence", "--config", str(config), "--json", *words])
        return status, json.loads(capsys.readouterr().out)

    journal(tmp_path, entry(120, "it is me"))
    assert ask()[1]["kept"] == []
    status, gone = ask(ID)
    assert (status, gone["code"]) == (3, "no-evidence")
    assert "slotward evidence --gather" in gone["message"]
    assert [ask("--gather")[1]["changed"] for _again in range(2)] == [True, False]
    (head,) = ask()[1]["kept"]
    assert (head["id"], head["to"], head["code"]) == (ID, "1.1.0", "crash-loop")
    shown = ask(ID)[1]["evidence"]
    assert [line.split("]: ")[1] for line in shown["journal"]] == ["it is me"]
    assert "starts are not known" in shown["missing"][0]
    assert ask("../x")[0] == 3
    capsys.readouterr()
    assert cli.main(["evidence", "--config", str(config), ID]) == 0
    assert "crash-loop: it kept exiting" in capsys.readouterr().out
    update = records.Update(floor=1, last=LAST._replace(state="confirmed", code="ok"))
    pathlib.Path(product.path("update.json")).write_bytes(records.render_update(update))
    assert ask("--gather")[1]["code"] == "no-evidence"


def test_evidence_is_root_s(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A journal may hold secrets."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert cli.main(["evidence", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["code"] == "not-root"
