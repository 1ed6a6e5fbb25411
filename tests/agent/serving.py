# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of the protocol as a process of its own: the agent's server, door and loop, around a service that only answers.

    serving.py SOCKET UID GID GROUP [DESCRIPTORS [IDLE_S]]

GROUP is what systemd would say of the daemon's control group; "-" asks for none. Each request is answered with who asked and
the names of what came with it; `why` "slow" is answered after a second, "never" not at all, "long" at length.
A line `refused …` on standard output tells of each caller that is not served; `ready` comes first.
"""

from __future__ import annotations

import os
import sys
from typing import Dict

from slotcore import protocol, reply
from slotward import binding, caller, looping, seqpacket


def main(path: str, uid: str, gid: str, group: str, descriptors: str = "0", idle_s: str = "30") -> None:
    """Serve until killed."""
    loop = looping.Loop()

    def answer(asked: seqpacket.Asked) -> None:
        names = []
        for one in asked.descriptors:
            names.append(os.readlink(f"/proc/self/fd/{one}"))
            os.close(one)
        found: Dict[str, object] = {"code": "ok", "message": "", "pid": asked.peer.pid, "names": names}
        if asked.request.why == "long":
            found["long"] = "x" * 60000
        done = reply.of_command(asked.request.id, 0, found)
        if asked.request.why == "slow":
            loop.at(asked, looping.now() + 1, lambda: asked.answer(done))
        elif asked.request.why != "never":
            asked.answer(done)

    service = seqpacket.Service(
        hello=lambda nonce: protocol.Hello("slotward", (1,), nonce, "1.0.0", "ab" * 32),
        door=caller.Door(
            caller.Account("games", int(uid), int(gid)),
            None if group == "-" else caller.Group(os.path.basename(group), lambda: group),
        ),
        operations=(protocol.ROLLBACK, protocol.SETTLE),
        serve=answer,
        note=lambda text: print("refused", text, flush=True),
        descriptors=int(descriptors),
        idle_s=float(idle_s),
    )
    listener = binding.listen(path, 0o666, os.getegid(), seqpacket.BACKLOG)
    seqpacket.Server(loop, listener, service)
    print("ready", flush=True)
    loop.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
