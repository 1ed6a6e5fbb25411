# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that cannot be believed, on a real directory: what root may find in their place, and what settling makes of it."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
from typing import Callable, Dict, Optional

import pytest
from agent.places import RECORD, SLOTS, UPDATE, Place, fill

from slotcore import codes, recording, records
from slotward import host, lock, manager

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners or mounts a filesystem: needs root")


def _fifo(path: pathlib.Path) -> None:
    os.mkfifo(path)


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is at most 107 characters long
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def _directory(path: pathlib.Path) -> None:
    path.mkdir()
    (path / "x").touch()


def _link_out(path: pathlib.Path) -> None:
    outside = path.parent.parent / "outside"
    outside.write_bytes(UPDATE)
    path.symlink_to(outside)


def _owned(path: pathlib.Path) -> None:
    path.write_bytes(UPDATE)
    path.chmod(0o644)
    os.chown(path, NOBODY, -1)


def _writable(path: pathlib.Path) -> None:
    path.write_bytes(UPDATE)
    path.chmod(0o664)


def _bytes(data: bytes) -> Callable[[pathlib.Path], None]:
    def write(path: pathlib.Path) -> None:
        path.write_bytes(data)
        path.chmod(0o644)

    return write


PLANTED: Dict[str, Callable[[pathlib.Path], None]] = {
    "a link to a sound record": _link_out,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a FIFO": _fifo,
    "a socket": _socket,
    "a directory": _directory,
    "another owner's": _owned,
    "writable for a group": _writable,
    "nothing at all": _bytes(b""),
    "huge": _bytes(b"x" * (8 << 20)),
    "binary junk": _bytes(bytes(range(256)) * 64),
    "NUL": _bytes(b"\0" * len(UPDATE)),
    "a sound record and NUL": _bytes(UPDATE + b"\0"),
    "deep JSON": _bytes(b"[" * 200_000),
    "deep JSON in a field": _bytes(b'{"spec":1,"floor":' + b'{"a":' * 100_000),
    "a number without end": _bytes(b'{"spec":1,"floor":' + b"9" * 200_000 + b"}"),
    "another record": _bytes(SLOTS),
    "its own copy": _bytes(recording.sealed(UPDATE)),
    "a lower floor and another spec": _bytes(
        b'{"failed":[],"floor":1,"last":null,"newest_issued":0,"spec":2,"trust":0}'
    ),
    "half a surrogate": _bytes(b'{"spec":1,"floor":"\\ud800"}'),
}


@needs_root
@pytest.mark.parametrize("what", PLANTED)
def test_P4_whatever_stands_in_the_place_of_a_record_is_set_aside_and_its_copy_used(what: str, place: Place) -> None:
    """I3, I6: it is never followed, waited for, or believed; the floor is what it was, and a second time is quiet (I9)."""
    path = place.slots / recording.UPDATE
    path.unlink()
    PLANTED[what](path)
    state = place.state()
    assert state.broken is not None
    assert state.broken[0] == str(path)
    assert (state.update, [entry.name for entry in state.damaged]) == (records.Update(), [recording.UPDATE])
    seen, done = manager.settle_now(place.product)
    assert (done, seen.state.broken, seen.state.update.floor) == ("restore", None, 7)
    assert path.read_bytes() == UPDATE
    assert len(place.aside(recording.UPDATE)) == 1
    assert manager.settle_now(place.product)[1] == "nothing"
    assert [event.event for event in place.noted()] == ["restored"]


@needs_root
@pytest.mark.parametrize("what", PLANTED)
def test_I3_a_copy_that_is_none_proves_nothing_and_nothing_is_made_up(what: str, place: Place) -> None:
    """The same things in the place of the copy, beside a torn record: updates stay refused and the files are kept."""
    copy = place.slots / (recording.UPDATE + recording.COPY)
    copy.unlink()
    PLANTED[what](copy)
    if what == "its own copy":
        copy.write_bytes(recording.sealed(recording.sealed(UPDATE)))
    place.write(recording.UPDATE, UPDATE[:-9])
    seen, done = manager.settle_now(place.product)
    assert done == "restore"
    assert seen.state.broken == (str(place.slots / recording.UPDATE), "it is missing although the slots are in use")
    (damage,) = seen.state.damaged
    assert (damage.copy, damage.there) == (None, False)
    assert damage.copy_why.startswith(str(copy))
    (kept,) = place.aside(recording.UPDATE)
    assert (place.slots / kept).read_bytes() == UPDATE[:-9]
    assert os.path.lexists(copy)
    (noted,) = place.noted()
    assert (noted.event, noted.code) == ("refused", "record-broken")
    assert noted.why.endswith("run `slotward update --repair`")
    assert manager.settle_now(place.product)[1] == "nothing"


def test_a_record_that_only_could_not_be_read_is_left_where_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file descriptor, no memory: that says nothing about the record, so it is refused now and believed later."""
    read, before = host.read_record, (place.slots / recording.UPDATE).stat().st_ino

    def none_left(path: str, most: int = records.MAX_BYTES) -> Optional[bytes]:
        if path.endswith(recording.UPDATE):
            raise OSError(24, "Too many open files")
        return read(path, most)

    with monkeypatch.context() as patched:
        patched.setattr(host, "read_record", none_left)
        seen, done = manager.settle_now(place.product)
    assert done == "nothing"
    assert seen.state.broken == (str(place.slots / recording.UPDATE), "it cannot be read: Too many open files")
    assert place.state().broken is None
    assert (place.slots / recording.UPDATE).stat().st_ino == before
    assert place.aside(recording.UPDATE) == []


def test_an_older_valid_copy_is_believed_for_it_proves_only_that_it_is_whole(place: Place) -> None:
    """What root puts there by hand (an old backup) passes: the docs say so. Repair and doctor know the slots besides."""
    older = records.render_update(records.Update(floor=3))
    place.write(recording.UPDATE + recording.COPY, recording.sealed(older))
    assert place.state().update.floor == 7, "a sound record is believed, whatever its copy says"
    place.write(recording.UPDATE, b"")
    assert manager.settle_now(place.product)[0].state.update.floor == 3


def test_a_copy_that_is_one_write_ahead_is_used_when_the_record_is_lost(place: Place) -> None:
    """A cut between the two leaves the copy of a state that was decided: it is at least as new as the record."""
    newer = records.render_update(records.Update(floor=8))
    place.write(recording.UPDATE + recording.COPY, recording.sealed(newer))
    (place.slots / recording.UPDATE).unlink()
    assert manager.settle_now(place.product)[0].state.update.floor == 8


def test_of_many_broken_records_four_are_kept(place: Place) -> None:
    """A disk that damages it at every boot does not fill up with what was set aside (field case D3)."""
    for number in range(7):
        place.write(recording.UPDATE, b"torn %d" % number)
        assert manager.settle_now(place.product)[1] == "restore"
    kept = place.aside(recording.UPDATE)
    assert [(place.slots / name).read_bytes() for name in kept] == [b"torn %d" % number for number in (3, 4, 5, 6)]


@pytest.mark.parametrize("what", ["a FIFO", "a directory", "a link to nowhere", "binary junk", "a socket"])
def test_I2_a_trial_that_is_something_else_goes_back_and_is_set_aside(what: str, place: Place) -> None:
    """Nothing is waited for; the links go back, the unit is restarted once, and the thing is kept for whoever looks."""
    place.on_trial()
    (place.slots / "trial").unlink()
    PLANTED[what](place.slots / "trial")
    seen, done = manager.settle_now(place.product)
    assert (done, seen.state.current, seen.state.trial, seen.state.revert) == ("go-back", "a", None, None)
    assert seen.state.update.last is not None
    assert seen.state.update.last.code == codes.BAD_RECORD
    assert len(place.aside("trial")) == 1
    assert place.calls().count("restart") == 1
    assert manager.settle_now(place.product)[1] == "nothing"


def test_both_ends_of_a_trial_are_finished_once_the_record_is_back(place: Place) -> None:
    """The claim waited while the floor was unknown; restoring comes first, so one settling ends both."""
    place.on_trial(RECORD + b"REASON=crash-loop\n")
    os.rename(place.slots / "trial", place.slots / "trial.revert")
    place.write(recording.UPDATE, b"torn")
    hidden = place.slots / "hidden"
    os.rename(place.slots / (recording.UPDATE + recording.COPY), hidden)
    seen, _done = manager.settle_now(place.product)
    assert (seen.state.current, seen.state.revert is None, seen.state.broken is None) == ("a", False, False)
    os.rename(hidden, place.slots / (recording.UPDATE + recording.COPY))
    seen, done = manager.settle_now(place.product)
    assert (done, seen.state.revert, seen.state.broken) == ("finish-revert", None, None)
    assert [entry.code for entry in seen.state.update.failed] == ["crash-loop"]


def test_I2_on_a_full_disk_a_broken_record_stays_where_it_is_and_a_trial_goes_back(small: Place) -> None:
    """Restoring needs space and fails softly; with space again the same command restores and records the end."""
    small.on_trial()
    small.write(recording.UPDATE, b"torn")
    small.write("trial.revert", RECORD)
    (small.slots / "trial.revert").unlink()
    fill(small)
    seen, done = manager.settle_now(small.product)
    assert (done, seen.state.current, small.aside(recording.UPDATE)) == ("go-back", "a", [])
    assert seen.state.broken is not None
    for path in small.slots.parent.glob("inode*"):
        path.unlink()
    (small.slots.parent / "filler").unlink()
    seen, done = manager.settle_now(small.product)
    assert (done, seen.state.broken, seen.state.update.floor) == ("finish-revert", None, 7)
    assert [entry.code for entry in seen.state.update.failed] == [codes.NO_BOOTS_LEFT]


def test_I8_on_a_read_only_disk_nothing_is_restored_and_nothing_is_raised(small: Place) -> None:
    """Updates are refused, which file is broken is said, and with a writable disk it is restored."""
    small.write(recording.UPDATE, b"torn")
    with lock.held(small.product, "a test"):
        pass
    at = str(small.slots.parent)
    subprocess.run(["mount", "-o", "remount,ro", at], check=True)
    seen, done = manager.settle_now(small.product)
    assert done == "nothing"
    assert seen.state.broken is not None
    subprocess.run(["mount", "-o", "remount,rw", at], check=True)
    assert manager.settle_now(small.product)[0].state.broken is None


@pytest.mark.parametrize("on_trial", [False, True])
@pytest.mark.parametrize("name", ["current", "good", "back"])
@pytest.mark.parametrize("call", ["readlink", "lstat"])
def test_a_link_that_cannot_be_read_is_not_one_that_is_missing(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, name: str, on_trial: bool
) -> None:
    """One error of the disk at rest would be a trial whose record was lost, and restart the daemon; in a trial its end."""
    if on_trial:
        place.on_trial(RECORD.replace(b"BOOTS_LEFT=0", b"BOOTS_LEFT=3"))
    before, real = place.state(), getattr(os, call)

    def failing(path: str, **more: int) -> object:
        if path == str(place.slots / name):
            raise OSError(5, "Input/output error", path)
        return real(path, **more)

    monkeypatch.setattr(os, call, failing)
    if (call, name) == ("lstat", "current") or call == "readlink":
        with pytest.raises(OSError, match="Input/output error"):
            manager.settle_now(place.product)
    else:
        manager.settle_now(place.product)
    monkeypatch.undo()
    assert place.state()[:4] == before[:4]
    assert place.calls().count("restart") == 0
    assert place.state().update.failed == ()
