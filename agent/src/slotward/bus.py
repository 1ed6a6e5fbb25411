# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether D-Bus is there: `systemd-run` waits for a unit over it, while `systemctl` as root asks systemd itself."""

from __future__ import annotations

import socket

SOCKET = "/run/dbus/system_bus_socket"
LOOK_S = 2.0


def problem() -> str:
    """Why nobody can speak over the bus, and what brings it back; "" when it listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
        peer.settimeout(LOOK_S)
        try:
            peer.connect(SOCKET)
        except OSError as error:
            why = error.strerror or str(error)
            return f"D-Bus does not listen at {SOCKET} ({why}): `systemctl start dbus.socket` brings it back"
    return ""
