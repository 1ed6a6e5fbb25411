# SPDX-License-Identifier: GPL-3.0-or-later
"""`trust.json`: what is read is what was written, and anything else is a broken record."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes
from slotcore import trust_record as trusts

PIN = "sha256/" + "A" * 43 + "="
OTHER = "sha256/" + "B" * 43 + "="
KEYS = trusts.Keys(3, 100, 900, (PIN, OTHER), 2, "ab" * 32)
FULL = trusts.Trust(
    generation=7,
    keys=KEYS,
    withdrawn=(trusts.Withdrawn("1.1.0", 5, "loses mail ¡ and more", 50),),
    permits=(trusts.Permitted("0123456789abcdef", 60), trusts.Permitted("f" * 64, 61)),
    allowed=trusts.Allowed("f" * 64, "1.0.0", 4),
)
BYTES = (
    b'{"allowed":{"id":"' + b"f" * 64 + b'","sequence":4,"version":"1.0.0"},"generation":7,'
    b'"keys":{"expires_at":900,"issued_at":100,"pins":["' + PIN.encode() + b'","' + OTHER.encode() + b'"],"sequence":3,'
    b'"sha256":"' + b"ab" * 32 + b'","threshold":2},'
    b'"permits":[{"at":60,"id":"0123456789abcdef"},{"at":61,"id":"' + b"f" * 64 + b'"}],"spec":1,'
    b'"withdrawn":[{"at":50,"sequence":5,"version":"1.1.0","why":"loses mail ' + "¡".encode() + b' and more"}]}\n'
)


def test_the_bytes_are_those_of_the_contract() -> None:
    """As trust.md, section 3 has them."""
    assert trusts.render(FULL) == BYTES
    assert trusts.parse(BYTES, "trust.json") == FULL
    empty = trusts.Trust(generation=1)
    assert trusts.render(empty) == b'{"allowed":null,"generation":1,"keys":null,"permits":[],"spec":1,"withdrawn":[]}\n'
    assert trusts.parse(trusts.render(empty), "trust.json") == empty


def value() -> Dict[str, Any]:
    """A sound record as JSON."""
    found: Dict[str, Any] = json.loads(BYTES)
    return found


def why(change: Callable[[Dict[str, Any]], object]) -> str:
    """The complaint about a record with this change."""
    changed = value()
    change(changed)
    with pytest.raises(codes.BrokenRecord) as caught:
        trusts.parse(json.dumps(changed).encode(), "/s/trust.json")
    assert caught.value.file == "/s/trust.json"
    return caught.value.why


def test_every_field_is_there_and_no_other() -> None:
    """On every level."""
    for name in value():
        assert name in why(lambda record, name=name: record.pop(name)) or name == "spec"  # type: ignore[misc]
    assert "colour" in why(lambda record: record.update(colour=1))
    for part in ("keys", "allowed"):
        for name in value()[part]:
            assert name in why(lambda record, part=part, name=name: record[part].pop(name))  # type: ignore[misc]
        assert "colour" in why(lambda record, part=part: record[part].update(colour=1))  # type: ignore[misc]
    for part in ("permits", "withdrawn"):
        for name in value()[part][0]:
            assert name in why(lambda record, part=part, name=name: record[part][0].pop(name))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: record.update(spec=2), "its spec is 2; this version reads 1"),
        (lambda record: record.update(generation=0), "the generation is 0, which is never written"),
        (lambda record: record.update(generation=True), "the generation is True, not a number"),
        (lambda record: record.update(keys=[]), "keys is not an object"),
        (lambda record: record.update(allowed=0), "allowed is not an object"),
        (lambda record: record.update(withdrawn={}), "withdrawn is not a list of at most 64"),
        (
            lambda record: record.update(withdrawn=[record["withdrawn"][0]] * 65),
            "withdrawn is not a list of at most 64",
        ),
        (lambda record: record.update(permits=[record["permits"][0]] * 257), "permits is not a list of at most 256"),
        (lambda record: record.update(permits=["f" * 64]), "a permit is not an object"),
        (lambda record: record["keys"].update(pins=PIN), "the pins is not a list of at most 16"),
        (lambda record: record["keys"].update(pins=[PIN] * 17), "the pins is not a list of at most 16"),
        (lambda record: record["keys"].update(pins=[PIN, PIN]), "the threshold is 2 of 1 distinct pins"),
        (lambda record: record["keys"].update(pins=[]), "the threshold is 2 of 0 distinct pins"),
        (
            lambda record: record["keys"].update(pins=[PIN, "sha256/"]),
            "a pin is 'sha256/', not sha256/<base64 of 32 bytes>",
        ),
        (lambda record: record["keys"].update(pins=[PIN, 1]), "a pin is not a text"),
        (lambda record: record["keys"].update(threshold=0), "the threshold is 0 of 2 distinct pins"),
        (lambda record: record["keys"].update(threshold=3), "the threshold is 3 of 2 distinct pins"),
        (lambda record: record["keys"].update(sha256="ab"), "the key set's sha256 is not 64 hexadecimal digits"),
        (lambda record: record["keys"].update(issued_at=-1), "the key set's issued_at is -1, not a number"),
        (
            lambda record: record["permits"][0].update(id="ABCDEF0123456789"),
            "a permit's id is 'ABCDEF0123456789', not 16 to",
        ),
        (lambda record: record["allowed"].update(id="0"), "a permit's id is '0', not 16 to 64 of 0-9 and a-f"),
        (lambda record: record["allowed"].update(version=1), "the allowed version is not a text"),
        (lambda record: record["withdrawn"][0].update(sequence="5"), "a withdrawn sequence is '5', not a number"),
    ],
)
def test_a_field_of_another_shape_breaks_the_record(change: Callable[[Dict[str, Any]], object], said: str) -> None:
    """Nothing is guessed."""
    assert why(change).startswith(said)


@given(st.integers(0, len(BYTES) - 1))
def test_a_torn_record_is_broken(cut: int) -> None:
    """At any byte: the last one is the newline, without which the value is whole."""
    if cut == len(BYTES) - 1:
        assert trusts.parse(BYTES[:cut], "trust.json") == FULL
        return
    with pytest.raises(codes.BrokenRecord):
        trusts.parse(BYTES[:cut], "trust.json")


def test_a_full_record_is_small_enough_to_be_read() -> None:
    """The longest texts in every place."""
    widest = "\U0001f525"
    full = FULL._replace(
        keys=KEYS._replace(pins=tuple("sha256/%043d=" % number for number in range(16)), threshold=16),
        withdrawn=(trusts.Withdrawn("1" * 128, 2**53 - 1, widest * 500, 2**53 - 1),) * trusts.MAX_WITHDRAWN,
        permits=(trusts.Permitted("f" * 64, 2**53 - 1),) * trusts.MAX_PERMITS,
    )
    assert trusts.parse(trusts.render(full), "trust.json") == full


def test_a_withdrawal_is_found_by_version_and_sequence() -> None:
    """Both of them."""
    assert FULL.withdrawal_of("1.1.0", 5) == FULL.withdrawn[0]
    assert FULL.withdrawal_of("1.1.0", 6) is None
    assert FULL.withdrawal_of("1.1.1", 5) is None


def test_a_permit_is_used_up_and_given_back() -> None:
    """By a swap, and by one that never was; the end of a trial forgets what was allowed."""
    allowed = trusts.Allowed("a" * 16, "1.0.0", 4)
    before = FULL._replace(allowed=None)
    using = before.using(allowed, 70)
    assert using == before._replace(permits=(*FULL.permits, trusts.Permitted("a" * 16, 70)), allowed=allowed)
    assert using.used("a" * 16) == trusts.Permitted("a" * 16, 70)
    assert before.used("a" * 16) is None
    assert using.ended(swapped=True) == using._replace(allowed=None)
    assert using.ended(swapped=False) == before
    assert before.ended(swapped=False) == before.ended(swapped=True) == before
