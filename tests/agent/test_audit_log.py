# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log on a real disk: torn ends heal, damage is told, full disks and several writers break nothing."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, Dict, Iterator, List

import pytest

from slotcore import audit as audits
from slotcore import audit_chain, codes
from slotcore import product as products
from slotward import audit, audit_file, audit_read, audit_tail, journal

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SHA = "ab" * 32
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def product(tmp_path: pathlib.Path) -> products.Product:
    """A product with a slots directory and no log yet."""
    slots = tmp_path / "slots"
    slots.mkdir(mode=0o755)
    return products.Product("probe", "probe.service", str(tmp_path / "probe"), str(slots))


def log_of(product: products.Product) -> pathlib.Path:
    """The file that is written."""
    return pathlib.Path(product.path("audit.log"))


def noted(product: products.Product, count: int = 1, event: str = audits.CLEARED, why: str = "line") -> None:
    """Note some decisions that differ."""
    for number in range(count):
        audit.note(product, event, why=f"{why} {number}", to_version="1.1.0", sequence=2, sha256=SHA)


def held(product: products.Product) -> audit_chain.Chain:
    """The chain, which must hold."""
    report = audit_read.read(product.slots_dir)
    assert report.fault is None, report.fault
    return report.chain


def events(product: products.Product) -> List[str]:
    """The events of the log in their order."""
    return [audits.parse(line).event.event for line in audit_read.read(product.slots_dir).lines]


def damage(product: products.Product) -> str:
    """What a durable event is refused with."""
    with pytest.raises(codes.BrokenAudit) as caught:
        noted(product, event=audits.ACCEPTED)
    assert caught.value.code == "audit-broken"
    assert "--restart-chain" in caught.value.text
    return caught.value.text


# -- one writer --------------------------------------------------------------------------------------------------------


def test_D13_the_log_is_root_s_and_for_nobody_else(product: products.Product) -> None:
    """0640 under any umask; what it says may be about keys and people."""
    before = os.umask(0o077)
    try:
        noted(product)
    finally:
        os.umask(before)
    assert log_of(product).stat().st_mode & 0o7777 == 0o640
    assert held(product) == (1, audits.head_of(log_of(product).read_bytes()[:-1]))


def test_the_head_that_update_tells_is_the_chain_s(product: products.Product) -> None:
    """Read from the end alone, without hashlib, and the same as by walking the chain."""
    assert audit_tail.head(product.slots_dir) == {"n": 0, "hash": "0" * 64}
    for _again in range(3):
        noted(product, 2)
        head = held(product).head
        assert audit_tail.head(product.slots_dir) == {"n": head.number, "hash": head.hash}
    head = held(product).head
    with log_of(product).open("ab") as file:
        file.write(b'{"at":1')
    assert audit_tail.head(product.slots_dir) == {"n": head.number, "hash": head.hash}
    log_of(product).write_bytes(b"damage\n")
    assert audit_tail.head(product.slots_dir) is None


def test_L1_a_refusal_is_written_once(product: products.Product) -> None:
    """Whoever asks every 30 seconds fills no disk (field case L1)."""
    for _again in range(3):
        audit.note(product, audits.REFUSED, code="expired", why="it expired", to_version="1.1.0")
    audit.note(product, audits.REFUSED, code="expired", why="it expired", to_version="1.2.0")
    audit.note(product, audits.REFUSED, code="expired", why="it expired", to_version="1.1.0")
    assert held(product).head.number == 3


def test_who_is_the_caller_s_word_then_sudo_s_then_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded and plain: what a caller says cannot make another line of it."""
    monkeypatch.setenv("SUDO_USER", "ana")
    monkeypatch.delenv(audit.WHO, raising=False)
    assert audit.who() == "ana"
    monkeypatch.setenv(audit.WHO, "ansible:ben\n" + "x" * 100)
    assert audit.who() == "ansible:ben_" + "x" * 52
    monkeypatch.setenv(audit.WHO, "ansible")
    assert audit.who() == "ansible:ana"
    monkeypatch.setenv(audit.WHO, "")
    monkeypatch.delenv("SUDO_USER")
    assert audit.who()


# -- torn ends ---------------------------------------------------------------------------------------------------------


def test_P6_a_torn_end_heals_at_every_byte(product: products.Product) -> None:
    """A power cut in the middle of an append: the next one cuts it off and says so, and nothing is ever refused for it."""
    noted(product, 2)
    whole = log_of(product).read_bytes()
    noted(product)
    longer = log_of(product).read_bytes()
    for cut in range(len(whole), len(longer)):
        log_of(product).write_bytes(longer[:cut])
        audit.check(product)
        assert audit_read.read(product.slots_dir).torn == cut - len(whole)
        noted(product, event=audits.ACCEPTED)
        head = held(product).head
        lines = log_of(product).read_bytes().splitlines()
        if cut == len(whole):
            assert head.number == 3
            continue
        healed = json.loads(lines[2])
        assert (head.number, healed["event"], healed["code"]) == (4, "restored", "audit-broken")
        assert f"{cut - len(whole)} bytes" in healed["why"]
        assert b"\n".join(lines[:2]) + b"\n" == whole


def test_a_torn_first_line_heals(product: products.Product) -> None:
    """There is nothing before it, and the chain begins with what is written next."""
    log_of(product).write_bytes(b'{"at":17')
    os.chmod(log_of(product), 0o640)
    noted(product)
    assert events(product) == ["restored", "cleared"]
    assert not audit.facts(product).whole


@pytest.mark.parametrize("end", [b"\0" * 300, b"\0" * 300 + b"\n", b'{"at":1' + b"\0" * 50 + b'"why":""}\n'])
def test_an_end_whose_blocks_never_came_heals(product: products.Product, end: bytes) -> None:
    """A file that was made longer before its bytes were written reads as NULs there, with a newline or without."""
    noted(product, 2)
    with log_of(product).open("ab") as file:
        file.write(end)
    noted(product)
    assert events(product) == ["cleared", "cleared", "restored", "cleared"]
    held(product)


def test_a_torn_end_of_a_full_file_heals_too(product: products.Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line about it goes behind what it is about; the file is closed by the next append."""
    monkeypatch.setattr(audit_chain, "MAX_FILE", 1000)
    noted(product, 3)
    with log_of(product).open("ab") as file:
        file.write(b"x" * 2000)
    noted(product)
    assert events(product)[-2:] == ["restored", "cleared"]
    noted(product)
    held(product)


# -- what is no log ----------------------------------------------------------------------------------------------------


def _link(path: pathlib.Path) -> None:
    path.symlink_to("/etc/passwd")


def _fifo(path: pathlib.Path) -> None:
    os.mkfifo(path)


def _directory(path: pathlib.Path) -> None:
    path.mkdir()


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.bind(os.path.relpath(path))


def _hard_link(path: pathlib.Path) -> None:
    path.write_bytes(b"")
    os.link(path, path.with_name("other"))


def _foreign(path: pathlib.Path) -> None:
    path.write_bytes(b"")
    os.chown(path, 12345, -1)


def _writable(path: pathlib.Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o666)


def _huge_line(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"x" * 70000)
    path.chmod(0o640)


def _garbage(path: pathlib.Path) -> None:
    path.write_bytes(b"garbage\n")
    path.chmod(0o640)


def _long_line(path: pathlib.Path) -> None:
    path.write_bytes(b"x" * 40000 + b"\n")
    path.chmod(0o640)


KINDS: Dict[str, Callable[[pathlib.Path], None]] = {
    "is a symbolic link": _link,
    "is a FIFO": _fifo,
    "is a directory": _directory,
    "is a socket": _socket,
    "it has 2 links": _hard_link,
    "it is owned by uid 12345": _foreign,
    "it may be written by others": _writable,
    "its last 32768 bytes are no line": _huge_line,
    "its last line is damaged": _garbage,
    "are no line": _long_line,
}


@AS_ROOT
@pytest.mark.parametrize("why", KINDS)
def test_what_is_no_log_is_never_written_to_nor_waited_for(
    product: products.Product, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A durable event is refused, any other is a warning; nothing hangs, and what is there stays as it is."""
    monkeypatch.chdir(product.slots_dir)
    KINDS[why](log_of(product))
    before = os.lstat(log_of(product))
    began = time.monotonic()
    assert why in damage(product)
    with pytest.raises(codes.BrokenAudit, match=why):
        audit.check(product)
    noted(product)
    assert "lacks cleared 1.1.0" in capsys.readouterr().err
    report = audit_read.read(product.slots_dir)
    assert report.fault is not None
    assert report.fault.file == str(log_of(product))
    assert audit_tail.head(product.slots_dir) is None
    assert time.monotonic() - began < 5
    after = os.lstat(log_of(product))
    assert (after.st_size, after.st_mtime_ns, after.st_mode) == (before.st_size, before.st_mtime_ns, before.st_mode)


def test_no_directory_at_all_is_no_log_and_no_trouble(tmp_path: pathlib.Path) -> None:
    """Before `setup` there is nothing to write to; what must be durable first is not done."""
    nowhere = products.Product("probe", "probe.service", str(tmp_path / "p"), str(tmp_path / "none"))
    noted(nowhere)
    with pytest.raises(codes.Retryable):
        noted(nowhere, event=audits.ACCEPTED)
    audit.check(nowhere)
    assert audit_tail.head(nowhere.slots_dir) == {"n": 0, "hash": "0" * 64}
    assert audit_read.read(nowhere.slots_dir).chain == (0, (0, "0" * 64))


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_chain_goes_on_across_files_and_the_oldest_go(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each closed file is called after its first line; what is no longer kept shows as such, and is no fault."""
    monkeypatch.setattr(audit_chain, "MAX_FILE", 1500)
    noted(product, 100)
    report = audit_read.read(product.slots_dir)
    assert report.fault is None
    assert len(report.files) == audit_chain.KEPT + 1
    assert report.chain.head.number == 100
    assert report.chain.first > 1
    assert len(report.lines) == 100 - report.chain.first + 1
    for name in report.files[:-1]:
        path = pathlib.Path(product.path(name))
        assert name == f"audit.log.{json.loads(path.read_bytes().splitlines()[0])['n']}"
        assert path.stat().st_size <= 1500
        assert path.stat().st_mode & 0o7777 == 0o640
    facts = audit.facts(product)
    assert not facts.whole
    assert facts.confirmed == 0


def test_a_cut_between_closing_a_file_and_the_next_line_loses_nothing(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no file to write to for a moment: the chain goes on from the one that was closed, empty file or none."""
    noted(product, 3)
    log_of(product).rename(product.path("audit.log.1"))
    assert audit_tail.head(product.slots_dir) == {"n": 3, "hash": held(product).head.hash}
    audit.check(product)
    noted(product)
    assert held(product).head.number == 4
    log_of(product).rename(product.path("audit.log.4"))
    log_of(product).write_bytes(b"")
    os.chmod(log_of(product), 0o640)
    noted(product)
    assert held(product) == (1, held(product).head)
    assert held(product).head.number == 5


def test_damage_in_a_closed_file_names_it(product: products.Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is cut, gone from the middle, or called otherwise; the log goes on being written all the same."""
    monkeypatch.setattr(audit_chain, "MAX_FILE", 1500)
    noted(product, 20)
    names = audit_read.read(product.slots_dir).files
    second = pathlib.Path(product.path(names[1]))
    data = second.read_bytes()

    def fault() -> audit_read.Fault:
        found = audit_read.read(product.slots_dir).fault
        assert found is not None
        return found

    second.write_bytes(data[:-5])
    assert fault()[:2] == (str(second), len(data.splitlines()))
    second.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    assert (fault().file, fault().line) == (product.path(names[2]), 1)
    second.write_bytes(data.replace(b"line", b"lime", 1))
    assert fault()[:2] == (str(second), 2)
    second.unlink()
    assert (fault().file, fault().line) == (product.path(names[2]), 1)
    second.write_bytes(data)
    os.chmod(second, 0o640)
    second.rename(product.path(f"{names[1]}0"))
    assert "its name says another" in fault().why or "its number is" in fault().why
    noted(product)


def test_what_has_been_closed_is_not_overwritten(product: products.Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that already has the name is damage, not to be lost by a rename."""
    monkeypatch.setattr(audit_chain, "MAX_FILE", 700)
    noted(product, 1)
    pathlib.Path(product.path("audit.log.1")).write_bytes(log_of(product).read_bytes())
    noted(product, 1)
    assert "too" in damage(product)


# -- several writers, kills, full disks --------------------------------------------------------------------------------

WRITER = """
import sys
from slotcore import audit as audits, audit_chain, product as products
from slotward import audit
audit_chain.MAX_FILE = int(sys.argv[3])
product = products.Product("probe", "probe.service", sys.argv[1] + "/none", sys.argv[1])
number = 0
while number < int(sys.argv[4]):
    audit.note(product, audits.ACCEPTED, why=f"{sys.argv[2]} {number} " + "x" * 300)
    print(number, flush=True)
    number += 1
"""


def writer(product: products.Product, name: str, most: int, count: int = 1 << 30) -> subprocess.Popen[str]:
    """A process that notes decisions and tells each that is durable."""
    path = os.pathsep.join(str(REPOSITORY / part) for part in ("plugins/module_utils", "agent/src"))
    argv = [sys.executable, "-c", WRITER, product.slots_dir, name, str(most), str(count)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def whys(product: products.Product) -> List[str]:
    """The reasons of all accepted lines, without their padding."""
    lines = map(audits.parse, audit_read.read(product.slots_dir).lines)
    return [line.event.why.rpartition(" ")[0] for line in lines if line.event.event == "accepted"]


def test_several_writers_at_once_make_one_chain(product: products.Product) -> None:
    """None waits for ever, none loses a line, also while files are closed under them."""
    writers = [writer(product, name, 8000, 40) for name in "abc"]
    assert [process.wait(timeout=120) for process in writers] == [0, 0, 0]
    for process in writers:
        assert process.stdout is not None
        process.stdout.close()
    assert held(product).head.number == 120
    assert sorted(whys(product)) == sorted(f"{name} {number}" for name in "abc" for number in range(40))


def test_a_log_that_is_closed_while_it_is_opened_takes_no_more_lines(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a writer's open and its lock another one closes the file: the line goes into the new one."""
    noted(product)
    closed, data, plainly = (
        pathlib.Path(product.path("audit.log.1")),
        log_of(product).read_bytes(),
        audit_tail.open_plain,
    )

    def late(path: str, flags: int = audit_tail.READ, mode: int = 0o640) -> int:
        descriptor = plainly(path, flags, mode)
        if flags == audit_file.WRITE and not closed.exists():
            log_of(product).rename(closed)
        return descriptor

    monkeypatch.setattr(audit_tail, "open_plain", late)
    noted(product, why="later")
    assert closed.read_bytes() == data
    assert held(product).head.number == 2
    assert len(log_of(product).read_bytes().splitlines()) == 1


def test_P7_a_writer_that_is_killed_loses_nothing_it_has_told(product: products.Product) -> None:
    """SIGKILL at any moment of an append: what was durable stays, what was torn heals, the chain holds."""
    told: List[str] = []
    for number in range(15):
        process = writer(product, f"w{number}", 4000)
        assert process.stdout is not None
        line = process.stdout.readline()
        time.sleep(0.002 * number)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait(timeout=30)
        process.stdout.close()
        told += [f"w{number} {one}" for one in [line.strip(), *rest] if one]
    held(product)
    noted(product)
    first = audit_read.read(product.slots_dir).chain.first
    kept = [why for why in told if why in set(whys(product))]
    assert kept == told[len(told) - len(kept) :]
    assert first > 1 or kept == told


def test_a_log_that_another_keeps_locked_is_not_waited_for_long(
    product: products.Product, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back and confirming go on after a moment; an acceptance says who is in its way."""
    monkeypatch.setattr(audit_file, "WAIT_S", 0.2)
    with audit_file.held(product.slots_dir):
        noted(product)
        assert "another process" in capsys.readouterr().err
        with pytest.raises(codes.Retryable) as caught:
            noted(product, event=audits.ACCEPTED)
    assert caught.value.code == "in-progress"


@pytest.fixture
def small(tmp_path: pathlib.Path) -> Iterator[products.Product]:
    """A product whose slots directory is a file system of 64 KiB."""
    slots = tmp_path / "small"
    slots.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", str(slots)], check=True, timeout=30)
    try:
        yield products.Product("probe", "probe.service", str(tmp_path / "probe"), str(slots))
    finally:
        subprocess.run(["umount", str(slots)], check=True, timeout=30)


def fill(product: products.Product) -> pathlib.Path:
    """Leave no free block."""
    path = pathlib.Path(product.path("filler"))
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


@AS_ROOT
@pytest.mark.parametrize("event", sorted(audits.EVENTS))
def test_D1_a_full_disk_refuses_what_must_be_durable_and_nothing_else(
    small: products.Product, event: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event with no block left, in a file that would need one more; with space again the chain goes on whole."""
    noted(small)
    while log_of(small).stat().st_size % 4096 < 3400:
        noted(small, why="fill")
    before = log_of(small).read_bytes()
    filler = fill(small)
    if audits.EVENTS[event].first:
        with pytest.raises(codes.Retryable) as caught:
            noted(small, event=event, why="x" * 900)
        assert caught.value.code == "no-space"
    else:
        noted(small, event=event, why="x" * 900)
        assert f"lacks {event}" in capsys.readouterr().err
    assert log_of(small).read_bytes() == before
    filler.unlink()
    noted(small, event=event)
    assert events(small)[-1] == event
    held(small)


@AS_ROOT
def test_a_read_only_disk_is_said(small: products.Product, capsys: pytest.CaptureFixture[str]) -> None:
    """As a full one: a warning, or not done."""
    noted(small)
    subprocess.run(["mount", "-o", "remount,ro", small.slots_dir], check=True, timeout=30)
    noted(small)
    assert "lacks cleared" in capsys.readouterr().err
    with pytest.raises(codes.Retryable):
        noted(small, event=audits.ACCEPTED)


# -- who would push lines out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "written"),
    [("helper:slotward", audit_file.REFUSALS), ("slotward-apply.service", audit_file.REFUSALS), ("helper:root", 70)],
)
def test_the_account_does_not_push_older_lines_out(
    product: products.Product,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    who: str,
    written: int,
) -> None:
    """So many refusals of what it asked for are written in an hour; what counts is written as ever, and the chain holds."""
    monkeypatch.setattr(audit, "who", lambda: who)
    moment = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: moment[0])
    noted(product)
    noted(product, 70, audits.REFUSED)
    assert events(product).count(audits.REFUSED) == written
    assert ("journal has this one" in capfd.readouterr().err) == (written < 70)
    noted(product, 1, audits.ACCEPTED)
    moment[0] += audit_file.WITHIN_S
    noted(product, 1, audits.REFUSED, "an hour later")
    assert events(product)[-2:] == [audits.ACCEPTED, audits.REFUSED]
    assert events(product)[0] == audits.CLEARED
    assert held(product).first == 1


# -- the journal -------------------------------------------------------------------------------------------------------


def test_the_journal_s_protocol() -> None:
    """A value with a newline is sent with its length, so that it cannot begin a field of its own."""
    data = journal.encode({"MESSAGE": "one\nPRIORITY=0", "PRIORITY": "5", "WHY": "é"})
    assert data == b"MESSAGE\n\x0e\0\0\0\0\0\0\0one\nPRIORITY=0\nPRIORITY=5\nWHY=\xc3\xa9\n"


def test_each_line_is_told_to_the_journal(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the event's own id, the fields of the line and its hash; also what could not be written, without a hash."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "SOCKET", "journal")
    monkeypatch.setenv(audit.WHO, "ana")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        peer.bind("journal")
        peer.settimeout(5)
        audit.note(product, audits.REFUSED, code="expired", why="why", from_version="1.0.0", to_version="1.1.0")
        fields = dict(line.split("=", 1) for line in peer.recv(65536).decode().splitlines())
        assert fields["MESSAGE"] == "probe: refused 1.0.0 -> 1.1.0: why"
        assert fields["MESSAGE_ID"] == audits.EVENTS["refused"].message_id
        assert fields["PRIORITY"] == "4"
        assert fields["SYSLOG_IDENTIFIER"] == "slotward"
        assert fields["UNIT"] == "probe.service"
        assert (fields["SLOTWARD_EVENT"], fields["SLOTWARD_CODE"]) == ("refused", "expired")
        assert (fields["SLOTWARD_FROM"], fields["SLOTWARD_TO"], fields["SLOTWARD_WHO"]) == ("1.0.0", "1.1.0", "ana")
        assert fields["SLOTWARD_HASH"] == held(product).head.hash
        log_of(product).write_bytes(b"damage\n")
        noted(product)
        fields = dict(line.split("=", 1) for line in peer.recv(65536).decode().splitlines())
        assert (fields["SLOTWARD_EVENT"], fields["SLOTWARD_HASH"]) == ("cleared", "")
    noted(product)  # nobody listens: no error, and no second
