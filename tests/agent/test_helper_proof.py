# SPDX-License-Identifier: GPL-3.0-or-later
"""Confirming a product with a helper: real processes that have the slot's file open, and a real socket that greets."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from typing import Iterator, List, Optional

import pytest
from agent.resting import ID

from agent import guarding, resting
from slotcore import codes, proof, protocol, records, trial
from slotward import answers, cmd_trial, host, manager, process

HELPER = "probe-helper.service"
OTHER = "f" * 64


def greeting(sha256: str) -> bytes:
    """What the helper says first."""
    return protocol.render_hello(protocol.Hello("probe", (1,), "0" * 32, "1.1.0", sha256))


_DAEMON = """
import os, socket, sys, time
slot = open(sys.argv[1])
if len(sys.argv) > 2:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[2])
    listener.listen(8)
print("ready", flush=True)
while len(sys.argv) <= 2:
    time.sleep(60)
while True:
    peer, _ = listener.accept()
    peer.send(sys.argv[3].encode())
    peer.close()
"""


class Here:
    """A product with a helper, on trial, and processes that are the main processes of its two units."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.socket = str(root / "helper.sock")
        self.product = resting.product(root)._replace(helper_unit=HELPER, helper_socket=self.socket, settle_s=0)
        self.processes: List[subprocess.Popen[str]] = []
        clock = host.clock()
        pending = resting.TRIAL._replace(
            boot_id=clock.boot_id, length_s=60, deadline_s=clock.uptime_s + 59
        )  # swapped a second ago
        for name, target in (("back", "a"), ("helper.back", "a"), ("current", "b"), ("helper", "b")):
            pathlib.Path(self.product.path(name)).unlink(missing_ok=True)
            pathlib.Path(self.product.path(name)).symlink_to(target)
        pathlib.Path(self.product.path("trial.log")).write_bytes(trial.LOG_HEADER + b"start 10\n")
        pathlib.Path(self.product.path("trial")).write_bytes(trial.render_trial(pending))

    def start(self, slot: str, *more: str) -> int:
        """A process that has the slot's file open; with a path and a text it greets there with that."""
        made = subprocess.Popen(
            [sys.executable, "-c", _DAEMON, self.product.path(slot), *more], stdout=subprocess.PIPE, text=True
        )
        self.processes.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n"
        return made.pid

    def systemd_says(self, main_pid: int, helper_pid: int) -> None:
        """What the two units are."""
        blocks = [f"ActiveState=active\nMainPID={pid}\n" for pid in (main_pid, helper_pid)]
        (self.root / "show").write_text("\n".join(blocks))

    def confirm(self, wait_s: float = 0.0) -> answers.Answer:
        """Confirm the trial."""
        return cmd_trial.confirm(self.product, ID, "controller", wait_s)

    def end(self) -> None:
        """Leave no process behind."""
        for made in self.processes:
            made.kill()
            made.communicate()


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """The product in a directory of its own, whose processes began after its swap."""
    monkeypatch.setenv("PATH", f"{guarding.FAKES}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    made = Here(tmp_path)
    time.sleep(0.02)
    yield made
    made.end()


def test_both_units_at_the_new_release_confirm_it(here: Here) -> None:
    """One question to systemd a look; the proof names both processes, and the helper stays where it is."""
    main, helper = here.start("b"), here.start("b", here.socket, greeting(resting.NEW.sha256).decode())
    here.systemd_says(main, helper)
    answer = here.confirm()
    assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
    assert answer.json["proof"] == {
        "how": "open-file",
        "main_pid": main,
        "helper": {"how": "open-file", "main_pid": helper},
    }
    assert [os.readlink(here.product.path(name)) for name in ("current", "good", "helper")] == ["b", "b", "b"]
    assert not {"back", "helper.back", "trial.confirm"} & set(host.names(here.product))
    asked = (here.root / "calls").read_text().splitlines()
    assert asked == [
        f"show --property=ActiveState,SubState,MainPID,NRestarts,Job -- probe.service {HELPER}",
        f"show --property=ActiveState,MainPID,Job -- probe.service {HELPER}",
    ]


def test_I1_a_release_that_changed_its_own_file_is_never_called_good(here: Here) -> None:
    """Its processes have the right file open, and it answers with the right digest: the bytes are read before they are confirmed."""
    here.systemd_says(here.start("b"), here.start("b", here.socket, greeting(resting.NEW.sha256).decode()))
    with open(here.product.path("b"), "ab") as file:
        file.write(b"more")
    for _again in range(2):
        answer = here.confirm()
        assert (answer.exit, answer.json["state"], answer.json["code"]) == (6, "trial", codes.NOT_PROVEN), answer
        assert answer.json["message"] == "slot b holds other bytes than were verified for 1.1.0"
    assert (os.readlink(here.product.path("good")), os.path.exists(here.product.path("trial"))) == ("a", True)
    with open(here.product.path("b"), "r+b") as file:
        file.truncate(len(resting.BYTES["b"]))
    assert here.confirm().json["state"] == "confirmed"


@pytest.mark.parametrize(
    ("slot", "said", "why"),
    [
        ("a", resting.NEW.sha256, "does not run the new slot's bytes"),
        ("b", OTHER, f"says that it runs {OTHER}, not the new slot's {resting.NEW.sha256}"),
        ("b", None, "does not answer on its socket: "),
        ("b", "", "is malformed"),
    ],
    ids=["the old bytes", "another digest", "no socket", "no greeting"],
)
def test_a_helper_that_is_not_at_the_new_release_keeps_it_unconfirmed(
    here: Here, slot: str, said: Optional[str], why: str
) -> None:
    """The daemon alone is no proof; the answer names the helper's unit, and the trial goes on."""
    text = (greeting(said) if said else b"{}").decode()
    helper = here.start(slot) if said is None else here.start(slot, here.socket, text)
    here.systemd_says(here.start("b"), helper)
    answer = here.confirm()
    assert (answer.exit, answer.json["code"], answer.json["state"]) == (6, codes.NOT_PROVEN, "trial")
    assert answer.json["message"].startswith(f"{HELPER}: main process {helper}")
    assert why in answer.json["message"]
    assert manager.look(here.product).settlement.on_trial is not None


def test_another_process_at_the_socket_is_not_the_helper(here: Here) -> None:
    """Who listens there must be the unit's own main process (SO_PEERCRED)."""
    other = here.start("b", here.socket, greeting(resting.NEW.sha256).decode())
    helper = here.start("b")
    here.systemd_says(here.start("b"), helper)
    assert here.confirm().json["message"] == (
        f"{HELPER}: process {other} answers on its socket, not main process {helper}"
    )


def test_without_a_helper_nobody_asks_for_one(here: Here) -> None:
    """The same host in another mode: one unit is asked about, and no helper is in the answer."""
    here.product = here.product._replace(helper_unit="", helper_socket="")
    main = here.start("b")
    (here.root / "show").write_text(f"ActiveState=active\nMainPID={main}\n")
    answer = here.confirm()
    assert (answer.exit, answer.json["proof"]) == (0, {"how": "open-file", "main_pid": main})
    asked = (here.root / "calls").read_text().splitlines()
    assert asked == [
        "show --property=ActiveState,SubState,MainPID,NRestarts,Job -- probe.service",
        "show --property=ActiveState,MainPID,Job -- probe.service",
    ]


@pytest.mark.parametrize(
    ("unit", "helper", "runs"),
    [
        ("active", "active", True),
        ("active", "failed", False),
        ("failed", "active", False),
        ("active", "inactive", False),
    ],
)
def test_H6_back_is_only_where_both_units_run(here: Here, unit: str, helper: str, runs: bool) -> None:
    """A helper that does not start with the good release either is as bad as a daemon that does not."""
    (here.root / "show").write_text(f"ActiveState={unit}\nJob=\n\nActiveState={helper}\nJob=\n")
    assert cmd_trial.unit_runs(here.product, 0.2) is runs


def test_a_restart_that_is_under_way_is_waited_for(here: Here) -> None:
    """Between its stop and its start a unit is inactive, with a job."""
    (here.root / "show").write_text("ActiveState=active\nJob=\n\nActiveState=inactive\nJob=7\n")
    changed = "ActiveState=active\nJob=\n\nActiveState=active\nJob=\n"
    timer = threading.Timer(0.3, lambda: (here.root / "show").write_text(changed))
    timer.start()
    assert cmd_trial.unit_runs(here.product, 20.0)
    timer.join()


@pytest.mark.parametrize(
    ("meanwhile", "runs"),
    [
        ("ActiveState=activating\nSubState=start\nJob=7\n", True),
        ("ActiveState=deactivating\nSubState=stop-sigterm\nJob=7\n", True),
        ("ActiveState=activating\nSubState=auto-restart\nJob=\n", False),
        ("ActiveState=activating\nSubState=auto-restart-queued\nJob=\n", False),
        ("ActiveState=failed\nSubState=failed\nJob=\n", False),
    ],
    ids=["starts", "stops first", "crashes", "crashes, systemd 254 and later", "failed"],
)
def test_H6_a_slow_stop_or_start_after_going_back_is_no_failure(here: Here, meanwhile: str, runs: bool) -> None:
    """It is waited for beyond what a restart usually takes; what has ended by itself is not."""
    helper = "\nActiveState=active\nSubState=running\nJob=\n"
    (here.root / "show").write_text(meanwhile + helper)
    changed = "ActiveState=active\nSubState=running\nJob=\n" + helper
    timer = threading.Timer(1.0, lambda: (here.root / "show").write_text(changed))
    timer.start()
    assert cmd_trial.unit_runs(here.product, 0.3) is runs
    timer.join()


# --- a helper that means no good, or is not there ---


@contextlib.contextmanager
def listening(path: str, kind: int = socket.SOCK_SEQPACKET, said: Optional[bytes] = None) -> Iterator[None]:
    """A socket of this process that says this, once, to whoever comes; or nothing."""
    with socket.socket(socket.AF_UNIX, kind) as listener:
        listener.bind(path)
        listener.listen(1)

        def serve() -> None:
            with contextlib.suppress(OSError):
                peer, _address = listener.accept()
                with peer:
                    peer.send(said or b"")
                    peer.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        if said is not None:
            thread.start()
        yield


@pytest.mark.parametrize(
    "said",
    [b"", b"{}", b"[" * 60_000, b"\xff" * 10, greeting("A" * 64), greeting(resting.NEW.sha256) * 2, b"x" * 70_000],
)
def test_a_strange_greeting_is_none_and_says_why(tmp_path: pathlib.Path, said: bytes) -> None:
    """Neither its size nor its depth ends the command that listened."""
    path = str(tmp_path / "socket")
    with listening(path, said=said):
        heard = process.listen_to_helper(path)
    assert (heard.sha256, heard.pid) == (None, None)
    assert heard.why.startswith(f"{path}: ")


def test_a_helper_that_never_greets_is_left_in_time(tmp_path: pathlib.Path) -> None:
    """Nor is one waited for that does not take the connection, or that speaks another kind of socket."""
    path = str(tmp_path / "socket")
    with listening(path):
        begun = time.monotonic()
        assert process.listen_to_helper(path, 0.3) == proof.Greeting(why=f"{path}: timed out")
        assert 0.25 < time.monotonic() - begun < 5
    with listening(str(tmp_path / "stream"), socket.SOCK_STREAM):
        assert "wrong type" in process.listen_to_helper(str(tmp_path / "stream")).why
    assert process.listen_to_helper(str(tmp_path / "none")).why == f"{tmp_path}/none: No such file or directory"


def test_a_greeting_says_who_listens(tmp_path: pathlib.Path) -> None:
    """The digest, and this very process."""
    path = str(tmp_path / "socket")
    with listening(path, said=greeting(OTHER)):
        assert process.listen_to_helper(path) == proof.Greeting(OTHER, os.getpid())


def test_nothing_is_compared_with_records_that_are_lost(here: Here) -> None:
    """I3: who confirms is told of the record, not of bytes that no record vouches for; the trial goes on."""
    here.product = here.product._replace(helper_unit="", helper_socket="")
    main = here.start("b")
    (here.root / "show").write_text(f"ActiveState=active\nMainPID={main}\n")
    for name in ("slots.json", "slots.json.copy"):
        pathlib.Path(here.product.path(name)).unlink(missing_ok=True)
    with pytest.raises(codes.BrokenRecord, match=r"slots\.json"):
        here.confirm()
    assert os.path.exists(here.product.path("trial"))


@pytest.mark.parametrize(
    ("active", "state", "noted"), [("active", "rolled-back", 0), ("inactive", "rollback-failed", 1)]
)
def test_H6_an_end_is_told_by_what_runs_then(here: Here, active: str, state: str, noted: int) -> None:
    """Going back that did not help has a name of its own, in the answer and in the log; who asks again notes nothing."""
    (here.root / "show").write_text(f"ActiveState={active}\nJob=0\n")
    product = here.product._replace(helper_unit="")
    last = records.Last(ID, "rolled-back", codes.CRASH_LOOP, "it kept exiting", "1.0.0", "1.1.0", 5)
    for changed in (True, False):
        answer = cmd_trial.ended(product, last, changed)
        assert (answer.exit, answer.json["state"], answer.json["changed"]) == (answers.NOT_CONFIRMED, state, changed)
        assert answer.lines[0] == f"{state}: it kept exiting"
        assert answer.json["evidence"] == f"slotward evidence {ID}"
        assert answer.json["retry"] == "slotward update --clear-failed 1.1.0"
    log = pathlib.Path(product.path("audit.log"))
    assert (log.read_text().count('"rollback-failed"') if log.exists() else 0) == noted
