# SPDX-License-Identifier: GPL-3.0-or-later
"""Every file that root reads, writes or replaces, against whatever may lie there in its place (I6; issue 3, "must be seen" 4).

`ROWS` is the table: what each opener does with a link, a hard link, a FIFO, a socket, a device, a directory. None waits,
none takes bytes that it may not take, none changes anything outside. `COVERED` maps each place of the agent's source that
opens or changes a path to its row, or says why it needs none; a place that is in neither list fails a test.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from typing import Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import pytest

from slotcore import codes, ops, phases, protocol, records, settle
from slotcore import config as configs
from slotcore import product as products
from slotward import (
    adoption,
    audit_tail,
    broken,
    builds,
    calling,
    download,
    elf,
    executor,
    fetch,
    host,
    inbox,
    installed,
    lock,
    node,
    opening,
    own,
    preflight,
    prepare,
    probe_http,
    process,
    progress_file,
    staging,
    trees,
    triggers,
    unpack,
)  # fmt: skip

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes devices and gives files to another user")

AGENT = pathlib.Path(__file__).resolve().parents[2] / "agent" / "src" / "slotward"
SECONDS = 20.0
CONTENT = b"#!/bin/sh\nexit 0\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
CONFIG = b'log_level = "debug"\n'
TARGET = json.dumps({"product": "slotward", "version": "1.1.0", "url": "", "sha256": SHA256, "signature": ""}).encode(
    "ascii"
)

KINDS = ("missing", "link", "dangling", "loop", "hard-link", "fifo", "socket", "null", "zero", "directory")
REFUSED = (codes.Refused, codes.Retryable, codes.BrokenRecord, codes.BadConfig, OSError)


class Hung(BaseException):
    """It waited; no handler of the agent catches this."""


class Row(NamedTuple):
    """One opener. `use` answers True when it took what lies at the path, False when it had nothing to say of it."""

    name: str
    use: Callable[[pathlib.Path], bool]
    takes: FrozenSet[str] = frozenset()
    """Kinds that it may take; a plain file it always does."""
    content: bytes = CONTENT
    replaces: bool = False
    """It puts a new file of its own in the place of what lies there."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Whoever waits inside is ended."""

    def hung(_number: int, _frame: object) -> None:
        raise Hung

    old = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def product_at(slots: pathlib.Path, name: str = "slotward") -> products.Product:
    """A product with its slots there."""
    return products.Product(name, "slotward.service", str(slots / "entry"), str(slots))


# --- the openers, each as the agent itself calls it ---


def use_config(path: pathlib.Path) -> bool:
    """The configuration at every start; what is wrong with it refuses updates and everything has its default."""
    config, problems = own.read_config(str(path))
    assert bool(problems) == (config.log_level != "debug")
    if problems:
        raise codes.BadConfig(problems)
    return config.log_level == "debug"


def use_target(path: pathlib.Path) -> bool:
    """The target file of prepare and upgrade."""
    return prepare.read_target(str(path)).sha256 == SHA256


def use_named(path: pathlib.Path) -> bool:
    """A manifest of setup, and whatever else an operator names."""
    return host.read_bytes(str(path)) is not None


def use_document(path: pathlib.Path) -> bool:
    """A permit, a key set or a withdrawal."""
    return prepare.read_document(str(path)) == CONTENT


def use_probe_ca(path: pathlib.Path) -> bool:
    """The authorities of an HTTP probe; these bytes are none, so a plain file is refused too."""
    try:
        probe_http.context_of(str(path))
    except ssl.SSLError as error:
        raise codes.refused(codes.NO_CA_ROOTS, str(error)) from error
    return True


def use_digest(path: pathlib.Path) -> bool:
    """The bytes of a slot or of the entrypoint, hashed."""
    return prepare.digest_of(str(path)) == SHA256


def use_built_in(path: pathlib.Path) -> bool:
    """What a build says of itself; nothing of this sort is one."""
    assert builds.built_in(str(path)) == ("unknown", 0)
    return False


def use_program(path: pathlib.Path) -> bool:
    """The look at a program before the switch."""
    refusal = elf.check_program(str(path))
    if refusal is not None:
        raise codes.Refused(refusal)
    return True


def use_damage(path: pathlib.Path) -> bool:
    """The bytes that a start runs, compared with their record."""
    slots = path.parent / "damaged"
    slots.mkdir()
    (slots / "current").symlink_to(path)
    record = records.SlotRecord("1.0.0", 1, SHA256, len(CONTENT))
    state = host.read_state(product_at(slots))._replace(current="a", slots={"a": record}, broken=None, in_use=True)
    text = host.damage(product_at(slots), state)
    if text and "is not executable" not in text:
        raise OSError(text)
    return True


def use_ca_file(path: pathlib.Path) -> bool:
    """The authorities of the configuration; these bytes are none, so a plain file is refused too."""
    refusal = download.check_authorities("https://x/", download.Transport(ca_file=str(path)))
    assert refusal is not None
    raise codes.Refused(refusal)


def use_pushed(path: pathlib.Path) -> bool:
    """A file that a controller pushed (--src)."""
    return read_all(fetch.pushed(str(path)))


def use_staged(path: pathlib.Path) -> bool:
    """The staged file."""
    return read_all(staging.open_staged(str(path.parent), path.name))


def use_part(path: pathlib.Path) -> bool:
    """A download's part: an earlier one of ours, or a new empty file."""
    descriptor = staging.open_part(str(path))
    os.pwrite(descriptor, b"ours", 0)
    os.close(descriptor)
    return False


def use_copy(path: pathlib.Path) -> bool:
    """The slot that verified bytes are copied to."""
    source = path.parent / "source"
    source.write_bytes(CONTENT)
    with open(source, "rb") as file:
        staging.copy_verified(file.fileno(), str(path), len(CONTENT), SHA256)
    return False


def use_write(path: pathlib.Path) -> bool:
    """A record or a system file, written by a plan."""
    run_ops(ops.Write(str(path), b"ours", 0o644))
    return False


def use_link(path: pathlib.Path) -> bool:
    """A link that a plan makes."""
    run_ops(ops.Link(str(path), "a"))
    assert os.readlink(path) == "a"
    return False


def use_append(path: pathlib.Path) -> bool:
    """The reason that is appended to a claim."""
    run_ops(ops.Append(str(path), b"REASON=operator\n"))
    return path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1 and b"REASON" in path.read_bytes()


def use_sync(path: pathlib.Path) -> bool:
    """fsync after an operation."""
    run_ops(ops.Sync(str(path)))
    return False


def use_claim(path: pathlib.Path) -> bool:
    """The rename that ends a trial, and the removal of what it was renamed to."""
    run_ops(ops.Claim(str(path), str(path) + ".revert"))
    assert not os.path.lexists(path)
    os.rename(str(path) + ".revert", path)
    return False


def use_unlink(path: pathlib.Path) -> bool:
    """What a plan removes: the name, never what it leads to."""
    run_ops(ops.Unlink(str(path)))
    assert not os.path.lexists(path)
    return False


def use_rename(path: pathlib.Path) -> bool:
    """A new file takes the name, never what the name leads to."""
    (path.parent / "new").write_bytes(b"ours")
    run_ops(ops.Rename(str(path.parent / "new"), str(path)))
    return False


def run_ops(*plan: ops.Operation) -> None:
    """Carry out operations as the agent does."""

    def never(*_arguments: object) -> None:
        raise AssertionError("not asked for")

    executor.Executor(*[never] * 8).apply(plan, "hostile")


def use_entrypoint(path: pathlib.Path) -> bool:
    """The file at the entrypoint that an update adopts."""
    return read_all(adoption.open_adoptable(str(path)))


def use_record(path: pathlib.Path) -> bool:
    """slots.json, update.json, trust.json, and their copies."""
    return host.read_record(str(path)) is not None


def use_state(path: pathlib.Path) -> bool:
    """One look at the host, with this as each of its records and trial files."""
    slots = path.parent / "state"
    slots.mkdir()
    (slots / "current").symlink_to("a")
    for name in ("slots.json", "update.json", "slots.json.copy", "trial", "trial.confirm", "trial.revert", "trial.log"):
        with contextlib.suppress(OSError):
            os.link(path, slots / name, follow_symlinks=False)
    with contextlib.suppress(OSError):
        os.unlink(slots / "trial.sources")
    state = host.read_state(product_at(slots))
    assert state.broken is not None
    assert settle.decide(state, host.clock()).action is not settle.Action.AWAIT
    return state.log == CONTENT


def use_trial(path: pathlib.Path) -> bool:
    """A file of the trial, read by itself."""
    return host._part_of_trial(str(path)) not in (None, settle.ODD)


def use_copy_of_record(path: pathlib.Path) -> bool:
    """The copy that proves itself."""
    slots = path.parent / "copies"
    slots.mkdir()
    with contextlib.suppress(OSError):
        os.link(path, slots / "slots.json.copy", follow_symlinks=False)
    broken.read_copy(product_at(slots), "slots.json")
    return True


def use_lock(path: pathlib.Path) -> bool:
    """The lock: held, and signed with who holds it."""
    product = products.Product("slotward", "slotward.service", "/nowhere", str(path.parent))
    os.rename(path, path.parent / "lock") if os.path.lexists(path) else None
    try:
        with lock.held(product, "test"):
            found = (path.parent / "lock").lstat()
            assert (stat.S_ISREG(found.st_mode), found.st_nlink, stat.S_IMODE(found.st_mode)) == (True, 1, 0o600)
            return True
    finally:
        os.rename(path.parent / "lock", path)


def use_holder(path: pathlib.Path) -> bool:
    """Who holds the lock, as a command asks."""
    os.rename(path, path.parent / "lock") if os.path.lexists(path) else None
    try:
        return lock.holder(products.Product("slotward", "slotward.service", "/nowhere", str(path.parent))) is not None
    finally:
        os.rename(path.parent / "lock", path) if os.path.lexists(path.parent / "lock") else None


def use_system_file(path: pathlib.Path) -> bool:
    """The guard, its facts, a unit file: compared with what this version writes."""
    return installed.read_file(str(path)) is not None


def use_audit(path: pathlib.Path) -> bool:
    """The audit log."""
    return read_all(audit_tail.open_plain(str(path)))


def use_socket(path: pathlib.Path) -> bool:
    """The status socket that the daemon makes; only an old socket is taken away for it."""
    config = configs.load(None, "none")[0]._replace(socket_path=str(path))
    daemon = node.Node(own.Setup(own.product_of(config), config, (), "none"))
    daemon._listen()
    made = daemon._listener is not None
    if daemon._listener is not None:
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        daemon._close()
    return made


def use_status(path: pathlib.Path) -> bool:
    """The status socket, asked for the digest that runs."""
    return process.ask_status(str(path), 0.2) != (None, None)


def use_call(path: pathlib.Path) -> bool:
    """The socket of the helper or of the daemon, as whoever asks calls it."""
    calling.ask(calling.helper(str(path)), protocol.Request(protocol.SETTLE, "0" * 16), again_s=0.0)
    return True


def use_put(path: pathlib.Path) -> bool:
    """What was asked for, put into staging."""
    inbox.put(str(path.parent), path.name, b"ours")
    return False


def use_progress(path: pathlib.Path) -> bool:
    """How far an update is, written beside the slots; what lies there is replaced, or nothing is written at all."""
    os.rename(path, path.parent / phases.NAME) if os.path.lexists(path) else None
    try:
        with progress_file.of(product_at(path.parent), "1.1.0"):
            progress_file.phase(phases.FETCH)
            found = progress_file.shown(product_at(path.parent), "none", "")
    finally:
        os.rename(path.parent / phases.NAME, path)
    if path.is_dir():
        raise OSError("it is a directory")
    assert found is not None
    assert found["phase"] == phases.FETCH
    return False


def use_helper_socket(path: pathlib.Path) -> bool:
    """The helper's socket, listened to for the digest that it runs."""
    return process.listen_to_helper(str(path), 0.2).sha256 is not None


def use_trigger(path: pathlib.Path) -> bool:
    """A file whose closing triggers root's unit: nothing is written to it."""
    triggers.pull(path.name, str(path.parent))
    return True


def read_all(descriptor: int) -> bool:
    """Whether the file behind it is the plain one."""
    try:
        return os.pread(descriptor, 4096, 0) == CONTENT
    finally:
        os.close(descriptor)


NAMED = frozenset({"link", "hard-link"})
"""What an operator names may be a link: the file is judged, not the way to it."""
OWN = frozenset({"hard-link"})
ROWS = (
    Row("config", use_config, NAMED, CONFIG),
    Row("target", use_target, NAMED, TARGET),
    Row("named", use_named, NAMED),
    Row("document", use_document, NAMED),
    Row("ca_file", use_ca_file),
    Row("probe-ca", use_probe_ca),
    Row("digest", use_digest, NAMED),
    Row("built-in", use_built_in),
    Row("program", use_program, NAMED),
    Row("damage", use_damage, NAMED),
    Row("pushed", use_pushed),
    Row("staged", use_staged),
    Row("part", use_part, replaces=True),
    Row("copy", use_copy, replaces=True),
    Row("write", use_write, replaces=True),
    Row("link", use_link),
    Row("append", use_append),
    Row("sync", use_sync),
    Row("claim", use_claim),
    Row("unlink", use_unlink),
    Row("rename", use_rename, replaces=True),
    Row("entrypoint", use_entrypoint),
    Row("record", use_record, OWN),
    Row("state", use_state, OWN),
    Row("trial", use_trial, OWN),
    Row("copy-of-record", use_copy_of_record, OWN),
    Row("lock", use_lock),
    Row("holder", use_holder),
    Row("system-file", use_system_file, OWN),
    Row("audit", use_audit),
    Row("socket", use_socket),
    Row("status", use_status),
    Row("call", use_call),
    Row("put", use_put, replaces=True),
    Row("progress", use_progress, replaces=True),
    Row("helper-socket", use_helper_socket),
    Row("trigger", use_trigger, frozenset({"hard-link", "fifo", "null", "zero"})),
)
MAKES = ("part", "put", "progress", "copy", "write", "link", "rename", "lock", "socket")
"""Openers for which a missing file is no problem: they make it."""

KEEPS = ("socket", "status", "helper-socket", "call", "trigger", "pushed", "staged", "entrypoint", "config", "append")
"""Openers that leave what they do not like as it is."""


class Scene(NamedTuple):
    """A path in a directory of root's, with something in its place, and what must not change."""

    path: pathlib.Path
    outside: pathlib.Path
    fifo: int
    listener: Optional[socket.socket]


@pytest.fixture(name="place")
def _place(tmp_path: pathlib.Path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir(0o755)
    return place


@contextlib.contextmanager
def planted(place: pathlib.Path, kind: str, content: bytes) -> Iterator[Scene]:
    """Something of this kind at the path; open ends are closed afterwards."""
    path, outside = place / "file", place.parent / "outside"
    outside.mkdir(0o755)
    (outside / "secret").write_bytes(content)
    fifo, listener = -1, None
    if kind == "plain":
        path.write_bytes(content)
    elif kind == "link":
        path.symlink_to(outside / "secret")
    elif kind == "dangling":
        path.symlink_to(outside / "not-there")
    elif kind == "loop":
        path.symlink_to("file")
    elif kind == "hard-link":
        os.link(outside / "secret", path)
    elif kind == "fifo":
        os.mkfifo(path)
        fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "socket":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
    elif kind in ("null", "zero"):
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3 if kind == "null" else 5))
    elif kind == "directory":
        path.mkdir()
        (path / "secret").write_bytes(content)
    try:
        yield Scene(path, outside, fifo, listener)
    finally:
        if fifo >= 0:
            os.close(fifo)
        if listener is not None:
            listener.close()


def snapshot(directory: pathlib.Path) -> Dict[str, Tuple[int, int, bytes]]:
    """Mode, owner and bytes of what lies outside."""
    found = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_uid, path.read_bytes() if path.is_file() else b"")
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_i6_what_lies_there_instead(place: pathlib.Path, row: Row, kind: str) -> None:
    """I6: each opener, each kind: no wait, no bytes that it may not take, nothing changed outside, no descriptor left."""
    with planted(place, kind, row.content) as scene:
        before, files = snapshot(scene.outside), len(os.listdir("/proc/self/fd"))
        was = os.lstat(scene.path) if kind != "missing" else None
        took, said = tried(row, scene.path)
        assert not said or kind != "missing" or row.name not in MAKES, said
        assert "\n" not in said
        assert snapshot(scene.outside) == before
        assert len(os.listdir("/proc/self/fd")) == files
        if scene.fifo >= 0:
            assert readable(scene.fifo) == b""
        if took:
            assert (
                kind in row.takes
                or (kind == "missing" and row.name in MAKES)
                or (row.name, kind) == ("socket", "socket")
            )
        if row.replaces and kind != "directory":
            found = scene.path.lstat()
            assert (stat.S_ISREG(found.st_mode), found.st_nlink, found.st_uid) == (True, 1, 0)
        elif row.name in KEEPS and was is not None and (row.name, kind) != ("socket", "socket"):
            now = os.lstat(scene.path)
            assert (now.st_ino, now.st_mode) == (was.st_ino, was.st_mode)


def tried(row: Row, path: pathlib.Path) -> Tuple[bool, str]:
    """Whether it took what lies there, and what it said if it refused to."""
    try:
        with bounded():
            return row.use(path), ""
    except REFUSED as error:
        return False, str(error) or type(error).__name__


def readable(fifo: int) -> bytes:
    """What somebody wrote into the FIFO."""
    try:
        return os.read(fifo, 4096)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_plain_file_is_taken(place: pathlib.Path, row: Row) -> None:
    """The other side of the table: without this, an opener that refuses everything would pass."""
    takes_it = row.name not in (
        "ca_file", "probe-ca", "built-in", "part", "copy", "write", "link", "sync", "claim", "unlink", "rename", "copy-of-record",
        "holder", "socket", "status", "helper-socket", "call", "put", "progress",
    )  # fmt: skip
    with planted(place, "plain", row.content) as scene, bounded():
        if row.name == "audit":
            scene.path.chmod(0o640)
        try:
            took = row.use(scene.path)
        except (codes.Refused, codes.BrokenRecord, codes.Retryable):
            assert row.name in ("ca_file", "probe-ca", "copy-of-record", "call")
            return
        assert took is takes_it


# --- sizes ---


@pytest.mark.parametrize(
    "name", ["config", "target", "named", "record", "state", "trial", "system-file", "program", "built-in"]
)
def test_a_huge_file_costs_a_small_read(place: pathlib.Path, name: str) -> None:
    """A file of a tebibyte, all holes: what is read of it has a limit."""
    row = next(row for row in ROWS if row.name == name)
    path = place / "file"
    path.touch(0o600)
    os.truncate(path, 1 << 40)
    took, said = tried(row, path)
    assert not took or row.name in ("named", "system-file", "record", "trial")
    assert said or row.name in ("named", "system-file", "record", "trial", "state", "built-in")


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_a_file_of_another_size_is_not_hashed_to_its_end(place: pathlib.Path, size: int) -> None:
    """A staged file of a tebibyte: one byte more than the release's size is read, and nothing of it is left."""
    path = place / "file"
    path.touch(0o600)
    os.truncate(path, 1 << 40)
    with bounded(), open(path, "rb") as file, pytest.raises(codes.Refused) as caught:
        staging.copy_verified(file.fileno(), str(place / "slot"), size, SHA256)
    assert caught.value.code == codes.SIZE_MISMATCH
    assert not (place / "slot").exists()


def test_a_file_that_grows_is_what_it_was_or_nothing(place: pathlib.Path) -> None:
    """Whoever appends while root copies gets a copy of the release, or a refusal; never a byte more."""
    path, size = place / "file", 1 << 20
    content = os.urandom(size)
    sha256 = hashlib.sha256(content).hexdigest()
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            path.write_bytes(content)
            with open(path, "ab") as file:
                for _number in range(50):
                    file.write(b"evil" * 1000)

    path.write_bytes(content)
    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _number in range(100):
            with contextlib.suppress(codes.Refused, FileNotFoundError):
                descriptor = staging.open_staged(str(place), "file")
                try:
                    staging.copy_verified(descriptor, str(place / "slot"), size, sha256)
                    assert (place / "slot").read_bytes() == content
                finally:
                    os.close(descriptor)
    finally:
        stop.set()
        thread.join()


# --- owners and modes ---


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: os.chown(path, 4711, 0), "is owned by uid 4711, not by root: chown root it if you trust it"),
        (lambda path: path.chmod(0o620), "may be written by others (mode 0620): chmod go-w it if you trust it"),
        (lambda path: path.chmod(0o602), "may be written by others (mode 0602): chmod go-w it if you trust it"),
        (lambda path: path.parent.chmod(0o775), "which others may write (mode 0775)"),
        (lambda path: os.chown(path.parent, 4711, 0), "which is owned by uid 4711, not by root"),
        (lambda path: path.parent.parent.chmod(0o757), "which others may write (mode 0757)"),
    ],
)
def test_i6_a_configuration_that_others_could_have_written_counts_for_nothing(
    place: pathlib.Path, spoil: Callable[[pathlib.Path], object], said: str
) -> None:
    """I6, I8: updates are refused and say why; every key has its default, since each could be somebody else's word."""
    path = place / "config.toml"
    path.write_bytes(b'[update]\nslots_dir = "/home/x/slots"\nrelease_sequence = 5\n')
    path.chmod(0o640)
    assert own.read_config(str(path))[1] == ()
    spoil(path)
    setup = own.load(str(path))
    assert len(setup.problems) == 1
    assert said in setup.problems[0]
    assert str(path) in setup.problems[0]
    assert setup.product.slots_dir == configs.load(None, "none")[0].slots_dir
    assert (
        setup.product.base_floor == 0
        or setup.product.base_floor == own.product_of(configs.load(None, "")[0]).base_floor
    )


def test_i6_a_linked_configuration_is_judged_where_it_lies(place: pathlib.Path) -> None:
    """Whoever manages a host's files may link them; the file and both ways to it are root's."""
    real, link = place / "kept" / "config.toml", place / "etc" / "config.toml"
    for path in (real, link):
        path.parent.mkdir(0o755)
    real.write_bytes(CONFIG)
    link.symlink_to(real)
    assert own.read_config(str(link))[1] == ()
    real.parent.chmod(0o777)
    assert str(real.parent) in own.read_config(str(link))[1][0]
    real.parent.chmod(0o755)
    link.parent.chmod(0o777)
    assert str(link.parent) in own.read_config(str(link))[1][0]
    link.parent.chmod(0o1777)
    assert own.read_config(str(link))[1] == ()


@pytest.mark.parametrize("name", ["entrypoint", "record", "audit"])
@pytest.mark.parametrize("spoil", ["owner", "group", "others"])
def test_i6_what_others_could_have_written_is_not_believed(place: pathlib.Path, name: str, spoil: str) -> None:
    """I6: files that only root writes: of another owner, or writable by others, they are refused."""
    row = next(row for row in ROWS if row.name == name)
    path = place / "file"
    path.write_bytes(CONTENT)
    path.chmod(0o640)
    assert row.use(path)
    os.chown(path, 4711 if spoil == "owner" else 0, 0)
    path.chmod({"owner": 0o640, "group": 0o660, "others": 0o642}[spoil])
    with pytest.raises(REFUSED):
        row.use(path)


# --- the status socket of a daemon that means no good ---


@pytest.mark.parametrize("answer", [b"", b"x" * 100, b"[" * 100_000, b'{"running": {"sha256": 5}}', b"\xff" * 10])
def test_a_strange_answer_is_no_answer(place: pathlib.Path, answer: bytes) -> None:
    """Neither its depth nor its type ends the command that asked."""
    with serving(place / "socket", [answer]), bounded():
        found = process.ask_status(str(place / "socket"))
    assert found == (None, None) or found[0] == "5"


def test_an_answer_that_never_ends_is_left_in_time(place: pathlib.Path) -> None:
    """The time is for the whole answer, not for each byte of it."""
    with serving(place / "socket", [b"{"] * 200, pause=0.05), bounded():
        begun = time.monotonic()
        assert process.ask_status(str(place / "socket"), 0.3) == (None, None)
        assert time.monotonic() - begun < 8


@contextlib.contextmanager
def serving(path: pathlib.Path, blocks: List[bytes], pause: float = 0.0) -> Iterator[None]:
    """A socket that sends these blocks to whoever comes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            with contextlib.suppress(OSError):
                peer, _address = listener.accept()
                with peer:
                    for block in blocks:
                        peer.sendall(block)
                        time.sleep(pause)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(20)


# --- directories ---


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("missing", "directory")])
@pytest.mark.parametrize(
    "act", ["make", "open", "part", "copy", "tidy", "rename", "remove", "take-over", "unpack", "discard", "probe"]
)
def test_i6_a_directory_that_is_none(place: pathlib.Path, act: str, kind: str) -> None:
    """I6: the directory itself is something else: nothing is made, removed or changed where it leads."""
    with planted(place, kind, CONTENT) as scene:
        if kind == "link":
            scene.path.unlink()
            scene.path.symlink_to(scene.outside)
        name = str(scene.path)
        (scene.outside / "slotward-1.0.0").write_bytes(b"kept")
        (scene.outside / "1.0.0.partial").mkdir()
        before = snapshot(scene.outside)
        source = os.open(scene.outside / "secret", os.O_RDONLY)
        artifact = unpack.Artifact(source, len(CONTENT), SHA256)
        acts: Mapping[str, Callable[[], object]] = {
            "make": lambda: staging.make_directory(name),
            "open": lambda: staging.open_staged(name, "secret"),
            "part": lambda: staging.open_part(name + "/secret"),
            "copy": lambda: staging.copy_verified(source, name + "/secret", len(CONTENT), SHA256),
            "tidy": lambda: staging.tidy(name, ()),
            "rename": lambda: staging.rename(name, "secret", "other"),
            "remove": lambda: staging.remove(name + "/secret"),
            "take-over": lambda: staging.take_over(name, 0o755),
            "unpack": lambda: unpack.unpack(artifact, name, "1.0.0", "app"),
            "discard": lambda: trees.discard(name + "/1.0.0.partial"),
            "probe": lambda: preflight.try_directory(name),
        }
        try:
            with bounded(), contextlib.suppress(*REFUSED):
                acts[act]()
        finally:
            os.close(source)
        assert snapshot(scene.outside) == before


# --- races ---

FLIP = """
import os, sys
name, evil = sys.argv[1:3]
def move(one, other):
    while True:
        try:
            return os.rename(one, other)
        except (IsADirectoryError, FileExistsError):
            os.rmdir(other)  # the agent made a directory in the moment in which there was none
while True:
    move(name, name + ".tmp")
    move(evil, name)
    move(name, evil)
    move(name + ".tmp", name)
"""


@contextlib.contextmanager
def flipping(name: pathlib.Path, evil: pathlib.Path) -> Iterator[None]:
    """A process that puts one thing in the place of the other and back, as fast as it can."""
    with subprocess.Popen([sys.executable, "-I", "-c", FLIP, str(name), str(evil)]) as child:
        try:
            yield
            assert child.poll() is None, "the other side has ended: there was no race"
        finally:
            child.kill()


def make_evil(place: pathlib.Path, kind: str, secret: pathlib.Path) -> pathlib.Path:
    """What is flipped in."""
    evil = place / "evil"
    if kind == "link":
        evil.symlink_to(secret)
    elif kind == "hard-link":
        os.link(secret, evil)
    elif kind == "fifo":
        os.mkfifo(evil)
    elif kind == "directory":
        evil.mkdir()
    elif kind == "other":
        evil.write_bytes(b"#!/bin/sh\nevil 0\n")
    else:
        os.mknod(evil, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    return evil


TRIES = 1000
EVIL = ("link", "hard-link", "fifo", "directory", "device", "other")


def race(act: Callable[[], Optional[bytes]], good: bytes) -> Tuple[int, int]:
    """Try a thousand times; how often it went well, and how often it was refused. Anything else fails."""
    well = refused = 0
    until = time.monotonic() + 60
    while well + refused < TRIES or (not (well and refused) and time.monotonic() < until):
        try:
            with bounded():
                found = act()
        except REFUSED:
            refused += 1
            continue
        assert found is None or found == good
        well += 1
    return well, refused


@pytest.mark.parametrize("kind", EVIL)
@pytest.mark.parametrize("opener", ["staged", "pushed", "part", "entrypoint"])
def test_i6_a_rename_race_for_the_file(place: pathlib.Path, opener: str, kind: str) -> None:
    """I6: a thousand tries against somebody who swaps the name: what is copied is the release, or nothing is."""
    secret, path, slot = place.parent / "secret", place / "slotward-1.1.0", place.parent / "slot"
    secret.write_bytes(b"#!/bin/sh\nroot 0\n")
    path.write_bytes(CONTENT)
    inode = path.stat().st_ino
    evil = make_evil(place, kind, secret)
    openers: Mapping[str, Callable[[], int]] = {
        "staged": lambda: staging.open_staged(str(place), path.name),
        "pushed": lambda: fetch.pushed(str(path)),
        "part": lambda: staging.open_staged(str(place), path.name, owner_uid=0),
        "entrypoint": lambda: adoption.open_adoptable(str(path)),
    }

    def act() -> Optional[bytes]:
        descriptor = openers[opener]()
        try:
            assert kind == "other" or os.fstat(descriptor).st_ino == inode
            staging.copy_verified(descriptor, str(slot), len(CONTENT), SHA256)
        finally:
            os.close(descriptor)
        return slot.read_bytes()

    with flipping(path, evil):
        well, refused = race(act, CONTENT)
    assert well
    assert refused
    assert secret.read_bytes() == b"#!/bin/sh\nroot 0\n"


@pytest.mark.parametrize("kind", ["link", "hard-link", "fifo", "directory", "device"])
@pytest.mark.parametrize("writer", ["part", "copy"])
def test_i6_a_rename_race_for_what_is_written(place: pathlib.Path, writer: str, kind: str) -> None:
    """I6: a thousand tries to have root write through a name: what it leads to keeps its bytes, mode and owner."""
    outside = place.parent / "outside"
    outside.mkdir()
    secret, path = outside / "secret", place / "slotward-1.1.0.part"
    secret.write_bytes(b"#!/bin/sh\nroot 0\n")
    secret.chmod(0o600)
    path.write_bytes(b"")
    evil = make_evil(place, kind, secret)
    before = snapshot(outside)
    source = place.parent / "source"
    source.write_bytes(CONTENT)

    def act() -> Optional[bytes]:
        if writer == "part":
            descriptor = staging.open_part(str(path))
            try:
                found = os.fstat(descriptor)
                assert (stat.S_ISREG(found.st_mode), found.st_nlink) != (True, 2)
                os.pwrite(descriptor, b"ours", 0)
            finally:
                os.close(descriptor)
        else:
            with open(source, "rb") as file:
                staging.copy_verified(file.fileno(), str(path), len(CONTENT), SHA256)
        return None

    with subprocess.Popen([sys.executable, "-I", "-c", PLANT, str(path), str(evil)]) as child:
        try:
            race_any(act)
        finally:
            child.kill()
    assert snapshot(outside) == before


PLANT = """
import os, sys
name, evil = sys.argv[1:3]
while True:
    try:
        os.rename(evil, name)
        os.rename(name, evil)
    except OSError:
        pass
"""


def race_any(act: Callable[[], object]) -> None:
    """A thousand tries, however each of them ends but for a wait."""
    for _number in range(TRIES):
        with bounded(), contextlib.suppress(*REFUSED):
            act()


@pytest.mark.parametrize("act", ["make", "open", "part", "copy", "tidy", "rename", "remove", "take-over", "discard"])
def test_i6_a_rename_race_for_the_directory(place: pathlib.Path, act: str) -> None:
    """I6: a thousand tries against somebody who swaps the staging directory for a link: nothing happens where it leads."""
    outside, staged = place.parent / "outside", place / "staging"
    for directory in (outside, staged):
        directory.mkdir(0o755)
        for name in ("slotward-1.0.0", "slotward-1.1.0"):
            (directory / name).write_bytes(b"kept")
    (outside / "1.0.0.partial").mkdir()
    evil = place / "evil"
    evil.symlink_to(outside)
    before = snapshot(outside)
    source = place.parent / "source"
    source.write_bytes(CONTENT)
    name = str(staged)

    def copy() -> None:
        with open(source, "rb") as file:
            staging.copy_verified(file.fileno(), name + "/slot", len(CONTENT), SHA256)

    acts: Mapping[str, Callable[[], object]] = {
        "make": lambda: staging.make_directory(name),
        "open": lambda: os.close(staging.open_staged(name, "slotward-1.1.0")),
        "part": lambda: os.close(staging.open_part(name + "/slotward-1.1.0.part")),
        "copy": copy,
        "tidy": lambda: staging.tidy(name, ()),
        "rename": lambda: staging.rename(name, "slotward-1.1.0", "slotward-1.2.0"),
        "remove": lambda: staging.remove(name + "/slotward-1.0.0"),
        "take-over": lambda: staging.take_over(name, 0o700),
        "discard": lambda: trees.discard(name + "/1.0.0.partial"),
    }

    with flipping(staged, evil):
        race_any(acts[act])
    assert snapshot(outside) == before


# --- the table is complete ---

PROC = "a file of /proc"
OPERATOR = "an operator's own files, on a machine that makes releases"
NULL = "/dev/null"
SYSTEM = "a command of the system, by its name, with arguments that are a list"
DIRECTORY = "test_i6_a_directory_that_is_none"
HANDOVER = "tests/agent/test_handover.py: by open descriptors, from a directory reached by root's ways"
EVIDENCE = "tests/agent/test_evidence.py: by one plain name below the open directory, which is root's alone"
AUDIT = "tests/agent/test_audit_log.py: by open_plain, in the directory of root's slots"

PRODUCT = "tests/e2e/test_products.py: in directories that setup took only as root's"
COVERED: Mapping[str, str] = {
    "accounts.commands": SYSTEM,
    "accounts.make": SYSTEM,
    "adoption.open_adoptable": "entrypoint",
    "asking.Question.__init__": SYSTEM,
    "audit._read": PROC,
    "audit_file._close": AUDIT,
    "audit_tail.open_plain": "audit",
    "binding._clear": "tests/agent/test_binding.py",
    "binding.listen": "tests/agent/test_binding.py",
    "bringing._copy_of": "its own name, made exclusively, in a directory of root's alone (opening.CREATE)",
    "caller._read": PROC,
    "calling._connect": "call",
    "control.Control.stop": "tests/agent/test_control.py: its own socket, in its own directory",
    "cmd_audit._aside": AUDIT,
    "cmd_audit._begin": AUDIT,
    "build_info.running_digest": "the program that runs, by the descriptor that it was started from",
    "cli._print": NULL,
    "cmd_remove._carry_out": PRODUCT,
    "cmd_remove._put_back": PRODUCT,
    "download.check_authorities": "ca_file",
    "elf.check_program": "program",
    "doctor_host._holder": "tests/agent/test_doctor_host.py: no link is followed, no FIFO waited for, nothing read",
    "doctor_host.gather": PROC,
    "evidence_file._remove": EVIDENCE,
    "evidence_file._there": EVIDENCE,
    "evidence_gather._lines": PROC,
    "executor._append": "append",
    "executor._claim": "claim",
    "executor._demand": "in root's slots, and no later rename goes by it; its own name is no link (opening.READ)",
    "executor._link": "link",
    "executor._remove": "unlink",
    "executor.Executor._table": "rename",
    "executor._write": "write",
    "executor.sync_path": "sync",
    "handover._Tree._below": HANDOVER,
    "handover._copy": HANDOVER,
    "handover._empty": HANDOVER,
    "handover._empty_staging": HANDOVER,
    "handover._give": HANDOVER,
    "handover._remove": HANDOVER,
    "host._part_of_trial": "trial",
    "host.clock": PROC,
    "host.open_named": "named",
    "host.read_bytes": "named",
    "host.read_record": "record",
    "host.uptime_s": PROC,
    "installed.read_file": "system-file",
    "notifying.notify": "a socket of the system's own",
    "transient.Child.__init__": SYSTEM,
    "journal.send": "a socket of the system's own",
    "labels._restore": SYSTEM,
    "lock._open": "lock",
    "lock.holder": "holder",
    "lock_owner.of": PROC,
    "removed_lock._held": PROC,
    "mode_steps._remove": "an empty directory of root's",
    "node.Node._close": "socket",
    "node.Node._listen": "socket",
    "node.Node._at_deadline": SYSTEM,
    "opening.open_at": "staged",
    "opening.open_directory": DIRECTORY,
    "packages._run": SYSTEM,
    "packages.divert": PRODUCT,
    "packages.forget_copy": PRODUCT,
    "packages.undivert": PRODUCT,
    "preflight._run": DIRECTORY,
    "preflight.look": PROC,
    "preflight.try_directory": DIRECTORY,
    "builds.built_in": "built-in",
    "prepare.digest_of": "digest",
    "prepare.read_document": "document",
    "probe_http.context_of": "probe-ca",
    "probe_journal.bounded": SYSTEM,
    "process.ask_status": "status",
    "process.listen_to_helper": "helper-socket",
    "parts._refused_by_systemd": "removes the directory in the slots, root's, that it has made",
    "process.started_s": PROC,
    "progress_file._remove": "progress",
    "progress_file._write": "progress",
    "release_cmd._print": NULL,
    "release_files._open": OPERATOR,
    "release_files._sync_directory": OPERATOR,
    "release_files._written": OPERATOR,
    "release_files.chunks": OPERATOR,
    "release_files.create": OPERATOR,
    "release_files.locked": OPERATOR,
    "release_files.make_directory": OPERATOR,
    "release_files.read": OPERATOR,
    "release_files.rename_directory": OPERATOR,
    "release_files.replace": OPERATOR,
    "release_publish._place": OPERATOR,
    "release_publish._sweep": OPERATOR,
    "release_signer._run": OPERATOR,
    "placing.is_archive": "named",
    "slots.problem": "damage",
    "staging._create": "part",
    "staging.make_directory": DIRECTORY,
    "staging.make_one": DIRECTORY,
    "staging.open_part": "part",
    "staging.copy_verified": "copy",
    "staging.put": "put",
    "staging.remove": DIRECTORY,
    "staging.rename": DIRECTORY,
    "staging.tidy": DIRECTORY,
    "systemd._run": SYSTEM,
    "bounded._begun": SYSTEM,
    "bus.problem": "a socket of the system's own",
    "own_unit.run": "the null device",
    "sweeping._text": PROC,
    "trees._below": "tests/agent/test_trees.py",
    "triggers.pull": "trigger",
    "ways.give": "by ways of root's alone; its own name is no link (opening.READ)",
    "working.Worker.start": SYSTEM,
    "unpack._Tree._step": "tests/agent/test_unpack.py",
    "unpack._Tree.begin": "tests/agent/test_unpack.py",
    "unpack._write_below": "tests/agent/test_unpack.py",
    "unpack.remove_tree": "tests/agent/test_unpack.py",
}

TOUCHES = {
    "open", "os.open", "os.rename", "os.replace", "os.renames", "os.link", "os.symlink", "os.unlink", "os.remove", "os.rmdir",
    "os.removedirs", "os.mkdir", "os.makedirs", "os.mknod", "os.mkfifo", "os.chmod", "os.chown", "os.lchown", "os.truncate",
    "os.utime", "os.setxattr", "os.removexattr", "os.posix_spawn", "os.posix_spawnp", "os.execv", "os.execve", "os.execvp",
    "os.system", "os.popen", "io.open", "zipfile.ZipFile", "socket.socket", "subprocess.run", "subprocess.Popen",
    "subprocess.call", "subprocess.check_call", "subprocess.check_output", "ssl.create_default_context", "tarfile.open",
}  # fmt: skip
MODULES = {"shutil", "tempfile", "pathlib", "tarfile", "mmap", "fileinput"}
"""Modules that open by themselves: what uses one must be in the table too."""


def touching(name: str, source: str) -> Set[str]:
    """`module.function` of each place in a source text that opens or changes a path, or runs a program."""
    found: Set[str] = set()

    def walk(node_: ast.AST, inside: Tuple[str, ...]) -> None:
        if isinstance(node_, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = (*inside, node_.name)
        if isinstance(node_, ast.Call):
            called = ast.unparse(node_.func)
            wraps = called == "open" and ast.unparse(node_.args[0]) == "descriptor"  # what was opened and judged before
            if (called in TOUCHES and not wraps) or called.partition(".")[0] in MODULES:
                found.add(".".join((name, *inside)))
        for below in ast.iter_child_nodes(node_):
            walk(below, inside)

    walk(ast.parse(source), ())
    return found


def outer(place: str) -> str:
    """A function within a function counts as the outer one."""
    module, *rest = place.split(".")
    keep = 2 if rest and rest[0].lstrip("_")[:1].isupper() else 1
    return ".".join([module, *rest[:keep]])


def places_of_the_agent() -> Set[str]:
    """Every such place."""
    return {
        outer(place)
        for path in sorted(AGENT.glob("*.py"))
        for place in touching(path.stem, path.read_text(encoding="utf-8"))
    }


def test_every_place_that_touches_a_path_is_in_the_table() -> None:
    """A new one is not forgotten: give it a row above, or say in COVERED why it needs none. No row is for nobody."""
    found = places_of_the_agent()
    assert sorted(found - set(COVERED)) == []
    assert sorted(set(COVERED) - found) == []
    rows = {row.name for row in ROWS}
    reasons = {PROC, OPERATOR, NULL, SYSTEM, DIRECTORY, AUDIT, HANDOVER, EVIDENCE}
    assert [why for why in COVERED.values() if why not in rows | reasons and " " not in why and "/" not in why] == []
    used = set(COVERED.values()) | {"config", "target", "pushed", "entrypoint", "damage", "state", "copy-of-record"}
    assert sorted(rows - used) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(p):\n    return open(p)\n",
        "import os\ndef f(p):\n    os.rename(p, p)\n",
        "import shutil\ndef f(p):\n    shutil.rmtree(p)\n",
        "def f(p):\n    def g():\n        os.unlink(p)\n",
        "def f(p):\n    with os.open(p, 0) as x, zipfile.ZipFile(x):\n        pass\n",
    ],
)
def test_the_walk_sees_what_touches(source: str) -> None:
    """The search itself can find."""
    assert {outer(place) for place in touching("m", source)} == {"m.f"}


def test_opening_never_follows_or_waits() -> None:
    """The flags that the rows rest on."""
    for flags in (opening.READ, opening.RESUME):
        assert flags & os.O_NOFOLLOW
        assert flags & os.O_NONBLOCK
    assert opening.CREATE & os.O_EXCL
    assert opening.CREATE & os.O_NOFOLLOW
