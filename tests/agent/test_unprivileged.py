# SPDX-License-Identifier: GPL-3.0-or-later
"""Who takes the way of a mode, where each stages, and who is refused as ever (privilege.md, sections 2 and 5)."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from typing import Any, Iterator, Tuple

import pytest
from agent.accounts import ACCOUNT, STRANGER

from agent import accounts
from slotcore import codes
from slotward import own, prepare, unprivileged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes other accounts' places")


@pytest.fixture(name="agent", scope="module")
def _agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[accounts.Accounts]:
    """The agent for any account."""
    with accounts.place() as top:
        yield accounts.Accounts(top, accounts.built(tmp_path_factory.mktemp("built")))


@pytest.fixture(name="config")
def _config() -> Iterator[pathlib.Path]:
    """A configuration in helper mode, on a way that every account may walk and read."""
    with accounts.place() as top:
        path = top / "config.toml"
        path.write_text(
            f'data_dir = "{top}/data"\n[update]\nslots_dir = "{top}/slots"\n'
            f'[helper]\nsocket = "{top}/helper.sock"\nuser = "{ACCOUNT}"\n'
        )
        path.chmod(0o644)
        yield path


def ran(agent: accounts.Accounts, config: pathlib.Path, user: str, *words: str) -> Tuple[int, Any]:
    """A command as another account: its exit status and answer."""
    done = agent.run(user, *words, "--config", config, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


COMMANDS = (
    ("upgrade", "--target", "/dev/null"),
    ("prepare", "--target", "/dev/null"),
    ("confirm", "--id", "00112233445566aa"),
    ("rollback",),
    ("settle",),
)


@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
def test_another_account_is_refused_as_ever(
    agent: accounts.Accounts, config: pathlib.Path, words: Tuple[str, ...]
) -> None:
    """Only the account that the configuration names takes the mode's way."""
    status, answer = ran(agent, config, STRANGER, *words)
    assert (status, answer["code"]) == (3, "not-root"), answer


def test_in_root_mode_no_account_has_a_way(agent: accounts.Accounts, config: pathlib.Path) -> None:
    """Without the section the account is nobody."""
    config.write_text(config.read_text().partition("[helper]")[0])
    status, answer = ran(agent, config, ACCOUNT, "settle")
    assert (status, answer["code"]) == (3, "not-root"), answer


@pytest.mark.parametrize("flag", ["--adopt", "--start", "--no-smoke"])
def test_consent_is_an_operators(agent: accounts.Accounts, config: pathlib.Path, flag: str) -> None:
    """The account can agree to nothing in root's place."""
    status, answer = ran(agent, config, ACCOUNT, "upgrade", "--target", "/dev/null", flag)
    assert (status, answer["code"]) == (3, "not-root"), answer
    assert flag in answer["message"]


@pytest.mark.parametrize(("mode", "shared"), [("helper", True), ("start", True), ("root", False)])
def test_root_stages_in_no_directory_of_another_account(config: pathlib.Path, mode: str, shared: bool) -> None:
    """Section 2: beside a daemon that is not root's, commands of root's have a place of their own."""
    text = config.read_text().partition("[helper]")[0]
    config.write_text(text if mode == "root" else f'{text}[{mode}]\nuser = "{ACCOUNT}"\n')
    setup = own.load(str(config))
    top = config.parent
    assert prepare.staged_path(setup, "1.1.0") == str(
        (top / "slots" if shared else top / "data") / "staging" / "slotward-1.1.0"
    )
    assert setup.inbox == str(top / "data" / "staging")


def test_an_account_that_is_not_there_is_nobody(config: pathlib.Path) -> None:
    """A name that this host does not know gives no way to anybody."""
    config.write_text(config.read_text().replace(ACCOUNT, "nobody-of-this-name"))
    setup = own.load(str(config))
    assert unprivileged.account_id(setup) is None
    with pytest.raises(codes.Refused) as caught:
        unprivileged.run(argparse.Namespace(config=str(config), command="settle"), "run it as root")
    assert (caught.value.code, caught.value.text) == ("not-root", "run it as root")
