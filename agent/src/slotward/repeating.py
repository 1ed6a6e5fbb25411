# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests by their id: the same again is answered as before, or with the first; another under a used id is refused.

Rules (privilege.md, section 3):
- The last requests are remembered, by everything that they ask; the connection that they came by says nothing.
- What may pass by itself is not remembered as an answer: who asks again later gets a new one.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from slotcore import codes, protocol, reply

MOST = 64
Answer = Callable[[reply.Reply], None]


def _plain(request: protocol.Request) -> protocol.Request:
    return request._replace(nonce=None, protocol=protocol.VERSION)


class _Known:
    """One request, who waits for its answer, and the answer."""

    def __init__(self, request: protocol.Request) -> None:
        self.request = request
        self.waiting: List[Answer] = []
        self.answer: Optional[reply.Reply] = None


class Repeats:
    """The requests that a server remembers."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: Dict[str, _Known] = {}

    def demand_same(self, request: protocol.Request) -> None:
        """Raise Refused `id-reused` when another request had this id."""
        known = self._known.get(request.id)
        if known is not None and known.request != _plain(request):
            text = f"{request.id} was the id of another request, {known.request.op}: choose another id for {request.op}"
            raise codes.refused(codes.ID_REUSED, text)

    def begin(self, request: protocol.Request, answer: Answer) -> Optional[Answer]:
        """Where the answer to a new request goes; None for one that was asked before, which is answered, now or later.

        Raises Refused `id-reused`.
        """
        self.demand_same(request)
        known = self._known.get(request.id)
        if known is not None:
            if known.answer is not None:
                answer(known.answer)
            else:
                known.waiting.append(answer)
            return None
        known = self._known[request.id] = _Known(_plain(request))
        known.waiting.append(answer)
        return lambda found: self._end(request.id, found)

    def _end(self, request_id: str, found: reply.Reply) -> None:
        known = self._known[request_id]
        waiting, known.waiting = known.waiting, []
        if found.retry:
            del self._known[request_id]
        else:
            known.answer = found
            self._forget()
        for answer in waiting:
            answer(found)

    def _forget(self) -> None:
        """Keep the last ones; what is not answered yet is kept whatever its age."""
        done = [request_id for request_id, known in self._known.items() if known.answer is not None]
        for request_id in done[: max(0, len(done) - self._most)]:
            del self._known[request_id]
