# SPDX-License-Identifier: GPL-3.0-or-later
"""Staged, pushed and adopted files: what is planted is not followed, what is wrong is not copied."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import socket
import stat
import subprocess
import threading
import time
from typing import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotcore import codes
from slotward import adoption, opening, staging

CONTENT = os.urandom(700_001)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "slotward-1.1.0"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture(name="directory")
def _directory(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "data" / "staging"
    staging.make_directory(str(path))
    return path


@pytest.fixture(name="umask", params=[0o077, 0o027, 0o000, 0o022])
def _umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def mode(path: pathlib.Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.lstat().st_mode)


def refusal_of(act: Callable[[], object]) -> codes.Refusal:
    """The refusal that an act ends in."""
    with pytest.raises(codes.Refused) as caught:
        act()
    return caught.value.refusal


def open_files() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


# --- the directory ---


def test_D13_modes_do_not_depend_on_the_umask(tmp_path: pathlib.Path, umask: int) -> None:
    """D13: the staging directory is its owner's alone, what had to be made above it can be entered by all."""
    path = tmp_path / "new" / "data" / "staging"
    staging.make_directory(str(path))
    assert [mode(place) for place in (path, path.parent, path.parent.parent)] == [0o700, 0o755, 0o755]
    descriptor = staging.open_part(str(path / "x.part"))
    os.close(descriptor)
    assert mode(path / "x.part") == 0o600
    (path / NAME).write_bytes(CONTENT)
    source = staging.open_staged(str(path), NAME)
    staging.copy_verified(source, str(tmp_path / "slot"), len(CONTENT), SHA256)
    os.close(source)
    assert mode(tmp_path / "slot") == 0o755


def test_D13_a_directory_has_its_mode_from_its_first_moment(
    tmp_path: pathlib.Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D13: a run that is killed right after it made one leaves one that needs no mending; the umask stays as it was."""

    def killed(_path: str) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "open_directory", killed)
    with pytest.raises(KeyboardInterrupt):
        staging.make_one(str(tmp_path / "slots"), 0o755)
    assert mode(tmp_path / "slots") == 0o755
    assert os.umask(umask) == umask


def test_an_open_directory_is_closed_to_others(tmp_path: pathlib.Path) -> None:
    """A staging directory that others may enter is mended; one above it is left as it is."""
    path = tmp_path / "data" / "staging"
    path.mkdir(parents=True)
    path.chmod(0o777)
    path.parent.chmod(0o750)
    staging.make_directory(str(path))
    assert (mode(path), mode(path.parent)) == (0o700, 0o750)
    staging.make_directory(str(path))
    assert mode(path) == 0o700


@pytest.mark.parametrize("act", ["make", "open", "tidy", "part", "copy"])
def test_i6_a_linked_staging_directory_is_refused(directory: pathlib.Path, tmp_path: pathlib.Path, act: str) -> None:
    """I6: the staging directory's own name may not be a link, whatever is to be done in it."""
    link = tmp_path / "link"
    link.symlink_to(directory)
    (directory / NAME).write_bytes(CONTENT)
    acts = {
        "make": lambda: staging.make_directory(str(link)),
        "open": lambda: staging.open_staged(str(link), NAME),
        "tidy": lambda: staging.tidy(str(link), ()),
        "part": lambda: staging.open_part(str(link / "x.part")),
        "copy": lambda: staging.copy_verified(0, str(link / "x"), 1, SHA256),
    }
    refusal = refusal_of(acts[act])
    assert refusal.code == codes.STAGED_UNSAFE
    assert "%s is a symbolic link" % link in refusal.text
    assert [path.name for path in directory.iterdir()] == [NAME]


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: pathlib.Path) -> None:
    """A file is not a directory, and the message says so."""
    (tmp_path / "file").write_bytes(b"")
    refusal = refusal_of(lambda: staging.open_staged(str(tmp_path / "file"), NAME))
    assert "is a regular file, not a directory" in refusal.text


def test_a_link_above_the_directory_is_the_operators(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An operator may have moved the data directory to another disk by a link."""
    (tmp_path / "moved").symlink_to(directory.parent)
    (directory / NAME).write_bytes(CONTENT)
    os.close(staging.open_staged(str(tmp_path / "moved" / "staging"), NAME))


def test_the_root_directory_can_be_opened() -> None:
    """The path without a name of its own."""
    os.close(opening.open_directory("/"))


# --- the staged file ---


def test_a_plain_file_is_opened(directory: pathlib.Path) -> None:
    """The descriptor reads the file, and no other is left open."""
    (directory / NAME).write_bytes(CONTENT)
    before = open_files()
    descriptor = staging.open_staged(str(directory), NAME, owner_uid=os.geteuid())
    assert open_files() == before + 1
    assert os.pread(descriptor, len(CONTENT) + 1, 0) == CONTENT
    os.close(descriptor)


def test_a_missing_file_is_missing(directory: pathlib.Path) -> None:
    """Not there is no refusal."""
    with pytest.raises(FileNotFoundError):
        staging.open_staged(str(directory), NAME)


def plant(directory: pathlib.Path, kind: str) -> None:
    """Put something else under the staged file's name."""
    path = directory / NAME
    other = directory.parent / "other"
    other.write_bytes(CONTENT)
    if kind == "link":
        path.symlink_to(other)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "hardlink":
        os.link(other, path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))


PLANTED = {
    "link": "a symbolic link, not a plain file",
    "dangling": "a symbolic link, not a plain file",
    "hardlink": "a file with 2 links, not one",
    "directory": "a directory, not a plain file",
    "fifo": "a FIFO, not a plain file",
    "socket": "a socket, not a plain file",
    "device": "a device, not a plain file",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_i6_what_is_planted_is_refused(directory: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: links, hard links, FIFOs and the rest are refused by name, at once, and nothing stays open."""
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    monkeypatch.chdir(directory)
    plant(directory, kind)
    before = open_files()
    refusal = refusal_of(lambda: staging.open_staged(str(directory), NAME))
    assert refusal.code == codes.STAGED_UNSAFE
    assert "%s is %s" % (directory / NAME, PLANTED[kind]) in refusal.text
    assert open_files() == before


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b"])
def test_i6_only_plain_names_are_opened(directory: pathlib.Path, name: str) -> None:
    """I6: a name cannot lead out of the directory."""
    assert refusal_of(lambda: staging.open_staged(str(directory), name)).code == codes.STAGED_UNSAFE


@needs_root
def test_another_owner_is_refused(directory: pathlib.Path) -> None:
    """Where the owner is known, a file of somebody else is not taken."""
    path = directory / NAME
    path.write_bytes(CONTENT)
    os.chown(path, 4711, 4711)
    refusal = refusal_of(lambda: staging.open_staged(str(directory), NAME, owner_uid=4712))
    assert "owned by uid 4711, not 4712" in refusal.text
    os.close(staging.open_staged(str(directory), NAME, owner_uid=4711))
    os.close(staging.open_staged(str(directory), NAME))


def test_i6_swapping_the_name_after_the_check_changes_nothing(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """I6: what was opened is what is copied, whatever the name means by then."""
    path = directory / NAME
    path.write_bytes(CONTENT)
    descriptor = staging.open_staged(str(directory), NAME)
    path.unlink()
    path.write_bytes(b"evil" * 200_000)
    staging.copy_verified(descriptor, str(tmp_path / "slot"), len(CONTENT), SHA256)
    os.close(descriptor)
    assert (tmp_path / "slot").read_bytes() == CONTENT


def test_i6_a_name_swapped_all_the_time_never_gets_through(directory: pathlib.Path) -> None:
    """I6: raced against links and plain files under one name, only plain files are ever opened."""
    secret = directory.parent / "secret"
    secret.write_bytes(b"secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (directory / "new").write_bytes(b"plain")
            os.replace(directory / "new", directory / NAME)
            os.symlink(secret, directory / "link")
            os.replace(directory / "link", directory / NAME)

    (directory / NAME).write_bytes(b"plain")
    thread = threading.Thread(target=swap)
    thread.start()
    opened, tries, until = 0, 0, time.monotonic() + 60
    try:
        while tries < 300 or (not opened and time.monotonic() < until):  # a busy machine may need more tries
            tries += 1
            try:
                descriptor = staging.open_staged(str(directory), NAME)
            except (codes.Refused, FileNotFoundError):
                continue
            assert os.read(descriptor, 100) == b"plain"
            os.close(descriptor)
            opened += 1
    finally:
        stop.set()
        thread.join()
    assert opened


# --- copying ---


@pytest.fixture(name="source")
def _source(directory: pathlib.Path) -> Iterator[int]:
    (directory / NAME).write_bytes(CONTENT)
    descriptor = staging.open_staged(str(directory), NAME)
    yield descriptor
    os.close(descriptor)


def test_a_copy_is_exactly_the_bytes(source: int, tmp_path: pathlib.Path) -> None:
    """Whatever the descriptor's position is, the whole file is copied; the copy is another inode."""
    os.lseek(source, 0, os.SEEK_END)
    before = open_files()
    staging.copy_verified(source, str(tmp_path / "slot"), len(CONTENT), SHA256, mode=0o700)
    assert (tmp_path / "slot").read_bytes() == CONTENT
    assert mode(tmp_path / "slot") == 0o700
    assert (tmp_path / "slot").stat().st_ino != os.fstat(source).st_ino
    assert open_files() == before


@pytest.mark.parametrize("change", [-1, 1, -len(CONTENT), 1 << 40])
def test_another_size_leaves_nothing(source: int, tmp_path: pathlib.Path, change: int) -> None:
    """Too long or too short is refused with both sizes, and no file is left."""
    size = len(CONTENT) + change
    refusal = refusal_of(lambda: staging.copy_verified(source, str(tmp_path / "slot"), size, SHA256))
    assert refusal.code == codes.SIZE_MISMATCH
    assert "is %d bytes, the release says %d" % (len(CONTENT), size) in refusal.text
    assert not (tmp_path / "slot").exists()


def test_other_bytes_leave_nothing(source: int, tmp_path: pathlib.Path) -> None:
    """Another digest is refused with both, and no file is left."""
    refusal = refusal_of(lambda: staging.copy_verified(source, str(tmp_path / "slot"), len(CONTENT), "0" * 64))
    assert refusal.code == codes.DIGEST_MISMATCH
    assert SHA256 in refusal.text
    assert "0" * 64 in refusal.text
    assert not (tmp_path / "slot").exists()


def test_bytes_that_change_while_they_are_copied_are_caught(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """I6: the digest is of the bytes written, so a writer in the middle cannot pass a check of other bytes."""
    path = directory / NAME
    path.write_bytes(CONTENT)
    descriptor = staging.open_staged(str(directory), NAME)
    stop = threading.Event()

    def scribble() -> None:
        with open(path, "r+b") as file:
            while not stop.is_set():
                for block in (b"\0" * len(CONTENT), CONTENT):
                    file.seek(0)
                    file.write(block)

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _number in range(20):
            try:
                staging.copy_verified(descriptor, str(tmp_path / "slot"), len(CONTENT), SHA256)
            except codes.Refused:
                assert not (tmp_path / "slot").exists()
            else:
                assert hashlib.sha256((tmp_path / "slot").read_bytes()).hexdigest() == SHA256
    finally:
        stop.set()
        thread.join()
        os.close(descriptor)


def test_D16_the_name_is_replaced_never_written_through(source: int, tmp_path: pathlib.Path) -> None:
    """D16, I6: what lies under the target's name is unlinked: a running program, a link, a hard link, a FIFO."""
    victim = tmp_path / "victim"
    target = tmp_path / "slot"
    for kind in ("link", "hardlink", "fifo", "running"):
        victim.write_bytes(b"precious")
        running = None
        if kind == "link":
            target.symlink_to(victim)
        elif kind == "hardlink":
            os.link(victim, target)
        elif kind == "fifo":
            os.mkfifo(target)
        else:
            target.write_bytes(pathlib.Path("/bin/sleep").read_bytes())
            target.chmod(0o755)
            running = subprocess.Popen([str(target), "30"])
        staging.copy_verified(source, str(target), len(CONTENT), SHA256)
        if running is not None:
            assert running.poll() is None
            running.kill()
            running.wait()
        assert target.read_bytes() == CONTENT
        assert victim.read_bytes() == b"precious"
        target.unlink()


def test_P1_a_copy_is_synced_before_it_is_closed(
    source: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: mode, then fsync, then close, and an error of any of them is an error of the copy that leaves no file."""
    calls = []
    real_close, real_sync, real_mode = os.close, os.fsync, os.fchmod

    def close(descriptor: int) -> None:
        calls.append("close")
        real_close(descriptor)

    def sync(descriptor: int) -> None:
        calls.append("fsync")
        real_sync(descriptor)

    def change(descriptor: int, bits: int) -> None:
        calls.append("%o" % bits)
        real_mode(descriptor, bits)

    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fchmod", change)
    staging.copy_verified(source, str(tmp_path / "slot"), len(CONTENT), SHA256)
    assert calls[calls.index("755") :][:3] == ["755", "fsync", "close"]

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        staging.copy_verified(source, str(tmp_path / "slot"), len(CONTENT), SHA256)
    assert not (tmp_path / "slot").exists()


def test_an_empty_file_can_be_copied(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The smallest file is no special case."""
    (directory / NAME).write_bytes(b"")
    descriptor = staging.open_staged(str(directory), NAME)
    staging.copy_verified(descriptor, str(tmp_path / "slot"), 0, hashlib.sha256(b"").hexdigest())
    os.close(descriptor)
    assert (tmp_path / "slot").read_bytes() == b""


# --- parts ---


def test_a_part_is_taken_up(directory: pathlib.Path) -> None:
    """What is ours and plain is continued, and made private."""
    path = directory / "x.part"
    path.write_bytes(b"begun")
    path.chmod(0o666)
    descriptor = staging.open_part(str(path))
    assert os.read(descriptor, 10) == b"begun"
    os.close(descriptor)
    assert mode(path) == 0o600


@needs_root
def test_a_part_of_somebody_else_is_not(directory: pathlib.Path) -> None:
    """Another user's file keeps its bytes to itself: a new one takes its name."""
    path = directory / "x.part"
    path.write_bytes(b"begun")
    os.chown(path, 4711, 4711)
    descriptor = staging.open_part(str(path))
    assert os.read(descriptor, 10) == b""
    os.close(descriptor)
    assert path.stat().st_uid == os.geteuid()


# --- tidying ---


def test_D3_staging_is_bounded(directory: pathlib.Path) -> None:
    """D3: what other versions left goes, whatever it is; directories and what is kept stay."""
    for name in (NAME, NAME + ".part", "slotward-1.0.0", "slotward-1.0.0.part", "slotward-2.0.0-rc.1+x", "note"):
        (directory / name).write_bytes(b"x")
    (directory / "slotward-0.9.0").symlink_to("/etc/passwd")
    os.mkfifo(directory / "slotward-0.8.0")
    (directory / "slotward-0.7.0").mkdir()
    gone = ["slotward-0.8.0", "slotward-0.9.0", "slotward-1.0.0", "slotward-1.0.0.part", "slotward-2.0.0-rc.1+x"]
    assert staging.tidy(str(directory), (NAME, NAME + ".part"), "slotward") == gone
    left = sorted(path.name for path in directory.iterdir())
    assert left == ["note", "slotward-0.7.0", NAME, NAME + ".part"]
    assert staging.tidy(str(directory), (NAME, NAME + ".part"), "slotward") == []
    assert staging.tidy(str(directory), ()) == ["note", NAME, NAME + ".part"]
    assert pathlib.Path("/etc/passwd").exists()


def test_D3_another_products_files_stay(directory: pathlib.Path) -> None:
    """D3: a product does not own what begins with its name; only `<product>-<version>` is its own."""
    for name in ("agent-1.0.0", "agent-x-1.0.0", "agent-1-2.0.0", "agents-1.0.0", "agent-1.0.0.part", "agent-latest"):
        (directory / name).write_bytes(b"x")
    assert staging.tidy(str(directory), (), "agent") == ["agent-1.0.0", "agent-1.0.0.part"]


# --- adoption ---


@pytest.fixture(name="entrypoint")
def _entrypoint(tmp_path: pathlib.Path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    path = tmp_path / "bin" / "agent"
    path.parent.mkdir()
    path.parent.chmod(0o755)
    path.write_bytes(CONTENT)
    path.chmod(0o755)
    return path


def test_a_plain_file_of_roots_is_adoptable(entrypoint: pathlib.Path) -> None:
    """The usual case: the descriptor is the file's, and the check leaves nothing open."""
    before = open_files()
    assert adoption.adoptable(str(entrypoint)) is None
    assert open_files() == before
    descriptor = adoption.open_adoptable(str(entrypoint))
    assert os.pread(descriptor, 10, 0) == CONTENT[:10]
    os.close(descriptor)


def test_a_link_to_somewhere_else_is_not_adopted(entrypoint: pathlib.Path) -> None:
    """Somebody pointed the entrypoint elsewhere: that is said, with where."""
    entrypoint.unlink()
    entrypoint.symlink_to("/opt/other/agent")
    refusal = adoption.adoptable(str(entrypoint))
    assert refusal is not None
    assert refusal.code == codes.ENTRYPOINT_ELSEWHERE
    assert "a link to /opt/other/agent: set [update] entrypoint" in refusal.text


def test_nothing_at_the_entrypoint(entrypoint: pathlib.Path) -> None:
    """Neither a file nor its directory."""
    for gone in (entrypoint, entrypoint.parent):
        gone.rmdir() if gone.is_dir() else gone.unlink()
        refusal = adoption.adoptable(str(entrypoint))
        assert refusal is not None
        assert refusal.code == codes.ENTRYPOINT_ELSEWHERE
        assert "there is nothing at the entrypoint %s" % entrypoint in refusal.text


def fifo_instead(path: pathlib.Path) -> None:
    """Put a FIFO in a file's place."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda path: path.chmod(0o775), "may be written by others (mode 0775)"),
        (lambda path: path.chmod(0o757), "may be written by others (mode 0757)"),
        (lambda path: os.link(path, path.parent / "other"), "has 2 links, not one"),
        (lambda path: (path.unlink(), path.mkdir()), "is a directory, not a plain file"),
        (fifo_instead, "is a FIFO, not a plain file"),
        (lambda path: path.parent.chmod(0o775), "lies in {parent}, which others may write (mode 0775)"),
        (lambda path: path.parent.parent.chmod(0o757), "lies in {above}, which others may write (mode 0757)"),
    ],
)
def test_i6_what_others_could_have_written_is_not_adopted(
    entrypoint: pathlib.Path, spoil: Callable[[pathlib.Path], object], text: str
) -> None:
    """I6: root copies nothing that somebody else may have made, and says what to mend."""
    spoil(entrypoint)
    before = open_files()
    refusal = adoption.adoptable(str(entrypoint))
    assert refusal is not None
    assert refusal.code == codes.ENTRYPOINT_UNSAFE
    assert text.format(parent=entrypoint.parent, above=entrypoint.parent.parent) in refusal.text
    assert open_files() == before


@needs_root
def test_i6_another_users_file_or_directory_is_not_adopted(entrypoint: pathlib.Path) -> None:
    """I6: the owner of the file, and of each directory on the way, is root."""
    os.chown(entrypoint, 4711, 0)
    refusal = adoption.adoptable(str(entrypoint))
    assert refusal is not None
    assert "is owned by uid 4711, not by root" in refusal.text
    os.chown(entrypoint, 0, 0)
    os.chown(entrypoint.parent, 4711, 0)
    refusal = adoption.adoptable(str(entrypoint))
    assert refusal is not None
    assert "lies in %s, which is owned by uid 4711" % entrypoint.parent in refusal.text


def test_a_sticky_directory_is_no_danger(entrypoint: pathlib.Path) -> None:
    """In a sticky directory nobody replaces another's file."""
    entrypoint.parent.chmod(0o1777)
    assert adoption.adoptable(str(entrypoint)) is None


def test_a_socket_at_the_entrypoint_is_no_file(entrypoint: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot even be opened is refused with the system's words."""
    monkeypatch.chdir(entrypoint.parent)
    entrypoint.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("agent")
        refusal = adoption.adoptable(str(entrypoint))
    assert refusal is not None
    assert refusal.code == codes.ENTRYPOINT_UNSAFE
    assert re.search("cannot open the entrypoint .*: No such device", refusal.text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.text(max_size=12))
def test_no_name_opens_anything_outside(directory: pathlib.Path, name: str) -> None:
    """Whatever a name is, nothing but a plain file of the directory is opened."""
    try:
        descriptor = staging.open_staged(str(directory), name)
    except (codes.Refused, FileNotFoundError, UnicodeEncodeError):
        return
    os.close(descriptor)
    raise AssertionError("the directory is empty, and %r was opened in it" % name)
