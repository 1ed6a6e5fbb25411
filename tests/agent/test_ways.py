# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories on the way that others may change are found, named with what mends them, and only then mended."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from slotcore import codes
from slotward import accounts, mode_setup, own, ways

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to other users")


@pytest.fixture(name="top")
def _top(tmp_path: pathlib.Path) -> pathlib.Path:
    """Directories of root's in each other."""
    (tmp_path / "usr" / "local" / "lib" / "slotward").mkdir(parents=True)
    for path in (tmp_path / "usr").rglob("*"):
        path.chmod(0o755)
    return tmp_path / "usr"


def found(path: pathlib.Path, below: pathlib.Path) -> dict[str, str]:
    """Risks below a directory: path and command."""
    return {risk.path: risk.run for risk in ways.at_risk([str(path)]) if risk.path.startswith(str(below))}


def test_a_way_of_root_s_is_no_risk(top: pathlib.Path) -> None:
    """Nothing to say; nor of what is not there yet, which root makes."""
    assert found(top / "local" / "lib" / "slotward", top) == {}
    assert found(top / "local" / "lib" / "missing" / "more", top) == {}


def test_each_is_named_with_its_command(top: pathlib.Path) -> None:
    """root:staff 2775, as on older Debian, another owner, a sticky directory: each with exactly what mends it."""
    local, lib, place = top / "local", top / "local" / "lib", top / "local" / "lib" / "slotward"
    lib.chmod(0o2775)
    os.chown(lib, 0, 50)
    os.chown(local, 4711, 0)
    place.chmod(0o1777)
    assert found(place, top) == {
        str(local): f"chown root {local}",
        str(lib): f"chmod go-w {lib}",
        str(place): f"{place} is everybody's and stays so: configure a place elsewhere",
    }
    text = ways.refusal(ways.at_risk([str(place)])).text
    assert ways.refusal(()).code == codes.DIRECTORY_UNSAFE
    assert f"{lib} (mode 2775, group 50): chmod go-w {lib}" in text
    assert f"{local} (owned by uid 4711): chown root {local}" in text


def test_what_is_everybody_s_is_never_closed(top: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory as /tmp refuses the mode, with consent too, and no command is named for it."""
    place = top / "local" / "lib" / "slotward"
    place.chmod(0o1777)
    monkeypatch.setattr(mode_setup, "risks", lambda _setup: ways.at_risk([str(place)]))
    with pytest.raises(codes.Refused) as caught:
        mode_setup.refuse(own.load(str(top / "config.toml")), True)
    assert caught.value.code == codes.DIRECTORY_UNSAFE
    assert f"{place} is everybody's and stays so: configure a place elsewhere" in str(caught.value)
    assert stat.S_IMODE(place.stat().st_mode) == 0o1777


def test_links_on_the_way_are_walked_too(top: pathlib.Path) -> None:
    """What a link leads through counts, from the root or beside it; a loop ends."""
    other = top / "other"
    (other / "deep" / "bin").mkdir(parents=True)
    for path in (other, other / "deep", other / "deep" / "bin"):
        path.chmod(0o755)
    (other / "deep").chmod(0o775)
    (top / "local" / "bin").symlink_to("../other/deep/./bin")
    (top / "absolute").symlink_to(other / "deep")
    assert found(top / "local" / "bin" / "slotward", top) == {str(other / "deep"): f"chmod go-w {other / 'deep'}"}
    assert found(top / "absolute" / "x", top) == {str(other / "deep"): f"chmod go-w {other / 'deep'}"}
    (top / "loop").symlink_to("loop")
    assert found(top / "loop" / "x", top) == {}


def test_a_file_ends_the_way(top: pathlib.Path) -> None:
    """Its own owner and mode are not the way's."""
    (top / "file").write_bytes(b"")
    (top / "file").chmod(0o666)
    assert found(top / "file" / "x", top) == {}


def test_mending_changes_what_was_named_and_nothing_else(top: pathlib.Path) -> None:
    """The owner becomes root, the others' writing goes, the group and every other bit stay."""
    lib = top / "local" / "lib"
    os.chown(lib, 4711, 50)
    lib.chmod(0o2777)
    before = (top / "local").stat()
    ways.mend(str(lib))
    now = lib.stat()
    assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (0, 50, 0o2755)
    assert (top / "local").stat() == before
    assert found(lib, top) == {}


def test_mending_never_goes_through_a_link(top: pathlib.Path) -> None:
    """What is a link by now is refused."""
    (top / "link").symlink_to(top / "local")
    with pytest.raises(codes.Refused):
        ways.mend(str(top / "link"))


# -- accounts


def test_an_account_that_is_there_is_taken_as_it_is() -> None:
    """Its own group is its primary one, whatever that is called."""
    games = accounts.find("games")
    assert games is not None
    assert (games.name, accounts.problem(games)) == ("games", "")
    assert accounts.find("no-such-account") is None
    assert accounts.find("root") == accounts.ROOT
    assert accounts.problem(None) == accounts.problem(accounts.ROOT) == ""


@pytest.mark.parametrize(("uid", "gid"), [(0, 4711), (4711, 0)])
def test_an_account_that_is_root_s_in_all_but_name_is_refused(uid: int, gid: int) -> None:
    """A second name of uid 0, or one in root's group, would make every check of who asks mean nothing."""
    assert "is root's: name another account" in accounts.problem(accounts.Account("toor", uid, gid, "toor"))


@pytest.fixture(name="tools")
def _tools(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A directory that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def tool(tools: pathlib.Path, name: str, status: int = 0) -> None:
    """A program that writes down how it was called."""
    path = tools / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >>{tools}/calls\necho "no room" >&2\nexit {status}\n')
    path.chmod(0o755)


def test_the_common_tool_comes_first(tools: pathlib.Path) -> None:
    """A system account with a group of its own, no home that is made, no shell; an existing group of its name is used."""
    tool(tools, "useradd")
    tool(tools, "adduser")
    (argv,) = accounts.commands("slotward-test", "/var/lib/slotward")
    assert argv[:4] == ["useradd", "--system", "--user-group", "--no-create-home"]
    assert argv[-5:-1] == ["--home-dir", "/var/lib/slotward", "--shell", "/usr/sbin/nologin"]
    (argv,) = accounts.commands("adm", "/var/lib/slotward")
    assert argv[2:4] == ["--gid", "adm"]


def test_busybox_has_its_own(tools: pathlib.Path) -> None:
    """adduser -S alone would put the account into a group that others are in."""
    tool(tools, "adduser")
    group, argv = accounts.commands("slotward-test", "/var/lib/slotward")
    assert group == ["addgroup", "-S", "slotward-test"]
    assert argv[:4] == ["adduser", "-S", "-D", "-H"]
    assert argv[-3:] == ["-G", "slotward-test", "slotward-test"]
    assert len(accounts.commands("adm", "/x")) == 1


def test_no_tool_and_a_tool_that_fails_are_told(tools: pathlib.Path) -> None:
    """`no-account`, with what was run and what it said."""
    with pytest.raises(codes.Refused) as caught:
        accounts.make("slotward-test", "/var/lib/slotward")
    assert "there is neither useradd nor adduser" in caught.value.text
    tool(tools, "useradd", 12)
    with pytest.raises(codes.Refused) as caught:
        accounts.make("slotward-test", "/var/lib/slotward")
    assert caught.value.code == codes.NO_ACCOUNT
    assert "slotward-test` ended with status 12: no room" in caught.value.text
