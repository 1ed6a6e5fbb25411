# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a slots directory: no user but root can take it, and who only looks stops nobody."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import threading
import time
from typing import Iterator, List

import pytest

from slotcore import codes
from slotcore import product as products
from slotward import lock, lock_owner

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user is root's to become")


@pytest.fixture(name="product")
def _product() -> Iterator[products.Product]:
    """Its slots directory can be reached by everybody, as on a host."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield products.Product("probe", "probe.service", "/nowhere", name)


def path_of(product: products.Product) -> pathlib.Path:
    """The lock's file."""
    return pathlib.Path(product.path("lock"))


def taken_by_nobody(product: products.Product) -> subprocess.CompletedProcess[str]:
    """Another user tries to lock the file, shared, which takes no more than reading."""
    command = ["flock", "--shared", "--nonblock", product.path("lock"), "true"]
    return subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False
    )


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """As another user, without root's privileges."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def looking(product: products.Product) -> Iterator[int]:
    """Somebody holds the lock shared, as a look does for a moment."""
    descriptor = os.open(path_of(product), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


@needs_root
@pytest.mark.parametrize("owner", [0, NOBODY])
@pytest.mark.parametrize("mode", [0o644, 0o666, 0o400])
def test_I8_another_user_cannot_stop_updates(product: products.Product, owner: int, mode: int) -> None:
    """Nor where the file is an earlier version's, or was given away: whoever takes the lock mends it."""
    path_of(product).touch()
    os.chown(path_of(product), owner, owner)
    path_of(product).chmod(mode)
    with lock.held(product, "test"):
        pass
    found = path_of(product).stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)
    tried = taken_by_nobody(product)
    assert tried.returncode != 0
    assert "Permission denied" in tried.stderr
    with lock.held(product, "test"):
        assert "Permission denied" in taken_by_nobody(product).stderr


@needs_root
def test_a_lock_that_everybody_may_read_can_be_taken_by_everybody(product: products.Product) -> None:
    """Why it must be root's alone; and that the user of these tests reaches the file."""
    path_of(product).touch(0o644)
    assert taken_by_nobody(product).returncode == 0


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_D13_a_new_lock_is_for_its_owner_alone_under_any_umask(product: products.Product, umask: int) -> None:
    """0600, and it works."""
    before = os.umask(umask)
    try:
        with lock.held(product, "test"):
            assert stat.S_IMODE(path_of(product).stat().st_mode) == 0o600
    finally:
        os.umask(before)


@needs_root
def test_only_root_sees_the_holder(product: products.Product) -> None:
    """Others see no lock, and get no error."""
    with lock.held(product, "upgrade to 1.1.0"):
        owner = lock.holder(product)
        assert owner is not None
        assert (owner.pid, owner.what) == (os.getpid(), "upgrade to 1.1.0")
        with as_nobody():
            assert lock.holder(product) is None
    assert lock.holder(product) is None


def test_two_changes_at_once_are_told_of_each_other(product: products.Product) -> None:
    """At once, with the owner's name."""
    with lock.held(product, "upgrade to 1.1.0"), pytest.raises(codes.Retryable) as caught, lock.held(product, "setup"):
        pass
    assert caught.value.code == codes.IN_PROGRESS
    assert f"upgrade to 1.1.0, process {os.getpid()}" in caught.value.text


def test_a_change_that_is_at_work_is_waited_for_where_that_is_asked_for(product: products.Product) -> None:
    """Until it has ended, or for so long."""
    descriptor = lock._open(product)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    began = time.monotonic()
    with pytest.raises(codes.Retryable) as caught, lock.held(product, "rollback", 0.4):
        pass
    assert caught.value.code == codes.IN_PROGRESS
    assert 0.4 <= time.monotonic() - began < 30
    timer = threading.Timer(0.4, os.close, (descriptor,))
    timer.start()
    with lock.held(product, "rollback", 60):
        assert lock.holder(product) is not None
    timer.join()
    assert time.monotonic() - began < 60


OLDER = "pid=%d\nsince=1.0\nwhat=an older change\n"


@pytest.mark.parametrize("number", [0, -1, 2**31 - 2, 10**30])
def test_who_holds_a_lock_with_a_label_of_nobody_s_is_told_by_the_kernel(
    product: products.Product, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk may keep whoever holds it from writing who it is; where the kernel does not know either, that is said."""
    descriptor = lock._open(product)
    os.write(descriptor, (OLDER % number).encode("ascii"))
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    owner = lock.holder(product)
    assert owner is not None
    assert owner.pid == os.getpid()
    assert owner.what.endswith(f", {lock_owner.FOREIGN}")
    monkeypatch.setattr(lock_owner, "LOCKS", "/proc/none")
    owner = lock.holder(product)
    os.close(descriptor)
    assert owner == (0, 0, f"an unknown change (process {number}, an older change, has ended)")


@pytest.mark.parametrize("stays", [True, False])
def test_S18_another_program_that_holds_the_lock_is_named(product: products.Product, stays: bool) -> None:
    """Whatever was written there before; and a process that got it from one that has ended."""
    path_of(product).write_text(OLDER % (2**31 - 2))
    path_of(product).chmod(0o600)
    holds = f"exec 9<>'{path_of(product)}'; flock 9; echo held; {'exec sleep 60' if stays else 'sleep 60 & exit'}"
    with subprocess.Popen(["sh", "-c", holds], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        if not stays:
            process.wait()
        until, owner = time.monotonic() + 30, None
        while time.monotonic() < until and (owner is None or not owner.what.startswith("sleep")):
            owner = lock.holder(product)
        assert owner is not None
        assert owner.what == f"sleep, {lock_owner.FOREIGN}"
        assert (owner.pid == process.pid) is stays
        assert owner.age_s < 60
        with pytest.raises(codes.Retryable) as caught, lock.held(product, "setup"):
            pass
        assert f"sleep, {lock_owner.FOREIGN}, process {owner.pid}" in caught.value.text
        os.kill(owner.pid, signal.SIGKILL)


def test_the_kernel_s_list_is_read_by_device_and_inode(product: products.Product) -> None:
    """Another file of that number on another disk is not taken for it, but where no device fits the number decides."""
    path_of(product).touch()
    found = path_of(product).stat()
    here = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    other = f"ff:fe:{found.st_ino}"
    lines = [
        f"1: FLOCK  ADVISORY  WRITE 11 {other} 0 EOF",
        f"2: POSIX  ADVISORY  WRITE 12 {here} 0 EOF",
        f"3: FLOCK  ADVISORY  WRITE 13 {here} 0 EOF",
        f"3: -> FLOCK  ADVISORY  WRITE 14 {here} 0 EOF",
        "nonsense",
    ]
    assert lock_owner.takers("\n".join(lines), found) == [13]
    assert lock_owner.takers("\n".join(lines[:2]), found) == [11]


@pytest.mark.parametrize("before", ["", OLDER % (2**31 - 2)], ids=["new", "used"])
def test_who_has_just_taken_the_lock_is_told_by_its_own_label(product: products.Product, before: str) -> None:
    """It is written a moment after the lock is taken: neither a process that is over nor one of nobody's is told of."""
    descriptor = lock._open(product)
    os.write(descriptor, before.encode("ascii"))
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    timer = threading.Timer(0.05, lock._sign, (descriptor, "settle"))
    timer.start()
    owner = lock.holder(product)
    timer.join()
    os.close(descriptor)
    assert owner is not None
    assert (owner.pid, owner.what) == (os.getpid(), "settle")


def test_a_look_stops_no_change(product: products.Product) -> None:
    """`update` holds the lock shared for a moment; a change that comes just then waits for it."""
    path_of(product).touch(0o600)
    with looking(product) as descriptor:
        timer = threading.Timer(0.1, fcntl.flock, (descriptor, fcntl.LOCK_UN))
        timer.start()
        with lock.held(product, "test"):
            assert lock.holder(product) is not None
        timer.join()


def test_waiting_for_looks_has_an_end(product: products.Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds it shared and never lets go is told of as any holder."""
    monkeypatch.setattr(lock, "LOOKS", 3)
    path_of(product).touch(0o600)
    with looking(product), pytest.raises(codes.Retryable) as caught, lock.held(product, "test"):
        pass
    assert caught.value.code == codes.IN_PROGRESS
    assert "an unknown change" in caught.value.text


def removed(product: products.Product, what: str) -> int:
    """A lock that is held, and whose file somebody has removed; the descriptor holds it."""
    descriptor = lock._open(product)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    lock._sign(descriptor, what)
    path_of(product).unlink()
    return descriptor


def test_a_lock_that_was_removed_while_it_is_held_is_held(product: products.Product) -> None:
    """Whoever comes is told who holds it, and leaves no new file that the next one would find free."""
    descriptor = removed(product, "upgrade to 1.1.0")
    for _turn in range(2):
        with pytest.raises(codes.Retryable) as caught, lock.held(product, "upgrade to 1.2.0"):
            pass
        assert caught.value.code == codes.IN_PROGRESS
        assert f"upgrade to 1.1.0, process {os.getpid()}" in caught.value.text
        assert not path_of(product).exists()
    owner = lock.holder(product)
    assert owner is not None
    assert owner.what == "upgrade to 1.1.0"
    os.close(descriptor)
    assert lock.holder(product) is None
    with lock.held(product, "upgrade to 1.2.0"):
        assert path_of(product).exists()


def test_a_removed_lock_is_waited_for_as_any_is(product: products.Product) -> None:
    """Where that is asked for."""
    descriptor = removed(product, "upgrade to 1.1.0")
    timer = threading.Timer(0.4, os.close, (descriptor,))
    timer.start()
    with lock.held(product, "rollback", 60):
        assert lock.holder(product) is not None
    timer.join()


def test_a_removed_lock_that_nobody_holds_stops_nothing(product: products.Product) -> None:
    """Somebody may still have it open: who waited for it, or looked."""
    descriptor = removed(product, "upgrade to 1.1.0")
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    with lock.held(product, "upgrade to 1.2.0"):
        assert path_of(product).exists()
    os.close(descriptor)


def test_who_waited_for_a_lock_that_was_removed_takes_the_one_that_is_there(
    product: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two would hold one each."""
    taken: List[int] = []
    take = lock._take

    def late(descriptor: int, asked: products.Product, until: float) -> None:
        if not taken:
            path_of(asked).unlink()
            path_of(asked).touch(0o600)
        taken.append(descriptor)
        take(descriptor, asked, until)

    monkeypatch.setattr(lock, "_take", late)
    with lock.held(product, "upgrade to 1.2.0"):
        assert len(taken) == 2
        with pytest.raises(codes.Retryable), lock.held(product, "setup"):
            pass


@needs_root
def test_only_roots_own_are_believed(product: products.Product) -> None:
    """Somebody else's file of that name, held by somebody else, stops nothing."""
    os.chmod(product.slots_dir, 0o777)
    script = "exec 9>lock; flock 9; rm lock; echo; exec sleep 60"
    with subprocess.Popen(
        ["sh", "-c", script], cwd=product.slots_dir, user=NOBODY, group=NOBODY, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with lock.held(product, "test"):
            assert path_of(product).exists()
        other.kill()
