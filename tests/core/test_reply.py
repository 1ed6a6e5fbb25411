# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the protocol: final, later, or how it ended; always short enough, always read back."""

from __future__ import annotations

import json
from typing import Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, protocol, reply, strictjson

ID = "0123456789abcdef"
texts = st.text(st.characters(codec="utf-8"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-strictjson.MAX_INT, strictjson.MAX_INT) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)
replies = st.builds(
    reply.Reply,
    id=st.sampled_from(("", ID)),
    refused=st.booleans(),
    retry=st.booleans(),
    code=st.sampled_from(sorted(codes.CODES)),
    message=texts,
    answer=st.dictionaries(texts, values),
    protocol=st.just(protocol.VERSION),
)


def answer(code: str = codes.OK, **more: object) -> Dict[str, object]:
    """A command's answer."""
    return {"spec": 1, "product": "toy", "changed": False, "state": "idle", "code": code, "message": "m", **more}


@given(replies)
def test_an_answer_reads_back(one: reply.Reply) -> None:
    """Whatever a command answers."""
    assert reply.parse(reply.render(one)) == one


@pytest.mark.parametrize(
    ("status", "code", "refused", "retry"),
    [
        (0, codes.OK, False, False),
        (0, codes.TRIAL_PENDING, False, False),
        (6, codes.NOT_CONFIRMED, False, False),
        (3, codes.BELOW_FLOOR, True, False),
        (5, codes.BAD_CONFIG, True, False),
        (4, codes.NO_SPACE, False, True),
        (1, codes.BAD_KEY, True, False),
        (1, codes.RECORD_BROKEN, True, False),
        (1, codes.OS_ERROR, False, True),
        (1, codes.GAVE_UP, False, True),
        (2, "a-code-of-later", False, True),
        (143, codes.NOT_CONFIRMED, False, False),
        (137, codes.OK, False, False),
        (143, codes.NO_SPACE, False, True),
        (143, codes.BELOW_FLOOR, True, False),
        (143, "a-code-of-later", False, True),
        (128, codes.NOT_CONFIRMED, False, True),
    ],
)
def test_the_exit_status_says_who_must_act(status: int, code: str, refused: bool, retry: bool) -> None:
    """As node.md, section 6, has it; where a command failed, its code does."""
    found = reply.of_command(ID, status, answer(code))
    assert found == reply.Reply(ID, refused, retry, code, "m", answer(code))


@pytest.mark.parametrize("wrong", [{}, {"code": "OK!", "message": ""}, {"code": "ok"}, {"code": 1, "message": "x"}])
def test_what_is_no_commands_answer_may_be_one_later(wrong: Dict[str, object]) -> None:
    """A program that was killed while it wrote has answered nothing."""
    with pytest.raises(codes.Retryable, match="the command ended with status 7") as caught:
        reply.of_command(ID, 7, wrong)
    assert caught.value.code == codes.BAD_ANSWER


def test_the_servers_own_word_follows_the_codes_kind() -> None:
    """A refusal is final, a retryable code is not; text that a path brings is made plain."""
    assert reply.refusal(ID, codes.BAD_REQUEST, "x")[1:3] == (True, False)
    assert reply.refusal("", codes.TOO_MANY, "x")[1:3] == (False, True)
    odd = reply.refusal("", codes.OS_ERROR, "caf\udce9")
    assert odd.message == "caf\\udce9"
    assert reply.parse(reply.render(odd)) == odd


def test_what_is_too_long_loses_what_the_operation_added() -> None:
    """The code, the state and the beginning of the message stay, and the command's answer keeps its base."""
    long = reply.of_command(ID, 5, answer(codes.BAD_CONFIG, message="ä" * 40000, sources=["x"] * 9))
    found = reply.parse(reply.render(long))
    assert found.answer == answer(codes.BAD_CONFIG, message="ä" * reply.MAX_MESSAGE)
    assert found.message == "ä" * reply.MAX_MESSAGE
    assert found[:4] == long[:4]


def test_an_answer_that_is_long_where_none_should_be_is_left_out() -> None:
    """Even its base may be too long; the message fits again then."""
    found = reply.parse(reply.render(reply.of_command(ID, 0, answer(state="x" * 70000))))
    assert found.answer == {}
    assert found.code == codes.OK


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "x"}, "id must be 16 lower-case hexadecimal digits or nothing, not 'x'"),
        ({"refused": 1}, "refused must be true or false, not 1"),
        ({"code": "Not A Code"}, "code must be a code"),
        ({"message": None}, "message must be a string"),
        ({"answer": []}, "answer must be an object, not []"),
        ({"protocol": 2}, "protocol must be an integer from 1 to 1, not 2"),
        ({"more": 1}, "the unknown field 'more'"),
    ],
)
def test_what_is_no_answer_may_be_one_later(changes: Dict[str, object], said: str) -> None:
    """It names the key."""
    whole = {**reply.of_command(ID, 0, answer())._asdict(), **changes}
    with pytest.raises(codes.Retryable) as caught:
        reply.parse(json.dumps(whole).encode())
    assert caught.value.code == codes.BAD_ANSWER
    assert said in caught.value.text


def test_no_answer_is_longer_than_a_message() -> None:
    """One byte more than a message may have is not read."""
    with pytest.raises(codes.Retryable, match="65537 bytes; at most 65536 are taken"):
        reply.parse(b" " * (protocol.MAX_ANSWER + 1))
