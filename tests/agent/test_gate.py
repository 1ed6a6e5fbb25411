# SPDX-License-Identifier: GPL-3.0-or-later
"""The one gate: the other slot by its record, and a program that setup would install."""

from __future__ import annotations

import pathlib
from typing import Optional

import pytest

from slotcore import checks, codes, config, records, settle
from slotcore import target as targets
from slotward import gate, own

RUNS = records.SlotRecord("1.5.0", 5, "0" * 64, 3, 0, "stable")


def setup_of(tmp_path: pathlib.Path, text: str) -> own.Setup:
    """A host with these lines in its section [update]."""
    path = tmp_path / "config.toml"
    path.write_text(f'[update]\nslots_dir = "{tmp_path}/slots"\n{text}\n')
    found = own.load(str(path))
    assert found.problems == ()
    return found


def in_use(record: Optional[records.SlotRecord] = RUNS) -> settle.State:
    """Slot a runs and is good; its record may be lost."""
    slots = {} if record is None else {"a": record}
    return settle.State(current="a", good="a", in_use=True, entrypoint="ours", slots=slots)


def refusal_of(setup: own.Setup, state: settle.State, record: records.SlotRecord) -> str:
    """The code with which setup is refused to install this, or nothing."""
    try:
        gate.installing(setup, state, record)
    except codes.Refused as error:
        return error.code
    return ""


POLICIES = {
    "enabled = false": "updates-disabled",
    'allowed_channels = "lts"': "channel-not-allowed",
    'min_version = "1.5.1"': "below-min-version",
    "rollback_grace = 0": "too-far-back",
    "strict_sequence = true\nrelease_sequence = 9": "sequence-not-newer",
}


@pytest.mark.parametrize(("text", "code"), POLICIES.items())
def test_C10_setup_puts_no_other_version_past_the_policy(tmp_path: pathlib.Path, text: str, code: str) -> None:
    """What an upgrade would be refused for, mending with another version is refused for; with the same one it is not."""
    setup = setup_of(tmp_path, text)
    assert refusal_of(setup, in_use(), RUNS._replace(version="1.4.0", sequence=9)) == code
    assert refusal_of(setup, in_use(), RUNS) == ""
    other = RUNS._replace(sha256="1" * 64, sequence=9, channel="edge")
    wanted = {"enabled = false", 'allowed_channels = "lts"', 'min_version = "1.5.1"'}
    assert bool(refusal_of(setup, in_use(), other)) or text not in wanted, (
        "other bytes under its version are no mending"
    )


def test_a_host_on_hold_that_runs_what_nobody_knows_is_not_updated_by_setup(tmp_path: pathlib.Path) -> None:
    """The record of what runs is lost: it is in use all the same."""
    assert refusal_of(setup_of(tmp_path, "enabled = false"), in_use(None), RUNS) == "updates-disabled"


def test_another_major_version_is_no_mending_where_the_running_one_is_wanted(tmp_path: pathlib.Path) -> None:
    """Nor is anything, where nobody knows what runs: but then nothing known is replaced."""
    setup = setup_of(tmp_path, "same_major = true")
    newer = RUNS._replace(version="2.0.0", sequence=9)
    assert refusal_of(setup, in_use(), newer) == "other-major"
    assert refusal_of(setup, in_use(None), newer) == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("enabled = false", ""),
        ("same_major = true", ""),
        ("strict_sequence = true\nrelease_sequence = 5", ""),
        ('allowed_channels = "lts"', "channel-not-allowed"),
        ('min_version = "1.5.1"', "below-min-version"),
    ],
)
def test_a_first_install_is_no_update(tmp_path: pathlib.Path, text: str, code: str) -> None:
    """A host on hold can be installed; what it never takes is not installed either."""
    assert refusal_of(setup_of(tmp_path, text), settle.State(), RUNS) == code


def test_a_program_without_a_manifest_has_no_channel_to_judge(tmp_path: pathlib.Path) -> None:
    """Its version is judged all the same."""
    unknown = RUNS._replace(channel="")
    assert refusal_of(setup_of(tmp_path, 'allowed_channels = "lts"'), settle.State(), unknown) == ""
    assert refusal_of(setup_of(tmp_path, 'min_version = "2.0.0"'), settle.State(), unknown) == "below-min-version"


def facts(tmp_path: pathlib.Path, text: str, channel: Optional[str] = None) -> checks.Facts:
    """A target of what the other slot holds."""
    target = targets.Target("slotward", "1.6.0", "", "1" * 64, "", channel)
    return gate.facts_of(setup_of(tmp_path, text), in_use(), target, "1.5.0", 77)


def test_the_other_slot_s_record_answers_the_policy(tmp_path: pathlib.Path) -> None:
    """Channel and sequence as its manifest had them; a record that names no channel cannot answer, so the manifest must."""
    held = records.SlotRecord("1.6.0", 6, "1" * 64, 3, 0, "beta")
    assert gate.may_reuse(facts(tmp_path, 'allowed_channels = "beta"'), held)
    assert not gate.may_reuse(facts(tmp_path, 'allowed_channels = "beta"'), held._replace(channel=""))
    for text, channel, code in (
        ("", None, "channel-not-allowed"),
        ('allowed_channels = "beta,stable"', "stable", "wrong-channel"),
        ('allowed_channels = "beta"\nstrict_sequence = true\nrelease_sequence = 6', None, "sequence-not-newer"),
    ):
        with pytest.raises(codes.Refused) as caught:
            gate.may_reuse(facts(tmp_path, text, channel), held)
        assert caught.value.code == code


def test_the_facts_are_those_of_the_configuration_and_the_records(tmp_path: pathlib.Path) -> None:
    """Policy, the floor, and each clock by itself: which of them counts is decided in one place."""
    setup = setup_of(tmp_path, "enabled = false\nrelease_sequence = 12")
    state = in_use()._replace(update=records.Update(floor=3, newest_issued=44))
    found = gate.facts_of(setup, state, targets.Target("slotward", "1.6.0", "", "1" * 64, ""), "1.5.0", 77)
    assert found.policy == setup.product.policy
    assert (found.floor, found.newest_issued, found.server_s, found.running_version) == (12, 44, 77, "1.5.0")
    assert found.now_s > 1_700_000_000
    assert config.load(None, "none")[0].enabled is True
