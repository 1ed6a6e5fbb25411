# SPDX-License-Identifier: GPL-3.0-or-later
"""A permit through the agent's own orchestrator: used up by the switch, given back where there was none (I3)."""

from __future__ import annotations

import os
import pathlib
from typing import List

import pytest

from slotcore import audit, codes, recording, records
from slotcore import product as products
from slotcore import trust_record as trusts
from slotward import faults, host, manager

PERMIT = trusts.Allowed("0123456789abcdef", "1.1.0", 2)
OLD = records.SlotRecord("1.2.0", 3, "0" * 64, 3)
NEW = records.SlotRecord("1.1.0", 2, "1" * 64, 3)
RELEASE = manager.Release("1.1.0", NEW, 0, "-", "00112233445566aa", PERMIT)


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> products.Product:
    """A host at 1.2.0, its floor 3, with 1.1.0 in the other slot; systemd answers from files."""
    (tmp_path / "calls").touch()
    (tmp_path / "show").write_text("ActiveState=active\n")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{pathlib.Path(__file__).parent / 'fakes'}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "nice", lambda _step: 0)
    slots = tmp_path / "slots"
    slots.mkdir()
    for name in ("a", "b"):
        (slots / name).write_bytes(b"abc")
    for name in ("current", "good"):
        (slots / name).symlink_to("a")
    held = {
        recording.SLOTS: records.render_slots({"a": OLD, "b": NEW}),
        recording.UPDATE: records.render_update(records.Update(floor=3)),
    }
    for name, data in held.items():
        (slots / name).write_bytes(data)
        (slots / name).chmod(0o644)
    return products.Product("probe", "probe.service", str(tmp_path / "probe"), str(slots), base_floor=3)


def trust_of(product: products.Product) -> trusts.Trust:
    """The record of trust on disk."""
    found = host.read_state(product).trust
    assert found is not None
    return found


def events(product: products.Product) -> List[str]:
    """What the audit log says."""
    lines = pathlib.Path(product.path("audit.log")).read_bytes().splitlines()
    return [audit.parse(line).event.event for line in lines]


def test_I3_a_timer_that_does_not_start_costs_no_permit(place: products.Product) -> None:
    """Nothing was switched, so the same permit serves when the timer starts; then it is used up."""
    refused_start = pathlib.Path(os.environ["FAKE_SYSTEMD"], "fail-start")
    refused_start.write_text("1")
    with pytest.raises(codes.Retryable) as caught:
        manager.begin_trial(place, manager.look(place), RELEASE)
    assert caught.value.code == codes.SYSTEMD_FAILED
    assert (trust_of(place).permits, trust_of(place).allowed) == ((), None)
    assert os.readlink(place.path("current")) == "a"
    assert host.read_state(place).update.floor == 3
    refused_start.unlink()
    again = RELEASE._replace(trial_id="00112233445566bb")
    manager.begin_trial(place, manager.look(place), again)
    assert trust_of(place).used(PERMIT.permit_id) is not None
    assert trust_of(place).allowed == PERMIT
    assert os.readlink(place.path("current")) == "b"
    assert [event for event in events(place) if event in ("permitted", "abandoned", "swapped")] == [
        "permitted",
        "abandoned",
        "permitted",
        "swapped",
    ]


def test_I3_a_trial_that_is_over_before_its_switch_costs_no_permit(
    place: products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard has ended it while this host was held up: nothing was started, so the same permit serves again."""

    def hit(point: str) -> None:
        if point.endswith(".Demand"):
            os.rename(place.path("trial"), place.path("trial.revert"))
            with open(place.path("trial.revert"), "ab") as file:
                file.write(b"REASON=never-started\n")

    monkeypatch.setattr(faults, "hit", hit)
    with pytest.raises(codes.Retryable) as caught:
        manager.begin_trial(place, manager.look(place), RELEASE)
    assert caught.value.code == codes.CANCELLED
    assert (trust_of(place).permits, trust_of(place).allowed) == ((), None)
    assert (os.readlink(place.path("current")), host.read_state(place).update.floor) == ("a", 3)


def test_I3_a_permit_is_in_the_log_before_it_is_used(place: products.Product) -> None:
    """Where that cannot be written, nothing is switched and nothing is used."""
    pathlib.Path(place.path("audit.log")).mkdir()
    with pytest.raises((codes.Retryable, codes.BrokenAudit)):
        manager.begin_trial(place, manager.look(place), RELEASE)
    assert host.read_state(place).trust is None
    assert os.readlink(place.path("current")) == "a"


def test_I3_settling_finishes_a_permitted_confirmation_that_was_cut(place: products.Product) -> None:
    """The claim is there and nothing else was done; the floor becomes the release's, and nothing is allowed any more."""
    manager.begin_trial(place, manager.look(place), RELEASE)
    os.rename(place.path("trial"), place.path("trial.confirm"))
    assert manager.settle_now(place)[1] == "finish-confirm"
    state = host.read_state(place)
    assert (state.update.floor, state.good, state.current) == (2, "b", "b")
    assert (trust_of(place).allowed, len(trust_of(place).permits)) == (None, 1)
    assert state.update.trust == trust_of(place).generation
    assert manager.settle_now(place)[1] == "nothing"
    assert host.read_state(place).update.floor == 2
