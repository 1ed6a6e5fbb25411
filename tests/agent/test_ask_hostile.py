# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward ask` as root, against whoever holds the daemon's account and answers in its place (threat-model.md, section 2)."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest
from agent.daemons import BYTES, Host
from agent.helping import helper

from agent import accounts
from slotcore import protocol, reply
from slotward import cli, cmd_ask

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="asks as root")

ID = "00112233445566aa"
TRICKS = "1.1.0\x1b]0;mine\x07\x1b[2J\nconfirmed"
SOON_S = 40.0


@pytest.fixture(name="agent", scope="module")
def _agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[accounts.Accounts]:
    """The agent for any account."""
    with accounts.place() as top:
        yield accounts.Accounts(top, accounts.built(tmp_path_factory.mktemp("built")))


@pytest.fixture(name="host")
def _host(agent: accounts.Accounts) -> Iterator[Host]:
    """A host whose daemon is not there: the tests answer in its place."""
    with accounts.place() as top:
        yield Host(top, agent)


def asks(host: Host, what: str) -> Tuple[int, Dict[str, Any], str]:
    """One of the three, about the trial that is meant."""
    words = {"upgrade": ("--target", host.target()), "confirm": ("--wait", "1"), "rollback": ("--why", "x")}
    began = time.monotonic()
    found = host.ask(what, "--id", ID, *words[what])
    assert time.monotonic() - began < SOON_S, "it ends"
    assert "Traceback" not in found[2]
    assert "\x1b" not in found[2]
    return found


def lying(**answer: Any) -> Any:
    """Answers this to everything, as done."""

    def script(request: protocol.Request) -> reply.Reply:
        return reply.Reply(request.id, False, False, str(answer.get("code", "ok")), "it is so", answer)

    return script


DONE: Tuple[Dict[str, Any], ...] = (
    {"state": "confirmed", "changed": True},
    {"state": TRICKS, "changed": True},
    {"state": ["trial"], "changed": True, "trial": {"left_s": ["x"]}},
    {"state": "trial", "code": "not-confirmed", "changed": True, "trial": {"left_s": 2**53 - 1}, "to": {"a": TRICKS}},
)


@pytest.mark.parametrize("what", ["upgrade", "confirm", "rollback"])
@pytest.mark.parametrize("answer", DONE, ids=str)
def test_i5_nothing_is_done_at_the_daemons_word(host: Host, what: str, answer: Dict[str, Any]) -> None:
    """Confirmed, taken back, begun or running is what the records say, whatever is answered."""
    with helper(host.socket, lying(**answer)):
        status, found, _told = asks(host, what)
    assert status in (3, 4, 6), found
    assert found["product"] == "slotward"
    assert found["spec"] == 1


@pytest.mark.parametrize("answer", DONE[:1], ids=str)
def test_i5_a_trial_that_is_pending_is_not_over_by_the_daemons_word(host: Host, answer: Dict[str, Any]) -> None:
    """The records have it on trial: it is neither confirmed nor taken back."""
    host.on_trial(ID)
    with helper(host.socket, lying(**answer)):
        for what in ("confirm", "rollback"):
            status, found, _told = asks(host, what)
            assert status in (4, 6), found
            assert found["code"] in ("bad-answer", "not-confirmed"), found


def test_what_the_records_say_is_told_for_what_the_daemon_makes_of_it(host: Host) -> None:
    """Its trial is there, and what else it answers about it is the records'."""
    host.on_trial(ID)
    lie = {"state": "trial", "code": "not-confirmed", "changed": True, "to": "9.9.9", "product": "other"}
    with helper(host.socket, lying(**lie)):
        status, found, _told = host.ask("upgrade", "--target", host.target(), "--id", ID, "--no-wait")
    assert (status, found["state"], found["to"], found["product"]) == (0, "trial", "1.1.0", "slotward")
    assert found["trial"]["id"] == ID


def test_what_runs_is_nothing_to_do(host: Host) -> None:
    """The daemon's word, where the records say the same."""
    with helper(host.socket, lying(state="current")):
        status, found, _told = host.ask("upgrade", "--target", host.target("1.0.0", content=BYTES))
    assert (status, found["state"]) == (0, "current")


@pytest.mark.parametrize("what", ["upgrade", "confirm", "rollback"])
def test_a_daemon_that_always_hangs_up_is_given_up(host: Host, what: str) -> None:
    """Each lost connection may have been the switch, but not for ever."""

    def hangs_up(_request: protocol.Request) -> Optional[reply.Reply]:
        return None

    with helper(host.socket, hangs_up):
        status, found, _told = asks(host, what)
    assert (status, found["code"]) == (4, "daemon-unreachable")


@pytest.mark.parametrize("what", ["confirm", "rollback"])
def test_a_daemon_that_never_answers_is_given_up(host: Host, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word about a trial has its time, as the helper's answer has; only a download may take as long as it takes."""

    def silent(_request: protocol.Request) -> Optional[reply.Reply]:
        time.sleep(3)
        return None

    monkeypatch.setattr(cmd_ask, "ANSWER_S", 0.3)
    monkeypatch.setattr(cmd_ask, "STARTS_S", 0.3)
    began = time.monotonic()
    with helper(host.socket, silent):
        status = cli.main(["ask", what, "--id", ID, "--config", str(host.config), "--json"])
    assert (status, time.monotonic() - began < 3) == (4, True)


def test_what_is_said_meanwhile_is_plain(host: Host, tmp_path: pathlib.Path) -> None:
    """A target's version is its maker's."""
    del tmp_path
    with helper(host.socket, lying(state="current")):
        target = host.target("1.1.0")
        target.write_text(target.read_text().replace("1.1.0", "1\\u001b[2J"))
        _status, _found, told = host.ask("upgrade", "--target", target, "--id", ID)
    assert "\x1b" not in told
