# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's control socket and `slotward ask`, as processes of the accounts they are for (privilege.md, section 5)."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import pwd
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from agent.accounts import ACCOUNT, STRANGER
from agent.daemons import BYTES, Host, asked, connected
from agent.helping import Helper, Script, helper, said
from support.web import CONTENT, Serve, stall, whole

from agent import accounts, clients
from slotcore import protocol, records, reply
from slotward import calling

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts the daemon as another account")

ID, OTHER = "00112233445566aa", "00112233445566bb"
UID = pwd.getpwnam(ACCOUNT).pw_uid
Make = Callable[..., Host]


@pytest.fixture(name="agent", scope="module")
def _agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[accounts.Accounts]:
    """The agent for any account."""
    with accounts.place() as top:
        yield accounts.Accounts(top, accounts.built(tmp_path_factory.mktemp("built")))


@pytest.fixture(name="make")
def _make(agent: accounts.Accounts) -> Iterator[Make]:
    """Makes a host; its daemon is gone at the end."""
    made: List[Host] = []

    with accounts.place() as top:

        def make(mode: str = "helper", more: str = "") -> Host:
            made.append(Host(top, agent, mode, more))
            return made[-1]

        yield make
        for host in made:
            host.kill()


def takes(host: Host, content: bytes = CONTENT, more: Optional[Dict[str, Callable[[], reply.Reply]]] = None) -> Script:
    """A helper's script: prepare asks for these bytes, swap begins the trial."""

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        if request.op == protocol.PREPARE:
            artifact = {"name": "n", "url": "u", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            fields: Dict[str, Any] = {
                "from": "1.0.0",
                "to": "1.1.0",
                "sequence": 2,
                "artifact": artifact,
                "reuse": False,
            }
            return said(request, **fields)
        if request.op == protocol.SWAP:
            if not (host.slots / "trial").exists():
                host.on_trial(request.id)
            trial = {"id": request.id, "left_s": 100, "length_s": 100}
            return said(request, state="trial", code="not-confirmed", to="1.1.0", trial=trial)
        return said(request)

    return script


# --- an upgrade in helper mode ---


def test_an_upgrade_is_fetched_by_the_account_and_asked_of_the_helper(make: Make, serving: Serve) -> None:
    """What root reads lies in staging, the account's alone and whole; the bytes came by the account's own request."""
    host, seen = make(), {}
    server = serving(whole())
    plain = takes(host)

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        lies = {path.name: (path.stat(), path.read_bytes()) for path in sorted(host.staging.iterdir())}
        seen[request.op] = lies
        return plain(request)

    with helper(host.helper, script) as found:
        host.start()
        target = host.target(url=server.url, content=CONTENT)
        (host.top / "permit").write_bytes(b"a permit")
        words = ("--target", target, "--permit", host.top / "permit", "--id", ID, "--no-wait")
        status, answer, told = host.ask("upgrade", *words, "--server-time", "2026-01-31T23:59:59Z")
    assert (status, answer["state"]) == (0, "trial"), (answer, told, host.errors.read_text())
    assert found.ops() == [protocol.PREPARE, protocol.SWAP]
    prepared, swapped = found.asked
    assert swapped.id == ID
    assert prepared.id != ID
    assert swapped[2:] == (swapped.nonce, f"{ID}.target", f"{ID}.permit", 1769903999, None, None, None, 1)
    assert sorted(seen[protocol.PREPARE]) == [f"{ID}.permit", f"{ID}.target"]
    lies = seen[protocol.SWAP]
    assert sorted(lies) == [f"{ID}.permit", f"{ID}.target", "slotward-1.1.0"]
    assert [content for _found, content in lies.values()] == [b"a permit", target.read_bytes(), CONTENT]
    for found_at, _content in lies.values():
        assert (found_at.st_uid, found_at.st_nlink, stat.S_ISREG(found_at.st_mode)) == (UID, 1, True)
    assert stat.S_IMODE(lies[f"{ID}.target"][0].st_mode) == 0o600
    assert f"asking the daemon for 1.1.0, trial {ID}" in told
    assert len(server.requests) == 1
    assert host.staged() == []


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o077])
def test_D13_no_umask_opens_or_breaks_staging(make: Make, serving: Serve, umask: int) -> None:
    """D13: modes are set whatever the umask of the unit."""
    host, modes = make(), {}
    plain = takes(host)

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        for path in (host.staging, *host.staging.iterdir()):
            modes[path.name] = stat.S_IMODE(path.stat().st_mode)
        return plain(request)

    with helper(host.helper, script):
        host.start(umask)
        target = host.target(url=serving(whole()).url, content=CONTENT)
        status, answer, _told = host.ask("upgrade", "--target", target, "--id", ID, "--no-wait")
    assert status == 0, answer
    assert modes == {"staging": 0o700, f"{ID}.target": 0o600, "slotward-1.1.0": 0o600}


def test_N1_the_child_has_the_configurations_one_transport(make: Make, serving: Serve) -> None:
    """N1: the proxy of the configuration is the child's too, and the environment's is nobody's."""
    server = serving(whole())
    proxy = server.url.rpartition("/")[0]
    host = make(more=f'proxy = "{proxy}"\n')
    with helper(host.helper, takes(host)):
        host.start()
        target = host.target(url="http://releases.invalid/file", content=CONTENT)
        status, answer, _told = host.ask("upgrade", "--target", target, "--id", ID, "--no-wait")
    assert status == 0, answer
    assert [request.path for request in server.requests] == ["http://releases.invalid/file"]


def test_what_the_helper_refuses_is_not_fetched(make: Make, serving: Serve) -> None:
    """Root's checks come first: a refusal is the answer, with its code, and nothing is left."""
    host, server = make(), serving(whole())
    with helper(host.helper, lambda request: said(request, 3, "refused", "below-floor")) as found:
        host.start()
        status, answer, _told = host.ask("upgrade", "--target", host.target(url=server.url, content=CONTENT))
    assert (status, answer["state"], answer["code"]) == (3, "refused", "below-floor")
    assert answer["message"] == "update.prepare by the script"
    assert found.ops() == [protocol.PREPARE]
    assert server.requests == []
    assert host.staged() == []


@pytest.mark.parametrize("failed", [True, False])
def test_a_refused_version_comes_with_the_command_that_allows_it_again(make: Make, failed: bool) -> None:
    """Made from what was asked for and what the records have as failed: whoever holds the account names no command."""
    host = make()
    if failed:
        entry = records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, "ab" * 32, 1)
        (host.slots / "update.json").write_bytes(records.render_update(records.Update(floor=1, failed=(entry,))))
    with helper(host.helper, lambda request: said(request, 3, "refused", "failed-before", retry="rm -rf /")):
        host.start()
        status, answer, _told = host.ask("upgrade", "--target", host.target())
    assert (status, answer["code"]) == (3, "failed-before")
    assert answer.get("retry") == ("slotward update --clear-failed 1.1.0" if failed else None)


def test_an_ended_trial_comes_with_the_command_that_allows_its_version_again(make: Make) -> None:
    """A confirmation that comes too late, by the records."""
    host = make()
    entry = records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, "ab" * 32, 1)
    last = records.Last(ID, "rolled-back", "crash-loop", "it kept exiting", "1.0.0", "1.1.0", 1)
    (host.slots / "update.json").write_bytes(records.render_update(records.Update(floor=1, failed=(entry,), last=last)))
    with helper(host.helper, lambda request: said(request, 6, "rolled-back", "crash-loop", retry="rm -rf /")):
        host.start()
        status, answer, _told = host.ask("confirm", "--id", ID)
    assert (status, answer["state"], answer["code"]) == (6, "rolled-back", "crash-loop")
    assert answer["retry"] == "slotward update --clear-failed 1.1.0"


def test_what_runs_already_is_no_work(make: Make) -> None:
    """I9: nothing is fetched and nothing switched."""
    host = make()
    with helper(host.helper, lambda request: said(request, state="current", to="1.0.0")) as found:
        host.start()
        status, answer, _told = host.ask("upgrade", "--target", host.target("1.0.0"))
    assert (status, answer["state"]) == (0, "current")
    assert found.ops() == [protocol.PREPARE]


def test_a_download_goes_on_where_the_last_one_ended(make: Make, serving: Serve) -> None:
    """As in root mode: the part stays, and the next try asks for the rest."""
    host = make()
    server = serving(stall(700_000), whole())
    with helper(host.helper, takes(host)):
        host.start()
        target = host.target(url=server.url, content=CONTENT)
        asking = host.asking("upgrade", "--target", target, "--id", ID, "--no-wait")
        part = host.staging / "slotward-1.1.0.part"
        host.waits(lambda: part.exists() and part.stat().st_size, "some of it came")
        assert host.stop() == 0
        asking.kill()
        asking.communicate()
        assert part.stat().st_uid == UID
        host.start()
        host.waits(lambda: host.staged() == ["slotward-1.1.0.part"], "the rest was tidied")
        status, answer, _told = host.ask("upgrade", "--target", target, "--id", ID, "--no-wait")
    assert status == 0, answer
    assert server.requests[1].headers["range"].startswith("bytes=")


def test_D3_staging_is_bounded(make: Make, serving: Serve) -> None:
    """D3: an older release's bytes and part go when another is fetched; what was asked for goes at the next start."""
    host = make()
    host.staging.mkdir(0o700)
    for name in ("slotward-1.0.5", "slotward-1.0.6.part", f"{OTHER}.target", f"{OTHER}.permit.new", "slotward-1.0.0"):
        (host.staging / name).write_bytes(b"old")
    for path in (host.staging, *host.staging.iterdir()):
        os.chown(path, UID, UID)
    with helper(host.helper, takes(host)):
        host.start()
        host.waits(lambda: host.staged() == ["slotward-1.0.5", "slotward-1.0.6.part"], "tidied at the start")
        target = host.target(url=serving(whole()).url, content=CONTENT)
        assert host.ask("upgrade", "--target", target, "--no-wait")[0] == 0
    assert host.staged() == []


def test_the_daemon_says_what_it_may_not_read(make: Make) -> None:
    """The lock and the audit log are root's: their part of the status is null, and named; that is no error."""
    host = make()
    for name in ("lock", "audit.log"):
        (host.slots / name).touch(0o600)
    host.start()
    status = host.status()
    assert (status["state"], status["lock"], status["audit"]) == ("idle", None, None)
    assert status["unread"] == [f"{host.slots}/lock", f"{host.slots}/audit.log"]
    shown = host.agent.run(ACCOUNT, "update", "--config", host.config, environment=host.environment())
    assert f"not for this account to read: {host.slots}/lock" in shown.stdout.decode()
    by_root = host.agent.run("root", "update", "--json", "--config", host.config, environment=host.environment())
    assert json.loads(by_root.stdout)["unread"] == []


def test_cancel_says_what_ends_the_daemons_own_work(make: Make) -> None:
    """Before the switch the account holds no lock of root's; who cancels is told how to end it."""
    host = make()
    done = host.agent.run("root", "cancel", "--json", "--config", host.config, environment=host.environment())
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["changed"]) == (0, False)
    assert "ends with `systemctl restart slotward.service`" in answer["message"]


# --- one at a time, and the same again ---


@pytest.fixture(name="slow")
def _slow(make: Make) -> Iterator[Tuple[Host, threading.Event, Helper]]:
    """A daemon whose helper answers prepare when it is told to."""
    host, go = make(), threading.Event()
    plain = takes(host, BYTES)

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        go.wait(30)
        found = plain(request)
        if request.op == protocol.PREPARE and found is not None:
            return said(request, reuse=True, artifact=None, to="1.1.0")
        return found

    with helper(host.helper, script) as found:
        host.start()
        yield host, go, found
        go.set()


def test_one_piece_of_work_at_a_time_and_the_daemon_answers_meanwhile(
    slow: Tuple[Host, threading.Event, Helper],
) -> None:
    """Who asks for another is told what is going on and since when; the status socket says so too, at once."""
    host, go, found = slow
    asking = host.asking("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
    host.waits(lambda: found.asked, "the helper was asked")
    began = time.monotonic()
    host.status()
    assert time.monotonic() - began < 2
    host.waits(lambda: host.status()["work"], "it is told what is going on")
    status = host.status()
    assert status["work"]["what"] == f"upgrade {ID}"
    assert status["running"]["version"] == "1.0.0"
    code, answer, _told = host.ask("confirm", "--id", ID)
    assert (code, answer["code"]) == (4, "in-progress")
    assert f"upgrade {ID}, process {status['work']['pid']}" in answer["message"]
    timer = threading.Timer(1.0, go.set)
    timer.start()
    code, answer, _told = host.ask("rollback", "--id", ID)  # whoever goes back waits for it a little
    assert answer["code"] != "in-progress", answer
    timer.join()
    out, _errors = asking.communicate(timeout=30)
    assert json.loads(out)["state"] == "trial"
    host.waits(
        lambda: host.status()["work"] is None, "it is told that nothing is going on"
    )  # told anew each half second


def test_the_same_again_waits_for_the_same_answer(slow: Tuple[Host, threading.Event, Helper]) -> None:
    """The same id and the same bytes: asked of the helper once, answered to both."""
    host, go, found = slow
    both = [host.asking("upgrade", "--target", host.target(), "--id", ID, "--no-wait") for _number in range(2)]
    host.waits(lambda: found.asked, "the helper was asked")
    time.sleep(0.5)
    go.set()
    said_to = [json.loads(one.communicate(timeout=30)[0]) for one in both]
    assert [one["trial"]["id"] for one in said_to] == [ID, ID]
    assert found.ops() == [protocol.PREPARE, protocol.SWAP]
    status, answer, _told = host.ask("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
    assert (status, answer["state"]) == (0, "trial")
    assert len(found.asked) == 2, "remembered"


def test_another_request_under_a_used_id_is_refused(slow: Tuple[Host, threading.Event, Helper]) -> None:
    """Other bytes are another request."""
    host, go, found = slow
    go.set()
    assert host.ask("upgrade", "--target", host.target(), "--id", ID, "--no-wait")[0] == 0
    other = host.target("1.2.0")
    status, answer, _told = host.ask("upgrade", "--target", other, "--id", ID, "--no-wait")
    assert (status, answer["code"]) == (3, "id-reused"), answer
    assert len(found.asked) == 2


def test_after_a_restart_the_records_answer(make: Make) -> None:
    """A pending trial's id, and the last one's: nothing is asked of anybody, nothing is begun."""
    host = make()
    host.on_trial(ID)
    with helper(host.helper, said) as found:
        host.start()
        status, answer, _told = host.ask("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
        assert (status, answer["state"], answer["changed"], answer["trial"]["id"]) == (0, "trial", False, ID)
        host.ended(ID)
        status, answer, _told = host.ask("upgrade", "--target", host.target(), "--id", ID)
        assert (status, answer["state"], answer["code"]) == (6, "rolled-back", "gave-up")
        status, answer, _told = host.ask("upgrade", "--target", host.target("1.2.0"), "--id", ID)
        assert (status, answer["code"]) == (3, "id-reused"), "the trial of 1.1.0 is no answer about 1.2.0 (I5)"
    assert found.asked == []


# --- the switch ends the connection ---


def test_the_end_of_the_connection_is_no_error_the_records_say_how_it_went(make: Make, capfd: Any) -> None:
    """The switch stops the daemon while the helper works; who asked follows the trial to its end."""
    host, swapping = make(), threading.Event()
    plain = takes(host, BYTES)

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        if request.op == protocol.SWAP:
            swapping.set()
            time.sleep(30)
            return None
        found = plain(request)
        return said(request, reuse=True, artifact=None, to="1.1.0") if found is not None else None

    with helper(host.helper, script):
        host.start()
        asking = host.asking("upgrade", "--target", host.target(), "--id", ID)
        assert swapping.wait(20)
        host.on_trial(ID)
        began = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - began < 3, "a child that waits for the helper does not hold up the switch"
        host.start()
        time.sleep(1)
        assert asking.poll() is None, "on trial is not the end (I5)"
        host.ended(ID, "confirmed", "ok")
        out, errors = asking.communicate(timeout=30)
    answer = json.loads(out)
    assert (asking.returncode, answer["state"], answer["code"]) == (0, "confirmed", "ok"), errors
    assert b"1.1.0 is on trial for" in errors


@pytest.mark.parametrize("word", ["upgrade", "rollback"])
def test_a_child_that_the_switch_ends_before_the_daemon_is_no_error_either(make: Make, word: str) -> None:
    """systemd ends all of a unit at once; the daemon sees its child's end, and only then its own."""
    host, working = make(), threading.Event()
    plain = takes(host, BYTES)

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        if request.op != protocol.PREPARE:
            working.set()
            time.sleep(30)
            return None
        found = plain(request)
        return said(request, reuse=True, artifact=None, to="1.1.0") if found is not None else None

    if word == "rollback":
        host.on_trial(ID)
    with helper(host.helper, script):
        host.start()
        more = ("--target", host.target()) if word == "upgrade" else ()
        asking = host.asking(word, *more, "--id", ID)
        assert working.wait(20)
        if word == "upgrade":
            host.on_trial(ID)
        host.waits(lambda: host.status()["work"], "it is told what is going on")
        child = host.status()["work"]["pid"]
        host.ended(ID)
        os.kill(child, signal.SIGTERM)
        out, errors = asking.communicate(timeout=30)
    answer = json.loads(out)
    assert (answer["state"], answer["code"]) == ("rolled-back", "gave-up"), errors


def test_a_daemon_that_is_stopped_before_the_switch_ends_its_child(
    slow: Tuple[Host, threading.Event, Helper],
) -> None:
    """Nothing of it is left running, and what was asked for is gone from staging at the next start."""
    host, _go, found = slow
    asking = host.asking("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
    host.waits(lambda: found.asked, "the helper was asked")
    host.waits(lambda: host.status()["work"], "it is told what is going on")
    child = host.status()["work"]["pid"]
    assert host.stop() == 0
    assert not pathlib.Path(f"/proc/{child}").exists()
    asking.kill()
    asking.communicate()
    host.start()
    assert host.staged() == []


# --- what the daemon takes ---


def opened(path: pathlib.Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of it."""
    return os.open(path, flags | os.O_NONBLOCK)


def test_only_plain_files_of_the_right_bytes_are_taken(make: Make) -> None:
    """A FIFO, a directory, other bytes, too many, none, too large: refused at once, and the daemon goes on."""
    host = make()
    os.mkfifo(host.top / "fifo")
    huge = host.top / "huge"
    huge.touch()
    os.truncate(huge, 1 << 40)
    plain = host.target()
    sha256 = hashlib.sha256(plain.read_bytes()).hexdigest()
    request = protocol.Request(protocol.NODE_UPGRADE, ID, target=sha256)
    cases: List[Tuple[List[int], str]] = [
        ([opened(host.top / "fifo")], "is a FIFO, not a plain file"),
        ([opened(host.top)], "is a directory, not a plain file"),
        ([opened(host.config)], "has the SHA-256"),
        ([opened(huge)], "has more than"),
        ([], "0 descriptors came with the request, 1 were expected: target"),
        ([opened(plain), opened(plain)], "2 descriptors came with the request, 1 were expected"),
    ]
    with helper(host.helper, said) as found:
        host.start()
        before = len(os.listdir(f"/proc/{host.process.pid}/fd")) if host.process else 0
        for number, (files, text) in enumerate(cases):
            began = time.monotonic()
            answer = asked(host, request._replace(id=f"{number:016x}"), files)
            assert time.monotonic() - began < 10
            assert (answer.refused, answer.code) == (True, "bad-request"), answer
            assert text in answer.message
            for one in files:
                os.close(one)
        host.waits(
            lambda: host.process and len(os.listdir(f"/proc/{host.process.pid}/fd")) <= before, "no descriptor is left"
        )
    assert found.asked == []
    assert host.staged() == []


@pytest.mark.parametrize("op", [protocol.SWAP, protocol.SETTLE, protocol.CONFIRM])
def test_the_daemon_serves_its_own_operations_alone(make: Make, op: str) -> None:
    """What is the helper's is asked of the helper."""
    host = make()
    host.start()
    more: Dict[str, Any] = {protocol.SWAP: {"target": "x"}, protocol.CONFIRM: {"trial": ID}}.get(op, {})
    answer = asked(host, protocol.Request(op, ID, **more))
    assert (answer.refused, answer.code) == (True, "not-allowed")


def test_strangers_are_not_served(make: Make) -> None:
    """The socket is the daemon's alone; where somebody opened the way to it, the daemon still serves nobody else."""
    host = make()
    host.start()
    assert stat.S_IMODE(host.socket.stat().st_mode) == 0o600
    status, answer, _told = host.ask("confirm", "--id", ID, user=STRANGER)
    assert status != 0
    assert answer["code"] in ("not-root", "daemon-unreachable"), answer
    host.run.chmod(0o755)
    host.socket.chmod(0o666)
    status, answer, _told = host.ask("confirm", "--id", ID, user=STRANGER)
    assert (status, answer["code"]) in ((3, "not-allowed"), (4, "daemon-unreachable")), answer
    with helper(host.helper, lambda request: said(request, 6, "trial", "not-proven")):
        status, answer, _told = host.ask("confirm", "--id", ID, user=ACCOUNT)
    assert (status, answer["code"]) == (6, "not-proven"), answer


def test_who_connects_and_says_nothing_stops_nobody(make: Make) -> None:
    """Silent connections hold no place that the next one needs."""
    host = make()
    host.start()
    silent = []
    try:
        for _number in range(3):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            one.connect(str(host.socket))
            silent.append(one)
        with helper(host.helper, lambda request: said(request, 6, "trial", "not-proven")):
            answer = host.ask("confirm", "--id", ID)[1]
            assert answer["code"] == "not-proven", answer
        assert host.status()["running"]["version"] == "1.0.0"
    finally:
        for one in silent:
            one.close()


# --- confirming and giving up ---


def test_a_confirmation_is_the_gateways_and_waits_for_the_proof(make: Make) -> None:
    """`not-proven` is asked again until the wait is over; each try is an operation of its own."""
    host, tries = make(), []

    def script(request: protocol.Request) -> reply.Reply:
        tries.append(request)
        if len(tries) < 3:
            return said(request, 6, "trial", "not-proven")
        host.ended(ID, "confirmed", "ok")
        return said(request, 0, "confirmed", to="1.1.0")

    host.on_trial(ID)
    with helper(host.helper, script):
        host.start()
        status, answer, _told = host.ask("confirm", "--id", ID, "--wait", "20")
        assert (status, answer["state"], answer["code"]) == (0, "confirmed", "ok"), answer
        tries.clear()
        status, answer, _told = host.ask("confirm", "--id", ID)
    assert (status, answer["code"]) == (6, "not-proven"), "without a wait the first word counts"
    assert {(one.op, one.trial) for one in tries} == {(protocol.CONFIRM, ID)}
    assert len({one.id for one in tries}) == len(tries)


def test_giving_up_tells_why(make: Make) -> None:
    """The reason goes along, made to fit."""
    host = make()

    def script(request: protocol.Request) -> reply.Reply:
        host.ended(ID)
        return said(request, 0, "rolled-back", "gave-up")

    host.on_trial(ID)
    with helper(host.helper, script) as found:
        host.start()
        status, answer, _told = host.ask("rollback", "--id", ID, "--why", "no\nlink " + "x" * 300)
    assert (status, answer["state"], answer["code"]) == (0, "rolled-back", "gave-up")
    assert found.asked[0].why == ("no link " + "x" * 300)[:200]


def test_giving_up_is_followed_when_the_daemon_goes_with_it(make: Make) -> None:
    """Going back restarts the daemon before anybody could answer: the records do."""
    host, asked_for = make(), threading.Event()

    def script(_request: protocol.Request) -> None:
        asked_for.set()
        time.sleep(30)

    host.on_trial(ID)
    with helper(host.helper, script):
        host.start()
        asking = host.asking("rollback", "--id", ID)
        assert asked_for.wait(20)
        os.rename(host.slots / "trial", host.slots / "trial.revert")
        host.stop()
        time.sleep(1)
        assert asking.poll() is None, "its end is being written down"
        os.rename(host.slots / "trial.revert", host.slots / "trial")
        host.ended(ID)
        out, errors = asking.communicate(timeout=30)
    answer = json.loads(out)
    assert (asking.returncode, answer["state"], answer["code"]) == (0, "rolled-back", "gave-up"), errors


def test_giving_up_is_followed_when_its_end_is_not_written_down_yet(make: Make) -> None:
    """The daemon is ended between the claim and the record (seen on a real host): that is no daemon that is unreachable."""
    host, asked_for = make(), threading.Event()

    def script(_request: protocol.Request) -> None:
        asked_for.set()
        time.sleep(30)

    host.on_trial(ID)
    with helper(host.helper, script):
        host.start()
        asking = host.asking("rollback", "--id", ID)
        assert asked_for.wait(20)
        host.going_back()
        host.stop()
        with pytest.raises(subprocess.TimeoutExpired):
            asking.wait(2)
        host.went_back(ID)
        out, errors = asking.communicate(timeout=30)
    answer = json.loads(out)
    assert (asking.returncode, answer["state"], answer["code"]) == (0, "rolled-back", "gave-up"), errors


# --- who is not there ---


def test_without_a_daemon_the_answer_says_what_to_run(make: Make) -> None:
    """No socket, and one that nobody listens on."""
    host = make()
    for words in (("upgrade", "--target", host.target()), ("confirm", "--id", ID), ("rollback", "--id", ID)):
        status, answer, _told = host.ask(*words)
        assert (status, answer["code"]) == (4, "daemon-unreachable"), answer
        assert str(host.socket) in answer["message"]
        assert "look at `systemctl status slotward.service`" in answer["message"]


def test_who_may_not_reach_the_daemon_is_told_who_may(tmp_path: pathlib.Path) -> None:
    """Nothing is wrong with the daemon then, so its unit is not what to look at."""
    server = calling.daemon(str(tmp_path / "status.sock"))
    said = calling.unreachable(server, calling.Closed("Permission denied")).text
    assert said.endswith("gives no answer: Permission denied; run it as root or as the daemon's own account")
    assert "look at" in calling.unreachable(server, calling.Lost("Connection refused")).text


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another account's place")
def test_a_socket_of_another_account_s_is_closed(tmp_path: pathlib.Path) -> None:
    """As the system says it: a connection that is not permitted."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        os.chmod(path, 0o600)
        tmp_path.chmod(0o755)
        script = (
            "import os; from slotward import calling; os.setgid(65534); os.setuid(65534)\n"
            "try: calling._connect('control.sock')\nexcept calling.Closed: print('closed')"
        )
        paths = [str(clients.ROOT / name) for name in ("plugins/module_utils", "agent/src")]
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout == "closed\n", done.stderr


def test_without_a_helper_the_answer_says_what_to_run(make: Make) -> None:
    """The daemon is there, the helper is not: its socket and its unit are named."""
    host = make()
    host.start()
    status, answer, _told = host.ask("confirm", "--id", ID)
    assert (status, answer["code"]) == (4, "helper-unreachable"), answer
    assert f"the helper at {host.helper} gives no answer" in answer["message"]
    assert "look at `systemctl status slotward-helper.service`" in answer["message"]


def test_a_helper_that_restarts_is_asked_the_same_once_more(make: Make) -> None:
    """The connection ends without an answer: the same id again, and no third time."""
    host, tries = make(), []

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        tries.append(request)
        if len(tries) == 1:
            return None
        host.ended(ID)
        return said(request, 0, "rolled-back", "gave-up")

    host.on_trial(ID)
    with helper(host.helper, script):
        host.start()
        assert host.ask("rollback", "--id", ID)[0] == 0
    assert tries[0] == tries[1]
    assert len(tries) == 2
    tries.clear()
    with helper(host.helper, tries.append):
        status, answer, _told = host.ask("rollback", "--id", ID)
    assert (status, answer["code"]) == (4, "helper-unreachable")
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("upgrade",), "slotward ask upgrade needs --target"),
        (("confirm",), "slotward ask confirm needs --id"),
        (("rollback",), "slotward ask rollback needs --id"),
        (("confirm", "--id", ID, "--why", "x"), "--why does not go with slotward ask confirm"),
        (("upgrade", "--target", "x", "--wait", "3"), "--wait does not go with slotward ask upgrade"),
        (("rollback", "--id", ID, "--no-wait"), "--no-wait does not go with slotward ask rollback"),
    ],
)
def test_what_does_not_go_together_is_said(make: Make, words: Tuple[str, ...], text: str) -> None:
    """Exit status 2, and the sentence."""
    status, answer, _told = make().ask(*words)
    assert (status, answer["message"]) == (2, text)


def test_an_id_is_16_hexadecimal_digits(make: Make) -> None:
    """As for upgrade."""
    status, answer, _told = make().ask("confirm", "--id", "XYZ")
    assert (status, answer["code"]) == (3, "wrong-trial")


# --- the daemon's start, and root mode ---


def test_at_its_start_the_daemon_has_the_helper_settle(make: Make) -> None:
    """What a cut left is the helper's to finish; the daemon itself tries no systemd-run, and is ready meanwhile."""
    host = make()
    (host.slots / "b.tmp").write_bytes(b"left")
    with helper(host.helper, said) as found:
        host.start()
        host.waits(lambda: found.ops() == [protocol.SETTLE], "settle was asked for")
    assert "systemd-run" not in (host.top / "calls").read_text()


def test_at_the_deadline_another_account_asks_nobody(make: Make) -> None:
    """The timer and the helper's watchdog need no help, and would give this account none."""
    host = make()
    host.on_trial(ID, left_s=10)
    with helper(host.helper, said):
        host.start()
        host.waits(lambda: "the deadline has come" in host.errors.read_text(), "it is told", 40)
        assert host.process is not None
        assert host.process.poll() is None
    assert "start" not in (host.top / "calls").read_text()


def script_of(host: Host, text: str) -> None:
    """A systemd-run of this test's own."""
    (host.top / "bin").mkdir()
    path = host.top / "bin" / "systemd-run"
    path.write_text(f'#!/bin/sh\necho "systemd-run $*" >>{host.top}/calls\n{text}\n')
    path.chmod(0o755)


def test_as_root_the_daemon_runs_the_commands_in_units_of_their_own(make: Make) -> None:
    """Each command as an operator would run it, outside the sandbox; its answer is passed through."""
    host = make("root")
    answer = '{"spec":1,"state":"trial","code":"not-confirmed","message":"m","to":"1.1.0","trial":{"id":"%s"}}' % ID
    script_of(host, f"cat {host.staging}/*.target >>{host.top}/handed; echo '{answer}'")
    host.start()
    target = host.target()
    asking = host.asking("upgrade", "--target", target, "--id", ID, "--no-wait")
    host.waits((host.top / "handed").exists, "the command runs")
    host.on_trial(ID)
    found = json.loads(asking.communicate(timeout=30)[0])
    assert (asking.returncode, found["state"]) == (0, "trial"), found
    host.ask("confirm", "--id", ID, "--wait", "2")
    host.ask("rollback", "--id", ID, "--why", "no link")
    calls = [line for line in (host.top / "calls").read_text().splitlines() if "systemd-run" in line]
    ran = [call.partition(" -- ")[2].partition(" ")[2] for call in calls]
    config = f"--config {host.config}"
    assert ran[0] == f"{config} upgrade --json --id {ID} --no-wait --target {host.staging}/{ID}.target --here"
    assert ran[1].startswith(f"{config} confirm --json --id {ID} --source gateway --wait ")
    assert ran[-1] == f"{config} rollback --json --id {ID} --why=no link"
    assert all(" --pipe --wait --unit=slotward-" in call for call in calls)
    assert (host.top / "handed").read_bytes() == target.read_bytes()
    assert host.staged() == []


def test_as_root_a_daemon_that_is_stopped_before_the_switch_stops_the_upgrades_unit(make: Make) -> None:
    """And after it does not: then it is the switch that stops it."""
    host = make("root")
    script_of(host, f"touch {host.top}/at-work; exec sleep 60")
    for switched in (False, True):
        (host.top / "calls").write_text("")
        (host.top / "at-work").unlink(missing_ok=True)
        host.start()
        asking = host.asking("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
        host.waits((host.top / "at-work").exists, "the unit runs")
        if switched:
            host.on_trial(ID)
        assert host.ask("confirm", "--id", OTHER)[1]["code"] == "in-progress"
        host.waits(lambda: host.status()["work"], "it is told what is going on")
        os.kill(host.status()["work"]["pid"], signal.SIGTERM)  # the stop of the daemon's unit reaches all of it
        host.waits(lambda: host.status()["work"] is None, "who waited for the upgrade's unit has ended")
        assert host.stop() == 0
        asking.send_signal(signal.SIGKILL)
        asking.communicate()
        stopped = f"--no-block stop -- slotward-upgrade-slotward-{ID}.service" in (host.top / "calls").read_text()
        assert stopped is not switched


def test_a_stop_that_reaches_the_child_first_is_no_answer(make: Make) -> None:
    """Seen on a real host: the switch stops the whole unit, the child ends, and the daemon has not been told yet.

    Who asked is told nothing then, and the records say how it went; a child that somebody else ended is told of a moment later.
    """
    host, swapping = make(), threading.Event()

    def script(request: protocol.Request) -> Optional[reply.Reply]:
        if request.op == protocol.SWAP:
            swapping.set()
            time.sleep(30)
        return said(request, reuse=True, artifact=None, to="1.1.0")

    with helper(host.helper, script):
        host.start()
        asking = host.asking("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
        assert swapping.wait(20)
        host.waits(lambda: host.status()["work"], "it is told what is going on")
        child = host.status()["work"]["pid"]
        host.on_trial(ID)
        os.kill(child, signal.SIGTERM)
        host.waits(lambda: not pathlib.Path(f"/proc/{child}").exists(), "the child has ended")
        assert host.stop() == 0
        out, errors = asking.communicate(timeout=30)
        assert (asking.returncode, json.loads(out)["state"]) == (0, "trial"), errors
        host.ended(ID)
        host.start()
        swapping.clear()
        asking = host.asking("upgrade", "--target", host.target(), "--id", OTHER, "--no-wait")
        assert swapping.wait(20)
        host.waits(lambda: host.status()["work"], "it is told what is going on")
        os.kill(host.status()["work"]["pid"], signal.SIGTERM)
        out, errors = asking.communicate(timeout=30)
        assert (asking.returncode, json.loads(out)["code"]) == (4, "bad-answer"), errors


def test_a_command_that_gives_no_answer_is_no_success(make: Make) -> None:
    """A child that is killed, or writes something else: `bad-answer`, try again."""
    host = make("root")
    script_of(host, "echo nonsense; exit 1")
    host.start()
    status, found, _told = host.ask("confirm", "--id", ID)
    assert (status, found["code"]) == (4, "bad-answer")


def test_a_connection_by_hand_is_greeted_and_closed_politely(make: Make) -> None:
    """The greeting names this program and its digest."""
    host = make()
    host.start()
    with connected(host) as (_peer, hello):
        assert (hello.product, hello.version, hello.protocol) == ("slotward", "1.0.0", (1,))
        assert hello.sha256 == hashlib.sha256(host.agent.program.read_bytes()).hexdigest()


def test_a_second_daemon_does_not_take_the_sockets_of_the_first(make: Make) -> None:
    """Typed on a shell beside the running service, it says who answers and ends."""
    host = make()
    host.start()
    before = [path.stat().st_ino for path in (host.socket, host.run / "status.sock")]
    second = host.agent.start(
        host.user, "node", "--config", host.config, environment=host.environment(), stderr=subprocess.PIPE
    )
    _out, errors = second.communicate(timeout=30)
    assert host.process is not None
    assert second.returncode == 4
    assert f"(in-progress): process {host.process.pid} answers at {host.run}/status.sock already" in errors.decode()
    assert [path.stat().st_ino for path in (host.socket, host.run / "status.sock")] == before
    assert host.status()["running"]["pid"] == host.process.pid


def test_i8_under_systemd_whoever_holds_the_socket_keeps_no_daemon_from_starting(make: Make) -> None:
    """I8: systemd has ended the old one before; what answers there is nobody's to wait for."""
    host = make()
    host.start()
    environment = dict(host.environment(), NOTIFY_SOCKET=str(host.top / "nobody"))
    with open(host.errors, "ab") as errors:
        second = host.agent.start(host.user, "node", "--config", host.config, environment=environment, stderr=errors)
    try:
        host.waits(lambda: host.status()["running"]["pid"] == second.pid, "the new one answers")
    finally:
        second.kill()
        second.wait(20)
