# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service says to the journal and to systemd."""

from __future__ import annotations

import os
import socket
import sys

# sd-daemon(3) priorities, read by journald from the start of a line
WARNING, NOTICE, INFO = "<4>", "<5>", "<6>"


def log(level: str, text: str) -> None:
    """One line to the journal."""
    print(level + text, file=sys.stderr, flush=True)


def notify(*fields: str) -> None:
    """Tell systemd (sd_notify(3)); nothing happens outside a unit of Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as peer:
        try:
            peer.connect("\0" + address[1:] if address.startswith("@") else address)
            peer.send("\n".join(fields).encode("utf-8"))
        except OSError as error:
            log(WARNING, f"cannot tell systemd {fields[0]}: {error.strerror}")
