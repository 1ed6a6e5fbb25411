# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log's lines and their chain: one spelling, and any change in the middle of it is found."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import audit, audit_chain, canonical

ID = "9f8a6c1e22d04b57"
SHA = "ab" * 32
EVENT = audit.Event(
    "confirmed", "probe", 1_700_000_000, "ok", "1.0.0", "1.1.0", ID, 2, SHA, "ana", "probe 1.1.0 is confirmed"
)
PAGES = pathlib.Path(__file__).parents[2] / "docs"

texts = st.text(max_size=30)
events = st.builds(
    audit.Event,
    st.sampled_from(sorted(audit.EVENTS)),
    st.just("probe"),
    st.integers(-5, audit.MAX_INT + 5),
    st.sampled_from(["ok", "below-floor", "Not A Code", ""]),
    st.text(max_size=200),
    texts,
    st.sampled_from(["", ID, ID * 4, "xyz", ID * 5]),
    st.integers(-1, audit.MAX_INT + 1),
    st.sampled_from(["", SHA, SHA.upper(), "1"]),
    texts,
    st.text(max_size=1200),
)


def chain(*made: audit.Event) -> List[bytes]:
    """The lines of a log of these events."""
    lines: List[bytes] = []
    for event in made:
        lines.append(audit.append(lines[-1] if lines else None, event))
    return lines


def numbered(count: int) -> List[bytes]:
    """A log of that many lines that differ."""
    return chain(*(EVENT._replace(at=number, why=f"line {number}") for number in range(count)))


def held(lines: List[bytes], before: Optional[audit_chain.Chain] = None) -> audit_chain.Chain:
    """The chain, which must hold."""
    found = audit_chain.verify(lines, before)
    assert isinstance(found, audit_chain.Chain), found
    return found


def fault(lines: List[bytes]) -> audit_chain.Fault:
    """The fault, which must be found."""
    found = audit_chain.verify(lines)
    assert isinstance(found, audit_chain.Fault), found
    return found


@given(st.lists(events, max_size=5))
def test_any_event_can_be_written_and_is_read_as_it_was_made_to_fit(made: List[audit.Event]) -> None:
    """No text keeps a decision out of the log, and what a line says is what the next reader gets."""
    lines = chain(*made)
    assert [audit.parse(line).event for line in lines] == [audit.fit(event) for event in made]
    assert held(lines) == (1 if made else 0, audit.head_of(lines[-1]) if made else audit.EMPTY)
    assert all(len(line) <= audit.MAX_LINE and b"\n" not in line for line in lines)


@given(events)
def test_a_line_is_canonical_json(event: audit.Event) -> None:
    """The light writer spells as the engine's own: other programs may read the one and write the other."""
    line = audit.Line(1, audit.ZEROS, audit.fit(event))
    assert audit.render(line) == canonical.encode(audit.as_json(line))


def test_the_longest_line_fits_its_limit() -> None:
    """Every text as long as it may be, of the characters that take most room, quotes and backslashes too."""
    for char in ("\U0001f600", '"', "\\", "\u20ac"):
        long = char * 5000
        event = EVENT._replace(
            product="p" * 64, code="c" * 64, from_version=long, to_version=long, trial_id="f" * 64, who=long, why=long,
            at=audit.MAX_INT, sequence=audit.MAX_INT,
        )  # fmt: skip
        line = audit.Line(audit.MAX_INT + 1, SHA, audit.fit(event))
        assert audit.parse(audit.render(line)) == line


def test_a_line_has_the_fields_of_the_page() -> None:
    """Trust.md, section 5, in that order and spelling; other programs read these names."""
    page = (PAGES / "design" / "trust.md").read_text(encoding="utf-8")
    shown = re.search(r'^`\{"at":s.*\}`$', page, re.MULTILINE)
    assert shown is not None
    assert re.findall(r'"([a-z0-9]+)":', shown.group()) == list(json.loads(chain(EVENT)[0]))
    assert json.loads(chain(EVENT)[0]) == {
        "at": 1_700_000_000, "code": "ok", "event": "confirmed", "from": "1.0.0", "id": ID, "n": 1, "prev": "0" * 64,
        "product": "probe", "sequence": 2, "sha256": SHA, "spec": 1, "to": "1.1.0", "who": "ana",
        "why": "probe 1.1.0 is confirmed",
    }  # fmt: skip


def test_the_events_are_those_of_the_page() -> None:
    """Each event of trust.md has an id of its own, and those that must be durable first are the five it names."""
    page = (PAGES / "design" / "trust.md").read_text(encoding="utf-8")
    listed = page[page.index("Events, and the journal's") : page.index("`who` is")]
    assert set(re.findall(r"`([a-z-]+)`", listed)) - {"refused"} == set(audit.EVENTS) - {"refused"}
    ids = [kind.message_id for kind in audit.EVENTS.values()]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)
    assert {name for name, kind in audit.EVENTS.items() if kind.first} == {
        "accepted", "permitted", "keys-changed", "repaired", "one-way", "forced", "mode-changed",
    }  # fmt: skip
    assert all(2 <= kind.priority <= 6 for kind in audit.EVENTS.values())


def test_the_hash_is_what_sha256sum_says_of_the_line() -> None:
    """Over the bytes without the newline; the first line follows 64 zeros."""
    first, second = numbered(2)
    assert json.loads(first)["prev"] == "0" * 64
    assert json.loads(second)["prev"] == hashlib.sha256(first).hexdigest()
    assert audit.head_of(second) == (2, hashlib.sha256(second).hexdigest())


# -- what breaks a chain ---------------------------------------------------------------------------------------------


@given(st.data())
def test_a_change_of_any_byte_is_found(data: st.DataObject) -> None:
    """Any byte of any line but the last, to anything; in the last line it breaks the line or changes the head."""
    lines = numbered(4)
    at = data.draw(st.integers(0, 3))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != lines[at][place]))
    changed = lines[at][:place] + bytes([byte]) + lines[at][place + 1 :]
    found = audit_chain.verify([*lines[:at], changed, *lines[at + 1 :]])
    if isinstance(found, audit_chain.Chain):
        assert at in (0, 3), "a change in the middle was not found"
        assert found != held(lines)
    else:
        assert found.line in (at + 1, at + 2)


@given(st.data())
def test_lines_removed_inserted_swapped_or_doubled_are_found(data: st.DataObject) -> None:
    """Whatever is done to whole lines, as long as one line stands behind it."""
    lines = numbered(6)
    at = data.draw(st.integers(1, 4))
    other = data.draw(st.integers(1, 4).filter(lambda value: value != at))
    swapped = list(lines)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    foreign = audit.append(lines[at - 1], EVENT._replace(why="never happened"))
    for made in (
        lines[:at] + lines[at + 1 :],
        [*lines[:at], foreign, *lines[at:]],
        [*lines[:at], foreign, *lines[at + 1 :]],
        [*lines[:at], lines[at], *lines[at:]],
        swapped,
    ):
        assert fault(made).line <= 6


def test_a_cut_tail_is_found_only_by_whoever_remembers_the_head() -> None:
    """What is left is a chain that holds, with another head; the first lines that are gone show by their number."""
    lines = numbered(5)
    for cut in range(5):
        left = held(lines[:cut])
        assert left.head == (audit.head_of(lines[cut - 1]) if cut else audit.EMPTY)
        assert left.head != held(lines).head
        assert held(lines[cut:]) == (cut + 1, held(lines).head)


def test_a_chain_goes_on_across_files() -> None:
    """A second file is read with what the first one left; alone it would begin with a number that says what is gone."""
    lines = numbered(6)
    assert held(lines[3:], held(lines[:3])) == held(lines)
    assert held(lines[3:], held([])) == (4, held(lines).head)
    broken = audit_chain.verify(lines[4:], held(lines[:3]))
    assert broken == audit_chain.Fault(1, "its number is 5, the one after line 3 is 4")


def test_a_fault_names_both_hashes() -> None:
    """An operator sees what the line says and what it should say."""
    lines = numbered(3)
    changed = lines[1].replace(b"line 1", b"line X")
    found = fault([lines[0], changed, lines[2]])
    assert found.line == 3
    assert hashlib.sha256(lines[1]).hexdigest() in found.why
    assert hashlib.sha256(changed).hexdigest() in found.why


def broken_line(**changes: Any) -> bytes:
    """A line with other values, canonical all the same; None takes a field away."""
    fields: Dict[str, Any] = {**audit.as_json(audit.Line(1, audit.ZEROS, EVENT)), **changes}
    return canonical.encode({name: value for name, value in fields.items() if value is not None})


BAD = {
    "nothing": (b"", "not JSON"),
    "no JSON": (b"{", "not JSON"),
    "not UTF-8": (b'"\xff"', "not JSON"),
    "deep": (b"[" * 8000, "not JSON"),
    "too long": (b" " * (audit.MAX_LINE + 1), "at most 8192"),
    "a list": (b"[]", "not an object"),
    "a field less": (broken_line(why=None), "not an object"),
    "a field more": (broken_line(more=1), "not an object"),
    "a number for a text": (broken_line(why=1), "its why is no text"),
    "a text for a number": (broken_line(n="1"), "its n is no number"),
    "true for a number": (broken_line(sequence=True), "its sequence is no number"),
    "a later spec": (broken_line(spec=2), "its spec is 2"),
    "line 0": (broken_line(n=0), "out of bounds"),
    "a time before 1970": (broken_line(at=-1), "out of bounds"),
    "a short prev": (broken_line(prev="0"), "out of bounds"),
    "an unspeakable event": (broken_line(event="No"), "one of its texts"),
    "a code with a blank": (broken_line(code="a b"), "one of its texts"),
    "no product": (broken_line(product=""), "one of its texts"),
    "an odd id": (broken_line(id="1"), "one of its texts"),
    "an odd digest": (broken_line(sha256="1"), "one of its texts"),
    "nobody": (broken_line(who=""), "one of its texts"),
    "a long reason": (broken_line(why="x" * 1001), "one of its texts"),
    "a newline": (broken_line(why="a\nb"), "one of its texts"),
    "a text that turns round": (broken_line(to="1.0\u202e"), "one of its texts"),
    "blanks": (broken_line().replace(b",", b", "), "not spelled"),
    "an escape": (broken_line().replace(b"probe 1", b"\\u0070robe 1"), "not spelled"),
    "a field twice": (broken_line().replace(b'"at":', b'"at":1,"at":'), "not spelled"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_line_is_said(name: str) -> None:
    """Every kind of damage to one line, each with its own sentence."""
    data, why = BAD[name]
    with pytest.raises(audit.BadLine, match=re.escape(why)):
        audit.parse(data)
    assert fault([data]).line == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
line_fields = st.fixed_dictionaries(dict.fromkeys(audit.as_json(audit.Line(1, "", EVENT)), json_values))


@given(st.binary(max_size=300) | (json_values | line_fields).map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_a_bad_line_and_no_other_error(data: bytes) -> None:
    """Bytes, JSON of any kind, objects with the right names: told as what they are."""
    try:
        assert audit.render(audit.parse(data)) == data
    except audit.BadLine:
        assert isinstance(audit_chain.verify([data]), audit_chain.Fault)


def test_a_first_line_that_follows_something_is_a_fault() -> None:
    """Line 1 is the beginning: what it names as the line before cannot be."""
    assert "its prev is" in fault([broken_line(prev=SHA)]).why


def test_a_later_version_s_event_is_a_line_like_any_other() -> None:
    """After going back, the older version goes on with what the newer one began."""
    lines = chain(EVENT._replace(event="taught-to-fly"), EVENT)
    assert held(lines).head.number == 2


# -- writing ---------------------------------------------------------------------------------------------------------


def test_the_same_refusal_again_is_no_new_line() -> None:
    """Word for word: another time or trial id makes no other refusal, any other word does; other events always count."""
    refusal = EVENT._replace(event="refused", code="below-floor")
    last = chain(refusal)[0]
    assert audit.repeats(last, refusal._replace(at=5, trial_id=""))
    assert not audit.repeats(last, refusal._replace(why="x"))
    assert not audit.repeats(last, refusal._replace(code="expired"))
    assert not audit.repeats(last, refusal._replace(to_version="2.0.0"))
    assert not audit.repeats(last, refusal._replace(sha256=""))
    assert not audit.repeats(last, refusal._replace(who="ben"))
    assert not audit.repeats(None, refusal)
    assert not audit.repeats(chain(EVENT)[0], EVENT)
    assert not audit.repeats(chain(EVENT)[0], refusal)


def test_a_file_is_closed_at_a_mebibyte_and_16_are_kept() -> None:
    """A file that is empty takes a line of any length; names are read in the order of their numbers."""
    assert not audit_chain.is_full(0, 2 << 20)
    assert not audit_chain.is_full((1 << 20) - 10, 10)
    assert audit_chain.is_full((1 << 20) - 10, 11)
    names = [audit_chain.closed_name(number) for number in range(100, 0, -5)]
    odd = ["audit.log", "audit.log.0", "audit.log.01", "audit.log.1x", "audit.log.tmp", "x"]
    assert [first for first, _name in audit_chain.closed(names + odd)] == sorted(range(100, 0, -5))
    assert audit_chain.surplus(names + odd) == ["audit.log.5", "audit.log.10", "audit.log.15", "audit.log.20"]
    assert audit_chain.surplus(names[4:]) == []


# -- what it proves --------------------------------------------------------------------------------------------------


def log(*made: audit.Event) -> audit_chain.Facts:
    """The facts of a log of these events."""
    return audit_chain.facts(chain(*made))


def test_the_highest_sequence_that_was_confirmed() -> None:
    """What was only accepted, or failed, raises nothing."""
    installed = EVENT._replace(event="installed", sequence=1)
    assert log(installed, EVENT).confirmed == 2
    assert log(installed, EVENT._replace(event="accepted", sequence=9)).confirmed == 1
    assert log(installed, EVENT._replace(event="repaired", sequence=7), EVENT).confirmed == 7
    assert log().confirmed == 0


def test_what_verified_bytes_were() -> None:
    """The newest line about a digest counts; what was refused was never verified."""
    other = "cd" * 32
    found = log(
        EVENT._replace(event="accepted", sequence=3),
        EVENT,
        EVENT._replace(event="refused", sha256=other),
        EVENT._replace(event="cleared", sha256=other),
        EVENT._replace(event="rolled-back", sha256="", sequence=9),
    )
    assert found.named == {SHA: audit_chain.Named("1.1.0", 2)}


def test_a_log_is_whole_when_it_begins_where_the_host_began() -> None:
    """Refusals may come before the first install; a log that begins later, or anew, proves no floor."""
    refusal, installed = EVENT._replace(event="refused"), EVENT._replace(event="installed")
    adopted = EVENT._replace(event="adopted")
    assert log(installed).whole
    assert log(refusal, adopted, EVENT).whole
    assert not log(EVENT, installed).whole
    assert not log(EVENT._replace(event="repaired"), installed).whole
    assert not log(refusal).whole
    assert not log().whole
    assert not audit_chain.facts(chain(refusal, installed, installed)[1:]).whole


def test_what_to_go_back_to_is_what_was_installed_adopted_or_confirmed_last() -> None:
    """A going back, a refusal or a swap changes nothing about it."""
    other = "cd" * 32
    installed = EVENT._replace(event="installed", sha256=other)
    assert log().good == ""
    assert log(installed).good == other
    assert log(installed, EVENT).good == SHA
    assert log(EVENT, installed._replace(event="adopted")).good == other
    for event in ("swapped", "rolled-back", "refused", "repaired", "accepted"):
        assert log(EVENT, installed._replace(event=event)).good == SHA


def test_what_was_said_about_trust() -> None:
    """The highest key set, what was withdrawn, and the permits that were used: a lost record of trust is begun with them."""
    away = EVENT._replace(event="withdrawn", why="a bad one")
    found = log(
        EVENT._replace(event="keys-changed", sequence=4),
        away,
        EVENT._replace(event="keys-changed", sequence=3),
        EVENT._replace(event="permitted", why="downgrade permit 0123456789abcdef", at=9),
    )
    assert (found.keys, found.withdrawn, found.permits) == (4, (away,), (("0123456789abcdef", 9),))
    assert (log(EVENT).keys, log(EVENT).withdrawn, log(EVENT).permits) == (0, (), ())


def test_the_floor_that_is_known_is_what_a_permit_took_it_down_to() -> None:
    """By the trial that was permitted and no other; where older lines are gone it is only lower, never higher."""
    at_five = EVENT._replace(event="installed", sequence=5, trial_id="")
    permit = EVENT._replace(event="permitted", sequence=2, trial_id="0" * 16, why="downgrade permit 0123456789abcdef")
    down = EVENT._replace(event="confirmed", sequence=2, trial_id="0" * 16)
    assert (log(at_five, permit, down).floor, log(at_five, permit, down).confirmed) == (2, 5)
    assert log(at_five, permit, down._replace(event="rolled-back")).floor == 5
    assert log(at_five, permit, down._replace(trial_id="1" * 16)).floor == 5
    assert log(at_five, down._replace(trial_id="")).floor == 5, "no permit, no trial: nothing goes down"
    assert log(at_five, permit, down, EVENT._replace(event="confirmed", sequence=3, trial_id="2" * 16)).floor == 3
    assert log(permit, down).floor == 2
