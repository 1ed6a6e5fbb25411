# SPDX-License-Identifier: GPL-3.0-or-later
"""The trial record: what is read is what was written, and everything else is bad."""

from __future__ import annotations

import pathlib

import pytest
from core.crash import damage, values
from hypothesis import given
from hypothesis import strategies as st

from slotcore import trial

NODE = pathlib.Path(__file__).parents[2] / "docs" / "design" / "node.md"
TRIAL, RECORD = values.TRIAL, values.RECORD
ALPHABET = "ABCXYZabcxyz0189._:/+=-"

words = st.text(ALPHABET, min_size=1, max_size=40)
numbers = st.integers(0, 10**15 - 1)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
trials = st.builds(
    lambda base, swapped: base._replace(from_slot="b", to_slot="a") if swapped else base,
    st.builds(
        TRIAL._replace,
        trial_id=st.text("0123456789abcdef", min_size=16, max_size=16),
        product=words,
        from_version=words,
        to_version=words,
        sequence=numbers,
        boot_id=st.uuids().map(str),
        length_s=st.integers(5, 3600),
        deadline_s=numbers,
        boots_left=st.integers(0, 9),
        command=words,
        from_sha256=digests,
        to_sha256=digests,
    ),
    st.booleans(),
)


@given(trials)
def test_every_record_is_read_as_it_was_written(written: trial.Trial) -> None:
    """Rendering and parsing are each other's inverse, for every trial that fits the format."""
    assert trial.parse_trial(trial.render_trial(written)) == written


def test_the_record_of_the_page_is_read() -> None:
    """The example in node.md, section 3, is a sound record with the keys in the order that we write."""
    page = NODE.read_text().split("## 3.")[1].split("```")[1].strip() + "\n"
    shown = page.replace("<64 hex>", "0" * 64).encode()
    found = trial.parse_trial(shown)
    assert found is not None
    assert trial.render_trial(found) == shown


def test_the_order_of_the_keys_does_not_matter() -> None:
    """A record is a set of lines."""
    assert trial.parse_trial(b"".join(sorted(RECORD.splitlines(keepends=True)))) == TRIAL


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in damage.ALL.items()])
def test_damage_of_any_kind_makes_the_record_bad(data: bytes) -> None:
    """Out of bounds, doubled, missing, unknown, blank, binary, torn: bad, and never an exception."""
    assert data != RECORD
    assert trial.parse_trial(data) is None


def test_a_record_torn_at_any_byte_is_bad() -> None:
    """Only the whole record is a record."""
    assert [length for length in range(len(RECORD)) if trial.parse_trial(RECORD[:length]) is not None] == []


@given(st.binary(max_size=200) | st.text(ALPHABET + "\n =\x00", max_size=200).map(str.encode))
def test_no_bytes_make_the_parsers_raise(data: bytes) -> None:
    """Whatever stands in the files, reading them gives an answer."""
    assert trial.parse_trial(data) is None
    assert trial.parse_revert(data)[0] is None
    assert trial.count_crashes(data) + trial.was_started(data) <= data.count(b"\n")


def test_a_record_of_exactly_the_most_bytes_is_read() -> None:
    """4,096 bytes are taken, one more is not."""
    room = trial.MAX_BYTES - len(RECORD) + 1
    assert trial.parse_trial(damage.changed("COMMAND", "x" * room)) is not None
    assert trial.parse_trial(damage.changed("COMMAND", "x" * (room + 1))) is None


def test_a_reverted_record_gives_the_trial_and_the_reason() -> None:
    """Whoever goes back appends one line."""
    assert trial.parse_revert(RECORD + b"REASON=crash-loop\n") == (TRIAL, "crash-loop")


def test_a_reason_torn_at_any_byte_costs_the_reason_and_never_the_trial() -> None:
    """The append of the reason may be cut anywhere by a full disk or a power cut."""
    line = b"REASON=crash-loop\n"
    for length in range(len(line)):
        assert trial.parse_revert(RECORD + line[:length]) == (TRIAL, None), length
    assert trial.parse_revert(RECORD + b"\x00" * len(line)) == (TRIAL, None)


def test_a_reason_is_read_though_the_record_before_it_is_bad() -> None:
    """The guard claims a damaged record too, and says why in it; a record that ended without a newline included."""
    for damaged in (b"", b"SPEC=1", b"\x00\x00", RECORD[:100], RECORD + RECORD):
        found, reason = trial.parse_revert(damaged + b"REASON=bad-record\n")
        assert reason == "bad-record"
        assert found == (TRIAL if damaged == RECORD + RECORD else None)


@pytest.mark.parametrize("line", [b"REASON=\n", b"REASON=Crash\n", b"REASON=a b\n", b"REASON=" + b"x" * 65 + b"\n"])
def test_a_reason_that_is_no_code_is_no_reason(line: bytes) -> None:
    """Codes are kebab-case and short."""
    assert trial.parse_revert(RECORD + line) == (TRIAL, None)


def test_crashes_and_starts_are_counted_by_complete_lines() -> None:
    """The first line is the header, other lines are not counted, and a torn last line does not count."""
    log = trial.LOG_HEADER + b"start 1001\ncrash 1002 7.7.1\nstart 1002\nowed 9\ncrash 1003\ncrash 10"
    assert trial.count_crashes(log) == 2
    assert trial.was_started(log)
    assert not trial.was_started(trial.LOG_HEADER + b"start 10")
    assert not trial.was_started(trial.LOG_HEADER)
    assert trial.count_crashes(b"") == 0


@pytest.mark.parametrize(
    ("lines", "unit", "helper"),
    [
        (b"", False, False),
        (b"start 1\ncrash 2 7.7.1\n", False, False),
        (b"owed 1\n", True, False),
        (b"owed 1\nrestart 1\n", False, False),
        (b"owed 1\nhelper owed 1\n", True, True),
        (b"owed 1\nhelper owed 1\nrestart 1\n", False, True),
        (b"owed 1\nhelper owed 1\nhelper restart 1\n", True, False),
        (b"owed 1\nhelper owed 1\nrestart 1\nhelper resta", False, True),
        (b"restart 1\nhelper restart 1\n", False, False),
    ],
)
def test_what_a_guard_owed_and_did_not_pay(lines: bytes, unit: bool, helper: bool) -> None:
    """To each unit by itself; a torn last line is no payment."""
    log = trial.LOG_HEADER + lines
    assert trial.owes(log) == unit
    assert trial.owes(log, b"helper ") == helper
    assert trial.count_crashes(log) == lines.count(b"crash")


def test_the_log_begins_with_one_block_of_64_bytes() -> None:
    """Its block exists from the swap on, so that the guard's notes need no space (node.md, section 3)."""
    assert len(trial.LOG_HEADER) == 64
    assert trial.LOG_HEADER.startswith(b"log 1#")
    assert trial.LOG_HEADER.endswith(b"#\n")
