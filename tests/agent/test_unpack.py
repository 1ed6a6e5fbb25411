# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpacking: what real tars wrote comes out right under any umask; what is wrong, or cut short, leaves nothing behind."""

from __future__ import annotations

import gzip
import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from support import tars

from slotcore import archive, codes, listings
from slotward import trees, unpack

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = b"#!/bin/sh\nexit 0\n"
GOOD = tars.packed(
    tars.directory(b"app-1.0/", mode=b"0000700\0"),
    tars.member(b"app-1.0/app", PROGRAM, mode=b"0004711\0"),
    tars.member(b"app-1.0/lib/x/data", b"1" * 700, mode=b"0000000\0"),
    tars.directory(b"app-1.0/empty/"),
    tars.member(b"app-1.0/tool", b"2", mode=b"0000777\0"),
)
WRITTEN = {"app": (0o755, PROGRAM), "lib/x/data": (0o644, b"1" * 700), "tool": (0o755, b"2")}


@pytest.fixture(name="versions")
def _versions(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "app" / "versions"


def put(
    versions: pathlib.Path,
    data: bytes,
    version: str = "1.0.0",
    size: Optional[int] = None,
    sha256: Optional[str] = None,
    kind: str = "tar.gz",
) -> Tuple[listings.Entry, ...]:
    """Unpack these bytes, which are said to have this size and digest (default: their own), and give them their name."""
    path = versions.parent.parent / "archive"
    path.write_bytes(data)
    source = os.open(path, os.O_RDONLY)
    try:
        said = len(data) if size is None else size
        artifact = unpack.Artifact(source, said, sha256 or hashlib.sha256(data).hexdigest(), kind)
        entries = unpack.unpack(artifact, str(versions), version, "app")
    finally:
        os.close(source)
    assert max(os.listdir(versions)).endswith(version + unpack.PARTIAL)  # its name is given by whoever asked
    os.rename(versions / (version + unpack.PARTIAL), versions / version)
    return entries


def files(directory: pathlib.Path) -> Dict[str, Tuple[int, bytes]]:
    """Mode and bytes of each file below a directory; each directory on the way is 0755."""
    found = {}
    for path in sorted(directory.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_dir():
            assert mode == 0o755, path
        else:
            found[str(path.relative_to(directory))] = (mode, path.read_bytes())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    return found


def refused(
    versions: pathlib.Path, data: bytes, size: Optional[int] = None, sha256: Optional[str] = None
) -> codes.Refused:
    """The refusal, which leaves nothing behind."""
    before = sorted(os.listdir(versions)) if versions.exists() else []
    with pytest.raises(codes.Refused) as caught:
        put(versions, data, size=size, sha256=sha256)
    assert (sorted(os.listdir(versions)) if versions.exists() else []) == before
    return caught.value


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_D13_the_tree_is_the_same_under_any_umask(versions: pathlib.Path, umask: int) -> None:
    """D13: directories 0755, programs 0755, files 0644, whatever the archive and the umask say."""
    old = os.umask(umask)
    try:
        put(versions, GOOD)
    finally:
        os.umask(old)
    assert os.listdir(versions) == ["1.0.0"]
    assert files(versions / "1.0.0") == WRITTEN
    assert (versions / "1.0.0" / "empty").is_dir()
    assert [stat.S_IMODE(place.stat().st_mode) for place in (versions, versions.parent)] == [0o755, 0o755]
    assert (versions / "1.0.0" / "app").stat().st_uid == os.geteuid()


def tree(directory: pathlib.Path) -> None:
    """What the tars are given: long names, other letters, set-uid, an owner of another machine."""
    (directory / "app-1.0" / "lib").mkdir(parents=True)
    (directory / "app-1.0" / "app").write_bytes(PROGRAM)
    (directory / "app-1.0" / "app").chmod(0o4755)
    (directory / "app-1.0" / "lib" / ("n" * 180)).write_bytes(b"3" * 3000)
    (directory / "app-1.0" / "lib" / "é").write_bytes(b"")
    if os.geteuid() == 0:
        os.chown(directory / "app-1.0" / "lib", 3_000_000, 3_000_000)


TARS: Dict[str, List[str]] = {
    "gnu": ["tar", "-czf", "out", "app-1.0"],
    "gnu-root": ["tar", "-C", "app-1.0", "-czf", "../out", "."],
    "gnu-posix": ["tar", "--format=posix", "-czf", "out", "app-1.0"],
    "gnu-oldgnu": ["tar", "--format=oldgnu", "-czf", "out", "app-1.0"],
    "gnu-blocked": ["tar", "-b", "1024", "-czf", "out", "app-1.0"],
    "bsdtar": ["bsdtar", "-czf", "out", "app-1.0"],
    "bsdtar-pax": ["bsdtar", "--format=pax", "-czf", "out", "app-1.0"],
    "bsdtar-gnu": ["bsdtar", "--format=gnutar", "-czf", "out", "app-1.0"],
    "busybox": ["busybox", "tar", "-czf", "out", "app-1.0"],
    "python": [sys.executable, "-m", "tarfile", "-c", "out.tar.gz", "app-1.0"],
}


@pytest.mark.parametrize("name", TARS)
def test_what_real_tars_write_comes_out_right(tmp_path: pathlib.Path, versions: pathlib.Path, name: str) -> None:
    """GNU tar, bsdtar, busybox and Python, in the formats that they choose or are told."""
    if shutil.which(TARS[name][0]) is None:
        pytest.skip("there is no %s here" % TARS[name][0])
    tree(tmp_path)
    argv = [word.replace("../out", str(tmp_path / "out")) for word in TARS[name]]
    done = subprocess.run(argv, cwd=tmp_path, env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    put(versions, (tmp_path / ("out.tar.gz" if name == "python" else "out")).read_bytes())
    lib = {"lib/" + "n" * 180: (0o644, b"3" * 3000), "lib/é": (0o644, b"")}
    assert files(versions / "1.0.0") == {"app": (0o755, PROGRAM), **lib}


def test_a_second_version_lies_beside_the_first(versions: pathlib.Path) -> None:
    """Nothing of another version is touched, and nothing is written over."""
    put(versions, GOOD)
    put(versions, tars.packed(tars.member(b"app", b"new")), "1.1.0")
    assert files(versions / "1.0.0") == WRITTEN
    assert files(versions / "1.1.0") == {"app": (0o755, b"new")}
    error = refused(versions, GOOD)
    assert error.code == codes.ALREADY_EXISTS
    assert str(versions / "1.0.0") in error.text


HOSTILE: Dict[str, bytes] = {
    "traversal": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"../../outside", b"x")),
    "absolute": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"/outside", b"x")),
    "link": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"lib", flag=b"2", link=b"/")),
    "through-link": tars.packed(
        tars.member(b"app", PROGRAM), tars.member(b"lib", flag=b"2", link=b"../.."), tars.member(b"lib/outside", b"x")
    ),
    "hard-link": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"x", flag=b"1", link=b"/etc/passwd")),
    "device": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"x", flag=b"4")),
    "fifo": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"x", flag=b"6")),
    "twice": tars.packed(tars.member(b"app", PROGRAM), tars.member(b"app", b"other")),
    "no-end": tars.packed(tars.member(b"app", PROGRAM), end=b""),
    "trailing": tars.packed(tars.member(b"app", PROGRAM)) + b"x",
    "two-members": tars.packed(tars.member(b"app", PROGRAM)) * 2,
    "truncated": GOOD[:-9],
    "no-program": tars.packed(tars.member(b"other", PROGRAM)),
    "two-programs": tars.packed(tars.member(b"a/app", PROGRAM), tars.member(b"b/app", PROGRAM)),
    "not-gzip": b"#!/bin/sh\n",
    "huge": gzip.compress(tars.header(size=b"77777777777\0")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_written_of_a_hostile_archive(versions: pathlib.Path, name: str) -> None:
    """The whole archive is checked before the first byte is written, so there is not even a directory."""
    before = sorted(path.name for path in versions.parent.parent.iterdir())
    assert refused(versions, HOSTILE[name]).code == codes.BAD_ARCHIVE
    assert not versions.exists()
    assert sorted(path.name for path in versions.parent.parent.iterdir()) == [*before, "archive"]


def test_other_bytes_than_the_releases_are_refused(versions: pathlib.Path) -> None:
    """By digest and by size, both of which the signed manifest says."""
    assert refused(versions, GOOD, sha256="0" * 64).code == codes.DIGEST_MISMATCH
    assert refused(versions, GOOD, size=len(GOOD) + 1).code == codes.SIZE_MISMATCH
    assert refused(versions, GOOD + b"x", size=len(GOOD)).code in (codes.SIZE_MISMATCH, codes.BAD_ARCHIVE)


@pytest.mark.parametrize("version", ["", ".", "..", "../1.0.0", "1.0", "1.0.0/..", "1.0.0.partial", "1.0.0\n"])
def test_only_a_version_names_a_directory(versions: pathlib.Path, version: str) -> None:
    """Nothing else is ever joined to the path."""
    with pytest.raises(codes.Refused) as caught:
        put(versions, GOOD, version)
    assert caught.value.code == codes.NOT_A_RELEASE
    assert not versions.exists()


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "directory"])
def test_what_lies_in_the_way_is_removed_and_not_followed(versions: pathlib.Path, kind: str) -> None:
    """A leftover under the temporary name, whatever it is; what a link names stays."""
    versions.mkdir(parents=True)
    partial, other = versions / "1.0.0.partial", versions.parent / "other"
    other.mkdir()
    (other / "kept").write_bytes(b"kept")
    if kind == "file":
        partial.write_bytes(b"x")
    elif kind == "link":
        partial.symlink_to(other)
    elif kind == "fifo":
        os.mkfifo(partial)
    else:
        (partial / "deep" / "er").mkdir(parents=True)
        (partial / "deep" / "link").symlink_to(other)
    put(versions, GOOD)
    assert files(versions / "1.0.0") == WRITTEN
    assert os.listdir(versions) == ["1.0.0"]
    assert (other / "kept").read_bytes() == b"kept"


def test_a_linked_versions_directory_is_refused(versions: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Its own name is never a link."""
    versions.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    versions.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(codes.Refused) as caught:
        put(versions, GOOD)
    assert caught.value.code == codes.STAGED_UNSAFE
    assert not os.listdir(tmp_path / "elsewhere")


def test_an_archive_that_changes_between_the_passes_is_refused(
    versions: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second pass is checked as the first was, and leaves nothing."""
    other = tars.packed(tars.member(b"app-1.0/app", b"#!/bin/sh\nexit 1\n", mode=b"0000755\0"))
    rooms = unpack._room

    def swap(*arguments: object) -> None:
        path = versions.parent.parent / "archive"
        path.write_bytes(other + bytes(max(0, len(GOOD) - len(other))))
        rooms(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(unpack, "_room", swap)
    with pytest.raises(codes.Refused):
        put(versions, GOOD)
    assert os.listdir(versions) == []


def test_the_same_members_with_other_bytes_are_refused_too(
    versions: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and sizes say nothing about bytes: the digest of the second pass decides."""
    one, two = (gzip.compress(tars.member(b"app", text) + tars.END, 0, mtime=0) for text in (b"good", b"evil"))
    rooms = unpack._room

    def swap(*arguments: object) -> None:
        (versions.parent.parent / "archive").write_bytes(two)
        rooms(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(unpack, "_room", swap)
    with pytest.raises(codes.Refused) as caught:
        put(versions, one)
    assert caught.value.code == codes.DIGEST_MISMATCH
    assert os.listdir(versions) == []


def test_no_space_is_said_before_the_first_byte(versions: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D1: with the directory, and both figures; the same for inodes."""
    found = os.statvfs(versions.parent.parent)

    def statvfs(**changes: int) -> Callable[[int], os.statvfs_result]:
        names = (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_flag",
            "f_namemax",
        )
        values = tuple(changes.get(name, getattr(found, name)) for name in names)
        return lambda _descriptor: os.statvfs_result(values)

    for changes, said in (
        ({"f_bavail": 1}, "bytes free and has"),
        ({"f_files": 100, "f_favail": 3}, "free inodes and has 3"),
    ):
        monkeypatch.setattr(os, "fstatvfs", statvfs(**changes))
        with pytest.raises(codes.Retryable) as caught:
            put(versions, GOOD)
        assert caught.value.code == codes.NO_SPACE
        assert said in caught.value.text
        assert os.listdir(versions) == []


@pytest.fixture(name="small")
def _small(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", place], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("cannot mount here: %r" % made.stderr)
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(small: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says in the middle is told as no space, and what was written is gone."""
    monkeypatch.setattr(unpack, "_room", lambda *_arguments: None)
    data = tars.packed(tars.member(b"app", os.urandom(1 << 20) * 44))
    versions = small / "app" / "versions"
    (small.parent / "archive").write_bytes(data)
    with open(small.parent / "archive", "rb") as file:
        artifact = unpack.Artifact(file.fileno(), len(data), hashlib.sha256(data).hexdigest())
        with pytest.raises(codes.Retryable) as caught:
            unpack.unpack(artifact, str(versions), "1.0.0", "app")
    assert caught.value.code == codes.NO_SPACE
    assert os.listdir(versions) == []


# --- cuts and memory ---

CUT = (
    "import os, signal, sys\n"
    "from slotward import unpack\n"
    "count = [int(sys.argv[5])]\n"
    "def cut(name):\n"
    "    real = getattr(os, name)\n"
    "    def called(*args, **more):\n"
    "        count[0] -= 1\n"
    "        if count[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
    "        return real(*args, **more)\n"
    "    setattr(os, name, called)\n"
    "for name in ('mkdir', 'fsync', 'fchmod', 'write', 'rename'): cut(name)\n"
    "source = os.open(sys.argv[1], os.O_RDONLY)\n"
    "artifact = unpack.Artifact(source, int(sys.argv[2]), sys.argv[3])\n"
    "unpack.unpack(artifact, sys.argv[4], '1.0.0', 'app')\n"
    "os.rename(sys.argv[4] + '/1.0.0.partial', sys.argv[4] + '/1.0.0')\n"
    "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])\n"
)


def run(path: pathlib.Path, data: bytes, versions: pathlib.Path, cut: int) -> subprocess.CompletedProcess[str]:
    """Unpack in a process of its own, which is killed at a call that changes something."""
    path.write_bytes(data)
    paths = os.pathsep.join(str(ROOT / place) for place in ("plugins/module_utils", "agent/src"))
    digest = hashlib.sha256(data).hexdigest()
    argv = [sys.executable, "-B", "-c", CUT, str(path), str(len(data)), digest, str(versions), str(cut)]
    return subprocess.run(argv, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)


def test_a_cut_leaves_only_a_partial_directory(tmp_path: pathlib.Path, versions: pathlib.Path) -> None:
    """Killed before each call that changes something: the version is whole or not there, and a sweep clears the rest."""
    for cut in range(100):
        shutil.rmtree(versions, ignore_errors=True)
        done = run(tmp_path / "archive", GOOD, versions, cut)
        left = sorted(os.listdir(versions)) if versions.exists() else []
        assert left in ([], ["1.0.0.partial"], ["1.0.0"]), cut
        if left == ["1.0.0"]:
            assert files(versions / "1.0.0") == WRITTEN
        elif left:
            if cut % 2:
                trees.discard(str(versions / "1.0.0.partial"))
                assert os.listdir(versions) == []
            else:
                put(versions, GOOD)
                assert os.listdir(versions) == ["1.0.0"]
        if done.returncode == 0:
            assert cut > 15
            return
    raise AssertionError("it never came to an end")


def test_memory_is_bounded_whatever_the_size(tmp_path: pathlib.Path, versions: pathlib.Path) -> None:
    """An archive with a file of 96 MiB takes no more than a small one, and at most 64 MiB."""
    data = tars.packed(tars.member(b"app", os.urandom(1 << 20) * 96))
    small = run(tmp_path / "archive", GOOD, versions.parent / "other", 1000)
    large = run(tmp_path / "archive", data, versions, 10_000)
    assert (small.returncode, large.returncode) == (0, 0), small.stderr + large.stderr
    assert int(large.stdout) <= 64 * 1024
    assert int(large.stdout) - int(small.stdout) <= 8 * 1024


def test_what_was_written_is_told_with_its_digests(versions: pathlib.Path) -> None:
    """That is the tree's listing: each directory, those that only names speak of among them, and each file."""
    entries = put(versions, GOOD)
    assert [(one.path, one.kind, one.mode) for one in entries if one.kind == listings.DIRECTORY] == [
        (name, "directory", 0o755) for name in ("empty", "lib", "lib/x")
    ]
    assert {one.path: (one.mode, one.size, one.sha256) for one in entries if one.kind == listings.FILE} == {
        name: (mode, len(data), hashlib.sha256(data).hexdigest()) for name, (mode, data) in WRITTEN.items()
    }


@pytest.mark.parametrize("kind", ["binary", ""])
def test_a_program_becomes_a_directory_of_one_file(versions: pathlib.Path, kind: str) -> None:
    """Products.md, section 3; where nobody says the kind, the first bytes do."""
    assert [one.path for one in put(versions, PROGRAM, kind=kind)] == ["app"]
    assert files(versions / "1.0.0") == {"app": (0o755, PROGRAM)}
    assert next(one.path for one in put(versions, GOOD, "1.1.0", kind="")) == "app"
    with pytest.raises(codes.Refused) as caught:
        put(versions, PROGRAM, "1.2.0", sha256="0" * 64, kind=kind)
    assert caught.value.code == codes.DIGEST_MISMATCH
    assert sorted(os.listdir(versions)) == ["1.0.0", "1.1.0"]


def test_limits_are_the_callers(versions: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A product may allow less than the default, or more."""
    (tmp_path / "archive").write_bytes(GOOD)
    with open(tmp_path / "archive", "rb") as file:
        artifact = unpack.Artifact(file.fileno(), len(GOOD), hashlib.sha256(GOOD).hexdigest())
        with pytest.raises(codes.Refused) as caught:
            unpack.unpack(artifact, str(versions), "1.0.0", "app", archive.Limits(total=700))
        assert "at most 700 are taken" in caught.value.text
        unpack.unpack(artifact, str(versions), "1.0.0", "app", archive.Limits(total=718))
