# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels between the unprivileged side and root's: only its own forms are taken, and each error says what is wrong."""

from __future__ import annotations

import json
import re
from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, protocol, strictjson

ID, TRIAL, NONCE, SHA = "0123456789abcdef", "fedcba9876543210", "ab" * 16, "cd" * 32
HELLO = protocol.Hello("toy", (1,), NONCE, "1.1.0", SHA)

numbers = st.integers(0, strictjson.MAX_INT)
names = st.from_regex(protocol.NAME, fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
ids = st.from_regex(protocol.ID, fullmatch=True)
printable = st.text(max_size=protocol.MAX_WHY).filter(str.isprintable)


@st.composite
def requests(draw: st.DrawFn) -> protocol.Request:
    """Any request that keeps the rules."""
    op = draw(st.sampled_from(sorted(protocol.OPERATIONS)))
    needed, optional = protocol.OPERATIONS[op]
    files = digests if op == protocol.NODE_UPGRADE else names
    values: Dict[str, st.SearchStrategy[Any]] = {
        "target": files,
        "permit": files,
        "serverTime": numbers,
        "trial": ids,
        "wait": st.integers(0, protocol.MAX_WAIT_S),
        "why": printable,
    }
    given_too = draw(st.sets(st.sampled_from(optional))) if optional else set()
    found = {("server_time" if key == "serverTime" else key): draw(values[key]) for key in (*needed, *given_too)}
    return protocol.Request(op, draw(ids), **found)


def message(**changes: object) -> bytes:
    """A good request to swap with some keys otherwise; None takes a key away."""
    value: Dict[str, object] = {"protocol": 1, "nonce": NONCE, "id": ID, "op": "update.swap", "target": "x.target"}
    value.update(changes)
    return json.dumps({key: one for key, one in value.items() if one is not None}).encode()


def refusal(data: bytes, nonce: str | None = NONCE) -> codes.Refused:
    """Why this is no request."""
    with pytest.raises(codes.Refused) as caught:
        protocol.parse_request(data, nonce)
    return caught.value


# --- requests ---


@given(requests(), st.none() | st.just(NONCE))
def test_a_request_reads_back(request: protocol.Request, nonce: str | None) -> None:
    """With the nonce of its connection, or without one in a file; and it always fits."""
    sent = request._replace(nonce=nonce)
    data = protocol.render_request(sent)
    assert protocol.parse_request(data, nonce) == sent
    assert len(data) <= protocol.MAX_REQUEST


def test_the_operations_are_those_of_the_contract() -> None:
    """No operation but these, and none of either side's in the other's."""
    assert tuple(op for op in protocol.OPERATIONS if op.startswith("update.")) == protocol.HELPER_OPERATIONS
    assert tuple(op for op in protocol.OPERATIONS if op.startswith("node.")) == protocol.NODE_OPERATIONS
    assert len(protocol.OPERATIONS) == 8


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "0123"}, "id must be 16 lower-case hexadecimal digits, not '0123'"),
        ({"id": ID.upper()}, "id must be 16 lower-case hexadecimal digits, not '0123456789ABCDEF'"),
        ({"id": None}, "has no id"),
        ({"op": None}, "has no op"),
        ({"op": "update.reboot"}, "op must be one of update.prepare, update.swap, .*, not 'update.reboot'"),
        ({"op": 7}, "op must be one of .*, not 7"),
        ({"nonce": None}, "has no nonce"),
        ({"nonce": "cd" * 16}, "nonce must be this connection's, %s, not '%s'" % (NONCE, "cd" * 16)),
        ({"nonce": 1}, "nonce must be a string, not 1"),
        ({"target": None}, "has no target"),
        ({"target": 5}, "target must be a string, not 5"),
        ({"target": "../x"}, "target must be a plain file name .*, not '../x'"),
        ({"target": "a/b"}, "target must be a plain file name"),
        ({"target": ".hidden"}, "target must be a plain file name"),
        ({"target": ".."}, "target must be a plain file name"),
        ({"target": ""}, "target must be a plain file name"),
        ({"target": "x" * 129}, "at most 128 letters"),
        ({"target": "a\n"}, r"not 'a\\n'"),
        ({"permit": "a b"}, "permit must be a plain file name .*, not 'a b'"),
        ({"serverTime": -1}, "serverTime must be an integer from 0 to 9007199254740991, not -1"),
        ({"serverTime": True}, "serverTime must be an integer from 0 to 9007199254740991, not True"),
        ({"serverTime": "1"}, "serverTime must be an integer from 0 to 9007199254740991, not '1'"),
        ({"adopt": True}, "has the unknown field 'adopt'"),
        ({"wait": 1}, "has the unknown field 'wait'"),
        ({"protocol": None}, "has no protocol"),
        ({"protocol": True}, "protocol must be a positive integer, not True"),
        ({"protocol": "1"}, "protocol must be a positive integer, not '1'"),
        ({"op": "update.confirm", "target": None}, "has no trial"),
        ({"op": "update.confirm", "target": None, "trial": TRIAL, "wait": 31}, "wait must be .* from 0 to 30, not 31"),
        ({"op": "update.confirm", "target": None, "trial": TRIAL, "source": "controller"}, "unknown field 'source'"),
        ({"op": "update.confirm", "target": None, "trial": "x"}, "trial must be 16 lower-case"),
        ({"op": "update.rollback", "target": None, "trial": TRIAL, "why": "x" * 201}, "why must be at most 200 print"),
        ({"op": "update.rollback", "target": None, "trial": TRIAL, "why": "a\nb"}, r"why must be .*, not 'a\\nb'"),
        ({"op": "update.rollback", "target": None, "trial": TRIAL, "why": 3}, "why must be a string, not 3"),
        ({"op": "update.settle"}, "has the unknown field 'target'"),
        ({"op": "node.upgrade", "target": "x.target"}, "target must be 64 lower-case hexadecimal digits"),
    ],
)
def test_what_is_no_request_is_refused_by_its_key(changes: Dict[str, object], said: str) -> None:
    """The key, the rule and the value that breaks it."""
    found = refusal(message(**changes))
    assert found.code == codes.BAD_REQUEST
    assert re.search(said, found.text), found.text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not plain JSON: byte 0"),
        (b"[]", r"the whole must be an object, not \[\]"),
        (b"null", "the whole must be an object, not None"),
        (b'{"op":"update.settle","op":"update.swap"}', "the key 'op' is there twice"),
        (b'{"wait":1.5}', "not a plain integer"),
        (message() + b"\0", "expected the end"),
        (b" " * 4097, "4097 bytes; at most 4096 are taken"),
        (b"\xff", "not UTF-8"),
        (b"[" * 4000, "nested deeper than 16"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, said: str) -> None:
    """With the place, or with the limit and what was sent."""
    found = refusal(data)
    assert found.code == codes.BAD_REQUEST
    assert re.search(said, found.text), found.text


def test_a_file_has_no_nonce() -> None:
    """A message that was taken from a connection is no request of start mode, and a file none for a connection."""
    assert "the unknown field 'nonce'" in refusal(message(), nonce=None).text
    assert protocol.parse_request(message(nonce=None)) == protocol.Request("update.swap", ID, target="x.target")


def test_another_protocol_is_told_before_anything_else_is_judged() -> None:
    """Its other keys may well be unknown here; both sides' versions are named."""
    found = refusal(message(protocol=2, trace="x", op="update.later"))
    assert found.code == codes.PROTOCOL_MISMATCH
    assert found.text.startswith("the other side speaks version 2 of the protocol, this one 1")


@given(st.binary(max_size=300) | requests().map(lambda one: protocol.render_request(one)[:-1]))
def test_anything_else_is_refused_with_one_of_two_codes(data: bytes) -> None:
    """No exception but the refusal comes out."""
    assert refusal(data).code in (codes.BAD_REQUEST, codes.PROTOCOL_MISMATCH)


def test_a_name_leads_nowhere_else() -> None:
    """No name that is taken can leave its directory or be hidden in it."""
    for name in (".", "..", "a/b", "/", "a\\b", "a\0", "a\n", "ä", "a b", "$(x)", "%i", ""):
        assert protocol.NAME.fullmatch(name) is None
    for name in ("0123456789abcdef.target", "slotward-1.1.0-rc.1+b5", "apply", "_", "-"):
        assert protocol.NAME.fullmatch(name) is not None


# --- the greeting, the version ---


@given(st.lists(st.integers(1, strictjson.MAX_INT), max_size=20))
def test_a_greeting_reads_back(versions: list[int]) -> None:
    """With whatever versions the server speaks."""
    hello = HELLO._replace(protocol=tuple(versions))
    assert protocol.parse_hello(protocol.render_hello(hello)) == hello


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": 1}, "protocol must be a list, not 1"),
        ({"protocol": [0]}, "protocol must be an integer from 1 to"),
        ({"protocol": ["1"]}, "protocol must be an integer from 1 to"),
        ({"nonce": "x"}, "nonce must be 32 lower-case hexadecimal digits, not 'x'"),
        ({"product": "Toy"}, "product must be a product's name, not 'Toy'"),
        ({"version": "1"}, "version must be a semantic version such as 1.4.0, not '1'"),
        ({"sha256": "x"}, "sha256 must be 64"),
        ({"more": 1}, "the unknown field 'more'"),
    ],
)
def test_what_is_no_greeting_may_be_one_later(changes: Dict[str, object], said: str) -> None:
    """Who reads it did nothing wrong: it is retryable, and names the key."""
    data = json.dumps(dict(HELLO._asdict(), **changes)).encode()
    with pytest.raises(codes.Retryable) as caught:
        protocol.parse_hello(data)
    assert caught.value.code == codes.BAD_ANSWER
    assert said in caught.value.text


def test_the_highest_version_that_both_know_is_picked() -> None:
    """Whatever the order; and none is an error that names both sides."""
    assert protocol.pick((1,)) == protocol.VERSION == 1
    assert protocol.pick((3, 1, 2), (1, 2)) == 2
    for theirs, ours, said in (((2, 3), (1,), "version 2, 3 of the protocol, this one 1"), ((), (1,), "none")):
        with pytest.raises(codes.Refused, match=said) as caught:
            protocol.pick(theirs, ours)
        assert caught.value.code == codes.PROTOCOL_MISMATCH
