# SPDX-License-Identifier: GPL-3.0-or-later
"""Who writes what must outlive a power cut syncs it, and in which order: the bytes, the rename, the directory (field case P1).

The crash matrix shows which of these a host needs; here every place that has one is seen to do it.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import time
from typing import List, Optional

import pytest
from support import tars

from agent import guarding, keeping
from slotcore import audit, audit_chain, evidence, ops, records
from slotcore import product as products
from slotward import (
    accounts,
    audit_file,
    cmd_remove,
    evidence_file,
    executor,
    handover,
    labels,
    release_files,
    staging,
    trees,
    unpack,
)

DATA = b"#!/bin/sh\nexit 0\n"
SHA256 = hashlib.sha256(DATA).hexdigest()
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


class Disk:
    """What was asked of the disk, as `<what> <path below the test's directory>`."""

    def __init__(self, top: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.events: List[str] = []
        self._top = top
        real_sync, real_rename, real_own, real_unlink = os.fsync, os.rename, os.fchown, os.unlink

        def sync(descriptor: int) -> None:
            self._saw("sync", os.readlink(f"/proc/self/fd/{descriptor}"))
            real_sync(descriptor)

        def rename(source: str, to: str, *, src_dir_fd: Optional[int] = None, dst_dir_fd: Optional[int] = None) -> None:
            real_rename(source, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            self._saw("rename", self._at(to, dst_dir_fd))

        def own(descriptor: int, uid: int, gid: int) -> None:
            real_own(descriptor, uid, gid)
            self._saw(f"own {uid}", os.readlink(f"/proc/self/fd/{descriptor}"))

        def unlink(path: str, *, dir_fd: Optional[int] = None) -> None:
            real_unlink(path, dir_fd=dir_fd)
            self._saw("unlink", self._at(path, dir_fd))

        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "rename", rename)
        patch.setattr(os, "fchown", own)
        patch.setattr(os, "unlink", unlink)

    @staticmethod
    def _at(name: str, directory: Optional[int]) -> str:
        return str(name) if directory is None else os.readlink(f"/proc/self/fd/{directory}") + "/" + name

    def _saw(self, what: str, path: str) -> None:
        self.events.append(f"{what} {os.path.relpath(path, self._top)}")


@pytest.fixture(name="disk")
def _disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def carry_out(*plan: ops.Operation) -> None:
    """As the agent does."""

    def never(*_arguments: object) -> None:
        raise AssertionError("not asked for")

    executor.Executor(*[never] * 8).apply(plan, "durable")


def test_P1_a_plan_syncs_what_it_says(disk: Disk, tmp_path: pathlib.Path) -> None:
    """The file before its rename, the directory after it; its mode holds under any umask."""
    path = tmp_path / "record"
    before = os.umask(0o077)
    try:
        carry_out(*ops.write_durably(str(path), b"x"))
    finally:
        os.umask(before)
    assert disk.events == ["sync record.tmp", "rename record", "sync ."]
    assert path.stat().st_mode & 0o7777 == 0o644
    disk.events.clear()
    carry_out(*ops.link_durably(str(tmp_path / "current"), "a"), *ops.unlink_durably(str(tmp_path), "record"))
    assert disk.events == ["rename current", "sync .", "unlink record", "sync ."]


def noted(directory: pathlib.Path, why: str) -> None:
    """One line of the audit log."""
    audit_file.append(
        str(directory), audit.Event(audit.CLEARED, "probe", int(time.time()), why=why, to_version="1.1.0")
    )


def test_P7_a_line_of_the_audit_log_is_durable_when_it_is_told(
    disk: Disk, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes; of a new log its name as well; and of a closed log the name that it gets."""
    noted(tmp_path, "one")
    assert disk.events == ["sync audit.log", "sync ."]
    noted(tmp_path, "two")
    assert disk.events[2:] == ["sync audit.log"]
    monkeypatch.setattr(audit_chain, "is_full", lambda size, _more: bool(size))
    noted(tmp_path, "three")
    assert disk.events[3:] == ["rename audit.log.1", "sync .", "sync audit.log", "sync ."]


def test_a_program_that_a_removal_puts_back_is_durable(disk: Disk, tmp_path: pathlib.Path) -> None:
    """As any copy, and then the name at the entrypoint."""
    (tmp_path / "slot").write_bytes(DATA)
    cmd_remove._put_back(str(tmp_path / "slot"), str(tmp_path / "entry"))
    assert disk.events == ["sync entry.tmp", "rename entry", "sync ."]


@AS_ROOT
def test_a_directory_is_its_new_owners_when_all_in_it_is_durable(disk: Disk, tmp_path: pathlib.Path) -> None:
    """The copies, then the directory, closed; only then it is given, durably."""
    data = tmp_path / "data"
    data.mkdir(0o700)
    (data / "key").write_bytes(b"secret")
    os.chown(data / "key", 4711, 4712)
    os.chown(data, 4711, 4712)
    handover.hand_over(str(data), accounts.Account("two", 4811, 4812, "two"))
    part = "data/key" + handover.PART
    wanted = [
        "own 0 data",
        f"own 4811 {part}",
        f"sync {part}",
        "rename data/key",
        "sync data",
        "own 4811 data",
        "sync data",
    ]
    assert disk.events == wanted


def test_what_releasing_writes_is_durable(disk: Disk, tmp_path: pathlib.Path) -> None:
    """A signer who has been told that a signature was written still has it after a power cut."""
    release_files.replace(str(tmp_path / "manifest.json"), b"{}")
    assert disk.events[0].startswith("sync .manifest.json.")
    assert [event for event in disk.events if not event.startswith("unlink")][1:] == ["rename manifest.json", "sync ."]


def test_P1_what_is_put_into_staging_is_durable(disk: Disk, tmp_path: pathlib.Path) -> None:
    """Whole and durable when its name is there, and so is a name that it gets later."""
    staging.write(str(tmp_path), "request", b"{}")
    assert disk.events == ["sync request.new", "rename request", "sync ."]
    disk.events.clear()
    staging.rename(str(tmp_path), "request", "slotward-1.1.0")
    assert disk.events == ["rename slotward-1.1.0", "sync ."]


def test_evidence_is_durable_when_its_name_is_there(disk: Disk, tmp_path: pathlib.Path) -> None:
    """What tells why a release failed is looked at after the reboot that somebody tried first."""
    product = products.Product("app", "app.service", str(tmp_path / "app"), str(tmp_path))
    evidence_file.write(product, "00112233445566aa", b"{}")
    name = "evidence/00112233445566aa.json"
    assert [event for event in disk.events if not event.startswith("unlink")] == [
        f"sync {name}{evidence.PARTIAL}",
        f"rename {name}",
        "sync evidence",
    ]


def test_P1_a_tree_is_durable_to_its_last_directory(disk: Disk, tmp_path: pathlib.Path) -> None:
    """Each file, then the directories, the deepest first, the top, and the name that it has until it is whole."""
    packed = tars.packed(tars.member(b"app/app", DATA), tars.member(b"app/lib/x/data", b"1"))
    (tmp_path / "archive").write_bytes(packed)
    versions = tmp_path / "versions"
    with open(tmp_path / "archive", "rb") as file:
        artifact = unpack.Artifact(file.fileno(), len(packed), hashlib.sha256(packed).hexdigest())
        unpack.unpack(artifact, str(versions), "1.0.0", "app")
    top = "versions/1.0.0.partial"
    inside = [f"{top}/app", f"{top}/lib/x/data", f"{top}/lib/x", f"{top}/lib", top]
    assert disk.events == [f"sync {path}" for path in (*inside, "versions")]
    os.rename(versions / "1.0.0.partial", versions / "1.0.0")
    (versions / "1.0.0.json").write_bytes(b"{}")
    disk.events.clear()
    trees.discard(str(versions / "1.0.0"))
    assert disk.events[:2] == ["unlink versions/1.0.0.json", "sync versions"]
    assert disk.events[-1] == "sync versions"
    assert len(disk.events) > 3, "the tree goes between the two"


def test_P1_a_listing_and_the_directory_of_the_trees_are_durable(
    disk: Disk, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of the trees may be new: its own name is synced too."""
    monkeypatch.setattr(labels, "give", lambda *_arguments, **_more: None)
    names = ("app", "app.service", str(tmp_path / "app"), str(tmp_path / "slots"))
    product = products.Product(*names, layout=products.VERSIONS, program="app")
    (tmp_path / "slots").mkdir()
    (tmp_path / "program").write_bytes(DATA)
    record = records.SlotRecord("1.0.0", 1, SHA256, len(DATA))
    operation = ops.Unpack(str(tmp_path / "slots" / "versions" / "1.0.0"), "staged", record, ops.BINARY)
    with open(tmp_path / "program", "rb") as file:
        trees.make(product, operation, file.fileno())
    assert disk.events[-3:] == ["sync slots/versions", "sync slots/versions/1.0.0.json.partial", "sync slots"]


# --- the guard -------------------------------------------------------------------------------------------------------

TOOL = """#!/bin/sh
printf '%s\\n' "${0##*/}${*:+ }$*" >>"$FAKE_SYSTEMD/calls"
exec /usr/bin/${0##*/} "$@"
"""


@pytest.fixture(name="tools")
def _tools(tmp_path: pathlib.Path) -> pathlib.Path:
    """Tools that write down, among what systemd was asked, what they are told, and do it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sync", "mv", "rm"):
        (tools / name).write_text(TOOL, encoding="ascii")
        (tools / name).chmod(0o755)
    return tools


def steps(tree: guarding.Tree, tools: pathlib.Path, mode: str) -> List[str]:
    """What the guard has these tools and systemd do, in order; a number in a name is written as N."""
    tree.forget_calls()
    path = {"PATH": f"{tools}:{tree.environment()['PATH']}"}
    done = subprocess.run(
        tree.argv(mode), env={**tree.environment(), **path}, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    kept = [line for line in tree.calls() if "slotward-guard/demo.seen" not in line]  # of this boot alone
    return [line.partition(".trial.")[0] + ".trial.N" if ".trial." in line else line for line in kept]


def steps_of(found: List[str], *words: str) -> List[str]:
    """Of those steps the ones that begin so."""
    return [line for line in found if line.startswith(words)]


GONE_BACK = ["mv -fT trial trial.revert", "sync trial.revert .", "mv -fT back current", "sync .", *guarding.RESTART]


def test_P7_the_guards_going_back_is_durable_step_by_step(tmp_path: pathlib.Path, tools: pathlib.Path) -> None:
    """The claim with its reason before the links move; the links before the restart."""
    tree = guarding.Tree(tmp_path)
    tree.swap()
    tree.at(guarding.NOW + 60)
    assert steps(tree, tools, "tick") == GONE_BACK


def test_P7_a_renewed_record_is_durable_before_it_takes_its_place(tmp_path: pathlib.Path, tools: pathlib.Path) -> None:
    """A new boot's record: its bytes, the rename, the directory."""
    tree = guarding.Tree(tmp_path)
    tree.swap()
    tree.at(30, guarding.OTHER_BOOT)
    found = steps_of(steps(tree, tools, "start"), "sync", "mv")
    assert found == ["sync .trial.N", "mv -fT .trial.N", "sync ."]


def test_P7_why_a_lost_record_goes_back_is_durable_before_the_links_move(
    tmp_path: pathlib.Path, tools: pathlib.Path
) -> None:
    """Else nobody knows afterwards that there was a trial at all."""
    tree = guarding.Tree(tmp_path)
    tree.swap()
    (tree.slots / "trial").unlink()
    assert steps(tree, tools, "tick") == ["sync .", *GONE_BACK[2:]]


def test_P7_a_slot_that_does_not_prove_itself_is_left_step_by_step(tmp_path: pathlib.Path, tools: pathlib.Path) -> None:
    """`good` first, then why, then `current`: a cut leaves links that differ, and a reason."""
    tree = guarding.Tree(tmp_path)
    held = {slot: records.SlotRecord("1.0.0", 1, hashlib.sha256(slot.encode()).hexdigest(), 1) for slot in ("a", "b")}
    (tree.slots / "slots.json").write_bytes(records.render_slots(held))
    (tree.slots / "update.json").write_bytes(records.render_update(records.Update(floor=1)))
    (tree.slots / "a").write_bytes(b"")
    found = steps_of(steps(tree, tools, "start"), "sync", "mv")
    assert found == ["mv -fT good.tmp good", "sync .", "sync trial.revert .", "mv -fT back current", "sync ."]


@AS_ROOT
def test_P7_the_guard_keeps_and_restores_data_durably(tmp_path: pathlib.Path, tools: pathlib.Path) -> None:
    """The copy before anything says that it is kept; the restored data before that word goes."""
    tree = keeping.Keeping(tmp_path)
    tree.swap()
    tree.run("start")
    kept = ["sync", "sync snapshot.tmp", "mv -fT snapshot.tmp snapshot", "sync ."]
    assert steps_of(steps(tree, tools, "data"), "sync", "mv") == kept
    tree.at(guarding.NOW + 60)
    tree.run("tick")
    assert steps(tree, tools, "data") == ["sync", "rm -f snapshot snapshot.tmp", "sync ."]
    assert tree.kept() is None
