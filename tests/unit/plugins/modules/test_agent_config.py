# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing the agent's configuration."""

from __future__ import annotations

import importlib
import os
import pathlib
import pwd
import stat
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest

PIN = "sha256/" + "A" * 43 + "="
OTHER = "sha256/" + "B" * 42 + "A="
FOREIGN = '\n[foreign]\n# mine  \nuser = "x"   # kept\n'


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where the configuration goes, in a directory that is not there yet."""
    return tmp_path / "etc" / "config.toml"


def mode_of(path: pathlib.Path) -> int:
    """A file's permissions."""
    return stat.S_IMODE(path.stat().st_mode)


def test_every_key_of_the_agent_is_an_option_and_no_other() -> None:
    """The module and the agent have one list of keys."""
    module = importlib.import_module("ansible_collections.slotward.fleet.plugins.modules.agent_config")
    config = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.config")
    assert {key.name for key in config.KEYS if key.section == ""} == set(module.TOP_OPTIONS)
    assert {key.name for key in config.KEYS if key.section == "update"} == set(module.UPDATE_OPTIONS)
    assert {key.name for key in config.KEYS if key.section == "helper"} == set(module.HELPER_OPTIONS)
    assert {key.name for key in config.KEYS if key.section == "start"} == set(module.START_OPTIONS)
    assert {"", "update", "helper", "start"} == {key.section for key in config.KEYS}


def test_a_new_file_is_written_once(run_module: Any, path: pathlib.Path) -> None:
    """Root's alone, with what was asked for and nothing else; the second run changes nothing."""
    update = {"release_pins": [PIN, OTHER], "release_threshold": 2, "smoke_test": False, "proxy": "", "ca_file": ""}
    for umask in (0o022, 0o077, 0o000):
        before = os.umask(umask)
        result = run_module("agent_config", path=str(path), top={"log_level": "debug"}, update=update)
        os.umask(before)
        assert result["changed"] is True
        assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o755)
        text = path.read_text()
        assert 'release_pins = "%s,%s"\n' % (PIN, OTHER) in text
        assert "smoke_test = false\n" in text
        assert "proxy" not in text
        assert run_module("agent_config", path=str(path), top={"log_level": "debug"}, update=update)["changed"] is False
        assert os.listdir(path.parent) == ["config.toml"]
        path.unlink()
        path.parent.rmdir()


def test_foreign_sections_stay_byte_for_byte(run_module: Any, path: pathlib.Path) -> None:
    """Only the keys before the first section and [update] are ours."""
    path.parent.mkdir()
    path.write_text("[update]\nrelease_threshold = 1\n" + FOREIGN)
    result = run_module("agent_config", path=str(path), update={"release_pins": [PIN], "release_threshold": 1})
    assert result["code"] == "bad-config", "the agent knows no [foreign], so the file as a whole has a problem"
    assert path.read_text().endswith(FOREIGN)


def test_the_difference_is_shown_and_check_mode_writes_nothing(run_module: Any, path: pathlib.Path) -> None:
    """On a host with nothing, and on one with a file of another mode."""
    result = run_module("agent_config", check=True, path=str(path), update={"max_boots": 1})
    assert result["changed"] is True
    assert "max_boots = 1\n" in result["diff"][0]["after"]
    assert not path.parent.exists()
    run_module("agent_config", path=str(path), update={"max_boots": 1})
    path.chmod(0o644)
    result = run_module("agent_config", check=True, path=str(path), update={"max_boots": 1})
    assert result["changed"] is True
    was, will = result["diff"][1]["before"], result["diff"][1]["after"]
    assert was.startswith("file ")
    assert was.replace(" 0644\n", " 0600\n") == will
    assert mode_of(path) == 0o644
    run_module("agent_config", path=str(path), update={"max_boots": 1})
    assert mode_of(path) == 0o600


@pytest.mark.parametrize(
    ("update", "word"),
    [
        ({"release_pins": ["sha256/none"]}, "release_pins"),
        ({"release_pins": [PIN], "release_threshold": 2}, "release_threshold"),
        ({"trial_length_s": 4}, "trial_length_s"),
        ({"settle_s": 60, "trial_length_s": 30}, "settle_s"),
        ({"confirm_sources": ["somebody"]}, "confirm_sources"),
        ({"slots_dir": "relative"}, "slots_dir"),
    ],
)
def test_a_problem_keeps_the_file_as_it_is(run_module: Any, path: pathlib.Path, update: Any, word: str) -> None:
    """The key is named; the running agent's file is not touched."""
    run_module("agent_config", path=str(path), update={"max_boots": 1})
    before = path.read_bytes()
    result = run_module("agent_config", path=str(path), update=update)
    assert (result["failed"], result["code"], result["changed"]) == (True, "bad-config", False)
    assert any(word in problem for problem in result["problems"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["[update\n", "a = 1.5\n", "x = 1\nx = 2\n", "\x00"])
def test_an_old_file_that_cannot_be_read_is_not_replaced(run_module: Any, path: pathlib.Path, text: str) -> None:
    """Somebody must look at it; nothing of it is lost."""
    path.parent.mkdir()
    path.write_text(text)
    result = run_module("agent_config", path=str(path), update={"max_boots": 1})
    assert (result["failed"], result["code"]) == (True, "bad-config")
    assert str(path) in result["msg"]
    assert path.read_text() == text


def test_a_link_is_not_followed(run_module: Any, path: pathlib.Path) -> None:
    """I6: root writes the file that it means."""
    path.parent.mkdir()
    path.symlink_to(path.parent / "elsewhere")
    result = run_module("agent_config", path=str(path), update={"max_boots": 1})
    assert (result["failed"], result["code"]) == (True, "bad-config")
    assert not (path.parent / "elsewhere").exists()


def test_a_password_in_the_proxy_is_not_shown(run_module: Any, path: pathlib.Path) -> None:
    """Neither in the difference nor in the arguments."""
    result = run_module("agent_config", path=str(path), update={"proxy": "http://user:secret@proxy:3128"})
    assert "secret" not in str(result)
    assert "secret" in path.read_text()


def test_a_password_that_goes_is_not_shown_either(run_module: Any, path: pathlib.Path) -> None:
    """It stands in the old file only, and the difference shows that file; what is planned has no password at all."""
    run_module("agent_config", path=str(path), update={"proxy": "http://user:secret@proxy:3128"})
    result = run_module(
        "agent_config", path=str(path), update={"proxy": "http://user:newer@proxy:3128", "max_boots": 1}
    )
    assert "secret" not in str(result)
    assert "newer" not in str(result)
    assert "max_boots = 1\n" in result["planned"]
    assert "proxy =" not in result["planned"]


# -- who does root's part: [helper] and [start] ------------------------------------------------------------------

HELPER = {"socket": "/run/slotward-helper/helper.sock", "user": "nobody-of-ours"}


def sections(path: pathlib.Path) -> List[str]:
    """The sections of a file, in order."""
    return [line for line in path.read_text().splitlines() if line.startswith("[")]


def test_the_mode_decides_which_section_is_there(run_module: Any, path: pathlib.Path) -> None:
    """Each step is made once; a run that says nothing of the mode keeps the host's (seed 001)."""
    update = {"release_pins": [PIN]}

    def run(**more: Any) -> Dict[str, Any]:
        found: Dict[str, Any] = run_module("agent_config", path=str(path), update=update, **more)
        return found

    steps: List[Tuple[Dict[str, Any], str, List[str]]] = [
        ({}, "root", ["[update]"]),
        ({"mode": "helper", "helper": HELPER}, "helper", ["[update]", "[helper]"]),
        ({"mode": "start", "start": {"user": "nobody-of-ours"}}, "start", ["[update]", "[start]"]),
        ({"mode": "helper"}, "helper", ["[update]", "[helper]"]),
        ({"mode": "root"}, "root", ["[update]"]),
        ({"mode": "start"}, "start", ["[update]", "[start]"]),
    ]
    for more, mode, expected in steps:
        first = run(**more)
        assert (first["changed"], first["agent_mode"], sections(path)) == (True, mode, expected), more
        assert (run(**more)["changed"], run()["changed"], run()["agent_mode"]) == (False, False, mode), more


def test_a_section_that_is_given_is_owned_whole(run_module: Any, path: pathlib.Path) -> None:
    """Keys that are not given go; a section that is not given keeps its text, with its comments."""
    run_module("agent_config", path=str(path), mode="helper", helper=HELPER)
    text = path.read_text().replace("[helper]\n", "[helper]\n# ours\n")
    path.write_text(text)
    assert run_module("agent_config", path=str(path), mode="helper")["changed"] is False
    assert path.read_text() == text
    result = run_module("agent_config", path=str(path), helper={"user": "other"})
    assert (result["changed"], result["agent_mode"], result["agent_user"]) == (True, "helper", "other")
    assert path.read_text().endswith('[helper]\n# ours\nuser = "other"\n')


def test_a_new_file_may_have_an_empty_section(run_module: Any, path: pathlib.Path) -> None:
    """The section alone chooses the mode, with the agent's own defaults."""
    result = run_module("agent_config", path=str(path), mode="start", update={"max_boots": 1})
    assert (result["agent_mode"], result["agent_user"]) == ("start", "slotward")
    assert path.read_text().endswith("\n[start]\n")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mode": "root", "helper": {}}, ("helper", "root")),
        ({"mode": "start", "helper": HELPER}, ("helper", "start")),
        ({"helper": {}, "start": {}}, ("[helper] and [start]",)),
        ({"helper": {"user": "Not a name"}}, ("user",)),
        ({"helper": {"socket": "/run/slotward/x.sock"}}, ("/run/slotward", "apart")),
    ],
)
def test_sections_that_disagree_are_refused(
    run_module: Any, path: pathlib.Path, more: Dict[str, Any], words: Tuple[str, ...]
) -> None:
    """Both named, and nothing written."""
    result = run_module("agent_config", path=str(path), **more)
    assert (result["failed"], result["code"], result["agent_mode"]) == (True, "bad-config", None)
    assert all(word in result["msg"] for word in words), result["msg"]
    assert not path.exists()


class Account(NamedTuple):
    """An account of this machine that is not the one that runs the tests."""

    name: str
    gid: int


@pytest.fixture
def account() -> Account:
    """Any; giving files away needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a file to another group")
    found = pwd.getpwnam("daemon")
    return Account(found.pw_name, found.pw_gid)


@pytest.fixture
def own(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is the agent's own."""
    name = "ansible_collections.slotward.fleet.plugins.module_utils.config_file"
    monkeypatch.setattr(importlib.import_module(name), "OWN_DIRECTORY", str(path.parent))


def owners(path: pathlib.Path) -> Tuple[int, int, int]:
    """Owner, group and permissions."""
    return path.stat().st_uid, path.stat().st_gid, mode_of(path)


@pytest.mark.usefixtures("own")
def test_the_account_s_group_may_read_the_file_and_nobody_but_root_write_it(
    run_module: Any, path: pathlib.Path, account: Account
) -> None:
    """0640 in 0750 while the daemon runs as an account, 0600 in 0755 when it is root's; a second run changes nothing."""
    helper = {"mode": "helper", "helper": {"user": account.name}}
    for umask in (0o022, 0o077, 0o000):
        before = os.umask(umask)
        for more, file, directory in (
            ({}, (0, 0, 0o600), (0, 0, 0o755)),
            (helper, (0, account.gid, 0o640), (0, account.gid, 0o750)),
        ):
            assert run_module("agent_config", path=str(path), **more)["changed"] is True
            assert (owners(path), owners(path.parent)) == (file, directory)
            assert run_module("agent_config", path=str(path), **more)["changed"] is False
        os.umask(before)
        path.unlink()
        path.parent.rmdir()


def test_before_there_is_the_account_the_file_is_root_s_alone(run_module: Any, path: pathlib.Path) -> None:
    """Setup makes the account later; what it then makes of the file is right by the next run, and nothing is taken back."""
    run_module("agent_config", path=str(path), mode="helper", helper=HELPER)
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o755)
    assert run_module("agent_config", path=str(path), mode="helper", helper=HELPER)["changed"] is False


@pytest.mark.usefixtures("own")
def test_what_setup_made_of_the_file_is_right_by_the_next_run(
    run_module: Any, path: pathlib.Path, account: Account
) -> None:
    """The order of a first run: the file, then the account and its rights, then nothing more to do."""
    run_module("agent_config", path=str(path), mode="start", start={"user": account.name})
    assert owners(path) == (0, account.gid, 0o640)
    os.chown(path, 0, 0)
    path.chmod(0o600)
    result = run_module("agent_config", check=True, path=str(path))
    assert result["changed"] is True
    assert result["diff"][1]["before"].startswith("file root:root 0600\n")
    assert result["diff"][1]["after"] == "file root:daemon 0640\ndirectory root:daemon 0750\n"
    assert owners(path) == (0, 0, 0o600)


@pytest.mark.parametrize("mode", [0o640, 0o660, 0o666])
def test_I6_new_bytes_are_never_the_account_s(
    run_module: Any, path: pathlib.Path, account: Account, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """A file that was the account's is replaced, and at no moment on the way can the account write the new one."""
    more = {"mode": "helper", "helper": {"user": account.name}}
    run_module("agent_config", path=str(path), **more)
    os.chown(path, pwd.getpwnam(account.name).pw_uid, account.gid)
    os.chmod(path, mode)
    held = os.open(path, os.O_RDWR)
    seen: List[Tuple[int, int]] = []
    basic = importlib.import_module("ansible.module_utils.basic")
    for name in ("chown", "chmod", "fchown", "fchmod", "rename"):
        genuine = getattr(os, name)

        def watched(target: Any, *args: Any, _genuine: Any = genuine, **more: Any) -> Any:
            done = _genuine(target, *args, **more)
            seen.extend((os.stat(one).st_uid, os.stat(one).st_mode & 0o022) for one in path.parent.glob(".config-*"))
            return done

        monkeypatch.setattr(basic.os, name, watched)
    result = run_module("agent_config", path=str(path), update={"max_boots": 1}, **more)
    monkeypatch.undo()
    assert result["changed"] is True
    assert seen
    assert set(seen) == {(0, 0)}
    assert owners(path) == (0, account.gid, 0o640)
    os.pwrite(held, b"#" * 10, 0)
    os.close(held)
    assert not path.read_text().startswith("##########"), "who held the old file open holds the old one"


@pytest.mark.usefixtures("own")
def test_the_file_stays_readable_until_setup_has_taken_the_daemon_from_the_account(
    run_module: Any, path: pathlib.Path, account: Account
) -> None:
    """A daemon that is restarted on the way still reads its configuration; then setup closes it, and a next run finds that right."""
    run_module("agent_config", path=str(path), mode="helper", helper={"user": account.name})
    assert run_module("agent_config", path=str(path), mode="root")["changed"] is True
    assert (owners(path), owners(path.parent)) == ((0, account.gid, 0o640), (0, account.gid, 0o750))
    for name, bits in ((path, 0o600), (path.parent, 0o755)):
        os.chown(name, 0, 0)
        name.chmod(bits)
    assert run_module("agent_config", path=str(path), mode="root")["changed"] is False
    path.chmod(0o640)
    assert run_module("agent_config", path=str(path), mode="root")["changed"] is True
    assert owners(path) == (0, 0, 0o600)


def test_a_directory_that_is_not_the_agent_s_own_stays_as_it_is(
    run_module: Any, path: pathlib.Path, account: Account
) -> None:
    """Another path may lie in a directory of many."""
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o775)
    run_module("agent_config", path=str(path), mode="helper", helper={"user": account.name})
    assert (owners(path), owners(path.parent)) == ((0, account.gid, 0o640), (0, 0, 0o775))
    run_module("agent_config", path=str(path), mode="root")
    assert owners(path.parent) == (0, 0, 0o775)


@pytest.mark.usefixtures("own")
def test_a_directory_that_others_may_write_is_closed(run_module: Any, path: pathlib.Path) -> None:
    """Whoever can write the directory can put another file there."""
    path.parent.mkdir()
    path.parent.chmod(0o775)
    assert run_module("agent_config", path=str(path))["changed"] is True
    assert mode_of(path.parent) == 0o755
    path.parent.chmod(0o700)
    assert run_module("agent_config", path=str(path))["changed"] is False, "stricter is the operator's own choice"
