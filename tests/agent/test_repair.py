# SPDX-License-Identifier: GPL-3.0-or-later
"""`update --repair` on a real directory: what it proves, what it asks for, and what a cut in the middle of it leaves."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, List, Optional

import pytest
from agent.places import NEW, OLD, RECORD, TRIAL_ID, Place, fill

from slotcore import audit, codes, ops, recording, records, repair
from slotward import answers, audit_file, cli, cmd_repair, cmd_settle, effects, host, manager

COPIES = (recording.SLOTS + recording.COPY, recording.UPDATE + recording.COPY)
FILES = (recording.SLOTS, recording.UPDATE)


def lose(place: Place, *names: str) -> None:
    """Tear these records, and their copies too."""
    for name in names:
        for path in (name, name + recording.COPY):
            place.write(path, (place.slots / path).read_bytes()[:-9])


def installed(place: Place, sequence: int = 7) -> None:
    """The log begins where this host began, and knows the bytes in both slots."""
    for event, entry in ((audit.INSTALLED, OLD), (audit.ACCEPTED, NEW), (audit.CONFIRMED, OLD)):
        about = audit.Event(event, "probe", 9, to_version=entry.version, sequence=entry.sequence, sha256=entry.sha256)
        audit_file.append(str(place.slots), about)
    raised = audit.Event(audit.CONFIRMED, "probe", 9, to_version="0.9", sequence=sequence, trial_id="0" * 16)
    audit_file.append(str(place.slots), raised)


def floor_at(place: Place, sequence: int) -> None:
    """Have the record of the floor, and its copy, say so."""
    update = records.render_update(records.Update(floor=sequence))
    place.write(recording.UPDATE, update)
    place.write(recording.UPDATE + recording.COPY, recording.sealed(update))


def run(place: Place, floor: Optional[int] = None) -> answers.Answer:
    """Repair once, and again: the second time changes nothing (I9)."""
    answer = cmd_repair.run(place.product, floor)
    again = cmd_repair.run(place.product, None if answer.exit == answers.DONE else floor)
    assert (again.exit, again.json["changed"]) == (answer.exit, False), again
    return answer


def test_a_sound_host_has_nothing_to_repair(place: Place) -> None:
    """Exit 0, changed false, and not a byte is written."""
    before = place.names()
    answer = run(place)
    assert (answer.exit, answer.json["code"], answer.json["changed"], answer.json["floor"]) == (0, "ok", False, 7)
    assert answer.lines == ["nothing to repair: records, slots and links are sound"]
    assert place.names() - before == {"lock"}


def test_I3_with_record_and_copy_torn_the_floor_is_asked_for_and_said_at_last(place: Place) -> None:
    """The answer names what is known and the exact command; below that it is refused; then updates go on."""
    lose(place, recording.UPDATE)
    answer = run(place)
    assert (answer.exit, answer.json["code"], answer.json["state"]) == (3, "floor-unproven", "refused")
    assert answer.json["known"] == {"configured": 0, "slots": 1, "audit": 0, "records": 0, "lowest": 1}
    assert answer.json["retry"] == "slotward update --repair --floor 1"
    assert answer.json["retry"] in answer.lines[-1]
    assert run(place, 0).json["code"] == "floor-unproven"
    assert place.state().broken is not None
    assert recording.UPDATE not in place.names()
    answer = run(place, 5)
    assert (answer.exit, answer.json["code"], answer.json["changed"], answer.json["floor"]) == (0, "ok", True, 5)
    assert answer.json["repaired"] == ["the release floor is 5"]
    state = place.state()
    assert (state.broken, state.update.floor, state.slots) == (None, 5, {"a": OLD, "b": NEW})
    assert recording.unsealed((place.slots / COPIES[1]).read_bytes()) == (place.slots / recording.UPDATE).read_bytes()
    noted = place.noted()[-1]
    assert (noted.event, noted.sequence, noted.why) == ("repaired", 5, "the release floor is 5")
    assert run(place, 6).json["code"] == "floor-unproven", "a sound floor is not changed by saying another"


def test_an_audit_log_that_holds_from_its_beginning_proves_floor_and_slots(place: Place) -> None:
    """Both records and both copies are lost, and nobody needs to be asked."""
    installed(place)
    lose(place, *FILES)
    answer = run(place)
    assert (answer.exit, answer.json["floor"]) == (0, 7)
    state = place.state()
    assert state.slots == {"a": OLD, "b": NEW._replace(expires_at=0)}
    assert [len(place.aside(name)) for name in FILES] == [1, 1]


def test_an_audit_log_that_was_changed_proves_nothing(place: Place) -> None:
    """A line changed in the middle: what is before it counts for the least floor, and the operator is asked."""
    installed(place)
    manager.settle_now(place.product)
    audit_file.append(str(place.slots), audit.Event(audit.CLEARED, "probe", 9))
    lose(place, recording.UPDATE)
    log = place.slots / "audit.log"
    log.write_bytes(log.read_bytes().replace(b'"sequence":7', b'"sequence":3'))
    answer = run(place)
    assert (answer.json["code"], answer.json["known"]["audit"]) == ("floor-unproven", 3)
    assert run(place, 7).json["floor"] == 7


def test_I6_junk_in_the_other_slot_gets_no_record_and_is_never_opened_as_what_it_is_not(place: Place) -> None:
    """`slots.json` is lost while slot b holds what nobody verified: bytes, then a link, a FIFO, a directory."""
    installed(place)
    other = place.slots / "b"
    outside = place.root / "outside"
    outside.write_bytes(b"defg")  # the very bytes that were verified, but not in a file of ours
    for make in (
        lambda: other.write_bytes(b"junk"),
        lambda: other.symlink_to(outside),
        lambda: os.mkfifo(other),
        other.mkdir,
    ):
        if other.is_dir():
            other.rmdir()
        other.unlink(missing_ok=True)
        make()
        lose(place, recording.SLOTS)
        answer = run(place)
        assert answer.exit == answers.DONE
        assert place.state().slots == {"a": OLD}
        assert "slot b has no record: nothing says that its bytes were ever verified" in answer.json["repaired"]


def test_P5_a_damaged_slot_is_left_when_that_is_asked_for(place: Place) -> None:
    """The other slot holds what the floor stands at: both links move, the unit is restarted, the log says so; again, nothing."""
    floor_at(place, NEW.sequence)
    (place.slots / "a").write_bytes(b"ab")
    answer = cmd_repair.run(place.product, None, moves=True)
    assert (answer.exit, answer.json["left"], answer.json["floor"]) == (0, [], NEW.sequence), answer
    assert (os.readlink(place.slots / "current"), os.readlink(place.slots / "good")) == ("b", "b")
    assert "--no-block restart -- probe.service" in place.calls()
    assert "slot a is damaged" in [event.why for event in place.noted() if event.event == "repaired"][-1]
    assert cmd_repair.run(place.product, None, moves=True).json["changed"] is False


def test_P5_a_slot_that_was_cut_short_loses_its_record_and_what_starts_is_named(place: Place) -> None:
    """State comes from digests: the free slot is staged anew next time, the running one must be installed anew."""
    (place.slots / "a").write_bytes(b"ab")
    (place.slots / "b").write_bytes(b"de")
    answer = run(place)
    assert (answer.exit, answer.json["code"], place.state().slots) == (0, "ok", {})
    said = "slot a is what starts, and nothing says that its bytes were ever verified"
    assert answer.json["left"] == [f"{said}: slotward --product probe setup --from FILE --manifest MANIFEST"]
    agent = place.product._replace(name="slotward")
    assert cmd_repair.run(agent, None).json["left"][0].endswith(": FILE setup --from FILE --manifest MANIFEST")


def test_I6_records_of_another_host_are_believed_only_as_far_as_their_digests_fit(place: Place) -> None:
    """Whole records carry no host's name: bytes that they do not name are said to be other ones, and a repair drops the words."""
    installed(place)
    other = {slot: entry._replace(sha256="f" * 64, version="9.9.9") for slot, entry in (("a", OLD), ("b", NEW))}
    data = records.render_slots(other)
    place.write(recording.SLOTS, data)
    place.write(recording.SLOTS + recording.COPY, recording.sealed(data))
    state = place.state()
    assert state.broken is None
    assert host.damage(place.product, state) == "slot a holds other bytes than were verified for 9.9.9"
    answer = run(place)
    assert (answer.exit, place.state().slots) == (0, {"a": OLD}), (
        "what starts is known by the log; b proves itself anew"
    )


@pytest.mark.parametrize("name", ["trial.revert", "trial.confirm"])
def test_S1_a_claim_that_waited_for_the_record_is_finished(name: str, place: Place) -> None:
    """Both ends: the repair writes the floor, and the same command ends the trial by what its claim says."""
    place.on_trial()
    os.rename(place.slots / "trial", place.slots / name)
    if name == "trial.revert":
        with (place.slots / name).open("ab") as file:
            file.write(b"REASON=crash-loop\n")
    lose(place, recording.UPDATE)
    manager.settle_now(place.product)
    assert name in place.names()
    answer = cmd_repair.run(place.product, 1)
    assert answer.exit == answers.DONE, answer
    state = place.state()
    assert (state.broken, state.confirm, state.revert, state.back) == (None, None, None, None)
    last = state.update.last
    assert last is not None
    if name == "trial.revert":
        assert (last.state, last.code, state.current, state.update.floor) == ("rolled-back", "crash-loop", "a", 1)
    else:
        assert (last.state, state.current, state.good, state.update.floor) == ("confirmed", "b", "b", 2)
    assert cmd_repair.run(place.product, None).json["changed"] is False


def test_a_trial_that_goes_on_must_end_first(place: Place) -> None:
    """Nothing is confirmed on records that nobody could read: the answer says how to end it, and changes nothing."""
    clock = host.clock()
    lines = dict(line.split("=", 1) for line in RECORD.decode().splitlines())
    lines.update(BOOT_ID=clock.boot_id, DEADLINE_S=str(clock.uptime_s + 20))
    place.on_trial("".join(f"{key}={value}\n" for key, value in lines.items()).encode())
    lose(place, recording.UPDATE)
    with pytest.raises(codes.Retryable) as caught:
        cmd_repair.run(place.product, 9)
    assert caught.value.code == codes.TRIAL_PENDING
    assert f"slotward rollback --id {TRIAL_ID}" in caught.value.text
    assert recording.UPDATE not in place.names()
    assert place.state().current == "b"


def test_a_lost_good_is_made_again_by_what_a_claim_names(place: Place) -> None:
    """Going back had moved the links by `back`; the claim names slot a and its bytes."""
    place.on_trial(RECORD)
    (place.slots / "good").unlink()
    os.rename(place.slots / "trial", place.slots / "trial.revert")
    assert manager.settle_now(place.product)[0].state.current == "a"
    answer = run(place)
    assert (answer.exit, place.state().good, place.state().revert) == (0, "a", None)
    assert f"{place.slots}/good names a" in answer.json["repaired"]


def test_a_lost_good_that_nothing_proves_is_left_and_the_command_is_named(place: Place) -> None:
    """Exit 5: still broken; the operator decides, by the command that is shown. None is shown for what is below the floor."""
    (place.slots / "good").unlink()
    assert "not below the floor, 7: slotward --product probe setup" in run(place).json["left"][0]
    floor_at(place, OLD.sequence)
    answer = run(place)
    assert (answer.exit, answer.json["code"], answer.json["changed"]) == (5, "record-broken", False)
    assert answer.json["left"][0].split("; ")[1].endswith(f"ln -sfn a {place.slots}/good")
    place.link("good", "a")
    assert run(place).exit == answers.DONE


def test_B19_with_both_links_gone_and_nothing_proven_a_repair_is_no_success(place: Place) -> None:
    """No record is broken, and yet nothing starts from the slots: exit 5, with the first thing that is left as its message."""
    floor_at(place, OLD.sequence)
    for name in ("good", "current"):
        (place.slots / name).unlink()
    answer = run(place)
    assert (place.state().broken, answer.exit, answer.json["code"]) == (None, answers.BROKEN, "record-broken")
    assert answer.json["message"] == answer.json["left"][0]
    assert f"ln -sfn b {place.slots}/good" in answer.json["message"]


def test_A3_both_links_are_made_again_by_what_records_floor_and_log_prove(place: Place) -> None:
    """Slot b was confirmed last: it is taken, and slot a, below the floor, is not named."""
    floor_at(place, NEW.sequence)
    for event, entry in ((audit.INSTALLED, OLD), (audit.ACCEPTED, NEW), (audit.CONFIRMED, NEW)):
        about = audit.Event(event, "probe", 9, to_version=entry.version, sequence=entry.sequence, sha256=entry.sha256)
        audit_file.append(str(place.slots), about)
    for name in ("good", "current"):
        (place.slots / name).unlink()
    answer = run(place)
    assert (answer.exit, answer.json["left"]) == (0, [])
    assert (place.state().current, place.state().good) == ("b", "b")
    assert answer.lines == [f"repaired: {place.slots}/good names b", f"repaired: {place.slots}/current names b"]


@pytest.mark.parametrize("name", ["current", "good"])
def test_A6_a_link_that_names_no_slot_is_no_lost_trial(
    name: str, place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """A look and a settling leave it as it is and fail nothing: updates are refused, and a repair says what it mended."""
    floor_at(place, OLD.sequence)
    about = audit.Event(audit.INSTALLED, "probe", 9, to_version=OLD.version, sequence=OLD.sequence, sha256=OLD.sha256)
    audit_file.append(str(place.slots), about)
    place.link(name, "zzz")
    for look in (lambda: called(place, capfd), lambda: cmd_settle.settle(place.product)):
        look()
        state = place.state()
        assert (os.readlink(place.slots / name), state.update.failed, state.update.last) == ("zzz", (), None)
        assert state.broken is not None
        assert state.broken[0] == f"{place.slots}/{name}"
    answer = run(place)
    assert (answer.exit, answer.json["repaired"]) == (0, [f"{place.slots}/{name} names a"])
    assert (place.state().current, place.state().good, place.state().broken) == ("a", "a", None)


@pytest.mark.parametrize("slot", ["a", "b"])
@pytest.mark.parametrize("mode", [0o644, 0o777, 0o000])
def test_A5_the_mode_of_a_slot_whose_bytes_are_proven_is_mended(slot: str, mode: int, place: Place) -> None:
    """What starts, and the other one; the log says so, and no unit is restarted for it."""
    (place.slots / slot).chmod(mode)
    answer = run(place)
    assert (answer.exit, answer.json["left"], place.state().slots) == (0, [], {"a": OLD, "b": NEW})
    assert (place.slots / slot).stat().st_mode & 0o7777 == 0o755
    assert answer.json["repaired"][0].startswith(f"slot {slot} is root's and executable again")
    assert place.noted()[-1].why == answer.json["repaired"][0]
    assert "restart" not in place.calls()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_A5_a_slot_that_somebody_else_owns_is_roots_again(place: Place) -> None:
    """Its owner could have changed it: the bytes are proven anew once they no longer can."""
    os.chown(place.slots / "a", 65534, 65534)
    assert run(place).exit == answers.DONE
    assert (place.slots / "a").stat().st_uid == 0


def test_lost_links_and_lost_records_are_mended_one_after_the_other(place: Place) -> None:
    """Without `current` nothing looks in use; once it is back the floor is seen to be lost, and is asked for."""
    (place.slots / "current").unlink()
    lose(place, recording.UPDATE)
    (place.slots / recording.UPDATE).unlink()
    answer = cmd_repair.run(place.product, None)
    assert (answer.exit, answer.json["code"]) == (3, "floor-unproven")
    assert (answer.json["changed"], place.state().current) == (True, "a")
    assert run(place, 3).json["floor"] == 3


def test_a_record_that_cannot_be_read_is_repaired_from_its_copy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of the disk that answers with an error: settling leaves it alone, a repair sets it aside."""
    read = host.read_record
    inode = (place.slots / recording.UPDATE).stat().st_ino

    def fails(path: str, most: int = records.MAX_BYTES) -> Optional[bytes]:
        if os.path.lexists(path) and os.lstat(path).st_ino == inode:
            raise OSError(5, "Input/output error")
        return read(path, most)

    monkeypatch.setattr(host, "read_record", fails)
    assert manager.settle_now(place.product)[1] == "nothing"
    answer = run(place)
    assert (answer.exit, answer.json["floor"], place.state().update.floor) == (0, 7, 7)
    assert len(place.aside(recording.UPDATE)) == 1


def plan_of(place: Place, floor: int) -> ops.Plan:
    """The operations of a repair, as it would carry them out now."""
    state = manager.settle_now(place.product)[0].state
    found = repair.decide(place.product, cmd_repair.gather(place.product, state), floor)
    assert isinstance(found, repair.Repair)
    there = [name for name in FILES if name in place.names()]
    return repair.plan_repair(place.product, state, found, 9, there)


def test_P7_a_repair_killed_at_any_operation_is_finished_by_the_next(tmp_path: pathlib.Path, systemctl: None) -> None:
    """Until it is done updates are refused; afterwards floor, slots, links and the claim are as if nothing had been cut."""
    number, length = 0, 1
    while number <= length:
        place = Place(tmp_path, tmp_path / f"slots{number}")
        place.on_trial(RECORD + b"REASON=crash-loop\n")
        os.rename(place.slots / "trial", place.slots / "trial.revert")
        lose(place, *FILES)
        plan = plan_of(place, 4)
        length = len(plan)
        assert length > 10
        effects.executor_for(place.product, {}).apply(plan[:number], "repair")
        state = place.state()
        assert state.broken is not None or state.update.floor == 4, f"cut after {number}"
        answer = cmd_repair.run(place.product, 4)
        assert answer.exit == answers.DONE, (number, answer)
        state = place.state()
        assert (state.broken, state.revert, state.current, state.good) == (None, None, "a", "a"), number
        assert (state.update.floor, state.slots["b"].version) == (4, "1.1.0"), number
        assert [entry.code for entry in state.update.failed] == ["crash-loop"]
        number += 1


def test_a_full_disk_refuses_the_repair_and_nothing_is_half(small: Place) -> None:
    """Its line in the audit log comes first, and what cannot be written is not done."""
    lose(small, recording.UPDATE)
    assert cmd_repair.run(small.product, None).json["code"] == "floor-unproven"
    fill(small)
    before = small.names()
    with pytest.raises(codes.Retryable) as caught:
        cmd_repair.run(small.product, 3)
    assert caught.value.code == codes.NO_SPACE
    assert small.names() == before
    (small.slots.parent / "filler").unlink()
    for path in small.slots.parent.glob("inode*"):
        path.unlink()
    assert run(small, 3).json["floor"] == 3


def test_only_root_repairs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are root's."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(codes.Refused) as caught:
        cmd_repair.run(place.product, None)
    assert caught.value.code == codes.NOT_ROOT


def called(place: Place, capfd: pytest.CaptureFixture[str], *words: str) -> Dict[str, Any]:
    """The command line's answer, with its exit status in it."""
    config = place.root / "config.toml"
    config.write_text(f'[update]\nslots_dir = "{place.slots}"\nentrypoint = "{place.root}/slotward"\n')
    status = cli.main(["--config", str(config), "update", "--json", *words])
    found: Dict[str, Any] = json.loads(capfd.readouterr().out)
    return dict(found, exit=status)


def test_the_command_line_takes_the_flags_and_answers_their_codes(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """The agent's own product, from its configuration file."""
    lose(place, recording.UPDATE)
    refused = called(place, capfd, "--repair")
    assert (refused["exit"], refused["code"]) == (3, "floor-unproven")
    mended = called(place, capfd, "--repair", "--floor", "6")
    assert (mended["exit"], mended["code"], mended["floor"], mended["changed"]) == (0, "ok", 6, True)
    for words in (["--floor", "6"], ["--slots"]):
        assert called(place, capfd, *words)["exit"] == answers.USAGE


@pytest.mark.parametrize(
    "words", [["--repair", "--floor", "-1"], ["--repair", "--floor", "x"], ["--repair", "--clear-failed"], ["--repair", "--floor", "9" * 17]]
)  # fmt: skip
def test_a_wrong_command_line_is_said_before_anything_is_looked_at(words: List[str]) -> None:
    """Exit 2, by the parser."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["update", *words])
    assert caught.value.code == answers.USAGE


def test_update_restores_on_its_way_and_says_nothing_is_broken(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """P4: a root's look is a command too; with the copy torn it says which file, why, and what to run."""
    place.write(recording.UPDATE, b"torn")
    shown = called(place, capfd)
    assert (shown["code"] != "record-broken", shown["broken"], shown["floor"]) == (True, None, 7)
    (aside,) = place.aside(recording.UPDATE)
    assert [(one["what"], aside in one["text"]) for one in shown["warnings"]] == [("set-aside", True)]
    (place.slots / aside).unlink()
    assert called(place, capfd)["warnings"] == []
    lose(place, recording.UPDATE)
    shown = called(place, capfd)
    assert shown["code"] == "record-broken"
    assert shown["broken"]["file"] == f"{place.slots}/update.json"
    assert shown["broken"]["run"] == "slotward update --repair"
    assert shown["broken"]["copy"].startswith(f"{place.slots}/update.json.copy: its first line does not fit")
