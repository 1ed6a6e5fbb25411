# SPDX-License-Identifier: GPL-3.0-or-later
"""A listening socket is whole from the moment that it has its name, and takes only an old socket's place."""

from __future__ import annotations

import os
import pathlib
import socket
import stat
import threading
from typing import List, Tuple

import pytest

from agent import clients
from slotcore import codes
from slotward import binding

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a socket to another group")


def listen(path: pathlib.Path, mode: int = 0o660, gid: int | None = None) -> socket.socket:
    """A listener there."""
    return binding.listen(str(path), mode, os.getegid() if gid is None else gid, 4)


@needs_root
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_has_its_mode_and_group_whatever_the_umask(tmp_path: pathlib.Path, umask: int) -> None:
    """And nothing is left beside it."""
    old = os.umask(umask)
    try:
        listener = listen(tmp_path / "s", 0o660, 4343)
    finally:
        os.umask(old)
    with listener, clients.connect(str(tmp_path / "s")):
        found = (tmp_path / "s").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o660, 0, 4343)
        assert os.listdir(tmp_path) == ["s"]


def test_an_old_socket_is_replaced_and_never_missing(tmp_path: pathlib.Path) -> None:
    """Who looks all the while sees one or the other."""
    path = tmp_path / "s"
    seen: List[Tuple[int, int]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            found = os.stat(path)
            seen.append((stat.S_IMODE(found.st_mode), stat.S_IFMT(found.st_mode)))

    with listen(path):
        watcher = threading.Thread(target=watch)
        watcher.start()
        for _number in range(50):
            listen(path).close()
        done.set()
        watcher.join()
    assert set(seen) == {(0o660, stat.S_IFSOCK)}
    with pytest.raises(ConnectionRefusedError):
        clients.connect(str(path))
    with listen(path), clients.connect(str(path)):
        pass


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_anything_else_there_is_left_alone(tmp_path: pathlib.Path, kind: str) -> None:
    """It is no old socket of ours, whatever it is."""
    path, other = tmp_path / "s", tmp_path / "other"
    other.mkdir()
    makers = {"file": path.touch, "link": lambda: path.symlink_to(other / "s"), "directory": path.mkdir}
    makers[kind]()
    before = os.lstat(path)
    with pytest.raises(OSError, match="remove it"):
        listen(path)
    assert os.lstat(path) == before
    assert sorted(os.listdir(tmp_path)) == ["other", "s"]
    assert os.listdir(other) == []


def test_a_directory_is_not_reached_through_a_link(tmp_path: pathlib.Path) -> None:
    """Nor made where a link leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    with pytest.raises(codes.Refused, match="a symbolic link, not a directory"):
        listen(tmp_path / "way" / "s")
    assert os.listdir(tmp_path / "real") == []


def test_what_a_killed_start_left_is_taken_away(tmp_path: pathlib.Path) -> None:
    """The private directory with a socket in it; a plain file of that name in root's directory is an error that names it."""
    (tmp_path / binding.PRIVATE).mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / binding.PRIVATE / binding.NAME))
    listen(tmp_path / "s").close()
    assert os.listdir(tmp_path) == ["s"]
    (tmp_path / binding.PRIVATE).touch()
    with pytest.raises(FileExistsError, match="binding"):
        listen(tmp_path / "s")
