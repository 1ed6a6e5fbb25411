# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says of the entrypoint, the links and the slots: commands that this host can carry out as they stand."""

from __future__ import annotations

import os
from typing import Any, Dict, List

import pytest
from agent.places import BYTES, Place

from slotcore import config as configs
from slotward import doctor, doctor_kept, doctor_starts, host, looking, own, slots
from slotward import doctor_states as states

NOBODY = 65534
PUBLISHED = "the release's own file, from where it was published"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


def seen(place: Place, name: str = "probe", kind: str = "ours") -> doctor.Seen:
    """One look at the place, as the agent itself or as another product."""
    product = place.product._replace(name=name)
    state = place.state()
    setup = own.Setup(product, configs.load(b"", "/nowhere")[0], (), "/etc/x.toml")
    answer = looking.look(setup, state)
    return doctor.Seen(
        answer=answer,
        entrypoint=product.entrypoint,
        entrypoint_kind=kind,
        current=product.path("current"),
        config_path="/etc/x.toml",
        damage=host.damage(product, state),
        system=(),
        mode=tuple(doctor_kept.findings(setup, state, answer)),
        exposed=slots.exposed(product, state.current) if state.current else None,
    )


def named(found: List[states.Finding]) -> Dict[str, states.Finding]:
    """Those that are not well, by their entry."""
    return {one.entry: one for one in found if one.state != "ok"}


@pytest.mark.parametrize(
    ("name", "good", "run"),
    [
        ("slotward", False, f"{PUBLISHED}: chmod +x FILE && FILE setup --from FILE --manifest MANIFEST"),
        ("probe", False, f"slotward setup --from FILE --manifest MANIFEST (FILE: {PUBLISHED})"),
        ("slotward", True, "{0}/good update --repair; or "),
        ("probe", True, "slotward update --repair; or slotward setup --from FILE"),
    ],
)
def test_where_nothing_starts_the_command_is_one_that_can_be_run(place: Place, name: str, good: bool, run: str) -> None:
    """By `good` where it is there; for the agent by a program that is there, for another product by the agent."""
    (place.slots / "current").unlink()
    if not good:
        (place.slots / "good").unlink()
    (found,) = doctor_starts.entrypoint(seen(place, name))
    assert found.entry == states.NOTHING_STARTS
    assert found.run.startswith(run.format(place.slots))


def test_a_missing_entrypoint_is_made_by_a_program_that_is_there(place: Place) -> None:
    """The agent has no name of its own then; another product's program is not one of ours."""
    (found,) = doctor_starts.entrypoint(seen(place, "slotward", "missing"))
    assert (found.entry, found.run) == (states.ENTRYPOINT_MISSING, f"{place.slots}/current setup --adopt")
    (found,) = doctor_starts.entrypoint(seen(place, "probe", "missing"))
    assert found.run == "slotward setup --adopt"


@pytest.mark.parametrize(
    ("slot", "mode", "owner", "words"),
    [
        ("a", 0o777, 0, "chmod 0755 {0}"),
        ("a", 0o644, 0, "chmod 0755 {0}"),
        pytest.param("a", 0o755, NOBODY, "chown root:root {0} && chmod 0755 {0}", marks=needs_root),
        ("b", 0o775, 0, "chmod 0755 {0}"),
        ("b", 0o644, 0, "chmod 0755 {0}"),
        pytest.param("b", 0o755, NOBODY, "chown root:root {0} && chmod 0755 {0}", marks=needs_root),
    ],
)
@pytest.mark.parametrize("in_trial", [False, True])
def test_I6_a_slot_that_is_not_roots_alone_is_named_with_what_mends_it(
    place: Place, slot: str, mode: int, owner: int, words: str, in_trial: bool
) -> None:
    """Of the right bytes owner and mode are all that is wrong, and all that is mended."""
    path = place.slots / slot
    path.chmod(mode)
    if owner:
        os.chown(path, owner, owner)
    if in_trial and slot == "b":
        place.link("good", "b")  # so that the other slot is the one to go back to
    look = seen(place)
    found = named([*doctor_starts.links(look), *look.mode])
    entry, state = (states.SLOT_DAMAGED, "fail") if slot == "a" else (states.OTHER_SLOT_DAMAGED, "warn")
    one = found[entry]
    assert (one.state, one.run) == ("fail" if in_trial and slot == "b" else state, words.format(path))
    assert f"mode {mode:04o}" in one.message
    os.chown(path, os.geteuid(), -1)
    path.chmod(0o755)
    look = seen(place)
    assert not {states.SLOT_DAMAGED, states.OTHER_SLOT_DAMAGED} & set(named([*doctor_starts.links(look), *look.mode]))


def test_other_bytes_are_told_before_owner_and_mode(place: Place) -> None:
    """A chmod would make nothing of them."""
    for slot in BYTES:
        (place.slots / slot).write_bytes(b"other")
        (place.slots / slot).chmod(0o666)
    look = seen(place)
    found = named([*doctor_starts.links(look), *look.mode])
    assert found[states.SLOT_DAMAGED].run.startswith("slotward update --repair --slots; or slotward setup --from FILE")
    assert found[states.OTHER_SLOT_DAMAGED].run == "slotward update --repair"
    assert "holds other bytes" in found[states.SLOT_DAMAGED].message


def test_going_back_is_not_said_where_there_is_nothing_to_go_back_to(place: Place) -> None:
    """In a trial whose good slot is damaged; the good release's own file, put back, is what mends it."""
    place.on_trial()
    trial: Dict[str, Any] = {
        "id": "1",
        "from": "1.0.0",
        "to": "1.1.0",
        "left_s": 9,
        "missing": ["controller"],
        "from_slot": "a",
    }
    look = seen(place)
    look.answer["trial"] = trial
    (found,) = doctor_starts.pending(look)
    assert found.run == "slotward confirm --id 1 --wait 60, or slotward rollback"
    (place.slots / "a").write_bytes(b"")
    look = seen(place)
    look.answer["trial"] = trial
    (found,) = doctor_starts.pending(look)
    assert found.run == "slotward confirm --id 1 --wait 60"
    damaged = named(list(look.mode))[states.OTHER_SLOT_DAMAGED]
    assert damaged.run.endswith(f"put the good one's own file back: install -m 0755 FILE {place.slots}/a")
    (place.slots / "a").write_bytes(BYTES["a"])
    assert states.OTHER_SLOT_DAMAGED not in named(list(seen(place).mode))
