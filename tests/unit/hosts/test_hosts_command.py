# SPDX-License-Identifier: GPL-3.0-or-later
"""What hostctl says to wrong arguments and unfit machines, and what clean-up does to records; none of it needs root."""

from __future__ import annotations

import os
import pathlib

import pytest
from hosts import base, cli, errors, process, reap, records, requirements

DEAD = process.ProcessId(1, 1, "an-earlier-boot")


@pytest.fixture(autouse=True)
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A state directory and a cache of the test's own."""
    monkeypatch.setenv("SLOTWARD_HOSTS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SLOTWARD_HOSTS_CACHE", str(tmp_path / "cache"))
    for name in ("SLOTWARD_HOSTS_RUN", "SLOTWARD_HOSTS_OWNER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine and a user that can hold hosts, as far as the command can tell."""
    monkeypatch.setattr(requirements, "check", lambda: None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "COMMAND"),
        (["explode"], "invalid choice"),
        (["up"], "NAME"),
        (["up", "a", "--suite", "sid"], "invalid choice: 'sid'"),
        (["up", "a", "--disk", "0"], "not a positive number"),
        (["up", "a", "--disk", "ten"], "not a positive number"),
        (["--owner", "x", "list"], "there is no process 'x'"),
    ],
)
def test_wrong_arguments_end_with_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own errors name the argument."""
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("fit")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run", "A b", "list"], "'A b' is no name"),
        (["down"], "say --all"),
        (["boot", "nobody"], "there is no host 'nobody' in run 'default'"),
        (["exec", "nobody", "--", "true"], "hostctl list"),
        (["base", "sid"], "use one of bullseye, bookworm, trixie"),
    ],
)
def test_errors_are_one_line_and_end_with_1(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error names the way out."""
    assert cli.main(words) == 1
    err = capsys.readouterr().err
    assert err.startswith("hostctl: ")
    assert said in err
    assert err.count("\n") == 1


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows a session from nothing to nothing."""
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    for step in (
        "requirements --install",
        "hostctl up",
        "hostctl inventory",
        "hostctl down --all",
        "SLOTWARD_HOSTS_RUN",
    ):
        assert step in text


def test_without_root_the_way_out_is_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that is wrong is said first."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(errors.HostError, match="sudo"):
        requirements.check()
    with pytest.raises(errors.HostError, match="sudo"):
        requirements.install()


def test_a_missing_tool_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Debian hostctl can help; elsewhere it says what to look for."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "missing_packages", lambda: ["systemd-container"])
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/etc/debian_version")
    with pytest.raises(errors.HostError, match=r"systemd-container.*requirements --install"):
        requirements.check()
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    with pytest.raises(errors.HostError, match=r"not Debian.*systemd-container"):
        requirements.check()


@pytest.mark.usefixtures("fit")
def test_nothing_is_listed_and_removed_where_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that look and clean work before the first host, and make nothing."""
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().out == "RUN  NAME  SUITE  STATE  ADDRESS  CONTROLLER\n"
    assert cli.main(["list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert cli.main(["inventory"]) == 0
    assert capsys.readouterr().out == "---\nslotward_hosts:\n  hosts: {}\n"
    assert cli.main(["down", "nobody"]) == 0
    assert cli.main(["down", "--all"]) == 0
    assert cli.main(["clean"]) == 0
    assert records.run_ids() == []


def test_cleaning_takes_dead_runs_and_leaves_the_others(state: pathlib.Path) -> None:
    """Owners that live and runs that are kept stay; dead ones and torn ones go."""
    for run in (
        records.Run("alive", process.identify(os.getpid())),
        records.Run("dead", DEAD),
        records.Run("kept", None),
    ):
        records.write(records.run_dir(run.id) / "run.json", run)
        (records.run_dir(run.id) / "key").touch()
    (state / "runs" / "torn").mkdir()
    assert reap.leftovers() == ["dead", "torn"]
    assert records.run_ids() == ["alive", "kept"]
    assert reap.leftovers() == []
    assert reap.leftovers(everything=True) == ["alive", "kept"]


def test_numbers_stay_taken_while_a_record_has_them() -> None:
    """A host that is down keeps its address."""
    for number, name in enumerate("abc", start=1):
        records.write(
            records.host_dir("r", name) / "host.json", records.Host(name, "trixie", number, base=f"/base/{name}")
        )
    assert records.taken_numbers() == {1, 2, 3}
    assert records.used_bases() == {"/base/a", "/base/b", "/base/c"}


def test_a_lock_is_waited_for_with_an_end(tmp_path: pathlib.Path) -> None:
    """A second holder is refused after the time, by name; once free, the lock is there again."""
    path = tmp_path / "sub" / "lock"
    with (
        records.locked(path),
        pytest.raises(errors.HostError, match="held by another process"),
        records.locked(path, 0.1),
    ):
        pass
    with records.locked(path, 0.1):
        pass


def test_a_cached_tree_needs_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tree in the cache nothing is run, so no network is needed; an unused one is removed on request."""
    monkeypatch.setattr(process, "tool", lambda *_, **__: pytest.fail("a tool was run"))
    tree = base.path_of("trixie")
    tree.mkdir(parents=True)
    assert base.ensure("trixie") == tree
    records.write(records.host_dir("r", "a") / "host.json", records.Host("a", "trixie", 1, base=str(tree)))
    assert base.remove_unused() == []
