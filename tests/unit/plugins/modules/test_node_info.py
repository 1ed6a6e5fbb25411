# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says of itself, whatever its state."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import pathlib
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, NamedTuple

import pytest

DIGEST = "ab" * 32


def seen(say: Any, **more: Any) -> Dict[str, Any]:
    """An `update` answer of a healthy host."""
    slots = {
        "in_use": True,
        "current": "b",
        "good": "b",
        "other": "a",
        "a": None,
        "b": {"version": "1.1.0", "sha256": DIGEST},
    }
    unit = {"name": "slotward.service", "active": "active", "sub": "running", "main_pid": os.getpid(), "restarts": 0}
    known = {
        "version": "1.1.0",
        "sequence": 2,
        "floor": 2,
        "pins": 3,
        "threshold": 2,
        "slots": slots,
        "trial": None,
        "failed": [],
        "last": None,
        "lock": None,
        "broken": None,
        "audit": {"n": 3, "hash": "ab" * 32},
        "unit": unit,
        "config_problems": [],
    }
    found: Dict[str, Any] = say.answer("confirmed", **{**known, **more})
    return found


@pytest.fixture
def status(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A configuration whose status socket answers with DIGEST, from this very process."""
    path = tmp_path / "s.sock"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(8)

    def serve() -> None:
        while True:
            try:
                peer, _name = server.accept()
            except OSError:
                return
            with peer:
                peer.sendall(json.dumps({"running": {"sha256": DIGEST}}).encode() + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    config = tmp_path / "config.toml"
    config.write_text('socket_path = "%s"\n' % path)
    os.utime(config, (1, 1))
    yield config
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_a_healthy_host(agent: Any, run_module: Any, say: Any, status: pathlib.Path) -> None:
    """Everything the agent says is there, and the running bytes are those of the slot."""
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert node["health"] == {"ok": True, "running_sha256": DIGEST, "slot_sha256": DIGEST, "stale": False, "why": None}
    assert (node["installed"], node["version"], node["floor"], node["pending"]) == (True, "1.1.0", 2, False)
    assert (node["mode"], node["user"], node["helper"]) == ("root", "root", None)
    assert node["changed"] is False
    assert node["host"]["missing"] is None
    assert node["audit"] == {"n": 3, "hash": "ab" * 32}


def test_L6_the_host_s_policy_is_there_and_a_hold_is_no_error(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """As the agent says it; an agent that says none has none."""
    policy = {"enabled": False, "allowed_channels": ["stable"], "rollback_grace": 1}
    agent.says(update=[[0, dict(seen(say), policy=policy)], [0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert (node["policy"], node["code"], node["reason"], node["health"]["ok"]) == (policy, "ok", None, True)
    assert run_module("node_info", executable=agent.path, config=str(status))["policy"] is None


def test_an_audit_log_that_nothing_can_be_written_to_has_a_code(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """The agent tells no head of it, and refuses updates; a broken record or configuration is told before it."""
    torn = dict(seen(say), audit=None)
    agent.says(update=[[0, torn], [0, dict(torn, code="crash-loop")], [0, dict(torn, code="bad-config")]])
    for _each in range(2):
        node = run_module("node_info", executable=agent.path, config=str(status))
        assert (node["code"], node["health"]["ok"], node["installed"]) == ("audit-broken", True, True)
        assert "audit --verify` on the host, then `%s" % agent.path in node["reason"]
    assert run_module("node_info", executable=agent.path, config=str(status))["code"] == "bad-config"


def test_a_slot_that_was_filled_anew_makes_its_process_stale(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """A restart mends it; where no slot is in use the file that lies there is nobody's to restart into."""
    other = seen(say)
    other["slots"]["a"] = other["slots"]["b"] = {"sha256": "0" * 64}
    unused = json.loads(json.dumps(other))
    unused["slots"]["in_use"] = False
    agent.says(update=[[0, other], [0, unused]])
    found = [run_module("node_info", executable=agent.path, config=str(status))["health"] for _each in range(2)]
    assert [(one["ok"], one["stale"]) for one in found] == [(False, True), (False, False)]


def test_nothing_installed(tmp_path: pathlib.Path, run_module: Any) -> None:
    """No agent is an answer, not an error, with the same keys."""
    node = run_module("node_info", executable=str(tmp_path / "none"))
    assert (node["installed"], node["state"], node["code"], node["version"]) == (False, "absent", "not-installed", None)
    assert (node["failed_versions"], node["config_problems"], node["pending"]) == ([], [], False)
    assert node["health"]["ok"] is False
    assert (node["mode"], node["user"], node["helper"]) == (None, None, None)


def test_a_program_that_never_answers_is_ended(
    agent: Any, run_module: Any, monkeypatch: pytest.MonkeyPatch, status: pathlib.Path
) -> None:
    """What is at the entrypoint may be a release on trial that hangs: the task ends and says so."""
    glue = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue")
    monkeypatch.setattr(glue, "ANSWER_BOUND_S", 1)
    pathlib.Path(agent.path).write_text("#!/bin/sh\nexec sleep 300\n")
    began = time.monotonic()
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert time.monotonic() - began < 30
    assert (node["code"], node["installed"], node["health"]["ok"]) == ("bad-answer", False, False)
    assert "gave no answer within 1 s" in node["reason"]


def test_the_failed_versions_do_not_make_the_task_fail(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """A result's key `failed` belongs to Ansible; the list has another name."""
    failed = [{"version": "1.2.0", "code": "crash-loop", "why": "kept exiting"}]
    agent.says(update=[[0, seen(say, failed=failed)]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert "failed" not in node
    assert node["failed_versions"] == failed


def test_C6_a_trial_is_pending(agent: Any, run_module: Any, say: Any, status: pathlib.Path) -> None:
    """Roles read one word to know that they must keep their hands off."""
    agent.says(update=[[0, seen(say, trial=say.trial(id="1" * 16))]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert node["pending"] is True
    assert node["trial"]["left_s"] == 30


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"unit": {"name": "slotward.service", "active": "failed", "main_pid": 0}}, "slotward.service is failed"),
        (
            {"unit": {"name": "slotward.service", "active": "active", "main_pid": 1}},
            "the main process of slotward.service is 1",
        ),
    ],
)
def test_what_is_not_well_is_said(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path, more: Any, why: str
) -> None:
    """H11: the reason, not only the verdict."""
    agent.says(update=[[0, seen(say, **more)]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert node["health"]["ok"] is False
    assert why in node["health"]["why"]


def test_S10_other_bytes_than_the_slots_are_not_well(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """The digest of what runs is compared, never the version that it claims."""
    answer = seen(say)
    answer["slots"]["b"]["sha256"] = "cd" * 32
    agent.says(update=[[0, answer]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert node["health"]["ok"] is False
    assert "cd" * 32 in node["health"]["why"]


def test_without_slots_the_file_at_the_entrypoint_should_run(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """A hand-made install is measured by its own file."""
    answer = seen(say)
    answer["slots"] = {"in_use": False, "current": None, "good": None, "other": None, "a": None, "b": None}
    agent.says(update=[[0, answer]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert node["health"]["slot_sha256"] == hashlib.sha256(pathlib.Path(agent.path).read_bytes()).hexdigest()


def test_nobody_on_the_socket(agent: Any, run_module: Any, say: Any, tmp_path: pathlib.Path) -> None:
    """A daemon that does not answer is not well."""
    config = tmp_path / "config.toml"
    config.write_text('socket_path = "%s/none.sock"\n' % tmp_path)
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(config))
    assert "no answer on the status socket" in node["health"]["why"]


def test_a_process_older_than_its_configuration_is_stale(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """So a restart that an interrupted run still owed is not lost."""
    os.utime(status)
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert (node["health"]["stale"], node["health"]["ok"]) == (True, True)


def test_another_daemon_does_not_read_the_agent_s_configuration(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """Nobody restarts redis because the agent was configured."""
    os.utime(status)
    agent.says(update=[[0, seen(say, product="redis")]])
    node = run_module("node_info", executable=agent.path, config=str(status), product="redis")
    assert (node["health"]["stale"], node["health"]["ok"]) == (False, True)


def test_a_configuration_from_the_future_says_nothing(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path
) -> None:
    """A clock that was set back does not cause a restart at every run."""
    os.utime(status, (4e9, 4e9))
    agent.says(update=[[0, seen(say)]])
    assert run_module("node_info", executable=agent.path, config=str(status))["health"]["stale"] is False


def test_a_broken_record_is_told_and_nothing_fails(agent: Any, run_module: Any, say: Any, status: pathlib.Path) -> None:
    """I3, I8: the file and what is wrong with it."""
    broken = {"file": "/opt/slotward/slotward/update.json", "why": "it is torn"}
    agent.says(update=[[0, seen(say, broken=broken, code="record-broken")]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert "failed" not in node
    assert node["reason"] == "/opt/slotward/slotward/update.json: it is torn"


def test_what_the_agent_needs_is_looked_for_in_the_hosts_own_python(run_module: Any, tmp_path: pathlib.Path) -> None:
    """Only on demand, and by names that an operator can install."""
    node = run_module("node_info", executable=str(tmp_path / "none"), requirements=True)
    assert set(node["host"]["missing"]) <= {"python3", "cryptography", "requests"}
    assert node["host"]["platform"].startswith("linux-")


def test_waiting_ends_when_the_time_is_over(agent: Any, run_module: Any, say: Any, tmp_path: pathlib.Path) -> None:
    """The host looks again by itself, and not for ever."""
    agent.says(update=[[0, seen(say, unit={"name": "u", "active": "inactive"})]])
    run_module("node_info", executable=agent.path, config=str(tmp_path / "none"), wait_s=1)
    assert 2 <= len(agent.calls()) <= 7


def test_N16_whom_the_host_trusts_and_what_runs_out(
    run_module: Any, agent: Any, say: Any, status: pathlib.Path
) -> None:
    """As the agent says it; an agent that says nothing of it has null and no notices."""
    trust = {"source": "key-set", "sequence": 3, "withdrawn": False}
    notice = {"level": "critical", "what": "key set", "text": "key set 3 expires in 3 days", "days": 3}
    options = {"executable": agent.path, "config": str(status)}
    agent.says(update=[[0, seen(say, trust=trust, warnings=[notice])], [0, seen(say)]])
    result = run_module("node_info", **options)
    assert (result["trust"], result["notices"]) == (trust, [notice])
    result = run_module("node_info", **options)
    assert (result["trust"], result["notices"]) == (None, [])


# -- helper mode -------------------------------------------------------------------------------------------------


class Helper(NamedTuple):
    """A host in helper mode: what systemd says of the helper's unit, and whether somebody speaks on its socket."""

    config: pathlib.Path
    directory: pathlib.Path
    drop_ins: pathlib.Path

    def unit(self, **more: Any) -> None:
        """What `systemctl show` answers."""
        known = {"ActiveState": "active", "SubState": "running", "MainPID": os.getpid(), "NRestarts": 0}
        known.update(more)
        (self.directory / "show").write_text("".join("%s=%s\n" % one for one in known.items()))


@pytest.fixture
def helper(tmp_path: pathlib.Path, status: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Helper]:
    """One that is well: this very process answers on both sockets with DIGEST."""
    path, slots, units = tmp_path / "h.sock", tmp_path / "slots", tmp_path / "units"
    slots.mkdir()
    (slots / "helper").symlink_to("b")
    (units / "slotward-helper.service.d").mkdir(parents=True)
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexec cat %s/show\n" % tmp_path)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tool.parent, os.environ["PATH"]))
    running = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.running")
    monkeypatch.setattr(running, "UNIT_DIR", str(units))
    status.write_text('%s[update]\nslots_dir = "%s"\n[helper]\nsocket = "%s"\n' % (status.read_text(), slots, path))
    for old in (status, units / "slotward-helper.service.d"):
        os.utime(old, (1, 1))
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(path))
    server.listen(8)

    def serve() -> None:
        while True:
            try:
                peer, _name = server.accept()
            except OSError:
                return
            with peer:
                peer.send(json.dumps({"product": "slotward", "protocol": [1], "sha256": DIGEST}).encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    found = Helper(status, tmp_path, units / "slotward-helper.service.d")
    found.unit()
    yield found
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_a_host_with_a_helper_that_is_well(agent: Any, run_module: Any, say: Any, helper: Helper) -> None:
    """Who does root's part, as whom the daemon runs, and what the helper runs."""
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(helper.config))
    assert (node["mode"], node["user"], node["health"]["ok"]) == ("helper", "slotward", True)
    assert node["helper"] == {
        "unit": "slotward-helper.service",
        "active": "active",
        "sub": "running",
        "main_pid": os.getpid(),
        "restarts": 0,
        "slot": "b",
        "running_sha256": DIGEST,
        "ok": True,
        "stale": False,
        "why": None,
    }


def test_start_mode_has_no_helper(agent: Any, run_module: Any, say: Any, status: pathlib.Path) -> None:
    """Nothing of root's stays resident there."""
    status.write_text(status.read_text() + '[start]\nuser = "acct"\n')
    os.utime(status, (1, 1))
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(status))
    assert (node["mode"], node["user"], node["helper"], node["health"]["ok"]) == ("start", "acct", None, True)


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ({"ActiveState": "inactive", "MainPID": 0}, ["slotward-helper.service is inactive"]),
        (
            {"ActiveState": "failed", "MainPID": 0, "Result": "exit-code", "ExecMainStatus": 5},
            ["slotward-helper.service is failed", "others than root may write", "slotward doctor"],
        ),
        (
            {"ActiveState": "activating", "MainPID": 0, "Result": "watchdog", "ExecMainStatus": 6},
            ["slotward-helper.service is activating (watchdog)"],
        ),
        ({"MainPID": 1}, ["the main process of slotward-helper.service is 1"]),
    ],
)
def test_H11_a_helper_that_does_not_run_makes_the_host_unwell(
    agent: Any, run_module: Any, say: Any, helper: Helper, unit: Dict[str, Any], words: List[str]
) -> None:
    """With the reason, though the daemon itself is well."""
    helper.unit(**unit)
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(helper.config))
    assert (node["health"]["ok"], node["helper"]["ok"]) == (False, False)
    assert node["health"]["why"] == node["helper"]["why"]
    assert all(word in node["health"]["why"] for word in words), node["health"]["why"]


def test_S10_a_helper_that_runs_other_bytes_is_not_well_and_stale(
    agent: Any, run_module: Any, say: Any, helper: Helper
) -> None:
    """The defect of the seeds: a helper that stays old. A restart mends it."""
    answer = seen(say)
    answer["slots"]["b"]["sha256"] = "cd" * 32
    agent.says(update=[[0, answer]])
    node = run_module("node_info", executable=agent.path, config=str(helper.config))
    assert (node["helper"]["ok"], node["helper"]["stale"]) == (False, True)
    assert DIGEST in node["helper"]["why"]
    assert "cd" * 32 in node["helper"]["why"]


def test_nobody_on_the_helper_s_socket(agent: Any, run_module: Any, say: Any, helper: Helper) -> None:
    """The unit is active, and yet nobody could ask it."""
    helper.config.write_text(helper.config.read_text().replace("h.sock", "none.sock"))
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(helper.config))
    assert "no answer on the helper's socket" in node["health"]["why"]


@pytest.mark.parametrize("what", ["drop-in", "directory", "configuration"])
def test_D8_a_helper_older_than_what_says_how_it_runs_is_stale(
    agent: Any, run_module: Any, say: Any, helper: Helper, what: str
) -> None:
    """Also after a drop-in was removed: then only its directory is younger."""
    if what == "drop-in":
        (helper.drop_ins / "local.conf").write_text("")
        os.utime(helper.drop_ins, (1, 1))
    os.utime({"directory": helper.drop_ins, "configuration": helper.config}.get(what, helper.drop_ins / "local.conf"))
    agent.says(update=[[0, seen(say)]])
    node = run_module("node_info", executable=agent.path, config=str(helper.config))
    assert (node["helper"]["stale"], node["helper"]["ok"], node["health"]["ok"]) == (True, True, True)


def test_a_daemon_older_than_a_drop_in_of_its_unit_is_stale(
    agent: Any, run_module: Any, say: Any, status: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move to another mode changes drop-ins and leaves the unit as it is."""
    running = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.running")
    monkeypatch.setattr(running, "UNIT_DIR", str(tmp_path / "units"))
    folder = tmp_path / "units" / "slotward.service.d"
    folder.mkdir(parents=True)
    os.utime(folder, (1, 1))
    agent.says(update=[[0, seen(say)]])
    assert run_module("node_info", executable=agent.path, config=str(status))["health"]["stale"] is False
    (folder / "unprivileged.conf").write_text("")
    assert run_module("node_info", executable=agent.path, config=str(status))["health"]["stale"] is True


@pytest.mark.parametrize(
    "said",
    [
        b"[" * 100000,
        b'{"running": {"sha256": {"a": 1}}}',
        b'{"running": {"sha256": "' + b"AB" * 32 + b'"}}',
        b'{"running": ["sha256"]}',
        b"\xff",
        b"",
    ],
)
def test_I6_a_daemon_that_says_anything_is_not_well_and_fails_nothing(
    agent: Any, run_module: Any, say: Any, tmp_path: pathlib.Path, said: bytes
) -> None:
    """It may be an account's, and taken over."""
    path = tmp_path / "said.sock"
    config = tmp_path / "config.toml"
    config.write_text('socket_path = "%s"\n' % path)
    agent.says(update=[[0, seen(say)]])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)

        def serve() -> None:
            with server.accept()[0] as peer:
                peer.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        node = run_module("node_info", executable=agent.path, config=str(config))
        thread.join()
    assert (node["health"]["ok"], node["health"]["running_sha256"]) == (False, None)


def test_I6_a_daemon_that_never_stops_talking_is_left(tmp_path: pathlib.Path) -> None:
    """A byte now and then is no answer: the time is for all of it."""
    running = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.running")
    path = str(tmp_path / "slow.sock")
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)

        def drip() -> None:
            with server.accept()[0] as peer, contextlib.suppress(OSError):
                while not over.wait(0.05):
                    peer.send(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        assert running.ask(path, 0.5) == (None, 0)
        assert time.monotonic() - began < 10
        over.set()
        thread.join()
