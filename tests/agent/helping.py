# SPDX-License-Identifier: GPL-3.0-or-later
"""A helper for tests: greets and takes requests as the protocol has it, and answers each by a script."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional

from slotcore import protocol, reply

Script = Callable[[protocol.Request], Optional[reply.Reply]]
"""None closes the connection without an answer."""
NONCE = "5a" * 16


def said(request: protocol.Request, status: int = 0, state: str = "idle", code: str = "ok", **more: Any) -> reply.Reply:
    """What a command of the helper's answered."""
    answer: Dict[str, Any] = {"spec": 1, "product": "slotward", "changed": True, "state": state, "code": code}
    return reply.of_command(request.id, status, {**answer, "message": f"{request.op} by the script", **more})


class Helper:
    """Listens until closed; every request is kept."""

    def __init__(self, path: pathlib.Path, script: Script) -> None:
        self.asked: List[protocol.Request] = []
        self._script = script
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def ops(self) -> List[str]:
        """What was asked, in order."""
        return [request.op for request in self.asked]

    def _serve(self) -> None:
        while True:
            try:
                peer, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(peer,), daemon=True).start()

    def _one(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            hello = protocol.Hello("slotward", protocol.VERSIONS, NONCE, "1.0.0", "ab" * 32)
            peer.send(protocol.render_hello(hello))
            data = peer.recv(protocol.MAX_REQUEST + 1)
            if not data:
                return
            request = protocol.parse_request(data, NONCE)
            self.asked.append(request)
            found = self._script(request)
            if found is not None:
                peer.send(reply.render(found))

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        os.unlink(self._path)


@contextlib.contextmanager
def helper(path: pathlib.Path, script: Script) -> Iterator[Helper]:
    """A helper that answers by this script."""
    made = Helper(path, script)
    try:
        yield made
    finally:
        made.close()
