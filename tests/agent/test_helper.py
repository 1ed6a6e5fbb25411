# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper as a process of root's, with a systemd of ours: whom it serves, what it has done, and where it does not start."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from agent.accounts import ACCOUNT, STRANGER
from agent.clients import Group
from agent.places import TRIAL, TRIAL_ID, Place

from agent import clients
from slotcore import codes, protocol, recording, records, reply, settle, trial
from slotward import audit, build_info, caller, helper, looping, operations, own, seqpacket, transient, watching
from slotward import host as hosts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="is root's, and takes other accounts' places")

FAKES = pathlib.Path(__file__).parent / "fakes"
WHO = pwd.getpwnam(ACCOUNT)
ID, OTHER = "0123456789abcdef", "00000000000000ff"
PROGRAM = """#!{python} -IB
import sys
sys.path[1:1] = {paths!r}
from slotward import cli
sys.exit(cli.main(sys.argv[1:]))
"""


class Host:
    """What the helper needs of a host: a place that is root's alone, slots at rest, a configuration, a systemd of ours."""

    def __init__(self, top: pathlib.Path, group: Group) -> None:
        self.top, self.group = top, group
        self.place = Place(top, top / "slots")
        self.socket = top / "run" / "helper.sock"
        self.config = top / "etc" / "config.toml"
        self.program = top / "slotward"
        self.inbox = top / "data" / "staging"
        for directory in (self.socket.parent, self.config.parent):
            directory.mkdir()
        self.inbox.mkdir(parents=True)
        for directory in (self.inbox.parent, self.inbox):
            os.chown(directory, WHO.pw_uid, WHO.pw_gid)
        self.configure()
        paths = [
            *(str(clients.ROOT / name) for name in ("plugins/module_utils", "agent/src")),
            sysconfig.get_path("purelib"),
        ]
        self.program.write_text(PROGRAM.format(python=sys.executable, paths=paths))
        self.program.chmod(0o755)
        (top / "calls").touch()
        (top / "show").write_text("ActiveState=active\n")
        (top / f"show-{build_info.UNIT}").write_text(f"ActiveState=active\nControlGroup={group.path}\n")
        (top / "fakes").mkdir()
        for name in ("systemctl", "systemd-run"):  # the helper hands on its PATH and nothing else
            wrapper = top / "fakes" / name
            wrapper.write_text(f'#!/bin/sh\nFAKE_SYSTEMD={top}\nexport FAKE_SYSTEMD\nexec {FAKES}/{name} "$@"\n')
            wrapper.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{top}/fakes:{os.environ['PATH']}", "SUDO_USER": ""}

    def configure(self, more: str = "", section: str = "helper") -> None:
        """Write the configuration."""
        self.config.write_text(
            f'data_dir = "{self.top}/data"\nsocket_path = "{self.top}/status.sock"\n[update]\n'
            f'slots_dir = "{self.place.slots}"\nentrypoint = "{self.top}/bin/slotward"\nconfirm_sources = "gateway"\n{more}'
            f'[{section}]\nuser = "{ACCOUNT}"\n'
        )
        if section == "helper":
            with self.config.open("a") as file:
                file.write(f'socket = "{self.socket}"\n')
        self.config.chmod(0o640)

    @property
    def argv(self) -> List[str]:
        """The helper's command line."""
        return [str(self.program), "--config", str(self.config), "helper"]

    def calls(self, what: str) -> List[str]:
        """How systemd was asked for that."""
        return [line for line in (self.top / "calls").read_text().splitlines() if what in line]


class Helper(clients.Server):
    """The running helper."""

    def __init__(self, host_: Host) -> None:
        self.host = host_
        super().__init__(
            host_.socket, host_.argv, "helper serves games at", env=host_.environment, stderr=subprocess.PIPE, cwd="/"
        )
        self.waits(lambda: host_.calls("update-settle") and not self.children())
        self.waits(self._is_still)

    def _is_still(self) -> bool:
        self.rest = self.descriptors
        time.sleep(0.1)
        return self.rest == self.descriptors

    def waits(self, what: Callable[[], object], within: float = 10) -> None:
        """Wait for something."""
        until = time.monotonic() + within
        while not what():
            assert time.monotonic() < until
            time.sleep(0.02)

    def asks(self, op: str, number: str = ID, uid: Optional[int] = None, **more: Any) -> reply.Reply:
        """What the daemon's account is answered, from the daemon's group."""
        who = (WHO.pw_uid, WHO.pw_gid) if uid is None else (uid, 0)
        request = protocol.Request(op, number, **more)
        found = clients.forked(lambda: ask(self.path, request)._asdict(), *who, self.host.group)
        return reply.Reply(**found)


def ask(path: str, request: protocol.Request) -> reply.Reply:
    """One request, one answer."""
    with clients.connect(path, 60) as peer:
        peer.send(protocol.render_request(request._replace(nonce=clients.greeted(peer).nonce)))
        return clients.answered(peer)


@pytest.fixture(name="host")
def _host() -> Iterator[Host]:
    """A host where everything is root's, down from /."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="slotward-test-", dir="/opt"))
    top.chmod(0o755)
    group = Group(f"probe-{os.getpid()}-{top.name}/{build_info.UNIT}")
    try:
        yield Host(top, group)
    finally:
        group.remove()
        shutil.rmtree(top)


@pytest.fixture(name="running")
def _running(host: Host) -> Iterator[Helper]:
    """The helper on it."""
    found = Helper(host)
    try:
        yield found
        assert found.process.poll() is None
        assert found.comes_to_rest(), (found.rest, found.descriptors)
    finally:
        found.end()


# --- serving ---


def test_the_daemons_account_is_served(running: Helper, host: Host) -> None:
    """Through a command of its own unit, which reads the request from its input and knows who asked."""
    found = running.asks(protocol.SETTLE)
    assert (found.code, found.id, found.answer["settled"]) == (codes.OK, ID, "nothing")
    call = host.calls(ID)
    assert len(call) == 1
    assert f"--unit=slotward-update-settle-{ID}-{running.process.pid}" in call[0]
    assert "--pipe --wait" in call[0]
    assert "--property=RuntimeMaxSec=120" in call[0]
    assert f"--property=Environment=SLOTWARD_WHO=helper:{ACCOUNT}" in call[0]
    assert call[0].endswith(f"-- {host.program} --config {host.config} helper --do --json")


def test_the_socket_is_the_accounts_groups(running: Helper) -> None:
    """And nobody else's, from its first moment."""
    found = os.stat(running.path)
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o660, 0, WHO.pw_gid)


def test_root_is_served_and_written_down_as_root(running: Helper, host: Host) -> None:
    """From any group."""
    assert ask(running.path, protocol.Request(protocol.SETTLE, ID)).code == codes.OK
    assert "SLOTWARD_WHO=helper:root" in host.calls(ID)[0]


def test_whoever_else_it_is_gets_nothing_done(running: Helper, host: Host) -> None:
    """The account outside the daemon's group; another account is kept out by the socket's mode."""
    request = protocol.Request(protocol.SETTLE, ID)
    found = clients.forked(lambda: ask(running.path, request)._asdict(), WHO.pw_uid, WHO.pw_gid)
    assert (found["code"], found["refused"]) == (codes.NOT_ALLOWED, True)
    assert found["message"].endswith(f"not in that of {build_info.UNIT}")
    assert running.asks(protocol.SETTLE, OTHER).code == codes.OK
    found = clients.forked(lambda: ask(running.path, request)._asdict(), WHO.pw_uid, WHO.pw_gid)
    assert found["message"].endswith(f"not in that of {build_info.UNIT}, {host.group.path}")
    other = pwd.getpwnam(STRANGER)

    def refused() -> str:
        try:
            clients.connect(running.path)
        except PermissionError:
            return "kept out"
        return "let in"

    assert clients.forked(refused, other.pw_uid, other.pw_gid, host.group) == "kept out"
    assert host.calls(ID) == []


def test_the_greeting_says_who_answers(running: Helper) -> None:
    """What the proof of a trial compares: the digest of the program, none in a source tree."""
    with clients.connect(running.path) as peer:
        hello = clients.greeted(peer)
    assert hello[:2] == ("slotward", (1,))
    assert (hello.version, hello.sha256) == (build_info.VERSION, helper.NO_DIGEST)


def test_nodes_operations_are_not_the_helpers(running: Helper, host: Host) -> None:
    """Nothing is run for them."""
    found = running.asks(protocol.NODE_CONFIRM, trial=TRIAL_ID)
    assert (found.code, found.refused) == (codes.NOT_ALLOWED, True)
    assert host.calls(ID) == []


# --- each once ---


def test_the_same_again_is_answered_as_before(running: Helper, host: Host) -> None:
    """Without doing it again, whoever's connection it comes by; another request under that id is refused."""
    first = running.asks(protocol.ROLLBACK, trial=TRIAL_ID)
    assert (first.code, first.refused) == (codes.NO_TRIAL, True)
    assert running.asks(protocol.ROLLBACK, trial=TRIAL_ID) == first
    assert len(host.calls(ID)) == 1
    for trial_id, why in ((OTHER, None), (TRIAL_ID, "x")):
        found = running.asks(protocol.ROLLBACK, trial=trial_id, why=why)
        assert (found.code, found.refused) == (codes.ID_REUSED, True)
    assert running.asks(protocol.SETTLE).code == codes.ID_REUSED
    assert len(host.calls(ID)) == 1


def test_what_may_pass_is_tried_again(running: Helper, host: Host) -> None:
    """An answer that is not final is not kept."""
    (host.top / "fail-systemd-run").write_text("1")
    found = running.asks(protocol.SETTLE)
    assert (found.code, found.retry) == (codes.BAD_ANSWER, True)
    assert "ended with status 1 and gave no answer" in found.message
    (host.top / "fail-systemd-run").unlink()
    assert running.asks(protocol.SETTLE).code == codes.OK


def test_one_operation_at_a_time(running: Helper, host: Host) -> None:
    """Meanwhile another is told so, the same waits for the same answer, and who has gone leaves it to go on."""
    with host_locked(host):
        waiting = [begin(running.path, protocol.CONFIRM, trial=TRIAL_ID) for _number in range(2)]
        running.waits(lambda: host.calls(ID))
        begin(running.path, protocol.CONFIRM, trial=TRIAL_ID).close()
        found = running.asks(protocol.SETTLE, OTHER)
        assert (found.code, found.retry) == (codes.IN_PROGRESS, True)
        assert f"update.confirm {ID} is being done" in found.message
        assert running.asks(protocol.CONFIRM, trial=OTHER).code == codes.ID_REUSED
    answers = [clients.answered(peer) for peer in waiting]
    assert answers[0] == answers[1]
    assert answers[0].code == codes.NO_TRIAL
    for peer in waiting:
        peer.close()
    assert len(host.calls(ID)) == 1


def begin(path: str, op: str, **more: Any) -> Any:
    """Ask, and do not wait."""
    peer = clients.connect(path, 60)
    request = protocol.Request(op, ID, clients.greeted(peer).nonce, **more)
    peer.send(protocol.render_request(request))
    return peer


def host_locked(host_: Host) -> Any:
    """Have systemd-run wait as long as this lasts."""
    return Gate(host_.top / "gate")


class Gate:
    """While it is there, what is run waits."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._path.touch()

    def __exit__(self, *_error: object) -> None:
        self._path.unlink(missing_ok=True)


def test_restarting_the_helper_ends_no_operation(host: Host) -> None:
    """It stops at once; the command goes on, and the records say how it went."""
    first = Helper(host)
    try:
        with host_locked(host):
            peer = begin(first.path, protocol.SETTLE)
            first.waits(lambda: host.calls(ID))
            child = int(first.children().split()[0])
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(5) == 0
            assert peer.recv(9) == b""
            peer.close()
            os.kill(child, 0)
        second = Helper(host)
        try:
            assert second.asks(protocol.SETTLE, OTHER).code == codes.OK
        finally:
            second.end()
    finally:
        first.end()


def test_an_answer_that_never_ends_is_bounded(tmp_path: pathlib.Path) -> None:
    """A command that writes without end is read, and no more is kept than the bound."""
    ended = run_child(["sh", "-c", "head -c 3000000 /dev/zero"], b"")
    assert ended.status == 0
    assert len(ended.output) == transient.MAX_OUTPUT + 1
    found = operations.answer_of(protocol.Request(protocol.SETTLE, ID), ended)
    assert (found.code, found.retry) == (codes.BAD_ANSWER, True)


def test_a_command_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time and what systemd may need; nothing is left of it here."""
    monkeypatch.setattr(transient, "SPARE_S", 0.1)
    before = sorted(os.listdir("/proc/self/fd"))
    ended = run_child(["sleep", "100"], b"x", 0.1)
    assert ended == transient.Ended(None, b"")
    assert sorted(os.listdir("/proc/self/fd")) == before
    found = operations.answer_of(protocol.Request(protocol.SETTLE, ID), ended)
    assert (found.code, found.retry) == (codes.SYSTEMD_FAILED, True)
    assert "120 s" in found.message


@pytest.mark.parametrize(
    ("argv", "status", "output"),
    [(["cat"], 0, b"what it reads"), (["sh", "-c", "exit 7"], 7, b""), (["sh", "-c", "kill -9 $$"], -9, b"")],
)
def test_how_a_command_ends_is_told(argv: List[str], status: int, output: bytes) -> None:
    """Its status and what it wrote, with the request on its input."""
    assert run_child(argv, b"what it reads") == transient.Ended(status, output)


def run_child(argv: List[str], content: bytes, limit_s: float = 20) -> transient.Ended:
    """A child in a loop of its own."""
    loop = looping.Loop()
    found: List[transient.Ended] = []

    def done(ended: transient.Ended) -> None:
        found.append(ended)
        loop.stop()

    transient.Child(loop, argv, content, limit_s, done)
    loop.run()
    assert len(found) == 1
    return found[0]


def test_no_systemd_is_an_answer(host: Host) -> None:
    """Nothing of it is fatal for the helper."""
    ops = operations.Operations(str(host.config), ACCOUNT, no_such_program, lambda: None)
    found: List[reply.Reply] = []
    request = protocol.Request(protocol.SETTLE, ID)
    ops.serve(seqpacket.Asked(request, caller.Peer(1, 0, 0), (), found.append))
    assert (found[0].code, found[0].retry) == (codes.SYSTEMD_FAILED, True)


def no_such_program(*_arguments: object) -> None:
    """What posix_spawnp says of a program that is not there."""
    raise FileNotFoundError(2, "No such file or directory")


def test_who_is_named_as_the_audit_log_reads_it() -> None:
    """One variable, in two places for the sake of what a resident process imports."""
    assert operations.WHO == audit.WHO


# --- what root makes of a request ---


def work(host_: Host, request: object) -> Tuple[int, Dict[str, Any]]:
    """The operation's own command: its exit status and answer."""
    data = request if isinstance(request, bytes) else protocol.render_request(request)  # type: ignore[arg-type]
    done = subprocess.run(
        [*host_.argv, "--do", "--json"], input=data, env=host_.environment, capture_output=True, timeout=60, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def stage(host_: Host, name: str, content: bytes, uid: int = WHO.pw_uid) -> str:
    """Put a file where the daemon would."""
    (host_.inbox / name).write_bytes(content)
    os.chown(host_.inbox / name, uid, WHO.pw_gid)
    return name


TARGET = {"product": "slotward", "version": "9.0.0", "url": "", "sha256": "ab" * 32, "signature": "{}"}


@pytest.mark.parametrize("op", [protocol.PREPARE, protocol.SWAP])
def test_a_target_is_read_only_where_the_account_has_put_it(host: Host, op: str) -> None:
    """A plain file of its own with one link; what else is there is refused before it is read."""
    data = json.dumps(TARGET).encode()
    stage(host, "good", data)
    stage(host, "roots", data, 0)
    stage(host, "torn", data[:-1])
    (host.inbox / "link").symlink_to("good")
    os.mkfifo(host.inbox / "fifo")
    stage(host, "twice", data)
    os.link(host.inbox / "twice", host.inbox / "again")
    wanted = {
        "missing": codes.CANNOT_READ, "roots": codes.STAGED_UNSAFE, "torn": codes.BAD_TARGET, "link": codes.STAGED_UNSAFE,
        "fifo": codes.STAGED_UNSAFE, "twice": codes.STAGED_UNSAFE, "good": codes.NO_PINS,
    }  # fmt: skip
    for name, code in wanted.items():
        status, answer = work(host, protocol.Request(op, ID, target=name))
        assert (status, answer["code"]) == (3, code), (name, answer)
    status, answer = work(host, protocol.Request(op, ID, target="good", permit="roots"))
    assert answer["code"] == codes.STAGED_UNSAFE


@pytest.mark.parametrize("op", [protocol.PREPARE, protocol.SWAP])
def test_what_failed_before_is_refused_with_the_command_that_allows_it_again(host: Host, op: str) -> None:
    """Root's own answer has it, whoever asked: as `upgrade` in root mode."""
    failed = records.Failed("9.0.0", codes.CRASH_LOOP, "it kept exiting", 9, "ab" * 32, 1)
    host.place.write(recording.UPDATE, records.render_update(records.Update(floor=7, failed=(failed,))))
    status, answer = work(host, protocol.Request(op, ID, target=stage(host, "good", json.dumps(TARGET).encode())))
    assert (status, answer["state"], answer["code"]) == (3, "refused", codes.FAILED_BEFORE)
    assert answer["retry"] == "slotward update --clear-failed 9.0.0"
    found = reply.of_command(ID, status, answer)
    assert (found.refused, found.retry, found.answer["retry"]) == (True, False, answer["retry"])


def test_staging_that_is_a_link_leads_nowhere(host: Host) -> None:
    """The account may put a link in its place."""
    stage(host, "good", json.dumps(TARGET).encode())
    host.inbox.rename(host.top / "elsewhere")
    host.inbox.symlink_to(host.top / "elsewhere")
    assert work(host, protocol.Request(protocol.SWAP, ID, target="good"))[1]["code"] == codes.STAGED_UNSAFE


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"x" * 5000, b'{"protocol":1,"id":"0123456789abcdef","op":"node.confirm"}']
)
def test_a_command_without_a_request_does_nothing(host: Host, data: bytes) -> None:
    """Who runs it by hand is told what it reads."""
    status, answer = work(host, data)
    assert (status, answer["code"]) == (3, codes.BAD_REQUEST)


def test_a_nodes_operation_is_refused_there_too(host: Host) -> None:
    """The helper has refused it already; this is judged as if nobody had."""
    request = protocol.Request(protocol.NODE_CONFIRM, ID, trial=TRIAL_ID)
    assert work(host, request)[1]["code"] == codes.NOT_ALLOWED


@pytest.mark.parametrize("op", [protocol.PREPARE, protocol.SWAP, protocol.CONFIRM])
def test_a_configuration_with_problems_refuses_what_is_new(host: Host, op: str) -> None:
    """And the confirmation, whose sources would be a default's; settling and giving up go on."""
    host.configure("no_such_key = 1\n")
    stage(host, "good", json.dumps(TARGET).encode())
    request = protocol.Request(op, ID, target="good")
    if op == protocol.CONFIRM:
        request = protocol.Request(op, ID, trial=TRIAL_ID)
    status, answer = work(host, request)
    assert (status, answer["code"]) == (5, codes.BAD_CONFIG)
    assert work(host, protocol.Request(protocol.SETTLE, ID))[0] == 0
    assert work(host, protocol.Request(protocol.ROLLBACK, ID, trial=TRIAL_ID))[1]["code"] == codes.NO_TRIAL


def on_trial(host_: Host, left_s: int = 600) -> None:
    """A trial of this boot, for so long."""
    clock = hosts.clock()
    record = record_of(clock, left_s)
    host_.place.on_trial(record)
    host_.place.link("helper", "b")
    host_.place.link("helper.back", "a")


def record_of(clock: settle.Clock, left_s: int) -> bytes:
    """Its record."""
    length_s = 3600 if left_s > 0 else 5
    return trial.render_trial(
        TRIAL._replace(boot_id=clock.boot_id, deadline_s=clock.uptime_s + left_s, length_s=length_s, boots_left=3)
    )


def test_giving_up_takes_the_trial_back_and_says_who_wanted_it(host: Host) -> None:
    """The reason is the release's own, and the audit log names the helper's caller."""
    on_trial(host)
    host.environment["SLOTWARD_WHO"] = f"helper:{ACCOUNT}"
    request = protocol.Request(protocol.ROLLBACK, ID, trial=TRIAL_ID, why="it feels $(wrong) %i")
    status, answer = work(host, request)
    assert (status, answer["code"], answer["state"], answer["changed"]) == (0, codes.GAVE_UP, "rolled-back", True), (
        answer
    )
    assert answer["message"] == "it feels $(wrong) %i"
    assert os.readlink(host.place.slots / "current") == "a"
    assert os.readlink(host.place.slots / "helper") == "a"
    event = next(one for one in host.place.noted() if one.event == "rolled-back")
    assert (event.who, event.code) == (f"helper:{ACCOUNT}", codes.GAVE_UP)


def test_a_swap_under_a_trials_id_answers_that_trial(host: Host) -> None:
    """While it lasts and when it has ended, and changes nothing: after a restart of the helper the records answer."""
    on_trial(host)
    request = protocol.Request(protocol.SWAP, TRIAL_ID, target="not-there-any-more")
    before = host.place.names()
    status, answer = work(host, request)
    assert (status, answer["state"], answer["changed"]) == (0, "trial", False)
    assert answer["trial"]["id"] == TRIAL_ID
    assert host.place.names() == before
    work(host, protocol.Request(protocol.ROLLBACK, ID, trial=TRIAL_ID))
    status, answer = work(host, request)
    assert (status, answer["state"], answer["code"]) == (6, "rolled-back", codes.GAVE_UP)
    assert (answer["id"], answer["changed"]) == (TRIAL_ID, False)


def test_confirming_is_as_the_gateway(host: Host) -> None:
    """Only where the configuration names it, and only the trial that is pending."""
    on_trial(host)
    found = work(host, protocol.Request(protocol.CONFIRM, ID, trial=OTHER))
    assert (found[0], found[1]["code"]) == (3, codes.WRONG_TRIAL)
    found = work(host, protocol.Request(protocol.CONFIRM, ID, trial=TRIAL_ID))
    assert (found[0], found[1]["code"]) == (6, codes.NOT_PROVEN)
    host.config.write_text(host.config.read_text().replace('"gateway"', '"controller"'))
    found = work(host, protocol.Request(protocol.CONFIRM, ID, trial=TRIAL_ID))
    assert (found[0], found[1]["code"]) == (3, codes.WRONG_SOURCE)


def test_only_root_runs_any_of_it(host: Host) -> None:
    """Neither the helper nor its commands."""
    from slotward import cli

    def as_account() -> List[int]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return [cli.main(["helper", "--json"]), cli.main(["helper", "--do", "--json"])]

    assert clients.forked(as_account, WHO.pw_uid, WHO.pw_gid) == [3, 3]


# --- starting ---


def refuses(host_: Host, status: int = 5) -> Dict[str, Any]:
    """How the helper says that it does not start."""
    done = subprocess.run(
        [*host_.argv, "--json"], env=host_.environment, capture_output=True, timeout=30, check=False, cwd="/"
    )
    assert done.returncode == status, done
    assert not host_.socket.exists()
    assert host_.calls("systemd-run") == []
    return dict(json.loads(done.stdout))


def test_everything_that_others_may_change_is_told_at_once(host: Host) -> None:
    """Each directory on each way, with what mends it; when all is mended it starts."""
    (host.top / "bin").mkdir()
    spoiled = [host.place.slots, host.socket.parent, host.top / "bin"]
    for path in spoiled[:2]:
        path.chmod(0o775)
    os.chown(host.top / "bin", WHO.pw_uid, 0)
    answer = refuses(host)
    assert (answer["code"], answer["state"]) == (codes.DIRECTORY_UNSAFE, "refused")
    for path in spoiled:
        assert str(path) in answer["message"]
    assert f"chmod go-w {host.place.slots}" in answer["message"]
    assert f"chown root {host.top / 'bin'}" in answer["message"]
    for path in spoiled[:2]:
        path.chmod(0o755)
    os.chown(host.top / "bin", 0, 0)
    Helper(host).end()


def test_a_configuration_that_others_may_change_is_told_with_its_directory(host: Host) -> None:
    """What it says of the other places counts for nothing then."""
    host.config.parent.chmod(0o775)
    host.config.chmod(0o660)
    answer = refuses(host)
    assert answer["code"] == codes.DIRECTORY_UNSAFE
    assert f"chmod go-w {host.config.parent};" in answer["message"]
    assert f"{host.config} (may be written by others" in answer["message"]


@pytest.mark.parametrize("name", ["slots", "run", "etc", "bin"])
@pytest.mark.parametrize("mode", [0o770, 0o757, 0o1777])
def test_a_directory_that_others_may_write_is_enough(host: Host, name: str, mode: int) -> None:
    """A sticky one too: who can make a name there first has it."""
    (host.top / "bin").mkdir()
    (host.top / name).chmod(mode)
    assert str(host.top / name) in refuses(host)["message"]


def test_the_way_of_a_linked_configuration_is_looked_at_too(host: Host) -> None:
    """Where the file lies in truth."""
    elsewhere = host.top / "elsewhere"
    elsewhere.mkdir()
    host.config.rename(elsewhere / "config.toml")
    host.config.symlink_to(elsewhere / "config.toml")
    elsewhere.chmod(0o777)
    assert str(elsewhere) in refuses(host)["message"]


def test_without_its_account_it_does_not_start(host: Host) -> None:
    """Nor again and again: nothing that waits would make one."""
    host.config.write_text(host.config.read_text().replace(ACCOUNT, "no-such-account"))
    answer = refuses(host)
    assert answer["code"] == codes.NO_ACCOUNT
    assert "no-such-account" in answer["message"]


def test_without_its_section_there_is_no_helper(host: Host) -> None:
    """The mode follows the configuration."""
    host.configure(section="start")
    answer = refuses(host)
    assert answer["code"] == codes.BAD_CONFIG
    assert "has no [helper]: in start mode" in answer["message"]


def test_an_old_socket_is_replaced_and_nothing_else_is(host: Host) -> None:
    """What a killed helper left is no hindrance; a plain file in its place is an error that names it."""
    Helper(host).end()
    assert host.socket.exists()
    second = Helper(host)
    assert second.asks(protocol.SETTLE).code == codes.OK
    second.end()
    host.socket.unlink()
    host.socket.touch()
    done = subprocess.run(host.argv, env=host.environment, capture_output=True, timeout=30, check=False, text=True)
    assert done.returncode == 4
    assert f"{host.socket}: there is a regular file, no socket: remove it" in done.stderr


def test_a_second_one_does_not_take_the_socket_of_the_first(running: Helper, host: Host) -> None:
    """Typed on a shell beside the running service, it says who serves and ends."""
    before = host.socket.stat()
    done = subprocess.run(host.argv, env=host.environment, capture_output=True, timeout=30, check=False, text=True)
    assert done.returncode == 4
    assert f"(in-progress): process {running.process.pid} serves {host.socket} already" in done.stderr
    assert host.socket.stat().st_ino == before.st_ino
    assert running.asks(protocol.SETTLE).code == codes.OK


def test_i8_a_configuration_with_problems_does_not_stop_it(host: Host) -> None:
    """It warns, serves on, refuses what is new, and settles."""
    host.configure("no_such_key = 1\n")
    on_trial(host, left_s=-1)
    process = subprocess.Popen(host.argv, env=host.environment, stderr=subprocess.PIPE, text=True, cwd="/")
    try:
        assert process.stderr is not None
        assert "no_such_key" in process.stderr.readline()
        until = time.monotonic() + 20
        while os.readlink(host.place.slots / "current") != "a":
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()


# --- the watchdog ---


def test_a_start_settles_what_should_have_ended(host: Host) -> None:
    """Whatever became of the daemon and the guard; then nothing is left to wake for."""
    on_trial(host, left_s=-1)
    running = Helper(host)
    try:
        running.waits(lambda: os.readlink(host.place.slots / "current") == "a")
        assert os.readlink(host.place.slots / "helper") == "a"
        assert not (host.place.slots / "trial").exists()
    finally:
        running.end()


def state_of(host_: Host) -> Tuple[settle.State, settle.Clock]:
    """What the watchdog looks at."""
    return hosts.read_state(own.load(str(host_.config)).product), hosts.clock()


def test_a_trial_is_settled_half_a_minute_after_its_deadline(host: Host) -> None:
    """On the clock of the deadline; at rest never, and what is past is tried again soon."""
    state, clock = state_of(host)
    assert watching.next_look(state, clock, 1000.0) is None
    on_trial(host, left_s=100)
    state, clock = state_of(host)
    due = watching.next_look(state, clock, 1000.0)
    assert due is not None
    assert 1128 <= due <= 1131
    on_trial(host, left_s=-1)
    state, clock = state_of(host)
    assert watching.next_look(state, clock, 1000.0) == 1010.0


def test_it_settles_again_and_again_until_the_trial_has_ended(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when nobody looks afterwards; and it is quiet from then on."""
    monkeypatch.setattr(watching, "AFTER_DEADLINE_S", 0.1)
    monkeypatch.setattr(watching, "AGAIN_S", 0.2)
    loop = looping.Loop()
    settled: List[float] = []
    asked: List[float] = []

    def settling() -> None:
        settled.append(looping.now())
        if len(settled) == 3:
            (host.place.slots / "trial").unlink()
            for name in ("back", "helper.back", "trial.log"):
                (host.place.slots / name).unlink()
            host.place.link("current", "a")
            host.place.link("helper", "a")
        if len(settled) != 2:
            dog.look()

    dog = watching.Watchdog(loop, str(host.config), settling, lambda: asked.append(looping.now()))
    on_trial(host, left_s=1)
    began = looping.now()
    dog.look()
    assert dog.due is not None
    assert began < dog.due < began + 3
    loop.at("end", began + 6, loop.stop)
    loop.run()
    assert len(settled) == 3
    assert len(asked) == 2, "the guard, from the second time on: with /run full nothing can be settled"
    assert settled[0] < asked[0] < settled[1]
    assert dog.due is None


def test_i2_the_guard_is_asked_by_a_unit_that_is_there(
    host: Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2: with /run full systemd makes no new unit, and starts those that it has."""
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >>{tmp_path}/said\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = helper.Helper(own.load(str(host.config)), caller.Account(WHO.pw_name, WHO.pw_uid, WHO.pw_gid))
    asked._ask_guard()
    asked._loop.at("end", looping.now() + 2, asked._loop.stop)
    asked._loop.run()
    assert (tmp_path / "said").read_text() == "--no-block start slotward-deadline@slotward.service\n"


def test_a_state_that_cannot_be_read_is_looked_at_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the disk's moment."""

    def unreadable(_product: object) -> settle.State:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(hosts, "read_state", unreadable)
    loop = looping.Loop()
    dog = watching.Watchdog(loop, str(host.config), lambda: None, lambda: None)
    dog.look()
    assert dog.due is not None
    assert 9 < dog.due - looping.now() <= 10


# --- what it costs ---


def test_it_imports_nothing_that_it_does_not_need() -> None:
    """No cryptography, no library for downloads, nothing that reads flags or runs programs by itself."""
    script = "import sys; from slotward import helper; print(*sorted(sys.modules))"
    top = [str(clients.ROOT / name) for name in ("plugins/module_utils", "agent/src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(top)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    there = set(done.stdout.split())
    assert "slotward.helper" in there
    for name in ("cryptography", "requests", "argparse", "subprocess", "asyncio", "slotcore.keys", "slotward.manager"):
        assert name not in there


def test_at_rest_it_does_nothing(running: Helper) -> None:
    """After a request, and with the account's connections gone: not one wake-up."""
    assert running.asks(protocol.SETTLE).code == codes.OK
    assert running.comes_to_rest()
    time.sleep(0.5)
    before = running.switches()
    time.sleep(5)
    assert running.switches() == before


def test_it_needs_little_memory(running: Helper) -> None:
    """Well below what is promised, after it has served."""
    running.asks(protocol.SETTLE)
    text = pathlib.Path(f"/proc/{running.process.pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    assert pss < 24 * 1024


def test_what_it_was_told_of_strangers_is_bounded(host: Host) -> None:
    """Whoever is not served cannot fill the journal."""
    found = helper.Helper(own.load(str(host.config)), caller.account_of(ACCOUNT))
    read, write = os.pipe()
    saved = os.dup(2)
    os.dup2(write, 2)
    try:
        for number in range(500):
            found._note(f"stranger {number}")
    finally:
        os.dup2(saved, 2)
        os.close(write)
        os.close(saved)
    with open(read, encoding="utf-8") as file:
        assert len(file.readlines()) <= helper.NOTES + 1
