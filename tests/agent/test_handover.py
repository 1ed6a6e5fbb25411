# SPDX-License-Identifier: GPL-3.0-or-later
"""data_dir goes from one account to another and back: what is handed over, what is left, and what a hostile owner gains."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
from typing import Dict, Iterator, List, Tuple

import pytest

from slotcore import codes
from slotward import accounts, faults, handover

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")

ROOT = accounts.ROOT
USER = accounts.Account("one", 4711, 4712, "one")
OTHER = accounts.Account("two", 4811, 4812, "two")


@pytest.fixture(name="data")
def _data(tmp_path: pathlib.Path) -> pathlib.Path:
    """A data_dir of root's as setup makes it, with something in it."""
    data = tmp_path / "data"
    (data / "sub" / "deep").mkdir(parents=True)
    (data / "staging").mkdir()
    (data / "staging" / "slotward-1.1.0").write_bytes(b"staged")
    (data / "identity.json").write_bytes(b"who we are")
    (data / "sub" / "deep" / "key").write_bytes(b"secret")
    (data / "sub" / "deep" / "key").chmod(0o600)
    data.chmod(0o700)
    return data


def all_of(data: pathlib.Path, account: accounts.Account) -> bool:
    """Whether everything there is that account's."""
    found = [data.lstat(), *(path.lstat() for path in data.rglob("*"))]
    return {(one.st_uid, one.st_gid) for one in found} == {(account.uid, account.gid)}


def snapshot(place: pathlib.Path) -> Dict[str, Tuple[int, int, int, int, bytes]]:
    """Inode, owner, mode and bytes of all that lies below."""
    found = {}
    for path in [place, *sorted(place.rglob("*"))]:
        one = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(one.st_mode) else b""
        found[str(path)] = (one.st_ino, one.st_uid, one.st_gid, one.st_mode, data)
    return found


def give(data: pathlib.Path, account: accounts.Account) -> None:
    """As an account that owns everything there would leave it."""
    for path in [data, *data.rglob("*")]:
        os.lchown(path, account.uid, account.gid)


@pytest.mark.parametrize("way", [(USER,), (USER, ROOT), (USER, OTHER), (USER, OTHER, ROOT, USER), (ROOT,)])
def test_everything_but_staging_goes_along(data: pathlib.Path, way: Tuple[accounts.Account, ...]) -> None:
    """Section 8: all is kept, the directory is its owner's alone, staging is emptied when that changes; then nothing is due."""
    for account in way:
        assert handover.is_due(str(data), account) is (account is not ROOT or len(way) > 1)
        assert handover.hand_over(str(data), account) == []
        assert all_of(data, account)
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert not handover.is_due(str(data), account)
    assert (data / "identity.json").read_bytes() == b"who we are"
    key = data / "sub" / "deep" / "key"
    assert (key.read_bytes(), stat.S_IMODE(key.stat().st_mode)) == (b"secret", 0o600)
    assert (data / "staging").exists() is (way == (ROOT,))


def test_a_second_time_changes_nothing(data: pathlib.Path) -> None:
    """I9: not an inode."""
    for account in (USER, ROOT):
        handover.hand_over(str(data), account)
        before = snapshot(data)
        handover.hand_over(str(data), account)
        assert snapshot(data) == before


@contextlib.contextmanager
def outside(data: pathlib.Path) -> Iterator[Tuple[pathlib.Path, List[str]]]:
    """Root's files elsewhere, which nothing may change, and names in data_dir that lead to them."""
    elsewhere = data.parent / "elsewhere"
    (elsewhere / "dir").mkdir(parents=True)
    (elsewhere / "shadow").write_bytes(b"root's")
    (elsewhere / "shadow").chmod(0o640)
    (elsewhere / "dir" / "file").write_bytes(b"root's too")
    os.chown(elsewhere / "dir" / "file", 99, 99)
    os.link(elsewhere / "shadow", data / "hard")
    os.link(elsewhere / "dir" / "file", data / "sub" / "hard")
    (data / "soft").symlink_to(elsewhere / "shadow")
    (data / "sub" / "dir").symlink_to(elsewhere / "dir")
    os.mkfifo(data / "fifo")
    os.mknod(data / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    before = snapshot(elsewhere)
    yield elsewhere, [f"{data}/{name}" for name in ("device", "fifo", "hard", "soft", "sub/dir", "sub/hard")]
    assert snapshot(elsewhere) == before


@pytest.mark.parametrize("target", [USER, ROOT], ids=["to-account", "to-root"])
def test_i6_links_are_left_and_told(data: pathlib.Path, target: accounts.Account) -> None:
    """I6: neither a link, a second link, a FIFO nor a device is touched or followed, and each is named with its reason."""
    if target is ROOT:
        give(data, USER)
    with outside(data) as (_elsewhere, names):
        kept = {name: os.lstat(name) for name in names}
        left = handover.hand_over(str(data), target)
        assert [line.split(" was left")[0] for line in left] == names
        reasons = ("a device", "a FIFO", "2 links", "a symbolic link", "a symbolic link", "2 links")
        assert all(reason in line for reason, line in zip(reasons, left))
        for name, was in kept.items():
            now = os.lstat(name)
            assert (now.st_ino, now.st_uid, now.st_mode) == (was.st_ino, was.st_uid, was.st_mode)
        assert not handover.is_due(str(data), target)
    assert (data / "identity.json").lstat().st_uid == target.uid


def test_i6_no_set_user_id_and_no_open_descriptor_comes_along(data: pathlib.Path) -> None:
    """systemd would make a program of the account's a set-user-ID program of root's (ADR 19); here it is a plain copy."""
    give(data, USER)
    program = data / "program"
    program.write_bytes(b"#!/bin/sh\n")
    os.chown(program, USER.uid, USER.gid)
    program.chmod(0o6777)
    old = program.stat().st_ino
    with program.open("ab") as held:
        handover.hand_over(str(data), ROOT)
        held.write(b"evil\n")
    found = program.stat()
    assert found.st_ino != old
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 0, 0o755)
    assert program.read_bytes() == b"#!/bin/sh\n"


def test_i6_an_account_s_own_directory_is_not_looked_into(data: pathlib.Path) -> None:
    """A file of root's that has come to lie there was planted while it had another name: it is never given away."""
    handover.hand_over(str(data), USER)
    (data / "planted").write_bytes(b"root's")
    data.chmod(0o755)
    assert handover.is_due(str(data), USER)
    assert handover.hand_over(str(data), USER) == []
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert (data / "planted").stat().st_uid == 0


def test_what_is_too_much_is_left(data: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile owner can make files of any size, number and depth: root neither fills its disk nor runs for ever."""
    monkeypatch.setattr(handover, "MAX_FILE", 100)
    monkeypatch.setattr(handover, "MAX_ALL", 150)
    for number in range(3):
        (data / f"x{number}").write_bytes(b"x" * 60)
    (data / "large").touch()
    os.truncate(data / "large", 1 << 40)
    deep = data
    for _number in range(handover.MAX_DEPTH + 3):
        deep = deep / "d"
        deep.mkdir()
    give(data, USER)
    left = handover.hand_over(str(data), ROOT)
    assert any("large was left as it is: it is more than is copied" in line for line in left)
    assert any("too deep" in line for line in left)
    assert (data / "x0").lstat().st_uid == 0
    assert (data / "x2").lstat().st_uid == USER.uid
    assert not handover.is_due(str(data), ROOT)
    monkeypatch.setattr(handover, "MAX_ENTRIES", 5)
    give(data, USER)
    assert len(handover.hand_over(str(data), ROOT)) <= handover.MAX_SAID + 1


def test_staging_is_emptied_however_deep_it_is(data: pathlib.Path) -> None:
    """A thousand directories in each other need neither a thousand descriptors nor a thousand calls in each other."""
    os.chdir(data / "staging")
    try:
        for _number in range(1500):
            os.mkdir("d")
            os.chdir("d")
        pathlib.Path("file").touch()
    finally:
        os.chdir("/")
    os.mkfifo(data / "staging" / "fifo")
    assert handover.hand_over(str(data), USER) == []
    assert not (data / "staging").exists()


@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_staging_that_is_no_directory_goes(data: pathlib.Path, kind: str) -> None:
    """Whatever lies there in its place is the name alone."""
    handover.hand_over(str(data), USER)
    keep = data.parent / "keep"
    keep.mkdir()
    (keep / "file").touch()
    place = data / "staging"
    if kind == "link":
        place.symlink_to(keep)
    elif kind == "file":
        place.touch()
    else:
        os.mkfifo(place)
    os.lchown(place, USER.uid, USER.gid)
    handover.hand_over(str(data), ROOT)
    assert not place.exists()
    assert not place.is_symlink()
    assert (keep / "file").exists()


def test_a_linked_data_dir_is_refused(data: pathlib.Path) -> None:
    """The directory itself is handed over, never what a link leads to."""
    link = data.parent / "link"
    link.symlink_to(data)
    before = snapshot(data)
    with pytest.raises(codes.Refused):
        handover.hand_over(str(link), USER)
    with pytest.raises(codes.Refused) as caught:
        handover.refuse_strange(str(link), ())
    assert caught.value.code == codes.DIRECTORY_UNSAFE
    assert snapshot(data) == before


@pytest.mark.parametrize(
    ("uid", "mode", "said"),
    [(0, 0o700, ""), (4711, 0o755, ""), (4811, 0o700, "is owned by uid 4811"), (0, 0o755, "holds identity.json")],
)
def test_a_directory_that_others_use_is_not_given_away(data: pathlib.Path, uid: int, mode: int, said: str) -> None:
    """A data_dir that is somebody's home, or /var/lib by mistake, keeps its owner; the way out is named."""
    os.chown(data, uid, uid)
    data.chmod(mode)
    if not said:
        handover.refuse_strange(str(data), (USER.uid,))
        return
    with pytest.raises(codes.Refused) as caught:
        handover.refuse_strange(str(data), (USER.uid,))
    assert said in caught.value.text
    assert f"chmod 0700 {data}" in caught.value.text


@pytest.mark.parametrize("way", [(ROOT, USER), (USER, ROOT), (USER, OTHER)])
@pytest.mark.parametrize("point", ["hand-over.closed", "hand-over.entry", "hand-over.contents"])
def test_a_cut_is_completed_by_a_second_run(
    data: pathlib.Path, monkeypatch: pytest.MonkeyPatch, way: Tuple[accounts.Account, accounts.Account], point: str
) -> None:
    """After a cut at each point the directory is root's and closed, another run is due, and ends with the same."""
    give(data, way[0])

    class Cut(BaseException):
        """The power is gone."""

    def hit(passed: str) -> None:
        if passed == point:
            raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(faults, "hit", hit)
        with pytest.raises(Cut):
            handover.hand_over(str(data), way[1])
    assert (data.stat().st_uid, stat.S_IMODE(data.stat().st_mode)) == (0, 0o700)
    if way[1] is not ROOT or point != "hand-over.contents":
        assert handover.is_due(str(data), way[1])
    assert handover.hand_over(str(data), way[1]) == []
    assert all_of(data, way[1])
    assert not (data / "staging").exists()
    assert (data / "sub" / "deep" / "key").read_bytes() == b"secret"
    assert sorted(path.name for path in data.iterdir()) == ["identity.json", "sub"]


PLANT = """
import os, sys
data, secret = sys.argv[1:3]
os.chdir(data + "/sub")
os.setgid(4712); os.setuid(4711)
held = os.open("../identity.json", os.O_RDWR)
while True:
    for act in (
        lambda: os.rename("deep", "gone"), lambda: os.symlink(secret, "deep"), lambda: os.unlink("deep"),
        lambda: os.rename("gone", "deep"), lambda: os.symlink(secret, "new"), lambda: os.unlink("new"),
        lambda: os.chmod("../identity.json", 0o4777), lambda: os.link("../identity.json", "deep/again"),
        lambda: os.unlink("deep/again"), lambda: os.write(held, b"x"), lambda: os.mkdir("new"), lambda: os.rmdir("new"),
    ):
        try:
            act()
        except OSError:
            pass
"""


def test_i6_races_with_the_old_owner(data: pathlib.Path) -> None:
    """A hundred hand-overs to root against the account's own process, which has descriptors and a directory open there."""
    for path in (data.parent, *data.parents):
        if path.stat().st_uid == 0 and path.parts[:2] == ("/", "tmp"):
            path.chmod(path.stat().st_mode | 0o711)
    secret = data.parent / "secret"
    secret.mkdir(mode=0o755)
    (secret / "file").write_bytes(b"root's")
    before = snapshot(secret)
    tries = well = 0
    until = time.monotonic() + 30
    while tries < 100 and time.monotonic() < until:
        tries += 1
        give(data, USER)
        command = [sys.executable, "-I", "-c", PLANT, str(data), str(secret)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
            try:
                time.sleep(0.03 + tries % 5 / 100)
                with contextlib.suppress(codes.Refused, OSError):
                    handover.hand_over(str(data), ROOT)
                    well += 1
            finally:
                child.kill()
        assert snapshot(secret) == before
        for path in data.rglob("*"):
            found = path.lstat()
            if found.st_uid == 0 and stat.S_ISREG(found.st_mode):
                assert not found.st_mode & 0o6022, path
        for name in ("deep", "new", "gone"):
            with contextlib.suppress(OSError):
                os.unlink(data / "sub" / name)
    assert well > tries // 2


CHAIN = """
import os, sys
os.setgid(4712)
os.setuid(4711)
places = [os.open(f"/proc/self/fd/3/{number}", os.O_RDONLY) for number in range(6)]
os.close(3)
descriptor = next((one for one in places[1:] if not os.fork()), places[0])
print(flush=True)
while True:
    try:
        os.mkdir("x", dir_fd=descriptor)
        below = os.open("x", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    except OSError:
        pass
"""


@pytest.fixture(name="deep")
def _deep(data: pathlib.Path) -> Iterator[pathlib.Path]:
    """A data_dir that may become deeper than Python's own removal goes."""
    yield data
    subprocess.run(["rm", "-rf", str(data)], check=True)


def test_i6_emptying_staging_has_an_end(deep: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the old owner's go on making directories below those that they have open: setup says so and ends."""
    data = deep
    monkeypatch.setattr(handover, "EMPTIED_S", 1.0)
    for number in range(6):
        (data / "staging" / str(number)).mkdir()
    give(data, USER)
    staging = os.open(data / "staging", os.O_RDONLY)
    command = [sys.executable, "-I", "-c", f"import os; os.dup2({staging}, 3)\n{CHAIN}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(staging,), start_new_session=True) as child:
        assert child.stdout is not None
        for _number in range(6):
            child.stdout.readline()
        time.sleep(0.3)
        began = time.monotonic()
        try:
            with pytest.raises(codes.Retryable, match="end those processes, run setup again"):
                handover.hand_over(str(data), ROOT)
            assert time.monotonic() - began < 10
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            os.close(staging)
    assert (data.stat().st_uid, data.stat().st_mode & 0o777) == (0, 0o700)
    assert handover.is_due(str(data), ROOT), "the next run goes on with it"
    monkeypatch.setattr(handover, "EMPTIED_S", 300.0)
    handover.hand_over(str(data), ROOT)
    assert sorted(path.name for path in data.iterdir()) == ["identity.json", "sub"]
    assert not handover.is_due(str(data), ROOT)


LEASE = """
import fcntl, os, signal, sys, time
os.setgid(4712)
os.setuid(4711)
signal.signal(signal.SIGIO, signal.SIG_IGN)
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
time.sleep(60)
"""


def test_i6_a_file_that_its_owner_holds_is_left_and_told(data: pathlib.Path) -> None:
    """A lease makes opening wait or fail: it keeps nothing else from being handed over."""
    for path in (data.parent, *data.parents):
        if path.stat().st_uid == 0 and path.parts[:2] == ("/", "tmp"):
            path.chmod(path.stat().st_mode | 0o711)
    give(data, USER)
    held = data / "identity.json"
    with subprocess.Popen([sys.executable, "-I", "-c", LEASE, str(held)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            left = handover.hand_over(str(data), ROOT)
        finally:
            child.kill()
    assert left == [f"{held} was left as it is: a process holds it"]
    assert (data / "sub" / "deep" / "key").stat().st_uid == 0
    assert handover.hand_over(str(data), ROOT) == []
    assert all_of(data, ROOT)
