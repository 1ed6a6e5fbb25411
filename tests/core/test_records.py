# SPDX-License-Identifier: GPL-3.0-or-later
"""The two JSON records: what is read is what was written, and everything else is a broken record."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, records

SHA = "ab" * 32
SLOT = records.SlotRecord("1.1.0", 2, SHA, 20_000_000, 1_800_000_000, "stable")
FAILURE = records.Failed("1.2.0", "crash-loop", "probe 1.2.0 kept exiting", 3, SHA, 1_700_000_000)
LAST = records.Last("9f8a6c1e22d04b57", "rolled-back", "crash-loop", "it kept exiting", "1.1.0", "1.2.0", 1_700_000_000)
UPDATE = records.Update(2, 1_600_000_000, (FAILURE,), LAST, 3)

texts = st.text(max_size=20)
numbers = st.integers(0, records.MAX_INT)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
failures = st.builds(records.Failed, texts, texts, texts, numbers, texts, numbers)
lasts = st.none() | st.builds(records.Last, texts, texts, texts, texts, texts, texts, numbers)


slot_records = st.builds(records.SlotRecord, texts, numbers, digests, numbers, numbers, texts, numbers)


@given(st.dictionaries(st.sampled_from("ab"), slot_records))
def test_slot_records_are_read_as_they_were_written(slots: records.Slots) -> None:
    """For every text that can be written, surrogates aside."""
    assert records.parse_slots(records.render_slots(slots), "f") == slots


@given(st.builds(records.Update, numbers, numbers, st.lists(failures, max_size=3).map(tuple), lasts, numbers))
def test_the_floor_and_the_failures_are_read_as_they_were_written(update: records.Update) -> None:
    """Any mix of failures, with and without a last trial."""
    assert records.parse_update(records.render_update(update), "f") == update


def test_the_records_have_the_shape_of_the_page() -> None:
    """Node.md, section 2: other programs and later versions read these very names."""
    assert json.loads(records.render_slots({"b": SLOT})) == {
        "spec": 1,
        "slots": {
            "b": {
                "version": "1.1.0",
                "sequence": 2,
                "sha256": SHA,
                "size": 20_000_000,
                "expires_at": 1_800_000_000,
                "channel": "stable",
            }
        },
    }
    assert json.loads(records.render_update(UPDATE)) == {
        "spec": 1,
        "floor": 2,
        "newest_issued": 1_600_000_000,
        "failed": [
            {
                "version": "1.2.0",
                "code": "crash-loop",
                "why": "probe 1.2.0 kept exiting",
                "sequence": 3,
                "sha256": SHA,
                "at": 1_700_000_000,
            }
        ],
        "last": {
            "id": "9f8a6c1e22d04b57",
            "state": "rolled-back",
            "code": "crash-loop",
            "why": "it kept exiting",
            "from": "1.1.0",
            "to": "1.2.0",
            "at": 1_700_000_000,
        },
        "trust": 3,
    }


def slots_with(**changes: Any) -> bytes:
    """A `slots.json` with other values in slot b."""
    return json.dumps({"spec": 1, "slots": {"b": {**SLOT._asdict(), **changes}}}).encode()


def update_with(**changes: Any) -> bytes:
    """An `update.json` with other values at its top."""
    value: Dict[str, Any] = json.loads(records.render_update(UPDATE))
    return json.dumps({**value, **changes}).encode()


def failed_with(**changes: Any) -> bytes:
    """An `update.json` with other values in its failed version."""
    return update_with(failed=[{**FAILURE._asdict(), **changes}])


def last_with(**changes: Any) -> bytes:
    """An `update.json` with other values in its last trial."""
    return update_with(last={**(records.last_as_json(LAST) or {}), **changes})


BROKEN_SLOTS: List[Tuple[bytes, str]] = [
    (b"", "it is not JSON"),
    (b"{", "it is not JSON"),
    (b"\xff\xfe", "it is not JSON"),
    (b"\x00" * 40, "it is not JSON"),
    (b"[" * 100_000, "it is not JSON"),
    (b"x" * (records.MAX_BYTES + 1), "at most 1048576 are read"),
    (b"[]", "the record is not an object"),
    (b"null", "the record is not an object"),
    (b'{"spec":2,"slots":{}}', "its spec is 2; this version reads 1"),
    (b'{"slots":{}}', "its spec is None"),
    (b'{"spec":1}', "the record has other fields than spec, slots: slots"),
    (b'{"spec":1,"slots":{},"more":1}', "the record has other fields than spec, slots: more"),
    (b'{"spec":1,"spec":1,"slots":{}}', "a key stands in it twice"),
    (b'{"spec":1,"slots":[]}', "slots is not an object of a and b"),
    (b'{"spec":1,"slots":{"c":{}}}', "slots is not an object of a and b"),
    (b'{"spec":1,"slots":{"a":1}}', "slot a is not an object"),
    (b'{"spec":1,"slots":{"a":{"version":"1"}}}', "slot a has other fields than"),
    (slots_with(version=1), "slot b's version is not a text"),
    (slots_with(version="x" * 4097), "slot b's version is not a text of at most 4096"),
    (slots_with(sequence=-1), "slot b's sequence is -1, not a number"),
    (slots_with(sequence=True), "slot b's sequence is True, not a number"),
    (slots_with(sequence=2.0), "slot b's sequence is 2.0, not a number"),
    (slots_with(sequence="2"), "slot b's sequence is '2', not a number"),
    (slots_with(size=records.MAX_INT + 1), "slot b's size is 9007199254740992"),
    (slots_with(channel=1), "slot b's channel is not a text"),
    (slots_with(expires_at="2027"), "slot b's expires_at is '2027', not a number"),
    (slots_with(sha256="AB" * 32), "slot b's sha256 is not 64 hexadecimal digits"),
    (slots_with(sha256=None), "slot b's sha256 is not 64 hexadecimal digits"),
]
BROKEN_UPDATES: List[Tuple[bytes, str]] = [
    (b"", "it is not JSON"),
    (update_with(spec="1"), "its spec is '1'"),
    (update_with(floor=-1), "the floor is -1, not a number from 0"),
    (update_with(floor=None), "the floor is None"),
    (update_with(floor=False), "the floor is False"),
    (update_with(newest_issued="now"), "newest_issued is 'now'"),
    (update_with(trust=-1), "trust is -1, not a number"),
    (update_with(trust=None), "trust is None, not a number"),
    (update_with(failed={}), "failed is not a list"),
    (update_with(failed=[1]), "a failed version is not an object"),
    (failed_with(at=-5), "a failed version's time is -5"),
    (failed_with(version=None), "a failed version is not a text"),
    (failed_with(code=1), "a failed version's code is not a text"),
    (failed_with(why=[]), "a failed version's reason is not a text"),
    (failed_with(sequence="3"), "a failed version's sequence is '3'"),
    (failed_with(sha256=0), "a failed version's sha256 is not a text"),
    (failed_with(more=0), "a failed version has other fields"),
    (update_with(last=[]), "last is not an object"),
    (last_with(id=None), "last's id is not a text"),
    (last_with(state=1), "last's state is not a text"),
    (last_with(code=1), "last's code is not a text"),
    (last_with(why=1), "last's reason is not a text"),
    (last_with(**{"from": 1}), "last's from is not a text"),
    (last_with(to=1), "last's to is not a text"),
    (last_with(at="x"), "last's time is 'x'"),
    (update_with(floor=10**400), "the floor is"),
]


@pytest.mark.parametrize(("data", "why"), BROKEN_SLOTS)
def test_slots_that_cannot_be_believed_are_broken(data: bytes, why: str) -> None:
    """The error names the file and what is wrong; nothing is guessed (I3)."""
    with pytest.raises(codes.BrokenRecord) as caught:
        records.parse_slots(data, "/s/slots.json")
    assert caught.value.file == "/s/slots.json"
    assert why in caught.value.why


@pytest.mark.parametrize(("data", "why"), BROKEN_UPDATES)
def test_a_floor_that_cannot_be_believed_is_broken(data: bytes, why: str) -> None:
    """A torn floor never becomes zero (I3, field case P4)."""
    with pytest.raises(codes.BrokenRecord) as caught:
        records.parse_update(data, "/s/update.json")
    assert caught.value.file == "/s/update.json"
    assert why in caught.value.why


@pytest.mark.parametrize("whole", [records.render_update(UPDATE), records.render_slots({"a": SLOT, "b": SLOT})])
def test_P4_a_record_torn_at_any_byte_is_broken(whole: bytes) -> None:
    """Only the whole record is one; without its last newline it is whole as well."""
    parse = records.parse_update if b"floor" in whole else records.parse_slots
    for length in range(len(whole) - 1):
        with pytest.raises(codes.BrokenRecord):
            parse(whole[:length], "f")


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parsers_raise_anything_else(data: bytes) -> None:
    """BrokenRecord is the only way out."""
    for parse in (records.parse_slots, records.parse_update):
        with pytest.raises(codes.BrokenRecord):
            parse(data, "f")


def test_a_version_stands_among_the_failed_once_with_its_newest_reason() -> None:
    """A second failure of the same version replaces the first and keeps the others."""
    again = FAILURE._replace(code="deadline-passed", at=FAILURE.at + 1)
    other = FAILURE._replace(version="1.3.0")
    update = records.with_failure(records.with_failure(UPDATE, other), again)
    assert update.failed == (other, again)
    assert update.failure_of("1.2.0") == again
    assert update.failure_of("1.4.0") is None
    assert (update.floor, update.newest_issued, update.last) == (2, 1_600_000_000, LAST)


def test_I3_however_many_versions_fail_the_record_can_be_read_again() -> None:
    """The floor stands in the same record: the oldest failures go before it grows too large to be believed."""
    update = UPDATE._replace(failed=tuple(FAILURE._replace(version=f"1.{n}.0", why="x" * 4096) for n in range(240)))
    for number in range(240, 260):
        update = records.with_failure(update, FAILURE._replace(version=f"1.{number}.0", why="x" * 4096))
        assert records.parse_update(records.render_update(update), "f") == update
    assert update.failed[-1].version == "1.259.0"
    assert update.failure_of("1.0.0") is None
    assert len(update.failed) > 200


def test_no_last_trial_is_null() -> None:
    """`last` is an object or null, in the record and in every answer."""
    assert records.last_as_json(None) is None
    assert json.loads(records.render_update(records.Update()))["last"] is None


@given(st.text(st.characters(), max_size=20) | st.just("x" * 5000))
def test_any_text_can_be_made_to_fit(text: str) -> None:
    """Surrogates, control characters and length: what fits is written and read again, in one line."""
    fits = records.fitting(text)
    update = UPDATE._replace(last=LAST._replace(why=fits))
    assert records.parse_update(records.render_update(update), "f") == update
    assert fits.isprintable()
    assert records.fitting(fits) == fits


def test_a_plain_text_fits_as_it_is() -> None:
    """Letters of any script stay."""
    assert records.fitting("zurück: 版 1.2.0") == "zurück: 版 1.2.0"
    assert records.fitting("a\ud800b\nc") == "a b c"
