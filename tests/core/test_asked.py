# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a request: the record is read as it was written or says nothing, and a request is carried out once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import asked, codes, records, settle

SHA, OTHER = "ab" * 32, "cd" * 32
ID, ELSE = "00112233445566aa", "ffeeddccbbaa9988"
DONE = asked.Asked(ID, SHA, asked.REFUSED, codes.BELOW_FLOOR, "release sequence 1 is older than 2", 1_700_000_000)
LAST = records.Last(ID, "rolled-back", "crash-loop", "it kept exiting", "1.1.0", "1.2.0", 1_700_000_000)

texts = st.text(max_size=20).map(records.fitting)
ids = st.just("") | st.text("0123456789abcdef", min_size=16, max_size=16)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
found = st.builds(
    asked.Asked,
    ids,
    digests,
    st.sampled_from(asked.STATES),
    st.sampled_from(sorted(codes.CODES)),
    texts,
    st.integers(0, records.MAX_INT),
)


@given(found)
def test_it_is_read_as_it_was_written(one: asked.Asked) -> None:
    """Every state, code and sentence that may be written."""
    assert asked.parse(asked.render(one), "f") == one


def test_it_has_the_shape_of_the_page() -> None:
    """privilege.md, section 6: exactly these keys, one line."""
    text = asked.render(DONE)
    assert json.loads(text) == {
        "spec": 1,
        "id": ID,
        "sha256": SHA,
        "state": "refused",
        "code": "below-floor",
        "message": "release sequence 1 is older than 2",
        "at": 1_700_000_000,
    }
    assert text.endswith(b"}\n")
    assert text.count(b"\n") == 1


@given(st.text(max_size=9000))
def test_any_message_is_made_to_fit(message: str) -> None:
    """What others wrote is quoted in it: it is cut to one line that the record may hold."""
    read = asked.parse(asked.render(DONE._replace(message=message)), "f").message
    assert read == records.fitting(message)
    assert len(read) <= records.MAX_TEXT
    assert "\n" not in read


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spec", 2, "its spec is 2"),
        ("state", "confirmed", "its state is 'confirmed', not one of trial, current, refused, failed"),
        ("state", [], "its state is []"),
        ("code", "Below floor", "its code is no code"),
        ("code", "", "its code is no code"),
        ("code", None, "its code is no code"),
        ("code", "x" * 65, "its code is no code"),
        ("id", "00112233445566AA", "its id is not 16 hexadecimal digits"),
        ("id", 12, "its id is not 16 hexadecimal digits"),
        ("id", None, "its id is not 16 hexadecimal digits"),
        ("sha256", "ab", "its sha256 is not 64 hexadecimal digits"),
        ("message", "x" * (records.MAX_TEXT + 1), "its message is not a text of at most 4096 characters"),
        ("at", -1, "its time is -1"),
        ("at", True, "its time is True"),
        ("more", 1, "the record has other fields than"),
    ],
)
def test_every_other_value_is_a_broken_record(key: str, value: Any, said: str) -> None:
    """I8: it says nothing then, by name and reason."""
    changed = dict(json.loads(asked.render(DONE)), **{key: value})
    with pytest.raises(codes.BrokenRecord) as caught:
        asked.parse(json.dumps(changed).encode(), "/s/asked.json")
    assert caught.value.file == "/s/asked.json"
    assert caught.value.why.startswith(said)


@pytest.mark.parametrize("key", ["spec", "id", "sha256", "state", "code", "message", "at"])
def test_every_key_is_needed(key: str) -> None:
    """None has a default."""
    rest = {name: value for name, value in json.loads(asked.render(DONE)).items() if name != key}
    with pytest.raises(codes.BrokenRecord):
        asked.parse(json.dumps(rest).encode(), "f")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"spec":1,"spec":1}'])
def test_torn_bytes_say_nothing(data: bytes) -> None:
    """A cut, or another format."""
    with pytest.raises(codes.BrokenRecord):
        asked.parse(data, "f")


def test_it_is_bounded() -> None:
    """A record as large as it may be is read, one byte more is not."""
    text = asked.render(DONE)
    assert asked.parse(text + b" " * (asked.MAX_BYTES - len(text)), "f") == DONE
    with pytest.raises(codes.BrokenRecord, match=f"more than {asked.MAX_BYTES} bytes"):
        asked.parse(text + b" " * (asked.MAX_BYTES + 1 - len(text)), "f")


@pytest.mark.parametrize(
    ("state", "final"), [(asked.TRIAL, True), (asked.CURRENT, True), (asked.REFUSED, True), (asked.FAILED, False)]
)
def test_only_what_may_pass_is_not_final(state: str, final: bool) -> None:
    """What failed is tried again at the next start."""
    assert DONE._replace(state=state).final is final


@pytest.mark.parametrize(
    ("known", "last", "request_id", "sha256", "expected"),
    [
        (None, "", ID, SHA, asked.Once.CARRY_OUT),
        (None, ELSE, ID, SHA, asked.Once.CARRY_OUT),
        (None, ID, ID, SHA, asked.Once.DONE),
        (DONE, "", ID, SHA, asked.Once.DONE),
        (DONE, ID, ID, SHA, asked.Once.DONE),
        (DONE, "", ID, OTHER, asked.Once.REUSED),
        (DONE, ID, ID, OTHER, asked.Once.REUSED),
        (DONE, "", ELSE, SHA, asked.Once.CARRY_OUT),
        (DONE, ELSE, ELSE, OTHER, asked.Once.DONE),
        (DONE._replace(state=asked.FAILED), "", ID, SHA, asked.Once.CARRY_OUT),
        (DONE._replace(state=asked.FAILED), ID, ID, SHA, asked.Once.DONE),
        (DONE._replace(state=asked.FAILED), "", ID, OTHER, asked.Once.CARRY_OUT),
        (DONE._replace(id=""), "", "", SHA, asked.Once.DONE),
        (DONE._replace(id=""), "", "", OTHER, asked.Once.CARRY_OUT),
        (None, "", "", SHA, asked.Once.CARRY_OUT),
    ],
)
def test_a_request_is_carried_out_once(
    known: Any, last: str, request_id: str, sha256: str, expected: asked.Once
) -> None:
    """By its id and its bytes: whose trial began, or who was answered for good, is passed over; another one's id is refused."""
    assert asked.once(known, last, request_id, sha256) is expected


@given(st.none() | found, ids, ids, digests)
def test_what_was_answered_for_good_is_never_carried_out_again(
    known: Any, last: str, request_id: str, sha256: str
) -> None:
    """Whatever the rest is."""
    once = asked.once(known, last, request_id, sha256)
    if known is not None and known.final and known.id == request_id and (request_id or known.sha256 == sha256):
        assert once is not asked.Once.CARRY_OUT
    if request_id and request_id == last:
        assert once is not asked.Once.CARRY_OUT


def test_the_trial_that_counts() -> None:
    """The one that is pending, else the last one, else none."""
    ended = settle.State(update=records.Update(last=LAST))
    assert asked.trial_of(ended, ELSE) == ELSE
    assert asked.trial_of(ended, "") == ID
    assert asked.trial_of(settle.State(), "") == ""
