# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a trial by hand where there is nothing sound to go back to, or where the end cannot be written."""

from __future__ import annotations

import os

import pytest
from agent.places import RECORD, TRIAL_ID, Place

from slotcore import codes, recording
from slotcore import trial as trials
from slotward import answers, cli, cmd_repair, cmd_trial, homeward, host, manager, telling


def on_trial(place: Place) -> None:
    """A trial with time left."""
    found = trials.parse_trial(RECORD)
    assert found is not None
    clock = host.clock()
    place.on_trial(
        trials.render_trial(found._replace(boot_id=clock.boot_id, deadline_s=clock.uptime_s + 20, boots_left=3))
    )


DAMAGES = {"emptied": b"", "other bytes": b"xyz"}


@pytest.mark.parametrize("what", [*DAMAGES, "not executable", "not executable, records torn"])
def test_A4_nobody_is_sent_back_to_a_slot_that_does_not_prove_itself(what: str, place: Place) -> None:
    """The trial goes on, the refusal says what to do instead; whoever insists goes back."""
    on_trial(place)
    if what in DAMAGES:
        (place.slots / "a").write_bytes(DAMAGES[what])
    else:
        (place.slots / "a").chmod(0o644)
    if what.endswith("torn"):
        for name in (recording.SLOTS, recording.SLOTS + recording.COPY):
            place.write(name, b"torn")
    with pytest.raises(codes.Refused) as caught:
        cmd_trial.rollback(place.product, None, "why")
    assert caught.value.code == codes.DIGEST_MISMATCH
    assert f"`slotward confirm --id {TRIAL_ID} --wait 60`" in caught.value.refusal.text
    assert f"`{homeward.FORCE}`" in caught.value.refusal.text
    assert manager.look(place.product).settlement.on_trial is not None
    with pytest.raises(codes.Retryable) as waits:
        cmd_repair.run(place.product, None)
    assert "slotward rollback --id" not in waits.value.text
    assert "going back would lead to nothing sound" in waits.value.text
    cmd_trial.rollback(place.product, None, "why", force=True)
    assert os.readlink(place.slots / "current") == "a"


def test_A4_the_release_itself_is_never_kept_from_giving_up(place: Place) -> None:
    """It says that it is no good: what it goes back to is not worse than that."""
    on_trial(place)
    (place.slots / "a").write_bytes(b"")
    cmd_trial.rollback(place.product, TRIAL_ID, "why", codes.GAVE_UP)
    assert os.readlink(place.slots / "current") == "a"


def test_A4_bytes_that_nobody_knows_are_no_reason_to_refuse(place: Place) -> None:
    """A slot without a record, of a trial that knew none: nothing says that it is damaged."""
    found = trials.parse_trial(RECORD)
    assert found is not None
    state = place.state()._replace(slots={})
    assert homeward.problem(place.product, state, found._replace(from_sha256=homeward.UNKNOWN)) == ""
    assert homeward.problem(place.product, state, found) == ""


def test_A4_force_goes_without_to(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """A release that is kept is proven in any case."""
    assert cli.main(["rollback", "--to", "previous", "--force"]) == answers.USAGE
    assert "--force goes without --to" in "".join(capfd.readouterr())


@pytest.mark.parametrize("active", ["active", "failed"])
def test_C32_what_has_gone_back_is_said_to_have_also_with_torn_records(active: str, place: Place) -> None:
    """The failure waits for a repair, which the answer names and which writes it."""
    (place.root / "show").write_text(f"ActiveState={active}\n")
    on_trial(place)
    for name in (recording.UPDATE, recording.UPDATE + recording.COPY):
        place.write(name, b"torn")
    answer = cmd_trial.rollback(place.product, None, "why")
    state = "rolled-back" if active == "active" else "rollback-failed"
    assert (answer.exit, answer.json["state"], answer.json["code"]) == (answers.BROKEN, state, codes.RECORD_BROKEN)
    assert answer.json["changed"] is True
    assert "went back from 1.1.0 to 1.0.0" in answer.lines[0]
    assert "`slotward update --repair`" in answer.lines[0]
    assert os.readlink(place.slots / "current") == "a"
    assert cmd_repair.run(place.product, 7).exit == answers.DONE
    last = place.state().update.last
    assert last is not None
    assert (last.trial_id, last.state, last.code) == (TRIAL_ID, "rolled-back", codes.OPERATOR)


def test_B15_the_hint_names_the_product() -> None:
    """Whoever began a trial types what it says."""
    found = trials.parse_trial(RECORD)
    assert found is not None
    assert f"`slotward confirm --product probe --id {TRIAL_ID}" in telling.hint("probe", found)
    assert f"`slotward confirm --id {TRIAL_ID}" in telling.hint("slotward", found)
