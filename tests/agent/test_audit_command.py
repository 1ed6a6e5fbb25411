# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward audit` and doctor's check of the log: what is shown, what is found, and how an operator goes on."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from slotcore import audit as audits
from slotcore import audit_chain, records
from slotcore import product as products
from slotward import audit, audit_read, cli, doctor

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "operator" / "audit.md"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Host:
    """A slots directory with a log, and the command that reads it."""

    def __init__(self, place: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.slots = place / "slots"
        self.slots.mkdir()
        self.log = self.slots / "audit.log"
        self.config = place / "config.toml"
        self.config.write_text(
            f'data_dir = "{place}/data"\n[update]\nslots_dir = "{self.slots}"\nentrypoint = "{place}/probe"\n'
        )
        self.product = products.Product("slotward", "probe.service", f"{place}/probe", str(self.slots))
        self._capsys = capsys

    def note(self, count: int = 1) -> None:
        """Note decisions that differ."""
        for number in range(count):
            audit.note(self.product, audits.CLEARED, why=f"line {number}", to_version="1.1.0")

    def audit(self, *words: str) -> Tuple[int, Dict[str, Any]]:
        """`slotward audit --json`."""
        self._capsys.readouterr()
        status = cli.main(["audit", "--config", str(self.config), "--json", *words])
        answer: Dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return status, answer

    def said(self, *words: str) -> str:
        """What `slotward audit` tells people, on both streams."""
        self._capsys.readouterr()
        cli.main(["audit", "--config", str(self.config), *words])
        said = self._capsys.readouterr()
        return said.out + said.err

    def head(self) -> str:
        """The head's hash, by walking the chain."""
        return str(self.audit("--verify")[1]["head"]["hash"])

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        """Change the log as somebody with an editor would."""
        self.log.write_bytes(change(self.log.read_bytes()))


@pytest.fixture
def here(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Host:
    """A host with three lines."""
    found = Host(tmp_path, capsys)
    found.note(3)
    return found


def numbers(answer: Dict[str, Any]) -> List[int]:
    """The numbers of the lines that were shown."""
    return [line["n"] for line in answer["lines"]]


def test_the_lines_are_shown_newest_last(here: Host) -> None:
    """The last 50 by default, those from a number on with --since, as many as wanted with --limit."""
    here.note(57)
    status, answer = here.audit()
    assert (status, answer["code"], answer["changed"]) == (0, "ok", False)
    assert (numbers(answer), answer["left_out"]) == (list(range(11, 61)), 10)
    assert (answer["first"], answer["head"]["n"], answer["broken"], answer["torn"]) == (1, 60, None, 0)
    assert numbers(here.audit("--limit", "0")[1]) == list(range(1, 61))
    assert numbers(here.audit("--since", "58")[1]) == [58, 59, 60]
    assert numbers(here.audit("--since", "10", "--limit", "2")[1]) == [10, 11]
    assert numbers(here.audit("--since", "61")[1]) == []
    assert [json.dumps(line, sort_keys=True) for line in here.audit("--limit", "1")[1]["lines"]] == [
        json.dumps(json.loads(here.log.read_bytes().splitlines()[-1]), sort_keys=True)
    ]


def test_a_line_for_people(here: Host) -> None:
    """Number, time, event, versions, code, who and why; and how to see more."""
    audit.note(here.product, audits.REFUSED, code="expired", why="it expired", from_version="1.0.0", to_version="1.1.0")
    said = here.said("--limit", "1")
    assert re.match(
        r" {4}4  20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ  refused {10}1\.0\.0 -> 1\.1\.0  expired  \(.+\)  it expired\n", said
    )
    assert "3 more lines: --limit 0 shows all" in said
    assert "no such lines" in here.said("--since", "9")


def test_nothing_decided_yet(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No log is an empty chain that holds."""
    host = Host(tmp_path, capsys)
    assert "no lines yet" in host.said()
    status, answer = host.audit("--verify")
    assert (status, answer["head"]) == (0, {"n": 0, "hash": "0" * 64})
    assert "no lines yet" in host.said("--verify")
    assert not host.log.exists()


def test_only_root_reads_it(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says who did what, and why something was refused."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status, answer = here.audit()
    assert (status, answer["code"]) == (3, "not-root")


@pytest.mark.parametrize("words", [("--head", "12"), ("--head", "G" * 64), ("--limit", "-1"), ("--since", "x")])
def test_a_wrong_command_line(here: Host, words: Tuple[str, str]) -> None:
    """A head is 64 hexadecimal digits, a number is a number."""
    with pytest.raises(SystemExit) as caught:
        here.said(*words)
    assert caught.value.code == 2


# -- verifying ---------------------------------------------------------------------------------------------------------


def test_a_chain_that_holds_tells_its_head(here: Host) -> None:
    """Number and hash, to be remembered elsewhere; a head from any time before is still in it."""
    heads = ["0" * 64]
    for _again in range(3):
        heads.append(here.head())
        here.note()
    for head in heads:
        assert here.audit("--head", head)[0] == 0
    assert "the chain holds: lines 1 to 6 in 1 file(s)" in here.said("--verify")


def test_a_change_in_the_middle_is_found_with_file_line_and_both_hashes(here: Host) -> None:
    """Exit status 5; the lines are still shown without --verify, with a word about the damage."""
    before = here.log.read_bytes().splitlines()
    here.rewrite(lambda data: data.replace(b"line 1", b"line 9"))
    after = here.log.read_bytes().splitlines()
    status, answer = here.audit("--verify")
    assert (status, answer["code"], answer["state"]) == (5, "audit-broken", "refused")
    assert (answer["broken"]["file"], answer["broken"]["line"]) == (str(here.log), 3)
    assert audits.hash_of(before[1]) in answer["message"]
    assert audits.hash_of(after[1]) in answer["message"]
    assert "--restart-chain" in answer["message"]
    assert answer["head"] == {"n": 2, "hash": audits.hash_of(after[1])}
    status, answer = here.audit()
    assert (status, numbers(answer)) == (0, [1, 2, 3])
    assert "the chain is broken" in here.said()


def test_a_cut_tail_is_found_by_the_head_alone(here: Host) -> None:
    """What is left holds, so only who remembers a head sees it; the text says what the log ends with."""
    remembered = here.head()
    here.rewrite(lambda data: data[: data.rindex(b"\n", 0, -1) + 1])
    assert here.audit("--verify")[0] == 0
    status, answer = here.audit("--head", remembered)
    assert (status, answer["code"]) == (5, "audit-broken")
    assert remembered in answer["message"]
    assert here.head() in answer["message"]
    here.note()
    assert here.audit("--head", remembered)[0] == 5


def test_a_head_whose_line_is_no_longer_kept(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line before the first that is there is proven by what that one names; older ones cannot be told any more."""
    heads = [here.head()]
    monkeypatch.setattr(audit_chain, "MAX_FILE", 800)
    for _again in range(60):
        here.note()
        heads.append(here.head())
    first = audit_read.read(str(here.slots)).chain.first
    assert first > 5
    assert here.audit("--head", heads[first - 1 - 3])[0] == 0
    status, answer = here.audit("--head", heads[0])
    assert status == 5
    assert f"lines before {first} are no longer kept" in answer["message"]
    assert f"(lines 1 to {first - 1} are no longer kept)" in here.said("--verify")


def test_a_torn_end_is_no_break(here: Host) -> None:
    """It heals by itself, and says so until then."""
    here.rewrite(lambda data: data + b'{"at":')
    status, answer = here.audit("--verify")
    assert (status, answer["torn"]) == (0, 6)
    assert "the last 6 bytes were never finished" in here.said("--verify")


def test_any_time_that_a_line_may_have_is_shown(here: Host) -> None:
    """A clock may say anything."""
    event = audits.Event("cleared", "slotward", audits.MAX_INT)
    here.log.write_bytes(audits.append(None, event) + b"\n")
    assert "-11-12T07:36:31Z  cleared" in here.said()


# -- going on after damage ---------------------------------------------------------------------------------------------


def test_a_chain_that_holds_is_not_restarted(here: Host) -> None:
    """Nobody loses a log by running a command that was meant for another day."""
    before = here.log.read_bytes()
    status, answer = here.audit("--restart-chain")
    assert (status, answer["changed"]) == (0, False)
    assert here.log.read_bytes() == before
    assert sorted(os.listdir(here.slots)) == ["audit.log", "lock"]


def test_a_damaged_log_is_set_aside_whole(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of it; the new log begins with who did it, what was wrong and what the old one ended with."""
    monkeypatch.setattr(audit_chain, "MAX_FILE", 800)
    here.note(6)
    files = audit_read.read(str(here.slots)).files
    assert len(files) > 2
    closed = here.slots / files[1]
    closed.write_bytes(closed.read_bytes().replace(b"line", b"lime", 1))
    old = {name: (here.slots / name).read_bytes() for name in files}
    monkeypatch.setenv(audit.WHO, "ana")
    status, answer = here.audit("--restart-chain")
    assert (status, answer["changed"], answer["broken"]) == (0, True, None)
    aside = pathlib.Path(answer["aside"])
    assert aside.parent == here.slots
    assert aside.stat().st_mode & 0o7777 == 0o700
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == old
    line = audits.parse(here.log.read_bytes()[:-1])
    assert (line.number, line.event.event, line.event.code, line.event.who) == (1, "repaired", "audit-broken", "ana")
    assert str(closed) in line.event.why
    assert str(aside) in line.event.why
    assert here.log.stat().st_mode & 0o7777 == 0o640
    assert not audit.facts(here.product).whole
    here.note()
    assert here.audit("--restart-chain")[1]["changed"] is False
    assert here.audit("--verify")[1]["head"]["n"] == 2


def _link(path: pathlib.Path) -> None:
    path.symlink_to("/etc/passwd")


def _fifo(path: pathlib.Path) -> None:
    os.mkfifo(path)


def _directory(path: pathlib.Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def _foreign(path: pathlib.Path) -> None:
    path.write_bytes(b"")
    os.chown(path, 12345, -1)


@AS_ROOT
@pytest.mark.parametrize("make", [_link, _fifo, _directory, _foreign])
def test_whatever_is_there_can_be_set_aside(here: Host, make: Callable[[pathlib.Path], None]) -> None:
    """A link, a FIFO, a directory, somebody else's file: moved as it is, and decisions are noted again."""
    here.log.unlink()
    make(here.log)
    assert here.audit("--verify")[0] == 5
    status, answer = here.audit("--restart-chain")
    assert (status, answer["changed"]) == (0, True)
    assert os.path.lexists(pathlib.Path(answer["aside"]) / "audit.log")
    here.note()
    assert here.audit("--verify")[1]["head"]["n"] == 2


def test_four_damaged_logs_are_kept(here: Host) -> None:
    """As of every record that was set aside."""
    made = []
    for _again in range(6):
        here.log.write_bytes(b"damage\n")
        made.append(pathlib.Path(here.audit("--restart-chain")[1]["aside"]).name)
    assert sorted(name for name in os.listdir(here.slots) if name.startswith("audit.broken-")) == made[2:]


@pytest.fixture
def full(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Host]:
    """A host whose slots are on a file system without a free block, with a damaged log."""
    host = Host(tmp_path, capsys)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", str(host.slots)], check=True, timeout=30)
    try:
        host.log.write_bytes(b"damage\n")
        with (host.slots / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        yield host
    finally:
        subprocess.run(["umount", str(host.slots)], check=True, timeout=30)


@AS_ROOT
def test_without_space_nothing_is_set_aside(full: Host) -> None:
    """The line about it is durable first, or the log stays where it is."""
    status, answer = full.audit("--restart-chain")
    assert (status, answer["code"]) == (4, "no-space")
    assert full.log.read_bytes() == b"damage\n"
    (full.slots / "filler").unlink()
    assert full.audit("--restart-chain")[1]["changed"] is True


# -- doctor ------------------------------------------------------------------------------------------------------------


def finding(host: Host) -> doctor.Finding:
    """What doctor finds of the log."""
    seen = doctor.Seen({}, "", "", f"{host.slots}/current", "", "", (), audit=doctor.gather_audit(host.product))
    (found,) = doctor.check_audit(seen)
    return found


def test_doctor_says_what_the_log_is_like(here: Host) -> None:
    """Whole, damaged in the middle (a warning), or such that updates are refused (a failure), each with the way out."""
    assert finding(here)[1:4] == ("ok", "lines 1 to 3", "")
    whole = here.log.read_bytes()
    here.rewrite(lambda data: data.replace(b"line 0", b"line 9"))
    found = finding(here)
    assert found.state == "warn"
    assert "line 2" in found.message
    assert found.run == f"cp -a {here.slots}/audit.log* /root/ && slotward audit --restart-chain"
    here.log.write_bytes(whole + b"damage\n")
    found = finding(here)
    assert (found.state, found.run) == (
        "fail",
        f"cp -a {here.slots}/audit.log* /root/ && slotward audit --restart-chain",
    )
    assert "updates are refused" in found.message
    here.log.unlink()
    assert finding(here)[1:4] == ("ok", "no lines yet", "")


# -- by hand -----------------------------------------------------------------------------------------------------------


def by_hand(place: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run the page's own commands in a directory with a copy of the log."""
    block = re.search(r"```sh by-hand\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    argv = ["sh", "-c", block.group(1)]
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_chain_is_verified_by_hand_as_the_page_says(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sh, jq and sha256sum alone, over several files and odd texts; what is changed is found by them too."""
    monkeypatch.setattr(audit_chain, "MAX_FILE", 1000)
    for why in ('a "quote"', "back\\slash", "umlaut ü", "emoji \U0001f600", "tab\tand\nnewline", " blanks  "):
        audit.note(here.product, audits.REFUSED, why=why)
    here.note(3)
    assert len(audit_read.read(str(here.slots)).files) > 2
    done = by_hand(here.slots)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"12 {here.head()}"
    oldest = here.slots / audit_read.read(str(here.slots)).files[0]
    oldest.write_bytes(oldest.read_bytes().replace(b"line 0", b"line 9"))
    done = by_hand(here.slots)
    assert done.returncode != 0
    assert "line 2" in done.stdout


def test_records_show_what_the_page_lists() -> None:
    """Each event and each field of a line is explained for operators."""
    page = PAGE.read_text(encoding="utf-8")
    for event in audits.EVENTS:
        assert f"| `{event}` | `{audits.EVENTS[event].message_id}` |" in page
    for name in audits.as_json(audits.Line(1, "", audits.Event("", ""))):
        assert f"`{name}`" in page
    assert records.SPEC == audits.SPEC
