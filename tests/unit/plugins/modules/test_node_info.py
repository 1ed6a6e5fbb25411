# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says of itself, whatever its state."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pathlib
import socket
import threading
import time
from typing import Any, Dict, Iterator

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


def test_nothing_installed(tmp_path: pathlib.Path, run_module: Any) -> None:
    """No agent is an answer, not an error, with the same keys."""
    node = run_module("node_info", executable=str(tmp_path / "none"))
    assert (node["installed"], node["state"], node["code"], node["version"]) == (False, "absent", "not-installed", None)
    assert (node["failed_versions"], node["config_problems"], node["pending"]) == ([], [], False)
    assert node["health"]["ok"] is False


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
