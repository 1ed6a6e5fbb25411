# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer to a request of the protocol, and what a command's own answer means for who asked (privilege.md, section 3).

Rules:

* `refused` is final, `retry` may pass by itself; both false with another code than `ok` is how something ended.
* Whatever is rendered fits into a message: an answer that is too long loses what its operation added, never its code.
"""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple

from . import codes, fields, protocol

MAX_MESSAGE = 1000

_CODE = re.compile(r"[a-z][a-z0-9-]{0,63}")
_ID_OR_NONE = re.compile(r"(?:[0-9a-f]{16})?")
_KEYS = ("protocol", "id", "refused", "retry", "code", "message", "answer")
_KEPT = ("spec", "product", "changed", "state", "code")
# exit statuses of the commands, node.md section 6
_REFUSED, _RETRY, _BROKEN = 3, 4, 5
_ENDED = (0, 6)
_KILLED = 128


class Reply(NamedTuple):
    """The answer to one request."""

    id: str
    """The request's; "" when that could not be read."""
    refused: bool
    retry: bool
    code: str
    message: str
    answer: Mapping[str, object]
    """The command's own answer (node.md, section 6); empty when no command ran."""
    protocol: int = protocol.VERSION


def refusal(request_id: str, code: str, text: str) -> Reply:
    """The server's own word about a request that it did not carry out."""
    passes = codes.CODES[code].kind == codes.RETRYABLE
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")  # a path of root's need not be text
    return Reply(request_id, refused=not passes, retry=passes, code=code, message=plain, answer={})


def of_command(request_id: str, status: int, answer: Mapping[str, object]) -> Reply:
    """What a command's exit status and its answer mean for who asked.

    Raises:
        codes.Retryable: `bad-answer`, when it is no command's answer.

    """
    try:
        found = fields.Fields({key: answer.get(key) for key in ("code", "message")}, "", ("code", "message"))
        code, message = found.matching("code", _CODE, "a code"), found.text("message")
    except fields.BadField as error:
        raise codes.Retryable(codes.BAD_ANSWER, "the command ended with status %d and %s" % (status, error)) from None
    refused, retry = status in (_REFUSED, _BROKEN), status == _RETRY
    if not refused and not retry and status not in _ENDED:  # it failed, or something ended it: the code says which
        kind = codes.CODES[code].kind if code in codes.CODES else codes.RETRYABLE
        refused = kind in (codes.REFUSAL, codes.BROKEN)
        # the answer is the last that a command does: one that a signal ended after it had answered has done its work
        retry = not refused and not (status > _KILLED and kind == codes.OUTCOME)
    return Reply(request_id, refused, retry, code, message, answer)


def render(reply: Reply) -> bytes:
    """The answer's bytes, never more than a message may have."""
    whole = protocol.encode(reply._asdict())
    if len(whole) <= protocol.MAX_ANSWER:
        return whole
    short = reply.message[:MAX_MESSAGE]
    kept = dict({key: reply.answer[key] for key in _KEPT if key in reply.answer}, message=short)
    less = protocol.encode(reply._replace(message=short, answer=kept)._asdict())
    if len(less) <= protocol.MAX_ANSWER:
        return less
    return protocol.encode(reply._replace(message=short, answer={})._asdict())


def parse(data: bytes) -> Reply:
    """The answer in `data`.

    Raises:
        codes.Retryable: `bad-answer`, naming the key.

    """
    try:
        value = fields.read(data, "the answer", protocol.MAX_ANSWER)
        found = fields.Fields(value, "", _KEYS)
        return Reply(
            id=found.matching("id", _ID_OR_NONE, protocol.ID_RULE + " or nothing"),
            refused=found.flag("refused"),
            retry=found.flag("retry"),
            code=found.matching("code", _CODE, "a code"),
            message=found.text("message"),
            answer=found.mapping("answer"),
            protocol=found.number("protocol", 1, max(protocol.VERSIONS)),
        )
    except fields.BadField as error:
        raise codes.Retryable(codes.BAD_ANSWER, "the answer is malformed: %s" % error) from None
