# SPDX-License-Identifier: GPL-3.0-or-later
"""Cancelling: before the switch at once and cleanly, during the switch not any more, and never the wrong process."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Iterator, List

import pytest
from support.web import CONTENT, SHA256, Serve, stall, whole

from slotcore import codes
from slotcore import product as products
from slotward import answers, cancelling, cmd_cancel, download, lock, staging

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import sys
from slotcore import codes
from slotcore import product as products
from slotward import cancelling, download, lock, staging
slots, url, part, sha256, what = sys.argv[1:]
product = products.Product("slotward", "slotward.service", "/nowhere", slots)
try:
    with lock.held(product, what), cancelling.possible():
        download.fetch(url, part, 1048576, sha256, download.Transport(allow_http=True))
except codes.Retryable as error:
    print(error.code)
    sys.exit(4)
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="cancel is root's")


@pytest.fixture(name="slots")
def _slots(tmp_path: pathlib.Path) -> pathlib.Path:
    slots = tmp_path / "slots"
    slots.mkdir(0o755)
    staging.make_directory(str(tmp_path / "staging"))
    (tmp_path / "config.toml").write_text('[update]\nslots_dir = "%s"\n' % slots)
    return slots


@contextlib.contextmanager
def upgrade(slots: pathlib.Path, url: str, what: str = "upgrade to 1.1.0") -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock and downloads; it has received something when this begins."""
    part = slots.parent / "staging" / "slotward-1.1.0.part"
    paths = os.pathsep.join(str(ROOT / place) for place in ("plugins/module_utils", "agent/src"))
    argv = [sys.executable, "-B", "-c", PROGRAM, str(slots), url, str(part), SHA256, what]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True) as child:
        until = time.monotonic() + 30
        while not (part.exists() and part.stat().st_size) and time.monotonic() < until:
            time.sleep(0.02)
        try:
            yield child
        finally:
            child.kill()


def cancel(slots: pathlib.Path) -> answers.Answer:
    """`slotward cancel`."""
    return cmd_cancel.run(argparse.Namespace(config=str(slots.parent / "config.toml"), product="slotward"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_download_leaves_the_part_and_a_free_lock(
    slots: pathlib.Path, serving: Serve, number: signal.Signals
) -> None:
    """What systemd or a terminal sends: an answer with its code, a part that the next run goes on from, nothing else."""
    server = serving(stall(700_000), whole())
    product = products.Product("slotward", "slotward.service", "/nowhere", str(slots))
    with upgrade(slots, server.url) as child:
        child.send_signal(number)
        said, _nothing = child.communicate(timeout=30)
    assert (child.returncode, said) == (4, "cancelled\n")
    assert lock.holder(product) is None
    part = slots.parent / "staging" / "slotward-1.1.0.part"
    came = part.stat().st_size
    assert 0 < came <= 700_000
    assert part.read_bytes() == CONTENT[:came]
    assert sorted(os.listdir(slots)) == ["lock"]
    download.fetch(server.url, str(part), len(CONTENT), SHA256, download.Transport(allow_http=True))
    assert server.requests[1].headers["range"] == "bytes=%d-" % came


@needs_root
def test_cancel_ends_the_upgrade_and_says_so(slots: pathlib.Path, serving: Serve) -> None:
    """And a second time there is nothing to cancel (I9)."""
    with upgrade(slots, serving(stall(1000)).url) as child:
        done = cancel(slots)
        assert child.wait(30) == 4
    assert (done.exit, done.json["changed"], done.json["code"]) == (0, True, "ok")
    assert done.lines[0].startswith("cancelled: upgrade to 1.1.0 of slotward; what was downloaded stays")
    again = cancel(slots)
    assert (again.exit, again.json["changed"]) == (0, False)
    assert "nothing to cancel" in again.lines[0]


@needs_root
def test_cancel_leaves_whoever_is_no_upgrade(slots: pathlib.Path, serving: Serve) -> None:
    """A repair, a confirmation, a setup: they are short, and not to be cut."""
    with upgrade(slots, serving(stall(1000)).url, what="setup") as child:
        with pytest.raises(codes.Retryable) as caught:
            cancel(slots)
        assert caught.value.code == codes.IN_PROGRESS
        assert child.poll() is None
    assert "setup (process %d) holds the lock" % child.pid in caught.value.text


@needs_root
def test_the_words_of_whoever_asks_name_no_other_process(tmp_path: pathlib.Path) -> None:
    """A target's version is nobody's checked text when the lock is taken; it must not say whom `cancel` is to end."""
    product = products.Product("slotward", "slotward.service", "/nowhere", str(tmp_path))
    with lock.held(product, "upgrade to 1.1.0\npid=1\nwhat=x\x1b[2J" + "9" * 5000):
        owner = lock.holder(product)
    assert owner is not None
    assert (owner.pid, owner.what[:34]) == (os.getpid(), "upgrade to 1.1.0?pid=1?what=x?[2J9")
    assert len(owner.what) == lock.MOST


def test_cancel_says_when_the_process_does_not_end(
    slots: pathlib.Path, serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process, say: it is named, nothing is killed by force."""
    monkeypatch.setattr(cmd_cancel, "WAIT_S", 0.3)
    with upgrade(slots, serving(stall(1000)).url) as child:
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(codes.Retryable) as caught:
            cancel(slots)
        assert "has not ended within 0.3 s" in caught.value.text
        child.send_signal(signal.SIGCONT)
        assert child.wait(30) == 4


def ask() -> None:
    """Somebody cancels; the signal has been delivered when this returns."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)


def cut(done: List[str]) -> None:
    """Work that somebody ends in its middle."""
    try:
        ask()
        done.append("never")
    finally:
        done.append("closed")


def finished_first(done: List[str]) -> None:
    """Work that must not be left half done, and what would come after it."""
    with cancelling.later():
        ask()
        done.append("finished")
    done.append("never")


def test_before_the_switch_a_signal_ends_the_work() -> None:
    """As an error, so that everything is closed on its way out; afterwards signals mean what they meant before."""
    before = [signal.getsignal(number) for number in cancelling.SIGNALS]
    done: List[str] = []
    with pytest.raises(codes.Retryable) as caught, cancelling.possible():
        cut(done)
    assert caught.value.code == codes.CANCELLED
    assert done == ["closed"]
    assert [signal.getsignal(number) for number in cancelling.SIGNALS] == before


class Cleared:
    """Something whose end is the moment in which somebody cancels."""

    def __del__(self) -> None:
        """The error that is raised here goes nowhere."""
        ask()


def work_on(done: List[str]) -> None:
    """Work during which an object is cleared away."""
    made = Cleared()
    del made
    done.append("lost")
    time.sleep(30)
    done.append("never")


def test_a_cancellation_that_is_lost_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a busy machine: raised while an object was cleared away, it was ignored, and the download went on for minutes."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _what: None)
    monkeypatch.setattr(cancelling, "AGAIN_S", 0.2)
    done: List[str] = []
    with pytest.raises(codes.Retryable) as caught, cancelling.possible():
        work_on(done)
    assert caught.value.code == codes.CANCELLED
    assert done == ["lost"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_must_not_be_half_done_is_finished_first() -> None:
    """Taking a file into a slot: the signal counts at its end."""
    done: List[str] = []
    with pytest.raises(codes.Retryable) as caught, cancelling.possible():
        finished_first(done)
    assert caught.value.code == codes.CANCELLED
    assert done == ["finished"]


def test_during_the_switch_it_is_too_late(capsys: pytest.CaptureFixture[str]) -> None:
    """The switch runs to its end, and whoever asked is told what to do instead."""
    done, before = [], signal.getsignal(signal.SIGTERM)
    with cancelling.possible():
        with cancelling.too_late():
            ask()
            done.append("switched")
        ask()
        done.append("after")
    assert done == ["switched", "after"], "who asks after the switch is not told that nothing was switched"
    assert signal.getsignal(signal.SIGTERM) is before
    assert "too late to cancel" in capsys.readouterr().err


def test_a_wait_for_a_server_is_ended_too(serving: Serve, tmp_path: pathlib.Path) -> None:
    """Not only between two reads: while a server is silent, and between two attempts."""
    staging.make_directory(str(tmp_path / "staging"))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(codes.Retryable) as caught, cancelling.possible():
            download.fetch(
                "http://127.0.0.1:9/", str(tmp_path / "staging" / "x.part"), 5, SHA256,
                download.Transport(allow_http=True, first_wait_s=30.0),
            )  # fmt: skip
    finally:
        timer.cancel()
    assert caught.value.code == codes.CANCELLED
    assert time.monotonic() - begun < 14
