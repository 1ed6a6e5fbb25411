# SPDX-License-Identifier: GPL-3.0-or-later
"""The independent checker: it passes what is sound, and names each violation of it (faults.md, section 1)."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional, Set

import pytest
from faults import checker

from slotcore import listings, recording, records, trial, trust_record

CHECKER = pathlib.Path(checker.__file__)
BYTES = {"a": b"#!/bin/sh\nexec old\n", "b": b"#!/bin/sh\nexec new\n"}
SHA = {slot: hashlib.sha256(data).hexdigest() for slot, data in BYTES.items()}
KNOWN = {SHA["a"]: {"version": "1.0.0", "sequence": 1}, SHA["b"]: {"version": "1.1.0", "sequence": 2}}
SLOTS = {
    "a": records.SlotRecord("1.0.0", 1, SHA["a"], len(BYTES["a"])),
    "b": records.SlotRecord("1.1.0", 2, SHA["b"], len(BYTES["b"])),
}
FAILURE = records.Failed("1.2.0", "crash-loop", "it fell", 3, "c" * 64, 5)
UPDATE = records.Update(floor=1, failed=(FAILURE,))
BOOT = "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10"
TRIAL = trial.render_trial(
    trial.Trial("00112233445566aa", "probe", "1.0.0", "1.1.0", "a", "b", 2, BOOT, 20, 100, 0, "-", SHA["a"], SHA["b"])
)


class Host:
    """A host at rest below a directory, as node.md, section 2, has it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.slots = root, root / "opt/probe"
        self.slots.mkdir(parents=True)
        self.slots.chmod(0o755)
        (root / "bin").mkdir()
        self.entrypoint = root / "bin/probe"
        self.entrypoint.symlink_to("/opt/probe/current")
        for slot, data in BYTES.items():
            self.put(slot, data, 0o755)
        self.link("current", "a")
        self.link("good", "a")
        self.record(recording.SLOTS, records.render_slots(SLOTS))
        self.record(recording.UPDATE, records.render_update(UPDATE))

    def put(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """A file of the slots directory."""
        path = self.slots / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(mode)

    def record(self, name: str, data: bytes) -> None:
        """A record and its copy."""
        self.put(name, data)
        self.put(name + recording.COPY, recording.sealed(data))

    def link(self, name: str, target: str) -> None:
        """A link of the slots directory."""
        (self.slots / name).unlink(missing_ok=True)
        (self.slots / name).symlink_to(target)

    def on_trial(self) -> None:
        """Slot b is on trial."""
        self.link("back", "a")
        self.put("trial.log", trial.LOG_HEADER)
        self.put("trial", TRIAL)
        self.link("current", "b")

    def confirmed(self) -> None:
        """Slot b was confirmed."""
        self.record(recording.UPDATE, records.render_update(UPDATE._replace(floor=2)))
        self.link("good", "b")
        self.link("current", "b")

    def look(self, **more: Any) -> Dict[str, Any]:
        """What the checker answers of it."""
        return checker.judge("/opt/probe", "/bin/probe", root=str(self.root), known=KNOWN, **more)

    def rules(self, **more: Any) -> Set[str]:
        """Which rules it breaks."""
        return {found["rule"] for found in self.look(**more)["violations"]}


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    """A host at rest."""
    return Host(tmp_path)


def test_a_host_at_rest_and_one_on_trial_break_nothing(host: Host) -> None:
    """What is sound passes, and its state is told."""
    before = host.look(at_rest=True)
    assert before["violations"] == []
    assert before["state"]["current"] == before["state"]["good"] == "a"
    assert before["state"]["floor"] == 1
    assert before["state"]["failed"] == ["1.2.0"]
    assert before["state"]["records"] == {
        "slots.json": "ok",
        "slots.json.copy": "ok",
        "update.json": "ok",
        "update.json.copy": "ok",
        "trust.json": "missing",
        "trust.json.copy": "missing",
    }
    host.on_trial()
    found = host.look(before=before)
    assert found["violations"] == []
    assert found["state"]["trial"]["to_version"] == "1.1.0"
    assert found["state"]["claim"] is None


def test_an_entrypoint_that_was_never_there_is_no_loss(host: Host) -> None:
    """A first installation that was cut before its last step; without an earlier look, or once it was there, it is demanded."""
    host.entrypoint.unlink()
    there: Dict[str, Any] = {"bytes": {"entrypoint": None, "good": None}, "floor": None, "failed": []}
    assert host.look(before=there)["violations"] == []
    assert [one["rule"] for one in host.look()["violations"]] == ["I1"]
    there["bytes"]["entrypoint"] = hashlib.sha256(BYTES["a"]).hexdigest()
    assert {one["rule"] for one in host.look(before=there)["violations"]} == {"I1"}


def test_each_end_of_a_trial_is_sound_while_it_is_finished(host: Host) -> None:
    """A claim with a reason, whole or torn, is a trial's record; a confirmation raises the floor before `good`."""
    before = host.look()
    host.on_trial()
    (host.slots / "trial").rename(host.slots / "trial.revert")
    for reason in (b"", b"REA", b"REASON=crash-", b"REASON=crash-loop\n"):
        host.put("trial.revert", TRIAL + reason)
        found = host.look(before=before)
        assert found["violations"] == []
        assert found["state"]["claim"] == "revert"
        assert found["state"]["trial"]["to_slot"] == "b"
    (host.slots / "trial.revert").rename(host.slots / "trial.confirm")
    host.put("trial.confirm", TRIAL)
    host.confirmed()
    assert host.look(before=before)["violations"] == []


Damage = Callable[[Host], object]


def _unexecutable(host: Host) -> None:
    host.put("a", BYTES["a"], 0o644)


def _torn_tree(host: Host) -> None:
    tree(host)
    (host.slots / "versions/1.0.0/share/text").write_bytes(b"other")


def _more_in_tree(host: Host) -> None:
    tree(host)
    (host.slots / "versions/1.0.0/more").touch()


PROGRAMS: Dict[str, Damage] = {
    "no entrypoint": lambda host: host.entrypoint.unlink(),
    "the entrypoint leads nowhere": lambda host: host.link("current", "c"),
    "no current": lambda host: (host.slots / "a").unlink(),
    "an empty slot": lambda host: host.put("a", b"", 0o755),
    "other bytes": lambda host: host.put("a", b"#!/bin/sh\nexec evil\n", 0o755),
    "cut bytes": lambda host: host.put("a", BYTES["a"][:-1], 0o755),
    "not executable": _unexecutable,
    "good leads nowhere": lambda host: host.link("good", "c"),
    "a circle of links": lambda host: host.link("current", "current"),
    "the free slot has other bytes than its record": lambda host: host.put("b", b"half", 0o755),
    "a tree with another file": _torn_tree,
    "a tree with one more name": _more_in_tree,
}


@pytest.mark.parametrize("damage", PROGRAMS.values(), ids=PROGRAMS)
def test_what_does_not_start_verified_bytes_breaks_i1(host: Host, damage: Damage) -> None:
    """I1: the entrypoint, and what going back would start, are programs that something vouches for."""
    damage(host)
    assert host.rules() == {"I1"}


def test_bytes_that_nothing_vouches_for_break_i1(host: Host) -> None:
    """A slot whose record fits is not enough: known is only what was signed."""
    host.put("a", b"mine", 0o755)
    mine = records.SlotRecord("1.0.0", 1, hashlib.sha256(b"mine").hexdigest(), 4)
    host.record(recording.SLOTS, records.render_slots({**SLOTS, "a": mine}))
    assert host.rules() == {"I1"}


def tree(host: Host) -> None:
    """Make slot a a tree whose entrypoint is its program."""
    top = host.slots / "versions/1.0.0"
    (top / "share").mkdir(parents=True)
    (top / "prog").write_bytes(BYTES["a"])
    (top / "prog").chmod(0o755)
    (top / "share/text").write_bytes(b"text")
    (top / "share").chmod(0o755)
    (top / "share/text").chmod(0o644)
    entries = (
        listings.Entry("prog", listings.FILE, 0o755, len(BYTES["a"]), SHA["a"]),
        listings.Entry("share", listings.DIRECTORY, 0o755),
        listings.Entry("share/text", listings.FILE, 0o644, 4, hashlib.sha256(b"text").hexdigest()),
    )
    host.put("versions/1.0.0.json", listings.render(listings.Listing(SLOTS["a"], entries)))
    host.link("a", "versions/1.0.0")
    host.entrypoint.unlink()
    host.entrypoint.symlink_to("/opt/probe/current/prog")
    host.record(recording.SLOTS, records.render_slots({"a": SLOTS["a"]}))


def test_a_tree_is_compared_with_its_listing(host: Host) -> None:
    """In layout `versions` the program is in the tree, and the tree is as its listing says."""
    tree(host)
    assert host.look(at_rest=True)["violations"] == []
    (host.slots / "versions/1.2.0.partial").mkdir()
    assert host.rules(at_rest=True) == {"I9"}


@pytest.mark.parametrize("name", ["trial", "trial.confirm", "trial.revert", "trial.log", "back", "helper.back"])
def test_what_is_left_of_a_trial_breaks_i2(host: Host, name: str) -> None:
    """I2: at rest nothing of a trial is there."""
    host.put(name, TRIAL)
    assert host.rules() == set()
    assert host.rules(at_rest=True) == {"I2"}


def test_links_that_differ_at_rest_break_i2(host: Host) -> None:
    """I2: what is not confirmed does not survive; the helper's link follows."""
    host.link("current", "b")
    assert host.rules() == set()
    assert host.rules(at_rest=True) == {"I2"}
    host.link("current", "a")
    host.link("helper", "b")
    assert host.rules(at_rest=True) == {"I2"}


def test_a_floor_that_falls_and_a_failure_that_is_forgotten_break_i3(host: Host) -> None:
    """I3: neither the floor nor what failed is lost, but for what a command cleared."""
    before = host.look()
    host.record(recording.UPDATE, records.render_update(UPDATE._replace(floor=0)))
    assert host.rules(before=before) == {"I3"}
    host.record(recording.UPDATE, records.render_update(UPDATE._replace(failed=())))
    assert host.rules(before=before) == {"I3"}
    assert host.rules(before=before, cleared=["1.2.0"]) == set()
    assert host.rules(before=before, cleared=["all"]) == set()
    assert host.rules(before=before, cleared=["1.1.0"]) == {"I3"}


def test_good_that_moves_without_the_floor_breaks_i5(host: Host) -> None:
    """I5: nobody calls a release good that was not confirmed; a floor that stays behind needs the word of `last`."""
    before = host.look()
    host.link("good", "b")
    host.link("current", "b")
    assert host.rules(before=before) == {"I5"}
    last = records.Last("00112233445566aa", "rolled-back", "ok", "", "1.0.0", "1.1.0", 5)
    host.record(recording.UPDATE, records.render_update(UPDATE._replace(last=last)))
    assert host.rules(before=before) == {"I5"}
    host.record(recording.UPDATE, records.render_update(UPDATE._replace(last=last._replace(state="confirmed"))))
    assert host.rules(before=before) == set()
    host.confirmed()
    assert host.rules(before=before) == set()


def test_an_entrypoint_that_is_gone_breaks_i1_also_before_the_slots_are_in_use(host: Host) -> None:
    """I1: a cut while adopting leaves the file that starts; a host that never had one has nothing to lose."""
    for name in ("current", "good", "slots.json", "update.json"):
        (host.slots / name).unlink()
    host.entrypoint.unlink()
    assert host.rules() == set()
    host.entrypoint.write_bytes(BYTES["a"])
    host.entrypoint.chmod(0o755)
    before = host.look()
    assert before["violations"] == []
    host.entrypoint.unlink()
    assert host.rules(before=before) == {"I1"}


STRANGE = ["a.tmp", ".trial.77", ".probe-77", "verify", "x.partial", "update.json.new", "slots.json.broken-x", "trial2"]


@pytest.mark.parametrize("name", STRANGE)
def test_a_file_that_nobody_knows_breaks_i9(host: Host, name: str) -> None:
    """I9: what node.md, section 2, does not name is not left lying about."""
    host.put(name, b"")
    assert host.rules() == set()
    assert host.rules(at_rest=True) == {"I9"}


def test_what_was_set_aside_is_bounded(host: Host) -> None:
    """I9: the newest four of each record."""
    for second in range(4):
        host.put(f"update.json.broken-{second}", b"{")
        host.put(f"trial.broken-{second}", b"{")
    assert host.rules(at_rest=True) == set()
    host.put("update.json.broken-9", b"{")
    assert host.rules(at_rest=True) == {"I9"}


@pytest.mark.parametrize("mode", [0o700, 0o775])
def test_the_directory_has_its_mode(host: Host, mode: int) -> None:
    """D13: what a cut run has made is as node.md has it, whatever the umask."""
    host.slots.chmod(mode)
    assert host.rules(at_rest=True) == {"I9"}


def test_two_of_a_trials_records_break_i12(host: Host) -> None:
    """I12: one arbiter."""
    host.on_trial()
    host.put("trial.revert", TRIAL)
    assert host.rules() == {"I12"}


TORN: List[Optional[bytes]] = [None, b"", b"\0" * 40, records.render_update(UPDATE)[:-9], b'{"spec":2}\n', b"[]\n"]


@pytest.mark.parametrize("data", TORN, ids=["missing", "empty", "zeros", "cut", "spec", "list"])
@pytest.mark.parametrize("name", ["update.json", "slots.json"])
def test_a_record_that_is_lost_needs_its_copy(host: Host, name: str, data: Optional[bytes]) -> None:
    """Until it is settled the copy stands in; at rest the record is whole; without a copy it is lost."""
    path = host.slots / name
    path.unlink()
    if data is not None:
        host.put(name, data)
    assert host.rules() == set()
    assert host.rules(at_rest=True) == {"records"}
    (host.slots / (name + ".copy")).unlink()
    assert host.rules() == {"records"}


def test_a_copy_that_is_torn_and_a_record_that_others_may_write_are_told(host: Host) -> None:
    """A copy is never torn: it came by a rename. What others may write is no record (field case D13)."""
    host.put("update.json.copy", recording.sealed(records.render_update(UPDATE))[:-1])
    assert host.rules() == {"records"}
    host.record(recording.UPDATE, records.render_update(UPDATE))
    assert host.rules() == set()
    (host.slots / "update.json").chmod(0o666)
    assert host.rules(at_rest=True) == {"records"}


def test_a_record_of_trust_that_is_older_than_known_is_told(host: Host) -> None:
    """`update.json` knows the generation that must be there at least."""
    host.record(recording.UPDATE, records.render_update(UPDATE._replace(trust=3)))
    assert host.rules() == {"records"}
    host.record(trust_record.NAME, trust_record.render(trust_record.Trust(generation=2)))
    assert host.rules() == {"records"}
    host.record(trust_record.NAME, trust_record.render(trust_record.Trust(generation=3)))
    assert host.rules(at_rest=True) == set()


@pytest.mark.parametrize("data", [b"", TRIAL[:-1], TRIAL[:100], TRIAL + b"X=1\n", TRIAL.replace(b"SPEC=1", b"SPEC=2")])
def test_a_trial_that_is_damaged_is_told_in_the_state(host: Host, data: bytes) -> None:
    """A bad record counts as past its deadline, so it is no violation by itself, and never taken for a good one."""
    host.on_trial()
    host.put("trial", data)
    found = host.look()
    assert str(found["state"]["trial"]).startswith("bad: ")
    assert found["violations"] == []


def run(host: Host, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it as a program, alone, as on a host."""
    argv = [sys.executable, "-I", str(CHECKER), "--slots", "/opt/probe", "--entrypoint", "/bin/probe", "--root"]
    return subprocess.run([*argv, str(host.root), *more], capture_output=True, text=True, check=False)


def test_as_a_program_it_prints_one_object_and_ends_with_its_verdict(host: Host, tmp_path: pathlib.Path) -> None:
    """0 without a violation, 1 with one, 2 when it was called wrongly; an earlier answer may be given back to it."""
    known, before = tmp_path / "known", tmp_path / "before"
    known.write_text(json.dumps(KNOWN))
    done = run(host, "--known", str(known), "--at-rest")
    assert (done.returncode, json.loads(done.stdout)["violations"]) == (0, [])
    before.write_text(done.stdout)
    host.link("good", "b")
    done = run(host, "--known", str(known), "--before", str(before), "--at-rest")
    assert done.returncode == 1
    assert {found["rule"] for found in json.loads(done.stdout)["violations"]} == {"I2", "I5"}
    done = run(host, "--known", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (2, "")


def test_it_asks_systemd_and_looks_at_what_the_main_process_has_open(
    host: Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that runs other bytes than those of `current`, or none, is a violation."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "systemctl").write_text(f"#!/bin/sh\ncat {fake}/shown\n")
    (fake / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    with (host.slots / "a").open("rb") as file:
        assert file.fileno() > 2
        (fake / "shown").write_text(f"ActiveState=active\nMainPID={os.getpid()}\n")
        assert host.rules(running="probe.service") == set()
        (fake / "shown").write_text(f"ActiveState=activating\nMainPID={os.getpid()}\n")
        assert host.rules(running="probe.service") == {"I1"}
    (fake / "shown").write_text(f"ActiveState=active\nMainPID={os.getpid()}\n")
    assert host.rules(running="probe.service") == {"I1"}
    copy = tmp_path / "copy"
    copy.write_bytes((host.slots / "a").read_bytes())
    with copy.open("rb"):
        copy.unlink()
        assert host.rules(running="probe.service") == set(), "as after an adoption: the same bytes, another file"


def test_it_imports_nothing_of_ours() -> None:
    """An error in the agent's own reading must show."""
    source = CHECKER.read_text(encoding="utf-8")
    imports = [line for line in source.splitlines() if line.lstrip().startswith(("import ", "from "))]
    named = {line.split()[1].partition(".")[0] for line in imports}
    assert named <= {"__future__", *sys.stdlib_module_names}
